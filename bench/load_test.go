package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// echo approves what it is asked for, after wait.
func echo(wait func(n int64) time.Duration) (handler http.HandlerFunc, asked *atomic.Int64) {
	asked = new(atomic.Int64)
	return func(w http.ResponseWriter, r *http.Request) {
		var body bareRequest
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if d := wait(asked.Add(1)); d > 0 {
			<-time.After(d)
		}
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(bareAnswer{bareRequest: body})
	}, asked
}

func at(t *testing.T, h http.Handler, spec loadSpec) loadResult {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	spec.Address, spec.Token, spec.Keys = strings.TrimPrefix(server.URL, "http://"), token, orderedKeys
	var events []string
	var result *loadResult
	err := generate(t.Context(), spec, func(e loadEvent) error {
		events, result = append(events, e.Event), e.Result
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(events); got != "[begin end result]" || result == nil {
		t.Fatalf("told %v, and %v", got, result)
	}
	return *result
}

// What was sent while the server was still getting warm must not be in the figures,
// but in what the database has written.
func TestAClosedLoopCountsWhatWasAnsweredInItsTime(t *testing.T) {
	t.Parallel()
	handler, asked := echo(func(int64) time.Duration { return time.Millisecond })
	spell := 200 * time.Millisecond
	var r loadResult
	for before := int64(0); ; spell *= 2 {
		r = at(t, handler, loadSpec{Tills: 4, WarmUp: spell, Measure: spell})
		r.Total += int(before)
		// A machine that stands still through one of the two has shown nothing.
		if n := r.count(approved); n > 0 && n < r.Total-int(before) || spell > 3*time.Second {
			break
		}
		before = asked.Load()
	}
	n := r.count(approved)
	if n == 0 || r.Total != int(asked.Load()) || n >= r.Total || failed(r) != 0 {
		t.Errorf("%d approved in its time, %d of %d in all, %d failed: %v", n, r.Total, asked.Load(), failed(r), r.Details)
	}
	if got := r.By[approved.String()]; got.P50 < time.Millisecond || got.P50 > got.P99 || got.P99 > got.P999 || got.P999 > got.Last {
		t.Errorf("times %+v", got)
	}
	if got, want := r.rate(), float64(n)/spell.Seconds(); got != want {
		t.Errorf("%v/s, want %v", got, want)
	}
}

// A server that stops for 300 ms keeps everybody waiting who comes in that time. A
// load that waits with it, and counts from when it goes on, hides that. Late, though, is
// only what was sent before: the load's own delay is no answer's.
func TestAConstantRateCountsFromWhenARequestWasDue(t *testing.T) {
	t.Parallel()
	handler, _ := echo(func(n int64) time.Duration {
		if n == 10 {
			return 300 * time.Millisecond
		}
		return 0
	})
	r := at(t, handler, loadSpec{Rate: 200, Tills: 1, Measure: 500 * time.Millisecond, LateAfter: []time.Duration{100 * time.Millisecond, time.Hour}})
	if got, want := r.count(approved), 100; got != want {
		t.Errorf("%d approved of those that were due, want %d: %v", got, want, r.Details)
	}
	// Due every 5 ms: about sixty are due while nothing is answered, forty of them more
	// than 100 ms before it goes on; one has been sent. A machine that stands still makes
	// another one late now and then, and not forty.
	if took := r.By[approved.String()]; took.P90 < 150*time.Millisecond || r.Lag.P90 < 150*time.Millisecond {
		t.Errorf("a tenth took at least %v, and were sent %v late", took.P90, r.Lag.P90)
	}
	if r.Late[0] < 1 || r.Late[0] > 20 || r.Late[1] != 0 {
		t.Errorf("%d were later than 100 ms after they were sent, want the one; %d later than an hour", r.Late[0], r.Late[1])
	}
}

// A refusal that is counted among what was admitted makes an overloaded server fast.
func TestRefusalsAreToldApart(t *testing.T) {
	t.Parallel()
	slow, _ := echo(func(int64) time.Duration { return 50 * time.Millisecond })
	var n atomic.Int64
	r := at(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 0 {
			slow(w, r)
			return
		}
		w.Header().Set("Retry-After", "1")
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"code":"OVERLOADED"}`)
	}), loadSpec{Rate: 100, Tills: 50, Measure: 300 * time.Millisecond, Deadline: time.Second, LateAfter: []time.Duration{time.Nanosecond}})
	if r.count(refused) != 15 || r.count(approved) != 15 || r.admitted() != 15 || r.Late[0] != 15 || r.Sent[refused.String()].Count != 15 {
		t.Errorf("%d refused (%d timed), %d approved, %d admitted, %d late: %v", r.count(refused), r.Sent[refused.String()].Count, r.count(approved), r.admitted(), r.Late[0], r.Details)
	}
	if got := r.By[approved.String()].P50; got < 50*time.Millisecond {
		t.Errorf("approved within %v, with the refusals in it", got)
	}
	if r.Details["503 OVERLOADED"] != 15 {
		t.Errorf("details: %v", r.Details)
	}
}

// The process of a load is told to end when its CPU time has been read, and by Ctrl-C.
func TestALoadEndsWhenItIsTold(t *testing.T) {
	t.Parallel()
	handler, _ := echo(func(int64) time.Duration { return 0 })
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	ctx, stop := context.WithCancel(t.Context())
	spec := loadSpec{Address: strings.TrimPrefix(server.URL, "http://"), Tills: 2, Keys: orderedKeys, Measure: time.Hour}
	err := generate(ctx, spec, func(e loadEvent) error {
		if e.Event == beginEvent {
			stop()
		}
		return nil
	})
	if err == nil {
		t.Error("an hour has passed, it says")
	}
}
