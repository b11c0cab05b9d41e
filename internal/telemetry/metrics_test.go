package telemetry

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/safeledger/safeledger/internal/payment"
)

// setup is a registry with our metrics.
func setup(t *testing.T) (*Metrics, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	return New(registry, "v1.2.3", "abcdef0"), registry
}

// gather reads the metrics as a scrape does.
func gather(t *testing.T, registry prometheus.Gatherer) []*dto.MetricFamily {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// series are the values of all our series, `name{a="1",b="2"}` → value; of a
// histogram the number of observations.
func series(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	all := make(map[string]float64)
	for _, family := range gather(t, registry) {
		if !strings.HasPrefix(family.GetName(), "safeledger_") {
			continue
		}
		for _, m := range family.GetMetric() {
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			all[family.GetName()+labelsOf(m)] = value
		}
	}
	return all
}

func labelsOf(m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(labels) == 0 {
		return ""
	}
	return "{" + strings.Join(labels, ",") + "}"
}

// changed are the series that differ between two readings, with their new value.
func changed(before, after map[string]float64) map[string]float64 {
	diff := make(map[string]float64)
	for name, value := range after {
		if old, there := before[name]; !there || old != value {
			diff[name] = value
		}
	}
	return diff
}

// Each value of a label is a series for weeks. If what a till, a caller or a
// wallet sends could make one, anybody could end the monitoring of everybody
// (field report E7).
func TestSeriesDoNotGrowWithWhatOthersSend(t *testing.T) {
	t.Parallel()
	m, registry := setup(t)
	flood := func(round int) {
		for i := range 1000 {
			odd := fmt.Sprintf("ODD_%d_%d", round, i)
			m.Decision(payment.Operation(odd), payment.Declined, payment.Code(odd), time.Second, time.Second)
			m.Decision(payment.Debit, payment.State(odd), payment.Code(odd), time.Second, -time.Second)
			m.Replay(payment.Operation(odd))
			m.KeyConflict(payment.Debit, odd)
			m.OutcomeUnknown(payment.Operation(odd))
			m.NotStored(payment.Operation(odd))
			m.Accepted(payment.Operation(odd))
			m.Cancelled(payment.Operation(odd))
			m.NotSent(payment.Operation(odd), payment.Reason(odd))
			m.Refused(odd)
			m.WalletCall(odd, odd, odd, payment.Reason(odd), time.Second)
			m.BreakerChanged(odd, odd)
			m.SetExposures([]payment.Exposure{
				{Kind: payment.Operation(odd), State: payment.FollowUpState(odd), Currency: odd, Count: 1},
				{Kind: payment.Reversal, State: payment.Pending, Currency: "", Count: 1},
				{Kind: payment.Reversal, State: payment.Pending, Currency: "eur", Count: 1},
			})
		}
	}
	flood(0)
	before := series(t, registry)
	flood(1)
	after := series(t, registry)
	if len(before) != len(after) {
		t.Errorf("a second thousand of odd values took %d series to %d", len(before), len(after))
	}
	for name := range after {
		if strings.Contains(name, "ODD_") {
			t.Errorf("%s carries what was sent", name)
		}
	}
	if limit := 400; len(after) > limit {
		t.Errorf("%d series, want at most %d for a replica", len(after), limit)
	}
}

// Prometheus sees no increase in a counter that appears with its first event:
// an alert on the first OUTCOME_UNKNOWN would miss it and fire on the second.
func TestWhatAnAlertWaitsForIsThereFromTheStart(t *testing.T) {
	t.Parallel()
	_, registry := setup(t)
	got := series(t, registry)
	for _, name := range []string{
		`safeledger_decisions_total{code="",operation="debit",state="APPROVED"}`,
		`safeledger_decisions_total{code="WALLET_TIMEOUT",operation="hold",state="DECLINED"}`,
		`safeledger_decisions_total{code="OTHER",operation="debit",state="DECLINED"}`,
		`safeledger_decisions_late_total{operation="debit"}`,
		`safeledger_outcomes_unknown_total{operation="debit"}`,
		`safeledger_decisions_not_stored_total{operation="debit"}`,
		`safeledger_key_conflicts_total{kind="mismatch",operation="hold"}`,
		`safeledger_replays_total{operation="debit"}`,
		`safeledger_follow_ups_accepted_total{kind="credit"}`,
		`safeledger_cancels_total{operation="hold"}`,
		`safeledger_gate_refused_total{reason="OVERLOADED"}`,
		`safeledger_payments_recovered_total`,
		`safeledger_wallet_calls_total{call="debit",lane="decision",outcome="success",reason="duplicate"}`,
		`safeledger_wallet_calls_total{call="hold",lane="decision",outcome="ambiguous",reason="body_foreign"}`,
		`safeledger_wallet_calls_total{call="lookup",lane="decision",outcome="no_evidence",reason="not_found_unproven"}`,
		`safeledger_wallet_calls_total{call="credit",lane="worker",outcome="unavailable",reason="status_503"}`,
		`safeledger_breaker_transitions_total{breaker="lookup",state="open"}`,
	} {
		if value, there := got[name]; !there || value != 0 {
			t.Errorf("%s is %v, there: %v; want 0 from the start", name, value, there)
		}
	}
}

// Everything that the decision path tells must be counted where the documents
// say, once.
func TestEventsAreCountedUnderTheirLabels(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name string
		do   func(*Metrics)
		want map[string]float64
	}{
		{
			"an approval in time",
			func(m *Metrics) {
				m.Decision(payment.Debit, payment.Approved, "", 120*time.Millisecond, 2280*time.Millisecond)
			},
			map[string]float64{
				`safeledger_decisions_total{code="",operation="debit",state="APPROVED"}`: 1,
				`safeledger_decision_duration_seconds{operation="debit"}`:                1,
				`safeledger_decision_time_left_seconds{operation="debit"}`:               1,
			},
		},
		{
			"a decline by a code that only this wallet knows, late",
			func(m *Metrics) {
				m.Decision(payment.Hold, payment.Declined, "CARD_MELTED", 2500*time.Millisecond, -100*time.Millisecond)
			},
			map[string]float64{
				`safeledger_decisions_total{code="OTHER",operation="hold",state="DECLINED"}`: 1,
				`safeledger_decision_duration_seconds{operation="hold"}`:                     1,
				`safeledger_decision_time_left_seconds{operation="hold"}`:                    1,
				`safeledger_decisions_late_total{operation="hold"}`:                          1,
			},
		},
		{
			"to the very end of the budget is not late",
			func(m *Metrics) { m.Decision(payment.Hold, payment.Declined, payment.WalletTimeout, 0, 0) },
			map[string]float64{
				`safeledger_decisions_total{code="WALLET_TIMEOUT",operation="hold",state="DECLINED"}`: 1,
				`safeledger_decision_duration_seconds{operation="hold"}`:                              1,
				`safeledger_decision_time_left_seconds{operation="hold"}`:                             1,
			},
		},
		{
			"a replay, a conflict and an unknown outcome",
			func(m *Metrics) {
				m.Replay(payment.Debit)
				m.KeyConflict(payment.Debit, "in_flight")
				m.OutcomeUnknown(payment.Debit)
			},
			map[string]float64{
				`safeledger_replays_total{operation="debit"}`:                        1,
				`safeledger_key_conflicts_total{kind="in_flight",operation="debit"}`: 1,
				`safeledger_outcomes_unknown_total{operation="debit"}`:               1,
			},
		},
		{
			"a decision that could not be stored",
			func(m *Metrics) { m.OutcomeUnknown(payment.Hold); m.NotStored(payment.Hold) },
			map[string]float64{
				`safeledger_outcomes_unknown_total{operation="hold"}`:     1,
				`safeledger_decisions_not_stored_total{operation="hold"}`: 1,
			},
		},
		{
			"a follow-up and a cancel",
			func(m *Metrics) { m.Accepted(payment.Capture); m.Cancelled(payment.Hold) },
			map[string]float64{
				`safeledger_follow_ups_accepted_total{kind="capture"}`: 1,
				`safeledger_cancels_total{operation="hold"}`:           1,
			},
		},
		{
			// It took no time that says anything about the wallet, hence no duration.
			"a decision for which there was no place",
			func(m *Metrics) { m.NotSent(payment.Debit, payment.ReasonBulkheadFull) },
			map[string]float64{
				`safeledger_wallet_calls_total{call="debit",lane="decision",outcome="unavailable",reason="bulkhead_full"}`: 1,
			},
		},
		{
			"a refusal and a recovery",
			func(m *Metrics) { m.Refused("DRAINING"); m.Recovered(3); m.Recovered(-1) },
			map[string]float64{
				`safeledger_gate_refused_total{reason="DRAINING"}`: 1,
				`safeledger_payments_recovered_total`:              3,
			},
		},
		{
			"a wallet call",
			func(m *Metrics) {
				m.WalletCall("decision", "debit", payment.Ambiguous.String(), payment.ReasonTimeout, 800*time.Millisecond)
			},
			map[string]float64{
				`safeledger_wallet_calls_total{call="debit",lane="decision",outcome="ambiguous",reason="timeout"}`: 1,
				`safeledger_wallet_call_duration_seconds{call="debit",lane="decision",outcome="ambiguous"}`:        1,
			},
		},
		{
			"a lookup",
			func(m *Metrics) {
				m.WalletCall("decision", "lookup", payment.NotFound.String(), payment.ReasonVerdict, time.Millisecond)
			},
			map[string]float64{
				`safeledger_wallet_calls_total{call="lookup",lane="decision",outcome="not_found",reason="verdict"}`: 1,
				`safeledger_wallet_call_duration_seconds{call="lookup",lane="decision",outcome="not_found"}`:        1,
			},
		},
		{
			"a breaker that opens",
			func(m *Metrics) { m.BreakerChanged("decision", "open") },
			map[string]float64{`safeledger_breaker_transitions_total{breaker="decision",state="open"}`: 1},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			m, registry := setup(t)
			before := series(t, registry)
			row.do(m)
			if diff := cmp.Diff(row.want, changed(before, series(t, registry))); diff != "" {
				t.Errorf("what changed (-want +got):\n%s", diff)
			}
		})
	}
}

