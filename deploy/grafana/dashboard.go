// Package grafana is the dashboard of SafeLedger. It is written here, as a table of
// panels, because a thousand lines of JSON cannot be reviewed, and rendered into
// safeledger.json, which is what Grafana gets; a test keeps the two the same.
package grafana

//go:generate go test . -run TestDashboardIsWhatTheCodeSays -update

// Playbooks is where the playbooks are read; the rules name the same place.
const Playbooks = "https://github.com/safeledger/safeledger/blob/main/docs/playbooks"

// kind is a type of panel.
type kind string

const (
	timeseries    kind = "timeseries"
	stat          kind = "stat"
	heatmap       kind = "heatmap"
	stateTimeline kind = "state-timeline"
	table         kind = "table"
)

type row struct {
	title  string
	panels []panel
}

type panel struct {
	title       string
	description string // what it means, and what is good
	kind        kind
	unit        string // one of Grafana's
	width       int    // of 24; 0 is a third
	queries     []query
	// alerts are those that this panel shows coming; it links to their playbooks.
	alerts []string
	// threshold is the number that the first of alerts compares with.
	threshold *float64
	// signed is set where below 0 means something, and a threshold holds both ways.
	signed bool
	// words are what values are shown as.
	words map[int]word
}

type query struct{ expr, legend string }

type word struct{ text, color string }

// in restricts to the installation that was chosen. Recorded names have the label too.
const in = `namespace=~"$namespace"`

// ours are the processes that are SafeLedger's, for metrics that every program has.
const ours = ` and on (namespace, job, instance) safeledger_build_info{` + in + `}`

func rows() []row {
	return []row{
		{"Tills", tills()},
		{"Wallet", wallet()},
		{"Money in doubt", money()},
		{"Queue", queue()},
		{"Runtime", runtime()},
	}
}

