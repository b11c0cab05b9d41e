package tracing

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/trace"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
)

// What is stored with a follow-up must name, days later and in another process, the
// very span that it was accepted by, and whether that was sampled.
func TestASpanIsFoundByItsName(t *testing.T) {
	t.Parallel()
	for _, flags := range []string{"00", "01"} {
		want := "00-" + traceID + "-" + spanID + "-" + flags
		ctx := Continue(t.Context(), []string{want}, []string{"till=7"})
		field := Traceparent(ctx)
		if field != want {
			t.Errorf("named %q, want %q", field, want)
		}
		// Whatever is traced where it is read does not matter.
		elsewhere := Continue(t.Context(), []string{"00-" + spanID + spanID + "-" + spanID + "-01"}, nil)
		span := Named(elsewhere, field)
		if span.TraceID().String() != traceID || span.SpanID().String() != spanID || span.IsSampled() != (flags == "01") || !span.IsRemote() {
			t.Errorf("%q is %+v", field, span)
		}
		if Named(elsewhere, "").IsValid() {
			t.Error("nothing names a span")
		}
	}
}

// A till's nonsense must not become a trace that nobody began, nor stop a payment.
func TestWhatIsNoTraceparentIsIgnored(t *testing.T) {
	t.Parallel()
	good := "00-" + traceID + "-" + spanID + "-01"
	for name, fields := range map[string][]string{
		"none": nil, "empty": {""}, "cut off": {good[:40]}, "version ff": {"ff" + good[2:]},
		"upper case": {"00-4BF92F3577B34DA6A3CE929D0E0E4736-" + spanID + "-01"},
		"no trace":   {"00-00000000000000000000000000000000-" + spanID + "-01"},
		"twice":      {good, good},
	} {
		if ctx := Continue(t.Context(), fields, nil); trace.SpanContextFromContext(ctx).IsValid() || Traceparent(ctx) != "" {
			t.Errorf("%s: %q is taken for a trace", name, fields)
		}
	}
}

// Traces are off almost everywhere: there they must not cost what a decision would feel.
func TestNothingIsAllocatedWhereNothingIsTraced(t *testing.T) { //nolint:paralleltest // counts allocations
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := testing.AllocsPerRun(100, func() {
		below, span := Step(ctx, "claim", trace.SpanKindInternal)
		if Traceparent(below) != "" {
			t.Error("a span where there is none")
		}
		End(span, nil)
	})
	if got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// What a till has begun goes on when it hangs up, and still belongs to its traces: the
// line about it and the wallet's span would otherwise be nobody's.
func TestWhatIsDetachedBelongsToItsTracesAndDoesNotEnd(t *testing.T) {
	t.Parallel()
	type otherKey struct{}
	const field = "00-" + traceID + "-" + spanID + "-01"
	for name, c := range map[string]struct {
		within        func(context.Context) context.Context
		span, callers string
	}{
		"nothing traced": {func(ctx context.Context) context.Context { return ctx }, "", ""},
		"the caller's":   {func(ctx context.Context) context.Context { return WithCallers(ctx, traceID) }, "", traceID},
		"a span":         {func(ctx context.Context) context.Context { return Continue(ctx, []string{field}, nil) }, field, ""},
		"both": {func(ctx context.Context) context.Context {
			return WithCallers(Continue(ctx, []string{field}, nil), traceID)
		}, field, traceID},
	} {
		ctx, end := context.WithCancel(context.WithValue(t.Context(), otherKey{}, "the connection"))
		detached := Detached(c.within(ctx))
		end()
		if detached.Err() != nil || detached.Done() != nil {
			t.Errorf("%s: it ends with what it was made of", name)
		}
		if got := Traceparent(detached); got != c.span {
			t.Errorf("%s: the span is %q, want %q", name, got, c.span)
		}
		if got := Callers(detached); got != c.callers {
			t.Errorf("%s: the caller's trace is %q, want %q", name, got, c.callers)
		}
		if detached.Value(otherKey{}) != nil {
			t.Errorf("%s: it holds on to the connection", name)
		}
	}
}
