package ledgertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// everything is what an idle replica with nothing in its way asks for.
func everything(limit int) payment.LeaseOrder {
	return payment.LeaseOrder{
		Limit: limit, Lease: time.Minute, Sends: true, Retries: limit, Lookups: limit, Backlog: -1,
		Kinds: []payment.Operation{payment.Reversal, payment.Capture, payment.Release, payment.Credit},
	}
}

// shortly is everything, for as long as a worker has that dies at once.
func shortly(limit int) payment.LeaseOrder {
	order := everything(limit)
	order.Lease = soon
	return order
}

// again is an attempt that ended nothing and is due again at once.
func again() payment.Settlement {
	return payment.Settlement{State: payment.Pending, Due: true, Turn: payment.RetryTurn}
}

func leased(ctx context.Context, t *testing.T, l Ledger, order payment.LeaseOrder) []payment.Work {
	t.Helper()
	work, err := l.Lease(ctx, order)
	must(t, err)
	return work
}

// leaseOne leases the one thing that is due, or will be in a moment.
func leaseOne(ctx context.Context, t *testing.T, l Ledger, order payment.LeaseOrder) payment.Work {
	t.Helper()
	for {
		switch work := leased(ctx, t, l, order); len(work) {
		case 0:
			must(t, ctx.Err())
		case 1:
			return work[0]
		default:
			t.Fatalf("%d are due, want one", len(work))
		}
	}
}

func trySettle(ctx context.Context, t *testing.T, l Ledger, w payment.Work, s payment.Settlement) bool {
	t.Helper()
	s.ID, s.Fence = w.ID, w.Fence
	settled, err := l.Settle(ctx, s)
	must(t, err)
	return settled
}

// settle ends the attempt at w, and must be the one who does.
func settle(ctx context.Context, t *testing.T, l Ledger, w payment.Work, s payment.Settlement) {
	t.Helper()
	if !trySettle(ctx, t, l, w, s) {
		t.Fatalf("%s is not settled: somebody else has", w.Kind)
	}
}

// end ends a follow-up that is due as an attempt would, whatever else is due.
func end(ctx context.Context, t *testing.T, l Ledger, id uuid.UUID, state payment.FollowUpState, code payment.Code, walletID string) {
	t.Helper()
	found := false
	for _, w := range leased(ctx, t, l, everything(1000)) {
		if w.ID != id {
			must(t, l.HandBack(ctx, w))
			continue
		}
		found = true
		s := payment.Settlement{State: state, Code: code, WalletID: walletID, TargetID: w.TargetID}
		if state == payment.Parked {
			s.ParkReason = "OUT_OF_TIME"
		}
		settle(ctx, t, l, w, s)
	}
	if !found {
		t.Fatal("the follow-up is not due")
	}
}

// payouts accepts n credits that name no payment, of which the account says what they are.
func payouts(ctx context.Context, t *testing.T, l Ledger, n int, account string) {
	t.Helper()
	for i := range n {
		accept(ctx, t, l, payout(payment.Key(fmt.Sprintf("%s-%d", account, i)), account))
	}
}

func payout(key payment.Key, account string) payment.FollowUpRequest {
	return payment.FollowUpRequest{
		Caller: Request(key).Caller, Kind: payment.Credit, Key: key, Account: account, Amount: payment.Money{AmountMinor: 100, Currency: "EUR"},
	}
}

// declined is a payment whose wallet call was left in doubt.
func declined(ctx context.Context, t *testing.T, l Ledger, key payment.Key) payment.Payment {
	t.Helper()
	p, err := l.Decide(ctx, claimNew(ctx, t, l, Request(key)), payment.DeclineAndReverse(payment.WalletTimeout))
	must(t, err)
	return p
}

// onlyFollowUp is the one that p has.
func onlyFollowUp(ctx context.Context, t *testing.T, l Ledger, p payment.Payment) payment.FollowUp {
	t.Helper()
	read, found, err := l.PaymentByID(ctx, p.Caller, p.ID)
	must(t, err)
	if !found || len(read.FollowUps) != 1 {
		t.Fatalf("found: %v, with %d follow-ups, want one", found, len(read.FollowUps))
	}
	return read.FollowUps[0]
}

