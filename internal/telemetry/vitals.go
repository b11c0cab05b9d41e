package telemetry

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What a replica finds out about itself and its database by the way: whether it
// does what it is there for, and whether the numbers of others apply to it.
var (
	ledgerReachable = Metric{
		"safeledger_ledger_reachable", "gauge", nil,
		"1 if this replica has found the database there, taking writes and with the right schema, else 0: then its gate refuses everybody.",
	}
	recoverySwept = Metric{
		"safeledger_recovery_swept_timestamp_seconds", "gauge", nil,
		"When this replica last looked for payments that nobody came back for, in Unix time; absent until it has. Any replica's sweep covers all.",
	}
	queueLeased = Metric{
		"safeledger_queue_leased_timestamp_seconds", "gauge", nil,
		"When this replica's queue last asked the ledger for work and was answered, in Unix time, its start before the first. Absent where there are no workers.",
	}
	clockSkew = Metric{
		"safeledger_clock_skew_seconds", "gauge", nil,
		"How far this replica's clock is ahead of the database's, negative if behind: the least that one look proves, 0 if the way there and back explains it.",
	}
	schemaVersion = Metric{
		"safeledger_schema_version", "gauge",
		[]string{"of"},
		"The newest migration in the database, and the newest that this release knows.",
	}
	limit = Metric{
		"safeledger_limit_seconds", "gauge",
		[]string{"limit"},
		"Durations from the configuration that other numbers are held against.",
	}
)

// The values of the labels of schemaVersion and limit.
var (
	schemas = []string{"database", "release"}
	limits  = []string{"settle_window", "park_after", "server_budget", "decision_call"}
)

// Limits are the configured durations that alerts and dashboards need, so that
// they stay true when a number is changed.
type Limits struct {
	SettleWindow, ParkAfter, ServerBudget, DecisionCall time.Duration
}

// SetLimits shows l.
func (v *vitals) SetLimits(l Limits) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.limits = map[string]time.Duration{
		"settle_window": l.SettleWindow, "park_after": l.ParkAfter, "server_budget": l.ServerBudget, "decision_call": l.DecisionCall,
	}
}

// Swept notes that the sweep for payments in flight has just gone through.
func (v *vitals) Swept() { v.note(&v.swept) }

// Leased notes that the ledger has just answered the queue, with work or without.
func (v *vitals) Leased() { v.note(&v.leased) }

func (v *vitals) note(when *time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*when = time.Now()
}

// WatchLedger names what is asked, whenever the metrics are read, whether the
// database can be used. It must be safe for concurrent use.
func (v *vitals) WatchLedger(reachable func() bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reachable = reachable
}

// Look is what a look at the database has told.
type Look struct {
	Sent    time.Time     // by our clock
	Took    time.Duration // until its answer was here
	Clock   time.Time     // what the database took for the time, somewhere in between
	Version int64         // the newest migration that it has
	Release int64         // the newest that this program knows
}

// skew is how far our clock is certainly ahead of the database's. Not by the middle of
// the look: a replica that was held up on the way would be blamed for its clock.
func (l Look) skew() time.Duration {
	least := l.Sent.Sub(l.Clock)
	most := least + l.Took
	switch {
	case least > 0:
		return least
	case most < 0:
		return most
	}
	return 0
}

// SetDatabase shows l.
func (v *vitals) SetDatabase(l Look) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.look = &l
}

// vitals collects what was last noted. What was never noted is not shown.
type vitals struct {
	mu            sync.Mutex
	reachable     func() bool // nil: not to be asked yet
	swept, leased time.Time
	look          *Look // nil: there was none
	limits        map[string]time.Duration
}

func (v *vitals) Describe(descs chan<- *prometheus.Desc) {
	for _, m := range []Metric{ledgerReachable, recoverySwept, queueLeased, clockSkew, schemaVersion, limit} {
		descs <- m.desc()
	}
}

func (v *vitals) Collect(metrics chan<- prometheus.Metric) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.reachable != nil {
		value := 0.0
		if v.reachable() {
			value = 1
		}
		metrics <- gauge(ledgerReachable, value)
	}
	for _, noted := range []struct {
		metric Metric
		at     time.Time
	}{{recoverySwept, v.swept}, {queueLeased, v.leased}} {
		if !noted.at.IsZero() {
			metrics <- gauge(noted.metric, unix(noted.at))
		}
	}
	if v.look != nil {
		metrics <- gauge(clockSkew, v.look.skew().Seconds())
		metrics <- gauge(schemaVersion, float64(v.look.Version), "database")
		metrics <- gauge(schemaVersion, float64(v.look.Release), "release")
	}
	for _, name := range slices.Sorted(maps.Keys(v.limits)) {
		metrics <- gauge(limit, v.limits[name].Seconds(), name)
	}
}

// unix is t as Prometheus has times, to the millisecond.
func unix(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
