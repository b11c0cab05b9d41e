package decision

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/payment"
)

// Every row of contract section 2, "outcome of the call (then of the lookup)": a
// wrong cell is a customer who pays for goods that he did not get, or the reverse.
func TestTheOutcomeDecidesAsTheContractSays(t *testing.T) {
	t.Parallel()
	verdict := payment.Outcome{Class: payment.Rejected, Code: "INSUFFICIENT_FUNDS", Verdict: true, Status: 409}
	foreign4xx := payment.Outcome{Class: payment.Rejected, Code: payment.WalletRejected, Status: 404}
	refused := payment.Outcome{Class: payment.Unavailable, Reason: payment.ReasonConnectFailed}
	gateway := payment.Outcome{Class: payment.Unavailable, Reason: payment.ReasonStatus502, Status: 502}
	ambiguous := payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonTimeout}
	for _, c := range []struct {
		name     string
		outcome  payment.Outcome
		evidence payment.Evidence
		want     payment.Decision
	}{
		{"success", payment.Outcome{Class: payment.Success, WalletID: "w1"}, payment.Evidence{}, payment.Approve("w1")},
		{"the wallet's no", verdict, payment.Evidence{}, payment.Decline("INSUFFICIENT_FUNDS")},
		{"a 4xx that is not the wallet's", foreign4xx, payment.Evidence{}, payment.DeclineAndReverse(payment.WalletRejected)},
		{"nothing sent", refused, payment.Evidence{}, payment.Decline(payment.WalletUnavailable)},
		{"a gateway's 502", gateway, payment.Evidence{}, payment.DeclineAndReverse(payment.WalletUnavailable)},
		{"doubt, no lookup", ambiguous, payment.Evidence{}, payment.DeclineAndReverse(payment.WalletTimeout)},
		{"doubt, found", ambiguous, payment.Evidence{Finding: payment.FoundApplied, WalletID: "w2"}, payment.Approve("w2")},
		{"doubt, found rejected", ambiguous, payment.Evidence{Finding: payment.FoundRejected, Code: "ACCOUNT_LOCKED"}, payment.Decline("ACCOUNT_LOCKED")},
		{"doubt, not found", ambiguous, payment.Evidence{Finding: payment.NotFound}, payment.DeclineAndReverse(payment.WalletTimeout)},
		{"doubt, no evidence", ambiguous, payment.Evidence{Finding: payment.NoEvidence}, payment.DeclineAndReverse(payment.WalletTimeout)},
		{"a forgotten outcome", payment.Outcome{}, payment.Evidence{}, payment.DeclineAndReverse(payment.WalletTimeout)},
	} {
		if diff := cmp.Diff(c.want, conclude(c.outcome, c.evidence)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// fakeLedger claims every key for the first who asks and remembers its decision.
type fakeLedger struct {
	claim              payment.Claim // what Claim says, if set
	claimErr, storeErr error
	claimTakes         time.Duration
	storeTakes         time.Duration

	claimLeft, storeLeft time.Duration // what Claim and Decide were given
	decided              []payment.Decision
}

func (l *fakeLedger) Claim(ctx context.Context, req payment.Request) (payment.Claim, error) {
	l.claimLeft = left(ctx)
	time.Sleep(l.claimTakes) // fake time: the claim's duration is the case
	if l.claimErr != nil {
		return payment.Claim{}, l.claimErr
	}
	if l.claim.Status != 0 {
		return l.claim, nil
	}
	return payment.Claim{Status: payment.ClaimNew, Payment: payment.Payment{
		ID: uuid.New(), Operation: req.Operation, Account: req.Account, Amount: req.Amount, Reference: req.DeriveReference(), State: payment.InFlight,
	}}, nil
}

func (l *fakeLedger) Decide(ctx context.Context, p payment.Payment, d payment.Decision) (payment.Payment, error) {
	l.storeLeft = left(ctx)
	time.Sleep(l.storeTakes) // fake time: the store's duration is the case
	if l.storeErr != nil {
		return payment.Payment{}, l.storeErr
	}
	l.decided = append(l.decided, d)
	return payment.Payment{ID: p.ID, State: d.State, Code: d.Code, WalletID: d.WalletID}, nil
}

// fakeWallet answers after a while, or at the deadline if that comes first.
type fakeWallet struct {
	full                    bool
	outcome                 payment.Outcome
	evidence                payment.Evidence
	callTakes, lookupTakes  time.Duration
	callLeft, lookupLeft    time.Duration
	sent, lookups, inFlight int
	references              []payment.Reference
}

func (w *fakeWallet) Enter() (func(), bool) {
	if w.full {
		return nil, false
	}
	w.inFlight++
	return func() { w.inFlight-- }, true
}

func (w *fakeWallet) Send(ctx context.Context, in payment.Instruction) payment.Outcome {
	w.sent++
	w.references = append(w.references, in.Reference)
	w.callLeft = left(ctx)
	if !within(ctx, w.callTakes) {
		return payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonTimeout}
	}
	return w.outcome
}

func (w *fakeWallet) Lookup(ctx context.Context, in payment.Instruction) payment.Evidence {
	w.lookups++
	w.references = append(w.references, in.Reference)
	w.lookupLeft = left(ctx)
	if !within(ctx, w.lookupTakes) {
		return payment.Evidence{Finding: payment.NoEvidence, Reason: payment.ReasonTimeout}
	}
	return w.evidence
}

func left(ctx context.Context) time.Duration {
	at, ok := ctx.Deadline()
	if !ok {
		return -1
	}
	return time.Until(at)
}

func within(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

var limits = Limits{Call: 800 * time.Millisecond, Lookup: 300 * time.Millisecond, MinToSend: 50 * time.Millisecond}

func request() payment.Request {
	return payment.Request{Caller: "store-17", Operation: payment.Debit, Key: "k", Account: "a", Amount: payment.Money{AmountMinor: 1, Currency: "EUR"}}
}

// never is longer than any budget: a wallet that takes it does not answer.
const never = time.Hour

// Each step gets exactly what the contract leaves it, whatever the till said and
// however long the steps before it took; a millisecond too much here is a till
// that has left when the answer comes.
func TestEachStepGetsExactlyItsPartOfTheBudget(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name                         string
		effective                    time.Duration
		claim, call, lookup          time.Duration
		wantSent, wantLookups        int
		wantClaimLeft, wantCallLeft  time.Duration
		wantLookupLeft, wantStoreMin time.Duration
		wantTook                     time.Duration
		wantReason                   payment.Reason
	}{
		{"a wallet that hangs", 2400 * ms, 0, never, never, 1, 1, 2400 * ms, 800 * ms, 300 * ms, 1300 * ms, 1100 * ms, payment.ReasonTimeout},
		{"a slow claim counts for the call", 900 * ms, 200 * ms, never, never, 1, 0, 900 * ms, 700 * ms, 0, 200 * ms, 900 * ms, payment.ReasonTimeout},
		{"what is left for the lookup", 900 * ms, 0, never, never, 1, 1, 900 * ms, 800 * ms, 100 * ms, 200 * ms, 900 * ms, payment.ReasonTimeout},
		{"50 ms are enough for the lookup", 850 * ms, 0, never, never, 1, 1, 850 * ms, 800 * ms, 50 * ms, 200 * ms, 850 * ms, payment.ReasonTimeout},
		{"49 ms are not", 849 * ms, 0, never, never, 1, 0, 849 * ms, 800 * ms, 0, 200 * ms, 800 * ms, payment.ReasonTimeout},
		{"50 ms are enough to send", 50 * ms, 0, never, never, 1, 0, 100 * ms, 50 * ms, 0, 200 * ms, 50 * ms, payment.ReasonTimeout},
		{"49 ms are not", 49 * ms, 0, never, never, 0, 0, 100 * ms, 0, 0, 200 * ms, 0, payment.ReasonDeadlineSpent},
		{"nothing left at all", 0, 0, never, never, 0, 0, 100 * ms, 0, 0, 200 * ms, 0, payment.ReasonDeadlineSpent},
		{"a claim that used it up", 120 * ms, 71 * ms, never, never, 0, 0, 120 * ms, 0, 0, 200 * ms, 71 * ms, payment.ReasonDeadlineSpent},
		{"an answer in time", 2400 * ms, 0, 799 * ms, never, 1, 0, 2400 * ms, 800 * ms, 0, 1601 * ms, 799 * ms, payment.ReasonApplied},
		{"a lookup in time", 2400 * ms, 0, never, 299 * ms, 1, 1, 2400 * ms, 800 * ms, 300 * ms, 1301 * ms, 1099 * ms, payment.ReasonTimeout},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &fakeLedger{claimTakes: c.claim}
				w := &fakeWallet{
					callTakes: c.call, lookupTakes: c.lookup,
					outcome:  payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: "w"},
					evidence: payment.Evidence{Finding: payment.NotFound},
				}
				start := time.Now()
				deadline := budget.Policy{Server: c.effective}.Deadline(start, budget.Wait{})
				result, err := New(l, w, limits).Decide(t.Context(), request(), deadline)
				if err != nil {
					t.Fatal(err)
				}
				if result.Status != Decided || len(l.decided) != 1 {
					t.Fatalf("status %v, stored %v: want one decision", result.Status, l.decided)
				}
				got := []any{w.sent, w.lookups, l.claimLeft, w.callLeft, w.lookupLeft, l.storeLeft, time.Since(start), result.Steps.Outcome.Reason}
				want := []any{c.wantSent, c.wantLookups, c.wantClaimLeft, c.wantCallLeft, c.wantLookupLeft, c.wantStoreMin, c.wantTook, c.wantReason}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("sent, lookups, left for claim, call, lookup, store, took, reason (-want +got):\n%s", diff)
				}
				if w.inFlight != 0 {
					t.Error("the place in the bulkhead was not given back")
				}
			})
		})
	}
}

