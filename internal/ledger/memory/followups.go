package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// followUp is a row of operations: a follow-up as tills see it, and the work item that
// it is.
type followUp struct {
	payment.FollowUp // Amount is of a release too, which is told without

	of          *row // its payment's, nil of a payout
	caller      string
	fingerprint payment.Fingerprint // zero of a reversal
	cancelled   bool                // a release whose hold was cancelled by key since

	outbound payment.Reference
	reverses payment.Reference // of a reversal: what it undoes
	pays     string            // of a reversal: the account
	targetID string

	attempts, lookups, lateChecks int
	fence                         int64
	turn                          payment.Turn // as stored: of a lease that is out or ran out, leased
	leasedTurn                    payment.Turn // what it was before that, "" where no attempt is out
	resolve                       bool
	dueAt, triedFrom, doubtAt     time.Time // zero = null
	parkReason                    string
	lastReason                    payment.Reason
}

// told is f as reads give it: it shares nothing with the row.
func (f *followUp) told() payment.FollowUp {
	told := f.FollowUp
	told.Metadata = maps.Clone(told.Metadata)
	if told.Kind == payment.Release {
		told.Amount = payment.Money{}
	}
	return told
}

// tombstone reports whether the key was cancelled before it was ever seen.
func (r *row) tombstone() bool { return r.payment.State == payment.Declined && r.payment.Account == "" }

// find is the follow-up of kind that holds something of the payment, nil if there
// is none: what the wallet refused holds nothing any more.
func (r *row) find(kind payment.Operation) *followUp {
	for _, f := range r.followUps {
		if f.Kind == kind && f.State != payment.Refused {
			return f
		}
	}
	return nil
}

// cancelled reports whether r, which was approved, was cancelled by key since.
func (r *row) cancelled() bool {
	return slices.ContainsFunc(r.followUps, func(f *followUp) bool { return f.Kind == payment.Reversal || f.cancelled })
}

// add writes a follow-up's row, due at once; r is nil for a payout.
func (l *Ledger) add(r *row, f *followUp, at time.Time) *followUp {
	f.ID, f.State, f.CreatedAt, f.dueAt, f.triedFrom = l.newID(at), payment.Pending, at, at, at
	if r != nil {
		f.of, f.PaymentID = r, r.payment.ID
		r.followUps = append(r.followUps, f)
	}
	l.followUps = append(l.followUps, f)
	l.followUpByID[f.ID] = f
	return f
}

// reverse writes the reversal that undoes taken, which is r's payment or what the till
// says that it was. It begins by looking, unless the wallet's id of it is known.
func (l *Ledger) reverse(r *row, taken payment.Payment, at time.Time) *followUp {
	f := &followUp{
		caller: r.payment.Caller, FollowUp: payment.FollowUp{Kind: payment.Reversal, Amount: taken.Amount},
		outbound: taken.Reference.Reversal(), reverses: taken.Reference, pays: taken.Account, targetID: taken.WalletID,
		turn: payment.LookupTurn,
	}
	if taken.WalletID != "" {
		f.turn = payment.FirstTurn
	}
	return l.add(r, f, at)
}

// Accept claims the key of req and reserves what it takes, or says why not.
func (l *Ledger) Accept(ctx context.Context, req payment.FollowUpRequest) (payment.Acceptance, error) {
	var answer payment.Acceptance
	err := l.step(ctx, Accept, func() error {
		answer = l.accept(ctx, req)
		return nil
	})
	if err != nil {
		return payment.Acceptance{}, fmt.Errorf("accept a %s: %w", req.Kind, err)
	}
	return answer, nil
}

