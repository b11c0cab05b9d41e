package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/safeledger/safeledger/test/check/history"
)

func tillKinds() []kind {
	k := func(name, does string) kind { return kind{group: ofTills, name: name, does: does} }
	return []kind{
		k("hung-up", "a till closes its connection at a random moment"),
		k("same-key-at-once", "the same request to several replicas at the same moment"),
		k("same-key-other-body", "another request under a key that is taken, at the same moment or later"),
		k("replayed", "the same request again, to another replica"),
		k("replayed-much-later", "the same request again, after everything else has happened"),
		k("cancelled-in-flight", "a cancel by key while it is decided"),
		k("cancelled-later", "a cancel by key of what was decided"),
		k("cancelled-unseen", "a cancel by key before the request itself"),
		k("deadline-short", "a till that has nearly no time left"),
		k("deadline-odd", "a till that says that it waits for a day, or for no time"),
		k("deadline-malformed", "a deadline that is none"),
		k("malformed", "a body, a key or a token that is refused"),
		k("stalled", "a body that does not come to its end"),
		k("crowd", "more tills at once than the gate lets in: refused"),
		k("odd-key", "a key with every kind of character"),
		k("follow-up-raced", "capture and release, or two credits for the same money, at the same moment"),
		k("follow-up-too-much", "more is to be given back than was taken"),
		k("follow-up-replayed", "the same follow-up again"),
		k("follow-up-cancelled", "a payment with follow-ups is cancelled"),
		k("redriven", "an operator redrives what is parked"),
	}
}

// load is what all tills of a round share.
type load struct {
	w      *world
	target atomic.Int64
	begun  atomic.Int64 // decisions asked for, each under a key of its own
	asked  atomic.Int64 // calls, of all kinds
	after  atomic.Int64 // follow-ups accepted
	fail   context.CancelCauseFunc

	mu   sync.Mutex
	past []call // what was asked long ago, for replays
}

const remembered = 4096

func (l *load) remember(rng *rand.Rand, c call) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.past) < remembered {
		l.past = append(l.past, c)
	} else {
		l.past[rng.IntN(remembered)] = c
	}
}

func (l *load) recall(rng *rand.Rand) (c call, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.past) == 0 {
		return c, false
	}
	return l.past[rng.IntN(len(l.past))], true
}

// till is one goroutine of the load. Everything that it does is drawn from its seed.
type till struct {
	*load
	name   string
	rng    *rand.Rand
	kept   lines
	caller caller
	keys   int
	faults []walletFault // those with an account
}

func newTill(l *load, n int, seed uint64) *till {
	t := &till{load: l, name: strconv.Itoa(n), rng: rand.New(rand.NewPCG(seed, uint64(n)+1)), kept: lines{}} //nolint:gosec // repeatable on purpose
	t.caller = tillCallers()[n%len(tillCallers())]
	for _, f := range walletFaults() {
		if !f.anywhere {
			t.faults = append(t.faults, f)
		}
	}
	return t
}

// work makes payments until all of them are begun.
func (t *till) work(ctx context.Context) {
	defer t.kept.close()
	for ctx.Err() == nil && t.begun.Add(1) <= t.target.Load() {
		t.story(ctx)
	}
}

// story draws what this payment is for.
func (t *till) story(ctx context.Context) {
	stories := []struct {
		weight int
		tell   func(context.Context)
	}{
		{330, t.pays},
		{70, t.replays},
		{50, t.asksAtOnce},
		{30, t.changesBody},
		{60, t.hangsUp},
		{50, t.cancelsInFlight},
		{50, t.cancelsLater},
		{15, t.cancelsUnseen},
		{200, t.followsUp},
		{80, t.usesClient},
		{90, t.replaysMuchLater},
		{25, t.isRefused},
		{4, t.stalls},
		{4, t.comesInACrowd},
	}
	sum := 0
	for _, s := range stories {
		sum += s.weight
	}
	n := t.rng.IntN(sum)
	for _, s := range stories {
		if n -= s.weight; n < 0 {
			s.tell(ctx)
			return
		}
	}
}

func (t *till) chance(percent int) bool { return t.rng.IntN(100) < percent }

