package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Group commit: what is to be written while a transaction is on its way gathers,
// and leaves together in the next one. A durable commit costs an fsync and a
// transaction of PostgreSQL whatever is in it, so the price of a decision falls
// with the number of tills that wait for one, and nobody waits for company: the
// first who comes leaves at once. One is on its way at a time. With two, one could be
// written while the other waits for the disk, but each would carry half as many: that
// was no faster at 8 tills, and slower at 256. See docs/adr/0018.
//
// Each caller keeps its own deadline and gets its own answer. Nobody's failure is
// anybody else's: when PostgreSQL refuses what a transaction holds, it is known to
// have left nothing, and each caller tries his part alone. When the answer is lost
// it is not known, for none of them, and each is told so.
const (
	// groupMost bounds one shared transaction, and with it the locks that it holds, the
	// time that the first in it waits for the last, and the wave of wallet calls that
	// its claims are followed by: not more at once than the wallet's bulkhead lets in.
	groupMost = 256
	// groupWaiting bounds those who wait. There is one write at a time for each request,
	// so GATE_MAX_IN_FLIGHT and QUEUE_WORKERS bound them as well; this is for the
	// day on which neither does.
	groupWaiting = 32 * groupMost
	// groupPatience is how long a transaction counts as being on its way. One that
	// takes longer is stuck (a connection that hangs, a disk that stalls), and must not
	// be what all others wait for.
	groupPatience = 250 * time.Millisecond
	// groupsStuck bounds those that do not count any more, hence the connections that
	// a database which hangs can take.
	groupsStuck = 6
)

var (
	// errCrowded is what a caller hears who would be one too many.
	errCrowded = errors.New("too many writes are waiting")
	// errAlone is what a caller hears whose part was certainly not written, because of
	// another's or his own: it must be tried alone.
	errAlone = errors.New("the shared transaction was undone")
)

// part is one caller's part of a shared transaction.
type part struct {
	writes   writes
	deadline time.Time  // of the caller, zero if it has none
	ended    chan error // takes one, so that nobody waits for a caller who has left
	left     bool       // the caller has gone before it was taken up; under the group's mutex
}

// group gathers.
type group struct {
	write  func(context.Context, writes) error
	shared func(writes int) (ended func(undone bool))

	mu      sync.Mutex
	waiting []*part
	met     met  // of the transaction that is being taken; kept, so that it is made once
	out     bool // a transaction is on its way
	stuck   int  // those on their way that do not count any more
}

// do writes w in a transaction with others' and returns as the transaction ends, or
// when ctx does. The error is errAlone where w was not written, for certain, and can
// be tried alone.
func (g *group) do(ctx context.Context, w writes) error {
	g.mu.Lock()
	if !g.out && len(g.waiting) == 0 {
		g.out = true
		g.mu.Unlock()
		return g.first(ctx, w)
	}
	if len(g.waiting) >= groupWaiting {
		g.mu.Unlock()
		return errCrowded
	}
	p := &part{writes: w, ended: make(chan error, 1)}
	p.deadline, _ = ctx.Deadline()
	g.waiting = append(g.waiting, p)
	if !g.out { // what was on its way counts no more
		g.sendOff(context.WithoutCancel(ctx))
	}
	g.mu.Unlock()

	select {
	case err := <-p.ended:
		return err
	case <-ctx.Done():
	}
	g.mu.Lock()
	p.left = true
	g.mu.Unlock()
	return fmt.Errorf("wait for a shared transaction: %w", ctx.Err())
}

// first is the transaction of a caller who found nobody there: his own, and so made by
// himself.
func (g *group) first(ctx context.Context, w writes) (err error) {
	g.make(context.WithoutCancel(ctx), 1, func() error {
		err = g.write(ctx, w)
		return err
	})
	return err
}

// sendOff begins a transaction with what waits, if none is on its way. g.mu is held.
// The transaction is not one caller's: ctx must not end with one.
func (g *group) sendOff(ctx context.Context) {
	if len(g.waiting) > 0 && !g.out {
		g.out = true
		go g.run(ctx)
	}
}

// run makes a transaction of what waits.
func (g *group) run(ctx context.Context) {
	g.mu.Lock()
	parts, together := g.take()
	g.out = len(parts) > 0
	g.mu.Unlock()
	if len(parts) == 0 { // all have left
		return
	}
	g.make(ctx, len(parts), func() error {
		err := g.writeWithin(ctx, latest(parts), together)
		if errors.Is(err, errRolledBack) && len(parts) > 1 {
			err = errAlone
		}
		for _, p := range parts {
			p.ended <- err
		}
		return err
	})
}

// make makes a transaction of so many callers. When it has ended, or has taken so long
// that it is not waited for any more, those who have come meanwhile are sent off; also
// when it ended in a panic, which is one request's and must not hold up all others.
func (g *group) make(ctx context.Context, callers int, transact func() error) {
	reported := g.shared(callers)
	var replaced, ended bool // under g.mu
	next := func() {
		g.out = false
		g.sendOff(ctx)
	}
	late := time.AfterFunc(groupPatience, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if !ended && g.stuck < groupsStuck {
			replaced = true
			g.stuck++
			next()
		}
	})
	defer func() {
		late.Stop()
		g.mu.Lock()
		defer g.mu.Unlock()
		ended = true
		if replaced {
			g.stuck--
		} else {
			next()
		}
	}()
	reported(errors.Is(transact(), errAlone))
}

// writeWithin writes by a deadline, zero for none.
func (g *group) writeWithin(ctx context.Context, deadline time.Time, together writes) error {
	if !deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	return g.write(ctx, together)
}

// take takes out of what waits as much as one transaction may hold, in the order of
// arrival. A second write of the same thing waits for the next one: no statement may
// meet a row twice. g.mu is held.
func (g *group) take() (parts []*part, together writes) {
	later := g.waiting[:0]
	defer g.met.forget()
	for _, p := range g.waiting {
		switch {
		case p.left:
		case len(parts) == groupMost || g.met.before(p.writes):
			later = append(later, p)
		default:
			parts = append(parts, p)
			together.add(p.writes)
		}
	}
	clear(g.waiting[len(later):])
	g.waiting = later
	return parts, together
}

// latest is the last of the deadlines of parts, zero if one of them has none: the
// transaction goes on as long as somebody waits for it.
func latest(parts []*part) (deadline time.Time) {
	for _, p := range parts {
		if p.deadline.IsZero() {
			return time.Time{}
		}
		if p.deadline.After(deadline) {
			deadline = p.deadline
		}
	}
	return deadline
}