func tills() []panel {
	return []panel{
		{
			title: "Alerts that fire", kind: stat, unit: "short", width: 24,
			description: "How many of each. Empty is good. What to do is in the playbook of the same name.",
			queries:     []query{{`sum by (alertname, severity) (ALERTS{alertstate="firing", alertname=~"SafeLedger.*", ` + in + `})`, "{{alertname}} ({{severity}})"}},
		},
		{
			title: "Decisions", kind: timeseries, unit: "ops",
			description: "Payments decided per second, with the reason of a decline. Declines by the wallet's code are customers' affairs; WALLET_TIMEOUT and WALLET_UNAVAILABLE are ours.",
			queries:     []query{{`sum by (state, code) (namespace_operation_state_code:safeledger_decisions:rate5m{` + in + `})`, "{{state}} {{code}}"}},
		},
		{
			title: "Declined without the wallet's word", kind: timeseries, unit: "percentunit",
			description: "The part of the decisions that were declined because the wallet could not be reached or did not answer in time.",
			queries:     []query{{`namespace:safeledger_decisions_without_wallet:ratio_rate5m{` + in + `}`, "{{namespace}}"}},
			alerts:      []string{"SafeLedgerWalletNotDeciding"}, threshold: new(0.05),
		},
		{
			title: "Time to a decision", kind: timeseries, unit: "s",
			description: "From the arrival of a request to its answer. A call that hangs takes 0.8 s and its lookup 0.3 s; nothing healthy takes longer.",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (namespace_le:safeledger_decision_duration_seconds_bucket:rate5m{` + in + `}))`, "half"},
				{`histogram_quantile(0.99, sum by (le) (namespace_le:safeledger_decision_duration_seconds_bucket:rate5m{` + in + `}))`, "99 %"},
				{`histogram_quantile(0.999, sum by (le) (namespace_le:safeledger_decision_duration_seconds_bucket:rate5m{` + in + `}))`, "99.9 %"},
				{`max(safeledger_limit_seconds{limit="server_budget", ` + in + `})`, "server budget"},
			},
		},
		{
			title: "Answers near the budget", kind: timeseries, unit: "percentunit",
			description: "The part of the decisions that were ready with less than 100 ms of their till's budget left, or late. Tills that ask with very short deadlines count.",
			queries:     []query{{`namespace:safeledger_decisions_near_budget:ratio_rate5m{` + in + `}`, "{{namespace}}"}},
			alerts:      []string{"SafeLedgerAnswersNearBudget"}, threshold: new(0.01),
		},
		{
			title: "Answers after the promised time", kind: timeseries, unit: "short",
			description: "Decisions of the last hour that were answered more than 2.7 s after their request came. There should be none; decisions_late counts milder cases, beyond the budget alone.",
			queries: []query{
				{`namespace:safeledger_decisions_too_late:increase1h{` + in + `}`, "beyond 2.7 s"},
				{`sum(increase(safeledger_decisions_late_total{` + in + `}[1h]))`, "beyond the budget"},
			},
			alerts: []string{"SafeLedgerAnswersTooLate"}, threshold: new(0.5),
		},
		{
			title: "Turned away at the gate", kind: timeseries, unit: "percentunit",
			description: "The part of what came to the gate that it refused, before anything was begun. DRAINING is left out: a replica says so that is being replaced.",
			queries:     []query{{`namespace_reason:safeledger_gate_refused:ratio_rate2m{` + in + `}`, "{{reason}}"}},
			alerts:      []string{"SafeLedgerGateRefusing"}, threshold: new(0.01),
		},
		{
			title: "Inside the gate", kind: timeseries, unit: "short",
			description: "Requests that are admitted and not yet answered, per replica; at GATE_MAX_IN_FLIGHT the gate shuts.",
			queries:     []query{{`sum by (instance) (safeledger_gate_in_flight{` + in + `})`, "{{instance}}"}},
		},
		{
			title: "Repeats, conflicts and cancels", kind: timeseries, unit: "ops",
			description: "Replays are tills whose answer got lost. A key in flight is a till that does not wait; a mismatch is a till that uses a key twice, which is a bug of it.",
			queries: []query{
				{`sum by (operation) (rate(safeledger_replays_total{` + in + `}[$__rate_interval]))`, "replayed {{operation}}"},
				{`sum by (kind) (rate(safeledger_key_conflicts_total{` + in + `}[$__rate_interval]))`, "key {{kind}}"},
				{`sum(rate(safeledger_cancels_total{` + in + `}[$__rate_interval]))`, "cancelled by key"},
			},
		},
		{
			title: "Unknown outcomes", kind: timeseries, unit: "short",
			description: "Requests of the last hour that were answered OUTCOME_UNKNOWN because our own storage failed, and how many of them had been claimed, so that the wallet may have been called.",
			queries: []query{
				{`sum by (operation) (namespace_operation:safeledger_outcomes_unknown:increase1h{` + in + `})`, "{{operation}}"},
				{`sum(increase(safeledger_decisions_not_stored_total{` + in + `}[1h]))`, "of these claimed"},
			},
			alerts: []string{"SafeLedgerOutcomeUnknown", "SafeLedgerStoreFailing"}, threshold: new(0.0),
		},
	}
}

func wallet() []panel {
	return []panel{
		{
			title: "p99.9 of a debit or hold over seven days", kind: timeseries, unit: "s",
			description: "The number that every limit is derived from (seed ADR-0007, A11). Above 400 ms the limits are to be measured anew.",
			queries:     []query{{`namespace:safeledger_wallet_decision_call_duration_seconds:p999_7d{` + in + `}`, "{{namespace}}"}},
			alerts:      []string{"SafeLedgerWalletAssumptionBroken"}, threshold: new(0.4),
		},
		{
			title: "Time of a debit or hold", kind: timeseries, unit: "s",
			description: "Of the calls that were tried. 0.8 s is where a call is given up.",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (namespace_le:safeledger_wallet_decision_call_duration_seconds_bucket:rate5m{` + in + `}))`, "half"},
				{`histogram_quantile(0.99, sum by (le) (namespace_le:safeledger_wallet_decision_call_duration_seconds_bucket:rate5m{` + in + `}))`, "99 %"},
				{`histogram_quantile(0.999, sum by (le) (namespace_le:safeledger_wallet_decision_call_duration_seconds_bucket:rate5m{` + in + `}))`, "99.9 %"},
				{`max(safeledger_limit_seconds{limit="decision_call", ` + in + `})`, "limit of a call"},
			},
		},
		{
			title: "How the time is spread", kind: heatmap, unit: "s",
			description: "Debits and holds by how long they took. A second band away from the first is a wallet of two speeds: a cache, a failing node.",
			queries:     []query{{`sum by (le) (increase(safeledger_wallet_call_duration_seconds_bucket{lane="decision", call!="lookup", ` + in + `}[$__rate_interval]))`, "{{le}}"}},
		},
		{
			title: "Debits and holds by outcome", kind: timeseries, unit: "ops",
			description: "Those that were not tried included (breaker_open, bulkhead_full, deadline_spent).",
			queries:     []query{{`sum by (outcome, reason) (rate(safeledger_wallet_calls_total{lane="decision", call!="lookup", ` + in + `}[$__rate_interval])) > 0`, "{{outcome}} {{reason}}"}},
			alerts:      []string{"SafeLedgerWalletNotDeciding"},
		},
		{
			title: "Lookups after doubt", kind: timeseries, unit: "ops",
			description: "What the one lookup of a decision found. `applied` turned a doubt into an approval; the others became a decline with a reversal.",
			queries:     []query{{`sum by (outcome) (rate(safeledger_wallet_calls_total{lane="decision", call="lookup", ` + in + `}[$__rate_interval]))`, "{{outcome}}"}},
		},
		{
			title: "Calls of the queue by outcome", kind: timeseries, unit: "ops",
			description: "Credits, captures and releases, and the lookups of workers.",
			queries:     []query{{`sum by (call, outcome) (rate(safeledger_wallet_calls_total{lane="worker", ` + in + `}[$__rate_interval])) > 0`, "{{call}} {{outcome}}"}},
		},
		{
			title: "Breakers", kind: stateTimeline, unit: "short",
			description: "The worst state that any replica has. Half-open with no traffic is not a fault: nobody has asked yet.",
			queries: []query{{
				`max by (breaker) (2 * safeledger_breaker_state{state="open", ` + in + `} + ignoring (state) safeledger_breaker_state{state="half-open", ` + in + `})`, "{{breaker}}",
			}},
			alerts: []string{"SafeLedgerBreakerOpen"},
			words:  map[int]word{0: {"closed", "green"}, 1: {"half-open", "yellow"}, 2: {"open", "red"}},
		},
		{
			title: "Breakers that opened", kind: timeseries, unit: "short",
			description: "Per hour. One that opens and closes all day has a threshold that is too near.",
			queries:     []query{{`sum by (breaker) (increase(safeledger_breaker_transitions_total{state="open", ` + in + `}[1h]))`, "{{breaker}}"}},
		},
		{
			title: "In flight at the wallet", kind: timeseries, unit: "short",
			description: "Places of the bulkheads that are taken; at WALLET_MAX_IN_FLIGHT per replica and lane the next call is refused at once.",
			queries:     []query{{`sum by (lane) (safeledger_wallet_in_flight{` + in + `})`, "{{lane}}"}},
		},
		{
			title: "Duplicates and foreign answers", kind: timeseries, unit: "short",
			description: "In the last hour: first sends that the wallet knew already, and answers that were about something else. Any at all is a fault of the database or of something in between.",
			queries: []query{
				{`namespace_kind:safeledger_duplicates_on_first_send:increase1h{` + in + `}`, "duplicate {{kind}}"},
				{`namespace_lane:safeledger_wallet_foreign_answers:increase1h{` + in + `}`, "foreign, {{lane}}"},
			},
			alerts: []string{"SafeLedgerDuplicateOnFirstSend", "SafeLedgerForeignAnswers"}, threshold: new(0.0),
		},
	}
}

