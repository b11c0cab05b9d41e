package checker

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// judgeWire judges what the wallet saw under one reference.
func (w *world) judgeWire(x *wire) {
	mutations := x.arrivals()
	if len(mutations) == 0 && len(x.lines) == 0 {
		return
	}
	s := x.owner
	if s == nil {
		s = x.reverses
	}
	if x.job != nil {
		s = x.job.subject()
	}
	w.checked(known)
	row := x.job != nil || (x.owner != nil && x.owner.payment != nil && x.owner.payment.reference == x.reference) ||
		(x.owner != nil && x.owner.payment != nil && w.reversed(x))
	if !row {
		first := x.lines[0]
		whose := "no row's"
		if s == nil {
			whose = "nobody's"
		}
		w.violateAt(known, s, inBook(first.place), "the wallet was asked with the reference %s, which is %s", x.reference, whose)
	}
	for _, l := range mutations {
		w.checked(oneKey)
		if !l.keyed {
			w.violateAt(oneKey, s, inBook(l.place), "the outbound Idempotency-Key is not the reference %s", x.reference)
			break
		}
	}
	if row {
		w.judgeAgreement(s, x, mutations)
	}
}

// reversed reports whether x is the reference that the reversal of a payment is about:
// of a tombstone it need not be the row's.
func (w *world) reversed(x *wire) bool {
	return slices.ContainsFunc(x.owner.payment.jobs, func(j *job) bool { return j.kind == reversal && j.reverses == x.reference })
}

// judgeAgreement: the wallet was asked for what the row says.
func (w *world) judgeAgreement(s *subject, x *wire, mutations []seen) {
	for _, l := range mutations {
		w.checked(agrees)
		if want, ok := w.agreesWith(x, l); !ok {
			w.violateAt(agrees, s, inBook(l.place), "the wallet was asked for a %s of %d %s on %q, hold %q; by the row it is %s",
				l.kind, l.amount, l.currency, l.account, l.holdID, want)
			return
		}
	}
}

func (w *world) agreesWith(x *wire, l seen) (want string, ok bool) {
	if x.job == nil {
		s, p := x.owner, x.owner.payment
		if p.tombstone() {
			s.lost = s.lost || w.lossy
			return "nothing", w.lossy // never sent, unless a failover has lost the claim
		}
		return "a " + s.kind.String() + " of " + amountOf(p.amount, p.currency) + " on " + p.account,
			l.kind == s.kind && l.amount == p.amount && l.currency == p.currency && l.account == p.account
	}
	j := x.job
	switch {
	case j.kind == credit:
		return "a credit of " + amountOf(j.amount, j.currency) + " on " + j.account,
			l.kind == credit && l.amount == j.amount && l.currency == j.currency && l.account == j.account
	case j.kind == capture:
		return "a capture of " + amountOf(j.amount, j.currency) + " of " + j.of.payment.walletID,
			l.kind == capture && l.amount == j.amount && l.holdID == j.of.payment.walletID
	case j.kind == release:
		return "a release of " + j.of.payment.walletID, l.kind == release && l.holdID == j.of.payment.walletID
	case j.of.kind == hold:
		id := j.targetID
		if id == "" {
			id = w.madeUnder(j.reverses)
		}
		return "a release of " + id, l.kind == release && l.holdID == id
	}
	left := j.amount
	for _, c := range j.of.payment.jobs {
		if c.kind == credit && c.succeeded() {
			left -= c.amount
		}
	}
	return "a credit of " + amountOf(left, j.currency) + " on " + j.account,
		l.kind == credit && l.amount == left && l.currency == j.currency && l.account == j.account
}

// madeUnder is the id of what the wallet has made under a reference. The row of a reversal
// need not have it: what a lookup has found is lost with the worker that found it, and what
// is parked before another one finds it is told by the reference alone.
func (w *world) madeUnder(reference uuid.UUID) string {
	for _, l := range w.byWire[reference].effects() {
		return l.id
	}
	return ""
}

// judgeGate: what was answered 503 with Retry-After was never begun.
func (w *world) judgeGate(s *subject) {
	var refused []call
	others := false
	for _, c := range s.calls {
		switch {
		case c.purpose != posting && c.purpose != cancelling:
		case c.outcome == gateRefused && c.direct:
			refused = append(refused, c)
		case c.outcome != unsent && c.outcome != gateRefused || !c.direct:
			others = true
		}
	}
	if len(refused) == 0 {
		return
	}
	w.checked(noRow)
	written := s.written()
	switch {
	case written == 0:
	case !others:
		w.violate(noRow, s, "every request was refused with Retry-After, and there is a row")
	case !slices.ContainsFunc(s.calls, func(c call) bool {
		refused := c.outcome == unsent || (c.outcome == gateRefused && c.direct)
		begun := !refused && (c.purpose == posting || c.purpose == cancelling)
		return begun && c.sent <= written.add(w.opts.ClockSlack) && (c.outcome == unknown || !c.direct || c.ended.add(w.opts.ClockSlack) >= written)
	}):
		w.violate(noRow, s, "its row was written when only requests were under way that were refused with Retry-After")
	}
	if others {
		return
	}
	w.checked(noWallet)
	for _, x := range s.wires {
		if len(x.lines) > 0 {
			w.violateAt(noWallet, s, inBook(x.lines[0].place), "every request was refused with Retry-After, and the wallet was asked")
			return
		}
	}
}

// written is when the row of s was written, 0 if there is none.
func (s *subject) written() moment {
	switch {
	case s.payment != nil:
		return s.payment.created
	case s.job != nil:
		return s.job.created
	}
	return 0
}

// judgeTraces: no process has begun what was answered 503 with Retry-After, and one has
// logged that it refused it.
func (w *world) judgeTraces() {
	if !w.traced {
		return
	}
	for _, h := range w.byTrace {
		if !h.proof {
			continue
		}
		w.checked(handlerCount)
		if h.begun != 0 || h.refused != 1 {
			w.violateAt(handlerCount, h.subject, inTills(h.place), "it was answered 503 with Retry-After; the processes have begun it %d times and refused it %d times", h.begun, h.refused)
		}
	}
}

// judgeTimes holds answers to the till's budget.
func (w *world) judgeTimes(s *subject) {
	for _, c := range s.calls {
		if (c.purpose != posting && c.purpose != cancelling) || !c.direct || c.ended == never || c.status == 0 {
			continue
		}
		took := c.ended.sub(c.sent)
		w.report.answerTook(took)
		if c.outcome == gateRefused || c.outcome == noClaim || w.disturbed.overlap(c.sent, c.ended) {
			continue
		}
		w.checked(answerTime)
		if most := c.effective + writeReserve; took > most+w.opts.Slack {
			w.violateAt(answerTime, s, inTills(c.endPlace), "it was answered after %v, want at most %v", took, most)
		}
	}
}

// writeReserve is what an answer may leave behind the effective budget (contract
// section 2).
const writeReserve = 300 * time.Millisecond
