package queue

import (
	"math"
	"testing"
	"time"
)

// An operation that fails for days must neither come back at once, because a
// shift has overflowed, nor never (field report D6).
func TestBackoffNeverOverflows(t *testing.T) {
	t.Parallel()
	for _, tries := range []int{-1, 0, 1, 2, 9, 10, 62, 63, 64, 310, 10_000, math.MaxInt32} {
		for range 50 {
			if got := backoff(tries, time.Second, 5*time.Minute, evenly); got <= 0 || got > 5*time.Minute {
				t.Fatalf("after %d tries: %s", tries, got)
			}
		}
	}
	for times, want := range map[int]time.Duration{
		-1: time.Second, 0: time.Second, 1: 2 * time.Second, 8: 256 * time.Second, 9: 5 * time.Minute, 62: 5 * time.Minute, 63: 5 * time.Minute,
	} {
		if got := doubled(times, time.Second, 5*time.Minute); got != want {
			t.Errorf("a second doubled %d times: %s, want %s", times, got, want)
		}
	}
	if got := doubled(40, time.Hour, math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("without a cap worth the name: %s", got)
	}
}

// What failed in one instant must not come back in one: the herd would find the
// wallet that has just got up (field report D23).
func TestBackoffSpreadsTheHerd(t *testing.T) {
	t.Parallel()
	const items, buckets = 5000, 32 // tries 6: a ceiling of 32 s
	var perSecond [buckets]int
	for range items {
		perSecond[int((backoff(6, time.Second, 5*time.Minute, evenly)-1)/time.Second)]++
	}
	for second, n := range perSecond {
		// A fair share is 156; ten per cent are 500, and none would be a gap.
		if n > items/20 || n < items/100 {
			t.Errorf("second %d gets %d of %d", second, n, items)
		}
	}
}
