package model

import (
	"errors"
	"hash/maphash"
	"slices"
)

// system is what can be explored: where it begins, what can happen next, and what
// must hold. It is deterministic: the same state always has the same successors in
// the same order, so that two explorations are the same.
type system[S comparable] interface {
	initial() S
	// next emits each step that can be taken from s, and where it leads.
	next(s S, emit func(step, *S))
	// broken are the promises that s breaks.
	broken(s *S) promises
	// quiescent reports whether nothing is left to be done in s.
	quiescent(s *S) bool
}

// graph is all that can be reached, in the order in which it was found: breadth
// first, so that the way to each state over the parents is a shortest one.
type graph[S comparable] struct {
	system system[S]
	states []S
	parent []int32
	edges  int
	depth  int // steps to the state that is furthest from the beginning
	taken  [stepKinds]bool
	// found is the first state that breaks each promise: the shortest story about it.
	found map[promise]int32
}

// errTooLarge ends an exploration that would not end in time.
var errTooLarge = errors.New("more states than the bound allows")

// explore finds everything that can be reached, at most so many states. What must
// hold is asked of each of them, and of the whole in the end: whether from
// everywhere it is still possible that all that was begun comes to its end. With
// until it ends as soon as each of those promises was found broken.
func explore[S comparable](sys system[S], most int, until promises) (*graph[S], error) {
	g := &graph[S]{system: sys, found: map[promise]int32{}}
	known := newIndex(g)
	start := sys.initial()
	known.add(&start)
	g.parent = append(g.parent, -1)

	// Behind each state, those that lead to it by themselves: without a fault, and
	// without anybody asking for anything.
	var from, to []int32
	level, next := 0, 1
	for at := 0; at < len(g.states); at++ {
		if at == next {
			level, next = level+1, len(g.states)
		}
		s := g.states[at]
		for _, p := range sys.broken(&s).list() {
			if _, before := g.found[p]; !before {
				g.found[p] = int32(at)
				if left := until &^ p.bit(); left != until {
					if until = left; until == 0 {
						return g, nil
					}
				}
			}
		}
		sys.next(s, func(by step, successor *S) {
			g.edges++
			g.taken[by.kind] = true
			i, fresh := known.add(successor)
			if fresh {
				g.parent = append(g.parent, int32(at))
			}
			if by.byItself() {
				from, to = append(from, int32(at)), append(to, i)
			}
		})
		if len(g.states) > most {
			return nil, errTooLarge
		}
	}
	g.depth = level
	if stuck, found := g.stuck(from, to); found {
		g.found[quiescence] = stuck
	}
	return g, nil
}

// stuck is the first state from which nothing quiescent can be reached by what
// happens by itself. That there is always a way is more than it looks: the graph is
// finite, so whoever keeps taking steps and never ignores a step that stays
// possible for good comes to rest. Without it there is a deadlock, or a circle.
func (g *graph[S]) stuck(from, to []int32) (state int32, found bool) {
	// The edges backwards, in one slice: those into state i are its part of it.
	begin := make([]int32, len(g.states)+1)
	for _, i := range to {
		begin[i+1]++
	}
	for i := range g.states {
		begin[i+1] += begin[i]
	}
	into, filled := make([]int32, len(to)), slices.Clone(begin)
	for e, i := range to {
		into[filled[i]] = from[e]
		filled[i]++
	}

	reaches := make([]bool, len(g.states))
	var todo []int32
	for i := range g.states {
		if g.system.quiescent(&g.states[i]) {
			reaches[i] = true
			todo = append(todo, int32(i))
		}
	}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, before := range into[begin[i]:begin[i+1]] {
			if !reaches[before] {
				reaches[before] = true
				todo = append(todo, before)
			}
		}
	}
	i := slices.Index(reaches, false)
	return int32(i), i >= 0
}

// taken is one step of a story.
type taken[S comparable] struct {
	by    step
	after S
}

// story is how to come to a state: a shortest way. The steps are not kept while
// exploring; they are found again from the states.
func (g *graph[S]) story(state int32) []taken[S] {
	var path []int32
	for i := state; i >= 0; i = g.parent[i] {
		path = append(path, i)
	}
	slices.Reverse(path)
	var told []taken[S]
	for n := 1; n < len(path); n++ {
		want, done := g.states[path[n]], false
		g.system.next(g.states[path[n-1]], func(by step, s *S) {
			if !done && *s == want {
				told, done = append(told, taken[S]{by, *s}), true
			}
		})
	}
	return told
}

// index finds the number of a state. It is a hash table with open addressing over
// the states of the graph themselves, so that each of them is kept once.
type index[S comparable] struct {
	g     *graph[S]
	seed  maphash.Seed
	slots []int32 // number of a state + 1, 0 = free
}

func newIndex[S comparable](g *graph[S]) *index[S] {
	return &index[S]{g: g, seed: maphash.MakeSeed(), slots: make([]int32, 1<<12)}
}

// add gives the number of s, which it may have got just now.
func (x *index[S]) add(s *S) (number int32, fresh bool) {
	if len(x.g.states) >= len(x.slots)/2 {
		x.grow()
	}
	slot := x.slot(s)
	if n := x.slots[slot]; n != 0 {
		return n - 1, false
	}
	x.g.states = append(x.g.states, *s)
	x.slots[slot] = int32(len(x.g.states))
	return x.slots[slot] - 1, true
}

// slot is where s is, or where it belongs.
func (x *index[S]) slot(s *S) uint64 {
	mask := uint64(len(x.slots) - 1)
	slot := maphash.Comparable(x.seed, *s) & mask
	for x.slots[slot] != 0 && x.g.states[x.slots[slot]-1] != *s {
		slot = (slot + 1) & mask
	}
	return slot
}

func (x *index[S]) grow() {
	x.slots = make([]int32, 4*len(x.slots))
	for i := range x.g.states {
		x.slots[x.slot(&x.g.states[i])] = int32(i + 1)
	}
}
