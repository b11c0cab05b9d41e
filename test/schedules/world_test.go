package schedules

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/ledger/memory"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/servicetest"
	"github.com/safeledger/safeledger/internal/tracing"
	"github.com/safeledger/safeledger/internal/wallet"
	"github.com/safeledger/safeledger/internal/walletsim"
	"github.com/safeledger/safeledger/internal/walletsim/pipe"
)

// world is a schedule while it happens: all of it in one bubble, by one fake clock.
type world struct {
	plan  plan
	begin time.Time
	ctx   context.Context

	sim      *walletsim.Sim
	toWallet *pipe.Listener
	ledger   *memory.Ledger // as the oracle and operators see it: nothing goes wrong there
	tokens   *callers.Set
	replicas []*replica
	journal  journal

	// calm is set when nothing goes wrong any more.
	calm     atomic.Bool
	refuses  atomic.Int32 // how many events keep the wallet's listener from accepting
	swallows atomic.Int32
	away     atomic.Int32 // the same of the ledger
}

// newWorld makes the world of p.
func newWorld(t *testing.T, p plan) *world {
	t.Helper()
	w := &world{plan: p, begin: time.Now(), ctx: t.Context(), toWallet: pipe.Listen()}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	w.sim, err = walletsim.New(walletsim.Config{EchoAmount: p.Echoes})
	must(err)
	for i, balance := range p.Accounts {
		w.sim.SetBalance(account(i), currency, balance)
	}
	for i, r := range p.Rules {
		f := walletFaults[r.Fault]
		match := walletsim.Match{Operation: r.Operation, From: r.From, Count: r.Count}
		if r.Account >= 0 && r.Operation != "" {
			match.Account = account(r.Account)
		}
		_, err := w.sim.AddRule(walletsim.Rule{Name: strconv.Itoa(i), Match: match, Fault: f.fault})
		must(err)
	}
	go func() { _ = w.sim.Serve(w.toWallet) }() // ends with the simulator

	w.ledger = memory.New(memory.Config{Horizon: servicetest.Horizon})
	w.tokens, err = callers.Parse([]byte(`{"callers": [
		{"name": "store-17", "tokenSha256": "` + callers.HashToken(token(0)) + `", "scopes": ["till"]},
		{"name": "store-18", "tokenSha256": "` + callers.HashToken(token(1)) + `", "scopes": ["till", "payout"]}]}`))
	must(err)
	for i := range p.Replicas {
		w.replicas = append(w.replicas, &replica{w: w, n: i, faults: map[memory.Step][2]int{}})
	}
	for _, r := range w.replicas {
		must(r.start())
	}
	return w
}

const currency = "EUR"

func account(i int) string { return fmt.Sprintf("acc-%d", i) }

func token(caller int) string { return fmt.Sprintf("token-of-till-%d", caller) }

// close ends everything.
func (w *world) close() {
	for _, r := range w.replicas {
		r.die()
	}
	for _, r := range w.replicas {
		for _, p := range r.processes() {
			<-p.ended
		}
	}
	_ = w.sim.Close()
}

// happen makes events happen in their time.
func (w *world) happen() *sync.WaitGroup {
	var all sync.WaitGroup
	for i, e := range w.plan.Events {
		// No two things are begun in one instant: synctest would draw their order.
		at := e.At + time.Duration(500+7*i)*time.Microsecond
		all.Go(func() {
			time.Sleep(at)
			if !w.calm.Load() {
				w.event(e)
			}
		})
	}
	return &all
}

func (w *world) event(e event) {
	r := w.replicas[e.Replica%len(w.replicas)]
	w.journal.note("event: replica %d, account %d: %s for %s", r.n, e.Account, e.What, e.For)
	during := func(n *atomic.Int32) {
		n.Add(1)
		time.Sleep(e.For)
		n.Add(-1)
	}
	switch e.What {
	case freeze:
		p := r.present()
		if p.halt() {
			p.thawAfter(e.For)
		}
	case freezeCall:
		p := r.present()
		halted := false
		if p.spring(func() { halted = p.halt() }) && halted {
			p.thawAfter(e.For)
		}
	case kill:
		r.kill(e.For)
	case killCall:
		if r.present().spring(func() { r.die() }) {
			w.journal.mark(markKilledInside)
			time.Sleep(e.For)
			r.restart()
		}
	case drain:
		r.drain(e.For)
	case refuse:
		during(&w.refuses)
	case swallow:
		during(&w.swallows)
	case closeIdle:
		if w.sim.CloseIdle() > 0 {
			w.journal.mark(markIdleClosed)
		}
	case outage:
		during(&w.away)
	case clockAhead:
		w.ledger.Skew(8 * time.Second)
	case clockBack:
		w.ledger.Skew(-8 * time.Second)
	case lockUp:
		w.sim.Lock(account(e.Account), true)
	case topUp:
		w.sim.SetBalance(account(e.Account), currency, 1_000_000)
	}
}

