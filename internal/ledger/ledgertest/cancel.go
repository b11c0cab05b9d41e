package ledgertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/safeledger/safeledger/internal/payment"
)

// cancel cancels the key of Request, and expects it to be cancelled.
func cancel(ctx context.Context, t *testing.T, l Ledger, req payment.Request, original *payment.Request) payment.Cancellation {
	t.Helper()
	c, err := l.CancelByKey(ctx, req.Caller, req.Operation, req.Key, original)
	must(t, err)
	if c.Status != payment.CancelledPayment {
		t.Fatalf("cancel: status %d, want it to be cancelled", c.Status)
	}
	again, err := l.CancelByKey(ctx, req.Caller, req.Operation, req.Key, original)
	must(t, err)
	equal(t, again, c)
	return c
}

// A till that has cancelled tells its customer that nothing was taken. An original
// that arrives afterwards, from whatever queue it was in, must be told so too, and a
// wallet call would be a theft: whatever its body, because what the key was meant
// for was not known when it was cancelled.
func cancelOfAnUnseenKeyIsATombstone(ctx context.Context, t *testing.T, open Open) {
	for _, op := range []payment.Operation{payment.Debit, payment.Hold} {
		l := open(t, never)
		req := Request("unseen")
		req.Operation = op
		c := cancel(ctx, t, l, req, nil)
		want := payment.Payment{
			ID: c.Payment.ID, Caller: req.Caller, Operation: op, Reference: c.Payment.Reference,
			State: payment.Declined, Code: payment.Cancelled, CreatedAt: c.Payment.CreatedAt, DecidedAt: c.Payment.CreatedAt,
		}
		equal(t, c, payment.Cancellation{Status: payment.CancelledPayment, Payment: want})

		other := req
		other.Amount.AmountMinor++
		for _, late := range []payment.Request{req, other} {
			claim, err := l.Claim(ctx, late)
			must(t, err)
			equal(t, claim, payment.Claim{Status: payment.ClaimDecided, Payment: want})
		}
		read, found, err := l.PaymentByKey(ctx, req.Caller, op, req.Key)
		must(t, err)
		if !found {
			t.Error("a tombstone is not found by its key")
		}
		equal(t, read, want)
		got, err := l.Accept(ctx, Credit(read, "credit", 1))
		must(t, err)
		if got.Status != payment.NotRefundable {
			t.Errorf("a credit of a tombstone: status %d", got.Status)
		}
		// Another operation, and another caller, are other keys.
		other = req
		other.Caller = "store-18"
		claimNew(ctx, t, l, other)
	}
}

// A failover may have lost a claim whose debit the wallet has applied. The till that
// shows us the request again lets us find it: by the reference that is derived from
// the request, whenever it comes.
func cancelWithTheOriginalReverses(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	atOnceShown, laterShown := Request("shown at once"), Request("shown later")

	first := cancel(ctx, t, l, atOnceShown, &atOnceShown)
	cancel(ctx, t, l, laterShown, nil)
	second := cancel(ctx, t, l, laterShown, &laterShown)
	for _, c := range []payment.Cancellation{first, second} {
		reversal, found, err := l.OperationByID(ctx, c.Payment.Caller, c.Reversal)
		must(t, err)
		if !found {
			t.Fatal("the reversal is not there")
		}
		equal(t, reversal, payment.FollowUp{
			ID: c.Reversal, Kind: payment.Reversal, PaymentID: c.Payment.ID, State: payment.Pending,
			Amount: atOnceShown.Amount, CreatedAt: reversal.CreatedAt,
		})
		if c.Payment.Account != "" {
			t.Errorf("a tombstone with account %q", c.Payment.Account)
		}
	}
	equal(t, first.Payment.Reference, atOnceShown.DeriveReference())
	// Whoever repeats it with another body, or none, gets the same answer.
	other := atOnceShown
	other.Account = "ACC-1002"
	for _, original := range []*payment.Request{nil, &other} {
		again, err := l.CancelByKey(ctx, atOnceShown.Caller, atOnceShown.Operation, atOnceShown.Key, original)
		must(t, err)
		equal(t, again, first)
	}
}

// The handler of a payment that was cancelled in flight comes back with the wallet's
// approval. It must hear that it was declined, and the money must come back.
func cancelInFlightDeclinesAndReverses(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	req := Request("in flight")
	claimed := claimNew(ctx, t, l, req)

	c := cancel(ctx, t, l, req, nil)

	want := claimed
	want.State, want.Code, want.DecidedAt = payment.Declined, payment.Cancelled, c.Payment.DecidedAt
	equal(t, c.Payment, want)
	late, err := l.Decide(ctx, claimed, payment.Approve("w-1"))
	must(t, err)
	equal(t, late, want)
	replay, err := l.Claim(ctx, req)
	must(t, err)
	equal(t, replay, payment.Claim{Status: payment.ClaimDecided, Payment: want})
	read, _, err := l.PaymentByID(ctx, req.Caller, claimed.ID)
	must(t, err)
	equal(t, read.FollowUps, []payment.FollowUp{{
		ID: c.Reversal, Kind: payment.Reversal, PaymentID: claimed.ID, State: payment.Pending,
		Amount: req.Amount, CreatedAt: c.Payment.DecidedAt,
	}})
}

