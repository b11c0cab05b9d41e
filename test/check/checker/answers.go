package checker

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/safeledger/safeledger/test/check/history"
)

// outcome is what an answer says about its key.
type outcome uint8

const (
	unknown          outcome = iota // no whole answer, or one that says so: it may have done anything, or may yet
	unsent                          // nothing left the till
	gateRefused                     // 503 with Retry-After: nothing was begun
	noClaim                         // refused before anything was claimed: it says nothing of the key
	toldDecision                    // 201, 402, 424
	toldAccepted                    // 202
	toldCancelled                   // 200 of a cancel
	toldRead                        // 200 of a read
	toldInFlight                    // 409 REQUEST_IN_FLIGHT
	toldUndecided                   // 404 PAYMENT_NOT_YET_DECIDED of a read
	toldMismatch                    // 422 IDEMPOTENCY_KEY_REUSED
	toldWasCancelled                // 409 PAYMENT_CANCELLED
	toldTooLate                     // 409 HOLD_ALREADY_CAPTURED of a cancel
	toldNotFound                    // 404 of a read
	toldFree                        // a follow-up was refused by the state of its payment: its key is free
	readFailed                      // a read whose storage failed
)

// body is everything that an answer's JSON can have.
type body struct {
	ID         string             `json:"id"`
	Kind       string             `json:"kind"`
	Operation  string             `json:"operation"`
	Decision   string             `json:"decision"`
	Code       string             `json:"code"`
	Status     jsontext.Value     `json:"status"` // a number in a problem, a word in a follow-up
	Account    *string            `json:"account"`
	Amount     *int64             `json:"amount"`
	Currency   *string            `json:"currency"`
	Reference  *string            `json:"reference"`
	Metadata   *map[string]string `json:"metadata"`
	WalletID   *string            `json:"walletId"`
	PaymentID  string             `json:"paymentId"`
	CreatedAt  string             `json:"createdAt"`
	DecidedAt  string             `json:"decidedAt"`
	EndedAt    string             `json:"endedAt"`
	Retryable  *bool              `json:"retryable"`
	Reversal   string             `json:"reversal"`
	FollowUps  []body             `json:"followUps"`
	unreadable bool
}

// state is the word in status.
func (b body) state() string {
	word, err := strconv.Unquote(string(b.Status))
	if err != nil {
		return ""
	}
	return word
}

func read(text string) (b body) {
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return body{unreadable: true}
	}
	return b
}

// codes are the contract's codes of errors, by status.
func codes(status int) []string {
	switch status {
	case 400:
		return []string{"MISSING_IDEMPOTENCY_KEY", "INVALID_IDEMPOTENCY_KEY", "INVALID_DEADLINE", "MALFORMED_REQUEST"}
	case 401:
		return []string{"UNAUTHENTICATED"}
	case 403:
		return []string{"FORBIDDEN"}
	case 404:
		return []string{"PAYMENT_NOT_YET_DECIDED", "PAYMENT_NOT_FOUND", "OPERATION_NOT_FOUND", "HOLD_NOT_FOUND", "DEBIT_NOT_FOUND", "NOT_FOUND"}
	case 405:
		return []string{"METHOD_NOT_ALLOWED"}
	case 406:
		return []string{"NOT_ACCEPTABLE"}
	case 409:
		return []string{"REQUEST_IN_FLIGHT", "HOLD_NOT_ACTIVE", "HOLD_ALREADY_CAPTURED", "NOT_REFUNDABLE", "PAYMENT_CANCELLED"}
	case 413:
		return []string{"BODY_TOO_LARGE"}
	case 415:
		return []string{"UNSUPPORTED_MEDIA_TYPE"}
	case 422:
		return []string{
			"IDEMPOTENCY_KEY_REUSED", "INVALID_VALUE", "AMOUNT_EXCEEDS_HOLD", "AMOUNT_EXCEEDS_DEBIT", "AMOUNT_EXCEEDS_CAPTURE",
			"CURRENCY_MISMATCH", "ACCOUNT_MISMATCH",
		}
	case 501:
		return []string{"HOLDS_UNSUPPORTED"}
	case 503:
		return append(gateCodes(), "OUTCOME_UNKNOWN", "STORAGE_UNAVAILABLE")
	}
	return nil // 500 is one of them, and a bug
}

