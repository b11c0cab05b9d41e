package wallet

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// A call that leaves a goroutine behind leaves, in a year of them, no memory.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// events is an observer that remembers.
type events struct {
	mu       sync.Mutex
	calls    []string
	breakers []string
}

func (e *events) WalletCall(lane, call, outcome string, reason payment.Reason, _ time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls = append(e.calls, lane+" "+call+" "+outcome+" "+string(reason))
}

func (e *events) BreakerChanged(breaker, state string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.breakers = append(e.breakers, breaker+" "+state)
}

func (e *events) changes() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.breakers...)
}

// config is the contract's configuration. The connect limit is a minute, so that
// a busy machine does not fail tests that are about something else.
func config(baseURL string) Config {
	return Config{
		BaseURL: baseURL, Version: V2,
		ConnectTimeout: time.Minute, MinToSend: 50 * time.Millisecond, MaxInFlight: 256, IdleLimit: 10 * time.Second,
		Breaker: BreakerConfig{
			Window: 10 * time.Second, MinCalls: 20, FailureRatio: 0.5, SlowRatio: 0.5, OpenFor: 5 * time.Second, Probes: 3,
		},
		SlowCall: 400 * time.Millisecond, SlowWorkerCall: time.Second,
		Observer: &events{}, Log: slog.New(slog.DiscardHandler),
	}
}

// patient keeps the breakers out of tests that fail many calls on purpose.
func patient(cfg *Config) { cfg.Breaker.MinCalls = 1 << 30 }

func speaks(v Version) func(*Config) { return func(cfg *Config) { cfg.Version = v } }

func newClient(tb testing.TB, w *wallettest.Wallet, change ...func(*Config)) *Client {
	tb.Helper()
	cfg := config(w.URL())
	if roots := w.Roots(); roots != nil {
		cfg.TLS = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	return c
}

// reference makes a reference that a test can name.
func reference(name string) payment.Reference {
	sum := sha256.Sum256([]byte(name))
	return payment.Reference(sum[:16])
}

// instruction is a call of op named name.
func instruction(op payment.Operation, name string) payment.Instruction {
	in := payment.Instruction{Operation: op, Reference: reference(name), Amount: payment.Money{AmountMinor: 1250, Currency: "EUR"}}
	switch op {
	case payment.Debit, payment.Hold, payment.Credit:
		in.Account = "card-17"
	case payment.Capture:
		in.HoldID = "hold-1"
	case payment.Release:
		in.HoldID = "hold-1"
		in.Amount = payment.Money{}
	case payment.Reversal:
	}
	return in
}

// laneOf is the lane that makes calls of op.
func laneOf(c *Client, op payment.Operation) *Lane {
	if op.IsPayment() {
		return c.Decisions()
	}
	return c.Workers()
}

// within is a context with a deadline.
func within(tb testing.TB, d time.Duration) context.Context {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), d)
	tb.Cleanup(cancel)
	return ctx
}

// callLimit is long enough for any answer of a wallet that means to give one.
const callLimit = 5 * time.Second

// benchLimit is longer than any benchmark runs.
const benchLimit = time.Hour

func send(tb testing.TB, c *Client, in payment.Instruction) payment.Outcome {
	tb.Helper()
	return laneOf(c, in.Operation).Send(within(tb, callLimit), in)
}

func lookup(tb testing.TB, c *Client, in payment.Instruction) payment.Evidence {
	tb.Helper()
	return laneOf(c, in.Operation).Lookup(within(tb, callLimit), in)
}

// warm leaves n idle connections in the pool, and fails if it cannot.
func warm(tb testing.TB, c *Client, n int) {
	tb.Helper()
	c.trustIdle()
	for range n {
		conn, err := c.dialer.dial(within(tb, callLimit))
		if err != nil {
			tb.Fatal(err)
		}
		c.pool.put(conn)
	}
	if got := c.idle(); got != n {
		tb.Fatalf("%d idle connections, want %d", got, n)
	}
}

// idle is the number of idle connections.
func (c *Client) idle() int {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	return len(c.pool.idle)
}

// dialTo connects to addr in place of want. Everything else it connects to as it
// is told, so that a call which goes astray is seen where it arrives.
func dialTo(addr, want string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if address == want {
			address = addr
		}
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
}

// writeFails makes connections whose write reports a broken pipe after n bytes.
type writeFails struct {
	n     int
	mu    sync.Mutex
	count int
}

func (f *writeFails) dial(w *wallettest.Wallet) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, w.Addr())
		return &failingConn{Conn: c, fails: f}, err
	}
}

func (f *writeFails) writes() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count
}

type failingConn struct {
	net.Conn
	fails *writeFails
}

func (c *failingConn) Write(p []byte) (int, error) {
	c.fails.mu.Lock()
	c.fails.count++
	c.fails.mu.Unlock()
	n, _ := c.Conn.Write(p[:c.fails.n])
	_ = c.Close()
	return n, syscall.EPIPE
}

// trustIdle makes the pool use every idle connection, as it would after it has
// seen for a long time that this wallet closes none.
func (c *Client) trustIdle() {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	c.pool.open = 2 * c.pool.most
}
