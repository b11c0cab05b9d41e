package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/migrations"
)

// Without the constraint a key has as many owners as there are claimants (field
// report A10). It belongs to caller and operation, and begins with what orders it.
func TestIdentityIsAConstraint(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	req := ledgertest.Request("duplicate")
	insert(t, conn, req, "clock_timestamp()")
	if err := tryInsert(t, conn, req, "clock_timestamp()"); code(err) != "23505" {
		t.Errorf("a duplicate: %v, want 23505", err)
	}
	var definition string
	err := conn.QueryRow(t.Context(), `SELECT pg_get_constraintdef(oid) FROM pg_catalog.pg_constraint
		WHERE conrelid = 'public.payments'::regclass AND conname = 'payments_identity_key'`).Scan(&definition)
	if err != nil {
		t.Fatal(err)
	}
	if want := "UNIQUE (key_hash, caller, operation)"; definition != want {
		t.Errorf("the identity is %s, want %s", definition, want)
	}
}

// The database is the last to know better: what must never be is refused there,
// whatever code, script or person tries.
func TestDatabaseRefusesWhatMustNeverBe(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	flying := claimed(t, l, "in flight")
	declined := claimed(t, l, "declined")
	if _, err := l.Decide(t.Context(), declined, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}
	hold, other := approved(t, l, payment.Hold, "hold"), approved(t, l, payment.Hold, "other")
	capture := accepted(t, l, ledgertest.Capture(hold, "capture", 0))
	accepted(t, l, ledgertest.Capture(other, "another capture", 0))
	done := accepted(t, l, ledgertest.Credit(approved(t, l, payment.Debit, "debit"), "done", 1))
	execute(t, conn, "INSERT INTO public.wallet_calls VALUES ($1, 0, 1, 1, 'debit', 'success', 'applied', 201, now(), interval '1 ms')", flying.ID.String())
	execute(t, conn, "INSERT INTO public.operator_notes VALUES (gen_random_uuid(), $1, now(), 'ada', 'redrive', 'because')", capture.ID.String())
	execute(t, conn, "UPDATE public.operations SET state = 'SUCCEEDED', ended_at = now(), due_at = NULL WHERE id = $1", done.ID.String())
	inFlight := " WHERE id = '" + flying.ID.String() + "'"
	final := " WHERE id = '" + declined.ID.String() + "'"
	reversal, ofHold, ended := " WHERE kind = 'reversal'", " WHERE id = '"+capture.ID.String()+"'", " WHERE id = '"+done.ID.String()+"'"
	secondEnd := `INSERT INTO public.operations (id, kind, payment_id, outbound_key, caller, key_hash, fingerprint, amount_minor, currency, state, created_at, due_at)
			SELECT gen_random_uuid(), 'release', payment_id, gen_random_uuid(), caller, key_hash, fingerprint, amount_minor, currency, state, created_at, due_at
			FROM public.operations` + ofHold

	for name, sql := range map[string]string{
		"an approval without the wallet's id":   "UPDATE public.payments SET state = 'APPROVED', decided_at = now()" + inFlight,
		"an approval with a code":               "UPDATE public.payments SET state = 'APPROVED', wallet_id = 'w', code = 'X', decided_at = now()" + inFlight,
		"a decline without a code":              "UPDATE public.payments SET state = 'DECLINED', decided_at = now()" + inFlight,
		"a decline without its time":            "UPDATE public.payments SET state = 'DECLINED', code = 'X'" + inFlight,
		"a code in lower case":                  "UPDATE public.payments SET state = 'DECLINED', code = 'x', decided_at = now()" + inFlight,
		"a code without a decline":              "UPDATE public.payments SET code = 'X'" + inFlight,
		"an unknown state":                      "UPDATE public.payments SET state = 'MAYBE'" + inFlight,
		"another amount":                        "UPDATE public.payments SET amount_minor = 1" + inFlight,
		"other metadata":                        "UPDATE public.payments SET metadata = '{}'" + inFlight,
		"another reference":                     "UPDATE public.payments SET reference = gen_random_uuid()" + inFlight,
		"an amount of nothing":                  "UPDATE public.payments SET amount_minor = 0" + inFlight,
		"an amount that JavaScript rounds":      "UPDATE public.payments SET amount_minor = 9007199254740992" + inFlight,
		"a forgotten account":                   "UPDATE public.payments SET account = NULL, amount_minor = NULL, currency = NULL" + inFlight,
		"half an amount":                        "UPDATE public.payments SET currency = NULL" + inFlight,
		"a decision taken back":                 "UPDATE public.payments SET state = 'IN_FLIGHT', code = NULL, decided_at = NULL" + final,
		"a decision changed":                    "UPDATE public.payments SET code = 'INSUFFICIENT_FUNDS'" + final,
		"a payment deleted":                     "DELETE FROM public.payments" + inFlight,
		"all payments deleted":                  "TRUNCATE public.payments CASCADE",
		"a second reversal":                     "INSERT INTO public.operations (id, kind, payment_id, outbound_key, state, created_at, due_at) SELECT gen_random_uuid(), kind, payment_id, gen_random_uuid(), state, created_at, due_at FROM public.operations" + reversal,
		"a reversal that ended without a time":  "UPDATE public.operations SET state = 'SUCCEEDED', due_at = NULL" + reversal,
		"a reversal of nothing":                 "UPDATE public.operations SET payment_id = NULL" + reversal,
		"a reversal of something else":          "UPDATE public.operations SET reverses = gen_random_uuid()" + reversal,
		"a reversal with a key":                 "UPDATE public.operations SET caller = 'x', key_hash = decode(repeat('00', 38), 'hex'), fingerprint = decode(repeat('00', 33), 'hex')" + reversal,
		"a reversal that was rejected":          "UPDATE public.operations SET state = 'REJECTED', code = 'X', ended_at = now(), due_at = NULL" + reversal,
		"a reversal sent under another key":     "UPDATE public.operations SET outbound_key = gen_random_uuid()" + reversal,
		"a rejection without a code":            "UPDATE public.operations SET state = 'REJECTED', ended_at = now(), due_at = NULL" + ofHold,
		"a capture that nobody will find":       "UPDATE public.operations SET due_at = NULL" + ofHold,
		"a capture that found nothing":          "UPDATE public.operations SET state = 'NOT_APPLIED', ended_at = now(), due_at = NULL" + ofHold,
		"a parked one without a reason":         "UPDATE public.operations SET state = 'PARKED', due_at = NULL" + ofHold,
		"a parked one that is due":              "UPDATE public.operations SET state = 'PARKED', park_reason = 'X'" + ofHold,
		"a reason without being parked":         "UPDATE public.operations SET park_reason = 'X'" + ofHold,
		"a pending one with the wallet's id":    "UPDATE public.operations SET wallet_id = 'w'" + ofHold,
		"a lease of what is not due":            "UPDATE public.operations SET state = 'PARKED', park_reason = 'X', due_at = NULL, leased_turn = 'FIRST'" + ofHold,
		"an unknown turn":                       "UPDATE public.operations SET turn = 'MINE'" + ofHold,
		"an attempt less than none":             "UPDATE public.operations SET attempts = -1" + ofHold,
		"a capture of nobody's hold":            "UPDATE public.operations SET payment_id = NULL" + ofHold,
		"a capture of another hold":             "UPDATE public.operations SET payment_id = '" + flying.ID.String() + "'" + ofHold,
		"a capture of more":                     "UPDATE public.operations SET amount_minor = amount_minor + 1" + ofHold,
		"a capture sent under another key":      "UPDATE public.operations SET outbound_key = gen_random_uuid()" + ofHold,
		"a capture without a key":               "UPDATE public.operations SET key_hash = NULL" + ofHold,
		"a follow-up that ended, again":         "UPDATE public.operations SET state = 'PENDING', ended_at = NULL, due_at = now()" + ended,
		"a follow-up that ended, attempted":     "UPDATE public.operations SET attempts = 7" + ended,
		"a follow-up that ended, cancelled too": "UPDATE public.operations SET state = 'REJECTED', code = 'X', cancelled = true" + ended,
		"a cancelled capture":                   "UPDATE public.operations SET cancelled = true" + ofHold,
		"a follow-up deleted":                   "DELETE FROM public.operations" + ended,
		"all follow-ups deleted":                "TRUNCATE public.operations CASCADE",
		"a second end of a hold":                secondEnd,
		"a second follow-up of a key": `INSERT INTO public.operations (id, kind, payment_id, outbound_key, caller, key_hash, fingerprint, account, amount_minor, currency, state, created_at, due_at)
			SELECT gen_random_uuid(), kind, payment_id, gen_random_uuid(), caller, key_hash, fingerprint, account, amount_minor, currency, 'PENDING', created_at, now()
			FROM public.operations` + ended,
		"a call rewritten":                       "UPDATE public.wallet_calls SET outcome = 'rejected'",
		"a call twice":                           "INSERT INTO public.wallet_calls SELECT * FROM public.wallet_calls",
		"a note rewritten":                       "UPDATE public.operator_notes SET operator = 'eve'",
		"a note deleted":                         "DELETE FROM public.operator_notes",
		"a note without a reason":                "INSERT INTO public.operator_notes SELECT gen_random_uuid(), operation_id, at, operator, action, '' FROM public.operator_notes",
		"a note about nothing":                   "INSERT INTO public.operator_notes SELECT gen_random_uuid(), gen_random_uuid(), at, operator, action, note FROM public.operator_notes",
		"a second low-water mark":                "INSERT INTO public.recovery VALUES (false, now())",
		"the low-water mark beside the only one": "INSERT INTO public.recovery VALUES (true, now())",
	} {
		_, err := conn.Exec(t.Context(), sql)
		if c := code(err); len(c) != 5 || c[:2] != "23" {
			t.Errorf("%s: %v, want a violated constraint", name, err)
		}
	}
}

