package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/safeledger/safeledger/internal/payment"
)

// scanPayment reads paymentColumns, and behind them whatever more goes to extra.
func scanPayment(row pgx.Row, extra ...any) (payment.Payment, error) {
	var (
		p                        payment.Payment
		account, currency        *string
		amount                   *int64
		tillReference            *string
		metadata                 []byte
		declineCode, walletID    *string
		createdAt                time.Time
		decidedAt                *time.Time
		id, reference            [16]byte
		operation, caller, state string
	)
	err := row.Scan(append([]any{
		&id, &caller, &operation, &account, &amount, &currency, &tillReference, &metadata,
		&reference, &state, &declineCode, &walletID, &createdAt, &decidedAt,
	}, extra...)...)
	if err != nil {
		return payment.Payment{}, err
	}
	p = payment.Payment{
		ID:            id,
		Caller:        caller,
		Operation:     payment.Operation(operation),
		Account:       value(account),
		Amount:        payment.Money{AmountMinor: value(amount), Currency: value(currency)},
		TillReference: value(tillReference),
		Reference:     payment.Reference(reference),
		State:         payment.State(state),
		Code:          payment.Code(value(declineCode)),
		WalletID:      value(walletID),
		CreatedAt:     createdAt.UTC(),
	}
	if decidedAt != nil {
		p.DecidedAt = decidedAt.UTC()
	}
	if metadata != nil {
		if err := json.Unmarshal(metadata, &p.Metadata); err != nil {
			return payment.Payment{}, fmt.Errorf("read the metadata of %s: %w", p.ID, err)
		}
	}
	return p, nil
}

// scanFollowUp reads the columns of followUpsByID and followUpsByKey.
func scanFollowUp(row pgx.CollectableRow) (payment.FollowUp, error) {
	var (
		f             payment.FollowUp
		id, paymentID [16]byte
		kind, state   string
		refusal       *string
		createdAt     time.Time
		endedAt       *time.Time
	)
	if err := row.Scan(&id, &kind, &paymentID, &state, &refusal, &createdAt, &endedAt); err != nil {
		return payment.FollowUp{}, err
	}
	f = payment.FollowUp{
		ID:        id,
		Kind:      payment.Operation(kind),
		PaymentID: uuid.UUID(paymentID),
		State:     payment.FollowUpState(state),
		Code:      payment.Code(value(refusal)),
		CreatedAt: createdAt.UTC(),
	}
	if endedAt != nil {
		f.EndedAt = endedAt.UTC()
	}
	return f, nil
}

// scanExposure reads a row of openReversals.
func scanExposure(row pgx.CollectableRow) (payment.Exposure, error) {
	e := payment.Exposure{Kind: payment.Reversal, State: payment.Pending}
	err := row.Scan(&e.Currency, &e.Count, &e.AmountMinor, &e.OldestAge)
	return e, err
}

// value is *p, or the zero value for a null.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// orNull is nil, hence null, for an empty string: optional text that was not
// given has no empty form in the database.
func orNull[T ~string](s T) *string {
	if s == "" {
		return nil
	}
	text := string(s)
	return &text
}

// pgUUID is id as an argument. Without a prepared statement pgx goes by the Go type
// alone, and knows this one.
func pgUUID[T ~[16]byte](id T) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// metadataJSON is m for the database: null where none was given, which is not {}.
func metadataJSON(m map[string]string) (*string, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // null is the value
	}
	b, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	text := string(b)
	return &text, nil
}
