// Package telemetry is how SafeLedger is watched: the metrics, the log and the
// listener that operators and Kubernetes ask. Nothing in it may carry a secret,
// and no label may grow with what tills, callers or wallets send.
package telemetry

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/safeledger/safeledger/internal/payment"
)

// Metrics counts what the other packages tell it. Its methods are what they
// declare in small interfaces of their own; all are safe for concurrent use and
// none blocks.
type Metrics struct {
	decisions        *prometheus.CounterVec
	decisionDuration *prometheus.HistogramVec
	timeLeft         *prometheus.HistogramVec
	late             *prometheus.CounterVec
	replays          *prometheus.CounterVec
	keyConflicts     *prometheus.CounterVec
	accepted         *prometheus.CounterVec
	cancels          *prometheus.CounterVec
	outcomesUnknown  *prometheus.CounterVec
	notStored        *prometheus.CounterVec
	refused          *prometheus.CounterVec
	recovered        prometheus.Counter

	walletCalls        *prometheus.CounterVec
	walletDuration     *prometheus.HistogramVec
	breakerTransitions *prometheus.CounterVec

	queueMetrics
	ledgerMetrics

	watched  atomic.Pointer[watched]
	exposure exposure
	vitals
}

// New registers all metrics with registry, those of the Go runtime and of the
// process included. Two of them cannot share a registry: that is a fault of the
// program and panics.
func New(registry prometheus.Registerer, version, commit string) *Metrics {
	m := &Metrics{
		decisions:        counters(decisions),
		decisionDuration: histograms(decisionDuration, decisionBuckets),
		timeLeft:         histograms(decisionTimeLeft, timeLeftBuckets),
		late:             counters(decisionsLate),
		replays:          counters(replays),
		keyConflicts:     counters(keyConflicts),
		accepted:         counters(followUpsAccepted),
		cancels:          counters(cancels),
		outcomesUnknown:  counters(outcomesUnknown),
		notStored:        counters(decisionsNotStored),
		refused:          counters(gateRefused),
		recovered:        counters(recoveredPayments).WithLabelValues(),

		walletCalls:        counters(walletCalls),
		walletDuration:     histograms(walletCallDuration, walletBuckets),
		breakerTransitions: counters(breakerTransitions),
	}
	m.queueMetrics = newQueueMetrics(registry)
	m.ledgerMetrics = newLedgerMetrics(registry)
	m.exposure.known = make(map[exposureLabels]bool)

	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: buildInfo.Name, Help: buildInfo.Help}, buildInfo.Labels)
	build.WithLabelValues(version, commit).Set(1)

	registry.MustRegister(
		m.decisions, m.decisionDuration, m.timeLeft, m.late, m.replays, m.keyConflicts, m.accepted, m.cancels, m.outcomesUnknown, m.notStored,
		m.refused, m.recovered, m.walletCalls, m.walletDuration, m.breakerTransitions,
		&m.exposure, &m.vitals, inFlight{&m.watched}, build,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	m.begin()
	return m
}

// begin makes every series that an alert may wait for, at 0: Prometheus sees no
// increase in a counter that appears with its first event, and the first
// OUTCOME_UNKNOWN is exactly the one that somebody must see.
func (m *Metrics) begin() {
	for _, op := range payments {
		m.decisions.WithLabelValues(op, string(payment.Approved), "")
		for _, code := range codes {
			m.decisions.WithLabelValues(op, string(payment.Declined), code)
		}
		m.late.WithLabelValues(op)
		m.cancels.WithLabelValues(op)
		m.notStored.WithLabelValues(op)
		m.decisionDuration.WithLabelValues(op)
		m.timeLeft.WithLabelValues(op)
	}
	for _, kind := range acceptable {
		m.accepted.WithLabelValues(kind)
	}
	for _, op := range operations {
		m.replays.WithLabelValues(op)
		m.outcomesUnknown.WithLabelValues(op)
		for _, kind := range conflictKinds {
			m.keyConflicts.WithLabelValues(op, kind)
		}
	}
	for _, reason := range refusals {
		m.refused.WithLabelValues(reason)
	}
	for _, breaker := range breakers {
		for _, state := range breakerStates {
			m.breakerTransitions.WithLabelValues(breaker, state)
		}
	}
	for _, lane := range lanes {
		for _, call := range callsOf[lane] {
			for _, r := range results {
				if r.lookup == (call == lookup) {
					m.walletCalls.WithLabelValues(lane, call, r.outcome, string(r.reason))
				}
			}
		}
	}
}

// Decision counts a payment that was decided by the request that asked for it:
// how long that took from the request's arrival, and what of its effective
// budget was left when the answer was ready, negative if it was late.
func (m *Metrics) Decision(op payment.Operation, state payment.State, code payment.Code, took, left time.Duration) {
	label := known(operations, string(op))
	codeLabel := ""
	if state != payment.Approved {
		codeLabel = known(codes, string(code))
	}
	m.decisions.WithLabelValues(label, known(states, string(state)), codeLabel).Inc()
	m.decisionDuration.WithLabelValues(label).Observe(took.Seconds())
	m.timeLeft.WithLabelValues(label).Observe(max(left, 0).Seconds())
	if left < 0 {
		m.late.WithLabelValues(label).Inc()
	}
}

