package wallet

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
	"github.com/safeledger/safeledger/internal/watchfile"
)

// piped is a client over in-memory pipes, for fake time.
func piped(tb testing.TB, w *wallettest.Wallet, change ...func(*Config)) *Client {
	tb.Helper()
	return newClient(tb, w, append([]func(*Config){func(cfg *Config) { cfg.DialContext = w.Dial }}, change...)...)
}

// A call that overruns its part of the budget takes the time that was kept for
// the lookup, or for storing the decision. Whatever the wallet does, a call ends
// at its deadline, to the nanosecond (contract section 2, field reports B13, B14,
// traps C18, C22).
func TestCallEndsExactlyAtItsDeadline(t *testing.T) {
	t.Parallel()
	const limit = 800 * time.Millisecond
	head := "HTTP/1.1 201 Created\r\nContent-Length: 400\r\n\r\n"
	for name, tt := range map[string]struct {
		script wallettest.Script
		want   payment.Outcome
	}{
		"never reads":         {func(c *wallettest.Conn) { c.Wait(time.Minute) }, ambiguous(payment.ReasonTimeout)},
		"reads, never speaks": {func(c *wallettest.Conn) { c.Read(); c.Wait(time.Minute) }, ambiguous(payment.ReasonTimeout)},
		"head, then silence": {
			func(c *wallettest.Conn) { c.Read(); c.Say(head); c.Wait(time.Minute) },
			payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonTimeout, Status: 201},
		},
		"a byte at a time": {
			func(c *wallettest.Conn) {
				c.Read()
				for _, b := range head + strings.Repeat(" ", 400) {
					c.Say(string(b))
					c.Wait(10 * time.Millisecond)
				}
			},
			payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonTimeout, Status: 201},
		},
		"102, then silence": {
			func(c *wallettest.Conn) { c.Read(); c.Say("HTTP/1.1 102 Processing\r\n\r\n"); c.Wait(time.Minute) },
			ambiguous(payment.ReasonTimeout),
		},
		"interim answers for ever": {
			func(c *wallettest.Conn) {
				c.Read()
				for {
					if _, err := c.Write([]byte("HTTP/1.1 103 Early Hints\r\n\r\n")); err != nil {
						return
					}
					c.Wait(time.Millisecond)
				}
			},
			ambiguous(payment.ReasonTimeout),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := wallettest.NewPipe(t, tt.script)
				client := piped(t, w)
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				start := time.Now()
				got := client.Decisions().Send(ctx, instruction(payment.Debit, "x"))
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if took := time.Since(start); took != limit {
					t.Errorf("took %v, want %v", took, limit)
				}
				lookupCtx, cancelLookup := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancelLookup()
				start = time.Now()
				evidence := client.Decisions().Lookup(lookupCtx, instruction(payment.Debit, "x"))
				if took := time.Since(start); took != 300*time.Millisecond || evidence.Finding != payment.NoEvidence {
					t.Errorf("the lookup took %v and found %+v", took, evidence)
				}
			})
		})
	}
}

// An answer that comes in the last millisecond is an answer (scenario S15).
func TestAnswerJustInTimeCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wallettest.NewPipe(t, func(c *wallettest.Conn) {
			r, _ := c.Read()
			c.Wait(799 * time.Millisecond)
			c.Say(wallettest.Applied(r))
		})
		ctx, cancel := context.WithTimeout(t.Context(), 800*time.Millisecond)
		defer cancel()
		if got := piped(t, w).Decisions().Send(ctx, instruction(payment.Debit, "x")); got.Class != payment.Success {
			t.Errorf("%+v, want success", got)
		}
	})
}

// With less than 50 ms left an answer could not come back in time: to send would
// turn a certain "not applied" into a doubt and a reversal. Connecting may be what
// used the time up, so it is asked again right before the write (contract
// section 2; "no write begun" of section 3; trap C30).
func TestNothingIsSentWithTooLittleTimeLeft(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		left, connecting time.Duration
		sent             int
	}{
		"50 ms, exactly enough":             {50 * time.Millisecond, 0, 1},
		"a nanosecond too little":           {50*time.Millisecond - 1, 0, 0},
		"nothing at all":                    {0, 0, 0},
		"enough left after connecting":      {200 * time.Millisecond, 150 * time.Millisecond, 1},
		"connecting left too little":        {200 * time.Millisecond, 151 * time.Millisecond, 0},
		"connecting took all that was left": {60 * time.Millisecond, time.Second, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := wallettest.NewPipe(t, wallettest.Serve(wallettest.Applied))
				client := piped(t, w, func(cfg *Config) {
					cfg.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
						if tt.connecting > 0 {
							select {
							case <-ctx.Done():
								return nil, ctx.Err()
							case <-time.After(tt.connecting):
							}
						}
						return w.Dial(ctx, network, address)
					}
				})
				ctx, cancel := context.WithTimeout(t.Context(), tt.left)
				defer cancel()
				want := unavailable(payment.ReasonDeadlineSpent)
				switch {
				case tt.sent == 1:
					want = payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: "effect-1", Status: 201}
				case tt.connecting > tt.left:
					want = unavailable(payment.ReasonConnectTimeout)
				}
				if diff := cmp.Diff(want, client.Decisions().Send(ctx, instruction(payment.Debit, "x"))); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				if got := len(w.Requests()); got != tt.sent {
					t.Errorf("%d requests were sent, want %d", got, tt.sent)
				}
			})
		})
	}
}

