package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// leased is the turn of what is out, or was and has not come back.
const leased payment.Turn = "LEASED"

// candidate is a row that may be handed out, as the ledger's statement of a lease ranks
// them (queue_statements.go there says why).
type candidate struct {
	*followUp

	allowance    payment.Turn
	class        int
	share, place float64
}

// classOf is a kind's class: reversals, what ends a hold, credits.
func classOf(kind payment.Operation) int {
	switch kind {
	case payment.Reversal:
		return 0
	case payment.Capture, payment.Release:
		return 1
	case payment.Credit, payment.Debit, payment.Hold:
	}
	return 2
}

// Lease hands out work that is due, as far as order allows.
func (l *Ledger) Lease(ctx context.Context, order payment.LeaseOrder) ([]payment.Work, error) {
	if order.Limit <= 0 {
		return nil, nil
	}
	var work []payment.Work
	err := l.step(ctx, Lease, func() error {
		at := l.now()
		for _, c := range l.choose(order, at) {
			work = append(work, l.lease(c, order.Lease, at))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("lease work: %w", err)
	}
	return work, nil
}

// choose is what to hand out, in the order of its places.
func (l *Ledger) choose(order payment.LeaseOrder, at time.Time) []candidate {
	candidates := l.candidates(order, at)
	if len(candidates) == 0 {
		return nil
	}
	// What would be random in the database is spread evenly here, so that a history can
	// be repeated: the golden ratio's multiples do that, a different one for each class.
	l.leases++
	_, luck := math.Modf(float64(l.leases) * math.Phi)
	weights := [...]float64{4, 2, 1} // of seven, how many are of a class

	slices.SortFunc(candidates, byDue)
	type part struct {
		allowance payment.Turn
		class     int
	}
	numbers := map[part]float64{}
	number := func(allowance payment.Turn, class int) float64 {
		p := part{allowance, class}
		numbers[p]++
		_, own := math.Modf(luck + float64(class)/float64(len(weights)))
		return (numbers[p] - own) / weights[class]
	}
	for i, c := range candidates {
		candidates[i].share = number(c.allowance, c.class)
	}
	// What was never reported goes before all that wait for their lookup.
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		fresh := func(c candidate) int {
			if c.leasedTurn == "" {
				return 1
			}
			return 0
		}
		return cmp.Or(cmp.Compare(fresh(a), fresh(b)), cmp.Compare(a.share, b.share), cmp.Compare(a.class, b.class))
	})
	left := map[payment.Turn]int{
		payment.FirstTurn: allowed(order, payment.FirstTurn), payment.RetryTurn: allowed(order, payment.RetryTurn),
		payment.LookupTurn: allowed(order, payment.LookupTurn),
	}
	candidates = slices.DeleteFunc(candidates, func(c candidate) bool {
		left[c.allowance]--
		return left[c.allowance] < 0
	})
	slices.SortFunc(candidates, byDue)
	for i, c := range candidates {
		candidates[i].place = number("", c.class)
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.place, b.place), cmp.Compare(a.class, b.class))
	})
	return candidates[:min(len(candidates), order.Limit)]
}

func byDue(a, b candidate) int {
	return cmp.Or(a.dueAt.Compare(b.dueAt), slices.Compare(a.ID[:], b.ID[:]))
}

// allowed is how much of an allowance order has.
func allowed(order payment.LeaseOrder, allowance payment.Turn) int {
	switch allowance {
	case payment.FirstTurn:
		if order.Sends {
			return order.Limit
		}
	case payment.RetryTurn:
		if order.Sends {
			return max(order.Retries, 0)
		}
	case payment.LookupTurn:
		return max(order.Lookups, 0)
	}
	return 0
}

