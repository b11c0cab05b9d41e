package payment

// Outcome is what one wallet call turned out to be (contract section 3). It is
// a value, not an error: a decline is a result, and a breaker that saw it as an
// error would open on poor customers.
type Outcome struct {
	Class  Class
	Reason Reason
	// Code is the wallet's, of a Rejected; see WalletCode.
	Code Code
	// Verdict is set on a Rejected whose body was the wallet's own: a JSON object
	// with a non-empty string `code`. A 4xx without one may come from anything in
	// between, after the wallet has applied.
	Verdict bool
	// WalletID is the wallet's id of the effect, of a Success.
	WalletID string
	// Status is the HTTP status that was read, 0 where there was no answer.
	Status int
}

// Class sorts outcomes by what may be believed. The zero value is invalid, so
// that a forgotten outcome cannot pass for one.
type Class uint8

// The four classes of contract section 3.
const (
	_           Class = iota
	Success           // applied, once
	Rejected          // the wallet, or something before it, said no
	Unavailable       // not applied, unless a gateway said so (see Unproven)
	Ambiguous         // may have been applied, or may yet be
)

func (c Class) String() string {
	switch c {
	case Success:
		return "success"
	case Rejected:
		return "rejected"
	case Unavailable:
		return "unavailable"
	case Ambiguous:
		return "ambiguous"
	}
	return "invalid"
}

// Unproven reports whether money may have moved although o will be told to the
// till as a decline, so that a reversal must look after it (contract section 2):
// every Ambiguous; an Unavailable that was read off a response, because gateways
// say 502 and 503 after the wallet has applied; a 4xx that is not the wallet's.
func (o Outcome) Unproven() bool {
	switch o.Class {
	case Success:
		return false
	case Rejected:
		return !o.Verdict
	case Unavailable:
		return o.Status != 0
	case Ambiguous:
		return true
	}
	return true
}

// NotAboutThis reports whether a 4xx says something about us or about the moment,
// and not about this operation (contract section 4): a wallet that has lost our
// token must not cost anybody a credit.
func (o Outcome) NotAboutThis() bool {
	switch o.Status {
	case 401, 403, 408, 425, 429:
		return true
	}
	return false
}

// Reason says why an outcome is what it is: a bounded set, fit for a metric
// label and for the timeline of a payment.
type Reason string

// The reasons, by the class that they explain.
const (
	// Success.
	ReasonApplied   Reason = "applied"
	ReasonDuplicate Reason = "duplicate" // v1: DUPLICATE_REFERENCE with the id of the first

	// Rejected.
	ReasonVerdict   Reason = "verdict"
	ReasonNoVerdict Reason = "no_verdict"

	// Unavailable: no byte of the request was handed to the connection.
	ReasonDeadlineSpent  Reason = "deadline_spent"
	ReasonBulkheadFull   Reason = "bulkhead_full"
	ReasonBreakerOpen    Reason = "breaker_open"
	ReasonConnectFailed  Reason = "connect_failed" // refused, DNS, TLS
	ReasonConnectTimeout Reason = "connect_timeout"
	ReasonUnsupported    Reason = "unsupported" // the wallet's version has no such call
	// Unavailable, by a response (unproven).
	ReasonStatus502 Reason = "status_502"
	ReasonStatus503 Reason = "status_503"

	// Ambiguous.
	ReasonTimeout          Reason = "timeout"
	ReasonConnectionLost   Reason = "connection_lost"    // reset, EOF or a failed write, after a write began
	ReasonStatus504        Reason = "status_504"         //
	ReasonStatus5xx        Reason = "status_5xx"         // the others, outside 502 to 504
	ReasonStatus3xx        Reason = "status_3xx"         //
	ReasonStatusOther      Reason = "status_other"       // 1xx as the final answer, 6xx and beyond
	ReasonDuplicateNoID    Reason = "duplicate_no_id"    // DUPLICATE_REFERENCE in v2, or without the id
	ReasonBodyIncomplete   Reason = "body_incomplete"    // missing or cut off
	ReasonBodyTooLarge     Reason = "body_too_large"     // over 64 KiB
	ReasonBodyUnexpected   Reason = "body_unexpected"    // not what was asked for
	ReasonBodyForeign      Reason = "body_foreign"       // somebody else's reference, amount or currency
	ReasonProtocol         Reason = "protocol"           // not HTTP, or not to be parsed
	ReasonPending          Reason = "pending"            // the wallet says that it is still at it
	ReasonNotFoundUnproven Reason = "not_found_unproven" // a 404 that is not the wallet's own
)

// Evidence is what a lookup by reference showed. It never turns into a
// Rejected or Unavailable of the call that it asks about.
type Evidence struct {
	Finding  Finding
	Reason   Reason
	WalletID string // Finding is FoundApplied
	Code     Code   // Finding is FoundRejected
	Status   int    // the HTTP status that was read, 0 where there was no answer
}

// Finding sorts evidence. The zero value is invalid.
type Finding uint8

// What a lookup can show (contract section 3).
const (
	_             Finding = iota
	FoundApplied          // 200 APPLIED with our reference
	FoundRejected         // 200 REJECTED with our reference
	NotFound              // a 404 with the wallet's own code: not found so far, which proves nothing
	NoEvidence            // anything else, PENDING and failure included
)

func (f Finding) String() string {
	switch f {
	case FoundApplied:
		return "applied"
	case FoundRejected:
		return "rejected"
	case NotFound:
		return "not_found"
	case NoEvidence:
		return "no_evidence"
	}
	return "invalid"
}
