package client_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/client"
)

// swap is body with one piece of it replaced; the piece must be there once.
func swap(t *testing.T, body, from, to string) string {
	t.Helper()
	if strings.Count(body, from) != 1 {
		t.Fatalf("%q is in %s %d times", from, body, strings.Count(body, from))
	}
	return strings.Replace(body, from, to, 1)
}

// Goods are handed over for an approval, so that nothing is one but a complete 201 that
// says so about just what was asked: not another customer's answer out of a confused proxy, not
// half of one, not a page with the right status.
func TestOnlyAnApprovalOfWhatWasAskedIsOne(t *testing.T) {
	t.Parallel()
	bad := map[string]string{
		"another status":      reply(200, "application/json", approval),
		"202":                 reply(202, "application/json", approval),
		"another type":        reply(201, "text/html", approval),
		"no type":             swap(t, ok(201, approval), "Content-Type: application/json\r\n", ""),
		"two types":           reply(201, "application/json", approval, "Content-Type: application/json"),
		"no body":             ok(201, ""),
		"null":                ok(201, "null"),
		"a list":              ok(201, "["+approval+"]"),
		"something after it":  ok(201, approval+"{}"),
		"cut":                 ok(201, approval[:len(approval)-1]),
		"cut, and closed":     "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n" + approval[:len(approval)-1],
		"cut chunk":           "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1000\r\n" + approval,
		"not UTF-8":           ok(201, swap(t, approval, "w-1", "\xff")),
		"a decline":           decline(201, "INSUFFICIENT_FUNDS"),
		"another decision":    ok(201, swap(t, approval, "APPROVED", "DECLINED")),
		"in another case":     ok(201, swap(t, approval, "APPROVED", "Approved")),
		"a member's case":     ok(201, swap(t, approval, `"decision"`, `"Decision"`)),
		"decided twice":       ok(201, swap(t, approval, `"decision"`, `"decision": "DECLINED", "decision"`)),
		"no decision":         ok(201, swap(t, approval, `"decision": "APPROVED", `, "")),
		"a null decision":     ok(201, swap(t, approval, `"APPROVED"`, "null")),
		"another account":     ok(201, swap(t, approval, "ALICE", "BOB")),
		"another amount":      ok(201, swap(t, approval, "1250", "1251")),
		"an amount of text":   ok(201, swap(t, approval, "1250", `"1250"`)),
		"a rescaled amount":   ok(201, swap(t, approval, "1250", "12.50")),
		"an exponent":         ok(201, swap(t, approval, "1250", "1.25e3")),
		"an amount too large": ok(201, swap(t, approval, "1250", "123456789012345678901234567890")),
		"another currency":    ok(201, swap(t, approval, "EUR", "USD")),
		"another kind":        ok(201, swap(t, approval, `"debit"`, `"hold"`)),
		"another reference":   ok(201, swap(t, approval, "receipt 4711", "receipt 4712")),
		"no reference":        ok(201, swap(t, approval, `, "reference": "receipt 4711"`, "")),
		"somebody's metadata": ok(201, swap(t, approval, `"reference"`, `"metadata": {"lane": "3"}, "reference"`)),
		"no id":               ok(201, swap(t, approval, ids+", ", "")),
		"an id that is none":  ok(201, swap(t, approval, "01a2296a-6d6e-727e-bec2-db42985da831", "1")),
		"the nil id":          ok(201, swap(t, approval, "01a2296a-6d6e-727e-bec2-db42985da831", "00000000-0000-0000-0000-000000000000")),
		"no wallet id":        ok(201, swap(t, approval, `"walletId": "w-1", `, "")),
		"an empty wallet id":  ok(201, swap(t, approval, `"w-1"`, `""`)),
		"no time":             ok(201, swap(t, approval, "2026-11-29T22:26:10.414156Z", "")),
		"too large":           ok(201, swap(t, approval, "w-1", strings.Repeat("w", 1<<20))),
		"a head too large":    reply(201, "application/json", approval, "X: "+strings.Repeat("x", 64<<10)),
		"deeply nested":       ok(201, swap(t, approval, `"w-1"`, strings.Repeat("[", 100_000))),
	}
	for name, answer := range bad {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, says(answer))
			d, err := s.till(t).Debit(t.Context(), key, asked)
			if _, unknown := errors.AsType[*client.OutcomeUnknownError](err); !unknown || d.Approved() {
				t.Errorf("got %+v, %v, want that the outcome is unknown", d, err)
			}
			if n := len(s.Requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

// Members may be added to answers, white space and order mean nothing, and a parameter
// belongs to a type: a strict client must not take these for a fault.
func TestAnApprovalMayLookOtherwise(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{
		"as it is":         ok(201, approval),
		"a new member":     ok(201, swap(t, approval, `"walletId"`, `"weather": {"x": [1, null]}, "walletId"`)),
		"white space":      ok(201, "\n "+strings.ReplaceAll(approval, ", ", " ,\n\t")+"\n"),
		"a charset":        reply(201, "Application/JSON; charset=utf-8", approval),
		"an early hint":    "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + ok(201, approval),
		"close-delimited":  "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\n\r\n" + approval,
		"an old HTTP":      strings.Replace(ok(201, approval), "HTTP/1.1", "HTTP/1.0", 1),
		"the first answer": reply(201, "application/json", approval, "Idempotency-Replayed: true"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, says(answer))
			d, err := s.till(t).Debit(t.Context(), key, asked)
			if err != nil || !d.Approved() || d.ID != paymentID || d.WalletID != "w-1" {
				t.Errorf("got %+v, %v", d, err)
			}
			if d.Replayed != (name == "the first answer") {
				t.Errorf("replayed is %v", d.Replayed)
			}
		})
	}
}

