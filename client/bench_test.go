package client_test

import (
	"crypto/tls"
	"testing"

	"github.com/safeledger/safeledger/client"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// What a connection of its own costs each request, on loopback: what remains in a shop are
// the round trips.
func BenchmarkDebit(b *testing.B) {
	script := wallettest.Serve(func(wallettest.Request) string { return ok(201, approval) })
	for name, s := range map[string]*wallettest.Wallet{"plain": wallettest.New(b, script), "tls": wallettest.NewTLS(b, nil, script)} {
		b.Run(name, func(b *testing.B) {
			c, err := client.New(client.Config{BaseURL: s.URL(), Token: token, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.Roots()}})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.Debit(b.Context(), key, asked); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
