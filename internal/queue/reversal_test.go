package queue

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/payment"
)

// The reversal of a decline, one look at a time (contract section 4). Each wrong
// cell is a customer who stays debited for goods that he did not get, or one who
// is given money that was never taken.
func TestAReversalLooksAndEndsAsTheContractSays(t *testing.T) {
	t.Parallel()
	inWindow := func(w *payment.Work) { w.Age, w.Tried = 15*time.Minute-1, 15*time.Minute-1 }
	behindWindow := func(w *payment.Work) { w.Age, w.Tried = 15*time.Minute, 15*time.Minute }
	outOfTime := func(w *payment.Work) { w.Age, w.Tried = 72*time.Hour, 72*time.Hour }
	redriven := func(w *payment.Work) { w.Age, w.Tried = 80*time.Hour, time.Hour }
	for _, c := range []struct {
		name     string
		age      func(*payment.Work)
		evidence payment.Evidence
		want     payment.FollowUpState
		reason   string
		due      bool
		sends    int
	}{
		{"applied", inWindow, applied("w5"), payment.Succeeded, "", false, 1},
		{"applied, behind the window", behindWindow, applied("w5"), payment.Succeeded, "", false, 1},
		{"rejected", inWindow, rejected("INSUFFICIENT_FUNDS"), payment.NotApplied, "", false, 0},
		{"not found, it may still land", inWindow, notFound, payment.Pending, "", true, 0},
		{"not found behind the window (B19)", behindWindow, notFound, payment.NotApplied, "", true, 0},
		{"not found, out of time", outOfTime, notFound, payment.NotApplied, "", true, 0},
		{"pending (B30)", behindWindow, blind(payment.ReasonPending), payment.Pending, "", true, 0},
		{"403", behindWindow, payment.Evidence{Finding: payment.NoEvidence, Reason: payment.ReasonNoVerdict, Status: 403}, payment.Pending, "", true, 0},
		{"an ingress' 404", behindWindow, payment.Evidence{Finding: payment.NoEvidence, Reason: payment.ReasonNotFoundUnproven, Status: 404}, payment.Pending, "", true, 0},
		{"no answer", behindWindow, blind(payment.ReasonTimeout), payment.Pending, "", true, 0},
		{"forgotten evidence", behindWindow, payment.Evidence{}, payment.Pending, "", true, 0},
		{"breaker open", behindWindow, blind(payment.ReasonBreakerOpen), payment.Pending, "", true, 0},
		{"no evidence, out of time (B22)", outOfTime, blind(payment.ReasonTimeout), payment.Parked, parkNoEvidence, false, 0},
		{"pending, out of time", outOfTime, blind(payment.ReasonPending), payment.Parked, parkNoEvidence, false, 0},
		{"breaker open, out of time", outOfTime, blind(payment.ReasonBreakerOpen), payment.Parked, parkNoEvidence, false, 0},
		{"no evidence, redriven", redriven, blind(payment.ReasonTimeout), payment.Pending, "", true, 0},
		{"no such lookup", inWindow, blind(payment.ReasonUnsupported), payment.Parked, parkUnsupported, false, 0},
	} {
		for _, p := range []payment.Payment{debit(), hold()} {
			w := reversalOf(p)
			c.age(&w)
			wallet := finds(c.evidence)
			s, _, _ := tried(t, w, wallet)
			if s.State != c.want || s.ParkReason != c.reason || s.Due != c.due || wallet.sends != c.sends {
				t.Errorf("%s of a %s: got %s %q due %v after %d sends, want %s %q due %v after %d",
					c.name, p.Operation, s.State, s.ParkReason, s.Due, wallet.sends, c.want, c.reason, c.due, c.sends)
			}
			calls := wallet.asked()
			if first := calls[0]; !first.lookup || first.in.Reference != p.Reference || first.in.Operation != p.Operation {
				t.Errorf("%s of a %s: began with %+v", c.name, p.Operation, first)
			}
			if (s.State == payment.Pending || s.State == payment.Parked) && s.Turn != payment.LookupTurn {
				t.Errorf("%s of a %s: the next turn is %s", c.name, p.Operation, s.Turn)
			}
			if c.sends == 0 {
				continue
			}
			want := payment.Instruction{Operation: payment.Credit, Reference: p.Reference.Reversal(), Account: "a", Amount: euros(900)}
			if p.Operation == payment.Hold {
				want = payment.Instruction{Operation: payment.Release, Reference: p.Reference.Reversal(), HoldID: "w5"}
			}
			if diff := gocmp.Diff(want, calls[1].in); diff != "" {
				t.Errorf("%s of a %s undoes by (-want +got):\n%s", c.name, p.Operation, diff)
			}
		}
	}
}