func money() []panel {
	return []panel{
		{
			title: "Parked", kind: stat, unit: "short", width: 6,
			description: "Follow-ups that wait for a person. Green is none.",
			queries:     []query{{`sum by (kind, currency) (namespace_kind_state_currency:safeledger_follow_ups_open:max{state="PARKED", ` + in + `})`, "{{kind}} {{currency}}"}},
			alerts:      []string{"SafeLedgerParked"}, threshold: new(0.0),
		},
		{
			title: "Money that may be out", kind: timeseries, unit: "short", width: 9,
			description: "Reversals that have not ended, in minor units of the currency: what may be wrong with customers' accounts right now. Currencies are not added up.",
			queries:     []query{{`sum by (currency, state) (namespace_kind_state_currency:safeledger_follow_ups_open_amount_minor_units:max{kind="reversal", ` + in + `})`, "{{currency}} {{state}}"}},
		},
		{
			title: "Oldest reversal", kind: timeseries, unit: "s", width: 9,
			description: "One that finds nothing ends with the settle window. Beyond it and five minutes the wallet cannot say what became of a payment.",
			queries: []query{
				{`max by (currency) (namespace_kind_state_currency:safeledger_follow_ups_open_oldest_age_seconds:max{kind="reversal", state="PENDING", ` + in + `})`, "{{currency}}"},
				{`max(safeledger_limit_seconds{limit="settle_window", ` + in + `}) + 300`, "overdue"},
			},
			alerts: []string{"SafeLedgerReversalOverdue"},
		},
		{
			title: "Open reversals", kind: timeseries, unit: "short",
			description: "How many declined or cancelled payments are being looked after.",
			queries:     []query{{`sum by (state) (namespace_kind_state_currency:safeledger_follow_ups_open:max{kind="reversal", ` + in + `})`, "{{state}}"}},
		},
		{
			title: "Recovered payments", kind: timeseries, unit: "short",
			description: "Of the last hour: payments that no handler came back for, declined with a reversal.",
			queries:     []query{{`namespace:safeledger_payments_recovered:increase1h{` + in + `}`, "{{namespace}}"}},
			alerts:      []string{"SafeLedgerPaymentsRecovered"}, threshold: new(0.0),
		},
		{
			title: "Applied late", kind: timeseries, unit: "short",
			description: "Of the last hour: payments that the wallet applied after their reversal had ended. Any at all means that the settle window is too short.",
			queries:     []query{{`namespace_operation:safeledger_queue_late_applies:increase1h{` + in + `}`, "{{operation}}"}},
			alerts:      []string{"SafeLedgerLateApply"}, threshold: new(0.0),
		},
		{
			title: "Age of these numbers", kind: timeseries, unit: "s",
			description: "How long ago each replica has read what is open. Old numbers look like good ones.",
			queries:     []query{{`time() - safeledger_follow_ups_read_timestamp_seconds{` + in + `}`, "{{instance}}"}},
			alerts:      []string{"SafeLedgerMoneyNotMeasured"}, threshold: new(120.0),
		},
		{
			title: "Age of the last sweep", kind: timeseries, unit: "s",
			description: "How long ago each replica has looked for payments that were left in flight. Any replica's sweep covers all.",
			queries:     []query{{`time() - safeledger_recovery_swept_timestamp_seconds{` + in + `}`, "{{instance}}"}},
			alerts:      []string{"SafeLedgerRecoveryStalled"}, threshold: new(60.0),
		},
		{
			title: "How reversals end", kind: timeseries, unit: "ops",
			description: "SUCCEEDED gave money back, NOT_APPLIED found nothing to give back, PARKED needs a person.",
			queries:     []query{{`sum by (state) (rate(safeledger_follow_ups_ended_total{kind="reversal", ` + in + `}[$__rate_interval]))`, "{{state}}"}},
		},
	}
}

