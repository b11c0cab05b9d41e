package checker

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/test/check/history"
)

// corrupted is a recording that a test spoils. Its helpers fail the test where they do
// not find what is to be spoilt: a corruption that changes nothing would prove nothing.
type corrupted struct {
	*recording
	t *testing.T
}

func (r corrupted) need(there bool, what string, args ...any) {
	r.t.Helper()
	if !there {
		r.t.Fatalf("the recording has no "+what, args...)
	}
}

func isOf(keyHash []byte, key string) bool {
	sum := sha256.Sum256([]byte(key))
	return len(keyHash) >= len(sum) && slices.Equal(keyHash[len(keyHash)-len(sum):], sum[:])
}

// payment is the row of a key.
func (r corrupted) payment(key string) *PaymentRow {
	r.t.Helper()
	i := slices.IndexFunc(r.payments, func(p PaymentRow) bool { return isOf(p.KeyHash, key) })
	r.need(i >= 0, "payment of %s", key)
	return &r.payments[i]
}

// operation is the row of a follow-up's key.
func (r corrupted) operation(key string) *OperationRow {
	r.t.Helper()
	i := slices.IndexFunc(r.operations, func(o OperationRow) bool { return isOf(o.KeyHash, key) })
	r.need(i >= 0, "follow-up of %s", key)
	return &r.operations[i]
}

// reversal is the row of the reversal of a key's payment.
func (r corrupted) reversal(key string) *OperationRow {
	r.t.Helper()
	id := r.payment(key).ID
	i := slices.IndexFunc(r.operations, func(o OperationRow) bool { return o.PaymentID == id && o.Kind == "reversal" })
	r.need(i >= 0, "reversal of %s", key)
	return &r.operations[i]
}

// call is the n-th recorded wallet call of a row.
func (r corrupted) call(subject uuid.UUID, call string) *CallRow {
	r.t.Helper()
	i := slices.IndexFunc(r.calls, func(c CallRow) bool { return c.Subject == subject && c.Call == call })
	r.need(i >= 0, "%s recorded of %s", call, subject)
	return &r.calls[i]
}

func (r corrupted) dropPayment(key string) {
	id := r.payment(key).ID
	r.payments = slices.DeleteFunc(r.payments, func(p PaymentRow) bool { return p.ID == id })
	r.calls = slices.DeleteFunc(r.calls, func(c CallRow) bool { return c.Subject == id })
}

func (r corrupted) dropOperation(o OperationRow) {
	r.operations = slices.DeleteFunc(r.operations, func(other OperationRow) bool { return other.ID == o.ID })
	r.calls = slices.DeleteFunc(r.calls, func(c CallRow) bool { return c.Subject == o.ID })
}

// line is the n-th line of the book with that event and reference, from 0.
func (r corrupted) line(event string, reference uuid.UUID, n int) int {
	r.t.Helper()
	for i, l := range r.book {
		if l.Event == event && l.Reference == reference.String() {
			if n == 0 {
				return i
			}
			n--
		}
	}
	r.need(false, "%s of %s in the book", event, reference)
	return -1
}

// change changes a line of the book.
func (r corrupted) change(i int, by func(*BookLine)) { by(&r.book[i]) }

// dropLine takes lines out of the book, and numbers the others anew.
func (r corrupted) dropLine(event string, reference uuid.UUID) {
	r.line(event, reference, 0)
	r.book = slices.DeleteFunc(r.book, func(l BookLine) bool { return l.Event == event && l.Reference == reference.String() })
	r.number()
}

// book_ adds a copy of a line behind it.
func (r corrupted) copyLine(i int, by func(*BookLine)) {
	l := r.book[i]
	if l.Effect != nil {
		l.Effect = new(*l.Effect)
	}
	by(&l)
	r.book = slices.Insert(r.book, i+1, l)
	r.number()
}

func (r corrupted) number() {
	for i := range r.book {
		r.book[i].Seq = int64(i) + 1
	}
}

// sent is the n-th call about a key, from 0, and answer how it ended.
func (r corrupted) sent(key string, n int) *history.Line {
	r.t.Helper()
	for i, l := range r.tills {
		inPath, _ := url.PathUnescape(l.Path)
		if l.Event == history.Sent && (unquote(l.Key) == key || strings.Contains(inPath+"/", "/"+key+"/")) {
			if n == 0 {
				return &r.tills[i]
			}
			n--
		}
	}
	r.need(false, "such a call of %s", key)
	return nil
}

func (r corrupted) answer(key string, n int) *history.Line {
	r.t.Helper()
	call := r.sent(key, n).Call
	i := slices.IndexFunc(r.tills, func(l history.Line) bool { return l.Call == call && l.Event == history.Answered })
	r.need(i >= 0, "answer to call %d of %s", n, key)
	return &r.tills[i]
}

// forget takes a key out of the till log.
func (r corrupted) forget(key string) {
	gone := map[int64]bool{}
	for _, l := range r.tills {
		if l.Event == history.Sent && unquote(l.Key) == key {
			gone[l.Call] = true
		}
	}
	r.need(len(gone) > 0, "call of %s", key)
	r.tills = slices.DeleteFunc(r.tills, func(l history.Line) bool {
		return gone[l.Call] && (l.Event == history.Sent || l.Event == history.Answered || l.Event == history.Failed)
	})
}

// forgetReads takes the reads of a key, and cancels of it, out of the till log.
func (r corrupted) forgetReads(key string) {
	gone := map[int64]bool{}
	for _, l := range r.tills {
		if l.Event == history.Sent && strings.Contains(l.Path+"/", "/"+key+"/") {
			gone[l.Call] = true
		}
	}
	r.tills = slices.DeleteFunc(r.tills, func(l history.Line) bool {
		return gone[l.Call] && (l.Event == history.Sent || l.Event == history.Answered || l.Event == history.Failed)
	})
}

