package main

import (
	"testing"
	"time"
)

// A p99.9 that is off by one among a thousand is the longest time, or hides it.
func TestAPercentileIsAValueThatWasSeen(t *testing.T) {
	t.Parallel()
	thousand := make([]time.Duration, 1000)
	for i := range thousand {
		thousand[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		name   string
		sorted []time.Duration
		q      float64
		want   time.Duration
	}{
		{"the middle of a thousand", thousand, 0.5, 500},
		{"p99", thousand, 0.99, 990},
		{"p99.9 is not the longest", thousand, 0.999, 999},
		{"all", thousand, 1, 1000},
		{"the least", thousand, 0, 1},
		{"of one", thousand[:1], 0.999, 1},
		{"of three the second", thousand[:3], 0.5, 2},
		{"of none", nil, 0.99, 0},
	} {
		if got := percentile(c.sorted, c.q); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestASpreadIsTheMedianAndTheEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{7}, spread{7, 7, 7, 1}},
		{[]float64{9, 1, 2}, spread{2, 1, 9, 3}},
		{[]float64{4, 1, 2, 100}, spread{3, 1, 100, 4}},
	} {
		before := append([]float64(nil), c.values...)
		if got := over(c.values); got != c.want {
			t.Errorf("over %v: %+v, want %+v", before, got, c.want)
		}
	}
	if got := per(10, 0); got != 0 {
		t.Errorf("10 for each of none: %v", got)
	}
}
