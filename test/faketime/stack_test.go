// Package faketime runs the whole service, from the till's HTTP client to the
// simulated wallet's book, in one testing/synctest bubble: the real servers,
// the real client code and the real decision over in-memory pipes, with a ledger
// in memory. Time stands still unless everybody waits, so that every duration in
// here is exact and none of it takes any.
package faketime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/internal/api/apitest"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/servicetest"
	"github.com/safeledger/safeledger/internal/wallet"
	"github.com/safeledger/safeledger/internal/walletsim"
	"github.com/safeledger/safeledger/internal/walletsim/pipe"
)

const (
	ms    = time.Millisecond
	token = "a-till-of-store-17"
)

// stack is the service with both of its sides.
type stack struct {
	t      *testing.T
	sim    *walletsim.Sim
	ledger *memory.Ledger
	gate   *gate.Gate
	wallet *wallet.Client
	tills  *http.Client
	seen   *events
}

// settings are what a test may have otherwise.
type settings struct {
	ledger memory.Config
	gate   int
	wallet func(*wallet.Config)
}

// inBubble runs test with a stack in a bubble of its own.
func inBubble(t *testing.T, s settings, test func(*stack)) {
	t.Helper()
	checker := apitest.New(t)
	synctest.Test(t, func(t *testing.T) {
		st := open(t, s)
		st.tills.Transport = checker.Transport(st.tills.Transport)
		test(st)
	})
}

func open(t *testing.T, s settings) *stack {
	t.Helper()
	st := &stack{t: t, seen: &events{}}
	var err error
	if st.sim, err = walletsim.New(walletsim.Config{OpenAccounts: true}); err != nil {
		t.Fatal(err)
	}
	toWallet := pipe.Listen()
	go func() { _ = st.sim.Serve(toWallet) }()
	known, err := servicetest.Callers("store-17", token)
	if err != nil {
		t.Fatal(err)
	}
	s.ledger.Horizon = servicetest.Horizon
	st.ledger = memory.New(s.ledger)
	walletConfig := servicetest.Wallet(toWallet.DialContext)
	walletConfig.Observer = st.seen
	if s.wallet != nil {
		s.wallet(&walletConfig)
	}
	toUs := pipe.Listen()
	replica, err := servicetest.New(servicetest.Config{
		Ledger: st.ledger, Tills: toUs, Callers: known, Wallet: walletConfig, Queue: servicetest.Queue(), MaxInFlight: s.gate, Observer: st.seen,
	})
	if err != nil {
		t.Fatal(err)
	}
	st.gate, st.wallet = replica.Gate, replica.Wallet
	transport := &http.Transport{DialContext: toUs.DialContext, MaxIdleConnsPerHost: servicetest.MaxInFlight, DisableCompression: true}
	st.tills = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		replica.Close()
		_ = st.sim.Close()
	})
	return st
}

// reply is what a till got, and when.
type reply struct {
	status int
	header http.Header
	body   string
	took   time.Duration
}

func (r reply) replayed() bool { return r.header.Get("Idempotency-Replayed") == "true" }

// debit asks for one debit of 12.50 EUR. deadlineMS is Request-Deadline-Ms, none
// if negative.
func (st *stack) debit(ctx context.Context, key, account string, deadlineMS int) (reply, error) {
	body := `{"account": "` + account + `", "amount": 1250, "currency": "EUR"}`
	return st.post(ctx, "/debits", key, body, deadlineMS)
}

func (st *stack) post(ctx context.Context, path, key, body string, deadlineMS int) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://safeledger.test"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		st.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Idempotency-Key", `"`+key+`"`)
	req.GetBody = nil // without it the client cannot repeat the request behind our back
	if deadlineMS >= 0 {
		req.Header.Set("Request-Deadline-Ms", strconv.Itoa(deadlineMS))
	}
	start := time.Now()
	resp, err := st.tills.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return reply{status: resp.StatusCode, header: resp.Header, body: string(answer), took: time.Since(start)}, err
}

// mustDebit is debit for a till that stays.
func (st *stack) mustDebit(key, account string, deadlineMS int) reply {
	st.t.Helper()
	r, err := st.debit(st.t.Context(), key, account, deadlineMS)
	if err != nil {
		st.t.Fatalf("POST /debits with key %q: %v", key, err)
	}
	return r
}

// stored is the payment of a key as the ledger has it.
func (st *stack) stored(key string) (payment.Payment, bool) {
	st.t.Helper()
	p, found, err := st.ledger.PaymentByKey(st.t.Context(), "store-17", payment.Debit, payment.Key(key))
	if err != nil {
		st.t.Fatal(err)
	}
	return p, found
}

// wire counts what arrived at the wallet for an account: debits, lookups, and
// debits that were applied.
func (st *stack) wire(account string) (debits, lookups, applied int) {
	references := map[string]bool{}
	for _, e := range st.sim.Book() {
		if e.Request == nil {
			continue
		}
		switch {
		case e.Event == walletsim.Arrived && e.Operation == walletsim.Debit && e.Account == account:
			debits++
			references[e.Reference] = true
		case e.Event == walletsim.Arrived && e.Operation == walletsim.Lookup && references[e.Reference]:
			lookups++
		case e.Event == walletsim.Applied && e.Operation == walletsim.Debit && e.Account == account:
			applied++
		}
	}
	return debits, lookups, applied
}

// rule adds a rule to the wallet.
func (st *stack) rule(r walletsim.Rule) {
	st.t.Helper()
	if _, err := st.sim.AddRule(r); err != nil {
		st.t.Fatal(err)
	}
}

// events collects what metrics would count.
type events struct {
	servicetest.Silent

	mu       sync.Mutex
	refused  map[string]int
	breakers []string
	unknown  int
}

func (e *events) Refused(reason string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refused == nil {
		e.refused = map[string]int{}
	}
	e.refused[reason]++
}

func (e *events) BreakerChanged(breaker, state string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.breakers = append(e.breakers, breaker+" "+state)
}

func (e *events) OutcomeUnknown(payment.Operation) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unknown++
}

// slowly is a ledger fault that holds a step up for d, or until its caller's time is up.
func slowly(at memory.Step, d time.Duration) memory.Fault {
	return func(ctx context.Context, step memory.Step) error {
		if step != at {
			return nil
		}
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

var errStorage = errors.New("the connection to the database was lost")

// narrow is a wallet client with one place in its bulkhead.
func narrow(cfg *wallet.Config) { cfg.MaxInFlight = 1 }

// member is a string member of a JSON object, "" if it is not there.
func member(body, name string) string {
	var object map[string]any
	if err := json.Unmarshal([]byte(body), &object); err != nil {
		return ""
	}
	s, _ := object[name].(string)
	return s
}
