// Package payment is the vocabulary that every other package shares: money,
// keys, requests, outcomes of wallet calls, decisions and what is stored of
// them. It holds no I/O and imports nothing of ours; a word means here what
// the contract says it means, and nothing else anywhere.
package payment

import (
	"time"

	"github.com/google/uuid"
)

// Operation names what a till asks for, and what the queue does on its own
// (reversal). It is part of every ledger identity and is written to the
// database and to JSON (there as `kind`) as it stands here.
type Operation string

// The operations of contract section 1. Debit and Hold are payments, decided
// synchronously; the others are follow-ups, done by the work queue.
const (
	Debit    Operation = "debit"
	Hold     Operation = "hold"
	Credit   Operation = "credit"
	Capture  Operation = "capture"
	Release  Operation = "release"
	Reversal Operation = "reversal"
)

// IsPayment reports whether o is decided while the till waits.
func (o Operation) IsPayment() bool { return o == Debit || o == Hold }

// MaxAmountMinor is the largest amount, 2^53−1 minor units: the largest integer
// that a till written in JavaScript can hold exactly (contract section 1).
const MaxAmountMinor = 1<<53 - 1

// Money is an amount in minor units of an ISO 4217 currency. It is never
// rescaled: 500 JPY is {500, "JPY"} and 1.234 KWD is {1234, "KWD"}.
type Money struct {
	AmountMinor int64
	Currency    string
}

// Payment is a debit or a hold as the ledger holds it. Once State is Approved
// or Declined nothing of it changes any more.
type Payment struct {
	ID        uuid.UUID // UUIDv7 by the database's clock
	Caller    string
	Operation Operation
	// Account, Amount, TillReference and Metadata are the till's own, as asked.
	// They are empty for a payment that was cancelled before it was ever seen.
	Account       string
	Amount        Money
	TillReference string            // "" = none was given
	Metadata      map[string]string // nil = none was given; empty = {} was given
	// Reference is what the wallet knows the payment by, and its outbound
	// Idempotency-Key. It is derived, see DeriveReference.
	Reference Reference

	State    State
	Code     Code   // why it was declined; "" unless State is Declined
	WalletID string // the wallet's own id of the effect; "" unless State is Approved

	CreatedAt time.Time // database clock, microseconds, UTC
	DecidedAt time.Time // the same; zero while InFlight

	// FollowUps are what happened to the payment since, oldest first. Only reads
	// by id or key fill them in.
	FollowUps []FollowUp
}

// State is where a payment stands. It only ever moves forward, from InFlight
// to one of the other two.
type State string

// The states of a payment, as stored.
const (
	InFlight State = "IN_FLIGHT"
	Approved State = "APPROVED"
	Declined State = "DECLINED"
)

// FollowUp is a credit, capture, release or reversal. Its row is also the work
// item of the queue.
type FollowUp struct {
	ID        uuid.UUID
	Kind      Operation
	PaymentID uuid.UUID // uuid.Nil for a credit that names no payment
	State     FollowUpState
	Code      Code // the wallet's, of one that was refused, or parked after a refusal

	// Account, TillReference and Metadata are a credit's, as asked. Amount is what is
	// sent to the wallet: a credit's or a capture's (of the whole hold too), in the
	// payment's currency; the zero Money for a release, and for a reversal what the
	// payment took.
	Account       string
	Amount        Money
	TillReference string
	Metadata      map[string]string
	WalletID      string // the wallet's id of the effect, of one that has Succeeded by a call

	CreatedAt time.Time
	EndedAt   time.Time // zero while Pending or Parked
}

// FollowUpState is where a follow-up stands (contract section 1, `status`).
type FollowUpState string

// The states of a follow-up, as stored and as told to tills.
const (
	Pending    FollowUpState = "PENDING"
	Succeeded  FollowUpState = "SUCCEEDED"
	Refused    FollowUpState = "REJECTED"    // the wallet's verdict is in Code
	NotApplied FollowUpState = "NOT_APPLIED" // a reversal that found nothing to undo
	Parked     FollowUpState = "PARKED"      // a person must look; nothing is lost
)

// Claim is what the ledger says to a request that wants to own its key.
type Claim struct {
	Status ClaimStatus
	// Payment is the row of the key: the new one, or the one that is there. It is
	// the zero Payment where Status is ClaimMismatch, and where the row that is
	// in the way is not committed yet.
	Payment Payment
}

// ClaimStatus is the answer to a claim. The zero value is invalid, so that a
// forgotten one cannot pass for ownership.
type ClaimStatus uint8

// The answers to a claim (contract section 1, Idempotency).
const (
	_              ClaimStatus = iota
	ClaimNew                   // the caller owns the key and goes on, nobody else does
	ClaimInFlight              // somebody else's, not decided yet
	ClaimDecided               // decided: Payment is the answer
	ClaimMismatch              // the key was used for a different request, in whatever state
	ClaimCancelled             // approved, and since cancelled by key: the approval must not be told again
)

// Decision is what becomes of a payment: final once it is stored.
type Decision struct {
	State    State // Approved or Declined
	Code     Code  // Declined only
	WalletID string
	// Reverse is set where the wallet may have applied, or may yet apply, what
	// is being declined: the ledger then writes the reversal in the same
	// transaction (contract section 2).
	Reverse bool
	// Calls are the wallet calls that led to it, for the timeline: they are stored
	// with the decision, without a commit of their own.
	Calls []WalletCall
}

// Approve is the decision for an effect that the wallet knows as walletID.
func Approve(walletID string) Decision { return Decision{State: Approved, WalletID: walletID} }

// Decline is the decision for a wallet that certainly has not applied.
func Decline(code Code) Decision { return Decision{State: Declined, Code: code} }

// DeclineAndReverse is the decision where that is not certain.
func DeclineAndReverse(code Code) Decision {
	return Decision{State: Declined, Code: code, Reverse: true}
}

// Exposure is money that is not settled yet: the follow-ups of one kind, state
// and currency together.
type Exposure struct {
	Kind        Operation
	State       FollowUpState
	Currency    string
	Count       int64
	AmountMinor int64
	OldestAge   time.Duration // by the database's clock
}
