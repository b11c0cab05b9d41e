// Package refusals holds the service to the third seed, "public HTTP retry
// semantics": 503 with Retry-After is a proof that nothing was begun, and no other
// answer looks like it, whatever fails at the same time.
package refusals

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/api/apitest"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/telemetry"
)

// The callers: one that is bounded like all, and what they are let in with.
var tokens = []string{"token-of-store-1", "token-of-store-2", "token-of-store-3"}

// wallet books what it is asked for, and fails in every class.
type wallet struct {
	healthy *atomic.Bool

	mu    sync.Mutex
	sends map[payment.Reference]int
}

func (w *wallet) Enter() (func(), bool) { return func() {}, w.healthy.Load() || rand.IntN(20) > 0 }

func (w *wallet) Send(_ context.Context, in payment.Instruction) payment.Outcome {
	w.mu.Lock()
	w.sends[in.Reference]++
	w.mu.Unlock()
	yield(50) // let others come in meanwhile, however few the processors
	if w.healthy.Load() {
		return payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: "w", Status: 201}
	}
	switch rand.IntN(6) {
	case 0:
		return payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonVerdict, Verdict: true, Code: "INSUFFICIENT_FUNDS", Status: 409}
	case 1:
		return payment.Outcome{Class: payment.Unavailable, Reason: payment.ReasonStatus503, Status: 503}
	case 2:
		return payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonTimeout}
	case 3:
		panic("a bug in a wallet call")
	}
	return payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: "w", Status: 201}
}

func (w *wallet) Lookup(context.Context, payment.Instruction) payment.Evidence {
	return payment.Evidence{Finding: payment.NotFound, Reason: payment.ReasonVerdict, Status: 404}
}

// witness sees who reaches the decision.
type witness struct {
	next    *decision.Decider
	reached sync.Map // payment.Key
}

func (w *witness) Decide(ctx context.Context, req payment.Request, d budget.Deadline) (decision.Result, error) {
	w.reached.Store(req.Key, true)
	return w.next.Decide(ctx, req, d)
}

// Issue and seed, verification 1 and 2: over every reason of the gate and every
// failure behind it, no answer with 503 and Retry-After came from a request that
// reached a handler, has a row, or reached the wallet; no other 5xx carries
// Retry-After; and the refused request, sent again, has exactly one effect. A
// client that trusts the pair replays: one violation is somebody who pays twice.
func TestA503WithRetryAfterIsAProofOverAHundredThousandAnswers(t *testing.T) {
	t.Parallel()
	const tills, answers = 64, 100_000
	var healthy atomic.Bool
	fault := func(_ context.Context, step memory.Step) error {
		if !healthy.Load() && step != memory.Read && rand.IntN(25) == 0 {
			return errors.New("the connection to the database was lost")
		}
		return nil
	}
	ledger := memory.New(memory.Config{Horizon: time.Hour, Before: fault, After: fault})
	w := &wallet{healthy: &healthy, sends: map[payment.Reference]int{}}
	seen := &witness{next: decision.New(ledger, w, decision.Limits{Call: 800 * time.Millisecond, Lookup: 300 * time.Millisecond, MinToSend: 50 * time.Millisecond})}
	metrics := telemetry.New(prometheus.NewRegistry(), "test", "test")
	written := &handled{begun: map[string]int{}, refused: map[string]int{}}
	log := telemetry.NewLogger(written, slog.LevelDebug)
	newGate := func() *gate.Gate {
		return gate.New(gate.Config{MaxInFlight: tills / 2, RetryAfter: time.Second, Observer: metrics, Log: log})
	}
	known := load(t)
	behind := func(g *gate.Gate) http.Handler {
		return telemetry.Traced(g.Handler(api.New(api.Config{
			Decider: seen, Ledger: ledger, FollowUps: ledger, Callers: known, PerCaller: g.PerCaller(8),
			Budget:            budget.Policy{Server: 2400 * time.Millisecond, NetworkReserve: 600 * time.Millisecond},
			RetryAfterDecline: 2 * time.Second, RetryAfterBusy: time.Second, MaxAmount: payment.MaxAmountMinor, HoldsSupported: true,
			ReadTimeout: time.Second, Log: log, Observer: metrics,
		})))
	}

	// The replica in front of the tills: it drains now and then and is replaced, its
	// database comes and goes.
	var front atomic.Pointer[http.Handler]
	replace := func() *gate.Gate {
		g := newGate()
		h := behind(g)
		front.Store(&h)
		return g
	}
	var turns sync.Mutex // guards g
	g := replace()
	// turn changes what the gate is told, by how far the run has come and not by the
	// clock, so that every reason has its share on any machine.
	turn := func(n int64) {
		turns.Lock()
		defer turns.Unlock()
		switch n / 500 % 5 {
		case 1:
			g.SetDatabaseReachable(false)
		case 2:
			g.SetDatabaseReachable(true)
		case 3:
			g.Drain()
		case 4:
			g = replace()
		}
	}

	var (
		left    atomic.Int64
		reasons sync.Map // code → *atomic.Int64
		mu      sync.Mutex
		refused []payment.Key
		all     sync.WaitGroup
	)
	left.Store(answers)
	for till := range tills {
		all.Go(func() {
			for n := left.Add(-1); n >= 0; n = left.Add(-1) {
				if done := answers - n; done%500 == 0 {
					turn(done)
				}
				key := payment.Key(uuid.NewString())
				answer := ask(*front.Load(), key, tokens[till%len(tokens)])
				for _, broken := range apitest.Rules(http.MethodPost, answer.Result(), answer.Body.Bytes()) {
					t.Errorf("%d: %s", answer.Code, broken)
				}
				count, _ := reasons.LoadOrStore(code(answer), new(atomic.Int64))
				count.(*atomic.Int64).Add(1)
				proof := answer.Code == http.StatusServiceUnavailable && answer.Header().Get("Retry-After") != ""
				if got, want := written.of(key), (lines{refused: proof, begun: !proof}); got != want {
					t.Errorf("%d %s: the log says %+v, want %+v", answer.Code, code(answer), got, want)
				}
				if !proof {
					continue
				}
				if _, reached := seen.reached.Load(key); reached {
					t.Errorf("%s after the decision was reached", code(answer))
				}
				mu.Lock()
				refused = append(refused, key)
				mu.Unlock()
				yield(100) // a till that was refused waits
			}
		})
	}
	all.Wait()

	for _, want := range []string{"", "DRAINING", "OVERLOADED", "NOT_READY", "OUTCOME_UNKNOWN", "INTERNAL", "WALLET_TIMEOUT", "WALLET_UNAVAILABLE", "INSUFFICIENT_FUNDS"} {
		if _, hit := reasons.Load(want); !hit {
			t.Errorf("%q was never answered: this run has not tested it", want)
		}
	}
	healthy.Store(true)
	replace()
	sends := func(key payment.Key) int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.sends[request(key, caller(key)).DeriveReference()]
	}
	for _, key := range refused {
		if _, found, err := ledger.PaymentByKey(t.Context(), caller(key), payment.Debit, key); found || err != nil {
			t.Errorf("a refused request has a row: %v, %v", found, err)
		}
		if n := sends(key); n != 0 {
			t.Errorf("a refused request reached the wallet %d times", n)
		}
		first, again := ask(*front.Load(), key, tokenOf(key)), ask(*front.Load(), key, tokenOf(key))
		if first.Code != http.StatusCreated || again.Code != http.StatusCreated || sends(key) != 1 {
			t.Errorf("sent again: %d, then %d, with %d effects", first.Code, again.Code, sends(key))
		}
	}
	reasons.Range(func(reason, n any) bool {
		t.Logf("%-20q %d", reason, n.(*atomic.Int64).Load())
		return true
	})
}

