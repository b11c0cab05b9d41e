package telemetry

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A run is judged by laying what tills saw beside what replicas wrote down. A line
// that carries no trace, or another request's, would acquit or accuse the wrong one;
// and the header is a stranger's text.
func TestLinesAboutARequestCarryItsTrace(t *testing.T) {
	t.Parallel()
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for name, c := range map[string]struct {
		header []string
		want   string
	}{
		"a trace":                {[]string{"00-" + id + "-00f067aa0ba902b7-01"}, id},
		"none":                   {nil, ""},
		"two":                    {[]string{"00-" + id + "-00f067aa0ba902b7-01", "00-" + id + "-00f067aa0ba902b7-01"}, ""},
		"nobody's":               {[]string{"00-00000000000000000000000000000000-00f067aa0ba902b7-01"}, ""},
		"of a later version":     {[]string{"01-" + id + "-00f067aa0ba902b7-01"}, ""},
		"too short":              {[]string{"00-" + id + "-00f067aa0ba902b7-0"}, ""},
		"in capitals":            {[]string{"00-" + strings.ToUpper(id) + "-00f067aa0ba902b7-01"}, ""},
		"with a dash elsewhere":  {[]string{"00-" + id[1:] + "--00f067aa0ba902b7-01"}, ""},
		"with a line of its own": {[]string{"00-" + id[2:] + "\n}-00f067aa0ba902b7-01"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			log := NewLogger(&out, slog.LevelInfo)
			handler := Traced(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				log.InfoContext(r.Context(), "plain")
				log.With("id", 1).WithGroup("g").InfoContext(r.Context(), "with attributes")
			}))
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/debits", nil)
			r.Header["Traceparent"] = c.header
			handler.ServeHTTP(httptest.NewRecorder(), r)
			log.InfoContext(t.Context(), "of no request")

			lines := strings.Split(strings.TrimSpace(out.String()), "\n")
			if len(lines) != 3 {
				t.Fatalf("%d lines: %s", len(lines), out.String())
			}
			if got := member(t, lines[0], "trace_id"); got != c.want {
				t.Errorf("a line of the request has the trace %q, want %q", got, c.want)
			}
			if strings.Contains(lines[1], id) != (c.want != "") {
				t.Errorf("a line with attributes: %s", lines[1])
			}
			if strings.Contains(lines[2], "trace_id") {
				t.Errorf("a line of no request: %s", lines[2])
			}
		})
	}
}

// member is a text in a line, "" where there is none.
func member(t *testing.T, line, name string) string {
	t.Helper()
	var members map[string]any
	if err := json.Unmarshal([]byte(line), &members); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	text, _ := members[name].(string)
	return text
}
