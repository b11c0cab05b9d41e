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
	"sync"
	"sync/atomic"
	"syscall"
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
	"github.com/safeledger/safeledger/internal/ops"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/queue"
	"github.com/safeledger/safeledger/internal/telemetry"
	"github.com/safeledger/safeledger/internal/wallet"
	"github.com/safeledger/safeledger/internal/watchfile"
	"github.com/safeledger/safeledger/migrations"
)

// How often the service looks after what is not a request. Contract sections 2
// and 5 ask for the probe and the sweep once a second.
const (
	probeEvery   = time.Second
	sweepEvery   = time.Second
	measureEvery = 10 * time.Second
	thinEvery    = time.Minute

	// What is open is summed up row by row, 0.4 s for a million, and decisions feel it. So
	// that one in a hundred does not, it takes one part in sumShare of the time at most, as
	// long as that is no rarer than sumRarest: alerts take sums of two minutes for old.
	sumShare  = 200
	sumRarest = time.Minute
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
	// closeLimit is what is left of the drain's bound for giving back what was opened.
	closeLimit = 400 * time.Millisecond
	// flushLimit is the same for traces, a little less so that it is told which was late.
	flushLimit = 350 * time.Millisecond
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
	config.CollectLessOften()
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
	traces  *telemetry.Traces

	callers *callers.Callers              // nil: this replica serves nobody
	token   *watchfile.File[wallet.Token] // nil: the wallet takes none
	ledger  *ledger.Ledger                // for tills; nil without them
	upkeep  *ledger.Ledger                // for recovery, the probe and metrics: tills never wait behind those
	people  *ledger.Ledger                // for operators, whose searches may be slow: nothing waits behind those
	wallet  *wallet.Client
	queue   *queue.Queue // nil: this replica has no workers
	gate    *gate.Gate
	ready   *readiness
	opened  chan struct{} // closed when tills are let in for the first time

	tills, admin             net.Listener
	tillsServer, adminServer *http.Server
	closers                  []func() // run from the last to the first
	flush                    func()   // sends what is left of the traces, at the same time
}

// upkeepConns is the second, small pool. The sweep, the probe, the measuring and the
// thinning are one connection each at a time; one more keeps the probe honest while
// the others are busy.
const upkeepConns = 5

// peopleConns is the pool of the operators' calls, and so their number at once: a
// search over a day must not keep the probe from its connection, or the gate would
// shut for it.
const peopleConns = 2

// workerConns is the pool of the work queue. Its 32 workers spend their time at the
// wallet; a lease or a settlement takes a connection for one commit.
const workerConns = 8