// referenceOf is what a call of the till log derives.
func (r corrupted) referenceOf(l *history.Line) uuid.UUID {
	r.t.Helper()
	where := aim(l.Method, l.Path)
	parsed, err := parse(where.kind, l.Sent)
	r.need(err == nil, "request in %s", l.Sent)
	return parsed.fingerprint(where.kind, where.id).reference(l.Caller, where.kind, unquote(l.Key))
}

// logged is the first line of the processes' logs that matches.
func (r corrupted) logged(what string, matches func(ResponseLine) bool) int {
	r.t.Helper()
	i := slices.IndexFunc(r.responses, matches)
	r.need(i >= 0, "line of a process: %s", what)
	return i
}

func problem(status int, code string) history.Answer {
	return history.Answer{Status: status, Got: fmt.Sprintf(`{"type":"t","title":"t","status":%d,"detail":"d","code":%q}`, status, code)}
}

// A checker that cannot find a broken promise is a green light that is painted on. Each
// clause has a history that breaks it, made of the true one; the checker must find it,
// say which promise it is and whose, and accuse nobody else.
func TestEachBrokenPromiseIsFound(t *testing.T) {
	t.Parallel()
	const approved, lost, late = "debit key-approved of store-17", "debit key-lost of store-17", "debit key-late of store-17"
	const refund = "credit key-refund of store-17"
	cases := []struct {
		clause Clause
		name   string
		key    string   // whose it is; "" is nobody's
		also   []string // who has a part in it
		spoil  func(corrupted)
	}{
		{told, "an approval was told and a decline is stored", approved, nil, func(r corrupted) {
			p := r.payment("key-approved")
			p.State, p.Code, p.WalletID = "DECLINED", "INSUFFICIENT_FUNDS", ""
		}},
		{told, "another amount was told", lost, nil, func(r corrupted) {
			a := r.answer("key-lost", 0)
			a.Got = strings.Replace(a.Got, `"amount":1250`, `"amount":1251`, 1)
		}},
		{told, "another place was told", lost, nil, func(r corrupted) { r.answer("key-lost", 0).Location += "0" }},
		{told, "a decision was told and no row is there", "debit key-no-time of store-17", nil, func(r corrupted) { r.dropPayment("key-no-time") }},
		{told, "other metadata are stored", "debit key-quoted+text of store-17", nil, func(r corrupted) {
			r.payment("key-quoted+text").Metadata = `{"till":"4","a":""}`
		}},
		{told, "empty metadata are stored, and none were told", approved, nil, func(r corrupted) { r.payment("key-approved").Metadata = "{}" }},
		{told, "a follow-up was accepted with another amount", refund, nil, func(r corrupted) {
			for n := range 2 {
				a := r.answer("key-refund", n)
				a.Got = strings.Replace(a.Got, `"amount":400`, `"amount":401`, 1)
			}
		}},
		{told, "a cancel names another reversal", "debit key-cancelled of store-17", nil, func(r corrupted) {
			a := r.answer("key-cancelled", 1)
			a.Got = strings.Replace(a.Got, r.reversal("key-cancelled").ID.String(), uuid.NewString(), 1)
		}},
		{same, "a replay has another byte", approved, nil, func(r corrupted) { r.answer("key-approved", 1).Got += " " }},
		{same, "a replay of a decline has no Retry-After", late, nil, func(r corrupted) { r.answer("key-late", 1).RetryAfter = "" }},
		{asAsked, "a decision is told to another request", approved, nil, func(r corrupted) {
			r.answer("key-approved", 2).Answer = r.answer("key-approved", 1).Answer
		}},
		{asAsked, "a repetition is called another request", approved, nil, func(r corrupted) {
			r.answer("key-approved", 1).Answer = problem(422, "IDEMPOTENCY_KEY_REUSED")
		}},
		{logged, "a process has replayed something else", approved, nil, func(r corrupted) {
			id := r.payment("key-approved").ID.String()
			i := r.logged("the replay", func(l ResponseLine) bool { return l.ID == id && l.Msg == replayMessage })
			r.responses[i].Code = "CANCELLED"
		}},
		{once, "a follow-up has two rows", "credit key-payout of store-17", nil, func(r corrupted) {
			o := *r.operation("key-payout")
			o.ID, o.OutboundKey = uuid.New(), uuid.New()
			r.operations = append(r.operations, o)
		}},
		{firstAnswer, "a replay is not marked", approved, nil, func(r corrupted) { r.answer("key-approved", 1).Replayed = "" }},
		{cancelTold, "told as cancelled, and no till has cancelled it", approved, nil, func(r corrupted) {
			r.answer("key-approved", 1).Answer = problem(409, "PAYMENT_CANCELLED")
		}},
		{cancelTold, "told as cancelled, and it is a decline", "debit key-late of store-17", nil, func(r corrupted) {
			r.answer("key-late", 1).Answer = problem(409, "PAYMENT_CANCELLED")
		}},
		{cancelTold, "told as cancelled, and nothing is stored", "debit key-refused of store-17", nil, func(r corrupted) {
			r.answer("key-refused", 0).Answer = problem(409, "PAYMENT_CANCELLED")
		}},
		{cancelTold, "told as cancelled before it was", "debit key-cancelled of store-17", nil, func(r corrupted) {
			a := r.answer("key-cancelled", 2)
			a.At = r.sent("key-cancelled", 1).At.Add(-time.Microsecond)
			r.sent("key-cancelled", 2).At = a.At.Add(-time.Microsecond)
		}},
		{cancelTold, "told as cancelled, and nothing undoes it", "debit key-cancelled of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-cancelled")) }},
		{cancelTold, "told as an approval after it was cancelled", "debit key-cancelled of store-17", nil, func(r corrupted) {
			a := r.answer("key-cancelled", 2)
			a.Answer, a.Replayed = r.answer("key-cancelled", 0).Answer, "true"
		}},
		{readTold, "a read shows another code", approved, nil, func(r corrupted) {
			a := r.answer("key-approved", 3)
			a.Got = strings.Replace(a.Got, `"decision":"APPROVED"`, `"decision":"DECLINED"`, 1)
		}},
		{readTold, "a read shows a payment that is not there", "", nil, func(r corrupted) {
			i := slices.IndexFunc(r.tills, func(l history.Line) bool {
				return l.Event == history.Sent && l.Path == "/payments/"+uuid.Nil.String()
			})
			call := r.tills[i].Call
			for i := range r.tills {
				if l := &r.tills[i]; l.Call == call && l.Event == history.Answered {
					l.Answer = r.answer("key-approved", 3).Answer
				}
			}
		}},
		{contractual, "an approval is 200", lost, nil, func(r corrupted) { r.answer("key-lost", 0).Status = 200 }},
		{contractual, "a bug", lost, nil, func(r corrupted) { r.answer("key-lost", 0).Answer = problem(500, "INTERNAL") }},
		{contractual, "a status that is never SafeLedger's", lost, nil, func(r corrupted) { r.answer("key-lost", 0).Answer = problem(504, "WALLET_TIMEOUT") }},
		{contractual, "an answer that is no JSON", lost, nil, func(r corrupted) { r.answer("key-lost", 0).Got = "<html>" }},
		{logged, "a process has answered something else", approved, nil, func(r corrupted) {
			id := r.payment("key-approved").ID.String()
			i := r.logged("the decision", func(l ResponseLine) bool { return l.ID == id && l.Msg == decidedMessage })
			r.responses[i].Decision = "DECLINED"
		}},

		{once, "the wallet has applied a debit twice", approved, nil, func(r corrupted) {
			r.copyLine(r.line(applied, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Effect.ID = "debit-x-000999" })
		}},
		{once, "the wallet has applied the same key with another amount as well", approved, nil, func(r corrupted) {
			other := r.referenceOf(r.sent("key-approved", 2)).String()
			for _, event := range []string{arrived, applied} {
				r.copyLine(r.line(event, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Reference, l.Key = other, other })
			}
		}},
		{once, "the wallet has applied a hold twice", "hold key-still-held of store-17", nil, func(r corrupted) {
			r.copyLine(r.line(applied, r.payment("key-still-held").Reference, 0), func(l *BookLine) { l.Effect.ID = "hold-x-000999" })
		}},
		{once, "a key has two rows", approved, nil, func(r corrupted) {
			p := *r.payment("key-approved")
			p.ID = uuid.New()
			r.payments = append(r.payments, p)
		}},
		{givenBack, "more was given back than was taken", "debit key-to-refund of store-17", []string{refund}, func(r corrupted) {
			i := r.line(applied, r.operation("key-refund").OutboundKey, 0)
			r.copyLine(i, func(*BookLine) {})
			r.copyLine(i, func(*BookLine) {})
		}},
		{givenBack, "it was given back before it was taken", late, nil, func(r corrupted) {
			took := r.line(applied, r.payment("key-late").Reference, 0)
			gave := r.line(applied, r.reversal("key-late").OutboundKey, 0)
			r.book[took], r.book[gave] = r.book[gave], r.book[took]
			r.number()
		}},
		{oneReversal, "the wallet has applied two reversals", late, nil, func(r corrupted) {
			r.copyLine(r.line(applied, r.reversal("key-late").OutboundKey, 0), func(*BookLine) {})
		}},
		{oneReversal, "there are two reversals", late, nil, func(r corrupted) {
			o := *r.reversal("key-late")
			o.ID, o.OutboundKey, o.State = uuid.New(), uuid.New(), "SUCCEEDED"
			r.operations = append(r.operations, o)
		}},
		{reserved, "a credit of more than the debit is accepted", "debit key-to-refund of store-17", []string{refund}, func(r corrupted) {
			r.operation("key-refund").Amount = 901
		}},

		{reserved, "a hold is captured and released", "hold key-held of store-17", []string{"release (of a key that no till has named) of store-17"}, func(r corrupted) {
			o := *r.operation("key-release")
			o.ID, o.OutboundKey, o.PaymentID, o.KeyHash = uuid.New(), uuid.New(), r.payment("key-held").ID, make([]byte, 38)
			r.operations = append(r.operations, o)
		}},
		{appliedOnce, "approved, and the wallet has not applied it", approved, nil, func(r corrupted) {
			r.dropLine(applied, r.payment("key-approved").Reference)
		}},
		{appliedOnce, "approved by another id", approved, nil, func(r corrupted) {
			r.change(r.line(applied, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Effect.ID += "0" })
		}},
		{appliedOnce, "approved with another amount", approved, nil, func(r corrupted) {
			r.change(r.line(applied, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Effect.Amount, l.Effect.BalanceChange = 1251, -1251 })
		}},
		{appliedOnce, "approved in another currency", approved, nil, func(r corrupted) {
			r.change(r.line(applied, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Effect.Currency = "USD" })
		}},
		{appliedOnce, "a debit that was applied as a hold", approved, nil, func(r corrupted) {
			r.change(r.line(applied, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Effect.Operation, l.Effect.HeldChange = "hold", 1250 })
		}},
		{appliedOnce, "approved on another account", approved, nil, func(r corrupted) {
			r.change(r.line(applied, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Effect.Account = "PARKED" })
		}},
		{netApproved, "cancelled, and the wallet keeps it", "debit key-cancelled of store-17", nil, func(r corrupted) {
			r.dropLine(applied, r.reversal("key-cancelled").OutboundKey)
		}},
		{netApproved, "cancelled, and the wallet holds it", "hold key-hold-cancelled of store-17", nil, func(r corrupted) {
			r.dropLine(applied, r.reversal("key-hold-cancelled").OutboundKey)
		}},
		{netApproved, "captured, and the wallet holds it", "hold key-held of store-17", []string{"capture key-capture of store-17"}, func(r corrupted) {
			r.dropLine(applied, r.operation("key-capture").OutboundKey)
		}},
		{netDeclined, "declined, and the wallet keeps it", late, nil, func(r corrupted) { r.dropLine(applied, r.reversal("key-late").OutboundKey) }},
		{netDeclined, "declined, and the wallet holds it", "hold key-held-up of store-17", nil, func(r corrupted) {
			r.dropLine(applied, r.reversal("key-held-up").OutboundKey)
		}},
		{netDeclined, "declined, applied, and nothing undoes it", "debit key-gateway of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-gateway")) }},
		{netDeclined, "never applied, and given back", "debit key-gateway of store-17", nil, func(r corrupted) {
			r.dropLine(applied, r.payment("key-gateway").Reference)
		}},
		{settledInTime, "the money was out for too long", "debit key-gateway of store-17", nil, func(r corrupted) {
			r.change(r.line(applied, r.reversal("key-gateway").OutboundKey, 0), func(l *BookLine) { l.At = l.At.Add(11 * time.Second) })
		}},

		{known, "the wallet was asked and no row is there", lost, nil, func(r corrupted) { r.dropPayment("key-lost") }},
		{known, "the wallet was asked by a reference that is nobody's", "", []string{approved}, func(r corrupted) {
			r.copyLine(r.line(arrived, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Reference = uuid.NewString(); l.Key = l.Reference })
		}},
		{known, "the wallet was asked by a text", "", nil, func(r corrupted) {
			r.copyLine(r.line(arrived, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Reference = "key-approved"; l.Key = l.Reference })
		}},
		{agrees, "the wallet was asked for another amount", approved, nil, func(r corrupted) {
			r.change(r.line(arrived, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Amount++ })
		}},
		{agrees, "the wallet was asked to capture another hold", "capture key-capture of store-17", nil, func(r corrupted) {
			r.change(r.line(arrived, r.operation("key-capture").OutboundKey, 0), func(l *BookLine) { l.HoldID += "0" })
		}},
		{agrees, "a reversal gives back another amount", late, nil, func(r corrupted) {
			r.change(r.line(arrived, r.reversal("key-late").OutboundKey, 0), func(l *BookLine) { l.Amount++ })
		}},
		{askedFor, "no till has asked for it", "debit (of a key that no till has named) of store-17", nil, func(r corrupted) { r.forget("key-lost") }},
		{askedFor, "no till has cancelled a key that was never seen", "debit key-never-seen of store-17", nil, func(r corrupted) {
			call := r.sent("key-never-seen", 0).Call
			r.tills = slices.DeleteFunc(r.tills, func(l history.Line) bool {
				return l.Call == call && (l.Event == history.Sent || l.Event == history.Answered)
			})
		}},
		{askedFor, "another follow-up is stored than any till has sent", "credit key-payout of store-17", nil, func(r corrupted) {
			r.operation("key-payout").Fingerprint = make([]byte, 33)
		}},
		{askedFor, "another request is stored than any till has sent", approved, nil, func(r corrupted) { r.payment("key-approved").Fingerprint = make([]byte, 33) }},

		{decidedAtLast, "still in flight", "debit key-hang of store-17", nil, func(r corrupted) {
			p := r.payment("key-hang")
			p.State, p.Code, p.DecidedAt = "IN_FLIGHT", "", time.Time{}
		}},
		{inTime, "in flight for too long", "debit key-killed of store-17", nil, func(r corrupted) {
			p, o := r.payment("key-killed"), r.reversal("key-killed")
			p.DecidedAt = p.DecidedAt.Add(20 * time.Second)
			o.CreatedAt = p.DecidedAt
			a := r.lastRead("key-killed")
			a.Got = strings.Replace(a.Got, `"decidedAt":"`+clock(p.DecidedAt.Add(-20*time.Second)), `"decidedAt":"`+clock(p.DecidedAt), 1)
		}},

		{handlerCount, "refused with Retry-After after a handler was begun", "debit key-refused of store-17", nil, func(r corrupted) {
			trace := r.sent("key-refused", 0).Trace
			i := r.logged("the refusal", func(l ResponseLine) bool { return l.Trace == trace && l.Msg == requestRefused })
			r.responses = slices.Insert(r.responses, i, ResponseLine{Time: r.responses[i].Time, Msg: requestBegun, Trace: trace})
		}},
		{handlerCount, "refused with Retry-After by nobody", "debit key-refused of store-17", nil, func(r corrupted) {
			trace := r.sent("key-refused", 0).Trace
			i := r.logged("the refusal", func(l ResponseLine) bool { return l.Trace == trace && l.Msg == requestRefused })
			r.responses = slices.Delete(r.responses, i, i+1)
		}},
		{noRow, "refused with Retry-After, and a row is there", "debit key-refused of store-17", nil, func(r corrupted) {
			p := *r.payment("key-no-time")
			sum := sha256.Sum256([]byte("key-refused"))
			p.ID, p.KeyHash, p.Reference = uuid.New(), sum[:], r.referenceOf(r.sent("key-refused", 0))
			r.payments = append(r.payments, p)
		}},
		{noRow, "the row was written by the request that was refused", "debit key-refused-first of store-17", nil, func(r corrupted) {
			r.payment("key-refused-first").CreatedAt = r.sent("key-refused-first", 0).At.Add(time.Microsecond)
		}},
		{noWallet, "refused with Retry-After, and the wallet was asked", "debit key-refused of store-17", nil, func(r corrupted) {
			reference := r.referenceOf(r.sent("key-refused", 0)).String()
			r.copyLine(r.line(arrived, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Reference, l.Key = reference, reference })
		}},
		{retryAfter, "the gate's refusal says no time", "debit key-refused of store-17", nil, func(r corrupted) { r.answer("key-refused", 0).RetryAfter = "" }},
		{retryAfter, "the gate's refusal says 0", "debit key-refused of store-17", nil, func(r corrupted) { r.answer("key-refused", 0).RetryAfter = "0" }},
		{retryAfter, "a handler's 503 says a time", approved, nil, func(r corrupted) {
			a := r.answer("key-approved", 1)
			a.Answer = problem(503, "OUTCOME_UNKNOWN")
			a.RetryAfter = "1"
		}},
		{retryAfter, "a decline for good says a time", "debit key-poor of store-17", nil, func(r corrupted) { r.answer("key-poor", 0).RetryAfter = "2" }},

		{oneMutation, "two sends are recorded", approved, nil, func(r corrupted) {
			c := *r.call(r.payment("key-approved").ID, "debit")
			c.N = 2
			r.calls = append(r.calls, c)
		}},
		{oneLookup, "two lookups are recorded", lost, nil, func(r corrupted) {
			c := *r.call(r.payment("key-lost").ID, "lookup")
			c.N = 3
			r.calls = append(r.calls, c)
		}},
		{oneLookup, "two lookups before a decline in doubt", late, nil, func(r corrupted) {
			p := r.payment("key-late")
			i := r.lookup(p.Reference)
			r.copyLine(i, func(*BookLine) {})
			for _, n := range []int{i, i + 1} {
				r.book[n].At = p.CreatedAt
			}
		}},
		{oneLookup, "a lookup is recorded and no call", lost, nil, func(r corrupted) {
			id := r.payment("key-lost").ID
			r.calls = slices.DeleteFunc(r.calls, func(c CallRow) bool { return c.Subject == id && c.Call == "debit" })
		}},
		{oneMutation, "a debit was on the wire twice", approved, nil, func(r corrupted) {
			r.copyLine(r.line(arrived, r.payment("key-approved").Reference, 0), func(*BookLine) {})
		}},
		{oneLookup, "two lookups were on the wire", lost, nil, func(r corrupted) {
			r.copyLine(r.lookup(r.payment("key-lost").Reference), func(*BookLine) {})
		}},
		{oneLookup, "a lookup after a success", approved, nil, func(r corrupted) {
			p := r.payment("key-approved")
			c := *r.call(p.ID, "debit")
			c.N, c.Call, c.Outcome, c.Reason = 2, "lookup", "applied", "applied"
			r.calls = append(r.calls, c)
		}},
		{oneLookup, "a lookup that is not recorded", lost, nil, func(r corrupted) {
			id := r.payment("key-lost").ID
			r.calls = slices.DeleteFunc(r.calls, func(c CallRow) bool { return c.Subject == id && c.Call == "lookup" })
		}},

		{answerTime, "an answer that came late", lost, nil, func(r corrupted) { s := r.sent("key-lost", 0); s.At = s.At.Add(-8 * time.Second) }},
		{callTime, "a call that took too long", approved, nil, func(r corrupted) {
			r.call(r.payment("key-approved").ID, "debit").last(6 * time.Second)
		}},
		{callTime, "a connect that took too long", "debit key-no-time of store-17", nil, func(r corrupted) {
			c := r.call(r.payment("key-no-time").ID, "debit")
			c.Reason = "connect_timeout"
			c.last(5300 * time.Millisecond)
		}},
		{callTime, "a refused connect that took too long", "debit key-no-time of store-17", nil, func(r corrupted) {
			c := r.call(r.payment("key-no-time").ID, "debit")
			c.Reason = "connect_failed"
			c.last(5300 * time.Millisecond)
		}},
		{callTime, "an attempt whose calls took too long together", refund, nil, func(r corrupted) {
			id := r.operation("key-refund").ID
			for i := range r.calls {
				if c := &r.calls[i]; c.Subject == id {
					c.Fence, c.N, c.At = 1, i, c.At.Add(time.Duration(i)*time.Second)
				}
			}
			first := r.call(id, "credit")
			first.At = first.At.Add(-10 * time.Second)
		}},
		{sendTime, "sent when the budget was spent", approved, nil, func(r corrupted) {
			p := r.payment("key-approved")
			p.CreatedAt = r.call(p.ID, "debit").At.Add(-7900 * time.Millisecond)
		}},

		{neverSeen, "not sent, and the wallet has seen it", approved, nil, func(r corrupted) {
			c := r.call(r.payment("key-approved").ID, "debit")
			c.Outcome, c.Reason, c.Status = "unavailable", "breaker_open", 0
		}},
		{neverSeen, "declined as not sent, and the wallet has seen it", "debit key-down of store-17", nil, func(r corrupted) {
			id := r.payment("key-down").ID
			r.dropOperation(*r.reversal("key-down"))
			r.calls = slices.DeleteFunc(r.calls, func(c CallRow) bool { return c.Subject == id })
		}},
		{noProof, "not found, and approved", lost, nil, func(r corrupted) { r.call(r.payment("key-lost").ID, "lookup").Outcome = "not_found" }},
		{noProof, "no evidence, and approved", lost, nil, func(r corrupted) { r.call(r.payment("key-lost").ID, "lookup").Outcome = "no_evidence" }},
		{noProof, "not found, and declined without a reversal", "debit key-hang of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-hang")) }},
		{noProof, "a reversal ended by a lookup within the settle window", "debit key-hang of store-17", nil, func(r corrupted) {
			o := r.reversal("key-hang")
			r.calls = slices.DeleteFunc(r.calls, func(c CallRow) bool { return c.Subject == o.ID && c.At.Sub(o.CreatedAt) > 2900*time.Millisecond })
		}},

		{oneKey, "another Idempotency-Key on the wire", refund, nil, func(r corrupted) {
			r.change(r.arrival(r.operation("key-refund").OutboundKey, 1), func(l *BookLine) { l.Key = uuid.NewString() })
		}},
		{derived, "a reference that is drawn", "debit key-no-time of store-17", nil, func(r corrupted) { r.payment("key-no-time").Reference = uuid.New() }},
		{derived, "a follow-up by a key that is drawn", "credit key-payout of store-17", nil, func(r corrupted) { r.operation("key-payout").OutboundKey = uuid.New() }},
		{derived, "two payments with one reference", "debit key-no-time of store-17", []string{approved}, func(r corrupted) {
			r.payment("key-no-time").Reference = r.payment("key-approved").Reference
		}},
		{derived, "a reversal of what is another's", "debit key-hang of store-17", []string{approved}, func(r corrupted) {
			r.reversal("key-hang").Reverses = r.payment("key-approved").Reference
		}},
		{derived, "a reversal by a key that is drawn", "debit key-hang of store-17", nil, func(r corrupted) { r.reversal("key-hang").OutboundKey = uuid.New() }},
		{derived, "two follow-ups with one outbound key", refund, []string{"debit key-to-refund of store-17", "debit key-hang of store-17"}, func(r corrupted) {
			r.reversal("key-hang").OutboundKey = r.operation("key-refund").OutboundKey
		}},
		{recorded, "sent more often than is counted", refund, nil, func(r corrupted) { r.operation("key-refund").Attempts = 2 }},
		{recorded, "answers are recorded that nobody gave", "credit key-payout of store-17", nil, func(r corrupted) {
			r.dropLine(arrived, r.operation("key-payout").OutboundKey)
		}},
		{retryBudget, "a storm of retries", "", nil, func(r corrupted) {
			o := r.operation("key-refund")
			o.Attempts += 2000
			i := r.arrival(o.OutboundKey, 1)
			var storm []BookLine
			for n := range 2000 {
				l := r.book[i]
				l.Exchange += int64(n) + 1_000_000
				storm = append(storm, l)
			}
			r.book = slices.Insert(r.book, i, storm...)
			r.number()
		}},

		{ended, "a follow-up that has not ended", "credit key-payout of store-17", nil, func(r corrupted) {
			o := r.operation("key-payout")
			o.State, o.WalletID, o.EndedAt = "PENDING", "", time.Time{}
		}},
		{ended, "parked without a reason", "debit key-parked of store-17", nil, func(r corrupted) { r.reversal("key-parked").ParkReason = "" }},
		{kept, "an accepted follow-up is gone", "credit key-payout of store-17", nil, func(r corrupted) { r.dropOperation(*r.operation("key-payout")) }},
		{effected, "succeeded, and the wallet has done nothing", "credit key-payout of store-17", nil, func(r corrupted) {
			r.dropLine(applied, r.operation("key-payout").OutboundKey)
		}},
		{effected, "succeeded by another id than the wallet's", "credit key-payout of store-17", nil, func(r corrupted) { r.operation("key-payout").WalletID += "0" }},
		{effected, "cancelled and undone, and the wallet has done nothing", "debit key-cancelled of store-17", nil, func(r corrupted) {
			r.dropLine(applied, r.reversal("key-cancelled").OutboundKey)
		}},
		{effected, "nothing to undo, and the wallet has undone it", "debit key-gateway of store-17", nil, func(r corrupted) {
			o := r.reversal("key-gateway")
			o.State, o.WalletID = "NOT_APPLIED", ""
		}},
		{effected, "rejected by what is not the wallet's word", "credit key-no-payout of store-17", nil, func(r corrupted) {
			o := r.operation("key-no-payout")
			r.dropLine(rejected, o.OutboundKey)
			r.change(r.line(answered, o.OutboundKey, 0), func(l *BookLine) { l.Answer.Status = 503 })
		}},
		{effected, "rejected without a usable code, and nobody has said no", "credit key-odd of store-17", nil, func(r corrupted) {
			o := r.operation("key-odd")
			r.dropLine(rejected, o.OutboundKey)
			r.dropLine(answered, o.OutboundKey)
		}},
		{effected, "the wallet has done it twice", "credit key-payout of store-17", nil, func(r corrupted) {
			r.copyLine(r.line(applied, r.operation("key-payout").OutboundKey, 0), func(*BookLine) {})
		}},
		{effected, "rejected, and the wallet has done it", "credit key-no-payout of store-17", nil, func(r corrupted) {
			r.change(r.line(rejected, r.operation("key-no-payout").OutboundKey, 0), func(l *BookLine) {
				l.Event, l.Effect.Code, l.Effect.BalanceChange = applied, "", l.Effect.Amount
			})
		}},
		{effected, "rejected, and the wallet has not said so", "credit key-no-payout of store-17", nil, func(r corrupted) {
			o := r.operation("key-no-payout")
			r.dropLine(rejected, o.OutboundKey)
			r.change(r.line(answered, o.OutboundKey, 0), func(l *BookLine) { l.Answer.Body = `{"code":"ACCOUNT_LOCKED"}` })
		}},
		{owed, "a decline in doubt without a reversal", "debit key-hang of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-hang")) }},
		{owed, "a decline on a gateway's 502 without a reversal", "debit key-gateway of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-gateway")) }},
		{owed, "cancelled in flight without a reversal", "debit key-overtaken of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-overtaken")) }},
		{owed, "a decline on somebody's 4xx without a reversal", "debit key-status of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-status")) }},
		{owed, "a reversal by a later opinion", "debit key-hang of store-17", nil, func(r corrupted) {
			o := r.reversal("key-hang")
			o.CreatedAt = o.CreatedAt.Add(time.Millisecond)
		}},
		{owed, "an approval is reversed that no till has cancelled", approved, nil, func(r corrupted) {
			p := r.payment("key-approved")
			o := *r.reversal("key-cancelled")
			o.ID, o.PaymentID, o.Reverses, o.OutboundKey, o.Amount, o.State = uuid.New(), p.ID, p.Reference, reversalOf(p.Reference), p.Amount, "SUCCEEDED"
			r.operations = append(r.operations, o)
		}},
		{owed, "a cancelled approval without a reversal", "debit key-cancelled of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-cancelled")) }},
		{owed, "a tombstone that was shown its request, without a reversal", "debit key-shown of store-17", nil, func(r corrupted) { r.dropOperation(*r.reversal("key-shown")) }},
		{finalEnd, "an end that was shown has changed", refund, []string{"debit key-to-refund of store-17"}, func(r corrupted) {
			o := r.operation("key-refund")
			o.State, o.Code, o.WalletID = "REJECTED", "ACCOUNT_CLOSED", ""
		}},

		{conserved, "money comes into being", "", nil, func(r corrupted) {
			r.change(r.line(applied, r.payment("key-approved").Reference, 0), func(l *BookLine) { l.Effect.BalanceChange++ })
		}},
		{conserved, "an account is overdrawn", "", nil, func(r corrupted) {
			for i, l := range r.book {
				if l.Event == opened && l.Effect.Account == "FLAKY" {
					r.book[i].Effect.BalanceChange = 899
				}
			}
		}},
		{conserved, "a hold that holds nothing", "", nil, func(r corrupted) {
			r.change(r.line(applied, r.payment("key-still-held").Reference, 0), func(l *BookLine) { l.Effect.HeldChange = 0 })
		}},
		{conserved, "a refusal holds money", "", nil, func(r corrupted) {
			r.change(r.line(rejected, r.payment("key-poor").Reference, 0), func(l *BookLine) { l.Effect.HeldChange = 1 })
		}},
		{conserved, "a refusal moves money", "", nil, func(r corrupted) {
			r.change(r.line(rejected, r.payment("key-poor").Reference, 0), func(l *BookLine) { l.Effect.BalanceChange = -1 })
		}},
		{conserved, "a hold is captured twice", "", []string{"hold key-held of store-17", "capture key-capture of store-17"}, func(r corrupted) {
			r.copyLine(r.line(applied, r.operation("key-capture").OutboundKey, 0), func(*BookLine) {})
		}},
		{totals, "the wallet has other balances than its book", "", nil, func(r corrupted) {
			counted := r.totals["EUR"]
			counted.Balances--
			counted.NetDebits++
			r.totals["EUR"] = counted
		}},
		{totals, "the wallet has lost money", "", nil, func(r corrupted) {
			counted := r.totals["EUR"]
			counted.Held--
			r.totals["EUR"] = counted
		}},
		{agreed, "the wallet has taken more than the ledger knows", "", []string{"credit key-payout of store-17"}, func(r corrupted) {
			r.operation("key-payout").Amount = 4
		}},

		{netApproved, "released, and the wallet holds it", "hold key-released-and-cancelled of store-17", []string{"release key-release-too of store-17"}, func(r corrupted) {
			r.dropLine(applied, r.operation("key-release-too").OutboundKey)
		}},
		{netApproved, "not ended, and the wallet does not hold it", "hold key-still-held of store-17", nil, func(r corrupted) {
			p := r.payment("key-still-held")
			i := r.line(applied, p.Reference, 0)
			r.copyLine(i, func(l *BookLine) {
				l.Effect.Operation, l.Effect.HoldID, l.Effect.ID, l.Reference = "release", p.WalletID, "release-x-000999", uuid.NewString()
				l.Effect.BalanceChange, l.Effect.HeldChange = 9, -9
			})
		}},
		{linear, "not found after it was decided", approved, nil, func(r corrupted) { r.answer("key-approved", 3).Answer = problem(404, "PAYMENT_NOT_FOUND") }},
		{linear, "in flight after it was decided", approved, nil, func(r corrupted) {
			a := r.answer("key-approved", 1)
			a.Answer = problem(409, "REQUEST_IN_FLIGHT")
			a.RetryAfter = "1"
		}},
		{linear, "in flight although nobody has claimed it", "debit key-refused-first of store-17", nil, func(r corrupted) {
			a := r.answer("key-refused-first", 0)
			a.Answer = problem(409, "REQUEST_IN_FLIGHT")
			a.RetryAfter = "1"
		}},
		{linear, "two of many at once have decided", "debit key-contended of store-17", nil, func(r corrupted) {
			for n := range 8 {
				if a := r.answer("key-contended", n); a.Status == 201 {
					a.Got = strings.Replace(a.Got, `"id":"`, `"id":"0`, 1)
				}
			}
		}},
		{linear, "a follow-up is refused that was accepted before", refund, nil, func(r corrupted) {
			r.answer("key-refund", 1).Answer = problem(409, "NOT_REFUNDABLE")
		}},
	}
	found := map[Clause]bool{}
	for _, c := range cases {
		found[c.clause] = true
		t.Run(fmt.Sprintf("I%d %s/%s", c.clause.Invariant(), c.clause.Name(), c.name), func(t *testing.T) {
			t.Parallel()
			r := corrupted{record(t), t}
			c.spoil(r)
			report, err := Check(t.Context(), r.input(), runOptions(), nil)
			if err != nil {
				t.Fatal(err)
			}
			hit := false
			for _, v := range report.Violations {
				hit = hit || (v.Clause == c.clause && v.Key == c.key)
				if v.Key != "" && v.Key != c.key && !slices.Contains(c.also, v.Key) {
					t.Errorf("%s is accused, of I%d %s: %s", v.Key, v.Clause.Invariant(), v.Clause.Name(), v.Text)
				}
				if v.Key != "" && len(v.History) < 2 {
					t.Errorf("%s has a history of %d moments", v.Key, len(v.History))
				}
			}
			if !hit {
				t.Errorf("it was not found; what was found:\n%s", tellAll(report))
			}
		})
	}
	for _, clause := range Clauses() {
		if !found[clause] {
			t.Errorf("no history breaks I%d %s", clause.Invariant(), clause.Name())
		}
	}
}

