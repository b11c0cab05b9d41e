// Package e2e starts SafeLedger as it is deployed: real processes on a real
// PostgreSQL with fsync on, beside the simulated wallet, spoken to over HTTP. What
// it kills it kills by pid, and only what it has started.
package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/api/apitest"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/devstack"
	"github.com/safeledger/safeledger/internal/walletsim"
)

const (
	token = "token-of-store-17"
	// patience bounds every wait for a process or an answer; none of them is a claim
	// about speed, this machine is shared.
	patience = 60 * time.Second
)

// The programs under test, and the server that they share. Each test has a
// database of its own.
var (
	binary   string // with crash points
	plain    string // as it is released
	postgres *devstack.Postgres

	databases atomic.Int64 // made so far
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "safeledger-e2e-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary, plain = filepath.Join(dir, "safeledger-crashpoints"), filepath.Join(dir, "safeledger")
	for path, args := range map[string][]string{binary: {"-tags", "crashpoints"}, plain: nil} {
		build := exec.Command("go", append(append([]string{"build"}, args...), "-o", path, "github.com/safeledger/safeledger/cmd/safeledger")...)
		if out, err := build.CombinedOutput(); err != nil {
			return fail(fmt.Errorf("%w: %s", err, out))
		}
	}
	postgres, err = devstack.StartPostgres(context.Background(), devstack.Options{Settings: map[string]string{"max_connections": "300"}})
	if err != nil {
		return fail(err)
	}
	defer func() { _ = postgres.Stop() }()
	return m.Run()
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// world is what replicas share: a migrated database, a wallet, callers.
type world struct {
	t           *testing.T
	databaseURL string
	wallet      *walletsim.Sim
	callersFile string
	client      *http.Client
	told        told // by tills
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOn(t, newDatabase(t))
}

// newWorldOn is newWorld on an empty database of the test's own.
func newWorldOn(t *testing.T, databaseURL string) *world {
	t.Helper()
	w := &world{t: t, databaseURL: databaseURL}
	migrate := exec.Command(plain, "migrate")
	migrate.Env = append(os.Environ(), "SAFELEDGER_DATABASE_URL="+w.databaseURL)
	if out, err := migrate.CombinedOutput(); err != nil {
		t.Fatalf("migrate: %v: %s", err, out)
	}
	var err error
	if w.wallet, err = walletsim.New(walletsim.Config{OpenAccounts: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.wallet.Close() })
	if err := w.wallet.Start(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	w.callersFile = writeCallers(t)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	w.client = &http.Client{Transport: witness{apitest.New(t).Transport(transport), &w.told}, Timeout: patience}
	return w
}

func writeCallers(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "callers.json")
	content := fmt.Sprintf(`{"callers": [{"name": "store-17", "tokenSha256": %q, "scopes": ["till", "payout"]}]}`, callers.HashToken(token))
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// newDatabase makes an empty database for the test.
func newDatabase(t *testing.T) string {
	t.Helper()
	ctx := t.Context()
	admin, err := pgx.Connect(ctx, postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(ctx)
	name := fmt.Sprintf("e2e_%d", databases.Add(1))
	if _, err := admin.Exec(ctx, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(postgres.URL())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("postgres://%s:%s@%s/%s", config.User, config.Password, net.JoinHostPort(config.Host, fmt.Sprint(config.Port)), name)
}

// query reads one row of the ledger.
func (w *world) query(sql string, args []any, into ...any) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.databaseURL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if err := conn.QueryRow(w.t.Context(), sql, args...).Scan(into...); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}

// replica is a running process.
type replica struct {
	w          *world
	cmd        *exec.Cmd
	http       string // base URL
	admin      string
	exited     chan struct{}
	waitErr    error
	log        *lockedBuffer
	restOfLife sync.Once
}

// quick is a configuration whose recovery a test can wait for: the shortest grace
// that the rules allow.
var quick = []string{"RECOVERY_GRACE=300ms", "DRAIN_DELAY=0s"}

// unhurried is a configuration for tests in which every payment is to be approved and
// speed is not the matter: the longest budgets that the rules allow. As deployed, a wallet
// that shares a busy machine with the tests is now and then too slow for one in thousands.
var unhurried = []string{
	"BUDGET_SERVER=20s", "BUDGET_DECISION_CALL=15s", "BUDGET_LOOKUP_CALL=3s", "BUDGET_WORKER_CALL=3s",
	"WALLET_CONNECT_TIMEOUT=2s", "WALLET_SLOW_CALL=14s", "BREAKER_WINDOW=75s",
}

// start starts a replica of program and waits until it serves.
func (w *world) start(program string, env ...string) *replica {
	w.t.Helper()
	r := w.launch(program, env...)
	r.awaitReady()
	return r
}

func (w *world) launch(program string, env ...string) *replica {
	w.t.Helper()
	return w.launchRole(program, "all", env...)
}

func (w *world) launchRole(program, role string, env ...string) *replica {
	w.t.Helper()
	r := &replica{w: w, exited: make(chan struct{}), log: &lockedBuffer{}}
	r.cmd = exec.Command(program, "serve", "--role="+role)
	r.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"),
		"SAFELEDGER_DATABASE_URL=" + w.databaseURL,
		"SAFELEDGER_WALLET_BASE_URL=" + w.wallet.URL(),
		"SAFELEDGER_CALLERS_FILE=" + w.callersFile,
		"SAFELEDGER_HTTP_ADDR=127.0.0.1:0", "SAFELEDGER_ADMIN_ADDR=127.0.0.1:0",
	}
	for _, e := range env {
		if !strings.HasPrefix(e, "OTEL_") { // those have their name from elsewhere
			e = "SAFELEDGER_" + e
		}
		r.cmd.Env = append(r.cmd.Env, e)
	}
	r.cmd.Stderr = r.log
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		r.waitErr = r.cmd.Wait()
		close(r.exited)
	}()
	w.t.Cleanup(func() {
		r.kill()
		if w.t.Failed() {
			w.t.Logf("end of the log of %d:\n%s", r.cmd.Process.Pid, tail(r.log.String()))
		}
		r.checkLog()
	})
	return r
}

// tail is the end of a log: enough to see what happened last.
func tail(log string) string {
	const most = 4000
	return log[max(len(log)-most, 0):]
}

func (r *replica) awaitReady() {
	r.w.t.Helper()
	line := r.log.await(r.w.t, r.exited, `"msg":"serving"`)
	var serving struct {
		HTTP  string `json:"http_addr"`
		Admin string `json:"admin_addr"`
	}
	if err := json.Unmarshal([]byte(line), &serving); err != nil {
		r.w.t.Fatal(err)
	}
	r.http, r.admin = "http://"+serving.HTTP, "http://"+serving.Admin
	r.log.await(r.w.t, r.exited, `"msg":"ready"`)
}

func (r *replica) kill() {
	r.restOfLife.Do(func() { _ = r.cmd.Process.Kill() })
	<-r.exited
}

func (r *replica) signal(s syscall.Signal) {
	r.w.t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		r.w.t.Fatal(err)
	}
}

