package gate_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/gate"
)

// refused counts refusals by reason.
type refused struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *refused) Refused(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = make(map[string]int)
	}
	r.counts[reason]++
}

func (r *refused) snapshot() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

func newGate(maximum int) (*gate.Gate, *refused) {
	seen := &refused{}
	return gate.New(gate.Config{
		MaxInFlight: maximum,
		RetryAfter:  time.Second,
		Observer:    seen,
		Log:         slog.New(slog.DiscardHandler),
	}), seen
}

// unreadable is a request body that must not be touched.
type unreadable struct{ reads atomic.Int64 }

func (u *unreadable) Read([]byte) (int, error) {
	u.reads.Add(1)
	return 0, errors.New("the body was read")
}
func (u *unreadable) Close() error { return nil }

// A till replays whatever is answered with 503 and Retry-After. If the handler
// had run, that replay could move money twice: the pair must mean that it did
// not, and that not a byte of the body was looked at.
func TestARefusalMeansThatTheHandlerWasNotInvoked(t *testing.T) {
	t.Parallel()
	for reason, shut := range map[string]func(*gate.Gate){
		gate.Draining:   func(g *gate.Gate) { g.Drain() },
		gate.NotReady:   func(g *gate.Gate) { g.SetDatabaseReachable(false) },
		gate.Overloaded: func(*gate.Gate) {}, // no place at all, see below
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			places := 10
			if reason == gate.Overloaded {
				places = 0
			}
			g, seen := newGate(places)
			shut(g)
			var handled atomic.Int64
			h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled.Add(1) }))

			body := &unreadable{}
			w := httptest.NewRecorder()
			r := httptest.NewRequest(http.MethodPost, "/debits", body)
			h.ServeHTTP(w, r)

			if n := handled.Load(); n != 0 {
				t.Errorf("the handler was invoked %d times", n)
			}
			if n := body.reads.Load(); n != 0 {
				t.Errorf("the body was read %d times", n)
			}
			if w.Code != http.StatusServiceUnavailable {
				t.Errorf("status = %d, want 503", w.Code)
			}
			for name, want := range map[string]string{
				"Retry-After":   "1",
				"Connection":    "close",
				"Content-Type":  "application/problem+json",
				"Cache-Control": "no-store",
			} {
				if got := w.Header().Values(name); len(got) != 1 || got[0] != want {
					t.Errorf("%s = %q, want once %q", name, got, want)
				}
			}
			var problem map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil {
				t.Fatalf("body: %v", err)
			}
			if problem["code"] != reason || problem["status"] != 503.0 || problem["type"] != "/openapi.yaml#/x-problems/"+reason {
				t.Errorf("problem = %v", problem)
			}
			if diff := cmp.Diff(map[string]int{reason: 1}, seen.snapshot()); diff != "" {
				t.Errorf("observed refusals (-want +got):\n%s", diff)
			}
		})
	}
}

// Some clients replay at once after "Retry-After: 0", and the seed asks for a
// positive whole number: whatever is configured, nothing else may go out.
func TestRetryAfterIsAPositiveWholeNumberOfSeconds(t *testing.T) {
	t.Parallel()
	for configured, want := range map[time.Duration]string{
		-time.Second:            "1",
		0:                       "1",
		time.Nanosecond:         "1",
		time.Second:             "1",
		1001 * time.Millisecond: "2",
		90 * time.Second:        "90",
	} {
		g := gate.New(gate.Config{RetryAfter: configured, Observer: &refused{}, Log: slog.New(slog.DiscardHandler)})
		w := httptest.NewRecorder()
		g.Handler(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("RetryAfter %v is told as %q, want %q", configured, got, want)
		}
	}
}

