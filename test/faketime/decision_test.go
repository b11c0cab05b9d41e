package faketime

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/servicetest"
	"github.com/safeledger/safeledger/internal/walletsim"
)

const none = -1 // no Request-Deadline-Ms

// never is longer than anybody waits.
const never = time.Hour

// Promise 6: the answer leaves before the till does, to the millisecond, for
// every threshold of the header and of the wallet's slowness (contract section 2).
// A wallet that is slow applies at once and answers late; lookups hang where the
// case says so.
func TestTheAnswerLeavesExactlyWhenTheBudgetSays(t *testing.T) {
	t.Parallel()
	const (
		approved    = "201"
		unavailable = "424 WALLET_UNAVAILABLE"
		timeout     = "424 WALLET_TIMEOUT"
	)
	for _, c := range []struct {
		header      int
		wallet      time.Duration // until it answers the debit
		lookup      time.Duration // until it answers a lookup
		want        string
		took        time.Duration
		wantLookups int
		wantDebits  int
	}{
		// A healthy wallet, whatever is left.
		{none, 0, never, approved, 0, 0, 1},
		{3000, 400 * ms, never, approved, 400 * ms, 0, 1},
		// The limit of the call.
		{none, 799 * ms, never, approved, 799 * ms, 0, 1},
		{none, 801 * ms, 0, approved, 800 * ms, 1, 1},
		{none, never, 0, approved, 800 * ms, 1, 1},
		{none, never, 299 * ms, approved, 1099 * ms, 1, 1},
		{none, never, 301 * ms, timeout, 1100 * ms, 1, 1},
		{none, never, never, timeout, 1100 * ms, 1, 1},
		// The header, around every threshold.
		{0, 0, 0, unavailable, 0, 0, 0},
		{599, 0, 0, unavailable, 0, 0, 0},
		{600, 0, 0, unavailable, 0, 0, 0},
		{601, 0, 0, unavailable, 0, 0, 0},
		{649, 0, 0, unavailable, 0, 0, 0},
		{650, 0, 0, approved, 0, 0, 1},
		{650, 49 * ms, 0, approved, 49 * ms, 0, 1},
		{650, never, 0, timeout, 50 * ms, 0, 1},
		{1399, never, 0, timeout, 799 * ms, 0, 1},
		{1400, 790 * ms, 0, approved, 790 * ms, 0, 1}, // S15: stored although less than 50 ms remain
		{1400, never, 0, timeout, 800 * ms, 0, 1},
		{1449, never, 0, timeout, 800 * ms, 0, 1},
		{1450, never, 0, approved, 800 * ms, 1, 1},
		{1450, never, never, timeout, 850 * ms, 1, 1},
		{1699, never, never, timeout, 1099 * ms, 1, 1},
		{1700, never, never, timeout, 1100 * ms, 1, 1},
		{3000, never, never, timeout, 1100 * ms, 1, 1},
		{3001, never, never, timeout, 1100 * ms, 1, 1},
		{1 << 40, never, never, timeout, 1100 * ms, 1, 1},
	} {
		t.Run(fmt.Sprintf("header %d, wallet %v, lookup %v", c.header, c.wallet, c.lookup), func(t *testing.T) {
			inBubble(t, settings{}, func(st *stack) {
				st.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Lookup}, Fault: walletsim.Slow(c.lookup)})
				st.rule(walletsim.Rule{Fault: walletsim.Slow(c.wallet)})

				r := st.mustDebit("k", "anna", c.header)
				got := strconv.Itoa(r.status)
				if r.status != http.StatusCreated {
					got += " " + member(r.body, "code")
				}
				debits, lookups, _ := st.wire("anna")
				if diff := cmp.Diff([]any{c.want, c.took, c.wantDebits, c.wantLookups}, []any{got, r.took, debits, lookups}); diff != "" {
					t.Errorf("answer, took, debits and lookups on the wire (-want +got):\n%s", diff)
				}
				p, found := st.stored("k")
				wantState := payment.Declined
				if c.want == approved {
					wantState = payment.Approved
				}
				if !found || p.State != wantState {
					t.Errorf("stored: %v %s, want %s", found, p.State, wantState)
				}
				if reversed := len(p.FollowUps) > 0; reversed != (c.want == timeout) {
					t.Errorf("a reversal: %v", reversed)
				}
				_ = st.sim.Close()
			})
		})
	}
}

