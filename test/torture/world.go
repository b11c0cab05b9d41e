package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/devstack"
	"github.com/safeledger/safeledger/test/check/history"
	"github.com/safeledger/safeledger/test/torture/netfault"
)

// The numbers of a run: the shortest that the rules of the configuration allow, and long
// enough for what is done to it. A stopped process stands still for longer than recovery
// (2.4 s + the grace + a sweep a second) and than a lease, and for less than the settle
// window: beyond that the contract promises nothing.
const (
	recoveryGrace = 300 * time.Millisecond
	workerCall    = 400 * time.Millisecond
	lease         = 6 * time.Second
	settleWindow  = 14 * time.Second
	parkAfter     = 40 * time.Second
	settleSLA     = 3 * time.Minute
)

func settings() []string {
	return []string{
		"LOG_LEVEL=debug", "DRAIN_DELAY=200ms", "RECOVERY_GRACE=" + recoveryGrace.String(), "BUDGET_WORKER_CALL=" + workerCall.String(),
		"QUEUE_LEASE=" + lease.String(), "QUEUE_SETTLE_WINDOW=" + settleWindow.String(), "QUEUE_PARK_AFTER=" + parkAfter.String(),
		"QUEUE_BACKOFF_MIN=50ms", "QUEUE_BACKOFF_MAX=1s", "QUEUE_LOOKUPS_PER_SECOND=500", "QUEUE_LATE_CHECKS=1s", "QUEUE_WORKERS=24",
		// With so much going wrong on purpose the breaker would be open all the time. It opens
		// when nearly everything fails, and not for long.
		"BREAKER_FAILURE_RATIO=0.9", "BREAKER_SLOW_RATIO=0.9", "BREAKER_OPEN_FOR=500ms",
		// So small that a crowd of tills meets the gate.
		"GATE_MAX_IN_FLIGHT=96", "WALLET_MAX_IN_FLIGHT=64", "DATABASE_MAX_CONNS=12",
	}
}

// caller is somebody whom SafeLedger knows.
type caller struct{ name, token string }

func tillCallers() []caller {
	return []caller{{"store-17", "token-of-store-17"}, {"store-18", "token-of-store-18"}}
}

func operator() caller { return caller{"op-anna", "token-of-op-anna"} }

// world is what runs: the database, the wallet, the replicas, and the tills' log.
type world struct {
	dir      string // of this round's evidence
	programs string
	lossy    bool // a lagging standby may be promoted
	log      *history.Log
	count    *counters

	postgres struct {
		sync.Mutex // whoever replaces it
		server     *devstack.Postgres
		made       int // standbys so far
	}
	wallet   *child
	control  *control
	replicas []*replica
	toLedger []*netfault.Proxy // of each replica
	toWallet []*netfault.Proxy
}

func (w *world) logs() string { return filepath.Join(w.dir, "replica-*.log") }

func (w *world) program(name string) string { return filepath.Join(w.programs, name) }

// build builds the programs: the service with the points at which it may die, and with a
// clock that can be set off. defect is an overlay for it besides, "" for none.
func build(ctx context.Context, root, into, defect string) error {
	clocks, err := offClocks(into, defect)
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"-tags", "crashpoints", "-overlay", clocks, "-o", into + "/", "./cmd/safeledger"},
		{"-o", into + "/", "./cmd/walletsim", "./test/check"},
	} {
		cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath"}, args...)...) //nolint:gosec // our own tree
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build the programs: %w: %s", err, out)
		}
	}
	return nil
}

// newWorld starts everything in dir. seed is what the wallet's draws depend on.
func newWorld(ctx context.Context, dir, programs string, seed uint64, lossy bool, count *counters) (_ *world, err error) {
	w := &world{dir: dir, programs: programs, lossy: lossy, count: count}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.close(context.WithoutCancel(ctx)))
		}
	}()
	if w.log, err = history.Open(filepath.Join(dir, "tills.jsonl"), filepath.Base(dir), "test/torture"); err != nil {
		return nil, err
	}
	if err := w.startPostgres(ctx, filepath.Join(dir, "postgres")); err != nil {
		return nil, err
	}
	migrate := exec.CommandContext(ctx, w.program("safeledger"), "migrate") //nolint:gosec // our own program
	migrate.Env = []string{"PATH=" + os.Getenv("PATH"), "SAFELEDGER_DATABASE_URL=" + w.ledgerURL()}
	if out, err := migrate.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("migrate: %w: %s", err, out)
	}
	if err := w.startWallet(ctx, seed); err != nil {
		return nil, err
	}
	return w, w.startReplicas(ctx, seed)
}

// startPostgres starts the server, again or for the first time.
func (w *world) startPostgres(ctx context.Context, dir string) error {
	server, err := startServer(ctx, dir)
	if err == nil {
		w.serve(server)
	}
	return err
}

// serve makes a server the one that everybody is led to.
func (w *world) serve(server *devstack.Postgres) {
	w.postgres.server = server
	for _, p := range w.toLedger {
		p.Target(w.ledgerAddress())
	}
}