// The tombstone of a key that was cancelled before it was seen has no account and
// no amount. The next release writes it into this schema.
func TestSchemaHasRoomForTombstones(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Connect(t)
	if _, err := conn.Exec(t.Context(), `
INSERT INTO public.payments (id, caller, operation, key_hash, fingerprint, reference, state, code, created_at, decided_at)
VALUES (gen_random_uuid(), 'store-17', 'debit', decode(repeat('00', 38), 'hex'), decode(repeat('00', 33), 'hex'),
        gen_random_uuid(), 'DECLINED', 'CANCELLED', now(), now())`); err != nil {
		t.Error(err)
	}
}

// A reversal that the database names otherwise than the code could be done twice.
func TestDatabaseDerivesReversalsAsTheCodeDoes(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Connect(t)
	for range 200 {
		reference := uuid.New()
		var derived string
		if err := conn.QueryRow(t.Context(), "SELECT public.reversal_reference($1)::text", reference.String()).Scan(&derived); err != nil {
			t.Fatal(err)
		}
		if want := payment.Reference(reference).Reversal().String(); derived != want {
			t.Fatalf("the reversal of %s is %s in the database, %s in the code", reference, derived, want)
		}
	}
}

// The row is what the queue will send: its key must be the payment's reversal.
func TestReversalIsStoredUnderItsDerivedKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	p := claimed(t, l, "reversed")
	if _, err := l.Decide(t.Context(), p, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}
	var stored, reference string
	err := db.Connect(t).QueryRow(t.Context(), `SELECT o.outbound_key::text, p.reference::text
		FROM public.operations AS o JOIN public.payments AS p ON p.id = o.payment_id`).Scan(&stored, &reference)
	if err != nil {
		t.Fatal(err)
	}
	if want := p.Reference.Reversal().String(); stored != want || reference != p.Reference.String() {
		t.Errorf("stored %s for reference %s, want %s for %s", stored, reference, want, p.Reference)
	}
}

