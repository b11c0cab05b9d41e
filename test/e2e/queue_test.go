package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/crashpoint"
	"github.com/safeledger/safeledger/internal/walletsim"
)

// hurried is a queue whose pauses a test can wait for: the shortest call, and the
// lease that the rules then allow.
var hurried = []string{
	"BUDGET_WORKER_CALL=400ms", "QUEUE_LEASE=6s", "QUEUE_BACKOFF_MIN=50ms", "QUEUE_BACKOFF_MAX=500ms",
	"QUEUE_LOOKUPS_PER_SECOND=1000", "DRAIN_DELAY=0s", "RECOVERY_GRACE=300ms",
}

// post asks r for anything else than a debit.
func (r *replica) post(path, key, body string) (reply, error) {
	req, err := http.NewRequestWithContext(r.w.t.Context(), http.MethodPost, r.http+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.GetBody = nil
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	return r.do(req)
}

func (r *replica) mustPost(path, key, body string, want int) reply {
	r.w.t.Helper()
	answer, err := r.post(path, key, body)
	if err != nil {
		r.w.t.Fatal(err)
	}
	if answer.status != want {
		r.w.t.Fatalf("POST %s: %d %s, want %d", path, answer.status, answer.body, want)
	}
	return answer
}

// awaitEnd polls an operation, as a till would, until it is not PENDING.
func (r *replica) awaitEnd(id string) reply {
	r.w.t.Helper()
	deadline := time.Now().Add(2 * patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		answer, err := r.get("/operations/" + id)
		if err != nil {
			r.w.t.Fatal(err)
		}
		if answer.status != http.StatusOK {
			r.w.t.Fatalf("GET /operations/%s: %d %s", id, answer.status, answer.body)
		}
		if answer.member("status") != "PENDING" {
			return answer
		}
		if time.Now().After(deadline) {
			r.w.t.Fatalf("still PENDING: %s", answer.body)
		}
		<-tick.C
	}
}

// effects counts what the wallet's book has by reference: requests that mutate,
// and those that were applied; and the keys that they carried.
func (w *world) effects() (arrived, applied map[string]int, foreignKeys int) {
	arrived, applied = map[string]int{}, map[string]int{}
	for _, e := range w.wallet.Book() {
		if e.Request == nil || e.Operation == walletsim.Lookup {
			continue
		}
		switch e.Event {
		case walletsim.Arrived:
			arrived[e.Reference]++
			if e.IdempotencyKey != e.Reference {
				foreignKeys++
			}
		case walletsim.Applied:
			applied[e.Reference]++
		}
	}
	return arrived, applied, foreignKeys
}

// Promise 5: ten thousand follow-ups over three worker processes, with a wallet
// that refuses, hangs, loses answers and goes away for a while: each is applied
// exactly once, no request went out that is not counted, and every attempt at one
// carried the same key. A customer who gets his refund twice, or never, is what this
// is against.
func TestTenThousandFollowUpsAreEachAppliedOnce(t *testing.T) {
	t.Parallel()
	n := 10_000
	if testing.Short() {
		n = 1_000
	}
	w := newWorld(t)
	w.wallet.SetBalance("ANNA", "EUR", 0)
	api := w.start(plain, append(hurried, "GATE_MAX_IN_FLIGHT=512")...)
	for range 2 {
		w.startWorker(plain, hurried...)
	}
	for _, r := range []walletsim.Rule{
		{Name: "lost", Match: walletsim.Match{Operation: walletsim.Credit, Probability: 0.08}, Fault: walletsim.LoseAnswer(walletsim.RST)},
		{Name: "down", Match: walletsim.Match{Operation: walletsim.Credit, Probability: 0.08}, Fault: walletsim.Down()},
		{Name: "gateway", Match: walletsim.Match{Operation: walletsim.Credit, Probability: 0.04}, Fault: walletsim.Gateway(http.StatusBadGateway)},
		{Name: "hang", Match: walletsim.Match{Operation: walletsim.Credit, Probability: 0.01}, Fault: walletsim.Stall()},
		{Name: "late", Match: walletsim.Match{Operation: walletsim.Credit, Probability: 0.01}, Fault: walletsim.Late(time.Second)},
	} {
		w.rule(r)
	}

	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				answer, err := api.post("/credits", fmt.Sprintf("key-of-%d", i), `{"account": "ANNA", "amount": 1, "currency": "EUR"}`)
				// A disk that stands still for seconds is answered as unknown, and asked for
				// again, as tills do.
				for end := time.Now().Add(patience); err == nil && answer.status == http.StatusServiceUnavailable && time.Now().Before(end); {
					answer, err = api.post("/credits", fmt.Sprintf("key-of-%d", i), `{"account": "ANNA", "amount": 1, "currency": "EUR"}`)
				}
				if err != nil || answer.status != http.StatusAccepted {
					t.Errorf("credit %d: %d %s, %v", i, answer.status, answer.body, err)
					return
				}
				if i == int64(n/2) { // and in the middle of it the wallet goes away
					w.wallet.Refuse()
					time.AfterFunc(2*time.Second, func() { _ = w.wallet.Reopen() })
				}
			}
		})
	}
	all.Wait()
	w.awaitRow(`SELECT count(*) FROM operations WHERE state = 'PENDING'`, 0)
	if err := w.wallet.WaitQuiet(t.Context()); err != nil {
		t.Fatal(err)
	}

	var succeeded, attempts, recorded int
	w.query(`SELECT count(*) FILTER (WHERE state = 'SUCCEEDED'), sum(attempts) FROM operations`, nil, &succeeded, &attempts)
	w.query(`SELECT count(*) FROM wallet_calls WHERE call = 'credit' AND reason NOT IN ('connect_failed', 'connect_timeout')`, nil, &recorded)
	if succeeded != n {
		t.Errorf("%d of %d succeeded", succeeded, n)
	}
	arrived, applied, foreignKeys := w.effects()
	total := 0
	for reference, count := range arrived {
		total += count
		if applied[reference] != 1 {
			t.Errorf("%s was applied %d times", reference, applied[reference])
		}
	}
	if len(applied) != n || foreignKeys != 0 {
		t.Errorf("%d references were applied, want %d; %d requests carried another key", len(applied), n, foreignKeys)
	}
	// What was begun to be written to a connection that the wallet was closing counts
	// and is recorded, though it never arrived: nobody here can know that it did not.
	var lost int
	w.query(`SELECT count(*) FROM wallet_calls WHERE call = 'credit' AND reason = 'connection_lost'`, nil, &lost)
	if recorded != attempts || total > recorded || total < recorded-lost {
		t.Errorf("%d requests on the wire, %d recorded (%d of them lost), %d attempts counted", total, recorded, lost, attempts)
	}
	if got := w.wallet.Balance("ANNA", "EUR"); got != int64(n) {
		t.Errorf("the account got %d, want %d", got, n)
	}
	for _, r := range w.wallet.Rules() {
		if r.Hits == 0 {
			t.Errorf("the fault %q never struck: this run has not tested it", r.Name)
		}
	}
	t.Logf("%d follow-ups, %d requests on the wire", n, total)
}

