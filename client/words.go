package client

import (
	"time"

	"github.com/google/uuid"
)

// Kind says what a payment or a follow-up is. The first five are also the operations
// that a key belongs to: the same key with another operation is another one.
type Kind string

// The kinds. Debits and holds are payments, the others are follow-ups. A reversal is
// made by the service, to undo a payment.
const (
	KindDebit    Kind = "debit"
	KindHold     Kind = "hold"
	KindCredit   Kind = "credit"
	KindCapture  Kind = "capture"
	KindRelease  Kind = "release"
	KindReversal Kind = "reversal"
)

// Verdict is what was decided of a payment. The zero value is none.
type Verdict string

// The verdicts. They are final: a verdict stays with its key for good.
const (
	Approved Verdict = "APPROVED"
	Declined Verdict = "DECLINED"
)

// Status is what has become of a follow-up. The zero value is none.
type Status string

// The statuses. All but Pending and Parked are final.
const (
	// Pending: the service works on it, and will until it has ended.
	Pending Status = "PENDING"
	// Succeeded: the wallet has applied it.
	Succeeded Status = "SUCCEEDED"
	// Rejected: the wallet said no, with its code; what was reserved is given back.
	Rejected Status = "REJECTED"
	// NotApplied: a reversal that found nothing to undo.
	NotApplied Status = "NOT_APPLIED"
	// Parked: a person of the service must look. Nothing is lost.
	Parked Status = "PARKED"
)

// The codes of declines that are SafeLedger's own; all others are the wallet's.
const (
	CodeWalletUnavailable = "WALLET_UNAVAILABLE" // retryable
	CodeWalletTimeout     = "WALLET_TIMEOUT"     // retryable
	CodeWalletRejected    = "WALLET_REJECTED"    // the wallet said no without a usable code
	CodeCancelled         = "CANCELLED"          // cancelled by key
)

// The codes of problems that this package itself looks at. The document at
// /openapi.yaml has them all.
const (
	CodeRequestInFlight      = "REQUEST_IN_FLIGHT"
	CodePaymentNotYetDecided = "PAYMENT_NOT_YET_DECIDED"
	CodePaymentNotFound      = "PAYMENT_NOT_FOUND"
	CodeOperationNotFound    = "OPERATION_NOT_FOUND"
	CodePaymentCancelled     = "PAYMENT_CANCELLED"
	CodeHoldAlreadyCaptured  = "HOLD_ALREADY_CAPTURED"
	CodeKeyReused            = "IDEMPOTENCY_KEY_REUSED"
)

// PaymentRequest asks for a debit or a hold.
type PaymentRequest struct {
	// Account is the account at the wallet, 1–64 of A-Z a-z 0-9 . _ : -
	Account string
	// AmountMinor is the amount in minor units of Currency, 1 to 2^53−1. Nothing is
	// rescaled: 500 JPY are 500, 1.234 KWD are 1234.
	AmountMinor int64
	// Currency is an ISO 4217 code in capitals.
	Currency string
	// Reference is the till's own, given back and never interpreted; "" for none.
	Reference string
	// Metadata is the till's own, given back and never interpreted; at most 20 members.
	Metadata map[string]string
}

// CreditRequest asks for money to be given to an account. It names the debit or the
// captured hold that it gives back of, or neither: a payout, for which the till's
// token needs a scope of its own.
type CreditRequest struct {
	Account     string
	AmountMinor int64 // as in PaymentRequest
	Currency    string
	DebitID     uuid.UUID // uuid.Nil for none
	HoldID      uuid.UUID // uuid.Nil for none
	Reference   string
	Metadata    map[string]string
}

// Decision is the answer to a debit or a hold. Hand over goods if Approved says so,
// and for nothing else.
type Decision struct {
	Verdict Verdict
	ID      uuid.UUID
	Kind    Kind
	// Key is the idempotency key that was decided: of several attempts, the last one's.
	Key string
	// Replayed is set if it had been decided before, by an earlier request with the key.
	Replayed bool

	// WalletID is the wallet's own id of the effect. It and the times are there if it
	// is approved.
	WalletID             string
	CreatedAt, DecidedAt time.Time

	// Code says why it is declined.
	Code string
	// Retryable is set of a decline that came about because the wallet did not decide.
	// The customer may try again, with a new key, see [Client.DebitAgain].
	Retryable bool
	// RetryAfter is how long to wait before that, 0 if nothing was said.
	RetryAfter time.Duration
}

// Approved reports whether the payment was approved.
func (d Decision) Approved() bool { return d.Verdict == Approved }

// Payment is a decided payment, as it is remembered.
type Payment struct {
	ID      uuid.UUID
	Kind    Kind
	Verdict Verdict
	// Code says why it was declined.
	Code string
	// Account, AmountMinor and Currency are zero of a payment that was cancelled
	// before it was ever seen.
	Account     string
	AmountMinor int64
	Currency    string
	Reference   string
	Metadata    map[string]string
	// WalletID is the wallet's own id of the effect, if it was approved.
	WalletID             string
	CreatedAt, DecidedAt time.Time
	// FollowUps are what happened to it since, oldest first. An approval with a reversal
	// among them was cancelled: no goods for it.
	FollowUps []FollowUp
}

// Approved reports whether the payment was approved and has not been cancelled since.
func (p Payment) Approved() bool {
	for _, f := range p.FollowUps {
		if f.Kind == KindReversal {
			return false
		}
	}
	return p.Verdict == Approved
}

// FollowUp is a credit, capture, release or reversal, at /operations.
type FollowUp struct {
	ID     uuid.UUID
	Kind   Kind
	Status Status
	// Code is the wallet's, if it was rejected.
	Code string
	// Account is a credit's.
	Account string
	// AmountMinor and Currency are what it moves; zero of a release.
	AmountMinor int64
	Currency    string
	Reference   string
	Metadata    map[string]string
	// PaymentID is the payment that it follows up, uuid.Nil for a payout.
	PaymentID uuid.UUID
	// WalletID is the wallet's own id of the effect, once it has succeeded.
	WalletID  string
	CreatedAt time.Time
	// EndedAt is zero while it has not ended.
	EndedAt time.Time
	// Replayed is set of an accepted follow-up that had been accepted before, by an
	// earlier request with the key.
	Replayed bool
}

// Cancellation is what a cancel by key came to.
type Cancellation struct {
	// Kind is the operation of the key: debit or hold.
	Kind Kind
	// Verdict is the payment's. Of an approved payment it stays APPROVED, and is undone
	// by the reversal.
	Verdict Verdict
	// Code says why it is declined: CANCELLED, or why it had been declined before.
	Code string
	// ID is the payment's.
	ID uuid.UUID
	// ReversalID is the follow-up that undoes whatever was taken, uuid.Nil if there is nothing to
	// undo.
	ReversalID uuid.UUID
}
