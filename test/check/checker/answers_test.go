package checker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/safeledger/safeledger/test/check/history"
)

// What the contract does not have must not pass for an answer, and what it has must not
// be called one that is missing: a run has millions of them.
func TestOnlyTheContractsAnswersPass(t *testing.T) {
	t.Parallel()
	const (
		debits, holds, credits = "POST /debits", "POST /holds", "POST /credits"
		capturing              = "POST /holds/019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77/capture"
		cancels                = "POST /payments/by-key/debit/k/cancel"
		payment, operation     = "GET /payments/019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77", "GET /operations/by-key/credit/k"
		elsewhere              = "GET /openapi.yaml"
	)
	problem := func(status int, code string) string { return fmt.Sprintf(`{"status":%d,"code":%q}`, status, code) }
	decline := func(code string, retry bool) string {
		status := 402
		if retry {
			status = 424
		}
		return fmt.Sprintf(`{"status":%d,"code":%q,"decision":"DECLINED","retryable":%v}`, status, code, retry)
	}
	for _, c := range []struct {
		call   string
		status int
		body   string
		means  outcome
		wrong  bool
		timed  bool // it must have Retry-After
	}{
		{debits, 201, `{"decision":"APPROVED"}`, toldDecision, false, false},
		{debits, 200, `{"decision":"APPROVED"}`, unknown, true, false},
		{debits, 202, `{}`, toldAccepted, true, false},
		{credits, 202, `{}`, toldAccepted, false, false},
		{credits, 201, `{}`, toldDecision, true, false},
		{capturing, 202, `{}`, toldAccepted, false, false},
		{cancels, 200, `{}`, toldCancelled, false, false},
		{cancels, 201, `{}`, toldDecision, true, false},
		{payment, 200, `{}`, toldRead, false, false},
		{operation, 200, `{}`, toldRead, false, false},
		{elsewhere, 200, `{}`, unknown, false, false},

		{debits, 402, decline("INSUFFICIENT_FUNDS", false), toldDecision, false, false},
		{holds, 402, decline("CANCELLED", false), toldDecision, false, false},
		{debits, 402, decline("WALLET_REJECTED", false), toldDecision, false, false},
		{debits, 402, strings.Replace(decline("INSUFFICIENT_FUNDS", false), "false", "true", 1), toldDecision, true, false},
		{debits, 402, decline("WALLET_TIMEOUT", false), toldDecision, true, false},
		{debits, 402, strings.Replace(decline("INSUFFICIENT_FUNDS", false), "402", "424", 1), toldDecision, true, false},
		{debits, 402, decline("insufficient_funds", false), toldDecision, true, false},
		{debits, 402, decline("4XX", false), toldDecision, true, false},
		{debits, 402, decline("_A", false), toldDecision, true, false},
		{debits, 402, decline("[OOPS", false), toldDecision, true, false},
		{debits, 402, decline("A-B", false), toldDecision, true, false},
		{debits, 402, decline("", false), toldDecision, true, false},
		{debits, 402, decline(strings.Repeat("A", 64), false), toldDecision, false, false},
		{debits, 402, decline(strings.Repeat("A", 65), false), toldDecision, true, false},
		{debits, 402, `{"status":402,"code":"INSUFFICIENT_FUNDS"}`, toldDecision, true, false},
		{debits, 402, `{"status":402,"code":"INSUFFICIENT_FUNDS","decision":"APPROVED","retryable":false}`, toldDecision, true, false},
		{credits, 402, decline("INSUFFICIENT_FUNDS", false), toldDecision, true, false},
		{cancels, 402, decline("CANCELLED", false), toldDecision, true, false},
		{debits, 424, decline("WALLET_TIMEOUT", true), toldDecision, false, true},
		{debits, 424, decline("WALLET_UNAVAILABLE", true), toldDecision, false, true},
		{debits, 424, strings.Replace(decline("WALLET_TIMEOUT", true), "true", "false", 1), toldDecision, true, true},
		{debits, 424, decline("INSUFFICIENT_FUNDS", true), toldDecision, true, true},
		{debits, 424, `{"status":424,"code":"WALLET_TIMEOUT"}`, toldDecision, true, true},
		{credits, 424, decline("WALLET_TIMEOUT", true), toldDecision, true, true},
		{debits, 403, strings.Replace(decline("INSUFFICIENT_FUNDS", false), "402", "403", 1), noClaim, true, false},
		{debits, 423, strings.Replace(decline("WALLET_TIMEOUT", true), "424", "423", 1), noClaim, true, false},
		{payment, 401, problem(401, "UNAUTHENTICATED"), noClaim, false, false},

		{debits, 400, problem(400, "MALFORMED_REQUEST"), noClaim, false, false},
		{debits, 400, problem(401, "MALFORMED_REQUEST"), noClaim, true, false},
		{debits, 400, problem(400, "INVALID_VALUE"), noClaim, true, false},
		{debits, 401, problem(401, "UNAUTHENTICATED"), noClaim, false, false},
		{debits, 403, problem(403, "FORBIDDEN"), noClaim, false, false},
		{debits, 405, problem(405, "METHOD_NOT_ALLOWED"), noClaim, false, false},
		{debits, 406, problem(406, "NOT_ACCEPTABLE"), noClaim, false, false},
		{debits, 413, problem(413, "BODY_TOO_LARGE"), noClaim, false, false},
		{debits, 415, problem(415, "UNSUPPORTED_MEDIA_TYPE"), noClaim, false, false},
		{debits, 422, problem(422, "INVALID_VALUE"), noClaim, false, false},
		{holds, 501, problem(501, "HOLDS_UNSUPPORTED"), noClaim, false, false},
		{debits, 404, problem(404, "NOT_FOUND"), noClaim, false, false},
		{debits, 422, problem(422, "IDEMPOTENCY_KEY_REUSED"), toldMismatch, false, false},
		{credits, 422, problem(422, "IDEMPOTENCY_KEY_REUSED"), toldMismatch, false, false},
		{debits, 409, problem(409, "REQUEST_IN_FLIGHT"), toldInFlight, false, true},
		{debits, 409, problem(409, "PAYMENT_CANCELLED"), toldWasCancelled, false, false},
		{cancels, 409, problem(409, "HOLD_ALREADY_CAPTURED"), toldTooLate, false, false},
		{capturing, 409, problem(409, "HOLD_ALREADY_CAPTURED"), toldFree, false, false},
		{capturing, 404, problem(404, "HOLD_NOT_FOUND"), toldFree, false, false},
		{capturing, 404, problem(404, "PAYMENT_NOT_YET_DECIDED"), toldFree, false, true},
		{credits, 409, problem(409, "NOT_REFUNDABLE"), toldFree, false, false},
		{credits, 422, problem(422, "AMOUNT_EXCEEDS_DEBIT"), toldFree, false, false},
		{credits, 422, problem(422, "ACCOUNT_MISMATCH"), toldFree, false, false},
		{payment, 404, problem(404, "PAYMENT_NOT_YET_DECIDED"), toldUndecided, false, true},
		{payment, 404, problem(404, "PAYMENT_NOT_FOUND"), toldNotFound, false, false},
		{operation, 404, problem(404, "OPERATION_NOT_FOUND"), toldNotFound, false, false},
		{payment, 503, problem(503, "STORAGE_UNAVAILABLE"), readFailed, false, false},
		{debits, 503, problem(503, "OUTCOME_UNKNOWN"), unknown, false, false},
		{debits, 503, problem(503, "OVERLOADED"), unknown, false, true}, // without Retry-After it proves nothing
		{debits, 500, problem(500, "INTERNAL"), unknown, true, false},
		{debits, 502, problem(502, "WALLET_TIMEOUT"), unknown, true, false},
		{debits, 408, problem(408, "WALLET_TIMEOUT"), noClaim, true, false},
		{debits, 429, problem(429, "OVERLOADED"), noClaim, true, false},
		{debits, 307, ``, unknown, true, false},
		{debits, 201, `<html>`, toldDecision, true, false},
	} {
		method, path, _ := strings.Cut(c.call, " ")
		where, a, b := aim(method, path), history.Answer{Status: c.status, Got: c.body}, read(c.body)
		if got := where.contract(a, b); (got != "") != c.wrong {
			t.Errorf("%s: %d %s: %q", c.call, c.status, c.body, got)
		}
		if got := where.means(a, b); got != c.means {
			t.Errorf("%s: %d %s means %d, want %d", c.call, c.status, c.body, got, c.means)
		}
		if got := mustRetryAfter(a, b); got != c.timed {
			t.Errorf("%s: %d %s must have Retry-After: %v, want %v", c.call, c.status, c.body, got, c.timed)
		}
		a.RetryAfter = "1"
		if got := where.means(a, b); c.status == 503 && got != gateRefused {
			t.Errorf("%s: %d with Retry-After means %d", c.call, c.status, got)
		}
	}
}