func queue() []panel {
	return []panel{
		{
			title: "Oldest that waits", kind: timeseries, unit: "s",
			description: "Credits, captures and releases. They usually take seconds.",
			queries:     []query{{`max by (kind) (namespace_kind_state_currency:safeledger_follow_ups_open_oldest_age_seconds:max{kind!="reversal", state="PENDING", ` + in + `})`, "{{kind}}"}},
			alerts:      []string{"SafeLedgerQueueOld"}, threshold: new(1800.0),
		},
		{
			title: "Waiting", kind: timeseries, unit: "short",
			description: "Follow-ups that have not ended, reversals among them.",
			queries:     []query{{`sum by (kind) (namespace_kind_state_currency:safeledger_follow_ups_open:max{state="PENDING", ` + in + `})`, "{{kind}}"}},
		},
		{
			title: "In and out", kind: timeseries, unit: "ops",
			description: "What tills hand to the queue, and what ends. Reversals are not handed over: they come with a decision.",
			queries: []query{
				{`sum by (kind) (rate(safeledger_follow_ups_accepted_total{` + in + `}[$__rate_interval]))`, "accepted {{kind}}"},
				{`sum by (state) (rate(safeledger_follow_ups_ended_total{` + in + `}[$__rate_interval]))`, "{{state}}"},
			},
		},
		{
			title: "Attempts by outcome", kind: timeseries, unit: "ops",
			description: "Sends of the workers. What was postponed without a send is not among them.",
			queries:     []query{{`sum by (outcome) (rate(safeledger_queue_attempts_total{` + in + `}[$__rate_interval]))`, "{{outcome}}"}},
		},
		{
			title: "Retries", kind: timeseries, unit: "ops",
			description: "What the retry budget said. Refused ones cost nothing but time: they are what keeps a failing wallet from being asked to death.",
			queries:     []query{{`sum by (budget) (rate(safeledger_queue_retries_total{` + in + `}[$__rate_interval]))`, "{{budget}}"}},
		},
		{
			title: "Tokens of the retry budget", kind: timeseries, unit: "short",
			description: "At most 100 per replica. Near 0 the wallet fails what it is asked.",
			queries:     []query{{`safeledger_queue_retry_tokens{` + in + `}`, "{{instance}}"}},
		},
		{
			title: "Age of the last lease", kind: timeseries, unit: "s",
			description: "How long ago the queue of each replica has asked the ledger for work and was answered. A second is usual, also where there is nothing to do.",
			queries:     []query{{`time() - safeledger_queue_leased_timestamp_seconds{` + in + `}`, "{{instance}}"}},
			alerts:      []string{"SafeLedgerReplicaWithoutWorkers", "SafeLedgerNoWorkers"}, threshold: new(120.0),
		},
		{
			title: "Workers that did not report", kind: timeseries, unit: "short",
			description: "Per hour: leases that ran out because a worker died or was paused, and ends that were not written because somebody else had taken over. Neither loses anything.",
			queries: []query{
				{`sum by (kind) (increase(safeledger_queue_leases_lost_total{` + in + `}[1h]))`, "taken over {{kind}}"},
				{`sum by (kind) (increase(safeledger_queue_fenced_writes_total{` + in + `}[1h]))`, "fenced {{kind}}"},
			},
		},
		{
			title: "Lookups of late checks and reversals", kind: timeseries, unit: "ops",
			description: "What lookups of workers find. `not_found` proves nothing before the settle window is over.",
			queries:     []query{{`sum by (outcome) (rate(safeledger_wallet_calls_total{lane="worker", call="lookup", ` + in + `}[$__rate_interval]))`, "{{outcome}}"}},
		},
	}
}