// The connection that a call could no longer use is not thrown away.
func TestUnusedConnectionServesTheNextCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wallettest.NewPipe(t, wallettest.Serve(wallettest.Applied))
		slow := true
		client := piped(t, w, func(cfg *Config) {
			cfg.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				if slow {
					<-time.After(80 * time.Millisecond)
				}
				return w.Dial(ctx, network, address)
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if got := client.Decisions().Send(ctx, instruction(payment.Debit, "x")); got.Reason != payment.ReasonDeadlineSpent {
			t.Fatalf("%+v", got)
		}
		client.trustIdle()
		if got := send(t, client, instruction(payment.Debit, "y")); got.Class != payment.Success {
			t.Errorf("%+v", got)
		}
		if got := w.Connections(); got != 1 {
			t.Errorf("%d connections", got)
		}
	})
}

// A full bulkhead must refuse at once: a queue would spend the till's time where
// no deadline sees it (contract section 3, traps C6, field report B12). Workers
// that fill theirs leave decisions alone, and a place given back twice is one place.
func TestBulkheadRefusesAtOnceAndPerLane(t *testing.T) {
	t.Parallel()
	w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
	client := newClient(t, w, func(cfg *Config) { cfg.MaxInFlight = 2 })
	workers, decisions := client.Workers(), client.Decisions()
	first, ok := workers.Enter()
	if !ok {
		t.Fatal("the first place was refused")
	}
	second, ok := workers.Enter()
	if !ok {
		t.Fatal("the second place was refused")
	}
	refused, ok := workers.Enter()
	if ok {
		t.Fatal("a third place was given")
	}
	refused() // does nothing
	if got := workers.InFlight(); got != 2 {
		t.Errorf("%d in flight, want 2", got)
	}
	leave, ok := decisions.Enter()
	if !ok {
		t.Error("busy workers cost a decision its place")
	}
	leave()
	first()
	first()
	if got := workers.InFlight(); got != 1 {
		t.Errorf("%d in flight after leaving twice, want 1", got)
	}
	second()
}

// A rotated token must be used with the next request, and never be printed
// (contract section 3: within 5 s, by watchfile's interval).
func TestRotatedTokenIsSentWithTheNextRequest(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first-token\n")
	file, err := watchfile.Load(path, ParseToken)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		file.Watch(ctx, time.Millisecond, slog.New(slog.DiscardHandler))
	}()
	defer func() { stop(); <-watched }()

	w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
	client := newClient(t, w, func(cfg *Config) { cfg.Token = file.Get })
	send(t, client, instruction(payment.Debit, "before"))
	write("  second-token==\r\n")
	for deadline := time.Now().Add(callLimit); file.Get().value != "second-token=="; {
		if time.Now().After(deadline) {
			t.Fatal("the new token did not come into force")
		}
	}
	send(t, client, instruction(payment.Debit, "after"))
	var got []string
	for _, r := range w.Requests() {
		got = append(got, r.Header.Get("Authorization"))
	}
	if diff := cmp.Diff([]string{"Bearer first-token", "Bearer second-token=="}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if printed := fmt.Sprintf("%v %+v %#v %s %q", file.Get(), file.Get(), file.Get(), file.Get(), file.Get()); strings.Contains(printed, "second") {
		t.Errorf("the token prints as %s", printed)
	}
}

// A token that could end a header line would let a file write requests; the
// error must not print what it refuses.
func TestTokensThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"", " \n", "=", "two tokens", "a\r\nX: y", "naïve", "a=b", "q\"uoted", "\x00", strings.Repeat("a", maxTokenLength+1)} {
		_, err := ParseToken([]byte(content))
		if err == nil {
			t.Errorf("%q was taken", content)
		} else if content = strings.TrimSpace(content); len(content) > 1 && strings.Contains(err.Error(), content) {
			t.Errorf("the error repeats %q", content)
		}
	}
}

