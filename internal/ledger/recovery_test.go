package ledger_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/devstack"
	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// soon is a horizon that is over by the time that a test sweeps a few times.
const soon = 5 * time.Millisecond

// A claim whose commit comes late (a long transaction, a synchronous standby that
// does not answer) becomes visible behind younger ones that were swept long ago. If
// the mark had passed it, its key would be in flight for ever.
func TestLateCommitIsStillRecovered(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, soon)
	lateCommitIsStillRecovered(t, db, l)
}

// ownServer is a migrated server for a test whose settings are the whole server's.
func ownServer(t *testing.T, settings map[string]string) *devstack.Postgres {
	t.Helper()
	server, err := devstack.StartPostgres(t.Context(), devstack.Options{TempPrefix: "safeledger-ledger-test-", Settings: settings})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := ledger.Migrate(t.Context(), server.URL(), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return server
}

// A commit that waits for a synchronous standby is such a late one: its transaction
// is over for its client, durable, and invisible, for as long as the standby is away
// (trap L16).
func TestCommitThatWaitsForAStandbyIsStillRecovered(t *testing.T) {
	t.Parallel()
	server := ownServer(t, nil)
	const withoutStandby = "&synchronous_commit=local"
	l, _ := open(t, server.URL()+withoutStandby, ledger.Options{}, soon)
	connect := func(url string) *pgx.Conn {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
		return conn
	}
	admin := connect(server.URL() + withoutStandby)
	until := func(sql string, args ...any) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; {
			var yes bool
			if err := admin.QueryRow(t.Context(), sql, args...).Scan(&yes); err != nil {
				t.Fatal(err)
			}
			if yes {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("never true: %s", sql)
			}
		}
	}
	for _, sql := range []string{"ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	until("SELECT current_setting('synchronous_standby_names') = 'nobody'")
	sweep(t, l)

	waiting := connect(server.URL())
	committed := make(chan error, 1)
	go func() { committed <- tryInsert(t, waiting, ledgertest.Request("waiting"), "clock_timestamp()") }()
	pid := waiting.PgConn().PID()
	until("SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE pid = $1 AND wait_event = 'SyncRep')", pid)
	claimed(t, l, "younger, and committed")
	sweepUntilOne(t, l)
	for range 3 {
		if n := sweep(t, l); n != 0 {
			t.Fatalf("%d recovered, though nothing was visible", n)
		}
	}

	if _, err := admin.Exec(t.Context(), "SELECT pg_cancel_backend($1)", pid); err != nil { // it is let go
		t.Fatal(err)
	}
	if err := <-committed; err != nil {
		t.Fatal(err)
	}
	if n := sweep(t, l); n != 1 {
		t.Errorf("%d recovered after the commit was let go, want it", n)
	}
}

// Whoever may not see since when others' transactions are open must not take them
// for none: credentials that are rotated put two roles side by side.
func TestLateCommitOfAnotherRoleIsStillRecovered(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	u, err := url.Parse(db.URL)
	if err != nil {
		t.Fatal(err)
	}
	role := "weak_" + u.Path[1:] // roles belong to the whole server
	conn := db.Connect(t)
	if _, err := conn.Exec(t.Context(), fmt.Sprintf(`
CREATE ROLE %[1]s LOGIN PASSWORD 'weak';
GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO %[1]s`, role)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := conn.Exec(context.WithoutCancel(t.Context()), fmt.Sprintf("DROP OWNED BY %[1]s; DROP ROLE %[1]s", role)); err != nil {
			t.Error(err)
		}
	})
	u.User = url.UserPassword(role, "weak")
	l, _ := open(t, u.String(), ledger.Options{}, soon)
	lateCommitIsStillRecovered(t, db, l)
}

func lateCommitIsStillRecovered(t *testing.T, db *pgtest.DB, l *ledger.Ledger) {
	t.Helper()
	sweep(t, l) // the first sweep of a process begins further back than later ones
	tx := begin(t, db)
	insert(t, tx, ledgertest.Request("late"), "clock_timestamp()")
	claimed(t, l, "younger, and committed")
	sweepUntilOne(t, l)
	for range 3 {
		if n := sweep(t, l); n != 0 {
			t.Fatalf("%d recovered, though nothing was visible", n)
		}
	}

	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := sweep(t, l); n != 1 {
		t.Errorf("%d recovered after the late commit, want it", n)
	}
}