// While the breaker is open, thousands of refused calls take no time at all. In
// the durations they would make a dead wallet look like the fastest ever.
func TestCallsThatWereNotTriedDoNotFlatterTheWallet(t *testing.T) {
	t.Parallel()
	for _, reason := range []payment.Reason{
		payment.ReasonBreakerOpen, payment.ReasonBulkheadFull, payment.ReasonDeadlineSpent, payment.ReasonUnsupported,
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			m, registry := setup(t)
			before := series(t, registry)
			m.WalletCall("decision", "debit", payment.Unavailable.String(), reason, 0)
			want := map[string]float64{
				fmt.Sprintf(`safeledger_wallet_calls_total{call="debit",lane="decision",outcome="unavailable",reason=%q}`, reason): 1,
			}
			if diff := cmp.Diff(want, changed(before, series(t, registry))); diff != "" {
				t.Errorf("what changed (-want +got):\n%s", diff)
			}
		})
	}
}

// A reason that is added to the vocabulary and not here would be counted as
// OTHER, and the alert on it would never fire.
func TestEveryReasonHasItsSeries(t *testing.T) {
	t.Parallel()
	const source = "../payment/outcome.go"
	file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var declared []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); !ok || name.Name != "Reason" {
			return true
		}
		for _, value := range spec.Values {
			text, err := strconv.Unquote(value.(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			declared = append(declared, text)
		}
		return true
	})
	if len(declared) < 20 {
		t.Fatalf("found only %q in %s", declared, source)
	}
	slices.Sort(declared)
	if diff := cmp.Diff(declared, slices.Sorted(slices.Values(reasons))); diff != "" {
		t.Errorf("reasons (-payment +telemetry):\n%s", diff)
	}
	for class := range payment.Ambiguous {
		if !slices.Contains(outcomes, (class + 1).String()) {
			t.Errorf("the outcome %s has no label", class+1)
		}
	}
	for finding := range payment.NoEvidence {
		if !slices.Contains(outcomes, (finding + 1).String()) {
			t.Errorf("the finding %s has no label", finding+1)
		}
	}
}