func (l *Ledger) accept(ctx context.Context, req payment.FollowUpRequest) payment.Acceptance {
	key := identity{key: req.Key.Hash(), caller: req.Caller, operation: req.Kind}
	if own, taken := l.followUpByKey[key]; taken {
		if own.fingerprint != req.Fingerprint() {
			return payment.Acceptance{Status: payment.AcceptanceMismatch}
		}
		told := own.told()
		told.State, told.Code, told.WalletID, told.EndedAt = payment.Pending, "", "", time.Time{}
		return payment.Acceptance{Status: payment.AcceptedBefore, FollowUp: told}
	}
	f := &followUp{
		caller: req.Caller, fingerprint: req.Fingerprint(), FollowUp: payment.FollowUp{Kind: req.Kind, Amount: req.Amount},
		outbound: req.DeriveReference(), turn: payment.FirstTurn,
	}
	if req.Kind == payment.Credit {
		f.Account, f.TillReference, f.Metadata = req.Account, req.TillReference, maps.Clone(req.Metadata)
	}
	var r *row
	if req.PaymentID != uuid.Nil {
		r = l.byID[req.PaymentID]
		if r == nil || r.payment.Caller != req.Caller || r.payment.Operation != req.Of {
			return payment.Acceptance{Status: payment.PaymentUnknown}
		}
		l.recoverMet(ctx, r)
		if refusal := r.refuses(req); refusal != 0 {
			return payment.Acceptance{Status: refusal}
		}
		if req.Kind != payment.Credit {
			f.Amount = payment.Money{AmountMinor: cmp.Or(req.Amount.AmountMinor, r.payment.Amount.AmountMinor), Currency: r.payment.Amount.Currency}
		}
	}
	l.followUpByKey[key] = l.add(r, f, l.now())
	return payment.Acceptance{Status: payment.Accepted, FollowUp: f.told()}
}

// refuses says why r cannot take req, 0 if it can: about state first, then about
// values (contract section 1, errors).
func (r *row) refuses(req payment.FollowUpRequest) payment.AcceptanceStatus {
	p := r.payment
	gone := p.State == payment.Declined || r.cancelled()
	capture := r.find(payment.Capture)
	switch {
	case p.State == payment.InFlight:
		return payment.PaymentUndecided
	case req.Kind == payment.Credit:
		left := p.Amount.AmountMinor
		if req.Of == payment.Hold {
			gone = gone || capture == nil || capture.State != payment.Succeeded
		}
		switch {
		case gone:
			return payment.NotRefundable
		case req.Account != p.Account:
			return payment.AccountDiffers
		case req.Amount.Currency != p.Amount.Currency:
			return payment.CurrencyDiffers
		}
		if capture != nil {
			left = capture.Amount.AmountMinor
		}
		for _, f := range r.followUps {
			if f.Kind == payment.Credit && f.State != payment.Refused {
				left -= f.Amount.AmountMinor
			}
		}
		if req.Amount.AmountMinor > left {
			return payment.AmountExceeds
		}
	case gone, r.find(payment.Release) != nil:
		return payment.HoldNotActive
	case capture != nil:
		return payment.HoldAlreadyCaptured
	case req.Amount.AmountMinor > p.Amount.AmountMinor:
		return payment.AmountExceeds
	}
	return 0
}

// CancelByKey makes sure that nothing comes of the key any more, and that what has
// come of it is undone.
func (l *Ledger) CancelByKey(
	ctx context.Context, caller string, op payment.Operation, key payment.Key, original *payment.Request,
) (payment.Cancellation, error) {
	if original != nil && (original.Caller != caller || original.Operation != op || original.Key != key) {
		return payment.Cancellation{}, errors.New("cancel by key: the original request is of another key")
	}
	var answer payment.Cancellation
	err := l.step(ctx, Cancel, func() error {
		answer = l.cancel(identity{key: key.Hash(), caller: caller, operation: op}, original)
		return nil
	})
	if err != nil {
		return payment.Cancellation{}, fmt.Errorf("cancel by key: %w", err)
	}
	return answer, nil
}

