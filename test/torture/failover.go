package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/devstack"
	"github.com/safeledger/safeledger/test/torture/netfault"
)

// promote makes a standby of the server, ends the server without warning while tills
// pay, and has the standby take its place. A synchronous one has everything that was
// acknowledged. A lagging one has not, and what it lacks is lost.
func (n *nemesis) promote(ctx context.Context, rng *rand.Rand, lagging bool) error {
	ctx = context.WithoutCancel(ctx) // half a failover would leave the world without a server
	w := n.w
	// Replication goes through a proxy, so that it can be held up.
	replication, err := netfault.Listen(ctx, w.ledgerAddress())
	if err != nil {
		return err
	}
	defer replication.Close()
	w.postgres.made++
	dir := filepath.Join(w.dir, fmt.Sprintf("postgres-%d", w.postgres.made))
	if err := w.backUp(ctx, dir, replication.Addr()); err != nil {
		return err
	}
	standby, err := startServer(ctx, dir)
	if err != nil {
		return err
	}
	stop := func(err error) error { return errors.Join(err, standby.Stop()) }
	if err := n.follow(ctx, !lagging); err != nil {
		return stop(err)
	}
	if lagging {
		replication.Begin(netfault.Fault{Answer: netfault.Hold, Ask: netfault.Hold})
	}
	pause(ctx, time.Duration(300+rng.IntN(1500))*time.Millisecond)

	w.postgres.Lock()
	defer w.postgres.Unlock()
	old := w.postgres.server
	n.signal(old.PID(), syscall.SIGQUIT)
	// What was held is not for the standby any more. And a connection that the standby opens
	// now, whose first words were held, would keep the old server for authentication_timeout.
	replication.Close()
	select {
	case <-old.Exited():
	case <-time.After(startPatience):
		return stop(fmt.Errorf("PostgreSQL did not end within %v of SIGQUIT", startPatience))
	}
	conn, err := pgx.Connect(ctx, standby.URL())
	if err != nil {
		return stop(err)
	}
	defer func() { _ = conn.Close(ctx) }()
	// The standby has copied that it must wait for a standby, and has none.
	for _, statement := range []string{"SELECT pg_promote(true, 60)", "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return stop(fmt.Errorf("%s: %w", statement, err))
		}
	}
	w.serve(standby)
	return errors.Join(old.Stop(), os.RemoveAll(old.Dir()))
}

// backUp copies the running server into dir, as a standby that follows it by address.
func (w *world) backUp(ctx context.Context, dir, address string) error {
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // PostgreSQL's user passes it; the data below is 0700
		return err
	}
	from, err := url.Parse(w.ledgerURL())
	if err != nil {
		return err
	}
	from.Host = address
	// The programs are where the server's own is.
	server, err := os.Readlink("/proc/" + strconv.Itoa(w.postgres.server.PID()) + "/exe")
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(server), "pg_basebackup"), //nolint:gosec // PostgreSQL's own
		"--pgdata", data, "--dbname", from.String(), "--write-recovery-conf", "--checkpoint", "fast", "--wal-method", "stream")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pg_basebackup: %w: %s", err, out)
	}
	password, err := os.ReadFile(filepath.Join(w.postgres.server.Dir(), "password"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "password"), password, 0o600); err != nil {
		return err
	}
	return likeOwnerOf(filepath.Join(w.postgres.server.Dir(), "data"), dir)
}

// likeOwnerOf gives dir and what is in it to whom model belongs: PostgreSQL's user.
func likeOwnerOf(model, dir string) error {
	info, err := os.Stat(model)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return errors.New("this system does not tell whom a file belongs to")
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
}

// follow waits until a standby follows the server, and has it waited for, if that is
// wanted.
func (n *nemesis) follow(ctx context.Context, synchronous bool) error {
	conn, err := n.w.connect(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	want := "async"
	if synchronous {
		want = "sync"
		for _, statement := range []string{"ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"} {
			if _, err := conn.Exec(ctx, statement); err != nil {
				return err
			}
		}
	}
	for end := time.Now().Add(startPatience); time.Now().Before(end); pause(ctx, 20*time.Millisecond) {
		var following int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = $1", want).Scan(&following); err != nil {
			return err
		}
		if following > 0 {
			return nil
		}
	}
	return fmt.Errorf("no standby follows within %v", startPatience)
}

// startServer starts a server on the data in dir, or makes it.
func startServer(ctx context.Context, dir string) (*devstack.Postgres, error) {
	return devstack.StartPostgres(ctx, devstack.Options{Dir: dir, Settings: map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "max_connections": "90", "shared_buffers": "256MB",
		"max_wal_size": "1GB", "log_min_messages": "fatal", "restart_after_crash": "on", "deadlock_timeout": "200ms",
	}})
}