// B31, A20: in no path is a second debit sent, and only doubt causes a lookup.
func TestAtMostOneCallAndALookupOnlyAfterDoubt(t *testing.T) {
	for class, wantLookups := range map[payment.Class]int{payment.Success: 0, payment.Rejected: 0, payment.Unavailable: 0, payment.Ambiguous: 1} {
		for _, finding := range []payment.Finding{payment.FoundApplied, payment.FoundRejected, payment.NotFound, payment.NoEvidence} {
			synctest.Test(t, func(t *testing.T) {
				w := &fakeWallet{outcome: payment.Outcome{Class: class, Verdict: true}, evidence: payment.Evidence{Finding: finding, Code: "X"}}
				req := request()
				_, err := New(&fakeLedger{}, w, limits).Decide(t.Context(), req, budget.Policy{Server: time.Second}.Deadline(time.Now(), budget.Wait{}))
				if err != nil {
					t.Fatal(err)
				}
				if w.sent != 1 || w.lookups != wantLookups {
					t.Errorf("%v, then %v: %d calls and %d lookups, want 1 and %d", class, finding, w.sent, w.lookups, wantLookups)
				}
				for _, r := range w.references {
					if r != req.DeriveReference() {
						t.Errorf("a call carried the reference %s, want %s", r, req.DeriveReference())
					}
				}
			})
		}
	}
}

