package api

import (
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/tracing"
)

// traced makes a request a span, as a part of the till's trace if it says of which. It
// has the route and not the path, which may hold a key, and nothing else that a till can
// choose.
func (a *api) traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		switch method {
		case http.MethodGet, http.MethodHead, http.MethodPost:
		default:
			method = "_OTHER" // as the semantic conventions ask
		}
		ctx := tracing.Continue(r.Context(), r.Header.Values("traceparent"), r.Header.Values("tracestate"))
		ctx, span := a.Tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", method), attribute.String("url.scheme", "http")))
		defer span.End()
		answered := &statusOf{ResponseWriter: w}
		next.ServeHTTP(answered, r.WithContext(ctx))

		if !span.IsRecording() {
			return
		}
		if route := chi.RouteContext(ctx).RoutePattern(); route != "" {
			span.SetName(method + " " + route)
			span.SetAttributes(attribute.String("http.route", route))
		}
		span.SetAttributes(attribute.Int("http.response.status_code", answered.status))
		if answered.status >= http.StatusInternalServerError {
			span.SetAttributes(attribute.String("error.type", strconv.Itoa(answered.status)))
			span.SetStatus(codes.Error, "")
		}
	})
}

// statusOf remembers the status that was written.
type statusOf struct {
	http.ResponseWriter

	status int
}

func (w *statusOf) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap is how http.ResponseController finds the connection's deadlines.
func (w *statusOf) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// trace tells the request's span what the log is told of a decision.
func (d decided) trace(span trace.Span) {
	if !span.IsRecording() {
		return
	}
	p := d.result.Payment
	span.SetAttributes(attribute.String("safeledger.caller", d.caller), attribute.Bool("safeledger.replayed", d.result.Status == decision.Replayed))
	if p.ID != uuid.Nil {
		span.SetAttributes(attribute.String("safeledger.payment.id", p.ID.String()),
			attribute.String("safeledger.payment.decision", string(p.State)), attribute.String("safeledger.payment.code", string(p.Code)))
	}
	if d.result.Steps.Unsent {
		span.SetAttributes(attribute.String("safeledger.payment.unsent", string(d.result.Steps.Outcome.Reason)))
	}
}
