package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/payment"
)

const (
	captureBody = `{"amount":1500}`
	payoutBody  = `{"account":"acc-1001","amount":500,"currency":"EUR"}`
)

var (
	capturePath = "/holds/" + paymentID.String() + "/capture"
	releasePath = "/holds/" + paymentID.String() + "/release"
	refundBody  = fmt.Sprintf(`{"account":"acc-1001","amount":500,"currency":"EUR","debitId":%q}`, paymentID)
	ofHoldBody  = fmt.Sprintf(`{"account":"acc-1001","amount":500,"currency":"EUR","holdId":%q}`, paymentID)
)

// followUpCalls are one good request for each kind of follow-up.
func followUpCalls() map[payment.Operation]sent {
	return map[payment.Operation]sent{
		payment.Credit:  {path: "/credits", body: refundBody},
		payment.Capture: {path: capturePath, body: captureBody},
		payment.Release: {path: releasePath, body: "{}"},
	}
}

// accepting is a service whose ledger gives this answer.
func accepting(t *testing.T, answer func(payment.FollowUpRequest) (payment.Acceptance, error)) *service {
	s := newService(t, nil)
	s.ledger.accept = func(_ context.Context, req payment.FollowUpRequest) (payment.Acceptance, error) {
		return answer(req)
	}
	return s
}

// What the till hears of a follow-up is what is stored, and what the ledger hears is
// what the till sent: a refund of another amount, or to another account, is
// somebody's money.
func TestAFollowUpIs202WithWhatWasAccepted(t *testing.T) {
	t.Parallel()
	const head = `{"id":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70","kind":`
	const of, at = `"paymentId":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77",`, `"createdAt":"2026-11-29T09:31:00.501200Z"}` + "\n"
	eur := func(n int64) payment.Money { return payment.Money{AmountMinor: n, Currency: "EUR"} }
	for name, test := range map[string]struct {
		q    sent
		asks payment.FollowUpRequest
		body string
	}{
		"credit of a debit": {
			sent{path: "/credits", body: refundBody},
			payment.FollowUpRequest{Kind: payment.Credit, Of: payment.Debit, PaymentID: paymentID, Account: "acc-1001", Amount: eur(500)},
			head + `"credit","status":"PENDING","account":"acc-1001","amount":500,"currency":"EUR",` + of + at,
		},
		"credit of a captured hold": {
			sent{path: "/credits", body: ofHoldBody},
			payment.FollowUpRequest{Kind: payment.Credit, Of: payment.Hold, PaymentID: paymentID, Account: "acc-1001", Amount: eur(500)},
			head + `"credit","status":"PENDING","account":"acc-1001","amount":500,"currency":"EUR",` + of + at,
		},
		"payout, with all that it can have": {
			sent{path: "/credits", token: payoutToken, body: `{"metadata":{"b":"R&D","a":""},"reference":"Straße","currency":"JPY","amount":9007199254740991,"account":"a"}`},
			payment.FollowUpRequest{
				Kind: payment.Credit, Account: "a", Amount: payment.Money{AmountMinor: 9007199254740991, Currency: "JPY"},
				TillReference: "Straße", Metadata: map[string]string{"a": "", "b": "R&D"},
			},
			head + `"credit","status":"PENDING","account":"a","amount":9007199254740991,"currency":"JPY","reference":"Straße","metadata":{"a":"","b":"R&D"},` + at,
		},
		"capture of a part": {
			sent{path: capturePath, body: captureBody},
			payment.FollowUpRequest{Kind: payment.Capture, Of: payment.Hold, PaymentID: paymentID, Amount: payment.Money{AmountMinor: 1500}},
			head + `"capture","status":"PENDING","amount":1500,"currency":"EUR",` + of + at,
		},
		"capture of the whole": {
			sent{path: capturePath, body: ` { } `},
			payment.FollowUpRequest{Kind: payment.Capture, Of: payment.Hold, PaymentID: paymentID},
			head + `"capture","status":"PENDING","amount":1999,"currency":"EUR",` + of + at,
		},
		"release": {
			sent{path: releasePath, body: `{}`},
			payment.FollowUpRequest{Kind: payment.Release, Of: payment.Hold, PaymentID: paymentID},
			head + `"release","status":"PENDING",` + of + at,
		},
		"release, the id in capitals": {
			sent{path: "/holds/" + strings.ToUpper(paymentID.String()) + "/release", body: `{}`},
			payment.FollowUpRequest{Kind: payment.Release, Of: payment.Hold, PaymentID: paymentID},
			head + `"release","status":"PENDING",` + of + at,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nudged := 0
			s := newService(t, func(cfg *api.Config) { cfg.Nudge = func() { nudged++ } })
			w := s.send(test.q)
			if w.Code != http.StatusAccepted {
				t.Errorf("status = %d, want 202", w.Code)
			}
			if diff := cmp.Diff(test.body, w.Body.String()); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			for name, want := range map[string]string{
				"Location": "/operations/" + operationID.String(), "Content-Type": "application/json", "Cache-Control": "no-store",
				"Idempotency-Replayed": "", "Retry-After": "",
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s = %q, want %q", name, got, want)
				}
			}
			test.asks.Key, test.asks.Caller = goodKey, "store-17"
			if test.q.token == payoutToken {
				test.asks.Caller = "payroll"
			}
			if diff := cmp.Diff([]payment.FollowUpRequest{test.asks}, s.ledger.asked); diff != "" {
				t.Errorf("asked of the ledger (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"accepted " + string(test.asks.Kind)}, s.seen.list()); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
			if nudged != 1 {
				t.Errorf("the queue was nudged %d times, want once", nudged)
			}
		})
	}
}

