package ledger

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The values of Options.Pooler.
const (
	PoolerNone      = "none"
	PoolerPgbouncer = "pgbouncer" // in transaction mode
)

// Options say how to reach the database.
type Options struct {
	MaxConns int32 // of this process; 0 is pgx's default
	// Pooler is what stands between us and PostgreSQL: PoolerNone ("" too) or
	// PoolerPgbouncer.
	Pooler string
	// ApplicationName shows in pg_stat_activity. A pooler is not told.
	ApplicationName string
}

const (
	// connectPatience bounds the making of a connection, which goes on when the one
	// who asked for it has left.
	connectPatience = 2 * time.Second
	// pingPatience bounds the look at a connection that was idle for a second. It
	// leaves a claim, who has 100 ms in the worst case, the time to take another.
	pingPatience = 30 * time.Millisecond
	// Connections are renewed, so that after a failover or behind a balancer none
	// stays where it once was; not all at once.
	connectionLifetime = 30 * time.Minute
	lifetimeJitter     = 5 * time.Minute
)

// Connect makes a pool of connections for a Ledger. It does not wait for the
// database to be there: a service that starts during an outage says so at its
// gate, see Ping. The error is about the URL or the options; it does not repeat
// the URL, which holds a password.
func Connect(ctx context.Context, databaseURL string, opts Options) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the database URL: %w", err)
	}
	conn := config.ConnConfig
	if conn.ConnectTimeout == 0 {
		conn.ConnectTimeout = connectPatience
	}
	if opts.MaxConns > 0 {
		config.MaxConns = opts.MaxConns
	}
	if config.PingTimeout == 0 {
		config.PingTimeout = pingPatience
	}
	config.MaxConnLifetime = connectionLifetime
	config.MaxConnLifetimeJitter = lifetimeJitter

	switch opts.Pooler {
	case "", PoolerNone:
		if opts.ApplicationName != "" {
			conn.RuntimeParams["application_name"] = opts.ApplicationName
		}
	case PoolerPgbouncer:
		// A prepared statement belongs to a session, and behind the pooler the next
		// transaction may be in another one. What a connection sets when it starts is
		// refused, or worse, handed on to somebody else.
		conn.DefaultQueryExecMode = pgx.QueryExecModeExec
		conn.StatementCacheCapacity = 0
		conn.DescriptionCacheCapacity = 0
		delete(conn.RuntimeParams, "application_name")
		if names := slices.Sorted(maps.Keys(conn.RuntimeParams)); len(names) > 0 {
			return nil, fmt.Errorf("the database URL sets %s, which cannot be done through pgbouncer: use ALTER ROLE … SET",
				strings.Join(names, ", "))
		}
	default:
		return nil, fmt.Errorf("pooler %q: must be %q or %q", opts.Pooler, PoolerNone, PoolerPgbouncer)
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("make the connection pool: %w", err)
	}
	return pool, nil
}
