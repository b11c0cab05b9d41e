// Package wallettest is a wallet that misbehaves on purpose, byte by byte. A
// script speaks for it on each connection; every request that arrives is counted
// before the script can answer it, as a wallet books before it answers. What was
// counted here was on the wire, whatever a client believes that it sent.
package wallettest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// Request is a request as it arrived.
type Request struct {
	Connection int // the number of the connection, from 1
	Nth        int // the number of the request on it, from 1
	Method     string
	Target     string
	Header     http.Header
	Body       []byte
	Raw        []byte // head and body, as they were on the wire
	// Reference is the one in the body, or in a lookup's query or path.
	Reference string
}

// Script speaks for the wallet on one connection, which is closed when it returns.
type Script func(*Conn)

// Wallet counts, and lets its script answer.
type Wallet struct {
	addr   string
	scheme string
	secure *tls.Config // nil = plain
	roots  *x509.CertPool
	script Script
	over   chan struct{} // closed when the test ends
	active sync.WaitGroup

	mu          sync.Mutex
	connections int
	requests    []Request
	open        map[net.Conn]bool
}

// New starts a wallet on a loopback port, until tb ends.
func New(tb testing.TB, script Script) *Wallet {
	tb.Helper()
	w := newWallet(script, "http")
	w.listen(tb)
	return w
}

// NewTLS is New behind TLS. Of cfg, which may be nil, the certificate is
// replaced; Roots trusts it.
func NewTLS(tb testing.TB, cfg *tls.Config, script Script) *Wallet {
	tb.Helper()
	w := newWallet(script, "https")
	// The one certificate that Go has at hand for loopback addresses.
	source := httptest.NewUnstartedServer(nil)
	source.StartTLS()
	defer source.Close()
	w.secure = &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg != nil {
		w.secure = cfg.Clone()
	}
	w.secure.Certificates = source.TLS.Certificates
	w.roots = x509.NewCertPool()
	w.roots.AddCert(source.Certificate())
	w.listen(tb)
	return w
}

// NewPipe is a wallet without a socket, for fake time: Dial connects to it.
func NewPipe(tb testing.TB, script Script) *Wallet {
	tb.Helper()
	w := newWallet(script, "http")
	w.addr = "wallet.test:80"
	tb.Cleanup(w.stop)
	return w
}

func newWallet(script Script, scheme string) *Wallet {
	return &Wallet{scheme: scheme, script: script, over: make(chan struct{}), open: map[net.Conn]bool{}}
}

func (w *Wallet) listen(tb testing.TB) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	w.addr = l.Addr().String()
	w.active.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			w.serve(c)
		}
	})
	tb.Cleanup(func() {
		_ = l.Close()
		w.stop()
	})
}

func (w *Wallet) stop() {
	close(w.over)
	w.mu.Lock()
	for c := range w.open {
		_ = c.Close()
	}
	w.mu.Unlock()
	w.active.Wait()
}

func (w *Wallet) serve(plain net.Conn) {
	w.mu.Lock()
	w.connections++
	cork := &cork{Conn: plain}
	c := &Conn{ID: w.connections, wallet: w, plain: plain, cork: cork, Conn: cork}
	w.open[plain] = true
	w.mu.Unlock()
	if w.secure != nil {
		c.Conn = tls.Server(cork, w.secure)
	}
	c.in = bufio.NewReader(io.TeeReader(c.Conn, &c.taken))
	w.active.Go(func() {
		defer func() {
			_ = c.Close()
			w.mu.Lock()
			delete(w.open, plain)
			w.mu.Unlock()
		}()
		w.script(c)
	})
}

// Dial is a DialContext to this wallet over an in-memory pipe.
func (w *Wallet) Dial(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	w.serve(theirs)
	return ours, nil
}

// URL is the wallet's base URL.
func (w *Wallet) URL() string { return w.scheme + "://" + w.addr }

// Addr is its host and port.
func (w *Wallet) Addr() string { return w.addr }

// Roots trusts the certificate of a NewTLS wallet.
func (w *Wallet) Roots() *x509.CertPool { return w.roots }

// Connections is the number of connections so far.
func (w *Wallet) Connections() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.connections
}

