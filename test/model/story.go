package model

import (
	"fmt"
	"strings"
)

// tell writes a story down for people: each step, and what it has changed.
func (m *model) tell(start world, story []taken[world]) string {
	var b strings.Builder
	for n, t := range story {
		fmt.Fprintf(&b, "%2d. %s\n", n+1, m.text(t.by))
		if changes := m.changes(&start, &t.after); len(changes) > 0 {
			fmt.Fprintf(&b, "    → %s\n", strings.Join(changes, "; "))
		}
		start = t.after
	}
	return b.String()
}

// tell is the story of a basket.
func (s shopping) tell(story []taken[basket]) string {
	var b strings.Builder
	before := s.initial()
	for n, t := range story {
		key := t.by.key
		fmt.Fprintf(&b, "%2d. %s key: %s\n", n+1, [...]string{"first", "second"}[key], s.text(t.by))
		if changes := s.changes(&before[key], &t.after[key]); len(changes) > 0 {
			fmt.Fprintf(&b, "    → %s\n", strings.Join(changes, "; "))
		}
		before = t.after
	}
	return b.String()
}

// text is a step in words.
func (m *model) text(by step) string {
	info := stepTable[by.kind]
	switch info.about {
	case aboutNothing:
	case aboutBody:
		if body(by.on) == different {
			return info.text + ": it asks for something else"
		}
	case aboutVerdict:
		return info.text + ": " + verdictNames[by.on]
	case aboutOperation:
		return info.text + ": " + m.opName(by.on)
	case aboutReference:
		return info.text + ": " + m.refName(reference(by.on))
	}
	return info.text
}

// changes are what a step has changed, as far as a reader wants to know.
func (m *model) changes(before, after *world) (all []string) {
	say := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if p := after.led.pay; p != before.led.pay {
		if p.code != noCode {
			say("payment %s(%s)", payNames[p.state], codeNames[p.code])
		} else {
			say("payment %s", payNames[p.state])
		}
	}
	for op := range uint8(len(after.led.ops)) {
		if o := after.led.ops[op]; o != before.led.ops[op] {
			say("%s %s", m.opName(op), o)
		}
	}
	for i := range after.workers {
		if k := after.workers[i]; k.phase == settling && before.workers[i].phase != settling {
			say("it wants to write %s", operation{state: k.end.state, resolve: k.end.resolve})
		}
	}
	for ref := range reference(references) {
		if s := after.wallet.book[ref]; s != before.wallet.book[ref] {
			say("the wallet has %s %s", standingNames[s], m.refName(ref))
		}
		if n := after.wallet.flying[ref]; n > before.wallet.flying[ref] {
			say("a request of %s is on its way, and nobody waits for it", m.refName(ref))
		}
	}
	if a, b := after.wallet.taken-after.wallet.given, before.wallet.taken-before.wallet.given; a != b {
		say("taken %d, given back %d", after.wallet.taken, after.wallet.given)
	}
	if t := after.till; t.heard != before.till.heard {
		say("the till has heard %s", payNames[t.heard])
	}
	return all
}

func (o operation) String() string {
	words := []string{opStateNames[o.state]}
	for _, w := range []struct {
		is   bool
		word string
	}{
		{o.leased, "leased"},
		{o.resolve, "to be looked up first"},
		{o.window == openWindow, "window open"},
		{o.window == closedWindow, "window over"},
		{o.cancelled, "cancelled"},
		{o.checks > 0, "to be looked at again"},
	} {
		if w.is {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, ", ")
}

// opName is what a reader calls an operation.
func (m *model) opName(op uint8) string {
	switch {
	case op == reversal:
		return "the reversal"
	case m.hold && op == capture:
		return "the capture"
	case m.hold:
		return "the release"
	case op == first:
		return "the first credit"
	}
	return "the second credit"
}

// refName is what a reader calls what the wallet knows by a reference.
func (m *model) refName(ref reference) string {
	payment := "the debit"
	if m.hold {
		payment = "the hold"
	}
	switch ref {
	case refPayment:
		return payment
	case refOther:
		return "another debit"
	case refReversal, refFirst, refSecond:
		return m.opName(uint8(ref - refReversal))
	case refAgain, references:
	}
	return "something under a second key"
}

// The names of what is stored, as it is stored, and of the rest.

var payNames = [...]string{"none", "IN_FLIGHT", "APPROVED", "DECLINED"} //nolint:gochecknoglobals // a table

var codeNames = [...]string{"", "the wallet's", "WALLET_UNAVAILABLE", "WALLET_TIMEOUT", "CANCELLED"} //nolint:gochecknoglobals // a table

var opStateNames = [...]string{"none", "PENDING", "SUCCEEDED", "REJECTED", "NOT_APPLIED", "PARKED"} //nolint:gochecknoglobals // a table

var standingNames = [...]string{ //nolint:gochecknoglobals // a table
	"never seen", "applied", "applied a second time", "refused", "refused (HOLD_NOT_ACTIVE)", "refused (HOLD_ALREADY_CAPTURED)",
}

var verdictNames = [...]string{ //nolint:gochecknoglobals // a table
	"none", "approve", "decline", "decline as unavailable", "decline as unavailable, with a reversal",
	"decline as timeout", "decline as timeout, with a reversal",
}