func runtime() []panel {
	return []panel{
		{
			title: "What runs", kind: table, unit: "short",
			description: "Replicas by release. Two releases at once are a rollout.",
			queries:     []query{{`count by (namespace, version, commit) (safeledger_build_info{` + in + `})`, "{{version}}"}},
			alerts:      []string{"SafeLedgerAbsent"},
		},
		{
			title: "Replicas that answer Prometheus", kind: stateTimeline, unit: "short",
			description: "Every target whose job has safeledger in its name.",
			queries:     []query{{`up{job=~".*safeledger.*", ` + in + `}`, "{{job}} {{instance}}"}},
			alerts:      []string{"SafeLedgerDown"},
			words:       map[int]word{0: {"down", "red"}, 1: {"up", "green"}},
		},
		{
			title: "Ledger reachable", kind: stateTimeline, unit: "short",
			description: "By the last probe of each replica. Where it is not, the gate refuses everybody with NOT_READY.",
			queries:     []query{{`safeledger_ledger_reachable{` + in + `}`, "{{instance}}"}},
			alerts:      []string{"SafeLedgerLedgerUnreachable"},
			words:       map[int]word{0: {"unreachable", "red"}, 1: {"reachable", "green"}},
		},
		{
			title: "Clock ahead of the database's", kind: timeseries, unit: "s", signed: true,
			description: "The least that a look at the database proves; 0 where the way there and back explains it. Below 0 it is behind.",
			queries:     []query{{`safeledger_clock_skew_seconds{` + in + `}`, "{{instance}}"}},
			alerts:      []string{"SafeLedgerClockSkew"}, threshold: new(1.0),
		},
		{
			title: "Schema", kind: timeseries, unit: "short",
			description: "The newest migration in the database, and the newest that each release knows.",
			queries: []query{
				{`max(safeledger_schema_version{of="database", ` + in + `})`, "database"},
				{`max by (instance) (safeledger_schema_version{of="release", ` + in + `})`, "known to {{instance}}"},
			},
			alerts: []string{"SafeLedgerSchemaMismatch"},
		},
		{
			title: "Time to store", kind: timeseries, unit: "s",
			description: "Transactions that claims, decisions and settlements share, from the wait for a connection to the answer of the commit. A decision waits for two of them.",
			queries: []query{
				{`histogram_quantile(0.5, sum by (le) (rate(safeledger_ledger_transaction_duration_seconds_bucket{` + in + `}[$__rate_interval])))`, "half"},
				{`histogram_quantile(0.99, sum by (le) (rate(safeledger_ledger_transaction_duration_seconds_bucket{` + in + `}[$__rate_interval])))`, "99 %"},
			},
			alerts: []string{"SafeLedgerAnswersNearBudget"},
		},
		{
			title: "Writes per transaction", kind: timeseries, unit: "short",
			description: "How many claims, decisions and settlements share one commit: more under load. Those that PostgreSQL refused are tried again one by one.",
			queries: []query{
				{`sum(rate(safeledger_ledger_transaction_writes_sum{` + in + `}[$__rate_interval])) / sum(rate(safeledger_ledger_transaction_writes_count{` + in + `}[$__rate_interval]))`, "mean"},
				{`sum(rate(safeledger_ledger_transactions_undone_total{` + in + `}[$__rate_interval]))`, "refused per second"},
			},
			alerts: []string{"SafeLedgerStoreFailing"},
		},
		{
			title: "CPU", kind: timeseries, unit: "short",
			description: "Cores that each process uses.",
			queries:     []query{{`rate(process_cpu_seconds_total{` + in + `}[$__rate_interval])` + ours, "{{instance}}"}},
		},
		{
			title: "Memory", kind: timeseries, unit: "bytes",
			description: "What the operating system counts for each process, and what of it is Go's heap.",
			queries: []query{
				{`process_resident_memory_bytes{` + in + `}` + ours, "{{instance}}"},
				{`go_memstats_heap_inuse_bytes{` + in + `}` + ours, "{{instance}} heap"},
			},
		},
		{
			title: "Goroutines", kind: timeseries, unit: "short",
			description: "Some dozens and a few per request in flight. A line that only rises is a leak.",
			queries:     []query{{`go_goroutines{` + in + `}` + ours, "{{instance}}"}},
		},
		{
			title: "Garbage collection", kind: timeseries, unit: "s",
			description: "The mean pause. It is part of every answer's time.",
			queries: []query{{
				`rate(go_gc_duration_seconds_sum{` + in + `}[$__rate_interval]) / rate(go_gc_duration_seconds_count{` + in + `}[$__rate_interval])` + ours, "{{instance}}",
			}},
		},
		{
			title: "File descriptors", kind: timeseries, unit: "percentunit",
			description: "The part of those allowed that is in use. Connections of tills, of the wallet and of the database are most of them.",
			queries:     []query{{`process_open_fds{` + in + `} / process_max_fds{` + in + `}` + ours, "{{instance}}"}},
		},
	}
}
