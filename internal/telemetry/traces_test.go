package telemetry

import (
	"log/slog"
	"strings"
	"testing"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

func environment(pairs ...string) func(string) string {
	return func(name string) string {
		for _, pair := range pairs {
			if value, found := strings.CutPrefix(pair, name+"="); found {
				return value
			}
		}
		return ""
	}
}

// Nobody sends data about payments who has not asked for it.
func TestTracesAreOffWithoutAnEndpoint(t *testing.T) {
	t.Parallel()
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
	for _, env := range [][]string{
		{},
		{"OTEL_TRACES_EXPORTER=otlp", "OTEL_SERVICE_NAME=payments", "OTEL_TRACES_SAMPLER=always_on"},
		{endpoint, "OTEL_SDK_DISABLED=TRUE"},
		{endpoint, "OTEL_TRACES_EXPORTER=none"},
	} {
		traces, err := OpenTraces(t.Context(), "test", environment(env...), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("%v: %v", env, err)
		}
		if traces.Tracer() != nil {
			t.Errorf("%v: there are traces", env)
		}
		if err := traces.Close(t.Context()); err != nil {
			t.Errorf("%v: %v", env, err)
		}
	}
}

// The SDK takes what it does not know for its default, silently: traces of everything
// where somebody has asked for one in a hundred.
func TestWhatTracesCannotDoIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{"OTEL_TRACES_EXPORTER", "zipkin"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"},
		{"OTEL_TRACES_SAMPLER", "jaeger_remote"},
		{"OTEL_TRACES_SAMPLER", "parentbased_"},
	} {
		_, err := OpenTraces(t.Context(), "test", environment("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://127.0.0.1:4318/v1/traces", c[0]+"="+c[1]),
			slog.New(slog.DiscardHandler))
		if err == nil || !strings.HasPrefix(err.Error(), c[0]+`: "`+c[1]) {
			t.Errorf("%s=%s: %v", c[0], c[1], err)
		}
	}
	for _, arg := range []string{"1.5", "-0.1", "half", "NaN"} {
		if _, err := newSampler(environment("OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG="+arg)); err == nil {
			t.Errorf("OTEL_TRACES_SAMPLER_ARG=%s is taken", arg)
		}
	}
}

// Whether a trace is kept is its beginner's decision as long as the sampler says so; and
// the attempts at a follow-up are kept exactly where its request was, or nobody could
// ever see both.
func TestSamplersFollowWhatATraceGoesBackTo(t *testing.T) {
	t.Parallel()
	span := func(sampled bool) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.TraceFlags(0).WithSampled(sampled), Remote: true,
		})
	}
	for _, c := range []struct {
		name, arg                                       string
		root, below, belowOut, linkedTo, linkedToTheOut bool
	}{
		{"", "", true, true, false, true, false},
		{"parentbased_always_on", "", true, true, false, true, false},
		{"parentbased_always_off", "", false, true, false, true, false},
		{"parentbased_traceidratio", "0", false, true, false, true, false},
		{"PARENTBASED_TRACEIDRATIO", "1", true, true, false, true, false},
		{"traceidratio", "0", false, false, false, false, false},
		{"traceidratio", "", true, true, true, true, true},
		{"always_on", "", true, true, true, true, true},
		{"always_off", "", false, false, false, false, false},
	} {
		sampler, err := newSampler(environment("OTEL_TRACES_SAMPLER="+c.name, "OTEL_TRACES_SAMPLER_ARG="+c.arg))
		if err != nil {
			t.Fatal(err)
		}
		sampled := func(parent trace.SpanContext, links ...trace.Link) bool {
			ctx := trace.ContextWithSpanContext(t.Context(), parent)
			return sampler.ShouldSample(sdk.SamplingParameters{ParentContext: ctx, TraceID: trace.TraceID{2}, Links: links}).Decision == sdk.RecordAndSample
		}
		for what, got := range map[string][2]bool{
			"root":                   {sampled(trace.SpanContext{}), c.root},
			"below one that is":      {sampled(span(true)), c.below},
			"below one that is not":  {sampled(span(false)), c.belowOut},
			"linked to one that is":  {sampled(trace.SpanContext{}, trace.Link{SpanContext: span(true)}), c.linkedTo},
			"linked to one that not": {sampled(trace.SpanContext{}, trace.Link{SpanContext: span(false)}), c.linkedToTheOut},
		} {
			if got[0] != got[1] {
				t.Errorf("%q: %s: sampled %v, want %v", c.name, what, got[0], got[1])
			}
		}
	}
}

// A line leads to its trace, and says nothing of one where there is none.
func TestLinesNameTheirTrace(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := NewLogger(&out, slog.LevelInfo).With("role", "all")
	log.InfoContext(t.Context(), "outside")
	if strings.Contains(out.String(), "trace") {
		t.Errorf("%s", out.String())
	}
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{0xab}, SpanID: trace.SpanID{1}})
	log.InfoContext(trace.ContextWithSpanContext(t.Context(), span), "inside")
	if !strings.Contains(out.String(), `"role":"all","trace_id":"ab000000000000000000000000000000"`) {
		t.Errorf("%s", out.String())
	}
}