// A breaker leaves the open state only when it is asked. A gauge that was set on
// changes would show it open all night in a shop that is closed.
func TestStatesAreAskedForAtEachScrape(t *testing.T) {
	t.Parallel()
	m, registry := setup(t)
	for name := range series(t, registry) {
		if strings.HasPrefix(name, gateInFlight.Name) || strings.HasPrefix(name, breakerState.Name) {
			t.Errorf("%s is there before anybody said what to ask", name)
		}
	}
	admitted, state := 7, "open"
	m.WatchInFlight(
		func() int { return admitted },
		map[string]func() int{"decision": func() int { return 3 }, "worker": func() int { return 0 }},
		map[string]func() string{"decision": func() string {
			m.BreakerChanged("decision", "half-open") // as a breaker does that is asked when its time is up
			return state
		}},
		func() float64 { return 9.5 },
	)
	show := func() map[string]float64 {
		all := series(t, registry)
		maps.DeleteFunc(all, func(name string, _ float64) bool {
			return !strings.Contains(name, "_in_flight") && !strings.HasPrefix(name, "safeledger_breaker_state") && name != queueRetryTokens.Name ||
				strings.HasPrefix(name, "safeledger_key_")
		})
		return all
	}
	want := map[string]float64{
		`safeledger_gate_in_flight`:                                      7,
		`safeledger_queue_retry_tokens`:                                  9.5,
		`safeledger_wallet_in_flight{lane="decision"}`:                   3,
		`safeledger_wallet_in_flight{lane="worker"}`:                     0,
		`safeledger_breaker_state{breaker="decision",state="closed"}`:    0,
		`safeledger_breaker_state{breaker="decision",state="half-open"}`: 0,
		`safeledger_breaker_state{breaker="decision",state="open"}`:      1,
	}
	if diff := cmp.Diff(want, show()); diff != "" {
		t.Errorf("first scrape (-want +got):\n%s", diff)
	}
	admitted, state = 0, "half-open"
	want[`safeledger_gate_in_flight`] = 0
	want[`safeledger_breaker_state{breaker="decision",state="open"}`] = 0
	want[`safeledger_breaker_state{breaker="decision",state="half-open"}`] = 1
	if diff := cmp.Diff(want, show()); diff != "" {
		t.Errorf("second scrape (-want +got):\n%s", diff)
	}
	// A worker has no gate, and an API replica no queue.
	m.WatchInFlight(nil, nil, nil, nil)
	if diff := cmp.Diff(map[string]float64{}, show()); diff != "" {
		t.Errorf("with nothing to ask (-want +got):\n%s", diff)
	}
}

