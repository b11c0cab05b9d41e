package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/safeledger/safeledger/test/torture/netfault"
)

// nemesis does to the processes, the networks and PostgreSQL what is drawn. When exactly
// it strikes, no seed says: real processes have their own time.
type nemesis struct {
	w    *world
	pace float64 // how much of the pauses there is: 1 = as they are
	// dealt is which kinds the run is to have.
	dealt func(kind) bool
	fail  context.CancelCauseFunc
}

// deck deals kinds in an order that is drawn anew each time round. What it dealt and
// struck nobody comes again at the end of its round: a point that no process reached, say.
type deck struct {
	kinds []kind

	mu   sync.Mutex
	rng  *rand.Rand
	left []string
}

func newDeck(seed, stream uint64, kinds []kind) *deck {
	return &deck{kinds: kinds, rng: rand.New(rand.NewPCG(seed, 1<<32+stream))} //nolint:gosec // repeatable on purpose
}

// deal gives a kind, and what its details are drawn from.
func (d *deck) deal() (name string, rng *rand.Rand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.left) == 0 {
		for _, i := range d.rng.Perm(len(d.kinds)) {
			d.left = append(d.left, d.kinds[i].name)
		}
	}
	name, d.left = d.left[0], d.left[1:]
	return name, rand.New(rand.NewPCG(d.rng.Uint64(), 0)) //nolint:gosec // as above
}

func (d *deck) again(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = append(d.left, name)
}

// stream strikes with what the deck deals until ctx ends.
func (n *nemesis) stream(ctx context.Context, d *deck, between time.Duration, strike func(context.Context, *rand.Rand, string) (struck bool, err error)) {
	for {
		name, rng := d.deal()
		if !pause(ctx, time.Duration(n.pace*float64(between)*(0.3+rng.Float64()))) {
			return
		}
		struck, err := strike(ctx, rng, name)
		switch {
		case struck:
			n.w.count.hit(name)
		case err == nil:
			d.again(name)
		}
		if err != nil && ctx.Err() == nil {
			n.fail(fmt.Errorf("%s: %w", name, err))
			return
		}
	}
}

// disturbed tells the checker that no promise about time can be kept while do is at it.
func (n *nemesis) disturbed(what string, do func() (bool, error)) (bool, error) {
	calm, err := n.w.log.Disturb(what)
	if err != nil {
		return false, err
	}
	struck, err := do()
	return struck, errors.Join(err, calm())
}

// run lets all streams loose until ctx ends, and returns when all of them have put back
// what they were at.
func (n *nemesis) run(ctx context.Context, seed uint64) {
	var all sync.WaitGroup
	// One deck for all replicas. Two of three are struck at a time: somebody must serve, or
	// nothing happens that could go wrong.
	dealt := func(kinds []kind) []kind { return slices.DeleteFunc(kinds, func(k kind) bool { return !n.dealt(k) }) }
	processes := newDeck(seed, 0, dealt(processKinds()))
	places := make(chan struct{}, len(n.w.replicas)-1)
	for i, r := range n.w.replicas {
		all.Go(func() {
			n.stream(ctx, processes, 2*time.Second, func(ctx context.Context, rng *rand.Rand, name string) (bool, error) {
				select {
				case places <- struct{}{}:
					defer func() { <-places }()
				case <-ctx.Done():
					return false, nil
				}
				return n.disturbed(fmt.Sprintf("%s, replica %d", name, i), func() (bool, error) { return n.process(ctx, rng, r, name) })
			})
		})
	}
	others := []struct {
		kinds   []kind
		between time.Duration
		strike  func(context.Context, *rand.Rand, string) (bool, error)
	}{
		{dealt(postgresKinds()), 3 * time.Second, n.postgres},
		{ledgerNetworkKinds(), 2 * time.Second, n.network},
		{walletNetworkKinds(), 2 * time.Second, n.network},
		{walletControlKinds(), 4 * time.Second, n.wallet},
	}
	for i, o := range others {
		all.Go(func() {
			n.stream(ctx, newDeck(seed, uint64(1+i), o.kinds), o.between, func(ctx context.Context, rng *rand.Rand, name string) (bool, error) {
				return n.disturbed(name, func() (bool, error) { return o.strike(ctx, rng, name) })
			})
		})
	}
	all.Wait()
}

