package queue

import (
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/payment"
)

// tried makes one attempt at w, against a wallet that says what is given, and
// returns what is to be written down.
func tried(t *testing.T, w payment.Work, wallet *fakeWallet, change ...func(*Config)) (payment.Settlement, *Queue, *fakeObserver) {
	t.Helper()
	o := &fakeObserver{}
	q := newQueue(t, nil, wallet, o, change...)
	w.Fence, w.Attempts = 7, max(w.Attempts, 1)
	if w.State == "" {
		w.State = payment.Pending
	}
	return q.newAttempt(w, time.Now()).perform(t.Context()), q, o
}

func says(o payment.Outcome) *fakeWallet {
	return &fakeWallet{onSend: func(int, payment.Instruction) payment.Outcome { return o }}
}

func finds(e payment.Evidence) *fakeWallet {
	return &fakeWallet{onLookup: func(int, payment.Instruction) payment.Evidence { return e }}
}

// The outcomes table of contract section 4, row by row, for each kind that a till
// can ask for. A wrong cell is money that moves twice, or never.
func TestAnAttemptEndsAsTheContractSays(t *testing.T) {
	t.Parallel()
	type end struct {
		State   payment.FollowUpState
		Code    payment.Code
		Turn    payment.Turn // of Pending
		Resolve bool
		Unspent bool
		Reason  string // of Parked
	}
	again := end{State: payment.Pending, Turn: payment.RetryTurn}
	againUnspent := end{State: payment.Pending, Turn: payment.RetryTurn, Unspent: true}
	resolve := end{State: payment.Pending, Turn: payment.RetryTurn, Resolve: true}
	for _, c := range []struct {
		name    string
		outcome payment.Outcome
		want    end
	}{
		{"success", success("w1"), end{State: payment.Succeeded}},
		{"v1: a duplicate of our own", payment.Outcome{Class: payment.Success, Reason: payment.ReasonDuplicate, WalletID: "w1", Status: 409}, end{State: payment.Succeeded}},
		{"verdict", no(409, "ACCOUNT_CLOSED"), end{State: payment.Refused, Code: "ACCOUNT_CLOSED"}},
		{"verdict 404", no(404, "ACCOUNT_NOT_FOUND"), end{State: payment.Refused, Code: "ACCOUNT_NOT_FOUND"}},
		{"verdict 423", no(423, "ACCOUNT_LOCKED"), end{State: payment.Refused, Code: "ACCOUNT_LOCKED"}},
		{"verdict HOLD_ALREADY_CAPTURED on a first attempt", no(409, "HOLD_ALREADY_CAPTURED"), end{State: payment.Refused, Code: "HOLD_ALREADY_CAPTURED"}},
		{"a 4xx of something in between", foreign(404), resolve},
		{"401 in the wallet's words", no(401, "TOKEN_EXPIRED"), again},
		{"403 in the wallet's words", no(403, "FORBIDDEN"), again},
		{"408 in the wallet's words", no(408, "TOO_SLOW"), again},
		{"425 in the wallet's words", no(425, "TOO_EARLY"), again},
		{"429 in the wallet's words", no(429, "SLOW_DOWN"), again},
		{"401 of something in between", foreign(401), resolve},
		{"429 of something in between", foreign(429), resolve},
		{"connection refused", refuse, againUnspent},
		{"connect timeout", unavailable(payment.ReasonConnectTimeout), againUnspent},
		{"502", gateway(502, payment.ReasonStatus502), resolve},
		{"503", gateway(503, payment.ReasonStatus503), resolve},
		{"breaker open", unavailable(payment.ReasonBreakerOpen), againUnspent},
		{"bulkhead full", unavailable(payment.ReasonBulkheadFull), end{State: payment.Pending, Turn: payment.FirstTurn, Unspent: true}},
		{"deadline spent", unavailable(payment.ReasonDeadlineSpent), end{State: payment.Pending, Turn: payment.FirstTurn, Unspent: true}},
		{"the wallet has no such call", unavailable(payment.ReasonUnsupported), end{State: payment.Parked, Turn: payment.RetryTurn, Unspent: true, Reason: parkUnsupported}},
		{"timeout", ambiguous(payment.ReasonTimeout), resolve},
		{"connection lost", ambiguous(payment.ReasonConnectionLost), resolve},
		{"504", payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonStatus504, Status: 504}, resolve},
		{"202 pending (field report B38)", payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonPending, Status: 202}, resolve},
		{"a forgotten outcome", payment.Outcome{}, resolve},
	} {
		for _, w := range []payment.Work{credit(), capture(), release()} {
			s, _, _ := tried(t, w, says(c.outcome))
			got := end{s.State, s.Code, s.Turn, s.Resolve, s.Unspent, s.ParkReason}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s of a %s (-want +got):\n%s", c.name, w.Kind, diff)
			}
			if s.ID != w.ID || s.Fence != 7 {
				t.Errorf("%s of a %s: settles %s with fence %d", c.name, w.Kind, s.ID, s.Fence)
			}
			if s.State == payment.Pending && !s.Due {
				t.Errorf("%s of a %s: pending, and never due again", c.name, w.Kind)
			}
			if s.State == payment.Succeeded && s.WalletID != "w1" {
				t.Errorf("%s of a %s: the wallet's id is %q", c.name, w.Kind, s.WalletID)
			}
		}
	}
}

