package main

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/config"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/telemetry"
	"github.com/safeledger/safeledger/internal/wallet"
)

// forgetful is a ledger without a database: every key is new to it, and a payment is
// forgotten when it is decided. It is all that the server is spared in this variant.
type forgetful struct{ ids atomic.Uint64 }

func (f *forgetful) Claim(_ context.Context, req payment.Request) (payment.Claim, error) {
	now := time.Now().UTC().Truncate(time.Microsecond)
	p := payment.Payment{
		Caller: req.Caller, Operation: req.Operation, Account: req.Account, Amount: req.Amount,
		TillReference: req.TillReference, Metadata: req.Metadata, Reference: req.DeriveReference(),
		State: payment.InFlight, CreatedAt: now,
	}
	binary.BigEndian.PutUint64(p.ID[:8], uint64(now.UnixMilli())<<16|7<<12)
	binary.BigEndian.PutUint64(p.ID[8:], 1<<63|f.ids.Add(1))
	return payment.Claim{Status: payment.ClaimNew, Payment: p}, nil
}

func (*forgetful) Decide(_ context.Context, p payment.Payment, d payment.Decision) (payment.Payment, error) {
	p.State, p.Code, p.WalletID, p.DecidedAt = d.State, d.Code, d.WalletID, time.Now().UTC().Truncate(time.Microsecond)
	return p, nil
}

var errForgotten = errors.New("this server keeps nothing")

func (*forgetful) PaymentByID(context.Context, string, uuid.UUID) (payment.Payment, bool, error) {
	return payment.Payment{}, false, errForgotten
}

func (*forgetful) PaymentByKey(context.Context, string, payment.Operation, payment.Key) (payment.Payment, bool, error) {
	return payment.Payment{}, false, errForgotten
}

func (*forgetful) Accept(context.Context, payment.FollowUpRequest) (payment.Acceptance, error) {
	return payment.Acceptance{}, errForgotten
}

func (*forgetful) CancelByKey(context.Context, string, payment.Operation, payment.Key, *payment.Request) (payment.Cancellation, error) {
	return payment.Cancellation{}, errForgotten
}

func (*forgetful) OperationByID(context.Context, string, uuid.UUID) (payment.FollowUp, bool, error) {
	return payment.FollowUp{}, false, errForgotten
}

func (*forgetful) OperationByKey(context.Context, string, payment.Operation, payment.Key) (payment.FollowUp, bool, error) {
	return payment.FollowUp{}, false, errForgotten
}

// runWithoutDatabase is `safeledger serve --role=api` with a forgetful ledger: the
// same variables, gate, HTTP, callers, decoding, decisions, wallet client, metrics and
// log, wired as cmd/safeledger wires them.
func runWithoutDatabase(ctx context.Context) error {
	cfg, err := config.Load(config.RoleAPI)
	if err != nil {
		return err
	}
	config.CollectLessOften()
	log := telemetry.NewLogger(os.Stderr, cfg.LogLevel)
	registry := prometheus.NewRegistry()
	metrics := telemetry.New(registry, "bench", "bench")
	walletClient, err := newWallet(cfg, metrics, log)
	if err != nil {
		return err
	}
	defer walletClient.Close()
	known, err := callers.Load(cfg.CallersFile)
	if err != nil {
		return err
	}
	g := gate.New(gate.Config{MaxInFlight: cfg.Gate.MaxInFlight, RetryAfter: cfg.RetryAfter.Busy, Observer: metrics, Log: log})
	l := &forgetful{}
	decider := decision.New(l, walletClient.Decisions(), decision.Limits{
		Call: cfg.Budget.DecisionCall, Lookup: cfg.Budget.LookupCall, MinToSend: cfg.Budget.MinToSend,
	})
	handler := api.New(api.Config{
		Decider: decider, Ledger: l, FollowUps: l, Callers: known, PerCaller: g.PerCaller(cfg.Gate.MaxPerCaller),
		Budget:            budget.Policy{Server: cfg.Budget.Server, NetworkReserve: cfg.Budget.NetworkReserve},
		RetryAfterDecline: cfg.RetryAfter.Decline, RetryAfterBusy: cfg.RetryAfter.Busy,
		MaxAmount: cfg.MaxAmount, HoldsSupported: cfg.Wallet.Version == config.WalletV2, ReadTimeout: cfg.Budget.Server,
		Log: log, Observer: metrics,
	})
	metrics.WatchInFlight(g.InFlight, map[string]func() int{"decision": walletClient.Decisions().InFlight},
		map[string]func() string{"decision": walletClient.Decisions().BreakerState, "lookup": walletClient.LookupBreakerState}, nil)

	fine := func() error { return nil }
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { known.Watch(ctx, log); return nil })
	group.Go(func() error {
		g.Watch(ctx, func(context.Context) error { return nil }, time.Second)
		return nil
	})
	group.Go(func() error {
		return listenAndServe(ctx, cfg.AdminAddr, server(telemetry.Admin(registry, fine, fine), cfg, log))
	})
	group.Go(func() error {
		return listenAndServe(ctx, cfg.HTTPAddr, server(telemetry.Traced(g.Handler(handler)), cfg, log))
	})
	return group.Wait()
}

func newWallet(cfg config.Config, metrics *telemetry.Metrics, log *slog.Logger) (*wallet.Client, error) {
	return wallet.New(wallet.Config{
		BaseURL: cfg.Wallet.BaseURL, Version: wallet.Version(cfg.Wallet.Version),
		ConnectTimeout: cfg.Wallet.ConnectTimeout, MinToSend: cfg.Budget.MinToSend,
		MaxInFlight: cfg.Wallet.MaxInFlight, IdleLimit: 10 * time.Second,
		Breaker: wallet.BreakerConfig{
			Window: cfg.Breaker.Window, MinCalls: cfg.Breaker.MinCalls,
			FailureRatio: cfg.Breaker.FailureRatio, SlowRatio: cfg.Breaker.SlowRatio,
			OpenFor: cfg.Breaker.OpenFor, Probes: cfg.Breaker.Probes,
		},
		SlowCall: cfg.Wallet.SlowCall, SlowWorkerCall: cfg.Budget.WorkerCall / 2,
		UserAgent: "safeledger/bench", Observer: metrics, Log: log,
	})
}

// server has the limits that cmd/safeledger gives its own.
func server(h http.Handler, cfg config.Config, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 2 * time.Second, WriteTimeout: cfg.Budget.Server + 5*time.Second, IdleTimeout: 75 * time.Second,
		MaxHeaderBytes: 16 << 10, DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