// Whoever does not own the key never reaches the wallet and stores nothing.
func TestOnlyTheOwnerOfAKeyReachesTheWallet(t *testing.T) {
	t.Parallel()
	decided := payment.Payment{ID: uuid.New(), State: payment.Declined, Code: "INSUFFICIENT_FUNDS"}
	for _, c := range []struct {
		claim payment.Claim
		want  Status
	}{
		{payment.Claim{Status: payment.ClaimDecided, Payment: decided}, Replayed},
		{payment.Claim{Status: payment.ClaimInFlight}, InFlight},
		{payment.Claim{Status: payment.ClaimMismatch}, Mismatch},
		{payment.Claim{Status: payment.ClaimCancelled, Payment: decided}, Cancelled},
	} {
		l, w := &fakeLedger{claim: c.claim}, &fakeWallet{}
		result, err := New(l, w, limits).Decide(t.Context(), request(), budget.Policy{Server: time.Second}.Deadline(time.Now(), budget.Wait{}))
		if err != nil || result.Status != c.want {
			t.Errorf("got %v, %v, want %v", result.Status, err, c.want)
		}
		if diff := cmp.Diff(c.claim.Payment, result.Payment); diff != "" {
			t.Errorf("the stored answer (-want +got):\n%s", diff)
		}
		if w.sent+w.lookups+len(l.decided) != 0 {
			t.Errorf("%v: %d calls, %d lookups, %d decisions stored", c.want, w.sent, w.lookups, len(l.decided))
		}
	}
}

