// Package queue is the work queue: it carries out what is owed after a decision
// (credits, captures, releases and reversals) and owns every retry in the system
// (contract section 4). In the wallet's policy catalogue it is the owner QUEUE of
// every call of the worker lane; nothing else in this process may repeat one, and
// cmd has that checked when it starts. The follow-up's row in the ledger is the
// work item: the queue holds nothing that a crash could lose.
//
// A worker leases a row, makes at most one attempt at it, and writes down how it
// ended with the fence of its lease. Everything else (when it is due again, what
// the next attempt begins with) is in the row. See docs/adr/0011 for the retry
// budget.
package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/time/rate"

	"github.com/safeledger/safeledger/internal/crashpoint"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
)

// ledger is what the queue needs of the durable store. An error of a write means
// that it is not known whether it was made.
type ledger interface {
	// Lease hands out work that is due, as far as order allows: reversals first and
	// none of the kinds starved, each row to one replica. It counts the attempt and
	// gives the row a new fence. A row whose lease ran out is handed out as taken over.
	Lease(ctx context.Context, order payment.LeaseOrder) ([]payment.Work, error)
	// Settle ends an attempt if its fence still holds; false means that somebody
	// else has taken over, and that nothing was written.
	Settle(ctx context.Context, s payment.Settlement) (bool, error)
	// HandBack returns work that was leased and not begun, as if it never had been.
	HandBack(ctx context.Context, w payment.Work) error
}

// wallet is the worker's lane to the wallet. Neither call is ever repeated behind
// its caller's back, and both end by ctx's deadline.
type wallet interface {
	// Enter takes a place among the calls that may be in flight at once, without
	// waiting; ok is false where there is none. The place covers a whole attempt.
	Enter() (leave func(), ok bool)
	// Send makes the call: at most one request on the wire.
	Send(ctx context.Context, in payment.Instruction) payment.Outcome
	// Lookup asks once what became of a call.
	Lookup(ctx context.Context, in payment.Instruction) payment.Evidence
	// BreakerState is that of Send's breaker: "closed", "half-open" or "open".
	BreakerState() string
}

// observer hears what an operator would want to see. Its methods must not block.
type observer interface {
	// Leased hears that the ledger has answered a request for work, whether or not
	// there was any: the sign that this replica's workers are at work.
	Leased()
	// Attempt counts a send that was tried, and how it ended.
	Attempt(kind payment.Operation, class payment.Class, reason payment.Reason)
	// RetryGranted and RetryRefused count what the retry budget said to an attempt.
	RetryGranted()
	RetryRefused()
	// TakenOver counts work whose worker never reported.
	TakenOver(kind payment.Operation)
	// Fenced counts attempts that ended after they had been taken over.
	Fenced(kind payment.Operation)
	// LateApply counts reversals that had ended NOT_APPLIED and were found after all.
	LateApply(operation payment.Operation)
	// DuplicateOnFirstSend counts what must not happen: a claim was lost.
	DuplicateOnFirstSend(kind string)
	// Ended counts follow-ups that left Pending for state.
	Ended(kind payment.Operation, state payment.FollowUpState)
}

// Config is contract section 5's part of the queue.
type Config struct {
	Workers          int             // attempts at once, 32
	Lease            time.Duration   // 20 s
	CallLimit        time.Duration   // all wallet calls of one attempt together, 2 s
	BackoffMin       time.Duration   // 1 s
	BackoffMax       time.Duration   // 5 min
	ParkAfter        time.Duration   // 72 h
	SettleWindow     time.Duration   // 15 min
	LateChecks       []time.Duration // 1 h, 24 h after a reversal found nothing, ascending; none = it is not looked at again
	LookupsPerSecond int             // 20
	// Jitter spreads what would come back, or ask, together; nil is evenly. A test that
	// must be repeatable brings its own.
	Jitter Jitter

	Observer observer
	Log      *slog.Logger
	Tracer   trace.Tracer // nil: nothing is traced
}