// Whatever the wallet, the header and the ledger do: an answer within the
// effective budget and the 300 ms of our own writes, one debit on the wire and one
// lookup at most, and what was told is what is stored (promises 2, 3 and 6).
func TestNoTillWaitsLongerThanItsBudgetAndOurWrites(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		header := rapid.SampledFrom([]int{none, 0, 600, 640, 650, 700, 1000, 1400, 1450, 1700, 3000}).Draw(rt, "header")
		draw := func(name string) time.Duration {
			return time.Duration(rapid.SampledFrom([]int{0, 1, 49, 50, 51, 299, 300, 301, 500, 799, 800, 801, 2400, 10_000}).Draw(rt, name)) * ms
		}
		claim, store, call, lookup := draw("claim"), draw("store"), draw("call"), draw("lookup")
		strike := func(ctx context.Context, step memory.Step) error {
			switch step {
			case memory.Claim:
				return slowly(memory.Claim, claim)(ctx, step)
			case memory.Decide:
				return slowly(memory.Decide, store)(ctx, step)
			}
			return nil
		}
		inBubble(t, settings{ledger: memory.Config{Before: strike}}, func(st *stack) {
			st.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Lookup}, Fault: walletsim.Slow(lookup)})
			st.rule(walletsim.Rule{Fault: walletsim.Slow(call)})
			r := st.mustDebit("k", "anna", header)

			policy := servicetest.Budget()
			effective := policy.Server
			if header >= 0 {
				effective = min(max(time.Duration(header)*ms-policy.NetworkReserve, 0), policy.Server)
			}
			if r.took > effective+300*ms {
				rt.Errorf("answered %d after %v, of an effective budget of %v", r.status, r.took, effective)
			}
			if debits, lookups, _ := st.wire("anna"); debits > 1 || lookups > 1 {
				rt.Errorf("%d debits and %d lookups on the wire", debits, lookups)
			}
			p, _ := st.stored("k")
			switch r.status {
			case http.StatusCreated:
				if p.State != payment.Approved {
					rt.Errorf("told an approval, stored %s", p.State)
				}
			case http.StatusFailedDependency:
				if p.State != payment.Declined || string(p.Code) != member(r.body, "code") {
					rt.Errorf("told %s, stored %s %s", r.body, p.State, p.Code)
				}
			case http.StatusServiceUnavailable:
				if r.header.Get("Retry-After") != "" {
					rt.Error("an unknown outcome was told with Retry-After")
				}
			default:
				rt.Errorf("answered %d: %s", r.status, r.body)
			}
			_ = st.sim.Close()
		})
	})
}

// S18, A1: sixteen identical requests at once are one debit; the fifteen others
// hear at once that it is being decided, not after the wallet has answered.
func TestOneOfManyIdenticalRequestsIsDecidedTheOthersHearAtOnce(t *testing.T) {
	t.Parallel()
	inBubble(t, settings{}, func(st *stack) {
		st.rule(walletsim.Rule{Fault: walletsim.Slow(700 * ms)})
		replies := make([]reply, 16)
		var all sync.WaitGroup
		for i := range replies {
			all.Go(func() { replies[i] = st.mustDebit("k", "anna", none) })
		}
		all.Wait()
		var approved, inFlight int
		for _, r := range replies {
			switch r.status {
			case http.StatusCreated:
				approved++
				if r.took != 700*ms || r.replayed() {
					t.Errorf("the owner: took %v, replayed %v", r.took, r.replayed())
				}
			case http.StatusConflict:
				inFlight++
				if r.took != 0 || r.header.Get("Retry-After") != "1" || member(r.body, "code") != "REQUEST_IN_FLIGHT" || r.replayed() {
					t.Errorf("a duplicate: took %v, Retry-After %q, %s", r.took, r.header.Get("Retry-After"), r.body)
				}
			default:
				t.Errorf("answered %d: %s", r.status, r.body)
			}
		}
		debits, lookups, applied := st.wire("anna")
		if approved != 1 || inFlight != 15 || debits != 1 || lookups != 0 || applied != 1 {
			t.Errorf("%d approved, %d in flight; %d debits, %d lookups, %d applied", approved, inFlight, debits, lookups, applied)
		}
	})
}