// A status that this release does not know, or a forgotten one, is no ownership.
func TestAnUnknownClaimStatusReachesNoWallet(t *testing.T) {
	t.Parallel()
	for _, status := range []payment.ClaimStatus{0, 200} {
		l, w := &unknownClaim{status: status}, &fakeWallet{}
		_, err := New(l, w, limits).Decide(t.Context(), request(), budget.Policy{Server: time.Second}.Deadline(time.Now(), budget.Wait{}))
		if err == nil || w.sent+w.lookups != 0 {
			t.Errorf("status %d: %v, %d calls and %d lookups", status, err, w.sent, w.lookups)
		}
	}
}

type unknownClaim struct {
	fakeLedger
	status payment.ClaimStatus
}

func (l *unknownClaim) Claim(context.Context, payment.Request) (payment.Claim, error) {
	return payment.Claim{Status: l.status}, nil
}

// A claim whose answer is missing may be durable or not: sending then could be
// a second debit beside the one of whoever finds the claim.
func TestNoCallIsMadeOnAClaimThatIsNotKnownToBeDurable(t *testing.T) {
	t.Parallel()
	lost := errors.New("connection lost at COMMIT")
	l, w := &fakeLedger{claimErr: lost}, &fakeWallet{}
	_, err := New(l, w, limits).Decide(t.Context(), request(), budget.Policy{Server: time.Second}.Deadline(time.Now(), budget.Wait{}))
	if !errors.Is(err, lost) {
		t.Errorf("got %v, want %v", err, lost)
	}
	if w.sent+w.lookups+len(l.decided) != 0 {
		t.Errorf("%d calls, %d lookups, %d decisions stored", w.sent, w.lookups, len(l.decided))
	}
}

// L13: an approval that is not stored is not told.
func TestAnApprovalThatCannotBeStoredIsNoAnswer(t *testing.T) {
	t.Parallel()
	lost := errors.New("storage failed")
	w := &fakeWallet{outcome: payment.Outcome{Class: payment.Success, WalletID: "w"}}
	result, err := New(&fakeLedger{storeErr: lost}, w, limits).Decide(t.Context(), request(), budget.Policy{Server: time.Second}.Deadline(time.Now(), budget.Wait{}))
	if !errors.Is(err, lost) || result.Status != 0 {
		t.Errorf("got %v, %v: want the error and no status", result.Status, err)
	}
}

