// Package ledgertest is what every ledger must do, as a suite: the PostgreSQL one
// and the one in memory are both run through it, so that tests which use the
// latter prove something about the former.
package ledgertest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// Ledger is what the suite asks of a ledger.
type Ledger interface {
	Claim(ctx context.Context, req payment.Request) (payment.Claim, error)
	Decide(ctx context.Context, p payment.Payment, d payment.Decision) (payment.Payment, error)
	PaymentByID(ctx context.Context, caller string, id uuid.UUID) (payment.Payment, bool, error)
	PaymentByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key) (payment.Payment, bool, error)
	Recover(ctx context.Context) (int, error)
	Exposures(ctx context.Context) ([]payment.Exposure, error)

	Accept(ctx context.Context, req payment.FollowUpRequest) (payment.Acceptance, error)
	CancelByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key, original *payment.Request) (payment.Cancellation, error)
	OperationByID(ctx context.Context, caller string, id uuid.UUID) (payment.FollowUp, bool, error)
	OperationByKey(ctx context.Context, caller string, kind payment.Operation, key payment.Key) (payment.FollowUp, bool, error)

	Lease(ctx context.Context, order payment.LeaseOrder) ([]payment.Work, error)
	Settle(ctx context.Context, s payment.Settlement) (bool, error)
	HandBack(ctx context.Context, w payment.Work) error

	Parked(ctx context.Context, limit int) ([]payment.FollowUpDetail, error)
	Timeline(ctx context.Context, id uuid.UUID) (payment.Timeline, bool, error)
	Redrive(ctx context.Context, id uuid.UUID, operator, reason string) (payment.OperatorResult, error)
	SettleByHand(ctx context.Context, id uuid.UUID, applied bool, operator, reason string) (payment.OperatorResult, error)
}

// Open makes an empty ledger that recovers what is in flight for longer than
// horizon.
type Open func(t *testing.T, horizon time.Duration) Ledger

const (
	// never is a horizon that no test reaches.
	never = time.Hour
	// soon is one that is over by the time that a test asks again a few times.
	soon = time.Millisecond
	// patience bounds every test: nothing here may take long.
	patience = 30 * time.Second
)

// Request is a request for a debit, complete but for what a test is about.
func Request(key payment.Key) payment.Request {
	return payment.Request{
		Caller:        "store-17",
		Operation:     payment.Debit,
		Key:           key,
		Account:       "ACC-1001",
		Amount:        payment.Money{AmountMinor: 1250, Currency: "EUR"},
		TillReference: "receipt 4711",
		Metadata:      map[string]string{"lane": "3"},
	}
}

