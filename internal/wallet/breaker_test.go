package wallet

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// Everything here runs on fake time: the breakers' windows are seconds long, and
// they must be exact.

// mood is a wallet whose manners can be changed while it runs.
type mood struct {
	mu     sync.Mutex
	answer func(*wallettest.Conn, wallettest.Request)
}

func (m *mood) become(answer func(*wallettest.Conn, wallettest.Request)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

func (m *mood) script(c *wallettest.Conn) {
	for {
		r, ok := c.Read()
		if !ok {
			return
		}
		m.mu.Lock()
		answer := m.answer
		m.mu.Unlock()
		answer(c, r)
	}
}

func healthy(c *wallettest.Conn, r wallettest.Request) { c.Say(wallettest.Applied(r)) }
func mute(c *wallettest.Conn, _ wallettest.Request)    { c.Hang() }

func saying(status int, body string) func(*wallettest.Conn, wallettest.Request) {
	return func(c *wallettest.Conn, _ wallettest.Request) { c.Answer(status, body) }
}

func slowly(d time.Duration) func(*wallettest.Conn, wallettest.Request) {
	return func(c *wallettest.Conn, r wallettest.Request) {
		c.Wait(d)
		healthy(c, r)
	}
}

// breakerBubble runs f on fake time with a wallet in the given mood.
func breakerBubble(t *testing.T, answer func(*wallettest.Conn, wallettest.Request), f func(t *testing.T, m *mood, w *wallettest.Wallet, c *Client, seen *events)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := &mood{answer: answer}
		w := wallettest.NewPipe(t, m.script)
		seen := &events{}
		f(t, m, w, piped(t, w, func(cfg *Config) { cfg.Observer = seen }), seen)
	})
}

// decide is a debit as decisions make it, with the contract's limit of 800 ms.
func decide(tb testing.TB, c *Client, name string) payment.Outcome {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 800*time.Millisecond)
	defer cancel()
	return c.Decisions().Send(ctx, instruction(payment.Debit, name))
}

// A poor customer is no sick wallet: a hundred declines in a row must not stop
// the tills (field report C1, trap §2.4, scenario S34).
func TestBusinessDeclinesKeepTheBreakerClosed(t *testing.T) {
	t.Parallel()
	for _, verdict := range []struct {
		status int
		code   string
	}{{409, "INSUFFICIENT_FUNDS"}, {404, "ACCOUNT_NOT_FOUND"}, {423, "ACCOUNT_LOCKED"}, {400, "INVALID_ACCOUNT"}} {
		t.Run(verdict.code, func(t *testing.T) {
			t.Parallel()
			breakerBubble(t, saying(verdict.status, `{"code":"`+verdict.code+`"}`), func(t *testing.T, _ *mood, w *wallettest.Wallet, c *Client, seen *events) {
				for i := range 100 {
					if got := decide(t, c, fmt.Sprint(i)); got.Code != payment.Code(verdict.code) {
						t.Fatalf("%+v", got)
					}
				}
				if got := c.Decisions().BreakerState(); got != "closed" || len(seen.changes()) != 0 {
					t.Errorf("%s after %v", got, seen.changes())
				}
				if got := len(w.Requests()); got != 100 {
					t.Errorf("%d requests", got)
				}
			})
		})
	}
}

