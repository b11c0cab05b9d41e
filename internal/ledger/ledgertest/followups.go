package ledgertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// Credit is a request for a credit of what p took.
func Credit(p payment.Payment, key payment.Key, amountMinor int64) payment.FollowUpRequest {
	return payment.FollowUpRequest{
		Caller: p.Caller, Kind: payment.Credit, Key: key, PaymentID: p.ID, Of: p.Operation,
		Account: p.Account, Amount: payment.Money{AmountMinor: amountMinor, Currency: p.Amount.Currency},
		TillReference: "refund 4712", Metadata: map[string]string{"lane": "3"},
	}
}

// Capture is a request to capture hold, 0 for the whole of it.
func Capture(hold payment.Payment, key payment.Key, amountMinor int64) payment.FollowUpRequest {
	return payment.FollowUpRequest{
		Caller: hold.Caller, Kind: payment.Capture, Key: key, PaymentID: hold.ID, Of: payment.Hold,
		Amount: payment.Money{AmountMinor: amountMinor},
	}
}

// Release is a request to release hold.
func Release(hold payment.Payment, key payment.Key) payment.FollowUpRequest {
	return payment.FollowUpRequest{Caller: hold.Caller, Kind: payment.Release, Key: key, PaymentID: hold.ID, Of: payment.Hold}
}

// A 202 that is not what was asked for sends the money elsewhere; and what a till
// reads back must be what it was told.
func acceptedFollowUpIsWhatWasAsked(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	debit, hold, other := approve(ctx, t, l, payment.Debit, "debit"), approve(ctx, t, l, payment.Hold, "hold"), approve(ctx, t, l, payment.Hold, "other")
	payout := Credit(debit, "payout", payment.MaxAmountMinor)
	payout.PaymentID, payout.Of, payout.TillReference, payout.Metadata = uuid.Nil, "", "", map[string]string{}
	whole := payment.Money{AmountMinor: hold.Amount.AmountMinor, Currency: hold.Amount.Currency}

	for _, c := range []struct {
		req  payment.FollowUpRequest
		want payment.FollowUp
	}{
		{Credit(debit, "credit", 250), payment.FollowUp{
			Account: debit.Account, Amount: payment.Money{AmountMinor: 250, Currency: "EUR"}, TillReference: "refund 4712", Metadata: map[string]string{"lane": "3"},
		}},
		{payout, payment.FollowUp{Account: debit.Account, Amount: payout.Amount, Metadata: map[string]string{}}},
		{Capture(hold, "capture", 0), payment.FollowUp{Amount: whole}},
		{Release(other, "release"), payment.FollowUp{}},
	} {
		got, err := l.Accept(ctx, c.req)
		must(t, err)
		want := c.want
		want.ID, want.Kind, want.PaymentID, want.State, want.CreatedAt = got.FollowUp.ID, c.req.Kind, c.req.PaymentID, payment.Pending, got.FollowUp.CreatedAt
		equal(t, got, payment.Acceptance{Status: payment.Accepted, FollowUp: want})
		if got.FollowUp.ID.Version() != 7 || got.FollowUp.CreatedAt.Location() != time.UTC {
			t.Errorf("%s: id %s of %v", c.req.Kind, got.FollowUp.ID, got.FollowUp.CreatedAt)
		}

		byID, found, err := l.OperationByID(ctx, c.req.Caller, want.ID)
		must(t, err)
		byKey, foundByKey, err := l.OperationByKey(ctx, c.req.Caller, c.req.Kind, c.req.Key)
		must(t, err)
		if !found || !foundByKey {
			t.Errorf("%s: found by id %v, by key %v", c.req.Kind, found, foundByKey)
		}
		equal(t, byID, want)
		equal(t, byKey, want)
		if c.req.PaymentID != uuid.Nil {
			p, _, err := l.PaymentByID(ctx, c.req.Caller, c.req.PaymentID)
			must(t, err)
			equal(t, p.FollowUps, []payment.FollowUp{want})
		}
	}
}

