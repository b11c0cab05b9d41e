package telemetry

import (
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"github.com/safeledger/safeledger/internal/payment"
)

// redacted stands where a value was not written.
const redacted = "(redacted)"

// secretWords are the words that make the name of an attribute one whose value
// is not for the log: what lets somebody pay, and whose money it is. A name is
// split at its underscores, so wallet_token and idempotency_key are among them.
var secretWords = []string{
	"account", "accounts", "authorization", "cookie", "credential", "credentials", "dsn", "key", "keys",
	"metadata", "password", "secret", "secrets", "token", "tokens",
}

// NewLogger writes JSON lines of level and above to w, times in UTC as the
// database has them. What is logged about a request carries its trace, see Traced.
//
// No line of ours names a token or an account in clear. The guard in front of
// the handler is for the day on which one does: it goes by the attribute's name
// and by the value's type, so it is a net under the rule and not the rule. It
// cannot see into a message, nor into a text under a harmless name.
func NewLogger(w io.Writer, level slog.Leveler) *slog.Logger {
	return slog.New(traceHandler{slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: guard})})
}

func guard(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey {
		return slog.Time(a.Key, a.Value.Time().UTC())
	}
	if isSecret(a.Key) || slices.ContainsFunc(groups, isSecret) {
		return slog.String(a.Key, redacted)
	}
	if a.Value.Kind() != slog.KindAny {
		return a
	}
	switch a.Value.Any().(type) {
	case payment.Request, *payment.Request, payment.Payment, *payment.Payment, payment.Instruction, *payment.Instruction,
		payment.FollowUpRequest, *payment.FollowUpRequest, payment.FollowUp, *payment.FollowUp,
		payment.FollowUpDetail, *payment.FollowUpDetail, payment.Acceptance, *payment.Acceptance,
		payment.Cancellation, *payment.Cancellation, payment.Query, *payment.Query, payment.Found, *payment.Found,
		payment.Timeline, *payment.Timeline, payment.Work, *payment.Work, payment.Settlement, *payment.Settlement,
		payment.Key, http.Header, *http.Request, *http.Response:
		return slog.String(a.Key, redacted)
	}
	return a
}

func isSecret(name string) bool {
	separates := func(c rune) bool { return c == '_' || c == '-' || c == '.' }
	for word := range strings.FieldsFuncSeq(strings.ToLower(name), separates) { // makes no slice: it runs for each attribute
		if slices.Contains(secretWords, word) {
			return true
		}
	}
	return false
}
