package memory_test

import (
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/ledger/memory"
)

// A fake that drifts from PostgreSQL makes every test that uses it a lie.
func TestMemoryKeepsTheLedgersPromises(t *testing.T) {
	t.Parallel()
	ledgertest.Run(t, func(_ *testing.T, horizon time.Duration) ledgertest.Ledger {
		return memory.New(memory.Config{Horizon: horizon})
	})
}
