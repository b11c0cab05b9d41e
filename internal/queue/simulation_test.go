package queue

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/internal/payment"
)

// simBreaker opens as the wallet's does (contract section 3): at half of at least
// 20 calls in 10 s; after 5 s three probes at once, whose successes close it.
type simBreaker struct {
	mu       sync.Mutex
	recent   []ended
	openedAt time.Time
	opened   bool
	probing  int
	good     int
}

type ended struct {
	at   time.Time
	good bool
}

func (b *simBreaker) state() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stateNow()
}

func (b *simBreaker) stateNow() string {
	switch {
	case !b.opened:
		return "closed"
	case time.Since(b.openedAt) < 5*time.Second:
		return "open"
	}
	return "half-open"
}

func (b *simBreaker) enter() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.stateNow() {
	case "open":
		return false
	case "half-open":
		if b.probing == 3 {
			return false
		}
		b.probing++
	}
	return true
}

func (b *simBreaker) leave(good bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.opened {
		b.probing = max(0, b.probing-1)
		if !good {
			b.openedAt, b.good = now, 0
		} else if b.good++; b.good == 3 {
			b.opened, b.probing, b.good = false, 0, 0
		}
		return
	}
	b.recent = append(b.recent, ended{now, good})
	for now.Sub(b.recent[0].at) > 10*time.Second {
		b.recent = b.recent[1:]
	}
	bad := 0
	for _, e := range b.recent {
		if !e.good {
			bad++
		}
	}
	if len(b.recent) >= 20 && 2*bad >= len(b.recent) {
		b.opened, b.openedAt, b.recent = true, now, nil
	}
}

// outageWallet is down until up, then answers in 100 ms.
type outageWallet struct {
	fakeWallet

	up      time.Time
	breaker *simBreaker // nil = none: the retry budget alone must do
}

func (w *outageWallet) BreakerState() string {
	if w.breaker == nil {
		return "closed"
	}
	return w.breaker.state()
}

func (w *outageWallet) Send(ctx context.Context, in payment.Instruction) payment.Outcome {
	if w.breaker != nil && !w.breaker.enter() {
		return unavailable(payment.ReasonBreakerOpen)
	}
	good := !time.Now().Before(w.up)
	w.mu.Lock()
	w.calls = append(w.calls, sent{time.Now(), false, in})
	w.mu.Unlock()
	outcome := refuse
	if good {
		within(ctx, 100*time.Millisecond)
		outcome = success("w")
	} else {
		within(ctx, 10*time.Millisecond)
	}
	if w.breaker != nil {
		w.breaker.leave(good)
	}
	return outcome
}

// A thousand operations wait for a wallet that is down for a minute. Retries must
// not keep it down, and when it returns it must see a ramp: everything at once
// would send it down again, one by one would take a quarter of an hour.
func TestAMinuteWithoutTheWallet(t *testing.T) {
	t.Parallel()
	const items, down = 1000, time.Minute
	for _, c := range []struct {
		name    string
		breaker *simBreaker
		firsts  int // first attempts that are made while it is down
	}{
		// What the workers have begun when it opens, and three probes every five seconds.
		{"with a breaker", &simBreaker{}, items / 10},
		{"with the budget alone", nil, items},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			l, o := &fakeLedger{}, &fakeObserver{}
			wallet := &outageWallet{up: start.Add(down), breaker: c.breaker}
			l.accept(works(items, credit)...)
			run(t, newQueue(t, l, wallet, o))

			wait(down - time.Millisecond)
			seen, firsts, retries := map[payment.Reference]bool{}, 0, 0
			for _, call := range wallet.asked() {
				if seen[call.in.Reference] {
					retries++
				} else {
					firsts++
				}
				seen[call.in.Reference] = true
			}
			before := len(wallet.asked())
			if most := firsts/10 + int(down/time.Second) + int(budgetStart/token); retries > most || firsts > c.firsts {
				t.Errorf("%s: %d retries for %d first attempts while it was down, want at most %d", c.name, retries, firsts, most)
			}

			for l.count(payment.Succeeded) < items && time.Since(start) < down+2*time.Minute {
				wait(100 * time.Millisecond)
			}
			if n := l.count(payment.Succeeded); n != items {
				t.Fatalf("%s: %d of %d done two minutes after the return", c.name, n, items)
			}

			// The ramp: in each round trip at most twice what came in the most crowded
			// before it, and what the clock has paid in.
			calls := wallet.asked()[before:]
			rounds := map[int]int{}
			for _, call := range calls {
				rounds[int(call.at.Sub(wallet.up)/(100*time.Millisecond))]++
			}
			most, last := 3, int(calls[len(calls)-1].at.Sub(wallet.up)/(100*time.Millisecond))
			for round := range last + 1 {
				if rounds[round] > 2*most+2 {
					t.Errorf("%s: %d calls in round trip %d after its return, at most %d in any before", c.name, rounds[round], round, most)
				}
				most = max(most, rounds[round])
			}
			if most < 16 {
				t.Errorf("%s: a trickle, at most %d calls at once", c.name, most)
			}
			if s := o.seen(); len(calls) != items || s.ended[payment.Succeeded] != items {
				t.Errorf("%s: %d calls after the return for %d operations, ended %v", c.name, len(calls), items, s.ended)
			}
		})
	}
}