// What ended in doubt must be asked about before it is sent again, or a wallet
// without a duplicate check pays twice.
func TestDoubtIsResolvedBeforeAnythingIsSentAgain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		evidence payment.Evidence
		want     payment.FollowUpState
		code     payment.Code
		walletID string
		sends    int
	}{
		{"applied", applied("w9"), payment.Succeeded, "", "w9", 0},
		{"rejected", rejected("ACCOUNT_CLOSED"), payment.Refused, "ACCOUNT_CLOSED", "", 0},
		{"not found", notFound, payment.Succeeded, "", "w1", 1},
		{"pending (B30, B38)", blind(payment.ReasonPending), payment.Pending, "", "", 0},
		{"an ingress' 404", payment.Evidence{Finding: payment.NoEvidence, Reason: payment.ReasonNotFoundUnproven, Status: 404}, payment.Pending, "", "", 0},
		{"no answer", blind(payment.ReasonTimeout), payment.Pending, "", "", 0},
		{"forgotten evidence", payment.Evidence{}, payment.Pending, "", "", 0},
	} {
		for _, w := range []payment.Work{credit(), capture(), release()} {
			for _, how := range []string{"ambiguous before", "taken over"} {
				w := w
				w.Attempts, w.Turn = 2, payment.RetryTurn
				w.Resolve, w.TakenOver = how == "ambiguous before", how == "taken over"
				wallet := says(success("w1"))
				wallet.onLookup = func(int, payment.Instruction) payment.Evidence { return c.evidence }
				s, _, _ := tried(t, w, wallet)
				if s.State != c.want || s.Code != c.code || s.WalletID != c.walletID || wallet.sends != c.sends {
					t.Errorf("%s, %s of a %s: got %s %q %q after %d sends, want %s %q %q after %d",
						how, c.name, w.Kind, s.State, s.Code, s.WalletID, wallet.sends, c.want, c.code, c.walletID, c.sends)
				}
				if s.State == payment.Pending && !s.Resolve {
					t.Errorf("%s, %s of a %s: the doubt is forgotten", how, c.name, w.Kind)
				}
				if calls := wallet.asked(); !calls[0].lookup || calls[0].in.Reference != w.Outbound {
					t.Errorf("%s, %s of a %s: began with %+v", how, c.name, w.Kind, calls[0])
				}
				if s.Unspent != (c.sends == 0) {
					t.Errorf("%s, %s of a %s: unspent is %v after %d sends", how, c.name, w.Kind, s.Unspent, c.sends)
				}
			}
		}
	}
}

// A doubt that was resolved "not found so far" is a doubt again when the send that
// followed did not end it: the first may have landed since.
func TestNotFoundDoesNotEndADoubt(t *testing.T) {
	t.Parallel()
	w := credit()
	w.Attempts, w.Turn, w.Resolve = 2, payment.RetryTurn, true
	if s, _, _ := tried(t, w, says(refuse)); !s.Resolve {
		t.Error("after not found and a refused connection: the next attempt would send without asking")
	}
}