// Recovery searches a range of ids for a range of times. A payment whose id was on
// the wrong side of its own time would be missed, or declined early.
func TestIDsOfATimeBeginAtItsFloor(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Connect(t)
	var wrong int
	err := conn.QueryRow(t.Context(), `
SELECT count(*) FROM (
    SELECT timestamptz '2026-11-29 21:59:59.999Z' + n * interval '1 microsecond' AS at FROM generate_series(0, 3000) AS n
    UNION ALL SELECT timestamptz '1970-01-01Z' UNION ALL SELECT timestamptz '9999-12-31 23:59:59.999999Z') AS times
WHERE NOT (public.uuid_v7_floor(at) <= public.uuid_v7(at)
       AND public.uuid_v7(at) < public.uuid_v7_floor(at + interval '1 microsecond'))`).Scan(&wrong)
	if err != nil {
		t.Fatal(err)
	}
	if wrong != 0 {
		t.Errorf("%d ids are outside their microsecond", wrong)
	}
}

// A deciding update that writes every index again halves what the database can do,
// and bloats it. One new index column or predicate is enough.
func TestDecidingStaysHeapOnly(t *testing.T) {
	t.Parallel()
	const decisions = 400
	db := pgtest.New(t)
	l, pool := open(t, db.URL, ledger.Options{}, never)
	for n := range decisions {
		claim, err := l.Claim(t.Context(), numbered(n))
		if err != nil {
			t.Fatal(err)
		}
		d := payment.Approve("018f4e5a-7c3b-7d2e-9f10-0123456789ab")
		if n%4 == 0 {
			d = payment.DeclineAndReverse(payment.WalletTimeout)
		}
		if _, err := l.Decide(t.Context(), claim.Payment, d); err != nil {
			t.Fatal(err)
		}
	}
	pool.Close() // sooner than the sessions would report

	if hot := heapOnly(t, db, decisions); hot < 0.95 {
		t.Errorf("%.0f%% of %d deciding updates were heap-only, want 95%%", 100*hot, decisions)
	}
}

