package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/safeledger/safeledger/internal/payment"
)

// The metrics of the work queue. Its depth, ages and money are those of the
// follow-ups that are open, read from the ledger: see SetExposures.
var (
	queueAttempts = Metric{
		"safeledger_queue_attempts_total", "counter",
		[]string{"kind", "outcome", "reason"},
		"Sends of the work queue by how they ended. What was postponed without a send is not among them.",
	}
	queueRetries = Metric{
		"safeledger_queue_retries_total", "counter",
		[]string{"budget"},
		"What the retry budget said to retries: granted, or refused, which postpones without spending an attempt.",
	}
	queueRetryTokens = Metric{
		"safeledger_queue_retry_tokens", "gauge", nil,
		"Tokens left in this replica's retry budget, at most 100. Near 0: the wallet fails what it is asked.",
	}
	queueTakenOver = Metric{
		"safeledger_queue_leases_lost_total", "counter",
		[]string{"kind"},
		"Work that was taken over from a worker that never reported: it died, or was stopped for longer than its lease.",
	}
	queueFenced = Metric{
		"safeledger_queue_fenced_writes_total", "counter",
		[]string{"kind"},
		"Attempts whose end was not written, because somebody else had taken over meanwhile.",
	}
	queueLateApplies = Metric{
		"safeledger_queue_late_applies_total", "counter",
		[]string{"operation"},
		"Payments that the wallet applied after their reversal had ended NOT_APPLIED. Each was reopened; any at all means that the settle window is too short.",
	}
	queueDuplicates = Metric{
		"safeledger_queue_duplicates_on_first_send_total", "counter",
		[]string{"kind"},
		"First sends that the wallet knew already: a lost claim, or something in between that repeats requests.",
	}
	followUpsEnded = Metric{
		"safeledger_follow_ups_ended_total", "counter",
		[]string{"kind", "state"},
		"Follow-ups that an attempt has ended, or parked.",
	}
)

// queueMetrics is the part of Metrics that the work queue tells.
type queueMetrics struct {
	attempts, retries, takenOver, fenced, lateApplies, duplicates, ended *prometheus.CounterVec
}

func newQueueMetrics(registry prometheus.Registerer) queueMetrics {
	q := queueMetrics{
		attempts: counters(queueAttempts), retries: counters(queueRetries), takenOver: counters(queueTakenOver),
		fenced: counters(queueFenced), lateApplies: counters(queueLateApplies), duplicates: counters(queueDuplicates),
		ended: counters(followUpsEnded),
	}
	registry.MustRegister(q.attempts, q.retries, q.takenOver, q.fenced, q.lateApplies, q.duplicates, q.ended)
	q.begin()
	return q
}

// begin makes the series that alerts wait for, see Metrics.begin.
func (q queueMetrics) begin() {
	for _, budget := range retryAnswers {
		q.retries.WithLabelValues(budget)
	}
	for _, kind := range followUpKinds {
		q.takenOver.WithLabelValues(kind)
		q.fenced.WithLabelValues(kind)
		q.duplicates.WithLabelValues(kind)
		for _, state := range endStates {
			q.ended.WithLabelValues(kind, state)
		}
	}
	for _, op := range payments {
		q.lateApplies.WithLabelValues(op)
	}
}

var (
	retryAnswers  = []string{"granted", "refused"}
	followUpKinds = []string{string(payment.Reversal), string(payment.Capture), string(payment.Release), string(payment.Credit)}
	endStates     = []string{string(payment.Succeeded), string(payment.Refused), string(payment.NotApplied), string(payment.Parked)}
)

// Attempt counts a send that was tried, and how it ended.
func (q queueMetrics) Attempt(kind payment.Operation, class payment.Class, reason payment.Reason) {
	q.attempts.WithLabelValues(known(followUpKinds, string(kind)), known(outcomes, class.String()), known(reasons, string(reason))).Inc()
}

// RetryGranted counts a retry that got a token.
func (q queueMetrics) RetryGranted() { q.retries.WithLabelValues("granted").Inc() }

// RetryRefused counts a retry that found the budget empty.
func (q queueMetrics) RetryRefused() { q.retries.WithLabelValues("refused").Inc() }

// TakenOver counts work whose worker never reported.
func (q queueMetrics) TakenOver(kind payment.Operation) {
	q.takenOver.WithLabelValues(known(followUpKinds, string(kind))).Inc()
}

// Fenced counts an attempt that ended after it had been taken over.
func (q queueMetrics) Fenced(kind payment.Operation) {
	q.fenced.WithLabelValues(known(followUpKinds, string(kind))).Inc()
}

// LateApply counts a payment that was found applied after its reversal had ended.
func (q queueMetrics) LateApply(operation payment.Operation) {
	q.lateApplies.WithLabelValues(known(payments, string(operation))).Inc()
}

// DuplicateOnFirstSend counts a first send that the wallet knew already.
func (q queueMetrics) DuplicateOnFirstSend(kind string) {
	q.duplicates.WithLabelValues(known(followUpKinds, kind)).Inc()
}

// Ended counts a follow-up that left PENDING for state.
func (q queueMetrics) Ended(kind payment.Operation, state payment.FollowUpState) {
	q.ended.WithLabelValues(known(followUpKinds, string(kind)), known(endStates, string(state))).Inc()
}
