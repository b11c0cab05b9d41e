package e2e

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// The outage that is tried; `make outage` tries ten minutes with five thousand.
var (
	outageLasts   = flag.Duration("outage", time.Minute, "how long the wallet takes no credit, for TestAnOutageIsNotMadeWorseAndTheBacklogDrains")
	outageWaiting = flag.Int("waiting", 1000, "how many credits wait meanwhile")
)

// Contract section 4, the retry budget, with the numbers as they are deployed: while
// the wallet refuses every credit for a minute, and a thousand wait, retries stay a
// fraction of the traffic; decisions go on as if nothing were; and within two
// minutes of its return, or as long as it was away, everything is done. A queue that
// makes an outage worse is what keeps wallets down.
func TestAnOutageIsNotMadeWorseAndTheBacklogDrains(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	t.Parallel()
	waiting, outage := *outageWaiting, *outageLasts
	w := newWorld(t)
	r := w.start(plain, "DRAIN_DELAY=0s")
	debits := 0
	// pay makes a debit every 200 ms until something is done, and tells how long half of
	// them took, and all but one in a hundred.
	pay := func(phase string, done func() bool) (median, p99 time.Duration) {
		var took []time.Duration
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		const told = 30 * time.Second
		for said := time.Now(); len(took) == 0 || !done(); {
			if time.Since(said) > told {
				said = time.Now()
				t.Logf("%s: %d debits so far, %d credits wait", phase, debits, pending(w))
			}
			<-tick.C
			debits++
			begin := time.Now()
			if answer := r.mustDebit(fmt.Sprintf("key-of-the-debit-%d", debits), "BERT"); answer.status != http.StatusCreated {
				t.Errorf("debit %d: %d %s", debits, answer.status, answer.body)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		median, p99 = took[len(took)/2], took[len(took)*99/100]
		t.Logf("%s: half of %d debits take %v at most, all but one in a hundred %v", phase, len(took), median, p99)
		return median, p99
	}
	at := func(end time.Time) func() bool { return func() bool { return !time.Now().Before(end) } }
	before, _ := pay("before", at(time.Now().Add(outage/10)))
	down, err := w.wallet.AddRule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Credit}, Fault: walletsim.Down()})
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var all sync.WaitGroup
	for lane := range 8 {
		all.Go(func() {
			for i := lane; i < waiting; i += 8 {
				answer, err := r.post("/credits", fmt.Sprintf("key-of-%d", i), `{"account": "ANNA", "amount": 1, "currency": "EUR"}`)
				if err != nil || answer.status != http.StatusAccepted {
					t.Errorf("credit %d: %d %s, %v", i, answer.status, answer.body, err)
				}
			}
		})
	}
	all.Wait()

	meanwhile, _ := pay("meanwhile", at(began.Add(outage)))
	seconds := int(time.Since(began).Seconds()) + 1
	arrived, applied, _ := w.effects()
	first, sends := 0, 0
	for reference, count := range arrived {
		if applied[reference] == 0 { // all debits were
			first++
			sends += count
		}
	}
	// A tenth of the first attempts, one a second, and the ten that it starts with.
	if retries, most := sends-first, first/10+seconds+10; retries > most {
		t.Errorf("%d retries of %d first attempts in %d s, want at most %d", retries, first, seconds, most)
	}
	t.Logf("%d s without the wallet: %d first attempts, %d retries, %d debits approved meanwhile", seconds, first, sends-first, debits)

	if !w.wallet.RemoveRule(down) {
		t.Fatal("the outage had ended by itself")
	}
	returned := time.Now()
	limit := max(2*time.Minute, outage)
	after, _ := pay("while it drains", func() bool { return pending(w) == 0 || time.Since(returned) > limit })
	if left := pending(w); left > 0 {
		t.Errorf("%d credits wait %v after the wallet's return", left, limit)
	}
	t.Logf("drained %v after its return", time.Since(returned).Round(time.Second))
	// How fast it is, benchmarks tell. This is whether payments wait for credits: then they
	// would wait for the wallet, and for much longer than a machine is out of breath.
	const breath = 50 * time.Millisecond
	if most := 2*before + breath; meanwhile > most || after > most {
		t.Errorf("half of the debits take up to %v in the outage and %v after it, %v before", meanwhile, after, before)
	}
	if _, applied, _ := w.effects(); len(applied) != waiting+debits {
		t.Errorf("%d effects, want %d", len(applied), waiting+debits)
	}
}

// pending is how many follow-ups wait.
func pending(w *world) (n int) {
	w.t.Helper()
	w.query(`SELECT count(*) FROM operations WHERE state = 'PENDING'`, nil, &n)
	return n
}
