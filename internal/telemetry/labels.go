package telemetry

import (
	"slices"

	"github.com/safeledger/safeledger/internal/payment"
)

// other is the label of everything that is not in a list. Each value of a label
// is a series that Prometheus keeps for weeks, so none may come from outside: a
// wallet that puts an order number into its codes must not be able to fill the
// monitoring of everybody (field report E7).
const other = "OTHER"

// known is s if it is in list, else other.
func known(list []string, s string) string {
	if slices.Contains(list, s) {
		return s
	}
	return other
}

// The values of the labels. A new one is added here, or is counted as OTHER.
var (
	payments   = []string{string(payment.Debit), string(payment.Hold)}
	operations = []string{
		string(payment.Debit), string(payment.Hold),
		string(payment.Credit), string(payment.Capture), string(payment.Release), string(payment.Reversal),
	}
	// acceptable are the follow-ups that tills ask for.
	acceptable = []string{string(payment.Credit), string(payment.Capture), string(payment.Release)}

	states = []string{string(payment.Approved), string(payment.Declined), string(payment.InFlight)}

	// codes are ours and those that contract section 3 names; OTHER, the codes
	// that only this wallet knows, is one of them from the start.
	codes = []string{
		string(payment.WalletUnavailable), string(payment.WalletTimeout), string(payment.WalletRejected), string(payment.Cancelled),
		"INSUFFICIENT_FUNDS", "ACCOUNT_NOT_FOUND", "ACCOUNT_LOCKED", "DUPLICATE_REFERENCE", other,
	}

	conflictKinds = []string{"in_flight", "mismatch"}
	refusals      = []string{"DRAINING", "OVERLOADED", "NOT_READY"} // the codes of the gate's answers

	lanes    = []string{"decision", "worker"}
	breakers = []string{"decision", "worker", "lookup"}
	// breakerStates are the words of gobreaker.
	breakerStates = []string{"closed", "half-open", "open"}

	calls = []string{
		string(payment.Debit), string(payment.Hold), string(payment.Credit), string(payment.Capture), string(payment.Release), lookup,
	}
	callsOf = map[string][]string{
		"decision": {string(payment.Debit), string(payment.Hold), lookup},
		"worker":   {string(payment.Credit), string(payment.Capture), string(payment.Release), lookup},
	}
)

// lookup is the call that asks what became of another.
const lookup = "lookup"

// untried are the reasons for which no call was made at all.
var untried = []payment.Reason{
	payment.ReasonDeadlineSpent, payment.ReasonBulkheadFull, payment.ReasonBreakerOpen, payment.ReasonUnsupported,
}

// result is one way in which a wallet call can end: its outcome (or a lookup's
// finding) and the reason for it.
type result struct {
	lookup  bool
	outcome string
	reason  payment.Reason
}

var (
	results  = allResults()
	outcomes = distinct(func(r result) string { return r.outcome })
	reasons  = distinct(func(r result) string { return string(r.reason) })
)

// classes are the reasons of each class of outcome, as payment lists them.
var classes = map[payment.Class][]payment.Reason{
	payment.Success:  {payment.ReasonApplied, payment.ReasonDuplicate},
	payment.Rejected: {payment.ReasonVerdict, payment.ReasonNoVerdict},
	payment.Unavailable: {
		payment.ReasonDeadlineSpent, payment.ReasonBulkheadFull, payment.ReasonBreakerOpen, payment.ReasonConnectFailed,
		payment.ReasonConnectTimeout, payment.ReasonUnsupported, payment.ReasonStatus502, payment.ReasonStatus503,
	},
	payment.Ambiguous: {
		payment.ReasonTimeout, payment.ReasonConnectionLost, payment.ReasonStatus504, payment.ReasonStatus5xx,
		payment.ReasonStatus3xx, payment.ReasonStatusOther, payment.ReasonDuplicateNoID, payment.ReasonBodyIncomplete,
		payment.ReasonBodyTooLarge, payment.ReasonBodyUnexpected, payment.ReasonBodyForeign, payment.ReasonProtocol,
	},
}

// allResults are the ends of calls and of lookups. Why a lookup gave no evidence
// is any of the reasons for which a call can fail, and two of its own.
func allResults() []result {
	all := []result{
		{true, payment.FoundApplied.String(), payment.ReasonApplied},
		{true, payment.FoundRejected.String(), payment.ReasonVerdict},
		{true, payment.NotFound.String(), payment.ReasonVerdict},
		{true, payment.NoEvidence.String(), payment.ReasonPending},
		{true, payment.NoEvidence.String(), payment.ReasonNotFoundUnproven},
		{true, payment.NoEvidence.String(), payment.ReasonVerdict}, // a 4xx with the wallet's code
		{true, payment.NoEvidence.String(), payment.ReasonNoVerdict},
	}
	for _, class := range []payment.Class{payment.Success, payment.Rejected, payment.Unavailable, payment.Ambiguous} {
		for _, reason := range classes[class] {
			all = append(all, result{false, class.String(), reason})
			if class == payment.Unavailable || class == payment.Ambiguous {
				all = append(all, result{true, payment.NoEvidence.String(), reason})
			}
		}
	}
	return all
}

func distinct(of func(result) string) []string {
	var all []string
	for _, r := range results {
		if s := of(r); !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	return all
}
