package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/payment"
)

// works makes n pieces of work.
func works(n int, kind func() payment.Work) []payment.Work {
	var all []payment.Work
	for range n {
		all = append(all, kind())
	}
	return all
}

// Tills see their credit in the customer's account at once, not at the next
// poll; and without any nudge it is a second later at most.
func TestWorkBeginsPromptly(t *testing.T) {
	t.Parallel()
	for _, nudged := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, wallet := &fakeLedger{}, &fakeWallet{}
			q := newQueue(t, l, wallet, &fakeObserver{})
			run(t, q)
			wait(time.Minute)
			accepted := time.Now()
			l.accept(credit())
			if nudged {
				q.Nudge()
			}
			wait(time.Second)
			calls := wallet.asked()
			if len(calls) != 1 {
				t.Fatalf("nudged %v: %d calls within a second", nudged, len(calls))
			}
			if took := calls[0].at.Sub(accepted); nudged && took > 0 {
				t.Errorf("began %s after the nudge", took)
			}
		})
	}
}

// A replica with nothing to do, with an empty budget or before an open breaker
// must not ask the database without a pause.
func TestNothingToDoCostsNextToNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		prepare func(*Queue, *fakeLedger, *fakeWallet)
		most    int // leases in a minute
	}{
		{"idle", func(*Queue, *fakeLedger, *fakeWallet) {}, 81},
		{"breaker open", func(_ *Queue, l *fakeLedger, w *fakeWallet) { w.breaker("open"); l.accept(works(100, credit)...) }, 81},
		{"budget empty", func(q *Queue, l *fakeLedger, w *fakeWallet) {
			w.onSend = func(int, payment.Instruction) payment.Outcome { return refuse }
			l.accept(works(1000, credit)...)
		}, 60*5 + 200},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, wallet := &fakeLedger{}, &fakeWallet{}
			q := newQueue(t, l, wallet, &fakeObserver{})
			c.prepare(q, l, wallet)
			run(t, q)
			wait(time.Minute)
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.leases > c.most || l.leases < 50 {
				t.Errorf("%s: asked %d times in a minute, want at most %d", c.name, l.leases, c.most)
			}
		})
	}
}

// A saturated replica leases by the batch: one by one is a quarter of the
// throughput of the database.
func TestASaturatedReplicaLeasesInBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{}
		wallet.onSend = func(n int, _ payment.Instruction) payment.Outcome {
			time.Sleep(time.Duration(10+n%7) * time.Millisecond) // fake time: no two calls end together
			return success("w")
		}
		l.accept(works(3200, credit)...)
		start := time.Now()
		run(t, newQueue(t, l, wallet, &fakeObserver{}))
		for l.count(payment.Succeeded) < 3200 && time.Since(start) < time.Minute {
			wait(10 * time.Millisecond)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		// A lease waits for a quarter of the workers, 8, or for 5 ms, and the last of them find less.
		if average := 3200 / float64(len(l.batches)); average < 7 {
			t.Errorf("%.1f rows a lease", average)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("32 workers took %s for 3,200 calls of 13 ms", took)
		}
	})
}

// A replica that is killed in the middle of its work leaves leases behind: all of
// it is taken up by another within 30 s, and begins with a lookup, because some
// of it may have been sent (field report D2).
func TestADeadWorkersLeasesAreTakenOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, o, wallet := &fakeLedger{}, &fakeObserver{}, &fakeWallet{}
		l.accept(works(100, credit)...)
		// The dead one: it leased, may have sent, and was never heard of again.
		dead, err := l.Lease(t.Context(), payment.LeaseOrder{Limit: 100, Lease: 20 * time.Second, Kinds: kinds[:], Sends: true, Backlog: -1})
		if err != nil || len(dead) != 100 {
			t.Fatal(len(dead), err)
		}
		wallet.onLookup = func(n int, _ payment.Instruction) payment.Evidence {
			if n%2 == 0 {
				return applied("by the dead one")
			}
			return notFound
		}
		start := time.Now()
		run(t, newQueue(t, l, wallet, o))
		wait(19 * time.Second)
		if n := len(wallet.asked()); n != 0 {
			t.Fatalf("%d calls while the leases were somebody's", n)
		}
		wait(11 * time.Second)
		seen := map[payment.Reference]bool{}
		for _, call := range wallet.asked() {
			if !seen[call.in.Reference] && !call.lookup {
				t.Errorf("%s: began with a send", call.in.Reference)
			}
			seen[call.in.Reference] = true
		}
		if len(seen) != 100 || o.seen().takenOver != 100 {
			t.Errorf("after %s %d of 100 are taken up, %d counted", time.Since(start), len(seen), o.seen().takenOver)
		}
		wait(time.Minute)
		if n := l.count(payment.Succeeded); n != 100 {
			t.Errorf("%d of 100 succeeded", n)
		}
	})
}

