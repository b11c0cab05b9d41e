package wallet

import (
	"net/url"

	"github.com/safeledger/safeledger/internal/payment"
)

// v2 is the wallet that has holds too, repeats the reference in its answers, and
// gives a repeated Idempotency-Key its first 2xx again (contract section 3). Only
// mutations carry the key.
func v2() version {
	return version{
		calls: map[Call]func(payment.Instruction) (request, bool){
			callDebit:   keyed(func(in payment.Instruction) (request, bool) { return postMovement("/v2/debits", in) }),
			callCredit:  keyed(func(in payment.Instruction) (request, bool) { return postMovement("/v2/credits", in) }),
			callHold:    keyed(func(in payment.Instruction) (request, bool) { return postMovement("/v2/holds", in) }),
			callCapture: keyed(v2Capture),
			callRelease: keyed(v2Release),
			callLookup: func(in payment.Instruction) (request, bool) {
				return get("/v2/operations/" + in.Reference.String())
			},
		},
		echoes:          true,
		idMember:        func(payment.Operation) string { return "id" },
		duplicateMember: func(payment.Operation) string { return "" },
	}
}

// keyed adds the outbound Idempotency-Key: the same string as the reference.
func keyed(build func(payment.Instruction) (request, bool)) func(payment.Instruction) (request, bool) {
	return func(in payment.Instruction) (request, bool) {
		req, ok := build(in)
		req.key = in.Reference.String()
		return req, ok
	}
}

func v2Capture(in payment.Instruction) (request, bool) {
	return v2HoldCall(in, "capture", struct {
		Reference string `json:"reference"`
		Amount    int64  `json:"amount"` // minor units
	}{in.Reference.String(), in.Amount.AmountMinor})
}

func v2Release(in payment.Instruction) (request, bool) {
	return v2HoldCall(in, "release", struct {
		Reference string `json:"reference"`
	}{in.Reference.String()})
}

func v2HoldCall(in payment.Instruction, verb string, body any) (request, bool) {
	if !validWalletID(in.HoldID) {
		return request{}, false // a path that could mean another hold, or another call
	}
	return post("/v2/holds/"+url.PathEscape(in.HoldID)+"/"+verb, body)
}