// newService wires a replica and binds its listeners, which is the last step
// that can fail: whoever can connect will be answered.
func newService(ctx context.Context, cfg config.Config, role config.Role, log *slog.Logger) (_ *service, err error) {
	traces, err := telemetry.OpenTraces(context.WithoutCancel(ctx), version, os.Getenv, log)
	if err != nil {
		return nil, &config.InvalidError{Faults: []string{err.Error()}}
	}
	registry := prometheus.NewRegistry()
	s := &service{
		cfg: cfg, role: role, log: log, metrics: telemetry.New(registry, version, commit()),
		traces: traces, flush: flushing(context.WithoutCancel(ctx), traces, log),
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
	if s.people, err = s.openLedger(ctx, "operators", peopleConns); err != nil {
		return nil, err
	}
	if cfg.CallersFile != "" { // a replica without tills may have none, and serves no operators then
		if s.callers, err = callers.Load(cfg.CallersFile); err != nil {
			return nil, cfg.Refuse("CALLERS_FILE", err)
		}
	}
	s.gate = gate.New(gate.Config{
		MaxInFlight: cfg.Gate.MaxInFlight, RetryAfter: cfg.RetryAfter.Busy, Observer: s.metrics, Log: log,
	})
	// Until the schema has been seen nobody is let in, whatever the probe says.
	s.gate.SetDatabaseReachable(false)
	if role != config.RoleAPI {
		if err := s.openQueue(ctx); err != nil {
			return nil, err
		}
	}
	if role != config.RoleWorker {
		if err := s.openTills(ctx); err != nil {
			return nil, err
		}
	}
	s.watch()
	s.adminServer = newServer(s.adminHandler(registry), adminWriteTimeout, log)
	s.admin, err = s.listen(ctx, "ADMIN_ADDR", cfg.AdminAddr)
	return s, err
}

// adminHandler is what operators and Kubernetes see, apart from the tills. A replica
// without callers knows no operators either: there the command does the same.
func (s *service) adminHandler(registry *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", telemetry.Admin(registry, func() error { return nil }, s.ready.err))
	if s.callers != nil {
		mux.Handle("/operators/", ops.Handler(ops.Config{
			Ledger: s.people, Callers: s.callers, Limit: upkeepLimit, Nudge: s.nudge, Log: s.log,
		}))
	}
	return mux
}

// watch names what the metrics ask for when they are read.
func (s *service) watch() {
	decisions, workers := s.wallet.Decisions(), s.wallet.Workers()
	var inFlight func() int
	if s.tillsServer != nil {
		inFlight = s.gate.InFlight
	}
	var retryTokens func() float64
	if s.queue != nil {
		retryTokens = s.queue.RetryTokens
	}
	s.metrics.WatchInFlight(inFlight,
		map[string]func() int{"decision": decisions.InFlight, "worker": workers.InFlight},
		map[string]func() string{
			"decision": decisions.BreakerState, "worker": workers.BreakerState, "lookup": s.wallet.LookupBreakerState,
		}, retryTokens)
	s.metrics.WatchLedger(s.gate.DatabaseReachable)
	s.metrics.SetLimits(telemetry.Limits{
		SettleWindow: s.cfg.Queue.SettleWindow, ParkAfter: s.cfg.Queue.ParkAfter,
		ServerBudget: s.cfg.Budget.Server, DecisionCall: s.cfg.Budget.DecisionCall,
	})
	if s.queue != nil {
		s.metrics.Leased() // workers that never begin count from here
	}
}

// openQueue wires the work queue, the owner of every retry: the policy catalogue
// must say so too.
func (s *service) openQueue(ctx context.Context) error {
	var repeaters []wallet.Repeater
	for method := range wallet.Catalogue() {
		if method.Lane == "worker" {
			repeaters = append(repeaters, wallet.Repeater{Method: method, By: wallet.OwnerQueue})
		}
	}
	if err := wallet.CheckCatalogue(wallet.Catalogue(), repeaters); err != nil {
		return err
	}
	l, err := s.openLedger(ctx, "workers", workerConns)
	if err != nil {
		return err
	}
	cfg := s.cfg
	s.queue, err = queue.New(l, s.wallet.Workers(), queue.Config{
		Workers: cfg.Queue.Workers, Lease: cfg.Queue.Lease, CallLimit: cfg.Budget.WorkerCall,
		BackoffMin: cfg.Queue.BackoffMin, BackoffMax: cfg.Queue.BackoffMax, ParkAfter: cfg.Queue.ParkAfter,
		SettleWindow: cfg.Queue.SettleWindow, LateChecks: cfg.Queue.LateChecks, LookupsPerSecond: cfg.Queue.LookupsPerSecond,
		Observer: s.metrics, Log: s.log, Tracer: s.traces.Tracer(),
	})
	return err
}

// nudge wakes the workers of this replica, if it has any: those of others find
// out by asking.
func (s *service) nudge() {
	if s.queue != nil {
		s.queue.Nudge()
	}
}

// openTills wires the path of a decision, from the listener to the ledger.
func (s *service) openTills(ctx context.Context) (err error) {
	cfg := s.cfg
	if s.ledger, err = s.openLedger(ctx, "tills", cfg.Database.MaxConns); err != nil {
		return err
	}
	decider := decision.New(s.ledger, s.wallet.Decisions(), decision.Limits{
		Call: cfg.Budget.DecisionCall, Lookup: cfg.Budget.LookupCall, MinToSend: cfg.Budget.MinToSend,
	})
	handler := api.New(api.Config{
		Decider: decider, Ledger: s.ledger, FollowUps: s.ledger, Nudge: s.nudge, Callers: s.callers, PerCaller: s.gate.PerCaller(cfg.Gate.MaxPerCaller),
		Budget:            budget.Policy{Server: cfg.Budget.Server, NetworkReserve: cfg.Budget.NetworkReserve},
		RetryAfterDecline: cfg.RetryAfter.Decline, RetryAfterBusy: cfg.RetryAfter.Busy,
		MaxAmount: cfg.MaxAmount, HoldsSupported: cfg.Wallet.Version == config.WalletV2, ReadTimeout: cfg.Budget.Server,
		Log: s.log, Observer: s.metrics, Tracer: s.traces.Tracer(),
	})
	s.tillsServer = newServer(telemetry.Traced(s.gate.Handler(handler)), cfg.Budget.Server+writeMargin, s.log)
	s.tills, err = s.listen(ctx, "HTTP_ADDR", cfg.HTTPAddr)
	return err
}

func (s *service) listen(ctx context.Context, variable, address string) (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) { // right, but somebody else's at the moment
		return nil, fmt.Errorf("%s%s: %w", config.Prefix, variable, err)
	}
	if err != nil {
		return nil, s.cfg.Refuse(variable, err)
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
			return nil, s.cfg.Refuse("WALLET_TOKEN_FILE", err)
		}
		s.token = token
		walletConfig.Token = token.Get
	}
	client, err := wallet.New(walletConfig)
	if err != nil {
		// The numbers have been checked: what is left is the address.
		return nil, s.cfg.Refuse("WALLET_BASE_URL", err)
	}
	return client, nil
}