// mend ends whatever is wrong.
func (w *world) mend() {
	w.calm.Store(true)
	for i, r := range w.sim.Rules() {
		if r.Hits > 0 {
			w.journal.marks(walletFaults[w.plan.Rules[i].Fault].mark(), int(r.Hits))
		}
	}
	w.sim.ClearRules()
	for i := range w.plan.Accounts {
		w.sim.Lock(account(i), false)
	}
}

// replica is a place where one process runs at a time.
type replica struct {
	w *world
	n int

	mu     sync.Mutex
	lives  []*process             // the last is the present one, unless it is dead
	faults map[memory.Step][2]int // statements so far: before and after they took effect
}

func (r *replica) present() *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lives[len(r.lives)-1]
}

// processes are all that there have been.
func (r *replica) processes() []*process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lives)
}

// process is one life of a replica.
type process struct {
	*servicetest.Replica

	r     *replica
	n     int // counted over all replicas
	since time.Time
	tills *pipe.Listener
	stop  context.CancelFunc // of its work
	ended chan struct{}      // its work has

	dead chan struct{}
	trap atomic.Pointer[func()] // sprung by the next write to the wallet

	mu       sync.Mutex
	thaw     chan struct{} // not nil while it stands still
	haltedAt time.Time
	down     bool
	// conns are what the kernel closes when a process dies.
	conns map[net.Conn]struct{}
}

