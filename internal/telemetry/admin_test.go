package telemetry

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Kubernetes acts on the status and a person reads the text. The admin listener
// shows nothing else, and no Retry-After: a 503 that carries one is a promise
// that only the gate can make.
func TestAdminAnswersOperators(t *testing.T) {
	t.Parallel()
	broken := func() error { return errors.New("draining") }
	fine := func() error { return nil }
	for _, row := range []struct {
		method, path string
		live, ready  func() error
		status       int
		body         string // a part of it
	}{
		{"GET", "/livez", fine, broken, 200, "ok\n"},
		{"GET", "/livez", broken, fine, 503, "draining\n"},
		{"GET", "/readyz", broken, fine, 200, "ok\n"},
		{"GET", "/readyz", fine, broken, 503, "draining\n"},
		{"HEAD", "/readyz", fine, fine, 200, ""},
		{"GET", "/metrics", fine, fine, 200, `safeledger_build_info{commit="abcdef0",version="v1.2.3"} 1`},
		{"GET", "/metrics", broken, broken, 200, "go_goroutines"},
		{"GET", "/metrics", fine, fine, 200, "process_open_fds"},
		{"POST", "/livez", fine, fine, 405, ""},
		{"POST", "/metrics", fine, fine, 405, ""},
		{"GET", "/", fine, fine, 404, ""},
		{"GET", "/metrics/", fine, fine, 404, ""},
		{"GET", "/debug/pprof/", fine, fine, 404, ""},
		{"GET", "/debits", fine, fine, 404, ""},
	} {
		t.Run(row.method+" "+row.path, func(t *testing.T) {
			t.Parallel()
			_, registry := setup(t)
			recorder := httptest.NewRecorder()
			Admin(registry, row.live, row.ready).ServeHTTP(recorder, httptest.NewRequest(row.method, row.path, http.NoBody))
			answer := recorder.Result()
			body, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			if answer.StatusCode != row.status {
				t.Errorf("got %d, want %d", answer.StatusCode, row.status)
			}
			if !strings.Contains(string(body), row.body) {
				t.Errorf("got %q, want %q in it", body, row.body)
			}
			if got := answer.Header.Values("Retry-After"); got != nil {
				t.Errorf("Retry-After is %q, want none", got)
			}
		})
	}
}

// A probe that was answered from a cache says what was true a while ago.
func TestProbesAreNotCached(t *testing.T) {
	t.Parallel()
	_, registry := setup(t)
	recorder := httptest.NewRecorder()
	fine := func() error { return nil }
	Admin(registry, fine, fine).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/readyz", http.NoBody))
	if got := recorder.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control is %q, want no-store", got)
	}
	if got := recorder.Header().Get("Content-Type"); got != "text/plain; charset=utf-8" {
		t.Errorf("Content-Type is %q, want plain text", got)
	}
}