// A request that waited for a place would be decided after its till has gone
// (field report B12): a full gate says so at once, and a place that is given
// back is free at once.
func TestAFullGateRefusesAndNeverQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, seen := newGate(2)
		release := make(chan struct{})
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(http.StatusCreated)
		}))
		status := func() int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/debits", nil))
			return w.Code
		}
		inside := make(chan int)
		for range 2 {
			go func() { inside <- status() }()
		}
		synctest.Wait()
		if n := g.InFlight(); n != 2 {
			t.Fatalf("in flight = %d, want 2", n)
		}

		before := time.Now()
		if got := status(); got != http.StatusServiceUnavailable {
			t.Errorf("third request: %d, want 503", got)
		}
		if waited := time.Since(before); waited != 0 {
			t.Errorf("the refusal took %v of fake time", waited)
		}

		close(release)
		for range 2 {
			if got := <-inside; got != http.StatusCreated {
				t.Errorf("a request inside was answered %d, want 201", got)
			}
		}
		if got := status(); got != http.StatusCreated {
			t.Errorf("after the others have left: %d, want 201", got)
		}
		if diff := cmp.Diff(map[string]int{gate.Overloaded: 1}, seen.snapshot()); diff != "" {
			t.Errorf("observed refusals (-want +got):\n%s", diff)
		}
	})
}

// To look and to enter are one step: two tills that see the last place at the
// same time do not both get it, however often they try.
func TestTheLastPlaceIsTakenOnce(t *testing.T) {
	t.Parallel()
	const places, tills, attempts = 2, 8, 20_000
	g, _ := newGate(places)
	var running, most atomic.Int64
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := running.Add(1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() {
		}
		runtime.Gosched() // let the others find the gate full
		running.Add(-1)
	}))
	r := httptest.NewRequest(http.MethodPost, "/debits", nil)
	var wg sync.WaitGroup
	for range tills {
		wg.Go(func() {
			w := nobody{http.Header{}}
			for range attempts {
				h.ServeHTTP(w, r)
			}
		})
	}
	wg.Wait()
	if n := most.Load(); n != places {
		t.Errorf("at most %d were inside at once, want %d", n, places)
	}
}

// nobody is a ResponseWriter that costs nothing.
type nobody struct{ header http.Header }

func (n nobody) Header() http.Header       { return n.header }
func (nobody) Write(p []byte) (int, error) { return len(p), nil }
func (nobody) WriteHeader(int)             {}

// A handler that panics must give its place back: 512 bugs would otherwise shut
// the replica for good.
func TestAPanicGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	g, _ := newGate(1)
	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("a bug") }))
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	}()
	if n := g.InFlight(); n != 0 {
		t.Errorf("in flight = %d after a panic, want 0", n)
	}
}

// During a rolling update no till may lose an answer: while others still send
// to this replica it serves them and closes their connections; once it drains,
// what is inside is finished, and nobody comes in any more.
func TestDrainingFinishesWhatIsInsideAndAdmitsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := newGate(10)
		release := make(chan struct{})
		h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			w.WriteHeader(http.StatusCreated)
		}))
		serve := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/debits", nil))
			return w
		}
		answers := make(chan *httptest.ResponseRecorder, 2)
		go func() { answers <- serve() }()
		synctest.Wait()

		g.CloseConnections()
		go func() { answers <- serve() }()
		synctest.Wait()
		if n := g.InFlight(); n != 2 {
			t.Fatalf("in flight = %d, want 2: tills are still served before Drain", n)
		}

		g.Drain()
		g.Drain() // a second call is no harm
		if w := serve(); w.Code != http.StatusServiceUnavailable {
			t.Errorf("a request after Drain: %d, want 503", w.Code)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait with two inside = %v, want the context's error", err)
		}

		close(release)
		closed := 0
		for range 2 {
			w := <-answers
			if w.Code != http.StatusCreated {
				t.Errorf("a request inside was answered %d, want 201", w.Code)
			}
			if w.Header().Get("Connection") == "close" {
				closed++
			}
		}
		if closed != 2 {
			t.Errorf("%d answers close their connection, want both: also that of the request which was inside before", closed)
		}
		if err := g.Wait(t.Context()); err != nil {
			t.Errorf("Wait = %v after the last has left", err)
		}
	})
}

