package e2e

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/pgtest"
)

// Seed "public HTTP retry semantics", verification 3: when the answer to a COMMIT is
// lost or late, nobody knows what is stored. The till hears exactly that, without
// Retry-After, nothing more is sent to the wallet, and the same key converges to one
// answer that is the stored one.
func TestACommitWhoseAnswerIsLostIsAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		which     int64 // of the commits of a debit: 1 is the claim, 2 the decision
		delay     time.Duration
		wantCalls int
		wantFinal int // of the replay: what the commit has really done
	}{
		{"the claim's, cut", 1, 0, 0, http.StatusFailedDependency},
		{"the claim's, late", 1, 4 * time.Second, 0, http.StatusFailedDependency},
		{"the decision's, cut", 2, 0, 1, http.StatusCreated},
		{"the decision's, late", 2, 4 * time.Second, 1, http.StatusCreated},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			direct := w.databaseURL
			cutter := newCutter(t, direct)
			w.databaseURL = cutter.url
			r := w.start(plain, quick...)
			w.databaseURL = direct
			if warm := r.mustDebit("key-of-the-first", "BERT"); warm.status != http.StatusCreated {
				t.Fatalf("before: %d %s", warm.status, warm.body)
			}

			cutter.arm(c.which, c.delay)
			answer := r.mustDebit("key-of-the-lost", "ANNA")
			if answer.status != http.StatusServiceUnavailable || answer.member("code") != "OUTCOME_UNKNOWN" || answer.header.Get("Retry-After") != "" {
				t.Errorf("answered %d %v %s", answer.status, answer.header, answer.body)
			}
			if cutter.struck.Load() != 1 {
				t.Fatalf("the fault struck %d times", cutter.struck.Load())
			}
			if _, asked := w.applied("ANNA"); asked != c.wantCalls {
				t.Errorf("the wallet was asked %d times, want %d", asked, c.wantCalls)
			}
			r.awaitDecision("key-of-the-lost")
			if final := r.mustDebit("key-of-the-lost", "ANNA"); final.status != c.wantFinal || final.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("the replay: %d %v %s", final.status, final.header, final.body)
			}
			if _, asked := w.applied("ANNA"); asked != c.wantCalls {
				t.Errorf("in the end the wallet was asked %d times, want %d", asked, c.wantCalls)
			}
		})
	}
}

// Verification 3 again: a ledger that is locked, with more tills at once than there are
// connections. Each hears in its budget, and none hears that it may simply repeat.
func TestALockedLedgerIsAnUnknownOutcomeForEverybodyAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.start(plain, append(quick, "DATABASE_MAX_CONNS=4", "GATE_MAX_IN_FLIGHT=64", "WALLET_MAX_IN_FLIGHT=32", "QUEUE_WORKERS=8")...)
	conn, err := pgx.Connect(t.Context(), w.databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `LOCK TABLE payments IN ACCESS EXCLUSIVE MODE`); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 32 {
		all.Go(func() {
			answer, err := r.debit(fmt.Sprintf("key-of-%d", i), "ANNA")
			if err != nil {
				t.Error(err)
				return
			}
			switch answer.member("code") {
			case "OUTCOME_UNKNOWN":
				if answer.header.Get("Retry-After") != "" {
					t.Error("an unknown outcome with Retry-After")
				}
			case "NOT_READY": // the gate has noticed
			default:
				t.Errorf("answered %d %s", answer.status, answer.body)
			}
		})
	}
	all.Wait()
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, asked := w.applied("ANNA"); asked != 0 {
		t.Errorf("%d requests went to the wallet without a claim", asked)
	}
	after := r.mustDebit("key-of-the-next", "BERT")
	for range 50 { // until the gate has noticed that the lock is gone
		if after.member("code") != "NOT_READY" {
			break
		}
		tick := time.NewTimer(100 * time.Millisecond)
		<-tick.C
		after = r.mustDebit("key-of-the-next", "BERT")
	}
	if after.status != http.StatusCreated {
		t.Errorf("afterwards: %d %s", after.status, after.body)
	}
}

// cutter passes on what a client and PostgreSQL say to each other, and strikes at
// the answer to one COMMIT: cuts the connection instead of passing it on, or passes
// it on late.
type cutter struct {
	url    string
	left   atomic.Int64 // commits until it strikes; 0 or below: not armed
	delay  atomic.Int64
	struck atomic.Int64
}

func newCutter(t *testing.T, databaseURL string) *cutter {
	t.Helper()
	c := &cutter{}
	c.url = pgtest.Through(t, databaseURL, func(client, server net.Conn) {
		// The pool of the tills: what the process does besides commits too.
		var tills atomic.Bool
		var both sync.WaitGroup
		both.Go(func() {
			c.pass(client, server, func(message []byte) {
				if bytes.Contains(message, []byte("safeledger tills")) {
					tills.Store(true)
				}
			})
		})
		both.Go(func() {
			c.pass(server, client, func(message []byte) {
				if tills.Load() {
					c.strike(message, client)
				}
			})
		})
		both.Wait()
	})
	return c
}

func (c *cutter) arm(which int64, delay time.Duration) {
	c.delay.Store(int64(delay))
	c.left.Store(which)
}

func (c *cutter) pass(from, to net.Conn, look func(message []byte)) {
	defer func() { _, _ = from.Close(), to.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		look(buffer[:n])
		if _, werr := to.Write(buffer[:n]); err != nil || werr != nil {
			return
		}
	}
}

// strike looks for the answer to a COMMIT in what the server says to a client.
func (c *cutter) strike(message []byte, client net.Conn) {
	// A CommandComplete message: its type, its length, the tag.
	committed := []byte("C\x00\x00\x00\x0bCOMMIT\x00")
	if !bytes.Contains(message, committed) || c.left.Load() <= 0 || c.left.Add(-1) != 0 {
		return
	}
	c.struck.Add(1)
	delay := time.Duration(c.delay.Load())
	if delay == 0 {
		_ = client.Close()
		return
	}
	timer := time.NewTimer(delay)
	<-timer.C
}
