// Package schedules runs random interleavings of everything under fake time: the real
// gate, API, decision, queue and wallet client of several replicas, over one ledger in
// memory and one simulated wallet, with tills that repeat, change their minds and hang
// up, and with whatever can go wrong in between. When all is quiet again, the wallet's
// book, the ledger's rows and what the tills have seen must agree: README.md says in what.
//
// A schedule is drawn from a seed, which is all that is needed to see it again; rapid
// makes one that fails smaller. `make schedules N=10000` runs many of them.
package schedules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/walletsim"
)

const ms = time.Millisecond

// plan is a schedule before it happens: who does what when, and what goes wrong.
type plan struct {
	V1       bool // the wallet is of version 1: it has no holds
	Echoes   bool // it repeats amount and currency in its answers
	Replicas int
	Settings settings
	Accounts []int64 // their balances, in minor units
	Keys     []key
	Shared   int // so many of the keys are everybody's; the others are those of a burst each
	Tills    [][]act
	Rules    []rule
	Storage  []storageFault
	Events   []event
	// Linger is how long what is wrong stays so when the tills are done.
	Linger time.Duration
}

// settings are those of all replicas that a plan varies. The others are the contract's.
type settings struct {
	BreakerCalls int // that it needs to open
	Places       int // of the wallet's bulkhead
	MaxInFlight  int // of the gate
	MaxPerCaller int // 0 = no bound
	Lookups      int // of the queue, a second
	ParkAfter    time.Duration
}

// key is one Idempotency-Key, and the payment that it is for.
type key struct {
	Caller  int // of owners
	Hold    bool
	Account int
	Amount  int64
}

// deed is what a till asks for.
type deed string

// The deeds. Those of follow-ups are about the payment of act.Key.
const (
	pay          deed = "pay"
	payOther     deed = "pay with another body"
	cancel       deed = "cancel"
	cancelShown  deed = "cancel, showing the request"
	cancelOther  deed = "cancel, showing another request"
	capture      deed = "capture"
	release      deed = "release"
	credit       deed = "credit"
	payout       deed = "credit that names no payment"
	payBurst     deed = "pay many at once"
	payoutBurst  deed = "pay out many at once"
	look         deed = "look at the payment"
	lookFollowUp deed = "look at the follow-up"
)

// act is one request of a till.
type act struct {
	Wait time.Duration // since the answer to the one before
	Deed deed
	Key  int
	// Second is the key of a follow-up, of which each payment has a few, and Amount how
	// much it is about.
	Second   int
	Amount   amount
	Replica  int
	Deadline int           // Request-Deadline-Ms, negative for none
	HangUp   time.Duration // 0: the till stays
}

// amount is how much a follow-up is about.
type amount string

// The amounts.
const (
	whole    amount = "the whole"
	some     amount = "some"
	tooMuch  amount = "too much"
	misplace amount = "the whole, to another account"
)

// rule is something that is wrong with the wallet.
type rule struct {
	Fault     int // of walletFaults
	Operation walletsim.Operation
	Account   int // -1: any
	From      int64
	Count     int64 // 0 = all
}

// storageFault is something that is wrong with a replica's statements to the ledger.
type storageFault struct {
	Replica int
	Step    memory.Step
	From    int // the first that it strikes, from 1
	Count   int
	How     how
	For     time.Duration
}

// how a statement goes wrong.
type how string

// The ways.
const (
	refused  how = "fails, and nothing is stored"
	lost     how = "is stored, and its answer is lost"
	slow     how = "waits"
	slowBack how = "is stored, and its answer waits"
	late     how = "fails, and arrives later all the same"
)

func (h how) afterwards() bool { return h == lost || h == slowBack }

// event is something that happens to a replica, to the ledger or at the wallet.
type event struct {
	At      time.Duration
	What    happening
	Replica int
	Account int
	For     time.Duration
}

// happening is what an event is.
type happening string

// The happenings.
const (
	freeze     happening = "stands still"           // SIGSTOP
	freezeCall happening = "stands still in a call" // as soon as it has written to the wallet
	kill       happening = "is killed"              // and started again
	killCall   happening = "is killed in a call"    //
	drain      happening = "is drained"             // SIGTERM, and started again
	refuse     happening = "wallet refuses"         // connections
	swallow    happening = "wallet swallows"        // connections: nobody answers
	closeIdle  happening = "wallet closes idle"     // connections
	outage     happening = "ledger is away"         // for all
	clockAhead happening = "ledger clock ahead"     // after a failover
	clockBack  happening = "ledger clock back"      // the same
	lockUp     happening = "account is locked"      //
	topUp      happening = "account is topped up"   //
)