// A full bulkhead refuses at once, certainly not applied, and is stored as such.
func TestAFullBulkheadDeclinesAtOnceWithoutACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, w := &fakeLedger{}, &fakeWallet{full: true}
		start := time.Now()
		result, err := New(l, w, limits).Decide(t.Context(), request(), budget.Policy{Server: time.Second}.Deadline(start, budget.Wait{}))
		if err != nil {
			t.Fatal(err)
		}
		want := payment.Decline(payment.WalletUnavailable)
		want.Calls = []payment.WalletCall{{Call: "debit", Outcome: "unavailable", Reason: payment.ReasonBulkheadFull}}
		if !result.Steps.Unsent {
			t.Error("the steps do not say that nothing was sent")
		}
		if diff := cmp.Diff([]payment.Decision{want}, l.decided); diff != "" {
			t.Errorf("stored (-want +got):\n%s", diff)
		}
		if w.sent != 0 || time.Since(start) != 0 {
			t.Errorf("after %d calls and %v, want at once", w.sent, time.Since(start))
		}
	})
}

// Whoever is asked what happened to a payment reads it off the timeline: each
// call with what came of it and when, the one that was not made included. It goes
// with the decision, so that it costs no commit of its own.
func TestTheWalletCallsAreStoredWithTheDecision(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name         string
		effective    time.Duration
		call, lookup time.Duration
		outcome      payment.Outcome
		want         []payment.WalletCall
		wantUnsent   bool
	}{
		{
			"one call", 2400 * ms, 120 * ms, never,
			payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonVerdict, Code: "INSUFFICIENT_FUNDS", Verdict: true, Status: 409},
			[]payment.WalletCall{{Call: "debit", Outcome: "rejected", Reason: payment.ReasonVerdict, Status: 409, Ago: 120 * ms, Took: 120 * ms}},
			false,
		},
		{
			"a call and its lookup", 2400 * ms, never, 40 * ms,
			payment.Outcome{},
			[]payment.WalletCall{
				{Call: "debit", Outcome: "ambiguous", Reason: payment.ReasonTimeout, Ago: 840 * ms, Took: 800 * ms},
				{Call: "lookup", Outcome: "not_found", Reason: payment.ReasonVerdict, Status: 404, Ago: 40 * ms, Took: 40 * ms},
			},
			false,
		},
		{
			"no time to send", 10 * ms, never, never,
			payment.Outcome{},
			[]payment.WalletCall{{Call: "debit", Outcome: "unavailable", Reason: payment.ReasonDeadlineSpent}},
			true,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &fakeLedger{}
				w := &fakeWallet{
					callTakes: c.call, lookupTakes: c.lookup, outcome: c.outcome,
					evidence: payment.Evidence{Finding: payment.NotFound, Reason: payment.ReasonVerdict, Status: 404},
				}
				result, err := New(l, w, limits).Decide(t.Context(), request(), budget.Policy{Server: c.effective}.Deadline(time.Now(), budget.Wait{}))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(c.want, l.decided[0].Calls); diff != "" {
					t.Errorf("calls stored with the decision (-want +got):\n%s", diff)
				}
				if result.Steps.Unsent != c.wantUnsent {
					t.Errorf("unsent = %v, want %v", result.Steps.Unsent, c.wantUnsent)
				}
			})
		})
	}
}

// What another stored first is the answer, whatever this one concluded (recovery
// or a cancel by key came first).
func TestTheAnswerIsWhatIsStoredNotWhatWasConcluded(t *testing.T) {
	t.Parallel()
	earlier := payment.Payment{ID: uuid.New(), State: payment.Declined, Code: payment.WalletTimeout}
	w := &fakeWallet{outcome: payment.Outcome{Class: payment.Success, WalletID: "w"}}
	result, err := New(overtaken{&fakeLedger{}, earlier}, w, limits).Decide(t.Context(), request(), budget.Policy{Server: time.Second}.Deadline(time.Now(), budget.Wait{}))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(earlier, result.Payment); diff != "" {
		t.Errorf("answer (-stored +told):\n%s", diff)
	}
}

type overtaken struct {
	*fakeLedger
	stored payment.Payment
}

func (o overtaken) Decide(context.Context, payment.Payment, payment.Decision) (payment.Payment, error) {
	return o.stored, nil
}