// candidates are the rows that are due and of kinds that order names, each with the
// allowance that it draws on: of each lane (kind, turn and allowance) the oldest, and
// no more than that allowance has.
func (l *Ledger) candidates(order payment.LeaseOrder, at time.Time) []candidate {
	type lane struct {
		kind            payment.Operation
		turn, allowance payment.Turn
	}
	lanes := map[lane][]candidate{}
	for _, f := range l.followUps {
		if f.dueAt.IsZero() || f.dueAt.After(at) || !slices.Contains(order.Kinds, f.Kind) {
			continue
		}
		allowance := f.turn
		switch {
		case f.turn == leased:
			allowance = payment.LookupTurn
		case f.turn == payment.FirstTurn && order.Backlog >= 0 && !f.dueAt.After(at.Add(-order.Backlog)):
			allowance = payment.RetryTurn
		}
		in := lane{f.Kind, f.turn, allowance}
		lanes[in] = append(lanes[in], candidate{followUp: f, allowance: allowance, class: classOf(f.Kind)})
	}
	var all []candidate
	for in, due := range lanes {
		slices.SortFunc(due, byDue)
		all = append(all, due[:min(len(due), allowed(order, in.allowance), order.Limit)]...)
	}
	return all
}

// lease makes a row the caller's, and tells all that an attempt needs to know.
func (l *Ledger) lease(c candidate, lease time.Duration, at time.Time) payment.Work {
	f := c.followUp
	takenOver := f.leasedTurn != ""
	f.dueAt = at.Add(lease)
	f.fence++
	f.attempts++
	if f.leasedTurn = f.turn; f.turn == leased {
		f.leasedTurn = payment.LookupTurn
	}
	f.turn = leased
	if takenOver {
		f.doubtAt = at
	}

	w := payment.Work{
		ID: f.ID, Kind: f.Kind, Fence: f.fence, Attempts: f.attempts, Lookups: f.lookups, Turn: c.allowance,
		TakenOver: takenOver, Resolve: f.resolve || takenOver, Outbound: f.outbound, TargetID: f.targetID, State: f.State,
		Age: since(at, f.CreatedAt), Tried: since(at, f.triedFrom), SinceEnd: since(at, f.EndedAt), LateChecks: f.lateChecks,
		InDoubt: !f.doubtAt.IsZero(), SinceDoubt: since(at, f.doubtAt),
	}
	if f.of != nil {
		w.Payment = f.of.answer()
	}
	switch f.Kind { //nolint:exhaustive // the others have neither
	case payment.Credit:
		w.Account, w.Amount = f.Account, f.Amount
	case payment.Capture:
		w.Amount = f.Amount
	case payment.Reversal:
		w.Payment.Reference, w.Payment.Account, w.Payment.Amount = f.reverses, f.pays, f.Amount
		for _, other := range f.of.followUps {
			if other.Kind != payment.Credit {
				continue
			}
			switch other.State {
			case payment.Succeeded:
				w.Credited += other.Amount.AmountMinor
			case payment.Pending, payment.Parked:
				w.CreditsOpen = true
			case payment.Refused, payment.NotApplied:
			}
		}
	}
	return w
}

// since is the time from then to at, none where the clock has gone back or then is null.
func since(at, then time.Time) time.Duration {
	if then.IsZero() {
		return 0
	}
	return max(at.Sub(then), 0)
}