// handled reads the log: which requests were begun and which were refused. Who judges
// a run of real processes has nothing else to tell them apart by.
type handled struct {
	mu             sync.Mutex
	begun, refused map[string]int // by trace
}

// lines is what the log says of one request.
type lines struct{ begun, refused bool }

func (h *handled) Write(line []byte) (int, error) {
	var counted map[string]int
	switch {
	case bytes.Contains(line, []byte(`"msg":"request begun"`)):
		counted = h.begun
	case bytes.Contains(line, []byte(`"msg":"request refused"`)):
		counted = h.refused
	default:
		return len(line), nil
	}
	_, behind, _ := bytes.Cut(line, []byte(`"trace_id":"`))
	id, _, _ := bytes.Cut(behind, []byte(`"`))
	h.mu.Lock()
	defer h.mu.Unlock()
	counted[string(id)]++
	return len(line), nil
}

func (h *handled) of(key payment.Key) lines {
	h.mu.Lock()
	defer h.mu.Unlock()
	return lines{begun: h.begun[trace(key)] == 1, refused: h.refused[trace(key)] == 1}
}

// trace puts each request under a trace of its own.
func trace(key payment.Key) string { return strings.ReplaceAll(string(key), "-", "") }

func yield(most int) {
	for range rand.IntN(most) {
		runtime.Gosched()
	}
}

// Which caller a key was sent by, so that it can be sent again: the till that drew it.
var owners sync.Map // payment.Key → token

func ask(h http.Handler, key payment.Key, token string) *httptest.ResponseRecorder {
	owners.LoadOrStore(key, token)
	r := httptest.NewRequest(http.MethodPost, "/debits", strings.NewReader(`{"account": "ANNA", "amount": 1, "currency": "EUR"}`))
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", string(key))
	r.Header.Set("Traceparent", "00-"+trace(key)+"-00f067aa0ba902b7-01")
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	return answer
}

func tokenOf(key payment.Key) string {
	token, _ := owners.Load(key)
	return token.(string)
}

func caller(key payment.Key) string { return strings.TrimPrefix(tokenOf(key), "token-of-") }

func request(key payment.Key, caller string) payment.Request {
	return payment.Request{
		Caller: caller, Operation: payment.Debit, Key: key, Account: "ANNA", Amount: payment.Money{AmountMinor: 1, Currency: "EUR"},
	}
}

func code(answer *httptest.ResponseRecorder) string {
	_, rest, found := strings.Cut(answer.Body.String(), `"code":"`)
	if !found {
		return ""
	}
	value, _, _ := strings.Cut(rest, `"`)
	return value
}

func load(t *testing.T) *callers.Callers {
	t.Helper()
	var list []string
	for _, token := range tokens {
		list = append(list, fmt.Sprintf(`{"name": %q, "tokenSha256": %q, "scopes": ["till"]}`, strings.TrimPrefix(token, "token-of-"), callers.HashToken(token)))
	}
	path := filepath.Join(t.TempDir(), "callers.json")
	if err := os.WriteFile(path, []byte(`{"callers": [`+strings.Join(list, ",")+`]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	known, err := callers.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return known
}
