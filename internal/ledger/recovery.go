package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/payment"
)

// A payment whose handler died stays in flight until somebody declines it, with a
// reversal because the wallet may have been called (contract section 2). Whoever
// meets it by key or id does so on the spot, and a sweep finds those that nobody
// asks for.
//
// # How a sweep finds them
//
// An index on what is undecided would be changed by every decision, so there is
// none. Ids begin with the database's time, so what is overdue is a range of the
// primary key: from the low-water mark, below which nothing is in flight, to the
// horizon, the present minus the time that a payment may be in flight. The range
// is short as long as the mark follows the horizon.
//
// # Why the mark passes nobody
//
// The mark may be moved to a time M when nothing with an earlier creation is in
// flight, and nothing such can appear any more. A sweep takes three steps, in
// this order, each in a snapshot of its own:
//
//  1. It reads the clock, and then which transactions hold an xid and since when
//     each is open. M is at most the horizon, and at most the begin of the oldest.
//  2. It declines what is overdue.
//  3. It reads the oldest payment that is in flight in the range, without regard to
//     locks. M is at most its creation.
//
// Take a claim that step 3 did not see because its transaction was not committed.
// If it had been inserted by the time of step 1, its transaction was listed there:
// it had its xid, and the commit that takes an xid off the list also makes the row
// visible to step 3, which is later. It was created after its transaction began,
// hence after M. This is also the case of a commit that hangs because a
// synchronous standby does not answer: such a transaction keeps its xid, and is
// invisible, until it is let go. If the claim was inserted after step 1, it was
// created after the clock was read there, hence after the horizon and M. (An
// insert reads the clock a moment before it takes its xid. A server that is frozen
// within that moment for longer than the horizon could slip through; its till was
// told that the outcome is unknown, the wallet has not been called, and whoever
// asks for the key next declines it.)
//
// Step 3 reads without locks because a decision that is not committed may yet be
// rolled back: the payment that step 2 had to skip for it would then lie below the
// mark, for ever.
//
// # When the clock goes back
//
// A failover may lead to a machine whose clock is behind. Then the mark is later
// than the horizon, and what is created now has ids below it. A sweep that finds
// this begins rewind before the horizon instead, and the mark goes back there; it
// is found because sweeps are far more frequent than the clock needs to catch up.
// A process's first sweep begins rewind before the stored mark, for a clock that
// went back by less while nobody swept. A clock that jumps ahead makes payments
// overdue early, which costs their tills a decline and nobody money.

const (
	// rewind is how far back a sweep begins where it does not trust the mark: the
	// horizon, a pause and a clock's error fit in. A minute of a busy ledger is some
	// ten thousand rows of an index range.
	rewind = time.Minute
	// markStep is how far the mark must have come for it to be stored. It is a hint:
	// the further behind it is, the more the first sweep of a process reads.
	markStep = 10 * time.Second
	// recoverBatch bounds one transaction, and with it the locks that it holds.
	recoverBatch = 100
)

// sweep is what a process remembers from one sweep to the next.
type sweep struct {
	turn chan struct{} // holds one token: sweeps of a process take turns

	// Owned by whoever has the token.
	mark   time.Time // as far as this process has come; zero before its first sweep
	stored time.Time // the stored mark as it was last seen
}

func newSweep() sweep {
	turn := make(chan struct{}, 1)
	turn <- struct{}{}
	return sweep{turn: turn}
}

// bounds is what the first step of a sweep reads.
type bounds struct {
	horizon time.Time  // what was created before it is overdue
	open    *time.Time // begin of the oldest transaction with an xid, nil if there is none
	unseen  bool       // there is one whose begin we may not see
	stored  time.Time  // the stored mark
}