// A till that lost its answer must get the very same one again, although the
// follow-up has long ended: it asks the operation's own resource for that.
func TestA202ReplaysAsThe202ItWas(t *testing.T) {
	t.Parallel()
	for kind, q := range followUpCalls() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			nudged, before := 0, false
			s := newService(t, func(cfg *api.Config) { cfg.Nudge = func() { nudged++ } })
			s.ledger.accept = func(_ context.Context, req payment.FollowUpRequest) (payment.Acceptance, error) {
				f := acceptedFollowUp(req)
				if !before {
					return payment.Acceptance{Status: payment.Accepted, FollowUp: f}, nil
				}
				// As it stands now, and in another zone.
				f.State, f.Code, f.WalletID = payment.Refused, "ACCOUNT_CLOSED", "w-1"
				f.EndedAt, f.CreatedAt = acceptedAt.Add(time.Second), f.CreatedAt.In(time.FixedZone("", -7*3600))
				return payment.Acceptance{Status: payment.AcceptedBefore, FollowUp: f}, nil
			}
			first := s.send(q)
			before = true
			again := s.send(q)
			if first.Code != http.StatusAccepted || again.Code != first.Code {
				t.Errorf("status = %d, then %d, want 202 twice", first.Code, again.Code)
			}
			if diff := cmp.Diff(first.Body.String(), again.Body.String()); diff != "" {
				t.Errorf("the replay differs (-first +replay):\n%s", diff)
			}
			if got := again.Header().Get("Idempotency-Replayed"); got != "true" {
				t.Errorf("Idempotency-Replayed = %q, want true", got)
			}
			again.Header().Del("Idempotency-Replayed")
			if diff := cmp.Diff(first.Header(), again.Header()); diff != "" {
				t.Errorf("the replay's fields differ (-first +replay):\n%s", diff)
			}
			if diff := cmp.Diff([]string{"accepted " + string(kind), "replay " + string(kind)}, s.seen.list()); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
			if nudged != 1 {
				t.Errorf("the queue was nudged %d times, want once: a replay is nothing new", nudged)
			}
		})
	}
}

