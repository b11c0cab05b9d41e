package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/config"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/telemetry"
	"github.com/safeledger/safeledger/internal/wallet"
	"github.com/safeledger/safeledger/internal/watchfile"
)

// How often the service looks after what is not a request. Contract sections 2
// and 5 ask for the probe and the sweep once a second.
const (
	probeEvery    = time.Second
	sweepEvery    = time.Second
	exposureEvery = 10 * time.Second
)

// Limits of the HTTP servers. None of them may cut an answer off that is still
// in its budget: the slowest answer leaves after the server budget and the two
// reserves for our own writes.
const (
	readHeaderTimeout = 2 * time.Second
	writeMargin       = 5 * time.Second
	// idleTimeout is above the 60 s after which common load balancers drop idle
	// connections: the side that closes last gets the blame for a lost request.
	idleTimeout    = 75 * time.Second
	maxHeaderBytes = 16 << 10
	// drainMargin bounds the end of a drain: exit within DRAIN_DELAY + BUDGET_SERVER + 3 s.
	drainMargin = 2500 * time.Millisecond
	// adminWriteTimeout is for a scrape by a Prometheus that reads slowly.
	adminWriteTimeout = 15 * time.Second
	// upkeepLimit bounds what looks after the ledger in the background, and
	// schemaCheckLimit the look at its schema: nobody waits for either.
	upkeepLimit      = 10 * time.Second
	schemaCheckLimit = 5 * time.Second
	// walletIdleLimit keeps connections to the wallet for less than the shortest
	// keep-alive that wallets and their gateways commonly have.
	walletIdleLimit = 10 * time.Second
)

type serveCommand struct {
	Role config.Role `enum:"all,api,worker" default:"all" help:"What this replica does: ${enum}."`
}

func (c serveCommand) Run(p *process) error {
	cfg, err := config.Load(c.Role)
	if err != nil {
		return err
	}
	log := telemetry.NewLogger(os.Stderr, cfg.LogLevel)
	s, err := newService(p.ctx, cfg, c.Role, log)
	if err != nil {
		return err
	}
	return s.run(p.ctx)
}

// service is one replica: everything that newService wires and run runs.
type service struct {
	cfg     config.Config
	role    config.Role
	log     *slog.Logger
	metrics *telemetry.Metrics

	callers *callers.Callers              // nil: this replica serves no tills
	token   *watchfile.File[wallet.Token] // nil: the wallet takes none
	ledger  *ledger.Ledger                // for tills; nil without them
	upkeep  *ledger.Ledger                // for recovery, the probe and metrics: tills never wait behind those
	wallet  *wallet.Client
	gate    *gate.Gate
	ready   *readiness
	opened  chan struct{} // closed when tills are let in for the first time

	tills, admin             net.Listener
	tillsServer, adminServer *http.Server
	closers                  []func() // run from the last to the first
}

// upkeepConns is the second, small pool. The sweep, the probe and the exposure
// are one connection each at a time; one more keeps the probe honest while the
// others are busy.
const upkeepConns = 4

// newService wires a replica and binds its listeners, which is the last step
// that can fail: whoever can connect will be answered.
func newService(ctx context.Context, cfg config.Config, role config.Role, log *slog.Logger) (_ *service, err error) {
	registry := prometheus.NewRegistry()
	s := &service{
		cfg: cfg, role: role, log: log, metrics: telemetry.New(registry, version, commit()),
		ready: newReadiness(errStarting), opened: make(chan struct{}),
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()

	if s.wallet, err = s.openWallet(); err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.wallet.Close)
	if s.upkeep, err = s.openLedger(ctx, "upkeep", upkeepConns); err != nil {
		return nil, err
	}
	s.gate = gate.New(gate.Config{
		MaxInFlight: cfg.Gate.MaxInFlight, RetryAfter: cfg.RetryAfter.Busy, Observer: s.metrics, Log: log,
	})
	// Until the schema has been seen nobody is let in, whatever the probe says.
	s.gate.SetDatabaseReachable(false)
	decisions, workers := s.wallet.Decisions(), s.wallet.Workers()
	s.metrics.WatchInFlight(s.gate.InFlight,
		map[string]func() int{"decision": decisions.InFlight, "worker": workers.InFlight},
		map[string]func() string{
			"decision": decisions.BreakerState, "worker": workers.BreakerState, "lookup": s.wallet.LookupBreakerState,
		})

	if role != config.RoleWorker {
		if err := s.openTills(ctx); err != nil {
			return nil, err
		}
	}
	s.adminServer = newServer(telemetry.Admin(registry, func() error { return nil }, s.ready.err), adminWriteTimeout, log)
	s.admin, err = s.listen(ctx, cfg.AdminAddr)
	return s, err
}