// trace is a trace id of its own for each call.
func (t *till) trace() string { return fmt.Sprintf("%016x%016x", t.rng.Uint64()|1, t.rng.Uint64()) }

// newKey is a key: ordered by time as a UUIDv7 most of the time.
func (t *till) newKey() string {
	t.keys++
	if t.chance(3) {
		t.w.count.hit("odd-key")
		return fmt.Sprintf(`"%s/%d %%41~!'(*)#?&=+;:@[]{}|^<>-%x"`, t.name, t.keys, t.rng.Uint32())
	}
	key := fmt.Sprintf("%08x-%04x-7%03x-%04x-%012x", time.Now().UnixMilli()>>16, time.Now().UnixMilli()&0xffff, t.rng.IntN(0x1000), 0x8000|t.rng.IntN(0x4000), t.rng.Uint64()>>16)
	if t.chance(30) {
		return `"` + key + `"`
	}
	return key
}

// bare is a key without the quotes of the field.
func bare(key string) string {
	if len(key) > 1 && key[0] == '"' {
		return key[1 : len(key)-1]
	}
	return key
}

// account draws an account, of which a good third asks the wallet for a fault.
func (t *till) account() string {
	switch n := t.rng.IntN(100); {
	case n < 36:
		return t.faults[t.rng.IntN(len(t.faults))].account()
	case n < 38:
		return "POOR-customer"
	case n < 39:
		return "LOCKED-customer"
	case n < 40:
		return "MISSING-customer"
	}
	return fmt.Sprintf("customer-%d", t.rng.IntN(200))
}

// deadline draws what a till says of its time.
func (t *till) deadline() string {
	switch n := t.rng.IntN(100); {
	case n < 40:
		return "3000"
	case n < 80:
		return ""
	case n < 92:
		t.w.count.hit("deadline-short")
		return []string{"601", "640", "649", "650", "651", "700", "900", "1400", "1449"}[t.rng.IntN(9)]
	}
	t.w.count.hit("deadline-odd")
	return []string{"0", "1", "599", "600", "86400000", "999999999999"}[t.rng.IntN(6)]
}

// payment draws a debit or a hold.
func (t *till) payment() call {
	path := "/debits"
	if t.chance(30) {
		path = "/holds"
	}
	return t.paymentAt(path)
}

func (t *till) paymentAt(path string) call {
	more := ""
	if t.chance(20) {
		more = fmt.Sprintf(`, "reference": "receipt %d", "metadata": {"till": %q}`, t.rng.IntN(1000), t.name)
	}
	body := fmt.Sprintf(`{"account": %q, "amount": %d, "currency": %q%s}`,
		t.account(), 1+t.rng.IntN(2000), []string{"EUR", "EUR", "USD", "JPY"}[t.rng.IntN(4)], more)
	return call{till: t.name, caller: t.caller, method: http.MethodPost, path: path, key: t.newKey(), wait: t.deadline(), body: body}
}

// operation is what the key of a payment belongs to.
func operation(c call) string { return c.path[1 : len(c.path)-1] }

func byKey(c call) string {
	return "/payments/by-key/" + operation(c) + "/" + url.PathEscape(bare(c.key))
}

// replica draws one that serves tills; "" if none does at the moment.
func (t *till) replica() string {
	from := t.rng.IntN(len(t.w.replicas))
	for i := range t.w.replicas {
		r := t.w.replicas[(from+i)%len(t.w.replicas)]
		to := r.address()
		// A balancer notices a replica that does not answer, and some requests go there anyway.
		if to == "" || r.still.Load() && t.rng.IntN(20) > 0 {
			continue
		}
		return to
	}
	return ""
}

// reply is an answer with what a till looks at.
type reply struct {
	history.Answer
	there  bool // there is one
	unsent bool // there is none, and certainly nothing was begun

	ID       string `json:"id"`
	Decision string `json:"decision"`
	Code     string `json:"code"`
	Amount   int64  `json:"amount"`
	Account  string `json:"account"`
	Currency string `json:"currency"`
}

// refused is the gate's answer: nothing was begun.
func (r reply) refused() bool {
	return r.Status == http.StatusServiceUnavailable && r.RetryAfter != ""
}

