package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/internal/queue"
	"github.com/safeledger/safeledger/internal/telemetry"
)

// openQueueLedger is a ledger and how many of its follow-ups are pending.
func openQueueLedger(tb testing.TB) (*ledger.Ledger, func() int) {
	tb.Helper()
	db := pgtest.New(tb)
	l, ok := openLedger(tb, db.URL).(*ledger.Ledger)
	if !ok {
		tb.Fatal("not the ledger on PostgreSQL")
	}
	conn := db.Connect(tb)
	return l, func() (pending int) {
		if err := conn.QueryRow(tb.Context(), `SELECT count(*) FROM operations WHERE due_at IS NOT NULL`).Scan(&pending); err != nil {
			tb.Fatal(err)
		}
		return pending
	}
}

func accept(tb testing.TB, l *ledger.Ledger, from, until int) {
	tb.Helper()
	const tills = 16
	done := make(chan error, tills)
	for till := range tills {
		go func() {
			for i := from + till; i < until; i += tills {
				got, err := l.Accept(tb.Context(), payment.FollowUpRequest{
					Caller: "bench", Kind: payment.Credit, Key: payment.Key(fmt.Sprintf("key-of-%d", i)),
					Account: "ALICE", Amount: payment.Money{AmountMinor: 1, Currency: "EUR"},
				})
				if err == nil && got.Status != payment.Accepted {
					err = fmt.Errorf("accept: status %d", got.Status)
				}
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range tills {
		if err := <-done; err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkAccept is claim, reservation and work item of a follow-up, durable, by
// sixteen tills at once.
func BenchmarkAccept(b *testing.B) {
	l, _ := openQueueLedger(b)
	b.ResetTimer()
	accept(b, l, 0, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "accepted/s")
}

// lane is the worker's view of a wallet that approves at once.
type lane struct{ instant }

func (lane) BreakerState() string { return "closed" }

// BenchmarkQueue is work with its outcome durable: lease, a wallet that takes no
// time, settle; one replica with its 32 workers.
func BenchmarkQueue(b *testing.B) {
	l, pending := openQueueLedger(b)
	accept(b, l, 0, b.N)
	q, err := queue.New(l, lane{}, queue.Config{
		Workers: 32, Lease: 20 * time.Second, CallLimit: 2 * time.Second,
		BackoffMin: time.Second, BackoffMax: 5 * time.Minute, ParkAfter: 72 * time.Hour, SettleWindow: 15 * time.Minute,
		LateChecks: []time.Duration{time.Hour}, LookupsPerSecond: 20,
		Observer: telemetry.New(prometheus.NewRegistry(), "bench", "bench"), Log: telemetry.NewLogger(io.Discard, slog.LevelWarn),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	ended := make(chan struct{})
	b.ResetTimer()
	go func() {
		q.Run(ctx)
		close(ended)
	}()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for pending() > 0 {
		<-tick.C
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
	b.StopTimer()
	stop()
	<-ended
}
