package model

// basket is two keys of one till for one customer's basket: the second is drawn when
// the first was declined and may be tried again. In our ledger they have nothing in
// common. At the wallet they have the account.
type basket [2]world

// shopping explores a basket: each key as its model says, as long as the money lasts.
type shopping struct {
	*model

	funds int8
}

func (s shopping) initial() basket { return basket{s.model.initial(), s.model.initial()} }

func (s shopping) next(b basket, emit func(step, *basket)) {
	for key := range b {
		s.model.next(b[key], func(by step, after *world) {
			drawn := by.kind == tillAsks || by.kind == tillCancels
			if key == 1 && drawn && !b[0].till.mayTryAgain() {
				return
			}
			if leases(by) && b[1-key].workers != [maxWorkers]worker{} {
				return // it works on the other key
			}
			next := b
			next[key] = *after
			// Here the wallet refuses for one reason, that the money is not there, and then it must.
			rich := b.net()+s.amount <= s.funds
			if next.net() > s.funds && next.net() > b.net() || refuses(&b[key].wallet, &after.wallet) && (rich || !debitRefused(&b[key].wallet, &after.wallet)) {
				return
			}
			by.key = uint8(key)
			emit(by, &next)
		})
	}
}

// mayTryAgain is a 424, or that the key was given up.
func (t till) mayTryAgain() bool {
	return t.heard == declined && (t.code == walletUnavailable || t.code == walletTimeout || t.code == cancelledByKey)
}

// net is what the wallet keeps of the customer's.
func (b *basket) net() int8 { return b[0].net() + b[1].net() }

func (s shopping) broken(b *basket) promises {
	ps := s.model.broken(&b[0]) | s.model.broken(&b[1])
	if s.quiescent(b) && b.net() > s.amount && !b[0].waitsForSomebody() && !b[1].waitsForSomebody() {
		ps |= basketPaidOnce.bit()
	}
	return ps
}

func (s shopping) quiescent(b *basket) bool {
	return s.model.quiescent(&b[0]) && s.model.quiescent(&b[1])
}

// refuses reports whether the wallet has said no to something between before and after.
func refuses(before, after *wallet) bool {
	return after.book != before.book && after.balance == before.balance
}

func debitRefused(before, after *wallet) bool {
	return after.book[refPayment] != before.book[refPayment]
}

func leases(by step) bool {
	return by.kind == workerLeases || by.kind == workerTakesOver || by.kind == workerIsOvertaken
}
