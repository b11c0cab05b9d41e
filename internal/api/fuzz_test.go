package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// A till, a proxy or an attacker may send anything: the answer is a decision or
// a refusal that names what is wrong, never a crash and never a 5xx, which a
// till would have to take for an unknown outcome (field report A30).
func neverA5xx(t *testing.T, s *service, w *httptest.ResponseRecorder) {
	t.Helper()
	switch begun := len(s.requests()); {
	case w.Code == http.StatusCreated && begun == 1:
	case w.Code >= 400 && w.Code < 500 && begun == 0:
	default:
		t.Errorf("status %d with %d requests begun\n%s", w.Code, begun, w.Body)
	}
	if strings.Contains(s.log.String(), "panic") {
		t.Errorf("panic: %s", s.log)
	}
}

// FuzzDecode sends bodies. Every exchange is held against the document besides,
// which must allow whatever was taken.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		goodBody, body("", ""), body("amount", "9007199254740993"), body("amount", "-0"), body("amount", "1e2"),
		body("reference", `"\ud83d\ude00"`), body("reference", `"\ud800"`), body("metadata", many(21)), body("metadata", `{"a":"\u0000"}`),
		`{"account":"a","account":"b"}`, "{\"\xff\":0}", strings.Repeat("[", 10001), `null`, ``, goodBody + `{}`, "\ufeff{}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s := newService(t, nil)
		if text == "" {
			text = " " // "" is the good one to this harness
		}
		w := s.send(sent{body: text})
		neverA5xx(t, s, w)
		for _, req := range s.requests() {
			if req.Amount.AmountMinor < 1 || req.Amount.AmountMinor > payment.MaxAmountMinor || len(req.Amount.Currency) != 3 || req.Account == "" {
				t.Errorf("taken: %+v", req)
			}
		}
	})
}

// FuzzKeyHeader sends keys, and asks for what was taken by key.
func FuzzKeyHeader(f *testing.F) {
	for _, seed := range []string{goodKey, `"a"`, `"\""`, `"\\`, `"a";b`, "", " ", "a b", "\x00", "ü", strings.Repeat("k", 256), "a,b", `\`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		s := newService(t, nil)
		w := s.send(sent{header: http.Header{"Idempotency-Key": {key}}})
		neverA5xx(t, s, w)
		if w.Code == http.StatusCreated {
			if _, err := payment.NewKey(string(s.requests()[0].Key)); err != nil {
				t.Errorf("taken: %q", s.requests()[0].Key)
			}
		}
	})
}

// FuzzDeadlineHeader sends deadlines.
func FuzzDeadlineHeader(f *testing.F) {
	for _, seed := range []string{"3000", "0", "-1", "+1", "1.5", "1e3", "", " 1", "9223372036854775807", "9223372036854775808", "0x1", "３"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, wait string) {
		s := newService(t, nil)
		w := s.send(sent{header: http.Header{"Request-Deadline-Ms": {wait}}})
		neverA5xx(t, s, w)
		if w.Code == http.StatusCreated && *s.deadline > 2400e6 {
			t.Errorf("%q leaves %v", wait, *s.deadline)
		}
	})
}

// FuzzFollowUp sends bodies to every route of a follow-up and to cancel by key. What
// is taken must be within the limits, and name what the route is about.
func FuzzFollowUp(f *testing.F) {
	for _, seed := range []string{
		refundBody, ofHoldBody, payoutBody, captureBody, "{}", "", " ", "null", `{"amount":0}`, `{"amount":1e2}`, `{"amount":1,"amount":2}`,
		`{"account":"a","amount":1,"currency":"EUR","debitId":"00000000-0000-0000-0000-000000000000"}`,
		strings.TrimSuffix(refundBody, "}") + `,"holdId":null}`, "{\"\xff\":0}", goodBody, strings.Repeat("[", 10001),
	} {
		for route := range byte(4) {
			f.Add(route, seed)
		}
	}
	f.Fuzz(func(t *testing.T, route byte, text string) {
		s := newService(t, nil)
		path := []string{"/credits", capturePath, releasePath, cancelPath(payment.Hold)}[route%4]
		w := s.send(sent{path: path, token: payoutToken, body: text, noBody: text == ""})
		switch begun := s.ledger.begun(); {
		case (w.Code == http.StatusAccepted || w.Code == http.StatusOK) && begun == 1:
		case w.Code >= 400 && w.Code < 500 && begun == 0:
		default:
			t.Errorf("status %d with %d begun\n%s", w.Code, begun, w.Body)
		}
		if strings.Contains(s.log.String(), "panic") {
			t.Errorf("panic: %s", s.log)
		}
		for _, req := range s.ledger.asked {
			amount, named := req.Amount.AmountMinor, req.PaymentID != uuid.Nil
			switch {
			case amount < 0 || amount > payment.MaxAmountMinor, named != (req.Of != ""):
				t.Errorf("taken: %+v", req)
			case req.Kind == payment.Credit && (amount == 0 || len(req.Amount.Currency) != 3 || req.Account == ""):
				t.Errorf("taken: %+v", req)
			case req.Kind != payment.Credit && (!named || req.Account != "" || req.Amount.Currency != ""):
				t.Errorf("taken: %+v", req)
			}
		}
		for _, c := range s.ledger.cancelled {
			if (c.Original != nil) != (text != "") || c.Original != nil && (c.Original.Account == "" || c.Original.Amount.AmountMinor < 1) {
				t.Errorf("taken: %+v", c)
			}
		}
	})
}
