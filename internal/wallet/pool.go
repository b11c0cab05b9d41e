package wallet

import (
	"bufio"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// conn is one connection to the wallet. It belongs to one call at a time, or to
// the pool.
type conn struct {
	net.Conn                 // TLS, if that is spoken
	plain    net.Conn        // what it is spoken over
	socket   syscall.RawConn // what lies below; nil where it is no socket, as in a test's pipe
	in       *bufio.Reader   // reads through conn.Read
	out      []byte          // the request; its room is kept for the next one
	question http.Request    // what the answer is read as the answer to
	left     int64           // how much of the answer may still be read
	ioErr    error           // what ended the reading of the answer
	since    time.Time       // idle since
	idled    time.Duration   // how long it had been idle when it was taken, 0 for a new one
}

func newConn(plain, spoken net.Conn) *conn {
	c := &conn{Conn: spoken, plain: plain}
	if s, ok := plain.(syscall.Conn); ok {
		if raw, err := s.SyscallConn(); err == nil {
			c.socket = raw
		}
	}
	c.in = bufio.NewReader(c)
	return c
}

// discard closes the connection below TLS: TLS's own farewell is a write, and may
// wait for seconds on a wallet that has stopped reading.
func (c *conn) discard() { _ = c.plain.Close() }

// quiet reports whether nothing has come in on an idle connection: no end, and
// no byte either. Bytes that nobody asked for are somebody else's late answer,
// and would be taken for the answer to whatever is asked next.
func (c *conn) quiet() bool {
	if secure, ok := c.Conn.(*tls.Conn); ok && !drained(secure) {
		return false
	}
	return c.socket == nil || silent(c.socket)
}

// drained reports whether TLS holds no bytes that it has already taken from the
// socket. With a deadline that is over it reads from its own buffer only; a read
// that times out leaves TLS intact (a write would not).
func drained(secure *tls.Conn) bool {
	if err := secure.SetReadDeadline(past()); err != nil {
		return false
	}
	var b [1]byte
	if n, err := secure.Read(b[:]); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	return secure.SetReadDeadline(time.Time{}) == nil
}

// pool keeps connections between calls. What it must never do is to let a call
// write to a connection that the wallet is closing: the request would be lost,
// nobody could tell whether it was read, and a healthy wallet would look like
// one that does not answer. Looking right before the write (quiet) finds what has
// been closed, but not what is being closed at this moment. So a connection is
// only used if it has been idle for at most half as long as one was seen to stay
// open: a wallet with a fixed keep-alive can then not be met in the act. What is
// idle for longer is watched, not used, and a new connection costs less than a
// doubt. Nothing needs to be known about the wallet, and after a restart that
// closed connections of any age the pool finds its way back by itself.
type pool struct {
	size int
	most time.Duration // none is kept for longer

	mu     sync.Mutex
	idle   []*conn // the longest idle first
	closed bool
	// open is the longest that an idle connection was seen to stay open, since
	// one was last found closed sooner.
	open  time.Duration
	sweep *time.Timer // closes what nobody takes any more; nil while nothing is idle
}

func newPool(size int, most time.Duration) *pool { return &pool{size: size, most: most} }

// take returns an idle connection that may be written to now, or nil.
func (p *pool) take() *conn {
	for {
		c := p.pop(time.Now())
		if c == nil || c.quiet() {
			return c
		}
		c.discard()
		p.closedAfter(c.idled)
	}
}

// pop takes the connection that has been idle for the shortest time, if even
// that is short enough.
func (p *pool) pop(now time.Time) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	p.watch(now)
	last := len(p.idle) - 1
	if last < 0 {
		return nil
	}
	c := p.idle[last]
	if c.idled = now.Sub(c.since); c.idled > p.open/2 {
		return nil
	}
	p.idle[last] = nil
	p.idle = p.idle[:last]
	return c
}

// watch looks whether the connection that has been idle for the longest time is
// still open, where that would be news. p.mu is held.
func (p *pool) watch(now time.Time) {
	for len(p.idle) > 0 {
		oldest := p.idle[0]
		age := now.Sub(oldest.since)
		if age <= p.open {
			return
		}
		if oldest.quiet() {
			p.open = age
			return
		}
		oldest.discard()
		p.idle = slices.Delete(p.idle, 0, 1)
	}
}

// closedAfter says that the wallet closed, or spoiled, a connection that had been
// idle for d.
func (p *pool) closedAfter(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = min(p.open, d)
}

// put keeps c for a later call. If there are enough, another goes: calls that come in
// waves would otherwise find the pool full of connections that are too old to be used,
// and make new ones for every wave. The longest idle stays, because it is the one that
// tells how old one may become.
func (p *pool) put(c *conn) {
	now := time.Now()
	c.since = now
	if !p.keep(c, now) {
		c.discard()
	}
}

func (p *pool) keep(c *conn, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(now)
	if p.closed || p.most == 0 || p.size == 0 {
		return false
	}
	if len(p.idle) >= p.size {
		old := min(1, p.size-1)
		p.idle[old].discard()
		p.idle = slices.Delete(p.idle, old, old+1)
	}
	p.idle = append(p.idle, c)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(p.most, p.sweepIdle)
	}
	return true
}

// expire closes what has been idle for too long. p.mu is held;
// closing does not wait for the wallet.
func (p *pool) expire(now time.Time) {
	n := 0
	for n < len(p.idle) && now.Sub(p.idle[n].since) >= p.most {
		p.idle[n].discard()
		n++
	}
	p.idle = slices.Delete(p.idle, 0, n)
}

// sweepIdle closes connections while no calls come by that would.
func (p *pool) sweepIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expire(time.Now())
	p.sweep = nil
	if len(p.idle) > 0 && !p.closed {
		p.sweep = time.AfterFunc(p.most, p.sweepIdle)
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	if p.sweep != nil {
		p.sweep.Stop()
		p.sweep = nil
	}
	for _, c := range p.idle {
		c.discard()
	}
	p.idle = nil
}