func (l *Ledger) cancel(key identity, original *payment.Request) payment.Cancellation {
	at := l.now()
	r, seen := l.byKey[key]
	if !seen {
		r = l.entomb(key, original, at)
	}
	if original != nil && !r.tombstone() && r.fingerprint != original.Fingerprint() {
		return payment.Cancellation{Status: payment.CancelUnknownBody}
	}
	if r.find(payment.Capture) != nil {
		return payment.Cancellation{Status: payment.CancelTooLate, Payment: r.answer()}
	}
	release := r.find(payment.Release)
	if release != nil {
		release.cancelled = true
	}
	undoneBy := cmp.Or(r.find(payment.Reversal), release)
	switch {
	case undoneBy != nil:
	case r.payment.State == payment.InFlight:
		l.decide(r, payment.DeclineAndReverse(payment.Cancelled))
		undoneBy = r.find(payment.Reversal)
	case r.payment.State == payment.Approved:
		undoneBy = l.reverse(r, r.payment, at)
	case r.tombstone() && original != nil:
		undoneBy = l.reverse(r, payment.Payment{
			Reference: original.DeriveReference(), Account: original.Account, Amount: original.Amount,
		}, at)
	}
	cancelled := payment.Cancellation{Status: payment.CancelledPayment, Payment: r.answer()}
	if undoneBy != nil {
		cancelled.Reversal = undoneBy.ID
	}
	return cancelled
}

// entomb writes the tombstone of a key that was never seen.
func (l *Ledger) entomb(key identity, original *payment.Request, at time.Time) *row {
	r := &row{payment: payment.Payment{
		ID: l.newID(at), Caller: key.caller, Operation: key.operation, Reference: payment.Reference(uuid.New()),
		State: payment.Declined, Code: payment.Cancelled, CreatedAt: at, DecidedAt: at,
	}}
	if original != nil {
		r.fingerprint, r.payment.Reference = original.Fingerprint(), original.DeriveReference()
	}
	l.keep(key, r)
	return r
}

// OperationByID is the follow-up, if it is caller's.
func (l *Ledger) OperationByID(ctx context.Context, caller string, id uuid.UUID) (payment.FollowUp, bool, error) {
	f, found, err := l.readFollowUp(ctx, func() *followUp {
		if f := l.followUpByID[id]; f != nil && f.caller == caller {
			return f
		}
		return nil
	})
	if err != nil {
		return payment.FollowUp{}, false, fmt.Errorf("read follow-up %s: %w", id, err)
	}
	return f, found, nil
}

// OperationByKey is OperationByID by the till's own key.
func (l *Ledger) OperationByKey(ctx context.Context, caller string, kind payment.Operation, key payment.Key) (payment.FollowUp, bool, error) {
	f, found, err := l.readFollowUp(ctx, func() *followUp {
		return l.followUpByKey[identity{key: key.Hash(), caller: caller, operation: kind}]
	})
	if err != nil {
		return payment.FollowUp{}, false, fmt.Errorf("read a %s by its key: %w", kind, err)
	}
	return f, found, nil
}

func (l *Ledger) readFollowUp(ctx context.Context, find func() *followUp) (told payment.FollowUp, found bool, err error) {
	err = l.step(ctx, Read, func() error {
		f := find()
		if found = f != nil; found {
			told = f.told()
		}
		return nil
	})
	return told, found, err
}

// Exposures is the money of follow-ups that are not carried out yet, by kind, state
// and currency.
func (l *Ledger) Exposures(ctx context.Context) (open []payment.Exposure, err error) {
	type group struct{ kind, state, currency string }
	err = l.step(ctx, Read, func() error {
		sums := map[group]payment.Exposure{}
		for _, f := range l.followUps {
			if f.State != payment.Pending && f.State != payment.Parked {
				continue
			}
			g := group{string(f.Kind), string(f.State), f.Amount.Currency}
			e := sums[g]
			e.Kind, e.State, e.Currency = f.Kind, f.State, f.Amount.Currency
			e.Count++
			e.AmountMinor += f.Amount.AmountMinor
			e.OldestAge = max(e.OldestAge, l.now().Sub(f.CreatedAt))
			sums[g] = e
		}
		open = slices.SortedFunc(maps.Values(sums), func(a, b payment.Exposure) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State), cmp.Compare(a.Currency, b.Currency))
		})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("sum up what is open: %w", err)
	}
	return open, nil
}
