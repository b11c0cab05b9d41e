package queue

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// fakeLedger is the ledger's half of the queue's promises, in memory: due times
// and leases by one clock, a fence in every write, the stored turn. What it does
// not have is the fairness between kinds, which is the real one's.
type fakeLedger struct {
	mu   sync.Mutex
	rows []*row // in the order in which they were accepted

	leases    int // calls of Lease
	batches   []int
	fenced    int
	handBacks int

	onLease func()                           // called without the lock, before each Lease
	settled func(s payment.Settlement) error // called before each Settle; an error = nothing is written
}

// row is a follow-up as the ledger stores it.
type row struct {
	work payment.Work // Fence, Attempts, Lookups, Turn, Resolve, TargetID, LateChecks, State as stored

	accepted, tried, ended time.Time
	due                    time.Time // zero = nothing is due
	leased                 time.Time // until when, zero = nobody's
	doubt                  time.Time // when a send last ended in doubt, zero = never
	code                   payment.Code
	walletID, parkReason   string
	calls                  []payment.WalletCall
	started                []time.Time // when it was leased
	starts                 []payment.Work
	pauses                 []time.Duration
}

func (l *fakeLedger) accept(works ...payment.Work) []*row {
	l.mu.Lock()
	defer l.mu.Unlock()
	var added []*row
	for _, w := range works {
		w.State = payment.Pending
		now := time.Now()
		r := &row{work: w, accepted: now, tried: now, due: now}
		l.rows = append(l.rows, r)
		added = append(added, r)
	}
	return added
}

func (l *fakeLedger) Lease(ctx context.Context, order payment.LeaseOrder) ([]payment.Work, error) {
	if l.onLease != nil {
		l.onLease()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leases++
	now := time.Now()
	due := slices.DeleteFunc(slices.Clone(l.rows), func(r *row) bool {
		return !slices.Contains(order.Kinds, r.work.Kind) ||
			r.due.IsZero() || now.Before(r.due) || now.Before(r.leased)
	})
	slices.SortStableFunc(due, func(a, b *row) int {
		if a.work.Kind != b.work.Kind && (a.work.Kind == payment.Reversal || b.work.Kind == payment.Reversal) {
			if a.work.Kind == payment.Reversal {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.due.UnixNano(), b.due.UnixNano())
	})
	var out []payment.Work
	for _, r := range due {
		if len(out) == order.Limit {
			break
		}
		takenOver := !r.leased.IsZero()
		turn := r.work.Turn
		switch {
		case takenOver:
			turn = payment.LookupTurn
		case turn == payment.FirstTurn && order.Backlog >= 0 && r.due.Before(now.Add(-order.Backlog)):
			turn = payment.RetryTurn
		}
		switch turn {
		case payment.FirstTurn:
			if !order.Sends {
				continue
			}
		case payment.RetryTurn:
			if !order.Sends || order.Retries == 0 {
				continue
			}
			order.Retries--
		case payment.LookupTurn:
			if order.Lookups == 0 {
				continue
			}
			order.Lookups--
		}
		r.work.Fence++
		r.work.Attempts++
		r.leased = now.Add(order.Lease)
		if takenOver {
			r.work.Turn, r.work.Resolve = payment.LookupTurn, true
			r.doubt = now
		}
		w := r.work
		w.Turn, w.TakenOver = turn, takenOver
		w.Age, w.Tried = now.Sub(r.accepted), now.Sub(r.tried)
		if !r.doubt.IsZero() {
			w.InDoubt, w.SinceDoubt = true, now.Sub(r.doubt)
		}
		if !r.ended.IsZero() {
			w.SinceEnd = now.Sub(r.ended)
		}
		r.started = append(r.started, now)
		r.starts = append(r.starts, w)
		out = append(out, w)
	}
	l.batches = append(l.batches, len(out))
	if err := ctx.Err(); err != nil {
		return nil, err // broken off: it may be durable all the same, and here it is
	}
	return out, nil
}

func (l *fakeLedger) find(id uuid.UUID) *row {
	for _, r := range l.rows {
		if r.work.ID == id {
			return r
		}
	}
	return nil
}

func (l *fakeLedger) Settle(_ context.Context, s payment.Settlement) (bool, error) {
	if l.settled != nil {
		if err := l.settled(s); err != nil {
			return false, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.find(s.ID)
	if r.work.Fence != s.Fence || r.leased.IsZero() {
		l.fenced++
		return false, nil
	}
	now := time.Now()
	r.leased, r.due = time.Time{}, time.Time{}
	if s.Due {
		r.due = now.Add(s.Pause)
		r.pauses = append(r.pauses, s.Pause)
	}
	if s.Unspent {
		r.work.Attempts--
	}
	if s.Doubt {
		r.doubt = now
	}
	if r.ended.IsZero() && s.State != payment.Pending && s.State != payment.Parked {
		r.ended = now
	}
	r.work.State, r.work.Turn, r.work.Resolve = s.State, s.Turn, s.Resolve
	r.work.TargetID, r.work.Lookups, r.work.LateChecks = s.TargetID, s.Lookups, s.LateChecks
	r.code, r.walletID, r.parkReason = s.Code, s.WalletID, s.ParkReason
	r.calls = append(r.calls, s.Calls...)
	return true, nil
}

func (l *fakeLedger) HandBack(_ context.Context, w payment.Work) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handBacks++
	if r := l.find(w.ID); r.work.Fence == w.Fence {
		r.leased = time.Time{}
		r.work.Attempts--
	}
	return nil
}

// redrive is what an operator does to a parked operation.
func (l *fakeLedger) redrive(r *row) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r.work.State, r.tried, r.due = payment.Pending, time.Now(), time.Now()
}

// snapshot is a copy of r that a test may look at while the queue runs.
func (l *fakeLedger) snapshot(r *row) row {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *r
}

// count counts the rows in state.
func (l *fakeLedger) count(state payment.FollowUpState) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.rows {
		if r.work.State == state {
			n++
		}
	}
	return n
}

// sent is a request that the fake wallet got.
type sent struct {
	at     time.Time
	lookup bool
	in     payment.Instruction
}

// fakeWallet says what it is told to, and remembers what it was asked.
type fakeWallet struct {
	mu    sync.Mutex
	state string // of the breaker, "" = closed
	full  bool   // no place to enter
	takes time.Duration

	// onSend and onLookup say what the n-th of them finds, from 1. A nil onSend
	// succeeds, a nil onLookup finds nothing.
	onSend   func(n int, in payment.Instruction) payment.Outcome
	onLookup func(n int, in payment.Instruction) payment.Evidence

	calls          []sent
	sends, lookups int
	inside         int
}

func (w *fakeWallet) Enter() (func(), bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full {
		return func() {}, false
	}
	w.inside++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.inside--
	}, true
}

