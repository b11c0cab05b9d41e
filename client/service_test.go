package client_test

import (
	"context"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"github.com/safeledger/safeledger/client"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/servicetest"
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
// PENDING: its workers do not run.
type whole struct {
	tills    network
	wallet   network
	gate     *gate.Gate
	sim      *walletsim.Sim
	ledger   *memory.Ledger
	handlers atomic.Int64 // how often one was invoked
	closers  []func()
}

// open starts a service of one replica, with room for maxInFlight requests at once.
func open(listen func() (network, error), maxInFlight int) (*whole, error) {
	w := &whole{ledger: memory.New(memory.Config{Horizon: servicetest.Horizon})}
	err := w.openWallet(listen)
	if err == nil {
		err = w.openReplica(listen, maxInFlight)
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
func (w *whole) another(listen func() (network, error), maxInFlight int) (*whole, error) {
	r := &whole{ledger: w.ledger, wallet: w.wallet, sim: w.sim}
	err := r.openReplica(listen, maxInFlight)
	w.closers = append(w.closers, r.close)
	return r, err
}

func (w *whole) openReplica(listen func() (network, error), maxInFlight int) error {
	known, err := servicetest.Callers("store-17", token)
	if err != nil {
		return err
	}
	if w.tills, err = listen(); err != nil {
		return err
	}
	w.closers = append(w.closers, func() { _ = w.tills.Close() })
	replica, err := servicetest.New(servicetest.Config{
		Ledger: w.ledger, Tills: w.tills, Callers: known, Wallet: servicetest.Wallet(w.wallet.DialContext), Queue: servicetest.Queue(),
		MaxInFlight: maxInFlight,
		Around: func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				w.handlers.Add(1)
				next.ServeHTTP(rw, r)
			})
		},
	})
	if err != nil {
		return err
	}
	w.gate = replica.Gate
	w.closers = append(w.closers, replica.Close)
	return nil
}

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
