package gate

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"time"
)

// refusals are the gate's answers, rendered once: what refuses under load must
// itself cost nothing.
type refusals struct {
	retryAfter string
	bodies     map[string][]byte // by reason
}

// problem is an RFC 9457 document, as everywhere in the till's API.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Code   string `json:"code"`
}

// bodyGrace is how long an unread request body is still taken in, and thrown
// away, after a refusal has been sent: a connection that is closed over unread
// bytes is reset, and a reset can destroy the answer before the till has read
// it. It matches what net/http grants for the same reason.
const bodyGrace = 500 * time.Millisecond

func newRefusals(retryAfter time.Duration) refusals {
	bodies := make(map[string][]byte)
	for reason, words := range map[string][2]string{
		Draining:   {"This replica is going away", "The request was not begun. Send it again, with the same Idempotency-Key, on a new connection."},
		Overloaded: {"Too many requests at once", "The request was not begun. Send it again, with the same Idempotency-Key, after the time in Retry-After."},
		NotReady:   {"The database cannot be reached", "The request was not begun. Send it again, with the same Idempotency-Key, after the time in Retry-After."},
	} {
		// A struct of strings and a number cannot fail to marshal.
		bodies[reason], _ = json.Marshal(problem{
			Type:   "/openapi.yaml#/x-problems/" + reason,
			Title:  words[0],
			Status: http.StatusServiceUnavailable,
			Detail: words[1],
			Code:   reason,
		})
	}
	// Rounded up, and never 0: clients replay at once after a 0, and it is not
	// the positive number that the seed asks for.
	seconds := max((retryAfter+time.Second-1)/time.Second, 1)
	return refusals{strconv.FormatInt(int64(seconds), 10), bodies}
}

// refuse is the only author of 503 with Retry-After. It does not touch the
// request's body, and it closes the connection: what the till is still sending
// is none of our business, and its next request should reach a replica that has
// room.
//
// Each refusal is a line at debug: what tells a torture run that this request, and not
// only some request, was refused here. At any other level it costs nothing.
func (g *Gate) refuse(w http.ResponseWriter, r *http.Request, reason string) {
	g.cfg.Observer.Refused(reason)
	g.cfg.Log.LogAttrs(r.Context(), slog.LevelDebug, "request refused", slog.String("reason", reason))
	body := g.refusal.bodies[reason]
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	h.Set("Retry-After", g.refusal.retryAfter)
	h.Set("Connection", "close")
	// Without a deadline the server would go on waiting for the body of a till
	// that never sends it. Where there is no connection (a test's recorder) there
	// is nothing to bound.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyGrace))
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = w.Write(body) // a till that is gone does not need its refusal
}