// The wallet's no to a later attempt may be about an earlier one that did go
// through: a capture that succeeded and is told to the till as refused makes it
// charge again (field report B28).
func TestAVerdictAfterAnEarlierAttemptIsLookedUp(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		work payment.Work
		code payment.Code
	}{
		{"capture", capture(), "HOLD_ALREADY_CAPTURED"},
		{"release", release(), "HOLD_NOT_ACTIVE"},
		{"credit of an account that was closed since", credit(), "ACCOUNT_CLOSED"},
	} {
		for _, found := range []struct {
			evidence payment.Evidence
			want     payment.FollowUpState
		}{
			{applied("w3"), payment.Succeeded},
			{rejected("OTHER"), payment.Refused},
			{notFound, payment.Refused},
			{blind(payment.ReasonTimeout), payment.Pending},
			{payment.Evidence{}, payment.Pending},
		} {
			w := c.work
			w.Attempts, w.Turn = 2, payment.RetryTurn
			wallet := says(no(409, c.code))
			wallet.onLookup = func(int, payment.Instruction) payment.Evidence { return found.evidence }
			s, _, _ := tried(t, w, wallet)
			if s.State != found.want {
				t.Errorf("%s, lookup %s: got %s, want %s", c.name, found.evidence.Finding, s.State, found.want)
			}
			if s.State == payment.Refused && s.Code != c.code {
				t.Errorf("%s: the verdict is told as %q", c.name, s.Code)
			}
			if s.State == payment.Pending && !s.Resolve {
				t.Errorf("%s: the doubt is forgotten", c.name)
			}
		}
		// A first attempt has no earlier one that it could be about.
		wallet := says(no(409, c.code))
		if s, _, _ := tried(t, c.work, wallet); s.State != payment.Refused || wallet.lookups != 0 {
			t.Errorf("%s, first attempt: %s after %d lookups", c.name, s.State, wallet.lookups)
		}
	}
}

// A duplicate answer to what was never sent means that a claim was lost, or that
// something repeats our requests: the operator must hear of it, once.
func TestADuplicateOnAFirstSendIsCounted(t *testing.T) {
	t.Parallel()
	duplicate := payment.Outcome{Class: payment.Success, Reason: payment.ReasonDuplicate, WalletID: "w1", Status: 409}
	for attempts, want := range map[int]int{1: 1, 2: 0} {
		w := credit()
		w.Attempts = attempts
		if _, _, o := tried(t, w, says(duplicate)); o.seen().duplicates != want {
			t.Errorf("attempt %d: counted %d, want %d", attempts, o.seen().duplicates, want)
		}
	}
}

// After QUEUE_PARK_AFTER a person must look, and see why; nothing may be failed
// without knowing (field report B22), and what is parked must begin with a lookup
// when it is redriven, because the wallet may know it by now.
func TestOutOfTimeIsParkedAndNeverFailed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		wallet  *fakeWallet
		attempt int
		resolve bool
		want    string
	}{
		{"no answer", says(ambiguous(payment.ReasonTimeout)), 1, false, parkOutOfTime},
		{"connection refused", says(refuse), 1, false, parkOutOfTime},
		{"breaker open", says(unavailable(payment.ReasonBreakerOpen)), 1, false, parkOutOfTime},
		{"401", says(no(401, "TOKEN_EXPIRED")), 3, false, parkOutOfTime},
		{"lookups say nothing", finds(blind(payment.ReasonStatus5xx)), 3, true, parkNoEvidence},
		{"lookup's breaker open", finds(blind(payment.ReasonBreakerOpen)), 3, true, parkNoEvidence},
	} {
		w := credit()
		w.Attempts, w.Resolve, w.Turn = c.attempt, c.resolve, payment.RetryTurn
		w.Tried = 72*time.Hour - 1
		if s, _, _ := tried(t, w, c.wallet); s.State != payment.Pending {
			t.Errorf("%s, before its time: %s", c.name, s.State)
		}
		w.Tried = 72 * time.Hour
		s, _, _ := tried(t, w, c.wallet)
		if s.State != payment.Parked || s.ParkReason != c.want || s.Due {
			t.Errorf("%s: got %s %q, want %s %q", c.name, s.State, s.ParkReason, payment.Parked, c.want)
		}
		if sent := c.attempt > 1 || !s.Unspent; s.Resolve != sent {
			t.Errorf("%s: a redrive begins with a lookup: %v, something may have been sent: %v", c.name, s.Resolve, sent)
		}
	}
	// What only waited for a place or a token gets its attempt first.
	w := credit()
	w.Tried = 100 * time.Hour
	if s, _, _ := tried(t, w, &fakeWallet{full: true}); s.State != payment.Pending {
		t.Errorf("no place: %s", s.State)
	}
}

