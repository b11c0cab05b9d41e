package ledger_test

import (
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// rows is how many payments BenchmarkStatementsOfALargeLedger writes beforehand.
var rows = flag.Int("rows", 500_000, "payments in the ledger, for BenchmarkStatementsOfALargeLedger")

// BenchmarkStatementsOfALargeLedger tells how many pages each statement of a decision, a
// replay, a sweep and a lease touches, with so many payments there and with none: what
// does not grow here does not grow. docs/performance.md has what it said at five million.
func BenchmarkStatementsOfALargeLedger(b *testing.B) {
	for _, n := range []int{0, *rows} {
		db := pgtest.New(b)
		conn := db.Connect(b)
		ids := fillWithPayments(b, conn, n)
		known := ledgertest.Request(payment.Key("known"))
		l, _ := open(b, db.URL, ledger.Options{MaxConns: 1}, never)
		claimed(b, l, known.Key)
		fresh := func(k int) (all []payment.Request) {
			for range k {
				all = append(all, ledgertest.Request(payment.Key(uuid.Must(uuid.NewV7()).String())))
			}
			return all
		}
		claim := func(requests []payment.Request) func() (string, []any) {
			return func() (string, []any) {
				sql, args, err := ledger.ClaimStatement(requests)
				if err != nil {
					b.Fatal(err)
				}
				return sql, []any{args}
			}
		}
		decide := func(ids []uuid.UUID) func() (string, []any) {
			return func() (string, []any) {
				sql, args := ledger.DecideStatement(ids)
				return sql, []any{args}
			}
		}
		hash := known.Key.Hash()
		for _, s := range []struct {
			name      string
			statement func() (string, []any)
		}{
			{"claim", claim(fresh(1))},
			{"64 claims", claim(fresh(64))},
			{"claim of a known key", claim([]payment.Request{known})},
			{"read of a known key", func() (string, []any) {
				return ledger.ClaimedStatement, []any{pgx.NamedArgs{"key_hash": hash[:], "caller": known.Caller, "operation": string(known.Operation), "horizon": never}}
			}},
			{"decision", decide(ids[:1])},
			{"64 decisions", decide(ids)},
			{"sweep of a second", func() (string, []any) {
				return ledger.SweepStatement, []any{pgx.NamedArgs{"from": time.Now().Add(-9 * time.Second), "until": time.Now().Add(-8 * time.Second)}}
			}},
			{"lease with nothing due", func() (string, []any) { return ledger.LeaseStatement, []any{ledger.LeaseArgs(order(32))} }},
			{"thinning with nothing old", func() (string, []any) {
				return ledger.ThinStatement, []any{pgx.NamedArgs{"keep": 9600 * time.Hour, "batch": 2000}}
			}},
		} {
			b.Run(fmt.Sprintf("rows=%d/%s", n, s.name), func(b *testing.B) {
				var p plan
				for b.Loop() {
					tx, err := conn.Begin(b.Context())
					if err != nil {
						b.Fatal(err)
					}
					var none *string
					if _, err := tx.Exec(b.Context(), ledger.SetLimitsByIndex, pgx.NamedArgs{"statement_timeout": none, "lock_timeout": none}); err != nil {
						b.Fatal(err)
					}
					sql, args := s.statement()
					p = explain(b, conn, sql, args...)
					if err := tx.Rollback(b.Context()); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(p.buffers), "pages")
				b.ReportMetric(p.milliseconds, "ms")
				b.Logf("read by %v", p.scans)
			})
		}
	}
}

// fillWithPayments writes n decided payments of the month before, one in fifty with a
// reversal that has ended, and gives the ids of 64 that are in flight.
func fillWithPayments(b *testing.B, conn *pgx.Conn, n int) (ids []uuid.UUID) {
	b.Helper()
	const chunk = 100_000
	for from := 0; from < n; from += chunk {
		execute(b, conn, `
WITH paid AS (
INSERT INTO public.payments (id, caller, operation, key_hash, fingerprint, reference, account, amount_minor, currency, state, code, created_at, decided_at)
SELECT id, 'store-17', 'debit', substring(uuid_send(id) FOR 6) || sha256(uuid_send(id)), '\x01'::bytea || sha256(uuid_send(id)), gen_random_uuid(),
       'ACC-1', 1250, 'EUR', 'DECLINED', 'WALLET_TIMEOUT', at, at
FROM (SELECT public.uuid_v7(at) AS id, at FROM (
      SELECT now() - interval '30 days' * (1 - i::float8 / $2::float8) - interval '1 hour' AS at
      FROM generate_series($1::int + 1, least($1::int + $3::int, $2::int)) AS i) AS times) AS asked
RETURNING id, reference, created_at),
called AS (
INSERT INTO public.wallet_calls (subject_id, fence, n, attempt, call, outcome, reason, status, at, took)
SELECT id, 0, 1, 1, 'debit', 'ambiguous', 'timeout', NULL, created_at, interval '800 milliseconds' FROM paid)
INSERT INTO public.operations (id, kind, payment_id, outbound_key, reverses, account, amount_minor, currency, state, created_at, ended_at)
SELECT public.uuid_v7(created_at), 'reversal', id, gen_random_uuid(), reference, 'ACC-1', 1250, 'EUR', 'SUCCEEDED', created_at, created_at + interval '1 minute'
FROM paid WHERE get_byte(uuid_send(id), 15) < 5`, from, n, chunk)
	}
	execute(b, conn, "VACUUM (ANALYZE)")
	rows, err := conn.Query(b.Context(), `
INSERT INTO public.payments (id, caller, operation, key_hash, fingerprint, reference, account, amount_minor, currency, state, created_at)
SELECT id, 'store-17', 'debit', substring(uuid_send(id) FOR 6) || sha256(uuid_send(id)), '\x01'::bytea || sha256(uuid_send(id)), gen_random_uuid(), 'ACC-1', 1250, 'EUR', 'IN_FLIGHT', now()
FROM (SELECT public.uuid_v7(now()) AS id FROM generate_series(1, 64)) AS asked
RETURNING id`)
	if err != nil {
		b.Fatal(err)
	}
	ids, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (id uuid.UUID, err error) {
		return id, row.Scan((*[16]byte)(&id))
	})
	if err != nil {
		b.Fatal(err)
	}
	return ids
}
