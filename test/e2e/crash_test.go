package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/crashpoint"
	"github.com/safeledger/safeledger/internal/walletsim"
)

// A6, S23, S24: a replica that is killed at any point of a decision leaves a key
// that is answered 409 for a few seconds at most and then has one final answer,
// from any other replica, without an operator; at most one debit was ever sent,
// and whatever the wallet may have applied has one reversal. A till that paid twice,
// or that can never learn what became of its payment, is what this is against.
func TestAPaymentOfAKilledReplicaEndsOnceAndTheSameForEverybody(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		point        string
		wantStatus   int
		wantCode     string
		wantApplied  int
		wantReversal int
	}{
		{crashpoint.AfterClaim, http.StatusFailedDependency, "WALLET_TIMEOUT", 0, 1},
		{crashpoint.AfterSend, http.StatusFailedDependency, "WALLET_TIMEOUT", 1, 1},
		{crashpoint.AfterWalletAnswer, http.StatusFailedDependency, "WALLET_TIMEOUT", 1, 1},
		{crashpoint.BeforeAnswer, http.StatusCreated, "", 1, 0},
	} {
		t.Run(c.point, func(t *testing.T) {
			t.Parallel()
			const opening = 100_000
			w := newWorld(t)
			w.wallet.SetBalance("ANNA", "EUR", opening)
			survivor := w.start(plain, quick...)
			victim := w.start(binary, append(quick, "CRASH_AT="+c.point)...)

			if answer, err := victim.debit("key-of-the-victim", "ANNA"); err == nil {
				t.Fatalf("the replica answered %d instead of dying", answer.status)
			}
			victim.awaitExit()
			if status, ok := victim.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Fatalf("the replica ended with %v, not by SIGKILL", victim.cmd.ProcessState)
			}

			if c.wantReversal == 1 {
				// Within the horizon the key is busy; whoever is late finds it decided already.
				if early := survivor.mustDebit("key-of-the-victim", "ANNA"); early.status != http.StatusConflict && early.status != c.wantStatus {
					t.Errorf("before recovery: %d %s", early.status, early.body)
				}
			}
			final := survivor.awaitDecision("key-of-the-victim")
			if final.status != http.StatusOK || final.member("code") != c.wantCode {
				t.Errorf("by key: %d %s, want code %q", final.status, final.body, c.wantCode)
			}
			first := survivor.mustDebit("key-of-the-victim", "ANNA")
			if first.status != c.wantStatus || first.header.Get("Idempotency-Replayed") != "true" || c.wantCode != "" && first.member("code") != c.wantCode {
				t.Errorf("the replay: %d %v %s", first.status, first.header, first.body)
			}
			third := w.start(plain, quick...)
			if diff := cmp.Diff(first.body, third.mustDebit("key-of-the-victim", "ANNA").body); diff != "" {
				t.Errorf("another replica answers differently:\n%s", diff)
			}

			if applied, asked := w.applied("ANNA"); applied != c.wantApplied || asked > 1 {
				t.Errorf("the wallet was asked %d times and applied %d, want %d", asked, applied, c.wantApplied)
			}
			var reversals int
			w.query(`SELECT count(*) FROM operations WHERE kind = 'reversal'`, nil, &reversals)
			if reversals != c.wantReversal {
				t.Errorf("%d reversals, want %d", reversals, c.wantReversal)
			}
			if c.wantReversal == 1 && c.wantApplied == 1 {
				w.awaitRow(`SELECT count(*) FROM operations WHERE kind = 'reversal' AND state = 'SUCCEEDED'`, 1)
				if got := w.wallet.Balance("ANNA", "EUR"); got != opening {
					t.Errorf("the customer has %d, had %d: the decline was not undone", got, opening)
				}
			}
		})
	}
}

// Promise 4: a till that went down with its replica never asks again. What the wallet
// took from its customer comes back all the same: somebody sweeps.
func TestAPaymentThatNobodyAsksForIsDeclinedAndGivenBack(t *testing.T) {
	t.Parallel()
	const opening = 100_000
	w := newWorld(t)
	w.wallet.SetBalance("ANNA", "EUR", opening)
	w.start(plain, quick...)
	victim := w.start(binary, append(quick, "CRASH_AT="+crashpoint.AfterWalletAnswer)...)
	if answer, err := victim.debit("key-of-the-victim", "ANNA"); err == nil {
		t.Fatalf("the replica answered %d instead of dying", answer.status)
	}
	victim.awaitExit()

	w.awaitRow(`SELECT count(*) FROM payments WHERE state = 'DECLINED' AND code = 'WALLET_TIMEOUT'`, 1)
	w.awaitRow(`SELECT count(*) FROM operations WHERE kind = 'reversal' AND state = 'SUCCEEDED'`, 1)
	if got := w.wallet.Balance("ANNA", "EUR"); got != opening {
		t.Errorf("the customer has %d, had %d", got, opening)
	}
}

