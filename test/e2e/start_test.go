package e2e

import (
	"bufio"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/internal/walletsim"
)

// A process that cannot run rightly must not run at all, and must say why so that
// somebody at 3 a.m. can mend it: the variable, its value, what is allowed, exit 2,
// before anything listens.
func TestABadConfigurationExitsWith2AndNamesTheVariable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ set, wants string }{
		"not a duration":       {"BUDGET_SERVER=soon", "SAFELEDGER_BUDGET_SERVER"},
		"rule between numbers": {"BUDGET_DECISION_CALL=2s", "SAFELEDGER_BUDGET_DECISION_CALL"},
		"unknown":              {"BUDGET_SEVER=2400ms", "SAFELEDGER_BUDGET_SEVER"},
		"what the driver says": {"DATABASE_URL=postgres://u:password-of-nobody@127.0.0.1/db?sslmode=bogus", "SAFELEDGER_DATABASE_URL"},
		"no such port":         {"WALLET_BASE_URL=http://127.0.0.1:99999", "SAFELEDGER_WALLET_BASE_URL"},
		"not ASCII":            {"WALLET_BASE_URL=http://wället:80", "SAFELEDGER_WALLET_BASE_URL"},
		"no such address":      {"ADMIN_ADDR=127.0.0.256:0", "SAFELEDGER_ADMIN_ADDR"},
		"no callers file":      {"CALLERS_FILE=/nowhere/callers.json", "SAFELEDGER_CALLERS_FILE"},
		"no token file":        {"WALLET_TOKEN_FILE=/nowhere/token", "SAFELEDGER_WALLET_TOKEN_FILE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := &world{t: t, databaseURL: "postgres://nobody:password-of-nobody@127.0.0.1:1/none", callersFile: "/dev/null"}
			w.wallet, _ = walletsim.New(walletsim.Config{})
			if !strings.HasPrefix(c.set, "CALLERS_FILE") {
				w.callersFile = writeCallers(t)
			}
			r := w.launch(plain, "WALLET_BASE_URL=http://127.0.0.1:1", c.set)
			r.awaitExit()
			if code := exitCode(r.waitErr); code != 2 {
				t.Errorf("exit code %d, want 2", code)
			}
			if !strings.Contains(r.log.String(), c.wants) {
				t.Errorf("the message does not name %s:\n%s", c.wants, r.log)
			}
			if strings.Contains(r.log.String(), "password-of-nobody") {
				t.Errorf("the message holds the password:\n%s", r.log)
			}
			if strings.Contains(r.log.String(), "serving") {
				t.Error("it listened")
			}
		})
	}
}

// Tills must never meet a schema that the program does not know: serve says what
// is missing and ends, instead of failing each payment.
func TestServeRefusesADatabaseThatWasNotMigrated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.databaseURL = newDatabase(t) // an empty one
	r := w.launch(plain)
	r.awaitExit()
	if code := exitCode(r.waitErr); code != 1 || !strings.Contains(r.log.String(), "safeledger migrate") {
		t.Errorf("exit code %d, said:\n%s", code, r.log)
	}
}