// A sweep skips what somebody is deciding. If he fails, the payment is in flight
// again, and must not lie below the mark.
func TestWhatASweepSkippedIsRecoveredLater(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, soon)
	sweep(t, l)
	p := claimed(t, l, "being decided")
	tx := begin(t, db)
	// A deciding transaction without an xid yet: only its lock is seen.
	if _, err := tx.Exec(t.Context(), "SELECT FROM public.payments WHERE id = $1 FOR NO KEY UPDATE", p.ID.String()); err != nil {
		t.Fatal(err)
	}
	claimed(t, l, "younger")
	sweepUntilOne(t, l)
	if _, err := tx.Exec(t.Context(), "UPDATE public.payments SET state = 'APPROVED', wallet_id = 'w-1', decided_at = now() WHERE id = $1", p.ID.String()); err != nil {
		t.Fatal(err)
	}
	if n := sweep(t, l); n != 0 {
		t.Fatalf("%d recovered while it was being decided", n)
	}

	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := sweep(t, l); n != 1 {
		t.Errorf("%d recovered after the decision failed, want 1", n)
	}
}

// A failover to a machine whose clock is behind leaves a mark in the future. What
// is created until the clock has caught up would not be swept.
func TestPaymentsBelowTheMarkAfterTheClockWentBackAreRecovered(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	setMark(t, conn, "clock_timestamp() + interval '1 hour'")
	for _, name := range []string{"new process", "running process"} {
		l, _ := open(t, db.URL, ledger.Options{}, soon)
		if name == "running process" {
			sweep(t, l)
			setMark(t, conn, "clock_timestamp() + interval '1 hour'")
		}
		claimed(t, l, payment.Key(name))
		sweepUntilOne(t, l)
		if age := markAge(t, conn); age < 0 || age > time.Minute {
			t.Errorf("%s: the mark is %v old, want it to be back", name, age)
		}
	}
}

// A clock that went back while nobody swept, and has caught up since, leaves no
// trace but payments below the mark. The first sweep of a process looks there.
func TestFirstSweepLooksBehindTheMark(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	insert(t, db.Connect(t), ledgertest.Request("behind"), "clock_timestamp() - interval '30 seconds'")
	setMark(t, db.Connect(t), "clock_timestamp() - interval '10 seconds'")
	l, _ := open(t, db.URL, ledger.Options{}, soon)
	if n := sweep(t, l); n != 1 {
		t.Errorf("%d recovered, want the one behind the mark", n)
	}
}

// What a process remembers of the time before the clock went back must give way when
// another replica has seen it go, or the two would sweep different ranges and the
// one that looks further could die first.
func TestMarkThatAnotherReplicaTookBackIsFollowed(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	l, _ := open(t, db.URL, ledger.Options{}, soon)
	setMark(t, conn, "clock_timestamp() - interval '1 second'")
	sweep(t, l)

	insert(t, conn, ledgertest.Request("behind"), "clock_timestamp() - interval '30 seconds'")
	setMark(t, conn, "clock_timestamp() - interval '1 minute'")
	if n := sweep(t, l); n != 1 {
		t.Errorf("%d recovered, want the one behind the mark that we remember", n)
	}
}

// A mark that stays behind makes every start read the whole ledger; one that is
// written with every sweep is a commit a second for each replica.
func TestMarkFollowsInSteps(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	l, _ := open(t, db.URL, ledger.Options{}, soon)

	setMark(t, conn, "clock_timestamp() - interval '1 hour'")
	sweep(t, l)
	if age := markAge(t, conn); age < 0 || age > time.Minute {
		t.Errorf("the mark is %v old after a sweep, want it to have followed", age)
	}
	written := func() (xmin string) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "SELECT xmin::text FROM public.recovery").Scan(&xmin); err != nil {
			t.Fatal(err)
		}
		return xmin
	}
	before := written()
	sweep(t, l)
	if written() != before {
		t.Error("the mark was written again within its step")
	}
}

