package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/safeledger/safeledger/test/check/history"
)

// call is one request of a till over a socket of its own making.
type call struct {
	till   string
	caller caller
	method string
	path   string
	key    string
	wait   string // the field Request-Deadline-Ms, "" for none
	body   string
	trace  string

	// hangUp is after how long the till closes the connection, 0 for never.
	hangUp time.Duration
	// stall sends the body's last byte only after so long.
	stall time.Duration
	// unknown shows a token that nobody has.
	unknown bool
}

// patience is how long a till waits for an answer: beyond any budget, so that what
// comes late is seen and judged.
const patience = 6 * time.Second

// line is a connection that a till keeps to a replica.
type line struct {
	conn net.Conn
	in   *bufio.Reader
}

// lines are those of one till, by address. One goroutine uses them.
type lines map[string]*line

// ask sends c to a replica, notes it, and gives the answer. There is none if ok is
// false: it was certainly not sent, or what became of it is not known. An error means that
// the log cannot be written, and nothing may be sent any more.
func (w *world) ask(ctx context.Context, kept lines, to string, c call) (a history.Answer, ok, unsent bool, err error) {
	known := c.caller.name
	if c.unknown {
		known = ""
	}
	noted, err := w.log.Send(history.Request{
		Till: c.till, Caller: known, To: to, Method: c.method, Path: c.path, Key: c.key, Deadline: c.wait, Trace: c.trace, Sent: c.body,
	})
	if err != nil {
		return a, false, true, err
	}
	a, unsent, failed := exchange(ctx, kept, to, c)
	if failed == nil {
		return a, true, false, noted.Answered(time.Now(), a)
	}
	return a, false, unsent, noted.Failed(time.Now(), history.Failure{Unsent: unsent, How: how(failed), Error: failed.Error()})
}

func how(err error) string {
	switch {
	case errors.Is(err, errHungUp):
		return "hung up"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	}
	return "lost"
}

var errHungUp = errors.New("the till has hung up")

// exchange sends c and reads its answer. unsent is set where certainly nothing left.
func exchange(ctx context.Context, kept lines, to string, c call) (a history.Answer, unsent bool, err error) {
	l := kept[to]
	delete(kept, to)
	if l == nil {
		dialer := net.Dialer{Timeout: 2 * time.Second}
		conn, err := dialer.DialContext(ctx, "tcp", to)
		if err != nil {
			return a, errors.Is(err, syscall.ECONNREFUSED), err
		}
		l = &line{conn, bufio.NewReader(conn)}
	}
	defer func() {
		if l != nil {
			_ = l.conn.Close()
		}
	}()
	end := time.Now().Add(patience)
	if c.hangUp > 0 {
		end = time.Now().Add(c.hangUp)
	}
	if err := l.conn.SetDeadline(end); err != nil {
		return a, false, err
	}
	conn := l.conn // l may be nil by then
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	hungUp := func(err error) error {
		if c.hangUp > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return errHungUp
		}
		return err
	}
	if err := write(ctx, l.conn, c); err != nil && c.stall == 0 {
		return a, false, hungUp(err)
	}
	resp, err := http.ReadResponse(l.in, &http.Request{Method: c.method})
	if err != nil {
		return a, false, hungUp(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return a, false, hungUp(err)
	}
	if !resp.Close && c.stall == 0 {
		kept[to], l = l, nil
	}
	return history.AnswerOf(resp.StatusCode, resp.Header, body), false, nil
}

func write(ctx context.Context, conn net.Conn, c call) error {
	var b bytes.Buffer
	token := c.caller.token
	if c.unknown {
		token = "token-of-nobody"
	}
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: safeledger\r\nAuthorization: Bearer %s\r\nTraceparent: %s\r\n", c.method, c.path, token, traceparent(c.trace))
	if c.key != "" {
		fmt.Fprintf(&b, "Idempotency-Key: %s\r\n", c.key)
	}
	if c.wait != "" {
		fmt.Fprintf(&b, "Request-Deadline-Ms: %s\r\n", c.wait)
	}
	if c.body != "" {
		b.WriteString("Content-Type: application/json\r\n")
	}
	if c.method != http.MethodGet {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(c.body))
	}
	b.WriteString("\r\n" + c.body)
	text := b.Bytes()
	if c.stall > 0 {
		if _, err := conn.Write(text[:len(text)-1]); err != nil {
			return err
		}
		pause(ctx, c.stall)
		text = text[len(text)-1:]
	}
	_, err := conn.Write(text)
	return err
}

func traceparent(trace string) string { return "00-" + trace + "-00f067aa0ba902b7-01" }

// close hangs up on everybody.
func (l lines) close() {
	for _, kept := range l {
		_ = kept.conn.Close()
	}
}

// noting is a connection of the package client, which has one for each request. What it
// sends is held back until it is whole and noted.
type noting struct {
	net.Conn
	log      *history.Log
	till, to string
	caller   caller

	mu    sync.Mutex // the transport writes, reads and closes in goroutines of its own
	sent  []byte
	call  *history.Call
	got   []byte
	ended bool
	last  error
}

func (n *noting) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.call != nil {
		return 0, errors.New("a second request on one connection")
	}
	n.sent = append(n.sent, p...)
	req, body, err := wholeRequest(n.sent)
	if err != nil {
		return len(p), nil //nolint:nilerr // the rest is still to come
	}
	parent := strings.Split(req.Header.Get("Traceparent"), "-")
	if len(parent) < 2 {
		return 0, errors.New("a request without a trace")
	}
	n.call, err = n.log.Send(history.Request{
		Till: n.till, Caller: n.caller.name, To: n.to, Method: req.Method, Path: req.RequestURI, Key: req.Header.Get("Idempotency-Key"),
		Deadline: req.Header.Get("Request-Deadline-Ms"), Trace: parent[1], Sent: string(body),
	})
	if err == nil {
		_, err = n.Conn.Write(n.sent)
	}
	if n.last = err; err != nil {
		return 0, err
	}
	return len(p), nil
}

func wholeRequest(text []byte) (*http.Request, []byte, error) {
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(text)))
	if err != nil {
		return nil, nil, err
	}
	body, err := io.ReadAll(req.Body)
	return req, body, err
}

func (n *noting) Read(p []byte) (int, error) {
	count, err := n.Conn.Read(p)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.call == nil || n.ended {
		return count, err
	}
	n.got = append(n.got, p[:count]...)
	if err != nil {
		n.last = err
	}
	if a, whole := wholeAnswer(n.got); whole {
		n.ended = true
		if err := n.call.Answered(time.Now(), a); err != nil {
			return 0, err
		}
	}
	return count, err
}

func wholeAnswer(text []byte) (a history.Answer, whole bool) {
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(text)), nil)
	if err != nil {
		return a, false
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	return history.AnswerOf(resp.StatusCode, resp.Header, body), err == nil
}

// Close notes how a request ended that had no answer.
func (n *noting) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.Conn.Close()
	if n.call == nil || n.ended {
		return err
	}
	n.ended = true
	f := history.Failure{How: "hung up"}
	if n.last != nil {
		f.How, f.Error = how(n.last), n.last.Error()
	}
	return errors.Join(err, n.call.Failed(time.Now(), f))
}