// D2, B35: a worker that is killed at any point of an attempt is followed by another,
// which begins with a lookup; the wallet has the effect once, whatever was lost.
func TestAKilledWorkerIsFollowedByAnotherAndTheEffectIsOne(t *testing.T) {
	t.Parallel()
	for _, point := range []string{
		crashpoint.WorkerAfterLease, crashpoint.WorkerAfterSend, crashpoint.WorkerBeforeSettle, crashpoint.WorkerAfterSettle,
	} {
		t.Run(point, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			api := w.startRole(plain, "api", hurried...)
			victim := w.startRole(binary, "worker", append(hurried, "CRASH_AT="+point)...)
			id := api.mustPost("/credits", "key-of-the-credit", `{"account": "ANNA", "amount": 100, "currency": "EUR"}`, http.StatusAccepted).member("id")
			victim.awaitExit()

			w.startWorker(plain, hurried...)
			if end := api.awaitEnd(id); end.member("status") != "SUCCEEDED" {
				t.Errorf("it ended %s", end.body)
			}
			arrived, applied, foreignKeys := w.effects()
			for reference, count := range applied {
				if count != 1 || foreignKeys != 0 {
					t.Errorf("%s: asked %d times, applied %d, %d foreign keys", reference, arrived[reference], count, foreignKeys)
				}
			}
			if len(applied) != 1 {
				t.Errorf("%d references were applied, want 1", len(applied))
			}
			if point == crashpoint.WorkerAfterSettle {
				return
			}
			var first string
			w.query(`SELECT call FROM wallet_calls ORDER BY at, n LIMIT 1`, nil, &first)
			if first != "lookup" {
				t.Errorf("the follower began with a %s, not with a lookup", first)
			}
		})
	}
}

