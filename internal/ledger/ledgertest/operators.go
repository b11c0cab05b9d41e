package ledgertest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

func timeline(ctx context.Context, t *testing.T, l Ledger, id uuid.UUID) payment.Timeline {
	t.Helper()
	told, found, err := l.Timeline(ctx, id)
	must(t, err)
	if !found {
		t.Fatalf("there is no timeline of %s", id)
	}
	return told
}

// madeCalls are the calls of a timeline, each in a line and without times.
func madeCalls(told payment.Timeline) []string {
	var calls []string
	for _, c := range told.Calls {
		calls = append(calls, c.Call+" "+c.Outcome)
	}
	return calls
}

// What was on the wire is what the clerk needs most where somebody else has decided, or
// taken over, meanwhile. It is kept once, however often it is told.
func callsOfWhoCameLate(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	req := Request("cancelled")
	p := claimNew(ctx, t, l, req)
	cancel(ctx, t, l, req, nil)
	d := payment.Approve("w-1")
	d.Calls = []payment.WalletCall{{Call: "debit", Outcome: "success", Reason: payment.ReasonApplied, Status: 201}}
	for range 2 {
		stored, err := l.Decide(ctx, p, d)
		must(t, err)
		if stored.Code != payment.Cancelled {
			t.Errorf("a late handler hears %s %s", stored.State, stored.Code)
		}
	}
	stopped := leaseOne(ctx, t, l, shortly(1))
	follower := leaseOne(ctx, t, l, everything(1))
	late := again()
	late.Calls = []payment.WalletCall{{Call: "lookup", Outcome: "no_evidence", Reason: payment.ReasonTimeout, Took: time.Second}}
	for range 2 {
		if trySettle(ctx, t, l, stopped, late) {
			t.Fatal("a lease that was taken over was settled")
		}
	}
	settle(ctx, t, l, follower, payment.Settlement{State: payment.NotApplied, Calls: []payment.WalletCall{
		{Call: "lookup", Outcome: "not_found", Reason: payment.ReasonVerdict, Status: 404},
	}})
	calls := madeCalls(timeline(ctx, t, l, p.ID))
	slices.Sort(calls)
	equal(t, calls, []string{"debit success", "lookup no_evidence", "lookup not_found"})
}

