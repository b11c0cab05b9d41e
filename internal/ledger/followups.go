package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
)

// What comes after a decision is added to a payment under that payment's row.
//
// # The order of locks
//
// A transaction that takes more than one lock takes them in this order:
//
//  1. the places of payments' keys in their unique index, in the order of the keys
//     (claims, a tombstone);
//  2. rows of payments: one (accept, cancel, a payment that is met overdue), several
//     in the order of their ids (decisions that share a transaction), or, in a sweep,
//     several that are not waited for;
//  3. rows of operations, and the places of their keys: written by those who hold the
//     payment's row, or by one who accepts a payout, which has none. Nothing is taken
//     after them.
//
// Lease, settle, hand back and the operators' interventions take rows of operations
// alone: one each, but for settlements that share a transaction, in the order of
// their ids, and for a lease, which waits for none. So nobody waits for a payment while
// he holds a follow-up, and there is no cycle.
//
// A claim waits not only for a twin's insert, but for the decision of a payment of its
// key as well, as long as that is not committed. This is why keys come before rows.
//
// They do without the payment's row because they only ever take away from what is
// reserved: REJECTED gives back, and is final. Whoever holds the payment's row and
// sees one of them a moment too late refuses what he could have accepted, never
// the reverse.

// The answers of accept and cancel, as the statements give them.
const (
	answerAccepted = "ACCEPTED"
	answerOwn      = "OWN" // the key has one already
	answerOverdue  = "OVERDUE"

	answerCancelled   = "CANCELLED"
	answerTooLate     = "TOO_LATE"
	answerUnknownBody = "UNKNOWN_BODY"
)

// refusals are the other answers of accept.
var refusals = map[string]payment.AcceptanceStatus{ //nolint:gochecknoglobals // a table
	"UNKNOWN":        payment.PaymentUnknown,
	"UNDECIDED":      payment.PaymentUndecided,
	"NOT_ACTIVE":     payment.HoldNotActive,
	"CAPTURED":       payment.HoldAlreadyCaptured,
	"NOT_REFUNDABLE": payment.NotRefundable,
	"OTHER_ACCOUNT":  payment.AccountDiffers,
	"OTHER_CURRENCY": payment.CurrencyDiffers,
	"EXCEEDS":        payment.AmountExceeds,
}

// Accept claims the key of req, reserves what it takes of its payment and hands it
// to the queue, in one transaction; or it says why not, and leaves the key free. Of
// any number of concurrent captures and releases of a hold one is accepted, and the
// credits of a payment never add up to more than was taken.
//
// An error means that it is not known whether req was accepted. The same request
// again finds out.
func (l *Ledger) Accept(ctx context.Context, req payment.FollowUpRequest) (payment.Acceptance, error) {
	metadata, err := metadataJSON(req.Metadata)
	if err != nil {
		return payment.Acceptance{}, fmt.Errorf("accept a %s: write the metadata: %w", req.Kind, err)
	}
	hash, fingerprint := req.Key.Hash(), req.Fingerprint()
	args := pgx.NamedArgs{
		"kind":           string(req.Kind),
		"caller":         req.Caller,
		"key_hash":       hash[:],
		"fingerprint":    fingerprint[:],
		"payment_id":     pgtype.UUID{Bytes: req.PaymentID, Valid: req.PaymentID != uuid.Nil},
		"of":             orNull(req.Of),
		"outbound_key":   pgUUID(req.DeriveReference()),
		"account":        orNull(req.Account),
		"amount_minor":   pgtype.Int8{Int64: req.Amount.AmountMinor, Valid: req.Amount.AmountMinor != 0},
		"currency":       orNull(req.Amount.Currency),
		"till_reference": orNull(req.TillReference),
		"metadata":       orNull(metadata),
		"horizon":        l.config.Horizon,
		"traceparent":    orNull(tracing.Traceparent(ctx)),
	}
	if req.Kind != payment.Credit {
		args["account"], args["currency"] = nil, nil // the hold's
	}

	f, stored, answer, err := l.accept(ctx, args)
	if err == nil && answer == answerOverdue {
		// Its handler is gone. It is declined on the spot, and what was asked for is
		// judged by that.
		if _, err = l.recoverMet(ctx, payment.Payment{ID: req.PaymentID}); err == nil {
			f, stored, answer, err = l.accept(ctx, args)
		}
	}
	if err == nil && answer == answerAccepted && stored == nil {
		answer = answerOwn
		f, stored, err = l.acceptedBefore(ctx, args)
	}
	if err != nil {
		return payment.Acceptance{}, fmt.Errorf("accept a %s: %w", req.Kind, err)
	}

	switch answer {
	case answerAccepted:
		return payment.Acceptance{Status: payment.Accepted, FollowUp: f}, nil
	case answerOwn:
		if !fingerprint.Matches(stored) {
			return payment.Acceptance{Status: payment.AcceptanceMismatch}, nil
		}
		return payment.Acceptance{Status: payment.AcceptedBefore, FollowUp: asAccepted(f)}, nil
	}
	refusal, ok := refusals[answer]
	if !ok {
		return payment.Acceptance{}, fmt.Errorf("accept a %s: the ledger answers %q", req.Kind, answer)
	}
	return payment.Acceptance{Status: refusal}, nil
}

