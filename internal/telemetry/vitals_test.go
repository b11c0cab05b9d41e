package telemetry

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A replica whose workers have died, or whose sweep fails, looks like any other
// from outside: only the time at which it last did its work tells. What was never
// done must not be there at all, or a 0 would be read as half a century ago.
func TestVitalsTellWhenTheWorkWasLastDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, registry := setup(t)
		show := func() map[string]float64 {
			all := series(t, registry)
			maps.DeleteFunc(all, func(name string, _ float64) bool {
				metric, _, _ := strings.Cut(name, "{")
				return !slices.Contains([]string{
					ledgerReachable.Name, recoverySwept.Name, queueLeased.Name, clockSkew.Name, schemaVersion.Name, limit.Name,
				}, metric)
			})
			return all
		}
		if diff := cmp.Diff(map[string]float64{}, show()); diff != "" {
			t.Errorf("before anything was noted (-want +got):\n%s", diff)
		}

		began := unix(time.Now())
		reachable := true
		m.WatchLedger(func() bool { return reachable })
		m.SetLimits(Limits{SettleWindow: 15 * time.Minute, ParkAfter: 72 * time.Hour, ServerBudget: 2400 * time.Millisecond, DecisionCall: 800 * time.Millisecond})
		m.Swept()
		time.Sleep(1500 * time.Millisecond)
		m.Leased()
		m.SetDatabase(Look{Sent: time.Now(), Clock: time.Now().Add(250 * time.Millisecond), Version: 3, Release: 2})
		want := map[string]float64{
			`safeledger_ledger_reachable`:                     1,
			`safeledger_recovery_swept_timestamp_seconds`:     began,
			`safeledger_queue_leased_timestamp_seconds`:       began + 1.5,
			`safeledger_clock_skew_seconds`:                   -0.25,
			`safeledger_schema_version{of="database"}`:        3,
			`safeledger_schema_version{of="release"}`:         2,
			`safeledger_limit_seconds{limit="settle_window"}`: 900,
			`safeledger_limit_seconds{limit="park_after"}`:    259200,
			`safeledger_limit_seconds{limit="server_budget"}`: 2.4,
			`safeledger_limit_seconds{limit="decision_call"}`: 0.8,
		}
		if diff := cmp.Diff(want, show()); diff != "" {
			t.Errorf("first scrape (-want +got):\n%s", diff)
		}

		time.Sleep(time.Minute)
		reachable = false
		m.Swept()
		m.SetDatabase(Look{Sent: time.Now(), Clock: time.Now(), Version: 3, Release: 3})
		want[`safeledger_ledger_reachable`] = 0
		want[`safeledger_recovery_swept_timestamp_seconds`] = began + 61.5
		want[`safeledger_clock_skew_seconds`] = 0
		want[`safeledger_schema_version{of="release"}`] = 3
		if diff := cmp.Diff(want, show()); diff != "" {
			t.Errorf("second scrape (-want +got):\n%s", diff)
		}
	})
}

// Whoever is told that a clock is wrong changes it, so a look must not blame a clock
// for a slow network: it shows only what it proves.
func TestSkewIsWhatTheWayCannotExplain(t *testing.T) {
	t.Parallel()
	theirs := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		sent       time.Duration // after theirs, by our clock
		took, want time.Duration
	}{
		"the same time, at once":                  {0, 0, 0},
		"read somewhere on the way":               {-300 * time.Millisecond, 400 * time.Millisecond, 0},
		"read just when it was sent":              {0, time.Second, 0},
		"read just when it came back":             {-time.Second, time.Second, 0},
		"ours is ahead":                           {5 * time.Second, 10 * time.Millisecond, 5 * time.Second},
		"ours is ahead, and the way was slow":     {2 * time.Second, 9 * time.Second, 2 * time.Second},
		"ours is behind":                          {-5 * time.Second, 10 * time.Millisecond, -4990 * time.Millisecond},
		"behind by less than the way can explain": {-2 * time.Second, 9 * time.Second, 0},
	} {
		m, registry := setup(t)
		m.SetDatabase(Look{Sent: theirs.Add(c.sent), Took: c.took, Clock: theirs})
		if got := series(t, registry)[clockSkew.Name]; got != c.want.Seconds() {
			t.Errorf("%s: %v s, want %v", name, got, c.want)
		}
	}
}

// The table of docs/metrics.md must not promise a label that is never served.
func TestLimitsAndSchemasAreThoseOfTheDocument(t *testing.T) {
	t.Parallel()
	m, registry := setup(t)
	exercise(m)
	served := map[string][]string{}
	for _, family := range gather(t, registry) {
		for _, metric := range family.GetMetric() {
			if name := family.GetName(); name == schemaVersion.Name || name == limit.Name {
				served[name] = append(served[name], metric.GetLabel()[0].GetValue())
			}
		}
	}
	want := map[string][]string{
		schemaVersion.Name: slices.Sorted(slices.Values(schemas)),
		limit.Name:         slices.Sorted(slices.Values(limits)),
	}
	if diff := cmp.Diff(want, served); diff != "" {
		t.Errorf("(-document +served):\n%s", diff)
	}
}