// v1 has no holds, a worker must not debit, and a hold id must not become
// another path: such calls are refused before anything is sent (contract section 3).
func TestCallsThatCannotBeMadeAreNotSent(t *testing.T) {
	t.Parallel()
	w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
	one, two := newClient(t, w, speaks(V1)), newClient(t, w)
	hold := instruction(payment.Capture, "x")
	hold.HoldID = ".."
	broken := instruction(payment.Debit, "x")
	broken.Account = "\xff"
	for name, call := range map[string]func() payment.Outcome{
		"hold on v1":    func() payment.Outcome { return send(t, one, instruction(payment.Hold, "x")) },
		"capture on v1": func() payment.Outcome { return send(t, one, instruction(payment.Capture, "x")) },
		"release on v1": func() payment.Outcome { return send(t, one, instruction(payment.Release, "x")) },
		"reversal":      func() payment.Outcome { return send(t, two, instruction(payment.Reversal, "x")) },
		"debit by a worker": func() payment.Outcome {
			return two.Workers().Send(within(t, callLimit), instruction(payment.Debit, "x"))
		},
		"credit by a decision": func() payment.Outcome {
			return two.Decisions().Send(within(t, callLimit), instruction(payment.Credit, "x"))
		},
		"lookup as a call":          func() payment.Outcome { return send(t, two, payment.Instruction{Operation: "lookup"}) },
		"hold id that is a path":    func() payment.Outcome { return send(t, two, hold) },
		"account that is not UTF-8": func() payment.Outcome { return send(t, two, broken) },
	} {
		if diff := cmp.Diff(unavailable(payment.ReasonUnsupported), call()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	evidence := lookup(t, one, instruction(payment.Hold, "x"))
	if diff := cmp.Diff(payment.Evidence{Finding: payment.NoEvidence, Reason: payment.ReasonUnsupported}, evidence); diff != "" {
		t.Errorf("lookup of a hold on v1 (-want +got):\n%s", diff)
	}
	if n := len(w.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// Operators see calls through the observer: one report for each, in bounded words.
func TestEveryCallIsReportedOnce(t *testing.T) {
	t.Parallel()
	w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
	seen := &events{}
	client := newClient(t, w, func(cfg *Config) { cfg.Observer = seen })
	send(t, client, instruction(payment.Debit, "x"))
	lookup(t, client, instruction(payment.Debit, "x"))
	send(t, client, instruction(payment.Release, "x"))
	lookup(t, client, instruction(payment.Release, "x"))
	want := []string{
		"decision debit success applied", "decision lookup applied applied",
		"worker release success applied", "worker lookup applied applied",
	}
	if diff := cmp.Diff(want, seen.calls); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Idle connections are closed when their time is over or the client is, and not
// kept beyond what could ever be used at once.
func TestIdleConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Int32
		w := wallettest.NewPipe(t, func(c *wallettest.Conn) {
			_, _ = c.Conn.Read(make([]byte, 1))
			closed.Add(1)
		})
		client := piped(t, w, func(cfg *Config) { cfg.MaxInFlight = 3 })
		for range 5 {
			conn, err := client.dialer.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			client.pool.put(conn)
		}
		synctest.Wait()
		if client.idle() != 3 || closed.Load() != 2 {
			t.Errorf("%d idle, %d closed; want 3 and 2", client.idle(), closed.Load())
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if client.idle() != 0 || closed.Load() != 5 {
			t.Errorf("after 10 s: %d idle, %d closed; want 0 and 5", client.idle(), closed.Load())
		}
		conn, err := client.dialer.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client.pool.put(conn)
		client.Close()
		late, err := client.dialer.dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		client.pool.put(late)
		synctest.Wait()
		if client.idle() != 0 || closed.Load() != 7 {
			t.Errorf("after Close: %d idle, %d closed; want 0 and 7", client.idle(), closed.Load())
		}
	})
}

// The pool must find out by itself for how long this wallet keeps connections
// open: one is used only if it has been idle for at most half as long as one was
// seen open, however the wallet is set up (contract section 3, trap C12).
func TestPoolUsesConnectionsForHalfTheTimeTheyAreSeenOpen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wallettest.NewPipe(t, (*wallettest.Conn).Hang)
		client := piped(t, w)
		pool := client.pool
		idle := func() *conn {
			t.Helper()
			c, err := client.dialer.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			pool.put(c)
			return c
		}
		idle()
		time.Sleep(100 * time.Millisecond)
		if pool.take() != nil {
			t.Error("used after 100 ms, the longest that any was seen open")
		}
		second := idle()
		time.Sleep(80 * time.Millisecond)
		if got := pool.take(); got != second {
			t.Error("not used after 80 ms, although one was seen open at 180 ms")
		}
		pool.put(second)
		pool.closedAfter(80 * time.Millisecond)
		time.Sleep(60 * time.Millisecond) // the first one is 240 ms old by now, and open
		if got := pool.take(); got != second {
			t.Error("not used after 60 ms, although one was seen open at 240 ms")
		}
		pool.put(second)
		time.Sleep(time.Second)
		if pool.take() != nil {
			t.Error("used after 1 s")
		}
		time.Sleep(9 * time.Second)
		if pool.take() != nil || client.idle() != 0 {
			t.Error("kept for over 10 s")
		}
	})
}