func (w *fakeWallet) BreakerState() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return cmp.Or(w.state, "closed")
}

func (w *fakeWallet) breaker(state string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = state
}

func (w *fakeWallet) Send(ctx context.Context, in payment.Instruction) payment.Outcome {
	w.mu.Lock()
	if w.state == "open" {
		w.mu.Unlock()
		return unavailable(payment.ReasonBreakerOpen)
	}
	w.sends++
	n, answer, takes := w.sends, w.onSend, w.takes
	w.calls = append(w.calls, sent{time.Now(), false, in})
	w.mu.Unlock()
	if !within(ctx, takes) {
		return ambiguous(payment.ReasonTimeout)
	}
	if answer == nil {
		return success("w-" + in.Reference.String()[:8])
	}
	return answer(n, in)
}

func (w *fakeWallet) Lookup(ctx context.Context, in payment.Instruction) payment.Evidence {
	w.mu.Lock()
	w.lookups++
	n, answer, takes := w.lookups, w.onLookup, w.takes
	w.calls = append(w.calls, sent{time.Now(), true, in})
	w.mu.Unlock()
	if !within(ctx, takes) {
		return blind(payment.ReasonTimeout)
	}
	if answer == nil {
		return notFound
	}
	return answer(n, in)
}

// asked are the calls so far.
func (w *fakeWallet) asked() []sent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.calls)
}

func within(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	if d == 0 {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// What wallets say, in the fewest words.
var (
	notFound = payment.Evidence{Finding: payment.NotFound, Reason: payment.ReasonVerdict, Status: 404}
	refuse   = unavailable(payment.ReasonConnectFailed)
)

func success(id string) payment.Outcome {
	return payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: id, Status: 200}
}

func no(status int, code payment.Code) payment.Outcome {
	return payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonVerdict, Verdict: true, Code: code, Status: status}
}

func foreign(status int) payment.Outcome {
	return payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonNoVerdict, Code: payment.WalletRejected, Status: status}
}

func unavailable(reason payment.Reason) payment.Outcome {
	return payment.Outcome{Class: payment.Unavailable, Reason: reason}
}

func gateway(status int, reason payment.Reason) payment.Outcome {
	return payment.Outcome{Class: payment.Unavailable, Reason: reason, Status: status}
}

func ambiguous(reason payment.Reason) payment.Outcome {
	return payment.Outcome{Class: payment.Ambiguous, Reason: reason}
}

func applied(id string) payment.Evidence {
	return payment.Evidence{Finding: payment.FoundApplied, Reason: payment.ReasonApplied, WalletID: id, Status: 200}
}

func rejected(code payment.Code) payment.Evidence {
	return payment.Evidence{Finding: payment.FoundRejected, Reason: payment.ReasonVerdict, Code: code, Status: 200}
}

func blind(reason payment.Reason) payment.Evidence {
	return payment.Evidence{Finding: payment.NoEvidence, Reason: reason}
}