// An attempt is what was put on the wire. If a refused connection or an open
// breaker counted, the first duplicate answer would not be seen as one.
func TestWhatWasNotPutOnTheWireIsNotAnAttempt(t *testing.T) {
	t.Parallel()
	for _, reason := range []payment.Reason{
		payment.ReasonBreakerOpen, payment.ReasonBulkheadFull, payment.ReasonDeadlineSpent, payment.ReasonConnectFailed, payment.ReasonConnectTimeout,
	} {
		s, _, _ := tried(t, credit(), says(unavailable(reason)))
		if !s.Unspent {
			t.Errorf("%s: spent an attempt", reason)
		}
		wasTried := reason == payment.ReasonConnectFailed || reason == payment.ReasonConnectTimeout
		if (s.Lookups == 1) != wasTried || (len(s.Calls) == 1) != wasTried {
			t.Errorf("%s: moved the backoff by %d and left %d lines in the timeline", reason, s.Lookups, len(s.Calls))
		}
	}
	if s, _, _ := tried(t, credit(), says(ambiguous(payment.ReasonTimeout))); s.Unspent {
		t.Error("a send without an answer: did not count")
	}
}

// A wallet that is down for long must see an operation ever less often, whatever
// keeps the attempts from ending, and never later than every five minutes.
func TestEveryTryWithoutAnEndMakesThePauseLonger(t *testing.T) {
	t.Parallel()
	for name, wallet := range map[string]*fakeWallet{
		"no answer":          says(ambiguous(payment.ReasonTimeout)),
		"connection refused": says(refuse),
		"blind lookups":      finds(blind(payment.ReasonTimeout)),
	} {
		w := credit()
		w.Turn, w.Resolve = payment.RetryTurn, name == "blind lookups"
		spent := 0
		for try := 1; try <= 12; try++ {
			w.Attempts = spent + 1
			ceiling := min(time.Second<<(try-1), 5*time.Minute)
			for range 20 {
				s, _, _ := tried(t, w, wallet)
				if s.Pause <= 0 || s.Pause > ceiling {
					t.Fatalf("%s, try %d: pause %s, want at most %s", name, try, s.Pause, ceiling)
				}
			}
			longest := time.Duration(0)
			var s payment.Settlement
			for range 60 {
				s, _, _ = tried(t, w, wallet)
				longest = max(longest, s.Pause)
			}
			if longest < ceiling/2 {
				t.Errorf("%s, try %d: the longest of 60 pauses is %s of %s", name, try, longest, ceiling)
			}
			w.Lookups = s.Lookups
			if !s.Unspent {
				spent++
			}
		}
	}
}

// Each kind is one call at the wallet, with the stored key, and it is the same on
// every attempt (field report B35).
func TestTheInstructionIsTheStoredOne(t *testing.T) {
	t.Parallel()
	c, p, r := credit(), capture(), release()
	cancelDebit, cancelHold := cancellationOf(debit()), cancellationOf(hold())
	cancelDebit.Credited = 300
	for _, want := range []struct {
		work payment.Work
		in   payment.Instruction
	}{
		{c, payment.Instruction{Operation: payment.Credit, Reference: c.Outbound, Account: "a", Amount: euros(500)}},
		{p, payment.Instruction{Operation: payment.Capture, Reference: p.Outbound, HoldID: "hold-1", Amount: euros(900)}},
		{r, payment.Instruction{Operation: payment.Release, Reference: r.Outbound, HoldID: "hold-1"}},
		{cancelDebit, payment.Instruction{Operation: payment.Credit, Reference: cancelDebit.Outbound, Account: "a", Amount: euros(600)}},
		{cancelHold, payment.Instruction{Operation: payment.Release, Reference: cancelHold.Outbound, HoldID: "hold-1"}},
	} {
		wallet := says(ambiguous(payment.ReasonTimeout))
		tried(t, want.work, wallet)
		again := want.work
		again.Attempts, again.Turn, again.Resolve = 2, payment.RetryTurn, true
		tried(t, again, wallet)
		calls := wallet.asked()
		if len(calls) != 3 {
			t.Fatalf("%s: %d calls, want a send, a lookup and a send", want.work.Kind, len(calls))
		}
		for i, call := range calls {
			if diff := gocmp.Diff(want.in, call.in); diff != "" {
				t.Errorf("call %d of a %s (-want +got):\n%s", i, want.work.Kind, diff)
			}
		}
	}
}

