// Package bench measures what one decision costs: decisions per second and
// allocations, with a ledger in memory and on PostgreSQL, and the number of
// transactions, which is a promise and not a speed.
package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/internal/telemetry"
	"github.com/safeledger/safeledger/internal/wallet"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const token = "token-of-the-bench"

// store is a ledger of either kind.
type store interface {
	Claim(ctx context.Context, req payment.Request) (payment.Claim, error)
	Decide(ctx context.Context, p payment.Payment, d payment.Decision) (payment.Payment, error)
	PaymentByID(ctx context.Context, caller string, id uuid.UUID) (payment.Payment, bool, error)
	PaymentByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key) (payment.Payment, bool, error)
}

// instant is a wallet that approves without a wire, for what our own code costs.
type instant struct{}

func (instant) Enter() (func(), bool) { return func() {}, true }
func (instant) Send(context.Context, payment.Instruction) payment.Outcome {
	return payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: "w-1", Status: http.StatusCreated}
}

func (instant) Lookup(context.Context, payment.Instruction) payment.Evidence {
	return payment.Evidence{Finding: payment.NotFound}
}

func newHandler(tb testing.TB, s store, lane interface {
	Enter() (func(), bool)
	Send(context.Context, payment.Instruction) payment.Outcome
	Lookup(context.Context, payment.Instruction) payment.Evidence
},
) http.Handler {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "callers.json")
	content := fmt.Sprintf(`{"callers": [{"name": "bench", "tokenSha256": %q, "scopes": ["till"]}]}`, callers.HashToken(token))
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		tb.Fatal(err)
	}
	known, err := callers.Load(path)
	if err != nil {
		tb.Fatal(err)
	}
	metrics := telemetry.New(prometheus.NewRegistry(), "bench", "bench")
	log := telemetry.NewLogger(io.Discard, slog.LevelInfo)
	g := gate.New(gate.Config{MaxInFlight: 512, RetryAfter: time.Second, Observer: metrics, Log: log})
	return g.Handler(api.New(api.Config{
		Decider: decision.New(s, lane, decision.Limits{Call: 800 * time.Millisecond, Lookup: 300 * time.Millisecond, MinToSend: 50 * time.Millisecond}),
		Ledger:  s, Callers: known, PerCaller: g.PerCaller(0),
		Budget:            budget.Policy{Server: 2400 * time.Millisecond, NetworkReserve: 600 * time.Millisecond},
		RetryAfterDecline: 2 * time.Second, RetryAfterBusy: time.Second, MaxAmount: payment.MaxAmountMinor,
		HoldsSupported: true, ReadTimeout: time.Second, Log: log, Observer: metrics,
	}))
}

func inMemory(testing.TB) store { return memory.New(memory.Config{Horizon: time.Hour}) }

func onPostgres(tb testing.TB) store { return openLedger(tb, pgtest.New(tb).URL) }

func openLedger(tb testing.TB, url string) store {
	tb.Helper()
	pool, err := ledger.Connect(tb.Context(), url, ledger.Options{MaxConns: 32})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	l, err := ledger.New(pool, ledger.Config{Horizon: time.Hour})
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

const body = `{"account": "ALICE", "amount": 1250, "currency": "EUR", "reference": "receipt 4711"}`

func newRequest(tb testing.TB, base string) *http.Request {
	key, err := uuid.NewV7()
	if err != nil {
		tb.Fatal(err)
	}
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, base+"/debits", strings.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", key.String())
	return r
}

// BenchmarkHandler is our own code alone: from the gate to the answer, with a
// ledger in memory and a wallet without a wire.
func BenchmarkHandler(b *testing.B) {
	h := newHandler(b, inMemory(b), instant{})
	b.ReportAllocs()
	for b.Loop() {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, newRequest(b, "http://safeledger.test"))
		if w.Code != http.StatusCreated {
			b.Fatalf("answered %d: %s", w.Code, w.Body)
		}
	}
	report(b)
}

