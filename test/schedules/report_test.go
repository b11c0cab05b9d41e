package schedules

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"strconv"
	"sync"
)

// reportTo is set in the environment of a process that was started by another to run a
// part of the schedules: it tells on its output how far it is.
const reportTo = "SCHEDULES_REPORT"

// reportPrefix begins a line that is for whoever started us.
const reportPrefix = "schedules:"

// reportEvery is after how many schedules the marks are told.
const reportEvery = 100

// progress is such a line: what has happened since the one before.
type progress struct {
	Begun uint64         `json:"begun,omitempty"` // the seed of the schedule that begins
	Done  int            `json:"done,omitempty"`
	Marks map[string]int `json:"marks,omitempty"`
}

// report counts the schedules of one rapid.Check, and what they reach.
type report struct {
	mu     sync.Mutex
	begun  uint64 // schedules
	seed   uint64 // the first one's, 0 if it is not known
	failed uint64 // the seed of the one that failed; from then on rapid makes it smaller
	broken bool
	since  progress
	told   bool
}

func newReport() *report {
	r := &report{told: os.Getenv(reportTo) != ""}
	if f := flag.Lookup("rapid.seed"); f != nil {
		r.seed, _ = strconv.ParseUint(f.Value.String(), 10, 64) // rapid has parsed it
	}
	return r
}

// begin is called before each schedule, and gives its seed, 0 if that is not known.
func (r *report) begin() (seed uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return 0
	}
	r.begun++
	if r.told {
		tell(progress{Begun: r.seedOf(r.begun)})
	}
	if r.seed == 0 {
		return 0
	}
	return r.seedOf(r.begun)
}

// seedOf is the seed that rapid gives the n-th of its checks.
func (r *report) seedOf(n uint64) uint64 { return r.seed + n*(n-1)/2 }

// end is called after each schedule, with what it has reached and whether all was well.
func (r *report) end(marks map[string]int, well bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.broken {
		return
	}
	if !well {
		r.broken, r.failed = true, r.seedOf(r.begun)
		return
	}
	if r.since.Marks == nil {
		r.since.Marks = map[string]int{}
	}
	for m, n := range marks {
		r.since.Marks[m] += n
	}
	if r.since.Done++; r.since.Done == reportEvery {
		r.flush()
	}
}

// flush tells what was not told yet. It needs mu.
func (r *report) flush() {
	if r.told {
		tell(progress{Done: r.since.Done, Marks: maps.Clone(r.since.Marks)})
	}
	r.since = progress{}
}

// close is called after the last schedule.
func (r *report) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flush()
}

// replay is the command that shows the schedule that failed again.
func (r *report) replay() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seed == 0 {
		return "again: make schedules N=1 SEED=, with the seed that rapid names above"
	}
	return fmt.Sprintf("again: make schedules N=1 SEED=%d", r.failed)
}

func tell(p progress) {
	line, err := json.Marshal(p)
	if err != nil {
		panic(err) // a struct of numbers and strings
	}
	fmt.Printf("%s%s\n", reportPrefix, line)
}
