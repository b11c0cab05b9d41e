package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// bench is a run.
type bench struct {
	world    *world
	options  options
	results  *results
	progress *progress
	full     loaded // the database that was filled last
}

// What a till of the constant rates allows, and what the contract makes of it: 600 ms
// are kept for the network, and the rest is cut at the server budget.
const (
	tillDeadline    = 3 * time.Second
	effectiveBudget = 2400 * time.Millisecond
	// ampleConnections are more than the gate admits at once, so that those who are
	// refused do not wait for those who are not.
	ampleConnections = 2048
)

// measure measures one point.
func (b *bench) measure(ctx context.Context, p point) (m measurement, err error) {
	s, err := b.set(ctx, p)
	if err != nil {
		return measurement{}, err
	}
	defer func() { err = errors.Join(err, s.strike(ctx)) }()

	m = measurement{point: p, At: time.Now().UTC().Truncate(time.Second), Values: map[string]float64{ready: milliseconds(s.startup)}}
	switch {
	case p.Phase == phaseStart:
	case p.Phase == phaseQueue:
		err = b.measureQueue(ctx, s, &m)
	case p.Phase == phaseOverload:
		err = b.measureOverload(ctx, s, &m)
	case p.Phase == phaseBacklog && p.Tills == 0:
		// A quarter: at a half, with the load on the same cores, the tail is that of an overload.
		quarter := b.results.figure(backlogCapacity(), rate).Median / 4
		err = b.measureDecisions(ctx, s, &m, loadSpec{Rate: quarter, Tills: ampleConnections, Measure: b.backlogMeasure()})
	case p.Phase == phaseGrowth:
		err = b.measureDecisions(ctx, s, &m, loadSpec{Tills: p.Tills, Keys: p.Keys, Measure: longer * b.options.Measure})
	default:
		err = b.measureDecisions(ctx, s, &m, loadSpec{Tills: p.Tills, Measure: b.options.Measure})
	}
	return m, err
}

// backlogMeasure is shorter in a run that is itself shorter than that, as in tests.
func (b *bench) backlogMeasure() time.Duration {
	if b.options.Measure < time.Second {
		return b.options.Measure
	}
	return backlogMeasure
}

// measureDecisions measures with one load, in which everything should be approved.
func (b *bench) measureDecisions(ctx context.Context, s *stage, m *measurement, spec loadSpec) error {
	r, u, err := b.load(ctx, s, spec)
	if err != nil {
		return err
	}
	n, took := r.count(approved), r.By[approved.String()]
	maps.Copy(m.Values, map[string]float64{
		rate: r.rate(), decisions: float64(n), failures: float64(failed(r)), offered: spec.Rate, lagP99: milliseconds(r.Lag.P99),
		p50: milliseconds(took.P50), p99: milliseconds(took.P99), p999: milliseconds(took.P999), longest: milliseconds(took.Last),
	})
	maps.Copy(m.Values, u.per(n))
	m.Details = r.Details
	return b.addWritten(ctx, s, m, r.Total)
}

// failed is how many requests were not approved.
func failed(r loadResult) (n int) {
	for o := declined; o < outcomes; o++ {
		n += r.count(o)
	}
	return n
}

// measureOverload finds the capacity, then offers twice as much at a constant rate.
func (b *bench) measureOverload(ctx context.Context, s *stage, m *measurement) error {
	before, _, err := b.load(ctx, s, loadSpec{Tills: manyTills, Measure: b.options.Measure})
	if err != nil {
		return err
	}
	r, u, err := b.load(ctx, s, loadSpec{
		Rate: 2 * before.rate(), Tills: ampleConnections, Deadline: tillDeadline, Measure: longer * b.options.Measure,
		LateAfter: []time.Duration{effectiveBudget + 300*time.Millisecond, effectiveBudget + 100*time.Millisecond},
	})
	if err != nil {
		return err
	}
	took, turnedAway := r.Sent[approved.String()], r.Sent[refused.String()]
	each := func(n int) float64 { return float64(n) / r.Seconds }
	maps.Copy(m.Values, map[string]float64{
		capacity: before.rate(), offered: 2 * before.rate(), sentRate: r.sent(), rate: r.rate(), lagP99: milliseconds(r.Lag.P99),
		p50: milliseconds(took.P50), p99: milliseconds(took.P99), p999: milliseconds(took.P999), longest: milliseconds(took.Last),
		refusals:   each(turnedAway.Count),
		refusalP50: milliseconds(turnedAway.P50), refusalP99: milliseconds(turnedAway.P99), refusalLast: milliseconds(turnedAway.Last),
		late300: per(float64(r.Late[0]), r.admitted()), late100: per(float64(r.Late[1]), r.admitted()),
		declines: each(r.count(declined)), unknowns: each(r.count(unknown)),
		failures: float64(r.count(wrong) + r.count(lost)),
	})
	maps.Copy(m.Values, u.per(r.count(approved)))
	m.Details = r.Details
	return nil
}

