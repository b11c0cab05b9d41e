package checker

import (
	"fmt"
	"slices"
	"time"
)

// judgeFollowUp judges the key of a credit, capture or release.
func (w *world) judgeFollowUp(s *subject) {
	w.judgeTelling(s)
	w.judgeGate(s)
	w.judgeTimes(s)
	if j := s.job; j != nil {
		w.checked(askedFor)
		if i := slices.IndexFunc(s.requests, func(r request) bool { return r.mark == j.mark }); i < 0 {
			w.violate(askedFor, s, "no till has asked for this follow-up")
		} else {
			w.checked(derived)
			if s.requests[i].reference != j.outbound {
				w.violate(derived, s, "its outbound key is %s, want %s", j.outbound, s.requests[i].reference)
			}
		}
	}
	w.judgeRegister(s)
}

// judgeJob judges a row of operations: how it ended, and what the wallet did for it.
func (w *world) judgeJob(j *job) {
	s := j.subject()
	if j.kind == reversal {
		w.checked(derived)
		if want := reversalOf(j.reverses); want != j.outbound {
			w.violate(derived, s, "the outbound key of its reversal is %s, want %s", j.outbound, want)
		}
	}
	w.checked(ended)
	switch {
	case j.pending() && !w.opts.Unsettled:
		w.violate(ended, s, "%s has not ended", j)
	case j.parked():
		w.report.Parked++
		if j.parkReason == "" {
			w.violate(ended, s, "%s is parked without a reason", j)
		}
	}
	w.judgeEffect(s, j)
	w.judgeRecorded(s, j)
	w.judgeAttempts(s, j)
	if j.notApplied() && !j.byHand() {
		w.judgeNotApplied(s, j)
	}
}

// judgeEffect: the wallet did for a job what the job's end says.
func (w *world) judgeEffect(s *subject, j *job) {
	if j.byHand() {
		w.report.ByHand++
		return
	}
	effects := j.wire.effects()
	w.checked(effected)
	if len(effects) > 1 {
		w.violate(effected, s, "the wallet has done %s %d times", j, len(effects))
		return
	}
	done := len(effects) == 1
	switch {
	case j.succeeded() && !done && !w.needless(j):
		w.violate(effected, s, "%s has SUCCEEDED, and the wallet has done nothing", j)
	case j.succeeded() && done && j.walletID != "" && effects[0].id != j.walletID:
		w.violate(effected, s, "%s has SUCCEEDED as %s, the wallet did it as %s", j, j.walletID, effects[0].id)
	case (j.refused() || j.notApplied()) && done:
		w.violate(effected, s, "%s is %s, and the wallet has done it", j, j.state)
	case j.refused() && !saidNo(j):
		w.violate(effected, s, "%s is REJECTED as %s, and the wallet has not said so", j, j.code)
	}
}

// needless reports whether j could succeed without an effect of its own: a reversal for
// which nothing was left to give back, and the undoing of a hold that had gone already.
func (w *world) needless(j *job) bool {
	if j.of == nil {
		return false
	}
	if j.of.kind == hold && (j.kind == reversal || j.cancelled) {
		id := j.targetID
		if id == "" {
			id = j.of.payment.walletID
		}
		return !w.holds(id)
	}
	return j.kind == reversal && j.of.money.took == j.of.money.gave
}

// saidNo reports whether the wallet has refused j with its code, to a send or to a
// lookup; where it gave no usable code, with any.
func saidNo(j *job) bool {
	return len(j.wire.of(func(l seen) bool {
		no := l.event == refusal || (l.event == answer && l.status >= 400 && l.status < 500) || (l.event == answer && l.status == 200)
		return no && (l.code == j.code || j.code == "WALLET_REJECTED")
	})) > 0
}

// judgeRecorded: what the wallet saw of a job is what the ledger has counted and
// recorded.
func (w *world) judgeRecorded(s *subject, j *job) {
	arrivals := len(j.wire.arrivals())
	answers := 0
	for i := range j.calls {
		c := &j.calls[i]
		if c.call != "lookup" && (c.outcome == "success" || c.outcome == "rejected" && c.reason == "verdict") {
			answers++
		}
	}
	if arrivals == 0 && answers == 0 && j.attempts == 0 {
		return
	}
	w.checked(recorded)
	w.report.Attempts += int64(j.attempts)
	w.report.Arrivals += int64(arrivals)
	switch {
	case arrivals > j.attempts && w.lossy:
		s.lost = true // an attempt was counted, sent, and is gone: counted apart
	case arrivals > j.attempts:
		w.violate(recorded, s, "%s was on the wire %d times, %d attempts are counted", j, arrivals, j.attempts)
	case answers > arrivals:
		w.violate(recorded, s, "%d answers to %s are recorded, and it was on the wire %d times", answers, j, arrivals)
	}
}

