package schedules

import (
	"bytes"
	"strings"
	"testing"
)

// A long run that has not reached something, or in which a process died, must not pass
// for one that has shown something; and whoever reads its end must be able to see the
// schedule again.
func TestARunThatShowsNothingFails(t *testing.T) {
	t.Parallel()
	all := map[string]int{}
	for _, m := range everyMark {
		all[m] = 7
	}
	without := map[string]int{}
	for _, m := range everyMark[1:] {
		without[m] = 7
	}
	for name, c := range map[string]struct {
		total    int
		marks    map[string]int
		failures []failure
		want     int
		says     string
	}{
		"everything was reached":       {enough, all, nil, 0, "no invariant was broken"},
		"something was never reached":  {enough, without, nil, 1, everyMark[0]},
		"too few to have reached it":   {enough - 1, without, nil, 0, "no invariant was broken"},
		"an invariant was broken":      {enough, all, []failure{{42, "I4 does not hold"}}, 1, "make schedules N=1 SEED=42"},
		"a process died, and why":      {enough, all, []failure{{42, "all goroutines are asleep"}}, 1, "all goroutines are asleep"},
		"both, and the former is told": {enough, without, []failure{{42, "I4 does not hold"}}, 1, "I4 does not hold"},
	} {
		var out bytes.Buffer
		r := &run{out: &out, total: c.total, done: c.total, marks: c.marks, failures: c.failures}
		if got := r.verdict(); got != c.want || !strings.Contains(out.String(), c.says) {
			t.Errorf("%s: exit code %d, want %d:\n%s", name, got, c.want, out.String())
		}
	}
}

// What the parts tell is added up, and the seed of a part that dies is the one that it
// had begun last.
func TestAPartTellsHowFarItIs(t *testing.T) {
	t.Parallel()
	r := &run{marks: map[string]int{}}
	first := r.hear(`{"begun": 17}`)
	r.hear(`{"done": 100, "marks": {"a": 3}}`)
	r.hear(`{"done": 20, "marks": {"a": 1, "b": 2}}`)
	if first != 17 || r.done != 120 || r.marks["a"] != 4 || r.marks["b"] != 2 {
		t.Errorf("begun %d, done %d, marks %v", first, r.done, r.marks)
	}
	if r.hear("not ours") != 0 || r.done != 120 {
		t.Error("something else was taken for progress")
	}
}
