package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The metrics of the transactions that several writes share (ADR 0018).
var (
	ledgerTransactionDuration = Metric{
		"safeledger_ledger_transaction_duration_seconds", "histogram", nil,
		"Transactions that store claims, decisions and settlements, from the wait for a connection to the answer of the commit.",
	}
	ledgerTransactionWrites = Metric{
		"safeledger_ledger_transaction_writes", "histogram", nil,
		"How many claims, decisions and settlements shared one transaction.",
	}
	ledgerTransactionsUndone = Metric{
		"safeledger_ledger_transactions_undone_total", "counter", nil,
		"Shared transactions that PostgreSQL refused, so that each write was tried alone: a twin's claim that was not committed for 50 ms, or a fault.",
	}
)

// ledgerMetrics is the part of Metrics that the ledger tells.
type ledgerMetrics struct {
	took, writes prometheus.Observer
	undone       prometheus.Counter
}

var (
	transactionBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1, 2.5}
	writesBuckets      = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
)

func newLedgerMetrics(registry prometheus.Registerer) ledgerMetrics {
	took, writes := histograms(ledgerTransactionDuration, transactionBuckets), histograms(ledgerTransactionWrites, writesBuckets)
	undone := counters(ledgerTransactionsUndone)
	registry.MustRegister(took, writes, undone)
	return ledgerMetrics{took: took.WithLabelValues(), writes: writes.WithLabelValues(), undone: undone.WithLabelValues()}
}

// Shared tells of a transaction that so many writes share, and when it has ended;
// undone means that each of them had to be tried alone.
func (m ledgerMetrics) Shared(writes int) (ended func(undone bool)) {
	begin := time.Now()
	m.writes.Observe(float64(writes))
	return func(undone bool) {
		m.took.Observe(time.Since(begin).Seconds())
		if undone {
			m.undone.Inc()
		}
	}
}