// Each refusal asks something else of a till: wait, correct, give up, or use a
// credit. Taken for another one, it releases what was captured or gives back what
// was never taken.
func TestEveryRefusalOfAFollowUpHasItsCode(t *testing.T) {
	t.Parallel()
	ofHold := sent{path: "/credits", body: ofHoldBody}
	calls := followUpCalls()
	for _, test := range []struct {
		q      sent
		status payment.AcceptanceStatus
		want   int
		code   string
	}{
		{calls[payment.Credit], payment.PaymentUnknown, 404, "DEBIT_NOT_FOUND"},
		{ofHold, payment.PaymentUnknown, 404, "HOLD_NOT_FOUND"},
		{calls[payment.Capture], payment.PaymentUnknown, 404, "HOLD_NOT_FOUND"},
		{calls[payment.Release], payment.PaymentUnknown, 404, "HOLD_NOT_FOUND"},
		{calls[payment.Credit], payment.PaymentUndecided, 404, "PAYMENT_NOT_YET_DECIDED"},
		{calls[payment.Capture], payment.PaymentUndecided, 404, "PAYMENT_NOT_YET_DECIDED"},
		{calls[payment.Release], payment.PaymentUndecided, 404, "PAYMENT_NOT_YET_DECIDED"},
		{calls[payment.Capture], payment.HoldNotActive, 409, "HOLD_NOT_ACTIVE"},
		{calls[payment.Release], payment.HoldNotActive, 409, "HOLD_NOT_ACTIVE"}, // field report D14
		{calls[payment.Capture], payment.HoldAlreadyCaptured, 409, "HOLD_ALREADY_CAPTURED"},
		{calls[payment.Release], payment.HoldAlreadyCaptured, 409, "HOLD_ALREADY_CAPTURED"},
		{calls[payment.Credit], payment.NotRefundable, 409, "NOT_REFUNDABLE"},
		{ofHold, payment.NotRefundable, 409, "NOT_REFUNDABLE"},
		{calls[payment.Capture], payment.AmountExceeds, 422, "AMOUNT_EXCEEDS_HOLD"},
		{calls[payment.Credit], payment.AmountExceeds, 422, "AMOUNT_EXCEEDS_DEBIT"},
		{ofHold, payment.AmountExceeds, 422, "AMOUNT_EXCEEDS_CAPTURE"},
		{calls[payment.Credit], payment.CurrencyDiffers, 422, "CURRENCY_MISMATCH"},
		{calls[payment.Credit], payment.AccountDiffers, 422, "ACCOUNT_MISMATCH"},
	} {
		t.Run(test.q.path+" "+test.code, func(t *testing.T) {
			t.Parallel()
			nudged := false
			s := newService(t, func(cfg *api.Config) { cfg.Nudge = func() { nudged = true } })
			s.ledger.accept = func(context.Context, payment.FollowUpRequest) (payment.Acceptance, error) {
				return payment.Acceptance{Status: test.status}, nil
			}
			w := s.send(test.q)
			refusedWith(t, w, test.want, test.code)
			wantRetry := map[string]string{"PAYMENT_NOT_YET_DECIDED": "1"}[test.code]
			if got := w.Header().Get("Retry-After"); got != wantRetry {
				t.Errorf("Retry-After = %q, want %q", got, wantRetry)
			}
			if got := s.seen.list(); len(got) != 0 {
				t.Errorf("observed %q", got)
			}
			if nudged {
				t.Error("the queue was nudged for nothing")
			}
			if log := s.log.String(); !strings.Contains(log, `"msg":"follow-up refused"`) || !strings.Contains(log, `"code":"`+test.code+`"`) {
				t.Errorf("the log does not tell the refusal: %s", log)
			}
		})
	}
}

// "Too much" alone leaves a clerk to guess how much would have been right: the
// amounts are named, in minor units and with their currency (field report D18).
func TestARefusalOfAnAmountNamesTheAmounts(t *testing.T) {
	t.Parallel()
	paid := approved(payment.Request{Operation: payment.Debit, Account: "acc-1001", Amount: payment.Money{AmountMinor: 1999, Currency: "EUR"}})
	followUp := func(kind payment.Operation, state payment.FollowUpState, amount int64) payment.FollowUp {
		return payment.FollowUp{ID: uuid.New(), Kind: kind, State: state, PaymentID: paymentID, Amount: payment.Money{AmountMinor: amount, Currency: "EUR"}}
	}
	hold := paid
	hold.FollowUps = []payment.FollowUp{
		followUp(payment.Capture, payment.Succeeded, 1500),
		followUp(payment.Credit, payment.Succeeded, 1000), followUp(payment.Credit, payment.Refused, 300), followUp(payment.Credit, payment.Parked, 100),
	}
	for name, test := range map[string]struct {
		q     sent
		of    payment.Payment
		found bool
		err   error
		want  string
	}{
		"capture": {
			sent{path: capturePath, body: `{"amount":3000}`},
			paid, true, nil,
			"Nothing was begun. The capture asks for 3000 and the hold is of 1999, in minor units of EUR.",
		},
		"credit of a debit": {
			sent{path: "/credits", body: refundBody},
			paid, true, nil,
			"Nothing was begun. The credit asks for 500; of the 1999 that were taken, 0 are given back or on their way, in minor units of EUR.",
		},
		"credit of a hold": {
			sent{path: "/credits", body: ofHoldBody},
			hold, true, nil,
			"Nothing was begun. The credit asks for 500; of the 1500 that were taken, 1100 are given back or on their way, in minor units of EUR.",
		},
		"storage is gone meanwhile": {
			sent{path: capturePath, body: `{"amount":3000}`},
			payment.Payment{},
			false, errStorage,
			"Nothing was begun. A capture may take at most what is held.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, func(cfg *api.Config) {
				cfg.Ledger = readFunc(func(ctx context.Context, caller, what string) (payment.Payment, bool, error) {
					if _, bounded := ctx.Deadline(); !bounded || caller != "store-17" || what != paymentID.String() {
						t.Errorf("asked for %s of %s, bounded %v", what, caller, bounded)
					}
					return test.of, test.found, test.err
				})
			})
			s.ledger.accept = func(context.Context, payment.FollowUpRequest) (payment.Acceptance, error) {
				return payment.Acceptance{Status: payment.AmountExceeds}, nil
			}
			w := s.send(test.q)
			var document struct{ Detail string }
			if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
				t.Fatal(err)
			}
			if w.Code != 422 || document.Detail != test.want {
				t.Errorf("%d %q, want 422 %q", w.Code, document.Detail, test.want)
			}
		})
	}
}

