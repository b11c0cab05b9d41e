package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/payment"
)

// Statements that a test wants explained.
const (
	LeaseStatement     = lease
	ExposuresStatement = exposures
	ClaimedStatement   = claimed
	SweepStatement     = oldestUndecided
	ThinStatement      = thin
)

// LeaseArgs are what Lease asks the statement with.
func LeaseArgs(order payment.LeaseOrder) pgx.NamedArgs { return leaseArgs(order) }

// KeepLowWater lets a test be the replica that was overtaken.
func (l *Ledger) KeepLowWater(ctx context.Context, mark, stored time.Time) error {
	return l.keepLowWater(ctx, mark, stored)
}

// Waiting is how many writes wait for a shared transaction.
func (l *Ledger) Waiting() int {
	l.group.mu.Lock()
	defer l.group.mu.Unlock()
	return len(l.group.waiting)
}

// DecideStatement is what decisions run, with arguments for some ids.
func DecideStatement(ids []uuid.UUID) (sql string, args pgx.NamedArgs) {
	decisions := make([]*deciding, len(ids))
	for i, id := range ids {
		decisions[i] = &deciding{id: id, decision: payment.DeclineAndReverse(payment.WalletTimeout)}
	}
	var b pgx.Batch
	queueDecisions(&b, decisions)
	return queued(&b)
}

// DecideAndDie is Decide of a process that ends as soon as the decision is written, or is
// not because it came late.
func (l *Ledger) DecideAndDie(ctx context.Context, p payment.Payment, d payment.Decision) error {
	return l.store(ctx, writes{decisions: []*deciding{{id: p.ID, decision: d}}})
}

// ClaimStatement is what claims run.
func ClaimStatement(requests []payment.Request) (sql string, args pgx.NamedArgs, err error) {
	claims := make([]*claiming, len(requests))
	for i, req := range requests {
		if claims[i], err = newClaiming(req); err != nil {
			return "", nil, err
		}
	}
	var b pgx.Batch
	queueClaims(&b, claims)
	sql, args = queued(&b)
	return sql, args, nil
}

func queued(b *pgx.Batch) (sql string, args pgx.NamedArgs) {
	q := b.QueuedQueries[0]
	args, _ = q.Arguments[0].(pgx.NamedArgs)
	return q.SQL, args
}

// SetLimitsByIndex is said before whatever is waited for.
const SetLimitsByIndex = setLimitsByIndex
