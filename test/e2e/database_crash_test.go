package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/devstack"
)

// PostgreSQL crashes while transactions that many tills share are on their way (trap
// S28). Whatever a till was told before is there afterwards and is told again; what was
// answered as unknown has one answer in the end; and nobody was debited twice.
func TestACrashOfTheDatabaseLosesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	const tills, crashes, between = 32, 3, 200 // answers between two crashes
	server, err := devstack.StartPostgres(t.Context(), devstack.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Stop() })
	w := newWorldOn(t, server.URL())
	r := w.start(plain, quick...)

	var (
		told  sync.Map // key → the answer
		count atomic.Int64
		lost  atomic.Int64
		stop  = make(chan struct{})
		all   sync.WaitGroup
	)
	for till := range tills {
		all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("key-of-%d-%d", till, n)
				answer, err := r.debit(key, "ANNA")
				if err != nil {
					// As a till does whose connection broke. Most of the answers in a crash close theirs,
					// and one that was opened meanwhile and waits unused is closed after two seconds: maybe
					// at the very moment when it is taken.
					answer, err = r.debit(key, "ANNA")
				}
				switch {
				case err == nil && decided(answer): // a busy machine makes the wallet slow: declines are answers too
					told.Store(key, answer)
					count.Add(1)
				case err == nil && answer.status == http.StatusServiceUnavailable:
					if answer.member("code") == "OUTCOME_UNKNOWN" {
						told.Store(key, answer)
						lost.Add(1)
					}
				default:
					t.Errorf("%s: %d %s, %v", key, answer.status, answer.body, err)
					return
				}
			}
		})
	}
	reached := func(n int64) bool {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for end := time.Now().Add(patience); count.Load() < n; <-tick.C {
			if time.Now().After(end) {
				t.Errorf("%d payments were decided, want %d", count.Load(), n)
				return false
			}
		}
		return true
	}
	for range crashes {
		if !reached(count.Load() + between) {
			break
		}
		crash(t, server)
	}
	reached(count.Load() + between)
	close(stop)
	all.Wait()
	t.Logf("%d crashes: %d payments decided, %d answered as unknown", crashes, count.Load(), lost.Load())
	if lost.Load() == 0 {
		t.Error("no transaction was on its way when the database crashed")
	}

	told.Range(func(k, v any) bool {
		key, first := k.(string), v.(reply) //nolint:forcetypeassert // as stored above
		again := r.mustDebit(key, "ANNA")
		for end := time.Now().Add(patience); time.Now().Before(end) &&
			(again.status == http.StatusConflict || again.status == http.StatusServiceUnavailable); {
			// In flight until recovery decides it; or refused, for up to a second after the last crash.
			again = r.mustDebit(key, "ANNA")
		}
		switch {
		case decided(first) && (again.status != first.status || again.body != first.body):
			t.Errorf("%s: told %s before, and %d %s now", key, first.body, again.status, again.body)
		case !decided(again):
			t.Errorf("%s: %d %s", key, again.status, again.body)
		}
		return true
	})
	arrived, _, _ := w.effects()
	for reference, times := range arrived { // the reversals' own sends have references of their own
		if times > 1 {
			t.Errorf("%s was asked for %d times", reference, times)
		}
	}
}

// decided reports whether an answer is a decision, of a wallet that refuses nobody.
func decided(r reply) bool {
	return r.status == http.StatusCreated || r.status == http.StatusFailedDependency
}

// crash kills the backend that serves a till at the moment. PostgreSQL then gives up all
// it has in memory, and comes back with what it had promised. When crash returns, the
// first of these has happened: what is decided afterwards, is by the one that came back.
func crash(t *testing.T, server *devstack.Postgres) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var pid int
	for end := time.Now().Add(patience); ; {
		err := conn.QueryRow(t.Context(), `
SELECT pid FROM pg_stat_activity WHERE application_name = 'safeledger tills' AND state = 'active' LIMIT 1`).Scan(&pid)
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGKILL)
		}
		if err == nil {
			// Its own session is ended with all the others.
			if _, err := conn.Exec(t.Context(), "SELECT pg_sleep($1)", patience.Seconds()); err == nil {
				t.Fatalf("no crash in %v", patience)
			}
			return
		}
		if errors.Is(err, syscall.ESRCH) { // it has ended since
			continue
		}
		if !errors.Is(err, pgx.ErrNoRows) || time.Now().After(end) {
			t.Fatalf("find a backend at work: %v", err)
		}
	}
}
