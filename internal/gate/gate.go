// Package gate is admission: it stands in front of routing, authentication and
// body reading, and refuses what must not begin (contract section 5). Its
// refusal is the only 503 with Retry-After, and that pair is a proof: the
// handler was not invoked, nothing was accepted, the same request may be sent
// again (seed "public HTTP retry semantics").
package gate

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// The reasons for a refusal: the `code` of its answer, and a metric's label.
const (
	Draining   = "DRAINING"   // this replica is going away
	Overloaded = "OVERLOADED" // too many requests in flight, of all callers or of this one
	NotReady   = "NOT_READY"  // the database is known to be unreachable
)

// observer hears of every refusal. Reason is one of the three above.
type observer interface {
	Refused(reason string)
}

// Config is what a Gate is made of.
type Config struct {
	// MaxInFlight is how many requests may be inside at once (GATE_MAX_IN_FLIGHT).
	// It bounds what waits for the database's connections and the wallet's places.
	MaxInFlight int
	// RetryAfter is what a refused till is asked to wait (RETRY_AFTER_BUSY). It is
	// told in whole seconds, at least one.
	RetryAfter time.Duration
	Observer   observer
	Log        *slog.Logger
}

// Gate admits requests or refuses them. All its methods may be used at the same
// time.
type Gate struct {
	cfg     Config
	refusal refusals

	// state is everything that admission looks at, in one word, so that one atomic
	// step both looks and enters: a request can never slip in between Drain's mark
	// and its count of who is still inside.
	state atomic.Uint64
	// empty is closed once the gate is draining and nobody is inside.
	empty chan struct{}
}

// The bits of Gate.state. The low half counts the requests inside.
const (
	inFlightMask uint64 = 1<<32 - 1
	unreachable  uint64 = 1 << 32 // the database is known to be unreachable
	closing      uint64 = 1 << 33 // answers close their connection
	draining     uint64 = 1 << 34 // nobody is admitted any more
)

// New makes a Gate that admits: a database that nobody has asked yet is not
// known to be unreachable.
func New(cfg Config) *Gate {
	return &Gate{cfg: cfg, refusal: newRefusals(cfg.RetryAfter), empty: make(chan struct{})}
}

// Handler is next behind the gate.
func (g *Gate) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if reason := g.enter(); reason != "" {
			g.refuse(w, r, reason)
			return
		}
		defer g.leave()
		next.ServeHTTP(&answerWriter{ResponseWriter: w, gate: g}, r)
	})
}

// enter takes a place, or says why there is none. It never waits: a queue in
// front of a deadline only turns refusals into late answers.
func (g *Gate) enter() (reason string) {
	for {
		state := g.state.Load()
		switch {
		case state&draining != 0:
			return Draining
		case state&unreachable != 0:
			return NotReady
		case int64(state&inFlightMask) >= int64(g.cfg.MaxInFlight):
			return Overloaded
		}
		if g.state.CompareAndSwap(state, state+1) {
			return ""
		}
	}
}

// answerWriter announces the end of the connection with the answer, and decides
// on it when the answer begins, not when the request came: what was inside when the
// drain began would otherwise keep a connection on which its till sends the next
// request, to a server that is closing it.
type answerWriter struct {
	http.ResponseWriter

	gate  *Gate
	begun bool
}

func (w *answerWriter) WriteHeader(status int) {
	if !w.begun && w.gate.state.Load()&closing != 0 {
		w.Header().Set("Connection", "close")
	}
	w.begun = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(body []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(body)
}

// Unwrap lets http.ResponseController through.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (g *Gate) leave() {
	state := g.state.Add(^uint64(0))
	if state&draining != 0 && state&inFlightMask == 0 {
		// The count only falls once the gate is draining, so it gets here once.
		close(g.empty)
	}
}

// CloseConnections makes every answer close its connection from now on, and
// refuses nobody: it is for the time between "not ready" and Drain, in which
// other machines still learn that this replica is going away. A till that
// connects anew then reaches another one.
func (g *Gate) CloseConnections() { g.state.Or(closing) }

// Drain refuses every request from now on. Those inside go on; Wait waits for
// them. It cannot be undone.
func (g *Gate) Drain() {
	before := g.state.Or(draining | closing)
	if before&draining == 0 && before&inFlightMask == 0 {
		close(g.empty)
	}
}

// Wait returns nil once the gate is draining and nobody is inside, or ctx's
// error if that ends first. The last answers may then still be on their way to
// the connection, for which http.Server.Shutdown waits.
func (g *Gate) Wait(ctx context.Context) error {
	select {
	case <-g.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// InFlight is how many requests are inside.
func (g *Gate) InFlight() int { return int(g.state.Load() & inFlightMask) }

// SetDatabaseReachable says whether the database can be reached. While it
// cannot, a claim would be an unknown outcome; a refusal is a known one.
func (g *Gate) SetDatabaseReachable(reachable bool) {
	if reachable {
		g.state.And(^unreachable)
		return
	}
	g.state.Or(unreachable)
}

// Watch asks the database with ping, at once and then every interval, and keeps
// the gate informed until ctx ends. A ping gets one interval and must end with
// its context. An outright failure counts at once, because nothing behind the
// gate would fare better. A ping that took too long counts only when the next
// one does too: a full machine is slow now and then, and a gate that shut for
// that would turn a pause into an outage. One success opens the gate again.
func (g *Gate) Watch(ctx context.Context, ping func(ctx context.Context) error, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	wasSlow, reachable := false, true
	for {
		pingCtx, cancel := context.WithTimeout(ctx, every)
		err := ping(pingCtx)
		// Asked of the context and not of the error: a driver has many words for
		// "time ran out", and this is the one that cannot be misread.
		slow := pingCtx.Err() != nil
		cancel()
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil:
			if !reachable {
				g.cfg.Log.InfoContext(ctx, "database reachable again, tills are admitted")
			}
			reachable = true
			g.SetDatabaseReachable(true)
		case !slow || wasSlow:
			if reachable {
				g.cfg.Log.ErrorContext(ctx, "database unreachable, tills are refused", "slow", slow, "error", err)
			}
			reachable = false
			g.SetDatabaseReachable(false)
		}
		wasSlow = err != nil && slow
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// PerCaller bounds how many requests of one caller may be inside at once, so
// that one store's runaway loop does not take every place. It stands right
// behind authentication, in front of everything else.
type PerCaller struct {
	gate *Gate
	max  int

	mu     sync.Mutex
	inside map[string]int // by caller, only those inside; guarded by mu
}

// PerCaller is a bound of at most max requests per caller (GATE_MAX_PER_CALLER);
// 0 is none. It refuses as the gate does.
func (g *Gate) PerCaller(maximum int) *PerCaller {
	return &PerCaller{gate: g, max: maximum, inside: make(map[string]int)}
}

// Enter takes a place for a request of caller, which leave gives back, or answers w
// with the refusal and reports false.
func (p *PerCaller) Enter(w http.ResponseWriter, r *http.Request, caller string) (leave func(), ok bool) {
	if p.max <= 0 {
		return func() {}, true
	}
	p.mu.Lock()
	full := p.inside[caller] >= p.max
	if !full {
		p.inside[caller]++
	}
	p.mu.Unlock()
	if full {
		p.gate.refuse(w, r, Overloaded)
		return nil, false
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.inside[caller]--; p.inside[caller] == 0 {
			delete(p.inside, caller)
		}
	}, true
}
