package schedules

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"
)

// Whatever tills, wallet, ledger and replicas do, in whatever order: what tills were told
// is what is stored, what is stored is what the wallet did, and everybody heard in time
// (I1 to I15).
//
// It runs as many schedules as -rapid.checks says, and the more the better: see make
// schedules.
func TestWhateverHappensInWhateverOrder(t *testing.T) {
	t.Parallel()
	report := newReport()
	defer report.close()
	rapid.Check(t, func(rt *rapid.T) {
		seed := report.begin()
		p := plans.Draw(rt, "plan")
		if again := plans.Example(int(seed)); seed != 0 && again.GoString() != p.GoString() {
			rt.Fatalf("the seed of this schedule is not %d: rapid counts otherwise than we do", seed)
		}
		var broken []complaint
		var told string
		synctest.Test(t, func(t *testing.T) {
			w := happen(t, p)
			defer w.close()
			if broken = w.judge(); len(broken) > 0 {
				told = w.story()
			}
			report.end(w.journal.seen, len(broken) == 0)
		})
		if len(broken) == 0 {
			return
		}
		// What rapid goes by when it makes it smaller is the last line alone, so that is all
		// that must be the same each time.
		rt.Log("the schedule:" + told)
		for _, c := range broken {
			rt.Logf("broken: %s: %s", c.invariant, c.text)
		}
		slices.SortFunc(broken, func(a, b complaint) int { return strings.Compare(a.invariant, b.invariant) })
		rt.Fatalf("%s does not hold; %s", broken[0].invariant, report.replay())
	})
}
