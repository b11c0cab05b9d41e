// Package wallet speaks to the wallet: one call of ours is one request on the
// wire, and what came of it is told by what was seen (contract section 3).
//
// It does its own HTTP/1.1 exchange instead of using net/http's client, which
// repeats requests by itself: a POST that carries an Idempotency-Key, any GET, and
// over HTTP/2 nearly anything. Here there is no code that could send a second
// time, follow a redirect, ask a proxy, speak HTTP/2 or keep a cookie, and whether
// a write was begun is a fact that our own code knows. See docs/adr/0001.
//
// The way of a call: Lane (bulkhead, breaker) → version (v1, v2: what the
// request looks like) → exchange (connection, one write, one answer) → classify
// (what that means). Nothing in here retries; the catalogue says who may.
package wallet

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/safeledger/safeledger/internal/payment"
)

// Version is the wallet's API version (contract section 3).
type Version string

// The versions that we speak.
const (
	V1 Version = "v1" // debits and credits
	V2 Version = "v2" // adds holds and Idempotency-Key
)

// Config says where the wallet is and how much of it may be used. Every number
// is configuration (contract section 5); the ones given are its defaults.
type Config struct {
	BaseURL string // http or https; may have a path, but no user, query or fragment
	Version Version

	ConnectTimeout time.Duration // 200 ms for DNS, TCP and TLS together
	MinToSend      time.Duration // 50 ms; with less left nothing is sent
	MaxInFlight    int           // 256 per lane; also the most connections that are kept idle
	// IdleLimit is how long an idle connection is kept, 10 s; used again it is only
	// in half that time, or less where the wallet closes earlier (see pool). 0 =
	// every call has a connection of its own.
	IdleLimit time.Duration

	Breaker  BreakerConfig
	SlowCall time.Duration // 400 ms; over that a debit, hold or lookup is slow
	// SlowWorkerCall is the same for calls of workers. Nobody waits for those and
	// their limit is 2 s, so it stands in the same proportion to it: 1 s.
	SlowWorkerCall time.Duration

	UserAgent string       // "" = safeledger
	Token     func() Token // the bearer token to send now; nil = none is sent
	TLS       *tls.Config  // nil = the system's roots; NextProtos is ours in any case
	// DialContext opens a connection; nil = a net.Dialer with our fallback delay.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)

	Observer observer
	Log      *slog.Logger
}

// BreakerConfig is what opens a breaker and closes it again: the same for all
// of them (contract section 3).
type BreakerConfig struct {
	Window       time.Duration // 10 s, rolling
	MinCalls     int           // 20; with fewer completed calls in the window it stays closed
	FailureRatio float64       // 0.5 of the completed calls
	SlowRatio    float64       // 0.5 of the completed calls
	OpenFor      time.Duration // 5 s, then probes
	Probes       int           // 3 at once
}

// observer is told of every call and of every change of a breaker. Its methods
// are called from many goroutines, must not block, and must not call back:
// BreakerChanged is called while the breaker is locked.
type observer interface {
	// WalletCall reports a finished call. lane is "decision" or "worker"; call is
	// an operation or "lookup"; outcome is payment.Class's or payment.Finding's word.
	WalletCall(lane, call, outcome string, reason payment.Reason, took time.Duration)
	// BreakerChanged reports the new state of the "decision", "worker" or "lookup"
	// breaker: "closed", "half-open" or "open".
	BreakerChanged(breaker, state string)
}

// The lanes, and the breaker that they share.
const (
	decisionLane  = "decision"
	workerLane    = "worker"
	lookupBreaker = "lookup"
)

// Client is the wallet.
type Client struct {
	version   version
	catalogue map[Method]Policy
	wire      wire
	minToSend time.Duration
	token     func() Token
	observer  observer
	log       *slog.Logger
	pool      *pool
	dialer    dialer
	dialError occasional
	server    []attribute.KeyValue // who the wallet is, in traces

	lookups   *breaker
	decisions *Lane
	workers   *Lane
}