// What is wrong with the wallet, or with us at the wallet, opens the breaker with
// the twentieth call, and then no till waits for it any more (contract section 3).
func TestBreakerOpensOnFailures(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*wallettest.Conn, wallettest.Request){
		"timeouts":                     mute,
		"connection lost":              func(c *wallettest.Conn, _ wallettest.Request) { _ = c.Close() },
		"500":                          saying(500, ""),
		"502":                          saying(502, ""),
		"503":                          saying(503, `{"code":"BUSY"}`),
		"504":                          saying(504, ""),
		"4xx without a verdict":        saying(404, "<html>"),
		"401 with the wallet's code":   saying(401, `{"code":"TOKEN_EXPIRED"}`),
		"403 with the wallet's code":   saying(403, `{"code":"FORBIDDEN"}`),
		"429 with the wallet's code":   saying(429, `{"code":"TOO_MANY"}`),
		"answers that are not ours":    saying(201, `{}`),
		"pending is no answer to give": saying(202, `{"status":"PENDING"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breakerBubble(t, answer, func(t *testing.T, _ *mood, w *wallettest.Wallet, c *Client, seen *events) {
				for i := range 20 {
					if got := c.Decisions().BreakerState(); got != "closed" {
						t.Fatalf("%s before call %d", got, i+1)
					}
					// Twenty calls of 800 ms one by one would not fit into the window of 10 s:
					// tills call at once.
					if name != "timeouts" {
						decide(t, c, fmt.Sprint(i))
					}
				}
				if name == "timeouts" {
					var tills sync.WaitGroup
					for i := range 20 {
						tills.Go(func() { decide(t, c, fmt.Sprint(i)) })
					}
					tills.Wait()
				}
				start := time.Now()
				if diff := cmp.Diff(unavailable(payment.ReasonBreakerOpen), decide(t, c, "21st")); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("the refusal took %v", took)
				}
				if got := len(w.Requests()); got != 20 {
					t.Errorf("%d requests, want 20", got)
				}
				if diff := cmp.Diff([]string{"decision open"}, seen.changes()); diff != "" {
					t.Errorf("reported (-want +got):\n%s", diff)
				}
				if d, w, l := c.Decisions().BreakerState(), c.Workers().BreakerState(), c.LookupBreakerState(); d != "open" || w != "closed" || l != "closed" {
					t.Errorf("decision %s, worker %s, lookup %s: only the first should be open", d, w, l)
				}
			})
		})
	}
}

// A wallet that refuses connections is as down as one that does not answer.
func TestBreakerOpensOnFailedConnects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wallettest.NewPipe(t, func(*wallettest.Conn) {})
		c := piped(t, w, func(cfg *Config) { cfg.ConnectTimeout = 200 * time.Millisecond; cfg.DialContext = blackHole })
		for i := range 20 {
			if got := decide(t, c, fmt.Sprint(i)); got.Reason != payment.ReasonConnectTimeout {
				t.Fatalf("%+v", got)
			}
		}
		if got := c.Decisions().BreakerState(); got != "open" {
			t.Errorf("%s, want open", got)
		}
	})
}

// Half of at least twenty completed calls, and not one sooner: neither a handful
// of failures on a quiet night nor a third of many (contract section 3). Calls in
// flight are no completed ones (trap §2.4).
func TestBreakerCountsHalfOfTheCompletedCalls(t *testing.T) {
	t.Parallel()
	breakerBubble(t, saying(500, ""), func(t *testing.T, m *mood, _ *wallettest.Wallet, c *Client, _ *events) {
		for i := range 19 {
			decide(t, c, fmt.Sprint(i))
		}
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Fatalf("%s after 19 failures", got)
		}
		m.become(healthy)
		for i := range 20 {
			decide(t, c, fmt.Sprint("good ", i))
		}
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Fatalf("%s after 19 failures of 39", got)
		}
		// Two hundred calls are in flight and do not count.
		ctx, cancel := context.WithTimeout(t.Context(), 390*time.Millisecond)
		defer cancel()
		m.become(mute)
		var tills sync.WaitGroup
		for i := range 200 {
			tills.Go(func() { c.Decisions().Send(ctx, instruction(payment.Debit, fmt.Sprint("waiting ", i))) })
		}
		synctest.Wait()
		m.become(saying(500, ""))
		decide(t, c, "20 of 40")
		if got := c.Decisions().BreakerState(); got != "open" {
			t.Errorf("%s after 20 failures of 40, want open", got)
		}
		tills.Wait()
	})
}

// A window that is cleared at once forgets a failing wallet between two calls
// (trap §2.4: no trip in 30 s at 100 % failure); one that never forgets opens for
// last night's trouble. Ours rolls: at 20 failing tills a second it opens within
// three seconds (scenario S35), and failures of over ten seconds ago do not count.
func TestBreakerWindowRolls(t *testing.T) {
	t.Parallel()
	breakerBubble(t, mute, func(t *testing.T, m *mood, _ *wallettest.Wallet, c *Client, _ *events) {
		start := time.Now()
		var tills sync.WaitGroup
		for i := 0; c.Decisions().BreakerState() == "closed" && time.Since(start) < 30*time.Second; i++ {
			tills.Go(func() { decide(t, c, fmt.Sprint(i)) })
			time.Sleep(50 * time.Millisecond)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("open after %v", took)
		}
		tills.Wait()
	})
	breakerBubble(t, saying(500, ""), func(t *testing.T, m *mood, _ *wallettest.Wallet, c *Client, _ *events) {
		for i := range 19 {
			decide(t, c, fmt.Sprint(i))
		}
		time.Sleep(10 * time.Second)
		decide(t, c, "a new one")
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Errorf("%s: failures of 10 s ago still count", got)
		}
	})
}

// When a till hangs up, or its time was over before we began, the wallet has done
// nothing wrong; when it lets the deadline pass, it has (field report C2, contract
// section 3, scenario S34).
func TestWhatWeDidNotTryDoesNotCount(t *testing.T) {
	t.Parallel()
	breakerBubble(t, mute, func(t *testing.T, _ *mood, w *wallettest.Wallet, c *Client, seen *events) {
		var tills sync.WaitGroup
		for i := range 50 {
			tills.Go(func() {
				ctx, hangUp := context.WithCancel(t.Context())
				time.AfterFunc(100*time.Millisecond, hangUp)
				got := c.Decisions().Send(ctx, instruction(payment.Debit, fmt.Sprint("hung up ", i)))
				if diff := cmp.Diff(ambiguous(payment.ReasonTimeout), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if evidence := c.Decisions().Lookup(ctx, instruction(payment.Debit, fmt.Sprint("hung up ", i))); evidence.Reason != payment.ReasonDeadlineSpent {
					t.Errorf("%+v", evidence)
				}
			})
		}
		tills.Wait()
		for i := range 50 {
			ctx, cancel := context.WithTimeout(t.Context(), 49*time.Millisecond)
			if got := c.Decisions().Send(ctx, instruction(payment.Debit, fmt.Sprint("late ", i))); got.Reason != payment.ReasonDeadlineSpent {
				t.Errorf("%+v", got)
			}
			if got := c.Decisions().Send(ctx, instruction(payment.Credit, fmt.Sprint("not ours ", i))); got.Reason != payment.ReasonUnsupported {
				t.Errorf("%+v", got)
			}
			cancel()
		}
		if got := c.Decisions().BreakerState(); got != "closed" || len(seen.changes()) != 0 {
			t.Errorf("%s after %v", got, seen.changes())
		}
		if got := len(w.Requests()); got != 50 {
			t.Errorf("%d requests, want 50", got)
		}
		for i := range 50 {
			tills.Go(func() { decide(t, c, fmt.Sprint("expired ", i)) })
		}
		tills.Wait()
		if got := c.Decisions().BreakerState(); got != "open" {
			t.Errorf("%s after 50 expired deadlines", got)
		}
	})
}

// A caller that goes away while we connect says nothing about the wallet either.
func TestHangingUpWhileConnectingDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wallettest.NewPipe(t, func(*wallettest.Conn) {})
		c := piped(t, w, func(cfg *Config) { cfg.DialContext = blackHole })
		for i := range 50 {
			ctx, hangUp := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, hangUp)
			got := c.Decisions().Send(ctx, instruction(payment.Debit, fmt.Sprint(i)))
			if diff := cmp.Diff(unavailable(payment.ReasonDeadlineSpent), got); diff != "" {
				t.Fatalf("(-want +got):\n%s", diff)
			}
		}
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Errorf("%s", got)
		}
	})
}

// A wallet that crawls holds up every till for as long as one that fails: half of
// the calls over 400 ms open the breaker although each of them succeeds (contract
// section 3). Exactly 400 ms is not slow, and a worker may take a second.
func TestBreakerOpensOnSlowCalls(t *testing.T) {
	t.Parallel()
	calls := func(t *testing.T, lane *Lane, op payment.Operation, n int) {
		t.Helper()
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if got := lane.Send(ctx, instruction(op, fmt.Sprint(i))); got.Class != payment.Success {
					t.Errorf("%+v", got)
				}
			})
		}
		all.Wait()
	}
	breakerBubble(t, slowly(400*time.Millisecond), func(t *testing.T, m *mood, _ *wallettest.Wallet, c *Client, seen *events) {
		calls(t, c.Decisions(), payment.Debit, 20)
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Fatalf("%s after 20 calls of 400 ms", got)
		}
		m.become(slowly(401 * time.Millisecond))
		calls(t, c.Decisions(), payment.Debit, 19)
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Fatalf("%s after 19 slow calls of 39", got)
		}
		calls(t, c.Workers(), payment.Credit, 40)
		if got := c.Workers().BreakerState(); got != "closed" {
			t.Errorf("workers: %s after calls of 401 ms", got)
		}
		calls(t, c.Decisions(), payment.Debit, 1)
		if got := c.Decisions().BreakerState(); got != "open" {
			t.Fatalf("%s after 20 slow calls of 40", got)
		}
		m.become(slowly(1001 * time.Millisecond))
		calls(t, c.Workers(), payment.Credit, 40)
		if got := c.Workers().BreakerState(); got != "open" {
			t.Errorf("workers: %s after calls of 1001 ms", got)
		}
		if diff := cmp.Diff([]string{"decision open", "worker open"}, seen.changes()); diff != "" {
			t.Errorf("reported (-want +got):\n%s", diff)
		}
		// A slow probe opens it again; quick ones close it.
		time.Sleep(5*time.Second + 1)
		if got := decide(t, c, "slow probe"); got.Class != payment.Ambiguous {
			t.Errorf("%+v", got)
		}
		if got := c.Decisions().BreakerState(); got != "open" {
			t.Errorf("%s after a slow probe", got)
		}
		m.become(healthy)
		time.Sleep(5*time.Second + 1)
		for i := range 3 {
			if got := decide(t, c, fmt.Sprint("probe ", i)); got.Class != payment.Success {
				t.Errorf("%+v", got)
			}
		}
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Errorf("%s after three good probes", got)
		}
	})
}

// After five seconds up to three probes find out, and whoever comes beside them is
// told at once that the wallet is unavailable: no call, no error of ours (field
// report C4). Three successes close the breaker, one failure opens it again.
func TestHalfOpenLetsThreeProbesThrough(t *testing.T) {
	t.Parallel()
	breakerBubble(t, saying(500, ""), func(t *testing.T, m *mood, w *wallettest.Wallet, c *Client, seen *events) {
		for i := range 20 {
			decide(t, c, fmt.Sprint(i))
		}
		time.Sleep(5 * time.Second)
		if got := decide(t, c, "at 5 s"); got.Reason != payment.ReasonBreakerOpen {
			t.Errorf("%+v, want it still open", got)
		}
		time.Sleep(time.Nanosecond)
		if got := c.Decisions().BreakerState(); got != "half-open" {
			t.Fatalf("%s after 5 s", got)
		}

		m.become(slowly(300 * time.Millisecond))
		before := len(w.Requests())
		outcomes := make(chan payment.Outcome, 10)
		var tills sync.WaitGroup
		for i := range 10 {
			tills.Go(func() { outcomes <- decide(t, c, fmt.Sprint("beside ", i)) })
		}
		tills.Wait()
		close(outcomes)
		tally := map[payment.Reason]int{}
		for o := range outcomes {
			tally[o.Reason]++
		}
		if diff := cmp.Diff(map[payment.Reason]int{payment.ReasonApplied: 3, payment.ReasonBreakerOpen: 7}, tally); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := len(w.Requests()) - before; got != 3 {
			t.Errorf("%d probes, want 3", got)
		}
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Errorf("%s after three good probes", got)
		}

		m.become(saying(500, ""))
		for i := range 20 {
			decide(t, c, fmt.Sprint("again ", i))
		}
		time.Sleep(5*time.Second + 1)
		decide(t, c, "bad probe")
		if got := c.Decisions().BreakerState(); got != "open" {
			t.Errorf("%s after a bad probe", got)
		}
		if diff := cmp.Diff([]string{
			"decision open", "decision half-open", "decision closed", "decision open", "decision half-open", "decision open",
		}, seen.changes()); diff != "" {
			t.Errorf("reported (-want +got):\n%s", diff)
		}
	})
}

// A probe that nobody counts must give its place back, or the breaker stays
// half-open for ever and the wallet is never asked again (trap §2.4: B1).
func TestUncountedProbeGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	breakerBubble(t, saying(500, ""), func(t *testing.T, m *mood, _ *wallettest.Wallet, c *Client, _ *events) {
		for i := range 20 {
			decide(t, c, fmt.Sprint(i))
		}
		time.Sleep(5*time.Second + 1)
		m.become(healthy)
		for range 10 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			if got := c.Decisions().Send(ctx, instruction(payment.Debit, "late")); got.Reason != payment.ReasonDeadlineSpent {
				t.Fatalf("%+v", got)
			}
			cancel()
		}
		if got := c.Decisions().BreakerState(); got != "half-open" {
			t.Fatalf("%s after probes that do not count", got)
		}
		for i := range 3 {
			if got := decide(t, c, fmt.Sprint("probe ", i)); got.Class != payment.Success {
				t.Fatalf("%+v", got)
			}
		}
		if got := c.Decisions().BreakerState(); got != "closed" {
			t.Errorf("%s", got)
		}
	})
}

// While one of its two parts has opened for slowness, the other must not take the
// refusals for failures, nor lose its probes to them.
func TestRefusalOfOnePartDoesNotCountInTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		b := newBreaker("decision", config("").Breaker, 400*time.Millisecond, seen)
		call := func(counted count, took time.Duration) (made bool) {
			b.do(func() count {
				made = true
				time.Sleep(took)
				return counted
			})
			return made
		}
		for range 20 {
			call(good, 410*time.Millisecond)
		}
		for range 100 {
			if call(bad, 0) {
				t.Fatal("a call was made while open")
			}
		}
		if got := b.failures.State().String(); got != "closed" || b.state() != "open" {
			t.Errorf("%s, of failures %s; want open for slowness only", b.state(), got)
		}
		time.Sleep(5*time.Second + 1)
		for range 3 {
			if !call(good, 0) {
				t.Fatal("a probe was refused")
			}
		}
		if got := b.state(); got != "closed" {
			t.Errorf("%s", got)
		}
		// Both open at once: failing and slow, and both recover together.
		for range 20 {
			call(bad, 410*time.Millisecond)
		}
		if got := b.failures.State().String() + " " + b.slowness.State().String(); got != "open closed" && got != "open open" {
			t.Errorf("%s", got)
		}
		time.Sleep(5*time.Second + 1)
		for range 10 {
			call(good, 0)
		}
		if got := b.state(); got != "closed" {
			t.Errorf("%s after the recovery of both", got)
		}
	})
}

// Lookups must go on while debits fail, because they tell what became of those;
// and what a lookup finds, also PENDING, is an answer (contract section 3).
func TestLookupsHaveTheirOwnBreaker(t *testing.T) {
	t.Parallel()
	ask := func(t *testing.T, lane *Lane, op payment.Operation) payment.Evidence {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		return lane.Lookup(ctx, instruction(op, "x"))
	}
	breakerBubble(t, saying(500, ""), func(t *testing.T, m *mood, w *wallettest.Wallet, c *Client, seen *events) {
		for i := range 25 {
			decide(t, c, fmt.Sprint(i))
		}
		for name, answer := range map[string]func(*wallettest.Conn, wallettest.Request){
			"applied":   healthy,
			"pending":   saying(200, `{"status":"PENDING"}`),
			"not found": saying(404, `{"code":"NOT_FOUND"}`),
		} {
			m.become(answer)
			for range 40 {
				ask(t, c.Decisions(), payment.Debit)
			}
			if got := c.LookupBreakerState(); got != "closed" {
				t.Fatalf("%s after lookups that were answered: %s", got, name)
			}
		}
		time.Sleep(10 * time.Second)
		m.become(saying(404, "<html>"))
		for range 20 {
			ask(t, c.Workers(), payment.Credit)
		}
		before := len(w.Requests())
		want := payment.Evidence{Finding: payment.NoEvidence, Reason: payment.ReasonBreakerOpen}
		if diff := cmp.Diff(want, ask(t, c.Decisions(), payment.Debit)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if got := len(w.Requests()) - before; got != 0 {
			t.Errorf("%d lookups were sent", got)
		}
		if changes := strings.Join(seen.changes(), ", "); !strings.HasSuffix(changes, "lookup open") {
			t.Errorf("reported %s", changes)
		}
		if got := c.Workers().BreakerState(); got != "closed" {
			t.Errorf("the workers' breaker is %s", got)
		}
	})
}

// A panic inside a call must not cost the breaker a probe's place for good.
func TestPanicIsAFailureAndGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wallettest.NewPipe(t, wallettest.Serve(wallettest.Applied))
		broken := true
		c := piped(t, w, func(cfg *Config) {
			cfg.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				if broken {
					panic("a bug")
				}
				return w.Dial(ctx, network, address)
			}
		})
		panics := func() (raised any) {
			defer func() { raised = recover() }()
			decide(t, c, "x")
			return nil
		}
		for range 20 {
			if panics() == nil {
				t.Fatal("the panic was swallowed")
			}
		}
		if got := c.Decisions().BreakerState(); got != "open" {
			t.Errorf("%s", got)
		}
		broken = false
		time.Sleep(5*time.Second + 1)
		for i := range 3 {
			if got := decide(t, c, fmt.Sprint(i)); got.Class != payment.Success {
				t.Errorf("%+v", got)
			}
		}
	})
}