// What stands in between answers in SafeLedger's stead, and so does Go's server where a
// request is no HTTP. Neither is SafeLedger's word, nor its fault.
func TestAnswersFromInBetweenAreNobodysWord(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		via    string
		status int
		body   string
		want   bool
	}{
		{"", 400, "400 Bad Request", true},
		{"", 431, "431 Request Header Fields Too Large", true},
		{"", 501, "501 Unsupported transfer encoding", true},
		{"", 505, "505 HTTP Version Not Supported", true},
		{"", 400, "Bad Request", false},
		{"", 502, "502 Bad Gateway", false},
		{"", 502, "<html>", false},
		{"nginx", 502, "<html>", true},
		{"nginx", 504, "{}", true},
		{"nginx", 409, `{"code":"REQUEST_IN_FLIGHT"}`, false},
		{"nginx", 201, `{"id":"1"}`, false},
	} {
		a := history.Answer{Status: c.status, Got: c.body}
		if got := fromBetween(history.Request{Via: c.via}, a, read(c.body)); got != c.want {
			t.Errorf("via %q: %d %q is from in between: %v, want %v", c.via, c.status, c.body, got, c.want)
		}
	}
}

// clamp(header − 600 ms, 0, 2400 ms), and the server's budget where it says nothing.
func TestTheEffectiveBudgetIsTheContracts(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]time.Duration{
		"": 2400 * time.Millisecond, "0": 0, "600": 0, "601": time.Millisecond, "1400": 800 * time.Millisecond, "3000": 2400 * time.Millisecond,
		"9300000000000": 2400 * time.Millisecond, "-1": 2400 * time.Millisecond, "soon": 2400 * time.Millisecond,
	} {
		if got := Defaults().effective(field); got != want {
			t.Errorf("%q: %v, want %v", field, got, want)
		}
	}
	for s, want := range map[string]bool{"1": true, "30": true, "0": false, "-1": false, "01": false, "1.5": false, "": false, "Mon, 30 Nov 2026 01:00:00 GMT": false} {
		if wholePositive(s) != want {
			t.Errorf("%q is a positive whole number: %v", s, !want)
		}
	}
}
