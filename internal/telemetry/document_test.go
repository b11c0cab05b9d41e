package telemetry

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/documenttest"
)

// Dashboards and alerts are written from the document. A name that it spells
// otherwise than the code is an alert that never fires.
func TestDocumentIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	documenttest.Check(t, "../../docs/metrics.md", "internal/telemetry", tables())
}

// tables are the metrics, the values of their labels and the bounds of their
// buckets, in Markdown.
func tables() string {
	var b strings.Builder
	fmt.Fprint(&b, "\n| metric | type | labels | what it says |\n|---|---|---|---|\n")
	for _, m := range Catalogue() {
		labels := "–"
		if len(m.Labels) > 0 {
			labels = "`" + strings.Join(m.Labels, "` `") + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.Name, m.Type, labels, m.Help)
	}
	fmt.Fprint(&b, "\n| label | values |\n|---|---|\n")
	for _, label := range []struct {
		name   string
		values []string
	}{
		{"operation, kind of a follow-up", operations},
		{"state of a decision", states},
		{"code", codes},
		{"kind of a key conflict", conflictKinds},
		{"reason of a refusal", refusals},
		{"lane", lanes},
		{"call", calls},
		{"outcome", outcomes},
		{"reason of a call", reasons},
		{"breaker", breakers},
		{"state of a breaker", breakerStates},
		{"state of a follow-up", followUpStates},
		{"of", schemas},
		{"limit", limits},
	} {
		fmt.Fprintf(&b, "| %s | `%s` |\n", label.name, strings.Join(label.values, "` `"))
	}
	fmt.Fprint(&b, "\n| histogram | bounds of its classic buckets, in seconds |\n|---|---|\n")
	for _, h := range []struct {
		metric Metric
		bounds []float64
	}{
		{decisionDuration, decisionBuckets},
		{decisionTimeLeft, timeLeftBuckets},
		{walletCallDuration, walletBuckets},
	} {
		var bounds []string
		for _, bound := range h.bounds {
			bounds = append(bounds, strconv.FormatFloat(bound, 'f', -1, 64))
		}
		fmt.Fprintf(&b, "| `%s` | %s |\n", h.metric.Name, strings.Join(bounds, " "))
	}
	fmt.Fprint(&b, "\n")
	return b.String()
}

// What is served must be what the catalogue, and so the document, lists: no
// metric more, none less, with these labels.
func TestCatalogueIsWhatIsServed(t *testing.T) {
	t.Parallel()
	m, registry := setup(t)
	exercise(m)
	var got, want []Metric
	for _, family := range gather(t, registry) {
		if !strings.HasPrefix(family.GetName(), "safeledger_") {
			continue
		}
		served := Metric{Name: family.GetName(), Type: strings.ToLower(family.GetType().String()), Help: family.GetHelp()}
		for _, label := range family.GetMetric()[0].GetLabel() {
			served.Labels = append(served.Labels, label.GetName())
		}
		got = append(got, served)
	}
	for _, listed := range Catalogue() {
		listed.Labels = slices.Sorted(slices.Values(listed.Labels))
		want = append(want, listed)
	}
	slices.SortFunc(want, func(a, b Metric) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-catalogue +served):\n%s", diff)
	}
}
