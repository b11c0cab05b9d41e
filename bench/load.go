package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"
)

// loadSpec is what a load process is told to do, as JSON on its standard input.
type loadSpec struct {
	Address  string
	Token    string
	Keys     string
	Tills    int           // at once: in a closed loop each sends its next request after its last answer, else they are the most
	Rate     float64       // requests a second, whoever has answered; 0 is a closed loop
	Deadline time.Duration // what is sent as Request-Deadline-Ms; 0 sends none
	// LateAfter are the times from which on an answer is late: how many were is told for
	// each. They count from when the request was sent, as a budget does: what a load that
	// shares the machine sends seconds after it was due no server can have answered before.
	LateAfter []time.Duration
	WarmUp    time.Duration
	Measure   time.Duration
}

// patience is how long after the end of the measuring time answers are waited for.
const patience = 10 * time.Second

// The events that a load process tells while it goes on, a line each, so that whoever
// started it can look at other processes at the same moments.
const (
	beginEvent  = "begin"  // the measuring time has begun
	endEvent    = "end"    // and ended
	resultEvent = "result" // all answers are there
)

type loadEvent struct {
	Event  string      `json:"event"`
	Result *loadResult `json:"result,omitempty"`
}

// loadResult is what a load has seen. A closed loop counts the answers that came
// within the measuring time, a constant rate the requests that were due in it.
type loadResult struct {
	// Seconds is the measuring time; for a constant rate the time in which its requests were
	// in truth sent, which is longer if the load could not keep up with what it was told.
	Seconds float64
	By      map[string]latencies // by outcome
	Sent    map[string]latencies // the same from when the requests were sent, not from when they were due
	Details map[string]int       // what was answered instead of an approval
	Lag     latencies            // how long after they were due requests were sent
	Late    []int                // admitted requests (all but refused) answered later than LateAfter
	// Everything approved, the time before and after included: what the database has
	// written is counted over all of that.
	Total int
}

// latencies are times in order.
type latencies struct {
	Count                     int
	P50, P90, P99, P999, Last time.Duration
}

func summarise(times []time.Duration) latencies {
	slices.Sort(times)
	return latencies{
		Count: len(times), P50: percentile(times, 0.5), P90: percentile(times, 0.9), P99: percentile(times, 0.99),
		P999: percentile(times, 0.999), Last: percentile(times, 1),
	}
}

// count is how many requests ended in o.
func (r loadResult) count(o outcome) int { return r.By[o.String()].Count }

// rate is the approved requests a second.
func (r loadResult) rate() float64 { return float64(r.count(approved)) / r.Seconds }

// sent is the requests a second.
func (r loadResult) sent() float64 {
	return float64(r.admitted()+r.count(refused)) / r.Seconds
}

// admitted is how many were let in, whatever came of them.
func (r loadResult) admitted() (n int) {
	for name, l := range r.By {
		if name != refused.String() {
			n += l.Count
		}
	}
	return n
}

// record is one request.
type record struct {
	outcome outcome
	took    time.Duration // from when it was due, or sent in a closed loop
	lag     time.Duration
}

// tillLog is what one till has seen.
type tillLog struct {
	records []record
	details map[string]int
	total   int
}

// generate runs a load to its end.
func generate(ctx context.Context, spec loadSpec, tell func(loadEvent) error) error {
	now := time.Now()
	l := &load{spec: spec, begin: now.Add(spec.WarmUp), sending: spec.Measure}
	l.end = l.begin.Add(spec.Measure)
	drive := l.inClosedLoop
	if spec.Rate > 0 {
		drive = l.atConstantRate
	}
	var driving sync.WaitGroup
	driving.Go(func() { drive(ctx) })
	for _, moment := range []struct {
		at    time.Time
		event string
	}{{l.begin, beginEvent}, {l.end, endEvent}} {
		if !waitUntil(ctx, moment.at) {
			break
		}
		if err := tell(loadEvent{Event: moment.event}); err != nil {
			return err
		}
	}
	driving.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	result := l.sum()
	return tell(loadEvent{Event: resultEvent, Result: &result})
}

// load is one that is running.
type load struct {
	spec       loadSpec
	begin, end time.Time     // of the measuring time
	sending    time.Duration // from begin until the last request was sent
	made       []*till
}

// newTill is one more.
func (l *load) newTill() *till {
	t := newTill(l.spec.Address, l.spec.Token, l.spec.Keys, l.spec.Deadline, l.end.Add(patience))
	l.made = append(l.made, t)
	return t
}