// A worker that was stopped and wakes up after it was taken over must change
// nothing by what it has to say (field report D1), and that is counted.
func TestASettlementAfterATakeoverChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, o := &fakeLedger{}, &fakeObserver{}
		r := l.accept(credit())[0]
		slow := &fakeWallet{}
		slow.onSend = func(int, payment.Instruction) payment.Outcome {
			time.Sleep(25 * time.Second) // fake time: the process is stopped
			return no(409, "TOO_LATE")
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		q := newQueue(t, l, slow, o)
		go func() {
			defer close(done)
			q.Run(ctx)
		}()
		wait(5 * time.Second)
		cancel() // it leases nothing more, and its attempt is still under way
		quick := &fakeWallet{onLookup: func(int, payment.Instruction) payment.Evidence { return applied("w1") }}
		run(t, newQueue(t, l, quick, &fakeObserver{}))
		wait(17 * time.Second)
		if got := l.snapshot(r); got.work.State != payment.Succeeded || got.walletID != "w1" {
			t.Fatalf("at 22 s: %s", got.work.State)
		}
		<-done
		if got := l.snapshot(r); got.work.State != payment.Succeeded || got.code != "" || o.seen().fenced != 1 || len(o.seen().ended) != 0 {
			t.Errorf("after the stopped one woke up: %s %q, %d fenced, ended %v", got.work.State, got.code, o.seen().fenced, o.seen().ended)
		}
	})
}

// The credit was applied and the worker died before it could say so: the next one
// carries the same key and body, and the money moves once (field report B35).
func TestEveryAttemptCarriesTheSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{}
		lost := 0
		l.settled = func(payment.Settlement) error {
			if lost++; lost <= 2 {
				return errors.New("the database is away")
			}
			return nil
		}
		wallet.onSend = func(n int, _ payment.Instruction) payment.Outcome {
			return []payment.Outcome{ambiguous(payment.ReasonTimeout), gateway(503, payment.ReasonStatus503), refuse, no(429, "SLOW_DOWN"), success("w1")}[n-1]
		}
		r := l.accept(credit())[0]
		run(t, newQueue(t, l, wallet, &fakeObserver{}))
		wait(5 * time.Minute)
		got := l.snapshot(r)
		if got.work.State != payment.Succeeded || wallet.sends != 5 {
			t.Fatalf("%s after %d sends", got.work.State, wallet.sends)
		}
		want := payment.Instruction{Operation: payment.Credit, Reference: got.work.Outbound, Account: "a", Amount: euros(500)}
		for i, call := range wallet.asked() {
			if diff := gocmp.Diff(want, call.in); diff != "" {
				t.Errorf("call %d (-want +got):\n%s", i, diff)
			}
		}
		// The first two of the five were counted and never given back; of the others one
		// was a refused connection, which is none.
		if got.work.Attempts != 4 {
			t.Errorf("%d attempts, want the 4 that were on the wire", got.work.Attempts)
		}
	})
}