// What is open is customers' money. It must be shown whole, by currency, and
// must come down to 0 when it has been settled, not freeze at its last value.
func TestSettledMoneyComesDownToZero(t *testing.T) {
	t.Parallel()
	m, registry := setup(t)
	show := func() map[string]float64 {
		all := series(t, registry)
		maps.DeleteFunc(all, func(name string, _ float64) bool {
			return !strings.HasPrefix(name, "safeledger_follow_ups_open")
		})
		return all
	}
	if got := show(); len(got) != 0 {
		t.Errorf("before anything was read there are %v", got)
	}
	m.SetExposures([]payment.Exposure{
		{Kind: payment.Reversal, State: payment.Pending, Currency: "EUR", Count: 2, AmountMinor: 1500, OldestAge: 90 * time.Second},
		{Kind: payment.Reversal, State: payment.Parked, Currency: "JPY", Count: 1, AmountMinor: 500, OldestAge: 80 * time.Hour},
		{Kind: payment.Reversal, State: payment.Pending, Currency: "XXA", Count: 1, AmountMinor: 7, OldestAge: time.Second},
		{Kind: payment.Reversal, State: payment.Pending, Currency: "", Count: 2, AmountMinor: 8, OldestAge: 2 * time.Second},
	})
	const eur = `{currency="EUR",kind="reversal",state="PENDING"}`
	const jpy = `{currency="JPY",kind="reversal",state="PARKED"}`
	const odd = `{currency="OTHER",kind="reversal",state="PENDING"}`
	want := map[string]float64{
		`safeledger_follow_ups_open` + eur:                    2,
		`safeledger_follow_ups_open_amount_minor_units` + eur: 1500,
		`safeledger_follow_ups_open_oldest_age_seconds` + eur: 90,
		`safeledger_follow_ups_open` + jpy:                    1,
		`safeledger_follow_ups_open_amount_minor_units` + jpy: 500,
		`safeledger_follow_ups_open_oldest_age_seconds` + jpy: 80 * 3600,
		`safeledger_follow_ups_open` + odd:                    3,
		`safeledger_follow_ups_open_amount_minor_units` + odd: 15,
		`safeledger_follow_ups_open_oldest_age_seconds` + odd: 2,
	}
	if diff := cmp.Diff(want, show()); diff != "" {
		t.Errorf("first reading (-want +got):\n%s", diff)
	}
	m.SetExposures(nil)
	for name := range want {
		want[name] = 0
	}
	if diff := cmp.Diff(want, show()); diff != "" {
		t.Errorf("settled (-want +got):\n%s", diff)
	}
	if read := series(t, registry)[followUpsRead.Name]; time.Since(time.UnixMilli(int64(read*1000))) > time.Minute {
		t.Errorf("read at %v, want just now", read)
	}
}

