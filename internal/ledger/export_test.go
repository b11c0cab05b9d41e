package ledger

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/payment"
)

// Statements that a test wants explained.
const (
	LeaseStatement     = lease
	ExposuresStatement = exposures
)

// LeaseArgs are what Lease asks the statement with.
func LeaseArgs(order payment.LeaseOrder) pgx.NamedArgs { return leaseArgs(order) }

// KeepLowWater lets a test be the replica that was overtaken.
func (l *Ledger) KeepLowWater(ctx context.Context, mark, stored time.Time) error {
	return l.keepLowWater(ctx, mark, stored)
}

// Skew is what a look proves of our clock.
func Skew(sent time.Time, between time.Duration, theirs time.Time) time.Duration {
	return skew(sent, between, theirs)
}