func (s *service) openLedger(ctx context.Context, name string, connections int) (*ledger.Ledger, error) {
	pool, err := ledger.Connect(ctx, s.cfg.Database.URL, ledger.Options{
		MaxConns: int32(connections), //nolint:gosec // at most 1000, see config
		Pooler:   string(s.cfg.Database.Pooler), ApplicationName: "safeledger " + name,
	})
	if err != nil {
		return nil, s.cfg.Refuse("DATABASE_URL", err)
	}
	s.closers = append(s.closers, pool.Close)
	return ledger.New(pool, ledger.Config{
		Horizon: s.cfg.Budget.Server + s.cfg.RecoveryGrace, Recovered: s.recovered,
		Alone: s.cfg.Database.GroupCommit == config.Off, Shared: s.metrics.Shared,
	})
}

// recovered notes a payment that nobody came back for.
func (s *service) recovered(ctx context.Context, p payment.Payment) {
	s.metrics.Recovered(1)
	s.log.WarnContext(ctx, "payment recovered", "id", p.ID, "operation", p.Operation, "caller", p.Caller,
		"decision", p.State, "code", p.Code, "claimed_at", p.CreatedAt)
}

func (s *service) close() {
	done := make(chan struct{})
	var closing sync.WaitGroup
	closing.Go(s.flush)
	closing.Go(func() {
		for _, c := range slices.Backward(s.closers) {
			c()
		}
	})
	go func() {
		defer close(done)
		closing.Wait()
	}()
	// A pool waits for connections that a database which hangs does not give back.
	// Nothing that is closed here is worth being late for: what matters is durable.
	select {
	case <-done:
	case <-time.After(closeLimit):
		s.log.Warn("connections were still open at the end")
	}
}

