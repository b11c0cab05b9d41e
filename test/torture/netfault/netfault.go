// Package netfault is a TCP proxy that spoils what it carries: it delays, holds back,
// drops, cuts and refuses, while it runs and for both directions apart. What it did it
// says, so that a fault that met nobody is not counted.
package netfault

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Way is what is done to a chunk of bytes on its way.
type Way uint8

// The ways.
const (
	Pass Way = iota
	Late     // passed on, Delay later
	Hold     // kept until the fault ends, and then passed on
	Drop     // lost; the connection stays, and what follows is lost as well
	Cut      // lost, and the connection is reset
)

// Fault is how a proxy spoils connections. The zero Fault spoils nothing.
type Fault struct {
	// Ask is what happens to what clients say, Answer to what the server says.
	Ask, Answer Way
	Delay       time.Duration // of Late
	// Only limits it to chunks that contain these bytes; nil: all.
	Only []byte
	// Once: after the first chunk that it met it is over.
	Once bool
	// Refuse: new connections are closed as soon as they are there; CutAll: those that
	// are open are reset when it begins.
	Refuse, CutAll bool
}

// Proxy carries connections to a target. Make it with Listen.
type Proxy struct {
	listener net.Listener
	ctx      context.Context //nolint:containedctx // the proxy's own life, ended by Close
	end      context.CancelFunc
	carrying sync.WaitGroup

	mu     sync.Mutex
	target string
	fault  Fault
	met    int           // chunks and connections that the fault met
	first  chan struct{} // closed when met first
	over   chan struct{} // closed when the fault ends
	pairs  map[*pair]struct{}
}

type pair struct{ client, server net.Conn }

// Listen starts a proxy before target on a free port of the loopback.
func Listen(ctx context.Context, target string) (*Proxy, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, pairs: map[*pair]struct{}{}}
	p.ctx, p.end = context.WithCancel(ctx)
	p.renew(Fault{})
	p.carrying.Go(p.accept)
	return p, nil
}

// Addr is where it listens.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Target lets new connections lead to target. Open ones stay.
func (p *Proxy) Target(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Begin puts f in force in the place of what was. The channel is closed when it met a
// chunk or a connection for the first time.
func (p *Proxy) Begin(f Fault) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.renew(f)
	if f.CutAll {
		for c := range p.pairs {
			p.meet()
			c.reset()
		}
	}
	return p.first
}

// End ends the fault in force, and says how often it met something. What it held is
// passed on; connections of which it lost something are reset, because what follows
// would no longer make sense.
func (p *Proxy) End() (met int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	met = p.met
	p.renew(Fault{})
	return met
}

// renew is called under the lock.
func (p *Proxy) renew(f Fault) {
	if p.over != nil {
		close(p.over)
	}
	p.fault, p.met = f, 0
	p.first, p.over = make(chan struct{}), make(chan struct{})
}

// meet counts under the lock.
func (p *Proxy) meet() {
	if p.met++; p.met == 1 {
		close(p.first)
	}
}

// Close ends it and everything that it carries.
func (p *Proxy) Close() {
	p.end()
	_ = p.listener.Close()
	p.mu.Lock()
	for c := range p.pairs {
		c.reset()
	}
	p.mu.Unlock()
	p.carrying.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed), err != nil && p.ctx.Err() != nil:
			return
		case err != nil:
			continue
		}
		p.carrying.Go(func() { p.carry(client) })
	}
}

func (p *Proxy) carry(client net.Conn) {
	p.mu.Lock()
	target, refuse := p.target, p.fault.Refuse
	if refuse {
		p.meet()
	}
	p.mu.Unlock()
	const patience = 5 * time.Second
	dialer := net.Dialer{Timeout: patience}
	c := &pair{client: client}
	if refuse {
		reset(client)
		return
	}
	server, err := dialer.DialContext(p.ctx, "tcp", target)
	if err != nil {
		reset(client)
		return
	}
	c.server = server
	p.mu.Lock()
	p.pairs[c] = struct{}{}
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { p.copy(c, client, server, true) })
	both.Go(func() { p.copy(c, server, client, false) })
	both.Wait()
	p.mu.Lock()
	delete(p.pairs, c)
	p.mu.Unlock()
	_, _ = client.Close(), server.Close()
}

// copy carries one direction until it ends.
func (p *Proxy) copy(c *pair, from, to net.Conn, asks bool) {
	buf := make([]byte, 16<<10)
	lost := false
	for {
		n, err := from.Read(buf)
		if err != nil {
			if half, ok := to.(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
			return
		}
		way, delay, over := p.strike(buf[:n], asks)
		if lost {
			way = Drop
		}
		switch way {
		case Pass:
		case Late:
			p.wait(over, delay)
		case Hold:
			p.wait(over, 0)
			if p.ctx.Err() != nil { // nobody is to get it any more
				c.reset()
				return
			}
		case Drop:
			if !lost {
				lost = true
				p.carrying.Go(func() { p.wait(over, 0); c.reset() })
			}
			continue
		case Cut:
			c.reset()
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			c.reset()
			return
		}
	}
}

// strike says what is done to a chunk.
func (p *Proxy) strike(chunk []byte, asks bool) (way Way, delay time.Duration, over <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	way = p.fault.Answer
	if asks {
		way = p.fault.Ask
	}
	if way == Pass || p.fault.Only != nil && !bytes.Contains(chunk, p.fault.Only) || p.fault.Once && p.met > 0 {
		return Pass, 0, nil
	}
	p.meet()
	return way, p.fault.Delay, p.over
}

// wait waits for the fault's end, or for d if that is not 0, or for the proxy's end.
func (p *Proxy) wait(over <-chan struct{}, d time.Duration) {
	var late <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		late, over = timer.C, nil
	}
	select {
	case <-late:
	case <-over:
	case <-p.ctx.Done():
	}
}

func (c *pair) reset() {
	reset(c.client)
	reset(c.server)
}

// reset closes a connection so that its other end sees a reset, not an end in order.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // best effort: it is closed either way
	}
	_ = conn.Close()
}