// S17, C29, field report C2: a till that hangs up does not cancel what it began,
// and its replay hears how it ended. Fifty of them do not open the breaker.
func TestATillThatHangsUpDoesNotCancelItsPayment(t *testing.T) {
	t.Parallel()
	inBubble(t, settings{}, func(st *stack) {
		st.rule(walletsim.Rule{Fault: walletsim.Slow(200 * ms)})
		for i := range 50 {
			key := fmt.Sprintf("k%d", i)
			ctx, hangUp := context.WithTimeout(st.t.Context(), 80*ms)
			if _, err := st.debit(ctx, key, "anna", none); err == nil {
				t.Fatal("the till did not hang up")
			}
			hangUp()
			time.Sleep(120 * ms) // the rest of the wallet's time; fake
			synctest.Wait()
			if p, _ := st.stored(key); p.State != payment.Approved {
				t.Fatalf("after the till had left: %s", p.State)
			}
			if r := st.mustDebit(key, "anna", none); r.status != http.StatusCreated || !r.replayed() || r.took != 0 {
				t.Fatalf("its replay: %d, replayed %v, after %v", r.status, r.replayed(), r.took)
			}
		}
		if debits, _, applied := st.wire("anna"); debits != 50 || applied != 50 {
			t.Errorf("%d debits on the wire, %d applied, want 50", debits, applied)
		}
		if state := st.wallet.Decisions().BreakerState(); state != "closed" {
			t.Errorf("the breaker is %s", state)
		}
	})
}

// A20, A18, A19: an answer that was doubt stays the answer. Ten repeats are ten
// times the same bytes, and nothing more goes to the wallet.
func TestARepeatedKeyGetsTheSameAnswerWithoutTheWallet(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]walletsim.Fault{
		"approved":         {},
		"doubt":            walletsim.Stall(),
		"declined":         {Apply: walletsim.Refuse, Code: "ACCOUNT_LOCKED"},
		"a gateway's 502":  walletsim.Gateway(http.StatusBadGateway),
		"nothing but html": {Status: new(http.StatusNotFound), Body: new("<html>no</html>"), ContentType: "text/html"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, settings{}, func(st *stack) {
				st.rule(walletsim.Rule{Fault: fault})
				first := st.mustDebit("k", "anna", none)
				debits, lookups, _ := st.wire("anna")
				if debits != 1 || lookups > 1 || first.replayed() {
					t.Fatalf("the first: %d debits, %d lookups, replayed %v", debits, lookups, first.replayed())
				}
				for range 10 {
					again := st.mustDebit("k", "anna", none)
					if !again.replayed() || again.took != 0 {
						t.Errorf("a repeat: replayed %v, after %v", again.replayed(), again.took)
					}
					for _, h := range []http.Header{first.header, again.header} {
						h.Del("Date")
						h.Del("Idempotency-Replayed")
					}
					if diff := cmp.Diff([]any{first.status, first.header, first.body}, []any{again.status, again.header, again.body}); diff != "" {
						t.Errorf("a repeat (-first +again):\n%s", diff)
					}
				}
				if d, l, _ := st.wire("anna"); d != debits || l != lookups {
					t.Errorf("repeats went to the wallet: %d debits and %d lookups, %d and %d before", d, l, debits, lookups)
				}
				_ = st.sim.Close()
			})
		})
	}
}