// A replica that was paused in the middle of a sweep knows an old mark, or one of a
// clock that was ahead. Written down, it would hide payments from everybody.
func TestOvertakenReplicaDoesNotMoveTheMark(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	l, _ := open(t, db.URL, ledger.Options{}, time.Minute)
	mark := func() (at time.Time) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "SELECT low_water FROM public.recovery").Scan(&at); err != nil {
			t.Fatal(err)
		}
		return at
	}
	setMark(t, conn, "clock_timestamp() - interval '1 hour'")
	stored := mark()

	for name, c := range map[string]struct{ mark, stored time.Time }{
		"somebody else has moved it": {stored.Add(time.Minute), stored.Add(-time.Second)},
		"beyond the horizon":         {stored.Add(time.Hour - 30*time.Second), stored},
	} {
		if err := l.KeepLowWater(t.Context(), c.mark, c.stored); err != nil {
			t.Fatal(err)
		}
		if got := mark(); !got.Equal(stored) {
			t.Errorf("%s: the mark moved from %v to %v", name, stored, got)
		}
	}
	if err := l.KeepLowWater(t.Context(), stored.Add(time.Minute), stored); err != nil {
		t.Fatal(err)
	}
	if got := mark(); !got.Equal(stored.Add(time.Minute)) {
		t.Errorf("the mark is %v, want it to have moved", got)
	}
}

// The dead of a large replica are more than one transaction takes; all of them must
// be found, and several sweeps at once must not decline anybody twice.
func TestSweepsShareALargeHarvest(t *testing.T) {
	t.Parallel()
	const dead = 450
	db := pgtest.New(t)
	conn := db.Connect(t)
	setMark(t, conn, "clock_timestamp() - interval '2 hours'")
	for n := range dead {
		insert(t, conn, numbered(n), fmt.Sprintf("clock_timestamp() - interval '1 hour' + interval '%d milliseconds'", n))
	}
	const replicas = 3
	counts := make(chan int, replicas)
	var told [replicas]int
	for i := range replicas {
		pool, err := ledger.Connect(t.Context(), db.URL, ledger.Options{MaxConns: 4})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close)
		l, err := ledger.New(pool, ledger.Config{Horizon: never / 2, Recovered: func(_ context.Context, p payment.Payment) {
			if p.Code == payment.WalletTimeout {
				told[i]++
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			n, err := l.Recover(t.Context())
			if err != nil {
				t.Errorf("recover: %v", err)
			}
			counts <- n
		}()
	}
	sum, heard := 0, 0
	for range replicas {
		sum += <-counts
	}
	for _, n := range told {
		heard += n
	}
	var reversals int
	if err := conn.QueryRow(t.Context(), "SELECT count(DISTINCT payment_id) FROM public.operations WHERE kind = 'reversal'").Scan(&reversals); err != nil {
		t.Fatal(err)
	}
	if got, want := []int{sum, heard, reversals}, []int{dead, dead, dead}; !slices.Equal(got, want) {
		t.Errorf("returned, told and reversed: %v, want %v", got, want)
	}
}

// sweep recovers once.
func sweep(t *testing.T, l *ledger.Ledger) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n, err := l.Recover(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// sweepUntilOne recovers until something is: what was claimed a moment ago first has
// to become overdue by the database's clock.
func sweepUntilOne(t *testing.T, l *ledger.Ledger) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); sweep(t, l) == 0; {
		if time.Now().After(end) {
			t.Fatal("what is overdue is not recovered")
		}
	}
}

func setMark(t *testing.T, conn *pgx.Conn, at string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "UPDATE public.recovery SET low_water = "+at); err != nil {
		t.Fatal(err)
	}
}

// markAge is how far the stored mark is behind the clock.
func markAge(t *testing.T, conn *pgx.Conn) (age time.Duration) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "SELECT clock_timestamp() - low_water FROM public.recovery").Scan(&age); err != nil {
		t.Fatal(err)
	}
	return age
}
