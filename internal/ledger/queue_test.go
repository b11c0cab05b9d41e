package ledger_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// order is what an idle replica with nothing in its way asks for.
func order(limit int) payment.LeaseOrder {
	return payment.LeaseOrder{
		Limit: limit, Lease: time.Minute, Sends: true, Retries: limit, Lookups: limit, Backlog: -1,
		Kinds: []payment.Operation{payment.Reversal, payment.Capture, payment.Release, payment.Credit},
	}
}

// A worker knows of its work what the lease tells it, and nothing else: what is
// missing is money sent to the wrong place, or a second time.
func TestLeaseTellsAllThatAnAttemptNeeds(t *testing.T) {
	t.Parallel()
	l, _ := open(t, pgtest.New(t).URL, ledger.Options{}, never)
	debit, hold, other := approved(t, l, payment.Debit, "debit"), approved(t, l, payment.Hold, "hold"), approved(t, l, payment.Hold, "other")
	declined := claimed(t, l, "declined")
	declined, err := l.Decide(t.Context(), declined, payment.DeclineAndReverse(payment.WalletTimeout))
	if err != nil {
		t.Fatal(err)
	}
	creditReq, captureReq, releaseReq := ledgertest.Credit(debit, "credit", 250), ledgertest.Capture(hold, "capture", 900), ledgertest.Release(other, "release")
	payout := creditReq
	payout.Key, payout.PaymentID, payout.Of = "payout", uuid.Nil, ""
	credit, capture, release, paid := accepted(t, l, creditReq), accepted(t, l, captureReq), accepted(t, l, releaseReq), accepted(t, l, payout)

	got := map[uuid.UUID]payment.Work{}
	for _, w := range leased(t, l, order(10)) {
		if w.Age <= 0 || w.Age > time.Minute || w.Tried <= 0 || w.Tried > w.Age+time.Second || w.SinceEnd != 0 {
			t.Errorf("%s: age %v, tried for %v, ended since %v", w.Kind, w.Age, w.Tried, w.SinceEnd)
		}
		w.Age, w.Tried = 0, 0
		got[w.ID] = w
	}
	reversal := followUps(t, l, declined)[0]
	want := map[uuid.UUID]payment.Work{
		reversal.ID: {
			ID: reversal.ID, Kind: payment.Reversal, Fence: 1, Attempts: 1, Turn: payment.LookupTurn, State: payment.Pending,
			Outbound: declined.Reference.Reversal(), Payment: declined,
		},
		credit.ID: {
			ID: credit.ID, Kind: payment.Credit, Fence: 1, Attempts: 1, Turn: payment.FirstTurn, State: payment.Pending,
			Outbound: creditReq.DeriveReference(), Account: creditReq.Account, Amount: creditReq.Amount, Payment: debit,
		},
		capture.ID: {
			ID: capture.ID, Kind: payment.Capture, Fence: 1, Attempts: 1, Turn: payment.FirstTurn, State: payment.Pending,
			Outbound: captureReq.DeriveReference(), Amount: payment.Money{AmountMinor: 900, Currency: "EUR"}, Payment: hold,
		},
		release.ID: {
			ID: release.ID, Kind: payment.Release, Fence: 1, Attempts: 1, Turn: payment.FirstTurn, State: payment.Pending,
			Outbound: releaseReq.DeriveReference(), Payment: other,
		},
		paid.ID: {
			ID: paid.ID, Kind: payment.Credit, Fence: 1, Attempts: 1, Turn: payment.FirstTurn, State: payment.Pending,
			Outbound: payout.DeriveReference(), Account: payout.Account, Amount: payout.Amount,
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if again := leased(t, l, order(10)); len(again) != 0 {
		t.Errorf("%d were handed out twice", len(again))
	}
}

// A reversal of a debit that was refunded in part gives back the rest, and waits for
// refunds that are under way: otherwise the customer gets his money twice.
func TestReversalKnowsWhatCreditsHaveGivenBack(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	p := approved(t, l, payment.Debit, "debit")
	done, refused, waiting := accepted(t, l, ledgertest.Credit(p, "done", 300)), accepted(t, l, ledgertest.Credit(p, "refused", 200)), accepted(t, l, ledgertest.Credit(p, "open", 50))
	end(t, l, done.ID, payment.Settlement{State: payment.Succeeded, WalletID: "w-2"})
	end(t, l, refused.ID, payment.Settlement{State: payment.Refused, Code: "ACCOUNT_LOCKED"})
	cancellation := cancelled(t, l, payment.Debit, "debit")

	look := func() payment.Work {
		t.Helper()
		for _, w := range leased(t, l, order(10)) {
			if w.ID == cancellation.Reversal {
				return w
			}
		}
		t.Fatal("the reversal was not handed out")
		return payment.Work{}
	}
	w := look()
	if w.Credited != 300 || !w.CreditsOpen || w.TargetID != p.WalletID || w.Turn != payment.FirstTurn || w.Payment.Amount != p.Amount {
		t.Errorf("%d credited, open %v, target %q, turn %s, payment of %v", w.Credited, w.CreditsOpen, w.TargetID, w.Turn, w.Payment.Amount)
	}
	settle(t, l, w, payment.Settlement{State: payment.Pending, Due: true, Turn: payment.FirstTurn, TargetID: w.TargetID, Unspent: true})
	runOut(t, db.Connect(t))
	end(t, l, waiting.ID, payment.Settlement{State: payment.Succeeded, WalletID: "w-3"})
	if w := look(); w.Credited != 350 || w.CreditsOpen || w.Attempts != 1 {
		t.Errorf("afterwards: %d credited, open %v, attempt %d", w.Credited, w.CreditsOpen, w.Attempts)
	}
}

// Work that is due is money that somebody waits for: none of it may be handed out
// twice, and none may be forgotten, however many replicas ask at once.
func TestReplicasShareTheQueue(t *testing.T) {
	t.Parallel()
	const items, replicas = 300, 4
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	payouts(t, db.Connect(t), items, "credit", payment.FirstTurn, "-1 hour")

	var mu sync.Mutex
	times := map[uuid.UUID]int{}
	var wg sync.WaitGroup
	for range replicas {
		wg.Go(func() {
			for {
				work, err := l.Lease(t.Context(), order(7))
				if err != nil {
					t.Errorf("lease: %v", err)
					return
				}
				if len(work) == 0 {
					return // what others hold just now is theirs
				}
				mu.Lock()
				for _, w := range work {
					times[w.ID]++
				}
				mu.Unlock()
				for _, w := range work {
					if !trySettle(t, l, w, payment.Settlement{State: payment.Succeeded, WalletID: "w-1"}) {
						t.Error("a lease that nobody has taken over was not the newest")
					}
				}
			}
		})
	}
	wg.Wait()

	for _, w := range leased(t, l, order(items)) { // what was locked at the end by somebody who chose another
		times[w.ID]++
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

// Reversals are money that was taken for nothing, and come first; but a flood of
// them must not hold up a shop's captures, nor those a customer's refund.
func TestClassesShareALease(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	flood(t, db, 40)

	for _, c := range []struct {
		limit, reversals, ends, credits int
		turns                           string // whose allowance they draw on does not matter
	}{
		{7, 4, 2, 1, "'FIRST'"},
		{28, 16, 8, 4, "'FIRST'"},
		{28, 16, 8, 4, "CASE kind WHEN 'reversal' THEN 'LOOKUP' WHEN 'credit' THEN 'RETRY' ELSE 'FIRST' END"},
	} {
		execute(t, db.Connect(t), "UPDATE public.operations SET turn = "+c.turns)
		work := leased(t, l, order(c.limit))
		n := map[payment.Operation]int{}
		for _, w := range work {
			n[w.Kind]++
		}
		if got := []int{n[payment.Reversal], n[payment.Capture] + n[payment.Release], n[payment.Credit]}; !slices.Equal(got, []int{c.reversals, c.ends, c.credits}) {
			t.Errorf("of %d: %v reversals, captures and releases, credits, want %d, %d, %d", c.limit, got, c.reversals, c.ends, c.credits)
		}
		for _, w := range work {
			if err := l.HandBack(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What has waited longest is due first; and nothing is due before its time, which
// the database's clock tells (field report D26).
func TestOldestIsFirstAndNothingIsEarly(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	payouts(t, conn, 3, "young", payment.FirstTurn, "-1 minute")
	payouts(t, conn, 3, "early", payment.FirstTurn, "1 minute")
	payouts(t, conn, 3, "old", payment.FirstTurn, "-1 hour")

	for _, want := range []string{"old", "young"} {
		for _, w := range leased(t, l, order(3)) {
			if w.Account != want {
				t.Errorf("%s was handed out, want %s", w.Account, want)
			}
		}
	}
	if early := leased(t, l, order(3)); len(early) != 0 {
		t.Errorf("%d were handed out before their time", len(early))
	}
}

// Every allowance is a promise to a wallet that is in trouble: no retry without a
// token, no more lookups than agreed, nothing at all through an open breaker.
func TestLeaseKeepsToItsAllowances(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	const each = 20
	for turn, due := range map[payment.Turn]string{payment.FirstTurn: "-1 minute", payment.RetryTurn: "-1 minute", payment.LookupTurn: "-1 minute"} {
		payouts(t, conn, each, string(turn), turn, due)
	}
	payouts(t, conn, each, "BACKLOG", payment.FirstTurn, "-1 hour")

	for name, c := range map[string]struct {
		change                          func(*payment.LeaseOrder)
		first, backlog, retries, lookup int
	}{
		"nothing in the way":        {func(*payment.LeaseOrder) {}, each, each, each, each},
		"no tokens":                 {func(o *payment.LeaseOrder) { o.Retries = 0 }, each, each, 0, each},
		"some tokens":               {func(o *payment.LeaseOrder) { o.Retries = 3 }, each, each, 3, each},
		"no lookups":                {func(o *payment.LeaseOrder) { o.Lookups = 0 }, each, each, each, 0},
		"some lookups":              {func(o *payment.LeaseOrder) { o.Lookups = 4 }, each, each, each, 4},
		"breaker open":              {func(o *payment.LeaseOrder) { o.Sends = false }, 0, 0, 0, each},
		"breaker was open":          {func(o *payment.LeaseOrder) { o.Backlog = 30 * time.Minute }, each, each, each, each},
		"breaker was open, tokens":  {func(o *payment.LeaseOrder) { o.Backlog, o.Retries = 30*time.Minute, 5 }, each, -1, -1, each},
		"breaker was open, none":    {func(o *payment.LeaseOrder) { o.Backlog, o.Retries = 30*time.Minute, 0 }, each, 0, 0, each},
		"breaker is half open":      {func(o *payment.LeaseOrder) { o.Backlog, o.Retries = 0, 3 }, 0, -1, -1, each},
		"a kind that we do not do":  {func(o *payment.LeaseOrder) { o.Kinds = []payment.Operation{payment.Reversal} }, 0, 0, 0, 0},
		"a negative number of both": {func(o *payment.LeaseOrder) { o.Retries, o.Lookups = -1, -1 }, each, each, 0, 0},
	} {
		o := order(5 * each)
		c.change(&o)
		work := leased(t, l, o)
		n, drawn := map[string]int{}, map[payment.Turn]int{}
		for _, w := range work {
			n[w.Account]++
			drawn[w.Turn]++
			if want := payment.Turn(w.Account); w.Account != "BACKLOG" && o.Backlog != 0 && w.Turn != want {
				t.Errorf("%s: a %s draws on %s", name, w.Account, w.Turn)
			}
		}
		got, want := []int{n["FIRST"], n["BACKLOG"], n["RETRY"], n["LOOKUP"]}, []int{c.first, c.backlog, c.retries, c.lookup}
		if c.backlog < 0 { // they share what there is
			got[1], got[2], want[1], want[2] = n["BACKLOG"]+n["RETRY"]+n["FIRST"]-c.first, 0, o.Retries, 0
			got[0] = c.first
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v of FIRST, BACKLOG, RETRY and LOOKUP, want %v", name, got, want)
		}
		if drawn[payment.RetryTurn] > max(o.Retries, 0) || drawn[payment.LookupTurn] > max(o.Lookups, 0) {
			t.Errorf("%s: %v, with %d retries and %d lookups", name, drawn, o.Retries, o.Lookups)
		}
		for _, w := range work {
			if err := l.HandBack(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
		execute(t, conn, "UPDATE public.operations SET due_at = clock_timestamp() - CASE account WHEN 'BACKLOG' THEN interval '1 hour' ELSE interval '1 minute' END")
	}
}

// A first attempt that an open breaker has postponed comes back as a retry, but it
// has still never been sent: handed back, it is what it was.
func TestBacklogIsStillAFirstAttempt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	payouts(t, db.Connect(t), 1, "credit", payment.FirstTurn, "-1 hour")
	o := order(1)
	o.Backlog = time.Minute
	w := leased(t, l, o)[0]
	if w.Turn != payment.RetryTurn || w.Attempts != 1 || w.Resolve {
		t.Errorf("turn %s, attempt %d, resolve %v, want a retry of nothing", w.Turn, w.Attempts, w.Resolve)
	}
	if err := l.HandBack(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if w := leaseOne(t, l); w.Turn != payment.FirstTurn || w.Attempts != 1 || w.TakenOver || w.Resolve {
		t.Errorf("handed back: turn %s, attempt %d, taken over %v, resolve %v", w.Turn, w.Attempts, w.TakenOver, w.Resolve)
	}
}

// A worker that died may have sent. Whoever takes over begins by asking (field
// report D2), and the dead one, should it come back, changes nothing (field report
// D1): not even if its attempt was the one that went through.
func TestRunOutLeaseIsTakenOverAndTheOldOneIsFenced(t *testing.T) {
	t.Parallel()
	const many = 100
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	payouts(t, conn, many, "credit", payment.FirstTurn, "-1 hour")
	dead := leased(t, l, order(many))
	if early := leased(t, l, order(many)); len(dead) != many || len(early) != 0 {
		t.Fatalf("%d leased, then %d", len(dead), len(early))
	}
	runOut(t, conn)

	taken := leased(t, l, order(many))
	if len(taken) != many {
		t.Fatalf("%d of %d were taken over", len(taken), many)
	}
	for _, w := range taken {
		if !w.TakenOver || !w.Resolve || w.Turn != payment.LookupTurn || w.Fence != 2 || w.Attempts != 2 {
			t.Fatalf("taken over %v, resolve %v, turn %s, fence %d, attempt %d", w.TakenOver, w.Resolve, w.Turn, w.Fence, w.Attempts)
		}
	}
	for _, w := range dead {
		if trySettle(t, l, w, payment.Settlement{State: payment.Refused, Code: "ACCOUNT_LOCKED"}) {
			t.Fatal("a lease that was taken over was settled")
		}
		if err := l.HandBack(t.Context(), w); err != nil {
			t.Fatal(err)
		}
	}
	// Whoever took over may hand it back, or die too: it stays unresolved.
	for i, w := range taken {
		if i%2 == 0 {
			if err := l.HandBack(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
	}
	runOut(t, conn)
	for _, w := range leased(t, l, order(many)) {
		if !w.Resolve || w.Turn != payment.LookupTurn {
			t.Fatalf("the third: resolve %v, turn %s", w.Resolve, w.Turn)
		}
		settle(t, l, w, payment.Settlement{State: payment.Succeeded, WalletID: "w-1"})
		if trySettle(t, l, w, payment.Settlement{State: payment.Succeeded, WalletID: "w-2"}) {
			t.Fatal("settled twice")
		}
	}
}

// Somebody who settles at the very moment at which his lease runs out has settled.
// A lease that is being written must neither wait for him nor bring his work back
// (field report D1).
func TestLeaseDoesNotBringBackWhatIsBeingSettled(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	payouts(t, conn, 1, "credit", payment.FirstTurn, "-1 hour")
	leaseOne(t, l)
	runOut(t, conn)
	tx := begin(t, db)
	if _, err := tx.Exec(t.Context(), "UPDATE public.operations SET state = 'SUCCEEDED', ended_at = now(), due_at = NULL, leased_turn = NULL"); err != nil {
		t.Fatal(err)
	}
	if work := leased(t, l, order(1)); len(work) != 0 {
		t.Error("what is being settled was handed out")
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if work := leased(t, l, order(1)); len(work) != 0 {
		t.Error("what was settled was handed out")
	}
}

// A release before must not touch what a newer one has put there, and must not be
// held up by it, even if it is the oldest of all (issue 3, poison).
func TestKindOfANewerReleaseIsLeftUntouchedAndDelaysNobody(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	// The newer release's migration.
	for _, constraint := range []string{"operations_kind_check", "operations_asked_check", "operations_payment_check"} {
		execute(t, conn, "ALTER TABLE public.operations DROP CONSTRAINT "+constraint)
	}
	execute(t, conn, "ALTER TABLE public.operations DISABLE TRIGGER operations_final")
	payouts(t, conn, 50, "rebate", payment.FirstTurn, "-2 hours")
	execute(t, conn, "UPDATE public.operations SET kind = 'rebate'")
	payouts(t, conn, 2, "credit", payment.FirstTurn, "-1 hour")

	work := leased(t, l, order(10))
	if len(work) != 2 || work[0].Kind != payment.Credit {
		t.Errorf("%d were handed out, want the two credits", len(work))
	}
	var untouched int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM public.operations WHERE kind = 'rebate' AND fence = 0 AND attempts = 0 AND turn = 'FIRST'").Scan(&untouched); err != nil {
		t.Fatal(err)
	}
	if untouched != 50 {
		t.Errorf("%d of 50 are untouched", untouched)
	}
}

// Every way in which an attempt can end leaves a row that the next one, a till and
// an operator can rely on.
func TestSettlementIsWhatTheNextAttemptFinds(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	p := approved(t, l, payment.Debit, "debit")
	credit := accepted(t, l, ledgertest.Credit(p, "credit", 100))
	call := payment.WalletCall{Call: "credit", Outcome: "ambiguous", Reason: payment.ReasonTimeout, Ago: 2 * time.Second, Took: 1500 * time.Millisecond}

	w := leaseOne(t, l)
	settle(t, l, w, payment.Settlement{State: payment.Pending, Due: true, Pause: time.Hour, Turn: payment.RetryTurn, Resolve: true, Lookups: 3, Calls: []payment.WalletCall{call}})
	if work := leased(t, l, order(1)); len(work) != 0 {
		t.Error("handed out before its pause was over")
	}
	runOut(t, conn)
	w = leaseOne(t, l)
	if w.Turn != payment.RetryTurn || !w.Resolve || w.Attempts != 2 || w.Lookups != 3 || w.TakenOver || w.Fence != 2 {
		t.Errorf("after an attempt in doubt: %+v", w)
	}
	settle(t, l, w, payment.Settlement{State: payment.Pending, Due: true, Turn: payment.RetryTurn, Unspent: true})
	w = leaseOne(t, l)
	if w.Attempts != 2 || w.Resolve || w.Lookups != 0 {
		t.Errorf("after an attempt that was not made: %+v", w)
	}
	settle(t, l, w, payment.Settlement{State: payment.Refused, Code: "ACCOUNT_LOCKED"})

	stored, _, err := l.OperationByID(t.Context(), p.Caller, credit.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := credit
	want.State, want.Code, want.EndedAt = payment.Refused, "ACCOUNT_LOCKED", stored.EndedAt
	if diff := cmp.Diff(want, stored); diff != "" || stored.EndedAt.Before(credit.CreatedAt) {
		t.Errorf("refused (-want +got):\n%s", diff)
	}
	if work := leased(t, l, order(1)); len(work) != 0 {
		t.Error("handed out after its end")
	}
	// What the wallet refused is given back.
	accepted(t, l, ledgertest.Credit(p, "all of it", p.Amount.AmountMinor))
}

// Not found is not proof. What ended NOT_APPLIED is looked at again, and if the money
// has been taken after all it goes back, whatever had been said before.
func TestReversalThatFoundNothingIsLookedAtAgainAndReopened(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	p := claimed(t, l, "declined")
	if _, err := l.Decide(t.Context(), p, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}
	state := func() payment.FollowUp { return followUps(t, l, p)[0] }

	w := leaseOne(t, l)
	settle(t, l, w, payment.Settlement{State: payment.NotApplied, Due: true, Pause: time.Hour, Turn: payment.LookupTurn, Unspent: true, Lookups: 1})
	ended := state()
	if ended.State != payment.NotApplied || ended.EndedAt.IsZero() {
		t.Fatalf("ended: %+v", ended)
	}
	runOut(t, conn)
	w = leaseOne(t, l)
	if w.State != payment.NotApplied || w.SinceEnd <= 0 || w.Attempts != 1 || w.Turn != payment.LookupTurn || w.TakenOver {
		t.Errorf("a late check: %+v", w)
	}
	settle(t, l, w, payment.Settlement{State: payment.NotApplied, Due: true, Pause: time.Hour, Turn: payment.LookupTurn, Unspent: true, LateChecks: 1})
	if again := state(); !again.EndedAt.Equal(ended.EndedAt) {
		t.Errorf("a late check that found nothing moved the end from %v to %v", ended.EndedAt, again.EndedAt)
	}
	runOut(t, conn)
	execute(t, conn, "UPDATE public.operations SET tried_from = tried_from - interval '80 hours'")
	w = leaseOne(t, l)
	if w.Tried < 80*time.Hour {
		t.Errorf("tried for %v, want what it was", w.Tried)
	}
	settle(t, l, w, payment.Settlement{State: payment.Pending, Due: true, Turn: payment.RetryTurn, TargetID: "w-late", LateChecks: 1})
	if reopened := state(); reopened.State != payment.Pending || !reopened.EndedAt.IsZero() {
		t.Errorf("found after all: %+v", reopened)
	}
	w = leaseOne(t, l)
	if w.TargetID != "w-late" || w.State != payment.Pending || w.SinceEnd != 0 || w.LateChecks != 1 || w.Tried > time.Hour {
		t.Errorf("reopened: %+v", w)
	}
	settle(t, l, w, payment.Settlement{State: payment.Succeeded, WalletID: "w-back", TargetID: "w-late"})
	if done := state(); done.State != payment.Succeeded || done.WalletID != "w-back" || done.EndedAt.Before(ended.EndedAt) {
		t.Errorf("undone: %+v", done)
	}
}

// The reversal of a tombstone looks for what a lost claim may have left in the
// wallet, and pays it back to the account of the request that was shown: the
// payment itself knows neither.
func TestReversalOfATombstoneKnowsWhatItIsAbout(t *testing.T) {
	t.Parallel()
	l, _ := open(t, pgtest.New(t).URL, ledger.Options{}, never)
	for _, laterShown := range []bool{false, true} {
		req := ledgertest.Request(payment.Key(map[bool]string{true: "later", false: "at once"}[laterShown]))
		if laterShown {
			cancelled(t, l, req.Operation, req.Key)
		}
		if _, err := l.CancelByKey(t.Context(), req.Caller, req.Operation, req.Key, &req); err != nil {
			t.Fatal(err)
		}
		w := leaseOne(t, l)
		want := payment.Payment{Operation: req.Operation, Account: req.Account, Amount: req.Amount, Reference: req.DeriveReference()}
		if diff := cmp.Diff(want.Instruction(), w.Payment.Instruction()); diff != "" {
			t.Errorf("what is looked for (-want +got):\n%s", diff)
		}
		if w.Outbound != req.DeriveReference().Reversal() || w.Turn != payment.LookupTurn || w.TargetID != "" {
			t.Errorf("outbound %s, turn %s, target %q", w.Outbound, w.Turn, w.TargetID)
		}
	}
}

// Money that nobody sees is found by the auditors: whatever is open is in the sums,
// whatever has ended is not.
func TestExposureIsWhatIsOpen(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	debit, hold, other := approved(t, l, payment.Debit, "debit"), approved(t, l, payment.Hold, "hold"), approved(t, l, payment.Hold, "other")
	parked, done := accepted(t, l, ledgertest.Credit(debit, "parked", 100)), accepted(t, l, ledgertest.Credit(debit, "done", 10))
	accepted(t, l, ledgertest.Credit(debit, "open", 200))
	accepted(t, l, ledgertest.Capture(hold, "capture", 700))
	accepted(t, l, ledgertest.Release(other, "release"))
	end(t, l, parked.ID, payment.Settlement{State: payment.Parked})
	end(t, l, done.ID, payment.Settlement{State: payment.Succeeded, WalletID: "w"})
	ended := claimed(t, l, "not applied")
	if _, err := l.Decide(t.Context(), ended, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}
	for _, w := range leased(t, l, order(10)) {
		if w.Kind == payment.Reversal { // due once more, and not open
			settle(t, l, w, payment.Settlement{State: payment.NotApplied, Due: true, Pause: time.Hour, Turn: payment.LookupTurn})
		}
	}

	got, err := l.Exposures(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i].OldestAge <= 0 || got[i].OldestAge > time.Minute {
			t.Errorf("the oldest %s is %v old", got[i].Kind, got[i].OldestAge)
		}
		got[i].OldestAge = 0
	}
	want := []payment.Exposure{
		{Kind: payment.Capture, State: payment.Pending, Currency: "EUR", Count: 1, AmountMinor: 700},
		{Kind: payment.Credit, State: payment.Parked, Currency: "EUR", Count: 1, AmountMinor: 100},
		{Kind: payment.Credit, State: payment.Pending, Currency: "EUR", Count: 1, AmountMinor: 200},
		{Kind: payment.Release, State: payment.Pending, Currency: "EUR", Count: 1, AmountMinor: 1250},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Recovery, a decision and a cancel all write reversals, and the queue can only do
// what their rows say. Each must be due, about the right money, under its own key.
func TestEveryReversalIsWorkAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	overdue, _ := open(t, db.URL, ledger.Options{}, soon)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	want := map[payment.Reference]payment.Payment{}
	decided, inFlight := claimed(t, l, "decided"), claimed(t, l, "in flight")
	if _, err := l.Decide(t.Context(), decided, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}
	cancelled(t, l, payment.Debit, "in flight")
	met, swept := claimed(t, l, "met"), claimed(t, l, "swept")
	for met.State == payment.InFlight {
		var err error
		if met, _, err = overdue.PaymentByID(t.Context(), met.Caller, met.ID); err != nil {
			t.Fatal(err)
		}
	}
	sweepUntilOne(t, overdue)
	for _, p := range []payment.Payment{decided, inFlight, met, swept} {
		want[p.Reference.Reversal()] = p
	}

	for _, w := range leased(t, l, order(10)) {
		p, ok := want[w.Outbound]
		delete(want, w.Outbound)
		if !ok || w.Turn != payment.LookupTurn || w.TargetID != "" || w.Payment.ID != p.ID || w.Attempts != 1 {
			t.Errorf("reversal %s of %s: turn %s, target %q, attempt %d", w.Outbound, w.Payment.ID, w.Turn, w.TargetID, w.Attempts)
		}
		if diff := cmp.Diff(p.Instruction(), w.Payment.Instruction()); diff != "" {
			t.Errorf("what is looked for (-want +got):\n%s", diff)
		}
	}
	if len(want) != 0 {
		t.Errorf("%d reversals are not due", len(want))
	}
}

// payouts writes n credits that name no payment, due at a time from now. what is
// their account, so that a test can tell them apart.
func payouts(tb testing.TB, conn executor, n int, what string, turn payment.Turn, due string) {
	tb.Helper()
	_, err := conn.Exec(tb.Context(), `
INSERT INTO public.operations (
    id, kind, outbound_key, caller, key_hash, fingerprint, account, amount_minor, currency, state, turn, created_at, due_at, tried_from)
SELECT public.uuid_v7(at), 'credit', gen_random_uuid(), 'store-17', '\x000000000000' || sha256(convert_to($2 || n, 'UTF8')),
       decode(repeat('01', 33), 'hex'), $2, 100, 'EUR', 'PENDING', $3, at, at + $4::interval, at
FROM (SELECT n, clock_timestamp() AS at FROM generate_series(1, $1::int) AS n) AS numbered`, n, what, string(turn), due)
	if err != nil {
		tb.Fatal(err)
	}
}

// flood makes n reversals, n captures and releases and n credits due.
func flood(tb testing.TB, db *pgtest.DB, n int) {
	tb.Helper()
	conn := db.Connect(tb)
	payouts(tb, conn, n, "credit", payment.FirstTurn, "-1 minute")
	execute(tb, conn, `
INSERT INTO public.payments (id, caller, operation, key_hash, fingerprint, reference, account, amount_minor, currency, state, wallet_id, created_at, decided_at)
SELECT public.uuid_v7(at), 'store-17', 'hold', '\x000000000000' || sha256(convert_to('hold' || n, 'UTF8')), decode(repeat('01', 33), 'hex'),
       gen_random_uuid(), 'ACC-1', 100, 'EUR', 'APPROVED', 'w-' || n, at, at
FROM (SELECT n, clock_timestamp() AS at FROM generate_series(1, $1::int * 2) AS n) AS numbered`, n)
	execute(tb, conn, `
INSERT INTO public.operations (
    id, kind, payment_id, outbound_key, caller, key_hash, fingerprint, amount_minor, currency, state, turn, created_at, due_at, tried_from)
SELECT public.uuid_v7(created_at), CASE WHEN n % 2 = 0 THEN 'capture' ELSE 'release' END, id, gen_random_uuid(), caller, key_hash, fingerprint,
       amount_minor, currency, 'PENDING', 'FIRST', created_at, created_at - interval '1 minute', created_at
FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM public.payments) AS p WHERE n <= $1::int`, n)
	execute(tb, conn, `
INSERT INTO public.operations (
    id, kind, payment_id, outbound_key, reverses, target_id, account, amount_minor, currency, state, turn, created_at, due_at, tried_from)
SELECT public.uuid_v7(created_at), 'reversal', id, public.reversal_reference(reference), reference, wallet_id, account, amount_minor, currency,
       'PENDING', 'FIRST', created_at, created_at - interval '1 minute', created_at
FROM (SELECT *, row_number() OVER (ORDER BY id) AS n FROM public.payments) AS p WHERE n > $1::int`, n)
}

// A worker that was stopped in the middle of a send comes back too late to say how it
// ended. What it did was on the wire all the same: the timeline that somebody reads
// because of it must have it, once.
func TestCallsOfAFencedAttemptAreKept(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	payouts(t, conn, 1, "credit", payment.FirstTurn, "-1 hour")
	stopped := leaseOne(t, l)
	runOut(t, conn)
	follower := leaseOne(t, l)

	late := payment.Settlement{State: payment.Pending, Due: true, Turn: payment.RetryTurn, Calls: []payment.WalletCall{
		{Call: "credit", Outcome: "ambiguous", Reason: payment.ReasonTimeout, Took: time.Second},
	}}
	for range 2 {
		if trySettle(t, l, stopped, late) {
			t.Fatal("a lease that was taken over was settled")
		}
	}
	settle(t, l, follower, payment.Settlement{State: payment.Succeeded, WalletID: "w-1", Calls: []payment.WalletCall{
		{Call: "lookup", Outcome: "applied", Reason: payment.ReasonApplied, Status: 200},
	}})
	told, found, err := l.Timeline(t.Context(), stopped.ID)
	if err != nil || !found {
		t.Fatal(found, err)
	}
	var calls []string
	for _, c := range told.Calls {
		calls = append(calls, c.Call+" "+c.Outcome)
	}
	slices.Sort(calls)
	if diff := cmp.Diff([]string{"credit ambiguous", "lookup applied"}, calls); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}

// Another must follow a dead worker within 30 s (contract section 4), also when
// thousands of reversals wait for their lookup after an outage: what was never
// reported goes before them.
func TestWhatWasTakenOverGoesBeforeABacklogOfLookups(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	payouts(t, conn, 201, "credit", payment.FirstTurn, "-1 hour")
	dead := leased(t, l, order(1))[0]
	runOut(t, conn)
	execute(t, conn, `UPDATE operations SET turn = 'LOOKUP', due_at = due_at - interval '2 hours' WHERE leased_turn IS NULL`)

	few := order(5)
	few.Lookups = 5
	work := leased(t, l, few)
	if !slices.ContainsFunc(work, func(w payment.Work) bool { return w.ID == dead.ID && w.TakenOver }) {
		t.Errorf("not among the first %d of 201", len(work))
	}
}

// When a send has ended in doubt, and when that was, outlives the attempt and its
// worker: until the settle window after it is over nothing of it is given back.
func TestADoubtIsRememberedWithItsTime(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	conn := db.Connect(t)
	payouts(t, conn, 1, "credit", payment.FirstTurn, "-1 hour")
	w := leaseOne(t, l)
	if w.InDoubt {
		t.Error("in doubt before anything was sent")
	}
	again := payment.Settlement{State: payment.Pending, Due: true, Turn: payment.RetryTurn}
	settle(t, l, w, again)
	if w = leaseOne(t, l); w.InDoubt {
		t.Error("in doubt after a send that was not")
	}
	doubtful := again
	doubtful.Doubt = true
	settle(t, l, w, doubtful)
	execute(t, conn, `UPDATE operations SET doubt_at = doubt_at - interval '10 minutes'`)
	if w = leaseOne(t, l); !w.InDoubt || w.SinceDoubt < 10*time.Minute || w.SinceDoubt > 11*time.Minute {
		t.Errorf("in doubt %v, since %v", w.InDoubt, w.SinceDoubt)
	}
	settle(t, l, w, again)
	w = leaseOne(t, l)
	if !w.InDoubt || w.SinceDoubt < 10*time.Minute {
		t.Errorf("after a clean send: in doubt %v, since %v", w.InDoubt, w.SinceDoubt)
	}
	// A worker that never reported may have sent until its lease was over.
	runOut(t, conn)
	if w = leaseOne(t, l); !w.InDoubt || w.SinceDoubt > time.Minute {
		t.Errorf("taken over: in doubt %v, since %v", w.InDoubt, w.SinceDoubt)
	}
}
