// Package walletsim is a wallet to try things on: both versions of the interface
// that contract section 3 expects, over one set of accounts, with every way of
// misbehaving that we have heard of.
//
// It is also the oracle of our tests. Its book tells what arrived and what became
// of the money, and is written before the wallet misbehaves, so that it is right
// whatever the caller was told, or was not. For the same reason it shares no code
// with the package that calls wallets: a misreading of the contract must not be
// able to stand on both sides.
//
// It serves connections itself rather than through net/http's server, because
// what it must do to them (reset, cut, answer twice, close when idle) is exactly
// what that server prevents. All its time is package time's, and nothing in it
// waits for anything outside the process but a socket: over the listener of
// internal/walletsim/pipe it runs in a testing/synctest bubble.
package walletsim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"
)

// Config says what wallet to be. The zero Config is a strict, well-behaved one
// without accounts, as a test wants it.
type Config struct {
	// Versions are those that are spoken; both where it is empty. The paths of
	// the other do not exist.
	Versions []Version
	// OpenAccounts lets an account that was never named before open itself with
	// a generous balance, as for a demonstration. Without it such an account is
	// ACCOUNT_NOT_FOUND until SetBalance has made it.
	OpenAccounts bool
	// BookFile is where the book is written too, one JSON object a line, behind
	// what the file holds already. "" writes none.
	BookFile string
	// BookOnlyInFile keeps no line in memory, for runs of millions of requests: what
	// then grows with a run is what the wallet itself must remember. Who asks for the
	// book is given it from the file.
	BookOnlyInFile bool
	// Seed makes the draws of rules with a probability repeatable.
	Seed uint64
	// Tokens are the bearer tokens of which a caller must present one; none are
	// needed where it is empty. They are never booked.
	Tokens []string
	// ForgetRejections makes lookups of refused operations say NOT_FOUND, as
	// some wallets do. Version 1 always does: its interface has no REJECTED.
	ForgetRejections bool
	// EchoAmount adds amount and currency to the answers of version 2, which may
	// carry them but need not.
	EchoAmount bool
	// DedupeFor is how long a reference or key is recognised; 0 is for good.
	DedupeFor time.Duration
	// IdleClose closes a kept-alive connection on which nothing arrives for so
	// long; 0 never does. SetIdleClose changes it.
	IdleClose time.Duration
	// Log hears of what nobody waits for (a listener that cannot be reopened).
	// nil discards it.
	Log *slog.Logger
}

func (c Config) validate() error {
	for _, v := range c.Versions {
		if v != V1 && v != V2 {
			return fmt.Errorf("version %q: must be %s or %s", v, V1, V2)
		}
	}
	if c.DedupeFor < 0 || c.IdleClose < 0 {
		return errors.New("DedupeFor and IdleClose must not be negative")
	}
	if c.BookOnlyInFile && c.BookFile == "" {
		return errors.New("BookOnlyInFile needs a BookFile")
	}
	return nil
}

// ErrClosed is what a closed wallet answers with.
var ErrClosed = errors.New("the simulated wallet is closed")

// Sim is the simulated wallet. All its methods may be called at once. Make it
// with New.
type Sim struct {
	versions         []Version
	forgetRejections bool
	echoAmount       bool
	names            map[string]Name
	log              *slog.Logger

	closed chan struct{}
	wg     sync.WaitGroup // what goes on: listeners, connections, late effects

	// mu makes one moment of each step: a rule's choice and the arrival's line,
	// an effect and its line. What is below is only touched under it.
	mu          sync.Mutex
	book        *book
	bank        bank
	rules       rules
	tokens      []string
	idleClose   time.Duration
	exchanges   int64
	connections int64
	over        bool // closed, and nothing more will be booked by what went on
	busy        int  // exchanges that are being handled, and late effects that are due
	conns       map[*conn]struct{}
	listener    net.Listener // nil while connections are refused
	url         string
	listen      func() (net.Listener, error) // binds what Start has bound; nil where Serve was given it
}

