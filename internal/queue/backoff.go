package queue

import (
	"math/rand/v2"
	"time"
)

// backoff is the pause after the given number of tries: exponential from first,
// capped at most, with full jitter, so that what failed together does not come
// back together (field report D23). No number of tries overflows it (D6).
func backoff(tries int, first, most time.Duration, jitter Jitter) time.Duration {
	return jitter(doubled(tries-1, first, most))
}

// doubled is d doubled so many times, at most most. Nothing overflows: beyond 62
// doublings, and wherever the result would not fit, it is most.
func doubled(times int, d, most time.Duration) time.Duration {
	times = max(times, 0)
	if times > 62 || d > most>>times {
		return most
	}
	return d << times
}

// Jitter is a random time of more than 0 and at most d.
type Jitter func(d time.Duration) time.Duration

// evenly is the Jitter in which every time is as likely as another.
func evenly(d time.Duration) time.Duration {
	return rand.N(d) + 1 //nolint:gosec // spreads load, protects nothing
}

// lookupPauses is how long a reversal waits between its lookups while there is
// no answer that ends it (contract section 4); then the last one doubles.
var lookupPauses = [...]time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 15 * time.Second, time.Minute} //nolint:gochecknoglobals // a table

// lookupPause is the pause after the given number of lookups, 1 or more. It has
// no jitter, because the contract names the times; what comes due together is
// spread by the lookup rate.
func lookupPause(lookups int, most time.Duration) time.Duration {
	last := len(lookupPauses) - 1
	i := max(lookups-1, 0)
	if i <= last {
		return min(lookupPauses[i], most)
	}
	return doubled(i-last, lookupPauses[last], most)
}