// A replay is told what the first request was told, whatever the follow-up has come
// to and whatever its payment takes by now; another request under the key is told
// so on every route (field report A9).
func acceptedKeyIsReplayedOrRefused(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	for kind, make := range map[payment.Operation]func(p payment.Payment) payment.FollowUpRequest{
		payment.Credit:  func(p payment.Payment) payment.FollowUpRequest { return Credit(p, "key", 250) },
		payment.Capture: func(p payment.Payment) payment.FollowUpRequest { return Capture(p, "key", 250) },
		payment.Release: func(p payment.Payment) payment.FollowUpRequest { return Release(p, "key") },
	} {
		op := payment.Hold
		if kind == payment.Credit {
			op = payment.Debit
		}
		p, another := approve(ctx, t, l, op, payment.Key(kind)), approve(ctx, t, l, op, "another "+payment.Key(kind))
		req := make(p)
		first := accept(ctx, t, l, req)
		others := map[string]payment.FollowUpRequest{"another payment": make(another)}
		if kind != payment.Release {
			amount := req
			amount.Amount.AmountMinor++
			none := req
			none.Amount.AmountMinor = 0
			others["another amount"], others["no amount"] = amount, none
		}
		check := func(state payment.FollowUpState) {
			t.Helper()
			for range 2 {
				replay, err := l.Accept(ctx, req)
				must(t, err)
				equal(t, replay, payment.Acceptance{Status: payment.AcceptedBefore, FollowUp: first})
			}
			for name, r := range others {
				got, err := l.Accept(ctx, r)
				must(t, err)
				if got.Status != payment.AcceptanceMismatch {
					t.Errorf("%s %s, %s: status %d, want a mismatch", kind, state, name, got.Status)
				}
				equal(t, got.FollowUp, payment.FollowUp{})
			}
		}
		check(payment.Pending)
		end(ctx, t, l, first.ID, payment.Parked, "", "")
		check(payment.Parked)

		theirs := req
		theirs.Caller = "store-18"
		got, err := l.Accept(ctx, theirs)
		must(t, err)
		if got.Status != payment.PaymentUnknown {
			t.Errorf("%s: another caller's payment: status %d, want it unknown", kind, got.Status)
		}
	}
}

