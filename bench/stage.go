package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"
)

// The variants that are compared.
const (
	shipped    = "SafeLedger"       // as it is shipped: `safeledger serve` and all its defaults
	ungrouped  = "grouping off"     // the same, each claim and decision with a commit of its own
	noDatabase = "no database"      // the same server and wallet call, with a ledger that keeps nothing
	bare       = "bare HTTP server" // net/http, encoding/json and the wallet call
)

// durable is whether the variant has a database.
func durable(variant string) bool { return variant == shipped || variant == ungrouped }

// stage is what one measurement runs on. All its processes are its own, so that no
// measurement inherits the heap, the connections or the rows of another.
type stage struct {
	w        *world
	wallet   *child
	server   *child
	database string // "" = the variant has none
	borrowed bool   // the database is not ours to drop
	address  string // of the tills
	admin    string
	before   written
	startup  time.Duration // from the start of the server's process until it was ready
}

// set starts the wallet and the server of p, on its database. The stage is to be struck.
func (b *bench) set(ctx context.Context, p point) (_ *stage, err error) {
	s := &stage{w: b.world}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.strike(ctx))
		}
	}()
	if durable(p.Variant) {
		if s.database, s.borrowed, err = b.database(ctx, p); err != nil {
			return nil, err
		}
		if s.before, err = s.w.written(ctx, s.database); err != nil {
			return nil, err
		}
	}
	var wallet string
	err = atFreeAddresses(func() (err error) {
		wallet, err = s.startWallet(ctx, p)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := atFreeAddresses(func() error { return s.startServer(ctx, p, wallet) }); err != nil {
		return nil, err
	}
	return s, nil
}

// strike ends what set has started.
func (s *stage) strike(ctx context.Context) error {
	errs := []error{s.stopServer()}
	if s.wallet != nil {
		errs = append(errs, s.wallet.stop())
	}
	if s.database != "" && !s.borrowed {
		errs = append(errs, s.w.drop(context.WithoutCancel(ctx), s.database))
	}
	return errors.Join(errs...)
}

func (s *stage) stopServer() error {
	if s.server == nil {
		return nil
	}
	return s.server.stop()
}

// uncollected is a wallet that collects no garbage before it has a lot of it. It remembers
// every payment, and in a measurement of a minute going through what it remembers takes
// both cores of a small machine for a twentieth of a second, every few seconds: what is
// told then of the longest waits of tills would be told of the simulator.
func uncollected() []string { return []string{"GOGC=off", "GOMEMLIMIT=3GiB"} }

// startWallet starts the simulated wallet of p.
func (s *stage) startWallet(ctx context.Context, p point) (base string, err error) {
	delay := p.wallet()
	free, err := freeAddresses(ctx, 1)
	if err != nil {
		return "", err
	}
	address := free[0]
	base = "http://" + address
	c := command{name: "wallet", program: s.w.program("walletsim"), args: []string{"--addr", address, "--open-accounts"}, logs: s.w.logs}
	if p.Phase == phaseBacklog {
		c.env = uncollected()
	}
	s.wallet, err = c.start()
	if err != nil {
		return "", err
	}
	if err := s.wallet.await(ctx, func(ctx context.Context) error { return ask(ctx, http.MethodGet, base+"/control/rules", "") }); err != nil {
		return "", err
	}
	if delay == 0 {
		return base, nil
	}
	rule := fmt.Sprintf(`{"name": "slow", "match": {"operation": "any"}, "fault": {"delayBefore": %q}}`, delay)
	return base, ask(ctx, http.MethodPost, base+"/control/rules", rule)
}

// startServer starts the server of a variant and waits until it is ready.
func (s *stage) startServer(ctx context.Context, p point, wallet string) (err error) {
	free, err := freeAddresses(ctx, 2)
	if err != nil {
		return err
	}
	s.address, s.admin = free[0], free[1]
	c := command{name: "server", logs: s.w.logs, env: []string{
		"SAFELEDGER_DATABASE_URL=" + s.w.url(s.database), "SAFELEDGER_WALLET_BASE_URL=" + wallet,
		"SAFELEDGER_CALLERS_FILE=" + s.w.callers(), "SAFELEDGER_HTTP_ADDR=" + s.address, "SAFELEDGER_ADMIN_ADDR=" + s.admin,
		"SAFELEDGER_DRAIN_DELAY=0s",  // nobody else routes to it
		"CPU_PROFILE=" + s.w.profile, // heard by a build for it only
	}}
	switch p.Variant {
	case shipped, ungrouped:
		c.program, c.args = s.w.program("safeledger"), []string{"serve"}
		if p.Phase == phaseQueue {
			c.args = append(c.args, "--role=worker")
		}
		if p.Variant == ungrouped && s.w.grouping {
			c.env = append(c.env, groupCommit+"=off")
		}
	case noDatabase:
		c.program, c.args = s.w.program("bench"), []string{"no-database"}
	case bare:
		s.admin = s.address
		c.program, c.args = s.w.program("bench"), []string{"bare", "--address", s.address, "--wallet", wallet}
	default:
		return fmt.Errorf("no variant %q", p.Variant)
	}
	began := time.Now()
	if s.server, err = c.start(); err != nil {
		return err
	}
	err = s.server.await(ctx, func(ctx context.Context) error { return ask(ctx, http.MethodGet, "http://"+s.admin+"/readyz", "") })
	s.startup = time.Since(began)
	return err
}

// atFreeAddresses starts what listens at addresses that were free a moment ago, and once
// or twice more, at others, where it ended at once: somebody else may have got one of them
// meanwhile. Tests run beside each other.
func atFreeAddresses(start func() error) (err error) {
	const most = 3
	for range most {
		if err = start(); !errors.Is(err, errEnded) {
			break
		}
	}
	return err
}

// freeAddresses are n addresses on the loopback that nobody listens at right now. They
// differ: what is given back before the next is asked for may be the next, once in some
// fourteen thousand times, and a server with one address for two purposes does not start.
func freeAddresses(ctx context.Context, n int) ([]string, error) {
	var free []string
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(0)))
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }() // behind the loop: all are held until all are found
		free = append(free, l.Addr().String())
	}
	return free, nil
}

// ask makes one HTTP request and wants a 2xx.
func ask(ctx context.Context, method, url, body string) error {
	_, err := get(ctx, method, url, body)
	return err
}

func get(ctx context.Context, method, url, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return nil, fmt.Errorf("%s %s answered %s: %s", method, url, response.Status, text.Bytes())
	}
	return text.Bytes(), nil
}
