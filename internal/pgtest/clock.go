package pgtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// ShiftClock puts what the database of databaseURL takes for the time ahead by so
// much, or back: clock_timestamp(), by which the ledger lives, for every connection
// to this database, and to no other. The user must be a superuser, as in our own
// servers.
func ShiftClock(tb testing.TB, databaseURL string, ahead time.Duration) {
	tb.Helper()
	conn, err := pgx.Connect(tb.Context(), databaseURL)
	if err != nil {
		tb.Fatalf("pgtest: connect: %v", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(tb.Context())) }()
	// The catalogue is each database's own. timeofday reads the clock at each call, as
	// the function in whose place this one stands.
	for _, sql := range []string{
		"SET allow_system_table_mods = on",
		fmt.Sprintf(`CREATE OR REPLACE FUNCTION pg_catalog.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
			AS 'SELECT pg_catalog.timeofday()::timestamptz + interval ''%d microseconds'''`, ahead.Microseconds()),
	} {
		if _, err := conn.Exec(tb.Context(), sql); err != nil {
			tb.Fatalf("pgtest: shift the clock: %v", err)
		}
	}
}