// send sends c to a replica that is drawn, and again if nobody has begun it: refused by
// the gate, or not even a connection. So does a till, and otherwise most payments of a run
// in which so much is down would end there.
func (t *till) send(ctx context.Context, c call) (r reply) {
	const attempts = 12
	for range attempts {
		r = t.sendOver(ctx, t.kept, t.replica(), c)
		if ctx.Err() != nil || r.there && !r.refused() || !r.there && !r.unsent {
			return r
		}
		c.trace = ""
		pause(ctx, time.Duration(100+t.rng.IntN(300))*time.Millisecond)
	}
	return r
}

func (t *till) sendOver(ctx context.Context, kept lines, to string, c call) (r reply) {
	if to == "" {
		r.unsent = true
		return r
	}
	if c.trace == "" {
		c.trace = t.trace()
	}
	t.asked.Add(1)
	var err error
	if r.Answer, r.there, r.unsent, err = t.w.ask(ctx, kept, to, c); err != nil {
		t.fail(err)
		return r
	}
	if !r.there {
		return r
	}
	if r.refused() && json.Unmarshal([]byte(r.Got), &r) == nil && r.Code == "OVERLOADED" {
		t.w.count.hit("crowd")
	}
	_ = json.Unmarshal([]byte(r.Got), &r) // what is no JSON has none of it
	if r.Status == http.StatusAccepted && r.Replayed == "" {
		t.after.Add(1)
	}
	return r
}

// together runs calls at the same moment, each over a connection of its own.
func (t *till) together(ctx context.Context, calls ...call) []reply {
	got := make([]reply, len(calls))
	var all sync.WaitGroup
	for i, c := range calls {
		to := t.replica()
		c.trace = t.trace()
		if to == "" {
			continue
		}
		all.Go(func() {
			kept := lines{}
			defer kept.close()
			got[i] = t.sendOver(ctx, kept, to, c)
		})
	}
	all.Wait()
	return got
}

func (t *till) get(ctx context.Context, path string) reply {
	return t.send(ctx, call{till: t.name, caller: t.caller, method: http.MethodGet, path: path})
}

// pays pays, and looks at it now and then.
func (t *till) pays(ctx context.Context) {
	c := t.payment()
	got := t.send(ctx, c)
	t.remember(t.rng, c)
	switch {
	case t.chance(8):
		t.get(ctx, byKey(c))
	case got.ID != "" && t.chance(5):
		t.get(ctx, "/payments/"+got.ID)
	}
}

func (t *till) replays(ctx context.Context) {
	c := t.payment()
	for range 1 + t.rng.IntN(3) {
		t.send(ctx, c)
		c.wait = t.deadline()
		t.w.count.hit("replayed")
	}
	t.send(ctx, c)
}

func (t *till) asksAtOnce(ctx context.Context) {
	c := t.payment()
	calls := make([]call, 2+t.rng.IntN(4))
	for i := range calls {
		calls[i] = c
	}
	t.together(ctx, calls...)
	t.w.count.hit("same-key-at-once")
	t.send(ctx, c)
	t.remember(t.rng, c)
}

func (t *till) changesBody(ctx context.Context) {
	c := t.payment()
	other := t.paymentAt(c.path)
	other.key = c.key
	if t.chance(50) {
		t.together(ctx, c, other, c, other)
	} else {
		t.send(ctx, c)
		t.send(ctx, other)
	}
	t.w.count.hit("same-key-other-body")
}

func (t *till) hangsUp(ctx context.Context) {
	c := t.payment()
	left := c
	left.hangUp = time.Duration(1+t.rng.IntN(900)) * time.Millisecond
	if t.chance(60) {
		left.hangUp = time.Duration(1+t.rng.IntN(15_000)) * time.Microsecond
	}
	if got := t.send(ctx, left); !got.there {
		t.w.count.hit("hung-up")
	}
	switch t.rng.IntN(4) {
	case 0:
		t.send(ctx, c)
	case 1:
		t.get(ctx, byKey(c))
	case 2:
		t.cancel(ctx, c)
	}
	t.remember(t.rng, c)
}