// Money that no payment brought in leaves by a payout. A till that is stolen must
// not be able to make one, nor an office that may pay out to sell.
func TestAPayoutNeedsItsScope(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		token, body string
		status      int
		scope       string
	}{
		{tillToken, payoutBody, 403, "payout"},
		{tillToken, refundBody, 202, ""},
		{tillToken, ofHoldBody, 202, ""},
		{payoutToken, payoutBody, 202, ""},
		{payoutToken, refundBody, 202, ""},
		{onlyPayoutToken, payoutBody, 403, "till"},
		{operatorToken, payoutBody, 403, "till"},
		// What is not a credit at all is told first.
		{tillToken, `{"account":"a"}`, 400, ""},
	} {
		s := newService(t, nil)
		w := s.send(sent{path: "/credits", token: test.token, body: test.body})
		if w.Code != test.status {
			t.Errorf("%s %s: %d, want %d", test.token, test.body, w.Code, test.status)
		}
		if want := `Bearer realm="safeledger", error="insufficient_scope", scope="` + test.scope + `"`; test.scope != "" && w.Header().Get("WWW-Authenticate") != want {
			t.Errorf("WWW-Authenticate = %q, want %q", w.Header().Get("WWW-Authenticate"), want)
		}
		if begun := s.ledger.begun(); (begun == 1) != (test.status == 202) {
			t.Errorf("%s %s: %d were begun", test.token, test.body, begun)
		}
	}
}

// A follow-up whose commit is not known to have landed may be on its way to the
// wallet. The answer must not look like the gate's, or the request is sent again
// by something that does not know its key.
func TestAFollowUpWhoseStorageFailedIsUnknown(t *testing.T) {
	t.Parallel()
	for kind, q := range followUpCalls() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := accepting(t, func(req payment.FollowUpRequest) (payment.Acceptance, error) {
				// A result beside an error says nothing.
				return payment.Acceptance{Status: payment.Accepted, FollowUp: acceptedFollowUp(req)}, errStorage
			})
			w := s.send(q)
			refusedWith(t, w, 503, "OUTCOME_UNKNOWN")
			if values, there := w.Header()["Retry-After"]; there {
				t.Errorf("Retry-After = %q", values)
			}
			if strings.Contains(w.Body.String(), "secret internals") {
				t.Error("the answer tells the internal cause")
			}
			if diff := cmp.Diff([]string{"unknown " + string(kind)}, s.seen.list()); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
			if !strings.Contains(s.log.String(), `"level":"ERROR"`) {
				t.Errorf("no error was logged: %s", s.log)
			}

			for _, status := range []payment.AcceptanceStatus{0, 200} { // forgotten, and of a newer release
				s = accepting(t, func(payment.FollowUpRequest) (payment.Acceptance, error) {
					return payment.Acceptance{Status: status}, nil
				})
				refusedWith(t, s.send(q), 500, "INTERNAL")
				if diff := cmp.Diff([]string{"unknown " + string(kind)}, s.seen.list()); diff != "" {
					t.Errorf("status %d, observed (-want +got):\n%s", status, diff)
				}
			}

			s = accepting(t, func(payment.FollowUpRequest) (payment.Acceptance, error) { panic("secret internals") })
			refusedWith(t, s.send(q), 500, "INTERNAL")
			if diff := cmp.Diff([]string{"unknown " + string(kind)}, s.seen.list()); diff != "" {
				t.Errorf("after a panic, observed (-want +got):\n%s", diff)
			}
		})
	}
}

// A till that hangs up, or has no time left, has still asked: what it asked for is
// written down, in a time that has an end.
func TestAnAcceptAndACancelOutliveTheirTill(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for wait, want := range map[string]time.Duration{"": 2400 * ms, "3000": 2400 * ms, "1400": 800 * ms, "700": 300 * ms, "0": 300 * ms} {
		synctest.Test(t, func(t *testing.T) {
			s := newService(t, nil)
			calls := []sent{{path: "/payments/by-key/debit/" + goodKey + "/cancel"}}
			for _, q := range followUpCalls() {
				calls = append(calls, q)
			}
			for _, q := range calls {
				ctx, hangUp := context.WithCancel(t.Context())
				var left time.Duration
				look := func(ctx context.Context) {
					hangUp()
					if err := ctx.Err(); err != nil {
						t.Errorf("the context ended with the till's: %v", err)
					}
					at, _ := ctx.Deadline()
					left = time.Until(at)
				}
				s.ledger.accept = func(ctx context.Context, req payment.FollowUpRequest) (payment.Acceptance, error) {
					look(ctx)
					return payment.Acceptance{Status: payment.Accepted, FollowUp: acceptedFollowUp(req)}, nil
				}
				s.ledger.cancel = func(ctx context.Context, op payment.Operation, _ payment.Key) (payment.Cancellation, error) {
					look(ctx)
					return tombstone(op), nil
				}
				if wait != "" {
					q.header = http.Header{"Request-Deadline-Ms": {wait}}
				}
				s.bare.ServeHTTP(discard{http.Header{}}, q.request().WithContext(ctx))
				if left != want {
					t.Errorf("%s with Request-Deadline-Ms %q: storage gets %v, want %v", q.path, wait, left, want)
				}
			}
		})
	}
}

