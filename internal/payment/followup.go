package payment

import (
	"time"

	"github.com/google/uuid"
)

// FollowUpRequest is a till's request for a credit, a capture or a release,
// parsed and within the limits of contract section 1.
type FollowUpRequest struct {
	Caller string
	Kind   Operation // Credit, Capture or Release
	Key    Key

	// PaymentID is the hold that is captured or released, or the debit or captured
	// hold that a credit gives back; uuid.Nil for a credit that names none (a payout).
	PaymentID uuid.UUID
	// Of is what PaymentID must be, Debit or Hold; "" for a payout.
	Of Operation

	Account string // of a credit
	// Amount is a credit's. A capture has its AmountMinor only, 0 for the whole hold.
	Amount        Money
	TillReference string            // of a credit; "" = none was given
	Metadata      map[string]string // of a credit; nil = none was given
}

// Fingerprint tells whether two requests under one key are the same request, as
// Request.Fingerprint does. The payment that it names is part of it, and a
// capture of the whole hold differs from one that spells the amount out.
func (r FollowUpRequest) Fingerprint() Fingerprint {
	c := newCanonical("safeledger/fingerprint/1").text(string(r.Kind)).text(string(r.Of))
	if r.PaymentID == uuid.Nil {
		c = c.count(0)
	} else {
		c = c.count(1).text(r.PaymentID.String())
	}
	return c.fingerprint(r.Account, r.Amount, r.TillReference, r.Metadata)
}

// DeriveReference is the reference and outbound key of every attempt at r. See
// Request.DeriveReference.
func (r FollowUpRequest) DeriveReference() Reference {
	return deriveReference(r.Caller, r.Kind, r.Key, r.Fingerprint())
}

// Acceptance is the ledger's answer to a FollowUpRequest.
type Acceptance struct {
	Status AcceptanceStatus
	// FollowUp is the one of the key, for Accepted and AcceptedBefore. As an answer
	// it is told as it was accepted, whatever has become of it.
	FollowUp FollowUp
}

// AcceptanceStatus says what became of a request for a follow-up. The zero value
// is invalid. What is not Accepted has claimed nothing: the key stays free.
type AcceptanceStatus uint8

// The answers to a request for a follow-up (contract section 1, errors). About
// state they come before those about values.
const (
	_                   AcceptanceStatus = iota
	Accepted                             // durable; the queue owns it
	AcceptedBefore                       // the key's own, given again
	AcceptanceMismatch                   // the key belongs to a different request
	PaymentUnknown                       // no such payment of this caller, or it is of the other kind
	PaymentUndecided                     // still in flight
	HoldNotActive                        // declined, released, being released or reversed, or cancelled
	HoldAlreadyCaptured                  // captured or being captured
	NotRefundable                        // declined, cancelled, being reversed; of a hold: its capture has not succeeded
	AmountExceeds                        // more than the hold, or than what the debit or capture still has to give
	CurrencyDiffers                      // of a credit and its payment
	AccountDiffers                       // of a credit and its payment
)

// Cancellation is the ledger's answer to a cancel by key (contract section 1).
type Cancellation struct {
	Status  CancellationStatus
	Payment Payment // the key's: a tombstone, or what there is
	// Reversal is the follow-up that undoes the payment, uuid.Nil where there is
	// nothing to undo. Of a hold that was released it is that release.
	Reversal uuid.UUID
}

// CancellationStatus says what became of a cancel by key. The zero value is invalid.
type CancellationStatus uint8

// The answers to a cancel by key.
const (
	_                 CancellationStatus = iota
	CancelledPayment                     // nothing more will come of the key than Reversal undoes
	CancelTooLate                        // the hold was captured or is being captured
	CancelUnknownBody                    // a body was given that is not the request of this key
)

// Timeline is everything that is known of one payment, for the people who
// operate the service. Times are the database's.
type Timeline struct {
	Payment   Payment
	FollowUps []FollowUpDetail
	Calls     []TimedCall // of the payment and of its follow-ups, oldest first
	Notes     []Note
}

// FollowUpDetail is a follow-up with what only operators see.
type FollowUpDetail struct {
	FollowUp

	Caller     string
	Outbound   Reference
	Attempts   int
	Lookups    int
	DueAt      time.Time // zero where nothing is due
	ParkReason string
	// LastReason is how the last attempt ended, "" before the first.
	LastReason Reason
}

// TimedCall is one wallet call, as it was recorded.
type TimedCall struct {
	OperationID uuid.UUID // uuid.Nil: the payment's own call or lookup
	Attempt     int
	At          time.Time
	WalletCall
}

// Note is what an operator did to a follow-up, and why.
type Note struct {
	OperationID uuid.UUID
	At          time.Time
	Operator    string
	Action      string // redrive, settle-applied or settle-not-applied
	Text        string
}

// Query is what an operator knows of a payment or follow-up that somebody asks
// about. What is given must hold of everything that is found.
type Query struct {
	// Key is the till's Idempotency-Key. With it nothing else bounds the search.
	Key           Key
	Caller        string
	TillReference string
	Account       string
	// WalletID is the wallet's id of the effect.
	WalletID    string
	AmountMinor int64 // 0 = any
	Currency    string

	// From and Until bound the search by creation; without a Key there is always a
	// bound. The zero Until is now, the zero From a day before Until.
	From, Until time.Time
	// Limit bounds the payments, and the follow-ups, that are returned: the newest.
	Limit int
}

// Found is the answer to a Query, newest first.
type Found struct {
	Payments  []Payment // without their follow-ups
	FollowUps []FollowUpDetail
}

// OperatorResult is what became of an operator's intervention.
type OperatorResult struct {
	Status OperatorStatus
	// FollowUp is as it is now; the zero value where there is none.
	FollowUp FollowUpDetail
}

// OperatorStatus says what became of an operator's intervention. The zero value is
// invalid. Only OperatorDone has changed anything.
type OperatorStatus uint8

// The answers to an operator.
const (
	_               OperatorStatus = iota
	OperatorDone                   // done, and noted
	OperatorUnknown                // there is no such follow-up
	OperatorActive                 // the queue has it: of a settlement, an attempt is out or was lost and is not resolved yet
	OperatorEnded                  // it has ended, there is nothing to do
)