// A decline is believed as strictly: a till that is told "no" by a proxy's page might take
// the customer's money a second time, with a new key.
func TestOnlyADeclineIsADecline(t *testing.T) {
	t.Parallel()
	final, retryable := decline(402, "INSUFFICIENT_FUNDS"), decline(424, "WALLET_UNAVAILABLE", "Retry-After: 2")
	for name, answer := range map[string]string{
		"a page":                  reply(402, "text/html", "<h1>pay for your plan</h1>"),
		"a problem of no payment": problem(402, "PAYMENT_REQUIRED"),
		"JSON that is no problem": strings.Replace(final, "application/problem+json", "application/json", 1),
		"another status in it":    strings.Replace(final, `"status": 402`, `"status": 424`, 1),
		"retryable, at 402":       strings.Replace(final, `"retryable": false`, `"retryable": true `, 1),
		"null for false":          strings.Replace(final, `"retryable": false`, `"retryable": null `, 1),
		"final, at 424":           strings.Replace(retryable, `"retryable": true`, `"retryable":false`, 1),
		"the wallet's no, at 424": decline(424, "INSUFFICIENT_FUNDS"),
		"no decision, at 402":     decline(402, "WALLET_TIMEOUT"),
		"a code that is none":     decline(402, "insufficient funds"),
		"a hold's":                strings.Replace(final, `"debit"`, `"hold" `, 1),
		"approved":                strings.Replace(final, "DECLINED", "APPROVED", 1),
		"cut":                     cut(final),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, says(answer))
			d, err := s.till(t).Debit(t.Context(), key, asked)
			if _, unknown := errors.AsType[*client.OutcomeUnknownError](err); !unknown {
				t.Errorf("got %+v, %v, want that the outcome is unknown", d, err)
			}
		})
	}
	s := scripted(t, says(final))
	d, err := s.till(t).Debit(t.Context(), key, asked)
	if err != nil || d.Verdict != client.Declined || d.Code != "INSUFFICIENT_FUNDS" || d.Retryable || d.RetryAfter != 0 {
		t.Errorf("got %+v, %v", d, err)
	}
}

// A refusal is what the service itself has said, whole, and the till must be able to act on
// it: status, code and the members that are wrong.
func TestARefusalSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const body = `{"type": "T", "title": "A value is out of range", "status": 422, "detail": "D", "code": "INVALID_VALUE",
		"errors": [{"pointer": "/amount", "detail": "is 0"}, {"pointer": "", "detail": "is odd"}]}`
	s := scripted(t, says(reply(422, "application/problem+json", body)))
	_, err := s.till(t).Debit(t.Context(), key, asked)
	got, _ := errors.AsType[*client.Problem](err)
	want := &client.Problem{
		Status: 422, Code: "INVALID_VALUE", Title: "A value is out of range", Detail: "D",
		Errors: []client.MemberError{{Pointer: "/amount", Detail: "is 0"}, {Pointer: "", Detail: "is odd"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for status, code := range map[int]string{
		400: "MISSING_IDEMPOTENCY_KEY", 401: "UNAUTHENTICATED", 403: "FORBIDDEN", 404: "HOLD_NOT_FOUND", 405: "METHOD_NOT_ALLOWED", 406: "NOT_ACCEPTABLE",
		409: "PAYMENT_CANCELLED", 413: "BODY_TOO_LARGE", 415: "UNSUPPORTED_MEDIA_TYPE", 422: "IDEMPOTENCY_KEY_REUSED", 501: "HOLDS_UNSUPPORTED",
	} {
		s := scripted(t, says(problem(status, code)))
		_, err := s.till(t).Debit(t.Context(), key, asked)
		p, refused := errors.AsType[*client.Problem](err)
		_, unknown := errors.AsType[*client.OutcomeUnknownError](err)
		if !refused || unknown || p.Status != status || p.Code != code {
			t.Errorf("%d %s: got %v", status, code, err)
		}
	}
}

// A follow-up that was accepted is about what was asked, or its till would wait for
// somebody else's.
func TestOnlyWhatWasAskedForIsAccepted(t *testing.T) {
	t.Parallel()
	otherPayment := swap(t, pending, "01a2296a-6d6e-727e-bec2-db42985da831", "01a2296a-6d6e-727e-bec2-db42985da833")
	for name, test := range map[string]struct {
		answer string
		amount int64
		ok     bool
	}{
		"as it is":        {ok(202, pending), 0, true},
		"all of it named": {ok(202, pending), 1250, true},
		"another amount":  {ok(202, pending), 1000, false},
		"another payment": {ok(202, otherPayment), 0, false},
		"another kind":    {ok(202, swap(t, pending, "capture", "release")), 0, false},
		"ended already":   {ok(202, swap(t, pending, "PENDING", "SUCCEEDED")), 0, false},
		"a new status":    {ok(202, swap(t, pending, "PENDING", "DREAMING")), 0, false},
		"another HTTP":    {ok(200, pending), 0, false},
		"half the money":  {ok(202, swap(t, pending, `, "currency": "EUR"`, "")), 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, says(test.answer))
			f, err := s.till(t).Capture(t.Context(), key, paymentID, test.amount)
			if test.ok {
				if err != nil || f.Status != client.Pending || f.ID != otherID || f.AmountMinor != 1250 {
					t.Errorf("got %+v, %v", f, err)
				}
				return
			}
			if _, unknown := errors.AsType[*client.OutcomeUnknownError](err); !unknown {
				t.Errorf("got %+v, %v, want that the outcome is unknown", f, err)
			}
		})
	}
}

