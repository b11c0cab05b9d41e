package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/payment"
)

func cancelPath(op payment.Operation) string {
	return "/payments/by-key/" + string(op) + "/a-key/cancel"
}

// A till that lost its answer cancels and must be able to read off what is true now:
// whether something was taken, and what undoes it.
func TestACancelTellsTheDecisionAndWhatUndoesIt(t *testing.T) {
	t.Parallel()
	p := approved(payment.Request{Operation: payment.Hold, Account: "a", Amount: payment.Money{AmountMinor: 5, Currency: "EUR"}})
	declinedBefore := p
	declinedBefore.State, declinedBefore.Code, declinedBefore.WalletID = payment.Declined, "INSUFFICIENT_FUNDS", ""
	buried := tombstone(payment.Hold)
	lostClaim := buried
	lostClaim.Reversal = operationID
	const head = `{"operation":"hold","decision":`
	const id, reversal = `"id":"019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77"`, `,"reversal":"019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70"`
	for name, test := range map[string]struct {
		result payment.Cancellation
		status int
		want   string // the body of a 200, else the code
	}{
		"never seen":                  {buried, 200, head + `"DECLINED","code":"CANCELLED",` + id + `}`},
		"never seen, body given":      {lostClaim, 200, head + `"DECLINED","code":"CANCELLED",` + id + reversal + `}`},
		"approved":                    {payment.Cancellation{Status: payment.CancelledPayment, Payment: p, Reversal: operationID}, 200, head + `"APPROVED",` + id + reversal + `}`},
		"declined":                    {payment.Cancellation{Status: payment.CancelledPayment, Payment: declinedBefore}, 200, head + `"DECLINED","code":"INSUFFICIENT_FUNDS",` + id + `}`},
		"captured or being captured":  {payment.Cancellation{Status: payment.CancelTooLate, Payment: p}, 409, "HOLD_ALREADY_CAPTURED"},
		"a body of another request":   {payment.Cancellation{Status: payment.CancelUnknownBody, Payment: p}, 422, "IDEMPOTENCY_KEY_REUSED"},
		"no result":                   {payment.Cancellation{}, 500, "INTERNAL"},
		"a result of a newer release": {payment.Cancellation{Status: 200}, 500, "INTERNAL"},
		"in flight after all":         {payment.Cancellation{Status: payment.CancelledPayment, Payment: payment.Payment{ID: paymentID, State: payment.InFlight}}, 500, "INTERNAL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nudged := 0
			s := newService(t, func(cfg *api.Config) { cfg.Nudge = func() { nudged++ } })
			s.ledger.cancel = func(context.Context, payment.Operation, payment.Key) (payment.Cancellation, error) {
				return test.result, nil
			}
			w := s.send(sent{path: cancelPath(payment.Hold), noBody: true, header: http.Header{"Idempotency-Key": nil, "Content-Type": nil}})
			want := map[string][]string{"HOLD_ALREADY_CAPTURED": nil, "IDEMPOTENCY_KEY_REUSED": {"conflict hold mismatch"}, "INTERNAL": {"unknown hold"}}[test.want]
			if test.status == 200 {
				want = []string{"cancelled hold"}
				if w.Code != 200 || w.Body.String() != test.want+"\n" {
					t.Errorf("%d %s, want 200 %s", w.Code, w.Body, test.want)
				}
			} else {
				refusedWith(t, w, test.status, test.want)
			}
			if diff := cmp.Diff(want, s.seen.list()); diff != "" {
				t.Errorf("observed (-want +got):\n%s", diff)
			}
			if (nudged == 1) != (test.status == 200) {
				t.Errorf("the queue was nudged %d times", nudged)
			}
		})
	}
}

