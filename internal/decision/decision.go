// Package decision is the sequence that decides a payment while a till waits:
// claim, one wallet call, at most one lookup, store, answer (contract section 2).
// It knows no HTTP and no SQL, and it retries nothing: the one owner of retries
// is the work queue. See ADR 0001.
package decision

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/crashpoint"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
)

// ledger is what a decision needs of the durable store. An error of either
// method means that it is not known whether the write is durable.
type ledger interface {
	// Claim makes req's key ours, durably, or says whose it is. Of any number of
	// concurrent claims of one key, on any number of replicas, one gets ClaimNew.
	Claim(ctx context.Context, req payment.Request) (payment.Claim, error)
	// Decide stores d if p, which is as Claim gave it, is still in flight, with its
	// reversal in the same transaction, and returns what is stored then, whoever
	// stored it.
	Decide(ctx context.Context, p payment.Payment, d payment.Decision) (payment.Payment, error)
}

// wallet is the decision path's lane to the wallet. Neither call is ever
// repeated behind its caller's back, and both end by ctx's deadline.
type wallet interface {
	// Enter takes a place among the calls that may be in flight at once, without
	// waiting; ok is false where there is none. The place covers a call and its lookup.
	Enter() (leave func(), ok bool)
	// Send makes the call: at most one request on the wire.
	Send(ctx context.Context, in payment.Instruction) payment.Outcome
	// Lookup asks once what became of a call.
	Lookup(ctx context.Context, in payment.Instruction) payment.Evidence
}

// Limits are the parts of the budget (contract section 2).
type Limits struct {
	Call      time.Duration // the wallet call gets at most this, 800 ms
	Lookup    time.Duration // the lookup, 300 ms
	MinToSend time.Duration // with less left nothing is sent, 50 ms
}

// The reserves of our own writes: what they get at least, however little is
// left, so that even a header of 0 ends in a stored decision. Together they are
// the 300 ms that seed ADR-0007 keeps between the calls and the server budget.
const (
	ClaimReserve = 100 * time.Millisecond
	StoreReserve = 200 * time.Millisecond
)

// Decider decides payments.
type Decider struct {
	ledger ledger
	wallet wallet
	limits Limits
}

// New makes a Decider.
func New(l ledger, w wallet, limits Limits) *Decider {
	return &Decider{ledger: l, wallet: w, limits: limits}
}

// Result is the answer to a request for a payment.
type Result struct {
	Status Status
	// Payment is what is stored: the answer, for Decided and Replayed.
	Payment payment.Payment
	Steps   Steps
}

// Status says what kind of an answer a Result is. The zero value is invalid.
type Status uint8

// The kinds of answers.
const (
	_         Status = iota
	Decided          // by this request
	Replayed         // the key's stored answer, given again
	InFlight         // another request with this key is being decided
	Mismatch         // the key belongs to a different request
	Cancelled        // approved, and cancelled by key since: not to be told as an approval again
)

// Steps tells how a decision came about and where its time went, for logs and
// metrics. A step that was not taken has the zero value.
type Steps struct {
	Claim, Call, Lookup, Store time.Duration

	Outcome  payment.Outcome
	Evidence payment.Evidence
	// Unsent is set where the wallet was not even asked, because there was no place
	// or no time for it: its lane then knows nothing of the call, and has not counted it.
	Unsent bool
}

// Decide answers req by deadline. It must be given a context that does not end
// when the till hangs up: a payment that has been claimed is decided whoever
// still listens.
//
// A non-nil error means that our own storage failed, so that no answer is known
// to be stored: the till must hear that the outcome is unknown, and recovery
// decides.
func (d *Decider) Decide(ctx context.Context, req payment.Request, deadline budget.Deadline) (Result, error) {
	var steps Steps
	term := newTerm(ctx, deadline)
	defer term.cancel()

	claim, err := d.claim(term, req, &steps)
	if err != nil {
		return Result{Steps: steps}, err
	}
	if claim.Status != payment.ClaimNew {
		result, err := existing(claim)
		result.Steps = steps
		return result, err
	}
	crashpoint.Here(crashpoint.AfterClaim)

	calls := d.ask(ctx, claim.Payment.Instruction(), deadline, &steps)
	crashpoint.Here(crashpoint.AfterWalletAnswer)

	verdict := conclude(steps.Outcome, steps.Evidence)
	stored, err := d.store(term, claim.Payment, verdict, calls, &steps)
	if err != nil {
		return Result{Payment: claim.Payment, Steps: steps}, err
	}
	crashpoint.Here(crashpoint.BeforeAnswer)
	return Result{Status: Decided, Payment: stored, Steps: steps}, nil
}

// existing answers with what is there already: whoever does not own the key goes
// no further, also with a status that this code does not know.
func existing(claim payment.Claim) (Result, error) {
	switch claim.Status {
	case payment.ClaimDecided:
		return Result{Status: Replayed, Payment: claim.Payment}, nil
	case payment.ClaimCancelled:
		return Result{Status: Cancelled, Payment: claim.Payment}, nil
	case payment.ClaimInFlight:
		return Result{Status: InFlight}, nil
	case payment.ClaimMismatch:
		return Result{Status: Mismatch}, nil
	case payment.ClaimNew:
	}
	return Result{}, fmt.Errorf("claim: unknown status %d", claim.Status)
}

// term is how long a decision has, for its own writes.
type term struct {
	ctx      context.Context // ends by the deadline of the decision
	cancel   context.CancelFunc
	parent   context.Context
	deadline budget.Deadline
}