// start starts a process.
func (r *replica) start() error {
	w := r.w
	p := &process{
		r: r, n: r.n + 10*len(r.processes()), since: time.Now(), tills: pipe.Listen(), dead: make(chan struct{}), ended: make(chan struct{}),
		conns: map[net.Conn]struct{}{},
	}
	s := w.plan.Settings
	purse := servicetest.Wallet(p.dialWallet)
	if w.plan.V1 {
		purse.Version = wallet.V1
	}
	purse.MaxInFlight, purse.Breaker.MinCalls = s.Places, s.BreakerCalls
	observer := &observer{journal: &w.journal, p: p}
	purse.Observer = observer
	work := servicetest.Queue()
	work.ParkAfter, work.LookupsPerSecond, work.Observer = s.ParkAfter, s.Lookups, observer
	draw := rand.New(rand.NewPCG(uint64(p.n), 1))
	var drawing sync.Mutex
	work.Jitter = func(d time.Duration) time.Duration {
		drawing.Lock()
		defer drawing.Unlock()
		return time.Duration(draw.Int64N(int64(d))) + 1
	}
	l := w.ledger.Another(memory.Config{
		Horizon: servicetest.Horizon, Before: p.before, After: p.after,
		Recovered: func(ctx context.Context, _ payment.Payment) {
			if exchangeOf(ctx) == none {
				w.journal.mark(markRecoveredBySweep)
			} else {
				w.journal.mark(markRecoveredWhenMet)
			}
		},
	})
	var err error
	p.Replica, err = servicetest.New(servicetest.Config{
		Ledger: leases{l, p}, Tills: listener{p.tills, p}, Callers: w.tokens, Wallet: purse, Queue: work,
		MaxInFlight: s.MaxInFlight, MaxPerCaller: s.MaxPerCaller, Observer: observer,
		Around: p.around, Watch: func(lane string, l servicetest.Lane) servicetest.Lane { return watched{l, lane, p} },
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(w.ctx)
	p.stop = stop
	r.mu.Lock()
	r.lives = append(r.lives, p)
	r.mu.Unlock()
	go func() {
		defer close(p.ended)
		// The replicas' own clocks do not tick together.
		time.Sleep(time.Duration(137*p.n)*ms + time.Duration(201+p.n)*time.Microsecond)
		if ctx.Err() == nil {
			p.Work(ctx)
		}
	}()
	return nil
}

// leases is a ledger of which the journal knows who has what lease.
type leases struct {
	*memory.Ledger

	p *process
}

func (l leases) Lease(ctx context.Context, order payment.LeaseOrder) ([]payment.Work, error) {
	if order.Sends && order.Retries == 0 {
		l.p.r.w.journal.mark(markNoToken)
	}
	work, err := l.Ledger.Lease(ctx, order)
	for _, w := range work {
		l.p.r.w.journal.leased(w)
	}
	return work, err
}

func (l leases) Settle(ctx context.Context, s payment.Settlement) (bool, error) {
	newest := l.p.r.w.journal.newestLease(s.ID)
	settled, err := l.Ledger.Settle(ctx, s)
	if settled && s.Fence < newest {
		l.p.r.w.journal.complain("I13", "%s was settled under lease %d, after %d was given", s.ID, s.Fence, newest)
	}
	return settled, err
}

// die ends the present process at once, as kill -9 does: whatever it has not yet done
// it will not do.
func (r *replica) die() bool {
	p := r.present()
	p.mu.Lock()
	if p.down {
		p.mu.Unlock()
		return false
	}
	p.down = true
	close(p.dead)
	for c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.stop()
	_ = p.tills.Close()
	p.Close()
	return true
}

func (r *replica) kill(restart time.Duration) {
	p := r.present()
	if inside := p.Gate.InFlight(); inside > 0 {
		r.w.journal.mark(markKilledInside)
	}
	if !r.die() {
		return
	}
	r.w.journal.mark(markKilled)
	time.Sleep(restart)
	r.restart()
}

// drain ends the present process in order.
func (r *replica) drain(restart time.Duration) {
	p := r.present()
	p.stop()
	if err := p.Drain(r.w.ctx); err != nil {
		r.w.journal.note("replica %d: drain: %v", r.n, err)
	} else {
		r.w.journal.mark(markDrained)
	}
	if r.die() {
		time.Sleep(restart)
		r.restart()
	}
}

// restart starts a process where there is none.
func (r *replica) restart() {
	if p := r.present(); !p.isDead() {
		return
	}
	if err := r.start(); err != nil {
		r.w.journal.complain("harness", "replica %d does not start: %v", r.n, err)
	}
}

// halt makes the process stand still, as SIGSTOP does: the world goes on. It is false
// where it does so already.
func (p *process) halt() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.thaw != nil {
		return false
	}
	p.thaw = make(chan struct{})
	p.haltedAt = time.Now()
	return true
}

// thawAfter lets it go on after d.
func (p *process) thawAfter(d time.Duration) {
	time.Sleep(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.thaw)
	p.thaw = nil
	p.r.w.journal.stoodStill(p, p.haltedAt, time.Now())
}

// patience is how long a trap waits for a call.
const patience = 20 * time.Second

// spring has do done as soon as the process has written to the wallet, in the very
// moment; false where it has not done so for long.
func (p *process) spring(do func()) bool {
	sprung := make(chan struct{})
	trap := func() {
		do()
		close(sprung)
	}
	p.trap.Store(&trap)
	select {
	case <-sprung:
		return true
	case <-time.After(patience):
		return !p.trap.CompareAndSwap(&trap, nil)
	}
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// alive waits while the process stands still, and reports whether it lives then. Nothing
// goes in or out of a process past it.
func (p *process) alive() bool {
	p.mu.Lock()
	thaw := p.thaw
	p.mu.Unlock()
	if thaw != nil {
		p.r.w.journal.mark(markStoodStill)
		select {
		case <-thaw:
		case <-p.dead:
		}
	}
	return !p.isDead()
}

var (
	errDead    = errors.New("the process is dead")
	errStorage = errors.New("the connection to the database was lost")
)

// own makes c end with the process. It is false where that is over already.
func (p *process) own(c net.Conn, toWallet bool) (net.Conn, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.down {
		_ = c.Close()
		return nil, false
	}
	p.conns[c] = struct{}{}
	return &conn{Conn: c, p: p, toWallet: toWallet}, true
}

// conn is a connection as the process has it.
type conn struct {
	net.Conn

	p        *process
	toWallet bool
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.p.alive()
	return n, err
}

func (c *conn) Write(b []byte) (int, error) {
	if !c.p.alive() {
		return 0, errDead
	}
	n, err := c.Conn.Write(b)
	if c.toWallet {
		if trap := c.p.trap.Swap(nil); trap != nil {
			(*trap)()
		}
	}
	return n, err
}

func (c *conn) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c.Conn)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// listener is where the process lets tills in.
type listener struct {
	*pipe.Listener

	p *process
}

func (l listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if mine, ok := l.p.own(c, false); ok {
			return mine, nil
		}
	}
}