func (r *replica) awaitExit() {
	r.w.t.Helper()
	select {
	case <-r.exited:
	case <-time.After(patience):
		r.w.t.Fatalf("the process is still there after %v", patience)
	}
}

// reply is what a till got.
type reply struct {
	status int
	header http.Header
	body   string
	closes bool // the answer closes its connection
}

func (r reply) member(name string) string {
	var object map[string]any
	if json.Unmarshal([]byte(r.body), &object) != nil {
		return ""
	}
	s, _ := object[name].(string)
	return s
}

// debit asks r for a debit, in a way that nothing repeats behind our back.
func (r *replica) debit(key, account string) (reply, error) {
	body := fmt.Sprintf(`{"account": %q, "amount": 1250, "currency": "EUR"}`, account)
	req, err := http.NewRequestWithContext(r.w.t.Context(), http.MethodPost, r.http+"/debits", strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.GetBody = nil // without it the client cannot repeat the request behind our back
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	return r.do(req)
}

func (r *replica) get(path string) (reply, error) {
	req, err := http.NewRequestWithContext(r.w.t.Context(), http.MethodGet, r.http+path, nil)
	if err != nil {
		return reply{}, err
	}
	return r.do(req)
}

func (r *replica) do(req *http.Request) (reply, error) {
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := r.w.client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(body), resp.Close}, err
}