// owners are whose the tills are. The second may pay out.
var owners = []string{"store-17", "store-18"}

// often repeats what is to be drawn more often than the rest.
func often[T any](n int, values ...T) []T {
	var all []T
	for range n {
		all = append(all, values...)
	}
	return all
}

func durations(values ...int) []time.Duration {
	var all []time.Duration
	for _, v := range values {
		all = append(all, time.Duration(v)*ms)
	}
	return all
}

// plans draws plans. What is first in a list is what a smaller schedule tends to.
var plans = rapid.Custom(func(t *rapid.T) plan {
	p := plan{
		V1:       rapid.SampledFrom(append(often(7, false), true)).Draw(t, "v1"),
		Echoes:   rapid.Bool().Draw(t, "echoes"),
		Replicas: rapid.IntRange(1, 3).Draw(t, "replicas"),
		Accounts: rapid.SliceOfN(rapid.SampledFrom([]int64{1_000_000, 1_000_000, 1_000_000, 2500, 0}), 3, 3).Draw(t, "accounts"),
		Settings: settings{
			BreakerCalls: rapid.SampledFrom([]int{20, 4}).Draw(t, "breaker"),
			Places:       rapid.SampledFrom(append(often(11, 256), 1)).Draw(t, "places"),
			MaxInFlight:  rapid.SampledFrom(append(often(15, 512), 1)).Draw(t, "in flight"),
			MaxPerCaller: rapid.SampledFrom(append(often(15, 0), 1)).Draw(t, "per caller"),
			Lookups:      rapid.SampledFrom([]int{20, 20, 20, 1}).Draw(t, "lookups"),
			ParkAfter:    rapid.SampledFrom([]time.Duration{72 * time.Hour, 20 * time.Second}).Draw(t, "park after"),
		},
		Linger: rapid.SampledFrom(append(often(4, durations(0, 2000, 60_000, 10_000)...), 16*time.Minute)).Draw(t, "linger"),
	}
	p.Keys = rapid.SliceOfN(keys, 1, mostKeys).Draw(t, "keys")
	p.Shared = len(p.Keys)
	p.Tills = rapid.SliceOfN(rapid.SliceOfN(acts, 1, 15), 1, 4).Draw(t, "tills")
	p.addBursts()
	p.Rules = rapid.SliceOfN(rules, 0, 8).Draw(t, "rules")
	if rapid.Bool().Draw(t, "a recipe") && rapid.Bool().Draw(t, "indeed") {
		p.Rules = slices.Concat(rapid.SampledFrom(recipes).Draw(t, "which"), p.Rules)
	}
	p.Storage = rapid.SliceOfN(storage, 0, 5).Draw(t, "storage")
	p.Events = rapid.SliceOfN(events, 0, 5).Draw(t, "events")
	return p
})

// bursts is how many requests are in one: more than a breaker needs that needs few, and
// more retries than the queue's budget begins with.
var bursts = map[deed]int{payBurst: 6, payoutBurst: 12}

// addBursts gives every burst keys of its own, and every other act one that there is.
func (p *plan) addBursts() {
	for _, acts := range p.Tills {
		for i, a := range acts {
			if bursts[a.Deed] == 0 {
				acts[i].Key %= p.Shared
				continue
			}
			acts[i].Key = len(p.Keys)
			for n := range bursts[a.Deed] {
				p.Keys = append(p.Keys, key{Caller: 1, Account: (a.Key + n) % len(p.Accounts), Amount: 100})
			}
		}
	}
}