// Recover declines every payment that is in flight for longer than the horizon,
// by the database's clock, each with a reversal in the same statement, and
// returns how many this call declined. Every replica may call it, every second.
//
// An error leaves what was declined declined; the next call goes on.
func (l *Ledger) Recover(ctx context.Context) (recovered int, err error) {
	select {
	case <-l.sweep.turn:
	case <-ctx.Done():
		return 0, fmt.Errorf("recover: wait for the sweep before: %w", ctx.Err())
	}
	defer func() { l.sweep.turn <- struct{}{} }()

	b, err := l.sweepBounds(ctx)
	if err != nil {
		return 0, fmt.Errorf("recover: read the bounds: %w", err)
	}
	from, rewound := l.sweep.begin(b)

	oldest, left, err := l.oldestUndecided(ctx, from, b.horizon)
	if err != nil {
		return 0, fmt.Errorf("recover: look for the overdue: %w", err)
	}
	if left {
		recovered, err = l.recoverRange(ctx, from, b.horizon)
		if err != nil {
			return recovered, fmt.Errorf("recover: %w", err)
		}
		oldest, left, err = l.oldestUndecided(ctx, from, b.horizon)
		if err != nil {
			return recovered, fmt.Errorf("recover: look for what is left: %w", err)
		}
	}

	mark := advance(b, from)
	if left && oldest.Before(mark) {
		mark = oldest
	}
	l.sweep.mark, l.sweep.stored = mark, b.stored
	if !rewound && mark.Sub(b.stored) < markStep {
		return recovered, nil
	}
	if err := l.keepLowWater(ctx, mark, b.stored); err != nil {
		return recovered, fmt.Errorf("recover: store the low-water mark: %w", err)
	}
	return recovered, nil
}

// begin is where a sweep begins; rewound says that the clock has gone back and the
// stored mark must too.
func (s *sweep) begin(b bounds) (from time.Time, rewound bool) {
	from = b.stored
	switch {
	case s.mark.IsZero():
		from = from.Add(-rewind)
	case b.stored.Before(s.stored):
		// Somebody else has seen the clock go back; what we remember is of before.
	case s.mark.After(from):
		from = s.mark
	}
	if from.After(b.horizon) {
		from = b.horizon.Add(-rewind)
	}
	return from, b.stored.After(b.horizon)
}

// advance is how far the mark may move as far as claims go that are not
// committed; never back behind from, which an earlier sweep has vouched for.
func advance(b bounds, from time.Time) time.Time {
	mark := b.horizon
	if b.open != nil && b.open.Before(mark) {
		mark = *b.open
	}
	if b.unseen || mark.Before(from) {
		return from
	}
	return mark
}

func (l *Ledger) sweepBounds(ctx context.Context) (b bounds, err error) {
	err = l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(batch *pgx.Batch) {
		batch.Queue(sweepBounds, pgx.NamedArgs{"horizon": l.config.Horizon}).QueryRow(func(row pgx.Row) error {
			return row.Scan(&b.horizon, &b.open, &b.unseen, &b.stored)
		})
	}})
	return b, err
}

func (l *Ledger) oldestUndecided(ctx context.Context, from, until time.Time) (createdAt time.Time, found bool, err error) {
	err = l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(oldestUndecided, pgx.NamedArgs{"from": from, "until": until}).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&createdAt)
			found = err == nil
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	}})
	return createdAt, found, err
}

// recoverRange declines the overdue in batches, until one is not full.
func (l *Ledger) recoverRange(ctx context.Context, from, until time.Time) (recovered int, err error) {
	for {
		var declined []payment.Payment
		err := l.transact(ctx, trip{begin: begin, queue: func(b *pgx.Batch) {
			b.Queue(recoverSome, pgx.NamedArgs{"from": from, "until": until, "batch": recoverBatch}).Query(func(rows pgx.Rows) error {
				var err error
				declined, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (payment.Payment, error) {
					return scanPayment(row)
				})
				return err
			})
		}})
		if err != nil {
			return recovered, fmt.Errorf("decline the overdue: %w", err)
		}
		for _, p := range declined {
			l.config.Recovered(ctx, p)
		}
		recovered += len(declined)
		if len(declined) < recoverBatch {
			return recovered, nil
		}
	}
}

func (l *Ledger) keepLowWater(ctx context.Context, mark, stored time.Time) error {
	return l.transact(ctx, trip{begin: begin, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(keepLowWater, pgx.NamedArgs{"mark": mark, "stored": stored, "horizon": l.config.Horizon})
	}})
}

// recoverMet declines p, which somebody has met overdue, and returns what is
// stored then.
func (l *Ledger) recoverMet(ctx context.Context, p payment.Payment) (payment.Payment, error) {
	stored, won, err := l.conditionally(ctx, recoverOne, pgx.NamedArgs{"id": pgUUID(p.ID), "horizon": l.config.Horizon})
	if err != nil {
		return payment.Payment{}, fmt.Errorf("recover %s: %w", p.ID, err)
	}
	if won {
		l.config.Recovered(ctx, stored)
		return stored, nil
	}
	return l.decided(ctx, p.ID)
}