// What undoing was answered decides whether anybody's money is still out.
func TestAReversalThatIsRefusedIsParked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		work    payment.Work
		outcome payment.Outcome
		want    payment.FollowUpState
		reason  string
		code    payment.Code
	}{
		{"credit refused", cancellationOf(debit()), no(404, "ACCOUNT_NOT_FOUND"), payment.Parked, parkRefused, "ACCOUNT_NOT_FOUND"},
		{"hold captured meanwhile", cancellationOf(hold()), no(409, "HOLD_ALREADY_CAPTURED"), payment.Parked, parkRefused, "HOLD_ALREADY_CAPTURED"},
		{"nothing is held any more", cancellationOf(hold()), no(409, "HOLD_NOT_ACTIVE"), payment.Succeeded, "", ""},
		{"a credit has no hold that could be inactive", cancellationOf(debit()), no(409, "HOLD_NOT_ACTIVE"), payment.Parked, parkRefused, "HOLD_NOT_ACTIVE"},
		{"no answer", cancellationOf(debit()), ambiguous(payment.ReasonTimeout), payment.Pending, "", ""},
		{"401", cancellationOf(debit()), no(401, "TOKEN_EXPIRED"), payment.Pending, "", ""},
	} {
		for attempts := range 3 {
			w := c.work
			w.Attempts = attempts + 1
			if attempts > 0 {
				w.Turn = payment.RetryTurn
			}
			s, _, _ := tried(t, w, says(c.outcome))
			if s.State != c.want || s.ParkReason != c.reason || s.Code != c.code {
				t.Errorf("%s, attempt %d: got %s %q %q, want %s %q %q", c.name, w.Attempts, s.State, s.ParkReason, s.Code, c.want, c.reason, c.code)
			}
			if s.TargetID != w.TargetID {
				t.Errorf("%s: what is to be undone became %q", c.name, s.TargetID)
			}
		}
	}
}

// An operator redrives a reversal that was refused, because what stood in the way is
// gone. A v2 wallet still says REJECTED of it when it is looked up; if that were the
// end, no redrive would ever give the money back.
func TestARedrivenReversalIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		work    payment.Work
		outcome payment.Outcome
		want    payment.FollowUpState
	}{
		{cancellationOf(debit()), success("w1"), payment.Succeeded},
		{cancellationOf(debit()), no(423, "ACCOUNT_LOCKED"), payment.Parked},
		{cancellationOf(hold()), success("w1"), payment.Succeeded},
		{cancellationOf(hold()), no(409, "HOLD_NOT_ACTIVE"), payment.Succeeded},
	} {
		w := c.work
		w.Attempts, w.Turn, w.Resolve = 2, payment.RetryTurn, true
		wallet := says(c.outcome)
		wallet.onLookup = func(int, payment.Instruction) payment.Evidence { return rejected("ACCOUNT_LOCKED") }
		s, _, _ := tried(t, w, wallet)
		if s.State != c.want || wallet.sends != 1 {
			t.Errorf("%s, answered %s: %s after %d sends", w.Payment.Operation, c.outcome.Code, s.State, wallet.sends)
		}
	}
}