// "How many took longer than the budget" must be counted, not interpolated, and
// a p99.9 of 400 ms be told from one of 450: each edge is the bound of a bucket.
// Native buckets are there for those who ask for them.
func TestBucketsHaveTheBudgetsEdges(t *testing.T) {
	t.Parallel()
	m, registry := setup(t)
	m.WalletCall("decision", "debit", payment.Success.String(), payment.ReasonApplied, 400*time.Millisecond)
	m.Decision(payment.Debit, payment.Approved, "", time.Second, time.Second)
	edges := map[string][]float64{
		decisionDuration.Name:   {0.05, 0.3, 0.8, 1.1, 2.4, 2.7, 3},
		decisionTimeLeft.Name:   {0, 0.05, 2.4},
		walletCallDuration.Name: {0.2, 0.3, 0.38, 0.4, 0.42, 0.8, 2},
	}
	for _, family := range gather(t, registry) {
		want, ours := edges[family.GetName()]
		if !ours {
			continue
		}
		delete(edges, family.GetName())
		h := family.GetMetric()[0].GetHistogram()
		var got []float64
		for _, bucket := range h.GetBucket() {
			got = append(got, bucket.GetUpperBound())
		}
		for _, edge := range want {
			if !slices.Contains(got, edge) {
				t.Errorf("%s has no bucket that ends at %v: %v", family.GetName(), edge, got)
			}
		}
		if h.Schema == nil || h.GetSchema() < 3 {
			t.Errorf("%s has no native buckets of at most 10 %%: schema %v", family.GetName(), h.Schema)
		}
	}
	if len(edges) != 0 {
		t.Errorf("not gathered: %v", edges)
	}
}

