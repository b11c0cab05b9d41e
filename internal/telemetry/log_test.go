package telemetry

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/payment"
)

// Logs are copied, searched and kept by people and systems that may know
// neither tokens nor whose money it is. One careless line must not change that.
func TestSecretsDoNotReachTheLog(t *testing.T) {
	t.Parallel()
	header := http.Header{"Authorization": {"Bearer hunter2"}}
	request := payment.Request{Account: "hunter2", Key: "hunter2"}
	for _, attr := range []slog.Attr{
		slog.String("token", "hunter2"),
		slog.String("wallet_token", "hunter2"),
		slog.String("Authorization", "Bearer hunter2"), //nolint:sloglint // a careless line spells it so
		slog.String("Idempotency-Key", "hunter2"),      //nolint:sloglint // the same
		slog.String("idempotency_key", "hunter2"),
		slog.String("account", "hunter2"),
		slog.String("key", "hunter2"),
		slog.String("password", "hunter2"),
		slog.Any("metadata", map[string]string{"name": "hunter2"}),
		slog.Group("headers", slog.String("authorization", "Bearer hunter2")),
		slog.Group("token", slog.String("value", "hunter2")),
		slog.Group("sent", slog.Group("token", slog.Group("parts", slog.String("value", "hunter2")))),
		slog.Any("sent", resolves{slog.GroupValue(slog.String("token", "hunter2"))}),
		slog.Any("sent", resolves{slog.AnyValue(request)}),
		slog.Any("headers", header),
		slog.Any("got", &http.Request{Header: header}),
		slog.Any("asked", request),
		slog.Any("asked", &request),
		slog.Any("stored", payment.Payment{Account: "hunter2"}),
		slog.Any("sent", payment.Instruction{Account: "hunter2"}),
		slog.Any("under", payment.Key("hunter2")),
	} {
		t.Run(attr.String(), func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			log := NewLogger(&out, slog.LevelInfo)
			log.LogAttrs(t.Context(), slog.LevelInfo, "line", attr)
			log.With(attr).InfoContext(t.Context(), "line")
			if strings.Contains(out.String(), "hunter2") {
				t.Errorf("the secret is in the log:\n%s", out.String())
			}
			if got := strings.Count(out.String(), redacted); got != 2 {
				t.Errorf("%d of 2 lines say that something was left out:\n%s", got, out.String())
			}
		})
	}
}

// resolves is a value that says only when it is written what it is.
type resolves struct{ slog.Value }

func (r resolves) LogValue() slog.Value { return r.Value }

// A group that is open is part of the name of all that is logged in it.
func TestSecretsDoNotReachTheLogThroughAnOpenGroup(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := NewLogger(&out, slog.LevelInfo).With("role", "all").WithGroup("wallet").With("url", "wallet:8080").WithGroup("token")
	log.InfoContext(t.Context(), "line", "value", "hunter2", "length", 7)
	log.With("value", "hunter2").WithGroup("parts").InfoContext(t.Context(), "line", slog.Group("first", slog.String("half", "hunter2")))
	if strings.Contains(out.String(), "hunter2") || strings.Count(out.String(), redacted) != 4 {
		t.Errorf("want 4 values left out and no secret:\n%s", out.String())
	}
	if strings.Count(out.String(), `"url":"wallet:8080"`) != 2 || strings.Count(out.String(), `"role":"all"`) != 2 {
		t.Errorf("what is not secret is missing:\n%s", out.String())
	}
}

// The guard must leave alone what support needs to follow a payment.
func TestLinesCarryWhatSupportNeeds(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	log := NewLogger(&out, slog.LevelInfo)
	log.DebugContext(t.Context(), "left out by its level")
	log.InfoContext(t.Context(), "decided", "payment_id", "0198", "operation", payment.Debit, "code", payment.WalletTimeout,
		"took", 1200*time.Millisecond, "caller", "store-17", "error", errors.New("reset"))
	var line map[string]any
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatalf("%v in %q", err, out.String())
	}
	for name, want := range map[string]any{
		"level": "INFO", "msg": "decided", "payment_id": "0198", "operation": "debit", "code": "WALLET_TIMEOUT",
		"took": float64(1200 * time.Millisecond), "caller": "store-17", "error": "reset",
	} {
		if line[name] != want {
			t.Errorf("%s is %v, want %v", name, line[name], want)
		}
	}
	// The database's times are UTC; a log in another zone cannot be laid beside them.
	if at, ok := line["time"].(string); !ok || !strings.HasSuffix(at, "Z") {
		t.Errorf("time is %v, want UTC", line["time"])
	}
}

// A wallet's code, a till's caller or an error of a library may hold anything. In the
// log it must stay inside its value: a line that somebody else has written is evidence
// of something that never happened.
func TestWhatOthersSendStaysInsideItsLine(t *testing.T) {
	t.Parallel()
	const forged = "x\"}\n{\"level\":\"ERROR\",\"msg\":\"payment approved\"}\r\u2028\x1b[2J\x00"
	var out strings.Builder
	log := NewLogger(&out, slog.LevelInfo)
	log.InfoContext(t.Context(), "payment decided", "code", forged, "error", errors.New(forged))
	if n := strings.Count(out.String(), "\n"); n != 1 || strings.ContainsAny(out.String(), "\r\u2028\x1b\x00") {
		t.Errorf("%d lines:\n%q", n, out.String())
	}
	var line map[string]any
	if err := json.Unmarshal([]byte(out.String()), &line); err != nil {
		t.Fatal(err)
	}
	if line["msg"] != "payment decided" || line["code"] != forged || line["error"] != forged {
		t.Errorf("read back: %q", line)
	}
}
