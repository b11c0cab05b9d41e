// Package servicetest is one replica of SafeLedger between its tills' listener, its
// ledger and its wallet, wired as cmd/safeledger wires it, with the contract's numbers.
// Tests bring the network, the ledger and whatever shall go wrong with either: over the
// pipes of internal/walletsim/pipe and a ledger in memory it runs under fake time.
package servicetest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/queue"
	"github.com/safeledger/safeledger/internal/wallet"
)

const ms = time.Millisecond

// The numbers of the contract, as the configuration has them by default.
const (
	MaxInFlight = 512
	RetryAfter  = time.Second
	DrainDelay  = 5 * time.Second
	// Horizon is the server budget and the recovery grace together.
	Horizon = 7400 * ms

	probeEvery = time.Second
	sweepEvery = time.Second
	sweepLimit = 10 * time.Second
	drainLimit = 4900 * ms
)

// Budget is how a decision's time is counted.
func Budget() budget.Policy {
	return budget.Policy{Server: 2400 * ms, NetworkReserve: 600 * ms}
}

// Limits are the parts of that time.
func Limits() decision.Limits {
	return decision.Limits{Call: 800 * ms, Lookup: 300 * ms, MinToSend: 50 * ms}
}

// Wallet is how the wallet is called, by dial.
func Wallet(dial func(ctx context.Context, network, address string) (net.Conn, error)) wallet.Config {
	return wallet.Config{
		BaseURL: "http://wallet.test", Version: wallet.V2, ConnectTimeout: 200 * ms, MinToSend: Limits().MinToSend,
		MaxInFlight: 256, IdleLimit: 10 * time.Second,
		Breaker:  wallet.BreakerConfig{Window: 10 * time.Second, MinCalls: 20, FailureRatio: 0.5, SlowRatio: 0.5, OpenFor: 5 * time.Second, Probes: 3},
		SlowCall: 400 * ms, SlowWorkerCall: time.Second,
		DialContext: dial, Observer: Silent{}, Log: slog.New(slog.DiscardHandler),
	}
}

// Queue is how follow-ups are carried out.
func Queue() queue.Config {
	return queue.Config{
		Workers: 32, Lease: 20 * time.Second, CallLimit: 2 * time.Second,
		BackoffMin: time.Second, BackoffMax: 5 * time.Minute, ParkAfter: 72 * time.Hour,
		SettleWindow: 15 * time.Minute, LateChecks: []time.Duration{time.Hour, 24 * time.Hour}, LookupsPerSecond: 20,
		Observer: Silent{}, Log: slog.New(slog.DiscardHandler),
	}
}

// Callers knows one till by its token.
func Callers(name, token string) (*callers.Set, error) {
	return callers.Parse([]byte(`{"callers": [{"name": "` + name + `", "tokenSha256": "` + callers.HashToken(token) + `", "scopes": ["till"]}]}`))
}

// Ledger is what a replica needs of the durable store; each part of it says in its own
// package what it expects.
type Ledger interface {
	Claim(ctx context.Context, req payment.Request) (payment.Claim, error)
	Decide(ctx context.Context, p payment.Payment, d payment.Decision) (payment.Payment, error)
	PaymentByID(ctx context.Context, caller string, id uuid.UUID) (payment.Payment, bool, error)
	PaymentByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key) (payment.Payment, bool, error)
	Accept(ctx context.Context, req payment.FollowUpRequest) (payment.Acceptance, error)
	CancelByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key, original *payment.Request) (payment.Cancellation, error)
	OperationByID(ctx context.Context, caller string, id uuid.UUID) (payment.FollowUp, bool, error)
	OperationByKey(ctx context.Context, caller string, kind payment.Operation, key payment.Key) (payment.FollowUp, bool, error)
	Lease(ctx context.Context, order payment.LeaseOrder) ([]payment.Work, error)
	Settle(ctx context.Context, s payment.Settlement) (bool, error)
	HandBack(ctx context.Context, w payment.Work) error
	Recover(ctx context.Context) (int, error)
	Ping(ctx context.Context) error
}

// Lane is a lane of the wallet, as decisions and workers use it.
type Lane interface {
	Enter() (leave func(), ok bool)
	Send(ctx context.Context, in payment.Instruction) payment.Outcome
	Lookup(ctx context.Context, in payment.Instruction) payment.Evidence
	BreakerState() string
}

// Observer is everybody's observer that a replica has, but for those in Config.Wallet
// and Config.Queue.
type Observer interface {
	Refused(reason string)
	Decision(op payment.Operation, state payment.State, code payment.Code, took, left time.Duration)
	Replay(op payment.Operation)
	KeyConflict(op payment.Operation, kind string)
	OutcomeUnknown(op payment.Operation)
	NotStored(op payment.Operation)
	Accepted(kind payment.Operation)
	Cancelled(op payment.Operation)
	NotSent(op payment.Operation, reason payment.Reason)
}