// A worker knows of its work what the lease tells it, and nothing else: what is
// missing is money sent to the wrong place, or a second time.
func leaseTellsAll(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	debit, hold, other := approve(ctx, t, l, payment.Debit, "debit"), approve(ctx, t, l, payment.Hold, "hold"), approve(ctx, t, l, payment.Hold, "other")
	gone := declined(ctx, t, l, "declined")
	creditReq, captureReq, releaseReq, paidReq := Credit(debit, "credit", 250), Capture(hold, "capture", 0), Release(other, "release"), payout("payout", "ACC-9")
	credit, capture, release, paid := accept(ctx, t, l, creditReq), accept(ctx, t, l, captureReq), accept(ctx, t, l, releaseReq), accept(ctx, t, l, paidReq)

	got := map[uuid.UUID]payment.Work{}
	for _, w := range leased(ctx, t, l, everything(10)) {
		if w.Age < 0 || w.Age > patience || w.Tried < 0 || w.Tried > patience || w.SinceEnd != 0 || w.SinceDoubt != 0 {
			t.Errorf("%s: age %v, tried for %v, ended since %v, in doubt since %v", w.Kind, w.Age, w.Tried, w.SinceEnd, w.SinceDoubt)
		}
		w.Age, w.Tried = 0, 0
		got[w.ID] = w
	}
	of := func(id uuid.UUID, req payment.FollowUpRequest, p payment.Payment) payment.Work {
		return payment.Work{
			ID: id, Kind: req.Kind, Fence: 1, Attempts: 1, Turn: payment.FirstTurn, State: payment.Pending,
			Outbound: req.DeriveReference(), Account: req.Account, Amount: req.Amount, Payment: p,
		}
	}
	reversal := onlyFollowUp(ctx, t, l, gone)
	want := map[uuid.UUID]payment.Work{
		reversal.ID: {
			ID: reversal.ID, Kind: payment.Reversal, Fence: 1, Attempts: 1, Turn: payment.LookupTurn, State: payment.Pending,
			Outbound: gone.Reference.Reversal(), Payment: gone,
		},
		credit.ID: of(credit.ID, creditReq, debit), capture.ID: of(capture.ID, captureReq, hold),
		release.ID: of(release.ID, releaseReq, other), paid.ID: of(paid.ID, paidReq, payment.Payment{}),
	}
	whole := want[capture.ID]
	whole.Amount = hold.Amount // the wallet is told how much, also where the till left it out
	want[capture.ID] = whole
	equal(t, got, want)
	if again := leased(ctx, t, l, everything(10)); len(again) != 0 {
		t.Errorf("%d were handed out twice", len(again))
	}
}

// A reversal of a debit that was refunded in part gives back the rest, and waits for
// refunds that are under way: otherwise the customer gets his money twice.
func reversalKnowsItsCredits(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	p := approve(ctx, t, l, payment.Debit, "debit")
	done, refused, parked := accept(ctx, t, l, Credit(p, "done", 300)), accept(ctx, t, l, Credit(p, "refused", 200)), accept(ctx, t, l, Credit(p, "parked", 50))
	end(ctx, t, l, done.ID, payment.Succeeded, "", "w-2")
	end(ctx, t, l, refused.ID, payment.Refused, "ACCOUNT_LOCKED", "")
	end(ctx, t, l, parked.ID, payment.Parked, "", "")
	c, err := l.CancelByKey(ctx, p.Caller, payment.Debit, "debit", nil)
	must(t, err)

	w := leaseOne(ctx, t, l, everything(10))
	if w.ID != c.Reversal || w.Credited != 300 || !w.CreditsOpen || w.TargetID != p.WalletID || w.Turn != payment.FirstTurn || w.Payment.Amount != p.Amount {
		t.Errorf("%d credited, open %v, target %q, turn %s, payment of %v", w.Credited, w.CreditsOpen, w.TargetID, w.Turn, w.Payment.Amount)
	}
	settle(ctx, t, l, w, payment.Settlement{State: payment.Pending, Due: true, Turn: payment.FirstTurn, TargetID: w.TargetID, Unspent: true})
	_, err = l.SettleByHand(ctx, parked.ID, true, "ada", "seen in the wallet's back office")
	must(t, err)
	if w := leaseOne(ctx, t, l, everything(10)); w.Credited != 350 || w.CreditsOpen || w.Attempts != 1 {
		t.Errorf("afterwards: %d credited, open %v, attempt %d", w.Credited, w.CreditsOpen, w.Attempts)
	}
}

