package ledger_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// BenchmarkClaimDecide is the two commits that a decision costs, on a database
// with fsync on, with so many tills at once.
func BenchmarkClaimDecide(b *testing.B) {
	for _, tills := range []int{1, 8} {
		b.Run(fmt.Sprintf("tills=%d", tills), func(b *testing.B) {
			l, _ := open(b, pgtest.New(b).URL, ledger.Options{MaxConns: int32(tills)}, never)
			work := make(chan struct{}, tills)
			done := make(chan error, tills)
			b.ReportAllocs()
			b.ResetTimer()
			for range tills {
				go func() {
					for range work {
						if err := claimDecide(b, l); err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
			}
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			for range tills {
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
		})
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
	_, err = l.Decide(b.Context(), claim.Payment.ID, payment.Approve(key.String()))
	return err
}
