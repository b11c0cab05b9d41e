package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// book is a database that a test holds in its hand: each transaction waits there
// until the test ends it.
type book struct {
	group *group
	made  chan made
}

// made is a transaction on its way.
type made struct {
	writes
	ctx context.Context //nolint:containedctx // what the transaction was made with is what a test looks at
	end chan<- error
}

func newBook() *book {
	b := &book{made: make(chan made, 100)}
	b.group = &group{
		write: func(ctx context.Context, w writes) error {
			end := make(chan error, 1)
			b.made <- made{w, ctx, end}
			select {
			case err := <-end:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		},
		shared: func(int) func(bool) { return func(bool) {} },
	}
	return b
}

// one is a write of its own row.
func one() writes { return writes{decisions: []*deciding{{id: uuid.New()}}} }

// send writes each of all, in this order, and gives the channels of their answers.
func (b *book) send(ctx context.Context, all ...writes) (answers []<-chan error) {
	for _, w := range all {
		answer := make(chan error, 1)
		answers = append(answers, answer)
		go func() { answer <- b.group.do(ctx, w) }()
		synctest.Wait()
	}
	return answers
}

// front lets a transaction be on its way, of one write.
func (b *book) front(ctx context.Context) made {
	b.send(ctx, one())
	return <-b.made
}

// Nobody waits for company: a till alone must not be slower than it was without
// groups. Those who come meanwhile leave together, in one transaction.
func TestTheFirstLeavesAtOnceAndTheNextLeaveTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		front := b.front(t.Context())
		answers := b.send(t.Context(), one(), one(), one())
		if len(b.made) != 0 {
			t.Fatalf("%d transactions more than may be on their way", len(b.made))
		}
		front.end <- nil
		synctest.Wait()
		next := <-b.made
		if got := next.count(); got != 3 {
			t.Errorf("%d writes left together, want the 3 that waited", got)
		}
		next.end <- nil
		for _, a := range answers {
			if err := <-a; err != nil {
				t.Error(err)
			}
		}
	})
}

// What one caller's part does to a transaction must not be another's failure: the
// others' parts are certainly not written, so each may be tried alone. Alone in
// its transaction, a part fails with its own error.
func TestARefusedTransactionSendsEachOfItsCallersOffAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		front := b.front(t.Context())
		answers := b.send(t.Context(), one(), one())
		front.end <- nil
		synctest.Wait()
		poison := fmt.Errorf("poison: %w", errRolledBack)
		(<-b.made).end <- poison
		for _, a := range answers {
			if err := <-a; !errors.Is(err, errAlone) {
				t.Errorf("a refused transaction ended as %v", err)
			}
		}
		answers = b.send(t.Context(), one())
		(<-b.made).end <- poison
		if err := <-answers[0]; !errors.Is(err, poison) {
			t.Errorf("alone, it ended as %v", err)
		}
	})
}

// An answer that never came is not known, for none of those who shared the
// transaction; to try again what may be durable would be a second write.
func TestAnUnknownCommitIsUnknownForEachAndTriedByNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		front := b.front(t.Context())
		answers := b.send(t.Context(), one(), one())
		front.end <- nil
		synctest.Wait()
		lost := errors.New("conn closed")
		(<-b.made).end <- lost
		for _, a := range answers {
			if err := <-a; !errors.Is(err, lost) || errors.Is(err, errAlone) {
				t.Errorf("a lost answer ended as %v", err)
			}
		}
	})
}

// A till that has less time than the one beside it is answered in its own time, and
// the transaction goes on as long as somebody waits for it.
func TestEachCallerHasItsOwnDeadlineInASharedTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		front := b.front(t.Context())
		begin := time.Now()
		hasty, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		patient, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		first := b.send(hasty, one())[0]
		second := b.send(patient, one())[0]
		front.end <- nil
		shared := <-b.made

		if err := <-first; !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 100*time.Millisecond {
			t.Errorf("the hasty one heard %v after %v", err, time.Since(begin))
		}
		if err := <-second; !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 200*time.Millisecond {
			t.Errorf("the patient one heard %v after %v", err, time.Since(begin))
		}
		if end, ok := shared.ctx.Deadline(); !ok || end.Sub(begin) != 200*time.Millisecond {
			t.Errorf("the transaction may take until %v after its begin, want the latest of its callers", end.Sub(begin))
		}
	})
}

