package schedules

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	total    = flag.Int("schedules", 0, "run so many schedules, on all processors, instead of the tests")
	fromSeed = flag.Uint64("seed", 0, "the seed of the first of them; 0 = another one each time")
)

// enough is how many schedules must have reached every mark.
const enough = 10_000

// TestMain runs the tests of this package, or the many schedules that are asked for.
func TestMain(m *testing.M) {
	flag.Parse()
	if *total == 0 {
		os.Exit(m.Run())
	}
	os.Exit(newRun(os.Stdout, *total, *fromSeed).do())
}

// run is many schedules, divided between as many processes as there are processors. Each
// of them has one: then what happens in a schedule depends on little but its seed.
type run struct {
	out      io.Writer
	terminal bool
	total    int
	seed     uint64
	begin    time.Time

	mu       sync.Mutex
	done     int
	marks    map[string]int
	failures []failure
}

// failure is what a part that failed has said.
type failure struct {
	seed   uint64 // of the schedule that it had begun last
	output string
}

func newRun(out *os.File, total int, seed uint64) *run {
	if seed == 0 {
		seed = uint64(time.Now().UnixMilli())
	}
	info, err := out.Stat()
	return &run{
		out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0,
		total: total, seed: seed, begin: time.Now(), marks: map[string]int{},
	}
}

// apart is how far the seeds of two parts are from each other: rapid's n-th check is
// n(n-1)/2 from the first.
const apart = 1 << 40

// do runs all parts and is the exit code.
func (r *run) do() int {
	parts := min(runtime.NumCPU(), r.total)
	fmt.Fprintf(r.out, "%d schedules from seed %d, in %d processes\n", r.total, r.seed, parts)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var all sync.WaitGroup
		for i := range parts {
			share := r.total / parts
			if i < r.total%parts {
				share++
			}
			all.Go(func() { r.part(share, r.seed+uint64(i)*apart) })
		}
		all.Wait()
	}()
	r.watch(ended)
	return r.verdict()
}

// part runs n schedules in a process of its own.
func (r *run) part(n int, seed uint64) {
	binary, err := os.Executable()
	if err != nil {
		r.fail(failure{seed, err.Error()})
		return
	}
	cmd := exec.Command(binary, "-test.run=^TestWhateverHappensInWhateverOrder$", "-test.timeout=0",
		"-rapid.nofailfile", "-rapid.checks="+strconv.Itoa(n), "-rapid.seed="+strconv.FormatUint(seed, 10))
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", reportTo+"=1")
	output, err := cmd.StdoutPipe()
	if err != nil {
		r.fail(failure{seed, err.Error()})
		return
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		r.fail(failure{seed, err.Error()})
		return
	}
	said := failure{seed: seed}
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if told, ours := strings.CutPrefix(line, reportPrefix); ours {
			said.seed = max(said.seed, r.hear(told))
		} else {
			said.output += line
		}
		if err != nil {
			break
		}
	}
	if err := cmd.Wait(); err != nil {
		said.output += err.Error()
		r.fail(said)
	}
}

// hear takes in what a part tells, and is the seed of the schedule that it begins.
func (r *run) hear(line string) uint64 {
	var p progress
	if err := json.Unmarshal([]byte(line), &p); err != nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done += p.Done
	for m, n := range p.Marks {
		r.marks[m] += n
	}
	return p.Begun
}

func (r *run) fail(f failure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, f)
}

// watch tells how far it is, until ended is closed.
func (r *run) watch(ended <-chan struct{}) {
	every, end := 10*time.Second, "\n"
	if r.terminal {
		every, end = time.Second, "\x1b[K\r"
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			fmt.Fprint(r.out, r.line()+end)
		}
	}
}

func (r *run) line() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	took := time.Since(r.begin)
	rate := float64(r.done) / took.Seconds()
	left := "?"
	if rate > 0 {
		left = time.Duration(float64(r.total-r.done) / rate * float64(time.Second)).Round(time.Second).String()
	}
	return fmt.Sprintf("%d of %d, %.0f a second, %d of %d faults and states reached, %s left", r.done, r.total, rate, len(r.reached()), len(everyMark), left)
}

// reached are the marks that were, the rarest first. It needs mu.
func (r *run) reached() []string {
	return slices.SortedFunc(maps.Keys(r.marks), func(a, b string) int { return r.marks[a] - r.marks[b] })
}

// verdict says how it went, and is the exit code.
func (r *run) verdict() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.terminal {
		fmt.Fprint(r.out, "\x1b[K")
	}
	for _, f := range r.failures {
		fmt.Fprintf(r.out, "%s\n\nfailed; again: make schedules N=1 SEED=%d\n", f.output, f.seed)
	}
	if len(r.failures) > 0 {
		return 1
	}
	took := time.Since(r.begin)
	fmt.Fprintf(r.out, "%d schedules in %s (%.0f a second): no invariant was broken\n", r.done, took.Round(time.Second), float64(r.done)/took.Seconds())
	never := slices.DeleteFunc(slices.Clone(everyMark), func(m string) bool { return r.marks[m] > 0 })
	if reached := r.reached(); len(reached) > 0 {
		fmt.Fprintf(r.out, "%d of %d faults and states were reached, the rarest %d times: %s\n",
			len(everyMark)-len(never), len(everyMark), r.marks[reached[0]], reached[0])
	}
	if r.total < enough || len(never) == 0 {
		return 0
	}
	fmt.Fprintf(r.out, "never reached, so that nothing is known of it:\n  %s\n", strings.Join(never, "\n  "))
	return 1
}
