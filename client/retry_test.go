package client_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/client"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// A till whose deadline is missed by a client that waits has lost its customer, and one
// whose client never stops has lost itself: a mutation goes on only after the gate's
// word, waits what was asked for, and stops at the attempts or at the deadline, whichever
// is first; a wait that the deadline would end is not even begun (contract section 6;
// issue 4, promise 6). Exact, on fake time.
func TestMutationsStopAtTheAttemptsOrAtTheDeadline(t *testing.T) {
	t.Parallel()
	approved := ok(201, approval)
	tests := map[string]struct {
		answers  []string
		policy   client.MutationPolicy
		deadline time.Duration // of the context, 0 = none
		most     bool          // all the jitter there is
		sent     []time.Duration
		took     time.Duration
		begun    bool // it came to a decision
		stopped  error
	}{
		"the gate refuses twice": {
			answers: []string{atTheGate("1"), atTheGate("2"), approved},
			sent:    []time.Duration{0, 1000 * ms, 3000 * ms}, took: 3000 * ms, begun: true,
		},
		"jitter is added, never taken off": {
			answers: []string{atTheGate("1"), atTheGate("1"), approved}, most: true,
			sent: []time.Duration{0, 1250 * ms, 2500 * ms}, took: 2500 * ms, begun: true,
		},
		"attempts come first": {
			answers: []string{atTheGate("1")},
			sent:    []time.Duration{0, 1000 * ms, 2000 * ms}, took: 2000 * ms,
		},
		"one attempt is one": {
			answers: []string{atTheGate("1")}, policy: client.MutationPolicy{Attempts: 1},
			sent: []time.Duration{0}, took: 0,
		},
		"the total comes first": {
			answers: []string{atTheGate("1")}, policy: client.MutationPolicy{Attempts: 100, Total: 3500 * ms},
			sent: []time.Duration{0, 1000 * ms, 2000 * ms, 3000 * ms}, took: 3000 * ms, stopped: context.DeadlineExceeded,
		},
		"the context's deadline comes first": {
			answers: []string{atTheGate("1")}, policy: client.MutationPolicy{Attempts: 100}, deadline: 2500 * ms,
			sent: []time.Duration{0, 1000 * ms, 2000 * ms}, took: 2000 * ms, stopped: context.DeadlineExceeded,
		},
		"a wait that ends with the deadline is of no use": {
			answers: []string{atTheGate("2")}, deadline: 2000 * ms,
			sent: []time.Duration{0}, took: 0, stopped: context.DeadlineExceeded,
		},
		"a year is longer than anybody waits": {
			answers: []string{atTheGate("99999999999999999999999999")}, policy: client.MutationPolicy{Total: 1000 * time.Hour},
			sent: []time.Duration{0}, took: 0, stopped: context.DeadlineExceeded,
		},
		"leading zeros are a number": {
			answers: []string{atTheGate("0001"), approved},
			sent:    []time.Duration{0, 1000 * ms}, took: 1000 * ms, begun: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := answering(t, test.answers...)
				c := s.till(t, func(cfg *client.Config) { cfg.Mutations = test.policy })
				c.Still()
				if test.most {
					c.Most()
				}
				ctx := t.Context()
				if test.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				start := time.Now()
				d, err := c.Debit(ctx, key, asked)
				if took := time.Since(start); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if diff := cmp.Diff(test.sent, s.after(start)); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				for _, r := range s.Requests() {
					if got := r.Header.Get("Idempotency-Key"); got != `"`+key+`"` {
						t.Errorf("an attempt has the key %s", got)
					}
				}
				if test.begun {
					if err != nil || !d.Approved() {
						t.Errorf("got %+v, %v", d, err)
					}
					return
				}
				e, notBegun := errors.AsType[*client.NotBegunError](err)
				if !notBegun {
					t.Fatalf("got %v, want that nothing was begun", err)
				}
				if e.Attempts != len(test.sent) || e.Key != key || e.RetryAfter == 0 {
					t.Errorf("got %+v", e)
				}
				if p, told := errors.AsType[*client.Problem](err); !told || p.Code != "OVERLOADED" {
					t.Errorf("%v does not say what the gate said", err)
				}
				if test.stopped != nil && !errors.Is(err, test.stopped) {
					t.Errorf("%v is not %v", err, test.stopped)
				}
			})
		})
	}
}

// Only the gate's word leads to a further request, also when it has been heard once: what
// comes after it is judged by itself.
func TestWhatComesAfterTheGateIsJudgedByItself(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]wallettest.Script{
		"plain 503": says(problem(503, "OUTCOME_UNKNOWN")), "502": says(reply(502, "text/html", "")),
		"lost": says(""), "cut": says(cut(ok(201, approval))),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := inMemory(t, says(atTheGate("1")), script)
				_, err := s.till(t).Debit(t.Context(), key, asked)
				if _, unknown := errors.AsType[*client.OutcomeUnknownError](err); !unknown {
					t.Errorf("got %v", err)
				}
				if n := len(s.Requests()); n != 2 {
					t.Errorf("%d requests, want 2", n)
				}
			})
		})
	}
}

