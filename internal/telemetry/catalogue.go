package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

//go:generate go test . -run TestDocumentIsWhatTheCodeSays -update

// Metric describes one metric. The metrics are made from these descriptions, and
// docs/metrics.md is kept equal to them by a test.
type Metric struct {
	Name   string
	Type   string // counter, gauge or histogram
	Labels []string
	Help   string
}

// The metrics, in base units (seconds, bytes; money in minor units).
var (
	decisions = Metric{
		"safeledger_decisions_total", "counter",
		[]string{"operation", "state", "code"},
		"Payments decided by the request that asked for them; code is why one was declined.",
	}
	decisionDuration = Metric{
		"safeledger_decision_duration_seconds", "histogram",
		[]string{"operation"},
		"From the arrival of a request to its answer, of those that decided a payment.",
	}
	decisionTimeLeft = Metric{
		"safeledger_decision_time_left_seconds", "histogram",
		[]string{"operation"},
		"What was left of the effective budget when the answer was ready; 0 if it was late.",
	}
	decisionsLate = Metric{
		"safeledger_decisions_late_total", "counter",
		[]string{"operation"},
		"Decisions that were answered after the effective budget. Up to 300 ms after it is as promised: our own writes get that much.",
	}
	replays = Metric{
		"safeledger_replays_total", "counter",
		[]string{"operation"},
		"Requests that were answered with what is stored for their key.",
	}
	keyConflicts = Metric{
		"safeledger_key_conflicts_total", "counter",
		[]string{"operation", "kind"},
		"Requests whose key is in flight, or was used for a different request.",
	}
	followUpsAccepted = Metric{
		"safeledger_follow_ups_accepted_total", "counter",
		[]string{"kind"},
		"Credits, captures and releases that tills have handed to the queue. Reversals are made with the decision that they undo.",
	}
	cancels = Metric{
		"safeledger_cancels_total", "counter",
		[]string{"operation"},
		"Cancels by key that were answered with 200, repeats included: tills whose answer got lost.",
	}
	outcomesUnknown = Metric{
		"safeledger_outcomes_unknown_total", "counter",
		[]string{"operation"},
		"Requests answered OUTCOME_UNKNOWN because our own storage failed.",
	}
	decisionsNotStored = Metric{
		"safeledger_decisions_not_stored_total", "counter",
		[]string{"operation"},
		"Those of the unknown outcomes whose payment was claimed: the wallet may have been called, and its answer could not be stored. Recovery declines them, with a reversal.",
	}
	gateRefused = Metric{
		"safeledger_gate_refused_total", "counter",
		[]string{"reason"},
		"Requests that the gate turned away with 503 and Retry-After, before anything was done.",
	}
	gateInFlight = Metric{
		"safeledger_gate_in_flight", "gauge", nil,
		"Requests that are admitted and not yet answered.",
	}
	recoveredPayments = Metric{
		"safeledger_payments_recovered_total", "counter", nil,
		"Payments that recovery declined, with a reversal, because no handler had decided them in time.",
	}

	walletCalls = Metric{
		"safeledger_wallet_calls_total", "counter",
		[]string{"lane", "call", "outcome", "reason"},
		"Wallet calls by how they ended, those that were not tried included. reason=\"duplicate\" in lane=\"decision\" is a lost claim or a hidden resend.",
	}
	walletCallDuration = Metric{
		"safeledger_wallet_call_duration_seconds", "histogram",
		[]string{"lane", "call", "outcome"},
		"How long wallet calls took that were tried. Seed ADR-0007 assumes a p99.9 of 400 ms in lane=\"decision\".",
	}
	walletInFlight = Metric{
		"safeledger_wallet_in_flight", "gauge",
		[]string{"lane"},
		"Places of the lane's bulkhead that are taken.",
	}
	breakerState = Metric{
		"safeledger_breaker_state", "gauge",
		[]string{"breaker", "state"},
		"1 for the state that the breaker is in, 0 for the others.",
	}
	breakerTransitions = Metric{
		"safeledger_breaker_transitions_total", "counter",
		[]string{"breaker", "state"},
		"Changes of a breaker's state, by the state that it went over to.",
	}

	followUpsOpen = Metric{
		"safeledger_follow_ups_open", "gauge",
		[]string{"kind", "state", "currency"},
		"Follow-ups that have not ended, reversals above all.",
	}
	followUpsOpenAmount = Metric{
		"safeledger_follow_ups_open_amount_minor_units", "gauge",
		[]string{"kind", "state", "currency"},
		"Their money, in minor units of the currency: what may be wrong with customers' accounts right now.",
	}
	followUpsOpenAge = Metric{
		"safeledger_follow_ups_open_oldest_age_seconds", "gauge",
		[]string{"kind", "state", "currency"},
		"Age of the oldest, by the database's clock when it was read.",
	}
	followUpsRead = Metric{
		"safeledger_follow_ups_read_timestamp_seconds", "gauge", nil,
		"When the three above were last read, in Unix time; absent until they have been. Old numbers look like good ones.",
	}

	buildInfo = Metric{
		"safeledger_build_info", "gauge",
		[]string{"version", "commit"},
		"Always 1; the labels say what is running.",
	}
)

// Catalogue lists the metrics of SafeLedger. Those of the Go runtime (go_…) and
// of the process (process_…) are served besides.
func Catalogue() []Metric {
	return []Metric{
		decisions, decisionDuration, decisionTimeLeft, decisionsLate, replays, keyConflicts, followUpsAccepted, cancels, outcomesUnknown, decisionsNotStored,
		gateRefused, gateInFlight, recoveredPayments,
		walletCalls, walletCallDuration, walletInFlight, breakerState, breakerTransitions,
		followUpsOpen, followUpsOpenAmount, followUpsOpenAge, followUpsRead, followUpsEnded,
		queueAttempts, queueRetries, queueRetryTokens, queueTakenOver, queueFenced, queueLateApplies, queueDuplicates, queueLeased,
		ledgerTransactionDuration, ledgerTransactionWrites, ledgerTransactionsUndone,
		ledgerReachable, recoverySwept, clockSkew, schemaVersion, limit,
		buildInfo,
	}
}

// The bounds of the classic buckets, in seconds. Each number of the budget
// (0.3, 0.8, 1.1, 2.4, and the 2.7 that every answer leaves by) is a bound, so
// that "how many were beyond it" is counted and not interpolated.
var (
	decisionBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 0.9, 1.1, 1.5, 2, 2.4, 2.7, 3}
	timeLeftBuckets = []float64{0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8, 1.1, 1.3, 1.6, 2, 2.2, 2.3, 2.4}
	// Dense about 400 ms, the p99.9 that everything is derived from: whether it
	// is 390 or 410 is the question that the numbers must answer.
	walletBuckets = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.33, 0.36, 0.38, 0.4, 0.42, 0.45, 0.5, 0.6, 0.7, 0.8, 1, 1.5, 2, 2.5}
)

func (m Metric) desc() *prometheus.Desc {
	return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil)
}

func counters(m Metric) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// histograms have classic buckets for every Prometheus and native ones, at most
// 10 % wide, for those that ask for them. The number of native buckets is
// bounded; when it is reached they are made coarser, at most once an hour.
func histograms(m Metric, bounds []float64) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:                            m.Name,
		Help:                            m.Help,
		Buckets:                         bounds,
		NativeHistogramBucketFactor:     1.1,
		NativeHistogramMaxBucketNumber:  160,
		NativeHistogramMinResetDuration: time.Hour,
	}, m.Labels)
}
