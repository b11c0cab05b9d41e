package model

import (
	"errors"
	"testing"
)

// walk is a small world that is known completely: one walks from 0 to 9, forwards by
// one by oneself or by three through a fault, and what is told of it is up to the test.
type walk struct {
	trap  uint8 // nothing leads out of it
	wrong uint8 // it breaks a promise
}

func (w walk) initial() uint8 { return 0 }

func (w walk) next(at uint8, emit func(step, *uint8)) {
	if at == w.trap {
		return
	}
	if to := at + 1; to < 10 {
		emit(step{kind: recoveryDeclines}, &to)
	}
	if to := at + 3; to < 10 {
		emit(step{kind: handlerDies}, &to)
	}
}

func (w walk) broken(at *uint8) promises {
	if *at == w.wrong {
		return oneDebit.bit()
	}
	return 0
}

func (w walk) quiescent(at *uint8) bool { return *at == 9 }

// A counterexample that is longer than it must be hides what it is about.
func TestTheFirstStoryIsAShortest(t *testing.T) {
	t.Parallel()
	g, err := explore[uint8](walk{trap: 200, wrong: 7}, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.states) != 10 || g.edges != 16 || g.depth != 4 {
		t.Errorf("%d states, %d edges, %d steps away, want 10, 16 and 4", len(g.states), g.edges, g.depth)
	}
	at, found := g.found[oneDebit]
	if !found {
		t.Fatal("the wrong state was not found")
	}
	story := g.story(at) // two faults, and one by itself
	if len(story) != 3 || story[2].after != 7 {
		t.Errorf("the story is %v, want three steps to 7", story)
	}
	if _, found := g.found[quiescence]; found {
		t.Error("from everywhere one step after the other leads to 9, and that was not seen")
	}
}

// A state that only a fault leads out of is a deadlock, however many faults would help.
func TestWhatIsStuckIsFound(t *testing.T) {
	t.Parallel()
	g, err := explore[uint8](walk{trap: 8, wrong: 200}, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	at, found := g.found[quiescence]
	if !found {
		t.Fatal("the trap was not found")
	}
	// 9 is reached past the trap, by a fault from 6. By itself everything runs into it.
	if g.states[at] != 0 {
		t.Errorf("stuck from %d on, want from the beginning", g.states[at])
	}
}

// An exploration ends when it has found what it was sent for, and says so when it
// cannot end: half of the states would show nothing.
func TestAnExplorationIsBounded(t *testing.T) {
	t.Parallel()
	if _, err := explore[uint8](walk{trap: 200, wrong: 200}, 5, 0); !errors.Is(err, errTooLarge) {
		t.Errorf("10 states of at most 5: %v, want %v", err, errTooLarge)
	}
	g, err := explore[uint8](walk{trap: 200, wrong: 1}, 100, oneDebit.bit())
	if err != nil {
		t.Fatal(err)
	}
	if len(g.states) > 5 {
		t.Errorf("%d states were looked at for a promise that is broken after one step", len(g.states))
	}
}

// The table of states is searched by hash, grows, and must give each state one number.
func TestTheIndexKeepsEveryStateOnce(t *testing.T) {
	t.Parallel()
	g := &graph[uint64]{}
	x := newIndex(g)
	const many = 50_000
	for _, first := range []bool{true, false} {
		for n := range int32(many) {
			s := uint64(n) * uint64(n)
			if number, fresh := x.add(&s); number != n || fresh != first {
				t.Fatalf("state %d: number %d, fresh %v, want %d, %v", s, number, fresh, n, first)
			}
		}
	}
	if len(g.states) != many {
		t.Errorf("%d states, want %d", len(g.states), many)
	}
}
