package wallet

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"os"
	"sync"
	"time"
)

// dialer opens connections. Its limit covers all of it, from the name to the
// end of the TLS handshake, because a caller that waits does not care which part
// was slow (contract section 2).
type dialer struct {
	address string
	limit   time.Duration
	secure  *tls.Config // nil = plain
	dialTCP func(ctx context.Context, network, address string) (net.Conn, error)
}

func newDialer(cfg Config, base *url.URL) dialer {
	d := dialer{address: address(base), limit: cfg.ConnectTimeout, dialTCP: cfg.DialContext}
	if d.dialTCP == nil {
		d.dialTCP = tcpDialer().DialContext
	}
	if base.Scheme == "https" {
		d.secure = &tls.Config{MinVersion: tls.VersionTLS12}
		if cfg.TLS != nil {
			d.secure = cfg.TLS.Clone()
		}
		if d.secure.ServerName == "" {
			d.secure.ServerName = base.Hostname()
		}
		if d.secure.ClientSessionCache == nil {
			d.secure.ClientSessionCache = tls.NewLRUClientSessionCache(tlsSessions)
		}
		// HTTP/2 is never offered. Its resets and refusals would be a second way to
		// lose a request, and its libraries repeat on several of them.
		d.secure.NextProtos = []string{"http/1.1"}
	}
	return d
}

// fallbackDelay is how long a dial waits for the first address family before it
// tries the other one beside it. Go's own 300 ms is longer than the whole connect
// limit, so that one dead IPv6 address would fail every call.
const fallbackDelay = 50 * time.Millisecond

func tcpDialer() *net.Dialer { return &net.Dialer{FallbackDelay: fallbackDelay} }

// tlsSessions bounds the memory for resuming TLS sessions. One host is spoken
// to; a few spare entries cover its addresses and a change of certificate.
const tlsSessions = 8

// dialError is a connection that did not come to be.
type dialError struct {
	cause   error
	timeout bool
}

func (e *dialError) Error() string { return "connect to the wallet: " + e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

// dial connects within the limit and ctx's deadline, whichever comes first. An
// error is a *dialError, and means that nothing of a request was written: a TLS
// handshake carries none of it. A dial that is given up leaves nothing behind.
func (d dialer) dial(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	fail := func(err error) (*conn, error) {
		var slow net.Error
		timeout := ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &slow) && slow.Timeout()
		return nil, &dialError{cause: err, timeout: timeout}
	}
	plain, err := d.dialTCP(ctx, "tcp", d.address)
	if err != nil {
		return fail(err)
	}
	if d.secure == nil {
		return newConn(plain, plain), nil
	}
	secure := tls.Client(plain, d.secure)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = plain.Close()
		return fail(err)
	}
	return newConn(plain, secure), nil
}

// reportEvery keeps an outage from filling the log: the metrics count, the log
// only has to say what it looks like.
const reportEvery = 10 * time.Second

// occasional says once in reportEvery that it is time.
type occasional struct {
	mu   sync.Mutex
	next time.Time
}

func (o *occasional) due(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Before(o.next) {
		return false
	}
	o.next = now.Add(reportEvery)
	return true
}