// Captures and releases come without a body from most clients, and some of those
// send the media type of a form with it. A body that is there is read all the same,
// however it is framed.
func TestCaptureAndReleaseTakeNoBodyForAnEmptyOne(t *testing.T) {
	t.Parallel()
	types := map[string][]string{
		"no media type": nil, "JSON": {"application/json"}, "a form": {"application/x-www-form-urlencoded"},
	}
	for _, path := range []string{capturePath, releasePath} {
		var whole payment.Fingerprint
		for name, contentType := range types {
			for _, noLength := range []bool{false, true} {
				s := newService(t, nil)
				header := http.Header{"Content-Type": contentType}
				if w := s.send(sent{path: path, noBody: true, noLength: noLength, header: header}); w.Code != http.StatusAccepted {
					t.Errorf("%s, %s, without a length %v: %d %s", path, name, noLength, w.Code, w.Body)
					continue
				}
				got := s.ledger.asked[0].Fingerprint()
				if whole == (payment.Fingerprint{}) {
					whole = got
				}
				if got != whole {
					t.Errorf("%s, %s: another fingerprint", path, name)
				}
				if name == "JSON" {
					s.send(sent{path: path, body: "{}"})
					if s.ledger.asked[1].Fingerprint() != whole {
						t.Errorf("%s: {} is another request than no body", path)
					}
					continue
				}
				refusedWith(t, s.send(sent{path: path, body: "{}", noLength: noLength, header: header}), 415, "UNSUPPORTED_MEDIA_TYPE")
			}
		}
	}
	s := newService(t, nil)
	s.send(sent{path: capturePath, body: `{}`})
	s.send(sent{path: capturePath, body: `{"amount":1999}`})
	if s.ledger.asked[0].Fingerprint() == s.ledger.asked[1].Fingerprint() {
		t.Error("a capture of the whole hold and one that spells it out are the same request")
	}
	refusedWith(t, s.send(sent{path: "/credits", noBody: true}), 400, "MALFORMED_REQUEST")
	refusedWith(t, s.send(sent{path: "/credits", noBody: true, header: http.Header{"Content-Type": nil}}), 415, "UNSUPPORTED_MEDIA_TYPE")
}