// The points of package crashpoint.
func decisionPoints() []string {
	return []string{"after-claim", "after-send", "after-wallet-answer", "before-answer"}
}

func workerPoints() []string {
	return []string{"worker-after-lease", "worker-after-lookup", "worker-after-send", "worker-before-settle", "worker-after-settle"}
}

func processKinds() []kind {
	k := func(name, does string) kind { return kind{group: ofProcess, name: name, does: does} }
	all := []kind{
		k("kill", "kill -9 at a random moment"),
		k("kill-again", "kill -9 as soon as it is back"),
		k("stop-short", "SIGSTOP for a moment, then SIGCONT"),
		k("stop-past-recovery", "SIGSTOP until others have decided what it was at, then SIGCONT"),
		k("stop-past-lease", "SIGSTOP until others have its work, then SIGCONT"),
		k("drain", "SIGTERM, and a replacement"),
		k("drain-cut-short", "SIGTERM twice"),
		k("kill-draining", "kill -9 while it drains"),
	}
	for _, point := range append(decisionPoints(), workerPoints()...) {
		all = append(all, k("kill-"+point, "kill -9 at the point "+point), k("stop-"+point, "SIGSTOP at the point "+point+", past recovery or the lease"))
	}
	return all
}

// How long a stopped process stands still. See the numbers of the world.
const (
	pastRecovery = 4200 * time.Millisecond
	pastLease    = lease + 1200*time.Millisecond
)

// process does a kind to a replica, and leaves it running.
func (n *nemesis) process(ctx context.Context, rng *rand.Rand, r *replica, name string) (struck bool, err error) {
	if r.down() { // it was killed while it started
		if err := n.restart(ctx, rng, r, ""); err != nil {
			return false, err
		}
	}
	if how, point, at := strings.Cut(name, "-"); at && isPoint(point) {
		return n.atPoint(ctx, rng, r, how, point)
	}
	p := r.process()
	switch name {
	case "kill":
		p.kill()
	case "kill-again":
		p.kill()
		if err := n.restart(ctx, rng, r, ""); err != nil {
			return false, err
		}
		pause(ctx, time.Duration(rng.IntN(60))*time.Millisecond)
		r.process().kill()
	case "stop-short":
		n.stop(ctx, r, time.Duration(100+rng.IntN(1200))*time.Millisecond)
	case "stop-past-recovery":
		n.stop(ctx, r, pastRecovery+time.Duration(rng.IntN(600))*time.Millisecond)
	case "stop-past-lease":
		n.stop(ctx, r, pastLease+time.Duration(rng.IntN(1500))*time.Millisecond)
	case "drain":
		if err := r.drain(context.WithoutCancel(ctx)); err != nil {
			return false, err
		}
	case "drain-cut-short", "kill-draining":
		p.signal(syscall.SIGTERM)
		pause(ctx, time.Duration(rng.IntN(400))*time.Millisecond)
		if name == "kill-draining" {
			p.kill()
		} else {
			p.signal(syscall.SIGTERM)
		}
		if !p.ended(context.WithoutCancel(ctx), drainPatience) {
			p.kill()
			return false, fmt.Errorf("replica %d did not end within %v of its second signal", r.number, drainPatience)
		}
		// It may have been quicker than the second signal.
		if cut := p.killed() || p.State().ExitCode() != 0; !cut {
			return false, n.restart(ctx, rng, r, "")
		}
	}
	if r.down() {
		err = n.restart(ctx, rng, r, "")
	}
	return true, err
}

// stop lets a replica stand still for a while.
func (n *nemesis) stop(ctx context.Context, r *replica, d time.Duration) {
	r.still.Store(true)
	defer r.still.Store(false)
	p := r.process()
	p.signal(syscall.SIGSTOP)
	pause(ctx, d)
	p.signal(syscall.SIGCONT)
}

