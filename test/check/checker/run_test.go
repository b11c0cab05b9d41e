package checker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/internal/walletsim"
	"github.com/safeledger/safeledger/test/check/history"
)

// What the tests judge is a true history: real processes of SafeLedger on a real
// PostgreSQL, beside the simulated wallet, with a few tills that provoke each kind of
// answer and of end once or twice. It is made once, and corrupted many times.

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	token  = "token-of-the-tills"
	caller = "store-17"
	// patience bounds every wait; none of them is a claim about speed.
	patience = 60 * time.Second
)

// The run's configuration: the shortest pauses that the rules of the configuration allow.
var runSettings = []string{ //nolint:gochecknoglobals // a table
	"LOG_LEVEL=debug", "RECOVERY_GRACE=300ms", "DRAIN_DELAY=0s", "BUDGET_WORKER_CALL=400ms", "QUEUE_LEASE=6s", "QUEUE_BACKOFF_MIN=50ms",
	"QUEUE_BACKOFF_MAX=500ms", "QUEUE_LOOKUPS_PER_SECOND=1000", "QUEUE_SETTLE_WINDOW=3s", "QUEUE_PARK_AFTER=6s", "QUEUE_LATE_CHECKS=1s",
}

func runOptions() Options {
	o := Defaults()
	o.RecoveryGrace, o.WorkerCall, o.SettleWindow, o.SettleSLA = 300*time.Millisecond, 400*time.Millisecond, 3*time.Second, 10*time.Second
	// The run shares its machine with the other tests.
	o.Slack, o.ClockSlack = 5*time.Second, 5*time.Millisecond
	return o
}

// recording is a run in memory.
type recording struct {
	book       []BookLine
	tills      []history.Line
	responses  []ResponseLine
	payments   []PaymentRow
	operations []OperationRow
	calls      []CallRow
	notes      []NoteRow
	totals     map[string]Totals
}

// The run is made when the first test asks for it.
var theRun struct { //nolint:gochecknoglobals // one per test process is the point
	once sync.Once
	rec  recording
}

// record gives a copy of the run that the test may corrupt.
func record(t *testing.T) *recording {
	t.Helper()
	theRun.once.Do(func() { theRun.rec = makeRun(t) })
	if len(theRun.rec.payments) == 0 {
		t.Fatal("the run could not be made")
	}
	return theRun.rec.clone()
}

func (r *recording) clone() *recording {
	c := recording{
		book: make([]BookLine, len(r.book)), tills: append([]history.Line(nil), r.tills...), responses: append([]ResponseLine(nil), r.responses...),
		payments: append([]PaymentRow(nil), r.payments...), operations: append([]OperationRow(nil), r.operations...),
		calls: append([]CallRow(nil), r.calls...), notes: append([]NoteRow(nil), r.notes...), totals: maps.Clone(r.totals),
	}
	for i, l := range r.book {
		if l.Effect != nil {
			l.Effect = new(*l.Effect)
		}
		if l.Answer != nil {
			l.Answer = new(*l.Answer)
		}
		c.book[i] = l
	}
	return &c
}

func (r *recording) input() Input {
	return Input{
		Book: slice[BookLine](r.book), Tills: slice[history.Line](r.tills), Responses: slice[ResponseLine](r.responses), Ledger: rowsOf{r}, Totals: r.totals,
	}
}

// rowsOf is the recorded ledger.
type rowsOf struct{ *recording }

func each[T any](rows []T, yield func(T) error) error {
	for _, row := range rows {
		if err := yield(row); err != nil {
			return err
		}
	}
	return nil
}

func (r rowsOf) Payments(_ context.Context, yield func(PaymentRow) error) error {
	return each(r.payments, yield)
}

func (r rowsOf) Operations(_ context.Context, yield func(OperationRow) error) error {
	return each(r.operations, yield)
}