// judgeAttempts holds each attempt, all of its calls together, to its limit.
func (w *world) judgeAttempts(s *subject, j *job) {
	w.judgeLimits(s, j.calls, func(*walletCall) time.Duration { return w.opts.WorkerCall })
	byFence := map[int64]span{}
	for i := range j.calls {
		c := &j.calls[i]
		one, ok := byFence[c.fence]
		if !ok {
			one = span{never, 0}
		}
		byFence[c.fence] = span{min(one.from, c.at), max(one.to, c.at.add(c.took))}
	}
	for fence, one := range byFence {
		if w.disturbed.overlap(one.from, one.to) {
			continue
		}
		w.checked(callTime)
		if took := one.to.sub(one.from); took > w.opts.WorkerCall+w.opts.Slack {
			w.violate(callTime, s, "the calls of lease %d of %s took %v together, want at most %v", fence, j, took, w.opts.WorkerCall)
		}
	}
}

// judgeNotApplied: a reversal that found nothing must have been told so by the wallet's
// own refusal, or by a lookup that began after the settle window.
func (w *world) judgeNotApplied(s *subject, j *job) {
	w.checked(noProof)
	if !slices.ContainsFunc(j.calls, func(c walletCall) bool {
		late := c.at.sub(j.created) >= w.opts.SettleWindow-w.opts.ClockSlack
		return c.call == "lookup" && (c.outcome == "rejected" || c.outcome == "not_found" && late)
	}) {
		w.violate(noProof, s, "its reversal is NOT_APPLIED, and no lookup after the settle window of %v has said so", w.opts.SettleWindow)
	}
}

// judgeOwed: every open question about money has a job, and nothing else has a reversal.
func (w *world) judgeOwed(s *subject, p *payment) {
	undoing := p.reversal()
	n := 0
	for _, j := range p.jobs {
		if j.kind == reversal {
			n++
		}
	}
	w.checked(oneReversal)
	if n > 1 {
		w.violate(oneReversal, s, "it has %d reversals", n)
	}

	question, sameMoment := w.question(s, p)
	if question == "" && undoing == nil {
		return
	}
	w.checked(owed)
	switch {
	case undoing == nil:
		w.violate(owed, s, "%s, and nothing undoes it", question)
	case question == "" && p.approved():
		w.violate(owed, s, "it is approved, no till has cancelled it, and it is reversed")
	case sameMoment && undoing.created != p.decided:
		w.violate(owed, s, "its reversal was made at %v and not with the decision at %v", undoing.created.time(), p.decided.time())
	}
}

// question is why a payment must be undone, "" if it need not be; sameMoment is set
// where its decision must have brought the reversal along.
func (w *world) question(s *subject, p *payment) (why string, sameMoment bool) {
	if p.approved() {
		for _, c := range s.calls {
			if c.purpose == cancelling && (c.outcome == toldCancelled || c.outcome == unknown) {
				if c.outcome == unknown && p.reversal() == nil {
					continue // it may not have arrived
				}
				return "it is approved and the till has cancelled it", false
			}
		}
		return "", false
	}
	if !p.declined() {
		return "", false
	}
	if p.tombstone() {
		for _, c := range s.calls {
			if c.purpose == cancelling && c.outcome == toldCancelled && c.request >= 0 {
				return "it was cancelled before it was seen, and the till has said what it had asked for", false
			}
		}
		return "", false
	}
	if p.code == "WALLET_TIMEOUT" || p.code == "CANCELLED" {
		return "it is declined " + p.code, true
	}
	for i := range p.calls {
		c := &p.calls[i]
		switch {
		case c.outcome == "unavailable" && c.status != 0, c.outcome == "rejected" && c.reason == "no_verdict":
			return fmt.Sprintf("it is declined on a %d that proves nothing", c.status), true
		}
	}
	for _, x := range s.wires {
		if len(x.effects()) > 0 {
			return "it is declined and the wallet has applied it", true
		}
	}
	return "", false
}