// L9, promise 3: when PostgreSQL dies under the service, no till hears an approval
// that is not stored; what was claimed is recovered once it is back.
func TestADatabaseThatDiesBetweenClaimAndDecisionIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(plain, append(slices.Clone(quick), unhurried...)...)
	answered := make(chan reply, 1)
	go func() {
		answer, err := r.debit("key-of-the-cut-off", "SLOW-4000-ANNA")
		if err != nil {
			t.Error(err)
		}
		answered <- answer
	}()
	w.awaitBooked(func(e walletsim.Entry) bool { return e.Event == walletsim.Applied })
	// As seen from the service the database is gone: its connections are cut and no
	// new one is let in. The server itself is shared with other tests.
	w.asOwner(`ALTER DATABASE %s ALLOW_CONNECTIONS false`)
	w.asOwner(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '%s'`)

	answer := <-answered
	if answer.status != http.StatusServiceUnavailable || answer.member("code") != "OUTCOME_UNKNOWN" || answer.header.Get("Retry-After") != "" {
		t.Errorf("answered %d %v %s", answer.status, answer.header, answer.body)
	}
	r.log.await(t, r.exited, "database unreachable")
	refused := r.mustDebit("key-of-the-next", "BERT")
	if refused.member("code") != "NOT_READY" || refused.header.Get("Retry-After") != "1" {
		t.Errorf("while the database is known to be away: %d %v %s", refused.status, refused.header, refused.body)
	}

	w.asOwner(`ALTER DATABASE %s ALLOW_CONNECTIONS true`)
	r.log.await(t, r.exited, "database reachable again")
	if final := r.awaitDecision("key-of-the-cut-off"); final.member("code") != "WALLET_TIMEOUT" {
		t.Errorf("afterwards: %d %s", final.status, final.body)
	}
	if next := r.mustDebit("key-of-the-next", "BERT"); next.status != http.StatusCreated || next.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("the refused key afterwards: %d %v", next.status, next.header)
	}
	var reversals int
	w.query(`SELECT count(*) FROM operations WHERE kind = 'reversal'`, nil, &reversals)
	if reversals != 1 {
		t.Errorf("%d reversals, want 1", reversals)
	}
}

// A replica whose database has stopped answering must still go when it is told to:
// otherwise a rollout hangs on the very outage that it is to end. Contract section 5:
// within DRAIN_DELAY + BUDGET_SERVER + 3 s.
func TestADatabaseThatHangsDoesNotHoldUpTheExit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	proxy := newFreezer(t, w.databaseURL)
	w.databaseURL = proxy.url
	r := w.start(plain, "DRAIN_DELAY=0s")
	if answer := r.mustDebit("key-of-the-first", "ANNA"); answer.status != http.StatusCreated {
		t.Fatalf("before: %d %s", answer.status, answer.body)
	}
	proxy.freeze()
	if answer := r.mustDebit("key-of-the-second", "ANNA"); answer.status != http.StatusServiceUnavailable {
		t.Errorf("without the database: %d %s", answer.status, answer.body)
	}
	told := time.Now()
	r.signal(syscall.SIGTERM)
	r.awaitExit()
	// The promise is a bound for operators, so this is the one place where a test of a
	// real process holds a stop-watch; what it is against took three times as long.
	if took := time.Since(told); took > 5400*time.Millisecond {
		t.Errorf("it took %v to exit, want 5.4 s at most", took)
	}
	if code := exitCode(r.waitErr); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// freezer passes on what a client and PostgreSQL say to each other, until it is told
// to stop: then both sides wait, and neither learns why.
type freezer struct {
	url    string
	frozen chan struct{}
}

func newFreezer(t *testing.T, databaseURL string) *freezer {
	t.Helper()
	f := &freezer{frozen: make(chan struct{})}
	f.url = pgtest.Through(t, databaseURL, func(client, server net.Conn) {
		var both sync.WaitGroup
		both.Go(func() { f.pass(client, server) })
		both.Go(func() { f.pass(server, client) })
		both.Wait()
	})
	return f
}

func (f *freezer) freeze() { close(f.frozen) }

func (f *freezer) pass(from, to net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		n, err := from.Read(buffer)
		select {
		case <-f.frozen:
			return // the connections stay open, and silent
		default:
		}
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			_, _ = from.Close(), to.Close()
			return
		}
	}
}

// The first minutes of a newcomer: `safeledger dev` brings everything up, decides
// a payment and shows it, prints lines to paste, and is gone after Ctrl-C with
// everything that it started.
func TestDevDecidesAPaymentAndEndsWithEverythingItStarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// The data must be reachable by the user that PostgreSQL runs as.
	for d := dir; d != os.TempDir() && d != "/" && d != "."; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			break
		}
	}
	cmd := exec.Command(plain, "dev", "--dir", dir)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	var said strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), "Ctrl-C") {
			break
		}
	}
	for _, want := range []string{"POST /debits HTTP/1.1", "HTTP/1.1 201 Created", `"decision":"APPROVED"`, `till "decline-`, "HANG-CAROL", "replay-me"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("it did not show %q:\n%s", want, said.String())
		}
	}
	pid := postgresUnder(t, dir)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("PostgreSQL (pid %d) is still there", pid)
	}
	var shown told
	for line := range strings.Lines(said.String()) {
		if key, ok := strings.CutPrefix(strings.TrimSpace(line), "Idempotency-Key: "); ok {
			shown.note(key)
		}
	}
	for _, secret := range []string{"ALICE", "demo-till-token"} {
		shown.note(secret)
	}
	log, err := os.ReadFile(filepath.Join(dir, "safeledger.log"))
	if err != nil {
		t.Fatal(err)
	}
	checkLog(t, string(log), &shown)
}

// asOwner runs a statement about the world's database from another one.
func (w *world) asOwner(statement string) {
	w.t.Helper()
	admin, err := pgx.Connect(w.t.Context(), postgres.URL())
	if err != nil {
		w.t.Fatal(err)
	}
	defer admin.Close(w.t.Context())
	name := w.databaseURL[strings.LastIndex(w.databaseURL, "/")+1:]
	if _, err := admin.Exec(w.t.Context(), strings.ReplaceAll(statement, "%s", name)); err != nil {
		w.t.Fatal(err)
	}
}

// postgresUnder is the pid of the server whose data is below dir.
func postgresUnder(t *testing.T, dir string) int {
	t.Helper()
	var pid int
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && filepath.Base(path) == "postmaster.pid" {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			first, _, _ := strings.Cut(string(content), "\n")
			pid, err = strconv.Atoi(strings.TrimSpace(first))
			return err
		}
		return err
	})
	if err != nil || pid == 0 {
		t.Fatalf("no running PostgreSQL below %s: %v", dir, err)
	}
	return pid
}