// recipes are rules that lead to where chance alone seldom does: a send that may have
// got through and is then refused, or is looked for where it cannot be seen yet.
var recipes = func() (all [][]rule) {
	named := func(name string) int {
		at := slices.IndexFunc(walletFaults, func(f walletFault) bool { return f.name == name })
		if at < 0 {
			panic("no such fault: " + name)
		}
		return at
	}
	for _, op := range ofFollowUps {
		for _, first := range []string{"hangs", "503, not applied", "no answer, lands after 14m0s", "404 without a verdict, not applied"} {
			all = append(all, []rule{
				{Fault: named(first), Operation: op, Account: -1, From: 1, Count: 1},
				{Fault: named("refused"), Operation: op, Account: -1, From: 1},
			})
		}
		all = append(all, []rule{{Fault: named("500, not applied"), Operation: op, Account: -1, From: 1}})
	}
	for _, op := range ofPayments {
		all = append(all,
			[]rule{{Fault: named("applied, answer lost"), Operation: op, Account: -1, From: 1}, {Fault: named("lookup lags behind"), Operation: walletsim.Lookup, Account: -1, From: 1}},
			[]rule{{Fault: named("no answer, lands after 20m0s"), Operation: op, Account: -1, From: 1}},
			[]rule{{Fault: named("applied, answer lost"), Operation: op, Account: -1, From: 1}, {Fault: named("lookup says 500"), Operation: walletsim.Lookup, Account: -1, From: 1}},
		)
	}
	return all
}()

var keys = rapid.Custom(func(t *rapid.T) key {
	return key{
		Caller:  rapid.IntRange(0, 1).Draw(t, "caller"),
		Hold:    rapid.Bool().Draw(t, "hold"),
		Account: rapid.IntRange(0, 2).Draw(t, "account"),
		Amount:  rapid.SampledFrom([]int64{1000, 1000, 2000}).Draw(t, "amount"),
	}
})

// mostKeys is how many are shared at most; an act's is counted modulo those that there
// are.
const mostKeys = 4

var acts = rapid.Custom(func(t *rapid.T) act {
	return act{
		Wait: rapid.SampledFrom(durations(0, 0, 1, 6000, 20, 100, 400, 790, 1000, 3000)).Draw(t, "wait"),
		Deed: rapid.SampledFrom(slices.Concat(often(8, pay), []deed{payBurst, payBurst, payoutBurst}, often(4, capture, release), often(2, cancel, credit),
			[]deed{payOther, cancelShown, cancelOther, payout, payout, look, lookFollowUp})).Draw(t, "deed"),
		Key:      rapid.IntRange(0, mostKeys-1).Draw(t, "key"),
		Second:   rapid.IntRange(0, 2).Draw(t, "second key"),
		Amount:   rapid.SampledFrom([]amount{whole, whole, some, some, some, tooMuch, misplace}).Draw(t, "amount"),
		Replica:  rapid.IntRange(0, 2).Draw(t, "replica"),
		Deadline: rapid.SampledFrom(append(often(5, -1, 3000), 0, 300, 600, 640, 650, 700, 1000, 1400, 1449, 1450, 1700, 1<<40)).Draw(t, "deadline"),
		HangUp:   rapid.SampledFrom(append(often(2, durations(0, 0, 0, 0, 0)...), durations(1, 20, 80, 400, 801, 1000, 2000)...)).Draw(t, "hang up"),
	}
})

var rules = rapid.Custom(func(t *rapid.T) rule {
	r := rule{
		Fault:   rapid.IntRange(0, len(walletFaults)-1).Draw(t, "fault"),
		Account: rapid.SampledFrom([]int{-1, -1, 0, 1, 2}).Draw(t, "account"),
		From:    rapid.SampledFrom([]int64{1, 1, 1, 2, 3}).Draw(t, "from"),
		Count:   rapid.SampledFrom([]int64{1, 1, 2, 5, 0}).Draw(t, "count"),
	}
	r.Operation = rapid.SampledFrom(walletFaults[r.Fault].of).Draw(t, "operation")
	return r
})

var storage = rapid.Custom(func(t *rapid.T) storageFault {
	return storageFault{
		Replica: rapid.IntRange(0, 2).Draw(t, "replica"),
		Step: rapid.SampledFrom([]memory.Step{
			memory.Claim, memory.Decide, memory.Claim, memory.Decide, memory.Claim, memory.Decide, memory.Settle, memory.Settle,
			memory.Lease, memory.Accept, memory.Accept, memory.Cancel, memory.Read, memory.Recover,
		}).Draw(t, "step"),
		From:  rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "from"),
		Count: rapid.SampledFrom([]int{1, 1, 2, 4}).Draw(t, "count"),
		How:   rapid.SampledFrom([]how{refused, lost, slow, slowBack, late}).Draw(t, "how"),
		For:   rapid.SampledFrom(durations(20, 99, 101, 199, 201, 299, 301, 800, 2401, 6000, 9000)).Draw(t, "for"),
	}
})

