// Package tracing is what the flows know of traces. It speaks OpenTelemetry's API and
// not its SDK: whether there are traces at all, and where they go, is decided where
// the process is wired (internal/telemetry).
//
// A step costs one look at its context where nothing is recorded, which is how
// SafeLedger runs unless it is told otherwise.
package tracing

import (
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Scope is the name under which our spans are made.
const Scope = "github.com/safeledger/safeledger"

// The fields of W3C Trace Context.
const (
	traceparent = "traceparent"
	tracestate  = "tracestate"
)

// Step begins a span below the one of ctx, if that is recorded. The caller ends it.
func Step(ctx context.Context, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() {
		return ctx, noop.Span{}
	}
	return parent.TracerProvider().Tracer(Scope).Start(ctx, name, trace.WithSpanKind(kind))
}

// End ends a step that err, if it is not nil, has broken. What err says must be fit for
// the log: more people read traces.
func End(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
	span.End()
}

// Continue is ctx as a part of the caller's trace, given the caller's fields of these
// names. What is malformed is ignored, and so is a traceparent that comes twice: nobody
// knows which of the two is meant. A payment is decided either way.
func Continue(ctx context.Context, traceparents, tracestates []string) context.Context {
	if len(traceparents) != 1 {
		return ctx
	}
	carrier := propagation.MapCarrier{traceparent: traceparents[0]}
	if len(tracestates) == 1 {
		carrier[tracestate] = tracestates[0]
	}
	return propagation.TraceContext{}.Extract(ctx, carrier)
}

// callersKey is the context key of WithCallers.
type callersKey struct{}

// WithCallers notes in ctx the id of the trace under which the caller has put the request,
// for the log: it is noted whether or not anything is recorded.
func WithCallers(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, callersKey{}, id)
}

// Callers is the id that WithCallers has noted, "" if there is none.
func Callers(ctx context.Context) string {
	id, _ := ctx.Value(callersKey{}).(string)
	return id
}

// Detached is a context that belongs to the traces of ctx, and has nothing else of it: no
// end, and nothing of the connection. It is what a request goes on in that its caller
// cannot call back. (context.WithoutCancel keeps all values, and with them the chain of
// contexts of the HTTP server and the router, which each look for a span would go up.)
func Detached(ctx context.Context) context.Context {
	detached := context.Background()
	if id := Callers(ctx); id != "" {
		detached = WithCallers(detached, id)
	}
	if span := trace.SpanFromContext(ctx); span.SpanContext().IsValid() {
		detached = trace.ContextWithSpan(detached, span)
	}
	return detached
}

// Traceparent names the span of ctx as the field of that name does, "" where there is
// none. It is for what comes after: a wallet, or a later attempt.
func Traceparent(ctx context.Context) string {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		return ""
	}
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// Named is the span that a Traceparent names; it is not valid where that is "".
func Named(ctx context.Context, field string) trace.SpanContext {
	ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	return trace.SpanContextFromContext(Continue(ctx, []string{field}, nil))
}
