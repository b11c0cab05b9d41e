package ledger_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// A clerk who is asked "where is my money?" has this and nothing else: every call
// that was made, in which attempt, what came of it, and who did what about it.
func TestTimelineTellsAllThatHappened(t *testing.T) {
	t.Parallel()
	l, _ := open(t, pgtest.New(t).URL, ledger.Options{Pooler: ledger.PoolerPgbouncer}, never)
	p := claimed(t, l, "debit")
	d := payment.Approve("w-1")
	d.Calls = []payment.WalletCall{
		{Call: "debit", Outcome: "ambiguous", Reason: payment.ReasonStatus504, Status: 504, Ago: 900 * time.Millisecond, Took: 800 * time.Millisecond},
		{Call: "lookup", Outcome: "applied", Reason: payment.ReasonApplied, Status: 200, Ago: 100 * time.Millisecond, Took: 50 * time.Millisecond},
	}
	stored, err := l.Decide(t.Context(), p, d)
	if err != nil {
		t.Fatal(err)
	}
	credit := accepted(t, l, ledgertest.Credit(stored, "credit", 100))
	timeout := payment.WalletCall{Call: "credit", Outcome: "ambiguous", Reason: payment.ReasonTimeout, Ago: time.Hour, Took: 2 * time.Second}
	settle(t, l, leaseOne(t, l), payment.Settlement{State: payment.Pending, Due: true, Turn: payment.RetryTurn, Resolve: true, Calls: []payment.WalletCall{timeout}})
	lookup := payment.WalletCall{Call: "lookup", Outcome: "no_evidence", Reason: payment.ReasonPending, Status: 200, Took: time.Millisecond}
	settle(t, l, leaseOne(t, l), payment.Settlement{State: payment.Parked, ParkReason: "NO_EVIDENCE", Turn: payment.RetryTurn, Resolve: true, Unspent: true, Calls: []payment.WalletCall{lookup}})
	if r, err := l.Redrive(t.Context(), credit.ID, "ada", "the wallet has been mended"); err != nil || r.Status != payment.OperatorDone {
		t.Fatalf("redrive: status %d, %v", r.Status, err)
	}

	byPayment, found, err := l.Timeline(t.Context(), p.ID)
	if err != nil || !found {
		t.Fatalf("found %v, %v", found, err)
	}
	byFollowUp, _, err := l.Timeline(t.Context(), credit.ID)
	if err != nil {
		t.Fatal(err)
	}
	sameTime := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Ago" }, cmp.Ignore())
	if diff := cmp.Diff(byPayment, byFollowUp, sameTime); diff != "" {
		t.Errorf("by the payment, and by its follow-up (-payment +follow-up):\n%s", diff)
	}
	if diff := cmp.Diff(stored, byPayment.Payment); diff != "" {
		t.Errorf("the payment (-want +got):\n%s", diff)
	}
	wantCalls := []payment.TimedCall{ // the credit's first is said to have begun an hour ago
		{OperationID: credit.ID, Attempt: 1, WalletCall: timeout},
		{Attempt: 1, WalletCall: d.Calls[0]},
		{Attempt: 1, WalletCall: d.Calls[1]},
		{OperationID: credit.ID, Attempt: 2, WalletCall: lookup},
	}
	var at time.Time
	for _, c := range byPayment.Calls {
		if c.At.Before(at) || c.At.Location() != time.UTC {
			t.Errorf("a call at %v follows one at %v", c.At, at)
		}
		at = c.At
	}
	noTime := cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Ago" || p.Last().String() == ".At" }, cmp.Ignore())
	if diff := cmp.Diff(wantCalls, byPayment.Calls, noTime); diff != "" {
		t.Errorf("the calls (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]payment.Note{{OperationID: credit.ID, Operator: "ada", Action: "redrive", Text: "the wallet has been mended"}}, byPayment.Notes, noTime); diff != "" {
		t.Errorf("the notes (-want +got):\n%s", diff)
	}
	if len(byPayment.FollowUps) != 1 {
		t.Fatalf("%d follow-ups", len(byPayment.FollowUps))
	}
	want := payment.FollowUpDetail{
		FollowUp: credit, Caller: p.Caller, Outbound: ledgertest.Credit(stored, "credit", 100).DeriveReference(),
		Attempts: 1, DueAt: byPayment.FollowUps[0].DueAt, LastReason: payment.ReasonPending,
	}
	if diff := cmp.Diff(want, byPayment.FollowUps[0]); diff != "" {
		t.Errorf("the follow-up (-want +got):\n%s", diff)
	}

	if _, found, err := l.Timeline(t.Context(), uuid.New()); found || err != nil {
		t.Errorf("of nothing: found %v, %v", found, err)
	}
}

// What a handler did to the wallet is what the clerk needs most where recovery, or a
// cancel, has decided without it.
func TestCallsOfALateHandlerAreKept(t *testing.T) {
	t.Parallel()
	l, _ := open(t, pgtest.New(t).URL, ledger.Options{}, never)
	p := claimed(t, l, "cancelled")
	cancelled(t, l, payment.Debit, "cancelled")
	d := payment.Approve("w-1")
	d.Calls = []payment.WalletCall{{Call: "debit", Outcome: "success", Reason: payment.ReasonApplied, Status: 201}}
	for range 2 {
		if stored, err := l.Decide(t.Context(), p, d); err != nil || stored.Code != payment.Cancelled {
			t.Fatalf("%s %s, %v", stored.State, stored.Code, err)
		}
	}
	timeline, _, err := l.Timeline(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(timeline.Calls) != 1 || timeline.Calls[0].Outcome != "success" {
		t.Errorf("calls: %+v, want the one that was made", timeline.Calls)
	}
}

// A handler that comes late and dies at that moment leaves its call and the lookup behind,
// or neither: a lookup alone looks as if somebody had asked without a reason.
func TestALookupIsNeverKeptWithoutItsCall(t *testing.T) {
	t.Parallel()
	l, _ := open(t, pgtest.New(t).URL, ledger.Options{}, never)
	p := claimed(t, l, "cancelled")
	cancelled(t, l, payment.Debit, "cancelled")
	d := payment.DeclineAndReverse(payment.WalletTimeout)
	d.Calls = []payment.WalletCall{
		{Call: "debit", Outcome: "ambiguous", Reason: payment.ReasonTimeout}, {Call: "lookup", Outcome: "no_evidence", Reason: payment.ReasonTimeout},
	}
	if err := l.DecideAndDie(t.Context(), p, d); err != nil {
		t.Fatal(err)
	}
	timeline, _, err := l.Timeline(t.Context(), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	calls := make([]string, len(timeline.Calls))
	for i, c := range timeline.Calls {
		calls[i] = c.Call
	}
	slices.Sort(calls)
	if !slices.Equal(calls, []string{"debit", "lookup"}) {
		t.Errorf("calls: %v, want both", calls)
	}
}

// A redrive is what a person does when the wallet is mended. It must send under the
// same key as before, begin by asking, and not be a second worker beside one that is
// at it (field report D29).
func TestRedriveIsTheSameWorkAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	p := approved(t, l, payment.Debit, "debit")
	req := ledgertest.Credit(p, "credit", 100)
	credit := accepted(t, l, req)
	redrive := func(want payment.OperatorStatus, when string) payment.OperatorResult {
		t.Helper()
		r, err := l.Redrive(t.Context(), credit.ID, "ada", "because")
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != want || r.FollowUp.ID != credit.ID {
			t.Errorf("redrive, %s: status %d of %s, want %d", when, r.Status, r.FollowUp.ID, want)
		}
		return r
	}
	redrive(payment.OperatorActive, "waiting")
	w := leaseOne(t, l)
	redrive(payment.OperatorActive, "being attempted")
	settle(t, l, w, payment.Settlement{State: payment.Parked, ParkReason: "NO_EVIDENCE", Code: "ACCOUNT_LOCKED", Turn: payment.RetryTurn, Resolve: true})
	execute(t, db.Connect(t), "UPDATE public.operations SET tried_from = tried_from - interval '80 hours'")
	if work := leased(t, l, order(1)); len(work) != 0 {
		t.Error("what is parked was handed out")
	}
	parked, err := l.Parked(t.Context(), 10)
	if err != nil {
		t.Fatal(err)
	}
	if len(parked) != 1 || parked[0].ID != credit.ID || parked[0].ParkReason != "NO_EVIDENCE" || parked[0].Code != "ACCOUNT_LOCKED" || !parked[0].DueAt.IsZero() {
		t.Errorf("parked: %+v", parked)
	}

	if r := redrive(payment.OperatorDone, "parked"); r.FollowUp.State != payment.Pending || r.FollowUp.ParkReason != "" || r.FollowUp.Code != "" {
		t.Errorf("redriven: %+v", r.FollowUp)
	}
	again := leaseOne(t, l)
	if again.Outbound != w.Outbound || again.Outbound != req.DeriveReference() || !again.Resolve || again.Turn != payment.RetryTurn || again.Attempts != 2 {
		t.Errorf("redriven: %+v", again)
	}
	if again.Tried > time.Hour {
		t.Errorf("tried for %v already: it would be parked at once", again.Tried)
	}
	if trySettle(t, l, w, payment.Settlement{State: payment.Refused, Code: "X"}) {
		t.Error("the attempt before it was parked was settled after the redrive")
	}
	settle(t, l, again, payment.Settlement{State: payment.Succeeded, WalletID: "w-1"})
	redrive(payment.OperatorEnded, "ended")
	if r, err := l.Redrive(t.Context(), uuid.New(), "ada", "because"); err != nil || r.Status != payment.OperatorUnknown {
		t.Errorf("of nothing: status %d, %v", r.Status, err)
	}
	if _, err := l.Redrive(t.Context(), credit.ID, "ada", "because"); err != nil {
		t.Error(err)
	}
}

// What a person has found out is written down with his name and reason, keeps what
// was taken and gives back what was not; and he must not decide about an attempt
// that is on its way.
func TestSettlingByHandKeepsOrGivesBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	byHand := func(id uuid.UUID, applied bool) payment.OperatorResult {
		t.Helper()
		r, err := l.SettleByHand(t.Context(), id, applied, "ada", "seen in the wallet's back office")
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	debit := approved(t, l, payment.Debit, "debit")
	applied := accepted(t, l, ledgertest.Credit(debit, "applied", 1000))
	notApplied := accepted(t, l, ledgertest.Credit(debit, "not applied", 250))
	w := leased(t, l, order(10))
	if r := byHand(applied.ID, true); r.Status != payment.OperatorActive || r.FollowUp.State != payment.Pending {
		t.Errorf("with an attempt out: status %d, %s", r.Status, r.FollowUp.State)
	}
	runOut(t, conn) // whose worker never said
	if r := byHand(applied.ID, true); r.Status != payment.OperatorActive {
		t.Errorf("with an attempt that was lost: status %d", r.Status)
	}
	for _, w := range w {
		settle(t, l, w, payment.Settlement{State: payment.Pending, Due: true, Turn: payment.RetryTurn, Resolve: true})
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
	accepted(t, l, ledgertest.Credit(debit, "what was given back", 250))
	if a, err := l.Accept(t.Context(), ledgertest.Credit(debit, "more", 1)); err != nil || a.Status != payment.AmountExceeds {
		t.Errorf("one more: status %d, %v, want what was applied to be kept", a.Status, err)
	}

	declined := claimed(t, l, "declined")
	if _, err := l.Decide(t.Context(), declined, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}
	reversal := followUps(t, l, declined)[0]
	end(t, l, reversal.ID, payment.Settlement{State: payment.Parked})
	if r := byHand(reversal.ID, false); r.Status != payment.OperatorDone || r.FollowUp.State != payment.NotApplied || r.FollowUp.Code != "" {
		t.Errorf("a reversal that was not applied: status %d, %s %s", r.Status, r.FollowUp.State, r.FollowUp.Code)
	}
	if r := byHand(uuid.New(), true); r.Status != payment.OperatorUnknown {
		t.Errorf("nothing: status %d", r.Status)
	}
	for _, c := range []struct{ operator, reason string }{{"", "because"}, {"ada", ""}} {
		parked := accepted(t, l, ledgertest.Credit(approved(t, l, payment.Debit, payment.Key("d"+c.operator)), payment.Key("c"+c.operator), 1))
		if _, err := l.SettleByHand(t.Context(), parked.ID, true, c.operator, c.reason); code(err) != "23514" {
			t.Errorf("by %q because of %q: %v, want it refused", c.operator, c.reason, err)
		}
	}
	timeline, _, err := l.Timeline(t.Context(), notApplied.ID)
	if err != nil {
		t.Fatal(err)
	}
	var actions []string
	for _, n := range timeline.Notes {
		actions = append(actions, n.Operator+" "+n.Action)
	}
	if diff := cmp.Diff([]string{"ada settle-applied", "ada settle-not-applied"}, actions); diff != "" {
		t.Errorf("the notes of the debit's credits (-want +got):\n%s", diff)
	}
}

// A customer has a receipt, a card or a statement; a till has a key. Each must lead
// to the payment, and an amount and a time to those that it may be.
func TestFindLeadsFromWhatPeopleHaveToThePayment(t *testing.T) {
	t.Parallel()
	l, _ := open(t, pgtest.New(t).URL, ledger.Options{Pooler: ledger.PoolerPgbouncer}, never)
	theirs := ledgertest.Request("key")
	theirs.Caller, theirs.Account, theirs.TillReference, theirs.Amount.AmountMinor = "store-18", "ACC-2", "receipt 2", 777
	claim, err := l.Claim(t.Context(), theirs)
	if err != nil {
		t.Fatal(err)
	}
	mine := approved(t, l, payment.Debit, "key")
	req := ledgertest.Credit(mine, "credit", 100)
	req.PaymentID, req.Of, req.Account, req.TillReference = uuid.Nil, "", "ACC-3", "payout 3"
	payout := accepted(t, l, req)
	end(t, l, payout.ID, payment.Settlement{State: payment.Succeeded, WalletID: "w-3"})

	hour := time.Hour
	for name, c := range map[string]struct {
		query payment.Query
		want  []uuid.UUID
	}{
		"everything":           {payment.Query{}, []uuid.UUID{mine.ID, claim.Payment.ID, payout.ID}},
		"the newest":           {payment.Query{Limit: 1}, []uuid.UUID{mine.ID, payout.ID}},
		"key":                  {payment.Query{Key: "key"}, []uuid.UUID{mine.ID, claim.Payment.ID}},
		"key of a caller":      {payment.Query{Key: "key", Caller: "store-18"}, []uuid.UUID{claim.Payment.ID}},
		"key of a payout":      {payment.Query{Key: "credit"}, []uuid.UUID{payout.ID}},
		"reference":            {payment.Query{TillReference: "receipt 2"}, []uuid.UUID{claim.Payment.ID}},
		"reference, payout":    {payment.Query{TillReference: "payout 3"}, []uuid.UUID{payout.ID}},
		"account":              {payment.Query{Account: "ACC-2"}, []uuid.UUID{claim.Payment.ID}},
		"account, payout":      {payment.Query{Account: "ACC-3"}, []uuid.UUID{payout.ID}},
		"wallet id":            {payment.Query{WalletID: mine.WalletID}, []uuid.UUID{mine.ID}},
		"wallet id, payout":    {payment.Query{WalletID: "w-3"}, []uuid.UUID{payout.ID}},
		"amount":               {payment.Query{AmountMinor: 777, Currency: "EUR"}, []uuid.UUID{claim.Payment.ID}},
		"amount, other money":  {payment.Query{AmountMinor: 777, Currency: "USD"}, nil},
		"caller":               {payment.Query{Caller: "store-18"}, []uuid.UUID{claim.Payment.ID}},
		"in an hour":           {payment.Query{From: mine.CreatedAt.Add(hour), Until: mine.CreatedAt.Add(2 * hour)}, nil},
		"until it was created": {payment.Query{Until: mine.CreatedAt}, []uuid.UUID{claim.Payment.ID}},
		"from its creation":    {payment.Query{From: mine.CreatedAt}, []uuid.UUID{mine.ID, payout.ID}},
		"key, another time":    {payment.Query{Key: "key", Until: mine.CreatedAt}, []uuid.UUID{claim.Payment.ID}},
	} {
		found, err := l.Find(t.Context(), c.query)
		if err != nil {
			t.Fatal(err)
		}
		var got []uuid.UUID
		for _, p := range found.Payments {
			got = append(got, p.ID)
		}
		for _, f := range found.FollowUps {
			got = append(got, f.ID)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
