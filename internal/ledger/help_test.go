package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
)

// suite is a Ledger with what the suite needs of a worker.
type suite struct{ *ledger.Ledger }

// End ends a follow-up as an attempt would, whatever else is due.
func (s suite) End(ctx context.Context, id uuid.UUID, state payment.FollowUpState, code payment.Code, walletID string) error {
	work, err := s.Lease(ctx, order(1000))
	if err != nil {
		return err
	}
	for _, w := range work {
		if w.ID != id {
			if err := s.HandBack(ctx, w); err != nil {
				return err
			}
			continue
		}
		settlement := payment.Settlement{ID: id, Fence: w.Fence, State: state, Code: code, WalletID: walletID, TargetID: w.TargetID}
		if state == payment.Parked {
			settlement.ParkReason = "OUT_OF_TIME"
		}
		settled, err := s.Settle(ctx, settlement)
		if err == nil && !settled {
			err = errors.New("the lease was not the newest")
		}
		if err != nil {
			return err
		}
		id = uuid.Nil
	}
	if id != uuid.Nil {
		return errors.New("the follow-up is not due")
	}
	return nil
}

// approved is a payment of 12.50 that the wallet has applied.
func approved(tb testing.TB, l *ledger.Ledger, op payment.Operation, key payment.Key) payment.Payment {
	tb.Helper()
	req := ledgertest.Request(key)
	req.Operation = op
	claim, err := l.Claim(tb.Context(), req)
	if err != nil || claim.Status != payment.ClaimNew {
		tb.Fatalf("claim: status %d, %v", claim.Status, err)
	}
	p, err := l.Decide(tb.Context(), claim.Payment, payment.Approve("w-"+claim.Payment.ID.String()))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func accepted(tb testing.TB, l *ledger.Ledger, req payment.FollowUpRequest) payment.FollowUp {
	tb.Helper()
	a, err := l.Accept(tb.Context(), req)
	if err != nil {
		tb.Fatal(err)
	}
	if a.Status != payment.Accepted {
		tb.Fatalf("accept a %s: status %d, want it to be accepted", req.Kind, a.Status)
	}
	return a.FollowUp
}

// cancelled cancels a key of ledgertest.Request's caller.
func cancelled(tb testing.TB, l *ledger.Ledger, op payment.Operation, key payment.Key) payment.Cancellation {
	tb.Helper()
	c, err := l.CancelByKey(tb.Context(), ledgertest.Request(key).Caller, op, key, nil)
	if err != nil {
		tb.Fatal(err)
	}
	if c.Status != payment.CancelledPayment {
		tb.Fatalf("cancel: status %d, want it to be cancelled", c.Status)
	}
	return c
}

func followUps(tb testing.TB, l *ledger.Ledger, p payment.Payment) []payment.FollowUp {
	tb.Helper()
	read, found, err := l.PaymentByID(tb.Context(), p.Caller, p.ID)
	if err != nil || !found {
		tb.Fatalf("read %s: found %v, %v", p.ID, found, err)
	}
	return read.FollowUps
}

func leased(tb testing.TB, l *ledger.Ledger, o payment.LeaseOrder) []payment.Work {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second) // a lease waits for nobody
	defer cancel()
	work, err := l.Lease(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	return work
}

// leaseOne leases the only work that is due.
func leaseOne(tb testing.TB, l *ledger.Ledger) payment.Work {
	tb.Helper()
	work := leased(tb, l, order(10))
	if len(work) != 1 {
		tb.Fatalf("%d are due, want one", len(work))
	}
	return work[0]
}

// settle ends the attempt at w, and must be the one who does.
func settle(tb testing.TB, l *ledger.Ledger, w payment.Work, s payment.Settlement) {
	tb.Helper()
	if !trySettle(tb, l, w, s) {
		tb.Fatalf("%s is not settled: somebody else has", w.Kind)
	}
}

func trySettle(tb testing.TB, l *ledger.Ledger, w payment.Work, s payment.Settlement) bool {
	tb.Helper()
	s.ID, s.Fence = w.ID, w.Fence
	settled, err := l.Settle(tb.Context(), s)
	if err != nil {
		tb.Fatal(err)
	}
	return settled
}

// end ends a follow-up that is due.
func end(tb testing.TB, l *ledger.Ledger, id uuid.UUID, s payment.Settlement) {
	tb.Helper()
	if err := (suite{l}).End(tb.Context(), id, s.State, s.Code, s.WalletID); err != nil {
		tb.Fatal(err)
	}
}

// execute runs SQL as an operator with a console would.
func execute(tb testing.TB, conn *pgx.Conn, sql string, args ...any) {
	tb.Helper()
	if _, err := conn.Exec(tb.Context(), sql, args...); err != nil {
		tb.Fatal(err)
	}
}

// runOut makes every lease run out, and what is due later be due now.
func runOut(tb testing.TB, conn *pgx.Conn) {
	tb.Helper()
	execute(tb, conn, "UPDATE public.operations SET due_at = clock_timestamp() - interval '1 second' WHERE due_at IS NOT NULL")
}
