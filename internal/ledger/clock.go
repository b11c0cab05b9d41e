package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// look reads what a replica should know of its database beyond that it is there.
const look = `SELECT pg_catalog.clock_timestamp()`

// Look is what one look at the database has told.
type Look struct {
	// Skew is how far our clock is ahead of the database's, negative if it is behind:
	// the least that this look proves, 0 where the way there and back explains it.
	// Nothing here is decided by our clock, but people put what it says in order.
	Skew time.Duration
	// Version is the newest migration that was applied.
	Version int64
}

// Look looks at the database's clock and schema.
func (l *Ledger) Look(ctx context.Context) (Look, error) {
	var (
		theirs  time.Time
		version int64
		between time.Duration
	)
	sent := time.Now()
	err := l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(look).QueryRow(func(row pgx.Row) error {
			err := row.Scan(&theirs)
			between = time.Since(sent) // behind the reading, or it would prove too much
			return err
		})
		b.Queue(schemaVersion).QueryRow(func(row pgx.Row) error { return row.Scan(&version) })
	}})
	if err != nil {
		return Look{}, fmt.Errorf("look at the database: %w", err)
	}
	return Look{Skew: skew(sent, between, theirs), Version: version}, nil
}

// skew is how far our clock is certainly ahead, if theirs was read at some moment
// between sent, by ours, and so much later. Not the middle of that time: a replica
// that was held up on the way would be blamed for its clock.
func skew(sent time.Time, between time.Duration, theirs time.Time) time.Duration {
	least := sent.Sub(theirs)
	most := least + between
	switch {
	case least > 0:
		return least
	case most < 0:
		return most
	}
	return 0
}