// Replay counts an answer that was given again.
func (m *Metrics) Replay(op payment.Operation) {
	m.replays.WithLabelValues(known(operations, string(op))).Inc()
}

// KeyConflict counts a request whose key was somebody else's: in flight, or of
// a different request.
func (m *Metrics) KeyConflict(op payment.Operation, kind string) {
	m.keyConflicts.WithLabelValues(known(operations, string(op)), known(conflictKinds, kind)).Inc()
}

// Accepted counts a follow-up that a till has handed to the queue.
func (m *Metrics) Accepted(kind payment.Operation) {
	m.accepted.WithLabelValues(known(operations, string(kind))).Inc()
}

// Cancelled counts a cancel by key, of a debit or a hold, that did what it was
// asked for.
func (m *Metrics) Cancelled(op payment.Operation) {
	m.cancels.WithLabelValues(known(operations, string(op))).Inc()
}

// NotSent counts a decision for which the wallet's lane was not even entered, for
// lack of a place or of time, among the calls of that lane: the lane itself knows
// nothing of it, and the wallet's calls would not add up to the decisions.
func (m *Metrics) NotSent(op payment.Operation, reason payment.Reason) {
	m.WalletCall("decision", string(op), payment.Unavailable.String(), reason, 0)
}

// OutcomeUnknown counts a request whose own storage failed, so that it was
// answered OUTCOME_UNKNOWN and recovery decides.
func (m *Metrics) OutcomeUnknown(op payment.Operation) {
	m.outcomesUnknown.WithLabelValues(known(operations, string(op))).Inc()
}

// NotStored counts a payment that was claimed and whose decision could not be
// stored. It is one of the unknown outcomes, and counted among them besides: the
// one in which the wallet may have taken money.
func (m *Metrics) NotStored(op payment.Operation) {
	m.notStored.WithLabelValues(known(payments, string(op))).Inc()
}

// Refused counts a request that the gate turned away.
func (m *Metrics) Refused(reason string) {
	m.refused.WithLabelValues(known(refusals, reason)).Inc()
}

// Recovered counts n payments that recovery decided in the place of a handler
// that never did.
func (m *Metrics) Recovered(n int) { m.recovered.Add(float64(max(n, 0))) }

// WalletCall counts one call of lane and how it ended; outcome is the string of
// a payment.Class, or of a payment.Finding for a lookup. What was never tried
// (no time, no place, breaker open) took no time that says anything about the
// wallet, and is left out of its durations.
func (m *Metrics) WalletCall(lane, call, outcome string, reason payment.Reason, took time.Duration) {
	lane, call, outcome = known(lanes, lane), known(calls, call), known(outcomes, outcome)
	m.walletCalls.WithLabelValues(lane, call, outcome, known(reasons, string(reason))).Inc()
	if !slices.Contains(untried, reason) {
		m.walletDuration.WithLabelValues(lane, call, outcome).Observe(took.Seconds())
	}
}

// BreakerChanged counts that breaker went over to state. The state itself is
// read when the metrics are, see WatchInFlight.
func (m *Metrics) BreakerChanged(breaker, state string) {
	m.breakerTransitions.WithLabelValues(known(breakers, breaker), known(breakerStates, state)).Inc()
}

// WatchInFlight names what is asked whenever the metrics are read: how many
// requests the gate has admitted, how many calls each lane has in flight, and
// the state of each breaker, and what is left in the retry budget. A breaker goes from open to half-open only when it
// is asked, so a gauge that was set on changes would show it open for as long as
// nobody pays. A process without a gate or a queue gives nil. The functions must
// be safe for concurrent use.
func (m *Metrics) WatchInFlight(gate func() int, lanes map[string]func() int, breakers map[string]func() string, retryTokens func() float64) {
	m.watched.Store(&watched{gate, lanes, breakers, retryTokens})
}

type watched struct {
	gate        func() int
	lanes       map[string]func() int
	breakers    map[string]func() string
	retryTokens func() float64
}

// inFlight collects what WatchInFlight was given.
type inFlight struct{ watched *atomic.Pointer[watched] }

func (inFlight) Describe(descs chan<- *prometheus.Desc) {
	descs <- gateInFlight.desc()
	descs <- walletInFlight.desc()
	descs <- breakerState.desc()
	descs <- queueRetryTokens.desc()
}

func (c inFlight) Collect(metrics chan<- prometheus.Metric) {
	w := c.watched.Load()
	if w == nil {
		return
	}
	if w.gate != nil {
		metrics <- gauge(gateInFlight, float64(w.gate()))
	}
	if w.retryTokens != nil {
		metrics <- gauge(queueRetryTokens, w.retryTokens())
	}
	for lane, count := range w.lanes {
		metrics <- gauge(walletInFlight, float64(count()), lane)
	}
	for breaker, state := range w.breakers {
		current := state()
		for _, s := range breakerStates {
			value := 0.0
			if s == current {
				value = 1
			}
			metrics <- gauge(breakerState, value, breaker, s)
		}
	}
}