// A first send is in doubt, the second is refused. What the first asked for may still
// land (contract section 3: not found is not proof): if the refusal gave back what it
// has reserved, the till's next credit could be applied beside it, and the customer
// gets both. So it waits for the settle window after the last doubt.
func TestARefusalAfterADoubtGivesNothingBackBeforeTheWindowIsOver(t *testing.T) {
	t.Parallel()
	const window = 15 * time.Minute
	refusal := no(423, "ACCOUNT_LOCKED")
	for name, c := range map[string]struct {
		work    payment.Work
		refusal payment.Outcome
		inDoubt bool
		since   time.Duration
		want    payment.FollowUpState
		pause   time.Duration
	}{
		"a credit, just now":        {credit(), refusal, true, time.Second, payment.Pending, 5 * time.Minute},
		"a credit, nearly over":     {credit(), refusal, true, window - time.Second, payment.Pending, time.Second},
		"a credit, over":            {credit(), refusal, true, window, payment.Refused, 0},
		"a credit, never in doubt":  {credit(), refusal, false, 0, payment.Refused, 0},
		"a capture, just now":       {capture(), refusal, true, time.Second, payment.Pending, 5 * time.Minute},
		"a capture, the hold ended": {capture(), no(409, "HOLD_ALREADY_CAPTURED"), true, time.Second, payment.Refused, 0},
		"a release, the hold ended": {release(), no(409, "HOLD_NOT_ACTIVE"), true, time.Second, payment.Refused, 0},
	} {
		w := c.work
		w.Attempts, w.Turn, w.Resolve = 2, payment.RetryTurn, true
		w.InDoubt, w.SinceDoubt = c.inDoubt, c.since
		wallet := says(c.refusal)
		wallet.onLookup = func(n int, _ payment.Instruction) payment.Evidence {
			// Not found before the send; after it the wallet remembers that it refused the
			// second one, or it forgets refusals: either way the first may still land.
			if n > 1 && len(name)%2 == 0 {
				return rejected(c.refusal.Code)
			}
			return payment.Evidence{Finding: payment.NotFound, Reason: payment.ReasonVerdict, Status: 404}
		}
		s, _, _ := tried(t, w, wallet)
		if s.State != c.want || s.Pause != c.pause {
			t.Errorf("%s: %s after %v, want %s after %v", name, s.State, s.Pause, c.want, c.pause)
		}
		if s.State == payment.Pending && !s.Resolve {
			t.Errorf("%s: the next attempt does not begin with a lookup", name)
		}
	}
	// A refusal that is found before anything is sent again is about the one send there
	// was: that is the end (contract section 4). Of several it may be about another.
	for attempts, want := range map[int]payment.FollowUpState{2: payment.Refused, 3: payment.Pending} {
		w := credit()
		w.Attempts, w.Turn, w.Resolve, w.InDoubt, w.SinceDoubt = attempts, payment.RetryTurn, true, true, time.Second
		if s, _, _ := tried(t, w, finds(rejected("ACCOUNT_LOCKED"))); s.State != want {
			t.Errorf("found rejected after %d sends: %s, want %s", attempts-1, s.State, want)
		}
	}
	// And the doubt is told to the ledger, which keeps when it was.
	for outcome, want := range map[payment.Outcome]bool{
		ambiguous(payment.ReasonTimeout): true, {Class: payment.Unavailable, Reason: payment.ReasonStatus502, Status: 502}: true, foreign(404): true,
		unavailable(payment.ReasonConnectFailed): false, refusal: false, success("w"): false,
	} {
		if s, _, _ := tried(t, credit(), says(outcome)); s.Doubt != want {
			t.Errorf("%s %s: doubt %v, want %v", outcome.Class, outcome.Reason, s.Doubt, want)
		}
	}
}

// One attempt takes two seconds of a worker, however many calls it makes: a
// wallet that crawls must not hold every worker, nor a lease outlast its owner.
func TestAnAttemptTakesAtMostItsLimit(t *testing.T) {
	t.Parallel()
	for _, takes := range []time.Duration{1500 * time.Millisecond, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			w := credit()
			w.Attempts, w.Resolve = 2, true
			start := time.Now()
			s, _, _ := tried(t, w, &fakeWallet{takes: takes})
			if took := time.Since(start); took != 2*time.Second {
				t.Errorf("took %s", took)
			}
			if s.State != payment.Pending || !s.Resolve {
				t.Errorf("got %s, resolve %v", s.State, s.Resolve)
			}
		})
	}
}

