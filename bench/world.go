package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/devstack"
	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/telemetry"
)

// settings are those of the database server: what somebody would set on a small
// machine of its own, and what makes a commit durable spelt out, though it is the
// default. Checkpoints come by time, not in the middle of every measurement.
func settings() map[string]string {
	return map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on",
		"shared_buffers": "1GB", "max_wal_size": "8GB", "checkpoint_timeout": "5min", "max_connections": "200",
	}
}

// groupCommit is the variable that turns grouping off.
const groupCommit = "SAFELEDGER_DATABASE_GROUP_COMMIT"

// template is the migrated database that the measurements' databases are copies of.
const template = "bench_template"

// token is what the tills show. It opens a service that lives for a few seconds.
const token = "token-of-the-bench-tills"

// world is what all measurements of a run share: the programs, one database server,
// and a folder.
type world struct {
	programs string // the folder that they were built into
	dir      string
	logs     string // "" = nowhere
	profile  string // the file that a build for it writes a CPU profile into
	// grouping is whether this build can turn grouping off.
	grouping bool

	postgres *devstack.Postgres
	admin    *pgx.Conn
	made     int // databases so far
}

// newWorld builds the programs of the repository at root, and starts the database.
// data is the folder under which its files are made; their disk is what is measured.
func newWorld(ctx context.Context, root, data, logs string) (_ *world, err error) {
	sweep()
	log := telemetry.NewLogger(os.Stderr, slog.LevelWarn)
	w := &world{logs: logs}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close())
		}
	}()
	if w.grouping, err = documented(root, groupCommit); err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", ownPrefix()); err != nil {
		return nil, err
	}
	w.programs = filepath.Join(w.dir, "bin") + string(filepath.Separator)
	// All by the profile that SafeLedger is shipped with: what the compiler knows must not
	// be what tells the variants apart.
	if err := w.build(ctx, root, "-pgo", profile, "./cmd/safeledger", "./cmd/walletsim", "./bench"); err != nil {
		return nil, err
	}
	content := fmt.Sprintf(`{"callers": [{"name": "bench", "tokenSha256": %q, "scopes": ["till", "payout"]}]}`, callers.HashToken(token))
	if err := os.WriteFile(w.callers(), []byte(content), 0o600); err != nil {
		return nil, err
	}
	options := devstack.Options{TempPrefix: ownPrefix(), Settings: settings(), Log: log}
	if data != "" {
		options.Dir = filepath.Join(data, fmt.Sprintf("postgres-%d", os.Getpid()))
	}
	if w.postgres, err = devstack.StartPostgres(ctx, options); err != nil {
		return nil, err
	}
	if w.admin, err = pgx.Connect(ctx, w.url("postgres")); err != nil {
		return nil, err
	}
	if _, err := w.admin.Exec(ctx, "CREATE DATABASE "+template); err != nil {
		return nil, err
	}
	return w, ledger.Migrate(ctx, w.url(template), log)
}

// build builds programs of the tree at root.
func (w *world) build(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-o", w.programs}, args...)...) //nolint:gosec // into a folder of ours
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w: %s", err, out)
	}
	return nil
}

// tempPrefix begins the names of all our folders for temporary files; the process id follows.
const tempPrefix = "safeledger-bench-"

func ownPrefix() string { return tempPrefix + strconv.Itoa(os.Getpid()) + "-" }

// sweep removes the folders of runs that were killed: their processes died with them,
// their folders, gigabytes perhaps, did not.
func sweep() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), tempPrefix), "-")
		if n, err := strconv.Atoi(pid); err == nil && n > 0 && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir) // best effort: it may be another user's
		}
	}
}

// close ends and removes everything that newWorld has started and made.
func (w *world) close() error {
	var errs []error
	if w.postgres != nil {
		errs = append(errs, w.postgres.Stop(), os.RemoveAll(w.postgres.Dir()))
	}
	if w.dir != "" {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}

func (w *world) callers() string            { return filepath.Join(w.dir, "callers.json") }
func (w *world) program(name string) string { return filepath.Join(w.programs, name) }

// url is how to connect to a database.
func (w *world) url(database string) string {
	u, err := url.Parse(w.postgres.URL())
	if err != nil {
		return "" // it is our own, and has been connected to
	}
	u.Path = database
	return u.String()
}

// documented reports whether this tree's SafeLedger knows a variable; one that it does
// not know stops it. The document is kept equal to the code by a test.
func documented(root, variable string) (bool, error) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "configuration.md"))
	if err != nil {
		return false, fmt.Errorf("find out what can be configured: %w", err)
	}
	return strings.Contains(string(text), "`"+variable+"`"), nil
}

// copyTemplate makes a migrated database without a payment.
func (w *world) copyTemplate(ctx context.Context) (database string, err error) {
	w.made++
	database = fmt.Sprintf("bench_%d", w.made)
	_, err = w.admin.Exec(ctx, "CREATE DATABASE "+database+" TEMPLATE "+template)
	return database, err
}

func (w *world) drop(ctx context.Context, database string) error {
	_, err := w.admin.Exec(ctx, "DROP DATABASE "+database+" WITH (FORCE)")
	return err
}

// settle writes out what the measurement before has left to be written, so that the
// next one does not pay for it.
func (w *world) settle(ctx context.Context) error {
	_, err := w.admin.Exec(ctx, "CHECKPOINT")
	return err
}

// written is what the database server has written to its WAL since it started.
type written struct{ bytes, syncs int64 }

// written waits until nobody is connected to database any more: what a connection has
// written is counted for certain only when it has ended.
func (w *world) written(ctx context.Context, database string) (sum written, err error) {
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	for connected := 1; connected > 0; {
		err := w.admin.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND backend_type = 'client backend'", database).Scan(&connected)
		if err != nil {
			return written{}, err
		}
		if connected > 0 && !waitUntil(ctx, time.Now().Add(5*time.Millisecond)) {
			return written{}, fmt.Errorf("%d connections to %s do not end", connected, database)
		}
	}
	// What this connection has written itself counts as written before.
	if _, err := w.admin.Exec(ctx, "SELECT pg_stat_force_next_flush()"); err != nil {
		return written{}, fmt.Errorf("%w (PostgreSQL 15 or newer is needed)", err)
	}
	syncs := "SELECT wal_bytes::bigint, wal_sync FROM pg_stat_wal"
	if w.admin.PgConn().ParameterStatus("server_version") >= "18" { // it has moved there
		syncs = "SELECT wal_bytes::bigint, (SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal') FROM pg_stat_wal"
	}
	err = w.admin.QueryRow(ctx, syncs).Scan(&sum.bytes, &sum.syncs)
	return sum, err
}

// setting is what the server has in force.
func (w *world) setting(ctx context.Context, name string) (value string, err error) {
	err = w.admin.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
	return value, err
}

// shownSettings are told with the results: those that we set, and how a commit is synced.
func (w *world) shownSettings(ctx context.Context) (shown []string, err error) {
	names := []string{"wal_sync_method"}
	for name := range settings() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		value, err := w.setting(ctx, name)
		if err != nil {
			return nil, err
		}
		shown = append(shown, name+" = "+value)
	}
	return shown, nil
}