// accept makes one try. The fingerprint is nil where the key has no follow-up.
func (l *Ledger) accept(ctx context.Context, args pgx.NamedArgs) (f payment.FollowUp, fingerprint []byte, answer string, err error) {
	err = l.transact(ctx, trip{begin: begin, queue: func(b *pgx.Batch) {
		b.Queue(lockNamed, args)
		b.Queue(accept, args).QueryRow(func(row pgx.Row) error {
			var err error
			f, err = scanFollowUp(row, &fingerprint, &answer)
			return err
		})
	}})
	return f, fingerprint, answer, err
}

func (l *Ledger) acceptedBefore(ctx context.Context, args pgx.NamedArgs) (f payment.FollowUp, fingerprint []byte, err error) {
	err = l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(acceptedBefore, args).QueryRow(func(row pgx.Row) error {
			var err error
			f, err = scanFollowUp(row, &fingerprint)
			return err
		})
	}})
	return f, fingerprint, err
}

// asAccepted is f as it was told when it was accepted, whatever has become of it.
func asAccepted(f payment.FollowUp) payment.FollowUp {
	accepted := f
	accepted.State, accepted.Code, accepted.WalletID = payment.Pending, "", ""
	accepted.EndedAt = time.Time{}
	return accepted
}

// CancelByKey makes sure that nothing comes of the key any more, and that what has
// come of it is undone (contract section 1, Cancel by key). original is the request
// that the key was used for, if the caller says so. Repeating it gives the same
// answer.
//
// An error means that it is not known whether the key was cancelled. The same call
// again finds out.
func (l *Ledger) CancelByKey(
	ctx context.Context, caller string, op payment.Operation, key payment.Key, original *payment.Request,
) (payment.Cancellation, error) {
	hash := key.Hash()
	args := pgx.NamedArgs{
		"caller": caller, "operation": string(op), "key_hash": hash[:],
		"fingerprint": nil, "reference": nil, "account": nil, "amount_minor": nil, "currency": nil,
		"traceparent": orNull(tracing.Traceparent(ctx)),
	}
	if original != nil {
		if original.Caller != caller || original.Operation != op || original.Key != key {
			return payment.Cancellation{}, errors.New("cancel by key: the original request is of another key")
		}
		fingerprint := original.Fingerprint()
		args["fingerprint"], args["reference"] = fingerprint[:], pgUUID(original.DeriveReference())
		args["account"], args["currency"] = original.Account, original.Amount.Currency
		args["amount_minor"] = original.Amount.AmountMinor
	}

	var (
		p        payment.Payment
		answer   string
		undoneBy *[16]byte
	)
	err := l.transact(ctx, trip{begin: begin, queue: func(b *pgx.Batch) {
		b.Queue(entomb, args)
		b.Queue(lockOfKey, args)
		b.Queue(lockReleaseOfKey, args)
		b.Queue(cancel, args).QueryRow(func(row pgx.Row) error {
			var err error
			p, err = scanPayment(row, &answer, &undoneBy)
			return err
		})
	}})
	if err != nil {
		return payment.Cancellation{}, fmt.Errorf("cancel by key: %w", err)
	}
	switch answer {
	case answerCancelled:
		return payment.Cancellation{Status: payment.CancelledPayment, Payment: p, Reversal: value(undoneBy)}, nil
	case answerTooLate:
		return payment.Cancellation{Status: payment.CancelTooLate, Payment: p}, nil
	case answerUnknownBody:
		return payment.Cancellation{Status: payment.CancelUnknownBody}, nil
	}
	return payment.Cancellation{}, fmt.Errorf("cancel by key: the ledger answers %q", answer)
}

// OperationByID is the follow-up; false where caller has none of that id, even if
// somebody else has. A reversal is its payment's caller's.
func (l *Ledger) OperationByID(ctx context.Context, caller string, id uuid.UUID) (payment.FollowUp, bool, error) {
	f, found, err := l.readFollowUp(ctx, operationByID, pgx.NamedArgs{"id": pgUUID(id), "caller": caller})
	if err != nil {
		return payment.FollowUp{}, false, fmt.Errorf("read follow-up %s: %w", id, err)
	}
	return f, found, nil
}

// OperationByKey is OperationByID by the till's own key. That there is none proves
// nothing of a request which is still on its way.
func (l *Ledger) OperationByKey(ctx context.Context, caller string, kind payment.Operation, key payment.Key) (payment.FollowUp, bool, error) {
	hash := key.Hash()
	f, found, err := l.readFollowUp(ctx, operationByKey, pgx.NamedArgs{"key_hash": hash[:], "caller": caller, "kind": string(kind)})
	if err != nil {
		return payment.FollowUp{}, false, fmt.Errorf("read a %s by its key: %w", kind, err)
	}
	return f, found, nil
}

func (l *Ledger) readFollowUp(ctx context.Context, statement string, args pgx.NamedArgs) (f payment.FollowUp, found bool, err error) {
	err = l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(statement, args).QueryRow(func(row pgx.Row) error {
			var err error
			f, err = scanFollowUp(row)
			found = err == nil
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	}})
	return f, found, err
}
