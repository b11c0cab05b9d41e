package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Config is what a Client needs. BaseURL and Token are required; the zero value of
// everything else stands for the default beside it.
type Config struct {
	// BaseURL is where the service is, as in "https://payments.example". A path in
	// it is put before the paths of the API.
	BaseURL string
	// Token is the bearer token of this till.
	Token string

	// Mutations bounds the replays of what changes something.
	Mutations MutationPolicy
	// Reads bounds the attempts of what only reads.
	Reads ReadPolicy

	// TLS is used for https. The default checks the server against the system's
	// certificates.
	TLS *tls.Config
	// DialContext connects to the service, by default over TCP. Every request has a
	// connection of its own.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// ConnectTimeout bounds DialContext and, once more, the TLS handshake (2 s). It
	// keeps a black hole in the network from using up what the decision needs.
	ConnectTimeout time.Duration

	// Traceparent gives the traceparent of a call's context (W3C Trace Context), "" if
	// there is none. What is not well formed is not sent.
	Traceparent func(ctx context.Context) string
}

// MutationPolicy bounds how often and how long a mutation is sent again after 503
// with Retry-After, the only answer after which it is. Whichever bound is reached
// first ends the call.
type MutationPolicy struct {
	// Attempts is how many requests one call may make, the first one included (3).
	Attempts int
	// Total is how long one call may take, waits included (10 s). The call's context
	// may end it sooner, and it is the context's deadline that the service is told:
	// a till that waits for three seconds says so there.
	Total time.Duration
	// Jitter is added to the wait that the service asked for, at random between
	// nothing and this much (250 ms), so that the tills which one replica has refused
	// do not come back in the same instant.
	Jitter time.Duration
}

// ReadPolicy bounds how often and how long a read is tried.
type ReadPolicy struct {
	// Attempts is how many requests one call may make, the first one included (10).
	Attempts int
	// Total is how long one call may take, waits included (30 s). The call's context
	// may end it sooner.
	Total time.Duration
	// PerAttempt bounds one of the requests (3 s): a read that hangs is a read that
	// can be tried again.
	PerAttempt time.Duration
	// BackoffMin and BackoffMax (100 ms, 2 s) bound the wait between two attempts. It
	// doubles from the one to the other; a random half of it is left out. Where an
	// answer has a Retry-After, that is waited at least.
	BackoffMin, BackoffMax time.Duration
}

// The defaults. A till's customer waits about three seconds for a decision, and the
// gate asks for one second between attempts: three attempts are as many as can be
// of use to that customer. A payment is decided at the latest 7.4 s after it was begun,
// also if its replica died: ten reads a second apart see it.
const (
	defaultMutationAttempts = 3
	defaultMutationTotal    = 10 * time.Second
	defaultJitter           = 250 * time.Millisecond

	defaultReadAttempts = 10
	defaultReadTotal    = 30 * time.Second
	defaultPerAttempt   = 3 * time.Second
	defaultBackoffMin   = 100 * time.Millisecond
	defaultBackoffMax   = 2 * time.Second

	defaultConnectTimeout = 2 * time.Second
)

// Client speaks to one SafeLedger as one till. Make it with New; it may be used by
// any number of goroutines.
type Client struct {
	base        string // without a slash at its end
	token       string
	mutations   MutationPolicy
	reads       ReadPolicy
	traceparent func(context.Context) string
	transport   *http.Transport
	// random gives a number from 0 up to and without n; a test has it still.
	random func(n int64) int64
}

