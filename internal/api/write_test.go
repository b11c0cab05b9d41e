package api

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// 503 with Retry-After means to every till and proxy that nothing has begun, and
// behind the gate nobody can say that. So it is not left to those who make
// answers: whatever they ask for, whatever was in the header before, the writer
// does not let the field out with a 5xx.
func TestRetryAfterCannotLeaveWithA5xx(t *testing.T) {
	t.Parallel()
	a := &api{}
	for status := 500; status < 600; status++ {
		w := httptest.NewRecorder()
		w.Header().Set("Retry-After", "1")
		a.write(w, answer{status: status, mediaType: problemType, retryAfter: time.Second})
		if got, there := w.Result().Header["Retry-After"]; there {
			t.Errorf("%d leaves with Retry-After %q", status, got)
		}
	}
}

// Some clients replay at once after a 0, and others refuse a fraction: a whole
// number of seconds goes out, at least one, and never less than was configured.
func TestRetryAfterIsToldInWholeSeconds(t *testing.T) {
	t.Parallel()
	for configured, want := range map[time.Duration]string{
		time.Millisecond: "1", time.Second: "1", 1500 * time.Millisecond: "2", 2 * time.Second: "2", time.Minute: "60",
	} {
		w := httptest.NewRecorder()
		(&api{}).write(w, answer{status: http.StatusConflict, mediaType: problemType, retryAfter: configured})
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v is told as %q, want %q", configured, got, want)
		}
	}
}
