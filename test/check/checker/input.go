package checker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/test/check/history"
)

// Input is everything that is known of a run, after quiescence.
type Input struct {
	Book      Lines[BookLine]
	Ledger    Ledger
	Tills     Lines[history.Line]
	Responses Lines[ResponseLine]
	// Totals are the wallet's own, by currency; nil where they were not taken.
	Totals map[string]Totals
}

// BookLine is a line of the wallet simulator's book, as far as it is judged by.
type BookLine struct {
	Seq   int64     `json:"seq"`
	At    time.Time `json:"at"`
	Event string    `json:"event"`

	Exchange   int64  `json:"exchange"`
	Connection int64  `json:"connection"`
	Version    string `json:"version"`
	Operation  string `json:"operation"`
	Reference  string `json:"reference"`
	Key        string `json:"idempotencyKey"`
	Account    string `json:"account"`
	Amount     int64  `json:"amount"`
	Currency   string `json:"currency"`
	HoldID     string `json:"holdId"`
	Rule       string `json:"rule"`

	Method    string `json:"method"`
	Path      string `json:"path"`
	Malformed string `json:"malformed"`

	Effect *BookEffect `json:"effect"`
	Answer *BookAnswer `json:"answer"`
}

// BookEffect is what the wallet did with money, or decided not to do.
type BookEffect struct {
	ID            string `json:"id"`
	Operation     string `json:"operation"`
	Account       string `json:"account"`
	Amount        int64  `json:"amount"`
	Currency      string `json:"currency"`
	HoldID        string `json:"holdId"`
	Code          string `json:"code"`
	Late          bool   `json:"late"`
	BalanceChange int64  `json:"balanceChange"`
	HeldChange    int64  `json:"heldChange"`
}

// BookAnswer is the answer that the wallet meant to give, and how much of it went out.
type BookAnswer struct {
	Status int    `json:"status"`
	Body   string `json:"body"`
	How    string `json:"how"`
}

// The events of the book that are judged by.
const (
	opened   = "OPENED"
	arrived  = "ARRIVED"
	applied  = "APPLIED"
	rejected = "REJECTED"
	answered = "ANSWERED"
)

// ResponseLine is a line of a SafeLedger process' log.
type ResponseLine struct {
	Time     time.Time `json:"time"`
	Level    string    `json:"level"`
	Msg      string    `json:"msg"`
	Trace    string    `json:"trace_id"`
	ID       string    `json:"id"`
	Role     string    `json:"role"`
	Decision string    `json:"decision"`
	Code     string    `json:"code"`
	Status   int       `json:"status"`
	Reason   string    `json:"reason"`
	Error    string    `json:"error"`

	// OffsetS is, in a line of clockMessage, by how many seconds the clock is ahead that the
	// lines after it in the same file are timed by, until the next such line.
	OffsetS int64 `json:"offset_s"`

	Noise string `json:"-"` // the line, where it is no JSON
}

// The messages that are judged by.
const (
	requestBegun   = "request begun"
	requestRefused = "request refused"
	servingMessage = "serving"
	clockMessage   = "clock" // whoever made the run says it, not the process
	decidedMessage = "payment decided"
	replayMessage  = "payment replayed"
)

// Ledger gives what is stored, all of it of one moment.
type Ledger interface {
	Payments(ctx context.Context, yield func(PaymentRow) error) error
	Operations(ctx context.Context, yield func(OperationRow) error) error
	Calls(ctx context.Context, yield func(CallRow) error) error
	Notes(ctx context.Context, yield func(NoteRow) error) error
}

// PaymentRow is a row of payments. "" and the zero time stand for null.
type PaymentRow struct {
	ID                   uuid.UUID
	Caller, Operation    string
	KeyHash, Fingerprint []byte
	Reference            uuid.UUID
	Account, Currency    string
	Amount               int64
	TillReference        string
	Metadata             string // JSON
	State, Code          string
	WalletID             string
	CreatedAt, DecidedAt time.Time
}

// OperationRow is a row of operations.
type OperationRow struct {
	ID, PaymentID, OutboundKey uuid.UUID
	Kind, State, Code          string
	Caller                     string
	KeyHash, Fingerprint       []byte
	Account, Currency          string
	Amount                     int64
	TillReference, Metadata    string
	Reverses                   uuid.UUID
	TargetID, WalletID         string
	Cancelled                  bool
	Attempts, Lookups          int
	ParkReason                 string
	CreatedAt, EndedAt, DueAt  time.Time
}

// CallRow is a row of wallet_calls.
type CallRow struct {
	Subject               uuid.UUID
	Fence                 int64
	N, Attempt            int
	Call, Outcome, Reason string
	Status                int // 0: there was no answer
	At                    time.Time
	Took                  time.Duration
}

// NoteRow is a row of operator_notes.
type NoteRow struct {
	Operation              uuid.UUID
	At                     time.Time
	Operator, Action, Note string
}
