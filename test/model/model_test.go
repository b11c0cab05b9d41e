package model

import (
	"slices"
	"strings"
	"sync"
	"testing"
)

// mostStates bounds an exploration: whoever enlarges a configuration beyond it should
// know that everybody waits for it, with the race detector on.
const mostStates = 250_000

// finding is what an exploration has found.
type finding struct {
	m      *model
	err    error
	states int
	edges  int
	depth  int
	taken  [stepKinds]bool
	length map[promise]int    // steps to where it is broken first
	story  map[promise]string // how to come there
	seen   map[string]bool    // the rare states
}

// once remembers what was explored: several tests ask for the same.
type once struct {
	mu   sync.Mutex
	done map[string]func() finding
}

func (o *once) find(name string, f func() finding) finding {
	o.mu.Lock()
	if o.done[name] == nil {
		o.done[name] = sync.OnceValue(f)
	}
	result := o.done[name]
	o.mu.Unlock()
	return result()
}

var explored = once{done: map[string]func() finding{}}

// look explores m, until all of those promises were found broken, or to the end.
func look(m *model, until promises) finding {
	g, err := explore[world](m, mostStates, until)
	if err != nil {
		return finding{m: m, err: err}
	}
	f := finding{
		m: m, states: len(g.states), edges: g.edges, depth: g.depth, taken: g.taken,
		length: map[promise]int{}, story: map[promise]string{}, seen: map[string]bool{},
	}
	for p, at := range g.found {
		story := g.story(at)
		f.length[p], f.story[p] = len(story), m.tell(m.initial(), story)
	}
	for _, r := range rareStates {
		for i := range g.states {
			if r.in == m.name && r.is(m, &g.states[i]) {
				f.seen[r.what] = true
				break
			}
		}
	}
	return f
}

func (c configuration) explored() finding {
	return explored.find(c.name, func() finding { return look(&model{configuration: c}, 0) })
}

func (s seeded) explored() finding {
	return explored.find("bug: "+s.what, func() finding {
		c, _ := named(s.in)
		until := promises(0)
		for _, p := range s.by {
			until |= p.bit()
		}
		return look(&model{configuration: c, bug: s.bug, named: true}, until)
	})
}

func (r residual) explored() finding {
	return explored.find("residual: "+r.what, func() finding {
		c, _ := named(r.in)
		r.give(&c)
		return look(&model{configuration: c, named: true}, r.by.bit())
	})
}

// The six promises of the README are claims about what happens when things break, at
// any moment and in any order. Here all of those are tried, within bounds.
func TestEveryPromiseHoldsInEveryState(t *testing.T) {
	t.Parallel()
	for _, c := range configurations {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := c.explored()
			if f.err != nil {
				t.Fatalf("%s: %v", c.name, f.err)
			}
			for p, story := range f.story {
				if c.promised.has(p) {
					t.Errorf("%v is broken: %s\n%s", p, promiseTable[p].says, story)
				}
			}
			t.Logf("%d states, %d edges, at most %d steps away", f.states, f.edges, f.depth)
		})
	}
}

// A checker that finds nothing is as likely blind as the protocol is right. Each of
// these mistakes must be seen, by what it is a mistake about. -v tells their stories.
func TestEverySeededBugIsFound(t *testing.T) {
	t.Parallel()
	planted := map[bug]bool{}
	for _, s := range seededBugs {
		planted[s.bug] = true
		t.Run(s.what, func(t *testing.T) {
			t.Parallel()
			c, known := named(s.in)
			if !known {
				t.Fatalf("there is no configuration %q", s.in)
			}
			f := s.explored()
			if f.err != nil {
				t.Fatal(f.err)
			}
			for _, p := range s.by {
				if !c.promised.has(p) {
					t.Errorf("%s does not promise %v: to find it broken there shows nothing", s.in, p)
				}
				story, found := f.story[p]
				if !found {
					t.Errorf("%v was not found broken in %d states", p, f.states)
					continue
				}
				t.Logf("%v is broken: %s\n%s", p, promiseTable[p].says, story)
			}
		})
	}
	for b := noBug + 1; b < bugKinds; b++ {
		if !planted[b] {
			t.Errorf("bug %d is a switch that no test turns on", b)
		}
	}
}

// What the protocol does not prevent must be known and written down, and must take an
// assumption that is broken: each configuration promises the same as long as it holds.
func TestWhatIsLeftTakesABrokenAssumption(t *testing.T) {
	t.Parallel()
	for _, r := range residuals {
		t.Run(r.what, func(t *testing.T) {
			t.Parallel()
			c, known := named(r.in)
			if !known {
				t.Fatalf("there is no configuration %q", r.in)
			}
			if !c.promised.has(r.by) {
				t.Fatalf("%s does not promise %v", r.in, r.by)
			}
			f := r.explored()
			if f.err != nil {
				t.Fatal(f.err)
			}
			story, found := f.story[r.by]
			if !found {
				t.Fatalf("%v holds without the assumption that %s: it is not needed, or the model cannot say it", r.by, r.up)
			}
			t.Logf("%v is broken: %s\n%s", r.by, promiseTable[r.by].says, story)
		})
	}
}

// A run in which a kind of step was never taken has not tried what it says.
func TestEveryKindOfStepIsTaken(t *testing.T) {
	t.Parallel()
	var taken [stepKinds]bool
	add := func(f finding) {
		for kind, was := range f.taken {
			taken[kind] = taken[kind] || was
		}
	}
	for _, c := range configurations {
		add(c.explored())
	}
	for _, s := range seededBugs {
		add(s.explored())
	}
	for kind, was := range taken {
		if !was {
			t.Errorf("nowhere: %s", stepTable[kind].text)
		}
	}
}

