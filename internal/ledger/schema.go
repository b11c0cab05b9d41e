package ledger

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/migrations"
)

// The ways in which a database is not fit for this program, see CheckSchema.
var (
	// ErrSchemaOld: migrations are missing. The program cannot run.
	ErrSchemaOld = errors.New("the database schema is older than this program: run `safeledger migrate`")
	// ErrSchemaNew: a later release has migrated. Migrations are written so that the
	// release before still runs on them, so this is worth a warning, and a reason not
	// to go back further.
	ErrSchemaNew = errors.New("the database schema is newer than this program")
	// ErrNotDurable: a commit would not be a promise.
	ErrNotDurable = errors.New("the database does not keep what it commits")
)

// Migrate brings the schema to what this program was written against. Any number
// may run at once. It must reach PostgreSQL itself, not a pooler.
func Migrate(ctx context.Context, databaseURL string, log *slog.Logger) error {
	return migrations.Up(ctx, databaseURL, log)
}

// CheckSchema reports whether the database is fit for this program: nil, one of
// ErrSchemaOld, ErrSchemaNew and ErrNotDurable, or that it could not be asked.
func (l *Ledger) CheckSchema(ctx context.Context) error {
	var fsync, synchronousCommit string
	err := l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(durability).QueryRow(func(row pgx.Row) error { return row.Scan(&fsync, &synchronousCommit) })
	}})
	if err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	if fsync != "on" || synchronousCommit == "off" {
		return fmt.Errorf("%w: fsync is %s, synchronous_commit is %s", ErrNotDurable, fsync, synchronousCommit)
	}

	var version int64
	err = l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(schemaVersion).QueryRow(func(row pgx.Row) error { return row.Scan(&version) })
	}})
	if code(err) == undefinedTable {
		err = nil // nothing has ever been migrated here
	}
	switch {
	case err != nil:
		return fmt.Errorf("check the schema: %w", err)
	case version < migrations.Latest:
		return fmt.Errorf("%w (version %d, needed %d)", ErrSchemaOld, version, migrations.Latest)
	case version > migrations.Latest:
		return fmt.Errorf("%w (version %d, known %d)", ErrSchemaNew, version, migrations.Latest)
	}
	return nil
}

// Ping reports whether the database can be reached and takes writes. It waits for
// a connection like everybody else: a ledger whose pool is used up cannot take a
// claim either.
func (l *Ledger) Ping(ctx context.Context) error {
	err := l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(writable).QueryRow(func(row pgx.Row) error {
			var ok bool
			if err := row.Scan(&ok); err != nil {
				return err
			}
			if !ok {
				return errNotWritable
			}
			return nil
		})
	}})
	if err != nil {
		return fmt.Errorf("ping the database: %w", err)
	}
	return nil
}
