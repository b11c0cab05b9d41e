package ledger_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// gathered is a ledger whose transactions the test lets go, so that what it writes at
// once shares one of them, however fast the machine.
type gathered struct {
	*ledger.Ledger

	pool  *pgxpool.Pool
	came  chan transaction
	front transaction // on its way, and held up
	busy  sync.WaitGroup
}

// transaction is one that is about to be made for so many writes, once it is let go.
type transaction struct {
	writes int
	letGo  chan struct{}
}

// gather makes a ledger with one connection that knows its statements, and holds up a
// transaction of one claim.
func gather(t *testing.T, url string) *gathered {
	t.Helper()
	g := &gathered{came: make(chan transaction)}
	var holding atomic.Bool
	g.Ledger, g.pool = openWith(t, url, ledger.Options{MaxConns: 1}, ledger.Config{Horizon: never, Shared: func(writes int) func(bool) {
		if holding.Load() {
			letGo := make(chan struct{})
			g.came <- transaction{writes, letGo}
			<-letGo
		}
		return func(bool) {}
	}})
	approved(t, g.Ledger, payment.Debit, "known by now")
	holding.Store(true)
	g.busy.Go(func() {
		if _, err := g.Claim(t.Context(), ledgertest.Request("in front")); err != nil {
			t.Errorf("the transaction in front: %v", err)
		}
	})
	g.front = <-g.came
	return g
}

// together runs all of do at once, in one shared transaction, and waits for them.
// before is called when that transaction is about to be made and the one in front of it
// has ended.
func (g *gathered) together(t *testing.T, before func(), do ...func()) {
	t.Helper()
	var sharing sync.WaitGroup
	for _, f := range do {
		sharing.Go(f)
	}
	for end := time.Now().Add(20 * time.Second); g.Waiting() < len(do); {
		if time.Now().After(end) {
			t.Errorf("%d writes wait, want %d", g.Waiting(), len(do))
			break
		}
	}
	close(g.front.letGo)
	shared := <-g.came
	if shared.writes != len(do) {
		t.Errorf("%d writes share a transaction, want %d", shared.writes, len(do))
	}
	g.busy.Wait()
	if before != nil {
		before()
	}
	g.busy.Go(func() { // what they do after it is not held up
		for {
			select {
			case more := <-g.came:
				close(more.letGo)
			case <-t.Context().Done():
				return
			}
		}
	})
	close(shared.letGo)
	sharing.Wait()
}

