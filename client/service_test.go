package client_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/safeledger/safeledger/client"
	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/wallet"
	"github.com/safeledger/safeledger/internal/walletsim"
	"github.com/safeledger/safeledger/internal/walletsim/pipe"
)

// network is how the parts of a whole service reach each other: over loopback, or
// over pipes where time is fake.
type network interface {
	net.Listener
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

type loopback struct{ net.Listener }

func (l loopback) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
}

func onLoopback() (network, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	return loopback{l}, err
}

func inPipes() (network, error) { return pipe.Listen(), nil }

// whole is SafeLedger as its tills see it: the real gate, API and decision, with the
// simulated wallet behind and a ledger in memory. Follow-ups are accepted and stay
// PENDING: there is no queue.
type whole struct {
	tills    network
	wallet   network
	gate     *gate.Gate
	sim      *walletsim.Sim
	ledger   *memory.Ledger
	handlers atomic.Int64 // how often one was invoked
	closers  []func()
}

// knownCallers is a callers file with one till in it. It is read outside of any bubble.
func knownCallers() (known *callers.Callers, err error) {
	dir, err := os.MkdirTemp("", "callers")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "callers.json")
	content := `{"callers": [{"name": "store-17", "tokenSha256": "` + callers.HashToken(token) + `", "scopes": ["till"]}]}`
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		return nil, err
	}
	return callers.Load(path)
}

// open starts a service of one replica, with room for maxInFlight requests at once.
func open(known *callers.Callers, listen func() (network, error), maxInFlight int) (*whole, error) {
	w := &whole{ledger: memory.New(memory.Config{Horizon: 7400 * ms})}
	err := w.openWallet(listen)
	if err == nil {
		err = w.openReplica(known, listen, maxInFlight)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *whole) openWallet(listen func() (network, error)) (err error) {
	if w.wallet, err = listen(); err != nil {
		return err
	}
	if w.sim, err = walletsim.New(walletsim.Config{OpenAccounts: true}); err != nil {
		return err
	}
	go func() { _ = w.sim.Serve(w.wallet) }() // ends with the simulator
	w.closers = append(w.closers, func() { _ = w.sim.Close() })
	return nil
}

// another is a second replica: the same ledger and wallet, a gate and a listener of its
// own. It ends with the first.
func (w *whole) another(known *callers.Callers, listen func() (network, error), maxInFlight int) (*whole, error) {
	r := &whole{ledger: w.ledger, wallet: w.wallet, sim: w.sim}
	err := r.openReplica(known, listen, maxInFlight)
	w.closers = append(w.closers, r.close)
	return r, err
}

func (w *whole) openReplica(known *callers.Callers, listen func() (network, error), maxInFlight int) error {
	log := slog.New(slog.DiscardHandler)
	purse, err := wallet.New(wallet.Config{
		BaseURL: "http://wallet.test", Version: wallet.V2, ConnectTimeout: 200 * ms, MinToSend: 50 * ms, MaxInFlight: 256, IdleLimit: 10 * time.Second,
		Breaker:  wallet.BreakerConfig{Window: 10 * time.Second, MinCalls: 20, FailureRatio: 0.5, SlowRatio: 0.5, OpenFor: 5 * time.Second, Probes: 3},
		SlowCall: 400 * ms, SlowWorkerCall: time.Second, DialContext: w.wallet.DialContext, Observer: silent{}, Log: log,
	})
	if err != nil {
		return err
	}
	w.closers = append(w.closers, purse.Close)
	w.gate = gate.New(gate.Config{MaxInFlight: maxInFlight, RetryAfter: time.Second, Observer: silent{}, Log: log})
	handler := api.New(api.Config{
		Decider: decision.New(w.ledger, purse.Decisions(), decision.Limits{Call: 800 * ms, Lookup: 300 * ms, MinToSend: 50 * ms}),
		Ledger:  w.ledger, FollowUps: w.ledger, Callers: known, PerCaller: w.gate.PerCaller(0),
		Budget:            budget.Policy{Server: 2400 * ms, NetworkReserve: 600 * ms},
		RetryAfterDecline: 2 * time.Second, RetryAfterBusy: time.Second, MaxAmount: payment.MaxAmountMinor,
		HoldsSupported: true, ReadTimeout: 2400 * ms, Log: log, Observer: silent{},
	})
	server := &http.Server{ReadHeaderTimeout: 2 * time.Second, Handler: w.gate.Handler(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.handlers.Add(1)
		handler.ServeHTTP(rw, r)
	}))}
	if w.tills, err = listen(); err != nil {
		return err
	}
	go func() { _ = server.Serve(w.tills) }() // ends with the server
	w.closers = append(w.closers, func() { _ = server.Close() })
	return nil
}

// close ends what was opened, the newest first.
func (w *whole) close() {
	for _, f := range slices.Backward(w.closers) {
		f()
	}
}

// config is what a till of this service needs.
func (w *whole) config() client.Config {
	return client.Config{BaseURL: "http://safeledger.test", Token: token, DialContext: w.tills.DialContext}
}

// moved counts what arrived at the wallet to move money, and what was applied.
func (w *whole) moved() (arrived, applied int) {
	for _, e := range w.sim.Book() {
		switch {
		case e.Request == nil || e.Operation == walletsim.Lookup:
		case e.Event == walletsim.Arrived:
			arrived++
		case e.Event == walletsim.Applied:
			applied++
		}
	}
	return arrived, applied
}

// silent watches and tells nobody.
type silent struct{}

func (silent) Refused(string)                                                   {}
func (silent) BreakerChanged(string, string)                                    {}
func (silent) OutcomeUnknown(payment.Operation)                                 {}
func (silent) NotStored(payment.Operation)                                      {}
func (silent) WalletCall(string, string, string, payment.Reason, time.Duration) {}
func (silent) Replay(payment.Operation)                                         {}
func (silent) KeyConflict(payment.Operation, string)                            {}
func (silent) Accepted(payment.Operation)                                       {}
func (silent) Cancelled(payment.Operation)                                      {}
func (silent) NotSent(payment.Operation, payment.Reason)                        {}
func (silent) Decision(payment.Operation, payment.State, payment.Code, time.Duration, time.Duration) {
}