// A gate that nobody is inside of is drained at once: shutting down an idle
// replica must not wait for a request that never comes.
func TestAnIdleGateIsDrainedAtOnce(t *testing.T) {
	t.Parallel()
	g, _ := newGate(1)
	g.Drain()
	if err := g.Wait(t.Context()); err != nil {
		t.Errorf("Wait = %v", err)
	}
}

// Whatever happens at the same time, the gate's promise holds for every single
// answer: with 503 and Retry-After the handler did not run, without it ran
// exactly once; and after Wait nothing runs any more.
func TestThePromiseHoldsUnderConcurrency(t *testing.T) {
	t.Parallel()
	const tills, requests = 16, 500
	g, _ := newGate(8)
	var handled [tills * requests]atomic.Int64
	var running atomic.Int64
	h := g.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		n, _ := strconv.Atoi(r.URL.Query().Get("n"))
		handled[n].Add(1)
		if n%7 == 0 { // some of our own 503 among them, as a failed storage gives
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))

	var wg sync.WaitGroup
	var refusals, served atomic.Int64
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			default:
				g.SetDatabaseReachable(rand.IntN(4) > 0)
			}
		}
	}()
	for till := range tills {
		wg.Go(func() {
			for i := range requests {
				n := till*requests + i
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, fmt.Sprintf("/debits?n=%d", n), nil))
				retryAfter := w.Header().Get("Retry-After") != ""
				switch ran := handled[n].Load(); {
				case retryAfter && (ran != 0 || w.Code != http.StatusServiceUnavailable):
					t.Errorf("request %d: status %d with Retry-After, handler ran %d times", n, w.Code, ran)
				case !retryAfter && ran != 1:
					t.Errorf("request %d: status %d without Retry-After, handler ran %d times", n, w.Code, ran)
				}
				if retryAfter {
					refusals.Add(1)
				} else {
					served.Add(1)
				}
				if i == requests*3/4 && till == 0 {
					g.Drain()
					if err := g.Wait(t.Context()); err != nil {
						t.Error(err)
					}
					if n := running.Load(); n != 0 {
						t.Errorf("%d handlers run after Wait", n)
					}
				}
			}
		})
	}
	wg.Wait()
	close(done)
	if refusals.Load() == 0 || served.Load() == 0 {
		t.Errorf("refused %d and served %d: the test has shown nothing", refusals.Load(), served.Load())
	}
	if n := g.InFlight(); n != 0 {
		t.Errorf("in flight = %d at the end", n)
	}
}

// One slow probe on a busy machine must not shut every store's tills out; a
// database that is gone must do so before the next claim; and when it is back
// nobody may wait for a second success.
func TestTheProbeShutsTheGateOnlyForWhatIsKnown(t *testing.T) {
	t.Parallel()
	var (
		ok   = func(context.Context) error { return nil }
		fail = func(context.Context) error { return errors.New("connection refused") }
		// As a driver answers when its context ends: in words of its own.
		slow = func(ctx context.Context) error { <-ctx.Done(); return errors.New("57014") }
	)
	type probe = func(context.Context) error
	for name, test := range map[string]struct {
		probes []probe
		want   []bool // after each
	}{
		"healthy":                     {[]probe{ok, ok}, []bool{true, true}},
		"one failure":                 {[]probe{ok, fail, ok}, []bool{true, false, true}},
		"down at start":               {[]probe{fail, ok}, []bool{false, true}},
		"one slow":                    {[]probe{ok, slow, ok, slow, ok}, []bool{true, true, true, true, true}},
		"two slow":                    {[]probe{ok, slow, slow, ok}, []bool{true, true, false, true}},
		"slow, then failed":           {[]probe{slow, fail, ok}, []bool{true, false, true}},
		"failed, then slow":           {[]probe{fail, slow, ok}, []bool{false, false, true}},
		"slow after a slow and an ok": {[]probe{slow, ok, slow}, []bool{true, true, true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g, _ := newGate(1)
				h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
				next, asked := make(chan probe), make(chan struct{}, len(test.probes))
				go g.Watch(t.Context(), func(ctx context.Context) error {
					select {
					case p := <-next:
						defer func() { asked <- struct{}{} }()
						return p(ctx)
					case <-ctx.Done():
						return ctx.Err()
					}
				}, time.Second)
				for i, p := range test.probes {
					next <- p
					<-asked
					synctest.Wait()
					w := httptest.NewRecorder()
					h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
					if got := w.Code == http.StatusOK; got != test.want[i] {
						t.Errorf("after probe %d: admitted %v, want %v", i, got, test.want[i])
					}
				}
			})
		})
	}
}