// One lost request may have met a wallet that was just closing: the next one must
// not meet the same (contract section 3, trap C12).
func TestLostRequestOnAnIdleConnectionShortensReuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := wallettest.NewPipe(t, func(c *wallettest.Conn) {
			r, _ := c.Read()
			c.Say(wallettest.Applied(r))
			c.Read() // and closes instead of answering, as if it had been about to
		})
		client := piped(t, w)
		for i, want := range []payment.Class{payment.Success, payment.Ambiguous, payment.Success, payment.Success} {
			if i == 1 {
				client.trustIdle()
			}
			if got := send(t, client, instruction(payment.Debit, fmt.Sprint(i))); got.Class != want {
				t.Errorf("call %d: %+v, want %s", i, got, want)
			}
			time.Sleep(time.Second)
		}
	})
}

// A misconfigured client must not start: each of these would fail later, at a
// till's cost, or send a payment somewhere else.
func TestConfigurationsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := wallettest.New(t, func(*wallettest.Conn) {})
	for name, change := range map[string]func(*Config){
		"no URL":             func(cfg *Config) { cfg.BaseURL = "" },
		"no scheme":          func(cfg *Config) { cfg.BaseURL = "wallet.test" },
		"another scheme":     func(cfg *Config) { cfg.BaseURL = "ftp://wallet.test" },
		"no host":            func(cfg *Config) { cfg.BaseURL = "http:///v2" },
		"a port without one": func(cfg *Config) { cfg.BaseURL = "http://:80" },
		"a user":             func(cfg *Config) { cfg.BaseURL = "http://user:hunter2@wallet.test" },
		"a query":            func(cfg *Config) { cfg.BaseURL = "http://wallet.test?x=hunter2" },
		"an empty query":     func(cfg *Config) { cfg.BaseURL = "http://wallet.test?" },
		"a fragment":         func(cfg *Config) { cfg.BaseURL = "http://wallet.test#hunter2" },
		"an empty fragment":  func(cfg *Config) { cfg.BaseURL = "http://wallet.test#" },
		"not ASCII":          func(cfg *Config) { cfg.BaseURL = "http://wället.test" },
		"not a URL":          func(cfg *Config) { cfg.BaseURL = "http://hunter2\x7f" },
		"version":            func(cfg *Config) { cfg.Version = "v3" },
		"connect timeout":    func(cfg *Config) { cfg.ConnectTimeout = 0 },
		"minimum to send":    func(cfg *Config) { cfg.MinToSend = -1 },
		"in flight":          func(cfg *Config) { cfg.MaxInFlight = 0 },
		"idle limit":         func(cfg *Config) { cfg.IdleLimit = -1 },
		"slow call":          func(cfg *Config) { cfg.SlowCall = 0 },
		"slow worker call":   func(cfg *Config) { cfg.SlowWorkerCall = 0 },
		"window":             func(cfg *Config) { cfg.Breaker.Window = 0 },
		"minimum of calls":   func(cfg *Config) { cfg.Breaker.MinCalls = 0 },
		"failure ratio":      func(cfg *Config) { cfg.Breaker.FailureRatio = 1.1 },
		"slow ratio":         func(cfg *Config) { cfg.Breaker.SlowRatio = 0 },
		"open for":           func(cfg *Config) { cfg.Breaker.OpenFor = 0 },
		"probes":             func(cfg *Config) { cfg.Breaker.Probes = 0 },
		"user agent":         func(cfg *Config) { cfg.UserAgent = "a\r\nX: y" },
		"observer":           func(cfg *Config) { cfg.Observer = nil },
		"logger":             func(cfg *Config) { cfg.Log = nil },
	} {
		cfg := config(w.URL())
		change(&cfg)
		_, err := New(cfg)
		if err == nil {
			t.Errorf("%s: was taken", name)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the error repeats the URL: %v", name, err)
		}
	}
}
