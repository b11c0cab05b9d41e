package memory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// What an operator's note says was done.
const (
	actionRedrive       = "redrive"
	actionSettleApplied = "settle-applied"
	actionSettleNot     = "settle-not-applied"
)

// detail is f with what only operators see.
func (f *followUp) detail() payment.FollowUpDetail {
	return payment.FollowUpDetail{
		FollowUp: f.told(), Caller: f.caller, Outbound: f.outbound, Attempts: f.attempts, Lookups: f.lookups,
		DueAt: f.dueAt, ParkReason: f.parkReason, LastReason: f.lastReason,
	}
}

// Parked is what waits for a person, what has waited longest first.
func (l *Ledger) Parked(ctx context.Context, limit int) (waiting []payment.FollowUpDetail, err error) {
	err = l.step(ctx, Read, func() error {
		for _, f := range l.followUps {
			if f.State == payment.Parked && (limit <= 0 || len(waiting) < limit) {
				waiting = append(waiting, f.detail())
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("list what is parked: %w", err)
	}
	return waiting, nil
}

// Timeline is everything about a payment; id is its own or a follow-up's.
func (l *Ledger) Timeline(ctx context.Context, id uuid.UUID) (t payment.Timeline, found bool, err error) {
	err = l.step(ctx, Read, func() error {
		r, of := l.byID[id], l.followUpByID[id]
		if of != nil {
			r = of.of
		}
		about := []uuid.UUID{id}
		switch {
		case r != nil:
			t.Payment, about = r.answer(), []uuid.UUID{r.payment.ID}
			for _, f := range r.followUps {
				t.FollowUps, about = append(t.FollowUps, f.detail()), append(about, f.ID)
			}
		case of != nil:
			t.FollowUps = append(t.FollowUps, of.detail())
		default:
			return nil
		}
		found = true
		var calls []madeCall
		for _, c := range l.calls {
			if slices.Contains(about, c.subject) {
				calls = append(calls, c)
			}
		}
		slices.SortStableFunc(calls, func(a, b madeCall) int {
			return cmp.Or(a.At.Compare(b.At), slices.Compare(a.subject[:], b.subject[:]), cmp.Compare(a.fence, b.fence), cmp.Compare(a.n, b.n))
		})
		for _, c := range calls {
			told := c.TimedCall
			told.Ago = since(l.now(), told.At)
			t.Calls = append(t.Calls, told)
		}
		for _, n := range l.notes {
			if slices.Contains(about, n.OperationID) {
				t.Notes = append(t.Notes, n)
			}
		}
		return nil
	})
	if err != nil {
		return payment.Timeline{}, false, fmt.Errorf("read the timeline of %s: %w", id, err)
	}
	return t, found, nil
}

// Redrive gives a follow-up that is parked back to the queue.
func (l *Ledger) Redrive(ctx context.Context, id uuid.UUID, operator, reason string) (payment.OperatorResult, error) {
	r, err := l.intervene(ctx, id, payment.Note{Operator: operator, Action: actionRedrive, Text: reason}, func(f *followUp) bool {
		if f.State != payment.Parked {
			return false
		}
		at := l.now()
		f.State, f.Code, f.parkReason, f.dueAt, f.triedFrom = payment.Pending, "", "", at, at
		return true
	})
	if err != nil {
		return payment.OperatorResult{}, fmt.Errorf("redrive %s: %w", id, err)
	}
	return r, nil
}

// SettleByHand ends a follow-up as an operator has found it to be.
func (l *Ledger) SettleByHand(ctx context.Context, id uuid.UUID, applied bool, operator, reason string) (payment.OperatorResult, error) {
	note := payment.Note{Operator: operator, Action: actionSettleNot, Text: reason}
	if applied {
		note.Action = actionSettleApplied
	}
	r, err := l.intervene(ctx, id, note, func(f *followUp) bool {
		open := f.State == payment.Parked || f.State == payment.Pending && f.leasedTurn == ""
		if !open || f.cancelled && !applied {
			return false
		}
		switch {
		case applied:
			f.State, f.Code = payment.Succeeded, ""
		case f.Kind == payment.Reversal:
			f.State, f.Code = payment.NotApplied, ""
		default:
			f.State, f.Code = payment.Refused, cmp.Or(f.Code, payment.WalletRejected)
		}
		f.parkReason, f.dueAt, f.EndedAt = "", time.Time{}, l.now()
		return true
	})
	if err != nil {
		return payment.OperatorResult{}, fmt.Errorf("settle %s by hand: %w", id, err)
	}
	return r, nil
}

// intervene changes a follow-up if change does, and notes it.
func (l *Ledger) intervene(ctx context.Context, id uuid.UUID, note payment.Note, change func(*followUp) bool) (payment.OperatorResult, error) {
	var r payment.OperatorResult
	err := l.step(ctx, Operate, func() error {
		f := l.followUpByID[id]
		if f == nil {
			r.Status = payment.OperatorUnknown
			return nil
		}
		changed := *f
		if change(&changed) {
			if note.Operator == "" || note.Text == "" {
				return errors.New("an operator and a reason must be given")
			}
			*f = changed
			note.OperationID, note.At = id, l.now()
			l.notes = append(l.notes, note)
			r.Status = payment.OperatorDone
		}
		r.FollowUp = f.detail()
		switch {
		case r.Status == payment.OperatorDone:
		case f.EndedAt.IsZero():
			r.Status = payment.OperatorActive
		default:
			r.Status = payment.OperatorEnded
		}
		return nil
	})
	if err != nil {
		return payment.OperatorResult{}, err
	}
	return r, nil
}
