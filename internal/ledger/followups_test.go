package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// A request that waits for its payment's row waits for its own twin, more often than
// not. What it saw before it waited is old: judged by that, a till would be told
// that its own capture is in its way.
func TestAcceptLooksAtItsKeyAgainWhenItHoldsThePayment(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	hold := approved(t, l, payment.Hold, "hold")
	req := ledgertest.Capture(hold, "capture", 0)
	watch := db.Connect(t)
	tx := begin(t, db)
	hash, fingerprint := req.Key.Hash(), req.Fingerprint()
	if _, err := tx.Exec(t.Context(), "SELECT FROM public.payments WHERE id = $1 FOR NO KEY UPDATE", hold.ID.String()); err != nil {
		t.Fatal(err)
	}

	type result struct {
		acceptance payment.Acceptance
		err        error
	}
	const both = 2
	results := make(chan result, both)
	other := ledgertest.Release(hold, "release")
	for _, r := range []payment.FollowUpRequest{req, other} {
		go func() {
			a, err := l.Accept(t.Context(), r)
			results <- result{a, err}
		}()
	}
	waiting := func() (n int) {
		t.Helper()
		if err := watch.QueryRow(t.Context(), "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for end := time.Now().Add(20 * time.Second); waiting() < both; {
		if time.Now().After(end) {
			t.Fatal("nobody waits for the payment")
		}
	}
	if _, err := tx.Exec(t.Context(), `
INSERT INTO public.operations (id, kind, payment_id, outbound_key, caller, key_hash, fingerprint, amount_minor, currency, state, turn, created_at, due_at)
VALUES ($1, 'capture', $2, $3, $4, $5, $6, 1250, 'EUR', 'PENDING', 'FIRST', now(), now())`,
		uuid.New().String(), hold.ID.String(), req.DeriveReference().String(), req.Caller, hash[:], fingerprint[:]); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}

	got := map[payment.AcceptanceStatus]int{}
	for range both {
		r := <-results
		if r.err != nil {
			t.Error(r.err)
		}
		got[r.acceptance.Status]++
	}
	if got[payment.AcceptedBefore] != 1 || got[payment.HoldAlreadyCaptured] != 1 {
		t.Errorf("%v, want the twin's follow-up for one and its capture in the other's way", got)
	}
}

// A till that asks again for what it has been told is the commonest request there is
// when a network is bad. It must not lock, nor write, nor wait for a disk.
func TestReplayOfAnAcceptWritesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	req := ledgertest.Credit(approved(t, l, payment.Debit, "debit"), "credit", 100)
	accepted(t, l, req)
	conn := db.Connect(t)
	locks := func() (s string) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), "SELECT (SELECT string_agg(xmax::text, ' ') FROM public.payments) || ', ' || (SELECT string_agg(xmax::text, ' ') FROM public.operations)").Scan(&s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := locks()
	for range 3 {
		if a, err := l.Accept(t.Context(), req); err != nil || a.Status != payment.AcceptedBefore {
			t.Fatalf("a replay: status %d, %v", a.Status, err)
		}
	}
	if after := locks(); after != before {
		t.Errorf("rows were locked: %s, before %s", after, before)
	}
}

// A 202 whose commit was not answered is not known to have happened, and is durable
// all the same (trap L9). The same request again must find it.
func TestLostCommitAnswerOfAnAcceptIsUnknownAndReplayConverges(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	watch := db.Connect(t)
	proxy := newCutter(t, db.URL)
	l, _ := open(t, proxy.url, ledger.Options{MaxConns: 1}, never)
	debit := approved(t, l, payment.Debit, "debit")
	accepted(t, l, ledgertest.Credit(debit, "first, so that the connection knows its statements", 1))
	req := ledgertest.Credit(debit, "lost", 100)

	heard := proxy.loseAnswers()
	result := make(chan error, 1)
	go func() {
		_, err := l.Accept(t.Context(), req)
		result <- err
	}()
	until(t, heard, func() (yes bool) {
		if err := watch.QueryRow(t.Context(), "SELECT count(*) = 2 FROM public.operations").Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	})
	proxy.cut()
	if err := <-result; err == nil {
		t.Fatal("an accept whose commit was not answered is reported as done")
	}
	again, err := l.Accept(t.Context(), req)
	if err != nil || again.Status != payment.AcceptedBefore {
		t.Errorf("the same again: status %d, %v", again.Status, err)
	}
}

// Everybody who can meet at a payment does, over and over. A deadlock would cost a
// second and somebody's request; two that both believe to have won cost money.
func TestEverythingAtOnceOnFewPaymentsNeverDeadlocksAndAddsUp(t *testing.T) {
	t.Parallel()
	const payments, rounds, actors = 4, 25, 6
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{MaxConns: actors}, never)
	all := make([]payment.Payment, payments)
	for i := range all {
		op := payment.Debit
		if i%2 == 1 {
			op = payment.Hold
		}
		all[i] = approved(t, l, op, payment.Key(fmt.Sprintf("payment-%d", i)))
	}

	act := func(ctx context.Context, actor, round int) error {
		p := all[(actor+round)%payments]
		key := payment.Key(fmt.Sprintf("%d-%d", actor, round))
		switch actor {
		case 0, 1:
			req := ledgertest.Credit(p, key, 400)
			if p.Operation == payment.Hold {
				req = ledgertest.Capture(p, key, 1000)
			}
			if round%5 == 0 {
				req.Key = payment.Key(fmt.Sprintf("same-%d", round)) // of two payments
			}
			_, err := l.Accept(ctx, req)
			return err
		case 2:
			if p.Operation == payment.Hold {
				_, err := l.Accept(ctx, ledgertest.Release(p, key))
				return err
			}
			_, err := l.Claim(ctx, ledgertest.Request(key))
			return err
		case 3:
			if round < rounds/2 { // then nothing more is accepted
				return nil
			}
			_, err := l.CancelByKey(ctx, p.Caller, p.Operation, payment.Key(fmt.Sprintf("payment-%d", (actor+round)%payments)), nil)
			return err
		case 4:
			_, err := l.Recover(ctx)
			return err
		}
		work, err := l.Lease(ctx, order(3))
		for i, w := range work {
			s := payment.Settlement{ID: w.ID, Fence: w.Fence, State: payment.Succeeded, WalletID: "w", TargetID: w.TargetID}
			if i%2 == 1 && w.Kind != payment.Reversal {
				s.State, s.WalletID, s.Code = payment.Refused, "", "ACCOUNT_LOCKED"
			}
			_, settleErr := l.Settle(ctx, s)
			err = errors.Join(err, settleErr)
		}
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for actor := range actors {
		wg.Go(func() {
			for round := range rounds {
				if err := act(ctx, actor, round); err != nil {
					t.Errorf("actor %d: %v", actor, err)
				}
			}
		})
	}
	wg.Wait()

	var wrong int
	if err := db.Connect(t).QueryRow(t.Context(), `
SELECT count(*) FROM (
    SELECT p.id FROM public.payments AS p JOIN public.operations AS o ON o.payment_id = p.id
    WHERE o.state <> 'REJECTED'
    GROUP BY p.id
    HAVING coalesce(sum(o.amount_minor) FILTER (WHERE o.kind = 'credit'), 0) > p.amount_minor
        OR count(*) FILTER (WHERE o.kind IN ('capture', 'release')) + count(*) FILTER (WHERE o.kind = 'reversal' AND p.operation = 'hold') > 1) AS w`).Scan(&wrong); err != nil {
		t.Fatal(err)
	}
	if wrong != 0 {
		t.Errorf("%d payments have given more than they took, or ended twice", wrong)
	}
}
