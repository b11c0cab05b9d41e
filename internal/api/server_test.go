package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/api/apitest"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/payment"
)

// pipeListener accepts the other ends of in-memory connections, so that a real
// http.Server runs on fake time.
type pipeListener struct{ conns chan net.Conn }

func (l pipeListener) Accept() (net.Conn, error) {
	conn, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (pipeListener) Close() error   { return nil }
func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// overPipe runs handler in a real http.Server inside a synctest bubble and
// gives the till's end of one connection.
func overPipe(t *testing.T, handler http.Handler) net.Conn {
	t.Helper()
	listener := pipeListener{make(chan net.Conn)}
	server := &http.Server{Handler: handler, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	served := make(chan struct{})
	go func() {
		_ = server.Serve(listener) // ends with the listener
		close(served)
	}()
	till, ours := net.Pipe()
	listener.conns <- ours
	t.Cleanup(func() {
		till.Close()
		close(listener.conns)
		<-served
		server.Close()
	})
	return till
}

// post is a request with its head as it goes over the wire.
func post(extra, body string) string {
	return "POST /debits HTTP/1.1\r\nHost: till\r\nAuthorization: Bearer " + tillToken +
		"\r\nContent-Type: application/json\r\n" + extra + "\r\n" + body
}

// A till that stops in the middle of a body must not hold a place for ever, and
// one that sends a byte now and then must not either; a slow network below that
// is served. Exact, on fake time.
func TestAStalledBodyIs400After2Seconds(t *testing.T) {
	t.Parallel()
	const head = "Idempotency-Key: k\r\nContent-Length: %d\r\n"
	tests := map[string]struct {
		header string   // Request-Deadline-Ms, if any
		pieces []string // of the body, each after a pause
		pause  time.Duration
		status int
		after  time.Duration
	}{
		"nothing comes":       {"", nil, 0, 400, 2 * time.Second},
		"stops in the middle": {"", []string{goodBody[:10]}, time.Second, 400, 2400 * time.Millisecond}, // the server's budget is spent
		"comes late":          {"", []string{goodBody}, 1900 * time.Millisecond, 201, 1900 * time.Millisecond},
		"comes in pieces":     {"", []string{goodBody[:10], goodBody[10:20], goodBody[20:]}, 700 * time.Millisecond, 201, 2100 * time.Millisecond},
		"trickles":            {"", strings.Split(goodBody, ""), 100 * time.Millisecond, 400, 2400 * time.Millisecond},
		// The budget of a till that waits for less is the shorter one: its answer must not
		// come when it has left, nor anything be claimed for it.
		"trickles, the till waits for 1.6 s":     {"Request-Deadline-Ms: 1600\r\n", strings.Split(goodBody, ""), 100 * time.Millisecond, 400, time.Second},
		"late, the till waits for 0.7 s":         {"Request-Deadline-Ms: 700\r\n", []string{goodBody}, 101 * time.Millisecond, 400, 100 * time.Millisecond},
		"late, the till waits for nothing":       {"Request-Deadline-Ms: 0\r\n", []string{goodBody}, 101 * time.Millisecond, 400, 100 * time.Millisecond},
		"just in time, it waits for nothing":     {"Request-Deadline-Ms: 0\r\n", []string{goodBody}, 99 * time.Millisecond, 201, 99 * time.Millisecond},
		"just in time, the till waits for 0.8 s": {"Request-Deadline-Ms: 800\r\n", []string{goodBody}, 199 * time.Millisecond, 201, 199 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, nil) // outside the bubble: what it compiles is shared
			synctest.Test(t, func(t *testing.T) {
				conn := overPipe(t, s.bare)
				start := time.Now()
				if _, err := io.WriteString(conn, post(test.header+fmt.Sprintf(head, len(goodBody)), "")); err != nil {
					t.Fatal(err)
				}
				var feeding sync.WaitGroup
				feeding.Go(func() {
					for _, piece := range test.pieces {
						time.Sleep(test.pause) // fake time
						if _, err := io.WriteString(conn, piece); err != nil {
							return // the server has closed
						}
					}
				})
				response, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the connection is closed, under it
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(start)
				answer, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				if response.StatusCode != test.status || took != test.after {
					t.Errorf("%d after %v, want %d after %v\n%s", response.StatusCode, took, test.status, test.after, answer)
				}
				if test.status == 400 && (!response.Close || !strings.Contains(string(answer), `"MALFORMED_REQUEST"`)) {
					t.Errorf("close %v, body %s", response.Close, answer)
				}
				begun := len(s.requests())
				if want := map[int]int{400: 0, 201: 1}[test.status]; begun != want {
					t.Errorf("%d requests were begun, want %d", begun, want)
				}
				conn.Close()
				feeding.Wait()
			})
		})
	}
}

