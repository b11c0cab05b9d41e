// Package client is SafeLedger's client for tills: the client half of its retry
// contract.
//
// A payment (Debit, Hold) is decided while the till waits. The result of the call
// is a [Decision]: approved, or declined. A decline is an answer and never an
// error, also one that may be tried again (see [Client.DebitAgain]). A follow-up
// (Credit, Capture, Release) is accepted while the till waits and done later; its
// result is a [FollowUp].
//
// An error says which of four things is known, and [errors.As] tells them apart:
//
//   - [*Problem]: the service has refused, for good; nothing was done.
//   - [*NotBegunError]: nothing reached the service's handlers; the same call may be made
//     again, with the same key, whenever the till likes.
//   - [*InFlightError]: the same key is being decided right now, by an earlier request.
//   - [*OutcomeUnknownError]: it may have been done or not. Never take a new key
//     now: ask with [Client.Reconcile], or undo with [Client.Cancel].
//
// Reads have one more, [*ReadError]: it could not be read within the policy's bounds.
//
// # What is sent again, and what is not
//
// A mutation is sent again, with the same key, after exactly one answer: 503 with a
// valid Retry-After, which the service's gate gives before anything is begun. That
// is bounded by [MutationPolicy]. After a plain 503, a 500, 502 or 504, a time-out, a
// lost connection or half an answer it is not: the outcome is unknown then. Nothing
// below this package repeats a request either: each has a connection of its
// own (net/http repeats requests on connections that it has used before), over
// HTTP/1.1, with no redirect and no proxy from the environment.
//
// Reads are sent again after 429, 502, 503, 504, a lost connection or half an
// answer, and while a payment is still being decided, bounded by [ReadPolicy].
//
// The contract is docs/integrating.md, with a table of every answer.
package client