// flushing sends what is left of the traces, as long as the end of the process has room
// for it. A collector that is away costs the last spans and nothing else.
func flushing(ctx context.Context, traces *telemetry.Traces, log *slog.Logger) func() {
	return func() {
		ctx, cancel := context.WithTimeout(ctx, flushLimit)
		defer cancel()
		if err := traces.Close(ctx); err != nil {
			log.WarnContext(ctx, "the last traces are lost", "error", err)
		}
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
		serving = append(serving, "http_addr", s.tills.Addr().String())
	}
	if s.callers != nil {
		group.Go(func() error { s.callers.Watch(background, s.log); return nil })
	}
	if s.token != nil {
		group.Go(func() error { s.token.Watch(background, watchfile.Interval, s.log); return nil })
	}
	working, stopWorking := context.WithCancel(background)
	defer stopWorking()
	if s.queue != nil {
		group.Go(func() error { s.work(working); return nil })
	}
	group.Go(func() error { return s.open(background) })
	group.Go(func() error { every(background, sweepEvery, s.sweep); return nil })
	group.Go(func() error { every(background, measureEvery, s.lookAtDatabase); return nil })
	group.Go(func() error { everySparing(background, measureEvery, s.measureExposure); return nil })
	group.Go(func() error { every(background, thinEvery, s.thin); return nil })
	s.log.InfoContext(ctx, "serving", serving...)

	select {
	case <-ctx.Done():
		stopWorking() // takes nothing new; what is under way ends beside the tills'
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
		case errors.Is(err, ledger.ErrSchemaOld), errors.Is(err, ledger.ErrSchemaTooNew), errors.Is(err, ledger.ErrNotDurable):
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

// work carries out follow-ups, once the schema is known to be the right one.
func (s *service) work(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-s.opened:
		s.queue.Run(ctx)
	}
}

// sweep recovers what was left in flight. What it finds it reports itself.
func (s *service) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upkeepLimit)
	defer cancel()
	_, err := s.upkeep.Recover(ctx)
	switch {
	case err == nil:
		s.metrics.Swept()
	case s.ready.err() == nil:
		s.log.ErrorContext(ctx, "recovery sweep failed, the next one tries again", "error", err)
	}
}

// lookAtDatabase is about its clock and its schema. A failure is no news: the probe
// and the sweep have their own lines for it.
func (s *service) lookAtDatabase(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upkeepLimit)
	defer cancel()
	sent := time.Now()
	look, err := s.upkeep.Look(ctx)
	if err == nil {
		s.metrics.SetDatabase(telemetry.Look{
			Sent: sent, Took: time.Since(sent), Clock: look.Clock, Version: look.Version, Release: migrations.Latest,
		})
	}
}

func (s *service) measureExposure(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upkeepLimit)
	defer cancel()
	open, err := s.upkeep.Exposures(ctx)
	if err != nil {
		if s.ready.err() == nil {
			s.log.ErrorContext(ctx, "open follow-ups cannot be measured, the metrics show the last ones", "error", err)
		}
		return
	}
	s.metrics.SetExposures(open)
}

// thin forgets wallet calls that are older than they must be.
func (s *service) thin(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upkeepLimit)
	defer cancel()
	if s.ready.err() != nil {
		return // the schema is not known to be the right one
	}
	forgotten, err := s.upkeep.Thin(ctx, s.cfg.CallsKept)
	if err != nil {
		s.log.ErrorContext(ctx, "old wallet calls cannot be thinned, the next minute tries again", "error", err)
	}
	if forgotten > 0 {
		s.log.InfoContext(ctx, "old wallet calls thinned", "calls", forgotten)
	}
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
		// OPTIONS * is answered by us, behind the gate, or not at all.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelDebug), // mostly clients that went away
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

// everySparing runs do as every does, and more seldom where it takes long.
func everySparing(ctx context.Context, interval time.Duration, do func(context.Context)) {
	for {
		begin := time.Now()
		do(ctx)
		if !pause(ctx, max(interval, min(sumShare*time.Since(begin), sumRarest))) {
			return
		}
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