// What is read by key is what a till decides about goods by, once its answer got lost.
func TestAPaymentIsReadAsAWhole(t *testing.T) {
	t.Parallel()
	reversal := `"followUps": [{"id": "01a2296a-6d6e-727e-bec2-db42985da832", "kind": "reversal", "status": "PENDING", "createdAt": "2026-11-29T22:26:10.414156Z"}]`
	tombstone := `{` + ids + `, "kind": "debit", "decision": "DECLINED", "code": "CANCELLED", ` + times + `, "followUps": []}`
	for name, test := range map[string]struct {
		body     string
		ok       bool
		approved bool
	}{
		"approved":                     {paid, true, true},
		"approved, cancelled since":    {swap(t, paid, `"followUps": []`, reversal), true, false},
		"cancelled before it was seen": {tombstone, true, false},
		"an approval without money":    {swap(t, paid, money+", ", ""), false, false},
		"a decline without a code":     {swap(t, tombstone, `"code": "CANCELLED", `, ""), false, false},
		"no follow-ups":                {swap(t, paid, `, "followUps": []`, ""), false, false},
		"a follow-up of another kind":  {swap(t, paid, `"followUps": []`, swap(t, reversal, "reversal", "dream")), false, false},
		"another kind":                 {swap(t, paid, `"debit"`, `"hold"`), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, says(ok(200, test.body)))
			c := s.till(t, func(cfg *client.Config) { cfg.Reads.Attempts = 1 })
			p, seen, err := c.Reconcile(t.Context(), client.KindDebit, key)
			if _, failed := errors.AsType[*client.ReadError](err); test.ok == failed || seen != test.ok || p.Approved() != test.approved {
				t.Errorf("got %+v, %v, %v", p, seen, err)
			}
		})
	}
	s := scripted(t, says(ok(200, paid)))
	c := s.till(t, func(cfg *client.Config) { cfg.Reads.Attempts = 1 })
	if _, seen, err := c.Payment(t.Context(), otherID); seen || err == nil {
		t.Errorf("somebody else's payment was believed: %v, %v", seen, err)
	}
}

// A till that believes a cancel lets the customer go.
func TestOnlyACancellationIsOne(t *testing.T) {
	t.Parallel()
	approved := `{"operation": "debit", "decision": "APPROVED", ` + ids + `, "reversal": "01a2296a-6d6e-727e-bec2-db42985da832"}`
	for name, test := range map[string]struct {
		answer  string
		refused bool
		ok      bool
	}{
		"a tombstone":                   {ok(200, cancelled), false, true},
		"an approval and its reversal":  {ok(200, approved), false, true},
		"an approval that stays":        {ok(200, swap(t, approved, `, "reversal": "01a2296a-6d6e-727e-bec2-db42985da832"`, "")), false, false},
		"of a hold":                     {ok(200, swap(t, cancelled, "debit", "hold")), false, false},
		"a decline without a code":      {ok(200, swap(t, cancelled, `"code": "CANCELLED", `, "")), false, false},
		"captured: a credit is wanted":  {problem(409, "HOLD_ALREADY_CAPTURED"), true, false},
		"the outcome of it is unknown":  {problem(503, "OUTCOME_UNKNOWN"), false, false},
		"a page with the right status":  {reply(200, "text/html", cancelled), false, false},
		"201 is not what was hoped for": {ok(201, cancelled), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, says(test.answer))
			_, err := s.till(t).Cancel(t.Context(), client.KindDebit, key, nil)
			e, unknown := errors.AsType[*client.OutcomeUnknownError](err)
			if test.ok != (err == nil) || unknown == (test.ok || test.refused) || (unknown && !e.Cancelling) {
				t.Errorf("got %v", err)
			}
		})
	}
}