// New makes a wallet; Start or Serve lets it be called. The error is about the
// configuration or the file of the book.
func New(cfg Config) (*Sim, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b, err := openBook(cfg.BookFile, cfg.BookOnlyInFile)
	if err != nil {
		return nil, err
	}
	s := &Sim{
		versions:         slices.Clone(cfg.Versions),
		forgetRejections: cfg.ForgetRejections,
		echoAmount:       cfg.EchoAmount,
		names:            map[string]Name{},
		log:              cfg.Log,
		closed:           make(chan struct{}),
		book:             b,
		bank:             newBank(cfg, time.Now()),
		rules:            rules{seed: cfg.Seed},
		tokens:           slices.Clone(cfg.Tokens),
		idleClose:        cfg.IdleClose,
		conns:            map[*conn]struct{}{},
	}
	if len(s.versions) == 0 {
		s.versions = []Version{V1, V2}
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	for _, n := range Names() {
		s.names[n.Prefix] = n
	}
	return s, nil
}

// Start listens on a TCP address (port 0: any free one) and serves it in the
// background until Close. When it returns, URL can be called.
func (s *Sim) Start(ctx context.Context, address string) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("start the simulated wallet: %w", err)
	}
	// Binding again must not depend on whether the starter still waits.
	ctx, address = context.WithoutCancel(ctx), listener.Addr().String()
	s.mu.Lock()
	s.listen = func() (net.Listener, error) { return new(net.ListenConfig).Listen(ctx, "tcp", address) }
	s.mu.Unlock()
	s.serveInBackground(listener)
	return nil
}

func (s *Sim) serveInBackground(listener net.Listener) {
	// Adopted here and not by the goroutine: connections must not be refused any
	// more, nor the URL be unknown, once the caller goes on.
	if err := s.adopt(listener); err != nil {
		return
	}
	if !s.goOn(func() { s.logEnd(s.accept(listener)) }) {
		_ = listener.Close()
	}
}

func (s *Sim) logEnd(err error) {
	if err != nil && !errors.Is(err, ErrClosed) {
		s.log.Error("simulated wallet stopped listening", "error", err)
	}
}

// Serve accepts connections of listener, which it owns from now on, until Close
// (then the error is ErrClosed) or Refuse (then it is nil). A wallet has one
// listener: an earlier one is closed.
func (s *Sim) Serve(listener net.Listener) error {
	if err := s.adopt(listener); err != nil {
		return err
	}
	return s.accept(listener)
}

// adopt makes listener the one that Refuse and Close close.
func (s *Sim) adopt(listener net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		_ = listener.Close()
		return ErrClosed
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
	s.listener = listener
	s.url = "http://" + listener.Addr().String()
	return nil
}

func (s *Sim) accept(listener net.Listener) error {
	for {
		raw, err := listener.Accept()
		if err != nil {
			if s.isClosed() {
				return ErrClosed
			}
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept: %w", err)
		}
		s.mu.Lock()
		s.connections++
		c := newConn(raw, s.connections)
		s.conns[c] = struct{}{}
		s.mu.Unlock()
		if !s.goOn(func() { s.serve(c) }) {
			s.drop(c)
		}
	}
}

// URL is the wallet's base, such as "http://127.0.0.1:8090", without a slash at
// its end; "" before it was started.
func (s *Sim) URL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.url
}

// Refuse closes the listener: from now on connecting is refused. Connections
// that exist live on, as they do when a process stops accepting.
func (s *Sim) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil {
		_ = s.listener.Close()
		s.listener = nil
	}
}

// Reopen listens on Start's address again after Refuse. A wallet that was given
// its listener gets a new one the same way, by Serve.
func (s *Sim) Reopen() error {
	s.mu.Lock()
	listen, listening := s.listen, s.listener != nil
	s.mu.Unlock()
	switch {
	case listening:
		return nil
	case listen == nil:
		return errors.New("reopen: the wallet was not started on an address")
	}
	listener, err := listen()
	if err != nil {
		return fmt.Errorf("reopen: %w", err)
	}
	s.serveInBackground(listener)
	return nil
}