var events = rapid.Custom(func(t *rapid.T) event {
	return event{
		At: rapid.SampledFrom(durations(0, 10, 300, 750, 1100, 2500, 5000, 9000, 15_000)).Draw(t, "at"),
		What: rapid.SampledFrom([]happening{
			freezeCall, freezeCall, killCall, killCall, freeze, kill, drain, drain, drain, refuse, swallow, closeIdle, outage, clockAhead, clockBack, lockUp, lockUp, topUp,
		}).Draw(t, "what"),
		Replica: rapid.IntRange(0, 2).Draw(t, "replica"),
		Account: rapid.IntRange(0, 2).Draw(t, "account"),
		For:     rapid.SampledFrom(durations(100, 1000, 25_000, 3000, 12_000, 8000, 25_000)).Draw(t, "for"),
	}
})

// GoString is what rapid prints of the plan of a schedule that failed.
func (p plan) GoString() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, "\n  "+format, args...) }
	version := walletsim.V2
	if p.V1 {
		version = walletsim.V1
	}
	line("%d replicas, wallet %s (echoes: %v), %+v, what is wrong lingers for %s", p.Replicas, version, p.Echoes, p.Settings, p.Linger)
	for i, k := range p.Keys {
		line("%s: %s of %s, %d of account %d, which has %d", k.name(i), k.operation(), owners[k.Caller], k.Amount, k.Account, p.Accounts[k.Account])
	}
	for i, acts := range p.Tills {
		for _, a := range acts {
			line("till %d: after %s: %s", i, a.Wait, p.describe(a))
		}
	}
	for i, r := range p.Rules {
		line("wallet: %s", p.describeRule(i, r))
	}
	for _, f := range p.Storage {
		line("ledger: %s", p.describeStorage(f))
	}
	for _, e := range p.Events {
		line("at %s: %s (replica %d, account %d) for %s", e.At, e.What, e.Replica%p.Replicas, e.Account, e.For)
	}
	return b.String()
}

func (p plan) describe(a act) string {
	i, k := p.key(a)
	text := fmt.Sprintf("%s %s", a.Deed, k.name(i))
	switch a.Deed {
	case capture, release, credit, payout, lookFollowUp:
		text += fmt.Sprintf(" (follow-up %d, %s)", a.Second, a.Amount)
	case pay, payOther, cancel, cancelShown, cancelOther, look, payBurst, payoutBurst:
	}
	text += fmt.Sprintf(" at replica %d", a.Replica%p.Replicas)
	if a.Deadline >= 0 {
		text += fmt.Sprintf(", waits %d ms", a.Deadline)
	}
	if a.HangUp > 0 {
		text += fmt.Sprintf(", hangs up after %s", a.HangUp)
	}
	return text
}

func (p plan) describeRule(i int, r rule) string {
	text := fmt.Sprintf("rule %d: %s: %s", i, r.Operation, walletFaults[r.Fault].name)
	if r.Account >= 0 {
		text += fmt.Sprintf(", account %d", r.Account)
	}
	return text + fmt.Sprintf(", from the %d., %d of them (0 is all)", r.From, r.Count)
}

func (p plan) describeStorage(f storageFault) string {
	return fmt.Sprintf("replica %d: %s %s (%s), from the %d., %d of them", f.Replica%p.Replicas, stepNames[f.Step], f.How, f.For, f.From, f.Count)
}

// key is the key that a is about.
func (p plan) key(a act) (int, key) { return a.Key, p.Keys[a.Key] }

func (k key) name(i int) string { return fmt.Sprintf("key-%d", i) }

func (k key) operation() string {
	if k.Hold {
		return "hold"
	}
	return "debit"
}

var stepNames = map[memory.Step]string{
	memory.Claim: "claim", memory.Decide: "decide", memory.Read: "read", memory.Recover: "recover", memory.Accept: "accept",
	memory.Cancel: "cancel", memory.Lease: "lease", memory.Settle: "settle", memory.HandBack: "hand back", memory.Operate: "operate",
}
