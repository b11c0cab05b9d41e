package telemetry

import (
	"sync"
	"time"

	"github.com/bojanz/currency"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/safeledger/safeledger/internal/payment"
)

// SetExposures shows what is not settled, as it was just read from the ledger:
// open is all of it. What was shown before and is not in it any more goes to 0
// and stays there, so that a graph comes down instead of breaking off.
func (m *Metrics) SetExposures(open []payment.Exposure) { m.exposure.set(open, time.Now()) }

// exposure collects the last reading of what is open.
type exposure struct {
	mu      sync.Mutex
	known   map[exposureLabels]bool // every combination ever shown
	current map[exposureLabels]payment.Exposure
	read    time.Time // zero before the first reading
}

type exposureLabels struct{ kind, state, currency string }

func (e *exposure) set(open []payment.Exposure, now time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read = now
	e.current = make(map[exposureLabels]payment.Exposure, len(open))
	for _, x := range open {
		labels := exposureLabels{
			kind:     known(operations, string(x.Kind)),
			state:    known(followUpStates, string(x.State)),
			currency: currencyLabel(x.Currency),
		}
		// Several may share the labels, where one is OTHER.
		sum := e.current[labels]
		sum.Count += x.Count
		sum.AmountMinor += x.AmountMinor
		sum.OldestAge = max(sum.OldestAge, x.OldestAge)
		e.current[labels] = sum
		e.known[labels] = true
	}
}

// followUpStates are the states that a follow-up can be open in.
var followUpStates = []string{string(payment.Pending), string(payment.Parked)}

// currencyLabel bounds the label to ISO 4217, whatever the rows may hold.
func currencyLabel(code string) string {
	if code == "" || !currency.IsValid(code) {
		return other
	}
	return code
}

func (e *exposure) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range []Metric{followUpsOpen, followUpsOpenAmount, followUpsOpenAge, followUpsRead} {
		descs <- m.desc()
	}
}

func (e *exposure) Collect(metrics chan<- prometheus.Metric) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.read.IsZero() {
		return
	}
	metrics <- gauge(followUpsRead, unix(e.read))
	for labels := range e.known {
		x := e.current[labels]
		values := []string{labels.kind, labels.state, labels.currency}
		metrics <- gauge(followUpsOpen, float64(x.Count), values...)
		metrics <- gauge(followUpsOpenAmount, float64(x.AmountMinor), values...)
		metrics <- gauge(followUpsOpenAge, x.OldestAge.Seconds(), values...)
	}
}

// gauge is m at this moment.
func gauge(m Metric, value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(m.desc(), prometheus.GaugeValue, value, labels...)
}
