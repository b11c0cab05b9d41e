package ledger

import (
	"context"
	"time"
)

// KeepLowWater lets a test be the replica that was overtaken.
func (l *Ledger) KeepLowWater(ctx context.Context, mark, stored time.Time) error {
	return l.keepLowWater(ctx, mark, stored)
}