// A time-out in the middle of a decision: the till leaves at its deadline, not later, and
// knows that it does not know.
func TestATillLeavesAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, hangs)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := s.till(t).Debit(ctx, key, asked)
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("left after %v", took)
		}
		if e, unknown := errors.AsType[*client.OutcomeUnknownError](err); !unknown || e.Key != key || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if n := len(s.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// A till that is switched off while it waits for the gate has begun nothing; one whose
// context is over before anything was sent has not either.
func TestCancellingTheWaitBeginsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := answering(t, atTheGate("1"))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(400*ms, cancel)
		start := time.Now()
		_, err := s.till(t).Debit(ctx, key, asked)
		if e, notBegun := errors.AsType[*client.NotBegunError](err); !notBegun || e.Attempts != 1 || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(start); took != 400*ms {
			t.Errorf("took %v", took)
		}
		_, err = s.till(t).Debit(ctx, key, asked)
		if e, notBegun := errors.AsType[*client.NotBegunError](err); !notBegun || e.Attempts != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		if n := len(s.Requests()); n != 1 {
			t.Errorf("%d requests", n)
		}
	})
}

// The service plans a decision by what the till says it will still wait: what is left at
// each attempt, in whole milliseconds rounded down, and nothing if the till names no time.
func TestRequestDeadlineMsIsWhatIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := answering(t, atTheGate("1"), atTheGate("1"), ok(201, approval), ok(201, approval), atTheGate("1"))
		c := s.till(t, func(cfg *client.Config) { cfg.Mutations.Total = 5 * time.Second })
		c.Still()
		ctx, cancel := context.WithTimeout(t.Context(), 3000*ms+900*time.Microsecond)
		defer cancel()
		if _, err := c.Debit(ctx, key, asked); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Debit(t.Context(), key, asked); err != nil {
			t.Fatal(err)
		}
		// A policy that ends sooner than the context: the till leaves then.
		long, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, _ = c.Debit(long, key, asked)
		var got []string
		for _, r := range s.Requests() {
			got = append(got, strings.Join(r.Header.Values("Request-Deadline-Ms"), ";"))
		}
		if diff := cmp.Diff([]string{"3000", "2000", "1000", "", "5000", "4000", "3000"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A duplicate of what is being decided is no failure and no licence to repeat: it is
// an answer with a wait in it, and the first request has an outcome soon.
func TestInFlightIsAnAnswerOfItsOwn(t *testing.T) {
	t.Parallel()
	s := scripted(t, says(inFlight))
	_, err := s.till(t).Debit(t.Context(), key, asked)
	e, isInFlight := errors.AsType[*client.InFlightError](err)
	if !isInFlight || e.Key != key || e.RetryAfter != time.Second || e.Kind != client.KindDebit {
		t.Errorf("got %#v (%v)", e, err)
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// Reads are tried again after what passes by itself, with a pause that grows, and stop at
// their attempts or at their deadline, whichever is first (issue 4, promise 6).
func TestReadsStopAtTheAttemptsOrAtTheDeadline(t *testing.T) {
	t.Parallel()
	there := ok(200, paid)
	bad := []string{
		reply(429, "text/plain", ""), reply(502, "text/html", ""), problem(503, "STORAGE_UNAVAILABLE"), reply(504, "text/html", ""), "", cut(there),
	}
	tests := map[string]struct {
		answers  []string
		policy   client.ReadPolicy
		deadline time.Duration
		sent     []time.Duration
		took     time.Duration
		stopped  error
	}{
		"all that passes by itself": {
			answers: append(slices.Clone(bad), there),
			sent:    []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1500 * ms, 3100 * ms, 5100 * ms}, took: 5100 * ms,
		},
		"what was asked for is waited": {
			answers: []string{atTheGate("1"), reply(429, "text/plain", "", "Retry-After: 3"), there},
			sent:    []time.Duration{0, 1000 * ms, 4000 * ms}, took: 4000 * ms,
		},
		"until it is decided": {
			answers: []string{undecided, undecided, undecided, there},
			sent:    []time.Duration{0, 1000 * ms, 2000 * ms, 3000 * ms}, took: 3000 * ms,
		},
		"attempts come first": {
			answers: bad[2:3], policy: client.ReadPolicy{Attempts: 3},
			sent: []time.Duration{0, 100 * ms, 300 * ms}, took: 300 * ms, stopped: &client.Problem{},
		},
		"the total comes first": {
			answers: []string{undecided}, policy: client.ReadPolicy{Total: 2500 * ms},
			sent: []time.Duration{0, 1000 * ms, 2000 * ms}, took: 2000 * ms, stopped: context.DeadlineExceeded,
		},
		"the context's deadline comes first": {
			answers: []string{undecided}, deadline: 1500 * ms,
			sent: []time.Duration{0, 1000 * ms}, took: 1000 * ms, stopped: context.DeadlineExceeded,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := answering(t, test.answers...)
				c := s.till(t, func(cfg *client.Config) { cfg.Reads = test.policy })
				c.Still()
				ctx := t.Context()
				if test.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				start := time.Now()
				p, seen, err := c.Reconcile(ctx, client.KindDebit, key)
				if took := time.Since(start); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if diff := cmp.Diff(test.sent, s.after(start)); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if test.stopped == nil {
					if err != nil || !seen || !p.Approved() {
						t.Errorf("got %+v, %v, %v", p, seen, err)
					}
					return
				}
				e, could := errors.AsType[*client.ReadError](err)
				if !could || e.Attempts != len(test.sent) || seen {
					t.Fatalf("got %v", err)
				}
				_, isProblem := errors.AsType[*client.Problem](err)
				if _, wanted := errors.AsType[*client.Problem](test.stopped); wanted != isProblem && wanted {
					t.Errorf("%v does not say what the service said", err)
				} else if !wanted && !errors.Is(err, test.stopped) {
					t.Errorf("%v is not %v", err, test.stopped)
				}
			})
		})
	}
}

