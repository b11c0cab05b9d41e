package api

import (
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/api/apitypes"
	"github.com/safeledger/safeledger/internal/payment"
)

// timeFormat writes times as the ledger stores them, in microseconds, always
// with all six digits.
const timeFormat = "2006-01-02T15:04:05.000000Z07:00"

func timestamp(t time.Time) apitypes.Timestamp { return t.UTC().Format(timeFormat) }

// approvedBody is the body of a 201.
func approvedBody(p payment.Payment) apitypes.ApprovedPayment {
	return apitypes.ApprovedPayment{
		Id:        p.ID.String(),
		Kind:      apitypes.PaymentKind(p.Operation),
		Decision:  apitypes.ApprovedPaymentDecisionAPPROVED,
		Account:   p.Account,
		Amount:    p.Amount.AmountMinor,
		Currency:  p.Amount.Currency,
		Reference: optional(p.TillReference),
		Metadata:  metadata(p.Metadata),
		WalletId:  p.WalletID,
		CreatedAt: timestamp(p.CreatedAt),
		DecidedAt: timestamp(p.DecidedAt),
	}
}

// declinedBody is the body of a 402 or 424. Its words are chosen by the code
// alone: the wallet's own text is for us, not for a customer's receipt.
func declinedBody(p payment.Payment) apitypes.Decline {
	body := apitypes.Decline{
		Status:    http.StatusPaymentRequired,
		Code:      string(p.Code),
		Id:        p.ID.String(),
		Kind:      apitypes.PaymentKind(p.Operation),
		Decision:  apitypes.DeclineDecisionDECLINED,
		Retryable: p.Code.Retryable(),
	}
	if body.Retryable {
		body.Status = http.StatusFailedDependency
	}
	switch p.Code {
	case payment.WalletUnavailable:
		body.Type = typePrefix + body.Code
		body.Title = "The wallet could not be asked"
		body.Detail = "The wallet could not be asked, so the payment is declined. Try again with a new Idempotency-Key."
	case payment.WalletTimeout:
		body.Type = typePrefix + body.Code
		body.Title = "The wallet did not answer in time"
		body.Detail = "The wallet did not answer in time, so the payment is declined and will be undone if it was applied. Try again with a new Idempotency-Key."
	case payment.WalletRejected:
		body.Type = typePrefix + body.Code
		body.Title = "Declined without a usable reason"
		body.Detail = "The payment was declined, and the wallet gave no reason that could be passed on. The decision is final for this Idempotency-Key."
	case payment.Cancelled:
		body.Type = typePrefix + body.Code
		body.Title = "Cancelled by the till"
		body.Detail = "This Idempotency-Key was cancelled. The decision is final for it."
	default: // the wallet's own codes, of which there is no list
		body.Type = typePrefix + "DECLINED"
		body.Title = "Declined by the wallet"
		body.Detail = "The wallet declined this payment. The decision is final for this Idempotency-Key."
	}
	return body
}

// paymentBody is the body of a GET of a decided payment.
func paymentBody(p payment.Payment) apitypes.Payment {
	body := apitypes.Payment{
		Id:        p.ID.String(),
		Kind:      apitypes.PaymentKind(p.Operation),
		Decision:  apitypes.PaymentDecision(p.State),
		Code:      optional(string(p.Code)),
		Reference: optional(p.TillReference),
		Metadata:  metadata(p.Metadata),
		WalletId:  optional(p.WalletID),
		CreatedAt: timestamp(p.CreatedAt),
		DecidedAt: timestamp(p.DecidedAt),
		FollowUps: make([]apitypes.FollowUp, 0, len(p.FollowUps)),
	}
	// A payment that was cancelled before it was ever seen has neither.
	if p.Account != "" {
		body.Account = &p.Account
		body.Amount = &p.Amount.AmountMinor
		body.Currency = &p.Amount.Currency
	}
	for _, f := range p.FollowUps {
		body.FollowUps = append(body.FollowUps, followUpBody(f))
	}
	return body
}

// acceptedBody is the body of a 202.
func acceptedBody(f payment.FollowUp) apitypes.AcceptedFollowUp {
	body := apitypes.AcceptedFollowUp{
		Id:        f.ID.String(),
		Kind:      apitypes.FollowUpKind(f.Kind),
		Status:    apitypes.AcceptedFollowUpStatusPENDING,
		Account:   optional(f.Account),
		Reference: optional(f.TillReference),
		Metadata:  metadata(f.Metadata),
		PaymentId: optionalID(f.PaymentID),
		CreatedAt: timestamp(f.CreatedAt),
	}
	body.Amount, body.Currency = money(f.Amount)
	return body
}

// followUpBody is the body of a GET of a follow-up, and one of a payment's followUps.
func followUpBody(f payment.FollowUp) apitypes.FollowUp {
	body := apitypes.FollowUp{
		Id:        f.ID.String(),
		Kind:      apitypes.FollowUpKind(f.Kind),
		Status:    apitypes.FollowUpStatus(f.State),
		Code:      optional(string(f.Code)),
		Account:   optional(f.Account),
		Reference: optional(f.TillReference),
		Metadata:  metadata(f.Metadata),
		PaymentId: optionalID(f.PaymentID),
		WalletId:  optional(f.WalletID),
		CreatedAt: timestamp(f.CreatedAt),
	}
	body.Amount, body.Currency = money(f.Amount)
	if !f.EndedAt.IsZero() {
		ended := timestamp(f.EndedAt)
		body.EndedAt = &ended
	}
	return body
}

// cancellationBody is the body of a cancel by key that did what it was asked for.
func cancellationBody(op payment.Operation, c payment.Cancellation) apitypes.Cancellation {
	return apitypes.Cancellation{
		Operation: apitypes.PaymentKind(op),
		Decision:  apitypes.CancellationDecision(c.Payment.State),
		Code:      optional(string(c.Payment.Code)),
		Id:        c.Payment.ID.String(),
		Reversal:  optionalID(c.Reversal),
	}
}

// money is left out, both members of it, where nothing is moved: of a release.
func money(m payment.Money) (*apitypes.Amount, *apitypes.Currency) {
	if m.AmountMinor == 0 {
		return nil, nil
	}
	return &m.AmountMinor, &m.Currency
}

// optionalID is an id that is left out where there is none.
func optionalID(id uuid.UUID) *string {
	if id == uuid.Nil {
		return nil
	}
	return optional(id.String())
}

// optional is a member that is left out where there is nothing to say.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// metadata is left out if the till gave none, and {} if it gave {}.
func metadata(given map[string]string) *apitypes.Metadata {
	if given == nil {
		return nil
	}
	m := apitypes.Metadata(given)
	return &m
}
