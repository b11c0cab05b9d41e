// Package model explores the protocol of SafeLedger, all of it within bounds: every
// order of what tills, handlers, recovery, workers, the wallet, the network and
// operators can do about one key, with a crash, a stop or a lost message between
// any two steps. It shares no code with the service. It is what the service does,
// written down a second time, small enough to be tried out completely; each step
// names the function that it stands for, and a test holds that name to the code.
//
// world.go is the state, and canonical.go which states are the same; till.go,
// decision.go, queue.go, wallet.go and around.go are the steps; promises.go is what must
// hold, bugs.go what must be found when it is planted; configurations.go is what is
// tried out, explore.go tries it, and story.go tells what it has found.
package model

// model is the protocol under one configuration.
type model struct {
	configuration

	bug bug
	// plain leaves every state as it comes, without canonical: many more of them.
	plain bool
	// named lets the two credits keep their names, for a story.
	named bool
}

// configuration bounds what there is, and says what may go wrong.
type configuration struct {
	name  string
	about string

	// What the till does.
	hold        bool // the payment is a hold, and what follows are its capture and its release
	approved    bool // it begins with a payment that is approved, and no request on its way
	requests    int  // with the key: the first and its replays, each of which may be late
	otherBody   bool // one of them may ask for something else
	cancels     int  // with the request's body or without, as said here
	withBody    bool
	withoutBody bool
	followUps   [3]bool // which of first and second the till may ask for
	amount      int8    // of the payment
	credits     [3]int8 // of first and second

	workers    int   // attempts at once, one at a time each: all but one may be zombies
	lateChecks uint8 // QUEUE_LATE_CHECKS

	// What may go wrong, besides: everybody may be killed or stopped between any two
	// steps, a request to the wallet may be late or lost and its answer too, an answer
	// to a till may be lost, a lookup may show nothing. That is always so.
	refusals   bool // the wallet may refuse, for a reason of its own
	gateways   bool // something before the wallet may answer 502 or 503, whatever the wallet has done
	unsent     bool // nothing may be sent: breaker open, no place, no time, connection refused
	putsOff    bool // the wallet may answer a worker 429 and have done nothing
	slowLooks  bool // a lookup may not show yet what the wallet has done
	duplicates bool // the network may deliver a request twice
	parks      bool // QUEUE_PARK_AFTER may go by
	operators  bool // parked work is redriven, or settled by hand as the wallet has it
	lags       bool // a standby that is behind may be promoted, once
	cancelLast bool // the till cancels only after that, and requests nothing then

	// What is assumed of the world. Each that is given up here is an assumption broken.
	remembersRefusals bool // the wallet says no again to a reference that it has said no to
	pausesOutlive     bool // a handler or worker may be stopped between its look at the clock and its write for longer than the settle window
	messagesOutlive   bool // a request may arrive after the settle window
	lastCheckIsLater  bool // but not after the last late check
	blindLooks        bool // nor may it do so after the settle window
	walletForgets     bool // the wallet may apply a reference a second time
	guesses           bool // operators settle by hand without looking

	promised promises // what must hold
}

func (m *model) initial() world {
	w := world{wallet: wallet{balance: opening}}
	w.till.cancels = uint8(m.cancels)
	for i := m.requests; i < maxRequests; i++ {
		w.requests[i].phase = gone
	}
	if m.lags {
		w.failovers = 1
	}
	if m.approved {
		w.led.pay = payment{state: approved, body: askedFor, claim: 1}
		w.claims, w.sends = 1, 1
		w.till.heard = approved
		w.wallet.apply(m, refPayment, 0)
		w.standby = w.led
	}
	m.canonical(&w)
	return w
}

// opening is what is on the account before.
const opening = 8

// next emits all that can happen in w. A step is one transaction of the ledger, one
// thing done by the wallet, or what one goroutine does in between: that is as far
// as others can see it.
func (m *model) next(w world, emit func(step, *world)) {
	e := emitter{m: m, emit: emit}
	m.tillSteps(w, e)
	m.decisionSteps(w, e)
	m.queueSteps(w, e)
	m.walletSteps(w, e)
	m.aroundSteps(w, e)
}

// emitter hands on what a step leads to, in canonical form.
type emitter struct {
	m    *model
	emit func(step, *world)
}

func (e emitter) to(kind stepKind, on uint8, w world) {
	if !e.m.plain {
		e.m.canonical(&w)
	}
	e.emit(step{kind: kind, on: on}, &w)
}

// reference is what the wallet knows the payment of a claim by
// (payment.Request.DeriveReference): the same for every claim of the same request.
func (m *model) reference(claim uint8, b body) reference {
	if b == different || m.bug == drawnReference && claim > 1 {
		return refOther
	}
	return refPayment
}

// paid is the reference of the stored payment, and of what its reversal looks for:
// a tombstone's is that of the body that came with the cancel.
func (m *model) paid(w *world) reference { return m.reference(w.led.pay.claim, w.led.pay.body) }