// Work that is due is money that somebody waits for: none of it may be handed out
// twice, and none may be forgotten, however many replicas ask at once.
func replicasShareTheQueue(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	const items, replicas = 60, 4
	payouts(ctx, t, l, items, "credit")

	var mu sync.Mutex
	times := map[uuid.UUID]int{}
	take := func() (n int) {
		work, err := l.Lease(ctx, everything(7))
		if err != nil {
			t.Errorf("lease: %v", err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, w := range work {
			times[w.ID]++
		}
		return len(work)
	}
	atOnce(replicas, func(int) {
		for take() > 0 { // what others hold just now is theirs
		}
	})
	for take() > 0 { // what was locked at the end by somebody who chose another
	}
	for id, n := range times {
		if n != 1 {
			t.Errorf("%s was handed out %d times", id, n)
		}
	}
	if len(times) != items {
		t.Errorf("%d of %d were handed out", len(times), items)
	}
}

// What has waited longest is due first; and nothing is due before its time (field
// report D26).
func nothingIsEarly(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	payouts(ctx, t, l, 1, "early")
	later := again()
	later.Pause = time.Hour
	settle(ctx, t, l, leaseOne(ctx, t, l, everything(10)), later)
	payouts(ctx, t, l, 3, "old")
	payouts(ctx, t, l, 3, "young")
	for _, want := range []string{"old", "young"} {
		work := leased(ctx, t, l, everything(3))
		for _, w := range work {
			if w.Account != want {
				t.Errorf("%s was handed out, want %s", w.Account, want)
			}
		}
		if len(work) != 3 {
			t.Errorf("%d of 3 were handed out", len(work))
		}
	}
	if early := leased(ctx, t, l, everything(3)); len(early) != 0 {
		t.Errorf("%d were handed out before their time", len(early))
	}
}

// Every allowance is a promise to a wallet that is in trouble: no retry without a
// token, no more lookups than agreed, nothing at all through an open breaker.
func leaseKeepsToItsAllowances(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	const each = 6
	turns := map[payment.Turn]string{payment.FirstTurn: "first", payment.RetryTurn: "retry", payment.LookupTurn: "lookup"}
	turn := map[string]payment.Turn{}
	for t, account := range turns {
		turn[account] = t
	}
	for _, account := range turns {
		payouts(ctx, t, l, each, account)
	}
	restore := func(work []payment.Work) {
		t.Helper()
		for _, w := range work {
			settle(ctx, t, l, w, payment.Settlement{State: payment.Pending, Due: true, Turn: turn[w.Account], Unspent: true})
		}
	}
	restore(leased(ctx, t, l, everything(100)))

	for name, c := range map[string]struct {
		change                func(*payment.LeaseOrder)
		first, retry, lookups int
	}{
		"nothing in the way":             {func(*payment.LeaseOrder) {}, each, each, each},
		"no tokens":                      {func(o *payment.LeaseOrder) { o.Retries = 0 }, each, 0, each},
		"some tokens":                    {func(o *payment.LeaseOrder) { o.Retries = 3 }, each, 3, each},
		"no lookups":                     {func(o *payment.LeaseOrder) { o.Lookups = 0 }, each, each, 0},
		"some lookups":                   {func(o *payment.LeaseOrder) { o.Lookups = 4 }, each, each, 4},
		"breaker open":                   {func(o *payment.LeaseOrder) { o.Sends = false }, 0, 0, each},
		"breaker was open long ago":      {func(o *payment.LeaseOrder) { o.Backlog = time.Hour }, each, each, each},
		"breaker is half open":           {func(o *payment.LeaseOrder) { o.Backlog, o.Retries = 0, 2*each }, each, each, each},
		"breaker is half open, 3 tokens": {func(o *payment.LeaseOrder) { o.Backlog, o.Retries = 0, 3 }, -1, -1, each},
		"breaker is half open, none":     {func(o *payment.LeaseOrder) { o.Backlog, o.Retries = 0, 0 }, 0, 0, each},
		"a kind that we do not do":       {func(o *payment.LeaseOrder) { o.Kinds = []payment.Operation{payment.Reversal} }, 0, 0, 0},
		"a negative number of both":      {func(o *payment.LeaseOrder) { o.Retries, o.Lookups = -1, -1 }, each, 0, 0},
		"few workers":                    {func(o *payment.LeaseOrder) { o.Limit = 2 }, -1, -1, -1},
	} {
		order := everything(100)
		c.change(&order)
		work := leased(ctx, t, l, order)
		n, drawn := map[string]int{}, map[payment.Turn]int{}
		for _, w := range work {
			n[w.Account]++
			drawn[w.Turn]++
			backlog := order.Backlog == 0 && w.Account == "first" && w.Turn == payment.RetryTurn
			if w.Turn != turn[w.Account] && !backlog {
				t.Errorf("%s: a %s draws on %s", name, w.Account, w.Turn)
			}
		}
		for account, want := range map[string]int{"first": c.first, "retry": c.retry, "lookup": c.lookups} {
			if want >= 0 && n[account] != want {
				t.Errorf("%s: %d of %s, want %d", name, n[account], account, want)
			}
		}
		if drawn[payment.RetryTurn] > max(order.Retries, 0) || drawn[payment.LookupTurn] > max(order.Lookups, 0) || len(work) > order.Limit {
			t.Errorf("%s: %v, with %d retries and %d lookups, at most %d", name, drawn, order.Retries, order.Lookups, order.Limit)
		}
		if c.first < 0 && c.lookups >= 0 && n["first"]+n["retry"] != order.Retries { // they share what there is
			t.Errorf("%s: %d draw on %d retries", name, n["first"]+n["retry"], order.Retries)
		}
		restore(work)
	}
}

// A first attempt that an open breaker has postponed comes back as a retry, but it
// has still never been sent: handed back, it is what it was.
func backlogIsStillAFirstAttempt(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	payouts(ctx, t, l, 1, "credit")
	order := everything(1)
	order.Backlog = 0
	w := leaseOne(ctx, t, l, order)
	if w.Turn != payment.RetryTurn || w.Attempts != 1 || w.Resolve {
		t.Errorf("turn %s, attempt %d, resolve %v, want a retry of nothing", w.Turn, w.Attempts, w.Resolve)
	}
	must(t, l.HandBack(ctx, w))
	if w := leaseOne(ctx, t, l, everything(1)); w.Turn != payment.FirstTurn || w.Attempts != 1 || w.TakenOver || w.Resolve || w.Fence != 2 {
		t.Errorf("handed back: turn %s, attempt %d, taken over %v, resolve %v, fence %d", w.Turn, w.Attempts, w.TakenOver, w.Resolve, w.Fence)
	}
}

// flood makes n reversals, n captures and releases and n credits due.
func flood(ctx context.Context, t *testing.T, l Ledger, n int) {
	t.Helper()
	payouts(ctx, t, l, n, "credit")
	for i := range n {
		hold := approve(ctx, t, l, payment.Hold, payment.Key(fmt.Sprintf("hold-%d", i)))
		if i%2 == 0 {
			accept(ctx, t, l, Capture(hold, payment.Key(fmt.Sprintf("capture-%d", i)), 0))
		} else {
			accept(ctx, t, l, Release(hold, payment.Key(fmt.Sprintf("release-%d", i))))
		}
		declined(ctx, t, l, payment.Key(fmt.Sprintf("declined-%d", i)))
	}
}

// byClass counts reversals, what ends a hold, and credits.
func byClass(work []payment.Work) [3]int {
	var n [3]int
	for _, w := range work {
		switch w.Kind { //nolint:exhaustive // the last is for the rest
		case payment.Reversal:
			n[0]++
		case payment.Capture, payment.Release:
			n[1]++
		default:
			n[2]++
		}
	}
	return n
}

// Reversals are money that was taken for nothing, and come first; but a flood of
// them must not hold up a shop's captures, nor those a customer's refund.
func classesShareALease(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	flood(ctx, t, l, 17)
	for limit, want := range map[int][3]int{7: {4, 2, 1}, 28: {16, 8, 4}} {
		work := leased(ctx, t, l, everything(limit))
		equal(t, byClass(work), want)
		for _, w := range work {
			must(t, l.HandBack(ctx, w))
		}
	}
}

// A replica whose workers become free one at a time asks for one thing at a time. If
// that was always the most urgent class, the others would wait for as long as there
// is anything in it. How they share is drawn, 4 to 2 to 1 by urgency, so that neighbours may
// change places in a few draws; but the rarest class stays away from so many, or comes as
// often as the most urgent one, less than once in ten million runs.
func noClassStarves(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	flood(ctx, t, l, 4)
	const draws = 150
	var work []payment.Work
	for range draws {
		w := leased(ctx, t, l, everything(1))[0]
		work = append(work, w)
		must(t, l.HandBack(ctx, w))
	}
	if n := byClass(work); n[0] <= n[2] || n[1] == 0 || n[2] == 0 {
		t.Errorf("of %d one by one: %v reversals, captures and releases, credits, want fewer of the last than of the first, and some of each", draws, n)
	}
}

// A worker that died may have sent. Whoever takes over begins by asking (field
// report D2), and the dead one, should it come back, changes nothing (field report
// D1): not even if its attempt was the one that went through.
func runOutLeaseIsTakenOver(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	payouts(ctx, t, l, 1, "credit")
	dead := leaseOne(ctx, t, l, shortly(1))
	for fence := int64(2); fence < 5; fence++ { // whoever takes over may hand it back, or die too
		w := leaseOne(ctx, t, l, shortly(1))
		if !w.Resolve || w.Turn != payment.LookupTurn || w.Fence != fence {
			t.Fatalf("resolve %v, turn %s, fence %d", w.Resolve, w.Turn, w.Fence)
		}
		if wantOver := fence != 4; w.TakenOver != wantOver { // a lease that was handed back did not run out
			t.Errorf("fence %d: taken over %v", fence, w.TakenOver)
		}
		if fence == 3 {
			must(t, l.HandBack(ctx, w))
		}
		if trySettle(ctx, t, l, dead, payment.Settlement{State: payment.Refused, Code: "ACCOUNT_LOCKED"}) {
			t.Fatal("a lease that was taken over was settled")
		}
		must(t, l.HandBack(ctx, dead))
	}
	w := leaseOne(ctx, t, l, everything(1))
	settle(ctx, t, l, w, payment.Settlement{State: payment.Succeeded, WalletID: "w-1"})
	if trySettle(ctx, t, l, w, payment.Settlement{State: payment.Succeeded, WalletID: "w-2"}) {
		t.Error("settled twice")
	}
	must(t, l.HandBack(ctx, w))
	if work := leased(ctx, t, l, everything(1)); len(work) != 0 {
		t.Error("handed out after its end")
	}
}

// Another must follow a dead worker within 30 s (contract section 4), also when many
// reversals wait for their lookup after an outage: what was never reported goes
// before them.
func takenOverGoesFirst(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	const many = 20
	for i := range many {
		declined(ctx, t, l, payment.Key(fmt.Sprintf("declined-%d", i)))
	}
	dead := leased(ctx, t, l, shortly(1))[0]
	for begin := time.Now(); time.Since(begin) < 2*soon; { // its lease runs out; all others have been due for longer
		must(t, ctx.Err())
	}
	order := everything(5)
	order.Lookups = 5
	work := leased(ctx, t, l, order)
	if !slices.ContainsFunc(work, func(w payment.Work) bool { return w.ID == dead.ID && w.TakenOver }) {
		t.Errorf("not among the first %d of %d", len(work), many)
	}
}

// Every way in which an attempt can end leaves a row that the next one, a till and
// an operator can rely on.
func settlementIsWhatTheNextFinds(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	p := approve(ctx, t, l, payment.Debit, "debit")
	credit := accept(ctx, t, l, Credit(p, "credit", 100))
	doubtful := again()
	doubtful.Resolve, doubtful.Lookups = true, 3
	settle(ctx, t, l, leaseOne(ctx, t, l, everything(1)), doubtful)
	w := leaseOne(ctx, t, l, everything(1))
	if w.Turn != payment.RetryTurn || !w.Resolve || w.Attempts != 2 || w.Lookups != 3 || w.TakenOver || w.Fence != 2 {
		t.Errorf("after an attempt in doubt: %+v", w)
	}
	unspent := again()
	unspent.Unspent, unspent.Turn = true, "" // which leaves it as it was
	settle(ctx, t, l, w, unspent)
	if w = leaseOne(ctx, t, l, everything(1)); w.Attempts != 2 || w.Resolve || w.Lookups != 0 || w.Turn != payment.RetryTurn {
		t.Errorf("after an attempt that was not made: %+v", w)
	}
	settle(ctx, t, l, w, payment.Settlement{State: payment.Refused, Code: "ACCOUNT_LOCKED"})

	stored, _, err := l.OperationByID(ctx, p.Caller, credit.ID)
	must(t, err)
	want := credit
	want.State, want.Code, want.EndedAt = payment.Refused, "ACCOUNT_LOCKED", stored.EndedAt
	equal(t, stored, want)
	if stored.EndedAt.Before(credit.CreatedAt) {
		t.Errorf("ended at %v, created at %v", stored.EndedAt, credit.CreatedAt)
	}
	// What the wallet refused is given back.
	accept(ctx, t, l, Credit(p, "all of it", p.Amount.AmountMinor))
}

// What waits for nothing would never be found again, and a reversal that was refused
// would end with the customer's money out: neither must be stored, whatever asks for it.
func impossibleSettlementIsRefused(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	declined(ctx, t, l, "declined")
	payouts(ctx, t, l, 1, "credit")
	for _, w := range leased(ctx, t, l, everything(2)) {
		impossible := []payment.Settlement{
			{State: payment.Pending},
			{State: payment.Pending, Due: true, WalletID: "w-1"},
			{State: payment.Parked, Due: true, ParkReason: "OUT_OF_TIME"},
			{State: payment.Succeeded, Due: true},
			{State: "DONE"},
			{State: payment.Pending, Due: true, Lookups: -1},
		}
		if w.Kind == payment.Reversal {
			impossible = append(impossible, payment.Settlement{State: payment.Refused, Code: "ACCOUNT_LOCKED"})
		} else {
			impossible = append(impossible, payment.Settlement{State: payment.NotApplied}, payment.Settlement{State: payment.Refused})
		}
		for _, s := range impossible {
			s.ID, s.Fence = w.ID, w.Fence
			if settled, err := l.Settle(ctx, s); err == nil {
				t.Errorf("a %s was settled (%v) as %+v", w.Kind, settled, s)
			}
		}
		settle(ctx, t, l, w, again()) // nothing has changed
	}
}

// When a send has ended in doubt, and when that was, outlives the attempt and its
// worker: until the settle window after it is over nothing of it is given back.
func doubtIsRemembered(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	payouts(ctx, t, l, 1, "credit")
	w := leaseOne(ctx, t, l, everything(1))
	if w.InDoubt {
		t.Error("in doubt before anything was sent")
	}
	settle(ctx, t, l, w, again())
	if w = leaseOne(ctx, t, l, everything(1)); w.InDoubt {
		t.Error("in doubt after a send that was not")
	}
	doubtful := again()
	doubtful.Doubt = true
	settle(ctx, t, l, w, doubtful)
	first := leaseOne(ctx, t, l, everything(1))
	settle(ctx, t, l, first, again())
	second := leaseOne(ctx, t, l, shortly(1))
	if !first.InDoubt || !second.InDoubt || first.SinceDoubt < 0 || second.SinceDoubt < first.SinceDoubt || second.SinceDoubt > patience {
		t.Errorf("after a clean send: in doubt %v since %v, before it %v since %v", second.InDoubt, second.SinceDoubt, first.InDoubt, first.SinceDoubt)
	}
	// A worker that never reported may have sent until its lease was over.
	begin := time.Now()
	if w = leaseOne(ctx, t, l, shortly(1)); !w.InDoubt || w.SinceDoubt > time.Since(begin) {
		t.Errorf("taken over: in doubt %v, since %v", w.InDoubt, w.SinceDoubt)
	}
}

// Not found is not proof. What ended NOT_APPLIED is looked at again, and if the money
// has been taken after all it goes back, whatever had been said before.
func reversalIsReopened(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	p := declined(ctx, t, l, "declined")
	nothing := payment.Settlement{State: payment.NotApplied, Due: true, Turn: payment.LookupTurn, Unspent: true, Lookups: 1}
	settle(ctx, t, l, leaseOne(ctx, t, l, everything(1)), nothing)
	ended := onlyFollowUp(ctx, t, l, p)
	if ended.State != payment.NotApplied || ended.EndedAt.IsZero() {
		t.Fatalf("ended: %+v", ended)
	}
	w := leaseOne(ctx, t, l, everything(1))
	if w.State != payment.NotApplied || w.SinceEnd < 0 || w.SinceEnd > patience || w.Attempts != 1 || w.Turn != payment.LookupTurn || w.TakenOver {
		t.Errorf("a late check: %+v", w)
	}
	nothing.LateChecks = 1
	settle(ctx, t, l, w, nothing)
	if again := onlyFollowUp(ctx, t, l, p); !again.EndedAt.Equal(ended.EndedAt) {
		t.Errorf("a late check that found nothing moved the end from %v to %v", ended.EndedAt, again.EndedAt)
	}
	w = leaseOne(ctx, t, l, everything(1))
	if w.Tried != w.Age {
		t.Errorf("tried for %v and %v old, before anything was found", w.Tried, w.Age)
	}
	settle(ctx, t, l, w, payment.Settlement{State: payment.Pending, Due: true, Turn: payment.RetryTurn, TargetID: "w-late", LateChecks: 1})
	if reopened := onlyFollowUp(ctx, t, l, p); reopened.State != payment.Pending || !reopened.EndedAt.IsZero() {
		t.Errorf("found after all: %+v", reopened)
	}
	w = leaseOne(ctx, t, l, everything(1))
	if w.TargetID != "w-late" || w.State != payment.Pending || w.SinceEnd != 0 || w.LateChecks != 1 || w.Tried >= w.Age {
		t.Errorf("reopened: %+v", w)
	}
	settle(ctx, t, l, w, payment.Settlement{State: payment.Succeeded, WalletID: "w-back", TargetID: "w-late"})
	if done := onlyFollowUp(ctx, t, l, p); done.State != payment.Succeeded || done.WalletID != "w-back" || done.EndedAt.Before(ended.EndedAt) {
		t.Errorf("undone: %+v", done)
	}
}

// The reversal of a tombstone looks for what a lost claim may have left in the
// wallet, and pays it back to the account of the request that was shown: the
// payment itself knows neither.
func reversalOfATombstone(ctx context.Context, t *testing.T, open Open) {
	l := open(t, never)
	for _, laterShown := range []bool{false, true} {
		req := Request(payment.Key(map[bool]string{true: "later", false: "at once"}[laterShown]))
		if laterShown {
			cancel(ctx, t, l, req, nil)
		}
		cancel(ctx, t, l, req, &req)
		w := leaseOne(ctx, t, l, everything(10))
		equal(t, w.Payment.Instruction(), payment.Instruction{
			Operation: req.Operation, Reference: req.DeriveReference(), Account: req.Account, Amount: req.Amount,
		})
		if w.Outbound != req.DeriveReference().Reversal() || w.Turn != payment.LookupTurn || w.TargetID != "" {
			t.Errorf("outbound %s, turn %s, target %q", w.Outbound, w.Turn, w.TargetID)
		}
	}
}

// Recovery, a decision and a cancel all write reversals, and the queue can only do
// what their rows say. Each must be due, about the right money, under its own key.
func everyReversalIsWork(ctx context.Context, t *testing.T, open Open) {
	overdue := open(t, soon)
	met, swept := claimNew(ctx, t, overdue, Request("met")), claimNew(ctx, t, overdue, Request("swept"))
	for state := payment.InFlight; state == payment.InFlight; {
		read, _, err := overdue.PaymentByID(ctx, met.Caller, met.ID)
		must(t, err)
		state = read.State
	}
	for n := 0; n == 0; {
		var err error
		n, err = overdue.Recover(ctx)
		must(t, err)
	}
	l := open(t, never)
	decided, inFlight := declined(ctx, t, l, "decided"), claimNew(ctx, t, l, Request("in flight"))
	cancel(ctx, t, l, Request("in flight"), nil)

	for of, payments := range map[Ledger][]payment.Payment{overdue: {met, swept}, l: {decided, inFlight}} {
		want := map[payment.Reference]payment.Payment{}
		for _, p := range payments {
			want[p.Reference.Reversal()] = p
		}
		for _, w := range leased(ctx, t, of, everything(10)) {
			p, ok := want[w.Outbound]
			delete(want, w.Outbound)
			if !ok || w.Turn != payment.LookupTurn || w.TargetID != "" || w.Payment.ID != p.ID || w.Attempts != 1 {
				t.Errorf("reversal %s of %s: turn %s, target %q, attempt %d", w.Outbound, w.Payment.ID, w.Turn, w.TargetID, w.Attempts)
			}
			equal(t, w.Payment.Instruction(), p.Instruction())
		}
		if len(want) != 0 {
			t.Errorf("%d reversals are not due", len(want))
		}
	}
}