// cancelOf is a cancel by key, with the original request now and then.
func (t *till) cancelOf(c call) call {
	cancel := call{till: t.name, caller: t.caller, method: http.MethodPost, path: byKey(c) + "/cancel"}
	if t.chance(40) {
		cancel.body = c.body
	}
	return cancel
}

func (t *till) cancel(ctx context.Context, c call) reply { return t.send(ctx, t.cancelOf(c)) }

func (t *till) cancelsInFlight(ctx context.Context) {
	c := t.payment()
	cancel := t.cancelOf(c)
	after := time.Duration(t.rng.IntN(30_000)) * time.Microsecond
	if t.chance(40) {
		after = time.Duration(t.rng.IntN(1200)) * time.Millisecond
	}
	from, to := t.replica(), t.replica()
	c.trace, cancel.trace = t.trace(), t.trace()
	var both sync.WaitGroup
	both.Go(func() { t.sendOver(ctx, lines{}, from, c) })
	both.Go(func() {
		if pause(ctx, after) {
			t.sendOver(ctx, lines{}, to, cancel)
		}
	})
	both.Wait()
	t.w.count.hit("cancelled-in-flight")
	c.trace, cancel.trace = "", ""
	t.send(ctx, c)
	if t.chance(50) {
		t.send(ctx, cancel)
	}
	t.remember(t.rng, c)
}

func (t *till) cancelsLater(ctx context.Context) {
	c := t.payment()
	if t.chance(20) { // a reversal that the wallet refuses is parked: work for an operator
		c.path = "/debits"
		c.body = fmt.Sprintf(`{"account": %q, "amount": %d, "currency": "EUR"}`, refusesCredits, 1+t.rng.IntN(50))
	}
	t.send(ctx, c)
	for range 1 + t.rng.IntN(2) {
		t.cancel(ctx, c)
		t.w.count.hit("cancelled-later")
	}
	t.send(ctx, c)
	t.get(ctx, byKey(c))
}

func (t *till) cancelsUnseen(ctx context.Context) {
	c := t.payment()
	t.cancel(ctx, c)
	t.w.count.hit("cancelled-unseen")
	t.send(ctx, c)
	t.get(ctx, byKey(c))
}

// followsUp makes payments that are followed up, in order and out of it.
func (t *till) followsUp(ctx context.Context) {
	c := t.payment()
	got := t.send(ctx, c)
	if t.chance(12) {
		account := t.account()
		if t.chance(40) {
			account = refusesCredits
		}
		t.followUp(ctx, "/credits", fmt.Sprintf(`{"account": %q, "amount": %d, "currency": "EUR"}`, account, 1+t.rng.IntN(50)))
	}
	if got.Status != http.StatusCreated {
		return
	}
	if c.path == "/debits" {
		t.refunds(ctx, got)
	} else {
		t.endsHold(ctx, got)
	}
	if t.chance(15) {
		t.cancel(ctx, c)
		t.w.count.hit("follow-up-cancelled")
		t.get(ctx, byKey(c))
	}
	t.remember(t.rng, c)
}

// followUpCall is a follow-up under a key of its own.
func (t *till) followUpCall(path, body string) call {
	return call{till: t.name, caller: t.caller, method: http.MethodPost, path: path, key: t.newKey(), body: body}
}

// followUp sends a follow-up, and again now and then.
func (t *till) followUp(ctx context.Context, path, body string) reply {
	c := t.followUpCall(path, body)
	got := t.send(ctx, c)
	if t.chance(15) {
		t.send(ctx, c)
		t.w.count.hit("follow-up-replayed")
	}
	if got.Status == http.StatusAccepted && t.chance(15) {
		t.get(ctx, "/operations/"+got.ID)
	}
	t.remember(t.rng, c)
	return got
}

func credit(of reply, member string, amount int64) string {
	return fmt.Sprintf(`{"account": %q, "amount": %d, "currency": %q, %q: %q}`, of.Account, amount, of.Currency, member, of.ID)
}

