package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/safeledger/safeledger/internal/payment"
)

// Lease hands out work that is due, as far as order allows, and makes it the
// caller's until the lease runs out by the database's clock: reversals before what
// ends holds before credits, none of them starved, each oldest first. The attempt
// is counted, and the row gets a fence of which Settle must know. Rows of kinds that
// order does not name are left as they are.
//
// An error means that it is not known whether something was leased. What was comes
// back when its lease runs out, as taken over.
func (l *Ledger) Lease(ctx context.Context, order payment.LeaseOrder) (work []payment.Work, err error) {
	if order.Limit <= 0 {
		return nil, nil
	}
	err = l.transact(ctx, trip{begin: begin, queue: func(b *pgx.Batch) {
		b.Queue(lease, leaseArgs(order)).Query(func(rows pgx.Rows) error {
			var err error
			work, err = pgx.CollectRows(rows, scanWork)
			return err
		})
	}})
	if err != nil {
		return nil, fmt.Errorf("lease work: %w", err)
	}
	return work, nil
}

// leaseArgs are the arguments of lease.
func leaseArgs(order payment.LeaseOrder) pgx.NamedArgs {
	kinds := make([]string, len(order.Kinds))
	for i, k := range order.Kinds {
		kinds[i] = string(k)
	}
	firsts, retries := order.Limit, order.Retries
	if !order.Sends {
		firsts, retries = 0, 0
	}
	var backlog *time.Duration
	if order.Backlog >= 0 {
		backlog = &order.Backlog
	}
	return pgx.NamedArgs{
		"kinds": kinds, "limit": order.Limit, "lease": order.Lease, "backlog": backlog,
		"firsts": firsts, "retries": max(retries, 0), "lookups": max(order.Lookups, 0),
	}
}

// Settle ends the attempt of the lease that s names, with its wallet calls in the
// same statement. It is false, and nothing has changed, where somebody else has
// taken over, or the attempt has been settled before.
//
// An error means that it is not known whether the attempt was settled. If it was
// not, its lease runs out.
func (l *Ledger) Settle(ctx context.Context, s payment.Settlement) (settled bool, err error) {
	w := &settling{Settlement: s}
	if err := l.store(ctx, writes{settlements: []*settling{w}}); err != nil {
		return false, fmt.Errorf("settle %s: %w", s.ID, err)
	}
	return w.settled, nil
}

// HandBack returns work that was leased and not begun, as if it had never been: it
// is due now, and its attempt is not counted. Nothing happens if somebody else has
// taken over.
func (l *Ledger) HandBack(ctx context.Context, w payment.Work) error {
	err := l.transact(ctx, trip{begin: begin, queue: func(b *pgx.Batch) {
		b.Queue(handBack, pgx.NamedArgs{"id": pgUUID(w.ID), "fence": w.Fence, "taken_over": w.TakenOver})
	}})
	if err != nil {
		return fmt.Errorf("hand back %s: %w", w.ID, err)
	}
	return nil
}

// thinBatch bounds one transaction of Thin.
const thinBatch = 2000

// Thin forgets the recorded wallet calls of what ended longer ago than keep, and
// returns how many it has forgotten. It goes on until there are none left or ctx ends,
// which is no error: the next call goes on. Payments and follow-ups are never
// forgotten (contract section 1, Idempotency).
func (l *Ledger) Thin(ctx context.Context, keep time.Duration) (forgotten int, err error) {
	for ctx.Err() == nil {
		n := 0
		err := l.transact(ctx, trip{begin: begin, queue: func(b *pgx.Batch) {
			b.Queue(thin, pgx.NamedArgs{"keep": keep, "batch": thinBatch}).Exec(func(tag pgconn.CommandTag) error {
				n = int(tag.RowsAffected())
				return nil
			})
		}})
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return forgotten, fmt.Errorf("thin the wallet calls: %w", err)
		}
		forgotten += n
		if n < thinBatch {
			break
		}
	}
	return forgotten, nil
}

// Exposures is the money of follow-ups that are not carried out yet, by kind, state
// and currency: PENDING and PARKED. Of a release it is the hold's, of a reversal
// what the payment took or may have taken.
func (l *Ledger) Exposures(ctx context.Context) (open []payment.Exposure, err error) {
	err = l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(exposures).Query(func(rows pgx.Rows) error {
			var err error
			open, err = pgx.CollectRows(rows, scanExposure)
			return err
		})
	}})
	if err != nil {
		return nil, fmt.Errorf("sum up what is open: %w", err)
	}
	return open, nil
}

// scanWork reads a row of lease.
func scanWork(row pgx.CollectableRow) (payment.Work, error) {
	var (
		w                           payment.Work
		id, outbound                [16]byte
		reverses                    *[16]byte
		kind, allowance, state      string
		account, currency, targetID *string
		amount                      *int64
		sinceDoubt                  *time.Duration
		traceparent                 *string
	)
	p, err := scanPayment(row,
		&id, &kind, &w.Fence, &w.Attempts, &w.Lookups, &allowance, &w.TakenOver, &w.Resolve,
		&outbound, &reverses, &account, &amount, &currency, &targetID,
		&w.Credited, &w.CreditsOpen, &state, &w.Age, &w.Tried, &w.SinceEnd, &w.LateChecks, &sinceDoubt, &traceparent)
	if err != nil {
		return payment.Work{}, err
	}
	w.InDoubt, w.SinceDoubt = sinceDoubt != nil, value(sinceDoubt)
	w.ID, w.Outbound, w.Payment = id, payment.Reference(outbound), p
	w.Kind, w.Turn, w.State = payment.Operation(kind), payment.Turn(allowance), payment.FollowUpState(state)
	w.TargetID, w.Traceparent = value(targetID), value(traceparent)
	money := payment.Money{AmountMinor: value(amount), Currency: value(currency)}
	switch w.Kind { //nolint:exhaustive // the others have neither
	case payment.Credit:
		w.Account, w.Amount = value(account), money
	case payment.Capture:
		w.Amount = money
	case payment.Reversal:
		// What it undoes is in its own row: a payment that was cancelled before it was
		// seen knows nothing of what was asked for.
		w.Payment.Reference, w.Payment.Account, w.Payment.Amount = payment.Reference(value(reverses)), value(account), money
	}
	return w, nil
}