// Run runs the suite.
func Run(t *testing.T, open Open) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(context.Context, *testing.T, Open)
	}{
		{"FirstClaimOwnsTheKey", firstClaimOwnsTheKey},
		{"OneOfManyClaimsOwnsTheKey", oneOfManyClaimsOwnsTheKey},
		{"DuplicateOfWhatIsInFlightIsToldSo", duplicateOfWhatIsInFlight},
		{"ReplayIsTheFirstAnswer", replayIsTheFirstAnswer},
		{"MismatchOutranksEveryState", mismatchOutranksEveryState},
		{"CallersAndOperationsDoNotShareKeys", callersAndOperationsDoNotShareKeys},
		{"FirstDecisionStays", firstDecisionStays},
		{"OneOfManyDecisionsIsStored", oneOfManyDecisionsIsStored},
		{"ReversalComesWithTheDeclineThatAsksForIt", reversalComesWithTheDecline},
		{"ImpossibleDecisionIsRefused", impossibleDecisionIsRefused},
		{"UnknownPaymentCannotBeDecided", unknownPaymentCannotBeDecided},
		{"PaymentsOfOthersDoNotExist", paymentsOfOthersDoNotExist},
		{"WhatIsInFlightIsLeftAlone", whatIsInFlightIsLeftAlone},
		{"SweepDeclinesTheOverdueOnce", sweepDeclinesTheOverdueOnce},
		{"WhoeverMeetsTheOverdueDeclinesIt", whoeverMeetsTheOverdue},
		{"DecisionAndRecoveryHaveOneWinner", decisionAndRecoveryHaveOneWinner},
		{"OpenMoneyIsSummedByKindStateAndCurrency", openMoneyIsSummed},
		{"IDsAreInTheOrderOfCreation", idsAreInOrder},
		{"AcceptedFollowUpIsWhatWasAsked", acceptedFollowUpIsWhatWasAsked},
		{"AcceptedKeyIsReplayedOrRefused", acceptedKeyIsReplayedOrRefused},
		{"OneOfManyAcceptsOwnsTheKey", oneOfManyAcceptsOwnsTheKey},
		{"PaymentTakesWhatItCan", paymentTakesWhatItCan},
		{"ValuesMustFitThePayment", valuesMustFitThePayment},
		{"HoldEndsOnce", holdEndsOnce},
		{"CreditsNeverExceedTheirPayment", creditsNeverExceed},
		{"FollowUpsOfOthersDoNotExist", followUpsOfOthersDoNotExist},
		{"AcceptMeetsTheOverdue", acceptMeetsTheOverdue},
		{"CancelOfAnUnseenKeyIsATombstone", cancelOfAnUnseenKeyIsATombstone},
		{"CancelWithTheOriginalReverses", cancelWithTheOriginalReverses},
		{"CancelInFlightDeclinesAndReverses", cancelInFlightDeclinesAndReverses},
		{"CancelledApprovalIsReversedAndNotTold", cancelledApprovalIsReversedAndNotTold},
		{"CancelledPaymentTakesNothingMore", cancelledPaymentTakesNothingMore},
		{"CancelOfAHoldKnowsHowItEnded", cancelOfAHoldKnowsHowItEnded},
		{"CancelledHoldTakesNothingMore", cancelledHoldTakesNothingMore},
		{"CancelOfADeclineIsTheDecline", cancelOfADeclineIsTheDecline},
		{"CancelWithAnotherBodyIsRefused", cancelWithAnotherBodyIsRefused},
		{"CancelRacesHaveOneOutcome", cancelRacesHaveOneOutcome},
		{"LeaseTellsAllThatAnAttemptNeeds", leaseTellsAll},
		{"ReversalKnowsWhatCreditsHaveGivenBack", reversalKnowsItsCredits},
		{"ReplicasShareTheQueue", replicasShareTheQueue},
		{"NothingIsEarlyAndTheOldestIsFirst", nothingIsEarly},
		{"LeaseKeepsToItsAllowances", leaseKeepsToItsAllowances},
		{"BacklogIsStillAFirstAttempt", backlogIsStillAFirstAttempt},
		{"ClassesShareALease", classesShareALease},
		{"NoClassStarvesWhereOneIsAskedFor", noClassStarves},
		{"RunOutLeaseIsTakenOverAndTheOldOneIsFenced", runOutLeaseIsTakenOver},
		{"WhatWasTakenOverGoesBeforeABacklogOfLookups", takenOverGoesFirst},
		{"SettlementIsWhatTheNextAttemptFinds", settlementIsWhatTheNextFinds},
		{"ImpossibleSettlementIsRefused", impossibleSettlementIsRefused},
		{"DoubtIsRememberedWithItsTime", doubtIsRemembered},
		{"ReversalThatFoundNothingIsReopened", reversalIsReopened},
		{"ReversalOfATombstoneKnowsWhatItIsAbout", reversalOfATombstone},
		{"EveryReversalIsWorkAtOnce", everyReversalIsWork},
		{"CallsOfWhoCameLateAreKept", callsOfWhoCameLate},
		{"TimelineTellsWhatHappened", timelineTells},
		{"RedriveIsTheSameWorkAgain", redriveIsTheSameWork},
		{"SettlingByHandKeepsOrGivesBack", settlingByHand},
		{"WhoseTimeIsUpGetsAnError", whoseTimeIsUp},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			test.run(ctx, t, open)
		})
	}
}

// A claim that came back with something else than was asked for would charge the
// wrong account.
func firstClaimOwnsTheKey(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	req := Request("first")

	claim := claimNew(ctx, t, l, req)

	want := payment.Payment{
		ID: claim.ID, Caller: req.Caller, Operation: req.Operation,
		Account: req.Account, Amount: req.Amount, TillReference: req.TillReference, Metadata: req.Metadata,
		Reference: req.DeriveReference(), State: payment.InFlight, CreatedAt: claim.CreatedAt,
	}
	equal(t, claim, want)
	if claim.ID.Version() != 7 || claim.ID.Variant() != uuid.RFC4122 {
		t.Errorf("id %s is not a UUIDv7", claim.ID)
	}
	if claim.CreatedAt.IsZero() || claim.CreatedAt.Location() != time.UTC {
		t.Errorf("created at %v, not a time in UTC", claim.CreatedAt)
	}
}

