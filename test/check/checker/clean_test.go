package checker

import "testing"

// A checker that accuses a true history would be switched off, and one that has checked
// nothing would acquit every history: this one is found clean, and every clause of every
// invariant has had cases.
func TestATrueHistoryIsFoundClean(t *testing.T) {
	t.Parallel()
	report, err := Check(t.Context(), record(t).input(), runOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	wantClean(t, report)
	for _, c := range Clauses() {
		if report.Checked[c] == 0 {
			t.Errorf("I%d %s was checked in no case", c.Invariant, c.Name)
		}
	}
}