// The limit on the body must be gone when the body is there: left in force it
// would end the request's context two seconds into a decision, as if the till
// had hung up, and whatever hangs on that context with it. The connection goes
// on to the next request.
func TestTheLimitOnABodyEndsWithTheBody(t *testing.T) {
	t.Parallel()
	s := newService(t, func(cfg *api.Config) {
		cfg.Decider = decideFunc(func(ctx context.Context, req payment.Request, d budget.Deadline) (decision.Result, error) {
			time.Sleep(10 * time.Second) // fake time: a wallet that nobody bounds
			return approve(ctx, req, d)
		})
	})
	synctest.Test(t, func(t *testing.T) {
		conn := overPipe(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.bare.ServeHTTP(w, r)
			if err := r.Context().Err(); err != nil {
				t.Errorf("the request's context has ended while its till waits: %v", err)
			}
		}))
		reader := bufio.NewReader(conn)
		for i := range 3 {
			go func() {
				_, _ = io.WriteString(conn, post(fmt.Sprintf("Idempotency-Key: k\r\nContent-Length: %d\r\n", len(goodBody)), goodBody))
			}()
			response, err := http.ReadResponse(reader, nil) //nolint:bodyclose // the connection is closed, under it
			if err != nil {
				t.Fatalf("request %d: %v", i, err)
			}
			if _, err := io.Copy(io.Discard, response.Body); err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != http.StatusCreated || response.Close {
				t.Errorf("request %d: %d, close %v", i, response.StatusCode, response.Close)
			}
			time.Sleep(5 * time.Second) // fake time: an idle connection
		}
		conn.Close()
	})
}

// Whoever has no token must not be able to hold anything by sending half a body:
// the refusal leaves, and the connection with it.
func TestARefusalDoesNotWaitForItsBody(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	synctest.Test(t, func(t *testing.T) {
		conn := overPipe(t, s.bare)
		start := time.Now()
		go func() {
			_, _ = io.WriteString(conn, "POST /debits HTTP/1.1\r\nHost: till\r\nContent-Length: 1000\r\n\r\n{")
		}()
		response, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the connection is closed, under it
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("status = %d, want 401", response.StatusCode)
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("it took %v, want at most the 2 s of a stalled body", took)
		}
		conn.Close()
	})
}

// What a proxy or an old client may do to a head on its way must end in the
// right value or a refusal, never in a guess.
func TestHeadersThatWereBentOnTheWayAreRefused(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	server := httptest.NewServer(s.bare)
	t.Cleanup(server.Close)
	length := fmt.Sprintf("Content-Length: %d\r\n", len(goodBody))
	const key = "Idempotency-Key: k\r\n"
	for name, test := range map[string]struct {
		head   string
		status int
		code   string
	}{
		"good":                       {key + length, 201, ""},
		"spaces around":              {"Idempotency-Key:  \t k \t\r\n" + length, 201, ""},
		"deadline good":              {key + "Request-Deadline-Ms: 3000 \r\n" + length, 201, ""},
		"deadline twice":             {key + "Request-Deadline-Ms: 3000\r\nrequest-deadline-ms: 1\r\n" + length, 400, "INVALID_DEADLINE"},
		"deadline folded":            {key + "Request-Deadline-Ms: 30\r\n 00\r\n" + length, 400, "INVALID_DEADLINE"},
		"key twice":                  {key + "IDEMPOTENCY-KEY: k\r\n" + length, 400, "INVALID_IDEMPOTENCY_KEY"},
		"key folded":                 {"Idempotency-Key: a\r\n b\r\n" + length, 400, "INVALID_IDEMPOTENCY_KEY"},
		"key in a trailer only":      {"Transfer-Encoding: chunked\r\nTrailer: Idempotency-Key\r\n", 400, "MISSING_IDEMPOTENCY_KEY"},
		"key with an underscore":     {"Idempotency_Key: k\r\n" + length, 400, "MISSING_IDEMPOTENCY_KEY"},
		"token twice":                {"Authorization: Bearer " + otherToken + "\r\n" + key + length, 401, "UNAUTHENTICATED"},
		"length and chunked at once": {key + length + "Transfer-Encoding: chunked\r\n", 400, ""},
		"two lengths":                {key + length + "Content-Length: 1\r\n", 400, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // after which the test calls it stuck
			payload := goodBody
			if strings.Contains(test.head, "chunked") && !strings.Contains(test.head, "Content-Length") {
				payload = fmt.Sprintf("%x\r\n%s\r\n0\r\nIdempotency-Key: k\r\n\r\n", len(goodBody), goodBody)
			}
			if _, err := io.WriteString(conn, post(test.head, payload)); err != nil {
				t.Fatal(err)
			}
			response, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the connection is closed, under it
			if err != nil {
				t.Fatal(err)
			}
			answer, err := io.ReadAll(response.Body)
			if err != nil {
				t.Fatal(err)
			}
			if response.StatusCode != test.status || !strings.Contains(string(answer), test.code) {
				t.Errorf("%d %s, want %d %s", response.StatusCode, answer, test.status, test.code)
			}
		})
	}
	t.Cleanup(func() {
		if n := len(s.requests()); n != 3 {
			t.Errorf("%d requests were begun, want the three good ones", n)
		}
	})
}

