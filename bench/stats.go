package main

import (
	"math"
	"slices"
	"time"
)

// percentile is the smallest of sorted that at least the part q of them does not
// exceed (nearest rank): always a value that was seen, never one in between.
func percentile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	// The margin is for products such as 0.999 × 1000, which floats put a hair above.
	rank := int(math.Ceil(q*float64(len(sorted)) - 1e-9))
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// spread is a figure over the rounds of a run: its median, and how far they lay apart.
type spread struct {
	Median, Min, Max float64
	Rounds           int
}

// over is the spread of values; its Rounds is 0 where there are none.
func over(values []float64) spread {
	if len(values) == 0 {
		return spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return spread{Median: median, Min: sorted[0], Max: sorted[len(sorted)-1], Rounds: len(sorted)}
}

// per is amount for each of n, 0 where there are none.
func per(amount float64, n int) float64 {
	if n == 0 {
		return 0
	}
	return amount / float64(n)
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// times is s in another unit.
func (s spread) times(factor float64) spread {
	return spread{Median: s.Median * factor, Min: s.Min * factor, Max: s.Max * factor, Rounds: s.Rounds}
}