// What a payment can take is decided by its state first and by the values then
// (contract section 1, errors), and a refusal leaves the key free.
func paymentTakesWhatItCan(ctx context.Context, t *testing.T, open Open) {
	type (
		prepare func(ctx context.Context, t *testing.T, l Ledger, p payment.Payment, key payment.Key)
		request func(p payment.Payment, key payment.Key) payment.FollowUpRequest
	)
	l := open(t, never)
	decline := func(d payment.Decision) prepare {
		return func(ctx context.Context, t *testing.T, l Ledger, p payment.Payment, key payment.Key) {
			t.Helper()
			_, err := l.Decide(ctx, p, d)
			must(t, err)
		}
	}
	approved := decline(payment.Approve("w-1"))
	after := func(make request, state payment.FollowUpState, code payment.Code) prepare {
		return func(ctx context.Context, t *testing.T, l Ledger, p payment.Payment, key payment.Key) {
			t.Helper()
			approved(ctx, t, l, p, key)
			f := accept(ctx, t, l, make(p, "before "+key))
			if state != payment.Pending {
				end(ctx, t, l, f.ID, state, code, map[bool]string{true: "w-2"}[state == payment.Succeeded])
			}
		}
	}
	cancelled := func(ctx context.Context, t *testing.T, l Ledger, p payment.Payment, key payment.Key) {
		t.Helper()
		approved(ctx, t, l, p, key)
		_, err := l.CancelByKey(ctx, p.Caller, p.Operation, key, nil)
		must(t, err)
	}
	capture := func(amount int64) request {
		return func(p payment.Payment, key payment.Key) payment.FollowUpRequest { return Capture(p, key, amount) }
	}
	release := Release
	credit := func(amount int64) request {
		return func(p payment.Payment, key payment.Key) payment.FollowUpRequest { return Credit(p, key, amount) }
	}
	nothing := func(context.Context, *testing.T, Ledger, payment.Payment, payment.Key) {}

	for name, c := range map[string]struct {
		op     payment.Operation
		before prepare
		// What a capture of 1250, a release and a credit of 1250 are told then.
		capture, release, credit payment.AcceptanceStatus
	}{
		"hold, in flight":            {payment.Hold, nothing, payment.PaymentUndecided, payment.PaymentUndecided, payment.PaymentUndecided},
		"hold, declined":             {payment.Hold, decline(payment.Decline("ACCOUNT_LOCKED")), payment.HoldNotActive, payment.HoldNotActive, payment.NotRefundable},
		"hold, declined in doubt":    {payment.Hold, decline(payment.DeclineAndReverse(payment.WalletTimeout)), payment.HoldNotActive, payment.HoldNotActive, payment.NotRefundable},
		"hold, active":               {payment.Hold, approved, payment.Accepted, payment.Accepted, payment.NotRefundable},
		"hold, being released":       {payment.Hold, after(release, payment.Pending, ""), payment.HoldNotActive, payment.HoldNotActive, payment.NotRefundable},
		"hold, released":             {payment.Hold, after(release, payment.Succeeded, ""), payment.HoldNotActive, payment.HoldNotActive, payment.NotRefundable},
		"hold, release parked":       {payment.Hold, after(release, payment.Parked, ""), payment.HoldNotActive, payment.HoldNotActive, payment.NotRefundable},
		"hold, release refused":      {payment.Hold, after(release, payment.Refused, "ACCOUNT_LOCKED"), payment.Accepted, payment.Accepted, payment.NotRefundable},
		"hold, being captured":       {payment.Hold, after(capture(0), payment.Pending, ""), payment.HoldAlreadyCaptured, payment.HoldAlreadyCaptured, payment.NotRefundable},
		"hold, capture parked":       {payment.Hold, after(capture(0), payment.Parked, ""), payment.HoldAlreadyCaptured, payment.HoldAlreadyCaptured, payment.NotRefundable},
		"hold, captured":             {payment.Hold, after(capture(0), payment.Succeeded, ""), payment.HoldAlreadyCaptured, payment.HoldAlreadyCaptured, payment.Accepted},
		"hold, captured in part":     {payment.Hold, after(capture(1249), payment.Succeeded, ""), payment.HoldAlreadyCaptured, payment.HoldAlreadyCaptured, payment.AmountExceeds},
		"hold, capture refused":      {payment.Hold, after(capture(0), payment.Refused, "ACCOUNT_LOCKED"), payment.Accepted, payment.Accepted, payment.NotRefundable},
		"hold, cancelled":            {payment.Hold, cancelled, payment.HoldNotActive, payment.HoldNotActive, payment.NotRefundable},
		"debit, in flight":           {payment.Debit, nothing, payment.PaymentUnknown, payment.PaymentUnknown, payment.PaymentUndecided},
		"debit, declined":            {payment.Debit, decline(payment.Decline("ACCOUNT_LOCKED")), payment.PaymentUnknown, payment.PaymentUnknown, payment.NotRefundable},
		"debit, approved":            {payment.Debit, approved, payment.PaymentUnknown, payment.PaymentUnknown, payment.Accepted},
		"debit, cancelled":           {payment.Debit, cancelled, payment.PaymentUnknown, payment.PaymentUnknown, payment.NotRefundable},
		"debit, being credited":      {payment.Debit, after(credit(1), payment.Pending, ""), payment.PaymentUnknown, payment.PaymentUnknown, payment.AmountExceeds},
		"debit, credited":            {payment.Debit, after(credit(1), payment.Succeeded, ""), payment.PaymentUnknown, payment.PaymentUnknown, payment.AmountExceeds},
		"debit, credit parked":       {payment.Debit, after(credit(1), payment.Parked, ""), payment.PaymentUnknown, payment.PaymentUnknown, payment.AmountExceeds},
		"debit, credit refused":      {payment.Debit, after(credit(1250), payment.Refused, "ACCOUNT_LOCKED"), payment.PaymentUnknown, payment.PaymentUnknown, payment.Accepted},
		"debit, credited completely": {payment.Debit, after(credit(1250), payment.Succeeded, ""), payment.PaymentUnknown, payment.PaymentUnknown, payment.AmountExceeds},
	} {
		t.Run(name, func(t *testing.T) {
			for kind, want := range map[payment.Operation]payment.AcceptanceStatus{payment.Capture: c.capture, payment.Release: c.release, payment.Credit: c.credit} {
				key := payment.Key(name + ", " + string(kind))
				req := Request(key)
				req.Operation = c.op
				p := claimNew(ctx, t, l, req)
				c.before(ctx, t, l, p, key)
				var then payment.FollowUpRequest
				switch kind {
				case payment.Capture:
					then = Capture(p, "then "+key, 1250)
				case payment.Release:
					then = Release(p, "then "+key)
				case payment.Credit:
					then = Credit(p, "then "+key, 1250)
				case payment.Debit, payment.Hold, payment.Reversal: // no till follows up with those
				}
				got, err := l.Accept(ctx, then)
				must(t, err)
				if got.Status != want {
					t.Errorf("a %s: status %d, want %d", kind, got.Status, want)
				}
				_, found, err := l.OperationByKey(ctx, p.Caller, kind, "then "+key)
				must(t, err)
				if found != (want == payment.Accepted) {
					t.Errorf("a %s with status %d: its key is taken: %v", kind, got.Status, found)
				}
			}
		})
	}
}