// SIGTERM in the middle of the work: what was begun is finished and settled, what
// was leased and not begun goes back as if nothing had been, and nothing new is
// taken (field report D12).
func TestADrainLosesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{takes: time.Second}
		begun := l.accept(works(3, credit)...)
		q := newQueue(t, l, wallet, &fakeObserver{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.Run(ctx)
		}()
		wait(500 * time.Millisecond)
		waiting := l.accept(works(5, credit)...)
		l.onLease = cancel // SIGTERM arrives while the lease is on its way to the database
		q.Nudge()
		wait(0)
		select {
		case <-done:
			t.Fatal("returned while attempts were under way")
		default:
		}
		wait(500 * time.Millisecond)
		<-done
		for _, r := range begun {
			if r.work.State != payment.Succeeded {
				t.Errorf("begun: %s", r.work.State)
			}
		}
		for _, r := range waiting {
			if w := r.work; w.State != payment.Pending || w.Attempts != 0 || w.Turn != payment.FirstTurn || !r.leased.IsZero() || r.due.After(time.Now()) {
				t.Errorf("not begun: %+v, leased until %s", w, r.leased)
			}
		}
		if wallet.sends != 3 || l.handBacks != 5 {
			t.Errorf("%d sends, %d handed back", wallet.sends, l.handBacks)
		}
		tokens := q.RetryTokens()
		if tokens < 10.3 {
			t.Errorf("handing back has cost tokens: %v left", tokens)
		}
	})
}

// A call that hangs must not keep a pod from stopping: an attempt is over by its
// limit, and so is the drain.
func TestADrainIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{takes: time.Hour}
		r := l.accept(credit())[0]
		stop := run(t, newQueue(t, l, wallet, &fakeObserver{}))
		wait(0)
		start := time.Now()
		stop()
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %s", took)
		}
		if w := r.work; w.State != payment.Pending || !w.Resolve || w.Attempts != 1 {
			t.Errorf("what hung: %+v", w)
		}
	})
}

// An open breaker spends nothing: what is due waits, unseen by the wallet, and
// comes back through the bucket afterwards, first attempts too, or the wallet
// that has just got up meets everything at once.
func TestWhatAnOpenBreakerPostponedComesBackThroughTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{takes: 100 * time.Millisecond}
		wallet.breaker("open")
		rows := l.accept(works(500, credit)...)
		q := newQueue(t, l, wallet, &fakeObserver{})
		run(t, q)
		wait(30 * time.Second)
		if len(wallet.asked()) != 0 {
			t.Fatalf("%d calls while the breaker was open", len(wallet.asked()))
		}
		wallet.breaker("half-open")
		for deadline := time.Now().Add(5 * time.Second); len(wallet.asked()) == 0 && time.Now().Before(deadline); {
			wait(10 * time.Millisecond)
		}
		probes := len(wallet.asked())
		if probes > halfOpenSends {
			t.Errorf("%d calls at once for a breaker that is half open", probes)
		}
		wallet.breaker("closed")
		l.accept(credit()) // new since: a first attempt, and free
		start := time.Now()
		wait(time.Second)
		inFirst := len(wallet.asked()) - probes
		for l.count(payment.Succeeded) < 501 && time.Since(start) < time.Minute {
			wait(50 * time.Millisecond)
		}
		if n := l.count(payment.Succeeded); n != 501 {
			t.Fatalf("%d of 501 after %s", n, time.Since(start))
		}
		free := 0
		for _, r := range rows {
			for _, w := range l.snapshot(r).starts {
				if w.Turn == payment.FirstTurn {
					free++
				}
			}
		}
		if free != 0 {
			t.Errorf("%d of 500 came back as free first attempts", free)
		}
		if inFirst == 0 {
			t.Error("nothing moved in the first second")
		}
	})
}

