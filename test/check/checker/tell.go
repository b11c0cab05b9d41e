package checker

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/safeledger/safeledger/test/check/history"
)

// Moment is something that happened to a key, as one of the logs or the ledger has it.
type Moment struct {
	At   time.Time
	Who  string
	Text string
}

// teller writes down the history of one key: all that is known of it, from all sides.
type teller struct {
	*world
	in      Input
	moments []Moment
	seen    map[where]bool
}

// tellHistories adds to each violation what is known of its key, or the one line that
// shows it.
func (w *world) tellHistories(in Input) error {
	for i := range w.report.Violations {
		v := &w.report.Violations[i]
		if v.subject != nil {
			v.Key = v.subject.String() // only now: its key may have become known after it was found
		}
		t := &teller{world: w, in: in, seen: map[where]bool{}}
		if err := t.tell(v); err != nil {
			return fmt.Errorf("tell the history of %s: %w", v.Key, err)
		}
		v.History = t.moments
	}
	return nil
}

func (t *teller) tell(v *Violation) error {
	if err := t.line(v.where); err != nil {
		return err
	}
	if v.subject == nil {
		return nil
	}
	// A payment and its follow-ups are one story, whichever of them is told.
	family := []*subject{v.subject}
	if j := v.subject.job; j != nil && j.of != nil {
		family = append(family, j.of)
	}
	var jobs []*job
	for _, s := range slices.Clone(family) {
		if s.payment == nil {
			continue
		}
		for _, j := range s.payment.jobs {
			jobs = append(jobs, j)
			if j.owner != nil && !slices.Contains(family, j.owner) {
				family = append(family, j.owner)
			}
		}
	}
	if j := v.subject.job; j != nil && !slices.Contains(jobs, j) {
		jobs = append(jobs, j)
	}
	for _, s := range family {
		if err := t.subject(s); err != nil {
			return err
		}
	}
	for _, j := range jobs {
		if err := t.job(j); err != nil {
			return err
		}
	}
	slices.SortStableFunc(t.moments, func(a, b Moment) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return nil
}

func (t *teller) add(at moment, who, format string, args ...any) {
	t.moments = append(t.moments, Moment{at.time(), who, fmt.Sprintf(format, args...)})
}

// line tells one line of a log.
func (t *teller) line(at where) error {
	if at.log == noLog || t.seen[at] {
		return nil
	}
	t.seen[at] = true
	switch at.log {
	case tillLog:
		l, err := t.in.Tills.at(at.place)
		if err != nil {
			return err
		}
		t.tillLine(l)
	case bookLog:
		l, err := t.in.Book.at(at.place)
		if err != nil {
			return err
		}
		t.bookLine(l)
	case responseLog, noLog:
	}
	return nil
}

// response adds a line of a process' log, at the time that it was: the process' clock may
// be off.
func (t *teller) response(at logPlace) error {
	place := where{responseLog, at.place}
	if t.seen[place] {
		return nil
	}
	t.seen[place] = true
	l, err := t.in.Responses.at(at.place)
	if err != nil {
		return err
	}
	t.add(at.at, "process", "%s%s%s%s%s%s", l.Msg, field("decision", l.Decision), field("code", l.Code),
		field("status", positive(l.Status)), field("reason", l.Reason), field("error", l.Error))
	return nil
}

func (t *teller) tillLine(l history.Line) {
	switch l.Event {
	case history.Sent:
		via := ""
		if l.Via != "" {
			via = " by " + l.Via
		}
		t.add(at(l.At), "till "+l.Till, "call %d: %s %s%s%s%s %s", l.Call, l.Method, l.Path, via, field("key", l.Key), field("deadline", l.Deadline), l.Sent)
	case history.Answered:
		t.add(at(l.At), "till", "call %d: %d%s%s%s %s", l.Call, l.Status, field("Retry-After", l.RetryAfter), field("Replayed", l.Replayed),
			field("Location", l.Location), strings.TrimSpace(l.Got))
	case history.Failed:
		t.add(at(l.At), "till", "call %d: no answer, %s %s", l.Call, l.How, l.Error)
	case history.Opened, history.Disturbed, history.Calmed:
		t.add(at(l.At), "till", "%s %s%s", l.Event, l.What, l.Run)
	}
}

func field(name, value string) string {
	if value == "" {
		return ""
	}
	return " " + name + "=" + value
}

func (t *teller) bookLine(l BookLine) {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", l.Seq, l.Event)
	if l.Exchange != 0 {
		fmt.Fprintf(&b, " exchange %d", l.Exchange)
	}
	if l.Operation != "" {
		fmt.Fprintf(&b, " %s of %s", l.Operation, l.Reference)
	}
	if l.Event == arrived {
		fmt.Fprintf(&b, ": %s %s%s%s", l.Method, l.Path, field("key", l.Key), field("rule", l.Rule))
		if l.Amount != 0 {
			fmt.Fprintf(&b, " %s on %s", amountOf(l.Amount, l.Currency), l.Account)
		}
	}
	if e := l.Effect; e != nil {
		fmt.Fprintf(&b, ": %s %s on %s, id %s%s%s", e.Operation, amountOf(e.Amount, e.Currency), e.Account, e.ID, field("hold", e.HoldID), field("code", e.Code))
		if e.Late {
			b.WriteString(", late")
		}
	}
	if a := l.Answer; a != nil {
		fmt.Fprintf(&b, ": %d %s, %s went out", a.Status, strings.TrimSpace(a.Body), strings.ToLower(a.How))
	}
	t.add(at(l.At), "wallet", "%s", b.String())
}

func positive(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func amountOf(amount int64, currency string) string { return fmt.Sprintf("%d %s", amount, currency) }

func (t *teller) subject(s *subject) error {
	for _, c := range s.calls {
		if err := t.line(inTills(c.place)); err != nil {
			return err
		}
		if c.ended != never {
			if err := t.line(inTills(c.endPlace)); err != nil {
				return err
			}
		}
	}
	for _, l := range s.lines {
		if err := t.response(l); err != nil {
			return err
		}
	}
	if p := s.payment; p != nil {
		t.add(p.created, "ledger", "payment %s claimed: %s of %s on %s, reference %s", p.id, s.kind, amountOf(p.amount, p.currency), p.account, p.reference)
		if p.decided != 0 {
			t.add(p.decided, "ledger", "payment %s is %s%s%s", p.id, p.state, field("code", p.code), field("wallet", p.walletID))
		}
		t.calls("payment "+p.id.String(), p.calls)
	}
	for _, x := range s.wires {
		if err := t.wire(x); err != nil {
			return err
		}
	}
	return nil
}

func (t *teller) job(j *job) error {
	what := fmt.Sprintf("%s %s", j.kind, j.id)
	t.add(j.created, "ledger", "%s accepted: %s, outbound key %s", what, amountOf(j.amount, j.currency), j.outbound)
	if j.ended != 0 {
		t.add(j.ended, "ledger", "%s is %s%s%s, after %d attempts", what, j.state, field("code", j.code), field("wallet", j.walletID), j.attempts)
	} else {
		t.add(j.created, "ledger", "%s is %s%s%s, after %d attempts", what, j.state, field("code", j.code), field("reason", j.parkReason), j.attempts)
	}
	t.calls(what, j.calls)
	for _, n := range j.notes {
		t.add(at(n.At), "operator", "%s: %s by %s: %s", what, n.Action, n.Operator, n.Note)
	}
	return t.wire(j.wire)
}

func (t *teller) calls(what string, calls []walletCall) {
	for _, c := range calls {
		t.add(c.at, "ledger", "%s: %s called, %s (%s)%s in %v, lease %d", what, c.call, c.outcome, c.reason, field("status", positive(int(c.status))), c.took, c.fence)
	}
}

func (t *teller) wire(x *wire) error {
	if x == nil {
		return nil
	}
	for _, l := range x.lines {
		if err := t.line(inBook(l.place)); err != nil {
			return err
		}
	}
	return nil
}
