package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// A run that was cut off in the middle of a line must go on from there, not begin
// anew and not believe half a figure.
func TestARunThatWasCutOffGoesOn(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "run")
	r, err := openResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.begin(machine{Commit: "abc", Options: quick()}); err != nil {
		t.Fatal(err)
	}
	p := point{Phase: phaseRates, Variant: shipped, Tills: 8, Round: 1}
	if err := r.add(measurement{point: p, Values: map[string]float64{rate: 100}}); err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile(filepath.Join(dir, measurementsFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(`{"phase":"rates","variant":"SafeLedger","tills":8,"round":2,"values":{"rate":1`); err != nil {
		t.Fatal(err)
	}
	file.Close()

	r, err = openResults(dir)
	if err != nil {
		t.Fatal(err)
	}
	p.Round = 2
	if r.machine.Commit != "abc" || len(r.measurements) != 1 || r.has(p) {
		t.Fatalf("read again: %+v", r)
	}
	if err := r.add(measurement{point: p, Values: map[string]float64{rate: 300}}); err != nil {
		t.Fatal(err)
	}
	if r, err = openResults(dir); err != nil || !r.has(p) {
		t.Fatalf("what was added behind the cut: %+v, %v", r, err)
	}
	if got, want := r.figure(p, rate), (spread{200, 100, 300, 2}); got != want {
		t.Errorf("both rounds: %+v, want %+v", got, want)
	}
	steps := plan(options{Phases: []string{phaseRates}, Variants: []string{shipped}, Tills: []int{8}, Wallets: []int{0}, Rounds: 3})
	steps = slices.DeleteFunc(steps, func(s step) bool { return r.has(s.point) })
	if len(steps) != 1 || steps[0].Round != 3 {
		t.Errorf("still to be measured: %v", steps)
	}
}

// The machine is slow in one round and fast in the next. A ratio over two rounds
// compares that.
func TestRatiosAreTakenWithinARound(t *testing.T) {
	t.Parallel()
	at := func(variant string, tills, round int, value float64) measurement {
		return measurement{point: point{Phase: phaseRates, Variant: variant, Tills: tills, Round: round}, Values: map[string]float64{rate: value}}
	}
	r := &results{measurements: []measurement{
		at(shipped, 8, 1, 300), at(bare, 8, 1, 100),
		at(shipped, 8, 2, 30), at(bare, 8, 2, 10),
		at(shipped, 8, 3, 3000), // the bare server was not measured
		at(bare, 8, 4, 5000),
		at(shipped, 8, 5, 8), at(bare, 8, 5, 4),
		at(shipped, 64, 1, 1), at(bare, 64, 1, 0),
	}}
	of, to := point{Phase: phaseRates, Variant: shipped, Tills: 8}, point{Phase: phaseRates, Variant: bare, Tills: 8}
	if got, want := r.ratio(of, to, rate), (spread{3, 2, 3, 3}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	of.Tills, to.Tills = 64, 64
	if got := r.ratio(of, to, rate); got.Rounds != 0 {
		t.Errorf("divided by nothing: %+v", got)
	}
}

// Two runs are put together as rounds of one: as rounds with the same numbers they
// would hide each other.
func TestRunsAddUp(t *testing.T) {
	t.Parallel()
	one := func(v float64) *results {
		return &results{dir: "first", measurements: []measurement{
			{point: point{Phase: phaseStart, Variant: shipped, Round: 1}, Values: map[string]float64{ready: v}},
			{point: point{Phase: phaseStart, Variant: shipped, Round: 2}, Values: map[string]float64{ready: v + 1}},
		}}
	}
	sum := together([]*results{one(10), one(20), one(30)})
	if got, want := sum.figure(point{Phase: phaseStart, Variant: shipped}, ready), (spread{20.5, 10, 31, 6}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// A run of one phase among them has said nothing of the others.
func TestRunsAddUpWithWhatEachMeasured(t *testing.T) {
	t.Parallel()
	of := func(o options) *results { return &results{machine: machine{Options: o}} }
	sum := together([]*results{
		of(options{Phases: []string{phaseRates, phaseGrowth}, Rows: 5_000_000, Waiting: 1}),
		of(options{Phases: []string{phaseBacklog}, Rows: 2, Waiting: 1_000_000}),
		of(options{Phases: []string{phaseRates}, Rows: 3, Waiting: 4}),
	}).machine.Options
	if sum.Rows != 5_000_000 || sum.Waiting != 1_000_000 {
		t.Errorf("%d rows and %d waiting, want 5,000,000 and 1,000,000", sum.Rows, sum.Waiting)
	}
}

// What is compared stands beside each other, and nobody is always the first: whoever
// comes behind a slow disk's checkpoint would be slower for good.
func TestEveryRoundHasEverybodyInAnotherOrder(t *testing.T) {
	t.Parallel()
	o := quick()
	o.Rounds = 4
	first := map[string]int{}
	inRound := map[int]map[point]bool{}
	var last point
	for _, s := range plan(o) {
		if s.takes <= 0 || s.String() == "" {
			t.Fatalf("%+v takes %v", s.point, s.takes)
		}
		if s.Phase != phaseRates {
			continue
		}
		if s.Tills != last.Tills || s.WalletMS != last.WalletMS || s.Round != last.Round {
			first[s.Variant]++
		}
		last = s.point
		if inRound[s.Round] == nil {
			inRound[s.Round] = map[point]bool{}
		}
		inRound[s.Round][s.point] = true
	}
	if len(inRound) != 4 {
		t.Errorf("%d rounds", len(inRound))
	}
	for round, points := range inRound {
		if len(points) != 4*4*2 {
			t.Errorf("round %d has %d points", round, len(points))
		}
	}
	for _, variant := range o.Variants {
		if got := first[variant]; got != 4*4*2/4 {
			t.Errorf("%s was the first %d times of %d", variant, got, 4*4*2)
		}
	}
	if got := full(); got.Rows != 5_000_000 || got.Waiting != 1_000_000 || got.Measure < 5*time.Second {
		t.Errorf("the full run has %+v", got)
	}
}