func gateCodes() []string { return []string{"DRAINING", "OVERLOADED", "NOT_READY"} }

// retryable are the codes of 424.
func retryable(code string) bool { return code == "WALLET_UNAVAILABLE" || code == "WALLET_TIMEOUT" }

// isCode reports whether s has the form of a code.
func isCode(s string) bool {
	const most = 64
	return s != "" && len(s) <= most && s[0] >= 'A' && s[0] <= 'Z' && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}

// fromBetween reports whether an answer need not be SafeLedger's: a proxy's own, or what
// Go's server says to what is not HTTP.
func fromBetween(r history.Request, a history.Answer, b body) bool {
	server := (a.Status == 400 || a.Status == 431 || a.Status == 501 || a.Status == 505) && strings.HasPrefix(a.Got, strconv.Itoa(a.Status)+" ")
	return server || (r.Via != "" && b.Code == "" && b.ID == "")
}

// contract says in what an answer is none of the contract's, "" if it is one.
func (t target) contract(a history.Answer, b body) string {
	if b.unreadable {
		return "its body is no JSON"
	}
	var want int
	switch t.purpose {
	case posting:
		want = 202
		if t.kind.isPayment() {
			want = 201
		}
	case cancelling, readingPayment, readingOperation:
		want = 200
	case elsewhere:
		if a.Status < 400 {
			return ""
		}
	}
	problem := string(b.Status) == strconv.Itoa(a.Status)
	decline := problem && t.purpose == posting && t.kind.isPayment() && b.Decision == "DECLINED" && b.Retryable != nil
	switch {
	case a.Status == want:
		return ""
	case a.Status == 402 && decline && isCode(b.Code) && !retryable(b.Code) && !*b.Retryable:
		return ""
	case a.Status == 424 && decline && retryable(b.Code) && *b.Retryable:
		return ""
	case problem && slices.Contains(codes(a.Status), b.Code):
		return ""
	}
	return "the contract has no such answer to this call"
}

// mustRetryAfter reports whether an answer must have Retry-After; all others must not.
func mustRetryAfter(a history.Answer, b body) bool {
	switch a.Status {
	case 404, 409:
		return b.Code == "PAYMENT_NOT_YET_DECIDED" || b.Code == "REQUEST_IN_FLIGHT"
	case 424:
		return true
	case 503:
		return slices.Contains(gateCodes(), b.Code)
	}
	return false
}

func wholePositive(s string) bool {
	n, _ := strconv.Atoi(s) // 0 where it is none
	return n > 0 && strconv.Itoa(n) == s
}

// means is what an answer says about its key.
func (t target) means(a history.Answer, b body) outcome {
	if a.Status == 503 && a.RetryAfter != "" {
		return gateRefused
	}
	reading := t.purpose == readingPayment || t.purpose == readingOperation
	switch {
	case a.Status == 201 || a.Status == 402 || a.Status == 424:
		return toldDecision
	case a.Status == 202:
		return toldAccepted
	case a.Status == 200 && t.purpose == cancelling:
		return toldCancelled
	case a.Status == 200 && reading:
		return toldRead
	case b.Code == "REQUEST_IN_FLIGHT":
		return toldInFlight
	case b.Code == "PAYMENT_CANCELLED":
		return toldWasCancelled
	case b.Code == "IDEMPOTENCY_KEY_REUSED":
		return toldMismatch
	case reading && b.Code == "PAYMENT_NOT_YET_DECIDED":
		return toldUndecided
	case reading && a.Status == 404:
		return toldNotFound
	case t.purpose == cancelling && b.Code == "HOLD_ALREADY_CAPTURED":
		return toldTooLate
	case refusedByState(b.Code):
		return toldFree
	case reading && a.Status >= 500:
		return readFailed
	case a.Status >= 400 && a.Status < 500, b.Code == "HOLDS_UNSUPPORTED":
		return noClaim
	}
	return unknown
}