// A credit to somebody else, or in other money, or of more than there is, is not the
// refund that it says it is (field report D18 for captures); and what is wrong with
// the payment's state is said first.
func valuesMustFitThePayment(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	debit, hold, gone := approve(ctx, t, l, payment.Debit, "debit"), approve(ctx, t, l, payment.Hold, "hold"), approve(ctx, t, l, payment.Debit, "gone")
	_, err := l.CancelByKey(ctx, gone.Caller, gone.Operation, "gone", nil)
	must(t, err)
	other := func(p payment.Payment, change func(*payment.FollowUpRequest)) payment.FollowUpRequest {
		req := Credit(p, "other", 250)
		change(&req)
		return req
	}
	account := func(r *payment.FollowUpRequest) { r.Account = "ACC-1002" }
	currency := func(r *payment.FollowUpRequest) { r.Amount.Currency = "USD" }
	amount := func(r *payment.FollowUpRequest) { r.Amount.AmountMinor = 1251 }
	for name, c := range map[string]struct {
		req  payment.FollowUpRequest
		want payment.AcceptanceStatus
	}{
		"account":                 {other(debit, account), payment.AccountDiffers},
		"currency":                {other(debit, currency), payment.CurrencyDiffers},
		"amount":                  {other(debit, amount), payment.AmountExceeds},
		"account of a cancelled":  {other(gone, account), payment.NotRefundable},
		"currency of a cancelled": {other(gone, currency), payment.NotRefundable},
		"amount of a cancelled":   {other(gone, amount), payment.NotRefundable},
		"amount of a capture":     {Capture(hold, "more", 1251), payment.AmountExceeds},
		"a debit named as a hold": {other(debit, func(r *payment.FollowUpRequest) { r.Of = payment.Hold }), payment.PaymentUnknown},
		"no such payment":         {other(debit, func(r *payment.FollowUpRequest) { r.PaymentID = uuid.New() }), payment.PaymentUnknown},
		"all that there is":       {Credit(debit, "all", 1250), payment.Accepted},
	} {
		got, err := l.Accept(ctx, c.req)
		must(t, err)
		if got.Status != c.want {
			t.Errorf("%s: status %d, want %d", name, got.Status, c.want)
		}
	}
}

// A hold that is captured and released, or captured twice, gives goods away or takes
// money twice (field reports D14, D15).
func holdEndsOnce(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	hold := approve(ctx, t, l, payment.Hold, "hold")
	const many = 50
	statuses := make([]payment.AcceptanceStatus, many)
	atOnce(many, func(i int) {
		req := Capture(hold, payment.Key(fmt.Sprintf("capture-%d", i)), 300)
		if i%2 == 1 {
			req = Release(hold, payment.Key(fmt.Sprintf("release-%d", i)))
		}
		got, err := l.Accept(ctx, req)
		if err != nil {
			t.Errorf("accept: %v", err)
		}
		statuses[i] = got.Status
	})
	won := 0
	for _, s := range statuses {
		switch s { //nolint:exhaustive // anything else is wrong
		case payment.Accepted:
			won++
		case payment.HoldNotActive, payment.HoldAlreadyCaptured:
		default:
			t.Errorf("status %d", s)
		}
	}
	p, _, err := l.PaymentByID(ctx, hold.Caller, hold.ID)
	must(t, err)
	if won != 1 || len(p.FollowUps) != 1 {
		t.Errorf("%d of %d were accepted, %d are stored, want one", won, many, len(p.FollowUps))
	}
}

// Refunds that add up to more than was paid are money given away.
func creditsNeverExceed(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	debit, hold := approve(ctx, t, l, payment.Debit, "debit"), approve(ctx, t, l, payment.Hold, "hold")
	capture := accept(ctx, t, l, Capture(hold, "capture", 1000))
	end(ctx, t, l, capture.ID, payment.Succeeded, "", "w-2")
	for p, most := range map[*payment.Payment]int{&debit: 4, &hold: 3} {
		const many = 20
		var accepted [many]bool
		atOnce(many, func(i int) {
			got, err := l.Accept(ctx, Credit(*p, payment.Key(fmt.Sprintf("%s-%d", p.Operation, i)), 300))
			if err != nil {
				t.Errorf("accept: %v", err)
			}
			accepted[i] = got.Status == payment.Accepted
			if !accepted[i] && got.Status != payment.AmountExceeds {
				t.Errorf("status %d", got.Status)
			}
		})
		n := 0
		for _, a := range accepted {
			if a {
				n++
			}
		}
		if n != most {
			t.Errorf("%d credits of 300 were accepted for a %s, want %d", n, p.Operation, most)
		}
	}
}