// A cancelled debit gives back what its credits have not: more would be a gift,
// and while a credit may still be given nobody knows how much it is.
func TestACancelledDebitGivesBackWhatItsCreditsHaveNot(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		credited int64
		open     bool
		want     payment.FollowUpState
		sent     int64 // 0 = no call
	}{
		{"no credits", 0, false, payment.Succeeded, 900},
		{"partly credited", 350, false, payment.Succeeded, 550},
		{"wholly credited", 900, false, payment.Succeeded, 0},
		{"a credit is open", 350, true, payment.Pending, 0},
		{"a credit is open, and all is given back", 900, true, payment.Pending, 0},
	} {
		w := cancellationOf(debit())
		w.Credited, w.CreditsOpen = c.credited, c.open
		wallet := says(success("w1"))
		s, q, _ := tried(t, w, wallet)
		calls := wallet.asked()
		if s.State != c.want || len(calls) != map[bool]int{true: 1, false: 0}[c.sent > 0] {
			t.Errorf("%s: %s after %d calls", c.name, s.State, len(calls))
		}
		if c.sent > 0 && calls[0].in.Amount != euros(c.sent) {
			t.Errorf("%s: gave back %+v, want %d", c.name, calls[0].in.Amount, c.sent)
		}
		if c.sent == 0 && (!s.Unspent || s.WalletID != "") {
			t.Errorf("%s: %+v", c.name, s)
		}
		if c.open && (s.Turn != payment.FirstTurn || s.Pause != time.Second || q.RetryTokens() < 10) {
			t.Errorf("%s: waits as %s for %s and has %v tokens", c.name, s.Turn, s.Pause, q.RetryTokens())
		}
	}
	// Nothing held needs no credits: a hold's amount is not touched by them.
	w := cancellationOf(hold())
	if s, _, _ := tried(t, w, says(success("w1"))); s.State != payment.Succeeded {
		t.Errorf("hold: %s", s.State)
	}
	// A credit that stays parked is somebody's to look at. What waits for it begins by
	// itself when that has ended, and is not a second thing to be looked at.
	w = cancellationOf(debit())
	w.CreditsOpen, w.Tried = true, 72*time.Hour
	if s, _, _ := tried(t, w, &fakeWallet{}); s.State != payment.Pending || !s.Due {
		t.Errorf("a credit is open for 72 hours: %s, due %v", s.State, s.Due)
	}
}

// The cancelled approval is undone at once, by the stored id: nothing about it is
// in doubt, so nothing is asked.
func TestACancelledApprovalIsUndoneAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{}
		l.accept(cancellationOf(debit()), cancellationOf(hold()))
		start := time.Now()
		run(t, newQueue(t, l, wallet, &fakeObserver{}))
		synctest.Wait()
		if l.count(payment.Succeeded) != 2 || wallet.lookups != 0 || wallet.sends != 2 || time.Since(start) != 0 {
			t.Errorf("%d succeeded after %d lookups, %d sends", l.count(payment.Succeeded), wallet.lookups, wallet.sends)
		}
	})
}

// The schedule of contract section 4: at once, then after 1, 2, 5, 15, 60 s and
// doubling to 5 min. A late payment is found within that of its landing.
func TestALookupSchedule(t *testing.T) {
	t.Parallel()
	var got []time.Duration
	for lookups := 1; lookups <= 10; lookups++ {
		got = append(got, lookupPause(lookups, 5*time.Minute)/time.Second)
	}
	if want := []time.Duration{1, 2, 5, 15, 60, 120, 240, 300, 300, 300}; !slices.Equal(got, want) {
		t.Errorf("pauses in seconds: got %v, want %v", got, want)
	}
	for _, lookups := range []int{-1, 0, 1 << 20, 1<<31 - 1} {
		if got := lookupPause(lookups, 5*time.Minute); got <= 0 || got > 5*time.Minute {
			t.Errorf("after %d lookups: %s", lookups, got)
		}
	}
	if got := lookupPause(5, 10*time.Second); got != 10*time.Second {
		t.Errorf("with a cap of 10 s: %s", got)
	}

	synctest.Test(t, func(t *testing.T) {
		l, wallet := &fakeLedger{}, &fakeWallet{}
		r := l.accept(reversalOf(debit()))[0]
		run(t, newQueue(t, l, wallet, &fakeObserver{}))
		wait(16 * time.Minute)
		if l.count(payment.NotApplied) != 1 {
			t.Fatalf("a minute behind the settle window: %s", l.snapshot(r).work.State)
		}
		seconds := func(d ...int) (all []time.Duration) {
			for _, s := range d {
				all = append(all, time.Duration(s)*time.Second)
			}
			return all
		}
		got := l.snapshot(r).pauses
		want := seconds(1, 2, 5, 15, 60, 120, 240, 300)
		if len(got) < 9 || !slices.Equal(got[:8], want) {
			t.Fatalf("pauses: got %v, want to begin with %v", got, want)
		}
		// The last ones: until the window closes, and then until the first late check.
		calls := wallet.asked()
		last := calls[len(calls)-1].at.Sub(calls[0].at)
		if last < 15*time.Minute || last > 15*time.Minute+2*time.Second {
			t.Errorf("the lookup that ended it began %s after the decline", last)
		}
		if got[len(got)-1] != time.Hour {
			t.Errorf("the first late check is due in %s", got[len(got)-1])
		}
	})
}