// Requests are all requests so far, in the order of their arrival.
func (w *Wallet) Requests() []Request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// Count is the number of requests with this method that were about reference.
func (w *Wallet) Count(method, reference string) int {
	n := 0
	for _, r := range w.Requests() {
		if r.Method == method && r.Reference == reference {
			n++
		}
	}
	return n
}

// Conn is one connection, as the wallet sees it.
type Conn struct {
	net.Conn     // TLS, if that is spoken
	ID       int // from 1

	wallet *Wallet
	plain  net.Conn
	cork   *cork
	in     *bufio.Reader
	taken  bytes.Buffer // what was read, for Request.Raw
	nth    int
}

// Read reads one whole request and counts it. ok is false where none came.
func (c *Conn) Read() (Request, bool) {
	before := c.taken.Len() - c.in.Buffered()
	req, err := http.ReadRequest(c.in)
	if err != nil {
		return Request{}, false
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return Request{}, false
	}
	c.nth++
	r := Request{
		Connection: c.ID, Nth: c.nth, Method: req.Method, Target: req.RequestURI, Header: req.Header, Body: body,
		Raw:       bytes.Clone(c.taken.Bytes()[before : c.taken.Len()-c.in.Buffered()]),
		Reference: reference(req, body),
	}
	c.wallet.mu.Lock()
	c.wallet.requests = append(c.wallet.requests, r)
	c.wallet.mu.Unlock()
	return r, true
}

func reference(req *http.Request, body []byte) string {
	if r := req.URL.Query().Get("reference"); r != "" {
		return r
	}
	if len(body) == 0 {
		return req.URL.Path[bytes.LastIndexByte([]byte(req.URL.Path), '/')+1:]
	}
	var members struct {
		Reference string `json:"reference"`
	}
	_ = json.Unmarshal(body, &members) // a body without one has no reference
	return members.Reference
}

// Say writes raw bytes. That they do not arrive is no error here: the client
// may have had enough.
func (c *Conn) Say(raw string) { _, _ = c.Write([]byte(raw)) }

// Together sends all that f says in one piece, under TLS too: several records
// then arrive at once.
func (c *Conn) Together(f func()) {
	c.cork.hold()
	f()
	c.cork.release()
}

// cork holds writes back while it is in.
type cork struct {
	net.Conn

	mu   sync.Mutex
	in   bool
	held []byte
}

func (k *cork) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.in {
		k.held = append(k.held, p...)
		return len(p), nil
	}
	return k.Conn.Write(p)
}

func (k *cork) hold() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.in = true
}

func (k *cork) release() {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, _ = k.Conn.Write(k.held) // as with Say
	k.in, k.held = false, nil
}

// Answer writes a complete answer with a JSON body.
func (c *Conn) Answer(status int, body string) { c.Say(Answer(status, body)) }

// Answer is a complete answer with a JSON body, as bytes.
func Answer(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %03d Status\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body)
}

// Reset ends the connection with a RST instead of a FIN.
func (c *Conn) Reset() {
	if tcp, ok := c.plain.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.plain.Close()
}

// Hang keeps the connection open, silently, until the test ends or the client
// closes it.
func (c *Conn) Hang() {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = io.Copy(io.Discard, c.in)
	}()
	select {
	case <-c.wallet.over:
		_ = c.plain.Close()
		<-gone
	case <-gone:
	}
}

// Wait waits for d, or until the test ends.
func (c *Conn) Wait(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.wallet.over:
	}
}

// Serve is the script of a wallet that answers every request of every
// connection with what answer returns.
func Serve(answer func(Request) string) Script {
	return func(c *Conn) {
		for {
			r, ok := c.Read()
			if !ok {
				return
			}
			c.Say(answer(r))
		}
	}
}

// Applied is the answer of a healthy wallet, of either version, to r: for
// lookups too, which find everything.
func Applied(r Request) string {
	status := http.StatusCreated
	if r.Method == http.MethodGet {
		status = http.StatusOK
	}
	return Answer(status, AppliedBody(r.Reference))
}

// AppliedBody names the effect "effect-1" in every member in which any version
// would look for it.
func AppliedBody(reference string) string {
	return `{"id":"effect-1","debitId":"effect-1","creditId":"effect-1","reference":"` + reference + `","status":"APPLIED"}`
}
