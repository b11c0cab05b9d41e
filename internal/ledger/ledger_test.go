package ledger_test

import (
	"context"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// never is a horizon that no test reaches.
const never = time.Hour

// Whatever stands between us and PostgreSQL, a till is promised the same.
func TestLedgerKeepsItsPromises(t *testing.T) {
	t.Parallel()
	for _, pooler := range []string{ledger.PoolerNone, ledger.PoolerPgbouncer} {
		t.Run(pooler, func(t *testing.T) {
			t.Parallel()
			ledgertest.Run(t, func(t *testing.T, horizon time.Duration) ledgertest.Ledger {
				l, _ := open(t, pgtest.New(t).URL, ledger.Options{Pooler: pooler}, horizon)
				return suite{l}
			})
		})
	}
}

// Two replicas that both own a key send two debits. The database's own default
// isolation must not matter: under a stricter one the loser of a race would be
// answered with an error instead of "in flight" (traps L1, L2, L3).
func TestReplicasRacingForKeysGiveEachOneOwner(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			const keys, replicas, each = 40, 2, 4
			db := pgtest.New(t)
			db.Set(t, "default_transaction_isolation", isolation)
			var ledgers []*ledger.Ledger
			for range replicas {
				l, _ := open(t, db.URL, ledger.Options{MaxConns: each}, never)
				ledgers = append(ledgers, l)
			}

			var owners [keys]atomic.Int32
			var wg sync.WaitGroup
			for _, l := range ledgers {
				for range each {
					wg.Go(func() {
						for k := range keys {
							claim, err := l.Claim(t.Context(), numbered(k))
							if err != nil {
								t.Errorf("claim: %v", err)
								return
							}
							if claim.Status != payment.ClaimNew {
								continue
							}
							owners[k].Add(1)
							if _, err := l.Decide(t.Context(), claim.Payment, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
								t.Errorf("decide: %v", err)
							}
						}
					})
				}
			}
			wg.Wait()

			for k := range owners {
				if n := owners[k].Load(); n != 1 {
					t.Errorf("key %d has %d owners", k, n)
				}
			}
			var rows, reversals int
			row := db.Connect(t).QueryRow(t.Context(), "SELECT (SELECT count(*) FROM public.payments), (SELECT count(*) FROM public.operations)")
			if err := row.Scan(&rows, &reversals); err != nil {
				t.Fatal(err)
			}
			if rows != keys || reversals != keys {
				t.Errorf("%d payments and %d reversals of %d keys", rows, reversals, keys)
			}
		})
	}
}

// A duplicate must not queue behind the first one's commit (field report A1, trap
// L6); and when the first is gone without a trace the key is free.
func TestDuplicateDoesNotWaitForAnUncommittedTwin(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	req := ledgertest.Request("twin")
	tx := begin(t, db)
	insert(t, tx, req, "clock_timestamp()")

	// The first is not committed before this test is done: to wait for it is to wait for ever.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	claim, err := l.Claim(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(payment.Claim{Status: payment.ClaimInFlight}, claim); diff != "" {
		t.Errorf("a twin that is not committed (-want +got):\n%s", diff)
	}

	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	claim, err = l.Claim(t.Context(), req)
	if err != nil || claim.Status != payment.ClaimNew {
		t.Errorf("after the twin rolled back: status %d (%v), want the key to be free", claim.Status, err)
	}
}

