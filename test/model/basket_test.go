package model

import "testing"

// theBasket is a debit each, repeated by the network, with one worker for both.
var theBasket = configuration{
	name: "basket", about: "two keys of one basket: the second is drawn when the first was declined and may be tried again; requests are delivered twice",
	requests: 1, amount: 1, workers: 1, refusals: true, duplicates: true, remembersRefusals: true,
	promised: every,
}

func basketExplored() finding {
	return explored.find(theBasket.name, func() finding {
		s := shopping{model: &model{configuration: theBasket}, funds: 2}
		g, err := explore[basket](s, mostStates, 0)
		if err != nil {
			return finding{err: err}
		}
		f := finding{m: s.model, states: len(g.states), edges: g.edges, depth: g.depth, length: map[promise]int{}, story: map[promise]string{}}
		for p, at := range g.found {
			f.length[p], f.story[p] = len(g.story(at)), s.tell(g.story(at))
		}
		return f
	})
}

// A customer whose first try was declined and landed late must not have paid twice when
// the second try was approved, and must have his money back if it was not.
func TestABasketIsPaidOnce(t *testing.T) {
	t.Parallel()
	f := basketExplored()
	if f.err != nil {
		t.Fatal(f.err)
	}
	for p, story := range f.story {
		t.Errorf("%v is broken: %s\n%s", p, promiseTable[p].says, story)
	}
	t.Logf("%d states, %d edges, at most %d steps away", f.states, f.edges, f.depth)

	s := shopping{model: &model{configuration: theBasket, bug: notFoundIsFinal}, funds: 2}
	g, err := explore[basket](s, mostStates, basketPaidOnce.bit())
	if err != nil {
		t.Fatal(err)
	}
	at, found := g.found[basketPaidOnce]
	if !found {
		t.Fatal("without reversals nobody pays twice: the basket sees nothing")
	}
	t.Logf("with a mistake, %v is broken:\n%s", basketPaidOnce, s.tell(g.story(at)))
}

// poor stops where the second try is refused because the first one's money, which is
// being given back, is not there yet (docs/adr/0015): a consequence that is known.
type poor struct{ shopping }

func (p poor) broken(b *basket) promises {
	if b[1].led.pay.code == walletRejected && b[0].led.pay.state == declined && b[0].net() > 0 {
		return basketPaidOnce.bit()
	}
	return 0
}

func TestALateDebitMayCostTheSecondTry(t *testing.T) {
	t.Parallel()
	p := poor{shopping{model: &model{configuration: theBasket}, funds: 1}}
	g, err := explore[basket](p, mostStates, basketPaidOnce.bit())
	if err != nil {
		t.Fatal(err)
	}
	at, found := g.found[basketPaidOnce]
	if !found {
		t.Fatal("the second try is never refused: the two keys do not share an account")
	}
	t.Logf("\n%s", p.tell(g.story(at)))
}
