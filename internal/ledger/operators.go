package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/safeledger/safeledger/internal/payment"
)

// What an operator's note says was done.
const (
	actionRedrive       = "redrive"
	actionSettleApplied = "settle-applied"
	actionSettleNot     = "settle-not-applied"
)

// maxListed bounds what an operator is shown at once: more is not read by anybody.
const maxListed = 1000

// bounded is limit, or the most that there is where that is none or more.
func bounded(limit int) int {
	if limit <= 0 || limit > maxListed {
		return maxListed
	}
	return limit
}

// Find searches for what an operator was asked about, newest first. A key is found
// whenever it was used; anything else is searched for in a span of time, from its
// newest end, which takes as long as reading what was created in it: ctx bounds that.
func (l *Ledger) Find(ctx context.Context, q payment.Query) (found payment.Found, err error) {
	args := pgx.NamedArgs{
		"caller":         orNull(q.Caller),
		"till_reference": orNull(q.TillReference),
		"account":        orNull(q.Account),
		"wallet_id":      orNull(q.WalletID),
		"amount_minor":   pgtype.Int8{Int64: q.AmountMinor, Valid: q.AmountMinor != 0},
		"currency":       orNull(q.Currency),
		"from":           timeOrNull(q.From),
		"until":          timeOrNull(q.Until),
		"limit":          bounded(q.Limit),
	}
	payments, followUps := findPayments, findFollowUps
	if q.Key != "" {
		hash := q.Key.Hash()
		args["key_hash"] = hash[:]
		payments, followUps = findPaymentsOfKey, findFollowUpsOfKey
	}
	err = l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(payments, args).Query(func(rows pgx.Rows) error {
			var err error
			found.Payments, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (payment.Payment, error) {
				return scanPayment(row)
			})
			return err
		})
		b.Queue(followUps, args).Query(func(rows pgx.Rows) error {
			var err error
			found.FollowUps, err = pgx.CollectRows(rows, scanDetail)
			return err
		})
	}})
	if err != nil {
		return payment.Found{}, fmt.Errorf("find payments: %w", err)
	}
	return found, nil
}

// Parked is what waits for a person, at most limit, what has waited longest first.
func (l *Ledger) Parked(ctx context.Context, limit int) (waiting []payment.FollowUpDetail, err error) {
	err = l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(parked, pgx.NamedArgs{"limit": bounded(limit)}).Query(func(rows pgx.Rows) error {
			var err error
			waiting, err = pgx.CollectRows(rows, scanDetail)
			return err
		})
	}})
	if err != nil {
		return nil, fmt.Errorf("list what is parked: %w", err)
	}
	return waiting, nil
}

// Timeline is everything about a payment; id is its own or that of one of its
// follow-ups. A credit that names no payment has a timeline without one. It is
// false where there is nothing of that id. A payment that is overdue is shown as it
// is: looking changes nothing.
func (l *Ledger) Timeline(ctx context.Context, id uuid.UUID) (t payment.Timeline, found bool, err error) {
	args := pgx.NamedArgs{"id": pgUUID(id)}
	err = l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(timelinePayment, args).Query(func(rows pgx.Rows) error {
			payments, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (payment.Payment, error) {
				return scanPayment(row)
			})
			if len(payments) > 0 {
				t.Payment = payments[0]
			}
			return err
		})
		b.Queue(timelineFollowUps, args).Query(func(rows pgx.Rows) error {
			var err error
			t.FollowUps, err = pgx.CollectRows(rows, scanDetail)
			return err
		})
		b.Queue(timelineCalls, args).Query(func(rows pgx.Rows) error {
			var err error
			t.Calls, err = pgx.CollectRows(rows, scanCall)
			return err
		})
		b.Queue(timelineNotes, args).Query(func(rows pgx.Rows) error {
			var err error
			t.Notes, err = pgx.CollectRows(rows, scanNote)
			return err
		})
	}})
	if err != nil {
		return payment.Timeline{}, false, fmt.Errorf("read the timeline of %s: %w", id, err)
	}
	return t, t.Payment.ID != uuid.Nil || len(t.FollowUps) > 0, nil
}