// Goods are handed over for an approval. Once it was cancelled nobody may be told of
// it by a replay, and the money goes back; the decision itself stays what it was.
func cancelledApprovalIsReversedAndNotTold(ctx context.Context, t *testing.T, open Open) {
	for _, op := range []payment.Operation{payment.Debit, payment.Hold} {
		l := open(t, never)
		req := Request("approved")
		req.Operation = op
		p := approve(ctx, t, l, op, req.Key)

		c := cancel(ctx, t, l, req, &req)

		equal(t, c.Payment, p)
		claim, err := l.Claim(ctx, req)
		must(t, err)
		equal(t, claim, payment.Claim{Status: payment.ClaimCancelled, Payment: p})
		other := req
		other.Amount.AmountMinor++
		claim, err = l.Claim(ctx, other)
		must(t, err)
		equal(t, claim, payment.Claim{Status: payment.ClaimMismatch})
		read, _, err := l.PaymentByKey(ctx, req.Caller, op, req.Key)
		must(t, err)
		followUps := read.FollowUps
		read.FollowUps = nil
		equal(t, read, p)
		if len(followUps) != 1 || followUps[0].ID != c.Reversal || followUps[0].Kind != payment.Reversal || followUps[0].Amount != p.Amount {
			t.Errorf("follow-ups %+v, want the reversal %s", followUps, c.Reversal)
		}
	}
}

// What is being given back as a whole must not be given back in parts besides: the
// customer would get it twice, and of a payment that a till believes undone.
func cancelledPaymentTakesNothingMore(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	for _, op := range []payment.Operation{payment.Debit, payment.Hold} {
		req := Request("approved " + payment.Key(op))
		req.Operation = op
		p := approve(ctx, t, l, op, req.Key)
		cancel(ctx, t, l, req, nil)

		asked, want := Credit(p, "credit", 1), payment.NotRefundable
		if op == payment.Hold {
			asked, want = Capture(p, "capture", 0), payment.HoldNotActive
		}
		got, err := l.Accept(ctx, asked)
		must(t, err)
		if got.Status != want {
			t.Errorf("%s of a cancelled %s: status %d, want %d", asked.Kind, op, got.Status, want)
		}
	}
}

// What has ended a hold already is what undoes it; and a capture is undone by a
// credit, which is the till's to ask for, and not by a release that fails.
func cancelOfAHoldKnowsHowItEnded(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	capture := func(p payment.Payment, key payment.Key) payment.FollowUpRequest { return Capture(p, key, 1) }
	for i, c := range []struct {
		end   func(payment.Payment, payment.Key) payment.FollowUpRequest
		state payment.FollowUpState
		code  payment.Code
		want  string
	}{
		{Release, payment.Pending, "", "the release"},
		{Release, payment.Succeeded, "", "the release"},
		{Release, payment.Parked, "", "the release"},
		{Release, payment.Refused, "ACCOUNT_LOCKED", "a reversal"},
		{capture, payment.Pending, "", "too late"},
		{capture, payment.Succeeded, "", "too late"},
		{capture, payment.Parked, "", "too late"},
		{capture, payment.Refused, "ACCOUNT_LOCKED", "a reversal"},
	} {
		req := Request(payment.Key(fmt.Sprintf("hold %d", i)))
		req.Operation = payment.Hold
		hold := approve(ctx, t, l, payment.Hold, req.Key)
		f := accept(ctx, t, l, c.end(hold, "end of "+req.Key))
		if c.state != payment.Pending {
			end(ctx, t, l, f.ID, c.state, c.code, map[bool]string{true: "w-2"}[c.state == payment.Succeeded])
		}

		got, err := l.CancelByKey(ctx, req.Caller, req.Operation, req.Key, nil)
		must(t, err)
		equal(t, got.Payment, hold)
		is := "a reversal"
		switch {
		case got.Status == payment.CancelTooLate:
			is = "too late"
		case got.Reversal == f.ID:
			is = "the release"
		}
		if is != c.want {
			t.Errorf("%s that is %s: status %d, %s, want %s", f.Kind, c.state, got.Status, is, c.want)
		}
		again, err := l.CancelByKey(ctx, req.Caller, req.Operation, req.Key, nil)
		must(t, err)
		equal(t, again, got)
		// Whatever undoes it: what was cancelled is not told as approved any more.
		told := payment.ClaimCancelled
		if got.Status == payment.CancelTooLate {
			told = payment.ClaimDecided
		}
		claim, err := l.Claim(ctx, req)
		must(t, err)
		equal(t, claim, payment.Claim{Status: told, Payment: hold})
	}
}