// One store with a runaway loop must not take the places of all others, and
// must be told so in the way that every till understands.
func TestOneCallerCannotTakeEveryPlace(t *testing.T) {
	t.Parallel()
	g, seen := newGate(100)
	p := g.PerCaller(2)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/debits", nil)
	enter := func(caller string) (func(), *httptest.ResponseRecorder) {
		w := httptest.NewRecorder()
		leave, ok := p.Enter(w, request, caller)
		if ok != (leave != nil) {
			t.Errorf("ok = %v, but leave = %v", ok, leave != nil)
		}
		return leave, w
	}
	first, _ := enter("store-17")
	second, _ := enter("store-17")
	if first == nil || second == nil {
		t.Fatal("the first two were not admitted")
	}
	third, w := enter("store-17")
	if third != nil || w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "1" {
		t.Errorf("third: admitted %v, status %d, Retry-After %q", third != nil, w.Code, w.Header().Get("Retry-After"))
	}
	other, _ := enter("store-18")
	if other == nil {
		t.Error("another caller was refused")
	}
	first()
	again, _ := enter("store-17")
	if again == nil {
		t.Error("a place that was given back is not free")
	}
	if diff := cmp.Diff(map[string]int{gate.Overloaded: 1}, seen.snapshot()); diff != "" {
		t.Errorf("observed refusals (-want +got):\n%s", diff)
	}

	unbounded := g.PerCaller(0)
	for range 1000 {
		if _, ok := unbounded.Enter(httptest.NewRecorder(), request, "store-17"); !ok {
			t.Fatal("a bound of 0 refused")
		}
	}
}

// The unread body of a refused till must cost nothing: not the answer, which
// has to arrive although the till is still sending, and not a connection that
// waits for bytes that never come.
func TestARefusalOverARealConnection(t *testing.T) {
	t.Parallel()
	g, _ := newGate(10)
	g.Drain()
	var handled atomic.Int64
	server := httptest.NewServer(g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled.Add(1) })))
	t.Cleanup(server.Close)

	for name, request := range map[string]string{
		"stalled body": "POST /debits HTTP/1.1\r\nHost: till\r\nContent-Length: 100\r\n\r\n{",
		"whole body":   "POST /debits HTTP/1.1\r\nHost: till\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat(" ", 10000),
		"100-continue": "POST /debits HTTP/1.1\r\nHost: till\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n",
		"chunked":      "POST /debits HTTP/1.1\r\nHost: till\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
		"no body":      "GET /payments/1 HTTP/1.1\r\nHost: till\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			// Far above bodyGrace: this is the bound after which the test calls it stuck.
			_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.WriteString(conn, request); err != nil {
				t.Fatal(err)
			}
			reader := bufio.NewReader(conn)
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			if _, err := io.ReadAll(response.Body); err != nil {
				t.Errorf("the answer's body: %v", err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusServiceUnavailable || !response.Close {
				t.Errorf("status %d, close %v, want 503 and close", response.StatusCode, response.Close)
			}
			if n, err := reader.WriteTo(io.Discard); n != 0 || err != nil {
				t.Errorf("after the answer: %d bytes, %v, want a clean end", n, err)
			}
		})
	}
	t.Cleanup(func() {
		if n := handled.Load(); n != 0 {
			t.Errorf("the handler was invoked %d times", n)
		}
	})
}