// "In flight" is a fact about a key. A lock on the table that lets reads through, or on
// the end of it, where all insert, is our own trouble: a fresh key must not be told as
// somebody else's request, but claimed when the lock is gone.
func TestALockThatIsNoTwinsIsWaitedFor(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{MaxConns: 1}, never)
	claimed(t, l, "so that the connection knows its statements")
	tx := begin(t, db)
	if _, err := tx.Exec(t.Context(), "LOCK TABLE public.payments IN SHARE MODE"); err != nil {
		t.Fatal(err)
	}
	watch := db.Connect(t)
	type result struct {
		claim payment.Claim
		err   error
	}
	answer := make(chan result, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		claim, err := l.Claim(ctx, ledgertest.Request("fresh"))
		answer <- result{claim, err}
	}()
	// It gives up after 50 ms, because of those who may share its transaction, and waits
	// for longer when it is alone.
	for waited := false; !waited; {
		if err := watch.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks
WHERE relation = 'public.payments'::regclass AND NOT granted AND waitstart < clock_timestamp() - interval '75 ms')`).Scan(&waited); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-answer:
			t.Fatalf("claimed as %d through the lock, %v", r.claim.Status, r.err)
		default:
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-answer; r.err != nil || r.claim.Status != payment.ClaimNew {
		t.Errorf("when the lock was gone: status %d, %v, want the key", r.claim.Status, r.err)
	}
}

// A table that is locked altogether is no twin either.
func TestLockedTableIsNotATwin(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{MaxConns: 1}, never)
	req := ledgertest.Request("so that the connection knows its statements")
	claimed(t, l, req.Key)
	if _, err := l.Claim(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, db)
	if _, err := tx.Exec(t.Context(), "LOCK TABLE public.payments IN ACCESS EXCLUSIVE MODE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if claim, err := l.Claim(ctx, ledgertest.Request("locked out")); err == nil {
		t.Errorf("claimed through a lock: %+v", claim)
	}
}

// Under overload every statement is late. If each cost its connection, new ones
// would have to be made just when they are dearest (trap L11); and whoever asks
// whether time ran out must not have to know who noticed.
func TestLateStatementKeepsItsConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, pool := open(t, db.URL, ledger.Options{MaxConns: 1}, never)
	claim := claimed(t, l, "late")
	tx := begin(t, db)
	if _, err := tx.Exec(t.Context(), "SELECT FROM public.payments FOR UPDATE"); err != nil {
		t.Fatal(err)
	}

	// A machine that stalls loses a connection now and then, the fault loses every
	// one: so it is kept ones that are counted, not lost ones.
	const wanted, most = 3, 20
	kept := 0
	for round := 0; kept < wanted; round++ {
		if round == most {
			t.Fatalf("%d of %d late statements kept their connection", kept, most)
		}
		before := pool.Stat().NewConnsCount()
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, err := l.Decide(ctx, claim, payment.Approve("w-1"))
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a decision that had to wait: %v, want the deadline", err)
		}
		// The pool replaces what was lost when it is next needed.
		if err := l.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pool.Stat().NewConnsCount() == before {
			kept++
		}
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p, err := l.Decide(t.Context(), claim, payment.Approve("w-1")); err != nil || p.State != payment.Approved {
		t.Errorf("afterwards: %s, %v", p.State, err)
	}
}

// Whoever finds no connection must hear so by his deadline, not by ours (trap L12).
func TestExhaustedPoolEndsByTheDeadline(t *testing.T) {
	t.Parallel()
	l, pool := open(t, pgtest.New(t).URL, ledger.Options{MaxConns: 1}, never)
	held, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Claim(ctx, ledgertest.Request("crowded out")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("claim: %v, want the deadline", err)
	}
	if err := l.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("ping: %v, want the deadline", err)
	}
}

// A commit whose answer is lost is not known to have happened, and is durable all
// the same. To call the wallet then, or to tell a till "declined", would be a guess
// (traps L9, L13); asking again must find out.
func TestLostCommitAnswerIsUnknownAndReplayConverges(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	watch := db.Connect(t)
	proxy := newCutter(t, db.URL)
	l, _ := open(t, proxy.url, ledger.Options{MaxConns: 1}, never)
	// A connection must have been made, and know its statements, before its answers
	// are lost: what is to be lost is the answer to a commit.
	warm := func(key payment.Key) {
		t.Helper()
		if _, err := l.Decide(t.Context(), claimed(t, l, key), payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
			t.Fatal(err)
		}
	}
	warm("first connection")
	seen := func(condition string) func() bool {
		return func() bool {
			var yes bool
			if err := watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM public.payments WHERE "+condition+")").Scan(&yes); err != nil {
				t.Fatal(err)
			}
			return yes
		}
	}
	req := ledgertest.Request("answer lost")
	req.TillReference = "lost"

	heard := proxy.loseAnswers()
	result := make(chan error, 1)
	go func() {
		_, err := l.Claim(t.Context(), req)
		result <- err
	}()
	until(t, heard, seen("till_reference = 'lost'"))
	proxy.cut()
	if err := <-result; err == nil {
		t.Fatal("a claim whose commit was not answered is reported as done")
	}
	claim, err := l.Claim(t.Context(), req)
	if err != nil || claim.Status != payment.ClaimInFlight {
		t.Fatalf("the same claim again: status %d, %v, want the lost one to be in the way", claim.Status, err)
	}

	warm("second connection")
	heard = proxy.loseAnswers()
	go func() {
		_, err := l.Decide(t.Context(), claim.Payment, payment.DeclineAndReverse(payment.WalletTimeout))
		result <- err
	}()
	until(t, heard, seen("till_reference = 'lost' AND state = 'DECLINED'"))
	proxy.cut()
	if err := <-result; err == nil {
		t.Fatal("a decision whose commit was not answered is reported as stored")
	}
	stored, err := l.Decide(t.Context(), claim.Payment, payment.Approve("w-1"))
	if err != nil || stored.State != payment.Declined {
		t.Errorf("deciding again: %s, %v, want what was stored", stored.State, err)
	}
}

// A decline that commits without its reversal keeps a customer's money (trap L14).
func TestDeclineAndItsReversalAreStoredTogetherOrNotAtAll(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const horizon = time.Millisecond
	l, _ := open(t, db.URL, ledger.Options{}, horizon)
	conn := db.Connect(t)
	p := claimed(t, l, "torn")
	if _, err := conn.Exec(t.Context(), "ALTER TABLE public.operations ADD CONSTRAINT broken CHECK (false)"); err != nil {
		t.Fatal(err)
	}

	for name, write := range map[string]func() error{
		"decide": func() error {
			_, err := l.Decide(t.Context(), p, payment.DeclineAndReverse(payment.WalletTimeout))
			return err
		},
		"met": func() error {
			_, _, err := l.PaymentByID(t.Context(), p.Caller, p.ID)
			return err
		},
		"sweep": func() error {
			_, err := l.Recover(t.Context())
			return err
		},
	} {
		if err := write(); code(err) != "23514" {
			t.Errorf("%s: %v, want the reversal to have failed", name, err)
		}
		var state string
		if err := conn.QueryRow(t.Context(), "SELECT state FROM public.payments").Scan(&state); err != nil {
			t.Fatal(err)
		}
		if state != "IN_FLIGHT" {
			t.Errorf("%s: %s without a reversal", name, state)
		}
	}
}

// After a failover the old connections lead to what is now a standby. If they were
// kept, every claim would fail until they grow old.
func TestConnectionToAReadOnlyDatabaseIsReplaced(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Set(t, "default_transaction_read_only", "on")
	l, _ := open(t, db.URL, ledger.Options{MaxConns: 1}, never)
	if err := l.Ping(t.Context()); err == nil {
		t.Fatal("a read-only database answers a ping")
	}
	if _, err := l.Claim(t.Context(), ledgertest.Request("read only")); code(err) != "25006" {
		t.Fatalf("claim: %v, want a refusal", err)
	}

	db.Set(t, "default_transaction_read_only", "off") // seen by new connections only
	claimed(t, l, "writable again")
	if err := l.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
}

// The database came back, or somebody ended the sessions of this service. What a pool
// still holds then is dead, and were one such connection taken for the database, the
// gate would refuse everybody for a second that the database was there.
func TestAPingIsAboutTheDatabaseAndNotAboutALostConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const size = 4
	l, pool := open(t, db.URL, ledger.Options{MaxConns: size}, never)
	held := make([]*pgxpool.Conn, size)
	pids := make([]uint32, size)
	for i := range held {
		var err error
		if held[i], err = pool.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		pids[i] = held[i].Conn().PgConn().PID()
	}
	conn := db.Connect(t)
	for _, pid := range pids {
		// It waits for the end of the session, up to so many milliseconds.
		var ended bool
		if err := conn.QueryRow(t.Context(), "SELECT pg_terminate_backend($1, 10000)", pid).Scan(&ended); err != nil || !ended {
			t.Fatalf("end a session: %v, %v", ended, err)
		}
	}
	for _, c := range held { // unused since a moment only: nothing makes the pool suspect them
		c.Release()
	}
	before := pool.Stat().NewConnsCount()
	if err := l.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	if opened := pool.Stat().NewConnsCount() - before; opened != 1 {
		t.Errorf("%d connections opened, want 1: the test proves nothing if the old ones were not met", opened)
	}
}

// A pod whose clock is minutes off must neither decline what is young nor spare
// what is old (field report D26): this package may not ask for the time. What it
// does with a clock, time until a deadline, concerns its own patience.
func TestPodClocksDecideNothing(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		files++
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" && (s.Sel.Name == "Now" || s.Sel.Name == "Since") {
					t.Errorf("%s asks the process's clock: time.%s", name, s.Sel.Name)
				}
			}
			return true
		})
	}
	if files == 0 {
		t.Error("no files were read")
	}
}

// A pooler hands a session to the next client between two transactions. What one
// leaves behind in it, a timeout say, would strike a stranger (trap L19).
func TestNothingIsLeftInTheSession(t *testing.T) {
	t.Parallel()
	l, pool := open(t, pgtest.New(t).URL, ledger.Options{MaxConns: 1, Pooler: ledger.PoolerPgbouncer}, never)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	state := func() (s [3]string) {
		t.Helper()
		row := pool.QueryRow(t.Context(), `SELECT current_setting('statement_timeout'), current_setting('lock_timeout'),
			(SELECT count(*) FROM pg_catalog.pg_prepared_statements)::text`)
		if err := row.Scan(&s[0], &s[1], &s[2]); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := state()

	claim, err := l.Claim(ctx, ledgertest.Request("polite"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Decide(ctx, claim.Payment, payment.Approve("w-1")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Recover(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Errorf("the session changed (-before +after):\n%s", diff)
	}
}

// A pool that cannot work as configured must say so at the start, and must not
// write the database's password into a log.
func TestConnectRefusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		url  string
		opts ledger.Options
		want string
	}{
		"not a URL":            {"postgres://u:secret@host:port/db", ledger.Options{}, "database URL"},
		"unknown pooler":       {"postgres://u:secret@host/db", ledger.Options{Pooler: "pgpool"}, `"pgpool"`},
		"parameter, pgbouncer": {"postgres://u:secret@host/db?statement_timeout=1s", ledger.Options{Pooler: ledger.PoolerPgbouncer}, "statement_timeout"},
	} {
		_, err := ledger.Connect(t.Context(), c.url, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want something about %s", name, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error tells the password", name)
		}
	}
	if _, err := ledger.New(nil, ledger.Config{}); err == nil {
		t.Error("a ledger without a horizon declines every payment at once")
	}
}

// Errors go to logs. An account or a key there is a leak.
func TestErrorsNameNoAccountAndNoKey(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	if _, err := db.Connect(t).Exec(t.Context(), "ALTER TABLE public.payments ADD CONSTRAINT broken CHECK (account IS NULL)"); err != nil {
		t.Fatal(err)
	}
	_, err := l.Claim(t.Context(), ledgertest.Request("key-of-a-till"))
	if err == nil {
		t.Fatal("the claim was stored")
	}
	for _, secret := range []string{"key-of-a-till", ledgertest.Request("").Account} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("%q tells %q", err, secret)
		}
	}
}

// open makes a ledger with a pool of its own, as a replica has.
func open(tb testing.TB, url string, opts ledger.Options, horizon time.Duration) (*ledger.Ledger, *pgxpool.Pool) {
	tb.Helper()
	return openWith(tb, url, opts, ledger.Config{Horizon: horizon})
}

func openWith(tb testing.TB, url string, opts ledger.Options, config ledger.Config) (*ledger.Ledger, *pgxpool.Pool) {
	tb.Helper()
	if opts.MaxConns == 0 {
		opts.MaxConns = 8
	}
	pool, err := ledger.Connect(tb.Context(), url, opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	l, err := ledger.New(pool, config)
	if err != nil {
		tb.Fatal(err)
	}
	return l, pool
}

func claimed(tb testing.TB, l *ledger.Ledger, key payment.Key) payment.Payment {
	tb.Helper()
	claim, err := l.Claim(tb.Context(), ledgertest.Request(key))
	if err != nil {
		tb.Fatal(err)
	}
	if claim.Status != payment.ClaimNew {
		tb.Fatalf("claim status %d, want the key to be ours", claim.Status)
	}
	return claim.Payment
}

// numbered is a request with a key like a good till's, a UUIDv7, that says n.
func numbered(n int) payment.Request {
	id := uuid.UUID{0x01, 0x90, 0, 0, byte(n >> 8), byte(n), 0x70, 0, 0x80}
	return ledgertest.Request(payment.Key(id.String()))
}

// begin begins a transaction that is rolled back at the end, if it is open then.
func begin(tb testing.TB, db *pgtest.DB) pgx.Tx {
	tb.Helper()
	tx, err := db.Connect(tb).Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(tb.Context())) })
	return tx
}

// executor is a connection or a transaction.
type executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// insert writes the row of a claim by hand, as of the SQL expression at.
func insert(tb testing.TB, e executor, req payment.Request, at string) {
	tb.Helper()
	if err := tryInsert(tb, e, req, at); err != nil {
		tb.Fatal(err)
	}
}

func tryInsert(tb testing.TB, e executor, req payment.Request, at string) error {
	tb.Helper()
	hash, fingerprint := req.Key.Hash(), req.Fingerprint()
	_, err := e.Exec(tb.Context(), `
INSERT INTO public.payments (id, caller, operation, key_hash, fingerprint, reference, account, amount_minor, currency, state, created_at)
SELECT public.uuid_v7(at), $1, $2, $3, $4, $5, $6, $7, $8, 'IN_FLIGHT', at FROM (SELECT `+at+` AS at) AS clock`,
		req.Caller, string(req.Operation), hash[:], fingerprint[:], req.DeriveReference().String(),
		req.Account, req.Amount.AmountMinor, req.Amount.Currency)
	return err
}

// code is the SQLSTATE of err.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
