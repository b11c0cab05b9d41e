package wallet

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
)

// Lane is the wallet as one class of callers sees it, with a bulkhead and a
// breaker of its own: workers that pile up on a slow wallet take no place from
// decisions, and their failures do not refuse a till.
type Lane struct {
	client  *Client
	name    string
	places  chan struct{}
	breaker *breaker
}

func newLane(c *Client, name string, cfg Config, slow time.Duration) *Lane {
	return &Lane{
		client:  c,
		name:    name,
		places:  make(chan struct{}, cfg.MaxInFlight),
		breaker: newBreaker(name, cfg.Breaker, slow, cfg.Observer),
	}
}

// Enter takes a place among the calls of this lane that may be in flight at
// once. It never waits: a queue would spend the caller's deadline where nobody
// sees it. ok is false where there is no place; the call is then
// Unavailable(bulkhead_full). The place covers a call and its lookup, and is
// given back by leave, which may be called more than once.
func (l *Lane) Enter() (leave func(), ok bool) {
	select {
	case l.places <- struct{}{}:
		return sync.OnceFunc(func() { <-l.places }), true
	default:
		return func() {}, false
	}
}

// InFlight is the number of places that are taken.
func (l *Lane) InFlight() int { return len(l.places) }

// BreakerState is the state of this lane's breaker: "closed", "half-open" or "open".
func (l *Lane) BreakerState() string { return l.breaker.state() }

// Send makes the call in.Operation: at most one request on the wire, ended by
// ctx's deadline at the latest, never repeated. To call it without a place from
// Enter is a mistake of the caller's: the bulkhead then holds nothing back.
//
// A call that the catalogue does not give to this lane is not sent: a worker
// cannot debit.
func (l *Lane) Send(ctx context.Context, in payment.Instruction) payment.Outcome {
	start := time.Now()
	ctx, span := l.begin(ctx, Call(in.Operation))
	outcome := payment.Outcome{Class: payment.Unavailable, Reason: payment.ReasonBreakerOpen}
	l.breaker.do(func() count {
		var seen sight
		outcome, seen = l.send(ctx, in)
		return countOutcome(outcome, seen)
	})
	end(span, outcome.Class.String(), outcome.Reason, outcome.Class == payment.Success || outcome.Class == payment.Rejected)
	l.client.observer.WalletCall(l.name, string(in.Operation), outcome.Class.String(), outcome.Reason, time.Since(start))
	return outcome
}

func (l *Lane) send(ctx context.Context, in payment.Instruction) (payment.Outcome, sight) {
	c := l.client
	seen := sight{unsent: payment.ReasonUnsupported}
	if req, ok := c.request(Method{l.name, Call(in.Operation)}, true, in); ok {
		seen = c.exchange(ctx, req, func(s sight) bool { return s.ours(in) })
	}
	return classify(c.version, in, seen), seen
}

// Lookup asks once what became of the call that in describes (contract section
// 3). It uses the place of that call, but the breaker of lookups: a wallet that
// fails its debits may well still answer questions.
func (l *Lane) Lookup(ctx context.Context, in payment.Instruction) payment.Evidence {
	start := time.Now()
	ctx, span := l.begin(ctx, callLookup)
	evidence := payment.Evidence{Finding: payment.NoEvidence, Reason: payment.ReasonBreakerOpen}
	l.client.lookups.do(func() count {
		var seen sight
		evidence, seen = l.lookup(ctx, in)
		return countEvidence(evidence, seen)
	})
	end(span, evidence.Finding.String(), evidence.Reason, evidence.Finding != payment.NoEvidence)
	l.client.observer.WalletCall(l.name, string(callLookup), evidence.Finding.String(), evidence.Reason, time.Since(start))
	return evidence
}

func (l *Lane) lookup(ctx context.Context, in payment.Instruction) (payment.Evidence, sight) {
	c := l.client
	seen := sight{unsent: payment.ReasonUnsupported}
	if req, ok := c.request(Method{l.name, callLookup}, false, in); ok {
		seen = c.exchange(ctx, req, func(s sight) bool { return s.ours(in) })
	}
	return classifyLookup(c.version, in, seen), seen
}

// begin begins the span of a call. It names neither the account nor the URL, which of
// some calls holds the wallet's own ids.
func (l *Lane) begin(ctx context.Context, call Call) (context.Context, trace.Span) {
	ctx, span := tracing.Step(ctx, "wallet", trace.SpanKindClient)
	if span.IsRecording() {
		span.SetName("wallet " + string(call))
		span.SetAttributes(l.client.server...)
		span.SetAttributes(attribute.String("safeledger.wallet.lane", l.name))
	}
	return ctx, span
}

// end ends it. A wallet that says no has answered: what is an error is not to know.
func end(span trace.Span, outcome string, reason payment.Reason, answered bool) {
	if span.IsRecording() {
		span.SetAttributes(attribute.String("safeledger.wallet.outcome", outcome), attribute.String("safeledger.wallet.reason", string(reason)))
		if !answered {
			span.SetStatus(codes.Error, string(reason))
			span.SetAttributes(attribute.String("error.type", string(reason)))
		}
	}
	span.End()
}