// ledgerURL leads to the database without a proxy in between.
func (w *world) ledgerURL() string { return w.postgres.server.URL() }

func (w *world) ledgerAddress() string {
	u, err := url.Parse(w.ledgerURL())
	if err != nil {
		return "" // it is our own
	}
	return u.Host
}

func (w *world) startWallet(ctx context.Context, seed uint64) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _, _ = reader.Close(), writer.Close() }()
	said, err := os.Create(filepath.Join(w.dir, "wallet.log"))
	if err != nil {
		return err
	}
	defer func() { _ = said.Close() }()
	w.wallet, err = startChild(w.program("walletsim"), []string{
		"--addr", "127.0.0.1:0", "--version", "v2", "--open-accounts", "--seed", fmt.Sprint(seed), "--book", w.book(), "--book-only-in-file",
	}, nil, writer, said)
	if err != nil {
		return err
	}
	if err := reader.SetReadDeadline(time.Now().Add(startPatience)); err != nil {
		return err
	}
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		return fmt.Errorf("the wallet does not say where it listens: %w", err)
	}
	base, found := strings.CutPrefix(strings.TrimSpace(line), "walletsim listens on ")
	if !found {
		return fmt.Errorf("the wallet said %q", line)
	}
	w.control = newControl(base)
	return w.control.rules(ctx, w.lossy)
}

func (w *world) book() string { return filepath.Join(w.dir, "book.jsonl") }

func (w *world) startReplicas(ctx context.Context, seed uint64) error {
	known := filepath.Join(w.dir, "callers.json")
	if err := writeCallers(known); err != nil {
		return err
	}
	const replicas = 3
	for n := range replicas {
		toLedger, err := netfault.Listen(context.WithoutCancel(ctx), w.ledgerAddress())
		if err != nil {
			return err
		}
		w.toLedger = append(w.toLedger, toLedger)
		toWallet, err := netfault.Listen(context.WithoutCancel(ctx), strings.TrimPrefix(w.control.base, "http://"))
		if err != nil {
			return err
		}
		w.toWallet = append(w.toWallet, toWallet)
		ledger, err := url.Parse(w.ledgerURL())
		if err != nil {
			return err
		}
		ledger.Host = toLedger.Addr()
		r := &replica{w: w, number: n, clocks: clocksOf(seed, n), log: filepath.Join(w.dir, fmt.Sprintf("replica-%d.log", n)), env: []string{
			"SAFELEDGER_DATABASE_URL=" + ledger.String(), "SAFELEDGER_WALLET_BASE_URL=http://" + toWallet.Addr(),
			"SAFELEDGER_CALLERS_FILE=" + known, "SAFELEDGER_HTTP_ADDR=127.0.0.1:0", "SAFELEDGER_ADMIN_ADDR=127.0.0.1:0",
		}}
		for _, s := range settings() {
			r.env = append(r.env, "SAFELEDGER_"+s)
		}
		w.replicas = append(w.replicas, r)
		if err := r.start(ctx, "all", ""); err != nil {
			return err
		}
	}
	return nil
}

func writeCallers(path string) error {
	type known struct {
		Name   string   `json:"name"`
		Tokens string   `json:"tokenSha256"`
		Scopes []string `json:"scopes"`
	}
	var all struct {
		Callers []known `json:"callers"`
	}
	hash := func(token string) string {
		sum := sha256.Sum256([]byte(token))
		return hex.EncodeToString(sum[:])
	}
	for _, c := range tillCallers() {
		all.Callers = append(all.Callers, known{c.name, hash(c.token), []string{"till", "payout"}})
	}
	all.Callers = append(all.Callers, known{operator().name, hash(operator().token), []string{"operator"}})
	text, err := json.Marshal(all)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

// connect connects to the ledger, past all proxies. It waits for a server that is being
// restarted.
func (w *world) connect(ctx context.Context) (*pgx.Conn, error) {
	for end := time.Now().Add(startPatience); ; {
		w.postgres.Lock()
		address := w.ledgerURL()
		w.postgres.Unlock()
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		conn, err := pgx.Connect(attempt, address)
		cancel()
		if err == nil || time.Now().After(end) || !pause(ctx, 50*time.Millisecond) {
			return conn, err
		}
	}
}

// close ends everything that was started. The evidence stays.
func (w *world) close(ctx context.Context) error {
	var errs []error
	for _, r := range w.replicas {
		if !r.down() {
			r.process().kill()
		}
	}
	if w.wallet != nil {
		w.wallet.signal(syscall.SIGCONT)
		w.wallet.signal(syscall.SIGTERM)
		if !w.wallet.ended(ctx, drainPatience) {
			w.wallet.kill()
		}
	}
	for _, p := range append(append([]*netfault.Proxy(nil), w.toLedger...), w.toWallet...) {
		p.Close()
	}
	if w.postgres.server != nil {
		errs = append(errs, w.postgres.server.Stop())
	}
	if w.log != nil {
		errs = append(errs, w.log.Close())
	}
	return errors.Join(errs...)
}
