package payment

import (
	"time"

	"github.com/google/uuid"
)

// Work is a follow-up in the hands of a worker: what the ledger hands out with
// a lease, and all that an attempt needs to know.
type Work struct {
	ID   uuid.UUID
	Kind Operation
	// Fence is the number of this lease. A settlement with an older one changes
	// nothing: somebody else has taken over.
	Fence    int64
	Attempts int // sends so far, this one counted already
	// Lookups is the number of tries so far that ended without a send: of a reversal
	// the lookups of its payment, of which its schedule is made; of anything else
	// lookups without evidence and connections that failed. With Attempts it says how
	// long the next pause may be.
	Lookups int
	// Turn is the allowance that this lease was counted against, see LeaseOrder.
	Turn Turn
	// TakenOver is set where the attempt before never reported: its worker died, or
	// was stopped for longer than its lease.
	TakenOver bool
	// Resolve is set where the attempt must begin with a lookup of Outbound.
	Resolve bool

	Outbound Reference // the reference and key of every send
	Account  string    // of a credit
	Amount   Money     // of a credit or capture

	// Payment is the payment that this follows up, the zero Payment for a credit
	// that names none.
	Payment Payment
	// TargetID is the wallet's id of what a reversal must undo, "" as long as that
	// is not known to exist.
	TargetID string
	// Credited is what the payment's credits have given back, and CreditsOpen
	// whether one of them has not ended yet. Only filled in for reversals.
	Credited    int64
	CreditsOpen bool

	State FollowUpState // Pending; NotApplied for a late check
	// Age is the time since it was accepted, Tried since it was accepted, last redriven
	// or reopened, SinceEnd since it first ended (late checks): all by the database's
	// clock when the lease was given.
	Age, Tried, SinceEnd time.Duration
	LateChecks           int // made so far
	// InDoubt is set where a send has ended in doubt, the last of them SinceDoubt ago by
	// the database's clock: what it asked for may still land.
	InDoubt    bool
	SinceDoubt time.Duration

	// Traceparent names the request that it was accepted by, as the header field of that
	// name does; "" where that was not traced.
	Traceparent string
}

// Turn says which allowance the next attempt draws on (contract section 4,
// retry budget).
type Turn string

// The turns, as stored.
const (
	FirstTurn  Turn = "FIRST"  // never sent: free, and pays into the retry budget
	RetryTurn  Turn = "RETRY"  // takes a token of it
	LookupTurn Turn = "LOOKUP" // begins with a lookup that takes none, only of the lookup rate: reversals, work taken over
)

// Settlement ends an attempt: one conditional update of the follow-up's row.
type Settlement struct {
	ID    uuid.UUID
	Fence int64

	State    FollowUpState
	Code     Code   // Refused, and Parked after a verdict
	WalletID string // Succeeded: the wallet's id of the effect, "" where it took no call

	// ParkReason says in a word why a person must look.
	ParkReason string

	// Pause is when it is due again, from now: of Pending, and of NotApplied if it
	// is to be looked at once more (Due says so).
	Due   bool
	Pause time.Duration
	// Turn and Resolve are what the next attempt begins with.
	Turn    Turn
	Resolve bool
	// Doubt is set where the send of this attempt ended in doubt.
	Doubt bool
	// Unspent gives the attempt back: nothing was sent.
	Unspent bool
	// TargetID, Lookups and LateChecks replace what the row holds.
	TargetID   string
	Lookups    int
	LateChecks int

	Calls []WalletCall
}

// WalletCall is a line of a payment's timeline: one call, as it turned out.
type WalletCall struct {
	Call    string // an operation, or "lookup"
	Outcome string // Class's or Finding's word
	Reason  Reason
	Status  int           // the HTTP status, 0 where there was no answer
	Ago     time.Duration // how long ago it began
	Took    time.Duration
}

// LeaseOrder is what a replica can take on right now.
type LeaseOrder struct {
	Limit int           // workers that are free
	Lease time.Duration // how long each is this replica's
	// Kinds are the follow-ups that this release can carry out. A row of any other
	// kind is a newer release's: it is left as it is, and delays nobody.
	Kinds []Operation
	// Retries and Lookups bound the work of these turns. Sends is false while
	// the wallet's breaker is open: then only lookups are handed out.
	Sends   bool
	Retries int
	Lookups int
	// Backlog, where it is not negative, is how long ago the breaker was last seen
	// open: first attempts that were due before that are counted, and handed out, as
	// RetryTurn. What is stored of their turn stays as it is.
	Backlog time.Duration
}