// One request that is sent many times at once is one follow-up.
func oneOfManyAcceptsOwnsTheKey(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	debit := approve(ctx, t, l, payment.Debit, "debit")
	payout := Credit(debit, "payout", 100)
	payout.PaymentID, payout.Of = uuid.Nil, ""
	for name, req := range map[string]payment.FollowUpRequest{"credit": Credit(debit, "credit", 100), "payout": payout} {
		const many = 20
		var got [many]payment.Acceptance
		atOnce(many, func(i int) {
			var err error
			if got[i], err = l.Accept(ctx, req); err != nil {
				t.Errorf("accept: %v", err)
			}
		})
		counts := map[payment.AcceptanceStatus]int{}
		for _, a := range got {
			counts[a.Status]++
			equal(t, a.FollowUp, got[0].FollowUp)
		}
		equal(t, counts, map[payment.AcceptanceStatus]int{payment.Accepted: 1, payment.AcceptedBefore: many - 1})
		if t.Failed() {
			t.Log(name)
		}
	}
}

// One shop must not learn what another one refunds; and a reversal, which no till
// has asked for, belongs to whoever asked for the payment.
func followUpsOfOthersDoNotExist(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	debit := approve(ctx, t, l, payment.Debit, "debit")
	credit := accept(ctx, t, l, Credit(debit, "credit", 100))
	cancellation, err := l.CancelByKey(ctx, debit.Caller, payment.Debit, "debit", nil)
	must(t, err)

	reversal, found, err := l.OperationByID(ctx, debit.Caller, cancellation.Reversal)
	must(t, err)
	equal(t, reversal, payment.FollowUp{
		ID: cancellation.Reversal, Kind: payment.Reversal, PaymentID: debit.ID, State: payment.Pending,
		Amount: debit.Amount, CreatedAt: reversal.CreatedAt,
	})
	if !found {
		t.Error("the reversal is not found by its payment's caller")
	}
	for name, look := range map[string]func() (payment.FollowUp, bool, error){
		"another caller's, by id": func() (payment.FollowUp, bool, error) { return l.OperationByID(ctx, "store-18", credit.ID) },
		"another's reversal":      func() (payment.FollowUp, bool, error) { return l.OperationByID(ctx, "store-18", reversal.ID) },
		"another caller's, by key": func() (payment.FollowUp, bool, error) {
			return l.OperationByKey(ctx, "store-18", payment.Credit, "credit")
		},
		"another kind's": func() (payment.FollowUp, bool, error) {
			return l.OperationByKey(ctx, debit.Caller, payment.Release, "credit")
		},
		"nobody's":    func() (payment.FollowUp, bool, error) { return l.OperationByID(ctx, debit.Caller, uuid.New()) },
		"a payment's": func() (payment.FollowUp, bool, error) { return l.OperationByID(ctx, debit.Caller, debit.ID) },
	} {
		f, found, err := look()
		must(t, err)
		if found {
			t.Errorf("%s follow-up was found", name)
		}
		equal(t, f, payment.FollowUp{})
	}
}

// Nobody should be told "not yet decided" about a payment whose handler is dead.
func acceptMeetsTheOverdue(ctx context.Context, t *testing.T, open Open) {
	l := open(t, soon)
	req := Request("abandoned")
	req.Operation = payment.Hold
	hold := claimNew(ctx, t, l, req)
	for {
		got, err := l.Accept(ctx, Capture(hold, "capture", 0))
		must(t, err)
		if got.Status == payment.HoldNotActive {
			break
		}
		if got.Status != payment.PaymentUndecided {
			t.Fatalf("status %d", got.Status)
		}
	}
	recoveredPayment(ctx, t, l, hold)
}

func approve(ctx context.Context, t *testing.T, l Ledger, op payment.Operation, key payment.Key) payment.Payment {
	t.Helper()
	req := Request(key)
	req.Operation = op
	p, err := l.Decide(ctx, claimNew(ctx, t, l, req), payment.Approve("w-"+string(key)))
	must(t, err)
	return p
}

func accept(ctx context.Context, t *testing.T, l Ledger, req payment.FollowUpRequest) payment.FollowUp {
	t.Helper()
	got, err := l.Accept(ctx, req)
	must(t, err)
	if got.Status != payment.Accepted {
		t.Fatalf("accept a %s: status %d, want it to be accepted", req.Kind, got.Status)
	}
	return got.FollowUp
}
