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
	// pay makes a debit every 200 ms for as long, and tells how long half of them took, and
	// all but one in a hundred.
	pay := func(until time.Time) (median, p99 time.Duration) {
		var took []time.Duration
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for time.Now().Before(until) {
			<-tick.C
			debits++
			begin := time.Now()
			if answer := r.mustDebit(fmt.Sprintf("key-of-the-debit-%d", debits), "BERT"); answer.status != http.StatusCreated {
				t.Errorf("debit %d: %d %s", debits, answer.status, answer.body)
			}
			took = append(took, time.Since(begin))
		}
		slices.Sort(took)
		return took[len(took)/2], took[len(took)*99/100]
	}
	median, p99 := pay(time.Now().Add(outage / 10))
	t.Logf("before: a debit takes %v, p99 %v", median, p99)
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

	median, p99 = pay(began.Add(outage))
	t.Logf("meanwhile: %v, p99 %v", median, p99)

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
	w.awaitRowFor(limit+patience, `SELECT count(*) FROM operations WHERE state = 'PENDING'`, 0)
	if took := time.Since(returned); took > limit {
		t.Errorf("drained %v after the wallet's return, want %v at most", took, limit)
	}
	t.Logf("drained %v after its return", time.Since(returned).Round(time.Second))
	if _, applied, _ := w.effects(); len(applied) != waiting+debits {
		t.Errorf("%d effects, want %d", len(applied), waiting+debits)
	}
}
