package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// A plan that is made while a table is nearly empty is kept while it fills up. If it read
// the table from one end to the other, be it by an index, the first morning of a new ledger
// would slow down with every payment (a decision's did, to 40 ms in half a minute at 3,000
// payments a second), and rows would be locked in no order. So whatever was analysed when,
// each statement that somebody waits for goes from the values that it is given by an index.
func TestEveryPlanGoesByAnIndexHoweverSmallTheTable(t *testing.T) {
	t.Parallel()
	pool, err := ledger.Connect(t.Context(), pgtest.New(t).URL, ledger.Options{MaxConns: 1}) // one session has all plans
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	prepareAll(t, func(horizon time.Duration) *ledger.Ledger {
		l, err := ledger.New(pool, ledger.Config{Horizon: horizon, Alone: true})
		if err != nil {
			t.Fatal(err)
		}
		return l
	})
	pooled, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Release()
	conn := pooled.Conn()
	statements := preparedStatements(t, conn)
	if len(statements) < 20 {
		t.Fatalf("only %d statements were prepared", len(statements))
	}
	first := firstColumns(t, conn)
	const tables = "public.payments, public.operations, public.wallet_calls"
	execute(t, conn, "SET session_replication_role = replica") // past the triggers that keep all for good
	execute(t, conn, "TRUNCATE "+tables+" CASCADE")
	execute(t, conn, "RESET session_replication_role")
	rows := 0
	for _, until := range []int{0, 1, 10, 100, 1000} {
		fillWithDeclined(t, conn, rows, until)
		rows = until
		for _, known := range []string{"", "ANALYZE " + tables, "VACUUM ANALYZE " + tables} {
			if known != "" {
				execute(t, conn, known)
			}
			for _, s := range statements {
				if whole := s.readsWhole(t, conn, first); len(whole) > 0 {
					t.Errorf("with %d rows, after %q: %v are read whole by%s", rows, known, whole, s.text)
				}
			}
		}
	}
}

// The sums over what is open read all of it, and tills are served meanwhile: they may take
// one core, not all that there are.
func TestTheSumsOverWhatIsOpenTakeOneCore(t *testing.T) {
	t.Parallel()
	l, pool := open(t, pgtest.New(t).URL, ledger.Options{MaxConns: 1}, never)
	if _, err := l.Exposures(t.Context()); err != nil {
		t.Fatal(err)
	}
	pooled, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer pooled.Release()
	conn := pooled.Conn()
	fillWithDeclined(t, conn, 0, 1000)
	execute(t, conn, "ANALYZE public.operations")
	var limits, sums string // as Exposures has just said them
	for like, name := range map[string]*string{"%set_config%": &limits, "%sum(amount_minor)%": &sums} {
		if err := conn.QueryRow(t.Context(), "SELECT name FROM pg_catalog.pg_prepared_statements WHERE statement LIKE $1", like).Scan(name); err != nil {
			t.Fatal(err)
		}
		*name = pgx.Identifier{*name}.Sanitize()
	}

	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	inParallel := func() bool {
		t.Helper()
		execute(t, conn, "DISCARD PLANS")
		rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE "+sums, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(strings.Join(plan, "\n"), "Gather")
	}
	// A thousand rows are as good as a million where processes cost nothing.
	execute(t, conn, "SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0")
	if !inParallel() {
		t.Fatal("without limits one process would do: the test proves nothing")
	}
	execute(t, conn, "EXECUTE "+limits+"(NULL, NULL)")
	if inParallel() {
		t.Error("the sums are made by several processes")
	}
}

// prepared is a statement that a session has met.
type prepared struct {
	name, text string
	values     int
}

// preparedStatements are those of them that know one of our tables.
func preparedStatements(t *testing.T, conn *pgx.Conn) []prepared {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
SELECT name, statement, cardinality(parameter_types) FROM pg_catalog.pg_prepared_statements
WHERE statement ~ 'public\.(payments|operations|wallet_calls)'`)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p prepared, err error) {
		return p, row.Scan(&p.name, &p.text, &p.values)
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// firstColumns are those by which indexes are in order: a condition on another column alone
// is tried on every entry.
func firstColumns(t *testing.T, conn *pgx.Conn) map[string]string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `
SELECT c.relname, a.attname FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS c ON c.oid = i.indexrelid JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attnum = 1
WHERE c.relnamespace = 'public'::regnamespace`)
	if err != nil {
		t.Fatal(err)
	}
	first := make(map[string]string)
	var index, column string
	if _, err := pgx.ForEachRow(rows, []any{&index, &column}, func() error {
		first[index] = column
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return first
}

// readsWhole are the tables and indexes that the plan reads from one end to the other, as it
// is made now, for any values.
func (p prepared) readsWhole(t *testing.T, conn *pgx.Conn, first map[string]string) (whole []string) {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	execute(t, conn, "SET LOCAL plan_cache_mode = force_generic_plan")
	var none *string
	if _, err := conn.Exec(t.Context(), ledger.SetLimitsByIndex, pgx.NamedArgs{"statement_timeout": none, "lock_timeout": none}); err != nil {
		t.Fatal(err)
	}
	values := strings.TrimSuffix(strings.Repeat("NULL, ", p.values), ", ")
	if p.values > 0 {
		values = "(" + values + ")"
	}
	var text []byte
	explained := fmt.Sprintf("EXPLAIN (FORMAT JSON) EXECUTE %s%s", pgx.Identifier{p.name}.Sanitize(), values)
	if err := conn.QueryRow(t.Context(), explained, pgx.QueryExecModeSimpleProtocol).Scan(&text); err != nil {
		t.Fatalf("%v: %s", err, p.text)
	}
	var answer []struct {
		Plan planNode `json:"Plan"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer) != 1 {
		t.Fatalf("%v: %s", err, text)
	}
	var walk func(planNode)
	walk = func(n planNode) {
		if n.readsWhole(first) {
			whole = append(whole, n.Type+" "+n.Relation+" "+n.Index)
		}
		for _, below := range n.Plans {
			walk(below)
		}
	}
	walk(answer[0].Plan)
	return whole
}

