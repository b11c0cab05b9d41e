// Package checker judges a run of SafeLedger: it joins what the tills have noted, what the
// ledger holds, what the wallet's book says and what the processes have logged, and
// looks for a promise that was broken. ../README.md tells what it reads and what it
// judges by.
//
// It shares no code with the service: a misreading of the contract must not be able to
// stand on both sides.
package checker

import (
	"context"
)

// Progress hears how far a check has come; it may be nil.
type Progress func(phase string)

// Check judges a run. The error is about the input: it cannot be read, or is not whole.
func Check(ctx context.Context, in Input, opts Options, progress Progress) (*Report, error) {
	if progress == nil {
		progress = func(string) {}
	}
	w := newWorld(opts)
	for _, part := range []struct {
		phase string
		read  func() error
	}{
		{"reading the ledger", func() error { return w.readLedger(ctx, in.Ledger) }},
		{"reading the tills' log", func() error { return w.readTills(ctx, in.Tills) }},
		{"reading the wallet's book", func() error { return w.readBook(ctx, in.Book) }},
		{"reading the responses", func() error { return w.readResponses(ctx, in.Responses) }},
		{"judging", func() error { return w.judge(ctx, in.Totals) }},
		{"telling the histories", func() error { return w.tellHistories(in) }},
	} {
		progress(part.phase)
		if err := part.read(); err != nil {
			return nil, err
		}
	}
	w.report.times()
	return w.report, nil
}

// judge looks at everything, now that all of it is known.
func (w *world) judge(ctx context.Context, counted map[string]Totals) error {
	for _, x := range w.byWire {
		w.judgeWire(x)
	}
	for _, j := range w.jobs {
		w.judgeJob(j)
	}
	for i, s := range w.subjects {
		if i%1000 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if s.kind.isPayment() {
			w.judgePayment(s)
		} else {
			w.judgeFollowUp(s)
		}
	}
	w.judgeTraces()
	w.judgeBudget()
	w.judgeTotals(counted)
	w.judgeSum()
	if w.lossy {
		w.judgeExcess()
		w.countLost()
		w.leaveOutLost()
	}
	return nil
}

// judgeExcess judges the payments of which more was given back than was taken, after a
// failover that may have lost rows. Where the row of something that gave back is gone,
// nobody could know of it any more: that is counted apart, for somebody to settle with the
// customer. It must have been several that gave back, each once: one that the wallet has
// applied twice, or several that have their rows, is what must never be.
func (w *world) judgeExcess() {
	lost, twice := map[*subject]bool{}, map[*subject]bool{}
	for _, x := range w.byWire {
		s := w.payee(x)
		if s == nil || !s.money.excess {
			continue
		}
		applied := len(x.effects())
		lost[s] = lost[s] || applied > 0 && x.job == nil
		twice[s] = twice[s] || applied > 1
	}
	for _, s := range w.subjects {
		switch {
		case !s.money.excess:
		case lost[s] && !twice[s]:
			s.lost = true
			w.report.GivenTwice++
			w.report.GivenTwiceMoney[w.currencyOf(s)] += s.money.gave - s.money.took
		default:
			w.violate(givenBack, s, "%d were given back of the %d that were taken", s.money.gave, s.money.took)
		}
	}
}

// currencyOf is the currency of what the wallet has done for s.
func (w *world) currencyOf(s *subject) string {
	for _, x := range s.wires {
		for _, e := range x.effects() {
			return e.currency
		}
	}
	return ""
}

// countLost counts the keys of which a failover has lost something. With a follow-up
// its payment is lost: what they come to together is not known any more.
func (w *world) countLost() {
	for _, s := range w.subjects {
		if s.lost && !s.kind.isPayment() {
			for _, q := range s.requests {
				if p := w.byPayment[q.payee]; p != nil {
					p.lost = true
				}
			}
		}
	}
	for _, s := range w.subjects {
		if !s.lost {
			continue
		}
		w.report.LostKeys++
		for _, x := range s.wires {
			for _, e := range x.effects() {
				w.report.LostMoney[e.currency] += s.money.took - s.money.gave
				break
			}
		}
	}
}
