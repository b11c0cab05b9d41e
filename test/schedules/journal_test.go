package schedules

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/servicetest"
)

// journal is what a schedule leaves behind for the oracle, besides the wallet's book and
// the ledger's rows.
type journal struct {
	mu         sync.Mutex
	exchanges  []*exchange
	calls      []*call
	strikes    []strike
	stills     []still
	notes      []note
	seen       map[string]int // marks
	complaints []complaint
	fences     map[uuid.UUID]int64 // the newest lease that was given of each follow-up
}

// exchange is one request of a till, and what it heard.
type exchange struct {
	n      int
	till   int
	act    act
	keyOf  int    // the plan's key that it is about
	follow string // the key of a follow-up, "" of none
	method string
	path   string
	body   string
	on     *process
	last   bool // sent when all was quiet

	sent, ended time.Time // ended is zero as long as there was no answer
	err         error     // no answer: hung up, or the connection was lost
	status      int
	retryAfter  string
	location    string
	replayed    bool
	answer      string
	told        told

	handled bool // behind the gate
	states  int  // statements to the ledger that were made for it
	struck  bool // one of them was slow
	failed  bool // one of them failed
}

// told are the members of an answer that the oracle looks at.
type told struct {
	ID        string `json:"id"`
	Code      string `json:"code"`
	Decision  string `json:"decision"`
	Status    any    `json:"status"`
	WalletID  string `json:"walletId"`
	Reversal  string `json:"reversal"`
	Kind      string `json:"kind"`
	Account   string `json:"account"`
	FollowUps []struct {
		ID     string `json:"id"`
		Status string `json:"status"`
	} `json:"followUps"`
}

// call is one call of a lane.
type call struct {
	lane     string // "decision" or "worker"
	p        *process
	exchange int
	lookup   bool
	in       payment.Instruction

	began, deadline, ended time.Time // ended is zero if it never was
	outcome                payment.Outcome
	evidence               payment.Evidence
}

// strike is a storage fault that struck.
type strike struct {
	p        *process
	exchange int
	step     memory.Step
	how      how
	wait     time.Duration
	at       time.Time
}

// still is a time in which a process stood still.
type still struct {
	p         *process
	from, til time.Time
}

type note struct {
	at   time.Time
	text string
}

// complaint is an invariant that was broken.
type complaint struct{ invariant, text string }

func (j *journal) complain(invariant, format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.complaints = append(j.complaints, complaint{invariant, fmt.Sprintf(format, args...)})
}

func (j *journal) note(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.notes = append(j.notes, note{time.Now(), fmt.Sprintf(format, args...)})
}

// mark counts that something was reached.
func (j *journal) mark(name string) { j.marks(name, 1) }

func (j *journal) marks(name string, n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil {
		j.seen = map[string]int{}
	}
	j.seen[name] += n
}

// begin numbers an exchange.
func (j *journal) begin(e *exchange) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.n, e.sent = len(j.exchanges), time.Now()
	j.exchanges = append(j.exchanges, e)
}

func (j *journal) handled(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n >= 0 && n < len(j.exchanges) {
		j.exchanges[n].handled = true
	}
}

func (j *journal) stated(n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if n != none {
		j.exchanges[n].states++
	}
}

func (j *journal) struck(p *process, n int, step memory.Step, h how, d time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.strikes = append(j.strikes, strike{p, n, step, h, d, time.Now()})
	if n != none {
		e := j.exchanges[n]
		e.struck = e.struck || h == slow || h == slowBack
		e.failed = true
	}
}

func (j *journal) stoodStill(p *process, from, til time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stills = append(j.stills, still{p, from, til})
}

// stood reports whether p stood still at any time from then to til.
func (j *journal) stood(p *process, from, til time.Time) bool {
	return slices.ContainsFunc(j.stills, func(s still) bool { return s.p == p && !s.from.After(til) && !s.til.Before(from) })
}

func (j *journal) leased(w payment.Work) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fences == nil {
		j.fences = map[uuid.UUID]int64{}
	}
	j.fences[w.ID] = max(j.fences[w.ID], w.Fence)
}

func (j *journal) newestLease(id uuid.UUID) int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.fences[id]
}

func (j *journal) called(c *call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls = append(j.calls, c)
}

func (j *journal) ended(c *call, how func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c.ended = time.Now()
	how()
}

// observer marks what a process tells its metrics.
type observer struct {
	servicetest.Silent

	journal *journal
	p       *process
}

func (o *observer) BreakerChanged(breaker, state string) {
	o.journal.mark("breaker of " + breaker + "s: " + state)
}

func (o *observer) TakenOver(kind payment.Operation) {
	o.journal.mark("queue: taken over: " + string(kind))
}

func (o *observer) Fenced(payment.Operation)    { o.journal.mark(markFenced) }
func (o *observer) LateApply(payment.Operation) { o.journal.mark(markReopened) }

func (o *observer) DuplicateOnFirstSend(kind string) {
	o.journal.complain("I2", "the wallet calls the first send of a %s a duplicate", kind)
}

func (o *observer) Ended(kind payment.Operation, state payment.FollowUpState) {
	o.journal.mark(fmt.Sprintf("queue: %s ended %s", kind, state))
}

func (o *observer) NotSent(_ payment.Operation, reason payment.Reason) {
	o.journal.mark("decision: not sent: " + string(reason))
}