// dialWallet connects to the wallet.
func (p *process) dialWallet(ctx context.Context, network, address string) (net.Conn, error) {
	w := p.r.w
	if !p.alive() {
		return nil, errDead
	}
	switch calm := w.calm.Load(); {
	case !calm && w.refuses.Load() > 0:
		w.journal.mark(markRefused)
		return nil, &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	case !calm && w.swallows.Load() > 0:
		w.journal.mark(markSwallowed)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := w.toWallet.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	mine, ok := p.own(c, true)
	if !ok {
		return nil, errDead
	}
	return mine, nil
}

// around tells what is done for an exchange from what is not: by the trace of its
// caller, which is all that goes on with a payment when its till has hung up.
func (p *process) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		n, err := strconv.Atoi(r.Header.Get(exchangeHeader))
		if err != nil {
			p.r.w.journal.complain("harness", "a request without a number: %v", err)
		}
		p.r.w.journal.handled(n)
		next.ServeHTTP(rw, r.WithContext(tracing.WithCallers(r.Context(), strconv.Itoa(n))))
	})
}

// exchangeHeader numbers the requests of a schedule.
const exchangeHeader = "X-Exchange"

func exchangeOf(ctx context.Context) int {
	n, err := strconv.Atoi(tracing.Callers(ctx))
	if err != nil {
		return none
	}
	return n
}

// none is no exchange: what a process does by itself.
const none = -1

// fault is what the plan has for a statement now, nil for nothing.
func (p *process) fault(step memory.Step, afterwards bool) *storageFault {
	r, w := p.r, p.r.w
	if w.calm.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.faults[step]
	i := 0
	if afterwards {
		i = 1
	}
	n[i]++
	r.faults[step] = n
	at := slices.IndexFunc(w.plan.Storage, func(f storageFault) bool {
		return f.Replica%len(w.replicas) == r.n && f.Step == step && f.How.afterwards() == afterwards && n[i] >= f.From && n[i] < f.From+f.Count
	})
	if at < 0 {
		return nil
	}
	return &w.plan.Storage[at]
}

// before is memory.Config.Before.
func (p *process) before(ctx context.Context, step memory.Step) error {
	w := p.r.w
	if !p.alive() {
		return errDead
	}
	exchange := exchangeOf(ctx)
	w.journal.stated(exchange)
	if w.away.Load() > 0 && !w.calm.Load() {
		w.journal.struck(p, exchange, step, "the ledger is away", 0)
		w.journal.mark(markAway)
		return errStorage
	}
	f := p.fault(step, false)
	if f == nil {
		return nil
	}
	w.journal.struck(p, exchange, step, f.How, f.For)
	w.journal.mark(storageMark(step, f.How))
	switch f.How {
	case refused:
		return errStorage
	case late:
		return memory.Late{After: f.For}
	case slow:
		if err := wait(ctx, f.For); err != nil {
			return err
		}
	case lost, slowBack:
	}
	if !p.alive() {
		return errDead
	}
	return nil
}

// after is memory.Config.After.
func (p *process) after(ctx context.Context, step memory.Step) error {
	w := p.r.w
	if f := p.fault(step, true); f != nil {
		w.journal.struck(p, exchangeOf(ctx), step, f.How, f.For)
		w.journal.mark(storageMark(step, f.How))
		switch f.How {
		case lost:
			return errStorage
		case slowBack:
			if err := wait(ctx, f.For); err != nil {
				return err
			}
		case refused, slow, late:
		}
	}
	if !p.alive() {
		return errDead
	}
	return nil
}

// wait lets d pass, or ends with ctx.
func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watched is a lane that writes down what it is asked.
type watched struct {
	servicetest.Lane

	name string
	p    *process
}

func (l watched) Send(ctx context.Context, in payment.Instruction) payment.Outcome {
	c := l.begin(ctx, in, false)
	outcome := l.Lane.Send(ctx, in)
	l.p.r.w.journal.ended(c, func() { c.outcome = outcome })
	return outcome
}

func (l watched) Lookup(ctx context.Context, in payment.Instruction) payment.Evidence {
	c := l.begin(ctx, in, true)
	evidence := l.Lane.Lookup(ctx, in)
	l.p.r.w.journal.ended(c, func() { c.evidence = evidence })
	return evidence
}

func (l watched) begin(ctx context.Context, in payment.Instruction, lookup bool) *call {
	c := &call{lane: l.name, p: l.p, exchange: exchangeOf(ctx), lookup: lookup, in: in, began: time.Now()}
	c.deadline, _ = ctx.Deadline()
	l.p.r.w.journal.called(c)
	return c
}