// A hold that was released is not cancelled: whoever replays its request is told what
// he was told. And one that was cancelled takes nothing more, even if the wallet
// refuses the release that was to undo it: that is parked, because the money is still
// held and somebody must look; asked again, the cancel answers the same.
func cancelledHoldTakesNothingMore(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	for refusal, want := range map[payment.Code]payment.FollowUpState{
		"ACCOUNT_LOCKED":  payment.Parked,
		"HOLD_NOT_ACTIVE": payment.Succeeded, // nothing is held, which is all that was wanted
	} {
		req := Request("hold of " + payment.Key(refusal))
		req.Operation = payment.Hold
		hold := approve(ctx, t, l, payment.Hold, req.Key)
		release := accept(ctx, t, l, Release(hold, "release of "+payment.Key(refusal)))
		claim, err := l.Claim(ctx, req)
		must(t, err)
		equal(t, claim, payment.Claim{Status: payment.ClaimDecided, Payment: hold})

		if c := cancel(ctx, t, l, req, nil); c.Reversal != release.ID {
			t.Errorf("undone by %s, want the release %s", c.Reversal, release.ID)
		}
		end(ctx, t, l, release.ID, payment.Refused, refusal, "")

		got, err := l.Accept(ctx, Capture(hold, "capture of "+payment.Key(refusal), 0))
		must(t, err)
		if got.Status != payment.HoldNotActive {
			t.Errorf("a capture: status %d", got.Status)
		}
		if c := cancel(ctx, t, l, req, nil); c.Reversal != release.ID {
			t.Errorf("asked again, undone by %s, want the release %s", c.Reversal, release.ID)
		}
		ended, _, err := l.OperationByID(ctx, hold.Caller, release.ID)
		must(t, err)
		if ended.State != want {
			t.Errorf("refused with %s, the release is %s, want %s", refusal, ended.State, want)
		}
	}
}

// A decline is a decline already. Its reversal, where it has one, goes on.
func cancelOfADeclineIsTheDecline(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	for _, d := range []payment.Decision{payment.Decline("ACCOUNT_LOCKED"), payment.DeclineAndReverse(payment.WalletTimeout)} {
		req := Request(payment.Key(d.Code))
		stored, err := l.Decide(ctx, claimNew(ctx, t, l, req), d)
		must(t, err)

		c := cancel(ctx, t, l, req, nil)

		equal(t, c.Payment, stored)
		read, _, err := l.PaymentByID(ctx, req.Caller, stored.ID)
		must(t, err)
		if len(read.FollowUps) != reversals(d) {
			t.Fatalf("%d follow-ups after the cancel of a %s", len(read.FollowUps), d.Code)
		}
		if d.Reverse && c.Reversal != read.FollowUps[0].ID {
			t.Errorf("reversal %s, want %s", c.Reversal, read.FollowUps[0].ID)
		}
	}
}

// A cancel with somebody else's body is a till that has mixed up its keys: nothing
// may be undone for it.
func cancelWithAnotherBodyIsRefused(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	for name, before := range map[payment.Key]func(payment.Payment){
		"in flight": func(payment.Payment) {},
		"approved": func(p payment.Payment) {
			_, err := l.Decide(ctx, p, payment.Approve("w-1"))
			must(t, err)
		},
		"declined": func(p payment.Payment) {
			_, err := l.Decide(ctx, p, payment.Decline("ACCOUNT_LOCKED"))
			must(t, err)
		},
	} {
		req := Request(name)
		claimed := claimNew(ctx, t, l, req)
		before(claimed)
		stored, _, err := l.PaymentByID(ctx, req.Caller, claimed.ID)
		must(t, err)
		other := req
		other.Amount.AmountMinor++
		got, err := l.CancelByKey(ctx, req.Caller, req.Operation, req.Key, &other)
		must(t, err)
		equal(t, got, payment.Cancellation{Status: payment.CancelUnknownBody})
		read, _, err := l.PaymentByID(ctx, req.Caller, claimed.ID)
		must(t, err)
		equal(t, read, stored)
	}
}

// Cancel, claim and decision meet in every order. Whatever wins, the till that was
// told "cancelled" pays nothing: either no wallet call is made, or it is reversed.
func cancelRacesHaveOneOutcome(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	for i := range 20 {
		req := Request(payment.Key("raced-" + string(rune('a'+i))))
		var claim payment.Claim
		var decided payment.Payment
		var answers [2]payment.Cancellation
		atOnce(3, func(i int) {
			var err error
			switch i {
			case 0, 1:
				answers[i], err = l.CancelByKey(ctx, req.Caller, req.Operation, req.Key, nil)
			case 2:
				claim, err = l.Claim(ctx, req)
				if err == nil && claim.Status == payment.ClaimNew {
					decided, err = l.Decide(ctx, claim.Payment, payment.Approve("w-1"))
				}
			}
			if err != nil {
				t.Errorf("racer %d: %v", i, err)
			}
		})

		read, found, err := l.PaymentByKey(ctx, req.Caller, req.Operation, req.Key)
		must(t, err)
		if !found {
			t.Fatal("the key is gone")
		}
		equal(t, answers[0].Reversal, answers[1].Reversal)
		called := claim.Status == payment.ClaimNew
		if want := map[bool]int{true: 1}[called]; len(read.FollowUps) != want {
			t.Errorf("%d reversals, the wallet was called: %v", len(read.FollowUps), called)
		}
		if called && decided.State != read.State {
			t.Errorf("told %s, stored %s", decided.State, read.State)
		}
	}
}