// A23: a decline is pinned to its key. Money that has come since does not turn it
// into an approval; a new attempt is a new key.
func TestADeclineStaysWhenTheAccountIsToppedUp(t *testing.T) {
	t.Parallel()
	inBubble(t, settings{}, func(st *stack) {
		st.sim.SetBalance("anna", "EUR", 0)
		if r := st.mustDebit("k1", "anna", none); r.status != http.StatusPaymentRequired || member(r.body, "code") != "INSUFFICIENT_FUNDS" {
			t.Fatalf("without money: %d %s", r.status, r.body)
		}
		st.sim.SetBalance("anna", "EUR", 5000)
		if r := st.mustDebit("k1", "anna", none); r.status != http.StatusPaymentRequired || !r.replayed() {
			t.Errorf("the same key with money: %d, replayed %v", r.status, r.replayed())
		}
		if r := st.mustDebit("k2", "anna", none); r.status != http.StatusCreated {
			t.Errorf("a new key with money: %d %s", r.status, r.body)
		}
	})
}

// S34, C1: declines are answers. A run of poor customers must not shut the shop.
func TestBusinessDeclinesLeaveTheBreakerClosed(t *testing.T) {
	t.Parallel()
	inBubble(t, settings{}, func(st *stack) {
		st.sim.SetBalance("anna", "EUR", 0)
		for i := range 100 {
			if r := st.mustDebit(fmt.Sprintf("k%d", i), "anna", none); member(r.body, "code") != "INSUFFICIENT_FUNDS" {
				t.Fatalf("decline %d: %d %s", i, r.status, r.body)
			}
		}
		for i := range 10 {
			st.mustDebit(fmt.Sprintf("late%d", i), "anna", 0)
		}
		if state := st.wallet.Decisions().BreakerState(); state != "closed" {
			t.Errorf("the breaker is %s", state)
		}
	})
}

// S35, C4: with a wallet that answers nothing the breaker opens within 3 s, tills
// are then declined at once and without a reversal, at most three probes go out at
// a time, and a wallet that has recovered is used again.
func TestAHangingWalletOpensTheBreakerAndARecoveredOneClosesIt(t *testing.T) {
	t.Parallel()
	inBubble(t, settings{}, func(st *stack) {
		st.rule(walletsim.Rule{Fault: walletsim.Stall()})
		st.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Lookup}, Fault: walletsim.Stall()})
		start := time.Now()
		var all sync.WaitGroup
		n := 0
		for st.wallet.Decisions().BreakerState() != "open" {
			if time.Since(start) > 3*time.Second {
				t.Fatalf("closed after 3 s and %d debits without an answer", n)
			}
			n++
			all.Go(func() { st.mustDebit(fmt.Sprintf("k%d", n), "anna", none) })
			time.Sleep(50 * ms) // 20 a second; fake
		}
		all.Wait()
		before, _, _ := st.wire("anna")
		r := st.mustDebit("open", "anna", none)
		if r.took != 0 || member(r.body, "code") != "WALLET_UNAVAILABLE" {
			t.Errorf("with an open breaker: %d %s after %v", r.status, r.body, r.took)
		}
		if p, _ := st.stored("open"); len(p.FollowUps) != 0 {
			t.Error("what was never sent has a reversal")
		}
		if after, _, _ := st.wire("anna"); after != before {
			t.Errorf("%d debits went out through an open breaker", after-before)
		}

		time.Sleep(5*time.Second + ms) // until it probes; fake
		before, _, _ = st.wire("anna")
		for i := range 10 {
			all.Go(func() { st.mustDebit(fmt.Sprintf("probe%d", i), "anna", none) })
		}
		all.Wait()
		if after, _, _ := st.wire("anna"); after-before != 3 {
			t.Errorf("%d probes went out at once, want 3", after-before)
		}

		st.sim.ClearRules()
		time.Sleep(5*time.Second + ms) // fake
		for i := range 4 {
			if r := st.mustDebit(fmt.Sprintf("healthy%d", i), "anna", none); r.status != http.StatusCreated {
				t.Errorf("debit %d of a recovered wallet: %d %s", i, r.status, r.body)
			}
		}
		if state := st.wallet.Decisions().BreakerState(); state != "closed" {
			t.Errorf("the breaker is %s", state)
		}
	})
}

