package ledger_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// A queue that slows down as it fills up never empties again. Whatever waits (work
// that is not due, work that the allowances keep back, a newer release's, and what
// has ended), a lease reads what it hands out and no more.
func TestLeaseCostsTheSameHoweverMuchIsWaiting(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	conn := db.Connect(t)
	backlog(t, conn, 50_000)
	o := order(32)
	o.Retries = 0 // what waits for tokens is half of all

	for _, analysed := range []bool{false, true} { // before and after autovacuum has come by
		if analysed {
			execute(t, conn, "ANALYZE public.operations")
		}
		plan := explain(t, conn, ledger.LeaseStatement, ledger.LeaseArgs(o))
		if plan.rows != o.Limit {
			t.Errorf("%d rows were handed out, want %d", plan.rows, o.Limit)
		}
		if diff := slices.Compact(slices.Sorted(slices.Values(plan.scans))); slices.Contains(diff, "Seq Scan operations") ||
			!slices.Contains(diff, "Index Scan operations_due_idx") {
			t.Errorf("analysed %v: read by %v, want the queue's index", analysed, diff)
		}
		// 32 rows are found, locked, written, and written to each index: some 25 pages
		// each, nearly all of them the same ones.
		if most := 60 * o.Limit; plan.buffers > most {
			t.Errorf("analysed %v: %d buffers for %d rows, want at most %d", analysed, plan.buffers, o.Limit, most)
		}
	}

	// Work that has just been done leaves entries in the index that lead nowhere. The
	// first who comes by them marks them; nobody else follows them, vacuum or not.
	execute(t, conn, "UPDATE public.operations SET due_at = clock_timestamp() + interval '1 hour' WHERE account = 'due now'")
	explain(t, conn, ledger.LeaseStatement, ledger.LeaseArgs(o))
	// The index is still as large as it was; following every entry would be 6,250.
	if plan := explain(t, conn, ledger.LeaseStatement, ledger.LeaseArgs(o)); plan.rows != 0 || plan.buffers > 1000 {
		t.Errorf("with nothing due: %d rows from %d buffers, want them passed by", plan.rows, plan.buffers)
	}
	o.Sends = false
	if plan := explain(t, conn, ledger.LeaseStatement, ledger.LeaseArgs(o)); plan.rows != 0 || plan.buffers > 100 {
		t.Errorf("with the breaker open: %d rows from %d buffers, want a look and nothing", plan.rows, plan.buffers)
	}
}

// BenchmarkLeaseFromMillion is a lease of 32 and its undoing, with nothing else
// waiting and with a million.
func BenchmarkLeaseFromMillion(b *testing.B) {
	for name, n := range map[string]int{"empty": 0, "waiting=1000000": 1_000_000} {
		b.Run(name, func(b *testing.B) {
			db := pgtest.New(b)
			l, _ := open(b, db.URL, ledger.Options{MaxConns: 1}, never)
			conn := db.Connect(b)
			payouts(b, conn, 32, "due", payment.FirstTurn, "-3 hours")
			if n > 0 {
				backlog(b, conn, n)
				execute(b, conn, "VACUUM ANALYZE public.operations")
			}
			o := order(32)
			o.Retries = 0
			for b.Loop() {
				work, err := l.Lease(b.Context(), o)
				if err != nil || len(work) != 32 {
					b.Fatalf("%d leased, %v", len(work), err)
				}
				b.StopTimer()
				for _, w := range work {
					if err := l.HandBack(b.Context(), w); err != nil {
						b.Fatal(err)
					}
				}
				execute(b, conn, "UPDATE public.operations SET due_at = clock_timestamp() - interval '3 hours' WHERE account = 'due'")
				b.StartTimer()
			}
			p := explain(b, conn, ledger.LeaseStatement, ledger.LeaseArgs(o))
			b.ReportMetric(float64(p.buffers), "buffers")
			e := explain(b, conn, ledger.ExposuresStatement)
			b.ReportMetric(e.milliseconds, "exposures-ms")
		})
	}
}

// backlog writes n credits: an eighth is due, half waits for a token, the rest is
// not due yet.
func backlog(tb testing.TB, conn *pgx.Conn, n int) {
	tb.Helper()
	payouts(tb, conn, n/8, "due now", payment.FirstTurn, "-1 minute")
	payouts(tb, conn, n/2, "no token", payment.RetryTurn, "-1 hour")
	payouts(tb, conn, n-n/8-n/2, "later", payment.FirstTurn, "1 hour")
}

// plan is what EXPLAIN ANALYZE tells of a statement that was undone.
type plan struct {
	rows, buffers int
	milliseconds  float64
	scans         []string
}

type planNode struct {
	Type     string     `json:"Node Type"`
	Index    string     `json:"Index Name"`
	Relation string     `json:"Relation Name"`
	Rows     float64    `json:"Actual Rows"`
	Hit      int        `json:"Shared Hit Blocks"`
	Read     int        `json:"Shared Read Blocks"`
	Cond     string     `json:"Index Cond"`
	Plans    []planNode `json:"Plans"`
}

// readsWhole reports whether n reads a table or an index from one end to the other; first
// are the columns by which indexes are in order.
func (n planNode) readsWhole(first map[string]string) bool {
	switch n.Type {
	case "Seq Scan":
		return true
	case "Index Scan", "Index Only Scan", "Bitmap Index Scan":
		return !strings.Contains(n.Cond, first[n.Index])
	}
	return false
}

func explain(tb testing.TB, conn *pgx.Conn, sql string, args ...any) plan {
	tb.Helper()
	tx, err := conn.Begin(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(tb.Context())) }()
	var text []byte
	if err := tx.QueryRow(tb.Context(), "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "+sql, args...).Scan(&text); err != nil {
		tb.Fatal(err)
	}
	var answer []struct {
		Plan planNode `json:"Plan"`
		Time float64  `json:"Execution Time"`
	}
	if err := json.Unmarshal(text, &answer); err != nil || len(answer) != 1 {
		tb.Fatalf("%v: %s", err, text)
	}
	p := plan{rows: int(answer[0].Plan.Rows), buffers: answer[0].Plan.Hit + answer[0].Plan.Read, milliseconds: answer[0].Time}
	var walk func(planNode)
	walk = func(n planNode) {
		if strings.HasSuffix(n.Type, "Scan") && n.Relation+n.Index != "" {
			what := n.Index
			if what == "" {
				what = n.Relation
			}
			p.scans = append(p.scans, n.Type+" "+what)
		}
		for _, child := range n.Plans {
			walk(child)
		}
	}
	walk(answer[0].Plan)
	return p
}
