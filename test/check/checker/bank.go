package checker

import (
	"fmt"
	"maps"
)

// bank is the wallet's money, added up again from the lines of its book, by what each
// operation must move and not by what the wallet says that it has moved.
type bank struct {
	accounts map[string]map[string]*balance // by account and currency
	holds    map[string]heldMoney           // the active ones, by the wallet's id
	opened   map[string]int64               // by currency
	taken    map[string]int64               // by currency: debits and captures, less credits
	before   map[string]int64               // the same of the wallets that were started before
}

type balance struct{ free, held int64 }

type heldMoney struct {
	account, currency string
	amount            int64
}

func newBank() bank {
	return bank{
		accounts: map[string]map[string]*balance{}, holds: map[string]heldMoney{},
		opened: map[string]int64{}, taken: map[string]int64{},
	}
}

// enter adds a line, and says what is wrong with it, "" if nothing is.
func (b *bank) enter(l *BookLine) string {
	e := l.Effect
	if e == nil || (l.Event != opened && l.Event != applied) {
		if e != nil && (e.BalanceChange != 0 || e.HeldChange != 0) {
			return fmt.Sprintf("line %d, %s, moves money", l.Seq, l.Event)
		}
		return ""
	}
	free, held := e.BalanceChange, e.HeldChange
	if l.Event == opened {
		b.opened[e.Currency] += free
	} else {
		var known bool
		if free, held, known = b.move(e); !known {
			return fmt.Sprintf("line %d ends the hold %s, which is not active", l.Seq, e.HoldID)
		}
	}
	account := b.accounts[e.Account]
	if account == nil {
		account = map[string]*balance{}
		b.accounts[e.Account] = account
	}
	if account[e.Currency] == nil {
		account[e.Currency] = &balance{}
	}
	now := account[e.Currency]
	now.free += free
	now.held += held
	switch {
	case free != e.BalanceChange || held != e.HeldChange:
		return fmt.Sprintf("line %d, a %s of %d, changes the balance by %d and what is held by %d, want %d and %d",
			l.Seq, e.Operation, e.Amount, e.BalanceChange, e.HeldChange, free, held)
	case now.free < 0:
		return fmt.Sprintf("after line %d account %s has %d %s, and %d held", l.Seq, e.Account, now.free, e.Currency, now.held)
	}
	return ""
}

// takenInAll is what all wallets have taken of a currency.
func (b *bank) takenInAll() map[string]int64 {
	sum := maps.Clone(b.taken)
	for currency, amount := range b.before {
		sum[currency] += amount
	}
	return sum
}

// move is what an applied operation must change, by what it is.
func (b *bank) move(e *BookEffect) (free, held int64, known bool) {
	switch kindOf(e.Operation) {
	case debit:
		b.taken[e.Currency] += e.Amount
		return -e.Amount, 0, true
	case credit:
		b.taken[e.Currency] -= e.Amount
		return e.Amount, 0, true
	case hold:
		b.holds[e.ID] = heldMoney{e.Account, e.Currency, e.Amount}
		return -e.Amount, e.Amount, true
	case capture:
		h, ok := b.holds[e.HoldID]
		delete(b.holds, e.HoldID)
		b.taken[e.Currency] += e.Amount
		return h.amount - e.Amount, -h.amount, ok
	case release:
		h, ok := b.holds[e.HoldID]
		delete(b.holds, e.HoldID)
		return h.amount, -h.amount, ok
	case noKind, reversal:
	}
	return 0, 0, true
}

// Totals is all the money of one currency as the wallet itself has counted it
// (`GET /control/totals`), in minor units.
type Totals struct {
	Opened    int64 `json:"opened"`    // what was ever given to accounts
	Balances  int64 `json:"balances"`  // what is on them
	Held      int64 `json:"held"`      // what is held of it
	NetDebits int64 `json:"netDebits"` // debits and captures, less credits
}

// differs says where the wallet's own totals are not what its book adds up to.
func (b *bank) differs(counted map[string]Totals) (wrong []string) {
	want := map[string]Totals{}
	for currency, opened := range b.opened {
		want[currency] = Totals{Opened: opened, NetDebits: b.taken[currency]}
	}
	for _, account := range b.accounts {
		for currency, now := range account {
			t := want[currency]
			t.Balances += now.free
			t.Held += now.held
			want[currency] = t
		}
	}
	for currency, t := range want {
		// What the book adds up to is constant by itself.
		if got := counted[currency]; got != t {
			wrong = append(wrong, fmt.Sprintf("the wallet has counted %+v %s, its book adds up to %+v", got, currency, t))
		}
	}
	return wrong
}
