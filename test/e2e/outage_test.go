package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// Contract section 4, the retry budget, with the numbers as they are deployed: while
// the wallet refuses every credit for a minute, and a thousand wait, retries stay a
// fraction of the traffic; decisions go on as if nothing were; and within two
// minutes of its return everything is done. A queue that makes an outage worse is
// what keeps wallets down.
func TestAnOutageIsNotMadeWorseAndTheBacklogDrains(t *testing.T) {
	if testing.Short() {
		t.Skip("takes minutes")
	}
	t.Parallel()
	const (
		waiting = 1000
		outage  = time.Minute
	)
	w := newWorld(t)
	r := w.start(plain, "DRAIN_DELAY=0s")
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

	debits := 0
	tick := time.NewTicker(200 * time.Millisecond)
	for time.Since(began) < outage {
		<-tick.C
		debits++
		if answer := r.mustDebit(fmt.Sprintf("key-of-the-debit-%d", debits), "BERT"); answer.status != http.StatusCreated {
			t.Errorf("a debit during the outage: %d %s", answer.status, answer.body)
		}
	}
	tick.Stop()

	seconds := int(time.Since(began).Seconds()) + 1
	arrived, applied, _ := w.effects()
	first, sends := 0, 0
	for reference, count := range arrived {
		if applied[reference] == 0 {
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
	w.awaitRow(`SELECT count(*) FROM operations WHERE state = 'PENDING'`, 0)
	if took := time.Since(returned); took > 2*time.Minute {
		t.Errorf("drained %v after the wallet's return, want two minutes at most", took)
	}
	t.Logf("drained %v after its return", time.Since(returned).Round(time.Second))
	if _, applied, _ := w.effects(); len(applied) != waiting+debits {
		t.Errorf("%d effects, want %d", len(applied), waiting+debits)
	}
}
