package main

import "fmt"

// goal is one line of what we are after: a floor that must hold, a goal beyond it, and
// what was measured.
type goal struct {
	what        string
	floor, goal float64
	atMost      bool // they are upper bounds
	unit        string
	got         spread
}

// verdict is what the median says.
func (g goal) verdict() string {
	switch reaches := func(bound float64) bool {
		if g.atMost {
			return g.got.Median <= bound
		}
		return g.got.Median >= bound
	}; {
	case g.got.Rounds == 0:
		return "not measured"
	case reaches(g.goal):
		return "goal reached"
	case reaches(g.floor):
		return "floor holds"
	}
	return "**below the floor**"
}

// goals are all of them, as far as r has measured them. Ratios are taken round by
// round, between points that were measured beside each other.
func goals(r *results) []goal {
	at := func(variant string, tills int) point {
		return point{Phase: phaseRates, Variant: variant, Tills: tills}
	}
	o := r.machine.Options
	gs := []goal{
		{
			what:  "decisions/s ÷ the same server without a database, 256 tills",
			floor: 0.65, goal: 0.80, got: r.ratio(at(shipped, 256), at(noDatabase, 256), rate),
		},
	}
	for _, against := range []struct {
		tills       int
		floor, goal float64
	}{{1, 0.95, 1}, {8, 1.2, 1.4}, {64, 2, 3}, {256, 3, 4}} {
		gs = append(gs, goal{
			what:  fmt.Sprintf("decisions/s ÷ grouping off, %s", count(against.tills, "till")),
			floor: against.floor, goal: against.goal, got: r.ratio(at(shipped, against.tills), at(ungrouped, against.tills), rate),
		})
	}
	return append(gs, []goal{
		{
			what:  "PostgreSQL's CPU per decision ÷ grouping off, 256 tills",
			floor: 0.15, goal: 0.1, atMost: true, got: r.ratio(at(shipped, 256), at(ungrouped, 256), cpuPostgres),
		},
		{
			what:  "the server's CPU per decision ÷ the bare HTTP server, 256 tills",
			floor: 1.4, goal: 1.1, atMost: true, got: r.ratio(at(shipped, 256), at(bare, 256), cpuServer),
		},
		{what: "fsyncs per decision, 256 tills", floor: 0.05, goal: 0.03, atMost: true, got: r.figure(at(shipped, 256), fsyncs)},
		{
			what:  fmt.Sprintf("decisions/s at %s rows ÷ empty, time-ordered keys", thousands(o.Rows)),
			floor: 0.9, goal: 0.95, got: r.ratio(growthPoint(orderedKeys, o.Rows, 0), growthPoint(orderedKeys, 0, 0), rate),
		},
		{
			what:  fmt.Sprintf("decisions/s at %s rows ÷ empty, random keys", thousands(o.Rows)),
			floor: 0.6, goal: 0.8, got: r.ratio(growthPoint(randomKeys, o.Rows, 0), growthPoint(randomKeys, 0, 0), rate),
		},
		{
			what:  "work items/s with a durable outcome, batched ÷ one by one",
			floor: 2, goal: 3, got: r.ratio(queuePoint(shipped, 0), queuePoint(ungrouped, 0), rate),
		},
		{
			what:  "answers later than their effective budget + 300 ms at twice the capacity, of those admitted",
			floor: 0, goal: 0, atMost: true, unit: "%", got: r.worstOverload(late300).times(100),
		},
		{
			what:  "the same, + 100 ms",
			floor: 0.1, goal: 0, atMost: true, unit: "%", got: r.worstOverload(late100).times(100),
		},
		{
			what:  fmt.Sprintf("p99 of a decision with %s follow-ups waiting ÷ none", thousands(o.Waiting)),
			floor: 1.3, goal: 1.1, atMost: true, got: r.ratio(backlogPoint(o.Waiting, 0), backlogPoint(0, 0), p99),
		},
		{what: "resident memory of the server, 256 tills", floor: 96, goal: 64, atMost: true, unit: " MB", got: r.figure(at(shipped, 256), resident).times(1e-6)},
		{
			what:  "from the start of the process until it is ready, on a migrated database",
			floor: 500, goal: 300, atMost: true, unit: " ms", got: r.figure(point{Phase: phaseStart, Variant: shipped}, ready),
		},
	}...)
}

// worstOverload is a figure of the overload in which it is the highest.
func (r *results) worstOverload(name string) (worst spread) {
	for _, ms := range overloadWallets() {
		if s := r.figure(overloadPoint(ms, 0), name); s.Rounds > 0 && (worst.Rounds == 0 || s.Max > worst.Max) {
			worst = s
		}
	}
	return worst
}

// count is n of something.
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