// Five hundred operations that fail in one instant must not come back in one: no
// second of the next minute may see more than a tenth of them (field report D23).
func TestWhatFailedTogetherDoesNotComeBackTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := &fakeLedger{}
		wallet := &outageWallet{up: start.Add(time.Hour), breaker: &simBreaker{}}
		rows := l.accept(works(500, credit)...)
		run(t, newQueue(t, l, wallet, &fakeObserver{}))
		wait(time.Minute)
		perSecond := map[int]int{}
		for _, call := range wallet.asked() {
			perSecond[int(call.at.Sub(start)/time.Second)]++
		}
		for second, n := range perSecond {
			if second > 0 && n > 50 { // the first is the one in which they fail
				t.Errorf("%d calls in second %d", n, second)
			}
		}
		// Nor is anything begun before it is due.
		for _, r := range rows {
			r := l.snapshot(r)
			for i, began := range r.started[min(1, len(r.started)):] {
				if pause := r.pauses[i]; began.Sub(r.started[i]) < pause {
					t.Errorf("begun again after %s, due after %s", began.Sub(r.started[i]), pause)
				}
			}
		}
	})
}

// A wallet that is away for longer than the settle window proves nothing by it:
// reversals stay open, and when it is back each payment that it did apply is
// undone, once, and the others end NOT_APPLIED.
func TestAWalletThatIsAwayForLongerThanTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const items = 300
		l, wallet := &fakeLedger{}, &fakeWallet{}
		start := time.Now()
		rows := l.accept(works(items, func() payment.Work { return reversalOf(debit()) })...)
		took := map[payment.Reference]bool{}
		for i, r := range rows {
			took[r.work.Payment.Reference] = i%3 == 0
		}
		wallet.onLookup = func(_ int, in payment.Instruction) payment.Evidence {
			switch {
			case time.Since(start) < 40*time.Minute:
				return blind(payment.ReasonConnectFailed)
			case took[in.Reference]:
				return applied("d")
			}
			return notFound
		}
		o := &fakeObserver{}
		run(t, newQueue(t, l, wallet, o))
		wait(40*time.Minute - time.Second)
		if n := l.count(payment.Pending); n != items {
			t.Fatalf("%d of %d are open while nobody knows", n, items)
		}
		wait(6 * time.Minute)
		if o.seen().late != 0 {
			t.Errorf("%d were told to be late, but none had ended before", o.seen().late)
		}
		credits := map[payment.Reference]int{}
		for _, call := range wallet.asked() {
			if !call.lookup {
				credits[call.in.Reference]++
			}
		}
		for _, r := range rows {
			state, n := l.snapshot(r).work.State, credits[r.work.Outbound]
			if took[r.work.Payment.Reference] && (state != payment.Succeeded || n != 1) {
				t.Errorf("applied: %s after %d credits", state, n)
			} else if !took[r.work.Payment.Reference] && (state != payment.NotApplied || n != 0) {
				t.Errorf("not applied: %s after %d credits", state, n)
			}
		}
	})
}

// A wallet that is still at it says so: nothing is sent again and nothing is said
// to have ended until it has (field reports B30, B38).
func TestAPendingCreditIsAskedAboutUntilItEnds(t *testing.T) {
	t.Parallel()
	for want, last := range map[payment.FollowUpState]payment.Evidence{payment.Succeeded: applied("w1"), payment.Refused: rejected("ACCOUNT_CLOSED")} {
		synctest.Test(t, func(t *testing.T) {
			l, wallet := &fakeLedger{}, &fakeWallet{}
			wallet.onSend = func(int, payment.Instruction) payment.Outcome {
				return payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonPending, Status: 202}
			}
			wallet.onLookup = func(n int, _ payment.Instruction) payment.Evidence {
				if n <= 6 {
					return blind(payment.ReasonPending)
				}
				return last
			}
			r := l.accept(credit())[0]
			run(t, newQueue(t, l, wallet, &fakeObserver{}))
			for range 1000 {
				if wait(time.Second); wallet.lookups > 6 {
					break
				}
				if got := l.snapshot(r).work.State; got != payment.Pending {
					t.Fatalf("%s after %d lookups", got, wallet.lookups)
				}
			}
			if got := l.snapshot(r); got.work.State != want || wallet.sends != 1 {
				t.Errorf("got %s after %d sends, want %s", got.work.State, wallet.sends, want)
			}
		})
	}
}