// D1: a worker that was stopped past its lease comes back, finds its work taken over
// and changes nothing; the book and the ledger agree.
func TestAWorkerThatWasStoppedPastItsLeaseChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Credit, Attempt: 1}, Fault: walletsim.Fault{DelayBefore: 300 * time.Millisecond}})
	api := w.startRole(plain, "api", hurried...)
	stopped := w.startRole(plain, "worker", hurried...)
	id := api.mustPost("/credits", "key-of-the-credit", `{"account": "ANNA", "amount": 100, "currency": "EUR"}`, http.StatusAccepted).member("id")
	w.awaitBooked(func(e walletsim.Entry) bool { return e.Event == walletsim.Arrived })
	stopped.signal(syscall.SIGSTOP)
	w.startWorker(plain, hurried...)
	if end := api.awaitEnd(id); end.member("status") != "SUCCEEDED" {
		t.Errorf("it ended %s", end.body)
	}
	stopped.signal(syscall.SIGCONT)
	stopped.log.await(t, stopped.exited, "taken over meanwhile")
	metrics, err := http.Get(stopped.admin + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer metrics.Body.Close()
	if text := readAll(t, metrics.Body); !strings.Contains(text, `safeledger_queue_fenced_writes_total{kind="credit"} 1`) {
		t.Error("the fenced write is not counted")
	}
	if _, applied, _ := w.effects(); len(applied) != 1 {
		t.Errorf("%d references were applied, want 1", len(applied))
	}
	if got := api.awaitEnd(id); got.member("status") != "SUCCEEDED" {
		t.Errorf("afterwards it is %s", got.body)
	}
}

