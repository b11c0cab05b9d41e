package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/tracing"
)

// Traces is where spans go. Its zero value is the usual one: nowhere.
type Traces struct {
	provider *sdk.TracerProvider
}

// OpenTraces reads the standard OTEL_… variables by getenv, which must be the
// environment's: the SDK reads some of them itself. There are traces where an endpoint
// is named and nothing switches them off. It connects to nothing: whether a collector is
// there is nothing that a payment could wait for.
//
// An error says which variable asks for what we do not have.
func OpenTraces(ctx context.Context, version string, getenv func(string) string, log *slog.Logger) (*Traces, error) {
	wanted, err := tracesWanted(getenv)
	if err != nil || !wanted {
		return &Traces{}, err
	}
	sampler, err := newSampler(getenv)
	if err != nil {
		return nil, err
	}
	// The SDK has one place in a process for its complaints. They belong into the log.
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.WarnContext(ctx, "traces cannot be exported", "error", err)
	}))
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_…: %w", err)
	}
	// The environment comes last, so that it has its way.
	process, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attribute.String("service.name", "safeledger"), attribute.String("service.version", version)),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return &Traces{sdk.NewTracerProvider(sdk.WithResource(process), sdk.WithSampler(sampler), sdk.WithBatcher(exporter))}, nil
}

// Tracer makes spans; nil where there are none to be made.
func (t *Traces) Tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer(tracing.Scope)
}

// Close sends what is left, until ctx ends. What cannot be sent by then is lost.
func (t *Traces) Close(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

func tracesWanted(getenv func(string) string) (bool, error) {
	if disabled := value(getenv, "OTEL_SDK_DISABLED"); strings.EqualFold(disabled, "true") {
		return false, nil
	}
	if value(getenv, "OTEL_EXPORTER_OTLP_ENDPOINT") == "" && value(getenv, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, nil
	}
	switch exporter := value(getenv, "OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, fmt.Errorf("OTEL_TRACES_EXPORTER: %q is not one of otlp, none", exporter)
	}
	name, protocol := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", value(getenv, "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
	if protocol == "" {
		name, protocol = "OTEL_EXPORTER_OTLP_PROTOCOL", value(getenv, "OTEL_EXPORTER_OTLP_PROTOCOL")
	}
	if protocol != "" && protocol != "http/protobuf" {
		return false, fmt.Errorf("%s: %q is not http/protobuf", name, protocol)
	}
	return true, nil
}

func value(getenv func(string) string, name string) string { return strings.TrimSpace(getenv(name)) }

// newSampler is what OTEL_TRACES_SAMPLER asks for. The SDK would read it too; but a name
// that it does not know it takes for "everything", and it knows nothing of links.
func newSampler(getenv func(string) string) (sdk.Sampler, error) {
	name := strings.ToLower(value(getenv, "OTEL_TRACES_SAMPLER"))
	kind, ofParents := strings.CutPrefix(name, "parentbased_")
	if name == "" {
		kind, ofParents = "always_on", true
	}
	var sampler sdk.Sampler
	switch kind {
	case "always_on":
		sampler = sdk.AlwaysSample()
	case "always_off":
		sampler = sdk.NeverSample()
	case "traceidratio":
		ratio := 1.0
		if arg := value(getenv, "OTEL_TRACES_SAMPLER_ARG"); arg != "" {
			var err error
			if ratio, err = strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
				return nil, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: %q is not a number from 0 to 1", arg)
			}
		}
		sampler = sdk.TraceIDRatioBased(ratio)
	default:
		return nil, fmt.Errorf("OTEL_TRACES_SAMPLER: %q is not one of %s", name,
			"always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off, parentbased_traceidratio")
	}
	if ofParents {
		return sdk.ParentBased(ofLinks{sampler}), nil
	}
	return sampler, nil
}

// ofLinks samples a trace that goes back to another one as that was sampled, and others
// as it is told. One in a hundred requests, and then one in a hundred of their attempts,
// would show next to nobody what became of a follow-up.
type ofLinks struct{ sdk.Sampler }

func (s ofLinks) ShouldSample(p sdk.SamplingParameters) sdk.SamplingResult {
	switch {
	case len(p.Links) == 0:
		return s.Sampler.ShouldSample(p)
	case p.Links[0].SpanContext.IsSampled():
		return sdk.AlwaysSample().ShouldSample(p)
	}
	return sdk.NeverSample().ShouldSample(p)
}