// Promise 2 over processes: two replicas that get the same keys at the same moment
// have one owner for each, and the wallet one debit.
func TestTwoReplicasRacingForTheSameKeysHaveOneOwnerEach(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	replicas := []*replica{w.start(plain, unhurried...), w.start(plain, unhurried...)}
	const keys, repeats = 20, 6
	var (
		mu      sync.Mutex
		answers = map[string][]reply{}
		all     sync.WaitGroup
	)
	for _, key := range keyNames(keys) {
		for i := range repeats {
			all.Go(func() {
				answer, err := replicas[i%len(replicas)].debit(key, "ANNA-"+key)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				answers[key] = append(answers[key], answer)
			})
		}
	}
	all.Wait()
	for key, got := range answers {
		var owners int
		var body string
		for _, a := range got {
			switch {
			case a.status == http.StatusCreated && a.header.Get("Idempotency-Replayed") == "":
				owners++
			case a.status == http.StatusCreated, a.status == http.StatusConflict:
			default:
				t.Errorf("%s: %d %s", key, a.status, a.body)
			}
			if a.status == http.StatusCreated {
				if body != "" && body != a.body {
					t.Errorf("%s: two different approvals:\n%s\n%s", key, body, a.body)
				}
				body = a.body
			}
		}
		if owners != 1 {
			t.Errorf("%s has %d owners", key, owners)
		}
		if applied, asked := w.applied("ANNA-" + key); applied != 1 || asked != 1 {
			t.Errorf("%s: the wallet was asked %d times and applied %d", key, asked, applied)
		}
	}
}

func keyNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = "key-of-" + string(rune('a'+i))
	}
	return names
}

// E5, S32: SIGTERM loses no answer. Readiness goes first; tills are still served,
// each answer closing its connection; what is in flight is finished and delivered;
// the exit is clean.
func TestSIGTERMFinishesWhatIsInFlightAndExitsClean(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(plain, append(slices.Clone(unhurried), "DRAIN_DELAY=4s")...)
	answered := make(chan reply, 1)
	go func() {
		answer, err := r.debit("key-of-the-slow", "SLOW-2000-ANNA")
		if err != nil {
			t.Error(err)
		}
		answered <- answer
	}()
	w.awaitBooked(func(e walletsim.Entry) bool { return e.Event == walletsim.Arrived })
	r.signal(syscall.SIGTERM)
	r.log.await(t, r.exited, `"msg":"draining"`)

	if ready, err := http.Get(r.admin + "/readyz"); err != nil || ready.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("/readyz while draining: %v, %v", ready, err)
	} else {
		ready.Body.Close()
	}
	late, err := r.debit("key-of-the-late", "BERT")
	if err != nil || late.status != http.StatusCreated || !late.closes {
		t.Errorf("a till during the drain delay: %d, closes %v, %v", late.status, late.closes, err)
	}
	if slow := <-answered; slow.status != http.StatusCreated || !slow.closes {
		t.Errorf("what was in flight: %d, closes %v, %s", slow.status, slow.closes, slow.body)
	}
	r.awaitExit()
	if code := exitCode(r.waitErr); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// Promise 6, at the end of the drain delay: who is still inside then is waited for. A
// deployment must not cost a till the answer to a payment that was taken.
func TestWhatIsInFlightWhenTheGateClosesIsAnswered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(plain, "DRAIN_DELAY=0s")
	answered := make(chan error, 1)
	go func() {
		answer, err := r.debit("key-of-the-slow", "SLOW-700-ANNA")
		if err == nil && answer.status != http.StatusCreated && answer.status != http.StatusFailedDependency {
			err = fmt.Errorf("answered %d %s", answer.status, answer.body)
		}
		answered <- err
	}()
	w.awaitBooked(func(e walletsim.Entry) bool { return e.Event == walletsim.Arrived })
	r.signal(syscall.SIGTERM)
	if err := <-answered; err != nil {
		t.Errorf("what was in flight: %v", err)
	}
	r.awaitExit()
	if code := exitCode(r.waitErr); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A second signal does not wait, and costs nobody money: what it leaves behind is
// recovered.
func TestASecondSignalExitsAtOnceAndTheRestIsRecovered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	survivor := w.start(plain, quick...)
	r := w.start(plain, "RECOVERY_GRACE=300ms", "DRAIN_DELAY=10m")
	go func() { _, _ = r.debit("key-of-the-hanging", "HANG-ANNA") }()
	w.awaitBooked(func(e walletsim.Entry) bool { return e.Event == walletsim.Arrived })
	r.signal(syscall.SIGTERM)
	r.log.await(t, r.exited, `"msg":"draining"`)
	r.signal(syscall.SIGTERM)
	r.awaitExit() // far sooner than the ten minutes of its drain delay
	if code := exitCode(r.waitErr); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if final := survivor.awaitDecision("key-of-the-hanging"); final.member("code") != "WALLET_TIMEOUT" {
		t.Errorf("afterwards: %d %s", final.status, final.body)
	}
}