func (cfg Config) validate() error {
	var errs []error
	check := func(ok bool, rule string) {
		if !ok {
			errs = append(errs, errors.New("queue: "+rule))
		}
	}
	check(cfg.Workers > 0, "at least one worker is needed")
	check(cfg.CallLimit > 0, "the limit of an attempt must be positive")
	check(cfg.Lease >= 2*cfg.CallLimit, "a lease must be twice as long as an attempt, or nothing can be sent within it")
	check(cfg.BackoffMin > 0 && cfg.BackoffMin <= cfg.BackoffMax, "the first pause must be positive and not above the longest")
	check(cfg.ParkAfter > 0, "the time to park must be positive")
	check(cfg.SettleWindow > 0, "the settle window must be positive")
	check(slices.IsSorted(cfg.LateChecks), "the late checks must ascend")
	check(cfg.LookupsPerSecond > 0, "at least one lookup a second must be allowed")
	check(cfg.Observer != nil, "an observer is needed")
	check(cfg.Log != nil, "a logger is needed")
	return errors.Join(errs...)
}

// The pace of asking for work. Correctness rests on asking alone; the nudge only
// makes it prompt.
const (
	// idlePoll is the longest time until work is found that nobody nudged about.
	idlePoll = time.Second
	// busyPoll is for when there was work a moment ago, or more of it than the
	// allowances let us take: it is also the pace at which tokens are looked for.
	busyPoll = 250 * time.Millisecond
	// gatherFor is how long the first worker that becomes free waits for others, so
	// that a saturated replica leases by the batch and not one by one.
	gatherFor = 5 * time.Millisecond
	// handsPerWorker bounds what is leased and not yet settled: an attempt for each worker,
	// and another whose end is being written.
	handsPerWorker = 2
	// storeLimit bounds a statement of the queue's own. Nobody waits for it but a
	// drain, which has room for it beside an attempt; a settlement that is lost costs
	// a lookup.
	storeLimit = 3 * time.Second
	// halfOpenSends is how many retries at once begin the ramp after the breaker was
	// open: as many as it lets through to see whether the wallet is back.
	halfOpenSends = 3
)

// kinds are the follow-ups that this release can carry out.
var kinds = [...]payment.Operation{payment.Reversal, payment.Capture, payment.Release, payment.Credit} //nolint:gochecknoglobals // a table

// Queue is one replica's share of the work.
type Queue struct {
	ledger   ledger
	wallet   wallet
	observer observer
	log      *slog.Logger
	tracer   trace.Tracer

	lease, callLimit        time.Duration
	backoffMin, backoffMax  time.Duration
	parkAfter, settleWindow time.Duration
	lateChecks              []time.Duration
	jitter                  Jitter

	budget  *retryBudget
	lookups *rate.Limiter
	// brokenAt is when the breaker of sends was last seen to refuse, nil for never.
	brokenAt atomic.Pointer[time.Time]

	nudged  chan struct{} // there may be work
	free    chan struct{} // a token per worker that is free
	hands   chan struct{} // a token per lease that may be taken besides those whose end is not written yet
	freed   chan struct{} // a worker has become free
	written chan struct{} // a lease has ended
	running sync.WaitGroup
}

// New makes a Queue that works for this replica: Run starts it. The error says
// what is wrong with cfg.
func New(l ledger, w wallet, cfg Config) (*Queue, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if cfg.Jitter == nil {
		cfg.Jitter = evenly
	}
	q := &Queue{
		ledger: l, wallet: w, observer: cfg.Observer, log: cfg.Log, tracer: cfg.Tracer,
		lease: cfg.Lease, callLimit: cfg.CallLimit,
		backoffMin: cfg.BackoffMin, backoffMax: cfg.BackoffMax,
		parkAfter: cfg.ParkAfter, settleWindow: cfg.SettleWindow, lateChecks: slices.Clone(cfg.LateChecks),
		jitter: cfg.Jitter,
		budget: newRetryBudget(time.Now()),
		// What may come at once is what comes due between two looks at the queue.
		lookups: rate.NewLimiter(rate.Limit(cfg.LookupsPerSecond), max(1, int(time.Duration(cfg.LookupsPerSecond)*busyPoll/time.Second))),
		nudged:  make(chan struct{}, 1),
		free:    make(chan struct{}, cfg.Workers),
		hands:   make(chan struct{}, handsPerWorker*cfg.Workers),
		freed:   make(chan struct{}, 1),
		written: make(chan struct{}, 1),
	}
	for range cap(q.free) {
		q.free <- struct{}{}
	}
	for range cap(q.hands) {
		q.hands <- struct{}{}
	}
	return q, nil
}

// Nudge says that there may be work now. It never blocks.
func (q *Queue) Nudge() { poke(q.nudged) }