// CloseIdle closes the connections on which no request has begun, as a wallet
// does that restarts politely, and says how many there were.
func (s *Sim) CloseIdle() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for c := range s.conns {
		if c.idle {
			_ = c.net.Close()
			n++
		}
	}
	return n
}

// SetIdleClose changes Config.IdleClose, also for connections that are idle now:
// their time begins now.
func (s *Sim) SetIdleClose(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idleClose = d
	for c := range s.conns {
		if c.idle {
			c.expectWithin(d)
		}
	}
}

// SetTokens changes Config.Tokens: during a rotation there are two.
func (s *Sim) SetTokens(tokens ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = slices.Clone(tokens)
}

// Connections is how many were ever accepted.
func (s *Sim) Connections() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

// SetBalance gives an account that balance, in minor units of currency, and
// opens it if it was not there.
func (s *Sim) SetBalance(account, currency string, amountMinor int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(Entry{Event: Opened, Effect: s.bank.give(account, currency, amountMinor)})
	s.book.flush()
}

// Balance is an account's balance, in minor units of currency; 0 where there is
// no such account.
func (s *Sim) Balance(account, currency string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.bank.accounts[account]; a != nil {
		return a.balances[currency]
	}
	return 0
}

// Held is what is held of an account, in minor units of currency.
func (s *Sim) Held(account, currency string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.bank.accounts[account]; a != nil {
		return a.held[currency]
	}
	return 0
}

// Lock makes an account answer ACCOUNT_LOCKED, or lets it be used again. It
// reports whether there is such an account.
func (s *Sim) Lock(account string, locked bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.bank.accounts[account]
	if a != nil {
		a.locked = locked
	}
	return a != nil
}

// Accounts are all accounts with their active holds, by name.
func (s *Sim) Accounts() []AccountView {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bank.view("")
}

// Totals is all the money, by currency.
func (s *Sim) Totals() map[string]Totals {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bank.totals()
}

// ForgetDedupe makes the wallet take the next request with this reference for a
// new one, as after its memory of references has run out; "" is for all of them.
// It says how many operations that concerns. Lookups still find them.
func (s *Sim) ForgetDedupe(reference string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bank.forget(reference)
}

// Close ends everything at once, as a process does that is killed: the listener,
// the connections, answers that are being delayed, effects that were to come
// late. The book can still be read. The error is that of the book's file, if it
// could not be written at any time.
func (s *Sim) Close() error {
	s.mu.Lock()
	if s.isClosed() {
		defer s.mu.Unlock()
		return s.book.err
	}
	close(s.closed)
	if s.listener != nil {
		_ = s.listener.Close()
	}
	for c := range s.conns {
		_ = c.net.Close()
	}
	s.mu.Unlock()

	s.wg.Wait()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	err := s.book.close()
	s.book.wake() // who waits for a line that will not come
	return err
}

func (s *Sim) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// goOn runs f in the background, within the wallet's life, and reports whether
// it does: a closed wallet begins nothing.
func (s *Sim) goOn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return false
	}
	s.wg.Go(f)
	return true
}

// later does f under the lock, after d, unless the wallet is closed before; it
// is called under the lock. The wallet is busy until then.
func (s *Sim) later(d time.Duration, f func()) {
	if s.isClosed() {
		return
	}
	s.busy++
	s.wg.Go(func() {
		due := s.pass(d)
		s.mu.Lock()
		defer s.mu.Unlock()
		if due {
			f()
		}
		s.rest()
	})
}

// rest ends what made the wallet busy. It is called under the lock.
func (s *Sim) rest() {
	s.busy--
	s.book.flush()
	s.book.wake()
}

// pass lets d go by and reports whether it did before the wallet was closed.
func (s *Sim) pass(d time.Duration) bool {
	if d <= 0 {
		return !s.isClosed()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.closed:
		return false
	}
}

// append books e, which happens now. It is called under the lock, and book.flush
// before anything of it can be seen.
func (s *Sim) append(e Entry) {
	e.At = time.Now().UTC()
	s.book.append(e)
}