// Promise 4: every payment that was declined, or cancelled, with money in doubt ends
// with none moved, or parked in plain sight with the reason.
func TestMoneyInDoubtComesBackOrIsParked(t *testing.T) {
	t.Parallel()
	const opening = 100_000
	lookups := func(count int64, f walletsim.Fault) walletsim.Rule {
		return walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Lookup, Count: count}, Fault: f}
	}
	lose := walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.LoseAnswer(walletsim.FIN)}
	html := "<html>not here</html>"
	for name, c := range map[string]struct {
		rules  []walletsim.Rule
		during func(*world)
		hold   bool
		v1     bool
		want   string // the reversal's end
	}{
		"a hold: applied, answer lost, lookups fail for a while": {
			rules: []walletsim.Rule{
				{Match: walletsim.Match{Operation: walletsim.Hold}, Fault: walletsim.LoseAnswer(walletsim.FIN)},
				lookups(3, walletsim.Fault{Status: new(http.StatusInternalServerError), Body: new("")}),
			},
			hold: true, want: "SUCCEEDED",
		},
		"a hold: never applied": {
			rules: []walletsim.Rule{{Match: walletsim.Match{Operation: walletsim.Hold}, Fault: walletsim.Stall()}},
			hold:  true, want: "NOT_APPLIED",
		},
		"a hold: applied late": {
			rules: []walletsim.Rule{{Match: walletsim.Match{Operation: walletsim.Hold}, Fault: walletsim.Late(2 * time.Second)}},
			hold:  true, want: "SUCCEEDED",
		},
		"v1: applied, answer lost, lookups fail for a while": {
			rules: []walletsim.Rule{lose, lookups(3, walletsim.Fault{Status: new(http.StatusInternalServerError), Body: new("")})},
			v1:    true, want: "SUCCEEDED",
		},
		"v1: applied after a lookup said not found": {
			rules: []walletsim.Rule{{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.Late(2 * time.Second)}},
			v1:    true, want: "SUCCEEDED",
		},
		"applied, answer lost, lookups fail for a while": {
			rules: []walletsim.Rule{lose, lookups(3, walletsim.Fault{Status: new(http.StatusInternalServerError), Body: new("")})},
			want:  "SUCCEEDED",
		},
		"never applied": {
			rules: []walletsim.Rule{{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.Stall()}},
			want:  "NOT_APPLIED",
		},
		"applied after a lookup said not found": {
			rules: []walletsim.Rule{{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.Late(2 * time.Second)}},
			want:  "SUCCEEDED",
		},
		"lookup 403 for a while": {
			rules: []walletsim.Rule{lose, lookups(3, walletsim.Fault{Status: new(http.StatusForbidden), Body: new(`{"code":"FORBIDDEN"}`)})},
			want:  "SUCCEEDED",
		},
		"lookup HTML 404 for a while": {
			rules: []walletsim.Rule{lose, lookups(3, walletsim.Fault{Status: new(http.StatusNotFound), Body: &html, ContentType: "text/html"})},
			want:  "SUCCEEDED",
		},
		"PENDING for a while, then applied": {
			rules: []walletsim.Rule{{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.Fault{Apply: walletsim.Pending, After: 2 * time.Second}}},
			want:  "SUCCEEDED",
		},
		"PENDING for a while, then refused": {
			rules: []walletsim.Rule{{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.Fault{Apply: walletsim.Pending, After: 2 * time.Second, Code: "ACCOUNT_LOCKED"}}},
			want:  "NOT_APPLIED",
		},
		"a gateway's 502 after it was applied": {
			rules: []walletsim.Rule{{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.Gateway(http.StatusBadGateway)}},
			want:  "SUCCEEDED",
		},
		"the wallet is away for longer than the settle window": {
			rules: []walletsim.Rule{lose, lookups(1, walletsim.Stall())},
			during: func(w *world) {
				w.wallet.Refuse()
				time.AfterFunc(6*time.Second, func() { _ = w.wallet.Reopen() })
			},
			want: "SUCCEEDED",
		},
		"no evidence for ever": {
			rules: []walletsim.Rule{lose, lookups(0, walletsim.Fault{Status: new(http.StatusForbidden), Body: new(`{"code":"FORBIDDEN"}`)})},
			want:  "PARKED",
		},
		"the reversal is refused": {
			rules: []walletsim.Rule{
				lose, lookups(1, walletsim.Stall()),
				{Match: walletsim.Match{Operation: walletsim.Credit}, Fault: walletsim.Fault{Apply: walletsim.Refuse, Code: "ACCOUNT_CLOSED"}},
			},
			want: "PARKED",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.wallet.SetBalance("ANNA", "EUR", opening)
			for _, r := range c.rules {
				w.rule(r)
			}
			env := append([]string{"QUEUE_SETTLE_WINDOW=4s", "QUEUE_PARK_AFTER=12s", "QUEUE_LATE_CHECKS=1s,2s"}, hurried...)
			path, operation := "/debits", "debit"
			if c.hold {
				path, operation = "/holds", "hold"
			}
			if c.v1 {
				env = append(env, "WALLET_VERSION=v1")
			}
			r := w.start(plain, env...)
			r.mustPost(path, "key-of-the-payment", `{"account": "ANNA", "amount": 1250, "currency": "EUR"}`, http.StatusFailedDependency)
			if c.during != nil {
				c.during(w)
			}
			var reversal string
			w.query(`SELECT o.id::text FROM operations AS o JOIN payments AS p ON p.id = o.payment_id WHERE o.kind = 'reversal' AND p.operation = $1`,
				[]any{operation}, &reversal)
			end := r.awaitEnd(reversal)
			if end.member("status") != c.want {
				t.Errorf("the reversal ended %s, want %s", end.body, c.want)
			}
			if err := w.wallet.WaitQuiet(t.Context()); err != nil && c.want != "NOT_APPLIED" {
				t.Fatal(err)
			}
			if c.want == "PARKED" {
				var reason string
				w.query(`SELECT park_reason FROM operations`, nil, &reason)
				if reason == "" {
					t.Error("parked without a reason")
				}
				return
			}
			if got, held := w.wallet.Balance("ANNA", "EUR"), w.wallet.Held("ANNA", "EUR"); got != opening || held != 0 {
				t.Errorf("the customer has %d and %d held, had %d", got, held, opening)
			}
		})
	}
}