// RetryTokens is what is left in the retry budget, for those who watch it.
func (q *Queue) RetryTokens() float64 {
	return float64(q.budget.balance(time.Now())) / float64(token)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Run works until ctx ends, then takes nothing new, hands back what was leased
// and not begun, lets the attempts that are under way end and settles them, and
// returns. Each of these steps is bounded, together by a few seconds.
func (q *Queue) Run(ctx context.Context) {
	defer q.running.Wait()
	for ctx.Err() == nil {
		if q.able() == 0 {
			q.gather(ctx)
			continue
		}
		q.rest(ctx, q.fill(ctx))
	}
}

// able is how many attempts could begin now.
func (q *Queue) able() int { return min(len(q.free), len(q.hands)) }

// gather waits for a worker to become free, and a moment longer for some more.
func (q *Queue) gather(ctx context.Context) {
	enough := max(1, cap(q.free)/4)
	var moment <-chan time.Time
	for q.able() < enough {
		select {
		case <-ctx.Done():
			return
		case <-moment:
			return
		case <-q.freed:
		case <-q.written:
		}
		if moment == nil {
			timer := time.NewTimer(gatherFor)
			defer timer.Stop()
			moment = timer.C
		}
	}
}

// pace says how soon it is worth asking for work again, if nobody nudges.
type pace struct {
	wait time.Duration // 0 = at once
	// freed: a worker that becomes free is a reason to ask too. It may have brought
	// tokens back, and there is work that waits for them.
	freed bool
}

func (q *Queue) rest(ctx context.Context, p pace) {
	if p.wait == 0 {
		return
	}
	timer := time.NewTimer(p.wait)
	defer timer.Stop()
	freed := q.freed
	if !p.freed {
		freed = nil
	}
	select {
	case <-ctx.Done():
	case <-q.nudged:
	case <-freed:
	case <-timer.C:
	}
}

// fill leases work for the workers that are free and starts it.
func (q *Queue) fill(ctx context.Context) pace {
	order := q.order(q.able())
	begun := time.Now()
	// A lease that has been asked for is waited for even when we are told to stop:
	// otherwise its rows would be nobody's until it runs out.
	leaseCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeLimit)
	defer cancel()
	work, err := q.ledger.Lease(leaseCtx, order)
	if err != nil {
		q.log.ErrorContext(ctx, "work cannot be leased", "error", err)
		return q.idle()
	}
	q.observer.Leased()

	var retries, lookups int
	var unbegun []payment.Work
	for _, w := range work {
		if ctx.Err() != nil || !slices.Contains(order.Kinds, w.Kind) {
			unbegun = append(unbegun, w)
			continue
		}
		a := q.newAttempt(w, begun)
		switch a.w.Turn {
		case payment.FirstTurn:
		case payment.RetryTurn:
			retries++
			a.token = q.budget.take(begun) // now, so that the next order does not count on it
		case payment.LookupTurn:
			lookups++
			q.lookups.ReserveN(begun, 1)
		}
		if w.TakenOver {
			q.observer.TakenOver(w.Kind)
			q.log.WarnContext(ctx, "work is taken over from a worker that never reported", "id", w.ID, "kind", w.Kind)
		}
		<-q.free
		<-q.hands
		q.running.Add(1)
		go q.work(context.WithoutCancel(ctx), a)
	}
	q.handBack(ctx, unbegun)

	switch {
	case len(work) == order.Limit && len(unbegun) == 0:
		return pace{} // there may be more than we have workers for
	case order.Sends && retries >= order.Retries, lookups >= order.Lookups:
		return pace{wait: busyPoll, freed: true} // there may be more than we are allowed
	case len(work) > len(unbegun):
		return pace{wait: busyPoll}
	}
	return q.idle()
}

// idle spreads replicas, so that they do not ask in step.
func (q *Queue) idle() pace {
	return pace{wait: idlePoll*3/4 + q.jitter(idlePoll/4)}
}

// order is what this replica can take on now.
func (q *Queue) order(free int) payment.LeaseOrder {
	now := time.Now()
	breaker := q.wallet.BreakerState()
	if breaker != "closed" {
		q.sawBreaker(now)
	}
	order := payment.LeaseOrder{
		Limit: free, Lease: q.lease, Kinds: kinds[:], Sends: breaker != "open", Backlog: -1,
		Retries: q.budget.available(now), Lookups: max(0, int(q.lookups.TokensAt(now))),
	}
	if at := q.brokenAt.Load(); at != nil {
		order.Backlog = max(0, now.Sub(*at))
	}
	return order
}

