package main

import (
	"fmt"
	"slices"
	"time"
)

// The phases of a run: what is measured together, in rounds.
const (
	phaseStart    = "start"    // from the start of a process until it is ready
	phaseRates    = "rates"    // decisions a second, in a closed loop
	phaseOverload = "overload" // twice the capacity, at a constant rate
	phaseQueue    = "queue"    // work items a second
	phaseGrowth   = "growth"   // the rate with many payments in the ledger
	phaseBacklog  = "backlog"  // the p99 with many follow-ups waiting in it
	phaseSize     = "size"     // of tables and indexes; comes with phaseGrowth
)

func phases() []string {
	return []string{phaseStart, phaseRates, phaseOverload, phaseQueue, phaseGrowth, phaseBacklog}
}

// options are what a run measures, and for how long.
type options struct {
	Phases   []string
	Variants []string // of phaseRates
	Tills    []int
	Wallets  []int // what the wallet takes, in milliseconds
	Rounds   int
	Starts   int
	WarmUp   time.Duration
	Measure  time.Duration
	Rows     int
	Waiting  int
}

// quick takes about ten minutes and is good for comparisons, full takes an hour and
// is what is published.
func quick() options {
	return options{
		Phases: phases(), Variants: []string{shipped, ungrouped, noDatabase, bare},
		Tills: []int{1, 8, 64, 256}, Wallets: []int{0, 20},
		Rounds: 3, Starts: 10, WarmUp: time.Second, Measure: 2 * time.Second, Rows: 300_000, Waiting: 100_000,
	}
}

func full() options {
	o := quick()
	o.Rounds, o.WarmUp, o.Measure, o.Rows, o.Waiting = 7, 2*time.Second, 6*time.Second, 5_000_000, 1_000_000
	return o
}

const (
	// manyTills is where what is not about the number of tills is measured.
	manyTills = 256
	// backlogMeasure spans one of the sums over everything that is open, which the service
	// makes once a minute where there is that much: they are what a backlog costs.
	backlogMeasure = 65 * time.Second
	// longer is how many measuring times the growth and the overload get: pages that are
	// touched for the first time, and a server that falls behind, need them.
	longer = 3
	// itemsPerSecond is more than the queue can do, so that it never runs dry.
	itemsPerSecond = 8000
	// overhead is about what setting a stage takes, to tell how much time is left.
	overhead = 1200 * time.Millisecond
)

// step is a point, and about how long it takes.
type step struct {
	point
	takes time.Duration
}

// plan is everything that is measured, in its order. Points that are compared stand
// beside each other in every round, in an order that changes from round to round: a
// machine that is slower for a while is slower for all of them.
func plan(o options) (steps []step) {
	once := o.WarmUp + o.Measure + overhead
	for _, phase := range o.Phases {
		switch phase {
		case phaseStart:
			for round := range o.Starts {
				steps = append(steps, step{point{Phase: phase, Variant: shipped, Round: round + 1}, overhead})
			}
		case phaseRates:
			for round := range o.Rounds {
				for i, tills := range o.Tills {
					for j, ms := range o.Wallets {
						for _, variant := range rotated(o.Variants, round+i+j) {
							steps = append(steps, step{point{Phase: phase, Variant: variant, Tills: tills, WalletMS: ms, Round: round + 1}, once})
						}
					}
				}
			}
		case phaseOverload:
			for round := range o.Rounds {
				for _, ms := range overloadWallets() {
					steps = append(steps, step{overloadPoint(ms, round+1), once + o.WarmUp + longer*o.Measure})
				}
			}
		case phaseQueue:
			for round := range o.Rounds {
				for _, variant := range rotated([]string{shipped, ungrouped}, round) {
					steps = append(steps, step{queuePoint(variant, round+1), once + time.Second})
				}
			}
		case phaseGrowth:
			for _, keys := range []string{orderedKeys, randomKeys} {
				for round := range o.Rounds {
					for _, rows := range rotated([]int{o.Rows, 0}, round) {
						steps = append(steps, step{growthPoint(keys, rows, round+1), o.WarmUp + longer*o.Measure + overhead})
					}
				}
				steps[len(steps)-2*o.Rounds].takes += time.Duration(o.Rows) * 50 * time.Microsecond // loading them
			}
		case phaseBacklog:
			steps = append(steps, step{backlogCapacity(), once})
			for round := range o.Rounds {
				for _, waiting := range rotated([]int{o.Waiting, 0}, round) {
					steps = append(steps, step{backlogPoint(waiting, round+1), o.WarmUp + backlogMeasure + overhead})
				}
			}
		}
	}
	return steps
}

// rotated is all of list, beginning with its n-th.
func rotated[T any](list []T, n int) []T {
	if len(list) == 0 {
		return nil
	}
	n %= len(list)
	return slices.Concat(list[n:], list[:n])
}

// The points of the phases that have few, for the plan and for the report.

func overloadPoint(walletMS, round int) point {
	return point{Phase: phaseOverload, Variant: shipped, Tills: manyTills, WalletMS: walletMS, Round: round}
}

// overloadWallets are what the wallet takes under overload, in milliseconds. At 0 the
// cores are what is short, and the load has to share them: it cannot offer all that it
// should. At 100 the wallet is, and everybody else has time to spare.
func overloadWallets() []int { return []int{0, 100} }

func queuePoint(variant string, round int) point {
	return point{Phase: phaseQueue, Variant: variant, Round: round}
}

func growthPoint(keys string, rows, round int) point {
	return point{Phase: phaseGrowth, Variant: shipped, Tills: manyTills, Keys: keys, Rows: rows, Round: round}
}

// backlogCapacity is what the constant rate of phaseBacklog is a part of.
func backlogCapacity() point {
	return point{Phase: phaseBacklog, Variant: shipped, Tills: manyTills, Round: 1}
}

func backlogPoint(waiting, round int) point {
	return point{Phase: phaseBacklog, Variant: shipped, Waiting: waiting, Round: round}
}

// String says what is measured, for people who wait for it.
func (p point) String() string {
	text := p.Phase
	if p.Phase == phaseRates || p.Phase == phaseQueue {
		text += ": " + p.Variant
	}
	if p.Tills > 0 {
		text += fmt.Sprintf(", %d tills", p.Tills)
	}
	if p.Phase == phaseRates || p.Phase == phaseOverload {
		text += fmt.Sprintf(", wallet %d ms", p.WalletMS)
	}
	if p.Keys != "" {
		text += fmt.Sprintf(", %s keys, %s rows before", p.Keys, thousands(p.Rows))
	}
	if p.Phase == phaseBacklog && p.Tills == 0 {
		text += fmt.Sprintf(", %s waiting", thousands(p.Waiting))
	}
	return fmt.Sprintf("%s, round %d", text, p.Round)
}
