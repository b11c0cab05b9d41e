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
var runSettings = []string{
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
var theRun struct {
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
	if t.Failed() {
		t.FailNow()
	}
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
func (r *run) start(binary, role string, settings ...string) *process {
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
	p := &process{cmd: exec.Command(binary, "serve", "--role="+role)}
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
			r.t.Errorf("%s: not within %v\n%s", what, patience, r.lastWords())
			return
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

// must fails the run where an answer is not what it needs. Stories are told by goroutines
// of their own, so that none of this ends the test by itself.
func (r *run) must(got reply, status int) reply {
	r.t.Helper()
	if got.status != status {
		r.t.Errorf("answered %d %+v, want %d", got.status, got.body, status)
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
		r.t.Error(err)
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
		r.t.Errorf("%s ended %s, want %s", id, got, want)
	}
}

func payBody(account string, amount int) string {
	return fmt.Sprintf(`{"account": %q, "amount": %d, "currency": "EUR"}`, account, amount)
}

// stage is what the run is played on.
type stageOf struct {
	*run
	a, b   *process // two replicas, which share the work
	small  *process // one that admits one request at a time
	victim *process // one that will be killed
	v1     *process // one that speaks version 1 to the wallet, without workers
	binary string
}

// play is what happens in the run: a few stories, beside each other where they do not
// need to be alone.
func (r *run) play() {
	r.t.Helper()
	s := &stageOf{run: r, binary: filepath.Join(r.dir, "safeledger")}
	if out, err := exec.Command("go", "build", "-o", s.binary, "github.com/safeledger/safeledger/cmd/safeledger").CombinedOutput(); err != nil {
		r.t.Fatalf("build: %v\n%s", err, out)
	}
	s.a, s.b = r.start(s.binary, "all"), r.start(s.binary, "all")
	s.small = r.start(s.binary, "api", "GATE_MAX_IN_FLIGHT=1", "WALLET_MAX_IN_FLIGHT=1", "QUEUE_WORKERS=1")
	s.victim = r.start(s.binary, "all")
	s.v1 = r.start(s.binary, "api", "WALLET_VERSION=v1")
	s.misbehave()

	s.decisions()
	s.gate()
	s.killed()
	var all sync.WaitGroup
	for _, story := range []func(){s.cancels, s.followUps, s.endsOfHolds, s.people} {
		all.Go(story)
	}
	all.Wait()
	r.await("the decision of the killed one", func() bool { return r.get(s.a, "/payments/by-key/debit/key-killed").status == 200 })
}

// misbehave tells the wallet how, by account, beyond what names alone ask for.
func (s *stageOf) misbehave() {
	on := func(account string, operation walletsim.Operation, count int64, f walletsim.Fault) {
		s.rule(walletsim.Rule{Match: walletsim.Match{Account: account, Operation: operation, Count: count}, Fault: f})
	}
	// Applied, the answer lost, and the decision's lookup hangs: declined, with a reversal.
	unseen := func(account string, operation walletsim.Operation) {
		on(account, operation, 1, walletsim.LoseAnswer(walletsim.FIN))
		on(account, walletsim.Lookup, 1, walletsim.Stall())
	}
	closed := walletsim.Fault{Apply: walletsim.Refuse, Code: "ACCOUNT_CLOSED"}
	for _, account := range []string{"PARKED", "BYHAND", "FORGIVEN", "REDRIVEN"} {
		unseen(account, walletsim.Debit)
	}
	on("PARKED", walletsim.Credit, 0, closed)
	on("BYHAND", walletsim.Credit, 0, closed)
	on("FORGIVEN", walletsim.Credit, 0, closed)
	on("REDRIVEN", walletsim.Credit, 1, closed)
	unseen("HELDUP", walletsim.Hold)
	refusedUnheard := walletsim.Fault{Apply: walletsim.Refuse, Code: "LIMIT_EXCEEDED", Cut: walletsim.Ending{At: walletsim.AfterApplying, How: walletsim.FIN}}
	on("DOUBT", walletsim.Debit, 0, refusedUnheard)
	on("UNSEEN", walletsim.Debit, 0, refusedUnheard)
	on("UNSEEN", walletsim.Lookup, 1, walletsim.Stall())
	on("FLAKY", walletsim.Credit, 1, walletsim.Down())
	on("FLAKY", walletsim.Credit, 1, walletsim.Fault{Apply: walletsim.Never, Status: new(404), Body: new("<html>"), ContentType: "text/html"})
	on("CLOSED", walletsim.Credit, 0, closed)
	on("ODD", walletsim.Credit, 0, walletsim.Fault{Apply: walletsim.Refuse, Code: "odd"})
	on("STUCK", walletsim.Credit, 0, walletsim.Fault{Apply: walletsim.Never, Status: new(403), Body: new(`{"code":"FORBIDDEN"}`), ContentType: "application/json"})
	on("NOCAPTURE", walletsim.Capture, 0, closed)
}

// decisions of every kind, each beside the others, and repetitions of them.
func (s *stageOf) decisions() {
	s.must(s.post(s.a, "/debits", `"key-approved"`, payBody("ANNA", 1250)), 201) // first: its account is opened by it
	var all sync.WaitGroup
	for key, want := range map[string]struct {
		path, account string
		status        int
	}{
		"poor":           {"/debits", "POOR-anna", 402},
		"lost":           {"/debits", "LOST-anna", 201},
		"late":           {"/debits", "LATE-1500-anna", 424},
		"hang":           {"/debits", "HANG-anna", 424},
		"gateway":        {"/debits", "GATEWAY-anna", 424},
		"down":           {"/debits", "DOWN-anna", 424},
		"status":         {"/debits", "STATUS-418-anna", 402},
		"parked":         {"/debits", "PARKED", 424},
		"by-hand":        {"/debits", "BYHAND", 424},
		"forgiven":       {"/debits", "FORGIVEN", 424},
		"redriven":       {"/debits", "REDRIVEN", 424},
		"found-refused":  {"/debits", "DOUBT", 402},
		"refused-unseen": {"/debits", "UNSEEN", 424},
		"held-up":        {"/holds", "HELDUP", 424},
		"held":           {"/holds", "ANNA", 201},
		"quoted+text":    {"/debits", "ANNA", 201},
	} {
		all.Go(func() {
			sent := payBody(want.account, 1250)
			if key == "quoted+text" {
				sent = `{"amount": 7, "currency": "EUR", "account": "ANNA", "reference": "receipt 4711", "metadata": {"till": "3", "a": ""}}`
			}
			s.must(s.post(s.a, want.path, `"key-`+key+`"`, sent), want.status)
		})
	}
	all.Go(func() { s.must(s.post(s.v1, "/debits", "key-v1", payBody("ANNA", 11)), 201) })
	all.Go(func() { s.must(s.post(s.v1, "/debits", "key-v1-lost", payBody("LOST-v1", 11)), 201) })
	// One key by many tills at once, on two replicas.
	for i := range 8 {
		all.Go(func() {
			s.ask([]*process{s.a, s.b}[i%2], history.Request{Till: fmt.Sprint(10 + i), Method: "POST", Path: "/debits", Key: "key-contended", Sent: payBody("SLOW-300-anna", 100)})
		})
	}
	all.Wait()
	s.must(s.post(s.b, "/debits", "key-contended", payBody("SLOW-300-anna", 100)), 201)
	s.must(s.post(s.b, "/debits", "key-approved", payBody("ANNA", 1250)), 201)
	s.must(s.post(s.b, "/debits", "key-approved", payBody("ANNA", 1251)), 422)
	s.must(s.post(s.b, "/debits", "key-late", payBody("LATE-1500-anna", 1250)), 424)
	s.must(s.ask(s.a, history.Request{Method: "POST", Path: "/debits", Key: "key-no-time", Deadline: "600", Sent: payBody("ANNA", 10)}), 424)
	s.must(s.post(s.a, "/debits", "", payBody("ANNA", 10)), 400)
	s.must(s.post(s.a, "/debits", "key-invalid", `{"account": "ANNA"}`), 400)
	s.must(s.get(s.a, "/payments/by-key/debit/key-approved"), 200)
	s.must(s.get(s.a, "/payments/by-key/debit/key-of-nobody"), 404)
	s.must(s.get(s.a, "/payments/"+uuid.Nil.String()), 404)

	// The wallet books also what is about no reference.
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.sim.URL()+"/nothing", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
}

// gate: one request takes the only place, others are refused; one of them comes again.
func (s *stageOf) gate() {
	var all sync.WaitGroup
	all.Go(func() { s.post(s.small, "/debits", "key-in-the-place", payBody("SLOW-700-berta", 10)) })
	s.awaitArrival("SLOW-700-berta")
	s.must(s.post(s.small, "/debits", "key-refused", payBody("ANNA", 10)), 503)
	s.must(s.post(s.small, "/debits", "key-refused-first", payBody("ANNA", 20)), 503)
	all.Wait()
	s.must(s.post(s.a, "/debits", "key-refused-first", payBody("ANNA", 20)), 201)
}

// killed: a replica dies while its wallet call is under way.
func (s *stageOf) killed() {
	var all sync.WaitGroup
	all.Go(func() { s.post(s.victim, "/debits", "key-killed", payBody("SLOW-5000-carol", 30)) })
	s.awaitArrival("SLOW-5000-carol")
	calm, err := s.log.Disturb("kill -9")
	if err != nil {
		s.t.Error(err)
	}
	s.victim.kill()
	all.Wait()
	if err := calm(); err != nil {
		s.t.Error(err)
	}
	s.post(s.victim, "/debits", "key-to-nobody", payBody("ANNA", 10)) // refused a connection
}

func cancelOf(operation, key string) string {
	return "/payments/by-key/" + operation + "/" + key + "/cancel"
}

// cancels by key, of whatever the key is.
func (s *stageOf) cancels() {
	s.must(s.post(s.a, cancelOf("debit", "key-never-seen"), "", ""), 200)
	s.must(s.post(s.b, "/debits", "key-never-seen", payBody("ANNA", 10)), 402)
	s.must(s.post(s.a, cancelOf("debit", "key-shown"), "", payBody("ANNA", 10)), 200)
	s.must(s.post(s.a, "/debits", "key-cancelled", payBody("ANNA", 500)), 201)
	cancelled := s.must(s.post(s.b, cancelOf("debit", "key-cancelled"), "", ""), 200)
	s.must(s.post(s.b, "/debits", "key-cancelled", payBody("ANNA", 500)), 409)
	s.must(s.post(s.b, cancelOf("debit", "key-approved"), "", payBody("ANNA", 1)), 422)
	s.must(s.post(s.b, cancelOf("debit", "key-poor"), "", ""), 200)
	s.must(s.post(s.a, "/holds", "key-hold-cancelled", payBody("ANNA", 500)), 201)
	s.must(s.post(s.a, cancelOf("hold", "key-hold-cancelled"), "", ""), 200)

	var all sync.WaitGroup
	all.Go(func() { s.post(s.a, "/debits", "key-overtaken", payBody("SLOW-600-dora", 10)) })
	s.awaitArrival("SLOW-600-dora")
	s.must(s.post(s.b, "/debits", "key-overtaken", payBody("SLOW-600-dora", 10)), 409)
	s.must(s.get(s.b, "/payments/by-key/debit/key-overtaken"), 404)
	s.must(s.post(s.b, cancelOf("debit", "key-overtaken"), "", ""), 200)
	all.Wait()
	s.awaitEnd(s.b, cancelled.body.Reversal, "SUCCEEDED")

	// After a refund of all of it, or of a part.
	for key, back := range map[string]int{"key-refunded-and-cancelled": 100, "key-part-refunded": 30} {
		id := s.must(s.post(s.a, "/debits", key, payBody("EMIL", 100)), 201).body.ID
		credit := s.must(s.post(s.a, "/credits", key, creditBody("EMIL", back, "debitId", id)), 202)
		s.awaitEnd(s.a, credit.body.ID, "SUCCEEDED")
		undone := s.must(s.post(s.a, cancelOf("debit", key), "", ""), 200)
		s.awaitEnd(s.a, undone.body.Reversal, "SUCCEEDED")
	}
}

func creditBody(account string, amount int, of, id string) string {
	return fmt.Sprintf(`{"account": %q, "amount": %d, "currency": "EUR", %q: %q}`, account, amount, of, id)
}

// followUps: credits that go through, at once or after a while, and that do not.
func (s *stageOf) followUps() {
	paid := s.must(s.post(s.a, "/debits", "key-to-refund", payBody("FLAKY", 900)), 201).body.ID
	sent := fmt.Sprintf(`{"account": "FLAKY", "amount": 400, "currency": "EUR", "debitId": %q, "reference": "r", "metadata": {"till": "3"}}`, paid)
	refund := s.must(s.post(s.a, "/credits", "key-refund", sent), 202)
	s.must(s.post(s.b, "/credits", "key-refund", sent), 202)
	s.must(s.post(s.b, "/credits", "key-too-much", creditBody("FLAKY", 501, "debitId", paid)), 422)
	s.must(s.get(s.b, "/operations/by-key/credit/key-of-nobody"), 404)
	s.must(s.post(s.a, "/credits", "key-payout", `{"account": "ANNA", "amount": 5, "currency": "EUR"}`), 202)
	closed := s.must(s.post(s.a, "/credits", "key-no-payout", `{"account": "CLOSED", "amount": 5, "currency": "EUR"}`), 202)
	odd := s.must(s.post(s.a, "/credits", "key-odd", `{"account": "ODD", "amount": 5, "currency": "EUR"}`), 202)
	s.awaitEnd(s.b, refund.body.ID, "SUCCEEDED")
	s.awaitEnd(s.b, closed.body.ID, "REJECTED")
	s.awaitEnd(s.b, odd.body.ID, "REJECTED")
	s.must(s.get(s.b, "/payments/"+paid), 200)
}

// endsOfHolds: captures and releases, and what comes after them.
func (s *stageOf) endsOfHolds() {
	held := s.must(s.get(s.a, "/payments/by-key/hold/key-held"), 200).body.ID
	taken := s.must(s.post(s.a, "/holds/"+held+"/capture", "key-capture", `{"amount": 1000}`), 202)
	s.must(s.post(s.b, "/holds/"+held+"/release", "key-too-late", ""), 409)
	s.must(s.post(s.b, cancelOf("hold", "key-held"), "", ""), 409)
	s.awaitEnd(s.b, taken.body.ID, "SUCCEEDED")
	back := s.must(s.post(s.b, "/credits", "key-refund-of-hold", creditBody("ANNA", 300, "holdId", held)), 202)
	s.awaitEnd(s.b, back.body.ID, "SUCCEEDED")

	freed := s.must(s.post(s.a, "/holds", "key-to-release", payBody("ANNA", 60)), 201).body.ID
	release := s.must(s.post(s.a, "/holds/"+freed+"/release", "key-release", ""), 202)
	s.awaitEnd(s.b, release.body.ID, "SUCCEEDED")
	both := s.must(s.post(s.a, "/holds", "key-released-and-cancelled", payBody("ANNA", 60)), 201).body.ID
	s.must(s.post(s.a, "/holds/"+both+"/release", "key-release-too", ""), 202)
	s.must(s.post(s.b, cancelOf("hold", "key-released-and-cancelled"), "", ""), 200)

	refused := s.must(s.post(s.a, "/holds", "key-not-captured", payBody("NOCAPTURE", 60)), 201).body.ID
	capture := s.must(s.post(s.a, "/holds/"+refused+"/capture", "key-no-capture", ""), 202)
	s.awaitEnd(s.b, capture.body.ID, "REJECTED")
	s.must(s.post(s.a, "/holds/"+refused+"/release", "key-release-after-all", ""), 202)
	s.must(s.post(s.a, "/holds", "key-still-held", payBody("ANNA", 9)), 201)
}

// people: what is parked is settled as somebody has found it, or given back to the queue.
func (s *stageOf) people() {
	stuck := s.must(s.post(s.a, "/credits", "key-stuck", `{"account": "STUCK", "amount": 5, "currency": "EUR"}`), 202).body.ID
	s.operate("settle", "--applied", s.parked("key-by-hand"))
	s.operate("settle", "--not-applied", s.parked("key-forgiven"))
	s.operate("redrive", s.parked("key-redriven"))
	s.awaitEnd(s.a, stuck, "PARKED")
	s.operate("settle", "--not-applied", stuck)
}

// parked waits until the reversal of a debit is parked, and gives its id.
func (s *stageOf) parked(key string) (id string) {
	s.await("a parked reversal of "+key, func() bool {
		for _, f := range s.get(s.a, "/payments/by-key/debit/"+key).body.FollowUps {
			if f.state() == "PARKED" {
				id = f.ID
			}
		}
		return id != ""
	})
	return id
}

func (s *stageOf) operate(args ...string) {
	cmd := exec.Command(s.binary, append(append([]string{"ops"}, args...), "--operator=ada", "--reason=as the test has it")...)
	cmd.Env = append(os.Environ(), "SAFELEDGER_DATABASE_URL="+s.db.URL)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Errorf("ops %v: %v\n%s", args, err, out)
	}
}

func wantClean(t *testing.T, report *Report) {
	t.Helper()
	for _, v := range report.Violations {
		t.Errorf("I%d %s: %s: %s\n%s", v.Clause.Invariant(), v.Clause.Name(), v.Key, v.Text, historyOf(v))
	}
}

func historyOf(v Violation) string {
	var b strings.Builder
	for _, m := range v.History {
		fmt.Fprintf(&b, "  %s %-10s %s\n", m.At.Format("15:04:05.000000"), m.Who, m.Text)
	}
	return b.String()
}
