package checker

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A key is a register that is written once: free, claimed, decided, and of an approval
// then perhaps cancelled. Each call of a till's is a step of it at some moment between
// its sending and its answer; where no answer came, at any moment after, or never. A
// history is right if there is an order of moments in which each step fits.
//
// What happens between two steps without anybody seeing it (a decision is stored, by its
// handler or by recovery) is made part of the step that sees it first: that is where it
// can be put at the latest.

// stage is how far a register has come.
type stage uint8

const (
	free stage = iota
	claimed
	written
	withdrawn // an approval that was cancelled
)

// register is the state of a key.
type register struct {
	stage     stage
	approved  bool
	any       bool   // whatever the body: a tombstone
	tentative bool   // claimed by what was not heard of again: the claim may have come to nothing
	committed bool   // claimed, and a read has seen it
	unheard   bool   // a cancel of which nothing was heard has come through, and nobody has seen yet what it did
	request   int16  // the one that has claimed it
	value     uint64 // what was written; 0 where nobody has seen it yet
}

// step is what one call does to, and sees of, its register.
type step struct {
	does     deed
	request  int16
	value    uint64
	approved bool
	cancels  bool // the decision is CANCELLED
	fresh    bool // not marked as a replay
}

// deed is a kind of step.
type deed uint8

const (
	claims         deed = iota // may claim the key, and decide it later
	begins                     // a cancel, which keeps others off the key before it is written
	accepts                    // may accept a follow-up, of which nothing was heard
	mayCancel                  // may cancel it, of which nothing was heard
	seesDecision               // an answer that tells the decision
	seesAcceptance             // an answer that tells the acceptance
	seesRead                   // a read that shows it
	seesCancelled              // a cancel that was answered
	seesClaimed                // 409 REQUEST_IN_FLIGHT, also of a claim that is not committed yet
	seesUndecided              // 404 PAYMENT_NOT_YET_DECIDED of a read, which sees what is committed
	seesOther                  // 422 IDEMPOTENCY_KEY_REUSED
	seesWithdrawn              // 409 PAYMENT_CANCELLED
	seesSomething              // 409 HOLD_ALREADY_CAPTURED of a cancel
	seesNothing                // 404 of a read, also of a claim that is not committed yet
	seesFree                   // a refusal that leaves the key free
)

// mayBeTaken reports whether r is free, or claimed by what may have come to nothing.
func (r register) mayBeTaken() bool {
	return r.stage == free || (r.stage == claimed && r.tentative && !r.committed)
}

// apply is r after s, and whether s can happen to r.
func (r register) apply(s step) (after register, ok bool) {
	switch s.does {
	case claims:
		if r.mayBeTaken() {
			return register{stage: claimed, request: s.request, tentative: !s.fresh}, true
		}
		return r, true
	case begins:
		if r.mayBeTaken() {
			return register{stage: claimed, any: true, tentative: true}, true
		}
		return r, true
	case accepts:
		if r.stage == free {
			return register{stage: written, request: s.request}, true
		}
		return r, true
	case mayCancel:
		return r.cancelled(), true
	case seesDecision:
		if r.stage == free || (!r.any && r.request != s.request) {
			return r, false
		}
		return r.write(s, r.stage != withdrawn)
	case seesAcceptance:
		if s.fresh && r.stage == free {
			return register{stage: written, request: s.request, value: s.value}, true
		}
		if s.fresh || r.stage == free || r.request != s.request {
			return r, false
		}
		return r.write(s, true)
	case seesRead:
		return r.write(s, r.stage != free)
	case seesCancelled:
		if r.stage == free {
			return register{stage: written, any: true, value: s.value}, s.cancels
		}
		after, ok = r.write(s, true)
		if after.approved {
			after.stage = withdrawn
		}
		return after, ok
	case seesClaimed:
		return r, r.stage == claimed
	case seesUndecided:
		ok = r.stage == claimed && !r.any
		r.committed = true
		return r, ok
	case seesOther:
		return r, r.stage != free && !r.any && r.request != s.request
	case seesWithdrawn:
		if r.unheard && !r.any {
			r.unheard, r.stage, r.approved = false, withdrawn, true
		}
		return r, r.stage == withdrawn
	case seesSomething:
		return r, r.stage == claimed || r.stage == written
	case seesNothing:
		return r, r.stage == free || (r.stage == claimed && !r.committed)
	case seesFree:
		return r, r.stage == free
	}
	return r, false
}

// write is r when s sees its value, which may be the moment in which it is written.
func (r register) write(s step, ok bool) (register, bool) {
	switch {
	case !ok:
		return r, false
	case r.stage == claimed:
		ok = !r.any || s.cancels
		r.stage, r.value, r.approved = written, s.value, s.approved
	case r.unheard && s.cancels:
		r.unheard, r.value = false, s.value
	case r.unheard:
		// Or it has met an approval that nobody had seen: then it has withdrawn that.
		ok = s.approved && !r.any && s.does != seesDecision
		r.unheard, r.stage, r.value, r.approved = false, withdrawn, s.value, true
	case r.value == 0:
		r.value = s.value
	default:
		ok = r.value == s.value
	}
	return r, ok
}