// prepareAll has every statement said that a till, an attempt or recovery waits for.
func prepareAll(t *testing.T, open func(horizon time.Duration) *ledger.Ledger) {
	t.Helper()
	ctx := t.Context()
	l, impatient := open(time.Hour), open(time.Microsecond)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	claim := func(l *ledger.Ledger, req payment.Request, want payment.ClaimStatus) payment.Payment {
		t.Helper()
		c, err := l.Claim(ctx, req)
		must(err)
		if c.Status != want {
			t.Fatalf("claimed as %d, want %d", c.Status, want)
		}
		return c.Payment
	}
	call := []payment.WalletCall{{Call: "debit", Outcome: "success", Reason: payment.ReasonApplied, Status: 201}}
	approved := payment.Approve("w-1")
	approved.Calls = append(call, call...)
	req := ledgertest.Request("decided")
	p := claim(l, req, payment.ClaimNew)
	for range 2 { // the second comes late
		_, err := l.Decide(ctx, p, approved)
		must(err)
	}
	claim(l, req, payment.ClaimDecided)
	_, _, err := l.PaymentByID(ctx, req.Caller, p.ID)
	must(err)
	_, _, err = l.PaymentByKey(ctx, req.Caller, req.Operation, req.Key)
	must(err)

	declined := claim(l, ledgertest.Request("declined"), payment.ClaimNew)
	reversed := payment.DeclineAndReverse(payment.WalletTimeout)
	reversed.Calls = call
	_, err = l.Decide(ctx, declined, reversed)
	must(err)

	credit := payment.FollowUpRequest{
		Caller: req.Caller, Kind: payment.Credit, Key: "credit", Of: payment.Debit, PaymentID: p.ID, Account: req.Account, Amount: req.Amount,
	}
	for range 2 {
		_, err := l.Accept(ctx, credit)
		must(err)
	}
	_, _, err = l.OperationByKey(ctx, req.Caller, payment.Credit, credit.Key)
	must(err)
	_, _, err = l.OperationByID(ctx, req.Caller, uuid.New())
	must(err)

	work, err := l.Lease(ctx, payment.LeaseOrder{
		Kinds: []payment.Operation{payment.Reversal, payment.Capture, payment.Release, payment.Credit},
		Limit: 2, Lease: time.Minute, Sends: true, Retries: 2, Lookups: 2, Backlog: time.Hour,
	})
	must(err)
	if len(work) != 2 {
		t.Fatalf("leased %d", len(work))
	}
	must(l.HandBack(ctx, work[0]))
	_, err = l.Settle(ctx, payment.Settlement{ID: work[1].ID, Fence: work[1].Fence, State: payment.Succeeded, Calls: call})
	must(err)

	_, err = l.CancelByKey(ctx, req.Caller, payment.Debit, "never seen", nil)
	must(err)
	for _, met := range []payment.Key{"met", "swept"} {
		req := ledgertest.Request(met)
		claim(l, req, payment.ClaimNew)
		if met == "met" {
			claim(impatient, req, payment.ClaimDecided)
		}
	}
	_, err = impatient.Recover(ctx)
	must(err)
	_, err = l.Thin(ctx, time.Hour)
	must(err)
}

// fillWithDeclined makes payments, declined, each with its reversal and a call: as many as
// are missing.
func fillWithDeclined(t *testing.T, conn *pgx.Conn, from, until int) {
	t.Helper()
	execute(t, conn, `
WITH made AS (
INSERT INTO public.payments (id, caller, operation, key_hash, fingerprint, reference, account, amount_minor, currency, state, code, created_at, decided_at)
SELECT public.uuid_v7(now()), 'till', 'debit', sha256(i::text::bytea) || '\x000000000000', sha256(i::text::bytea) || '\x01', gen_random_uuid(),
       'ALICE', 1, 'EUR', 'DECLINED', 'WALLET_TIMEOUT', now(), now()
FROM generate_series($1::int + 1, $2::int) AS i
RETURNING id, reference, account, amount_minor, currency),
called AS (
INSERT INTO public.wallet_calls (subject_id, fence, n, attempt, call, outcome, reason, at, took)
SELECT id, 0, 1, 1, 'debit', 'ambiguous', 'timeout', now(), '1 second' FROM made)
INSERT INTO public.operations (id, kind, payment_id, outbound_key, reverses, account, amount_minor, currency, state, due_at, created_at)
SELECT public.uuid_v7(now()), 'reversal', id, gen_random_uuid(), reference, account, amount_minor, currency, 'PENDING', now(), now()
FROM made`, from, until)
}
