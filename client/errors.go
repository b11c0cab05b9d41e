package client

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Problem is a refusal by the service (RFC 9457): the request has done nothing
// and, as it is, never will. Decide by Status and Code; Title and Detail are for
// people. Two codes deserve a look at each call: PAYMENT_CANCELLED (409), the key's
// payment was approved and cancelled since, no goods for it; IDEMPOTENCY_KEY_REUSED
// (422), the key stands for a different request.
type Problem struct { //nolint:errname // RFC 9457's word, and what the body is called everywhere
	// Status is the HTTP status: 4xx, 501 or, from a read, 5xx.
	Status int
	// Code says which problem, in upper snake case. It is "" if something in
	// between has answered.
	Code   string
	Title  string
	Detail string
	// Errors name the members of the body that are wrong.
	Errors []MemberError
	// RetryAfter is how long to wait before asking again; 0 if nothing was said. With
	// the code PAYMENT_NOT_YET_DECIDED the same request may be right a moment later.
	RetryAfter time.Duration
}

// MemberError says what is wrong with one member of a body.
type MemberError struct {
	// Pointer is a JSON pointer (RFC 6901), "" for the body as a whole.
	Pointer string
	Detail  string
}

// Error implements error. It holds no account and no key, but what Detail says.
func (p *Problem) Error() string {
	var text strings.Builder
	text.WriteString("refused with " + strconv.Itoa(p.Status))
	if p.Code != "" {
		text.WriteString(" " + p.Code)
	}
	if p.Detail != "" {
		text.WriteString(": " + p.Detail)
	}
	for _, e := range p.Errors {
		text.WriteString(" (" + e.Pointer + ": " + e.Detail + ")")
	}
	return text.String()
}

// NotBegunError says that this call has certainly done nothing: no connection was
// made, or each request was refused by the service's gate (503 with Retry-After) and
// a bound of the policy or the context's end came first. The same call may be made
// again with the same key. What an earlier call with the key has done, it cannot say.
type NotBegunError struct {
	Kind Kind
	Key  string
	// Attempts is how many requests the gate has refused.
	Attempts int
	// RetryAfter is what the gate asked for last, 0 if it was not reached.
	RetryAfter time.Duration
	// Err is the gate's *Problem, the failure to connect, or the context's error.
	Err error
}

// Error implements error, without the key: it may be in a log for long.
func (e *NotBegunError) Error() string {
	return fmt.Sprintf("%s not begun (refused at the gate %d times), the same key may be used again: %v", e.Kind, e.Attempts, e.Err)
}

// Unwrap gives Err.
func (e *NotBegunError) Unwrap() error { return e.Err }

// InFlightError says that the key is being decided right now, by an earlier request
// (409 REQUEST_IN_FLIGHT). That request has an outcome soon: ask with
// [Client.Reconcile], which waits for it, or [Client.ReconcileFollowUp].
type InFlightError struct {
	Kind Kind
	Key  string
	// RetryAfter is how long to wait before asking, 0 if nothing was said.
	RetryAfter time.Duration
	// Err is the *Problem as it came.
	Err error
}

// Error implements error.
func (e *InFlightError) Error() string {
	return fmt.Sprintf("%s: the same key is in flight, reconcile it: %v", e.Kind, e.Err)
}

// Unwrap gives Err.
func (e *InFlightError) Unwrap() error { return e.Err }

// OutcomeUnknownError says that the request may have been done, may be done later,
// or not at all. What to do:
//
//   - the customer is still there: [Client.Reconcile] with Key until it says what was
//     decided. Not seen proves nothing, the request may still be on its way: then send
//     the same request with the same key again, or cancel it.
//   - the customer is gone: [Client.Cancel] with Key. Whatever was done is undone, and
//     nothing will be done later. A Cancel whose own outcome is unknown is repeated
//     until it is answered.
//   - a credit, capture or release: [Client.ReconcileFollowUp], or the same request with the
//     same key again.
//
// Never take a new key while it is unknown: that is how customers pay twice.
type OutcomeUnknownError struct {
	Kind Kind
	// Key is the idempotency key to ask for, or to cancel.
	Key string
	// Cancelling is set if it was a Cancel that has not been answered.
	Cancelling bool
	// Status is the HTTP status that came, 0 if none did.
	Status int
	// Err is what happened: a *Problem, a lost connection, what was wrong with the
	// answer, or the context's error.
	Err error
}

// Error implements error.
func (e *OutcomeUnknownError) Error() string {
	what, then := string(e.Kind), "reconcile or cancel its key, never take a new one"
	switch {
	case e.Cancelling:
		what, then = "cancelling a "+what, "repeat the cancel"
	case e.Kind != KindDebit && e.Kind != KindHold:
		then = "reconcile its key, or send it again with the same one"
	}
	return fmt.Sprintf("the outcome is unknown (%s), %s: %v", what, then, e.Err)
}

// Unwrap gives Err.
func (e *OutcomeUnknownError) Unwrap() error { return e.Err }

// ReadError says that something could not be read within the bounds of the policy or
// of the context. Reading again is always safe.
type ReadError struct {
	// Attempts is how many requests were made.
	Attempts int
	// Err is what the last one came to: a *Problem (PAYMENT_NOT_YET_DECIDED, if the
	// payment is still being decided), a lost connection, what was wrong with the
	// answer, or the context's error.
	Err error
}

// Error implements error.
func (e *ReadError) Error() string {
	return fmt.Sprintf("could not be read in %d attempts: %v", e.Attempts, e.Err)
}

// Unwrap gives Err.
func (e *ReadError) Unwrap() error { return e.Err }