// In one transaction are new keys, keys that have owners in every state, decisions of
// all kinds and a decision that comes too late. Each must be answered as if it had
// been alone.
func TestASharedTransactionGivesEachItsOwnAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	approvedBefore := approved(t, l, payment.Debit, "approved before")
	inFlight := claimed(t, l, "in flight")
	toApprove, toDecline, toReverse := claimed(t, l, "to approve"), claimed(t, l, "to decline"), claimed(t, l, "to reverse")
	late := claimed(t, l, "late")
	if _, err := l.Decide(t.Context(), late, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}

	g := gather(t, db.URL)
	claim := func(req payment.Request, want payment.ClaimStatus, of uuid.UUID) func() {
		return func() {
			c, err := g.Claim(t.Context(), req)
			if err != nil || c.Status != want || (of != uuid.Nil && c.Payment.ID != of) {
				t.Errorf("claim of %q: status %d of %v (%v), want %d of %v", req.Key, c.Status, c.Payment.ID, err, want, of)
			}
			if want == payment.ClaimNew {
				read, found, err := l.PaymentByKey(t.Context(), req.Caller, req.Operation, req.Key)
				if diff := cmp.Diff(read, c.Payment); err != nil || !found || diff != "" {
					t.Errorf("claim of %q is not what is stored (%v): %s", req.Key, err, diff)
				}
			}
		}
	}
	decide := func(p payment.Payment, d payment.Decision, state payment.State, code payment.Code, followUps int) func() {
		return func() {
			stored, err := g.Decide(t.Context(), p, d)
			if err != nil || stored.State != state || stored.Code != code || stored.ID != p.ID {
				t.Errorf("decide %s: %s %s (%v), want %s %s", p.ID, stored.State, stored.Code, err, state, code)
			}
			read, _, err := l.PaymentByID(t.Context(), p.Caller, p.ID)
			if err != nil || len(read.FollowUps) != followUps {
				t.Errorf("decide %s: %d follow-ups (%v), want %d", p.ID, len(read.FollowUps), err, followUps)
			}
			read.FollowUps = nil
			if diff := cmp.Diff(read, stored); diff != "" {
				t.Errorf("decide %s is not what is stored: %s", p.ID, diff)
			}
		}
	}
	plain, hold, other := ledgertest.Request("plain"), ledgertest.Request("approved before"), ledgertest.Request("late")
	hold.Operation, other.Amount.AmountMinor = payment.Hold, 1
	full := ledgertest.Request("full")
	full.TillReference, full.Metadata = `receipt "4711", {x}`, map[string]string{"lane": `3, "left" \ {a,b}`, "empty": ""}
	g.together(t, nil,
		claim(plain, payment.ClaimNew, uuid.Nil),
		claim(full, payment.ClaimNew, uuid.Nil),
		claim(hold, payment.ClaimNew, uuid.Nil), // the key of another operation
		claim(other, payment.ClaimMismatch, uuid.Nil),
		claim(ledgertest.Request("approved before"), payment.ClaimDecided, approvedBefore.ID),
		claim(ledgertest.Request("in flight"), payment.ClaimInFlight, inFlight.ID),
		decide(toApprove, payment.Approve("w-7"), payment.Approved, "", 0),
		decide(toDecline, payment.Decline("INSUFFICIENT_FUNDS"), payment.Declined, "INSUFFICIENT_FUNDS", 0),
		decide(toReverse, payment.DeclineAndReverse(payment.WalletUnavailable), payment.Declined, payment.WalletUnavailable, 1),
		decide(late, payment.Approve("w-8"), payment.Declined, payment.WalletTimeout, 1),
	)
}

// PostgreSQL refuses what one of them brings along. The others must not even notice.
func TestPoisonInASharedTransactionHarmsOnlyItself(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	decided := claimed(t, l, "to decide")
	g := gather(t, db.URL)
	poison := ledgertest.Request("poison")
	poison.Account = "no \x00 text" // nothing that the API lets through
	g.together(t, nil,
		func() {
			if claim, err := g.Claim(t.Context(), poison); err == nil {
				t.Errorf("the poison was stored: %+v", claim)
			}
		},
		func() {
			if claim, err := g.Claim(t.Context(), ledgertest.Request("beside it")); err != nil || claim.Status != payment.ClaimNew {
				t.Errorf("a claim beside the poison: status %d, %v", claim.Status, err)
			}
		},
		func() {
			if p, err := g.Decide(t.Context(), decided, payment.Approve("w-1")); err != nil || p.State != payment.Approved {
				t.Errorf("a decision beside the poison: %s, %v", p.State, err)
			}
		},
	)
}

// Somebody has inserted a key and does not commit. Whoever claims the same key hears
// that it is in flight; whoever else shares his transaction is served meanwhile.
func TestATwinThatIsNotCommittedHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	decided := claimed(t, l, "to decide")
	req := ledgertest.Request("twin")
	insert(t, begin(t, db), req, "clock_timestamp()") // ends with the test

	g := gather(t, db.URL)
	g.together(t, nil,
		func() {
			if claim, err := g.Claim(t.Context(), req); err != nil || claim.Status != payment.ClaimInFlight {
				t.Errorf("the twin: status %d, %v", claim.Status, err)
			}
		},
		func() {
			if claim, err := g.Claim(t.Context(), ledgertest.Request("beside it")); err != nil || claim.Status != payment.ClaimNew {
				t.Errorf("a claim beside the twin: status %d, %v", claim.Status, err)
			}
		},
		func() {
			if p, err := g.Decide(t.Context(), decided, payment.Approve("w-1")); err != nil || p.State != payment.Approved {
				t.Errorf("a decision beside the twin: %s, %v", p.State, err)
			}
		},
	)
}

