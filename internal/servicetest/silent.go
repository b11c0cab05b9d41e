package servicetest

import (
	"time"

	"github.com/safeledger/safeledger/internal/payment"
)

// Silent observes everything and keeps nothing. A test that wants to know of one thing
// embeds it.
type Silent struct{}

// The gate's and the API's.

// Refused does nothing.
func (Silent) Refused(string) {}

// Decision does nothing.
func (Silent) Decision(payment.Operation, payment.State, payment.Code, time.Duration, time.Duration) {
}

// Replay does nothing.
func (Silent) Replay(payment.Operation) {}

// KeyConflict does nothing.
func (Silent) KeyConflict(payment.Operation, string) {}

// OutcomeUnknown does nothing.
func (Silent) OutcomeUnknown(payment.Operation) {}

// NotStored does nothing.
func (Silent) NotStored(payment.Operation) {}

// Accepted does nothing.
func (Silent) Accepted(payment.Operation) {}

// Cancelled does nothing.
func (Silent) Cancelled(payment.Operation) {}

// NotSent does nothing.
func (Silent) NotSent(payment.Operation, payment.Reason) {}

// The wallet's.

// WalletCall does nothing.
func (Silent) WalletCall(string, string, string, payment.Reason, time.Duration) {}

// BreakerChanged does nothing.
func (Silent) BreakerChanged(string, string) {}

// The queue's.

// Leased does nothing.
func (Silent) Leased() {}

// Attempt does nothing.
func (Silent) Attempt(payment.Operation, payment.Class, payment.Reason) {}

// RetryGranted does nothing.
func (Silent) RetryGranted() {}

// RetryRefused does nothing.
func (Silent) RetryRefused() {}

// TakenOver does nothing.
func (Silent) TakenOver(payment.Operation) {}

// Fenced does nothing.
func (Silent) Fenced(payment.Operation) {}

// LateApply does nothing.
func (Silent) LateApply(payment.Operation) {}

// DuplicateOnFirstSend does nothing.
func (Silent) DuplicateOnFirstSend(string) {}

// Ended does nothing.
func (Silent) Ended(payment.Operation, payment.FollowUpState) {}
