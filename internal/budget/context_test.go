package budget_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/internal/budget"
)

// within is a context until limit from now.
func within(parent context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return budget.Policy{Server: limit}.Deadline(time.Now(), budget.Wait{}).Context(parent)
}

// A step ends with its deadline to the nanosecond, for whoever waits for that and for
// whoever asks, and says forever what it said first.
func TestAContextEndsByItsDeadline(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"asked": false, "waited for": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := within(context.Background(), time.Second)
				time.Sleep(time.Second - time.Nanosecond)
				if waits {
					select {
					case <-ctx.Done():
						t.Error("ended a nanosecond early")
					default:
					}
				}
				if err := ctx.Err(); err != nil {
					t.Errorf("ended a nanosecond early: %v", err)
				}
				time.Sleep(time.Nanosecond)
				if waits {
					<-ctx.Done()
				}
				for range 2 { // also after it was cancelled
					if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("ended with %v", err)
					}
					cancel()
				}
				<-ctx.Done()
			})
		})
	}
}

// Whoever is done with a step says so, and everything that was made of its context ends.
func TestAContextEndsWhenItIsCancelled(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string]bool{"nobody waits": false, "somebody waits": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := within(context.Background(), time.Hour)
				var below context.Context
				if waits {
					var done context.CancelFunc
					below, done = context.WithCancel(ctx)
					defer done()
				}
				cancel()
				if below != nil {
					<-below.Done()
				}
				<-ctx.Done()
				if err := ctx.Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("ended with %v", err)
				}
				time.Sleep(2 * time.Hour)
				if err := ctx.Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("was cancelled, and later ended with %v", err)
				}
			})
		})
	}
}

// What stops all stops the step too: a parent that ends, and one whose deadline is sooner.
func TestAContextEndsWithItsParent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		parent, stop := context.WithCancel(context.Background())
		asked, cancel := within(parent, time.Hour)
		defer cancel()
		waitedFor, cancel := within(parent, time.Hour)
		defer cancel()
		waitedFor.Done()
		stop()
		<-waitedFor.Done()
		for _, ctx := range []context.Context{asked, waitedFor} {
			if err := ctx.Err(); !errors.Is(err, context.Canceled) {
				t.Errorf("its parent was stopped, and it says %v", err)
			}
		}
		<-asked.Done()

		sooner, stop := context.WithTimeout(context.Background(), time.Second)
		defer stop()
		ctx, cancel := within(sooner, time.Hour)
		defer cancel()
		want, _ := sooner.Deadline()
		if got, _ := ctx.Deadline(); !got.Equal(want) {
			t.Errorf("the deadline is %v, and its parent's %v", got, want)
		}
		<-ctx.Done()
	})
}

// Only what can end in no other way than by its deadline may be left unwatched: an
// attempt whose caller was stopped would go on.
func TestOnlyADeadlineEndsWhatCannotBeCancelled(t *testing.T) {
	t.Parallel()
	type key struct{}
	stoppable, stop := context.WithCancel(t.Context())
	defer stop()
	ctx, cancel := within(context.WithoutCancel(t.Context()), time.Hour)
	defer cancel()
	below, cancel := within(stoppable, time.Hour)
	defer cancel()
	std, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Hour)
	defer cancel()
	for name, c := range map[string]struct {
		ctx  context.Context
		want bool
	}{
		"nothing stops its parent":  {ctx, true},
		"its parent can be stopped": {below, false},
		"made of it":                {context.WithValue(ctx, key{}, 1), false}, // a guess would be wrong of a cancellable one
		"another's":                 {std, false},
		"without an end":            {context.WithoutCancel(t.Context()), false},
	} {
		if got := budget.EndsByDeadlineOnly(c.ctx); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// A step's contexts are used by several goroutines: who waits, who asks, and who ends it.
func TestAContextMayBeUsedByMany(t *testing.T) {
	t.Parallel()
	for range 200 {
		ctx, cancel := within(t.Context(), time.Hour)
		var all sync.WaitGroup
		for range 2 {
			all.Go(func() { <-ctx.Done() })
			all.Go(func() {
				below, done := context.WithCancel(ctx)
				defer done()
				<-below.Done()
			})
			all.Go(func() { _ = ctx.Err() })
			all.Go(cancel)
		}
		all.Wait()
		if err := ctx.Err(); !errors.Is(err, context.Canceled) {
			t.Fatalf("ended with %v", err)
		}
	}
}