// Whose refund it is must be certain, down to the member: what is not exactly what
// is asked for is refused by name, and nothing is begun.
func TestTheBodiesOfFollowUpsAreStrict(t *testing.T) {
	t.Parallel()
	credit := func(more string) string { return strings.TrimSuffix(payoutBody, "}") + more + "}" }
	id := `"` + paymentID.String() + `"`
	for name, test := range map[string]struct {
		path, body string
		status     int
		pointers   []string
	}{
		"credit: nothing in it":             {"/credits", `{}`, 400, []string{"/account", "/amount", "/currency"}},
		"credit: a debit and a hold":        {"/credits", credit(`,"debitId":` + id + `,"holdId":` + id), 400, []string{"/holdId"}},
		"credit: a hold and a debit":        {"/credits", credit(`,"holdId":` + id + `,"debitId":` + id), 400, []string{"/debitId"}},
		"credit: both, one of them null":    {"/credits", credit(`,"holdId":null,"debitId":` + id), 400, []string{"/holdId", "/debitId"}},
		"credit: the debit twice":           {"/credits", credit(`,"debitId":` + id + `,"debitId":` + id), 400, []string{"/debitId"}},
		"credit: debit null":                {"/credits", credit(`,"debitId":null`), 400, []string{"/debitId"}},
		"credit: debit a number":            {"/credits", credit(`,"debitId":1`), 400, []string{"/debitId"}},
		"credit: debit in another case":     {"/credits", credit(`,"debitID":` + id), 400, []string{"/debitID"}},
		"credit: paymentId":                 {"/credits", credit(`,"paymentId":` + id), 400, []string{"/paymentId"}},
		"credit: walletId":                  {"/credits", credit(`,"walletId":"w"`), 400, []string{"/walletId"}},
		"credit: debit empty":               {"/credits", credit(`,"debitId":""`), 422, []string{"/debitId"}},
		"credit: debit no id":               {"/credits", credit(`,"debitId":"4711"`), 422, []string{"/debitId"}},
		"credit: debit in braces":           {"/credits", credit(`,"debitId":"{` + paymentID.String() + `}"`), 422, []string{"/debitId"}},
		"credit: debit without dashes":      {"/credits", credit(`,"debitId":"` + strings.ReplaceAll(paymentID.String(), "-", "") + `"`), 422, []string{"/debitId"}},
		"credit: hold of zeros":             {"/credits", credit(`,"holdId":"` + uuid.Nil.String() + `"`), 422, []string{"/holdId"}},
		"credit: everything out of range":   {"/credits", `{"account":"","amount":0,"currency":"eur","debitId":"x","reference":"","metadata":{"":"x"}}`, 422, []string{"/account", "/amount", "/currency", "/debitId", "/reference", "/metadata/"}},
		"credit: amount beyond 2^53-1":      {"/credits", `{"account":"a","amount":9007199254740992,"currency":"EUR"}`, 422, []string{"/amount"}},
		"credit: U+0000 in an id":           {"/credits", credit(`,"debitId":"\u0000"`), 400, []string{"/debitId"}},
		"credit: trailing":                  {"/credits", payoutBody + `{}`, 400, []string{""}},
		"capture: amount 0":                 {capturePath, `{"amount":0}`, 422, []string{"/amount"}},
		"capture: amount null":              {capturePath, `{"amount":null}`, 400, []string{"/amount"}},
		"capture: amount a string":          {capturePath, `{"amount":"1"}`, 400, []string{"/amount"}},
		"capture: amount with a fraction":   {capturePath, `{"amount":1.0}`, 400, []string{"/amount"}},
		"capture: amount with an exponent":  {capturePath, `{"amount":1e2}`, 400, []string{"/amount"}},
		"capture: amount twice":             {capturePath, `{"amount":1,"amount":1}`, 400, []string{"/amount"}},
		"capture: amount beyond 64 bits":    {capturePath, `{"amount":9223372036854775808}`, 422, []string{"/amount"}},
		"capture: in another case":          {capturePath, `{"Amount":1}`, 400, []string{"/Amount"}},
		"capture: a currency":               {capturePath, `{"amount":1,"currency":"EUR"}`, 400, []string{"/currency"}},
		"capture: null":                     {capturePath, `null`, 400, []string{""}},
		"capture: a list":                   {capturePath, `[]`, 400, []string{""}},
		"capture: only white space":         {capturePath, " ", 400, []string{""}},
		"capture: cut off":                  {capturePath, `{"amount":1`, 400, []string{""}},
		"capture: invalid UTF-8":            {capturePath, "{\"\xff\":1}", 400, []string{""}},
		"release: an amount":                {releasePath, `{"amount":1}`, 400, []string{"/amount"}},
		"release: null":                     {releasePath, `null`, 400, []string{""}},
		"release: trailing":                 {releasePath, `{}{}`, 400, []string{""}},
		"release: only white space":         {releasePath, "\n", 400, []string{""}},
		"cancel: another request's members": {"/payments/by-key/debit/k/cancel", credit(`,"debitId":` + id), 400, []string{"/debitId"}},
		"cancel: empty object":              {"/payments/by-key/debit/k/cancel", `{}`, 400, []string{"/account", "/amount", "/currency"}},
		"cancel: null":                      {"/payments/by-key/hold/k/cancel", `null`, 400, []string{""}},
		"cancel: out of range":              {"/payments/by-key/hold/k/cancel", `{"account":"a","amount":-1,"currency":"EUR"}`, 422, []string{"/amount"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, nil)
			w := s.send(sent{path: test.path, body: test.body, token: payoutToken})
			refusedWith(t, w, test.status, map[int]string{400: "MALFORMED_REQUEST", 422: "INVALID_VALUE"}[test.status])
			if diff := cmp.Diff(test.pointers, pointers(t, w.Body.Bytes())); diff != "" {
				t.Errorf("pointers (-want +got):\n%s\n%s", diff, w.Body)
			}
			if n := s.ledger.begun(); n != 0 {
				t.Errorf("%d were begun", n)
			}
		})
	}
}