func (r *replica) mustDebit(key, account string) reply {
	r.w.t.Helper()
	answer, err := r.debit(key, account)
	if err != nil {
		r.w.t.Fatal(err)
	}
	return answer
}

// awaitDecision asks by key until the payment is decided. It polls, because that
// is what a till does here: 404 with Retry-After.
func (r *replica) awaitDecision(key string) reply {
	r.w.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := r.get("/payments/by-key/debit/" + key)
		if err != nil {
			r.w.t.Fatal(err)
		}
		if answer.member("code") != "PAYMENT_NOT_YET_DECIDED" {
			return answer
		}
		if time.Now().After(deadline) {
			r.w.t.Fatalf("not decided after %v", patience)
		}
		<-tick.C
	}
}

// applied counts the debits that the wallet's book has for account, and how often
// one was asked for.
func (w *world) applied(account string) (applied, asked int) {
	for _, e := range w.wallet.Book() {
		if e.Request == nil || e.Account != account || e.Operation != walletsim.Debit {
			continue
		}
		switch e.Event {
		case walletsim.Applied:
			applied++
		case walletsim.Arrived:
			asked++
		}
	}
	return applied, asked
}

// lockedBuffer is a process's log, which tests can wait on.
type lockedBuffer struct {
	mu      sync.Mutex
	buf     bytes.Buffer
	changed chan struct{}
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// await is the first line that contains text, waited for until the process exits.
func (b *lockedBuffer) await(t *testing.T, exited <-chan struct{}, text string) string {
	t.Helper()
	timeout := time.After(patience)
	for {
		b.mu.Lock()
		for line := range strings.Lines(b.buf.String()) {
			if strings.Contains(line, text) && strings.HasSuffix(line, "\n") {
				b.mu.Unlock()
				return line
			}
		}
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		changed := b.changed
		b.mu.Unlock()
		select {
		case <-changed:
		case <-exited:
			t.Fatalf("the process ended before it said %s:\n%s", text, b)
		case <-timeout:
			t.Fatalf("the process did not say %s within %v:\n%s", text, patience, b)
		}
	}
}

func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// startWorker starts a replica that has workers and serves no tills.
func (w *world) startWorker(program string, env ...string) *replica {
	w.t.Helper()
	return w.startRole(program, "worker", env...)
}

// startRole starts a replica with a role of its own.
func (w *world) startRole(program, role string, env ...string) *replica {
	w.t.Helper()
	r := w.launchRole(program, role, env...)
	r.awaitReady()
	return r
}

// awaitRow polls until a count in the ledger is what it should be.
func (w *world) awaitRow(sql string, want int) {
	w.t.Helper()
	w.awaitRowFor(4*patience, sql, want)
}

func (w *world) awaitRowFor(limit time.Duration, sql string, want int) {
	w.t.Helper()
	deadline := time.Now().Add(limit)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var got int
		w.query(sql, nil, &got)
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			w.t.Fatalf("%s: still %d, want %d", sql, got, want)
		}
		<-tick.C
	}
}

// awaitBooked waits until the wallet has booked something that matches.
func (w *world) awaitBooked(matches func(walletsim.Entry) bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	if _, err := w.wallet.WaitFor(ctx, matches); err != nil {
		w.t.Fatalf("the wallet has not booked it within %v: %v", patience, err)
	}
}

func (w *world) rule(r walletsim.Rule) {
	w.t.Helper()
	if _, err := w.wallet.AddRule(r); err != nil {
		w.t.Fatal(err)
	}
}

func readAll(t *testing.T, r io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
