package telemetry

import (
	"context"
	"log/slog"
	"net/http"

	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/tracing"
)

// Traced gives the lines that are logged about a request the trace under which its
// caller has put it (W3C Trace Context), as trace_id: what a till saw and what a
// replica wrote down can then be laid beside each other, request by request. Of a
// caller that sends none, or something else, nothing is noted.
func Traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lines := r.Header["Traceparent"]; len(lines) == 1 {
			if id, ok := traceID(lines[0]); ok {
				r = r.WithContext(tracing.WithCallers(r.Context(), id))
			}
		}
		next.ServeHTTP(w, r)
	})
}

// traceID is the trace of a traceparent of version 00. It is checked to the letter: it
// is a text of somebody else's, and goes into our log.
func traceID(traceparent string) (id string, ok bool) {
	const form = "00-iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii-pppppppppppppppp-ff"
	if len(traceparent) != len(form) {
		return "", false
	}
	for i := range len(form) {
		switch c := traceparent[i]; form[i] {
		case '0', '-':
			if c != form[i] {
				return "", false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return "", false
			}
		}
	}
	id = traceparent[3:35]
	return id, id != "00000000000000000000000000000000"
}

// traceHandler adds the trace to the lines that are logged in its context: the one that
// a request has brought along, whether or not spans are recorded, or else the one that
// the span belongs to.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if id := tracing.Callers(ctx); id != "" {
		r.AddAttrs(slog.String("trace_id", id))
	} else if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}