// Two owners are two debits (field report A1).
func oneOfManyClaimsOwnsTheKey(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	const many = 50

	statuses := make([]payment.ClaimStatus, many)
	atOnce(many, func(i int) {
		claim, err := l.Claim(ctx, Request("contended"))
		if err != nil {
			t.Errorf("claim: %v", err)
		}
		statuses[i] = claim.Status
	})

	counts := map[payment.ClaimStatus]int{}
	for _, s := range statuses {
		counts[s]++
	}
	equal(t, counts, map[payment.ClaimStatus]int{payment.ClaimNew: 1, payment.ClaimInFlight: many - 1})
}

// A duplicate that went on would send a second debit, and one that waited would
// hold a till's connection for as long as the wallet is slow.
func duplicateOfWhatIsInFlight(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	first := claimNew(ctx, t, l, Request("twice"))

	second, err := l.Claim(ctx, Request("twice"))
	must(t, err)

	equal(t, second, payment.Claim{Status: payment.ClaimInFlight, Payment: first})
}

// A replay that differs from the first answer tells a till something that was
// never decided (field reports A18, A23).
func replayIsTheFirstAnswer(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	bare := Request("bare")
	bare.TillReference, bare.Metadata = "", nil
	emptyMetadata := Request("empty metadata")
	emptyMetadata.Metadata = map[string]string{}
	awkward := Request(payment.Key(strings.Repeat("~", payment.MaxKeyLength)))
	awkward.Operation = payment.Hold
	awkward.Account = "A.b_c:d-9"
	awkward.TillReference = `Zürich "2" \ <b>&amp; 雪☃ 👛 %s '; --`
	awkward.Metadata = map[string]string{"": "", "ключ": "значение", `"\`: "<&>\u2028", "n\u0303": "ñ", "e": "é"}
	largest := Request("largest")
	largest.Amount = payment.Money{AmountMinor: payment.MaxAmountMinor, Currency: "JPY"}
	smallest := Request("018f4e5a-7c3b-7d2e-9f10-0123456789ab")
	smallest.Amount = payment.Money{AmountMinor: 1, Currency: "KWD"}

	for _, req := range []payment.Request{bare, emptyMetadata, awkward, largest, smallest} {
		for _, d := range []payment.Decision{
			payment.Approve("w-8c1f"), payment.Decline("INSUFFICIENT_FUNDS"), payment.DeclineAndReverse(payment.WalletTimeout),
		} {
			req.Caller = "store-" + string(d.Code)
			claimed := claimNew(ctx, t, l, req)
			decided, err := l.Decide(ctx, claimed, d)
			must(t, err)

			want := claimed
			want.State, want.Code, want.WalletID, want.DecidedAt = d.State, d.Code, d.WalletID, decided.DecidedAt
			equal(t, decided, want)
			if decided.DecidedAt.Before(decided.CreatedAt) || decided.DecidedAt.Location() != time.UTC {
				t.Errorf("decided at %v, created at %v", decided.DecidedAt, decided.CreatedAt)
			}
			for range 2 {
				replay, err := l.Claim(ctx, req)
				must(t, err)
				equal(t, replay, payment.Claim{Status: payment.ClaimDecided, Payment: decided})
			}
			read, found, err := l.PaymentByKey(ctx, req.Caller, req.Operation, req.Key)
			must(t, err)
			read.FollowUps = nil
			if !found {
				t.Error("not found by its key")
			}
			equal(t, read, decided)
		}
	}
}

// A key that is used for another request must never be answered with the first
// one's decision, and "in flight" would make a till wait for it.
func mismatchOutranksEveryState(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	req := Request("reused")
	other := req
	other.Amount.AmountMinor++
	withoutMetadata := req
	withoutMetadata.Metadata = nil
	mismatch := func(state string) {
		t.Helper()
		for _, r := range []payment.Request{other, withoutMetadata} {
			got, err := l.Claim(ctx, r)
			must(t, err)
			if got.Status != payment.ClaimMismatch {
				t.Errorf("%s: claim status %d, want a mismatch", state, got.Status)
			}
			equal(t, got.Payment, payment.Payment{})
		}
	}

	first := claimNew(ctx, t, l, req)
	mismatch("in flight")
	_, err := l.Decide(ctx, first, payment.Approve("w-1"))
	must(t, err)
	mismatch("decided")
}

// A key that another caller, or the same one for another operation, has used must
// not suppress a payment (field reports A11, A13).
func callersAndOperationsDoNotShareKeys(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	mine := Request("shared")
	theirs := mine
	theirs.Caller = "store-18"
	hold := mine
	hold.Operation = payment.Hold

	references := map[payment.Reference]bool{}
	for _, req := range []payment.Request{mine, theirs, hold} {
		references[claimNew(ctx, t, l, req).Reference] = true
	}
	if len(references) != 3 {
		t.Errorf("%d references for 3 payments", len(references))
	}
}

// A decision that changed after a till was told would be two answers to one
// payment: a handler that comes back late must hear what was decided without it.
func firstDecisionStays(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	decisions := []payment.Decision{
		payment.Approve("w-1"), payment.Approve("w-2"), payment.Decline("ACCOUNT_LOCKED"),
		payment.DeclineAndReverse(payment.WalletTimeout),
	}
	for i, first := range decisions {
		claimed := claimNew(ctx, t, l, Request(payment.Key("decided-"+string(rune('a'+i)))))
		stored, err := l.Decide(ctx, claimed, first)
		must(t, err)
		for _, later := range decisions {
			got, err := l.Decide(ctx, claimed, later)
			must(t, err)
			equal(t, got, stored)
		}
		read, _, err := l.PaymentByID(ctx, claimed.Caller, claimed.ID)
		must(t, err)
		if got, want := len(read.FollowUps), reversals(first); got != want {
			t.Errorf("%d follow-ups after %+v and others too late, want %d", got, first, want)
		}
	}
}

// The same, when they come at once.
func oneOfManyDecisionsIsStored(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	claimed := claimNew(ctx, t, l, Request("decided at once"))
	decisions := []payment.Decision{
		payment.Approve("w-1"), payment.Decline("ACCOUNT_LOCKED"), payment.DeclineAndReverse(payment.WalletTimeout),
		payment.Approve("w-2"), payment.Decline("INSUFFICIENT_FUNDS"), payment.DeclineAndReverse(payment.WalletUnavailable),
	}

	stored := make([]payment.Payment, len(decisions))
	atOnce(len(decisions), func(i int) {
		var err error
		stored[i], err = l.Decide(ctx, claimed, decisions[i])
		if err != nil {
			t.Errorf("decide: %v", err)
		}
	})

	for _, s := range stored {
		equal(t, s, stored[0])
	}
	winner := slices.IndexFunc(decisions, func(d payment.Decision) bool {
		return d.State == stored[0].State && d.Code == stored[0].Code && d.WalletID == stored[0].WalletID
	})
	if winner < 0 {
		t.Fatalf("stored %+v, which nobody decided", stored[0])
	}
	read, _, err := l.PaymentByID(ctx, claimed.Caller, claimed.ID)
	must(t, err)
	if got, want := len(read.FollowUps), reversals(decisions[winner]); got != want {
		t.Errorf("%d follow-ups after %+v, want %d", got, decisions[winner], want)
	}
}

// A decline without its reversal keeps a customer's money; a reversal that nobody
// asked for gives away somebody else's.
func reversalComesWithTheDecline(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	for _, d := range []payment.Decision{
		payment.Approve("w-1"), payment.Decline("INSUFFICIENT_FUNDS"), payment.Decline(payment.WalletUnavailable),
		payment.DeclineAndReverse(payment.WalletUnavailable), payment.DeclineAndReverse(payment.WalletTimeout),
		payment.DeclineAndReverse("ACCOUNT_NOT_FOUND"),
	} {
		req := Request(payment.Key(string(d.Code) + d.WalletID))
		req.Caller = map[bool]string{true: "reversed", false: "plain"}[d.Reverse]
		claimed := claimNew(ctx, t, l, req)
		decided, err := l.Decide(ctx, claimed, d)
		must(t, err)
		read, found, err := l.PaymentByID(ctx, req.Caller, claimed.ID)
		must(t, err)
		if !found {
			t.Fatal("a decided payment is not found")
		}

		var want []payment.FollowUp
		if d.Reverse {
			if len(read.FollowUps) != 1 {
				t.Fatalf("%d follow-ups after %+v, want its reversal", len(read.FollowUps), d)
			}
			want = []payment.FollowUp{{
				ID: read.FollowUps[0].ID, Kind: payment.Reversal, PaymentID: claimed.ID,
				State: payment.Pending, Amount: req.Amount, CreatedAt: decided.DecidedAt,
			}}
		}
		equal(t, read.FollowUps, want)
	}
}

// What would be stored half (an approval without the wallet's id could never be
// reversed) must not be stored at all.
func impossibleDecisionIsRefused(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	claimed := claimNew(ctx, t, l, Request("impossible"))
	for _, d := range []payment.Decision{
		{},
		{State: payment.InFlight},
		{State: payment.Approved},
		{State: payment.Approved, WalletID: "w-1", Code: payment.WalletTimeout},
		{State: payment.Approved, WalletID: "w-1", Reverse: true},
		{State: payment.Declined},
		{State: payment.Declined, Reverse: true},
		{State: payment.Declined, Code: payment.WalletTimeout, WalletID: "w-1", Reverse: true},
	} {
		if stored, err := l.Decide(ctx, claimed, d); err == nil {
			t.Errorf("%+v was stored as %+v", d, stored)
		}
	}
	read, _, err := l.PaymentByID(ctx, claimed.Caller, claimed.ID)
	must(t, err)
	equal(t, read, claimed)
}

// A claim that a failover has lost cannot be decided: to say otherwise would tell
// a till of an approval that is stored nowhere.
func unknownPaymentCannotBeDecided(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	if p, err := l.Decide(ctx, payment.Payment{ID: uuid.Must(uuid.NewV7())}, payment.Approve("w-1")); err == nil {
		t.Errorf("a payment that is not there was decided: %+v", p)
	}
}

// One shop must not learn what another one sells.
func paymentsOfOthersDoNotExist(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	req := Request("mine")
	claimed := claimNew(ctx, t, l, req)

	mine, found, err := l.PaymentByID(ctx, req.Caller, claimed.ID)
	must(t, err)
	if !found {
		t.Error("not found by id")
	}
	equal(t, mine, claimed)
	mine, found, err = l.PaymentByKey(ctx, req.Caller, req.Operation, req.Key)
	must(t, err)
	if !found {
		t.Error("not found by key")
	}
	equal(t, mine, claimed)

	type lookup func() (payment.Payment, bool, error)
	for name, look := range map[string]lookup{
		"another caller's, by id":  func() (payment.Payment, bool, error) { return l.PaymentByID(ctx, "store-18", claimed.ID) },
		"another caller's, by key": func() (payment.Payment, bool, error) { return l.PaymentByKey(ctx, "store-18", req.Operation, req.Key) },
		"another operation's":      func() (payment.Payment, bool, error) { return l.PaymentByKey(ctx, req.Caller, payment.Hold, req.Key) },
		"another key's":            func() (payment.Payment, bool, error) { return l.PaymentByKey(ctx, req.Caller, req.Operation, "Mine") },
		"nobody's":                 func() (payment.Payment, bool, error) { return l.PaymentByID(ctx, req.Caller, uuid.New()) },
	} {
		p, found, err := look()
		must(t, err)
		if found {
			t.Errorf("%s payment was found", name)
		}
		equal(t, p, payment.Payment{})
	}
}

// Recovery that came early would decline payments whose wallet is about to answer.
func whatIsInFlightIsLeftAlone(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	claimed := claimNew(ctx, t, l, Request("young"))

	n, err := l.Recover(ctx)
	must(t, err)
	if n != 0 {
		t.Errorf("%d payments were recovered", n)
	}
	again, err := l.Claim(ctx, Request("young"))
	must(t, err)
	equal(t, again, payment.Claim{Status: payment.ClaimInFlight, Payment: claimed})
	read, _, err := l.PaymentByID(ctx, claimed.Caller, claimed.ID)
	must(t, err)
	equal(t, read, claimed)
}

// A payment whose replica died would stay in flight for ever, and its key with it
// (field report A6); one that was recovered twice would be reversed twice.
func sweepDeclinesTheOverdueOnce(ctx context.Context, t *testing.T, open Open) {
	l := open(t, soon)
	const some = 5
	var abandoned []payment.Payment
	for i := range some {
		abandoned = append(abandoned, claimNew(ctx, t, l, Request(payment.Key("abandoned-"+string(rune('a'+i))))))
	}
	approved := claimNew(ctx, t, l, Request("approved"))
	stored, err := l.Decide(ctx, approved, payment.Approve("w-1"))
	must(t, err)

	recovered := 0
	for recovered < some {
		n, err := l.Recover(ctx)
		must(t, err)
		recovered += n
	}
	if n, err := l.Recover(ctx); recovered != some || n != 0 || err != nil {
		t.Errorf("%d were recovered, then %d (%v), want %d and 0", recovered, n, err, some)
	}
	for _, p := range abandoned {
		recoveredPayment(ctx, t, l, p)
		// The handler comes back from wherever it was.
		late, err := l.Decide(ctx, p, payment.Approve("w-2"))
		must(t, err)
		if late.State != payment.Declined || late.Code != payment.WalletTimeout {
			t.Errorf("a late handler hears %s %s", late.State, late.Code)
		}
	}
	read, _, err := l.PaymentByID(ctx, approved.Caller, approved.ID)
	must(t, err)
	equal(t, read, stored)
}

// Nobody should wait for a sweep to hear what became of his payment.
func whoeverMeetsTheOverdue(ctx context.Context, t *testing.T, open Open) {
	l := open(t, soon)
	for name, meet := range map[string]func(payment.Payment) payment.State{
		"claim": func(p payment.Payment) payment.State {
			claim, err := l.Claim(ctx, Request("claim"))
			must(t, err)
			if claim.Status == payment.ClaimDecided {
				return claim.Payment.State
			}
			return payment.InFlight
		},
		"id": func(p payment.Payment) payment.State {
			read, _, err := l.PaymentByID(ctx, p.Caller, p.ID)
			must(t, err)
			return read.State
		},
		"key": func(p payment.Payment) payment.State {
			read, _, err := l.PaymentByKey(ctx, p.Caller, p.Operation, "key")
			must(t, err)
			return read.State
		},
	} {
		abandoned := claimNew(ctx, t, l, Request(payment.Key(name)))
		for meet(abandoned) == payment.InFlight {
			must(t, ctx.Err())
		}
		recoveredPayment(ctx, t, l, abandoned)
	}
}

// Two winners are an approval that was told and then reversed.
func decisionAndRecoveryHaveOneWinner(ctx context.Context, t *testing.T, open Open) {
	l := open(t, soon)
	for i := range 20 {
		claimed := claimNew(ctx, t, l, Request(payment.Key("raced-"+string(rune('a'+i)))))
		var told payment.Payment
		atOnce(3, func(i int) {
			var err error
			switch i {
			case 0:
				told, err = l.Decide(ctx, claimed, payment.Approve("w-1"))
			case 1:
				_, err = l.Recover(ctx)
			case 2:
				_, _, err = l.PaymentByID(ctx, claimed.Caller, claimed.ID)
			}
			if err != nil {
				t.Errorf("racer %d: %v", i, err)
			}
		})

		read, _, err := l.PaymentByID(ctx, claimed.Caller, claimed.ID)
		must(t, err)
		followUps := read.FollowUps
		read.FollowUps = nil
		equal(t, told, read)
		if want := map[payment.State]int{payment.Approved: 0, payment.Declined: 1}[read.State]; len(followUps) != want {
			t.Errorf("%s with %d follow-ups, want %d", read.State, len(followUps), want)
		}
	}
}

// Money that is out and that nobody sees is found by the auditors.
func openMoneyIsSummed(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	none, err := l.Exposures(ctx)
	must(t, err)
	if len(none) != 0 {
		t.Errorf("open reversals of an empty ledger: %+v", none)
	}
	for _, d := range []struct {
		key      payment.Key
		amount   payment.Money
		decision payment.Decision
	}{
		{"1", payment.Money{AmountMinor: 700, Currency: "EUR"}, payment.DeclineAndReverse(payment.WalletTimeout)},
		{"2", payment.Money{AmountMinor: payment.MaxAmountMinor, Currency: "EUR"}, payment.DeclineAndReverse(payment.WalletUnavailable)},
		{"3", payment.Money{AmountMinor: 500, Currency: "JPY"}, payment.DeclineAndReverse(payment.WalletTimeout)},
		{"4", payment.Money{AmountMinor: 900, Currency: "EUR"}, payment.Decline("ACCOUNT_LOCKED")},
		{"5", payment.Money{AmountMinor: 900, Currency: "USD"}, payment.Approve("w-1")},
	} {
		req := Request(d.key)
		req.Amount = d.amount
		_, err := l.Decide(ctx, claimNew(ctx, t, l, req), d.decision)
		must(t, err)
	}

	got, err := l.Exposures(ctx)
	must(t, err)
	for i := range got {
		if got[i].OldestAge < 0 || got[i].OldestAge > patience {
			t.Errorf("the oldest reversal in %s is %v old", got[i].Currency, got[i].OldestAge)
		}
		got[i].OldestAge = 0
	}
	equal(t, got, []payment.Exposure{
		{Kind: payment.Reversal, State: payment.Pending, Currency: "EUR", Count: 2, AmountMinor: payment.MaxAmountMinor + 700},
		{Kind: payment.Reversal, State: payment.Pending, Currency: "JPY", Count: 1, AmountMinor: 500},
	})
}

// Recovery searches by id what it judges by time.
func idsAreInOrder(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	var before payment.Payment
	for i := range 20 {
		p := claimNew(ctx, t, l, Request(payment.Key("ordered-"+string(rune('a'+i)))))
		if p.CreatedAt.After(before.CreatedAt) && p.ID.String() <= before.ID.String() {
			t.Errorf("%s at %v follows %s at %v", p.ID, p.CreatedAt, before.ID, before.CreatedAt)
		}
		sec, nsec := p.ID.Time().UnixTime()
		if got := time.Unix(sec, nsec).UTC(); got.Truncate(time.Millisecond) != p.CreatedAt.Truncate(time.Millisecond) {
			t.Errorf("the id of a payment of %v says %v", p.CreatedAt, got)
		}
		before = p
	}
}

// An answer after the deadline is an answer to nobody; a nil error would make the
// handler go on and call the wallet.
func whoseTimeIsUp(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	claimed := claimNew(ctx, t, l, Request("in time"))
	over, cancel := context.WithTimeout(ctx, 0)
	defer cancel()

	if claim, err := l.Claim(over, Request("too late")); err == nil {
		t.Errorf("claimed without time: %+v", claim)
	}
	if p, err := l.Decide(over, claimed, payment.Approve("w-1")); err == nil {
		t.Errorf("decided without time: %+v", p)
	}
	if _, _, err := l.PaymentByID(over, claimed.Caller, claimed.ID); err == nil {
		t.Error("read without time")
	}
	if _, err := l.Recover(over); err == nil {
		t.Error("recovered without time")
	}
	if work, err := l.Lease(over, everything(1)); err == nil {
		t.Errorf("leased without time: %+v", work)
	}
	if _, err := l.Settle(over, payment.Settlement{ID: claimed.ID, State: payment.Succeeded}); err == nil {
		t.Error("settled without time")
	}
}

func claimNew(ctx context.Context, t *testing.T, l Ledger, req payment.Request) payment.Payment {
	t.Helper()
	claim, err := l.Claim(ctx, req)
	must(t, err)
	if claim.Status != payment.ClaimNew {
		t.Fatalf("claim status %d, want the key to be ours", claim.Status)
	}
	return claim.Payment
}

// recoveredPayment checks that p was declined by recovery, with one reversal.
func recoveredPayment(ctx context.Context, t *testing.T, l Ledger, p payment.Payment) {
	t.Helper()
	read, found, err := l.PaymentByID(ctx, p.Caller, p.ID)
	must(t, err)
	if !found || len(read.FollowUps) != 1 {
		t.Fatalf("found: %v, with %d follow-ups, want one", found, len(read.FollowUps))
	}
	want := p
	want.State, want.Code, want.DecidedAt = payment.Declined, payment.WalletTimeout, read.DecidedAt
	want.FollowUps = []payment.FollowUp{{
		ID: read.FollowUps[0].ID, Kind: payment.Reversal, PaymentID: p.ID,
		State: payment.Pending, Amount: p.Amount, CreatedAt: read.DecidedAt,
	}}
	equal(t, read, want)
}

// reversals is how many a decision brings with it.
func reversals(d payment.Decision) int {
	if d.Reverse {
		return 1
	}
	return 0
}

// atOnce runs f(0) to f(n-1), none before all are ready.
func atOnce(n int, f func(int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func equal[T any](t *testing.T, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
