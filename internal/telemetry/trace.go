package telemetry

import (
	"context"
	"log/slog"
	"net/http"
)

// traceKey is the context key of a request's trace.
type traceKey struct{}

// Traced gives the lines that are logged about a request the trace under which its
// caller has put it (W3C Trace Context), as trace_id: what a till saw and what a
// replica wrote down can then be laid beside each other, request by request. Of a
// caller that sends none, or something else, nothing is noted.
func Traced(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if lines := r.Header["Traceparent"]; len(lines) == 1 {
			if id, ok := traceID(lines[0]); ok {
				r = r.WithContext(context.WithValue(r.Context(), traceKey{}, id))
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

// traceHandler adds a request's trace to the lines that are logged in its context.
type traceHandler struct{ slog.Handler }

func (h traceHandler) Handle(ctx context.Context, r slog.Record) error {
	if id, ok := ctx.Value(traceKey{}).(string); ok {
		r.AddAttrs(slog.String("trace_id", id))
	}
	return h.Handler.Handle(ctx, r)
}

func (h traceHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return traceHandler{h.Handler.WithAttrs(attrs)}
}

func (h traceHandler) WithGroup(name string) slog.Handler {
	return traceHandler{h.Handler.WithGroup(name)}
}
