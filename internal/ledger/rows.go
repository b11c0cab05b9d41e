package ledger

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/safeledger/safeledger/internal/payment"
)

// scanPayment reads paymentColumns, and behind them whatever more goes to extra. A
// payment that was joined and is not there is the zero Payment.
func scanPayment(row pgx.Row, extra ...any) (payment.Payment, error) {
	var (
		id, reference            *[16]byte
		caller, operation, state *string
		account, currency        *string
		amount                   *int64
		tillReference            *string
		metadata                 []byte
		declineCode, walletID    *string
		createdAt, decidedAt     *time.Time
	)
	err := row.Scan(append([]any{
		&id, &caller, &operation, &account, &amount, &currency, &tillReference, &metadata,
		&reference, &state, &declineCode, &walletID, &createdAt, &decidedAt,
	}, extra...)...)
	if err != nil || id == nil {
		return payment.Payment{}, err
	}
	p := payment.Payment{
		ID:            *id,
		Caller:        value(caller),
		Operation:     payment.Operation(value(operation)),
		Account:       value(account),
		Amount:        payment.Money{AmountMinor: value(amount), Currency: value(currency)},
		TillReference: value(tillReference),
		Reference:     payment.Reference(value(reference)),
		State:         payment.State(value(state)),
		Code:          payment.Code(value(declineCode)),
		WalletID:      value(walletID),
		CreatedAt:     utc(createdAt),
		DecidedAt:     utc(decidedAt),
	}
	if p.Metadata, err = members(metadata); err != nil {
		return payment.Payment{}, fmt.Errorf("read the metadata of %s: %w", p.ID, err)
	}
	return p, nil
}

// scanFollowUp reads followUpColumns, and behind them whatever more goes to extra.
// One that was joined and is not there is the zero FollowUp.
func scanFollowUp(row pgx.Row, extra ...any) (payment.FollowUp, error) {
	var (
		id, paymentID      *[16]byte
		kind, state        *string
		refusal, account   *string
		amount             *int64
		currency           *string
		tillReference      *string
		metadata           []byte
		walletID           *string
		createdAt, endedAt *time.Time
	)
	err := row.Scan(append([]any{
		&id, &kind, &paymentID, &state, &refusal, &account, &amount, &currency, &tillReference, &metadata,
		&walletID, &createdAt, &endedAt,
	}, extra...)...)
	if err != nil || id == nil {
		return payment.FollowUp{}, err
	}
	f := payment.FollowUp{
		ID:            *id,
		Kind:          payment.Operation(value(kind)),
		PaymentID:     value(paymentID),
		State:         payment.FollowUpState(value(state)),
		Code:          payment.Code(value(refusal)),
		TillReference: value(tillReference),
		WalletID:      value(walletID),
		CreatedAt:     utc(createdAt),
		EndedAt:       utc(endedAt),
	}
	// The row holds the account of a reversal and the money of a release too; what a
	// follow-up is told with is what was asked for, or is sent.
	if f.Kind == payment.Credit {
		f.Account = value(account)
	}
	if f.Kind != payment.Release {
		f.Amount = payment.Money{AmountMinor: value(amount), Currency: value(currency)}
	}
	if f.Metadata, err = members(metadata); err != nil {
		return payment.FollowUp{}, fmt.Errorf("read the metadata of %s: %w", f.ID, err)
	}
	return f, nil
}

// scanExposure reads a row of exposures.
func scanExposure(row pgx.CollectableRow) (e payment.Exposure, err error) {
	var kind, state string
	err = row.Scan(&kind, &state, &e.Currency, &e.Count, &e.AmountMinor, &e.OldestAge)
	e.Kind, e.State = payment.Operation(kind), payment.FollowUpState(state)
	return e, err
}

// utc is *t in UTC, or the zero time for a null.
func utc(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// members are the metadata of a row: nil where none were given.
func members(metadata []byte) (m map[string]string, err error) {
	if metadata == nil {
		return nil, nil //nolint:nilnil // nil is the value
	}
	err = json.Unmarshal(metadata, &m)
	return m, err
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

// column is an argument of a statement that stores many rows: an array with a place for
// each of n. Its elements are pointers to pgx's own types, because of a slice of Go's
// types it makes an interface of every element, of most of them through reflection: a
// third of what encoding cost, and eighteen allocations for each decision.
func column[T any](n int) pgtype.FlatArray[*T] {
	places, values := make(pgtype.FlatArray[*T], n), make([]T, n)
	for i := range values {
		places[i] = &values[i]
	}
	return places
}

// pgText is s as an element of a column, null for an empty string, as orNull.
func pgText[T ~string](s T) pgtype.Text { return pgtype.Text{String: string(s), Valid: s != ""} }

// required is s where the column must have a value, "" too.
func required[T ~string](s T) pgtype.Text { return pgtype.Text{String: string(s), Valid: true} }

func pgInt[T ~int | ~int64](i T) pgtype.Int8 { return pgtype.Int8{Int64: int64(i), Valid: true} }

func pgBool(b bool) pgtype.Bool { return pgtype.Bool{Bool: b, Valid: true} }

// pgUUID is id as an argument. Without a prepared statement pgx goes by the Go type
// alone, and knows this one.
func pgUUID[T ~[16]byte](id T) pgtype.UUID { return pgtype.UUID{Bytes: id, Valid: true} }

// metadataJSON is m for the database: "", and so null, where none was given, which is
// not {}.
func metadataJSON(m map[string]string) (string, error) {
	if m == nil {
		return "", nil
	}
	b, err := json.Marshal(m)
	return string(b), err
}