// measureQueue measures how many work items end in a second: leased, carried out at
// the wallet, and settled, each durable.
func (b *bench) measureQueue(ctx context.Context, s *stage, m *measurement) error {
	var at [2]int
	var seen [2]sample
	var when [2]time.Time
	for i, wait := range []time.Duration{b.options.WarmUp, b.options.Measure} {
		if !waitUntil(ctx, time.Now().Add(wait)) {
			return ctx.Err()
		}
		var err error
		if at[i], err = s.ended(ctx); err != nil {
			return err
		}
		when[i] = time.Now()
		if seen[i], err = s.sample(nil); err != nil {
			return err
		}
	}
	n := at[1] - at[0]
	m.Values[rate] = float64(n) / when[1].Sub(when[0]).Seconds()
	m.Values[decisions] = float64(n)
	maps.Copy(m.Values, usage{from: seen[0], until: seen[1]}.per(n))
	if err := s.stopServer(); err != nil {
		return err
	}
	left, total, err := s.w.followUps(ctx, s.database)
	if err != nil {
		return err
	}
	if left == 0 {
		return errors.New("the queue ran dry before the end")
	}
	return b.addWritten(ctx, s, m, total-left)
}

// ended is how many follow-ups the server has ended so far, by its metrics.
func (s *stage) ended(ctx context.Context) (n int, err error) {
	text, err := get(ctx, http.MethodGet, "http://"+s.admin+"/metrics", "")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "safeledger_follow_ups_ended_total{") {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err != nil {
			return 0, err
		}
		n += int(value)
	}
	return n, nil
}

// addWritten stops the server and adds what its database has written, for each of n.
func (b *bench) addWritten(ctx context.Context, s *stage, m *measurement, n int) error {
	if s.database == "" {
		return nil
	}
	if err := s.stopServer(); err != nil {
		return err
	}
	after, err := s.w.written(ctx, s.database)
	if err != nil {
		return err
	}
	m.Values[walBytes] = per(float64(after.bytes-s.before.bytes), n)
	m.Values[fsyncs] = per(float64(after.syncs-s.before.syncs), n)
	return nil
}

// sample is what the processes have used so far.
type sample struct {
	server, postgres, wallet, load time.Duration
	memory                         memory // the server's
	cores                          cores
}

// sample looks at all processes; there is no load where load is nil.
func (s *stage) sample(load *child) (sample, error) {
	var a sample
	var errs [6]error
	a.server, errs[0] = cpuOf(s.server.PID())
	a.postgres, errs[1] = cpuOfFamily(s.w.postgres.PID())
	a.wallet, errs[2] = cpuOf(s.wallet.PID())
	if load != nil {
		a.load, errs[3] = cpuOf(load.PID())
	}
	a.memory, errs[4] = memoryOf(s.server.PID())
	a.cores, errs[5] = readCores()
	return a, errors.Join(errs[:]...)
}

// usage is what was used between two samples.
type usage struct{ from, until sample }

// per is that for each of n, and what is not by decision.
func (u usage) per(n int) map[string]float64 {
	server, postgres := u.until.server-u.from.server, u.until.postgres-u.from.postgres
	wallet, load := u.until.wallet-u.from.wallet, u.until.load-u.from.load
	all := max(u.until.cores.all-u.from.cores.all, tick)
	resting := u.until.cores.idle - u.from.cores.idle
	return map[string]float64{
		cpuServer:   per(microseconds(server), n),
		cpuPostgres: per(microseconds(postgres), n),
		cpuWallet:   per(microseconds(wallet), n),
		cpuLoad:     per(microseconds(load), n),
		idle:        float64(resting) / float64(all),
		others:      max(0, float64(all-resting-server-postgres-wallet-load)/float64(all)),
		resident:    float64(u.until.memory.resident),
		peak:        float64(u.until.memory.peak),
	}
}

// load runs a load process against the stage, and looks at all processes when its
// measuring time begins and ends.
func (b *bench) load(ctx context.Context, s *stage, spec loadSpec) (r loadResult, u usage, err error) {
	spec.Address, spec.Token, spec.WarmUp = s.address, token, b.options.WarmUp
	if spec.Keys == "" {
		spec.Keys = orderedKeys
	}
	told, err := json.Marshal(spec)
	if err != nil {
		return r, u, err
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return r, u, err
	}
	defer func() { _ = reader.Close() }()
	// One core's worth of threads: a second one would spend its time looking for work.
	load, err := command{
		name: "load", program: s.w.program("bench"), args: []string{"load"}, env: []string{"GOMAXPROCS=1"},
		stdin: bytes.NewReader(told), stdout: writer, logs: s.w.logs,
	}.start()
	_ = writer.Close() // the process has its own copy
	if err != nil {
		return r, u, err
	}
	defer func() { err = errors.Join(err, load.stop()) }()
	defer context.AfterFunc(ctx, func() { _ = load.stop() })()

	for events := json.NewDecoder(reader); ; {
		var e loadEvent
		if err := events.Decode(&e); err != nil {
			return r, u, fmt.Errorf("the load ended without a result (%w); run again with --logs to see why", err)
		}
		switch e.Event {
		case beginEvent:
			u.from, err = s.sample(load)
		case endEvent:
			u.until, err = s.sample(load)
		case resultEvent:
			if e.Result != nil {
				return *e.Result, u, nil
			}
		}
		if err != nil {
			return r, u, err
		}
	}
}
