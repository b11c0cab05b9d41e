package queue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/safeledger/safeledger/internal/payment"
)

// fault is what goes wrong with one call, or with the worker that makes it.
type fault string

// The faults.
const (
	fine        fault = "fine"
	refused     fault = "connection refused"
	lostBefore  fault = "lost before the wallet"
	lostAfter   fault = "applied, answer lost"
	lateByProxy fault = "lost, and lands 30 s later"
	gateway502  fault = "applied, the gateway says 502"
	gateway503  fault = "not applied, the gateway says 503"
	ingress404  fault = "an ingress says 404"
	tooMany     fault = "429"
	breakerOpen fault = "breaker open"
	hangs       fault = "hangs"
	blindLookup fault = "lookup without evidence"
	pendingSays fault = "lookup says pending"
	crashBefore fault = "worker dies before it settles"
	crashAfter  fault = "worker dies after it has settled"
	stopped     fault = "worker is stopped past its lease"
)

var (
	sendFaults   = []fault{fine, refused, lostBefore, lostAfter, lateByProxy, gateway502, gateway503, ingress404, tooMany, breakerOpen, hangs}
	lookupFaults = []fault{fine, blindLookup, pendingSays, breakerOpen, hangs}
	settleFaults = []fault{fine, fine, crashBefore, crashAfter, stopped}
)

// item is one follow-up of a random history, and what its calls meet, in order;
// when these have run out, all is fine.
type item struct {
	kind                  string
	sends, looks, settles []fault
	// closed: the wallet says no to it, for good.
	closed bool
	// of a reversal of a decline: what became of the payment
	original fault
}

// book is a wallet with a memory: it applies a reference once, and knows holds.
type book struct {
	mu      sync.Mutex
	items   map[payment.Reference]*item // by every reference of the item
	applied map[payment.Reference]payment.Instruction
	times   map[payment.Reference]int
	holds   map[string]string // id: held, captured or released
	first   map[payment.Reference]payment.Instruction
	faults  []string
}

func (b *book) Enter() (func(), bool) { return func() {}, true }
func (b *book) BreakerState() string  { return "closed" }

func next(list *[]fault) fault {
	if len(*list) == 0 {
		return fine
	}
	f := (*list)[0]
	*list = (*list)[1:]
	return f
}

func (b *book) wrong(format string, args ...any) {
	b.faults = append(b.faults, fmt.Sprintf(format, args...))
}

// apply needs mu.
func (b *book) apply(in payment.Instruction) payment.Outcome {
	if _, there := b.applied[in.Reference]; there {
		return success("w-" + in.Reference.String())
	}
	if b.items[in.Reference].closed {
		return no(404, "ACCOUNT_NOT_FOUND")
	}
	if in.HoldID != "" {
		if b.holds[in.HoldID] != "held" {
			return no(409, "HOLD_NOT_ACTIVE")
		}
		b.holds[in.HoldID] = string(in.Operation)
	}
	b.applied[in.Reference] = in
	b.times[in.Reference]++
	return success("w-" + in.Reference.String())
}

func (b *book) Send(ctx context.Context, in payment.Instruction) payment.Outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := next(&b.items[in.Reference].sends)
	if f == breakerOpen {
		return unavailable(payment.ReasonBreakerOpen)
	}
	if was, there := b.first[in.Reference]; there && was != in {
		b.wrong("%v became %v under one key", was, in)
	}
	b.first[in.Reference] = in
	if in.Operation.IsPayment() {
		b.wrong("a payment was sent: %v", in)
	}
	switch f {
	case refused:
		return refuse
	case lostBefore:
		return ambiguous(payment.ReasonConnectionLost)
	case lostAfter:
		b.apply(in)
		return ambiguous(payment.ReasonTimeout)
	case lateByProxy:
		time.AfterFunc(30*time.Second, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.apply(in)
		})
		return ambiguous(payment.ReasonTimeout)
	case gateway502:
		b.apply(in)
		return gateway(502, payment.ReasonStatus502)
	case gateway503:
		return gateway(503, payment.ReasonStatus503)
	case ingress404:
		return foreign(404)
	case tooMany:
		return no(429, "SLOW_DOWN")
	case hangs:
		b.apply(in)
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		return ambiguous(payment.ReasonTimeout)
	}
	return b.apply(in)
}

func (b *book) Lookup(ctx context.Context, in payment.Instruction) payment.Evidence {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch next(&b.items[in.Reference].looks) {
	case blindLookup:
		return blind(payment.ReasonStatus5xx)
	case pendingSays:
		return blind(payment.ReasonPending)
	case breakerOpen:
		return blind(payment.ReasonBreakerOpen)
	case hangs:
		b.mu.Unlock()
		<-ctx.Done()
		b.mu.Lock()
		return blind(payment.ReasonTimeout)
	}
	if _, there := b.applied[in.Reference]; there {
		return applied("w-" + in.Reference.String())
	}
	return notFound
}

// randomLedger loses workers where the history says so.
type randomLedger struct {
	*fakeLedger

	book *book
}

func (l randomLedger) Settle(ctx context.Context, s payment.Settlement) (bool, error) {
	l.mu.Lock()
	outbound := l.find(s.ID).work.Outbound
	l.mu.Unlock()
	l.book.mu.Lock()
	f := next(&l.book.items[outbound].settles)
	l.book.mu.Unlock()
	switch f {
	case crashBefore:
		return false, errors.New("it died")
	case crashAfter:
		_, _ = l.fakeLedger.Settle(ctx, s)
		return false, errors.New("it died")
	case stopped:
		time.Sleep(25 * time.Second) // fake time: the process is stopped
	}
	return l.fakeLedger.Settle(ctx, s)
}