// rareStates are those that the protocol is about: a model that never comes there has
// promised nothing.
var rareStates = []struct {
	what string
	in   string
	is   func(*model, *world) bool
}{
	{"a handler comes back when recovery has declined its payment", "decision", func(_ *model, w *world) bool {
		return w.led.pay.code == walletTimeout && slices.ContainsFunc(w.requests[:], func(r request) bool { return r.phase == ready })
	}},
	{"a debit that landed after its decline is given back", "decision", func(_ *model, w *world) bool {
		return w.led.pay.state == declined && w.led.ops[reversal].state == succeeded && w.wallet.given > 0
	}},
	{"a reversal ends because there is nothing to undo", "decision", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.ops[reversal].state == notApplied
	}},
	{"a reversal that was refused waits for a person", "decision", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.ops[reversal].state == parked
	}},
	{"a tombstone answers a late original", "cancel", func(_ *model, w *world) bool {
		return w.led.pay.code == cancelledByKey && w.led.pay.body == noBody && slices.ContainsFunc(w.requests[:], func(r request) bool { return r.phase == gone })
	}},
	{"a handler comes back when its payment is cancelled", "cancel", func(_ *model, w *world) bool {
		return w.led.pay.code == cancelledByKey && slices.ContainsFunc(w.requests[:], func(r request) bool { return r.phase == ready })
	}},
	{"an approval is cancelled and undone", "cancel", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.pay.state == approved && w.led.ops[reversal].state == succeeded && w.net() == 0
	}},
	{"a hold that was applied after its decline is released", "hold", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.pay.state == declined && w.wallet.book[refReversal] == applied
	}},
	{"a refusal waits for the window after a doubt", "credits", func(m *model, w *world) bool {
		return slices.ContainsFunc(w.workers[:], func(k worker) bool { return k.phase == comprehending && m.mayLand(k, k.no) })
	}},
	{"what a refused credit had reserved is given by another", "credits", func(_ *model, w *world) bool {
		a, b := w.led.ops[first].state, w.led.ops[second].state
		return a == rejected && b == succeeded || a == succeeded && b == rejected
	}},
	{"two zombies and a worker that lives are at one credit", "credits", func(_ *model, w *world) bool {
		n := 0
		for _, k := range w.workers {
			if k.phase != idle && k.op == first {
				n++
			}
		}
		return n == 3
	}},
	{"the reversal of a cancelled debit gives back what its credit has not", "credits in part", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.ops[reversal].state == succeeded && m.credited(w) == 1 && w.wallet.given == 2
	}},
	{"the credits have given everything back, and the reversal sends nothing", "credits in part", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.ops[reversal].state == succeeded && w.wallet.book[refReversal] == unknown
	}},
	{"a release undoes a hold that was cancelled meanwhile", "ends of a hold", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.ops[release].cancelled && w.led.ops[release].state == succeeded && w.net() == 0
	}},
	{"such a release is refused and waits for a person", "ends of a hold", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.ops[release].cancelled && w.led.ops[release].state == parked
	}},
	{"a late check finds the payment", "late check", func(_ *model, w *world) bool {
		return w.led.ops[reversal].state == notApplied && slices.ContainsFunc(w.workers[:], func(k worker) bool { return k.current && k.target })
	}},
	{"a reversal waits for a credit that is parked", "operators", func(m *model, w *world) bool {
		return m.quiescent(w) && w.led.ops[reversal].state == pending && w.led.ops[first].state == parked
	}},
	{"a hold is captured by a send that the wallet forgot, and says so", "hold at a forgetful wallet", func(_ *model, w *world) bool {
		return w.wallet.taken > 0 && slices.ContainsFunc(w.workers[:], func(k worker) bool { return k.no == noCaptured })
	}},
	{"a claim is lost, and the second is approved by the first one's debit", "lagging standby", func(m *model, w *world) bool {
		return w.claims == 2 && w.led.pay.claim == 2 && w.led.pay.state == approved && w.sends == 2 && m.debits(w) == 1
	}},
	{"a claim is lost, and a cancel with the body finds its debit", "lagging standby, then a cancel", func(_ *model, w *world) bool {
		return w.led.pay.body == noBody && w.led.pay.state == declined && w.led.ops[reversal].state == succeeded && w.wallet.given > 0
	}},
}

// All promises hold of a protocol that does nothing. This one does the rare things.
func TestRareStatesAreReached(t *testing.T) {
	t.Parallel()
	for _, r := range rareStates {
		c, known := named(r.in)
		if !known {
			t.Fatalf("there is no configuration %q", r.in)
		}
		if !c.explored().seen[r.what] {
			t.Errorf("never in %q: %s", r.in, r.what)
		}
	}
}

// A story that is another one tomorrow cannot be talked about.
func TestExplorationsAreTheSameEveryTime(t *testing.T) {
	t.Parallel()
	c, _ := named("replay")
	c.lags = true
	until := []promise{noOrphanMoney, declinedIsUndone, approvedOnce}
	tell := func() (edges int, stories string) {
		f := look(&model{configuration: c}, until[0].bit()|until[1].bit()|until[2].bit())
		for _, p := range until {
			stories += f.story[p] + "\n"
		}
		return f.edges, stories
	}
	edges, stories := tell()
	for range 2 {
		if edgesNow, now := tell(); edgesNow != edges || now != stories {
			t.Fatalf("%d edges and then %d; the stories:\n%s\nand then\n%s", edges, edgesNow, stories, now)
		}
	}
	if n := strings.Count(stories, "promoted"); n != len(until) {
		t.Fatalf("%d stories of a failover, want %d:\n%s", n, len(until), stories)
	}
}
