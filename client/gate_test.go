package client_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/client"
)

// A payment that the gate has refused and the client has sent again must take the
// customer's money once: one handler, one row, one request at the wallet, whatever the gate's
// reason and whatever is asked for (issue 4, promise 2; seed, required verification 2). The
// whole service is real but for the ledger's storage, on fake time.
func TestReplayingWhatTheGateRefusedHasExactlyOneEffect(t *testing.T) {
	t.Parallel()
	// A reason gives the way to dial, and lets the gate refuse for the first second.
	reasons := map[string]func(t *testing.T, w, next *whole) dialler{
		"NOT_READY": func(_ *testing.T, w, _ *whole) dialler {
			w.gate.SetDatabaseReachable(false)
			time.AfterFunc(500*ms, func() { w.gate.SetDatabaseReachable(true) })
			return w.tills.DialContext
		},
		"OVERLOADED": func(t *testing.T, w, _ *whole) dialler {
			synctest.Wait() // an answer leaves before its handler has given its place back
			busy := w.till(t, w.tills.DialContext)
			go func() { // takes the one place that there is, and leaves no money moved
				_, _ = busy.Debit(t.Context(), "busy", client.PaymentRequest{Account: "HANG-BUSY", AmountMinor: 1, Currency: "EUR"})
			}()
			synctest.Wait()
			return w.tills.DialContext
		},
		"DRAINING": func(_ *testing.T, w, next *whole) dialler {
			w.gate.Drain()
			var dials atomic.Int64
			return func(ctx context.Context, network, address string) (net.Conn, error) {
				if dials.Add(1) == 1 {
					return w.tills.DialContext(ctx, network, address)
				}
				return next.tills.DialContext(ctx, network, address)
			}
		},
	}
	calls := []struct {
		name        string
		make        func(t *testing.T, c *client.Client, first client.Decision) (replayed bool)
		atTheWallet [2]int // requests, effects
		followUps   int    // of the earlier debit
	}{
		{"debit", func(t *testing.T, c *client.Client, _ client.Decision) bool {
			d, err := c.Debit(t.Context(), key, asked)
			if err != nil || !d.Approved() {
				t.Fatalf("got %+v, %v", d, err)
			}
			return d.Replayed
		}, [2]int{1, 1}, 0},
		{"hold", func(t *testing.T, c *client.Client, _ client.Decision) bool {
			d, err := c.Hold(t.Context(), key, asked)
			if err != nil || !d.Approved() {
				t.Fatalf("got %+v, %v", d, err)
			}
			return d.Replayed
		}, [2]int{1, 1}, 0},
		{"credit", func(t *testing.T, c *client.Client, first client.Decision) bool {
			f, err := c.Credit(t.Context(), key, client.CreditRequest{
				Account: asked.Account, AmountMinor: 250, Currency: asked.Currency, DebitID: first.ID,
			})
			if err != nil {
				t.Fatal(err)
			}
			return f.Replayed
		}, [2]int{}, 1},
		{"cancel", func(t *testing.T, c *client.Client, first client.Decision) bool {
			done, err := c.Cancel(t.Context(), client.KindDebit, first.Key, nil)
			if err != nil || done.ID != first.ID {
				t.Fatalf("got %+v, %v", done, err)
			}
			return false
		}, [2]int{}, 1},
	}
	for reason, refuse := range reasons {
		for _, call := range calls {
			t.Run(reason+"/"+call.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := mustOpen(t, 1)
					next, err := w.another(inPipes, 1)
					if err != nil {
						t.Fatal(err)
					}
					first, err := w.till(t, w.tills.DialContext).Debit(t.Context(), "earlier", asked)
					if err != nil {
						t.Fatal(err)
					}
					c := w.till(t, refuse(t, w, next))
					start, handlers := time.Now(), w.handlers.Load()+next.handlers.Load()
					arrived, applied := w.moved()
					if call.make(t, c, first) {
						t.Error("it had been done before: the refused request was begun")
					}
					if took := time.Since(start); took < time.Second || took > 2500*ms {
						t.Errorf("took %v: at least what the gate asked for was to be waited", took)
					}
					if n := w.handlers.Load() + next.handlers.Load() - handlers; n != 1 {
						t.Errorf("%d handlers were invoked for it, want 1", n)
					}
					arrivedNow, appliedNow := w.moved()
					if got := [2]int{arrivedNow - arrived, appliedNow - applied}; got != call.atTheWallet {
						t.Errorf("%v requests at the wallet and effects, want %v", got, call.atTheWallet)
					}
					p, _, err := c.Payment(t.Context(), first.ID)
					if n := len(p.FollowUps); err != nil || n != call.followUps {
						t.Errorf("%d follow-ups, want %d; %v", n, call.followUps, err)
					}
				})
			})
		}
	}
}

func mustOpen(t *testing.T, maxInFlight int) *whole {
	t.Helper()
	w, err := open(inPipes, maxInFlight)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	return w
}

// dialler connects to a service.
type dialler func(ctx context.Context, network, address string) (net.Conn, error)

// till is a client that connects through dial.
func (w *whole) till(t *testing.T, dial dialler) *client.Client {
	t.Helper()
	cfg := w.config()
	cfg.DialContext = dial
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
