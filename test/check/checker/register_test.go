package checker

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// played is a true register, with calls that arrive at random moments, transactions that
// take their time or come to nothing, answers that are lost, and handlers that die. What
// it answers is right by construction.
type played struct {
	stage   stage
	tomb    bool
	request int16
	yes     bool // approved
	void    bool // cancelled before it was decided otherwise
	value   uint64

	held  bool // a transaction holds the key's place, that nobody can look into
	until int  // when it ends
	due   []happening
}

// happening is something that is due at a moment.
type happening struct {
	at   int
	does func()
}

// What a decision of a register can be, as values.
const (
	yesValue uint64 = iota + 11
	noValue
	voidValue
	timeoutValue
)

func (p *played) later(at int, does func()) { p.due = append(p.due, happening{at, does}) }

// decide writes the register, if it is not written yet.
func (p *played) decide(value uint64) {
	if p.stage == claimed {
		p.stage, p.value, p.yes, p.void = written, value, value == yesValue, value == voidValue
	}
}

// answer is what the key's own decision is told as.
func (p *played) answer(c *call, replayed bool) {
	c.outcome, c.replayed = toldDecision, replayed
	c.value, c.approved, c.cancels = p.value, p.yes, p.void
}

// drawn is what is left to chance about a call.
type drawn struct {
	to, commit, decides, recovery int
	fate                          string
	decision                      uint64
}

// play makes the calls of one key.
func play(t *rapid.T) []call {
	p := &played{}
	const end = 100
	calls := make([]call, rapid.IntRange(1, 7).Draw(t, "calls"))
	for i := range calls {
		c := &calls[i]
		from := rapid.IntRange(1, end).Draw(t, "sent")
		point := from + rapid.IntRange(0, 20).Draw(t, "until it acts")
		d := drawn{to: point + rapid.IntRange(0, 20).Draw(t, "until it answers")}
		d.commit = rapid.IntRange(point, d.to).Draw(t, "commits")
		d.decides = rapid.IntRange(d.commit, d.to).Draw(t, "decides")
		d.recovery = d.decides + rapid.IntRange(0, end).Draw(t, "recovery")
		d.fate = rapid.SampledFrom([]string{"", "", "", "lost", "never arrived", "dies", "rolled back"}).Draw(t, "fate")
		d.decision = rapid.SampledFrom([]uint64{yesValue, noValue}).Draw(t, "decision")
		c.sent, c.ended, c.direct, c.request = moment(from), moment(d.to), true, -1
		c.purpose = rapid.SampledFrom([]purpose{posting, posting, posting, cancelling, readingPayment}).Draw(t, "purpose")
		if c.purpose == posting {
			c.request = rapid.SampledFrom([]int16{0, 0, 0, 1}).Draw(t, "request")
		}
		if d.fate == "never arrived" {
			continue
		}
		p.later(point, func() { p.act(c, d) })
		if d.fate == "lost" {
			p.later(d.to+1, func() { c.outcome = unknown })
		}
	}
	for len(p.due) > 0 { // what happens may bring about more
		next := 0
		for i, h := range p.due {
			if h.at < p.due[next].at {
				next = i
			}
		}
		does := p.due[next].does
		p.due = slices.Delete(p.due, next, next+1)
		does()
	}
	return calls
}

// act is what a call does when it arrives.
func (p *played) act(c *call, d drawn) {
	switch {
	case c.purpose == readingPayment:
		p.show(c)
	case c.purpose == posting && p.held:
		c.outcome = toldInFlight
	case p.held && p.until <= d.to: // a cancel waits for the place
		p.later(p.until, func() { p.act(c, d) })
	case p.held: // or gives up
	case p.stage == free:
		p.take(c, d)
	case c.purpose == cancelling:
		p.cancel(c)
	case p.tomb:
		p.answer(c, true)
	case p.request != c.request:
		c.outcome = toldMismatch
	case p.stage == claimed:
		c.outcome = toldInFlight
	case p.stage == withdrawn:
		c.outcome = toldWasCancelled
	default:
		p.answer(c, true)
	}
}