// openTills wires the path of a decision, from the listener to the ledger.
func (s *service) openTills(ctx context.Context) (err error) {
	cfg := s.cfg
	if s.callers, err = callers.Load(cfg.CallersFile); err != nil {
		return &config.InvalidError{Faults: []string{"SAFELEDGER_CALLERS_FILE: " + err.Error()}}
	}
	if s.ledger, err = s.openLedger(ctx, "tills", cfg.Database.MaxConns); err != nil {
		return err
	}
	decider := decision.New(s.ledger, s.wallet.Decisions(), decision.Limits{
		Call: cfg.Budget.DecisionCall, Lookup: cfg.Budget.LookupCall, MinToSend: cfg.Budget.MinToSend,
	})
	handler := api.New(api.Config{
		Decider: decider, Ledger: s.ledger, Callers: s.callers, PerCaller: s.gate.PerCaller(cfg.Gate.MaxPerCaller),
		Budget:            budget.Policy{Server: cfg.Budget.Server, NetworkReserve: cfg.Budget.NetworkReserve},
		RetryAfterDecline: cfg.RetryAfter.Decline, RetryAfterBusy: cfg.RetryAfter.Busy,
		MaxAmount: cfg.MaxAmount, HoldsSupported: cfg.Wallet.Version == config.WalletV2, ReadTimeout: cfg.Budget.Server,
		Log: s.log, Observer: s.metrics,
	})
	s.tillsServer = newServer(s.gate.Handler(handler), cfg.Budget.Server+writeMargin, s.log)
	s.tills, err = s.listen(ctx, cfg.HTTPAddr)
	return err
}

func (s *service) listen(ctx context.Context, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = l.Close() })
	return l, nil
}

func (s *service) openWallet() (*wallet.Client, error) {
	cfg := s.cfg
	walletConfig := wallet.Config{
		BaseURL: cfg.Wallet.BaseURL, Version: wallet.Version(cfg.Wallet.Version),
		ConnectTimeout: cfg.Wallet.ConnectTimeout, MinToSend: cfg.Budget.MinToSend,
		MaxInFlight: cfg.Wallet.MaxInFlight, IdleLimit: walletIdleLimit,
		Breaker: wallet.BreakerConfig{
			Window: cfg.Breaker.Window, MinCalls: cfg.Breaker.MinCalls,
			FailureRatio: cfg.Breaker.FailureRatio, SlowRatio: cfg.Breaker.SlowRatio,
			OpenFor: cfg.Breaker.OpenFor, Probes: cfg.Breaker.Probes,
		},
		SlowCall:       cfg.Wallet.SlowCall,
		SlowWorkerCall: cfg.Budget.WorkerCall / 2, // as 400 ms are to the 800 ms of a decision
		UserAgent:      "safeledger/" + version,
		Observer:       s.metrics, Log: s.log,
	}
	if cfg.Wallet.TokenFile != "" {
		token, err := watchfile.Load(cfg.Wallet.TokenFile, wallet.ParseToken)
		if err != nil {
			return nil, &config.InvalidError{Faults: []string{"SAFELEDGER_WALLET_TOKEN_FILE: " + err.Error()}}
		}
		s.token = token
		walletConfig.Token = token.Get
	}
	return wallet.New(walletConfig)
}

func (s *service) openLedger(ctx context.Context, name string, connections int) (*ledger.Ledger, error) {
	pool, err := ledger.Connect(ctx, s.cfg.Database.URL, ledger.Options{
		MaxConns: int32(connections), //nolint:gosec // at most 1000, see config
		Pooler:   string(s.cfg.Database.Pooler), ApplicationName: "safeledger " + name,
	})
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, pool.Close)
	return ledger.New(pool, ledger.Config{Horizon: s.cfg.Budget.Server + s.cfg.RecoveryGrace, Recovered: s.recovered})
}

// recovered notes a payment that nobody came back for.
func (s *service) recovered(ctx context.Context, p payment.Payment) {
	s.metrics.Recovered(1)
	s.log.WarnContext(ctx, "payment recovered", "id", p.ID, "operation", p.Operation, "caller", p.Caller,
		"decision", p.State, "code", p.Code, "claimed_at", p.CreatedAt)
}

func (s *service) close() {
	for _, c := range slices.Backward(s.closers) {
		c()
	}
}

