// Package pipe is a network inside the process: a listener and the dialler that
// reaches it, over net.Pipe. It exists for tests in a testing/synctest bubble,
// where fake time only moves while every goroutine waits for something inside
// the bubble: a read on a socket of the kernel is not such a thing, a read on a
// pipe is.
//
// A pipe is not TCP, and a test must know in what: a Write returns only when
// the other side has read all of it, and a reset looks like an orderly end
// (io.EOF). What depends on the difference is tested over loopback.
package pipe

import (
	"context"
	"net"
	"sync"
	"syscall"
)

// Listener is the accepting end. Make it with Listen, in the bubble in which it
// is used.
type Listener struct {
	arriving  chan net.Conn
	closed    chan struct{}
	closeOnce sync.Once
}

// Listen opens a Listener.
func Listen() *Listener {
	return &Listener{arriving: make(chan net.Conn), closed: make(chan struct{})}
}

// Accept waits for the next connection. After Close the error is net.ErrClosed.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.arriving:
		return c, nil
	case <-l.closed:
		return nil, &net.OpError{Op: "accept", Net: network, Addr: l.Addr(), Err: net.ErrClosed}
	}
}

// Close refuses all further connections; those that exist live on, as they do
// when a TCP listener is closed.
func (l *Listener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return nil
}

// Addr is a name that is good for a URL and resolves nowhere.
func (l *Listener) Addr() net.Addr { return address{} }

// DialContext connects to l, whatever the network and address: it fits where a
// net.Dialer's method of that name does. A closed listener refuses as TCP does,
// with ECONNREFUSED; one that does not accept keeps the caller waiting until ctx
// ends.
func (l *Listener) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	var err error
	select {
	case l.arriving <- server:
		return client, nil
	case <-l.closed:
		err = syscall.ECONNREFUSED
	case <-ctx.Done():
		err = ctx.Err()
	}
	_, _ = client.Close(), server.Close()
	return nil, &net.OpError{Op: "dial", Net: network, Addr: l.Addr(), Err: err}
}

const network = "pipe"

type address struct{}

func (address) Network() string { return network }
func (address) String() string  { return "wallet.invalid:80" } // RFC 6761: never resolves