// take takes a free key, by a transaction of its own.
func (p *played) take(c *call, d drawn) {
	p.held, p.until = true, d.commit
	p.later(d.commit, func() {
		p.held = false
		if d.fate == "rolled back" {
			return
		}
		if c.purpose == cancelling {
			p.stage, p.tomb, p.value, p.void = written, true, voidValue, true
			p.cancel(c)
			return
		}
		p.stage, p.request = claimed, c.request
		if d.fate == "dies" {
			p.later(d.recovery, func() { p.decide(timeoutValue) })
			return
		}
		p.later(d.decides, func() {
			p.decide(d.decision)
			p.answer(c, false)
		})
	})
}

func (p *played) cancel(c *call) {
	p.decide(voidValue)
	if p.stage == written && p.yes {
		p.stage = withdrawn
	}
	c.outcome, c.value, c.approved, c.cancels = toldCancelled, p.value, p.yes, p.void
}

func (p *played) show(c *call) {
	switch p.stage {
	case free:
		c.outcome = toldNotFound
	case claimed:
		c.outcome = toldUndecided
	case written, withdrawn:
		c.outcome, c.value, c.approved, c.cancels = toldRead, p.value, p.yes, p.void
	}
}

// judged reports whether a key with these calls is found to be a register that was
// written once.
func judged(calls []call) bool {
	w := newWorld(Defaults())
	w.judgeRegister(&subject{kind: debit, calls: calls})
	return w.report.Broken[linear] == 0
}

// A true history that is accused would have people look for a fault that is not there,
// and then switch the check off. Each of these was answered by a register, one thing
// after the other.
func TestARegisterThatWasWrittenOnceIsAccepted(t *testing.T) {
	t.Parallel()
	concurrent := 0
	rapid.Check(t, func(t *rapid.T) {
		calls := play(t)
		if !judged(calls) {
			t.Fatalf("accused: %+v", calls)
		}
		for i := range calls {
			for j := range i {
				if calls[i].sent <= calls[j].ended && calls[j].sent <= calls[i].ended {
					concurrent++
				}
			}
		}
	})
	if concurrent < 100 && !t.Failed() {
		t.Errorf("only %d calls were under way at once with another", concurrent)
	}
}

// Two tills that were told different things of one key: one of them hands over goods that
// nobody has paid. Wherever in a history another decision is told, it is found.
func TestARegisterThatWasWrittenTwiceIsFound(t *testing.T) {
	t.Parallel()
	spoilt := 0
	rapid.Check(t, func(t *rapid.T) {
		calls := play(t)
		var tells []int
		for i, c := range calls {
			if c.outcome == toldDecision || c.outcome == toldRead {
				tells = append(tells, i)
			}
		}
		if len(tells) < 2 {
			return
		}
		spoilt++
		calls[rapid.SampledFrom(tells).Draw(t, "other")].value = 99
		if judged(calls) {
			t.Fatalf("acquitted: %+v", calls)
		}
	})
	if spoilt < 20 && !t.Failed() {
		t.Errorf("only %d histories were spoilt", spoilt)
	}
}