// What is cancelled is the key in the path, of this caller and of this operation. The
// body, if the till still has it, goes along exactly: what the wallet may have
// applied for it is found by it.
func TestACancelAsksForExactlyTheKeyInThePath(t *testing.T) {
	t.Parallel()
	original := payment.Request{
		Caller: "store-18", Operation: payment.Debit, Key: "a-key", Account: "acc-1001",
		Amount: payment.Money{AmountMinor: 1999, Currency: "EUR"}, Metadata: map[string]string{},
	}
	withBody := `{"metadata":{},"currency":"EUR","amount":1999,"account":"acc-1001"}`
	none := http.Header{"Idempotency-Key": nil, "Content-Type": nil}
	for name, test := range map[string]struct {
		q    sent
		want cancelAsked
	}{
		"without a body":   {sent{path: cancelPath(payment.Debit), noBody: true, header: none}, cancelAsked{"store-18", payment.Debit, "a-key", nil}},
		"of a hold":        {sent{path: cancelPath(payment.Hold), noBody: true, header: none}, cancelAsked{"store-18", payment.Hold, "a-key", nil}},
		"with a body":      {sent{path: cancelPath(payment.Debit), body: withBody, header: http.Header{"Idempotency-Key": nil}}, cancelAsked{"store-18", payment.Debit, "a-key", &original}},
		"an odd key":       {sent{path: "/payments/by-key/debit/%2F%25%22/cancel", noBody: true, header: none}, cancelAsked{"store-18", payment.Debit, `/%"`, nil}},
		"the key 'cancel'": {sent{path: "/payments/by-key/debit/cancel/cancel", noBody: true, header: none}, cancelAsked{"store-18", payment.Debit, "cancel", nil}},
		// A client that adds a key to every POST must be able to cancel: what it sends
		// there is bound to nothing, whatever it is.
		"with a key of its own":      {sent{path: cancelPath(payment.Debit), noBody: true, key: "another"}, cancelAsked{"store-18", payment.Debit, "a-key", nil}},
		"with a key that is no key":  {sent{path: cancelPath(payment.Debit), noBody: true, header: http.Header{"Idempotency-Key": {"", "b"}}}, cancelAsked{"store-18", payment.Debit, "a-key", nil}},
		"with a form's media type":   {sent{path: cancelPath(payment.Debit), noBody: true, header: http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}}, cancelAsked{"store-18", payment.Debit, "a-key", nil}},
		"with time that has run out": {sent{path: cancelPath(payment.Debit), noBody: true, header: http.Header{"Request-Deadline-Ms": {"0"}}}, cancelAsked{"store-18", payment.Debit, "a-key", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// The wallet has no holds any more, and less is allowed than was asked for then:
			// what was begun before can still be undone.
			s := newService(t, func(cfg *api.Config) { cfg.HoldsSupported, cfg.MaxAmount = false, 100 })
			test.q.token = otherToken
			if w := s.send(test.q); w.Code != http.StatusOK {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			if diff := cmp.Diff([]cancelAsked{test.want}, s.ledger.cancelled); diff != "" {
				t.Errorf("asked of the ledger (-want +got):\n%s", diff)
			}
		})
	}

	s := newService(t, nil)
	for _, test := range []struct {
		q      sent
		status int
		code   string
	}{
		{sent{path: "/payments/by-key/credit/k/cancel"}, 404, "NOT_FOUND"},
		{sent{path: "/payments/by-key/Debit/k/cancel"}, 404, "NOT_FOUND"},
		{sent{path: "/payments/by-key/debit/a%20b/cancel"}, 400, "INVALID_IDEMPOTENCY_KEY"},
		{sent{path: "/payments/by-key/debit/" + strings.Repeat("k", 256) + "/cancel"}, 400, "INVALID_IDEMPOTENCY_KEY"},
		{sent{path: cancelPath(payment.Debit), header: http.Header{"Request-Deadline-Ms": {"-1"}}}, 400, "INVALID_DEADLINE"},
		{sent{path: cancelPath(payment.Debit), header: http.Header{"Request-Deadline-Ms": {"1", "1"}}}, 400, "INVALID_DEADLINE"},
		{sent{path: cancelPath(payment.Debit), header: http.Header{"Content-Type": nil}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		{sent{path: cancelPath(payment.Debit), header: http.Header{"Accept": {"text/html"}}}, 406, "NOT_ACCEPTABLE"},
		{sent{path: cancelPath(payment.Debit), body: strings.Repeat(" ", 16<<10+1)}, 413, "BODY_TOO_LARGE"},
		{sent{path: cancelPath(payment.Debit), token: operatorToken}, 403, "FORBIDDEN"},
		{sent{path: cancelPath(payment.Debit), token: "nobody"}, 401, "UNAUTHENTICATED"},
	} {
		refusedWith(t, s.send(test.q), test.status, test.code)
	}
	if n := s.ledger.begun(); n != 0 {
		t.Errorf("%d were begun", n)
	}
}

// Whether a cancel is stored is as unknown as a decision when storage fails; the
// till repeats it, nothing in between does.
func TestACancelWhoseStorageFailedIsUnknown(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	s.ledger.cancel = func(_ context.Context, op payment.Operation, _ payment.Key) (payment.Cancellation, error) {
		return tombstone(op), errStorage
	}
	w := s.send(sent{path: cancelPath(payment.Debit), noBody: true})
	refusedWith(t, w, 503, "OUTCOME_UNKNOWN")
	if values, there := w.Header()["Retry-After"]; there {
		t.Errorf("Retry-After = %q", values)
	}
	s.ledger.cancel = func(context.Context, payment.Operation, payment.Key) (payment.Cancellation, error) {
		panic("secret internals")
	}
	refusedWith(t, s.send(sent{path: cancelPath(payment.Debit), noBody: true}), 500, "INTERNAL")
	if diff := cmp.Diff([]string{"unknown debit", "unknown debit"}, s.seen.list()); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
	if strings.Contains(w.Body.String(), "secret internals") || !strings.Contains(s.log.String(), errStorage.Error()) {
		t.Error("the cause is to be in the log, and only there")
	}
}

// An approval that was cancelled must not be told a second time: somebody would
// hand over goods for money that is on its way back.
func TestAReplayOfACancelledApprovalIsNoApproval(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/debits", "/holds"} {
		s := deciding(t, func(req payment.Request) (decision.Result, error) {
			return decision.Result{Status: decision.Cancelled, Payment: approved(req)}, nil
		})
		w := s.send(sent{path: path})
		refusedWith(t, w, 409, "PAYMENT_CANCELLED")
		if strings.Contains(w.Body.String(), "APPROVED") || w.Header().Get("Location") != "" || w.Header().Get("Retry-After") != "" {
			t.Errorf("header %v, body %s", w.Header(), w.Body)
		}
		kind := strings.TrimSuffix(path[1:], "s")
		if diff := cmp.Diff([]string{"replay " + kind}, s.seen.list()); diff != "" {
			t.Errorf("observed (-want +got):\n%s", diff)
		}
	}
	// A decline by a cancel is told as any other decline, to the original as well.
	s := deciding(t, func(req payment.Request) (decision.Result, error) {
		return decision.Result{Status: decision.Replayed, Payment: tombstone(req.Operation).Payment}, nil
	})
	w := s.send(sent{})
	refusedWith(t, w, 402, "CANCELLED")
	if w.Header().Get("Idempotency-Replayed") != "true" {
		t.Error("it is not told to be a replay")
	}
}

// The log of a cancel tells what was cancelled and what undoes it, and not the key
// in its path.
func TestTheLogLineOfACancelTellsNoKey(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	s.ledger.cancel = func(_ context.Context, op payment.Operation, _ payment.Key) (payment.Cancellation, error) {
		c := tombstone(op)
		c.Reversal = operationID
		return c, nil
	}
	s.send(sent{path: "/payments/by-key/debit/secret-key/cancel", body: `{"account":"secret-account","amount":123456789,"currency":"EUR"}`})
	var line map[string]any
	if err := json.Unmarshal([]byte(s.log.String()), &line); err != nil {
		t.Fatalf("want one line of JSON: %v\n%s", err, s.log)
	}
	if strings.Contains(s.log.String(), "secret") || strings.Contains(s.log.String(), "123456789") {
		t.Errorf("the log tells a secret: %s", s.log)
	}
	delete(line, "time")
	delete(line, "total_ms")
	if diff := cmp.Diff(map[string]any{
		"level": "INFO", "msg": "payment cancelled by its key", "id": paymentID.String(), "operation": "debit", "caller": "store-17",
		"decision": "DECLINED", "reversal_id": operationID.String(), "status": 200.0,
	}, line); diff != "" {
		t.Errorf("line (-want +got):\n%s", diff)
	}
}

// The wallet's lane counts its calls. Those for which it was not even entered are
// counted here, or an overloaded replica would look as if nobody paid.
func TestACallThatWasNotMadeIsCountedAsOne(t *testing.T) {
	t.Parallel()
	for _, reason := range []payment.Reason{payment.ReasonBulkheadFull, payment.ReasonDeadlineSpent} {
		for _, failure := range []error{nil, errStorage} {
			for _, unsent := range []bool{true, false} {
				s := newService(t, func(cfg *api.Config) {
					cfg.Decider = decideFunc(func(_ context.Context, req payment.Request, _ budget.Deadline) (decision.Result, error) {
						return decision.Result{
							Status: decision.Decided, Payment: declined(req, payment.WalletUnavailable),
							Steps: decision.Steps{Outcome: payment.Outcome{Class: payment.Unavailable, Reason: reason}, Unsent: unsent},
						}, failure
					})
				})
				s.send(sent{})
				counted := strings.HasPrefix(s.seen.list()[0], "not sent debit "+string(reason))
				if counted != unsent {
					t.Errorf("%s, unsent %v, error %v: observed %q", reason, unsent, failure, s.seen.list())
				}
			}
		}
	}
}