func (t *till) refunds(ctx context.Context, paid reply) {
	part := 1 + t.rng.Int64N(paid.Amount)
	switch t.rng.IntN(5) {
	case 0:
		t.followUp(ctx, "/credits", credit(paid, "debitId", paid.Amount))
	case 1:
		t.together(ctx, t.followUpCall("/credits", credit(paid, "debitId", part)), t.followUpCall("/credits", credit(paid, "debitId", paid.Amount)))
		t.w.count.hit("follow-up-raced")
	case 2:
		t.followUp(ctx, "/credits", credit(paid, "debitId", paid.Amount+1))
		t.w.count.hit("follow-up-too-much")
	default:
		t.followUp(ctx, "/credits", credit(paid, "debitId", part))
		if t.chance(30) {
			t.followUp(ctx, "/credits", credit(paid, "debitId", 1+t.rng.Int64N(paid.Amount)))
		}
	}
}

func (t *till) endsHold(ctx context.Context, held reply) {
	path := "/holds/" + held.ID
	part := fmt.Sprintf(`{"amount": %d}`, 1+t.rng.Int64N(held.Amount))
	switch t.rng.IntN(6) {
	case 0:
		t.followUp(ctx, path+"/release", "")
	case 1:
		t.together(ctx, t.followUpCall(path+"/release", ""), t.followUpCall(path+"/capture", part), t.followUpCall(path+"/capture", "{}"))
		t.w.count.hit("follow-up-raced")
	case 2:
		t.followUp(ctx, path+"/capture", fmt.Sprintf(`{"amount": %d}`, held.Amount+1))
		t.w.count.hit("follow-up-too-much")
	case 3:
		t.followUp(ctx, path+"/capture", "")
		pause(ctx, time.Duration(t.rng.IntN(300))*time.Millisecond)
		t.followUp(ctx, "/credits", credit(held, "holdId", 1+t.rng.Int64N(held.Amount)))
	case 4: // stays open
	default:
		t.followUp(ctx, path+"/capture", part)
	}
}

func (t *till) replaysMuchLater(ctx context.Context) {
	c, ok := t.recall(t.rng)
	if !ok {
		t.pays(ctx)
		return
	}
	c.till = t.name
	t.w.count.hit("replayed-much-later")
	t.send(ctx, c)
	if (c.path == "/debits" || c.path == "/holds") && t.chance(12) {
		cancel := t.cancelOf(c)
		cancel.caller = c.caller
		t.send(ctx, cancel)
	}
	t.pays(ctx)
}

// isRefused asks in ways that are refused before anything is claimed, and then properly,
// under the same key: it is still free.
func (t *till) isRefused(ctx context.Context) {
	c := t.payment()
	bad := c
	switch t.rng.IntN(8) {
	case 0:
		bad.wait = []string{"-1", "1.5", "soon", "+3"}[t.rng.IntN(4)]
		t.w.count.hit("deadline-malformed")
	case 1:
		bad.body = c.body[:len(c.body)-1]
	case 2:
		bad.body = `{"account": "a b", "amount": 1, "currency": "EUR"}`
	case 3:
		bad.body = `{"account": "a", "amount": 0, "currency": "EUR"}`
	case 4:
		bad.body = `{"account": "a", "amount": 1, "currency": "EUR", "amount": 2}`
	case 5:
		bad.key = ""
	case 6:
		bad.key = `"half`
	case 7:
		bad.unknown = true
	}
	t.w.count.hit("malformed")
	t.send(ctx, bad)
	t.send(ctx, c)
}

func (t *till) stalls(ctx context.Context) {
	c := t.payment()
	c.stall = time.Duration(1500+t.rng.IntN(1200)) * time.Millisecond
	t.w.count.hit("stalled")
	t.send(ctx, c)
	c.stall = 0
	t.send(ctx, c)
}

// comesInACrowd brings more tills than the gate of one replica lets in.
func (t *till) comesInACrowd(ctx context.Context) {
	const crowd = 160
	to := t.replica()
	calls := make([]call, crowd)
	for i := range calls {
		calls[i] = t.payment()
		calls[i].trace = t.trace()
	}
	t.begun.Add(crowd - 1)
	var all sync.WaitGroup
	for _, c := range calls {
		all.Go(func() {
			kept := lines{}
			defer kept.close()
			t.sendOver(ctx, kept, to, c)
		})
	}
	all.Wait()
}

var errNobody = errors.New("no replica serves tills at the moment")