// Settle ends the attempt of the lease that s names.
func (l *Ledger) Settle(ctx context.Context, s payment.Settlement) (bool, error) {
	settled := false
	err := l.step(ctx, Settle, func() error {
		f := l.followUpByID[s.ID]
		if f == nil {
			return nil
		}
		attempt := f.attempts
		if f.fence == s.Fence && f.leasedTurn != "" {
			ended := f.settled(s, l.now())
			if err := ended.check(); err != nil {
				return err
			}
			*f, settled = ended, true
		}
		l.record(s.ID, s.Fence, attempt, s.Calls)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("settle %s: %w", s.ID, err)
	}
	return settled, nil
}

// settled is f after s.
func (f *followUp) settled(s payment.Settlement, at time.Time) followUp {
	ended := *f
	ended.State, ended.Code, ended.WalletID, ended.parkReason = s.State, s.Code, s.WalletID, ""
	if f.cancelled && s.State == payment.Refused {
		// All that undoes its hold: the wallet's no must not end it quietly.
		ended.State = payment.Parked
		if s.Code == "HOLD_NOT_ACTIVE" {
			ended.State = payment.Succeeded
		}
	}
	switch ended.State {
	case payment.Succeeded:
		ended.Code = ""
	case payment.Parked:
		ended.parkReason = cmp.Or(s.ParkReason, "REFUSED")
	case payment.Pending, payment.Refused, payment.NotApplied:
	}
	switch {
	case ended.State == payment.Pending || ended.State == payment.Parked:
		ended.EndedAt = time.Time{}
	case f.State == payment.NotApplied && s.State == payment.NotApplied:
	default:
		ended.EndedAt = at
	}
	if s.Doubt {
		ended.doubtAt = at
	}
	if f.State == payment.NotApplied && s.State == payment.Pending {
		ended.triedFrom = at
	}
	ended.dueAt = time.Time{}
	if s.Due {
		ended.dueAt = at.Add(s.Pause)
	}
	if s.Unspent {
		ended.attempts--
	}
	if n := len(s.Calls); n > 0 {
		ended.lastReason = s.Calls[n-1].Reason
	}
	ended.turn, ended.leasedTurn, ended.resolve = cmp.Or(s.Turn, f.leasedTurn), "", s.Resolve
	ended.targetID, ended.lookups, ended.lateChecks = s.TargetID, s.Lookups, s.LateChecks
	return ended
}

// check is what the database's CHECK constraints say of a follow-up that has changed.
func (f *followUp) check() error {
	due, ended := !f.dueAt.IsZero(), !f.EndedAt.IsZero()
	fits := false
	switch f.State {
	case payment.Pending:
		fits = due && f.Code == "" && !ended
	case payment.Parked:
		fits = f.parkReason != "" && !due && !ended
	case payment.Refused:
		fits = f.Kind != payment.Reversal && !due && f.Code != "" && ended
	case payment.Succeeded:
		fits = f.Code == "" && !due && ended
	case payment.NotApplied:
		fits = f.Kind == payment.Reversal && f.Code == "" && ended
	}
	counts := f.attempts >= 0 && f.lookups >= 0 && f.lateChecks >= 0
	if !fits || !counts || f.WalletID != "" && f.State != payment.Succeeded {
		return errors.New("a follow-up's state and what belongs to it come together or not at all")
	}
	return nil
}

// HandBack returns work that was leased and not begun.
func (l *Ledger) HandBack(ctx context.Context, w payment.Work) error {
	err := l.step(ctx, HandBack, func() error {
		f := l.followUpByID[w.ID]
		if f == nil || f.fence != w.Fence || f.leasedTurn == "" {
			return nil
		}
		f.dueAt, f.turn, f.leasedTurn = l.now(), f.leasedTurn, ""
		f.resolve = f.resolve || w.TakenOver
		f.attempts--
		return nil
	})
	if err != nil {
		return fmt.Errorf("hand back %s: %w", w.ID, err)
	}
	return nil
}

// NextDue is the time until the next follow-up is due, or its lease runs out, by the
// ledger's clock; false where nothing ever will. A test that lets time pass needs it: a
// worker asks.
func (l *Ledger) NextDue() (left time.Duration, waits bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.followUps {
		if f.dueAt.IsZero() {
			continue
		}
		if in := max(f.dueAt.Sub(l.now()), 0); !waits || in < left {
			left, waits = in, true
		}
	}
	return left, waits
}

// callKey is the primary key of wallet_calls.
type callKey struct {
	subject uuid.UUID
	fence   int64
	n       int
}

// madeCall is a row of it.
type madeCall struct {
	callKey
	payment.TimedCall
}

// record writes down wallet calls, once.
func (l *Ledger) record(subject uuid.UUID, fence int64, attempt int, made []payment.WalletCall) {
	for n, c := range made {
		call := madeCall{callKey: callKey{subject, fence, n}}
		if _, there := l.recorded[call.callKey]; there {
			continue
		}
		call.Attempt, call.At, call.WalletCall = attempt, l.now().Add(-c.Ago), c
		if l.followUpByID[subject] != nil {
			call.OperationID = subject
		}
		l.recorded[call.callKey] = struct{}{}
		l.calls = append(l.calls, call)
	}
}
