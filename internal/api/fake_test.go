package api_test

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

var (
	operationID = uuid.MustParse("019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70")
	acceptedAt  = time.Date(2026, 11, 29, 10, 31, 0, 501200000, time.FixedZone("", 3600))
)

// fakeLedger is a ledger for follow-ups that says what it is told to say, and
// accepts and cancels everything if it is told nothing.
type fakeLedger struct {
	accept    func(context.Context, payment.FollowUpRequest) (payment.Acceptance, error)
	cancel    func(context.Context, payment.Operation, payment.Key) (payment.Cancellation, error)
	operation func(ctx context.Context, caller, what string) (payment.FollowUp, bool, error)

	mu        sync.Mutex
	asked     []payment.FollowUpRequest
	cancelled []cancelAsked
}

// cancelAsked is what a cancel by key was asked with.
type cancelAsked struct {
	Caller    string
	Operation payment.Operation
	Key       payment.Key
	Original  *payment.Request
}

func (l *fakeLedger) Accept(ctx context.Context, req payment.FollowUpRequest) (payment.Acceptance, error) {
	l.mu.Lock()
	l.asked = append(l.asked, req)
	l.mu.Unlock()
	if l.accept != nil {
		return l.accept(ctx, req)
	}
	return payment.Acceptance{Status: payment.Accepted, FollowUp: acceptedFollowUp(req)}, nil
}

func (l *fakeLedger) CancelByKey(
	ctx context.Context, caller string, op payment.Operation, key payment.Key, original *payment.Request,
) (payment.Cancellation, error) {
	l.mu.Lock()
	l.cancelled = append(l.cancelled, cancelAsked{caller, op, key, original})
	l.mu.Unlock()
	if l.cancel != nil {
		return l.cancel(ctx, op, key)
	}
	return tombstone(op), nil
}

func (l *fakeLedger) OperationByID(ctx context.Context, caller string, id uuid.UUID) (payment.FollowUp, bool, error) {
	if l.operation == nil {
		return payment.FollowUp{}, false, nil
	}
	return l.operation(ctx, caller, id.String())
}

func (l *fakeLedger) OperationByKey(ctx context.Context, caller string, kind payment.Operation, key payment.Key) (payment.FollowUp, bool, error) {
	if l.operation == nil {
		return payment.FollowUp{}, false, nil
	}
	return l.operation(ctx, caller, string(kind)+" "+string(key))
}

// begun is how many accepts and cancels the ledger was asked for.
func (l *fakeLedger) begun() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.asked) + len(l.cancelled)
}

// acceptedFollowUp is what the ledger stores for req: a capture of the whole hold
// has the hold's amount, and a release has none.
func acceptedFollowUp(req payment.FollowUpRequest) payment.FollowUp {
	f := payment.FollowUp{
		ID: operationID, Kind: req.Kind, PaymentID: req.PaymentID, State: payment.Pending,
		Account: req.Account, Amount: req.Amount, TillReference: req.TillReference, Metadata: req.Metadata, CreatedAt: acceptedAt,
	}
	if req.Kind == payment.Capture {
		f.Amount = payment.Money{AmountMinor: max(req.Amount.AmountMinor, 0), Currency: "EUR"}
		if req.Amount.AmountMinor == 0 {
			f.Amount.AmountMinor = 1999
		}
	}
	return f
}

func tombstone(op payment.Operation) payment.Cancellation {
	return payment.Cancellation{Status: payment.CancelledPayment, Payment: payment.Payment{
		ID: paymentID, Operation: op, State: payment.Declined, Code: payment.Cancelled, CreatedAt: createdAt, DecidedAt: createdAt,
	}}
}
