package queue

import (
	"sync"
	"time"
)

// tokens are counted in billionths, so that ten tenths are a whole one, which
// they are not as sums of floating-point numbers, and so that the clock, which pays
// in one token a second, pays one of these a nanosecond.
type tokens int64

const token tokens = 1e9

// The retry budget's numbers (contract section 4). The clock's is above.
const (
	budgetStart     = 10 * token
	budgetMost      = 100 * token
	budgetPerFirst  = token / 10 // paid in by a first attempt
	budgetPerAnswer = 2 * token  // paid back for a retry that was answered: its own, and one more
)

// rampMost is more retries at once than the budget can ever pay for: no ramp.
const rampMost = int(budgetMost / token)

// retryBudget bounds retries as a fraction of traffic: while everything fails
// there are roughly none, and a wallet that has recovered sees a doubling ramp,
// neither a herd nor a trickle. It belongs to one replica and one wallet, and is
// kept in memory only: a replica that starts anew starts with what is paid for
// ten retries. See docs/adr/0011.
type retryBudget struct {
	mu   sync.Mutex
	left tokens
	at   time.Time // when left was last brought up to date
	// ramp bounds the retries at once after the breaker was open: nothing was spent
	// meanwhile and the clock went on paying in, so that the tokens alone would send
	// the herd. Each answer adds one, which doubles it with every round trip.
	ramp int
	held int // tokens that were taken for retries which have not ended
}

func newRetryBudget(now time.Time) *retryBudget {
	return &retryBudget{left: budgetStart, at: now, ramp: rampMost}
}

// available is the number of retries that may be begun now.
func (b *retryBudget) available(now time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	return min(int(b.left/token), max(b.ramp-b.held, 0))
}

// balance is what is left.
func (b *retryBudget) balance(now time.Time) tokens {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	return b.left
}

// take takes a token for one retry, if there is one. Whoever gets it says how the
// retry ended: answered, unused or lost.
func (b *retryBudget) take(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refill(now)
	if b.left < token || b.held >= b.ramp {
		return false
	}
	b.left -= token
	b.held++
	return true
}

// answered pays back for a retry that got a Success or a verdict.
func (b *retryBudget) answered(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(now, budgetPerAnswer)
	b.held--
	b.ramp = min(b.ramp+1, rampMost)
}

// unused gives a token back whose retry was not made.
func (b *retryBudget) unused(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(now, token)
	b.held--
}

// lost is the end of a retry that got neither: its token is gone.
func (b *retryBudget) lost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held--
}

// first pays in for a first attempt.
func (b *retryBudget) first(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.put(now, budgetPerFirst)
}

// broken says that the breaker refuses: what comes afterwards begins with as few
// as it lets through.
func (b *retryBudget) broken() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ramp = halfOpenSends
}

// put needs mu.
func (b *retryBudget) put(now time.Time, n tokens) {
	b.refill(now)
	b.left = min(b.left+n, budgetMost)
}

// refill adds what the clock has paid in. Callers come with their own now, in no
// particular order; time that has been paid for once is not paid for again. It
// needs mu.
func (b *retryBudget) refill(now time.Time) {
	if passed := now.Sub(b.at); passed > 0 {
		b.left += min(tokens(passed.Nanoseconds()), budgetMost-b.left)
		b.at = now
	}
}
