package wallet

import (
	"testing"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// BenchmarkSend is one debit over a warm loopback connection: what our own
// exchange, breaker and classification cost.
func BenchmarkSend(b *testing.B) {
	answer := wallettest.Answer(201, wallettest.AppliedBody(reference("bench").String()))
	w := wallettest.New(b, func(c *wallettest.Conn) {
		buf := make([]byte, 4096)
		for {
			if _, err := c.Conn.Read(buf); err != nil {
				return
			}
			c.Say(answer)
		}
	})
	client := newClient(b, w)
	warm(b, client, 1)
	in := instruction(payment.Debit, "bench")
	ctx := within(b, benchLimit)
	b.ReportAllocs()
	for b.Loop() {
		if got := client.Decisions().Send(ctx, in); got.Class != payment.Success {
			b.Fatalf("%+v", got)
		}
	}
}