func isPoint(name string) bool {
	for _, point := range append(decisionPoints(), workerPoints()...) {
		if point == name {
			return true
		}
	}
	return false
}

// restart starts a replica again, in a role that is drawn. It goes on when ctx has ended:
// a stream leaves its replica running.
func (n *nemesis) restart(ctx context.Context, rng *rand.Rand, r *replica, crashAt string) error {
	role := "all"
	switch worker := strings.HasPrefix(crashAt, "worker-"); rng.IntN(6) {
	case 0:
		if crashAt == "" || !worker {
			role = "api"
		}
	case 1:
		if crashAt == "" || worker {
			role = "worker"
		}
	}
	return r.start(context.WithoutCancel(ctx), role, crashAt)
}

// atPoint replaces the process by one that is killed, or stopped, at its n-th passage of
// a point.
func (n *nemesis) atPoint(ctx context.Context, rng *rand.Rand, r *replica, how, point string) (struck bool, err error) {
	if err := r.drain(context.WithoutCancel(ctx)); err != nil {
		return false, err
	}
	ofWorker := strings.HasPrefix(point, "worker-")
	most, still := 40, pastRecovery
	if ofWorker {
		most, still = 10, pastLease
	}
	at := fmt.Sprintf("%s:%d", point, 1+rng.IntN(most))
	if how == "stop" {
		at += ":stop"
	}
	if err := n.restart(ctx, rng, r, at); err != nil {
		return false, err
	}
	p := r.process()
	const reach = 12 * time.Second // for the n-th passage
	for end := time.Now().Add(reach); ; {
		switch {
		case p.stopped():
			n.stop(ctx, r, still+time.Duration(rng.IntN(800))*time.Millisecond)
			return true, nil
		case r.down():
			return true, n.restart(ctx, rng, r, "")
		case time.Now().After(end), !pause(ctx, 10*time.Millisecond):
			// Not reached. What it carries must not go off later, unnoticed.
			p.kill()
			return false, n.restart(ctx, rng, r, "")
		}
	}
}

func ledgerNetworkKinds() []kind {
	k := func(name, does string) kind { return kind{group: ofNetwork, name: name, does: does} }
	return []kind{
		k("ledger-commit-answer-cut", "the answer to a COMMIT is lost, and its connection reset"),
		k("ledger-commit-answer-late", "the answer to a COMMIT comes late, within the till's time or not"),
		k("ledger-commit-answer-swallowed", "the answer to a COMMIT is lost, and its connection stays open"),
		k("ledger-ask-cut", "what was sent to PostgreSQL is lost, and its connection reset"),
		k("ledger-ask-late", "what was sent to PostgreSQL arrives late"),
		k("ledger-held", "nothing passes for a while, and then all of it"),
		k("ledger-black-hole", "what is sent to PostgreSQL is lost, and nobody hears of it"),
		k("ledger-half-open", "PostgreSQL hears, and its answers are lost"),
		k("ledger-slow", "every answer of PostgreSQL takes longer"),
		k("ledger-cut", "all connections to PostgreSQL are reset"),
		k("ledger-refused", "all connections are reset, and new ones too"),
	}
}

func walletNetworkKinds() []kind {
	k := func(name, does string) kind { return kind{group: ofNetwork, name: name, does: does} }
	return []kind{
		k("path-ask-late", "requests arrive late at the wallet"),
		k("path-ask-held", "requests are kept on the way, and delivered when nobody waits for them any more"),
		k("path-black-hole", "requests are lost on the way, and nobody hears of it"),
		k("path-half-open", "the wallet hears, and its answers are lost"),
		k("path-answer-late", "answers come late"),
		k("path-answer-held", "answers are kept on the way"),
		k("path-answer-cut", "an answer is lost, and its connection reset"),
		k("path-cut", "all connections to the wallet are reset"),
		k("path-refused", "new connections are reset"),
	}
}

func networkKinds() []kind { return append(ledgerNetworkKinds(), walletNetworkKinds()...) }