// A read that hangs is one that can be tried again, long before the total is over.
func TestAReadThatHangsIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, hangs, hangs, says(ok(200, paid)))
		c := s.till(t)
		c.Still()
		start := time.Now()
		if _, seen, err := c.Payment(t.Context(), paymentID); !seen || err != nil {
			t.Error(seen, err)
		}
		if diff := cmp.Diff([]time.Duration{0, 3100 * ms, 6300 * ms}, s.after(start)); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// The jitter of a read takes off at most half of the pause, and never anything of what
// was asked for.
func TestAReadsPauseIsBetweenHalfAndAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := answering(t, problem(503, "STORAGE_UNAVAILABLE"), problem(503, "STORAGE_UNAVAILABLE"), undecided, ok(200, paid))
		c := s.till(t)
		c.Most()
		start := time.Now()
		if _, seen, err := c.Reconcile(t.Context(), client.KindDebit, key); !seen || err != nil {
			t.Error(seen, err)
		}
		if diff := cmp.Diff([]time.Duration{0, 50 * ms, 150 * ms, 1550 * ms}, s.after(start)); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
	})
}

// Not there is an answer, and so is a refusal: asking again would only make the till wait.
func TestAReadsAnswersAreNotTriedAgain(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		status int // of the problem, 0 = there is none and it was not seen
	}{
		"not seen":            {notFound, 0},
		"404 of an ingress":   {reply(404, "text/html", "<h1>not found</h1>"), 404},
		"404 of another path": {problem(404, "NOT_FOUND"), 404},
		"unauthenticated":     {problem(401, "UNAUTHENTICATED"), 401},
		"forbidden":           {problem(403, "FORBIDDEN"), 403},
		"a bug":               {problem(500, "INTERNAL"), 500},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := scripted(t, says(test.answer))
			_, seen, err := s.till(t).Payment(t.Context(), paymentID)
			p, _ := errors.AsType[*client.Problem](err)
			if seen || (test.status == 0) != (err == nil) || (p != nil && p.Status != test.status) {
				t.Errorf("got %v, %v", seen, err)
			}
			if n := len(s.Requests()); n != 1 {
				t.Errorf("%d requests, want 1", n)
			}
		})
	}
}

// A debit that succeeded and whose read-back fails must lead to further reads, and never
// to a further debit (issue 4, promise 5; seed, required verification 5).
func TestAFailedReadBackRetriesOnlyTheRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := answering(t, ok(201, approval), problem(503, "STORAGE_UNAVAILABLE"), "", reply(502, "text/html", ""), ok(200, paid))
		c := s.till(t)
		d, err := c.Debit(t.Context(), key, asked)
		if err != nil {
			t.Fatal(err)
		}
		if _, seen, err := c.Payment(t.Context(), d.ID); !seen || err != nil {
			t.Error(seen, err)
		}
		var methods []string
		for _, r := range s.Requests() {
			methods = append(methods, r.Method)
		}
		if diff := cmp.Diff([]string{"POST", "GET", "GET", "GET", "GET"}, methods); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// A decline that may be tried again is a decision, and nothing is sent again for it