// New makes a Client. It connects to nothing. An error says what is wrong with
// cfg, or with the catalogue (see CheckCatalogue).
func New(cfg Config) (*Client, error) {
	catalogue := Catalogue()
	if err := errors.Join(cfg.validate(), CheckCatalogue(catalogue, nil)); err != nil {
		return nil, err
	}
	base, err := parseBaseURL(cfg.BaseURL)
	if err != nil {
		return nil, err
	}
	v := versions()[cfg.Version]
	c := &Client{
		version:   v,
		catalogue: catalogue,
		wire:      wire{host: base.Host, prefix: strings.TrimRight(base.EscapedPath(), "/"), agent: cfg.UserAgent, closes: !v.echoes},
		minToSend: cfg.MinToSend,
		token:     cfg.Token,
		observer:  cfg.Observer,
		log:       cfg.Log,
		pool:      newPool(cfg.MaxInFlight, cfg.IdleLimit),
		dialer:    newDialer(cfg, base),
		server:    []attribute.KeyValue{attribute.String("server.address", base.Hostname())},
	}
	if _, port, err := net.SplitHostPort(address(base)); err == nil {
		if n, err := strconv.Atoi(port); err == nil {
			c.server = append(c.server, attribute.Int("server.port", n))
		}
	}
	if c.wire.agent == "" {
		c.wire.agent = "safeledger"
	}
	c.lookups = newBreaker(lookupBreaker, cfg.Breaker, cfg.SlowCall, cfg.Observer)
	c.decisions = newLane(c, decisionLane, cfg, cfg.SlowCall)
	c.workers = newLane(c, workerLane, cfg, cfg.SlowWorkerCall)
	return c, nil
}

// Decisions is the lane of calls that a till waits for: debits, holds and their
// lookups.
func (c *Client) Decisions() *Lane { return c.decisions }

// Workers is the lane of the work queue: credits, captures, releases and
// lookups. What it fills up or breaks leaves decisions alone.
func (c *Client) Workers() *Lane { return c.workers }

// LookupBreakerState is the state of the breaker of lookups, which both lanes
// share: "closed", "half-open" or "open".
func (c *Client) LookupBreakerState() string { return c.lookups.state() }

// request builds the call of method m, if the catalogue lists it as what it is to
// be used for, a mutation or a question, and the wallet's version knows it.
func (c *Client) request(m Method, mutates bool, in payment.Instruction) (request, bool) {
	policy, listed := c.catalogue[m]
	build, known := c.version.calls[m.Call]
	if !listed || !known || policy.Mutates != mutates {
		return request{}, false
	}
	return build(in)
}

// Close closes the idle connections. Calls that are under way go on and close
// theirs when they end.
func (c *Client) Close() { c.pool.close() }

func (cfg Config) validate() error {
	var errs []error
	check := func(ok bool, rule string) {
		if !ok {
			errs = append(errs, errors.New("wallet: "+rule))
		}
	}
	_, known := versions()[cfg.Version]
	check(known, fmt.Sprintf("version %q is not one of v1, v2", cfg.Version))
	check(cfg.ConnectTimeout > 0, "the connect timeout must be positive")
	check(cfg.MinToSend >= 0, "the minimum to send must not be negative")
	check(cfg.MaxInFlight > 0, "at least one call must be allowed in flight")
	check(cfg.IdleLimit >= 0, "the idle limit must not be negative")
	check(cfg.SlowCall > 0 && cfg.SlowWorkerCall > 0, "the limits of slow calls must be positive")
	check(cfg.Breaker.Window >= windowBuckets, "the breaker's window must be positive")
	check(cfg.Breaker.MinCalls > 0, "the breaker's minimum of calls must be positive")
	check(cfg.Breaker.FailureRatio > 0 && cfg.Breaker.FailureRatio <= 1, "the breaker's failure ratio must be above 0 and at most 1")
	check(cfg.Breaker.SlowRatio > 0 && cfg.Breaker.SlowRatio <= 1, "the breaker's slow ratio must be above 0 and at most 1")
	check(cfg.Breaker.OpenFor > 0, "the breaker must stay open for a positive time")
	check(cfg.Breaker.Probes > 0, "the breaker needs at least one probe")
	check(fieldValue(cfg.UserAgent), "the user agent must be visible ASCII")
	check(cfg.Observer != nil, "an observer is needed")
	check(cfg.Log != nil, "a logger is needed")
	return errors.Join(errs...)
}

// parseBaseURL refuses what a request could not carry faithfully. Its errors do
// not repeat the URL, which may hold a password that does not belong there.
func parseBaseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return nil, errors.New("wallet: the base URL is not a URL")
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("wallet: the base URL must begin with http:// or https://")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("wallet: the base URL has no host")
	case u.User != nil:
		return nil, errors.New("wallet: the base URL must not hold a user or password; the token has a file of its own")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(raw, "#"):
		return nil, errors.New("wallet: the base URL must not have a query or a fragment")
	case !fieldValue(u.Host) || strings.ContainsAny(u.Host, ` "<>\^{|}`):
		return nil, errors.New("wallet: the base URL's host must be ASCII (an international name in its xn-- form)")
	}
	return u, nil
}

// fieldValue reports whether s can stand in a header field as it is.
func fieldValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// address is where to dial: the scheme's port where the URL names none.
func address(u *url.URL) string {
	port := u.Port()
	switch {
	case port != "":
	case u.Scheme == "https":
		port = "443"
	default:
		port = "80"
	}
	return net.JoinHostPort(u.Hostname(), port)
}
