package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// loadSpec is what a load process is told to do, as JSON on its standard input.
type loadSpec struct {
	Address  string
	Token    string
	Keys     string
	Tills    int           // connections; in a closed loop each sends its next request after its last answer
	Rate     float64       // requests a second, whoever has answered; 0 is a closed loop
	Deadline time.Duration // what is sent as Request-Deadline-Ms; 0 sends none
	// LateAfter are the times from which on an answer is late: how many were is told
	// for each.
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
	Seconds float64
	By      map[string]latencies // by outcome
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

// log is what one till has seen.
type tillLog struct {
	records []record
	details map[string]int
	total   int
}

// generate runs a load to its end.
func generate(ctx context.Context, spec loadSpec, tell func(loadEvent) error) error {
	begin := time.Now().Add(spec.WarmUp)
	end := begin.Add(spec.Measure)
	tills := make([]*till, spec.Tills)
	for i := range tills {
		tills[i] = newTill(i, spec.Address, spec.Token, spec.Keys, spec.Deadline, end.Add(patience))
		defer tills[i].disconnect()
		if err := tills[i].connect(ctx); err != nil {
			return fmt.Errorf("connect: %w", err)
		}
	}

	logs := make([]tillLog, spec.Tills)
	turn := schedule{from: time.Now(), until: end, interval: time.Duration(float64(time.Second) / max(spec.Rate, 1e-9))}
	var going sync.WaitGroup
	for i, t := range tills {
		logs[i].details = make(map[string]int)
		going.Go(func() {
			if spec.Rate > 0 {
				logs[i].atConstantRate(ctx, t, &turn, begin)
			} else {
				logs[i].inClosedLoop(ctx, t, begin, end)
			}
		})
	}
	for _, moment := range []struct {
		at    time.Time
		event string
	}{{begin, beginEvent}, {end, endEvent}} {
		if !waitUntil(ctx, moment.at) {
			break
		}
		if err := tell(loadEvent{Event: moment.event}); err != nil {
			return err
		}
	}
	going.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	result := sum(spec, logs)
	return tell(loadEvent{Event: resultEvent, Result: &result})
}

// inClosedLoop sends one request after the other.
func (l *tillLog) inClosedLoop(ctx context.Context, t *till, begin, end time.Time) {
	for sent := time.Now(); sent.Before(end) && ctx.Err() == nil; {
		t.next()
		o, detail := t.exchange(ctx)
		now := time.Now()
		l.add(ctx, record{outcome: o, took: now.Sub(sent)}, detail, !now.Before(begin) && now.Before(end))
		sent = now
	}
}

// atConstantRate sends the requests that turn hands out, when they are due. The time
// that one takes counts from then: a till that had to wait for a connection of ours
// has waited.
func (l *tillLog) atConstantRate(ctx context.Context, t *till, turn *schedule, begin time.Time) {
	for due, ok := turn.next(); ok; due, ok = turn.next() {
		// A refusal has closed the connection; the new one is made before its time.
		if err := t.connect(ctx); err != nil {
			l.details["connect: "+cause(err)]++ // the exchange tries again
		}
		t.next()
		if !waitUntil(ctx, due) {
			return
		}
		sent := time.Now()
		o, detail := t.exchange(ctx)
		l.add(ctx, record{outcome: o, took: time.Since(due), lag: sent.Sub(due)}, detail, !due.Before(begin))
	}
}

func (l *tillLog) add(ctx context.Context, r record, detail string, counts bool) {
	if r.outcome == approved {
		l.total++
	}
	if r.outcome == lost {
		waitUntil(ctx, time.Now().Add(10*time.Millisecond)) // a server that is gone is not asked as fast as can be
	}
	if !counts {
		return
	}
	l.records = append(l.records, r)
	if detail != "" {
		l.details[detail]++
	}
}

// schedule hands out the times at which requests are due.
type schedule struct {
	from, until time.Time
	interval    time.Duration
	given       atomic.Int64
}

func (s *schedule) next() (due time.Time, ok bool) {
	due = s.from.Add(time.Duration(s.given.Add(1)-1) * s.interval)
	return due, due.Before(s.until)
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
func sum(spec loadSpec, logs []tillLog) loadResult {
	r := loadResult{
		Seconds: spec.Measure.Seconds(), By: make(map[string]latencies), Details: make(map[string]int),
		Late: make([]int, len(spec.LateAfter)),
	}
	took := make(map[outcome][]time.Duration)
	var lags []time.Duration
	for _, l := range logs {
		r.Total += l.total
		for detail, n := range l.details {
			r.Details[detail] += n
		}
		for _, one := range l.records {
			took[one.outcome] = append(took[one.outcome], one.took)
			lags = append(lags, one.lag)
			if one.outcome == refused {
				continue
			}
			for i, limit := range spec.LateAfter {
				if one.took > limit {
					r.Late[i]++
				}
			}
		}
	}
	for o := range maps.Keys(took) {
		r.By[o.String()] = summarise(took[o])
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
