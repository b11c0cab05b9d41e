package api

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

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
	d.trace(trace.SpanFromContext(ctx))
	if steps := d.result.Steps; steps.Unsent {
		a.Observer.NotSent(d.operation, steps.Outcome.Reason)
	}
	if d.err != nil {
		a.Observer.OutcomeUnknown(d.operation)
		if d.result.Payment.ID != uuid.Nil { // claimed, so it is the store that failed
			a.Observer.NotStored(d.operation)
		}
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
	case decision.Cancelled:
		a.Observer.Replay(d.operation)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "payment replayed after it was cancelled", d.attrs()...)
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
	attrs = append(attrs, milliseconds("claim_ms", steps.Claim))
	// Most payments need no lookup, and a replay none of these steps.
	if steps.Call != 0 {
		attrs = append(attrs, milliseconds("call_ms", steps.Call))
	}
	if steps.Lookup != 0 {
		attrs = append(attrs, milliseconds("lookup_ms", steps.Lookup))
	}
	if steps.Store != 0 {
		attrs = append(attrs, milliseconds("store_ms", steps.Store))
	}
	return append(attrs, milliseconds("total_ms", d.took), milliseconds("left_ms", d.left))
}

// asked is what is reported of one request for a follow-up that reached the ledger.
type asked struct {
	request    payment.FollowUpRequest
	acceptance payment.Acceptance
	refusal    refusal
	err        error
	status     int // as answered
	took       time.Duration
}

// reportAcceptance counts q and writes its one line, under the same rule as report.
func (a *api) reportAcceptance(ctx context.Context, q asked) {
	kind, f := q.request.Kind, q.acceptance.FollowUp
	paymentID := q.request.PaymentID
	attrs := make([]slog.Attr, 0, 8)
	if f.ID != uuid.Nil && q.err == nil {
		attrs = append(attrs, slog.String("id", f.ID.String()))
	}
	attrs = append(attrs, slog.String("kind", string(kind)), slog.String("caller", q.request.Caller))
	if paymentID != uuid.Nil {
		attrs = append(attrs, slog.String("payment_id", paymentID.String()))
	}
	attrs = append(attrs, slog.Int("status", q.status), milliseconds("total_ms", q.took))
	switch {
	case q.err != nil:
		a.Observer.OutcomeUnknown(kind)
		a.Log.LogAttrs(ctx, slog.LevelError, "outcome unknown", append(attrs, slog.Any("error", q.err))...)
	case q.acceptance.Status == payment.Accepted:
		a.Observer.Accepted(kind)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "follow-up accepted", attrs...)
	case q.acceptance.Status == payment.AcceptedBefore:
		a.Observer.Replay(kind)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "follow-up replayed", attrs...)
	case q.refusal == internal: // not one of the answers that a ledger can give: a bug, told as one
		a.Observer.OutcomeUnknown(kind)
		a.Log.LogAttrs(ctx, slog.LevelError, "outcome unknown, the ledger gave no result", attrs...)
	default:
		if q.refusal == keyReused {
			a.Observer.KeyConflict(kind, Mismatch)
		}
		a.Log.LogAttrs(ctx, slog.LevelInfo, "follow-up refused", append(attrs, slog.String("code", q.refusal.problem().Code))...)
	}
}

// cancelled is what is reported of one cancel by key.
type cancelled struct {
	operation    payment.Operation
	caller       string
	cancellation payment.Cancellation
	err          error
	status       int // as answered
	took         time.Duration
}

// reportCancel counts c and writes its one line, under the same rule as report.
func (a *api) reportCancel(ctx context.Context, c cancelled) {
	p, reversal := c.cancellation.Payment, c.cancellation.Reversal
	attrs := make([]slog.Attr, 0, 8)
	if p.ID != uuid.Nil && c.err == nil {
		attrs = append(attrs, slog.String("id", p.ID.String()), slog.String("decision", string(p.State)))
	}
	if reversal != uuid.Nil {
		attrs = append(attrs, slog.String("reversal_id", reversal.String()))
	}
	attrs = append(attrs, slog.String("operation", string(c.operation)), slog.String("caller", c.caller),
		slog.Int("status", c.status), milliseconds("total_ms", c.took))
	switch {
	case c.err != nil:
		a.Observer.OutcomeUnknown(c.operation)
		a.Log.LogAttrs(ctx, slog.LevelError, "outcome unknown", append(attrs, slog.Any("error", c.err))...)
	case c.status == http.StatusOK:
		a.Observer.Cancelled(c.operation)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "payment cancelled by its key", attrs...)
	case c.cancellation.Status == payment.CancelTooLate:
		a.Log.LogAttrs(ctx, slog.LevelInfo, "payment not cancelled, the hold is captured", attrs...)
	case c.cancellation.Status == payment.CancelUnknownBody:
		a.Observer.KeyConflict(c.operation, Mismatch)
		a.Log.LogAttrs(ctx, slog.LevelInfo, "key reused for a different request", attrs...)
	default:
		a.Observer.OutcomeUnknown(c.operation)
		a.Log.LogAttrs(ctx, slog.LevelError, "outcome unknown, the ledger gave no result", attrs...)
	}
}

// milliseconds is d in whole ones, rounded: what takes less than one is in the metrics. A
// fraction would be the dearest part of the line, because slog gives it to encoding/json.
func milliseconds(key string, d time.Duration) slog.Attr {
	return slog.Int64(key, d.Round(time.Millisecond).Milliseconds())
}
