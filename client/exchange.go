package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxHeader bounds the head of an answer; ours has a dozen short fields.
	maxHeader = 16 << 10
	// maxAnswer bounds the body of an answer. A payment is told with all its
	// follow-ups, of which there may be many; everything else is a thousandth of it.
	maxAnswer = 1 << 20
)

// call is one request as it is made, each time that it is made.
type call struct {
	method string
	path   string // escaped, from the base
	key    string // "" for none
	body   []byte // nil for none
	// tellDeadline is set if the service is to be told when the context ends: if the
	// till has set that end, and not the policy alone. That a till which names no time
	// would in theory wait for Total tells the service nothing.
	tellDeadline bool
}

// answer is a complete answer: its head and all of its body.
type answer struct {
	status     int
	mediaType  string
	retryAfter time.Duration // 0 if there is none that is valid
	replayed   bool
	body       []byte
}

// lostError is an exchange without a complete answer.
type lostError struct {
	// begun is set from the moment on that there was a connection to write to. What the
	// transport says of its writes is no evidence: it reports bytes as written that have
	// never left its buffer, so that only the connection counts.
	begun  bool
	status int // of an answer that was broken off, 0 if not even its head came
	err    error
}

func (l *lostError) Error() string { return l.err.Error() }
func (l *lostError) Unwrap() error { return l.err }

// exchange sends c once, and reads the whole answer. An error is a *lostError.
func (cl *Client) exchange(ctx context.Context, c call) (answer, error) {
	var begun atomic.Bool
	traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { begun.Store(true) },
	})
	req, err := http.NewRequestWithContext(traced, c.method, cl.base+c.path, nil)
	if err != nil {
		return answer{}, &lostError{err: fmt.Errorf("make the request: %w", err)}
	}
	if c.body != nil {
		// Without a GetBody nothing below could send it again.
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(c.body)), int64(len(c.body))
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Authorization", "Bearer "+cl.token)
	req.Header.Set("Accept", "application/json, application/problem+json")
	req.Header.Set("User-Agent", "safeledger-client-go")
	if c.key != "" {
		req.Header.Set("Idempotency-Key", quoted(c.key))
	}
	if cl.traceparent != nil {
		if parent := cl.traceparent(ctx); wellFormedTraceparent(parent) {
			req.Header.Set("Traceparent", parent)
		}
	}
	if end, set := ctx.Deadline(); set && c.tellDeadline {
		left := max(0, time.Until(end))
		req.Header.Set("Request-Deadline-Ms", strconv.FormatInt(left.Milliseconds(), 10))
	}
	if err := ctx.Err(); err != nil {
		return answer{}, &lostError{err: err}
	}
	resp, err := cl.transport.RoundTrip(req)
	if err != nil {
		return answer{}, &lostError{begun: begun.Load(), err: cause(ctx, err)}
	}
	defer func() { _ = resp.Body.Close() }() // what it could say of the answer, reading it has said
	if resp.StatusCode < http.StatusOK {
		// The body of a 101 is the connection itself, and reading it does not end with
		// the context.
		return answer{}, &lostError{begun: true, status: resp.StatusCode, err: fmt.Errorf("answered with %d, which answers nothing", resp.StatusCode)}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, &lostError{begun: true, status: resp.StatusCode, err: fmt.Errorf("the answer was broken off: %w", cause(ctx, err))}
	case len(body) > maxAnswer:
		return answer{}, &lostError{begun: true, status: resp.StatusCode, err: errors.New("the answer is too large")}
	}
	return answer{
		status:     resp.StatusCode,
		mediaType:  mediaType(resp.Header.Values("Content-Type")),
		retryAfter: retryAfter(resp.Header.Values("Retry-After")),
		replayed:   resp.Header.Get("Idempotency-Replayed") == "true",
		body:       body,
	}, nil
}

// cause is the context's error, once it has one, rather than what its end made of
// the connection.
func cause(ctx context.Context, err error) error {
	if ended := ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// retryAfter reads the fields of Retry-After: a positive whole number of seconds,
// once, is valid; a date, a fraction, a sign, a zero or a second field is not, and
// gives 0. What is longer than anybody's deadline is cut there.
func retryAfter(lines []string) time.Duration {
	if len(lines) != 1 || lines[0] == "" {
		return 0
	}
	for i := range len(lines[0]) {
		if lines[0][i] < '0' || lines[0][i] > '9' {
			return 0
		}
	}
	const longest = 365 * 24 * time.Hour
	digits := strings.TrimLeft(lines[0], "0")
	if digits == "" {
		return 0
	}
	seconds, err := strconv.ParseInt(digits, 10, 32)
	if err != nil { // digits they are, so there are too many
		return longest
	}
	return min(time.Duration(seconds)*time.Second, longest)
}

// mediaType is the type of a body without its parameters, "" if it is not said once.
func mediaType(lines []string) string {
	if len(lines) != 1 {
		return ""
	}
	name, _, _ := strings.Cut(lines[0], ";")
	return strings.ToLower(strings.TrimSpace(name))
}

// wellFormedTraceparent checks version 00 of W3C Trace Context: a bad one would make
// the service begin a trace of its own, a hostile one would be a header injection.
func wellFormedTraceparent(s string) bool {
	if len(s) != len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01") {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case i == 2 || i == 35 || i == 52:
			if c != '-' {
				return false
			}
		case (c < '0' || c > '9') && (c < 'a' || c > 'f'):
			return false
		}
	}
	return s[:2] != "ff"
}