// A lookup that the open breaker refused was not made: if it moved the schedule
// on, an outage of the wallet would make us look five minutes after its end.
func TestARefusedLookupDoesNotMoveTheSchedule(t *testing.T) {
	t.Parallel()
	w := reversalOf(debit())
	w.Lookups = 7
	s, _, _ := tried(t, w, finds(blind(payment.ReasonBreakerOpen)))
	if s.Lookups != 7 || s.Pause != time.Second || len(s.Calls) != 0 {
		t.Errorf("breaker open: lookups %d, pause %s, %d lines in the timeline", s.Lookups, s.Pause, len(s.Calls))
	}
	if s, _, _ = tried(t, w, &fakeWallet{full: true}); s.Lookups != 7 || s.Pause != time.Second {
		t.Errorf("no place: lookups %d, pause %s", s.Lookups, s.Pause)
	}
	if s, _, _ = tried(t, w, finds(blind(payment.ReasonTimeout))); s.Lookups != 8 || s.Pause != 5*time.Minute {
		t.Errorf("no answer: lookups %d, pause %s", s.Lookups, s.Pause)
	}
}

// NOT_APPLIED must be said by a lookup that began behind the settle window: one
// that began before it and ended behind it has seen the wallet too early.
func TestALookupAcrossTheEndOfTheWindowDoesNotEndTheReversal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := reversalOf(debit())
		w.Age = 15*time.Minute - time.Second
		s, _, _ := tried(t, w, &fakeWallet{takes: 1900 * time.Millisecond})
		if s.State != payment.Pending {
			t.Errorf("got %s", s.State)
		}
	})
}

// A message that outlives the settle window (a proxy that was stopped) lands
// after all: an hour and a day later somebody looks, and undoes it.
func TestALateApplyIsFoundAndUndone(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		lands     time.Duration // after the decline
		foundBy   time.Duration
		lateCheck int
	}{
		{"within an hour", 20 * time.Minute, 75*time.Minute + 5*time.Second, 0},
		{"within a day", 3 * time.Hour, 24*time.Hour + 15*time.Minute + 10*time.Second, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, o, wallet := &fakeLedger{}, &fakeObserver{}, &fakeWallet{}
			start := time.Now()
			wallet.onLookup = func(_ int, in payment.Instruction) payment.Evidence {
				if in.Operation == payment.Debit && time.Since(start) >= c.lands {
					return applied("late")
				}
				return notFound
			}
			r := l.accept(reversalOf(debit()))[0]
			run(t, newQueue(t, l, wallet, o))
			wait(16 * time.Minute)
			if got := l.snapshot(r).work.State; got != payment.NotApplied || o.seen().late != 0 {
				t.Fatalf("%s: %s at 16 minutes, %d late", c.name, got, o.seen().late)
			}
			wait(c.foundBy - 16*time.Minute)
			got := l.snapshot(r)
			if got.work.State != payment.Succeeded || o.seen().late != 1 || wallet.sends != 1 || got.work.LateChecks != c.lateCheck {
				t.Errorf("%s: %s, %d late, %d credits, %d late checks before", c.name, got.work.State, o.seen().late, wallet.sends, got.work.LateChecks)
			}
			if diff := gocmp.Diff(map[payment.FollowUpState]int{payment.NotApplied: 1, payment.Succeeded: 1}, o.seen().ended); diff != "" {
				t.Errorf("%s: ended (-want +got):\n%s", c.name, diff)
			}
		})
	}
}