// Whoever has left before his part was taken up is told that it failed: it must not
// be written behind his back.
func TestWhatNobodyWaitsForAnyMoreIsNotWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		front := b.front(t.Context())
		ctx, leave := context.WithCancel(t.Context())
		gone := b.send(ctx, one())[0]
		b.send(t.Context(), one())
		leave()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Fatalf("the one who left heard %v", err)
		}
		front.end <- nil
		next := <-b.made
		if got := next.count(); got != 1 {
			t.Errorf("%d parts were written, want that of the one who still waits", got)
		}
		next.end <- nil
	})
}

// One connection that hangs must not be what every till waits for.
func TestAStuckTransactionHoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		begin := time.Now()
		stuck := b.front(t.Context())
		answer := b.send(t.Context(), one())[0]
		(<-b.made).end <- nil
		if err := <-answer; err != nil || time.Since(begin) != groupPatience {
			t.Errorf("the one behind was answered after %v: %v", time.Since(begin), err)
		}
		// As often as it happens, what hangs is bounded, and so are the connections it has.
		for range groupsStuck + 3 {
			b.send(t.Context(), one())
			time.Sleep(groupPatience)
		}
		if most := groupsStuck; len(b.made) > most {
			t.Errorf("%d more transactions are on their way to a database that hangs", len(b.made))
		}
		// When they end after all, their places are free again, and no more than those.
		stuck.end <- nil
		for synctest.Wait(); len(b.made) > 0; synctest.Wait() {
			(<-b.made).end <- nil
		}
		b.group.mu.Lock()
		defer b.group.mu.Unlock()
		if b.group.out || b.group.stuck != 0 || len(b.group.waiting) != 0 {
			t.Errorf("at rest: on its way %v, %d stuck, %d waiting", b.group.out, b.group.stuck, len(b.group.waiting))
		}
	})
}

// A caller makes his own transaction. What panics in it is his request's trouble; were it
// the group's, nobody would write any more until the process is replaced.
func TestAPanicInATransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		write := b.group.write
		for range groupsStuck + 1 {
			b.group.write = func(context.Context, writes) error { panic("a bug") }
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic was swallowed")
					}
				}()
				_ = b.group.do(t.Context(), one())
			}()
		}
		b.group.write = write
		time.Sleep(2 * groupPatience)
		answer := b.send(t.Context(), one())[0]
		(<-b.made).end <- nil
		if err := <-answer; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if b.group.out || b.group.stuck != 0 {
			t.Errorf("at rest: on its way %v, %d stuck", b.group.out, b.group.stuck)
		}
	})
}

// A statement that meets a row twice fails, or does half of what it says. The second
// comes with the next transaction, where it finds what the first has done.
func TestASecondWriteOfTheSameGoesWithTheNextTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		front := b.front(t.Context())
		claim := func(key payment.Key, op payment.Operation) writes {
			c, err := newClaiming(payment.Request{Caller: "store-17", Operation: op, Key: key})
			if err != nil {
				t.Fatal(err)
			}
			return writes{claims: []*claiming{c}}
		}
		row := one()
		b.send(t.Context(), claim("a", payment.Debit), row, claim("a", payment.Debit), claim("a", payment.Hold), row)
		front.end <- nil
		for _, want := range []int{3, 2} {
			synctest.Wait()
			m := <-b.made
			if got := m.count(); got != want {
				t.Errorf("%d writes in one transaction, want %d", got, want)
			}
			m.end <- nil
		}
	})
}

// What waits is bounded, and so is what one transaction locks.
func TestGroupsAndTheirQueueAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBook()
		front := b.front(t.Context())
		var waiting sync.WaitGroup
		for range groupWaiting {
			waiting.Go(func() { _ = b.group.do(t.Context(), one()) })
		}
		synctest.Wait()
		if err := b.group.do(t.Context(), one()); !errors.Is(err, errCrowded) {
			t.Errorf("one too many heard %v", err)
		}
		front.end <- nil
		for left := groupWaiting; left > 0; {
			m := <-b.made
			if m.count() > groupMost {
				t.Fatalf("%d writes in one transaction", m.count())
			}
			left -= m.count()
			m.end <- nil
		}
		waiting.Wait()
	})
}