// Config is what a replica stands between. What is left out of Wallet and Queue is not
// filled in: begin with the functions of these names.
type Config struct {
	Ledger  Ledger
	Tills   net.Listener
	Callers interface {
		Authenticate(token string) (callers.Caller, bool)
	}
	Wallet wallet.Config
	// Queue has no use before Work is called.
	Queue queue.Config

	MaxInFlight  int // 0 = the contract's
	MaxPerCaller int // 0 = no bound
	Observer     Observer

	// Around, if set, stands between the gate and the API, and Watch between them and a
	// lane of the wallet: "decision" or "worker".
	Around func(http.Handler) http.Handler
	Watch  func(lane string, l Lane) Lane
}

// Replica is one replica. It serves from New on, and works while Work runs.
type Replica struct {
	Gate   *gate.Gate
	Wallet *wallet.Client
	Queue  *queue.Queue

	ledger Ledger
	server *http.Server
}

// New makes a replica and lets tills in. Close ends it.
func New(cfg Config) (*Replica, error) {
	log := slog.New(slog.DiscardHandler)
	if cfg.Observer == nil {
		cfg.Observer = Silent{}
	}
	if cfg.Watch == nil {
		cfg.Watch = func(_ string, l Lane) Lane { return l }
	}
	if cfg.Around == nil {
		cfg.Around = func(next http.Handler) http.Handler { return next }
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = MaxInFlight
	}
	r := &Replica{ledger: cfg.Ledger}
	var err error
	if r.Wallet, err = wallet.New(cfg.Wallet); err != nil {
		return nil, fmt.Errorf("open the wallet: %w", err)
	}
	if r.Queue, err = queue.New(cfg.Ledger, cfg.Watch("worker", r.Wallet.Workers()), cfg.Queue); err != nil {
		return nil, fmt.Errorf("open the queue: %w", err)
	}
	r.Gate = gate.New(gate.Config{MaxInFlight: cfg.MaxInFlight, RetryAfter: RetryAfter, Observer: cfg.Observer, Log: log})
	handler := api.New(api.Config{
		Decider: decision.New(cfg.Ledger, cfg.Watch("decision", r.Wallet.Decisions()), Limits()),
		Ledger:  cfg.Ledger, FollowUps: cfg.Ledger, Nudge: r.Queue.Nudge, Callers: cfg.Callers,
		PerCaller: r.Gate.PerCaller(cfg.MaxPerCaller), Budget: Budget(),
		RetryAfterDecline: 2 * time.Second, RetryAfterBusy: RetryAfter, MaxAmount: payment.MaxAmountMinor,
		HoldsSupported: cfg.Wallet.Version == wallet.V2, ReadTimeout: Budget().Server, Log: log, Observer: cfg.Observer,
	})
	r.server = &http.Server{
		Handler: r.Gate.Handler(cfg.Around(handler)), ReadHeaderTimeout: 2 * time.Second,
		DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	go func() { _ = r.server.Serve(cfg.Tills) }() // ends with the server
	return r, nil
}

// Work does what a replica does besides serving, until ctx ends: follow-ups, recovery,
// and watching the database for the gate.
func (r *Replica) Work(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { r.Queue.Run(ctx) })
	parts.Go(func() { r.sweep(ctx) })
	parts.Go(func() { r.Gate.Watch(ctx, r.ledger.Ping, probeEvery) })
	parts.Wait()
}

func (r *Replica) sweep(ctx context.Context) {
	for {
		limited, cancel := context.WithTimeout(ctx, sweepLimit)
		_, _ = r.ledger.Recover(limited) // the next one goes on
		cancel()
		if !pause(ctx, sweepEvery) {
			return
		}
	}
}

// Drain ends serving without losing an answer: tills are still served while others
// learn that this replica is going away; then the gate refuses, and what is in flight is
// finished. Work is to be ended when it begins. The error says what was not finished.
func (r *Replica) Drain(ctx context.Context) error {
	r.Gate.CloseConnections()
	if !pause(ctx, DrainDelay) {
		return ctx.Err()
	}
	r.Gate.Drain()
	ctx, cancel := context.WithTimeout(ctx, drainLimit)
	defer cancel()
	if err := r.Gate.Wait(ctx); err != nil {
		return fmt.Errorf("%d requests are still in flight: %w", r.Gate.InFlight(), err)
	}
	if err := r.server.Shutdown(ctx); err != nil {
		return fmt.Errorf("connections are still open: %w", err)
	}
	return nil
}

// Close closes the listener and all connections.
func (r *Replica) Close() {
	_ = r.server.Close()
	r.Wallet.Close()
}

// pause waits; false means that ctx ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