func tellAll(report *Report) string {
	var b strings.Builder
	for _, v := range report.Violations {
		fmt.Fprintf(&b, "  I%d %s: %s: %s\n", v.Clause.Invariant(), v.Clause.Name(), v.Key, v.Text)
	}
	return b.String()
}

// last makes a call longer, at its begin.
func (c *CallRow) last(d time.Duration) { c.At, c.Took = c.At.Add(c.Took-d), d }

// arrival is the n-th mutation of a reference that arrived, from 0.
func (r corrupted) arrival(reference uuid.UUID, n int) int {
	r.t.Helper()
	for i, l := range r.book {
		if l.Event == arrived && l.Operation != "lookup" && l.Reference == reference.String() {
			if n == 0 {
				return i
			}
			n--
		}
	}
	r.need(false, "mutation %d of %s", n, reference)
	return -1
}

// lookup is the first lookup of a reference that arrived.
func (r corrupted) lookup(reference uuid.UUID) int {
	r.t.Helper()
	i := slices.IndexFunc(r.book, func(l BookLine) bool {
		return l.Event == arrived && l.Operation == "lookup" && l.Reference == reference.String()
	})
	r.need(i >= 0, "lookup of %s", reference)
	return i
}

// lastRead is the last answer to a read of a key.
func (r corrupted) lastRead(key string) *history.Line {
	r.t.Helper()
	for n := 0; ; n++ {
		a := r.answer(key, n+1)
		if a.Status == 200 {
			return a
		}
	}
}