// The whole way in, as it is wired: gate, API, document. Over a real connection
// and with a real client, every answer is as documented, and what the gate
// refuses never reaches the API.
func TestTheGateStandsInFrontOfEverything(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	g := gate.New(gate.Config{MaxInFlight: 10, RetryAfter: time.Second, Observer: s.seen, Log: slog.New(slog.DiscardHandler)})
	server := httptest.NewServer(g.Handler(s.bare))
	t.Cleanup(server.Close)
	client := &http.Client{Transport: apitest.New(t).Transport(http.DefaultTransport)}

	do := func(q sent) int {
		t.Helper()
		r := q.request()
		r.RequestURI = ""
		r.URL.Scheme, r.URL.Host = "http", server.Listener.Addr().String()
		response, err := client.Do(r.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	calls := map[string]struct {
		q    sent
		open int
	}{
		"debit":     {sent{}, 201},
		"hold":      {sent{path: "/holds"}, 201},
		"large":     {sent{body: strings.Repeat(" ", 20000)}, 413},
		"no token":  {sent{header: http.Header{"Authorization": nil}}, 401},
		"credit":    {sent{path: "/credits", body: refundBody}, 202},
		"capture":   {sent{path: capturePath, noBody: true}, 202},
		"release":   {sent{path: releasePath, noBody: true, noLength: true}, 202},
		"cancel":    {sent{path: cancelPath(payment.Debit), noBody: true}, 200},
		"operation": {sent{method: http.MethodGet, path: "/operations/by-key/credit/a%2Fb"}, 404},
		"by id":     {sent{method: http.MethodGet, path: "/payments/" + paymentID.String()}, 404},
		"by key":    {sent{method: http.MethodGet, path: "/payments/by-key/hold/a%2Fb"}, 404},
		"document":  {sent{method: http.MethodGet, path: "/openapi.yaml"}, 200},
		"HEAD":      {sent{method: http.MethodHead, path: "/openapi.yaml"}, 200},
		"not there": {sent{method: http.MethodGet, path: "/nothing"}, 404},
	}
	for name, call := range calls {
		if got := do(call.q); got != call.open {
			t.Errorf("%s: %d, want %d", name, got, call.open)
		}
	}
	begun := len(s.requests()) + s.ledger.begun()
	g.SetDatabaseReachable(false)
	for name, call := range calls {
		if call.q.method == http.MethodHead {
			continue // no body to know the refusal by
		}
		if got := do(call.q); got != http.StatusServiceUnavailable {
			t.Errorf("%s behind a shut gate: %d, want 503", name, got)
		}
	}
	if n := len(s.requests()) + s.ledger.begun(); n != begun {
		t.Errorf("%d requests were begun behind a shut gate", n-begun)
	}
}

// A 2xx to CONNECT would make a tunnel of the connection, in which a proxy and we see
// different requests. No target of it is a path of ours.
func TestConnectIsNeverATunnel(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	server := httptest.NewServer(s.bare)
	t.Cleanup(server.Close)
	for _, target := range []string{"wallet:443", "/", "/payments/" + uuid.NewString(), "/openapi.yaml"} {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second)) // after which the test calls it stuck
		if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: wallet:443\r\nAuthorization: Bearer %s\r\n\r\n", target, tillToken); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil) //nolint:bodyclose // the connection is closed, under it
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode < 400 {
			t.Errorf("CONNECT %s is answered %d", target, response.StatusCode)
		}
		_ = conn.Close()
	}
}

// stuck is a log that nobody reads any more: what writes to it stands until it is closed.
type stuck chan struct{}

func (s stuck) Write(line []byte) (int, error) {
	<-s
	return len(line), nil
}

// Whoever collects our lines may stop, with a full disk or a full pipe. A till must not
// wait for that: its answer leaves before the line about it is written (promise 6). What
// then stands still are its connection, and its place at the gate, which refuses when there
// is none left.
func TestAnAnswerDoesNotWaitForTheLog(t *testing.T) {
	t.Parallel()
	log := make(stuck)
	s := newService(t, func(cfg *api.Config) { cfg.Log = slog.New(slog.NewJSONHandler(log, nil)) })
	g := gate.New(gate.Config{MaxInFlight: 2, RetryAfter: time.Second, Observer: s.seen, Log: slog.New(slog.DiscardHandler)})
	server := httptest.NewServer(g.Handler(s.bare))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(log) })
	for _, want := range []int{http.StatusCreated, http.StatusCreated, http.StatusServiceUnavailable} {
		r := sent{}.request()
		r.RequestURI = ""
		r.URL.Scheme, r.URL.Host = "http", server.Listener.Addr().String()
		r.Close = true                    // the next one takes a connection of its own
		const patience = 10 * time.Second // after which the test calls it stuck
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		response, err := server.Client().Do(r.WithContext(ctx))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != want || !json.Valid(body) {
			t.Fatalf("answered %d %q, %v, want %d", response.StatusCode, body, err, want)
		}
	}
}