// Cancel by key: an approval is undone, less what was already given back; a hold
// that the wallet let go meanwhile counts as undone.
func TestACancelledApprovalGivesBackWhatIsLeft(t *testing.T) {
	t.Parallel()
	const opening = 100_000
	w := newWorld(t)
	w.wallet.SetBalance("ANNA", "EUR", opening)
	w.wallet.SetBalance("BERT", "EUR", opening)
	r := w.start(plain, hurried...)

	debit := r.mustDebit("key-of-the-debit", "ANNA")
	credit := r.mustPost("/credits", "key-of-the-credit", fmt.Sprintf(`{"account": "ANNA", "amount": 500, "currency": "EUR", "debitId": %q}`, debit.member("id")), http.StatusAccepted)
	if end := r.awaitEnd(credit.member("id")); end.member("status") != "SUCCEEDED" {
		t.Fatalf("the credit: %s", end.body)
	}
	first := r.mustPost("/payments/by-key/debit/key-of-the-debit/cancel", "", "", http.StatusOK)
	if end := r.awaitEnd(first.member("reversal")); end.member("status") != "SUCCEEDED" {
		t.Errorf("the reversal: %s", end.body)
	}
	if again := r.mustPost("/payments/by-key/debit/key-of-the-debit/cancel", "", "", http.StatusOK); again.body != first.body {
		t.Errorf("a second cancel answers differently:\n%s\n%s", first.body, again.body)
	}
	if replay := r.mustDebit("key-of-the-debit", "ANNA"); replay.status != http.StatusConflict || replay.member("code") != "PAYMENT_CANCELLED" {
		t.Errorf("a replay of the cancelled approval: %d %s", replay.status, replay.body)
	}
	if got := w.wallet.Balance("ANNA", "EUR"); got != opening {
		t.Errorf("the customer has %d, had %d", got, opening)
	}

	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Release}, Fault: walletsim.Fault{Apply: walletsim.Refuse, Code: "HOLD_NOT_ACTIVE"}})
	r.mustPost("/holds", "key-of-the-hold", `{"account": "BERT", "amount": 1000, "currency": "EUR"}`, http.StatusCreated)
	cancel := r.mustPost("/payments/by-key/hold/key-of-the-hold/cancel", "", "", http.StatusOK)
	if end := r.awaitEnd(cancel.member("reversal")); end.member("status") != "SUCCEEDED" {
		t.Errorf("the reversal of a hold that is not active any more: %s", end.body)
	}
}

// D15: captures and releases that arrive together on one hold: one is accepted, all
// others hear why not, and the wallet sees one.
func TestOneOfFiftyEndsOfAHoldIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	replicas := []*replica{w.start(plain, hurried...), w.start(plain, hurried...)}
	hold := replicas[0].mustPost("/holds", "key-of-the-hold", `{"account": "ANNA", "amount": 1000, "currency": "EUR"}`, http.StatusCreated).member("id")
	var accepted, refused atomic.Int64
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			verb := []string{"capture", "release"}[i%2]
			answer, err := replicas[i%4/2].post("/holds/"+hold+"/"+verb, fmt.Sprintf("key-of-%d", i), `{}`)
			switch {
			case err != nil:
				t.Error(err)
			case answer.status == http.StatusAccepted:
				accepted.Add(1)
			case answer.member("code") == "HOLD_ALREADY_CAPTURED", answer.member("code") == "HOLD_NOT_ACTIVE":
				refused.Add(1)
			default:
				t.Errorf("answered %d %s", answer.status, answer.body)
			}
		})
	}
	all.Wait()
	if accepted.Load() != 1 || refused.Load() != 49 {
		t.Errorf("%d accepted and %d refused, want 1 and 49", accepted.Load(), refused.Load())
	}
	w.awaitRow(`SELECT count(*) FROM operations WHERE state = 'PENDING'`, 0)
	if _, applied, _ := w.effects(); len(applied) != 2 { // the hold and its end
		t.Errorf("%d effects in the wallet, want 2", len(applied))
	}
}