// Where many decisions share a transaction, it decides all of a page at once, and what
// the first of them left is not free for the last.
func TestDecisionsThatShareATransactionStayHeapOnly(t *testing.T) {
	t.Parallel()
	const decisions = 200
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	g := gather(t, db.URL)
	do := make([]func(), decisions)
	for n := range do {
		claim, err := l.Claim(t.Context(), numbered(n))
		if err != nil {
			t.Fatal(err)
		}
		do[n] = func() {
			if _, err := g.Decide(t.Context(), claim.Payment, payment.Approve("018f4e5a-7c3b-7d2e-9f10-0123456789ab")); err != nil {
				t.Error(err)
			}
		}
	}
	g.together(t, nil, do...)
	g.pool.Close()
	// Of a page that is as full as it may be, four tenths are free and six are to be decided.
	if hot := heapOnly(t, db, decisions); hot < 0.6 {
		t.Errorf("%.0f%% of %d deciding updates were heap-only, want 60%%", 100*hot, decisions)
	}
}

// heapOnly is the share of payments' updates that wrote no index, as soon as all are known.
// A session reports what it did when it has nothing to do, or ends.
func heapOnly(t *testing.T, db *pgtest.DB, all int) float64 {
	t.Helper()
	conn := db.Connect(t)
	var updates, hot int
	for end := time.Now().Add(20 * time.Second); updates < all; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d updates were reported", updates, all)
		}
		err := conn.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_catalog.pg_stat_user_tables WHERE relid = 'public.payments'::regclass").Scan(&updates, &hot)
		if err != nil {
			t.Fatal(err)
		}
	}
	return float64(hot) / float64(updates)
}

// Replicas of a new release may all migrate at once, and again at every start.
func TestMigrationsMayRunAtOnceAndAgain(t *testing.T) {
	t.Parallel()
	db := pgtest.NewEmpty(t)
	log := slog.New(slog.DiscardHandler)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := ledger.Migrate(t.Context(), db.URL, log); err != nil {
				t.Errorf("at once: %v", err)
			}
		})
	}
	wg.Wait()
	if err := ledger.Migrate(t.Context(), db.URL, log); err != nil {
		t.Errorf("again: %v", err)
	}
	l, _ := open(t, db.URL, ledger.Options{}, never)
	if err := l.CheckSchema(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	claimed(t, l, "after the migration")
}