// A worker that was stopped (SIGSTOP, a paused machine) past its lease must not
// send beside the one that has taken over.
func TestNothingIsSentAtTheEndOfALease(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		late  time.Duration
		sends int
	}{{0, 1}, {18 * time.Second, 1}, {18*time.Second + 1, 0}, {time.Hour, 0}} {
		synctest.Test(t, func(t *testing.T) {
			wallet := &fakeWallet{}
			q := newQueue(t, nil, wallet, &fakeObserver{})
			w := credit()
			w.Attempts = 1
			a := q.newAttempt(w, time.Now())
			wait(c.late)
			s := a.perform(t.Context())
			if wallet.sends != c.sends {
				t.Errorf("%s into the lease: %d sends, want %d", c.late, wallet.sends, c.sends)
			}
			if c.sends == 0 && (s.State != payment.Pending || !s.Unspent || s.Turn != payment.FirstTurn || s.Pause != 0) {
				t.Errorf("%s into the lease: %+v", c.late, s)
			}
		})
	}
}

// A bug that one operation brings out must not stop the others, nor repeat for
// ever: it is parked, and its money stays reserved (field report D5).
func TestAPanicParksTheOperationAlone(t *testing.T) {
	t.Parallel()
	wallet := &fakeWallet{onSend: func(int, payment.Instruction) payment.Outcome { panic("a bug") }}
	s, _, _ := tried(t, credit(), wallet)
	if s.State != payment.Parked || s.ParkReason != parkPanicked || !s.Resolve || s.Unspent {
		t.Errorf("got %+v", s)
	}
	if wallet.inside != 0 {
		t.Error("its place in the bulkhead is lost")
	}
}

// The timeline is what a support clerk reads: every call, in order, with its
// outcome, when it began and how long it took.
func TestEveryCallIsInTheTimeline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := capture()
		w.Attempts, w.Resolve = 2, true
		wallet := &fakeWallet{takes: 100 * time.Millisecond}
		wallet.onSend = func(int, payment.Instruction) payment.Outcome { return no(409, "HOLD_ALREADY_CAPTURED") }
		s, _, _ := tried(t, w, wallet)
		want := []payment.WalletCall{
			{Call: "lookup", Outcome: "not_found", Reason: payment.ReasonVerdict, Status: 404, Ago: 300 * time.Millisecond, Took: 100 * time.Millisecond},
			{Call: "capture", Outcome: "rejected", Reason: payment.ReasonVerdict, Status: 409, Ago: 200 * time.Millisecond, Took: 100 * time.Millisecond},
			{Call: "lookup", Outcome: "not_found", Reason: payment.ReasonVerdict, Status: 404, Ago: 100 * time.Millisecond, Took: 100 * time.Millisecond},
		}
		if diff := gocmp.Diff(want, s.Calls); diff != "" {
			t.Errorf("timeline (-want +got):\n%s", diff)
		}
	})
}

