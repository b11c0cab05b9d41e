package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

func postgresKinds() []kind {
	k := func(name, does string) kind { return kind{group: ofPostgres, name: name, does: does} }
	return []kind{
		k("backend-kill", "kill -9 of a backend at work: crash recovery"),
		k("immediate-stop", "SIGQUIT to the server, and a start that recovers"),
		k("fast-stop", "SIGINT to the server, and a start"),
		k("backend-stop", "SIGSTOP of a backend at work, then SIGCONT"),
		k("postmaster-stop", "SIGSTOP of the server, which takes no new connections, then SIGCONT"),
		k("backends-terminated", "all connections of SafeLedger are terminated"),
		k("statements-cancelled", "whatever SafeLedger does at the moment is cancelled"),
		k("table-locked", "a lock on the payments holds up who would write"),
		k("rows-locked", "the rows of payments in flight are locked"),
		k("work-locked", "the rows of follow-ups are locked"),
		k("connections-exhausted", "all connections are taken"),
		k("serializable", "the default isolation is serializable"),
		k("standby-promoted", "the server is gone, and its synchronous standby takes its place"),
		{ofPostgres, lagging, "the server is gone, and a standby that lags takes its place: what it lacks is lost", onlyLossy},
	}
}

// lagging is the one kind after which what was acknowledged may be gone.
const lagging = "lagging-promoted"

// postgres does a kind to the server, and leaves it running.
func (n *nemesis) postgres(ctx context.Context, rng *rand.Rand, name string) (struck bool, err error) {
	millis := func(from, to int) time.Duration { return time.Duration(from+rng.IntN(to-from)) * time.Millisecond }
	switch name {
	case "immediate-stop":
		err = n.restartPostgres(ctx, syscall.SIGQUIT)
	case "fast-stop":
		err = n.restartPostgres(ctx, syscall.SIGINT)
	case "postmaster-stop":
		pid := n.w.postgres.server.PID()
		n.signal(pid, syscall.SIGSTOP)
		pause(ctx, millis(300, 2500))
		n.signal(pid, syscall.SIGCONT)
	case "backend-kill":
		var pid int
		if pid, err = n.backendAtWork(ctx); pid == 0 {
			return false, err
		}
		n.signal(pid, syscall.SIGKILL)
		pause(ctx, 500*time.Millisecond)
		err = n.serving(ctx)
	case "backend-stop":
		var pid int
		if pid, err = n.backendAtWork(ctx); pid == 0 {
			return false, err
		}
		n.signal(pid, syscall.SIGSTOP)
		pause(ctx, millis(300, 5000))
		n.signal(pid, syscall.SIGCONT)
	case "backends-terminated":
		return n.toBackends(ctx, "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'safeledger%'")
	case "statements-cancelled":
		return n.toBackends(ctx, "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'safeledger%' AND state = 'active'")
	case "table-locked":
		_, err = n.locked(ctx, millis(100, 1800), "LOCK TABLE public.payments IN SHARE ROW EXCLUSIVE MODE")
	case "rows-locked", "work-locked":
		rows := "SELECT id FROM public.payments WHERE state = 'IN_FLIGHT' FOR UPDATE SKIP LOCKED"
		if name == "work-locked" {
			rows = "SELECT id FROM public.operations WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 200 FOR UPDATE SKIP LOCKED"
		}
		var met int64
		if met, err = n.locked(ctx, millis(100, 1800), rows); err == nil && met == 0 {
			return false, nil
		}
	case "connections-exhausted":
		err = n.exhausted(ctx, millis(300, 1500))
	case "standby-promoted", lagging:
		err = n.promote(ctx, rng, name == lagging)
	case "serializable":
		err = n.serializable(ctx, millis(1000, 3000))
	}
	// What PostgreSQL itself refuses under such a load has not struck; that it cannot be
	// started again is an end.
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) {
		return false, nil
	}
	return err == nil, err
}