// network does a kind to the proxy of a replica that is drawn.
func (n *nemesis) network(ctx context.Context, rng *rand.Rand, name string) (struck bool, err error) {
	commit := []byte("COMMIT\x00") // the tag of CommandComplete
	millis := func(from, to int) time.Duration { return time.Duration(from+rng.IntN(to-from)) * time.Millisecond }
	proxies := n.w.toLedger
	if strings.HasPrefix(name, "path-") {
		proxies = n.w.toWallet
	}
	p := proxies[rng.IntN(len(proxies))]
	var f netfault.Fault
	lasts := millis(400, 2500)
	switch name {
	case "ledger-commit-answer-cut":
		f = netfault.Fault{Answer: netfault.Cut, Only: commit, Once: true}
	case "ledger-commit-answer-late":
		f = netfault.Fault{Answer: netfault.Late, Only: commit, Delay: millis(50, 3500)}
	case "ledger-commit-answer-swallowed":
		f = netfault.Fault{Answer: netfault.Drop, Only: commit, Once: true}
	case "ledger-ask-cut":
		f = netfault.Fault{Ask: netfault.Cut, Once: true}
	case "ledger-ask-late":
		f = netfault.Fault{Ask: netfault.Late, Delay: millis(20, 600)}
	case "ledger-held":
		f = netfault.Fault{Ask: netfault.Hold, Answer: netfault.Hold}
	case "ledger-black-hole":
		f = netfault.Fault{Ask: netfault.Drop}
	case "ledger-half-open", "path-half-open":
		f = netfault.Fault{Answer: netfault.Drop}
	case "ledger-slow":
		f = netfault.Fault{Answer: netfault.Late, Delay: millis(5, 60)}
	case "ledger-cut", "path-cut":
		f = netfault.Fault{CutAll: true}
		lasts = millis(1, 50)
	case "ledger-refused", "path-refused":
		f = netfault.Fault{CutAll: true, Refuse: true}
	case "path-ask-late":
		f = netfault.Fault{Ask: netfault.Late, Delay: millis(100, 900)}
	case "path-ask-held":
		f = netfault.Fault{Ask: netfault.Hold}
		lasts = millis(1000, 4000)
	case "path-black-hole":
		f = netfault.Fault{Ask: netfault.Drop}
	case "path-answer-late":
		f = netfault.Fault{Answer: netfault.Late, Delay: millis(100, 1300)}
	case "path-answer-held":
		f = netfault.Fault{Answer: netfault.Hold}
	case "path-answer-cut":
		f = netfault.Fault{Answer: netfault.Cut, Once: true}
	}
	p.Begin(f)
	pause(ctx, lasts)
	return p.End() > 0, nil
}

// wallet does a kind to the wallet's process and its listener.
func (n *nemesis) wallet(ctx context.Context, rng *rand.Rand, name string) (struck bool, err error) {
	c := n.w.control
	switch name {
	case "closes-idle":
		// For a while kept connections end after moments, and all that are idle now at once.
		idle := map[string]string{"idleClose": (time.Duration(5+rng.IntN(60)) * time.Millisecond).String()}
		if err := c.call(ctx, http.MethodPut, "connections", idle, nil); err != nil {
			return false, err
		}
		pause(ctx, 2*time.Second)
		if err := c.call(ctx, http.MethodPost, "connections/close-idle", nil, nil); err != nil {
			return false, err
		}
		if err := c.call(ctx, http.MethodPut, "connections", map[string]string{"idleClose": "0s"}, nil); err != nil {
			return false, err
		}
	case "refuses":
		if err := c.call(ctx, http.MethodPost, "refuse", map[string]string{"for": (time.Duration(200+rng.IntN(1500)) * time.Millisecond).String()}, nil); err != nil {
			return false, err
		}
		pause(ctx, 2*time.Second)
	case "wallet-stopped":
		n.w.wallet.signal(syscall.SIGSTOP)
		pause(ctx, time.Duration(500+rng.IntN(3500))*time.Millisecond)
		n.w.wallet.signal(syscall.SIGCONT)
	}
	return true, nil
}