// The retry budget is only as good as what is charged to it (contract section 4):
// what each attempt leaves in it, to the tenth.
func TestAttemptsPayAsTheContractSays(t *testing.T) {
	t.Parallel()
	retry := func(w payment.Work) payment.Work {
		w.Attempts, w.Turn = 2, payment.RetryTurn
		return w
	}
	doubtful := func(w payment.Work) payment.Work {
		w = retry(w)
		w.Resolve = true
		return w
	}
	takenOver := func(w payment.Work) payment.Work {
		w.Attempts, w.TakenOver = 2, true
		return w
	}
	backlog := func(w payment.Work) payment.Work { w.Turn = payment.RetryTurn; return w } // what an open breaker had postponed
	for _, c := range []struct {
		name   string
		work   payment.Work
		wallet *fakeWallet
		want   float64 // from 10
	}{
		{"first, success", credit(), &fakeWallet{}, 10.1},
		{"first, no answer", credit(), says(ambiguous(payment.ReasonTimeout)), 10.1},
		{"first, refused connection", credit(), says(refuse), 10.1},
		{"first, breaker open", credit(), says(unavailable(payment.ReasonBreakerOpen)), 10},
		{"first, bulkhead full", credit(), says(unavailable(payment.ReasonBulkheadFull)), 10},
		{"postponed first, success", backlog(credit()), &fakeWallet{}, 11},
		{"postponed first, no answer", backlog(credit()), says(ambiguous(payment.ReasonTimeout)), 9},
		{"retry, success", retry(credit()), &fakeWallet{}, 11},
		{"retry, verdict", retry(credit()), says(no(409, "ACCOUNT_CLOSED")), 11},
		{"retry, no answer", retry(credit()), says(ambiguous(payment.ReasonTimeout)), 9},
		{"retry, refused connection", retry(credit()), says(refuse), 9},
		{"retry, 429", retry(credit()), says(no(429, "SLOW_DOWN")), 9},
		{"retry, not the wallet's 4xx", retry(credit()), says(foreign(404)), 9},
		{"retry, breaker open", retry(credit()), says(unavailable(payment.ReasonBreakerOpen)), 10},
		{"retry, bulkhead full", retry(credit()), says(unavailable(payment.ReasonBulkheadFull)), 10},
		{"retry, no place", retry(credit()), &fakeWallet{full: true}, 10},
		{"retry, unsupported", retry(credit()), says(unavailable(payment.ReasonUnsupported)), 10},
		{"retry in doubt, found applied", doubtful(credit()), finds(applied("w")), 11},
		{"retry in doubt, found rejected", doubtful(credit()), finds(rejected("NO")), 11},
		{"retry in doubt, not found and sent", doubtful(credit()), &fakeWallet{}, 11},
		{"retry in doubt, no evidence", doubtful(credit()), finds(blind(payment.ReasonTimeout)), 9},
		{"retry in doubt, lookup's breaker open", doubtful(credit()), finds(blind(payment.ReasonBreakerOpen)), 10},
		{"taken over, found applied", takenOver(credit()), finds(applied("w")), 10},
		{"taken over, no evidence", takenOver(credit()), finds(blind(payment.ReasonTimeout)), 10},
		{"taken over, not found and sent in vain", takenOver(credit()), says(ambiguous(payment.ReasonTimeout)), 9},
		{"taken over, not found and sent", takenOver(credit()), &fakeWallet{}, 11},
		{"reversal, nothing to undo", reversalOf(debit()), &fakeWallet{}, 10},
		{"reversal, no evidence", reversalOf(debit()), finds(blind(payment.ReasonTimeout)), 10},
		{"reversal, found and undone at once", reversalOf(debit()), finds(applied("d")), 10.1},
		{"cancellation", cancellationOf(debit()), &fakeWallet{}, 10.1},
	} {
		synctest.Test(t, func(t *testing.T) { // so that the clock pays nothing in
			_, q, _ := tried(t, c.work, c.wallet)
			if got := q.RetryTokens(); got != c.want {
				t.Errorf("%s: %v tokens, want %v", c.name, got, c.want)
			}
		})
	}
}

// With an empty budget nothing is sent and nothing is spent, and what was put off
// comes back as a retry; what is taken over is still asked about.
func TestAnEmptyBudgetPostponesWithoutSpending(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		change  func(*payment.Work)
		lookups int
	}{
		{"retry", func(w *payment.Work) { w.Turn = payment.RetryTurn }, 0},
		{"retry in doubt", func(w *payment.Work) { w.Turn, w.Resolve = payment.RetryTurn, true }, 0},
		{"taken over", func(w *payment.Work) { w.TakenOver = true }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			wallet, o := &fakeWallet{}, &fakeObserver{}
			q := newQueue(t, nil, wallet, o)
			for q.budget.take(time.Now()) {
				q.budget.lost()
			}
			w := credit()
			w.Attempts = 2
			c.change(&w)
			s := q.newAttempt(w, time.Now()).perform(t.Context())
			if wallet.sends != 0 || wallet.lookups != c.lookups {
				t.Errorf("%s: %d sends, %d lookups", c.name, wallet.sends, wallet.lookups)
			}
			if s.State != payment.Pending || !s.Unspent || s.Turn != payment.RetryTurn || s.Lookups != w.Lookups || s.Resolve != (w.Resolve || w.TakenOver) {
				t.Errorf("%s: %+v", c.name, s)
			}
			if o.seen().refused != 1 || o.seen().granted != 0 {
				t.Errorf("%s: counted %d refused, %d granted", c.name, o.seen().refused, o.seen().granted)
			}
		})
	}
}
