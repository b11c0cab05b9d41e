package schedules

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// The time that passes when the tills have left.
const (
	// recovered is when the last claim has arrived, and what nobody came back for is declined.
	recovered = 20 * time.Second
	// atOnce is what is waited for with the workers running, rather than stopping them
	// until it is due: they ask once a second, and nobody needs to ask all day.
	atOnce = 25 * time.Second
	// settled is when nothing of an attempt can land any more, and what was refused
	// meanwhile is believed.
	settled = 16 * time.Minute
	// tooLong is when what has not ended never will: beyond the last late check of what
	// was redriven on the second day.
	tooLong = 8 * 24 * time.Hour
	// redrives is how often an operator tries what is parked.
	redrives = 4
)

// happen lets p happen in the bubble of t, until all is quiet again and every till has
// asked once more for everything.
func happen(t *testing.T, p plan) *world {
	t.Helper()
	w := newWorld(t, p)
	events, tills := w.happen(), w.work()
	tills.Wait()
	time.Sleep(p.Linger)
	w.mend()
	events.Wait()
	time.Sleep(recovered)
	w.rest()
	w.settle()
	w.redrive()
	w.askAgain()
	w.settle()
	if err := w.sim.WaitQuiet(w.ctx); err != nil {
		w.journal.complain("harness", "%v", err)
	}
	return w
}

// rest ends the work of all replicas; they go on serving.
func (w *world) rest() {
	for _, r := range w.replicas {
		p := r.present()
		p.stop()
		<-p.ended
	}
}

// settle lets one replica work whenever something is due, until nothing is any more, or
// what is left waits for what only a person can end.
func (w *world) settle() {
	worker := w.replicas[0].present()
	for begin := time.Now(); ; {
		left, waits := w.ledger.NextDue()
		switch {
		case !waits, time.Since(begin) > 2*settled && len(w.parked()) > 0:
			return
		case time.Since(begin) > tooLong:
			w.journal.complain("I13", "something is due for ever")
			return
		}
		time.Sleep(left)
		ctx, stop := context.WithCancel(w.ctx)
		done := make(chan struct{})
		go func() {
			defer close(done)
			worker.Queue.Run(ctx)
		}()
		for waits && left < atOnce && time.Since(begin) <= tooLong {
			time.Sleep(503 * ms)
			left, waits = w.ledger.NextDue()
		}
		stop()
		<-done
	}
}

// redrive is what an operator does when the wallet is well again: what is parked is
// tried once more.
func (w *world) redrive() {
	for range redrives {
		parked := w.parked()
		if len(parked) == 0 {
			return
		}
		time.Sleep(settled)
		for _, f := range parked {
			w.journal.mark("queue: parked: " + f.ParkReason)
			w.journal.note("operator: redrive %s %s, parked %s %s", f.Kind, f.ID, f.ParkReason, f.Code)
			if r, err := w.ledger.Redrive(w.ctx, f.ID, "ada", "the wallet is well again"); err != nil || r.Status != payment.OperatorDone {
				w.journal.complain("harness", "redrive: status %d, %v", r.Status, err)
			}
		}
		w.settle()
	}
}

// parked is what waits for a person.
func (w *world) parked() []payment.FollowUpDetail {
	parked, err := w.ledger.Parked(w.ctx, 0)
	if err != nil {
		w.journal.complain("harness", "%v", err)
	}
	return parked
}

// askAgain sends every request for a payment once more, cancels nothing, and asks for
// what every debit and captured hold can still give back: one unit too much first.
func (w *world) askAgain() {
	t := w.newTill(len(w.plan.Tills))
	defer t.close()
	for i, k := range w.plan.Keys {
		if w.asked(i, pay) {
			t.once(act{Deed: pay, Key: i})
		}
		t.once(act{Deed: look, Key: i})
		p, found, err := w.ledger.PaymentByKey(w.ctx, owners[k.Caller], payment.Operation(k.operation()), payment.Key(k.name(i)))
		if err != nil {
			w.journal.complain("harness", "%v", err)
		}
		if found {
			w.giveBack(t, i, p)
		}
	}
}

// once does an act that is not in the plan.
func (t *till) once(a act) *exchange {
	time.Sleep(ms)
	a.Deadline = none
	e := t.do(a)
	e.last = true
	return e
}

// asked reports whether a till has done this deed about the i-th key.
func (w *world) asked(i int, d deed) bool {
	for _, acts := range w.plan.Tills {
		for _, a := range acts {
			at, _ := w.plan.key(a)
			if at == i && a.Deed == d || d == pay && a.Deed == payBurst && i >= at && i < at+bursts[payBurst] {
				return true
			}
		}
	}
	return false
}

// giveBack asks for what p can still give back.
func (w *world) giveBack(t *till, i int, p payment.Payment) {
	left, ok := refundable(p)
	if !ok || left <= 0 {
		return
	}
	for _, c := range []struct {
		second int
		amount int64
		status int
	}{{98, left + 1, 422}, {99, left, 202}} {
		e := t.creditOf(i, p.ID, c.second, c.amount)
		if e.status != c.status {
			w.journal.complain("I3", "%s can give back %d, and a credit of %d is answered %d %s", w.plan.Keys[i].name(i), left, c.amount, e.status, e.told.Code)
			continue
		}
		if c.status == 202 && w.gaveBack(p) {
			w.journal.mark(markGivenBackAndTaken)
		}
	}
}

// creditOf asks for a credit of that amount.
func (t *till) creditOf(i int, id uuid.UUID, second int, amount int64) *exchange {
	time.Sleep(ms)
	k := t.w.plan.Keys[i]
	a := act{Deed: credit, Key: i, Second: second, Deadline: none}
	e := &exchange{till: t.n, act: a, keyOf: i, method: "POST", on: t.w.replicas[0].present(), path: "/credits", follow: followUpKey(i, a), last: true}
	e.body = creditBody(k, id.String(), k.Account, amount)
	t.send(e, k)
	return e
}

// gaveBack reports whether a credit of p was refused by the wallet.
func (w *world) gaveBack(p payment.Payment) bool {
	for _, f := range p.FollowUps {
		if f.Kind == payment.Credit && f.State == payment.Refused {
			return true
		}
	}
	return false
}

// refundable is what a payment can still give back, by what the contract says; false
// where it takes no credits.
func refundable(p payment.Payment) (left int64, ok bool) {
	if p.State != payment.Approved {
		return 0, false
	}
	left, ok = p.Amount.AmountMinor, p.Operation == payment.Debit
	for _, f := range p.FollowUps {
		switch {
		case f.Kind == payment.Reversal:
			return 0, false
		case f.Kind == payment.Capture && f.State == payment.Succeeded:
			left, ok = left-p.Amount.AmountMinor+f.Amount.AmountMinor, true
		case f.Kind == payment.Credit && f.State != payment.Refused:
			left -= f.Amount.AmountMinor
		}
	}
	return left, ok
}
