package client

import (
	"net/http"
	"testing"

	"github.com/google/uuid"
)

// Something between the till and the service may answer with anything at all. It must
// not take the till's program down, and nothing but a 201 about what was asked
// may come out as an approval.
func FuzzAnswers(f *testing.F) {
	const approval = `{"id":"01a2296a-6d6e-727e-bec2-db42985da831","kind":"debit","decision":"APPROVED","account":"ALICE","amount":1250,"currency":"EUR",` +
		`"walletId":"w-1","createdAt":"2026-11-29T22:26:10.414156Z","decidedAt":"2026-11-29T22:26:10.418248Z"}`
	for _, seed := range []struct {
		status           int
		mediaType, after string
		body             string
	}{
		{201, "application/json", "", approval},
		{201, "application/json; charset=utf-8", "", approval[:40]},
		{200, "application/json", "", `{"followUps":[{"metadata":{"a":null}},[],null],"amount":1e400}`},
		{402, "application/problem+json", "", `{"status":402,"code":"INSUFFICIENT_FUNDS","retryable":false,"kind":"debit","decision":"DECLINED"}`},
		{424, "application/problem+json", "2", `{"status":424,"code":"WALLET_TIMEOUT","retryable":true,"kind":"debit","decision":"DECLINED"}`},
		{422, "application/problem+json", "-1", `{"errors":[{"pointer":1},{}],"status":4.22e2}`},
		{503, "", "00000000000000000001", "\xff\x00{"},
		{404, "text/html", "99999999999999999999", "<h1>"},
	} {
		f.Add(seed.status, seed.mediaType, seed.after, []byte(seed.body))
	}
	asked := PaymentRequest{Account: "ALICE", AmountMinor: 1250, Currency: "EUR"}
	f.Fuzz(func(t *testing.T, status int, contentType, after string, body []byte) {
		a := answer{status: status, mediaType: mediaType([]string{contentType}), retryAfter: retryAfter([]string{after}), body: body}
		if a.retryAfter < 0 {
			t.Errorf("Retry-After %q is %v", after, a.retryAfter)
		}
		d, err := readApproval(a, KindDebit, "key", asked)
		if d.Approved() != (err == nil) || (err == nil && (d.ID == uuid.Nil || d.WalletID == "" || a.mediaType != jsonType)) {
			t.Errorf("got %+v, %v", d, err)
		}
		if d, err := readDecline(a, KindDebit, "key"); d.Approved() || (err == nil && d.Code == "") {
			t.Errorf("got %+v, %v", d, err)
		}
		if p, err := readPayment(a); p.Approved() && (err != nil || p.AmountMinor <= 0) {
			t.Errorf("got %+v, %v", p, err)
		}
		if c, err := readCancellation(a, KindDebit); err == nil && c.Verdict == Approved && c.ReversalID == uuid.Nil {
			t.Errorf("got %+v", c)
		}
		if w, err := readAccepted(a, FollowUp{Kind: KindCredit}); err == nil && w.Status != Pending {
			t.Errorf("got %+v", w)
		}
		_, _ = readFollowUp(a)
		if p, _ := readProblem(a); p.Error() == "" || p.Status != status {
			t.Errorf("got %+v", p)
		}
		if err := (mutation{kind: KindDebit, key: "key"}).refused(answer{status: http.StatusCreated, body: body}); err == nil {
			t.Error("no error")
		}
	})
}