// sawBreaker notes that the breaker of sends refuses. What was due by then has
// been postponed by it, and comes back through the retry budget.
func (q *Queue) sawBreaker(now time.Time) {
	q.brokenAt.Store(&now)
	q.budget.broken()
}

// work makes one attempt and writes down how it ended. The worker is free for another
// when the wallet has answered: the next are leased, and sent, while this end waits for
// the disk with others'.
func (q *Queue) work(ctx context.Context, a *attempt) {
	defer func() {
		q.hands <- struct{}{}
		poke(q.written)
		q.running.Done()
	}()
	crashpoint.Here(crashpoint.WorkerAfterLease)
	ctx, span := q.trace(ctx, a.w)
	s := a.perform(ctx)
	q.free <- struct{}{}
	poke(q.freed)
	crashpoint.Here(crashpoint.WorkerBeforeSettle)

	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	_, settling := tracing.Step(ctx, "settle", trace.SpanKindInternal)
	written, err := q.ledger.Settle(ctx, s)
	tracing.End(settling, err)
	if span.IsRecording() {
		span.SetAttributes(attribute.String("safeledger.follow_up.state", string(s.State)))
	}
	tracing.End(span, err)
	crashpoint.Here(crashpoint.WorkerAfterSettle)
	switch {
	case err != nil:
		// Whether it was written or not, the lease runs out, and the next attempt
		// begins with a lookup.
		q.log.ErrorContext(ctx, "attempt cannot be settled", "id", s.ID, "kind", a.w.Kind, "error", err)
	case !written:
		q.observer.Fenced(a.w.Kind)
		q.log.WarnContext(ctx, "attempt was taken over meanwhile, its end is not written", "id", s.ID, "kind", a.w.Kind)
	default:
		q.tell(ctx, a, s)
	}
}

// trace begins the span of an attempt. It has a trace of its own, because attempts go
// on for days, and a link to the request that the follow-up goes back to.
func (q *Queue) trace(ctx context.Context, w payment.Work) (context.Context, trace.Span) {
	if q.tracer == nil {
		return ctx, noop.Span{}
	}
	options := []trace.SpanStartOption{
		trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(
			attribute.String("safeledger.follow_up.id", w.ID.String()), attribute.String("safeledger.follow_up.kind", string(w.Kind)),
			attribute.Int("safeledger.follow_up.attempt", w.Attempts), attribute.Bool("safeledger.follow_up.taken_over", w.TakenOver)),
	}
	if accepted := tracing.Named(ctx, w.Traceparent); accepted.IsValid() {
		options = append(options, trace.WithLinks(trace.Link{SpanContext: accepted}))
	}
	return q.tracer.Start(ctx, "attempt "+string(w.Kind), options...)
}

// tell reports what an attempt has changed, once it is durable.
func (q *Queue) tell(ctx context.Context, a *attempt, s payment.Settlement) {
	if a.w.State == payment.NotApplied && s.TargetID != "" {
		q.observer.LateApply(a.w.Payment.Operation)
		q.log.ErrorContext(ctx, "payment was applied after its reversal had ended, reopened",
			"id", s.ID, "payment_id", a.w.Payment.ID, "since_end_ms", a.w.SinceEnd.Milliseconds())
	}
	if s.State == payment.Pending || s.State == a.w.State {
		return
	}
	q.observer.Ended(a.w.Kind, s.State)
	level := slog.LevelInfo
	if s.State == payment.Parked {
		level = slog.LevelError
	}
	q.log.Log(ctx, level, "follow-up ended", "id", s.ID, "kind", a.w.Kind, "state", s.State, "code", s.Code,
		"attempts", a.w.Attempts, "age_ms", a.w.Age.Milliseconds(), "park_reason", s.ParkReason)
}

// handBack returns what was leased and will not be begun here: because we were
// told to stop, or because it is a newer release's.
func (q *Queue) handBack(ctx context.Context, work []payment.Work) {
	if len(work) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeLimit)
	defer cancel()
	var failed []uuid.UUID
	var errs []error
	for _, w := range work {
		if err := q.ledger.HandBack(ctx, w); err != nil {
			failed, errs = append(failed, w.ID), append(errs, err)
		}
	}
	if len(failed) > 0 {
		q.log.ErrorContext(ctx, "work cannot be handed back, its leases will run out",
			"count", len(failed), "first_id", failed[0], "error", fmt.Errorf("hand back: %w", errs[0]))
	}
}