// refusedByState reports whether a follow-up was refused with the ledger in view, which
// comes after its key was looked up.
func refusedByState(code string) bool {
	switch code {
	case "HOLD_NOT_ACTIVE", "HOLD_ALREADY_CAPTURED", "NOT_REFUNDABLE", "AMOUNT_EXCEEDS_HOLD", "AMOUNT_EXCEEDS_DEBIT", "AMOUNT_EXCEEDS_CAPTURE",
		"CURRENCY_MISMATCH", "ACCOUNT_MISMATCH", "PAYMENT_NOT_YET_DECIDED", "HOLD_NOT_FOUND", "DEBIT_NOT_FOUND":
		return true
	}
	return false
}

// differences collects the members in which an answer is not what is stored.
type differences []string

func (d *differences) text(name, got, want string) {
	if got != want {
		*d = append(*d, name+" "+strconv.Quote(got)+", stored is "+strconv.Quote(want))
	}
}

func (d *differences) optional(name string, got *string, want string) {
	if (got == nil) != (want == "") {
		*d = append(*d, name+" is there or is not, stored is "+strconv.Quote(want))
		return
	}
	d.text(name, valueOf(got), want)
}

func (d *differences) amount(got *int64, want int64) {
	if valueOf(got) != want {
		*d = append(*d, "amount "+strconv.FormatInt(valueOf(got), 10)+", stored is "+strconv.FormatInt(want, 10))
	}
}

func (d *differences) metadata(got *map[string]string, stored string) {
	var want *map[string]string
	if stored != "" {
		want = new(map[string]string)
		if err := json.Unmarshal([]byte(stored), want); err != nil {
			*d = append(*d, "stored metadata are no object of texts")
			return
		}
	}
	if (got == nil) != (want == nil) || !maps.Equal(valueOf(got), valueOf(want)) {
		*d = append(*d, "metadata are not those that are stored: "+stored)
	}
}

func (d *differences) time(name, got string, want moment) {
	if want == 0 {
		d.text(name, got, "")
		return
	}
	d.text(name, got, want.time().Format("2006-01-02T15:04:05.000000Z07:00"))
}

// outOf is in what b is not the payment p of s. whole is what a 201 and a read have
// beyond a decline.
func (d *differences) payment(b body, s *subject, whole bool) {
	p := s.payment
	d.text("id", b.ID, p.id.String())
	d.text("kind", b.Kind, s.kind.String())
	d.text("decision", b.Decision, p.state)
	d.text("code", b.Code, p.code)
	if !whole {
		return
	}
	d.optional("account", b.Account, p.account)
	d.amount(b.Amount, p.amount)
	d.optional("currency", b.Currency, p.currency)
	d.optional("reference", b.Reference, p.tillReference)
	d.metadata(b.Metadata, p.metadata)
	d.optional("walletId", b.WalletID, p.walletID)
	d.time("createdAt", b.CreatedAt, p.created)
	d.time("decidedAt", b.DecidedAt, p.decided)
}

// job is in what b is not the follow-up j as it was accepted; how it ended is told by
// reads only, and may still change between them.
func (d *differences) job(b body, j *job) {
	d.text("id", b.ID, j.id.String())
	d.text("kind", b.Kind, j.kind.String())
	payment := ""
	if j.of != nil {
		payment = j.of.payment.id.String()
	}
	d.text("paymentId", b.PaymentID, payment)
	d.time("createdAt", b.CreatedAt, j.created)
	if j.kind == credit {
		d.optional("account", b.Account, j.account)
		d.optional("reference", b.Reference, j.tillReference)
		d.metadata(b.Metadata, j.metadata)
	}
	if j.kind == credit || j.kind == capture {
		d.amount(b.Amount, j.amount)
		d.optional("currency", b.Currency, j.currency)
	}
}

// effective is the effective budget of a call by its Request-Deadline-Ms field.
func (o Options) effective(field string) time.Duration {
	if field == "" {
		return o.ServerBudget
	}
	ms, err := strconv.ParseInt(field, 10, 64)
	if err != nil || ms < 0 || ms > int64(24*time.Hour/time.Millisecond) {
		return o.ServerBudget
	}
	return min(max(time.Duration(ms)*time.Millisecond-o.NetworkReserve, 0), o.ServerBudget)
}
