// Package migrations holds the schema of the ledger as numbered, forward-only
// SQL, and applies it. Every migration is written so that the release before it
// still runs on what it leaves: replicas are replaced one by one, and a release
// can be taken back while the schema cannot. Each says in schema_compatibility how
// far back that goes (docs/adr/0019).
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
	"github.com/pressly/goose/v3/lock"
)

// Latest is the version that this program was written against: the number of
// the newest file. A test holds it to the files.
const Latest = 6

// VersionTable is where the versions that have been applied are written down.
const VersionTable = "public.goose_db_version"

//go:embed *.sql
var files embed.FS

// The lock of two migrations at once is asked for every second, and given up
// after ten minutes: a migration that takes longer is one to watch, not to queue for.
const (
	lockRetrySeconds = 1
	lockRetries      = 600
)

// Up brings the database at databaseURL to Latest, or leaves it alone if it is
// there or beyond. Any number may run at once, one of them does the work and the
// others wait for it. It must reach PostgreSQL itself: the lock belongs to a
// session, which a pooler in transaction mode does not have.
//
// An error leaves the migrations before the failed one applied, and nothing of
// the failed one.
func Up(ctx context.Context, databaseURL string, log *slog.Logger) (err error) {
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		return fmt.Errorf("read the database URL: %w", err)
	}
	// What a migration has to say to a table it says within seconds or not at all:
	// a lock that waits behind a long query makes every till wait behind it.
	db := stdlib.OpenDB(*config, stdlib.OptionAfterConnect(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "SET search_path = public; SET lock_timeout = '5s'; SET statement_timeout = 0")
		return err
	}))
	defer func() { err = errors.Join(err, db.Close()) }()

	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(lockRetrySeconds, lockRetries))
	if err != nil {
		return fmt.Errorf("prepare the migration lock: %w", err)
	}
	store, err := database.NewStore(database.DialectPostgres, VersionTable)
	if err != nil {
		return fmt.Errorf("prepare the version table: %w", err)
	}
	provider, err := goose.NewProvider(goose.DialectCustom, db, files,
		goose.WithStore(store), goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return fmt.Errorf("read the migrations: %w", err)
	}
	results, err := provider.Up(ctx)
	for _, r := range results {
		log.InfoContext(ctx, "migration applied", "version", r.Source.Version, "duration_ms", r.Duration.Milliseconds())
	}
	if err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