// run serves until ctx ends, then drains (contract section 5).
func (s *service) run(ctx context.Context) error {
	defer s.close()
	group, background := errgroup.WithContext(context.WithoutCancel(ctx))
	background, stop := context.WithCancel(background)
	defer stop()

	group.Go(func() error { return serveHTTP(s.adminServer, s.admin) })
	serving := []any{"role", s.role, "admin_addr", s.admin.Addr().String(), "version", version}
	if s.tillsServer != nil {
		group.Go(func() error { return serveHTTP(s.tillsServer, s.tills) })
		group.Go(func() error { s.callers.Watch(background, s.log); return nil })
		serving = append(serving, "http_addr", s.tills.Addr().String())
	}
	if s.token != nil {
		group.Go(func() error { s.token.Watch(background, watchfile.Interval, s.log); return nil })
	}
	group.Go(func() error { return s.open(background) })
	group.Go(func() error { every(background, sweepEvery, s.sweep); return nil })
	group.Go(func() error { every(background, exposureEvery, s.measureExposure); return nil })
	s.log.InfoContext(ctx, "serving", serving...)

	select {
	case <-ctx.Done():
		s.drain(context.WithoutCancel(ctx))
	case <-background.Done(): // a part has failed; Wait says which
	}
	stop()
	for _, server := range []*http.Server{s.tillsServer, s.adminServer} {
		if server != nil {
			_ = server.Close()
		}
	}
	return group.Wait()
}

// open looks at the schema until it has been seen to be the right one, lets tills
// in, and from then on keeps the gate informed of the database. A database that
// cannot be reached yet is waited for; one with the wrong schema ends the process,
// because nothing that this one does will mend it.
func (s *service) open(ctx context.Context) error {
	for {
		checkCtx, cancel := context.WithTimeout(ctx, schemaCheckLimit)
		err := s.upkeep.CheckSchema(checkCtx)
		cancel()
		switch {
		case err == nil:
		case errors.Is(err, ledger.ErrSchemaNew):
			s.log.WarnContext(ctx, "schema is newer than this release", "error", err)
		case errors.Is(err, ledger.ErrSchemaOld), errors.Is(err, ledger.ErrNotDurable):
			return err
		default:
			s.log.ErrorContext(ctx, "schema cannot be checked, not ready", "error", err)
			if !pause(ctx, probeEvery) {
				return nil
			}
			continue
		}
		break
	}
	s.gate.SetDatabaseReachable(true)
	s.ready.set(nil)
	close(s.opened)
	s.log.InfoContext(ctx, "ready")
	s.gate.Watch(ctx, s.upkeep.Ping, probeEvery)
	return nil
}

// sweep recovers what was left in flight. What it finds it reports itself.
func (s *service) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upkeepLimit)
	defer cancel()
	if _, err := s.upkeep.Recover(ctx); err != nil && s.ready.err() == nil {
		s.log.ErrorContext(ctx, "recovery sweep failed, the next one tries again", "error", err)
	}
}

func (s *service) measureExposure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upkeepLimit)
	defer cancel()
	open, err := s.upkeep.OpenReversals(ctx)
	if err != nil {
		if s.ready.err() == nil {
			s.log.ErrorContext(ctx, "open reversals cannot be measured, the metrics show the last ones", "error", err)
		}
		return
	}
	s.metrics.SetReversals(open)
}

// drain ends the service without losing an answer: not ready at once; tills are
// still served while endpoints are being removed elsewhere; then the gate
// refuses, and what is in flight is finished.
func (s *service) drain(ctx context.Context) {
	s.log.InfoContext(ctx, "draining", "drain_delay_ms", s.cfg.DrainDelay.Milliseconds())
	s.ready.set(errDraining)
	if s.tillsServer == nil {
		return // nobody waits for an answer of this replica
	}
	s.gate.CloseConnections()
	pause(ctx, s.cfg.DrainDelay)

	s.gate.Drain()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Budget.Server+drainMargin)
	defer cancel()
	if err := s.gate.Wait(ctx); err != nil {
		s.log.ErrorContext(ctx, "requests still in flight at the end of the drain", "in_flight", s.gate.InFlight())
		return
	}
	// The last answers may still be on their way from a handler to its connection.
	if err := s.tillsServer.Shutdown(ctx); err != nil {
		s.log.ErrorContext(ctx, "connections still open at the end of the drain", "error", err)
		return
	}
	s.log.InfoContext(ctx, "drained")
}

func newServer(h http.Handler, writeTimeout time.Duration, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: readHeaderTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug), // mostly clients that went away
	}
}

func serveHTTP(server *http.Server, l net.Listener) error {
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", l.Addr(), err)
	}
	return nil
}

// every runs do now and after each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	for do(ctx); pause(ctx, interval); do(ctx) {
	}
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

var (
	errStarting = errors.New("the schema has not been verified yet")
	errDraining = errors.New("draining")
)

// readiness is what /readyz says: the schema has been verified once, and we are
// not draining. A database outage is the gate's to report: if it took readiness,
// every endpoint would vanish at once.
type readiness struct{ reason atomic.Pointer[error] }

func newReadiness(reason error) *readiness {
	r := &readiness{}
	r.reason.Store(&reason)
	return r
}

// set changes the reason for not being ready, nil for being so. Draining is final.
func (r *readiness) set(reason error) {
	for {
		before := r.reason.Load()
		if errors.Is(*before, errDraining) || r.reason.CompareAndSwap(before, &reason) {
			return
		}
	}
}

func (r *readiness) err() error { return *r.reason.Load() }
