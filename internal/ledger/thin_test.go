package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// A clerk looks up what was sent for a payment that is still in question. Only the
// calls of what has ended, and ended long enough ago, may be forgotten; and never a
// payment or a follow-up.
func TestOnlyTheCallsOfWhatEndedLongAgoAreForgotten(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)

	// Payments of 40 days ago: one is plain, one has a reversal that has ended since, one
	// whose reversal ended yesterday, one whose reversal is parked, one with a late check
	// to come. Each has a call of its own, and so has each reversal.
	const old = 40 * 24 * time.Hour
	calls := map[uuid.UUID]string{}
	call := func(subject uuid.UUID, name string) {
		calls[subject] = name
		execute(t, conn, `INSERT INTO public.wallet_calls (subject_id, fence, n, attempt, call, outcome, reason, at, took)
			VALUES ($1, 0, 1, 1, 'debit', 'success', 'applied', clock_timestamp(), '1 ms'), ($1, 0, 2, 1, 'lookup', 'applied', 'applied', clock_timestamp(), '1 ms')`, subject)
	}
	at := func(ago time.Duration) (id uuid.UUID) {
		if err := conn.QueryRow(t.Context(), "SELECT public.uuid_v7(clock_timestamp() - $1::interval)", ago).Scan((*[16]byte)(&id)); err != nil {
			t.Fatal(err)
		}
		return id
	}
	paid := func(name string, ago time.Duration) uuid.UUID {
		req, id := ledgertest.Request(payment.Key(name)), at(ago)
		hash, fingerprint, reference := req.Key.Hash(), req.Fingerprint(), uuid.UUID(req.DeriveReference())
		execute(t, conn, `INSERT INTO public.payments (id, caller, operation, key_hash, fingerprint, reference, account, amount_minor, currency, state, code, created_at, decided_at)
			VALUES ($1, $2, 'debit', $3, $4, $5, 'ALICE', 1, 'EUR', 'DECLINED', 'WALLET_TIMEOUT', clock_timestamp() - $6::interval, clock_timestamp() - $6::interval)`,
			id, req.Caller, hash[:], fingerprint[:], reference, ago)
		call(id, name)
		return id
	}
	reversed := func(of uuid.UUID, name, state, endedAt, dueAt, parkReason string) {
		id := at(old)
		execute(t, conn, `INSERT INTO public.operations (id, kind, payment_id, outbound_key, reverses, account, amount_minor, currency, state, created_at, ended_at, due_at, park_reason)
			VALUES ($1, 'reversal', $2, gen_random_uuid(), gen_random_uuid(), 'ALICE', 1, 'EUR', $3, clock_timestamp() - $4::interval,
				clock_timestamp() - nullif($5, '')::interval, clock_timestamp() + nullif($6, '')::interval, nullif($7, ''))`,
			id, of, state, old, endedAt, dueAt, parkReason)
		call(id, name)
	}
	paid("plain", old)
	paid("young", 29*24*time.Hour)
	reversed(paid("reversed payment", old), "reversed", "SUCCEEDED", "39 days", "", "")
	reversed(paid("payment reversed yesterday", old), "reversed yesterday", "SUCCEEDED", "1 day", "", "")
	reversed(paid("payment of the parked", old), "parked", "PARKED", "", "", "REFUSED")
	reversed(paid("payment of the pending", old), "pending", "PENDING", "", "1 hour", "")
	reversed(paid("payment to be checked late", old), "to be checked late", "NOT_APPLIED", "39 days", "1 hour", "")

	forgotten, err := l.Thin(t.Context(), 30*24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{"plain": true, "reversed payment": true, "reversed": true}
	if forgotten != 2*len(gone) {
		t.Errorf("%d calls are forgotten, want %d", forgotten, 2*len(gone))
	}
	for id, name := range calls {
		var left int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM public.wallet_calls WHERE subject_id = $1", id).Scan(&left); err != nil {
			t.Fatal(err)
		}
		if want := 2; gone[name] && left != 0 || !gone[name] && left != want {
			t.Errorf("%s: %d calls are left", name, left)
		}
	}
	var payments, operations int
	if err := conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM public.payments), (SELECT count(*) FROM public.operations)").Scan(&payments, &operations); err != nil {
		t.Fatal(err)
	}
	if payments != 7 || operations != 5 {
		t.Errorf("%d payments and %d follow-ups are left", payments, operations)
	}
}

// Thinning goes on for as long as there is something to thin, in batches, and is
// ended by its limit without an error.
func TestThinningGoesOnUntilNothingIsLeftOrTimeIsUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	const calls = 5000
	execute(t, conn, `INSERT INTO public.wallet_calls (subject_id, fence, n, attempt, call, outcome, reason, at, took)
		SELECT public.uuid_v7(clock_timestamp() - interval '40 days'), 0, n, 1, 'debit', 'success', 'applied', clock_timestamp(), '1 ms'
		FROM generate_series(1, $1::int) AS n`, calls)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := l.Thin(over, time.Hour); n != 0 || err != nil {
		t.Errorf("after its time: %d, %v", n, err)
	}
	if n, err := l.Thin(t.Context(), time.Hour); n != calls || err != nil {
		t.Errorf("%d of %d were forgotten, %v", n, calls, err)
	}
}