// BenchmarkDecision is the whole path over loopback HTTP, till to wallet, with a
// wallet that answers at once; by the ledger and the number of tills at once.
func BenchmarkDecision(b *testing.B) {
	for _, l := range []struct {
		name string
		open func(testing.TB) store
	}{{"memory", inMemory}, {"postgres", onPostgres}} {
		for _, tills := range []int{1, 8, 64} {
			b.Run(l.name+"/tills="+strconv.Itoa(tills), func(b *testing.B) {
				base, client := serve(b, l.open(b))
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ReportAllocs()
				b.ResetTimer()
				done := make(chan error, tills)
				for range tills {
					go func() { done <- pay(b, client, base, &left) }()
				}
				for range tills {
					if err := <-done; err != nil {
						b.Fatal(err)
					}
				}
				report(b)
			})
		}
	}
}

func report(b *testing.B) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
}

// pay decides payments until none are left.
func pay(tb testing.TB, client *http.Client, base string, left *atomic.Int64) error {
	for left.Add(-1) >= 0 {
		resp, err := client.Do(newRequest(tb, base))
		if err != nil {
			return err
		}
		answer, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusCreated {
			return fmt.Errorf("answered %d: %s: %w", resp.StatusCode, answer, err)
		}
	}
	return nil
}

// serve is the service on loopback, with a wallet beside it.
func serve(tb testing.TB, s store) (base string, client *http.Client) {
	tb.Helper()
	walletServer := httptest.NewServer(approving())
	tb.Cleanup(walletServer.Close)
	c, err := wallet.New(wallet.Config{
		BaseURL: walletServer.URL, Version: wallet.V2, ConnectTimeout: 200 * time.Millisecond, MinToSend: 50 * time.Millisecond,
		MaxInFlight: 256, IdleLimit: 10 * time.Second,
		Breaker: wallet.BreakerConfig{
			Window: 10 * time.Second, MinCalls: 20, FailureRatio: 0.5, SlowRatio: 0.5, OpenFor: 5 * time.Second, Probes: 3,
		},
		SlowCall: 400 * time.Millisecond, SlowWorkerCall: time.Second,
		Observer: telemetry.New(prometheus.NewRegistry(), "bench", "bench"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	server := httptest.NewServer(newHandler(tb, s, c.Decisions()))
	tb.Cleanup(server.Close)
	transport := &http.Transport{MaxIdleConnsPerHost: 256, DialContext: (&net.Dialer{}).DialContext}
	tb.Cleanup(transport.CloseIdleConnections)
	return server.URL, &http.Client{Transport: transport}
}

// approving is a wallet that says yes at once, and keeps nothing.
func approving() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprintf(w, `{"id": "w-1", "reference": %q, "status": "APPLIED"}`, r.Header.Get("Idempotency-Key"))
	})
}

// A decision adds the two commits that it promises, the claim and the decision,
// and not a transaction more; an answer given again writes nothing at all. Each
// further commit would be an fsync that a till waits for.
func TestADecisionIsTwoCommitsAndAReplayNone(t *testing.T) {
	db := pgtest.New(t)
	base, client := serve(t, openLedger(t, db.URL))
	conn := db.Connect(t)
	// Every transaction that writes takes one transaction id, and so does asking.
	next := func() (xid int64) {
		if err := conn.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text::bigint`).Scan(&xid); err != nil {
			t.Fatal(err)
		}
		return xid
	}
	const decisions = 50
	before := next()
	var left atomic.Int64
	left.Store(decisions)
	if err := pay(t, client, base, &left); err != nil {
		t.Fatal(err)
	}
	if wrote := next() - before - 1; wrote != 2*decisions {
		t.Errorf("%d decisions took %d transactions that write, want %d", decisions, wrote, 2*decisions)
	}

	r := newRequest(t, base)
	for i := range 2 {
		again := r.Clone(t.Context())
		again.Body = io.NopCloser(strings.NewReader(body))
		before = next()
		resp, err := client.Do(again)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if replayed := resp.Header.Get("Idempotency-Replayed") == "true"; replayed != (i == 1) {
			t.Fatalf("request %d: replayed %v", i, replayed)
		}
	}
	if wrote := next() - before - 1; wrote != 0 {
		t.Errorf("a replay took %d transactions that write", wrote)
	}
}