// unless the till asks for that.
func TestARetryableDeclineIsADecision(t *testing.T) {
	t.Parallel()
	s := scripted(t, says(decline(424, "WALLET_TIMEOUT", "Retry-After: 2")))
	got, err := s.till(t).Debit(t.Context(), key, asked)
	want := client.Decision{
		Verdict: client.Declined, ID: paymentID, Kind: client.KindDebit, Key: key,
		Code: client.CodeWalletTimeout, Retryable: true, RetryAfter: 2 * time.Second,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests, want 1", n)
	}
}

// Trying again after a decline: with a new key each time, after the wait, within the
// attempts and the context; the till is told each key before it is used, so that a till
// which loses power knows which ones to ask for.
func TestTryingAgainTakesNewKeysAndIsBounded(t *testing.T) {
	t.Parallel()
	retryable, final := decline(424, "WALLET_TIMEOUT", "Retry-After: 2"), decline(402, "INSUFFICIENT_FUNDS")
	first := client.Decision{Verdict: client.Declined, Kind: client.KindDebit, Key: "k-1", Retryable: true, RetryAfter: 2 * time.Second}
	errPower := errors.New("the disk is full")
	tests := map[string]struct {
		answers  []string
		first    client.Decision
		attempts int
		deadline time.Duration
		name     func(int) (string, error)
		keys     []string
		sent     []time.Duration
		code     string // of the decision, "" = approved
		err      error  // of that kind
	}{
		"approved at the second": {
			answers: []string{retryable, ok(201, approval)}, first: first,
			keys: []string{"k-2", "k-3"}, sent: []time.Duration{2000 * ms, 4000 * ms},
		},
		"a final decline is final": {
			answers: []string{final}, first: first,
			keys: []string{"k-2"}, sent: []time.Duration{2000 * ms}, code: "INSUFFICIENT_FUNDS",
		},
		"attempts come first": {
			answers: []string{retryable}, first: first, attempts: 3,
			keys: []string{"k-2", "k-3", "k-4"}, sent: []time.Duration{2000 * ms, 4000 * ms, 6000 * ms}, code: "WALLET_TIMEOUT",
		},
		"the context comes first": {
			answers: []string{retryable}, first: first, attempts: 3, deadline: 3 * time.Second,
			keys: []string{"k-2"}, sent: []time.Duration{2000 * ms}, code: "WALLET_TIMEOUT",
		},
		"nothing to try again": {
			answers: []string{retryable}, first: client.Decision{Verdict: client.Declined, Kind: client.KindDebit, Code: "ACCOUNT_LOCKED"}, code: "ACCOUNT_LOCKED",
		},
		"a Retry-After that was lost on the way": {
			answers: []string{ok(201, approval)}, first: client.Decision{Verdict: client.Declined, Kind: client.KindDebit, Key: "k-1", Retryable: true},
			keys: []string{"k-2"}, sent: []time.Duration{2000 * ms},
		},
		"an attempt whose outcome is unknown ends them": {
			answers: []string{problem(503, "OUTCOME_UNKNOWN")}, first: first,
			keys: []string{"k-2"}, sent: []time.Duration{2000 * ms}, err: &client.OutcomeUnknownError{},
		},
		"a till that cannot store the key sends nothing": {
			answers: []string{retryable}, first: first, name: func(int) (string, error) { return "", errPower }, err: errPower,
		},
		"the same key is no new attempt": {
			answers: []string{retryable}, first: first, name: func(int) (string, error) { return "k-1", nil }, err: errors.New("any"),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := answering(t, test.answers...)
				c := s.till(t)
				c.Still()
				ctx := t.Context()
				if test.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				if test.name == nil {
					test.name = func(attempt int) (string, error) { return "k-" + string(rune('0'+attempt)), nil }
				}
				start := time.Now()
				d, err := c.DebitAgain(ctx, test.first, asked, client.Again{Attempts: test.attempts, Key: test.name})
				var keys []string
				for _, r := range s.Requests() {
					keys = append(keys, strings.Trim(r.Header.Get("Idempotency-Key"), `"`))
				}
				if diff := cmp.Diff(test.keys, keys); diff != "" {
					t.Errorf("keys (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(test.sent, s.after(start)); diff != "" {
					t.Errorf("sent (-want +got):\n%s", diff)
				}
				if test.err != nil {
					e, unknown := errors.AsType[*client.OutcomeUnknownError](err)
					if _, wanted := errors.AsType[*client.OutcomeUnknownError](test.err); err == nil || wanted != unknown || (unknown && e.Key != "k-2") {
						t.Errorf("got %v", err)
					}
					return
				}
				if err != nil || d.Code != test.code || d.Approved() != (test.code == "") {
					t.Errorf("got %+v, %v", d, err)
				}
				if len(test.keys) > 0 && d.Key != test.keys[len(test.keys)-1] {
					t.Errorf("the decision names the key %q", d.Key)
				}
			})
		})
	}
}
