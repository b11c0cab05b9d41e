// Package pgtest gives each test a PostgreSQL database of its own, with the
// ledger's schema in it. There is one server per test process, started when the
// first test asks for it; a machine without PostgreSQL fails the test, because a
// ledger that was not tested on a database was not tested.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
package pgtest

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/safeledger/safeledger/internal/devstack"
	"github.com/safeledger/safeledger/migrations"
)

// template is the migrated database that the tests' databases are copies of.
const template = "pgtest_template"

// tempPrefix begins the name of the server's folder; the process id follows.
const tempPrefix = "safeledger-pgtest-"

// server is the process's server. It keeps fsync on: the ledger refuses to run on
// one that does not, and what tests rely on should be what production does.
var server struct { //nolint:gochecknoglobals // one per test process is the point
	main     atomic.Bool
	once     sync.Once
	err      error
	postgres *devstack.Postgres
	admin    *pgxpool.Pool
	names    atomic.Int64
}

// Main runs the tests, stops the server if one was started, and exits. Without
// it the server's folder would stay behind.
func Main(m *testing.M) {
	server.main.Store(true)
	code := m.Run()
	if server.admin != nil {
		server.admin.Close()
	}
	if server.postgres != nil {
		if err := server.postgres.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: stop the server:", err)
			code = max(code, 1)
		}
	}
	os.Exit(code)
}

// DB is one test's database.
type DB struct {
	// URL is how to connect, as the owner.
	URL  string
	name string
}

// New makes a database with the ledger's schema, which is gone when the test ends.
func New(tb testing.TB) *DB {
	tb.Helper()
	return create(tb, template)
}

// NewEmpty makes a database without a schema.
func NewEmpty(tb testing.TB) *DB {
	tb.Helper()
	return create(tb, "template0")
}

func create(tb testing.TB, from string) *DB {
	tb.Helper()
	if !server.main.Load() {
		tb.Fatal("pgtest: this package needs func TestMain(m *testing.M) { pgtest.Main(m) }")
	}
	server.once.Do(func() { server.err = start(tb.Context()) })
	if server.err != nil {
		tb.Fatalf("pgtest: the tests need PostgreSQL: %v", server.err)
	}
	name := "test_" + strconv.FormatInt(server.names.Add(1), 10)
	// The copy is made by the default strategy, through the WAL: with fsync on it took
	// half the time of file_copy, which ends with a checkpoint of everybody's work.
	if _, err := server.admin.Exec(tb.Context(), "CREATE DATABASE "+name+" TEMPLATE "+from); err != nil {
		tb.Fatalf("pgtest: create a database: %v", err)
	}
	tb.Cleanup(func() {
		// FORCE: a test that failed may have left connections.
		if _, err := server.admin.Exec(context.WithoutCancel(tb.Context()), "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			tb.Errorf("pgtest: drop the database: %v", err)
		}
	})
	return &DB{URL: urlOf(name), name: name}
}

// Set makes value the database's default for setting, for connections made from
// now on.
func (db *DB) Set(tb testing.TB, setting, value string) {
	tb.Helper()
	sql := fmt.Sprintf("ALTER DATABASE %s SET %s = %s", db.name, pgx.Identifier{setting}.Sanitize(), quote(value))
	if _, err := server.admin.Exec(tb.Context(), sql); err != nil {
		tb.Fatalf("pgtest: set %s: %v", setting, err)
	}
}

// Connect is a connection to the database, closed when the test ends.
func (db *DB) Connect(tb testing.TB) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), db.URL)
	if err != nil {
		tb.Fatalf("pgtest: connect: %v", err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("pgtest: close: %v", err)
		}
	})
	return conn
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func start(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // the server serves the tests after this one too
	sweep()
	postgres, err := devstack.StartPostgres(ctx, devstack.Options{
		TempPrefix: tempPrefix + strconv.Itoa(os.Getpid()) + "-",
		Settings: map[string]string{
			"max_connections":                     "500", // parallel tests on a large machine, with a pool or two each
			"shared_buffers":                      "64MB",
			"log_min_messages":                    "fatal", // tests provoke errors by the thousand
			"log_min_error_statement":             "panic",
			"idle_in_transaction_session_timeout": "60s",
		},
	})
	if err != nil {
		return err
	}
	server.postgres = postgres
	server.admin, err = pgxpool.New(ctx, urlOf("postgres"))
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	if _, err := server.admin.Exec(ctx, "CREATE DATABASE "+template+" TEMPLATE template0"); err != nil {
		return fmt.Errorf("create the template: %w", err)
	}
	return migrations.Up(ctx, urlOf(template), slog.New(slog.DiscardHandler))
}

func urlOf(name string) string {
	u, err := url.Parse(server.postgres.URL())
	if err != nil {
		panic("pgtest: our own URL cannot be parsed: " + err.Error())
	}
	u.Path = name
	// Tests open hundreds of connections, and one of them meets the machine at its worst.
	q := u.Query()
	q.Set("connect_timeout", "60")
	u.RawQuery = q.Encode()
	return u.String()
}

// sweep removes the folders of test processes that were killed: their servers
// died with them, their folders did not.
func sweep() {
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), tempPrefix+"*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), tempPrefix), "-")
		n, err := strconv.Atoi(pid)
		if err != nil || n <= 0 || syscall.Kill(n, 0) != syscall.ESRCH {
			continue
		}
		_ = os.RemoveAll(dir) // best effort: it may be another user's
	}
}
