package walletsim

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// readLimit bounds how long a request may take to arrive once it has begun:
	// a caller that stalls must not hold a connection for ever.
	readLimit = 30 * time.Second
	// bodyLimit bounds a request's body. A wallet's requests are a tenth of a KiB.
	bodyLimit = 64 << 10

	controlPrefix = "/control"
)

// conn is one connection. Its own goroutine owns it, but for idle.
type conn struct {
	id   int64
	net  net.Conn
	read countingReader
	r    *bufio.Reader

	idle    bool // no request has begun; under the wallet's lock
	bounded bool // a read has a deadline
}

func newConn(raw net.Conn, id int64) *conn {
	c := &conn{id: id, net: raw}
	c.read.from = raw
	c.r = bufio.NewReader(&c.read)
	return c
}

// countingReader counts what a client has sent, and keeps how the last read
// failed: bufio and net/http hand on half a line as if it were a whole one.
type countingReader struct {
	from io.Reader
	n    int64
	err  error
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.n += int64(n)
	r.err = err
	return n, err
}

// consumed is how many bytes have been taken off the connection.
func (c *conn) consumed() int64 { return c.read.n - int64(c.r.Buffered()) }

// expectWithin gives the next read that long; 0 is any time.
func (c *conn) expectWithin(d time.Duration) {
	if d <= 0 && !c.bounded {
		return
	}
	c.bounded = d > 0
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = c.net.SetReadDeadline(at) // of a connection that is closed already, the read will tell
}

// serve is the life of a connection.
func (s *Sim) serve(c *conn) {
	defer s.drop(c)
	if s.disturb(c, Accept, fmt.Sprintf("connection %d", c.id)) {
		return
	}
	for n := 1; s.awaitRequest(c); n++ {
		if !c.forControl() && s.disturb(c, FirstByte, fmt.Sprintf("connection %d request %d", c.id, n)) {
			return
		}
		if !s.exchange(c) {
			return
		}
	}
}

func (s *Sim) drop(c *conn) {
	_ = c.net.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// disturb does what a rule wants done to a connection at p, and reports whether
// there was one.
func (s *Sim) disturb(c *conn, p Point, subject string) bool {
	s.mu.Lock()
	rule := s.rules.ofConnection(p, subject)
	if rule == nil {
		s.mu.Unlock()
		return false
	}
	s.append(Entry{Event: Disturbed, Request: &Request{Connection: c.id, Rule: rule.Name}})
	s.book.flush()
	s.mu.Unlock()
	s.end(c, rule.Fault.Cut.How)
	return true
}

// awaitRequest waits for the first byte of a request and reports whether there
// is one: the client may leave instead, or its time run out.
func (s *Sim) awaitRequest(c *conn) bool {
	s.mu.Lock()
	c.idle = c.r.Buffered() == 0
	if c.idle {
		c.expectWithin(s.idleClose)
	}
	s.mu.Unlock()

	_, err := c.r.Peek(1)

	s.mu.Lock()
	defer s.mu.Unlock()
	c.idle = false
	c.expectWithin(0)
	return err == nil
}

// forControl reports whether what has begun to arrive is for control: by the
// bytes that are there, because nothing has been read as a request yet.
func (c *conn) forControl() bool {
	begun, _ := c.r.Peek(c.r.Buffered())
	_, path, found := bytes.Cut(begun, []byte(" "))
	return found && bytes.HasPrefix(path, []byte(controlPrefix))
}

// readRequest reads a request whole. Of one that cannot be read, it returns as
// much as there is, and what is wrong with it; again is false where nothing can
// be read behind it.
func (c *conn) readRequest() (req *http.Request, body []byte, malformed string, again bool) {
	c.expectWithin(readLimit)
	defer c.expectWithin(0)

	c.read.err = nil
	req, err := http.ReadRequest(c.r)
	if err != nil {
		return nil, nil, c.readingFailed("head"), false
	}
	if req.Header.Get("Expect") == "100-continue" {
		// RFC 9110 section 10.1.1: who sends this waits for our word before the body.
		if _, err := io.WriteString(c.net, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
			return req, nil, "body is cut off", false
		}
	}
	body, err = io.ReadAll(io.LimitReader(req.Body, bodyLimit+1))
	if err != nil {
		return req, body, c.readingFailed("body"), false
	}
	return req, body, "", len(body) <= bodyLimit
}

// readingFailed says how a request was not one, without the addresses and the
// quoted bytes of Go's own texts: the same fault must read the same every time.
func (c *conn) readingFailed(part string) string {
	var lost net.Error
	switch {
	case c.read.err == nil:
		return part + " is not HTTP"
	case errors.As(c.read.err, &lost) && lost.Timeout():
		return part + " stalls"
	}
	return part + " is cut off"
}

// end ends a connection in one of three ways.
func (s *Sim) end(c *conn, how How) {
	switch how {
	case FIN:
		_ = c.net.Close()
	case RST:
		c.reset()
	case Hang:
		s.hang(c)
	}
}

// reset closes with a reset instead of an orderly end. Where there is no TCP
// below (a pipe), it is an end like any other.
func (c *conn) reset() {
	below := c.net
	for {
		wrapped, ok := below.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		below = wrapped.NetConn()
	}
	if tcp, ok := below.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // whatever is unsent is dropped, and the peer hears RST
		_ = tcp.Close()
	}
	_ = c.net.Close()
}

// hang says nothing more, until the client leaves or the wallet is closed.
func (s *Sim) hang(c *conn) {
	_, _ = io.Copy(io.Discard, c.net) // ends with the client, or with Close, which closes c
	_ = c.net.Close()
}