func (r rowsOf) Calls(_ context.Context, yield func(CallRow) error) error {
	return each(r.calls, yield)
}

func (r rowsOf) Notes(_ context.Context, yield func(NoteRow) error) error {
	return each(r.notes, yield)
}

// run is a run in the making.
type run struct {
	t      *testing.T
	dir    string
	db     *pgtest.DB
	sim    *walletsim.Sim
	log    *history.Log
	client *http.Client

	mu    sync.Mutex
	trace int
	logs  []string
}

// makeRun makes the run and reads it.
func makeRun(t *testing.T) recording {
	t.Helper()
	r := &run{t: t, dir: t.TempDir(), db: pgtest.New(t), client: &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience,
	}}
	book, tills := filepath.Join(r.dir, "book.jsonl"), filepath.Join(r.dir, "tills.jsonl")
	var err error
	if r.sim, err = walletsim.New(walletsim.Config{OpenAccounts: true, BookFile: book, BookOnlyInFile: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.sim.Start(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if r.log, err = history.Open(tills, "run-1", "the test"); err != nil {
		t.Fatal(err)
	}
	r.play()
	r.awaitQuiet()
	if err := r.log.Close(); err != nil {
		t.Error(err)
	}
	if err := r.sim.Close(); err != nil {
		t.Error(err)
	}
	return r.read(book, tills)
}

func (r *run) read(book, tills string) (rec recording) {
	t := r.t
	ledger, err := OpenPostgres(t.Context(), r.db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer ledger.Close(t.Context())
	rec.totals = map[string]Totals{}
	for currency, counted := range r.sim.Totals() {
		rec.totals[currency] = Totals{Opened: counted.Opened, Balances: counted.Balances, Held: counted.Held, NetDebits: counted.NetDebits}
	}
	files := Input{Totals: rec.totals, Book: BookFiles(nil, book), Tills: TillFiles(nil, tills), Responses: ResponseFiles(nil, r.logs...), Ledger: ledger}
	for _, err := range []error{
		files.Book.each(t.Context(), func(_ place, l *BookLine) error { rec.book = append(rec.book, *l); return nil }),
		files.Tills.each(t.Context(), func(_ place, l *history.Line) error { rec.tills = append(rec.tills, *l); return nil }),
		files.Responses.each(t.Context(), func(_ place, l *ResponseLine) error { rec.responses = append(rec.responses, *l); return nil }),
		ledger.Payments(t.Context(), func(p PaymentRow) error { rec.payments = append(rec.payments, p); return nil }),
		ledger.Operations(t.Context(), func(o OperationRow) error { rec.operations = append(rec.operations, o); return nil }),
		ledger.Calls(t.Context(), func(c CallRow) error { rec.calls = append(rec.calls, c); return nil }),
		ledger.Notes(t.Context(), func(n NoteRow) error { rec.notes = append(rec.notes, n); return nil }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	// The files themselves, judged as they are: that is what the program does.
	report, err := Check(t.Context(), files, runOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantClean(t, report)
	return rec
}

// process is a replica.
type process struct {
	base string
	cmd  *exec.Cmd
}

// start starts a replica and waits until it serves.
func (r *run) start(binary string, settings ...string) *process {
	t := r.t
	t.Helper()
	path := filepath.Join(r.dir, fmt.Sprintf("replica-%d.log", len(r.logs)))
	r.logs = append(r.logs, path)
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	known := filepath.Join(r.dir, "callers.json")
	content := fmt.Sprintf(`{"callers": [{"name": %q, "tokenSha256": %q, "scopes": ["till", "payout"]}]}`, caller, callers.HashToken(token))
	if err := os.WriteFile(known, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(binary, "serve")}
	p.cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "SAFELEDGER_DATABASE_URL=" + r.db.URL, "SAFELEDGER_WALLET_BASE_URL=" + r.sim.URL(),
		"SAFELEDGER_CALLERS_FILE=" + known, "SAFELEDGER_HTTP_ADDR=127.0.0.1:0", "SAFELEDGER_ADMIN_ADDR=127.0.0.1:0",
	}
	for _, s := range append(append([]string(nil), runSettings...), settings...) {
		p.cmd.Env = append(p.cmd.Env, "SAFELEDGER_"+s)
	}
	p.cmd.Stderr = file
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.kill() })
	p.base = "http://" + r.awaitLine(path, `"msg":"serving"`, "http_addr")
	r.awaitLine(path, `"msg":"ready"`, "")
	return p
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// awaitLine waits for a line of a process' log, and gives a member of it.
func (r *run) awaitLine(path, text, member string) string {
	r.t.Helper()
	var found string
	r.await("a line "+text, func() bool {
		content, err := os.ReadFile(path)
		if err != nil {
			return false
		}
		for line := range bytes.Lines(content) {
			var members map[string]any
			if bytes.Contains(line, []byte(text)) && json.Unmarshal(line, &members) == nil {
				found, _ = members[member].(string)
				return true
			}
		}
		return false
	})
	return found
}

func (r *run) await(what string, there func() bool) {
	r.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !there(); <-tick.C {
		if time.Now().After(deadline) {
			r.t.Fatalf("%s: not within %v\n%s", what, patience, r.lastWords())
		}
	}
}

// lastWords are the ends of the processes' logs.
func (r *run) lastWords() string {
	const most = 1000
	var b strings.Builder
	for _, path := range r.logs {
		text, err := os.ReadFile(path)
		fmt.Fprintf(&b, "%s: %v\n%s\n", path, err, text[max(len(text)-most, 0):])
	}
	return b.String()
}

// awaitQuiet waits until nothing is left to be done: no payment in flight, no follow-up
// pending, no look to be had, no effect to come.
func (r *run) awaitQuiet() {
	r.t.Helper()
	conn := r.db.Connect(r.t)
	r.await("quiescence", func() bool {
		var open int
		err := conn.QueryRow(r.t.Context(), `
SELECT (SELECT count(*) FROM public.payments WHERE state = 'IN_FLIGHT') + (SELECT count(*) FROM public.operations WHERE due_at IS NOT NULL)`).Scan(&open)
		return err == nil && open == 0 && r.sim.State().Busy == 0
	})
}

// reply is what a till got; the zero reply is none.
type reply struct {
	status int
	body   body
}

// ask sends one request and notes it.
func (r *run) ask(p *process, q history.Request) reply {
	r.t.Helper()
	r.mu.Lock()
	r.trace++
	q.Trace = fmt.Sprintf("%032x", r.trace)
	r.mu.Unlock()
	q.To = p.base
	if q.Till == "" {
		q.Till = "1"
	}
	if q.Caller == "" {
		q.Caller = caller
	}
	noted, err := r.log.Send(q)
	if err != nil {
		r.t.Error(err)
		return reply{}
	}
	answer, err := r.send(p, q)
	if err != nil {
		how := history.Failure{How: "lost", Error: err.Error()}
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
			how.Unsent = true
		}
		err = noted.Failed(time.Now(), how)
	} else {
		err = noted.Answered(time.Now(), answer)
	}
	if err != nil {
		r.t.Error(err)
	}
	return reply{answer.Status, read(answer.Got)}
}

func (r *run) send(p *process, q history.Request) (history.Answer, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), q.Method, p.base+q.Path, strings.NewReader(q.Sent))
	if err != nil {
		return history.Answer{}, err
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Traceparent", "00-"+q.Trace+"-00f067aa0ba902b7-01")
	for name, value := range map[string]string{"Idempotency-Key": q.Key, "Request-Deadline-Ms": q.Deadline} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if q.Sent != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return history.Answer{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return history.Answer{}, err
	}
	return history.AnswerOf(resp.StatusCode, resp.Header, text), nil
}

func (r *run) post(p *process, path, key, body string) reply {
	r.t.Helper()
	return r.ask(p, history.Request{Method: "POST", Path: path, Key: key, Sent: body})
}

func (r *run) get(p *process, path string) reply {
	r.t.Helper()
	return r.ask(p, history.Request{Method: "GET", Path: path})
}

// must fails the run where an answer is not what it needs.
func (r *run) must(got reply, status int) reply {
	r.t.Helper()
	if got.status != status {
		r.t.Fatalf("answered %d %+v, want %d", got.status, got.body, status)
	}
	return got
}

func (r *run) rule(rule walletsim.Rule) {
	r.t.Helper()
	if _, err := r.sim.AddRule(rule); err != nil {
		r.t.Fatal(err)
	}
}

// awaitArrival waits until the wallet has got a request about an account.
func (r *run) awaitArrival(account string) {
	r.t.Helper()
	if _, err := r.sim.WaitFor(r.t.Context(), func(e walletsim.Entry) bool {
		return e.Event == walletsim.Arrived && e.Request != nil && e.Account == account
	}); err != nil {
		r.t.Fatal(err)
	}
}

// awaitEnd waits until a follow-up has ended, reading it as a till does.
func (r *run) awaitEnd(p *process, id, want string) {
	r.t.Helper()
	var got string
	r.await("the end of "+id, func() bool {
		got = r.get(p, "/operations/"+id).body.state()
		return got != "PENDING"
	})
	if got != want {
		r.t.Fatalf("%s ended %s, want %s", id, got, want)
	}
}

func payBody(account string, amount int) string {
	return fmt.Sprintf(`{"account": %q, "amount": %d, "currency": "EUR"}`, account, amount)
}

// play is what happens in the run.
func (r *run) play() {
	t := r.t
	binary := filepath.Join(r.dir, "safeledger")
	if out, err := exec.Command("go", "build", "-o", binary, "github.com/safeledger/safeledger/cmd/safeledger").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	a, b := r.start(binary), r.start(binary)
	small := r.start(binary, "GATE_MAX_IN_FLIGHT=1", "WALLET_MAX_IN_FLIGHT=1", "QUEUE_WORKERS=1")
	victim := r.start(binary)
	at := func(account string, operation walletsim.Operation, f walletsim.Fault) walletsim.Rule {
		return walletsim.Rule{Match: walletsim.Match{Account: account, Operation: operation}, Fault: f}
	}
	count := func(rule walletsim.Rule, n int64) walletsim.Rule {
		rule.Match.Count = n
		return rule
	}
	r.rule(at("PARKED", walletsim.Debit, walletsim.LoseAnswer(walletsim.FIN)))
	r.rule(count(at("PARKED", walletsim.Lookup, walletsim.Stall()), 1))
	r.rule(at("PARKED", walletsim.Credit, walletsim.Fault{Apply: walletsim.Refuse, Code: "ACCOUNT_CLOSED"}))
	r.rule(count(at("FLAKY", walletsim.Credit, walletsim.Down()), 2))
	r.rule(at("CLOSED", walletsim.Credit, walletsim.Fault{Apply: walletsim.Refuse, Code: "ACCOUNT_CLOSED"}))
	r.rule(count(at("HELDUP", walletsim.Hold, walletsim.LoseAnswer(walletsim.FIN)), 1))
	r.rule(count(at("HELDUP", walletsim.Lookup, walletsim.Stall()), 1))

	var all sync.WaitGroup
	// Decisions of every kind, each beside the others.
	for key, want := range map[string]struct {
		path, account string
		status        int
	}{
		"approved":    {"/debits", "ANNA", 201},
		"poor":        {"/debits", "POOR-anna", 402},
		"lost":        {"/debits", "LOST-anna", 201},
		"late":        {"/debits", "LATE-1500-anna", 424},
		"hang":        {"/debits", "HANG-anna", 424},
		"gateway":     {"/debits", "GATEWAY-anna", 424},
		"down":        {"/debits", "DOWN-anna", 424},
		"status":      {"/debits", "STATUS-418-anna", 402},
		"parked":      {"/debits", "PARKED", 424},
		"held up":     {"/holds", "HELDUP", 424},
		"held":        {"/holds", "ANNA", 201},
		"quoted+text": {"/debits", "ANNA", 201},
	} {
		all.Go(func() {
			sent := payBody(want.account, 1250)
			if key == "quoted+text" {
				sent = `{"amount": 7, "currency": "EUR", "account": "ANNA", "reference": "receipt 4711", "metadata": {"till": "3", "a": ""}}`
			}
			r.must(r.post(a, want.path, `"key-`+strings.ReplaceAll(key, " ", "-")+`"`, sent), want.status)
		})
	}
	// One key by many tills at once, on two replicas.
	for i := range 8 {
		all.Go(func() {
			on := []*process{a, b}[i%2]
			r.ask(on, history.Request{Till: fmt.Sprint(10 + i), Method: "POST", Path: "/debits", Key: "key-contended", Sent: payBody("SLOW-300-anna", 100)})
		})
	}
	all.Wait()
	r.must(r.post(b, "/debits", "key-contended", payBody("SLOW-300-anna", 100)), 201)
	r.must(r.post(b, "/debits", "key-approved", payBody("ANNA", 1250)), 201)
	r.must(r.post(b, "/debits", "key-approved", payBody("ANNA", 1251)), 422)
	r.must(r.post(b, "/debits", "key-late", payBody("LATE-1500-anna", 1250)), 424)
	r.must(r.ask(a, history.Request{Method: "POST", Path: "/debits", Key: "key-no-time", Deadline: "600", Sent: payBody("ANNA", 10)}), 424)
	r.must(r.post(a, "/debits", "", payBody("ANNA", 10)), 400)
	r.must(r.post(a, "/debits", "key-invalid", `{"account": "ANNA"}`), 400)
	r.must(r.get(a, "/payments/by-key/debit/key-approved"), 200)
	r.must(r.get(a, "/payments/by-key/debit/key-of-nobody"), 404)
	r.must(r.get(a, "/payments/"+uuid.Nil.String()), 404)

	// The gate: one request takes the only place, others are refused; one comes again.
	all.Go(func() { r.post(small, "/debits", "key-in-the-place", payBody("SLOW-700-berta", 10)) })
	r.awaitArrival("SLOW-700-berta")
	r.must(r.post(small, "/debits", "key-refused", payBody("ANNA", 10)), 503)
	r.must(r.post(small, "/debits", "key-refused-first", payBody("ANNA", 20)), 503)
	all.Wait()
	r.must(r.post(a, "/debits", "key-refused-first", payBody("ANNA", 20)), 201)

	// A replica dies while its wallet call is under way.
	all.Go(func() { r.post(victim, "/debits", "key-killed", payBody("SLOW-5000-carol", 30)) })
	r.awaitArrival("SLOW-5000-carol")
	calm, err := r.log.Disturb("kill -9")
	if err != nil {
		t.Fatal(err)
	}
	victim.kill()
	all.Wait()
	if err := calm(); err != nil {
		t.Fatal(err)
	}
	r.post(victim, "/debits", "key-to-nobody", payBody("ANNA", 10)) // refused a connection

	// Cancel by key.
	r.must(r.post(a, "/payments/by-key/debit/key-never-seen/cancel", "", ""), 200)
	r.must(r.post(b, "/debits", "key-never-seen", payBody("ANNA", 10)), 402)
	r.must(r.post(a, "/payments/by-key/debit/key-shown/cancel", "", payBody("ANNA", 10)), 200)
	r.must(r.post(a, "/debits", "key-cancelled", payBody("ANNA", 500)), 201)
	cancelled := r.must(r.post(b, "/payments/by-key/debit/key-cancelled/cancel", "", ""), 200)
	r.must(r.post(b, "/debits", "key-cancelled", payBody("ANNA", 500)), 409)
	r.must(r.post(a, "/holds", "key-hold-cancelled", payBody("ANNA", 500)), 201)
	r.must(r.post(a, "/payments/by-key/hold/key-hold-cancelled/cancel", "", ""), 200)
	all.Go(func() { r.post(a, "/debits", "key-overtaken", payBody("SLOW-600-dora", 10)) })
	r.awaitArrival("SLOW-600-dora")
	r.must(r.post(b, "/debits", "key-overtaken", payBody("SLOW-600-dora", 10)), 409)
	r.must(r.get(b, "/payments/by-key/debit/key-overtaken"), 404)
	r.must(r.post(b, "/payments/by-key/debit/key-overtaken/cancel", "", ""), 200)
	all.Wait()

	// Follow-ups.
	paid := r.must(r.post(a, "/debits", "key-to-refund", payBody("FLAKY", 900)), 201).body.ID
	refund := r.must(r.post(a, "/credits", "key-refund", fmt.Sprintf(`{"account": "FLAKY", "amount": 400, "currency": "EUR", "debitId": %q, "reference": "r"}`, paid)), 202)
	r.must(r.post(b, "/credits", "key-refund", fmt.Sprintf(`{"account": "FLAKY", "amount": 400, "currency": "EUR", "debitId": %q, "reference": "r"}`, paid)), 202)
	r.must(r.post(b, "/credits", "key-too-much", fmt.Sprintf(`{"account": "FLAKY", "amount": 501, "currency": "EUR", "debitId": %q}`, paid)), 422)
	r.must(r.get(b, "/operations/by-key/credit/key-of-nobody"), 404)
	r.must(r.post(a, "/credits", "key-payout", `{"account": "ANNA", "amount": 5, "currency": "EUR"}`), 202)
	closed := r.must(r.post(a, "/credits", "key-no-payout", `{"account": "CLOSED", "amount": 5, "currency": "EUR"}`), 202)
	held := r.must(r.get(a, "/payments/by-key/hold/key-held"), 200).body.ID
	taken := r.must(r.post(a, "/holds/"+held+"/capture", "key-capture", `{"amount": 1000}`), 202)
	r.must(r.post(b, "/holds/"+held+"/release", "key-too-late", ""), 409)
	r.must(r.post(b, "/payments/by-key/hold/key-held/cancel", "", ""), 409)
	freed := r.must(r.post(a, "/holds", "key-to-release", payBody("ANNA", 60)), 201).body.ID
	release := r.must(r.post(a, "/holds/"+freed+"/release", "key-release", ""), 202)
	r.awaitEnd(b, refund.body.ID, "SUCCEEDED")
	r.awaitEnd(b, closed.body.ID, "REJECTED")
	r.awaitEnd(b, taken.body.ID, "SUCCEEDED")
	r.awaitEnd(b, release.body.ID, "SUCCEEDED")
	r.awaitEnd(b, cancelled.body.Reversal, "SUCCEEDED")
	r.must(r.get(b, "/payments/"+paid), 200)

	// The ones that nobody came back for, and those that take their time.
	r.await("the decision of the killed one", func() bool { return r.get(a, "/payments/by-key/debit/key-killed").status == 200 })
}

func wantClean(t *testing.T, report *Report) {
	t.Helper()
	for _, v := range report.Violations {
		t.Errorf("I%d %s: %s: %s\n%s", v.Clause.Invariant, v.Clause.Name, v.Key, v.Text, historyOf(v))
	}
}

func historyOf(v Violation) string {
	var b strings.Builder
	for _, m := range v.History {
		fmt.Fprintf(&b, "  %s %-10s %s\n", m.At.Format("15:04:05.000000"), m.Who, m.Text)
	}
	return b.String()
}