// New makes a Client, or says what is wrong with cfg. It connects to nothing yet.
func New(cfg Config) (*Client, error) {
	base, err := baseOf(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	if cfg.Token == "" || !visible(cfg.Token) {
		// Not the token itself: this text ends up in logs.
		return nil, errors.New("client: Token must be visible ASCII characters, at least one")
	}
	fill(&cfg.Mutations.Attempts, defaultMutationAttempts)
	fill(&cfg.Mutations.Total, defaultMutationTotal)
	fill(&cfg.Mutations.Jitter, defaultJitter)
	fill(&cfg.Reads.Attempts, defaultReadAttempts)
	fill(&cfg.Reads.Total, defaultReadTotal)
	fill(&cfg.Reads.PerAttempt, defaultPerAttempt)
	fill(&cfg.Reads.BackoffMin, defaultBackoffMin)
	fill(&cfg.Reads.BackoffMax, max(defaultBackoffMax, cfg.Reads.BackoffMin))
	fill(&cfg.ConnectTimeout, defaultConnectTimeout)
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Client{
		base: base, token: cfg.Token, mutations: cfg.Mutations, reads: cfg.Reads,
		traceparent: cfg.Traceparent, transport: newTransport(cfg), random: rand.Int64N,
	}, nil
}

// fill puts the default in the place of a zero.
func fill[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

func (c Config) validate() error {
	for _, count := range []struct {
		name  string
		value int
	}{{"Mutations.Attempts", c.Mutations.Attempts}, {"Reads.Attempts", c.Reads.Attempts}} {
		if count.value < 0 {
			return fmt.Errorf("client: %s is %d, it must be at least 1", count.name, count.value)
		}
	}
	for _, length := range []struct {
		name  string
		value time.Duration
	}{
		{"Mutations.Total", c.Mutations.Total},
		{"Mutations.Jitter", c.Mutations.Jitter},
		{"Reads.Total", c.Reads.Total},
		{"Reads.PerAttempt", c.Reads.PerAttempt},
		{"Reads.BackoffMin", c.Reads.BackoffMin},
		{"Reads.BackoffMax", c.Reads.BackoffMax},
		{"ConnectTimeout", c.ConnectTimeout},
	} {
		if length.value < 0 {
			return fmt.Errorf("client: %s is %v, it must not be negative", length.name, length.value)
		}
	}
	if c.Reads.BackoffMax < c.Reads.BackoffMin {
		return fmt.Errorf("client: Reads.BackoffMax is %v, it must be at least BackoffMin, %v", c.Reads.BackoffMax, c.Reads.BackoffMin)
	}
	return nil
}

// baseOf checks a BaseURL. It is not repeated in the error as a whole, because a
// password may have been put into it.
func baseOf(raw string) (string, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return "", errors.New("client: BaseURL is not a URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return "", fmt.Errorf("client: the scheme of BaseURL is %q, it must be http or https", u.Scheme)
	case u.Host == "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return "", errors.New("client: BaseURL must have a host, and no user, query or fragment")
	}
	return strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), nil
}

// newTransport is a transport that cannot send a request twice. net/http repeats a
// request, a POST with an Idempotency-Key too, only on a connection that it has used
// before; here none is. So there are no stale connections either, which would turn a
// till's first payment after a pause into one whose outcome is unknown. The price is
// a connect for each request: one round trip, with TLS 1.3 two. Sessions are resumed,
// which spares both sides the certificates, and TLS 1.2 a third round trip.
//
// There is no http.Client around it, which would follow redirects and, of the 307
// kind, send the payment to somebody else.
func newTransport(cfg Config) *http.Transport {
	dial := cfg.DialContext
	if dial == nil {
		// A dead IPv6 address must not cost more of the till's time than this; Go's own
		// 300 ms are a tenth of what the customer waits.
		dial = (&net.Dialer{FallbackDelay: 50 * time.Millisecond}).DialContext
	}
	secure := &tls.Config{}
	if cfg.TLS != nil {
		secure = cfg.TLS.Clone()
	}
	if secure.MinVersion == 0 {
		secure.MinVersion = tls.VersionTLS12
	}
	if secure.ClientSessionCache == nil {
		secure.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	}
	secure.NextProtos = nil // an h2 that was left in here would be negotiated
	only1 := new(http.Protocols)
	only1.SetHTTP1(true)
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, cfg.ConnectTimeout)
			defer cancel()
			return dial(ctx, network, address)
		},
		Proxy:                  nil,
		TLSClientConfig:        secure,
		TLSHandshakeTimeout:    cfg.ConnectTimeout,
		Protocols:              only1,
		DisableKeepAlives:      true,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
	}
}
