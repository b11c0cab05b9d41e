package budget

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Context is ctx with d as its deadline. A timer runs for it only from when somebody waits
// for its end (Done). A step that gives its deadline to a connection does not, and timers,
// for each step of each decision, were four hundredths of the server's CPU.
func (d Deadline) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	c := &bounded{parent: ctx, deadline: d.at}
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(d.at) {
		c.deadline = sooner
	}
	return c, c.cancel
}

// EndsByDeadlineOnly reports whether ctx has a deadline and nothing else that ends it
// before its owner is done with it. Whoever keeps to the deadline need not wait for ctx.
func EndsByDeadlineOnly(ctx context.Context) bool {
	c, ok := ctx.(*bounded)
	return ok && c.parent.Done() == nil
}

// bounded is what Context gives.
type bounded struct {
	parent   context.Context
	deadline time.Time

	armed atomic.Pointer[armed] // nil until somebody waits for the end; stored under mu
	mu    sync.Mutex
	err   error // of one that ended unarmed
}

// armed is a context with a timer, and what ends it.
type armed struct {
	context.Context

	end context.CancelFunc
}

func (c *bounded) Deadline() (time.Time, bool) { return c.deadline, true }

func (c *bounded) Done() <-chan struct{} {
	if a := c.armed.Load(); a != nil {
		return a.Done()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.armed.Load()
	if a == nil {
		a = &armed{}
		a.Context, a.end = context.WithDeadline(c.parent, c.deadline)
		if c.unarmedErr() != nil {
			a.end()
		}
		c.armed.Store(a)
	}
	return a.Done()
}

func (c *bounded) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// What was once said stays, also where it was armed afterwards.
	if a := c.armed.Load(); a != nil && c.err == nil {
		return a.Err()
	}
	return c.unarmedErr()
}

// unarmedErr is Err without a timer. c.mu is held.
func (c *bounded) unarmedErr() error {
	if c.err == nil {
		c.err = c.parent.Err()
	}
	if c.err == nil && !time.Now().Before(c.deadline) {
		c.err = context.DeadlineExceeded
	}
	return c.err
}

// Value asks what is armed, so that contexts made of this one are ended with it, and not
// by a goroutine each.
func (c *bounded) Value(key any) any {
	if a := c.armed.Load(); a != nil {
		return a.Value(key)
	}
	return c.parent.Value(key)
}

func (c *bounded) cancel() {
	c.mu.Lock()
	a := c.armed.Load()
	if a == nil && c.unarmedErr() == nil {
		c.err = context.Canceled
	}
	c.mu.Unlock()
	if a != nil {
		a.end() // unlocked: whoever hears of it may ask us
	}
}
