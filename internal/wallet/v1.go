package wallet

import "github.com/safeledger/safeledger/internal/payment"

// v1 is the wallet that has debits and credits, knows repetitions by their
// reference, and does not repeat the reference in its answers (contract section 3).
func v1() version {
	return version{
		calls: map[Call]func(payment.Instruction) (request, bool){
			callDebit:  func(in payment.Instruction) (request, bool) { return postMovement("/v1/debits", in) },
			callCredit: func(in payment.Instruction) (request, bool) { return postMovement("/v1/credits", in) },
			callLookup: v1Lookup,
		},
		idMember:        func(op payment.Operation) string { return v1Member(op, "debitId", "creditId") },
		duplicateMember: func(op payment.Operation) string { return v1Member(op, "existingDebitId", "existingCreditId") },
	}
}

func v1Lookup(in payment.Instruction) (request, bool) {
	collection := v1Member(in.Operation, "debits", "credits")
	if collection == "" {
		return request{}, false
	}
	return get("/v1/" + collection + "?reference=" + in.Reference.String())
}

// v1Member is the word for op, "" where v1 has no such operation.
func v1Member(op payment.Operation, debit, credit string) string {
	switch op {
	case payment.Debit:
		return debit
	case payment.Credit:
		return credit
	case payment.Hold, payment.Capture, payment.Release, payment.Reversal:
	}
	return ""
}
