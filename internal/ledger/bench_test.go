package ledger_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// BenchmarkClaimDecide is the two commits that a decision costs, on a database
// with fsync on, with so many tills at once, each alone and shared.
func BenchmarkClaimDecide(b *testing.B) {
	for _, tills := range []int{1, 8, 64, 256} {
		for _, alone := range []bool{true, false} {
			b.Run(fmt.Sprintf("tills=%d/alone=%v", tills, alone), func(b *testing.B) {
				l, _ := openWith(b, pgtest.New(b).URL, ledger.Options{MaxConns: int32(min(tills, 32))}, ledger.Config{Horizon: never, Alone: alone})
				b.SetParallelism(max(1, tills/runtime.GOMAXPROCS(0)))
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						if err := claimDecide(b, l); err != nil {
							b.Error(err)
							return
						}
					}
				})
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}

func claimDecide(b *testing.B, l *ledger.Ledger) error {
	key, err := uuid.NewV7()
	if err != nil {
		return err
	}
	claim, err := l.Claim(b.Context(), ledgertest.Request(payment.Key(key.String())))
	if err != nil {
		return err
	}
	d := payment.Approve(key.String())
	d.Calls = []payment.WalletCall{{Call: "debit", Outcome: "success", Reason: payment.ReasonApplied, Status: 201}}
	_, err = l.Decide(b.Context(), claim.Payment, d)
	return err
}

// BenchmarkClaimAccept is what a debit and its refund cost up to the 202: the
// decision's two commits and the one that accepts.
func BenchmarkClaimAccept(b *testing.B) {
	l, _ := open(b, pgtest.New(b).URL, ledger.Options{MaxConns: tillsAtOnce}, never)
	atOnce(b, func() error {
		key, err := uuid.NewV7()
		if err != nil {
			return err
		}
		claim, err := l.Claim(b.Context(), ledgertest.Request(payment.Key(key.String())))
		if err != nil {
			return err
		}
		p, err := l.Decide(b.Context(), claim.Payment, payment.Approve(key.String()))
		if err != nil {
			return err
		}
		_, err = l.Accept(b.Context(), ledgertest.Credit(p, payment.Key(key.String()), 100))
		return err
	})
}

// BenchmarkLeaseSettle is the queue with a wallet that takes no time: items leased
// by eights and settled one by one, by so many workers.
func BenchmarkLeaseSettle(b *testing.B) {
	db := pgtest.New(b)
	l, _ := open(b, db.URL, ledger.Options{MaxConns: tillsAtOnce}, never)
	payouts(b, db.Connect(b), b.N+1, "due", payment.FirstTurn, "-1 hour")
	work := make(chan payment.Work, tillsAtOnce)
	go func() {
		defer close(work)
		for left := b.N; left > 0; {
			some, err := l.Lease(b.Context(), order(min(tillsAtOnce, left)))
			if err != nil || len(some) == 0 {
				return
			}
			for _, w := range some {
				work <- w
			}
			left -= len(some)
		}
	}()
	atOnce(b, func() error {
		w := <-work
		settled, err := l.Settle(b.Context(), payment.Settlement{
			ID: w.ID, Fence: w.Fence, State: payment.Succeeded, WalletID: "w-1",
			Calls: []payment.WalletCall{{Call: "credit", Outcome: "success", Reason: payment.ReasonApplied, Status: 201}},
		})
		if err == nil && !settled {
			err = errors.New("not settled")
		}
		return err
	})
}

// tillsAtOnce is how many do something at once in a benchmark that does not vary it.
const tillsAtOnce = 8

// atOnce does f b.N times, tillsAtOnce at a time, and reports how many a second.
func atOnce(b *testing.B, f func() error) {
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ReportAllocs()
	b.ResetTimer()
	for range tillsAtOnce {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := f(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
}