// Each of these is a broken promise by itself: how it could be answered, no order of
// moments explains.
func TestWhatNoRegisterAnswersIsFound(t *testing.T) {
	t.Parallel()
	post := func(from, to moment, o outcome, change ...func(*call)) call {
		c := call{sent: from, ended: to, purpose: posting, outcome: o, direct: true, value: yesValue, approved: true}
		for _, by := range change {
			by(&c)
		}
		return c
	}
	replayed := func(c *call) { c.replayed = true }
	other := func(c *call) { c.request = 1 }
	cancels := func(c *call) {
		c.purpose, c.request, c.value, c.approved, c.cancels = cancelling, -1, voidValue, false, true
	}
	withdraws := func(c *call) { c.purpose, c.request = cancelling, -1 }
	reads := func(c *call) { c.purpose, c.request = readingPayment, -1 }
	for name, c := range map[string]struct {
		calls []call
		right bool
	}{
		"decided, then replayed":                        {[]call{post(1, 2, toldDecision), post(3, 4, toldDecision, replayed)}, true},
		"in flight beside the one that decides":         {[]call{post(1, 9, toldDecision), post(3, 4, toldInFlight)}, true},
		"decided twice":                                 {[]call{post(1, 2, toldDecision), post(3, 4, toldDecision, replayed, func(c *call) { c.value = noValue })}, false},
		"replayed, and nobody has asked before":         {[]call{post(1, 2, toldDecision, replayed)}, false},
		"in flight, and nobody else has asked":          {[]call{post(1, 2, toldInFlight)}, false},
		"in flight after it was decided":                {[]call{post(1, 2, toldDecision), post(3, 4, toldInFlight)}, false},
		"in flight before it was asked for":             {[]call{post(1, 2, toldInFlight), post(3, 4, toldDecision)}, false},
		"not found after it was decided":                {[]call{post(1, 2, toldDecision), post(3, 4, toldNotFound, reads)}, false},
		"not found after a read has seen it in flight":  {[]call{post(1, 9, toldDecision), post(2, 3, toldUndecided, reads), post(4, 5, toldNotFound, reads)}, false},
		"not found before its claim is committed":       {[]call{post(1, 9, toldDecision), post(2, 3, toldInFlight), post(4, 5, toldNotFound, reads)}, true},
		"in flight beside a cancel":                     {[]call{post(1, 9, toldCancelled, cancels), post(2, 3, toldInFlight)}, true},
		"in flight after a cancel":                      {[]call{post(1, 2, toldCancelled, cancels), post(3, 4, toldInFlight)}, false},
		"an approval beside a cancel of nothing":        {[]call{post(1, 9, toldCancelled, cancels), post(2, 3, toldDecision)}, false},
		"a claim that came to nothing, and another's":   {[]call{post(1, 2, unknown), post(1, 3, toldInFlight), post(4, 5, toldDecision, other)}, true},
		"shown before it was asked for":                 {[]call{post(1, 2, toldRead, reads), post(3, 4, toldDecision)}, false},
		"another request is told the decision":          {[]call{post(1, 2, toldDecision), post(3, 4, toldDecision, replayed, other)}, false},
		"another request, and it is the only one":       {[]call{post(1, 2, toldMismatch)}, false},
		"the same request is called another":            {[]call{post(1, 2, toldDecision), post(3, 4, toldMismatch)}, false},
		"another request is called so":                  {[]call{post(1, 2, toldDecision), post(3, 4, toldMismatch, other)}, true},
		"approved after it was cancelled":               {[]call{post(1, 2, toldDecision), post(3, 4, toldCancelled, withdraws), post(5, 6, toldDecision, replayed)}, false},
		"cancelled, and shown as approved still":        {[]call{post(1, 2, toldDecision), post(3, 4, toldCancelled, withdraws), post(5, 6, toldRead, reads)}, true},
		"told as cancelled, and nobody has":             {[]call{post(1, 2, toldDecision), post(3, 4, toldWasCancelled)}, false},
		"told as cancelled, and perhaps somebody has":   {[]call{post(1, 2, toldDecision), post(3, 4, unknown, withdraws), post(5, 6, toldWasCancelled)}, true},
		"a tombstone, then an approval":                 {[]call{post(1, 2, toldCancelled, cancels), post(3, 4, toldDecision)}, false},
		"a tombstone answers whatever the body":         {[]call{post(1, 2, toldCancelled, cancels), post(3, 4, toldDecision, replayed, other, func(c *call) { c.value, c.approved, c.cancels = voidValue, false, true })}, true},
		"a lost claim is decided by recovery":           {[]call{post(1, 2, unknown), post(5, 6, toldDecision, replayed, func(c *call) { c.value, c.approved = timeoutValue, false })}, true},
		"a lost cancel is seen as its decline":          {[]call{post(1, 2, unknown, cancels), post(3, 4, toldDecision, replayed, func(c *call) { c.value, c.approved, c.cancels = voidValue, false, true })}, true},
		"a lost cancel of nothing, then an approval":    {[]call{post(1, 2, unknown, cancels), post(3, 4, toldDecision)}, true},
		"another request, and nobody has asked before":  {[]call{post(1, 2, toldMismatch, other)}, false},
		"shown as approved, and only cancelled":         {[]call{post(1, 2, unknown, cancels), post(3, 4, toldRead, reads)}, false},
		"shown as approved beside a cancel of nothing":  {[]call{post(1, 9, toldCancelled, cancels), post(2, 3, toldRead, reads)}, false},
		"told as cancelled, and only cancelled":         {[]call{post(1, 2, unknown, cancels), post(3, 4, toldWasCancelled)}, false},
		"captured, and too late to cancel":              {[]call{post(1, 2, toldDecision), post(3, 4, toldTooLate, withdraws)}, true},
		"too late to cancel what nobody has asked for":  {[]call{post(1, 2, toldTooLate, withdraws)}, false},
		"a lost cancel that never arrived":              {[]call{post(1, 2, toldDecision), post(3, 4, unknown, withdraws), post(5, 6, toldDecision, replayed)}, true},
		"told as cancelled, then as an approval":        {[]call{post(1, 2, toldDecision), post(3, 4, unknown, withdraws), post(5, 6, toldWasCancelled), post(7, 8, toldDecision, replayed)}, false},
		"refused by something in between, which asked":  {[]call{post(1, 2, gateRefused, func(c *call) { c.direct = false }), post(5, 6, toldDecision, replayed)}, true},
		"what was refused with Retry-After has claimed": {[]call{post(1, 2, gateRefused), post(3, 4, toldInFlight)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := judged(c.calls); got != c.right {
				t.Errorf("found to be right: %v, want %v", got, c.right)
			}
		})
	}
}