// What is found by a late check and cannot be undone at once is an open reversal
// again, not one that ended.
func TestALateApplyIsReopenedUntilItIsUndone(t *testing.T) {
	t.Parallel()
	w := reversalOf(debit())
	w.State, w.Age, w.Tried, w.SinceEnd = payment.NotApplied, 90*time.Hour, 90*time.Hour, 89*time.Hour
	wallet := says(ambiguous(payment.ReasonTimeout))
	wallet.onLookup = func(int, payment.Instruction) payment.Evidence { return applied("late") }
	if s, _, _ := tried(t, w, wallet); s.State != payment.Pending || s.TargetID != "late" || !s.Resolve || s.Lookups != 0 {
		t.Errorf("no answer to its credit: %+v", s)
	}
	wallet.onSend = func(int, payment.Instruction) payment.Outcome { return unavailable(payment.ReasonBreakerOpen) }
	if s, _, _ := tried(t, w, wallet); s.State != payment.Pending || s.TargetID != "late" || s.Turn != payment.RetryTurn {
		t.Errorf("breaker open: %+v", s)
	}
}

// After the late checks nobody looks any more, whatever they said; one without
// evidence is made again, and does not count.
func TestLateChecksEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		checks   int // made before
		sinceEnd time.Duration
		evidence payment.Evidence
		due      bool
		pause    time.Duration
		after    int
	}{
		{"nothing an hour later", 0, time.Hour, notFound, true, 23 * time.Hour, 1},
		{"nothing a day later", 1, 24 * time.Hour, notFound, false, 0, 2},
		{"nothing, found out two days later", 0, 48 * time.Hour, notFound, false, 0, 2},
		{"rejected", 0, time.Hour, rejected("NO"), false, 0, 0},
		{"no evidence", 0, time.Hour, blind(payment.ReasonTimeout), true, 5 * time.Minute, 0},
		{"breaker open", 0, time.Hour, blind(payment.ReasonBreakerOpen), true, time.Second, 0},
		{"no evidence for 72 hours", 1, 96 * time.Hour, blind(payment.ReasonTimeout), false, 0, 1},
	} {
		w := reversalOf(debit())
		w.State, w.Lookups, w.LateChecks, w.SinceEnd = payment.NotApplied, 12, c.checks, c.sinceEnd
		w.Age = c.sinceEnd + 15*time.Minute
		w.Tried = w.Age
		s, _, o := tried(t, w, finds(c.evidence))
		if s.State != payment.NotApplied || s.Due != c.due || s.Pause != c.pause || s.LateChecks != c.after || o.seen().late != 0 {
			t.Errorf("%s: got %s due %v in %s after %d checks", c.name, s.State, s.Due, s.Pause, s.LateChecks)
		}
	}
	// None are configured: it ends when it ends.
	w := reversalOf(debit())
	w.Age = time.Hour
	s, _, _ := tried(t, w, &fakeWallet{}, func(cfg *Config) { cfg.LateChecks = nil })
	if s.State != payment.NotApplied || s.Due {
		t.Errorf("no late checks: %+v", s)
	}
}

// A worker that died with a reversal may have undone it already: whoever takes
// over asks about both, the payment and the undoing, before it sends anything.
func TestAReversalThatIsTakenOverIsNotUndoneTwice(t *testing.T) {
	t.Parallel()
	p := debit()
	w := reversalOf(p)
	w.Attempts, w.TakenOver = 2, true
	wallet := finds(applied("w5"))
	s, _, _ := tried(t, w, wallet)
	calls := wallet.asked()
	if s.State != payment.Succeeded || wallet.sends != 0 || len(calls) != 2 || calls[1].in.Reference != w.Outbound {
		t.Errorf("got %s after %d sends, calls %+v", s.State, wallet.sends, calls)
	}
	// And that is not forgotten while the payment cannot be found.
	for _, e := range []payment.Evidence{notFound, blind(payment.ReasonTimeout)} {
		if s, _, _ := tried(t, w, finds(e)); !s.Resolve || s.Turn != payment.LookupTurn {
			t.Errorf("%s: turn %s, resolve %v", e.Finding, s.Turn, s.Resolve)
		}
	}
}