// Whatever the wallet, the network and the workers do, in whatever order: each
// follow-up moves its money once or not at all, as its row says, under one key;
// and of a decline or a cancelled payment nothing is left, or a person is told.
func TestWhateverHappensTheMoneyIsRight(t *testing.T) {
	t.Parallel()
	states := map[payment.FollowUpState]int{}
	rapid.Check(t, func(rt *rapid.T) {
		items := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) *item {
			return &item{
				kind:     rapid.SampledFrom([]string{"credit", "capture", "release", "reversal of a debit", "reversal of a hold", "cancelled debit", "cancelled hold"}).Draw(rt, "kind"),
				sends:    rapid.SliceOfN(rapid.SampledFrom(sendFaults), 0, 6).Draw(rt, "sends"),
				looks:    rapid.SliceOfN(rapid.SampledFrom(lookupFaults), 0, 4).Draw(rt, "lookups"),
				settles:  rapid.SliceOfN(rapid.SampledFrom(settleFaults), 0, 4).Draw(rt, "settlements"),
				closed:   rapid.IntRange(0, 5).Draw(rt, "closed") == 0,
				original: rapid.SampledFrom([]fault{fine, lostBefore, lateByProxy}).Draw(rt, "original"),
			}
		}), 1, 12).Draw(rt, "items")
		replicas := rapid.IntRange(1, 3).Draw(rt, "replicas")

		var wrong []string
		synctest.Test(t, func(t *testing.T) { wrong = history(t, items, replicas, states) })
		if len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
	for _, state := range []payment.FollowUpState{payment.Succeeded, payment.Refused, payment.NotApplied, payment.Parked} {
		if states[state] == 0 {
			t.Errorf("no history ended %s: it proves nothing about that", state)
		}
	}
}

// history lets it all happen, and says what is wrong in the end.
func history(t *testing.T, items []*item, replicas int, states map[payment.FollowUpState]int) []string {
	t.Helper()
	b := &book{
		items: map[payment.Reference]*item{}, applied: map[payment.Reference]payment.Instruction{},
		times: map[payment.Reference]int{}, holds: map[string]string{}, first: map[payment.Reference]payment.Instruction{},
	}
	l := randomLedger{&fakeLedger{}, b}
	var rows []*row
	for _, it := range items {
		w := it.work(b)
		b.items[w.Outbound] = it
		rows = append(rows, l.accept(w)...)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range replicas {
		q := newQueue(t, l, b, &fakeObserver{})
		running.Go(func() { q.Run(ctx) })
	}
	wait(45 * time.Minute) // all faults are over, and so are the settle window and the pauses
	cancel()
	running.Wait()

	wrong := b.faults
	for i, r := range rows {
		effects := b.times[r.work.Outbound]
		states[r.work.State]++
		complain := func(what string) {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %s %q %q, %d effects, %d attempts, calls %v",
				items[i].kind, what, r.work.State, r.code, r.parkReason, effects, r.work.Attempts, r.calls))
		}
		if effects > 1 {
			complain("its money moved more than once")
		}
		if r.work.Kind != payment.Reversal {
			if want := map[payment.FollowUpState]int{payment.Succeeded: 1, payment.Refused: 0}; effects != want[r.work.State] {
				complain("its row and the wallet's book disagree")
			}
			if r.work.State != payment.Succeeded && r.work.State != payment.Refused {
				complain("it has not ended")
			}
			if (r.work.State == payment.Refused) != items[i].closed {
				complain("it was refused or not, against the wallet's rule")
			}
			continue
		}
		p := r.work.Payment
		_, took := b.applied[p.Reference]
		out := took && effects == 0
		if p.Operation == payment.Hold {
			out = b.holds["w-"+p.Reference.String()] == "held"
		}
		switch {
		case out != (r.work.State == payment.Parked):
			complain("money is out and nobody is told, or the reverse")
		case !took && effects > 0:
			complain("gave back what was never taken")
		case r.work.State == payment.Parked && (r.parkReason != parkRefused || !items[i].closed):
			complain("parked without a refusal")
		case !took && r.work.State != payment.NotApplied:
			complain("there was nothing to undo")
		case r.work.State != payment.Parked && r.work.State != payment.Succeeded && r.work.State != payment.NotApplied:
			complain("it has not ended")
		}
	}
	return wrong
}

// work is the item as the ledger stores it, with what the wallet's book holds
// already, or will.
func (it *item) work(b *book) payment.Work {
	id := uuid.New()
	p := payment.Payment{ID: id, Operation: payment.Debit, Account: "a", Amount: euros(900), Reference: reference(id), State: payment.Approved}
	if strings.Contains(it.kind, "hold") || it.kind == "capture" || it.kind == "release" {
		p.Operation = payment.Hold
	}
	p.WalletID = "w-" + p.Reference.String()
	b.items[p.Reference] = it
	book := func() {
		b.applied[p.Reference] = p.Instruction()
		if p.Operation == payment.Hold {
			b.holds[p.WalletID] = "held"
		}
	}
	w := payment.Work{ID: uuid.New(), Turn: payment.FirstTurn, Payment: p}
	w.Outbound = reference(w.ID)
	switch it.kind {
	case "credit":
		w.Kind, w.Account, w.Amount = payment.Credit, "a", euros(500)
	case "capture":
		w.Kind, w.Amount = payment.Capture, p.Amount
	case "release":
		w.Kind = payment.Release
	case "reversal of a debit", "reversal of a hold":
		w = reversalOf(p)
		switch it.original {
		case lostBefore:
			return w
		case lateByProxy:
			time.AfterFunc(time.Minute, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				book()
			})
			return w
		}
	case "cancelled debit", "cancelled hold":
		w = cancellationOf(p)
	}
	book()
	return w
}