// cancelled is r when a cancel has come through.
func (r register) cancelled() register {
	switch {
	case r.stage == free:
		return register{stage: written, any: true, unheard: true}
	case r.stage == claimed:
		return register{stage: written, any: r.any, request: r.request, unheard: true}
	case r.stage == written && r.approved:
		r.stage = withdrawn
	}
	return r
}

// steps are what a call is made of: one that got the key's own answer has claimed it
// before, at a moment of its own; and a cancel holds the key's place until its
// transaction ends, so that others are told that it is in flight.
func (s *subject) steps(c call) []step {
	one := step{request: c.request, value: c.value, approved: c.approved, cancels: c.cancels, fresh: !c.replayed}
	if c.purpose == readingOperation && s.kind.isPayment() {
		return nil // a read of what follows it up
	}
	heard := c.outcome
	if heard == gateRefused && !c.direct {
		heard = unknown // what stands in between may have sent it twice
	}
	switch heard {
	case unknown:
		switch {
		case c.purpose == cancelling && s.kind.isPayment():
			one.does = mayCancel
			return []step{{does: begins}, one}
		case c.purpose != posting || c.request < 0:
			return nil
		case s.kind.isPayment():
			one.does, one.fresh = claims, false
		default:
			one.does = accepts
		}
	case toldDecision:
		one.does = seesDecision
		if one.fresh {
			return []step{{does: claims, request: c.request, fresh: true}, one}
		}
	case toldAccepted:
		one.does = seesAcceptance
	case toldRead:
		one.does = seesRead
	case toldCancelled:
		one.does = seesCancelled
		return []step{{does: begins}, one}
	case toldInFlight:
		one.does = seesClaimed
	case toldUndecided:
		one.does = seesUndecided
	case toldMismatch:
		one.does = seesOther
	case toldWasCancelled:
		one.does = seesWithdrawn
	case toldTooLate:
		one.does = seesSomething
	case toldNotFound:
		one.does = seesNothing
	case toldFree:
		one.does = seesFree
	case unsent, gateRefused, noClaim, readFailed:
		return nil
	}
	return []step{one}
}

// registerLimit bounds the search for an order: histories of one key are short.
const registerLimit = 20 * time.Second

// judgeRegister looks for an order of the calls of a key.
func (w *world) judgeRegister(s *subject) {
	var history []porcupine.Operation
	calls, alone := 0, true
	last := moment(0)
	sorted := slices.SortedFunc(slices.Values(s.calls), func(a, b call) int { return cmp.Compare(a.sent, b.sent) })
	for _, c := range sorted {
		steps := s.steps(c)
		if len(steps) == 0 {
			continue
		}
		calls++
		until := c.ended
		if c.outcome == unknown || c.outcome == gateRefused {
			until = never
		}
		alone = alone && c.sent > last
		last = max(last, until)
		for _, one := range steps {
			history = append(history, porcupine.Operation{Input: one, Call: int64(c.sent), Return: int64(until)})
		}
	}
	if calls == 0 {
		return
	}
	w.checked(linear)
	w.report.Registers++
	if alone {
		// No two calls were under way at once: there is one order, and it is theirs.
		var r register
		for _, one := range history {
			after, ok := r.apply(one.Input.(step))
			if !ok {
				w.violate(linear, s, "its calls came one after the other, and one was answered what the key was not: %s", tell(one.Input.(step), r))
				return
			}
			r = after
		}
		return
	}
	w.report.Concurrent++
	switch porcupine.CheckOperationsTimeout(w.registerModel(), history, registerLimit) {
	case porcupine.Ok:
	case porcupine.Illegal:
		w.violate(linear, s, "there is no order of its %d calls in which each was answered what the key was", calls)
	case porcupine.Unknown:
		w.violate(linear, s, "no order of its %d calls was found within %v, nor that there is none", calls, registerLimit)
	}
}

func (w *world) registerModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, _ any) (bool, any) {
			after, ok := state.(register).apply(input.(step))
			return ok, after
		},
		Equal: func(a, b any) bool { return a == b },
	}
}

// tell says what did not fit.
func tell(s step, r register) string {
	seen := [...]string{
		claims: "a claim", begins: "a cancel", accepts: "an acceptance", mayCancel: "a cancel", seesDecision: "a decision", seesAcceptance: "an acceptance",
		seesRead: "a row", seesCancelled: "a cancellation", seesClaimed: "a key in flight", seesUndecided: "a key in flight", seesNothing: "no such key", seesOther: "a key of another request",
		seesWithdrawn: "a cancelled approval", seesSomething: "a captured hold", seesFree: "a free key",
	}
	was := [...]string{free: "free", claimed: "claimed", written: "decided", withdrawn: "cancelled after its approval"}
	return seen[s.does] + " was seen, and the key was " + was[r.stage]
}
