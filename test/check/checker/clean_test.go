package checker

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

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
			t.Errorf("I%d %s was checked in no case", c.Invariant(), c.Name())
		}
	}
	// What is counted apart is counted right: it is what a person goes by.
	counted := map[string]int64{
		"faults of LOST": report.Faults["LOST"], "disturbances": report.Disturbances, "ended by a person": report.ByHand, "parked": report.Parked,
		"money parked": report.ParkedMoney["EUR"], "answers of 503": report.Statuses[503], "lost keys": report.LostKeys, "failed": report.Failed,
	}
	want := map[string]int64{
		"faults of LOST": 2, "disturbances": 1, "ended by a person": 5, "parked": 1, "money parked": 1250, "answers of 503": 2, "lost keys": 0, "failed": 2,
	}
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}

// A run that is looked at before it is quiet waits for things, which is no violation then,
// and is one as soon as it claims to be quiet.
func TestARunThatIsNotQuietYetIsNotAccusedOfWaiting(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(corrupted){
		"a payment in flight": func(r corrupted) {
			p := r.payment("key-killed")
			p.State, p.Code, p.DecidedAt = "IN_FLIGHT", "", time.Time{}
			r.dropOperation(*r.reversal("key-killed"))
			r.dropLine(applied, reversalOf(p.Reference))
			r.forget("key-killed")
			r.forgetReads("key-killed")
		},
		"a payout that was not done": func(r corrupted) {
			o := r.operation("key-payout")
			o.State, o.WalletID, o.EndedAt = "PENDING", "", time.Time{}
			r.dropLine(applied, o.OutboundKey)
		},
		"a decline that is not undone": func(r corrupted) {
			o := r.reversal("key-gateway")
			o.State, o.WalletID, o.EndedAt = "PENDING", "", time.Time{}
			r.dropLine(applied, o.OutboundKey)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, unsettled := range []bool{true, false} {
				r := corrupted{record(t), t}
				spoil(r)
				r.totals = nil
				o := runOptions()
				o.Unsettled = unsettled
				report, err := Check(t.Context(), r.input(), o, nil)
				if err != nil {
					t.Fatal(err)
				}
				report.Violations = slices.DeleteFunc(report.Violations, func(v Violation) bool { return v.Clause == askedFor || v.Clause == known })
				if unsettled {
					wantClean(t, report)
				} else if len(report.Violations) == 0 {
					t.Error("it claims to be quiet, and nothing was found")
				}
			}
		})
	}
}

// A wallet that was started again begins its book anew, behind the old one. Its accounts
// are new, and what the first has taken stays taken.
func TestAWalletMayBeStartedAgain(t *testing.T) {
	t.Parallel()
	r := record(t)
	r.totals = nil
	opening := BookLine{Seq: 1, At: r.book[len(r.book)-1].At, Event: opened, Effect: &BookEffect{Account: "ANNA", Currency: "EUR", Amount: 5, BalanceChange: 5}}
	r.book = append(r.book, opening)
	report, err := Check(t.Context(), r.input(), runOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	// The hold that is still active is forgotten with the wallet.
	report.Violations = slices.DeleteFunc(report.Violations, func(v Violation) bool { return v.Key == "hold key-still-held of store-17" })
	wantClean(t, report)
}

// What a worker has found out dies with it, if it is killed before it writes it down: then
// the row of a reversal does not name the hold that was released. That is no contradiction
// of it, and that another hold was released would be.
func TestAReleaseIsHeldToTheHoldThatTheWalletHasMade(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		spoil func(o *OperationRow, released *BookLine)
		found bool
	}{
		"named":                 {func(*OperationRow, *BookLine) {}, false},
		"not named":             {func(o *OperationRow, _ *BookLine) { o.TargetID = "" }, false},
		"not named, another's":  {func(o *OperationRow, l *BookLine) { o.TargetID, l.HoldID = "", l.HoldID+"0" }, true},
		"named, another's":      {func(_ *OperationRow, l *BookLine) { l.HoldID += "0" }, true},
		"another's is named":    {func(o *OperationRow, _ *BookLine) { o.TargetID += "0" }, true},
		"not named, by nothing": {func(o *OperationRow, l *BookLine) { o.TargetID, l.HoldID = "", "" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := corrupted{record(t), t}
			o := r.reversal("key-held-up")
			r.change(r.line(arrived, o.OutboundKey, 0), func(l *BookLine) { test.spoil(o, l) })
			report, err := Check(t.Context(), r.input(), runOptions(), nil)
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(report.Violations, func(v Violation) bool { return v.Clause == agrees })
			if found != test.found {
				t.Errorf("found: %v, want %v: %v", found, test.found, report.Violations)
			}
		})
	}
}