// Redrive gives a follow-up that is parked back to the queue: at once, under the
// same outbound key, and with QUEUE_PARK_AFTER counted from now. operator and reason
// are kept, and must not be empty.
func (l *Ledger) Redrive(ctx context.Context, id uuid.UUID, operator, reason string) (payment.OperatorResult, error) {
	r, err := l.intervene(ctx, redrive, id, pgx.NamedArgs{"operator": operator, "action": actionRedrive, "note": reason})
	if err != nil {
		return payment.OperatorResult{}, fmt.Errorf("redrive %s: %w", id, err)
	}
	return r, nil
}

// SettleByHand ends a follow-up as an operator has found it to be, as long as no
// attempt at it is out: applied, or not, and then what it reserved is given back.
// operator and reason are kept, and must not be empty.
func (l *Ledger) SettleByHand(ctx context.Context, id uuid.UUID, applied bool, operator, reason string) (payment.OperatorResult, error) {
	action := actionSettleNot
	if applied {
		action = actionSettleApplied
	}
	r, err := l.intervene(ctx, settleByHand, id, pgx.NamedArgs{
		"applied": applied, "operator": operator, "action": action, "note": reason,
	})
	if err != nil {
		return payment.OperatorResult{}, fmt.Errorf("settle %s by hand: %w", id, err)
	}
	return r, nil
}

// intervene runs a conditional update with its note, and reads what is there then.
func (l *Ledger) intervene(ctx context.Context, statement string, id uuid.UUID, args pgx.NamedArgs) (r payment.OperatorResult, err error) {
	args["id"] = pgUUID(id)
	var done int
	var followUps []payment.FollowUpDetail
	err = l.transact(ctx, trip{begin: begin, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(statement, args).QueryRow(func(row pgx.Row) error { return row.Scan(&done) })
		b.Queue(followUpDetail, args).Query(func(rows pgx.Rows) error {
			var err error
			followUps, err = pgx.CollectRows(rows, scanDetail)
			return err
		})
	}})
	if err != nil {
		return payment.OperatorResult{}, err
	}
	if len(followUps) == 0 {
		return payment.OperatorResult{Status: payment.OperatorUnknown}, nil
	}
	r = payment.OperatorResult{Status: payment.OperatorActive, FollowUp: followUps[0]}
	switch {
	case done > 0:
		r.Status = payment.OperatorDone
	case !r.FollowUp.EndedAt.IsZero():
		r.Status = payment.OperatorEnded
	}
	return r, nil
}

// scanDetail reads detailColumns.
func scanDetail(row pgx.CollectableRow) (d payment.FollowUpDetail, err error) {
	var (
		outbound               [16]byte
		dueAt                  *time.Time
		parkReason, lastReason *string
	)
	d.FollowUp, err = scanFollowUp(row, &d.Caller, &outbound, &d.Attempts, &d.Lookups, &dueAt, &parkReason, &lastReason)
	d.Outbound, d.DueAt = payment.Reference(outbound), utc(dueAt)
	d.ParkReason, d.LastReason = value(parkReason), payment.Reason(value(lastReason))
	return d, err
}

// scanCall reads a row of timelineCalls.
func scanCall(row pgx.CollectableRow) (c payment.TimedCall, err error) {
	var (
		operation *[16]byte
		at        time.Time
		reason    string
		status    *int
	)
	err = row.Scan(&operation, &c.Attempt, &at, &c.Call, &c.Outcome, &reason, &status, &c.Ago, &c.Took)
	c.OperationID, c.At, c.Reason, c.Status = value(operation), at.UTC(), payment.Reason(reason), value(status)
	return c, err
}

// scanNote reads a row of timelineNotes.
func scanNote(row pgx.CollectableRow) (n payment.Note, err error) {
	var operation [16]byte
	var at time.Time
	err = row.Scan(&operation, &at, &n.Operator, &n.Action, &n.Text)
	n.OperationID, n.At = operation, at.UTC()
	return n, err
}

// timeOrNull is nil, hence null, for the zero time.
func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
