package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/safeledger/safeledger/internal/payment"
)

// redacted stands where a value was not written.
const redacted = "(redacted)"

// NewLogger writes JSON lines of level and above to w, times in UTC as the
// database has them. What is logged about a request carries its trace, see Traced.
//
// No line of ours names a token or an account in clear. The guard in front of
// the handler is for the day on which one does: it goes by the attribute's name
// and by the value's type, so it is a net under the rule and not the rule. It
// cannot see into a message, nor into a text under a harmless name.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(traceHandler{guard{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level}), false}})
}

// guard redacts before the handler writes. It is a handler and not slog's ReplaceAttr,
// which makes the handler take each attribute apart, the time and the level as well:
// that was half of what a line costs, and each decision writes one.
type guard struct {
	slog.Handler
	secret bool // all that comes is within a group of a secret name
}

// Handle writes r with its time in UTC and without its secrets.
func (h guard) Handle(ctx context.Context, r slog.Record) error {
	r.Time = r.Time.UTC()
	found := h.secret
	for a := range r.Attrs {
		if found = found || mayTell(a); found {
			break
		}
	}
	if !found { // as good as always
		return h.Handler.Handle(ctx, r)
	}
	clean := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	for a := range r.Attrs {
		clean.AddAttrs(redact(a, h.secret))
	}
	return h.Handler.Handle(ctx, clean)
}

// WithAttrs keeps attributes without their secrets.
func (h guard) WithAttrs(attrs []slog.Attr) slog.Handler {
	clean := make([]slog.Attr, 0, len(attrs))
	for _, a := range attrs {
		clean = append(clean, redact(a, h.secret))
	}
	return guard{h.Handler.WithAttrs(clean), h.secret}
}

// WithGroup opens a group.
func (h guard) WithGroup(name string) slog.Handler {
	return guard{h.Handler.WithGroup(name), h.secret || isSecret(name)}
}

// mayTell reports whether a has to go through redact: what it does with the most of them
// is nothing.
func mayTell(a slog.Attr) bool {
	switch a.Value.Kind() {
	case slog.KindGroup, slog.KindLogValuer, slog.KindAny:
		return true
	}
	return isSecret(a.Key)
}

// redact is a without what is not for the log; secret: it is within a group of such a name.
func redact(a slog.Attr, secret bool) slog.Attr {
	a.Value = a.Value.Resolve()
	secret = secret || isSecret(a.Key)
	switch {
	case a.Value.Kind() == slog.KindGroup:
		members := make([]slog.Attr, 0, len(a.Value.Group()))
		for _, member := range a.Value.Group() {
			members = append(members, redact(member, secret))
		}
		a.Value = slog.GroupValue(members...)
	case secret || a.Value.Kind() == slog.KindAny && tellsAll(a.Value.Any()):
		a.Value = slog.StringValue(redacted)
	}
	return a
}

// tellsAll reports whether v is of a type that holds whose money it is, or what a request
// was sent with.
func tellsAll(v any) bool {
	switch v.(type) {
	case payment.Request, *payment.Request, payment.Payment, *payment.Payment, payment.Instruction, *payment.Instruction,
		payment.FollowUpRequest, *payment.FollowUpRequest, payment.FollowUp, *payment.FollowUp,
		payment.FollowUpDetail, *payment.FollowUpDetail, payment.Acceptance, *payment.Acceptance,
		payment.Cancellation, *payment.Cancellation, payment.Query, *payment.Query, payment.Found, *payment.Found,
		payment.Timeline, *payment.Timeline, payment.Work, *payment.Work, payment.Settlement, *payment.Settlement,
		payment.Key, http.Header, *http.Request, *http.Response:
		return true
	}
	return false
}

// isSecret reports whether a name is that of a value which is not for the log: what lets
// somebody pay, and whose money it is. It goes by the name's words, so wallet_token and
// idempotency_key are among them.
func isSecret(name string) bool {
	separates := func(c rune) bool { return c == '_' || c == '-' || c == '.' }
	for word := range strings.FieldsFuncSeq(strings.ToLower(name), separates) { // makes no slice: it runs for each attribute
		switch word {
		case "account", "accounts", "authorization", "cookie", "credential", "credentials", "dsn", "key", "keys",
			"metadata", "password", "secret", "secrets", "token", "tokens":
			return true
		}
	}
	return false
}