// fakeObserver counts.
type fakeObserver struct {
	mu sync.Mutex
	n  counts
}

type counts struct {
	leased, attempts, granted, refused, takenOver, fenced, late, duplicates int
	ended                                                                   map[payment.FollowUpState]int
}

// seen is what it has counted so far.
func (o *fakeObserver) seen() counts {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.n
	n.ended = maps.Clone(n.ended)
	return n
}

func (o *fakeObserver) add(n *int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	*n++
}

func (o *fakeObserver) Attempt(payment.Operation, payment.Class, payment.Reason) {
	o.add(&o.n.attempts)
}
func (o *fakeObserver) Leased()                     { o.add(&o.n.leased) }
func (o *fakeObserver) RetryGranted()               { o.add(&o.n.granted) }
func (o *fakeObserver) RetryRefused()               { o.add(&o.n.refused) }
func (o *fakeObserver) TakenOver(payment.Operation) { o.add(&o.n.takenOver) }
func (o *fakeObserver) Fenced(payment.Operation)    { o.add(&o.n.fenced) }
func (o *fakeObserver) LateApply(payment.Operation) { o.add(&o.n.late) }
func (o *fakeObserver) DuplicateOnFirstSend(string) { o.add(&o.n.duplicates) }

func (o *fakeObserver) Ended(_ payment.Operation, state payment.FollowUpState) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.n.ended == nil {
		o.n.ended = map[payment.FollowUpState]int{}
	}
	o.n.ended[state]++
}

// defaults are the numbers of contract section 5.
func defaults(o *fakeObserver) Config {
	return Config{
		Workers: 32, Lease: 20 * time.Second, CallLimit: 2 * time.Second,
		BackoffMin: time.Second, BackoffMax: 5 * time.Minute, ParkAfter: 72 * time.Hour,
		SettleWindow: 15 * time.Minute, LateChecks: []time.Duration{time.Hour, 24 * time.Hour}, LookupsPerSecond: 20,
		Observer: o, Log: slog.New(slog.DiscardHandler),
	}
}

func newQueue(t *testing.T, l ledger, w wallet, o *fakeObserver, change ...func(*Config)) *Queue {
	t.Helper()
	cfg := defaults(o)
	for _, c := range change {
		c(&cfg)
	}
	q, err := New(l, w, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// run runs q until the test stops it, by the function that it returns, or ends.
func run(t *testing.T, q *Queue) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Run(ctx)
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// wait lets fake time pass, and what is due by then happen.
func wait(d time.Duration) {
	time.Sleep(d) // fake time: it stands for what passes meanwhile
	synctest.Wait()
}

// Work of each kind. References are made of the id, as they would be of the key.

func reference(id uuid.UUID) payment.Reference {
	return payment.Request{Caller: "c", Operation: payment.Credit, Key: payment.Key(id.String())}.DeriveReference()
}

func euros(minor int64) payment.Money { return payment.Money{AmountMinor: minor, Currency: "EUR"} }

func credit() payment.Work {
	id := uuid.New()
	return payment.Work{ID: id, Kind: payment.Credit, Turn: payment.FirstTurn, Outbound: reference(id), Account: "a", Amount: euros(500)}
}

func hold() payment.Payment {
	id := uuid.New()
	return payment.Payment{ID: id, Operation: payment.Hold, Account: "a", Amount: euros(900), Reference: reference(id), State: payment.Approved, WalletID: "hold-1"}
}

func debit() payment.Payment {
	id := uuid.New()
	return payment.Payment{ID: id, Operation: payment.Debit, Account: "a", Amount: euros(900), Reference: reference(id), State: payment.Approved, WalletID: "debit-1"}
}

func capture() payment.Work {
	id := uuid.New()
	return payment.Work{ID: id, Kind: payment.Capture, Turn: payment.FirstTurn, Outbound: reference(id), Amount: euros(900), Payment: hold()}
}

func release() payment.Work {
	id := uuid.New()
	return payment.Work{ID: id, Kind: payment.Release, Turn: payment.FirstTurn, Outbound: reference(id), Payment: hold()}
}

// reversalOf is the reversal of a declined p: what the wallet did is not known.
func reversalOf(p payment.Payment) payment.Work {
	p.State, p.Code, p.WalletID = payment.Declined, payment.WalletTimeout, ""
	return payment.Work{ID: uuid.New(), Kind: payment.Reversal, Turn: payment.LookupTurn, Outbound: p.Reference.Reversal(), Payment: p}
}

// cancellationOf is the reversal of an approved p.
func cancellationOf(p payment.Payment) payment.Work {
	return payment.Work{ID: uuid.New(), Kind: payment.Reversal, Turn: payment.FirstTurn, Outbound: p.Reference.Reversal(), Payment: p, TargetID: p.WalletID}
}
