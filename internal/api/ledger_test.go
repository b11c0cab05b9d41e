package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// yes is a wallet that approves of everything.
type yes struct{}

func (yes) Enter() (leave func(), ok bool) { return func() {}, true }

func (yes) Send(_ context.Context, in payment.Instruction) payment.Outcome {
	return payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: "w-" + in.Reference.String(), Status: 201}
}

func (yes) Lookup(context.Context, payment.Instruction) payment.Evidence {
	return payment.Evidence{Finding: payment.NoEvidence}
}

// onPostgres is the API on a ledger of its own, for what a fake cannot know: that
// both mean the same by the same words.
func onPostgres(t *testing.T) *service {
	t.Helper()
	pool, err := ledger.Connect(t.Context(), pgtest.New(t).URL, ledger.Options{MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l, err := ledger.New(pool, ledger.Config{Horizon: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return newService(t, func(cfg *api.Config) {
		cfg.Decider = decision.New(l, yes{}, decision.Limits{Call: 800 * time.Millisecond, Lookup: 300 * time.Millisecond, MinToSend: 50 * time.Millisecond})
		cfg.Ledger, cfg.FollowUps = l, l
		// This machine is shared, and a late answer is not what these tests are about.
		cfg.Budget.Server, cfg.ReadTimeout = 30*time.Second, 30*time.Second
	})
}

// post sends a request under a key, and get reads; both fail unless the answer has
// this status.
func (s *service) post(t *testing.T, status int, path, key, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := s.send(sent{path: path, key: key, body: body, noBody: body == ""})
	if w.Code != status {
		t.Fatalf("POST %s: %d, want %d\n%s", path, w.Code, status, w.Body)
	}
	return w
}

func (s *service) get(t *testing.T, path string) map[string]any {
	t.Helper()
	w := s.send(sent{method: http.MethodGet, path: path})
	if w.Code != http.StatusOK {
		t.Fatalf("GET %s: %d\n%s", path, w.Code, w.Body)
	}
	return object(t, w)
}

func object(t *testing.T, w *httptest.ResponseRecorder) map[string]any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// A day at the till: goods are paid, one is brought back, and then the whole sale is
// cancelled. What the till hears on the way must fit together, and the answers that
// it has in hand must stay what they are.
func TestADebitIsRefundedAndThenCancelled(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	debit := object(t, s.post(t, 201, "/debits", "d", goodBody))["id"].(string)
	refund := func(amount int) string {
		return fmt.Sprintf(`{"account":"acc-1001","amount":%d,"currency":"EUR","debitId":%q,"reference":"r","metadata":{"b":"2","a":"1"}}`, amount, debit)
	}
	first := s.post(t, 202, "/credits", "c", refund(500))
	again := s.post(t, 202, "/credits", "c", refund(500))
	if diff := cmp.Diff(first.Body.String(), again.Body.String()); diff != "" || again.Header().Get("Idempotency-Replayed") != "true" {
		t.Errorf("the replay differs (-first +replay):\n%s", diff)
	}
	refusedWith(t, s.post(t, 422, "/credits", "c", refund(501)), 422, "IDEMPOTENCY_KEY_REUSED")
	tooMuch := refusedWith(t, s.post(t, 422, "/credits", "c2", refund(1500)), 422, "AMOUNT_EXCEEDS_DEBIT")
	if want := "asks for 1500; of the 1999 that were taken, 500 are given back"; !strings.Contains(tooMuch["detail"].(string), want) {
		t.Errorf("detail %q, want %q in it", tooMuch["detail"], want)
	}
	refusedWith(t, s.post(t, 422, "/credits", "c2", strings.Replace(refund(1), "EUR", "USD", 1)), 422, "CURRENCY_MISMATCH")
	refusedWith(t, s.post(t, 422, "/credits", "c2", strings.Replace(refund(1), "acc-1001", "acc-1002", 1)), 422, "ACCOUNT_MISMATCH")
	refusedWith(t, s.post(t, 404, "/credits", "c2", strings.Replace(refund(1), "debitId", "holdId", 1)), 404, "HOLD_NOT_FOUND")

	credit := object(t, first)
	byID := s.get(t, first.Header().Get("Location"))
	if diff := cmp.Diff(credit, byID); diff != "" {
		t.Errorf("a follow-up that has not begun (-accepted +read):\n%s", diff)
	}
	if diff := cmp.Diff(byID, s.get(t, "/operations/by-key/credit/c")); diff != "" {
		t.Errorf("by its key (-by id +by key):\n%s", diff)
	}
	if diff := cmp.Diff([]any{byID}, s.get(t, "/payments/"+debit)["followUps"]); diff != "" {
		t.Errorf("among the payment's (-by id +there):\n%s", diff)
	}

	cancelled := s.post(t, 200, "/payments/by-key/debit/d/cancel", "", "")
	c := object(t, cancelled)
	if c["decision"] != "APPROVED" || c["id"] != debit || c["reversal"] == nil {
		t.Errorf("cancelled: %v", c)
	}
	if diff := cmp.Diff(cancelled.Body.String(), s.post(t, 200, "/payments/by-key/debit/d/cancel", "", goodBody).Body.String()); diff != "" {
		t.Errorf("a second cancel differs (-first +second):\n%s", diff)
	}
	refusedWith(t, s.post(t, 422, "/payments/by-key/debit/d/cancel", "", body("amount", "1")), 422, "IDEMPOTENCY_KEY_REUSED")
	refusedWith(t, s.post(t, 409, "/debits", "d", goodBody), 409, "PAYMENT_CANCELLED")
	refusedWith(t, s.post(t, 422, "/debits", "d", body("amount", "1")), 422, "IDEMPOTENCY_KEY_REUSED")
	refusedWith(t, s.post(t, 409, "/credits", "c3", refund(1)), 409, "NOT_REFUNDABLE")
	if diff := cmp.Diff(first.Body.String(), s.post(t, 202, "/credits", "c", refund(500)).Body.String()); diff != "" {
		t.Errorf("the refund of before is told otherwise now:\n%s", diff)
	}
	p := s.get(t, "/payments/by-key/debit/d")
	followUps := p["followUps"].([]any)
	if p["decision"] != "APPROVED" || len(followUps) != 2 || followUps[1].(map[string]any)["kind"] != "reversal" {
		t.Errorf("the payment afterwards: %v", p)
	}
	if r := s.get(t, "/operations/"+c["reversal"].(string)); r["kind"] != "reversal" || r["paymentId"] != debit || r["amount"] != 1999.0 {
		t.Errorf("its reversal: %v", r)
	}
	w := s.send(sent{method: http.MethodGet, path: first.Header().Get("Location"), token: otherToken})
	refusedWith(t, w, 404, "OPERATION_NOT_FOUND")
}

// A hold ends once, by whichever was accepted first, and a cancel knows which.
func TestAHoldEndsOnce(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	captured := object(t, s.post(t, 201, "/holds", "h1", goodBody))["id"].(string)
	path := "/holds/" + captured
	w := s.send(sent{path: path + "/capture", key: "x", body: "{}", token: otherToken})
	refusedWith(t, w, 404, "HOLD_NOT_FOUND")
	tooMuch := refusedWith(t, s.post(t, 422, path+"/capture", "x", `{"amount":2000}`), 422, "AMOUNT_EXCEEDS_HOLD")
	if want := "asks for 2000 and the hold is of 1999, in minor units of EUR"; !strings.Contains(tooMuch["detail"].(string), want) {
		t.Errorf("detail %q, want %q in it", tooMuch["detail"], want)
	}
	first := s.post(t, 202, path+"/capture", "k", "")
	if o := object(t, first); o["amount"] != 1999.0 || o["currency"] != "EUR" {
		t.Errorf("capture of the whole: %v", o)
	}
	if again := s.post(t, 202, path+"/capture", "k", "{}"); again.Body.String() != first.Body.String() {
		t.Errorf("the replay is %s, want %s", again.Body, first.Body)
	}
	refusedWith(t, s.post(t, 422, path+"/capture", "k", `{"amount":1999}`), 422, "IDEMPOTENCY_KEY_REUSED")
	refusedWith(t, s.post(t, 409, path+"/release", "k2", ""), 409, "HOLD_ALREADY_CAPTURED")
	refusedWith(t, s.post(t, 409, path+"/capture", "k2", ""), 409, "HOLD_ALREADY_CAPTURED")
	refusedWith(t, s.post(t, 409, "/payments/by-key/hold/h1/cancel", "", ""), 409, "HOLD_ALREADY_CAPTURED")
	refusedWith(t, s.post(t, 409, "/credits", "k3", fmt.Sprintf(`{"account":"acc-1001","amount":1,"currency":"EUR","holdId":%q}`, captured)), 409, "NOT_REFUNDABLE")

	released := object(t, s.post(t, 201, "/holds", "h2", goodBody))["id"].(string)
	release := object(t, s.post(t, 202, "/holds/"+released+"/release", "r", "{}"))
	refusedWith(t, s.post(t, 409, "/holds/"+released+"/release", "r2", ""), 409, "HOLD_NOT_ACTIVE")
	refusedWith(t, s.post(t, 409, "/holds/"+released+"/capture", "r3", ""), 409, "HOLD_NOT_ACTIVE")
	if c := object(t, s.post(t, 200, "/payments/by-key/hold/h2/cancel", "", "")); c["reversal"] != release["id"] {
		t.Errorf("the cancel of a released hold names %v, want its release %v", c["reversal"], release["id"])
	}
}

// A till that cancels a key which never arrived must be safe from the request that
// arrives an hour later, whatever is in it.
func TestAKeyThatWasCancelledFirstDoesNothingLater(t *testing.T) {
	t.Parallel()
	s := onPostgres(t)
	first := s.post(t, 200, "/payments/by-key/debit/never/cancel", "", "")
	c := object(t, first)
	if c["decision"] != "DECLINED" || c["code"] != "CANCELLED" || c["reversal"] != nil {
		t.Errorf("cancelled: %v", c)
	}
	for _, late := range []string{goodBody, body("amount", "7")} {
		w := s.post(t, 402, "/debits", "never", late)
		if o := refusedWith(t, w, 402, "CANCELLED"); o["id"] != c["id"] {
			t.Errorf("the late original is told of %v, want %v", o["id"], c["id"])
		}
	}
	p := s.get(t, "/payments/by-key/debit/never")
	if p["account"] != nil || p["amount"] != nil || p["code"] != "CANCELLED" {
		t.Errorf("the tombstone shows %v", p)
	}
	// The key of a hold is another one.
	s.post(t, 201, "/holds", "never", goodBody)

	c = object(t, s.post(t, 200, "/payments/by-key/debit/lost/cancel", "", goodBody))
	if r := s.get(t, "/operations/"+c["reversal"].(string)); r["kind"] != "reversal" || r["amount"] != 1999.0 || r["paymentId"] != c["id"] {
		t.Errorf("the reversal of what may be lost: %v", r)
	}
}