// The checks of a follow-up run in the same order as a payment's, and before all of
// them comes what no correction would help: a wallet without holds. A credit needs
// none, also for a hold of the time when there were.
func TestTheOrderOfTheChecksOfAFollowUp(t *testing.T) {
	t.Parallel()
	for _, path := range []string{capturePath, releasePath, "/credits"} {
		var holds bool
		make := func() *service {
			return newService(t, func(cfg *api.Config) { cfg.HoldsSupported = holds })
		}
		s := make()
		q := sent{path: path, token: operatorToken, body: `{"amount":0,`, header: http.Header{
			"Accept": {"text/html"}, "Content-Type": {"text/plain"}, "Idempotency-Key": {" "}, "Request-Deadline-Ms": {"-1"},
		}}
		step := func(status int, code string) {
			t.Helper()
			refusedWith(t, s.send(q), status, code)
		}
		step(403, "FORBIDDEN")
		q.token = tillToken
		if path != "/credits" {
			step(501, "HOLDS_UNSUPPORTED")
			holds = true
			s = make()
		}
		step(406, "NOT_ACCEPTABLE")
		delete(q.header, "Accept")
		step(415, "UNSUPPORTED_MEDIA_TYPE")
		delete(q.header, "Content-Type")
		step(400, "INVALID_IDEMPOTENCY_KEY")
		q.header["Idempotency-Key"] = nil
		step(400, "MISSING_IDEMPOTENCY_KEY")
		delete(q.header, "Idempotency-Key")
		step(400, "INVALID_DEADLINE")
		delete(q.header, "Request-Deadline-Ms")
		q.body = `{"amount":0` + strings.Repeat(" ", 16<<10) + `,`
		step(413, "BODY_TOO_LARGE")
		q.body = `{"amount":0,"x":1}`
		step(400, "MALFORMED_REQUEST")
		switch path {
		case "/credits":
			q.body = `{"account":"a","amount":0,"currency":"EUR"}`
			step(422, "INVALID_VALUE")
			q.body = payoutBody
			step(403, "FORBIDDEN")
			q.body = ofHoldBody
		case capturePath:
			q.body = `{"amount":0}`
			step(422, "INVALID_VALUE")
			q.body = "{}"
			q.path = "/holds/4711/capture"
			step(404, "HOLD_NOT_FOUND")
			q.path = path
		default:
			q.body = "{}"
			q.path = "/holds/" + uuid.Nil.String() + "/release"
			step(404, "HOLD_NOT_FOUND")
			q.path = path
		}
		if n := s.ledger.begun(); n != 0 {
			t.Errorf("%s: %d were begun", path, n)
		}
		if w := s.send(q); w.Code != http.StatusAccepted {
			t.Errorf("%s: status = %d, want 202", path, w.Code)
		}
	}
}

// A till asks what became of a follow-up, by its id or by its own key, and sees it
// as it stands: never another till's, and never a reversal by a key.
func TestAGetShowsTheFollowUpAsItStands(t *testing.T) {
	t.Parallel()
	const head, of = `{"id":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70","kind":`, `"paymentId":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77",`
	const at, ended = `"createdAt":"2026-11-29T09:31:00.501200Z"`, `,"endedAt":"2026-11-29T09:31:01.501200Z"}`
	made := func(kind payment.Operation, state payment.FollowUpState, change func(*payment.FollowUp)) payment.FollowUp {
		f := payment.FollowUp{
			ID: operationID, Kind: kind, State: state, PaymentID: paymentID,
			Amount: payment.Money{AmountMinor: 5, Currency: "EUR"}, CreatedAt: acceptedAt,
		}
		if change != nil {
			change(&f)
		}
		return f
	}
	end := acceptedAt.Add(time.Second)
	for name, test := range map[string]struct {
		stored payment.FollowUp
		want   string
	}{
		"pending capture": {made(payment.Capture, payment.Pending, nil), head + `"capture","status":"PENDING","amount":5,"currency":"EUR",` + of + at + "}"},
		"credit with everything": {
			made(payment.Credit, payment.Succeeded, func(f *payment.FollowUp) {
				f.Account, f.TillReference, f.Metadata, f.WalletID, f.EndedAt = "a", "r", map[string]string{}, "w-1", end
			}),
			head + `"credit","status":"SUCCEEDED","account":"a","amount":5,"currency":"EUR","reference":"r","metadata":{},` + of + `"walletId":"w-1",` + at + ended,
		},
		"payout that was rejected": {
			made(payment.Credit, payment.Refused, func(f *payment.FollowUp) {
				f.PaymentID, f.Account, f.Code, f.EndedAt = uuid.Nil, "a", "ACCOUNT_CLOSED", end
			}),
			head + `"credit","status":"REJECTED","code":"ACCOUNT_CLOSED","account":"a","amount":5,"currency":"EUR",` + at + ended,
		},
		"release": {
			made(payment.Release, payment.Succeeded, func(f *payment.FollowUp) { f.Amount, f.EndedAt = payment.Money{}, end }),
			head + `"release","status":"SUCCEEDED",` + of + at + ended,
		},
		"reversal with nothing to undo": {
			made(payment.Reversal, payment.NotApplied, func(f *payment.FollowUp) { f.EndedAt = end }),
			head + `"reversal","status":"NOT_APPLIED","amount":5,"currency":"EUR",` + of + at + ended,
		},
		"parked after a refusal": {
			made(payment.Reversal, payment.Parked, func(f *payment.FollowUp) { f.Code = "ACCOUNT_CLOSED" }),
			head + `"reversal","status":"PARKED","code":"ACCOUNT_CLOSED","amount":5,"currency":"EUR",` + of + at + "}",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked []string
			s := newService(t, nil)
			s.ledger.operation = func(ctx context.Context, caller, what string) (payment.FollowUp, bool, error) {
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("a read without a deadline")
				}
				asked = append(asked, caller+" "+what)
				return test.stored, true, nil
			}
			for _, path := range []string{"/operations/" + operationID.String(), "/operations/by-key/release/a%2Fb"} {
				w := s.send(sent{method: http.MethodGet, path: path, token: otherToken})
				if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
					t.Errorf("status %d, Content-Type %q", w.Code, w.Header().Get("Content-Type"))
				}
				if diff := cmp.Diff(test.want+"\n", w.Body.String()); diff != "" {
					t.Errorf("body (-want +got):\n%s", diff)
				}
			}
			if diff := cmp.Diff([]string{"store-18 " + operationID.String(), "store-18 release a/b"}, asked); diff != "" {
				t.Errorf("asked of the ledger (-want +got):\n%s", diff)
			}
			// The same among the follow-ups of its payment.
			s = newService(t, func(cfg *api.Config) {
				cfg.Ledger = readFunc(func(context.Context, string, string) (payment.Payment, bool, error) {
					p := approved(payment.Request{Operation: payment.Debit, Account: "a", Amount: payment.Money{AmountMinor: 5, Currency: "EUR"}})
					p.FollowUps = []payment.FollowUp{test.stored}
					return p, true, nil
				})
			})
			if w := s.send(sent{method: http.MethodGet, path: "/payments/" + paymentID.String()}); !strings.Contains(w.Body.String(), `"followUps":[`+test.want+`]`) {
				t.Errorf("the payment shows it otherwise: %s", w.Body)
			}
		})
	}
}