func clock(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z07:00") }

// An answer is compared member by member. One that is left out of the comparison is one
// in which SafeLedger may tell a till anything: another amount, another id, another time.
func TestEveryMemberThatIsToldIsCompared(t *testing.T) {
	t.Parallel()
	// Words for people, which nothing is stored of; and what a follow-up's end still changes.
	unjudged := []string{"type", "title", "detail", "followUps"}
	for _, c := range []struct {
		name, key string
		call      int
		subject   string
	}{
		{"an approval", "key-quoted+text", 0, "debit key-quoted+text of store-17"},
		{"a decline", "key-poor", 0, "debit key-poor of store-17"},
		{"a decline that may be tried again", "key-late", 0, "debit key-late of store-17"},
		{"a cancellation", "key-cancelled", 1, "debit key-cancelled of store-17"},
		{"a read of a payment", "key-approved", 3, "debit key-approved of store-17"},
		{"an accepted credit", "key-refund", 0, "credit key-refund of store-17"},
		{"an accepted capture", "key-capture", 0, "capture key-capture of store-17"},
		{"an accepted release", "key-release", 0, "release key-release of store-17"},
		{"a read of a follow-up", "", 0, "credit key-refund of store-17"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			find := func(r corrupted) *history.Line {
				if c.key != "" {
					return r.answer(c.key, c.call)
				}
				return r.lastAnswer("/operations/" + r.operation("key-refund").ID.String())
			}
			var members map[string]jsontext.Value
			if err := json.Unmarshal([]byte(find(corrupted{record(t), t}).Got), &members); err != nil || len(members) < 4 {
				t.Fatalf("%d members, %v", len(members), err)
			}
			for name, value := range members {
				if slices.Contains(unjudged, name) {
					continue
				}
				for how, other := range map[string]string{"changed": changed(string(value)), "left out": ""} {
					r := corrupted{record(t), t}
					a := find(r)
					spoilt := maps.Clone(members)
					delete(spoilt, name)
					if other != "" {
						spoilt[name] = jsontext.Value(other)
					}
					text, err := json.Marshal(spoilt)
					if err != nil {
						t.Fatal(err)
					}
					a.Got = string(text)
					report, err := Check(t.Context(), r.input(), runOptions(), nil)
					if err != nil {
						t.Fatal(err)
					}
					// Not by I1 same: the first of two answers that differ may be the right one.
					if !slices.ContainsFunc(report.Violations, func(v Violation) bool {
						return v.Clause.Invariant() == 1 && v.Clause != same && v.Key == c.subject
					}) {
						t.Errorf("%s %s was not found: %s", name, how, text)
					}
				}
			}
		})
	}
}

// changed is another value of the same type.
func changed(value string) string {
	switch {
	case value == "true":
		return "false"
	case value == "false":
		return "true"
	case strings.HasPrefix(value, `"`):
		return value[:len(value)-2] + map[bool]string{true: "1", false: "0"}[value[len(value)-2] == '0'] + `"`
	case strings.HasPrefix(value, "{"):
		return `{"till":"4"}`
	}
	return value + "1"
}

// lastAnswer is the last answer to a read of a path.
func (r corrupted) lastAnswer(path string) *history.Line {
	r.t.Helper()
	for _, l := range slices.Backward(r.tills) {
		if l.Event == history.Sent && l.Path == path {
			for j := range r.tills {
				if r.tills[j].Event == history.Answered && r.tills[j].Call == l.Call {
					return &r.tills[j]
				}
			}
		}
	}
	r.need(false, "answer to GET %s", path)
	return nil
}
