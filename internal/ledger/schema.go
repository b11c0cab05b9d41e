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
	// ErrSchemaNew: a later release has migrated, and says that this program still
	// runs: replicas are being replaced, or a release was taken back. Worth a warning.
	ErrSchemaNew = errors.New("the database schema is newer than this program, which still runs on it")
	// ErrSchemaTooNew: a later release has migrated, and does not say that. What this
	// program would write there is anybody's guess. The program cannot run.
	ErrSchemaTooNew = errors.New("the database schema is too new for this program: run a release that knows it")
	// ErrNotDurable: a commit would not be a promise.
	ErrNotDurable = errors.New("the database does not keep what it commits")
)

// Migrate brings the schema to what this program was written against. Any number
// may run at once. It must reach PostgreSQL itself, not a pooler.
func Migrate(ctx context.Context, databaseURL string, log *slog.Logger) error {
	return migrations.Up(ctx, databaseURL, log)
}

// CheckSchema reports whether the database is fit for this program: nil, one of
// ErrSchemaOld, ErrSchemaNew, ErrSchemaTooNew and ErrNotDurable, or that it could not
// be asked. See docs/adr/0019.
func (l *Ledger) CheckSchema(ctx context.Context) error {
	var fsync, synchronousCommit string
	err := l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(durability).QueryRow(func(row pgx.Row) error { return row.Scan(&fsync, &synchronousCommit) })
	}})
	if err != nil {
		return fmt.Errorf("check the database: %w", err)
	}
	if fsync != "on" || synchronousCommit == "off" {
		return fmt.Errorf("%w: fsync is %s, synchronous_commit is %s", ErrNotDurable, fsync, synchronousCommit)
	}

	var version int64
	err = l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
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
		return l.checkNewerSchema(ctx, version)
	}
	return nil
}

// checkNewerSchema asks a schema that this program does not know whether it may run.
func (l *Ledger) checkNewerSchema(ctx context.Context, version int64) error {
	var (
		oldest int64
		said   bool
	)
	err := l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
		b.Queue(oldestProgram, pgx.NamedArgs{"version": version}).QueryRow(func(row pgx.Row) error { return row.Scan(&oldest, &said) })
	}})
	switch {
	case err != nil && code(err) != undefinedTable:
		return fmt.Errorf("check the schema: %w", err)
	case err != nil || !said:
		return fmt.Errorf("%w (version %d, which does not say what runs on it, known %d)", ErrSchemaTooNew, version, migrations.Latest)
	case oldest > migrations.Latest:
		return fmt.Errorf("%w (version %d, which runs programs from %d, known %d)", ErrSchemaTooNew, version, oldest, migrations.Latest)
	}
	return fmt.Errorf("%w (version %d, known %d)", ErrSchemaNew, version, migrations.Latest)
}

// Ping reports whether the database can be reached and takes writes. It waits for
// a connection like everybody else: a ledger whose pool is used up cannot take a
// claim either. A connection from before that turns out to be lost, or to lead to what
// is a standby now, says nothing of the database: another is asked, until one answers,
// or none can be had, or a new one fails too.
func (l *Ledger) Ping(ctx context.Context) error {
	opened := l.pool.Stat().NewConnsCount()
	err := l.pingOnce(ctx)
	for errors.Is(err, errConnectionLost) && l.pool.Stat().NewConnsCount() == opened {
		err = l.pingOnce(ctx)
	}
	if err != nil {
		return fmt.Errorf("ping the database: %w", err)
	}
	return nil
}

func (l *Ledger) pingOnce(ctx context.Context) error {
	return l.transact(ctx, trip{begin: beginRead, limits: setLimits, queue: func(b *pgx.Batch) {
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
}