// "Not there" and "cannot be read now" ask for two different things of a till.
func TestAGetThatFindsNoFollowUpSaysWhy(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err    error
		status int
		code   string
	}{
		"not there":      {nil, 404, "OPERATION_NOT_FOUND"},
		"storage failed": {errStorage, 503, "STORAGE_UNAVAILABLE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, nil)
			asked := 0
			s.ledger.operation = func(context.Context, string, string) (payment.FollowUp, bool, error) {
				asked++
				return payment.FollowUp{}, false, test.err
			}
			paths := []string{"/operations/" + operationID.String()}
			for _, kind := range []string{"credit", "capture", "release"} {
				paths = append(paths, "/operations/by-key/"+kind+"/"+goodKey)
			}
			for _, path := range paths {
				refusedWith(t, s.send(sent{method: http.MethodGet, path: path}), test.status, test.code)
				refusedWith(t, s.send(sent{method: http.MethodGet, path: path, header: http.Header{"Accept": {"image/png"}}}), 406, "NOT_ACCEPTABLE")
				refusedWith(t, s.send(sent{method: http.MethodGet, path: path, token: operatorToken}), 403, "FORBIDDEN")
			}
			if asked != len(paths) {
				t.Errorf("the ledger was asked %d times, want %d", asked, len(paths))
			}
			refusedWith(t, s.send(sent{method: http.MethodGet, path: "/operations/4711"}), 404, "OPERATION_NOT_FOUND")
			for _, kind := range []string{"reversal", "debit", "hold", "Credit"} {
				refusedWith(t, s.send(sent{method: http.MethodGet, path: "/operations/by-key/" + kind + "/k"}), 404, "NOT_FOUND")
			}
			refusedWith(t, s.send(sent{method: http.MethodGet, path: "/operations/by-key/credit/a%20b"}), 400, "INVALID_IDEMPOTENCY_KEY")
			if asked != len(paths) {
				t.Error("the ledger was asked for what cannot be there")
			}
		})
	}
}

// An engineer must be able to follow a follow-up by the log, and nobody may find in
// it what belongs to the customer or opens a door.
func TestTheLogLineOfAFollowUpTellsNoSecret(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	s.send(sent{
		path: "/credits", key: "secret-key-1234",
		body: fmt.Sprintf(`{"account":"secret-account","amount":123456789,"currency":"EUR","debitId":%q,"reference":"secret-reference","metadata":{"secret-name":"secret-value"}}`, paymentID),
	})
	var line map[string]any
	if err := json.Unmarshal([]byte(s.log.String()), &line); err != nil {
		t.Fatalf("want one line of JSON: %v\n%s", err, s.log)
	}
	for _, secret := range []string{"secret", "123456789", tillToken} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log holds %q: %s", secret, s.log)
		}
	}
	delete(line, "time")
	delete(line, "total_ms")
	if diff := cmp.Diff(map[string]any{
		"level": "INFO", "msg": "follow-up accepted", "id": operationID.String(), "kind": "credit", "caller": "store-17",
		"payment_id": paymentID.String(), "status": 202.0,
	}, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}
