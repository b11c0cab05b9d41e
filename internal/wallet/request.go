package wallet

import (
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/safeledger/safeledger/internal/payment"
)

// version is one version of the wallet's API: how its requests look and what
// the members of its answers are called. What an answer means is the same for
// both (see classify).
type version struct {
	// calls are the calls that this version knows. The catalogue is checked
	// against them, so a new one cannot be added without a policy.
	calls map[Call]func(payment.Instruction) (request, bool)
	// echoes: an answer repeats the reference. Without that, one answer cannot be
	// told from another, so a connection carries one request only.
	echoes bool
	// idMember is the member that holds the wallet's id of the effect.
	idMember func(payment.Operation) string
	// duplicateMember is the member that a 409 DUPLICATE_REFERENCE names the first
	// effect in; "" where the version has no such answer.
	duplicateMember func(payment.Operation) string
}

func versions() map[Version]version {
	return map[Version]version{V1: v1(), V2: v2()}
}

// request is a call as it goes over the wire, without what is the same for all.
type request struct {
	method  string
	target  string // below the base URL, already encoded
	body    []byte // nil = a request that has none
	key     string // Idempotency-Key; "" = not sent
	decides bool   // a till waits for it: here a crash has the most to lose
}

// wire is what all requests of a client share.
type wire struct {
	host   string
	prefix string // the base URL's path, encoded, without a slash at its end
	agent  string
	closes bool // ask the wallet to close the connection behind its answer
}

// append appends req as it is written, head and body in one piece: a request that
// goes out in one Write has either not been begun or may have arrived whole.
// The head is ours alone, nothing of a till's request is copied into it: there
// are headers by which a caller could switch on a proxy's retries. traceparent names
// a span of ours, "" where nothing is traced; a till's tracestate and baggage stay here.
func (w wire) append(b []byte, req request, token Token, traceparent string) []byte {
	line := func(parts ...string) {
		for _, part := range parts {
			b = append(b, part...)
		}
		b = append(b, "\r\n"...)
	}
	line(req.method, " ", w.prefix, req.target, " HTTP/1.1")
	line("Host: ", w.host)
	line("User-Agent: ", w.agent)
	line("Accept: application/json")
	if token.value != "" {
		line("Authorization: Bearer ", token.value)
	}
	if req.key != "" {
		line("Idempotency-Key: ", req.key)
	}
	if traceparent != "" {
		line("traceparent: ", traceparent)
	}
	if req.body != nil {
		line("Content-Type: application/json")
		line("Content-Length: ", strconv.Itoa(len(req.body)))
	}
	if w.closes {
		line("Connection: close")
	}
	line()
	return append(b, req.body...)
}

// post is a mutation. Its body is never empty, because a POST without one is a
// request that proxies and libraries feel freer to repeat. It cannot be built
// where a text is not valid UTF-8.
func post(target string, body any) (request, bool) {
	encoded, err := json.Marshal(body)
	if err != nil {
		return request{}, false
	}
	return request{method: http.MethodPost, target: target, body: encoded}, true
}

// postMovement is a debit, credit or hold, whose body is the same in both versions. It is
// written piece by piece, because every payment has one.
func postMovement(target string, in payment.Instruction) (request, bool) {
	b := make([]byte, 0, 192) // as long as one with an account in full
	b = append(b, `{"reference":"`...)
	b = append(b, in.Reference.String()...)
	b = append(b, `","account":`...)
	b, accountErr := jsontext.AppendQuote(b, in.Account)
	b = append(b, `,"amount":`...)
	b = strconv.AppendInt(b, in.Amount.AmountMinor, 10)
	b = append(b, `,"currency":`...)
	b, currencyErr := jsontext.AppendQuote(b, in.Amount.Currency)
	b = append(b, '}')
	if accountErr != nil || currencyErr != nil {
		return request{}, false
	}
	return request{method: http.MethodPost, target: target, body: b, decides: in.Operation.IsPayment()}, true
}

// get is a lookup.
func get(target string) (request, bool) {
	return request{method: http.MethodGet, target: target}, true
}
