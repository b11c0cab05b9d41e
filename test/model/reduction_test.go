package model

import "testing"

// What canonical merges must have the same future, or the exploration would step over
// something. So everything that can be reached without it must, in canonical form, be
// what is reached with it, and the other way round.
func TestReductionsHideNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []configuration{
		{name: "a request and its replay", requests: 2, amount: 1, workers: 1, refusals: true, unsent: true},
		{name: "a cancel", requests: 1, cancels: 1, withBody: true, withoutBody: true, amount: 1, workers: 1, lateChecks: 1, refusals: true, gateways: true},
		{
			name: "two workers", approved: true, cancels: 1, withoutBody: true, followUps: [3]bool{first: true}, amount: 1, credits: [3]int8{first: 1},
			workers: 2, refusals: true,
		},
		{
			name: "credits", approved: true, cancels: 1, withoutBody: true, followUps: [3]bool{first: true, second: true},
			amount: 1, credits: [3]int8{first: 1, second: 1}, workers: 1, refusals: true, parks: true, operators: true,
		},
		{
			name: "a hold", hold: true, approved: true, cancels: 1, withoutBody: true, followUps: [3]bool{capture: true, release: true},
			amount: 1, workers: 1, refusals: true, unsent: true,
		},
		{name: "a standby", requests: 1, amount: 1, workers: 1, lags: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if !c.lags {
				c.promised = every
			}
			reduced, err := explore(&model{configuration: c}, 300_000, 0)
			if err != nil {
				t.Fatal(err)
			}
			plain, err := explore(&model{configuration: c, plain: true}, 300_000, 0)
			if err != nil {
				t.Fatal(err)
			}
			for p := range plain.found {
				if c.promised.has(p) {
					t.Errorf("%v is broken without reductions", p)
				}
			}
			m := &model{configuration: c}
			left := make(map[world]bool, len(reduced.states))
			for _, w := range reduced.states {
				left[w] = true
			}
			for _, w := range plain.states {
				m.canonical(&w)
				if _, there := left[w]; !there {
					t.Fatalf("reached without reductions only: %+v", w)
				}
				left[w] = false
			}
			for w, only := range left {
				if only {
					t.Fatalf("reached with reductions only: %+v", w)
				}
			}
			t.Logf("%d states, %d without reductions", len(reduced.states), len(plain.states))
		})
	}
}