// A reversal backlog must not ask a failing wallet to death: 20 lookups a second
// and replica, however many wait.
func TestLookupsHaveARateOfTheirOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{}
		wallet.onLookup = func(int, payment.Instruction) payment.Evidence { return blind(payment.ReasonStatus5xx) }
		l.accept(works(2000, func() payment.Work { return reversalOf(debit()) })...)
		q := newQueue(t, l, wallet, &fakeObserver{})
		run(t, q)
		wait(time.Minute)
		calls := wallet.asked()
		// The rate, and the few that may come at once.
		if len(calls) > 60*20+5 || len(calls) < 60*20*9/10 {
			t.Errorf("%d lookups in a minute, want 1,200", len(calls))
		}
		for i := range calls {
			n := 0
			for _, call := range calls[i:] {
				if call.at.Sub(calls[i].at) < time.Second {
					n++
				}
			}
			if n > 25 {
				t.Fatalf("%d lookups within a second", n)
			}
		}
		if q.RetryTokens() < 69 {
			t.Errorf("lookups took tokens: %v left", q.RetryTokens())
		}
	})
}

// While reversals wait for lookups of a failing wallet, and retries for tokens,
// first attempts go on: no allowance holds up what does not need it.
func TestAllowancesDoNotStarveEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{}
		wallet.onLookup = func(int, payment.Instruction) payment.Evidence { return blind(payment.ReasonStatus5xx) }
		wallet.onSend = func(_ int, in payment.Instruction) payment.Outcome {
			if in.Operation == payment.Credit {
				return refuse
			}
			return success("w")
		}
		l.accept(works(500, func() payment.Work { return reversalOf(debit()) })...)
		l.accept(works(500, credit)...)
		q := newQueue(t, l, wallet, &fakeObserver{})
		run(t, q)
		wait(30 * time.Second)
		captures := l.accept(works(50, capture)...)
		q.Nudge()
		wait(2 * time.Second)
		for _, r := range captures {
			if l.snapshot(r).work.State != payment.Succeeded {
				t.Fatalf("a capture is %s after two seconds", l.snapshot(r).work.State)
			}
		}
	})
}

// One operation that can never end must not delay its neighbours (field report D5).
func TestAPoisonItemDelaysNobody(t *testing.T) {
	t.Parallel()
	for _, poison := range []func() payment.Outcome{
		func() payment.Outcome { panic("a bug") },
		func() payment.Outcome { return ambiguous(payment.ReasonTimeout) },
		func() payment.Outcome { return no(401, "TOKEN_EXPIRED") },
	} {
		synctest.Test(t, func(t *testing.T) {
			l, wallet := &fakeLedger{}, &fakeWallet{}
			rows := l.accept(works(101, credit)...)
			bad := rows[0].work.Outbound
			wallet.onSend = func(_ int, in payment.Instruction) payment.Outcome {
				if in.Reference == bad {
					return poison()
				}
				return success("w")
			}
			q := newQueue(t, l, wallet, &fakeObserver{}, func(c *Config) { c.Workers = 1 })
			run(t, q)
			wait(2 * time.Second)
			if n := l.count(payment.Succeeded); n != 100 {
				t.Errorf("%d of 100 good ones are done, the bad one is %s", n, l.snapshot(rows[0]).work.State)
			}
		})
	}
}

// unknownLedger is a ledger that hands out what was not asked for.
type unknownLedger struct{ *fakeLedger }

func (l unknownLedger) Lease(ctx context.Context, order payment.LeaseOrder) ([]payment.Work, error) {
	order.Kinds = append(order.Kinds, "adjustment", payment.Debit)
	return l.fakeLedger.Lease(ctx, order)
}