// A program on the wrong schema fails one request after the other; one on a
// database that forgets loses money quietly. Both must be said at the start, and
// apart, because the remedies differ. A schema that is newer is no fault as long as
// it says that this program still runs: without that, no release could be replaced
// replica by replica, or taken back.
func TestCheckSchemaTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	const next, nextButOne = migrations.Latest + 1, migrations.Latest + 2
	// migrated is a schema that later releases have brought to version, and what they
	// left behind for programs such as this one.
	migrated := func(version int, left ...string) string {
		return strings.Join(append(left, fmt.Sprintf(
			"INSERT INTO public.goose_db_version (version_id, is_applied) VALUES (%d, true)", version)), "; ")
	}
	runs := func(version, oldest int) string {
		return fmt.Sprintf("INSERT INTO public.schema_compatibility VALUES (%d, %d)", version, oldest)
	}

	for name, c := range map[string]struct {
		sql  string
		want error
	}{
		"current":                           {"SELECT 1", nil},
		"of the first release":              {"DELETE FROM public.goose_db_version WHERE version_id > 1", ledger.ErrSchemaOld},
		"of the release before":             {fmt.Sprintf("DELETE FROM public.goose_db_version WHERE version_id = %d", migrations.Latest), ledger.ErrSchemaOld},
		"later, runs this program":          {migrated(next, runs(next, migrations.Latest)), ledger.ErrSchemaNew},
		"later, runs older ones too":        {migrated(next, runs(next, 1)), ledger.ErrSchemaNew},
		"later, runs later ones only":       {migrated(nextButOne, runs(nextButOne, next)), ledger.ErrSchemaTooNew},
		"later, one between runs them only": {migrated(nextButOne+1, runs(nextButOne, next), runs(nextButOne+1, 1)), ledger.ErrSchemaTooNew},
		"later, says nothing":               {migrated(next), ledger.ErrSchemaTooNew},
		"later, only one between says so":   {migrated(nextButOne, runs(next, 1)), ledger.ErrSchemaTooNew},
		"later, has no place to say it":     {migrated(next, "DROP TABLE public.schema_compatibility"), ledger.ErrSchemaTooNew},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			execute(t, db.Connect(t), c.sql)
			l, _ := open(t, db.URL, ledger.Options{}, never)
			if err := l.CheckSchema(t.Context()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}

	empty, forgetful := pgtest.NewEmpty(t), pgtest.New(t)
	forgetful.Set(t, "synchronous_commit", "off")
	for name, c := range map[string]struct {
		db   *pgtest.DB
		want error
	}{
		"never migrated": {empty, ledger.ErrSchemaOld},
		"forgetful":      {forgetful, ledger.ErrNotDurable},
	} {
		l, _ := open(t, c.db.URL, ledger.Options{}, never)
		if err := l.CheckSchema(t.Context()); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// A migration that waits for a lock makes every till wait behind it (docs/operations.md,
// upgrade order): it gives up, and says so, long before an operator would.
func TestAMigrationDoesNotWaitLongForALock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	tx := begin(t, db)
	if _, err := tx.Exec(t.Context(), "LOCK TABLE public.goose_db_version IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	const lockNotAvailable = "55P03"
	if err := ledger.Migrate(ctx, db.URL, slog.New(slog.DiscardHandler)); code(err) != lockNotAvailable {
		t.Errorf("%v, want that the lock was not to be had", err)
	}
}

// A server that answers before it has written loses what it has promised with the power.
func TestAServerWithoutFsyncIsRefused(t *testing.T) {
	t.Parallel()
	server := ownServer(t, map[string]string{"fsync": "off"})
	l, _ := open(t, server.URL(), ledger.Options{}, never)
	if err := l.CheckSchema(t.Context()); !errors.Is(err, ledger.ErrNotDurable) || !strings.Contains(err.Error(), "fsync is off") {
		t.Errorf("%v, want %v, for fsync", err, ledger.ErrNotDurable)
	}
}

// A migration that says nothing about older programs ends every replica of the
// release before at its next restart, in the middle of the rollout.
func TestEveryMigrationSaysWhichProgramsStillRun(t *testing.T) {
	t.Parallel()
	const first = 4 // the one that brought the table
	var (
		seen   int
		silent []int64
	)
	if err := pgtest.New(t).Connect(t).QueryRow(t.Context(), `
SELECT count(*), coalesce(array_agg(v.version_id) FILTER (WHERE c.version IS NULL), '{}')
FROM public.goose_db_version AS v LEFT JOIN public.schema_compatibility AS c ON c.version = v.version_id
WHERE v.version_id >= $1`, first).Scan(&seen, &silent); err != nil {
		t.Fatal(err)
	}
	if len(silent) > 0 {
		t.Errorf("the migrations %v do not say which programs still run", silent)
	}
	if want := migrations.Latest - first + 1; seen != want {
		t.Errorf("%d migrations were asked, want %d", seen, want)
	}
}