// C6, S5: a full bulkhead declines at once; the wallet never sees those, and
// nothing needs to be undone.
func TestAFullBulkheadDeclinesInNoTime(t *testing.T) {
	t.Parallel()
	inBubble(t, settings{wallet: narrow}, func(st *stack) {
		st.rule(walletsim.Rule{Fault: walletsim.Slow(500 * ms)})
		done := make(chan reply, 1)
		go func() { done <- st.mustDebit("first", "anna", none) }()
		synctest.Wait()
		r := st.mustDebit("second", "bert", none)
		if r.took != 0 || r.status != http.StatusFailedDependency || member(r.body, "code") != "WALLET_UNAVAILABLE" {
			t.Errorf("answered %d %s after %v", r.status, r.body, r.took)
		}
		if debits, lookups, _ := st.wire("bert"); debits+lookups != 0 {
			t.Errorf("%d debits and %d lookups went out", debits, lookups)
		}
		if p, _ := st.stored("second"); len(p.FollowUps) != 0 {
			t.Error("what was never sent has a reversal")
		}
		if first := <-done; first.status != http.StatusCreated {
			t.Errorf("the call that had the place: %d", first.status)
		}
	})
}

// B12, A21: what the gate refuses leaves no trace, and the key is free afterwards.
func TestWhatAFullGateRefusesLeavesNoTrace(t *testing.T) {
	t.Parallel()
	inBubble(t, settings{gate: 1}, func(st *stack) {
		st.rule(walletsim.Rule{Fault: walletsim.Slow(400 * ms)})
		done := make(chan reply, 1)
		go func() { done <- st.mustDebit("first", "anna", none) }()
		synctest.Wait()
		r := st.mustDebit("second", "bert", none)
		if r.took != 0 || r.status != http.StatusServiceUnavailable || r.header.Get("Retry-After") != "1" || member(r.body, "code") != "OVERLOADED" {
			t.Errorf("answered %d %v %s after %v", r.status, r.header, r.body, r.took)
		}
		if _, found := st.stored("second"); found {
			t.Error("the refused request has a row")
		}
		if debits, _, _ := st.wire("bert"); debits != 0 {
			t.Error("the refused request went to the wallet")
		}
		<-done
		if r := st.mustDebit("second", "bert", none); r.status != http.StatusCreated || r.replayed() {
			t.Errorf("the same key later: %d, replayed %v", r.status, r.replayed())
		}
	})
}

// L9, L13, T2: storage that fails makes the outcome unknown: no Retry-After, no
// wallet call on a claim that may not be there, no approval that is not stored; and
// recovery gives the key its final answer.
func TestStorageThatFailsIsAnUnknownOutcomeAndRecoveryDecides(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after memory.Step // where storage fails: before or after it has taken effect
		wantDebits    int
		wantReplay    string // once the horizon has passed
	}{
		"claim not stored":           {before: memory.Claim, wantReplay: "201"},
		"claim stored, answer lost":  {after: memory.Claim, wantReplay: "424 WALLET_TIMEOUT"},
		"decision not stored":        {before: memory.Decide, wantDebits: 1, wantReplay: "424 WALLET_TIMEOUT"},
		"decision stored, no answer": {after: memory.Decide, wantDebits: 1, wantReplay: "201"},
	} {
		t.Run(name, func(t *testing.T) {
			broken := true
			fail := func(at *memory.Step) memory.Fault {
				return func(_ context.Context, step memory.Step) error {
					if broken && step == *at {
						return errStorage
					}
					return nil
				}
			}
			inBubble(t, settings{ledger: memory.Config{Before: fail(&c.before), After: fail(&c.after)}}, func(st *stack) {
				r := st.mustDebit("k", "anna", none)
				if r.status != http.StatusServiceUnavailable || member(r.body, "code") != "OUTCOME_UNKNOWN" || r.header.Get("Retry-After") != "" {
					t.Errorf("answered %d %v %s", r.status, r.header, r.body)
				}
				if debits, _, _ := st.wire("anna"); debits != c.wantDebits {
					t.Errorf("%d debits on the wire, want %d", debits, c.wantDebits)
				}
				broken = false
				time.Sleep(servicetest.Horizon + ms) // fake
				again := st.mustDebit("k", "anna", none)
				got := strings.TrimSpace(strconv.Itoa(again.status) + " " + member(again.body, "code"))
				if got != c.wantReplay {
					t.Errorf("the replay: %s, want %s", got, c.wantReplay)
				}
				p, _ := st.stored("k")
				if reversed := len(p.FollowUps) == 1; reversed != (p.State == payment.Declined) {
					t.Errorf("%s with %d follow-ups", p.State, len(p.FollowUps))
				}
				if debits, _, _ := st.wire("anna"); debits > 1 {
					t.Errorf("%d debits on the wire", debits)
				}
			})
		})
	}
}