// Not found is not proof: a credit whose first send is in doubt and whose second is
// refused keeps what it has reserved until the first cannot land any more. Otherwise
// the till's next refund goes through, the first one lands beside it, and the customer
// has both.
func TestARefusalAfterADoubtDoesNotPayTwice(t *testing.T) {
	t.Parallel()
	const opening = 100_000
	w := newWorld(t)
	w.wallet.SetBalance("ANNA", "EUR", opening)
	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Credit, Attempt: 1, Count: 1}, Fault: walletsim.Late(5 * time.Second)})
	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Credit, Attempt: 2, Count: 1}, Fault: walletsim.Fault{Apply: walletsim.Refuse, Code: "ACCOUNT_LOCKED"}})
	// The second attempt comes after a second or so. It must come before the first lands,
	// and that before the window ends, on a machine that stands still for a while as well.
	r := w.start(plain, append([]string{"QUEUE_SETTLE_WINDOW=9s"}, hurried...)...)
	debit := r.mustDebit("key-of-the-debit", "ANNA").member("id")
	body := fmt.Sprintf(`{"account": "ANNA", "amount": 1250, "currency": "EUR", "debitId": %q}`, debit)
	first := r.mustPost("/credits", "key-of-the-first", body, http.StatusAccepted).member("id")
	w.awaitBooked(func(e walletsim.Entry) bool {
		return e.Event == walletsim.Rejected && e.Request != nil && e.Operation == walletsim.Credit
	})
	if second, err := r.post("/credits", "key-of-the-second", body); err != nil || second.member("code") != "AMOUNT_EXCEEDS_DEBIT" {
		t.Errorf("a second credit while the first may still land: %d %s, %v", second.status, second.body, err)
	}
	if end := r.awaitEnd(first); end.member("status") != "SUCCEEDED" {
		t.Errorf("the first credit, which has landed: %s", end.body)
	}
	if err := w.wallet.WaitQuiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := w.wallet.Balance("ANNA", "EUR"); got != opening {
		t.Errorf("the customer has %d, had %d", got, opening)
	}
}

// A hold that is cancelled by key while its own release is under way has only that to
// undo it: if the wallet refuses, somebody must look, the money is still held.
func TestACancelledHoldWhoseReleaseIsRefusedIsParked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Release, Attempt: 1}, Fault: walletsim.Down()})
	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Release}, Fault: walletsim.Fault{Apply: walletsim.Refuse, Code: "ACCOUNT_LOCKED", DelayBefore: 200 * time.Millisecond}})
	api := w.startRole(plain, "api", hurried...)
	hold := api.mustPost("/holds", "key-of-the-hold", `{"account": "ANNA", "amount": 1000, "currency": "EUR"}`, http.StatusCreated).member("id")
	release := api.mustPost("/holds/"+hold+"/release", "key-of-the-release", "", http.StatusAccepted).member("id")
	cancel := api.mustPost("/payments/by-key/hold/key-of-the-hold/cancel", "", "", http.StatusOK)
	if cancel.member("reversal") != release {
		t.Errorf("undone by %s, want the release", cancel.body)
	}
	w.startWorker(plain, append([]string{"QUEUE_SETTLE_WINDOW=3s"}, hurried...)...)
	if end := api.awaitEnd(release); end.member("status") != "PARKED" {
		t.Errorf("the refused release: %s", end.body)
	}
	if again := api.mustPost("/payments/by-key/hold/key-of-the-hold/cancel", "", "", http.StatusOK); again.body != cancel.body {
		t.Errorf("asked again, the cancel answers differently:\n%s\n%s", cancel.body, again.body)
	}
}

// The crash point that only a reversal passes: it has found what it must undo, and
// dies before it says so. The follower finds it again, and the money is given back once.
func TestAKilledWorkerLosesNoFinding(t *testing.T) {
	t.Parallel()
	const opening = 100_000
	w := newWorld(t)
	w.wallet.SetBalance("ANNA", "EUR", opening)
	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.LoseAnswer(walletsim.FIN)})
	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Lookup, Count: 1}, Fault: walletsim.Stall()})
	api := w.startRole(plain, "api", hurried...)
	api.mustPost("/debits", "key-of-the-debit", `{"account": "ANNA", "amount": 1250, "currency": "EUR"}`, http.StatusFailedDependency)
	victim := w.startRole(binary, "worker", append(hurried, "CRASH_AT="+crashpoint.WorkerAfterLookup)...)
	victim.awaitExit()
	w.startWorker(plain, hurried...)
	w.awaitRow(`SELECT count(*) FROM operations WHERE kind = 'reversal' AND state = 'SUCCEEDED'`, 1)
	if got := w.wallet.Balance("ANNA", "EUR"); got != opening {
		t.Errorf("the customer has %d, had %d", got, opening)
	}
}