// A clerk who is asked "where is my money?" has this and nothing else: every call
// that was made, in which attempt, what came of it, and who did what about it.
func timelineTells(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	p := claimNew(ctx, t, l, Request("debit"))
	d := payment.Approve("w-1")
	d.Calls = []payment.WalletCall{
		{Call: "debit", Outcome: "ambiguous", Reason: payment.ReasonStatus504, Status: 504, Ago: 3 * time.Second, Took: 800 * time.Millisecond},
		{Call: "lookup", Outcome: "applied", Reason: payment.ReasonApplied, Status: 200, Ago: 2 * time.Second, Took: 50 * time.Millisecond},
	}
	stored, err := l.Decide(ctx, p, d)
	must(t, err)
	req := Credit(stored, "credit", 100)
	credit := accept(ctx, t, l, req)
	timeout := payment.WalletCall{Call: "credit", Outcome: "ambiguous", Reason: payment.ReasonTimeout, Ago: time.Second, Took: time.Second}
	lookup := payment.WalletCall{Call: "lookup", Outcome: "no_evidence", Reason: payment.ReasonPending, Status: 200, Took: time.Millisecond}
	failed := again()
	failed.Calls, failed.Lookups = []payment.WalletCall{timeout}, 2
	settle(ctx, t, l, leaseOne(ctx, t, l, everything(1)), failed)
	settle(ctx, t, l, leaseOne(ctx, t, l, everything(1)), payment.Settlement{
		State: payment.Parked, ParkReason: "NO_EVIDENCE", Turn: payment.RetryTurn, Unspent: true, Calls: []payment.WalletCall{lookup},
	})
	if _, err := l.Redrive(ctx, credit.ID, "ada", "the wallet has been mended"); err != nil {
		t.Fatal(err)
	}

	told := timeline(ctx, t, l, p.ID)
	for i, byFollowUp := 0, timeline(ctx, t, l, credit.ID); i < len(told.Calls); i++ {
		if len(byFollowUp.Calls) != len(told.Calls) || byFollowUp.Calls[i].Call != told.Calls[i].Call {
			t.Fatalf("by the payment %v, by its follow-up %v", madeCalls(told), madeCalls(byFollowUp))
		}
	}
	equal(t, told.Payment, stored)
	for i, c := range told.Calls {
		if i > 0 && c.At.Before(told.Calls[i-1].At) || c.At.Location() != time.UTC {
			t.Errorf("a call at %v follows one at %v", c.At, told.Calls[max(i-1, 0)].At)
		}
		told.Calls[i].At, told.Calls[i].Ago = time.Time{}, 0
	}
	timeout.Ago, d.Calls[0].Ago, d.Calls[1].Ago = 0, 0, 0
	equal(t, told.Calls, []payment.TimedCall{
		{Attempt: 1, WalletCall: d.Calls[0]},
		{Attempt: 1, WalletCall: d.Calls[1]},
		{OperationID: credit.ID, Attempt: 1, WalletCall: timeout},
		{OperationID: credit.ID, Attempt: 2, WalletCall: lookup},
	})
	if len(told.FollowUps) != 1 || len(told.Notes) != 1 || told.Notes[0].At.IsZero() {
		t.Fatalf("%d follow-ups, notes %+v", len(told.FollowUps), told.Notes)
	}
	told.Notes[0].At = time.Time{}
	equal(t, told.Notes, []payment.Note{{OperationID: credit.ID, Operator: "ada", Action: "redrive", Text: "the wallet has been mended"}})
	equal(t, told.FollowUps[0], payment.FollowUpDetail{
		FollowUp: credit, Caller: p.Caller, Outbound: req.DeriveReference(), Attempts: 1,
		DueAt: told.FollowUps[0].DueAt, LastReason: payment.ReasonPending,
	})
	if told.FollowUps[0].DueAt.IsZero() {
		t.Error("what was redriven is not due")
	}

	paid := accept(ctx, t, l, payout("payout", "ACC-9"))
	if alone := timeline(ctx, t, l, paid.ID); alone.Payment.ID != uuid.Nil || len(alone.FollowUps) != 1 {
		t.Errorf("of a payout: %+v", alone)
	}
	if _, found, err := l.Timeline(ctx, uuid.New()); found || err != nil {
		t.Errorf("of nothing: found %v, %v", found, err)
	}
}

// A redrive is what a person does when the wallet is mended. It must send under the
// same key as before, begin with what it was parked with, and not be a second worker
// beside one that is at it (field report D29).
func redriveIsTheSameWork(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	p := approve(ctx, t, l, payment.Debit, "debit")
	req := Credit(p, "credit", 100)
	credit := accept(ctx, t, l, req)
	redrive := func(id uuid.UUID, want payment.OperatorStatus, when string) payment.OperatorResult {
		t.Helper()
		r, err := l.Redrive(ctx, id, "ada", "because")
		must(t, err)
		if r.Status != want {
			t.Errorf("redrive, %s: status %d, want %d", when, r.Status, want)
		}
		return r
	}
	redrive(credit.ID, payment.OperatorActive, "waiting")
	w := leaseOne(ctx, t, l, everything(1))
	redrive(credit.ID, payment.OperatorActive, "being attempted")
	settle(ctx, t, l, w, payment.Settlement{State: payment.Parked, ParkReason: "NO_EVIDENCE", Code: "ACCOUNT_LOCKED", Turn: payment.RetryTurn, Resolve: true})
	if work := leased(ctx, t, l, everything(1)); len(work) != 0 {
		t.Error("what is parked was handed out")
	}
	parked, err := l.Parked(ctx, 10)
	must(t, err)
	if len(parked) != 1 || parked[0].ID != credit.ID || parked[0].ParkReason != "NO_EVIDENCE" || parked[0].Code != "ACCOUNT_LOCKED" || !parked[0].DueAt.IsZero() {
		t.Errorf("parked: %+v", parked)
	}

	if r := redrive(credit.ID, payment.OperatorDone, "parked"); r.FollowUp.State != payment.Pending || r.FollowUp.ParkReason != "" || r.FollowUp.Code != "" {
		t.Errorf("redriven: %+v", r.FollowUp)
	}
	same := leaseOne(ctx, t, l, everything(1))
	if same.Outbound != w.Outbound || same.Outbound != req.DeriveReference() || !same.Resolve || same.Turn != payment.RetryTurn || same.Attempts != 2 {
		t.Errorf("redriven: %+v", same)
	}
	if trySettle(ctx, t, l, w, payment.Settlement{State: payment.Refused, Code: "X"}) {
		t.Error("the attempt before it was parked was settled after the redrive")
	}
	settle(ctx, t, l, same, payment.Settlement{State: payment.Succeeded, WalletID: "w-1"})
	redrive(credit.ID, payment.OperatorEnded, "ended")
	redrive(uuid.New(), payment.OperatorUnknown, "nothing")
}

