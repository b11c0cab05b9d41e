package checker

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Postgres is a ledger in PostgreSQL, read in one snapshot: what it gives belongs
// together, whatever still goes on.
type Postgres struct {
	conn *pgx.Conn
	tx   pgx.Tx
}

// OpenPostgres connects and takes the snapshot.
func OpenPostgres(ctx context.Context, url string) (*Postgres, error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		_ = conn.Close(ctx)
		return nil, fmt.Errorf("read the ledger: %w", err)
	}
	return &Postgres{conn, tx}, nil
}

// Close ends the snapshot.
func (p *Postgres) Close(ctx context.Context) error {
	_ = p.tx.Rollback(ctx)
	return p.conn.Close(ctx)
}

// rows gives the rows of a table to scan, one after the other.
func (p *Postgres) rows(ctx context.Context, table, sql string, scan func(pgx.Rows) error) error {
	rows, err := p.tx.Query(ctx, sql)
	if err != nil {
		return fmt.Errorf("read %s: %w", table, err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("read %s: %w", table, err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read %s: %w", table, err)
	}
	return nil
}

// Payments gives the rows of payments, oldest first.
func (p *Postgres) Payments(ctx context.Context, yield func(PaymentRow) error) error {
	const sql = `
SELECT id, caller, operation, key_hash, fingerprint, reference, coalesce(account, ''), coalesce(amount_minor, 0), coalesce(currency, ''),
       coalesce(till_reference, ''), coalesce(metadata::text, ''), state, coalesce(code, ''), coalesce(wallet_id, ''), created_at, decided_at
FROM public.payments ORDER BY id`
	return p.rows(ctx, "payments", sql, func(rows pgx.Rows) error {
		var r PaymentRow
		var decided *time.Time
		if err := rows.Scan((*[16]byte)(&r.ID), &r.Caller, &r.Operation, &r.KeyHash, &r.Fingerprint, (*[16]byte)(&r.Reference), &r.Account, &r.Amount,
			&r.Currency, &r.TillReference, &r.Metadata, &r.State, &r.Code, &r.WalletID, &r.CreatedAt, &decided); err != nil {
			return err
		}
		r.DecidedAt = valueOf(decided)
		return yield(r)
	})
}

// Operations gives the rows of operations, oldest first.
func (p *Postgres) Operations(ctx context.Context, yield func(OperationRow) error) error {
	const sql = `
SELECT id, kind, payment_id, outbound_key, state, coalesce(code, ''), coalesce(caller, ''), key_hash, fingerprint, coalesce(account, ''), amount_minor,
       currency, coalesce(till_reference, ''), coalesce(metadata::text, ''), reverses, coalesce(target_id, ''), coalesce(wallet_id, ''), cancelled,
       attempts, lookups, coalesce(park_reason, ''), created_at, ended_at, due_at
FROM public.operations ORDER BY id`
	return p.rows(ctx, "operations", sql, func(rows pgx.Rows) error {
		var r OperationRow
		var payment, reverses pgtype.UUID
		var ended, due *time.Time
		if err := rows.Scan((*[16]byte)(&r.ID), &r.Kind, &payment, (*[16]byte)(&r.OutboundKey), &r.State, &r.Code, &r.Caller, &r.KeyHash, &r.Fingerprint,
			&r.Account, &r.Amount, &r.Currency, &r.TillReference, &r.Metadata, &reverses, &r.TargetID, &r.WalletID, &r.Cancelled,
			&r.Attempts, &r.Lookups, &r.ParkReason, &r.CreatedAt, &ended, &due); err != nil {
			return err
		}
		r.PaymentID, r.Reverses = uuid.UUID(payment.Bytes), uuid.UUID(reverses.Bytes)
		r.EndedAt, r.DueAt = valueOf(ended), valueOf(due)
		return yield(r)
	})
}

// Calls gives the rows of wallet_calls.
func (p *Postgres) Calls(ctx context.Context, yield func(CallRow) error) error {
	const sql = `
SELECT subject_id, fence, n, attempt, call, outcome, reason, coalesce(status, 0), at, (extract(epoch FROM took) * 1000000)::bigint
FROM public.wallet_calls`
	return p.rows(ctx, "wallet_calls", sql, func(rows pgx.Rows) error {
		var r CallRow
		var took int64
		if err := rows.Scan((*[16]byte)(&r.Subject), &r.Fence, &r.N, &r.Attempt, &r.Call, &r.Outcome, &r.Reason, &r.Status, &r.At, &took); err != nil {
			return err
		}
		r.Took = time.Duration(took) * time.Microsecond
		return yield(r)
	})
}

// Notes gives the rows of operator_notes.
func (p *Postgres) Notes(ctx context.Context, yield func(NoteRow) error) error {
	const sql = `SELECT operation_id, at, operator, action, note FROM public.operator_notes ORDER BY at`
	return p.rows(ctx, "operator_notes", sql, func(rows pgx.Rows) error {
		var r NoteRow
		if err := rows.Scan((*[16]byte)(&r.Operation), &r.At, &r.Operator, &r.Action, &r.Note); err != nil {
			return err
		}
		return yield(r)
	})
}
