package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/client"
)

// The till whose answer got lost: it leaves in the middle of a decision, presses again and
// is told that the key is in flight, asks by key and hears the decision once there is one.
// The customer has paid once. A till that had taken a new key would have charged twice.
func TestALostAnswerIsFoundAgainByItsKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := mustOpen(t, 512)
		till := w.till(t, w.tills.DialContext)
		req := client.PaymentRequest{Account: "SLOW-700-ALICE", AmountMinor: 1250, Currency: "EUR"}

		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(300*ms, cancel) // the line goes down
		_, err := till.Debit(ctx, key, req)
		if e, unknown := errors.AsType[*client.OutcomeUnknownError](err); !unknown || e.Key != key {
			t.Fatalf("got %v, want that the outcome is unknown", err)
		}
		_, err = till.Debit(t.Context(), key, req)
		if _, inFlight := errors.AsType[*client.InFlightError](err); !inFlight {
			t.Fatalf("got %v, want that it is in flight", err)
		}
		p, seen, err := till.Reconcile(t.Context(), client.KindDebit, key)
		if err != nil || !seen || !p.Approved() {
			t.Fatalf("got %+v, %v, %v", p, seen, err)
		}
		d, err := till.Debit(t.Context(), key, req)
		if err != nil || !d.Approved() || !d.Replayed || d.ID != p.ID {
			t.Errorf("got %+v, %v, want the first answer again", d, err)
		}
		if arrived, applied := w.moved(); arrived != 1 || applied != 1 {
			t.Errorf("the wallet got %d requests and applied %d", arrived, applied)
		}
	})
}

// The customer who has gone: the till cancels the key, before the decision, after it, or
// before the request has come at all; nothing is handed over for the key any more, and a
// second cancel says what the first one said.
func TestACancelledKeyPaysForNothing(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]time.Duration{"before the decision": 300 * ms, "after it": 10 * time.Second, "before it has come": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := mustOpen(t, 512)
				till := w.till(t, w.tills.DialContext)
				req := client.PaymentRequest{Account: "SLOW-700-ALICE", AmountMinor: 1250, Currency: "EUR"}
				if leave > 0 {
					// Not a deadline, which the service would be told and would keep.
					ctx, cancel := context.WithCancel(t.Context())
					time.AfterFunc(leave, cancel)
					_, _ = till.Debit(ctx, key, req) // whatever it says, the customer is gone
				}
				first, err := till.Cancel(t.Context(), client.KindDebit, key, nil)
				if err != nil {
					t.Fatal(err)
				}
				again, err := till.Cancel(t.Context(), client.KindDebit, key, nil)
				if err != nil || again != first {
					t.Errorf("the second cancel says %+v, %v; the first said %+v", again, err, first)
				}
				d, err := till.Debit(t.Context(), key, req)
				problem, refused := errors.AsType[*client.Problem](err)
				switch first.Verdict {
				case client.Approved:
					if !refused || problem.Code != client.CodePaymentCancelled {
						t.Errorf("got %+v, %v", d, err)
					}
				case client.Declined:
					if err != nil || d.Code != client.CodeCancelled {
						t.Errorf("got %+v, %v", d, err)
					}
				}
				p, seen, err := till.Reconcile(t.Context(), client.KindDebit, key)
				if err != nil || !seen || p.Approved() {
					t.Errorf("got %+v, %v, %v", p, seen, err)
				}
			})
		})
	}
}
