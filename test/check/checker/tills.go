package checker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/test/check/history"
)

// call is one call of a till's about a key.
type call struct {
	place, endPlace place
	sent, ended     moment // ended is never where no end was noted
	effective       time.Duration
	value           uint64 // what it says that the register holds
	digest          uint64 // of the whole answer
	request         int16  // of subject.requests, -1 where the body is none
	status          int16
	purpose         purpose
	outcome         outcome
	replayed        bool
	direct          bool // nothing stood in between
	approved        bool // it tells an approval
	cancels         bool // it tells that the key was cancelled before it was decided otherwise
}

// pending is a call whose end has not been read yet.
type pending struct {
	target  target
	request history.Request
	subject *subject
	call    int // of subject.calls
	handled *handled
	sent    moment
}

// tillReader takes in a till log.
type tillReader struct {
	*world
	pending   map[int64]pending
	disturbed map[int64]moment
	lines     int64
}

func (w *world) readTills(ctx context.Context, l Lines[history.Line]) error {
	r := &tillReader{world: w, pending: map[int64]pending{}, disturbed: map[int64]moment{}}
	if err := l.each(ctx, r.add); err != nil {
		return fmt.Errorf("till log: %w", err)
	}
	r.reopen(never)
	slices.SortFunc(w.disturbed, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	w.disturbed = merge(w.disturbed)
	return nil
}

// merge makes spans that are sorted stand apart.
func merge(sorted spans) (apart spans) {
	for _, s := range sorted {
		if n := len(apart); n > 0 && s.from <= apart[n-1].to {
			apart[n-1].to = max(apart[n-1].to, s.to)
			continue
		}
		apart = append(apart, s)
	}
	return apart
}

// reopen ends what will have no end of its own: whoever wrote it was killed.
func (r *tillReader) reopen(now moment) {
	r.report.Unanswered += int64(len(r.pending))
	clear(r.pending)
	for _, from := range r.disturbed {
		r.world.disturbed = append(r.world.disturbed, span{from, now})
	}
	clear(r.disturbed)
}

func (r *tillReader) add(p place, l *history.Line) error {
	r.lines++
	now := at(l.At)
	r.saw(now)
	switch l.Event {
	case history.Opened:
		r.reopen(now)
	case history.Sent:
		r.send(p, now, l)
	case history.Answered, history.Failed:
		call, ok := r.pending[l.Call]
		if !ok {
			return fmt.Errorf("call %d ends and was not sent", l.Call)
		}
		delete(r.pending, l.Call)
		if l.Event == history.Failed {
			r.fail(p, now, call, l.Failure)
		} else {
			r.answer(p, now, call, l.Answer)
		}
	case history.Disturbed:
		r.disturbed[l.Call] = now
		r.report.Disturbances++
	case history.Calmed:
		from, ok := r.disturbed[l.Call]
		if !ok {
			return fmt.Errorf("disturbance %d ends and did not begin", l.Call)
		}
		delete(r.disturbed, l.Call)
		r.world.disturbed = append(r.world.disturbed, span{from, now})
	default:
		return fmt.Errorf("unknown event %q", l.Event)
	}
	return nil
}

// saw keeps from when until when the run lasted.
func (w *world) saw(m moment) {
	if w.firstEvent == 0 || m < w.firstEvent {
		w.firstEvent = m
	}
	w.lastEvent = max(w.lastEvent, m)
}

func (r *tillReader) send(p place, now moment, l *history.Line) {
	r.report.Calls++
	t := aim(l.Method, l.Path)
	call := pending{target: t, request: l.Request, sent: now}
	call.request.Sent = ""
	if s := r.subjectOfCall(t, l.Request); s != nil {
		call.subject, call.call = s, len(s.calls)
		c := newCall(p, now, t, l.Request, r.opts)
		c.request = r.ask(s, t, l.Sent)
		s.calls = append(s.calls, c)
		if t.purpose == posting || t.purpose == cancelling {
			r.report.Mutations++
		}
	}
	if id, ok := traceOf(l.Trace); ok {
		call.handled = &handled{subject: call.subject, place: p}
		r.byTrace[id] = call.handled
	}
	r.pending[l.Call] = call
}

func newCall(p place, now moment, t target, r history.Request, opts Options) call {
	return call{place: p, sent: now, ended: never, request: -1, purpose: t.purpose, effective: opts.effective(r.Deadline), direct: r.Via == ""}
}

func traceOf(text string) (id trace, ok bool) {
	raw, err := hex.DecodeString(text)
	return trace(append(raw, make([]byte, len(id))...)[:len(id)]), err == nil && len(raw) == len(id)
}

// subjectOfCall is the key that a call is about; nil where it can be about none.
func (r *tillReader) subjectOfCall(t target, q history.Request) *subject {
	if q.Caller == "" || t.purpose == elsewhere {
		return nil
	}
	key := t.key
	switch {
	case t.purpose == readingPayment && t.id != uuid.Nil:
		return ofCaller(r.byPayment[t.id], q.Caller)
	case t.purpose == readingOperation && t.id != uuid.Nil:
		if j := r.byJob[t.id]; j != nil {
			return ofCaller(j.subject(), q.Caller)
		}
		return nil
	case t.purpose == posting:
		key = unquote(q.Key)
	}
	if key == "" {
		return nil
	}
	s := r.subjectOf(q.Caller, t.kind, sha256.Sum256([]byte(key)))
	if s.key == "" {
		s.key = key
	}
	return s
}

// ofCaller is s if it is caller's: to others it does not exist.
func ofCaller(s *subject, caller string) *subject {
	if s == nil || s.caller != caller {
		return nil
	}
	return s
}

// ask keeps what was asked for under s and gives its place, -1 where that is no request.
func (r *tillReader) ask(s *subject, t target, body string) int16 {
	if t.purpose != posting && (t.purpose != cancelling || body == "") {
		return -1
	}
	parsed, err := parse(s.kind, body)
	if err != nil {
		return -1
	}
	f := parsed.fingerprint(s.kind, t.id)
	i := slices.IndexFunc(s.requests, func(q request) bool { return q.mark == markOf(f[:]) })
	if i < 0 {
		q := request{mark: markOf(f[:]), reference: f.reference(s.caller, s.kind, s.key)}
		q.payee, q.of = parsed.payee(s.kind, t.id)
		i = len(s.requests)
		s.requests = append(s.requests, q)
		r.claim(s, q.reference)
		if r.lossy && s.kind.isPayment() {
			// The row of its reversal may have been lost after the reversal was made.
			if x := r.wireOf(reversalOf(q.reference)); x.job == nil {
				x.reverses = s
			}
		}
	}
	return int16(i)
}

func (r *tillReader) fail(p place, now moment, call pending, f history.Failure) {
	r.report.Failed++
	if call.subject == nil {
		return
	}
	c := &call.subject.calls[call.call]
	c.endPlace, c.ended = p, now
	if f.Unsent {
		c.outcome = unsent
	}
}

func (r *tillReader) answer(p place, now moment, call pending, a history.Answer) {
	r.report.Answers++
	r.report.Statuses[a.Status]++
	b := body{}
	if call.request.Method != "HEAD" {
		b = read(a.Got)
	}
	s, t := call.subject, call.target
	foreign := fromBetween(call.request, a, b)
	means := unknown
	if !foreign {
		means = t.means(a, b)
		r.judgeForm(call, a, b, p)
	}
	if means == gateRefused && call.handled != nil && call.request.Via == "" {
		call.handled.proof = true
	}
	if s == nil {
		if means == toldRead && !r.lossy {
			r.violateAt(readTold, nil, inTills(p), "GET %s shows %s, and there is no such row", call.request.Path, b.ID)
		}
		return
	}
	c := &s.calls[call.call]
	c.endPlace, c.ended, c.outcome, c.status = p, now, means, int16(a.Status)
	c.replayed = a.Replayed != ""
	c.digest = digest(fmt.Sprint(a.Status), a.Location, a.RetryAfter, a.Got)
	c.approved, c.cancels = b.Decision == "APPROVED", b.Code == "CANCELLED"
	switch means {
	case toldDecision, toldCancelled, toldAccepted:
		c.value = digest(b.Decision, b.Code, b.ID)
	case toldRead:
		c.value = digest(b.Decision, b.Code, b.ID)
		if t.purpose == readingOperation {
			c.value = digest("", "", b.ID)
		}
	case unknown, unsent, gateRefused, noClaim, toldInFlight, toldUndecided, toldMismatch, toldWasCancelled, toldTooLate, toldNotFound, toldFree, readFailed:
	}
	r.compare(s, *c, a, b)
}

func digest(parts ...string) uint64 {
	h := fnv.New64a()
	for _, part := range parts {
		_, _ = h.Write([]byte(part))
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// judgeForm holds an answer to what every answer must be.
func (r *tillReader) judgeForm(call pending, a history.Answer, b body, p place) {
	line := fmt.Sprintf("%s %s: %d %s", call.request.Method, call.request.Path, a.Status, b.Code)
	r.checked(contractual)
	if call.request.Method != "HEAD" {
		if wrong := call.target.contract(a, b); wrong != "" {
			r.violateAt(contractual, call.subject, inTills(p), "%s: %s: %s", line, wrong, a.Got)
		}
	}
	r.checked(retryAfter)
	must := mustRetryAfter(a, b) || (call.request.Method == "HEAD" && a.RetryAfter != "")
	switch {
	case must && !wholePositive(a.RetryAfter):
		r.violateAt(retryAfter, call.subject, inTills(p), "%s has Retry-After %q, want a positive whole number", line, a.RetryAfter)
	case !must && a.RetryAfter != "":
		r.violateAt(retryAfter, call.subject, inTills(p), "%s has Retry-After %q, want none", line, a.RetryAfter)
	}
}

// compare holds what an answer tells against what is stored.
func (r *tillReader) compare(s *subject, c call, a history.Answer, b body) {
	var d differences
	clause := told
	switch c.outcome {
	case toldDecision:
		r.compareDecision(s, c, a, b, &d)
	case toldAccepted:
		r.checked(kept)
		if s.job == nil {
			r.violateAt(kept, s, inTills(c.endPlace), "it was accepted as %s, and there is no row", b.ID)
			return
		}
		r.compareAcceptance(s, c, a, b, &d)
	case toldCancelled:
		r.compareCancellation(s, b, &d)
	case toldRead:
		clause = readTold
		r.compareRead(s, c, b, &d)
	case toldMismatch:
		clause = asAsked
		r.compareMismatch(s, c, &d)
	case unknown, unsent, gateRefused, noClaim, toldInFlight, toldUndecided, toldWasCancelled, toldTooLate, toldNotFound, toldFree, readFailed:
		return
	}
	r.checked(clause)
	if len(d) > 0 {
		r.violateAt(clause, s, inTills(c.endPlace), "%d %s: %s", a.Status, b.Code, strings.Join(d, "; "))
	}
}

func (r *tillReader) compareDecision(s *subject, c call, a history.Answer, b body, d *differences) {
	p := s.payment
	if p == nil {
		*d = append(*d, "a decision was told, and there is no row")
		return
	}
	d.payment(b, s, a.Status == 201)
	location := ""
	if a.Status == 201 {
		location = "/payments/" + p.id.String()
	}
	d.text("Location", a.Location, location)
	if (a.Status == 201) != p.approved() || (a.Status == 424) != retryable(p.code) {
		*d = append(*d, fmt.Sprintf("status %d, stored is %s %s", a.Status, p.state, p.code))
	}
	r.asked(s, c, p.mark, p.tombstone())
}

// asked holds a decision or acceptance to the request that it answers.
func (r *tillReader) asked(s *subject, c call, stored mark, tombstone bool) {
	if tombstone {
		return // whatever its body
	}
	r.checked(asAsked)
	if c.request < 0 || s.requests[c.request].mark != stored {
		r.violateAt(asAsked, s, inTills(c.endPlace), "%d was answered to a request that is not the one that is stored", c.status)
	}
}

func (r *tillReader) compareAcceptance(s *subject, c call, a history.Answer, b body, d *differences) {
	j := s.job
	d.job(b, j)
	d.text("status", b.state(), "PENDING")
	d.text("Location", a.Location, "/operations/"+j.id.String())
	r.asked(s, c, j.mark, false)
}

func (r *tillReader) compareCancellation(s *subject, b body, d *differences) {
	p := s.payment
	if p == nil {
		*d = append(*d, "it was cancelled, and there is no row")
		return
	}
	b.Kind = b.Operation
	d.payment(b, s, false)
	if b.Reversal != "" || !p.tombstone() { // a tombstone may have got one later
		undoing := ""
		if j := p.reversal(); j != nil {
			undoing = j.id.String()
		}
		d.text("reversal", b.Reversal, undoing)
	}
}

func (r *tillReader) compareRead(s *subject, c call, b body, d *differences) {
	if c.purpose == readingOperation {
		if j := r.byJob[parseID(b.ID)]; j != nil && j.subject() == s {
			r.compareEnd(s, c, b, j, d)
			return
		}
		*d = append(*d, "the follow-up "+b.ID+" was shown, and there is no such row")
		return
	}
	if s.payment == nil {
		*d = append(*d, "a decision was shown, and there is no row")
		return
	}
	d.payment(b, s, true)
	for _, f := range b.FollowUps {
		j := r.byJob[parseID(f.ID)]
		if j == nil || j.of != s {
			*d = append(*d, "the follow-up "+f.ID+" was shown, and there is no such row")
			continue
		}
		r.compareEnd(s, c, f, j, d)
	}
}

// compareEnd holds a follow-up that was shown to its row. What has ended for good must
// have ended so.
func (r *tillReader) compareEnd(s *subject, c call, b body, j *job, d *differences) {
	d.job(b, j)
	state := b.state()
	if !slices.Contains([]string{"PENDING", "SUCCEEDED", "REJECTED", "NOT_APPLIED", "PARKED"}, state) {
		*d = append(*d, "status "+string(b.Status)+" is none of a follow-up's")
	}
	if state != "SUCCEEDED" && state != "REJECTED" {
		return
	}
	d.optional("walletId", b.WalletID, j.walletID)
	d.time("endedAt", b.EndedAt, j.ended)
	r.checked(finalEnd)
	if state != j.state || b.Code != j.code {
		r.violateAt(finalEnd, s, inTills(c.endPlace), "%s was shown as %s %s, and is %s %s", j, state, b.Code, j.state, j.code)
	}
}

func (r *tillReader) compareMismatch(s *subject, c call, d *differences) {
	var stored mark
	switch {
	case s.payment != nil && !s.payment.tombstone():
		stored = s.payment.mark
	case s.job != nil:
		stored = s.job.mark
	case r.lossy:
		s.lost = true // what it was a mismatch of is gone
		return
	default:
		*d = append(*d, "nothing is stored that it could be a mismatch of")
		return
	}
	if c.request >= 0 && s.requests[c.request].mark == stored {
		*d = append(*d, "this is the request that is stored")
	}
}

func parseID(text string) uuid.UUID {
	id, err := uuid.Parse(text)
	if err != nil {
		return uuid.Nil
	}
	return id
}