// inClosedLoop lets every till send one request after the other.
func (l *load) inClosedLoop(ctx context.Context) {
	var going sync.WaitGroup
	for range l.spec.Tills {
		t := l.newTill()
		going.Go(func() {
			defer t.disconnect()
			for sent := time.Now(); sent.Before(l.end) && ctx.Err() == nil; {
				o, detail := t.exchange(ctx)
				now := time.Now()
				t.log.add(record{outcome: o, took: now.Sub(sent)}, detail, !now.Before(l.begin) && now.Before(l.end))
				if o == lost { // a server that is gone is not asked as fast as can be
					waitUntil(ctx, now.Add(10*time.Millisecond))
				}
				sent = time.Now()
			}
		})
	}
	going.Wait()
}

// atConstantRate sends requests when they are due, each over the connection that was
// used last and is free, as pools of clients do. The time that one takes counts from
// when it was due: whoever had to wait for a connection of ours has waited.
func (l *load) atConstantRate(ctx context.Context) {
	var (
		going sync.WaitGroup
		mu    sync.Mutex
		free  []*till
		busy  = make(chan struct{}, l.spec.Tills)
		start = l.begin.Add(-l.spec.WarmUp)
	)
	take := func() *till {
		mu.Lock()
		defer mu.Unlock()
		if len(free) == 0 {
			return l.newTill()
		}
		t := free[len(free)-1]
		free = free[:len(free)-1]
		return t
	}
	give := func(t *till) {
		mu.Lock()
		defer mu.Unlock()
		free = append(free, t)
	}
	for i := 0; ; i++ {
		due := start.Add(time.Duration(float64(i) / l.spec.Rate * float64(time.Second)))
		if !due.Before(l.end) || !waitUntil(ctx, due) {
			break
		}
		busy <- struct{}{}
		t := take()
		going.Go(func() {
			defer func() { <-busy }()
			defer give(t)
			sent := time.Now()
			o, detail := t.exchange(ctx)
			t.log.add(record{outcome: o, took: time.Since(due), lag: sent.Sub(due)}, detail, !due.Before(l.begin))
			// A refusal has closed the connection. The next one is made before it is needed.
			if err := t.connect(ctx); err != nil {
				t.log.details["connect: "+cause(err)]++ // the exchange will try again
			}
		})
	}
	l.sending = max(l.sending, time.Since(l.begin))
	going.Wait()
	for _, t := range l.made {
		t.disconnect()
	}
}

// add keeps r, if it counts.
func (l *tillLog) add(r record, detail string, counts bool) {
	if r.outcome == approved {
		l.total++
	}
	if !counts {
		return
	}
	l.records = append(l.records, r)
	if detail != "" {
		l.details[detail]++
	}
}

// waitUntil waits; false means that ctx ended meanwhile.
func waitUntil(ctx context.Context, at time.Time) bool {
	left := time.Until(at)
	if left <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// sum puts together what all tills have seen.
func (l *load) sum() loadResult {
	r := loadResult{
		Seconds: l.sending.Seconds(), By: make(map[string]latencies), Sent: make(map[string]latencies), Details: make(map[string]int),
		Late: make([]int, len(l.spec.LateAfter)),
	}
	took, sent := make(map[outcome][]time.Duration), make(map[outcome][]time.Duration)
	var lags []time.Duration
	for _, t := range l.made {
		r.Total += t.log.total
		for detail, n := range t.log.details {
			r.Details[detail] += n
		}
		for _, one := range t.log.records {
			took[one.outcome] = append(took[one.outcome], one.took)
			sent[one.outcome] = append(sent[one.outcome], one.took-one.lag)
			lags = append(lags, one.lag)
			if one.outcome == refused {
				continue
			}
			for i, limit := range l.spec.LateAfter {
				if one.took-one.lag > limit {
					r.Late[i]++
				}
			}
		}
	}
	for o, times := range took {
		r.By[o.String()], r.Sent[o.String()] = summarise(times), summarise(sent[o])
	}
	r.Lag = summarise(lags)
	return r
}

// runLoad is a load process: its spec from in, its events to out. It stays until it is
// told to end, because the CPU time of a process that has ended cannot be read.
func runLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	var spec loadSpec
	if err := json.NewDecoder(in).Decode(&spec); err != nil {
		return fmt.Errorf("read what to do: %w", err)
	}
	encoder := json.NewEncoder(out)
	if err := generate(ctx, spec, func(e loadEvent) error { return encoder.Encode(e) }); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}
