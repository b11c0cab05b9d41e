package devstack

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// helperDir makes this test binary be the helper of TestServerDiesWithItsProcess.
const helperDir = "DEVSTACK_TEST_HELPER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		p, err := StartPostgres(context.Background(), Options{Dir: dir})
		if err != nil {
			fmt.Fprintln(os.Stderr, "error:", err)
			os.Exit(1)
		}
		if _, err := fmt.Fprintln(os.Stdout, p.PID()); err != nil {
			os.Exit(1)
		}
		select {} // until somebody kills us
	}
	os.Exit(m.Run())
}

// What a developer has paid for with a demo must be there tomorrow, also when
// today ended with a power cut.
func TestDataIsKeptFromOneStartToTheNext(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachable(t), "kept", "postgres")
	p := start(t, Options{Dir: dir, Settings: map[string]string{"max_connections": "17"}})
	conn := connect(t, p)
	var max string
	if err := conn.QueryRow(t.Context(), "SHOW max_connections").Scan(&max); err != nil || max != "17" {
		t.Errorf("max_connections is %s (%v), want the setting", max, err)
	}
	var encoding, collation string
	if err := conn.QueryRow(t.Context(), "SELECT current_setting('server_encoding'), datcollate FROM pg_catalog.pg_database WHERE datname = current_database()").
		Scan(&encoding, &collation); err != nil || encoding != "UTF8" || collation != "C" {
		t.Errorf("encoding %s, collation %s (%v), want UTF8 and C", encoding, collation, err)
	}
	if _, err := conn.Exec(t.Context(), "CREATE TABLE kept AS SELECT 42 AS n"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := p.Stop(); err != nil {
		t.Errorf("stopped again: %v", err)
	}
	select {
	case <-p.Exited():
	default:
		t.Error("stopped, and not ended")
	}

	// The pid file of a machine that went down, whose number somebody else has now.
	stale := strconv.Itoa(os.Getpid()) + "\n" + filepath.Join(dir, "data") + "\n"
	if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(stale), 0o644); err != nil {
		t.Fatal(err)
	}
	p = start(t, Options{Dir: dir})
	var n int
	if err := connect(t, p).QueryRow(t.Context(), "SELECT n FROM kept").Scan(&n); err != nil || n != 42 {
		t.Errorf("kept %d (%v), want 42", n, err)
	}
}

// Two servers on one folder would ruin it; the second must say who has it.
func TestFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(reachable(t), "postgres")
	p := start(t, Options{Dir: dir})
	second, err := StartPostgres(t.Context(), Options{Dir: dir})
	if err == nil {
		t.Fatal(errors.Join(errors.New("two servers on one folder"), second.Stop()))
	}
	if !strings.Contains(err.Error(), strconv.Itoa(p.PID())) {
		t.Errorf("%v, want it to name process %d", err, p.PID())
	}
}

// Nobody on the machine may read the database without its password, nor anybody
// elsewhere at all.
func TestServerIsPrivate(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	config, err := pgx.ParseConfig(p.URL())
	if err != nil {
		t.Fatal(err)
	}
	if config.Host != "127.0.0.1" {
		t.Errorf("listens on %s", config.Host)
	}
	config.Password = "guessed"
	if conn, err := pgx.ConnectConfig(t.Context(), config); err == nil {
		t.Error(errors.Join(errors.New("let in with a wrong password"), conn.Close(t.Context())))
	}
	var sockets, addresses string
	if err := connect(t, p).QueryRow(t.Context(), "SELECT current_setting('unix_socket_directories'), current_setting('listen_addresses')").Scan(&sockets, &addresses); err != nil {
		t.Fatal(err)
	}
	if sockets != "" || addresses != "127.0.0.1" {
		t.Errorf("sockets in %q, addresses %q", sockets, addresses)
	}
	if info, err := os.Stat(filepath.Join(p.Dir(), "data")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data folder: %v, %v", info.Mode(), err)
	}
}

// Tests that are run a hundred times a day must not fill the disk.
func TestTemporaryServerLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	p := start(t, Options{})
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(p.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", p.Dir(), err)
	}
}

// A server that outlives a killed process keeps its folder locked and its port
// taken until somebody finds it. The kernel ends it, if the thread that it is told
// to watch is one that lives as long as the process.
func TestServerDiesWithItsProcess(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("there is no death signal on " + runtime.GOOS)
	}
	dir := filepath.Join(reachable(t), "postgres")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helper := exec.CommandContext(t.Context(), self)
	helper.Env = append(os.Environ(), helperDir+"="+dir)
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the helper said %q: %v", line, err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the helper said %q", line)
	}

	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = helper.Wait() // killed, as it was to be
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); servesFolder(pid, filepath.Join(dir, "data")); <-tick.C {
		if time.Now().After(end) {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
			t.Fatal("the server lives on")
		}
	}
	// And what it left behind is taken up again.
	start(t, Options{Dir: dir})
}

// In a root-only home the server's user cannot reach its data. That must not end in
// a message about permissions that nobody understands.
func TestUnreachableFolderIsReplacedAndSaid(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("we run the server as ourselves")
	}
	closed := t.TempDir()
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	p := start(t, Options{Dir: filepath.Join(closed, "postgres"), Log: slog.New(slog.NewTextHandler(&said, nil))})
	t.Cleanup(func() { _ = os.RemoveAll(p.Dir()) })
	if strings.HasPrefix(p.Dir(), closed) || !strings.Contains(said.String(), p.Dir()) {
		t.Errorf("data in %s, said %q", p.Dir(), said.String())
	}
	again, temp, err := home(t.Context(), Options{Dir: filepath.Join(closed, "postgres")}, mustAccount(t), slog.New(slog.DiscardHandler))
	if err != nil || temp || again != p.Dir() {
		t.Errorf("next time in %s (temporary: %v, %v), want the same folder", again, temp, err)
	}
}

// Data of another PostgreSQL must be named as such, before the server says so in
// its own words and a developer starts to repair it.
func TestDataOfAnotherVersionIsNamed(t *testing.T) {
	t.Parallel()
	dir := reachable(t)
	data := filepath.Join(dir, "data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := StartPostgres(t.Context(), Options{Dir: dir})
	if err == nil {
		t.Fatal(errors.Join(errors.New("started on data of version 9"), p.Stop()))
	}
	if !strings.Contains(err.Error(), "PostgreSQL 9") {
		t.Errorf("%v, want it to name the version", err)
	}
}

func start(t *testing.T, opts Options) *Postgres {
	t.Helper()
	p, err := StartPostgres(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func connect(t *testing.T, p *Postgres) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) }) // it may be closed, or its server gone
	return conn
}

// reachable is a temporary folder that the server's user can get to.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; strings.HasPrefix(filepath.Base(filepath.Dir(d)), "Test"); d = filepath.Dir(d) {
		if err := os.Chmod(filepath.Dir(d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func mustAccount(t *testing.T) *account {
	t.Helper()
	a, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	return a
}