// The same for follow-ups, whose acceptance is one moment.
func TestWhatNoAcceptanceAnswersIsFound(t *testing.T) {
	t.Parallel()
	post := func(from, to moment, o outcome, replayed bool, request int16) call {
		return call{sent: from, ended: to, purpose: posting, outcome: o, direct: true, value: yesValue, replayed: replayed, request: request}
	}
	for name, c := range map[string]struct {
		calls []call
		right bool
	}{
		"accepted, then replayed":                  {[]call{post(1, 2, toldAccepted, false, 0), post(3, 4, toldAccepted, true, 0)}, true},
		"refused by the state, then accepted":      {[]call{post(1, 2, toldFree, false, 0), post(3, 4, toldAccepted, false, 0)}, true},
		"accepted, then refused by the state":      {[]call{post(1, 2, toldAccepted, false, 0), post(3, 4, toldFree, false, 0)}, false},
		"accepted twice":                           {[]call{post(1, 2, toldAccepted, false, 0), post(3, 4, toldAccepted, false, 0)}, false},
		"accepted for another request":             {[]call{post(1, 2, toldAccepted, false, 0), post(3, 4, toldAccepted, true, 1)}, false},
		"a lost acceptance is replayed":            {[]call{post(1, 2, unknown, false, 0), post(3, 4, toldAccepted, true, 0)}, true},
		"a lost acceptance, and another's is told": {[]call{post(1, 2, unknown, false, 0), post(3, 4, toldAccepted, true, 1)}, false},
		"replayed, and nobody has asked before":    {[]call{post(1, 2, toldAccepted, true, 0)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(Defaults())
			w.judgeRegister(&subject{kind: credit, calls: c.calls})
			if got := w.report.Broken[linear] == 0; got != c.right {
				t.Errorf("found to be right: %v, want %v", got, c.right)
			}
		})
	}
}
