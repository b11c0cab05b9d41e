package ops

import (
	"encoding/json"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// What programs are told, over HTTP and by --json: the words of the till's API with
// what only operators see beside them. Money is in minor units, times are the
// database's, in UTC. Members may be added.

// paymentView is a payment.
type paymentView struct {
	ID          string            `json:"id"`
	Kind        payment.Operation `json:"kind"`
	State       payment.State     `json:"state"`
	Code        payment.Code      `json:"code,omitempty"`
	Caller      string            `json:"caller"`
	Account     string            `json:"account,omitempty"`
	Amount      int64             `json:"amount,omitempty"`
	Currency    string            `json:"currency,omitempty"`
	Reference   string            `json:"reference,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	WalletID    string            `json:"walletId,omitempty"`
	OutboundKey string            `json:"outboundKey,omitempty"`
	CreatedAt   time.Time         `json:"createdAt"`
	DecidedAt   time.Time         `json:"decidedAt,omitzero"`
}

func viewPayment(p payment.Payment) paymentView {
	v := paymentView{
		ID: p.ID.String(), Kind: p.Operation, State: p.State, Code: p.Code, Caller: p.Caller,
		Account: p.Account, Amount: p.Amount.AmountMinor, Currency: p.Amount.Currency,
		Reference: p.TillReference, Metadata: p.Metadata, WalletID: p.WalletID,
		CreatedAt: p.CreatedAt.UTC(), DecidedAt: p.DecidedAt.UTC(),
	}
	if p.Reference != (payment.Reference{}) {
		v.OutboundKey = p.Reference.String()
	}
	return v
}

// followUpView is a follow-up.
type followUpView struct {
	ID          string                `json:"id"`
	Kind        payment.Operation     `json:"kind"`
	Status      payment.FollowUpState `json:"status"`
	Code        payment.Code          `json:"code,omitempty"`
	ParkReason  string                `json:"parkReason,omitempty"`
	Caller      string                `json:"caller"`
	PaymentID   string                `json:"paymentId,omitempty"`
	Account     string                `json:"account,omitempty"`
	Amount      int64                 `json:"amount,omitempty"`
	Currency    string                `json:"currency,omitempty"`
	Reference   string                `json:"reference,omitempty"`
	Metadata    map[string]string     `json:"metadata,omitempty"`
	WalletID    string                `json:"walletId,omitempty"`
	OutboundKey string                `json:"outboundKey"`
	Attempts    int                   `json:"attempts"`
	Lookups     int                   `json:"lookups"`
	LastReason  payment.Reason        `json:"lastReason,omitempty"`
	CreatedAt   time.Time             `json:"createdAt"`
	DueAt       time.Time             `json:"dueAt,omitzero"`
	EndedAt     time.Time             `json:"endedAt,omitzero"`
}

func viewFollowUp(f payment.FollowUpDetail) followUpView {
	return followUpView{
		ID: f.ID.String(), Kind: f.Kind, Status: f.State, Code: f.Code, ParkReason: f.ParkReason, Caller: f.Caller,
		PaymentID: idOrNone(f.PaymentID), Account: f.Account, Amount: f.Amount.AmountMinor, Currency: f.Amount.Currency,
		Reference: f.TillReference, Metadata: f.Metadata, WalletID: f.WalletID, OutboundKey: f.Outbound.String(),
		Attempts: f.Attempts, Lookups: f.Lookups, LastReason: f.LastReason,
		CreatedAt: f.CreatedAt.UTC(), DueAt: f.DueAt.UTC(), EndedAt: f.EndedAt.UTC(),
	}
}

// callView is a wallet call. OperationID is left out of the payment's own.
type callView struct {
	OperationID string         `json:"operationId,omitempty"`
	Attempt     int            `json:"attempt"`
	At          time.Time      `json:"at"`
	Call        string         `json:"call"`
	Outcome     string         `json:"outcome"`
	Reason      payment.Reason `json:"reason"`
	Status      int            `json:"status,omitempty"`
	TookMs      float64        `json:"tookMs"`
}

// noteView is what an operator did.
type noteView struct {
	OperationID string    `json:"operationId"`
	At          time.Time `json:"at"`
	Operator    string    `json:"operator"`
	Action      string    `json:"action"`
	Reason      string    `json:"reason"`
}

// The whole documents. Lists are never left out: a script that counts them need not
// know that.
type (
	parkedView struct {
		Parked []followUpView `json:"parked"`
	}
	foundView struct {
		Payments  []paymentView  `json:"payments"`
		FollowUps []followUpView `json:"followUps"`
	}
	timelineView struct {
		// Payment is left out of a credit that names none.
		Payment   *paymentView   `json:"payment,omitempty"`
		FollowUps []followUpView `json:"followUps"`
		Calls     []callView     `json:"calls"`
		Notes     []noteView     `json:"notes"`
	}
)

func viewParked(parked []payment.FollowUpDetail) parkedView {
	return parkedView{each(parked, viewFollowUp)}
}

func viewFound(f payment.Found) foundView {
	return foundView{each(f.Payments, viewPayment), each(f.FollowUps, viewFollowUp)}
}

func viewTimeline(t payment.Timeline) timelineView {
	v := timelineView{
		FollowUps: each(t.FollowUps, viewFollowUp),
		Calls: each(t.Calls, func(c payment.TimedCall) callView {
			return callView{
				OperationID: idOrNone(c.OperationID), Attempt: c.Attempt, At: c.At.UTC(), Call: c.Call, Outcome: c.Outcome,
				Reason: c.Reason, Status: c.Status, TookMs: float64(c.Took.Microseconds()) / 1000,
			}
		}),
		Notes: each(t.Notes, func(n payment.Note) noteView {
			return noteView{n.OperationID.String(), n.At.UTC(), n.Operator, n.Action, n.Text}
		}),
	}
	if t.Payment.ID != uuid.Nil {
		p := viewPayment(t.Payment)
		v.Payment = &p
	}
	return v
}

func each[T, V any](list []T, view func(T) V) []V {
	views := make([]V, 0, len(list))
	for _, item := range list {
		views = append(views, view(item))
	}
	return views
}

func idOrNone(id uuid.UUID) string {
	if id == uuid.Nil {
		return ""
	}
	return id.String()
}

// ParkedJSON writes what is parked, for programs.
func ParkedJSON(w io.Writer, parked []payment.FollowUpDetail) error {
	return writeJSON(w, viewParked(parked))
}

// FoundJSON writes what was found, for programs.
func FoundJSON(w io.Writer, f payment.Found) error { return writeJSON(w, viewFound(f)) }

// TimelineJSON writes a timeline, for programs.
func TimelineJSON(w io.Writer, t payment.Timeline) error { return writeJSON(w, viewTimeline(t)) }

// FollowUpJSON writes one follow-up, for programs.
func FollowUpJSON(w io.Writer, f payment.FollowUpDetail) error { return writeJSON(w, viewFollowUp(f)) }

// PaymentJSON writes one payment, for programs.
func PaymentJSON(w io.Writer, p payment.Payment) error { return writeJSON(w, viewPayment(p)) }

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