func (n *nemesis) signal(pid int, s syscall.Signal) { _ = syscall.Kill(pid, s) } // it may have ended by itself

// restartPostgres ends the server by a signal and starts another on its data.
func (n *nemesis) restartPostgres(ctx context.Context, s syscall.Signal) error {
	w := n.w
	w.postgres.Lock()
	defer w.postgres.Unlock()
	n.signal(w.postgres.server.PID(), s)
	select {
	case <-w.postgres.server.Exited():
	case <-time.After(startPatience):
		return fmt.Errorf("PostgreSQL did not end within %v of %v", startPatience, s)
	}
	return w.startPostgres(context.WithoutCancel(ctx), w.postgres.server.Dir())
}

// serving waits until the server takes connections again.
func (n *nemesis) serving(ctx context.Context) error {
	conn, err := n.w.connect(context.WithoutCancel(ctx))
	if err != nil {
		return err
	}
	return conn.Close(context.WithoutCancel(ctx))
}

// backendAtWork finds a backend that does something for SafeLedger; 0 if there was none
// within a while.
func (n *nemesis) backendAtWork(ctx context.Context) (pid int, err error) {
	conn, err := n.w.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for range 200 {
		err := conn.QueryRow(ctx, `
SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'safeledger%' AND state <> 'idle' ORDER BY random() LIMIT 1`).Scan(&pid)
		if !errors.Is(err, pgx.ErrNoRows) {
			return pid, err
		}
		pause(ctx, 2*time.Millisecond)
	}
	return 0, nil
}

func (n *nemesis) toBackends(ctx context.Context, statement string) (struck bool, err error) {
	conn, err := n.w.connect(ctx)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for met := 0; met == 0; { // what does nothing at the moment cannot be cancelled
		if err := conn.QueryRow(ctx, statement).Scan(&met); err != nil {
			return false, err
		}
		if met == 0 && !pause(ctx, 2*time.Millisecond) {
			return false, nil
		}
	}
	return true, nil
}

// locked holds what a statement locks for a while, and says how many rows those are.
// Others' locks are waited for, but not longer than that.
func (n *nemesis) locked(ctx context.Context, d time.Duration, statement string) (rows int64, err error) {
	conn, err := n.w.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "BEGIN; SET LOCAL lock_timeout = '3s'"); err != nil {
		return 0, err
	}
	tag, err := conn.Exec(ctx, statement)
	if err != nil {
		return 0, err
	}
	pause(ctx, d)
	_, err = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
	return tag.RowsAffected(), err
}

// exhausted takes all connections that there are, and then cuts off SafeLedger's: it
// cannot come back until we leave.
func (n *nemesis) exhausted(ctx context.Context, d time.Duration) error {
	var (
		mu    sync.Mutex
		taken []*pgx.Conn
	)
	defer func() {
		for _, conn := range taken {
			_ = conn.Close(context.WithoutCancel(ctx))
		}
	}()
	address := n.w.ledgerURL()
	last, err := n.w.connect(ctx)
	if err != nil {
		return err
	}
	taken = append(taken, last)
	if _, err := last.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'safeledger%'"); err != nil {
		return err
	}
	var all sync.WaitGroup
	for range 90 {
		all.Go(func() {
			attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			if conn, err := pgx.Connect(attempt, address); err == nil {
				mu.Lock()
				taken = append(taken, conn)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	pause(ctx, d)
	return nil
}

// serializable makes new connections serializable for a while, as an administrator may.
func (n *nemesis) serializable(ctx context.Context, d time.Duration) error {
	set := func(ctx context.Context, statement string) error {
		conn, err := n.w.connect(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
		_, err = conn.Exec(ctx, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'safeledger%'")
		return err
	}
	if err := set(ctx, "ALTER DATABASE safeledger SET default_transaction_isolation = 'serializable'"); err != nil {
		return err
	}
	pause(ctx, d)
	return set(context.WithoutCancel(ctx), "ALTER DATABASE safeledger RESET default_transaction_isolation")
}