// In a rolling deploy an older binary meets the kinds of a newer one. It must
// leave them exactly as they are, and never send what it does not understand.
func TestAnUnknownKindIsLeftUntouched(t *testing.T) {
	t.Parallel()
	for name, wrap := range map[string]func(*fakeLedger) ledger{
		"not asked for":       func(l *fakeLedger) ledger { return l },
		"handed out all same": func(l *fakeLedger) ledger { return unknownLedger{l} },
	} {
		synctest.Test(t, func(t *testing.T) {
			l, wallet := &fakeLedger{}, &fakeWallet{}
			newer, never := credit(), credit()
			newer.Kind, never.Kind = "adjustment", payment.Debit
			rows := l.accept(newer, never)
			before := []payment.Work{rows[0].work, rows[1].work}
			l.accept(works(10, credit)...)
			run(t, newQueue(t, wrap(l), wallet, &fakeObserver{}))
			wait(10 * time.Second)
			for i, r := range rows {
				got := l.snapshot(r).work
				got.Fence = 0
				if diff := gocmp.Diff(before[i], got); diff != "" {
					t.Errorf("%s: %s (-before +after):\n%s", name, got.Kind, diff)
				}
			}
			if l.count(payment.Succeeded) != 10 || wallet.sends != 10 {
				t.Errorf("%s: %d of 10 done, %d sends", name, l.count(payment.Succeeded), wallet.sends)
			}
			l.mu.Lock()
			defer l.mu.Unlock()
			if l.leases > 50 {
				t.Errorf("%s: asked %d times in 10 s", name, l.leases)
			}
		})
	}
}

// failingLedger cannot be reached.
type failingLedger struct{ *fakeLedger }

func (l failingLedger) Lease(context.Context, payment.LeaseOrder) ([]payment.Work, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases++
	return nil, errors.New("the database is away")
}

// While the database is away the queue waits, without a storm of attempts.
func TestADatabaseThatIsAwayIsAskedOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{}
		run(t, newQueue(t, failingLedger{l}, &fakeWallet{}, &fakeObserver{}))
		wait(time.Minute)
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.leases < 59 || l.leases > 81 {
			t.Errorf("asked %d times in a minute", l.leases)
		}
	})
}

// A redrive of what was parked begins with a lookup, under the same key: the
// wallet may have done it since.
func TestARedriveBeginsWithALookup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, o, wallet := &fakeLedger{}, &fakeObserver{}, &fakeWallet{}
		wallet.onSend = func(int, payment.Instruction) payment.Outcome { return ambiguous(payment.ReasonTimeout) }
		wallet.onLookup = func(int, payment.Instruction) payment.Evidence { return blind(payment.ReasonTimeout) }
		r := l.accept(credit())[0]
		run(t, newQueue(t, l, wallet, o))
		wait(73 * time.Hour)
		if got := l.snapshot(r); got.work.State != payment.Parked || got.parkReason != parkNoEvidence || o.seen().ended[payment.Parked] != 1 {
			t.Fatalf("after 73 hours: %s %q", got.work.State, got.parkReason)
		}
		before := len(wallet.asked())
		wait(time.Hour)
		if len(wallet.asked()) != before {
			t.Error("what is parked was tried")
		}
		wallet.mu.Lock()
		wallet.onLookup = func(int, payment.Instruction) payment.Evidence { return applied("w1") }
		wallet.mu.Unlock()
		l.redrive(r)
		wait(2 * time.Second)
		if got := l.snapshot(r); got.work.State != payment.Succeeded || wallet.sends != 1 {
			t.Errorf("after the redrive: %s, %d sends in all", got.work.State, wallet.sends)
		}
	})
}

// A number that cannot work must stop the start, and say so, not the first
// attempt of the night.
func TestAConfigurationThatCannotWorkIsRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"worker":        func(c *Config) { c.Workers = 0 },
		"limit":         func(c *Config) { c.CallLimit = 0 },
		"lease":         func(c *Config) { c.Lease = 3 * time.Second },
		"pause":         func(c *Config) { c.BackoffMin = 0 },
		"longest":       func(c *Config) { c.BackoffMax = time.Millisecond },
		"time to park":  func(c *Config) { c.ParkAfter = 0 },
		"settle window": func(c *Config) { c.SettleWindow = -1 },
		"late checks":   func(c *Config) { c.LateChecks = []time.Duration{2, 1} },
		"lookup":        func(c *Config) { c.LookupsPerSecond = 0 },
		"observer":      func(c *Config) { c.Observer = nil },
		"logger":        func(c *Config) { c.Log = nil },
	} {
		cfg := defaults(&fakeObserver{})
		change(&cfg)
		if _, err := New(&fakeLedger{}, &fakeWallet{}, cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}
