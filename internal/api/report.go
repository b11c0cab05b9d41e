package api

import (
	"context"
	"log/slog"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/payment"
)

// decided is what is reported of one request for a payment that was begun.
type decided struct {
	operation  payment.Operation
	caller     string
	result     decision.Result
	err        error
	status     int           // as answered
	took, left time.Duration // see observer.Decision
}

// report counts d and writes its one line. It holds what an engineer follows a
// payment by, and nothing that belongs to the customer or opens a door: no
// account, no key, no token, no metadata.
func (a *api) report(ctx context.Context, d decided) {
	if d.err != nil {
		a.Observer.OutcomeUnknown(d.operation)
		a.Log.LogAttrs(ctx, slog.LevelError, "outcome unknown", append(d.attrs(), slog.Any("error", d.err))...)
		return
	}
	p := d.result.Payment
	switch d.result.Status {
	case decision.Decided:
		if p.State == payment.InFlight {
			break // answered as unknown
		}
		a.Observer.Decision(d.operation, p.State, p.Code, d.took, d.left)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "payment decided", d.attrs()...)
		return
	case decision.Replayed:
		a.Observer.Replay(d.operation)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "payment replayed", d.attrs()...)
		return
	case decision.InFlight:
		a.Observer.KeyConflict(d.operation, InFlight)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "key in flight", d.attrs()...)
		return
	case decision.Mismatch:
		a.Observer.KeyConflict(d.operation, Mismatch)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "key reused for a different request", d.attrs()...)
		return
	}
	// Not one of the results that a decision can have: a bug, told as one.
	a.Observer.OutcomeUnknown(d.operation)
	a.Log.LogAttrs(ctx, slog.LevelError, "outcome unknown, the decision gave no result", d.attrs()...)
}

func (d decided) attrs() []slog.Attr {
	p, steps := d.result.Payment, d.result.Steps
	attrs := make([]slog.Attr, 0, 16) // all of them, so that it is one allocation
	if p.ID != uuid.Nil {
		attrs = append(attrs, slog.String("id", p.ID.String()))
	}
	attrs = append(attrs, slog.String("operation", string(d.operation)), slog.String("caller", d.caller))
	if p.State != "" {
		attrs = append(attrs, slog.String("decision", string(p.State)))
	}
	if p.Code != "" {
		attrs = append(attrs, slog.String("code", string(p.Code)))
	}
	attrs = append(attrs, slog.Bool("replayed", d.result.Status == decision.Replayed), slog.Int("status", d.status))
	if steps.Outcome.Class != 0 {
		attrs = append(attrs, slog.String("outcome", steps.Outcome.Class.String()), slog.String("reason", string(steps.Outcome.Reason)))
	}
	if steps.Evidence.Finding != 0 {
		attrs = append(attrs, slog.String("evidence", steps.Evidence.Finding.String()))
	}
	return append(attrs,
		milliseconds("claim_ms", steps.Claim),
		milliseconds("call_ms", steps.Call),
		milliseconds("lookup_ms", steps.Lookup),
		milliseconds("store_ms", steps.Store),
		milliseconds("total_ms", d.took),
		milliseconds("left_ms", d.left),
	)
}

// milliseconds is d with three digits: a claim takes a fraction of one.
func milliseconds(key string, d time.Duration) slog.Attr {
	return slog.Float64(key, float64(d.Microseconds())/1000)
}
