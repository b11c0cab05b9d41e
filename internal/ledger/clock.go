package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// clock is what the database takes for the time.
const clock = `SELECT pg_catalog.clock_timestamp()`

// Look is what one look at the database has told of it.
type Look struct {
	Clock   time.Time // what it took for the time, at some moment of the look
	Version int64     // the newest migration that was applied
}

// Look looks at the database's clock and schema. To compare that clock with its own
// is the caller's: here no other one is asked.
func (l *Ledger) Look(ctx context.Context) (look Look, err error) {
	err = l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(clock).QueryRow(func(row pgx.Row) error { return row.Scan(&look.Clock) })
		b.Queue(schemaVersion).QueryRow(func(row pgx.Row) error { return row.Scan(&look.Version) })
	}})
	if err != nil {
		return Look{}, fmt.Errorf("look at the database: %w", err)
	}
	return look, nil
}
