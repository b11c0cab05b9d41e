package checker

import (
	"slices"
	"time"
)

// judgeMoney holds what the wallet has moved for a payment to what was decided.
func (w *world) judgeMoney(s *subject, p *payment) {
	var effects []seen
	for _, x := range s.wires {
		effects = append(effects, x.effects()...)
	}
	switch {
	case p.approved():
		w.judgeApproval(s, p, effects)
	case p.declined():
		w.judgeDecline(s, p, effects)
	}
}

// judgeApproval: the wallet has applied it once, as it was answered, and keeps of it
// what was not given back.
func (w *world) judgeApproval(s *subject, p *payment, effects []seen) {
	w.checked(appliedOnce)
	if len(effects) != 1 {
		w.violate(appliedOnce, s, "it is approved, and the wallet has applied it %d times", len(effects))
		return
	}
	if e := effects[0]; e.kind != s.kind || e.id != p.walletID || e.account != p.account || e.amount != p.amount || e.currency != p.currency {
		w.violate(appliedOnce, s, "the wallet has applied a %s %s of %d %s on %s; stored is %s of %d %s on %s",
			e.kind, e.id, e.amount, e.currency, e.account, p.walletID, p.amount, p.currency, p.account)
	}

	undoing := p.reversal()
	if w.openJob(p) {
		return // parked, or ended by a person: counted there
	}
	w.checked(netApproved)
	kept, held := s.money.took-s.money.gave, s.kind == hold
	want := int64(0)
	if s.kind == debit {
		want = p.amount
	}
	for _, j := range p.jobs {
		switch {
		case !j.succeeded():
		case j.kind == capture:
			want += j.amount
			held = false
		case j.kind == credit:
			want -= j.amount
		case j.kind == release:
			held = false
		}
	}
	if undoing != nil && undoing.succeeded() {
		want, held = 0, false
	}
	if stillHeld := s.kind == hold && w.holds(p.walletID); kept != want || stillHeld != held {
		w.violate(netApproved, s, "the wallet keeps %d %s, want %d; held: %v, want %v", kept, p.currency, want, stillHeld, held)
	}
}

// holds reports whether the wallet still holds money under its id.
func (w *world) holds(walletID string) bool {
	_, there := w.bank.holds[walletID]
	return there
}

// openJob reports whether what a payment's jobs have done is a matter for a person: it
// is parked in plain sight, or a person has ended it; or it is not quiet yet.
func (w *world) openJob(p *payment) bool {
	return slices.ContainsFunc(p.jobs, func(j *job) bool { return j.parked() || j.byHand() || j.pending() })
}

// judgeDecline: nothing of it is left with the wallet.
func (w *world) judgeDecline(s *subject, p *payment, effects []seen) {
	undoing := p.reversal()
	w.checked(netDeclined)
	if len(effects) == 0 {
		if s.money.reversals > 0 {
			w.violate(netDeclined, s, "it was never applied, and something was given back for it")
		}
		return
	}
	w.report.UndoneDeclines++
	switch {
	case undoing == nil:
		w.violate(netDeclined, s, "it is declined, the wallet has applied it, and there is no reversal")
		return
	case undoing.parked():
		w.report.park(p)
		return
	case undoing.byHand():
		w.report.ByHand++
		return
	case undoing.pending() && w.opts.Unsettled:
		return
	}
	for _, e := range effects {
		if w.holds(e.id) {
			w.violate(netDeclined, s, "it is declined, and the wallet holds %d %s", e.amount, e.currency)
			return
		}
	}
	if kept := s.money.took - s.money.gave; kept != 0 {
		w.violate(netDeclined, s, "it is declined, and the wallet keeps %d %s", kept, p.currency)
		return
	}
	w.judgeSLA(s, p, undoing, effects)
}

// judgeSLA measures how long a decline's money was out.
func (w *world) judgeSLA(s *subject, p *payment, undoing *job, effects []seen) {
	undone := undoing.wire.effects()
	if len(undone) == 0 {
		return // its hold had gone by itself
	}
	from := p.decided
	for _, e := range effects {
		from = max(from, e.at)
	}
	took := max(undone[0].at.sub(from), 0)
	w.report.longest(&w.report.Undoing, took)
	if w.opts.SettleSLA <= 0 {
		return
	}
	w.checked(settledInTime)
	if quiet := took - w.disturbed.within(from, undone[0].at); quiet > w.opts.SettleSLA {
		w.violate(settledInTime, s, "its money was out for %v, want at most %v", quiet, w.opts.SettleSLA)
	}
}

// judgeSum holds the ledger's sum of what was taken to the wallet's, for all payments
// that no person has to look at.
func (w *world) judgeSum() {
	if w.lossy || w.opts.Unsettled {
		return
	}
	want := map[string]int64{}   // by the rows
	except := map[string]int64{} // what the wallet has moved for those that are left out
	payout := map[string]int64{}
	for _, s := range w.subjects {
		p := s.payment
		if p == nil {
			continue
		}
		if w.openJob(p) {
			except[p.currency] += s.money.took - s.money.gave
			continue
		}
		if p.approved() {
			want[p.currency] += w.ledgerKeeps(s, p)
		}
	}
	for _, j := range w.jobs {
		if j.of != nil || j.kind != credit {
			continue
		}
		for _, e := range j.wire.effects() {
			if j.parked() || j.byHand() {
				except[j.currency] -= e.amount
			}
		}
		if j.succeeded() && !j.byHand() {
			payout[j.currency] -= j.amount
		}
	}
	for currency, taken := range w.bank.takenInAll() {
		w.checked(agreed)
		if sum := want[currency] + payout[currency] + except[currency]; sum != taken {
			w.violate(agreed, nil, "the wallet has taken %d %s in all; by the ledger's rows it is %d (%d of it parked, or ended by a person)",
				taken, currency, sum, except[currency])
		}
	}
}

// ledgerKeeps is what an approved payment's rows say that is taken.
func (w *world) ledgerKeeps(s *subject, p *payment) (kept int64) {
	if s.kind == debit {
		kept = p.amount
	}
	for _, j := range p.jobs {
		switch {
		case !j.succeeded():
		case j.kind == capture:
			kept += j.amount
		case j.kind == credit:
			kept -= j.amount
		case j.kind == reversal:
			return 0
		}
	}
	return kept
}

// longest keeps the larger duration.
func (r *Report) longest(kept *time.Duration, d time.Duration) { *kept = max(*kept, d) }
