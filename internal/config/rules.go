package config

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/safeledger/safeledger/internal/decision"
)

// ownWrites is what seed ADR-0007 keeps between the wallet calls and the server
// budget: the reserves of the claim and of the store, 300 ms.
const ownWrites = decision.ClaimReserve + decision.StoreReserve

// requestsPerConnection bounds how many admitted requests may stand before one
// database connection when the gate is full. Each needs the connection for one
// commit at a time; at 12 ms, which is a slow disk, the sixteenth waits 192 ms
// and still has its turn within the 200 ms that a store gets at least. Beyond
// that the gate would let in what can only be answered OUTCOME_UNKNOWN.
const requestsPerConnection = 16

// rule is a relation between numbers, each of which may be right by itself.
type rule struct {
	says  string   // what must be so, and why
	of    []string // the variables that it is about, without Prefix
	holds func(*Config) bool
}

// rules are checked after every value, and only where all of its values are
// valid: a rule that is broken by a misspelt number says nothing.
var rules = []rule{
	{
		"decision call + lookup + " + showDuration(ownWrites) + " (our own claim and store) must not exceed the server budget, or the answer comes after it",
		[]string{"BUDGET_DECISION_CALL", "BUDGET_LOOKUP_CALL", "BUDGET_SERVER"},
		func(c *Config) bool { return c.Budget.DecisionCall+c.Budget.LookupCall+ownWrites <= c.Budget.Server },
	},
	{
		"the minimum to send must be below the limit of every call, or that call is never sent",
		[]string{"BUDGET_MIN_TO_SEND", "BUDGET_DECISION_CALL", "BUDGET_LOOKUP_CALL", "BUDGET_WORKER_CALL"},
		func(c *Config) bool { return c.Budget.MinToSend < c.Budget.shortestCall() },
	},
	{
		"the connect timeout must be below the limit of every call, or a dead wallet looks like one that may have applied",
		[]string{"WALLET_CONNECT_TIMEOUT", "BUDGET_DECISION_CALL", "BUDGET_LOOKUP_CALL", "BUDGET_WORKER_CALL"},
		func(c *Config) bool { return c.Wallet.ConnectTimeout < c.Budget.shortestCall() },
	},
	{
		"a slow call must be shorter than the decision call's limit, or none is ever seen as slow",
		[]string{"WALLET_SLOW_CALL", "BUDGET_DECISION_CALL"},
		func(c *Config) bool { return c.Wallet.SlowCall < c.Budget.DecisionCall },
	},
	{
		"the breaker's window must be at least 5 times every call's limit: a call counts where it began, so one as long as the window would count nowhere",
		[]string{"BREAKER_WINDOW", "BUDGET_DECISION_CALL", "BUDGET_LOOKUP_CALL", "BUDGET_WORKER_CALL"},
		func(c *Config) bool { return c.Breaker.Window >= 5*c.Budget.longestCall() },
	},
	{
		"the gate must admit at least as many requests as wallet calls may be in flight, or the wallet's bound means nothing",
		[]string{"GATE_MAX_IN_FLIGHT", "WALLET_MAX_IN_FLIGHT"},
		func(c *Config) bool { return c.Gate.MaxInFlight >= c.Wallet.MaxInFlight },
	},
	{
		fmt.Sprintf("the gate must not admit more than %d requests for each database connection, or what it admits cannot be stored in time", requestsPerConnection),
		[]string{"GATE_MAX_IN_FLIGHT", "DATABASE_MAX_CONNS"},
		func(c *Config) bool { return c.Gate.MaxInFlight <= requestsPerConnection*c.Database.MaxConns },
	},
	{
		"one caller's bound must not exceed that of all callers together, or it means nothing",
		[]string{"GATE_MAX_PER_CALLER", "GATE_MAX_IN_FLIGHT"},
		func(c *Config) bool { return c.Gate.MaxPerCaller <= c.Gate.MaxInFlight },
	},
	{
		"there must not be more workers than wallet calls that may be in flight, or they refuse each other",
		[]string{"QUEUE_WORKERS", "WALLET_MAX_IN_FLIGHT"},
		func(c *Config) bool { return c.Queue.Workers <= c.Wallet.MaxInFlight },
	},
	{
		"a lease must outlast an attempt, a lookup and a call, by 5s for its writes and a paused process, or two workers are at one operation",
		[]string{"QUEUE_LEASE", "BUDGET_WORKER_CALL"},
		func(c *Config) bool { return c.Queue.Lease >= 2*c.Budget.WorkerCall+5*time.Second },
	},
	{
		"the settle window must be longer than the server budget and than a worker's call, or not-found proves nothing",
		[]string{"QUEUE_SETTLE_WINDOW", "BUDGET_SERVER", "BUDGET_WORKER_CALL"},
		func(c *Config) bool {
			return c.Queue.SettleWindow > c.Budget.Server && c.Queue.SettleWindow > c.Budget.WorkerCall
		},
	},
	{
		"operations must be parked later than the settle window, or a reversal is parked before it can end",
		[]string{"QUEUE_PARK_AFTER", "QUEUE_SETTLE_WINDOW"},
		func(c *Config) bool { return c.Queue.ParkAfter > c.Queue.SettleWindow },
	},
	{
		"the first backoff must not exceed the longest, and that must be below the time to park, or an operation is parked after one attempt",
		[]string{"QUEUE_BACKOFF_MIN", "QUEUE_BACKOFF_MAX", "QUEUE_PARK_AFTER"},
		func(c *Config) bool {
			return c.Queue.BackoffMin <= c.Queue.BackoffMax && c.Queue.BackoffMax < c.Queue.ParkAfter
		},
	},
	{
		"the recovery grace must be at least " + showDuration(ownWrites) + ", what a decision's own writes may take beyond the budget, or recovery declines what is just being stored",
		[]string{"RECOVERY_GRACE"},
		func(c *Config) bool { return c.RecoveryGrace >= ownWrites },
	},
	{
		"tills and operators must be served at two addresses, or /metrics is open to tills",
		[]string{"HTTP_ADDR", "ADMIN_ADDR"},
		func(c *Config) bool { return c.HTTPAddr != c.AdminAddr || strings.HasSuffix(c.HTTPAddr, ":0") },
	},
}

func (b Budget) shortestCall() time.Duration {
	return min(b.DecisionCall, b.LookupCall, b.WorkerCall)
}

func (b Budget) longestCall() time.Duration { return max(b.DecisionCall, b.LookupCall, b.WorkerCall) }

// rules notes each rule that c breaks, with the values that break it.
func (r *reading) rules(c *Config) {
	for _, rule := range rules {
		if rule.isAboutAny(r.broken) || rule.holds(c) {
			continue
		}
		var values []string
		for _, v := range variablesOf(c) {
			if !slices.Contains(rule.of, strings.TrimPrefix(v.name(), Prefix)) {
				continue
			}
			value := v.name() + "=" + v.shown()
			if !c.set[v.name()] {
				value += " (default)"
			}
			values = append(values, value)
		}
		r.faults = append(r.faults, strings.Join(values, ", ")+": "+rule.says)
	}
}

func (r rule) isAboutAny(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		return slices.Contains(r.of, strings.TrimPrefix(name, Prefix))
	})
}
