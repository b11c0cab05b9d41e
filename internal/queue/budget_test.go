package queue

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The numbers of contract section 4, one by one: each is what keeps a wallet that
// fails from being finished off by our retries.
func TestTheRetryBudgetIsTheContracts(t *testing.T) {
	t.Parallel()
	start := time.Now()
	at := func(d time.Duration) time.Time { return start.Add(d) }
	b := newRetryBudget(start)
	check := func(what string, now time.Time, want tokens) {
		t.Helper()
		if got := b.balance(now); got != want {
			t.Fatalf("%s: %d, want %d", what, got, want)
		}
	}
	check("it starts with 10", start, 10*token)
	for range 10 {
		if !b.take(start) {
			t.Fatal("a retry takes one, and there were 10")
		}
	}
	if b.take(start) {
		t.Fatal("an eleventh retry")
	}
	for range 10 {
		b.first(start)
	}
	check("ten first attempts pay for one retry, exactly", start, token)
	if !b.take(start) || b.take(start) {
		t.Fatal("one retry, and not two")
	}
	if b.take(at(time.Second - 1)) {
		t.Fatal("a retry before the clock has paid for it")
	}
	if !b.take(at(time.Second)) {
		t.Fatal("the clock pays for one a second")
	}
	b.answered(at(time.Second))
	check("a retry that was answered puts back its own and one more", at(time.Second), 2*token)
	check("the clock does not run backwards", start, 2*token)
	check("nor pay twice", at(2*time.Second), 3*token)
	check("it holds 100 at most", at(time.Hour), 100*token)
	b.answered(at(time.Hour))
	b.first(at(time.Hour))
	check("whoever pays in", at(time.Hour), 100*token)
	check("a century later", at(100*365*24*time.Hour), 100*token)
}

// While everything fails, what is retried is a tenth of the first attempts and
// one a second, plus what the budget held when it began: nothing that happens in
// between can add to that.
func TestRetriesAreAFractionOfTrafficWhileEverythingFails(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		start := time.Now()
		now, firsts, retries := start, 0, 0
		b := newRetryBudget(start)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "passed")))
			for range rapid.IntRange(0, 20).Draw(t, "firsts") {
				b.first(now)
				firsts++
			}
			for range rapid.IntRange(0, 20).Draw(t, "wanted") {
				can := b.available(now) > 0
				if took := b.take(now); took != can {
					t.Fatalf("available: %v, taken: %v", can, took)
				}
				if !can {
					break
				}
				if rapid.Bool().Draw(t, "made") {
					retries++
				} else {
					b.unused(now)
				}
			}
		}
		if most := 10 + firsts/10 + int(now.Sub(start)/time.Second) + 1; retries > most {
			t.Fatalf("%d retries for %d first attempts in %s, want at most %d", retries, firsts, now.Sub(start), most)
		}
	})
}

// Workers draw on it at once: a token that two of them get is a retry too many.
func TestATokenIsTakenOnce(t *testing.T) {
	t.Parallel()
	now := time.Now()
	b := newRetryBudget(now)
	var taken atomic.Int64
	var workers sync.WaitGroup
	for range 50 {
		workers.Go(func() {
			if b.take(now) {
				taken.Add(1)
			}
		})
	}
	workers.Wait()
	if taken.Load() != 10 {
		t.Errorf("%d retries got one of 10 tokens", taken.Load())
	}
}