// Prometheus' own conventions, checked by its own linter: base units, suffixes,
// help texts.
func TestNamesFollowPrometheusConventions(t *testing.T) {
	t.Parallel()
	m, registry := setup(t)
	exercise(m)
	families := slices.DeleteFunc(gather(t, registry), func(f *dto.MetricFamily) bool {
		return !strings.HasPrefix(f.GetName(), "safeledger_")
	})
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// The queue tells what only it can know, under labels that cannot grow: a newer
// release's kind or a new state is OTHER.
func TestTheQueuesEventsAreCounted(t *testing.T) {
	t.Parallel()
	m, registry := setup(t)
	m.Attempt(payment.Credit, payment.Unavailable, payment.ReasonStatus503)
	m.Attempt("refund", payment.Class(99), "because")
	m.RetryGranted()
	m.RetryRefused()
	m.RetryRefused()
	m.TakenOver(payment.Capture)
	m.Fenced(payment.Release)
	m.LateApply(payment.Debit)
	m.DuplicateOnFirstSend("credit")
	m.Ended(payment.Reversal, payment.Parked)
	m.Ended("refund", "GONE")
	want := map[string]float64{
		`safeledger_queue_attempts_total{kind="credit",outcome="unavailable",reason="status_503"}`: 1,
		`safeledger_queue_attempts_total{kind="OTHER",outcome="OTHER",reason="OTHER"}`:             1,
		`safeledger_queue_retries_total{budget="granted"}`:                                         1,
		`safeledger_queue_retries_total{budget="refused"}`:                                         2,
		`safeledger_queue_leases_lost_total{kind="capture"}`:                                       1,
		`safeledger_queue_fenced_writes_total{kind="release"}`:                                     1,
		`safeledger_queue_late_applies_total{operation="debit"}`:                                   1,
		`safeledger_queue_duplicates_on_first_send_total{kind="credit"}`:                           1,
		`safeledger_follow_ups_ended_total{kind="reversal",state="PARKED"}`:                        1,
		`safeledger_follow_ups_ended_total{kind="OTHER",state="OTHER"}`:                            1,
	}
	got := series(t, registry)
	maps.DeleteFunc(got, func(name string, value float64) bool {
		return value == 0 || !strings.HasPrefix(name, "safeledger_queue_") && !strings.HasPrefix(name, "safeledger_follow_ups_ended")
	})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// exercise makes every metric have a series.
func exercise(m *Metrics) {
	m.Decision(payment.Debit, payment.Approved, "", time.Second, -time.Second)
	m.WalletCall("decision", "debit", payment.Success.String(), payment.ReasonApplied, time.Second)
	m.SetExposures([]payment.Exposure{{Kind: payment.Reversal, State: payment.Pending, Currency: "EUR"}})
	m.WatchInFlight(func() int { return 0 },
		map[string]func() int{"decision": func() int { return 0 }},
		map[string]func() string{"decision": func() string { return "closed" }},
		func() float64 { return 10 })
	m.Attempt(payment.Reversal, payment.Success, payment.ReasonApplied)
	m.WatchLedger(func() bool { return true })
	m.SetLimits(Limits{})
	m.Swept()
	m.Leased()
	m.SetDatabase(Look{Version: 2, Release: 2})
}

// Whether tills wait for the disk, for each other or for nobody is read off these.
func TestTheLedgersTransactionsAreCounted(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := New(registry, "test", "test")
	m.Shared(3)(false)
	m.Shared(5)(true)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		switch f.GetName() {
		case ledgerTransactionWrites.Name:
			seen++
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() != 8 {
				t.Errorf("%d transactions of %v writes, want 2 of 8", h.GetSampleCount(), h.GetSampleSum())
			}
		case ledgerTransactionsUndone.Name:
			seen++
			if undone := f.GetMetric()[0].GetCounter().GetValue(); undone != 1 {
				t.Errorf("%v transactions were undone, want 1", undone)
			}
		case ledgerTransactionDuration.Name:
			seen++
			if h := f.GetMetric()[0].GetHistogram(); h.GetSampleCount() != 2 {
				t.Errorf("%d transactions were timed, want 2", h.GetSampleCount())
			}
		}
	}
	if seen != 3 {
		t.Errorf("%d of the three are served", seen)
	}
}