// What a person has found out is written down with his name and reason, keeps what
// was taken and gives back what was not; and he must not decide about an attempt
// that is on its way.
func settlingByHand(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	byHand := func(id uuid.UUID, applied bool) payment.OperatorResult {
		t.Helper()
		r, err := l.SettleByHand(ctx, id, applied, "ada", "seen in the wallet's back office")
		must(t, err)
		return r
	}
	debit := approve(ctx, t, l, payment.Debit, "debit")
	applied, notApplied := accept(ctx, t, l, Credit(debit, "applied", 1000)), accept(ctx, t, l, Credit(debit, "not applied", 250))
	work := leased(ctx, t, l, everything(10))
	if r := byHand(applied.ID, true); r.Status != payment.OperatorActive || r.FollowUp.State != payment.Pending {
		t.Errorf("with an attempt out: status %d, %s", r.Status, r.FollowUp.State)
	}
	for _, w := range work {
		settle(ctx, t, l, w, again())
	}
	if r := byHand(applied.ID, true); r.Status != payment.OperatorDone || r.FollowUp.State != payment.Succeeded {
		t.Errorf("applied: status %d, %s", r.Status, r.FollowUp.State)
	}
	if r := byHand(notApplied.ID, false); r.Status != payment.OperatorDone || r.FollowUp.State != payment.Refused || r.FollowUp.Code != payment.WalletRejected {
		t.Errorf("not applied: status %d, %s %s", r.Status, r.FollowUp.State, r.FollowUp.Code)
	}
	if r := byHand(notApplied.ID, true); r.Status != payment.OperatorEnded || r.FollowUp.State != payment.Refused {
		t.Errorf("ended: status %d, %s", r.Status, r.FollowUp.State)
	}
	accept(ctx, t, l, Credit(debit, "what was given back", 250))
	more, err := l.Accept(ctx, Credit(debit, "more", 1))
	must(t, err)
	if more.Status != payment.AmountExceeds {
		t.Errorf("one more: status %d, want what was applied to be kept", more.Status)
	}

	gone := declined(ctx, t, l, "declined")
	reversal := onlyFollowUp(ctx, t, l, gone)
	end(ctx, t, l, reversal.ID, payment.Parked, "", "")
	if r := byHand(reversal.ID, false); r.Status != payment.OperatorDone || r.FollowUp.State != payment.NotApplied || r.FollowUp.Code != "" {
		t.Errorf("a reversal that was not applied: status %d, %s %s", r.Status, r.FollowUp.State, r.FollowUp.Code)
	}
	if r := byHand(uuid.New(), true); r.Status != payment.OperatorUnknown {
		t.Errorf("nothing: status %d", r.Status)
	}
	// The release of a hold that was cancelled meanwhile is all that undoes it.
	req := Request("hold")
	req.Operation = payment.Hold
	hold := approve(ctx, t, l, payment.Hold, req.Key)
	release := accept(ctx, t, l, Release(hold, "release"))
	cancel(ctx, t, l, req, nil)
	if r := byHand(release.ID, false); r.Status != payment.OperatorActive || r.FollowUp.State != payment.Pending {
		t.Errorf("the release of a cancelled hold, as not applied: status %d, %s", r.Status, r.FollowUp.State)
	}
	for _, c := range []struct{ operator, reason string }{{"", "because"}, {"ada", ""}} {
		if r, err := l.SettleByHand(ctx, release.ID, true, c.operator, c.reason); err == nil {
			t.Errorf("by %q because of %q: status %d, want it refused", c.operator, c.reason, r.Status)
		}
	}
	var notes []string
	for _, n := range timeline(ctx, t, l, debit.ID).Notes {
		notes = append(notes, n.Operator+" "+n.Action)
	}
	equal(t, notes, []string{"ada settle-applied", "ada settle-not-applied"})
}