func newTerm(ctx context.Context, deadline budget.Deadline) term {
	t := term{parent: ctx, deadline: deadline}
	t.ctx, t.cancel = deadline.Context(ctx)
	return t
}

// atLeast is a context for a step that begins now and must have so long. For nearly every
// step that is the decision's own, which has one timer for all of them.
func (t term) atLeast(now time.Time, reserve time.Duration) (context.Context, context.CancelFunc) {
	if later := t.deadline.AtLeast(now, reserve); later != t.deadline {
		return later.Context(t.parent)
	}
	return t.ctx, func() {}
}

func (d *Decider) claim(t term, req payment.Request, steps *Steps) (payment.Claim, error) {
	start := time.Now()
	ctx, cancel := t.atLeast(start, ClaimReserve)
	defer cancel()
	// The ledger is given the request's own span: what it stores goes back to that one.
	_, span := tracing.Step(ctx, "claim", trace.SpanKindInternal)
	claim, err := d.ledger.Claim(ctx, req)
	tracing.End(span, err)
	steps.Claim = time.Since(start)
	if err != nil {
		return payment.Claim{}, fmt.Errorf("claim: %w", err)
	}
	return claim, nil
}

// call is a line of the timeline whose Ago is known only when it is stored.
type call struct {
	payment.WalletCall
	began time.Time
}

// ask makes the one call and, only where that ended in doubt and time is left,
// the one lookup. It gives what is to be written down of them: also a call that
// was not made leaves its line, because it is the reason for a decline.
func (d *Decider) ask(ctx context.Context, in payment.Instruction, deadline budget.Deadline, steps *Steps) []call {
	start := time.Now()
	leave, ok := d.wallet.Enter()
	if !ok {
		return []call{unsent(in, payment.ReasonBulkheadFull, start, steps)}
	}
	defer leave()

	start = time.Now()
	if !deadline.EnoughToSend(start, d.limits.MinToSend) {
		return []call{unsent(in, payment.ReasonDeadlineSpent, start, steps)}
	}
	callCtx, cancel := deadline.CapAt(start, d.limits.Call).Context(ctx)
	steps.Outcome = d.wallet.Send(callCtx, in)
	cancel()
	steps.Call = time.Since(start)
	calls := []call{of(in, steps.Outcome, start, steps.Call)}

	start = time.Now()
	if steps.Outcome.Class == payment.Ambiguous && deadline.EnoughToSend(start, d.limits.MinToSend) {
		lookupCtx, cancel := deadline.CapAt(start, d.limits.Lookup).Context(ctx)
		steps.Evidence = d.wallet.Lookup(lookupCtx, in)
		cancel()
		steps.Lookup = time.Since(start)
		calls = append(calls, call{payment.WalletCall{
			Call: lookup, Outcome: steps.Evidence.Finding.String(), Reason: steps.Evidence.Reason, Status: steps.Evidence.Status, Took: steps.Lookup,
		}, start})
	}
	return calls
}

// lookup is what a lookup is called in the timeline, see payment.WalletCall.
const lookup = "lookup"

// unsent is the call that was not made, and why.
func unsent(in payment.Instruction, reason payment.Reason, at time.Time, steps *Steps) call {
	steps.Outcome = payment.Outcome{Class: payment.Unavailable, Reason: reason}
	steps.Unsent = true
	return of(in, steps.Outcome, at, 0)
}

func of(in payment.Instruction, outcome payment.Outcome, began time.Time, took time.Duration) call {
	return call{payment.WalletCall{
		Call: string(in.Operation), Outcome: outcome.Class.String(), Reason: outcome.Reason, Status: outcome.Status, Took: took,
	}, began}
}

// conclude is the table of contract section 2. evidence is the zero Evidence
// where no lookup was made.
func conclude(outcome payment.Outcome, evidence payment.Evidence) payment.Decision {
	switch outcome.Class {
	case payment.Success:
		return payment.Approve(outcome.WalletID)
	case payment.Rejected:
		return decline(outcome.Code, outcome)
	case payment.Unavailable:
		return decline(payment.WalletUnavailable, outcome)
	case payment.Ambiguous:
		switch evidence.Finding {
		case payment.FoundApplied:
			return payment.Approve(evidence.WalletID)
		case payment.FoundRejected:
			return payment.Decline(evidence.Code)
		case payment.NotFound, payment.NoEvidence:
			// Not found is not proof: the original may still land.
		}
	}
	return payment.DeclineAndReverse(payment.WalletTimeout)
}

func decline(code payment.Code, outcome payment.Outcome) payment.Decision {
	if outcome.Unproven() {
		return payment.DeclineAndReverse(code)
	}
	return payment.Decline(code)
}

func (d *Decider) store(t term, p payment.Payment, verdict payment.Decision, calls []call, steps *Steps) (payment.Payment, error) {
	start := time.Now()
	ctx, cancel := t.atLeast(start, StoreReserve)
	defer cancel()
	for _, c := range calls {
		c.Ago = start.Sub(c.began)
		verdict.Calls = append(verdict.Calls, c.WalletCall)
	}
	_, span := tracing.Step(ctx, "store", trace.SpanKindInternal)
	stored, err := d.ledger.Decide(ctx, p, verdict)
	tracing.End(span, err)
	steps.Store = time.Since(start)
	if err != nil {
		return payment.Payment{}, fmt.Errorf("store the decision of %s: %w", p.ID, err)
	}
	return stored, nil
}