// The answer to the commit of a shared transaction is lost. It is durable all the
// same, and nobody who shared it may be told that it is, or that it is not.
func TestALostAnswerIsUnknownToAllWhoSharedIt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	watch := db.Connect(t)
	proxy := newCutter(t, db.URL)
	direct, _ := open(t, db.URL, ledger.Options{}, never)
	decided := claimed(t, direct, "to decide")

	g := gather(t, proxy.url)
	failed := make(chan error, 3)
	g.together(t, func() {
		heard := proxy.loseAnswers()
		g.busy.Go(func() {
			defer proxy.cut()
			<-heard
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
				var durable bool
				err := watch.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM public.payments WHERE wallet_id = 'w-1')").Scan(&durable)
				if err != nil || durable {
					return
				}
			}
		})
	},
		func() { _, err := g.Claim(t.Context(), ledgertest.Request("first")); failed <- err },
		func() { _, err := g.Claim(t.Context(), ledgertest.Request("second")); failed <- err },
		func() { _, err := g.Decide(t.Context(), decided, payment.Approve("w-1")); failed <- err },
	)
	for range cap(failed) {
		if err := <-failed; err == nil {
			t.Error("a write whose commit was not answered is reported as done")
		}
	}
	for _, key := range []payment.Key{"first", "second"} {
		if claim, err := g.Claim(t.Context(), ledgertest.Request(key)); err != nil || claim.Status != payment.ClaimInFlight {
			t.Errorf("%s again: status %d, %v, want the lost one in the way", key, claim.Status, err)
		}
	}
	if p, err := g.Decide(t.Context(), decided, payment.Decline(payment.WalletTimeout)); err != nil || p.State != payment.Approved {
		t.Errorf("deciding again: %s, %v, want what was stored", p.State, err)
	}
}

// Two replicas claim the same keys at once and decide in shared transactions, each
// while the other claims what it is deciding. Each key has one owner, and PostgreSQL
// never has to break a deadlock, which takes it a second.
func TestReplicasSharingTransactionsNeverDeadlock(t *testing.T) {
	t.Parallel()
	const tills, rounds = 24, 20
	db := pgtest.New(t)
	db.Set(t, "deadlock_timeout", "5ms") // well before anybody gives up waiting for a lock
	conn := db.Connect(t)
	var replicas [2]*ledger.Ledger
	var pools [2]*pgxpool.Pool
	for i := range replicas {
		replicas[i], pools[i] = open(t, db.URL, ledger.Options{}, never)
	}
	var wg sync.WaitGroup
	for till := range tills {
		wg.Go(func() {
			for round := range rounds {
				req := ledgertest.Request(payment.Key(fmt.Sprintf("key-%d-%d", till, round)))
				// Both want the key; whoever gets it decides, while the other asks again.
				var claims [2]payment.Claim
				var racing sync.WaitGroup
				for i, l := range replicas {
					racing.Go(func() {
						var err error
						if claims[i], err = l.Claim(t.Context(), req); err != nil {
							t.Errorf("claim: %v", err)
						}
					})
				}
				racing.Wait()
				owner := slices.IndexFunc(claims[:], func(c payment.Claim) bool { return c.Status == payment.ClaimNew })
				if owner < 0 || claims[1-owner].Status == payment.ClaimNew {
					t.Errorf("%s: claimed as %d and %d, want one owner", req.Key, claims[0].Status, claims[1].Status)
					return
				}
				racing.Go(func() {
					if _, err := replicas[1-owner].Claim(t.Context(), req); err != nil {
						t.Errorf("claim again: %v", err)
					}
				})
				d := payment.Approve("w-1")
				if till%3 == 0 {
					d = payment.DeclineAndReverse(payment.WalletTimeout)
				}
				if p, err := replicas[owner].Decide(t.Context(), claims[owner].Payment, d); err != nil || p.State != d.State {
					t.Errorf("decide: %s, %v", p.State, err)
				}
				racing.Wait()
			}
		})
	}
	wg.Wait()
	for _, pool := range pools {
		pool.Close() // a session reports what it has counted when it ends, at the latest
	}
	// It ends a moment after its connection.
	for sessions := 1; sessions > 0; {
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()").Scan(&sessions); err != nil {
			t.Fatal(err)
		}
	}
	var deadlocks int
	if err := conn.QueryRow(t.Context(), "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").Scan(&deadlocks); err != nil {
		t.Fatal(err)
	}
	if deadlocks != 0 {
		t.Errorf("%d deadlocks", deadlocks)
	}
}