// S25: an owner that was stopped past the horizon finds its payment recovered, and
// answers with what is stored, not with what it concluded.
func TestAnOwnerThatComesBackLateAnswersWithTheStoredDecline(t *testing.T) {
	t.Parallel()
	stopped := func(ctx context.Context, step memory.Step) error {
		if step == memory.Decide && ctx.Err() == nil {
			time.Sleep(servicetest.Horizon) // longer than its own limit: the process stood still
		}
		return nil
	}
	inBubble(t, settings{ledger: memory.Config{Before: stopped}}, func(st *stack) {
		done := make(chan reply, 1)
		go func() { done <- st.mustDebit("k", "anna", none) }()
		synctest.Wait()
		time.Sleep(servicetest.Horizon - ms) // fake: not yet overdue
		if r := st.mustDebit("k", "anna", none); r.status != http.StatusConflict {
			t.Errorf("within the horizon: %d", r.status)
		}
		r := <-done
		if r.status == http.StatusCreated {
			t.Error("an approval was told that is not stored")
		}
		time.Sleep(2 * ms)
		replay := st.mustDebit("k", "anna", none)
		if replay.status != http.StatusFailedDependency || member(replay.body, "code") != "WALLET_TIMEOUT" {
			t.Errorf("the replay: %d %s", replay.status, replay.body)
		}
		if p, _ := st.stored("k"); p.State != payment.Declined || len(p.FollowUps) != 1 {
			t.Errorf("stored: %s with %d follow-ups", p.State, len(p.FollowUps))
		}
	})
}

// Promise 4 as far as this release goes: what lands after the decline is known to
// the ledger as a reversal, whichever way it got lost.
func TestEveryDeclineThatMayHaveMovedMoneyHasAReversal(t *testing.T) {
	t.Parallel()
	for account, wantReversal := range map[string]bool{
		"LATE-5000-anna": true, "HANG-anna": true, "DOWN-anna": true, "GATEWAY-anna": true, "BLIND-anna": true, "RESET-anna": true,
		"STATUS-500-anna": true, "STATUS-404-anna": true, "REDIRECT-anna": true, "PENDING-30000-anna": true,
		"POOR-anna": false, "LOCKED-anna": false, "MISSING-anna": false, "REJECT-CARD_STOLEN-anna": false,
	} {
		t.Run(account, func(t *testing.T) {
			inBubble(t, settings{}, func(st *stack) {
				r := st.mustDebit("k", account, none)
				if r.status != http.StatusPaymentRequired && r.status != http.StatusFailedDependency {
					t.Fatalf("answered %d %s", r.status, r.body)
				}
				p, _ := st.stored("k")
				if got := len(p.FollowUps) == 1; got != wantReversal {
					t.Errorf("a reversal: %v, want %v", got, wantReversal)
				}
				_ = st.sim.Close()
			})
		})
	}
}
