package checker

import (
	"crypto/sha256"
	"fmt"
	"math"
	"time"

	"github.com/google/uuid"
)

// moment is a time in nanoseconds since 1970: a run has millions of them.
type moment int64

// never is later than anything that happens.
const never moment = math.MaxInt64

func at(t time.Time) moment {
	if t.IsZero() {
		return 0
	}
	return moment(t.UnixNano())
}

func (m moment) add(d time.Duration) moment {
	if m == never {
		return never
	}
	return m + moment(d)
}

func (m moment) sub(n moment) time.Duration { return time.Duration(m - n) }

func (m moment) time() time.Time { return time.Unix(0, int64(m)).UTC() }

// world is the run, joined: by identity what tills did and what is stored, by reference
// what the wallet saw.
type world struct {
	opts   Options
	report *Report

	subjects   []*subject
	byIdentity map[identity]*subject
	byPayment  map[uuid.UUID]*subject // by the id of a payment, stored or told
	byJob      map[uuid.UUID]*job
	jobs       []*job
	byWire     map[uuid.UUID]*wire // by reference
	byTrace    map[trace]*handled
	words      map[string]string // texts that repeat, each once

	disturbed  spans
	lossy      bool // see Options.Lossy
	bank       bank // what the lines of the book add up to
	workers    workers
	offsets    map[int64]time.Duration // how far the clock of whoever writes a response log is ahead, by file
	traced     bool                    // the responses tell of single requests
	firstEvent moment
	lastEvent  moment
}

func newWorld(opts Options) *world {
	return &world{
		opts: opts, report: newReport(), lossy: opts.Lossy,
		byIdentity: map[identity]*subject{}, byPayment: map[uuid.UUID]*subject{}, byJob: map[uuid.UUID]*job{},
		byWire: map[uuid.UUID]*wire{}, byTrace: map[trace]*handled{}, words: map[string]string{},
		bank: newBank(),
	}
}

// word is s, held once however often it comes.
func (w *world) word(s string) string {
	if known, ok := w.words[s]; ok {
		return known
	}
	w.words[s] = s
	return s
}

// subject is a key: what a till asked for under it, what it was told, and what became
// of it.
type subject struct {
	caller string
	kind   kind
	key    string // "" where no till has named it

	requests []request // that were sent under it, each once
	calls    []call    // in the order in which they were noted
	payment  *payment  // its row, of a debit or hold
	job      *job      // its row, of a follow-up
	wires    []*wire   // under its row's reference, and under those that its requests derive

	money money      // of a payment: what the wallet has moved for it
	lost  bool       // a failover has lost it, or a part of it
	lines []logPlace // what processes have logged about it
}

// money is what the wallet has moved for one payment, in minor units of its currency.
type money struct {
	took, gave int64 // debits and captures; credits
	applied    int32 // debits and holds
	reversals  int32
	excess     bool // it has been found to be wrong already
}

func (s *subject) String() string {
	key := s.key
	if key == "" {
		key = "(of a key that no till has named)"
	}
	return fmt.Sprintf("%s %s of %s", s.kind, key, s.caller)
}

// request is a request that was sent under a key: two of them differ in a value.
type request struct {
	mark      mark
	reference uuid.UUID
	payee     uuid.UUID // the payment that a follow-up names
	of        kind
}

// payment is a row of payments.
type payment struct {
	id, reference     uuid.UUID
	mark              mark
	account, currency string
	amount            int64
	tillReference     string
	metadata          string
	state, code       string
	walletID          string
	created, decided  moment
	jobs              []*job
	calls             []walletCall
}

func (p *payment) approved() bool { return p.state == "APPROVED" }
func (p *payment) declined() bool { return p.state == "DECLINED" }

// tombstone reports whether the payment was cancelled before it was ever seen.
func (p *payment) tombstone() bool { return p.account == "" }

// reversal is the job that undoes p, nil if there is none: of a hold whose release was
// cancelled, that release.
func (p *payment) reversal() *job {
	for _, j := range p.jobs {
		if j.kind == reversal || j.cancelled {
			return j
		}
	}
	return nil
}

// job is a row of operations.
type job struct {
	id, outbound       uuid.UUID
	kind               kind
	mark               mark
	account, currency  string
	amount             int64
	tillReference      string
	metadata           string
	state, code        string
	reverses           uuid.UUID
	targetID, walletID string
	cancelled          bool
	attempts           int
	parkReason         string
	due                bool // something is still to be done, or looked at once more
	created, ended     moment

	owner *subject // the key of a till's; nil of a reversal
	of    *subject // the payment that it follows up; nil of a payout
	calls []walletCall
	notes []NoteRow
	wire  *wire
}

// walletCall is a row of wallet_calls.
type walletCall struct {
	call, outcome, reason string
	fence                 int64
	at                    moment
	took                  time.Duration
	status                int16
	n, attempt            int16
}

func (j *job) String() string {
	if j.owner != nil {
		return j.owner.String()
	}
	return fmt.Sprintf("reversal %s", j.id)
}

// How j ended.
func (j *job) succeeded() bool  { return j.state == "SUCCEEDED" }
func (j *job) parked() bool     { return j.state == "PARKED" }
func (j *job) refused() bool    { return j.state == "REJECTED" }
func (j *job) notApplied() bool { return j.state == "NOT_APPLIED" }
func (j *job) pending() bool    { return j.state == "PENDING" }

// byHand reports whether a person has ended j: then it says what the person knew, and
// the wallet's book need not show it.
func (j *job) byHand() bool {
	return len(j.notes) > 0 && j.notes[len(j.notes)-1].Action != "redrive" && !j.parked() && !j.pending()
}

// subject is whom j is told under: its own key, or the payment's that it reverses.
func (j *job) subject() *subject {
	if j.owner != nil {
		return j.owner
	}
	return j.of
}

// wire is what the wallet saw under one reference.
type wire struct {
	reference uuid.UUID
	owner     *subject // whose request it is
	job       *job     // the row of a follow-up or reversal
	reverses  *subject // the payment that something under this reference gives back
	lines     []seen
}

// seen is a line of the book about a reference, as little of it as is judged by.
type seen struct {
	place    place
	at       moment
	exchange int64
	amount   int64
	account  string
	currency string
	holdID   string
	id       string // of an effect
	code     string // of an effect, or of the answer's body
	status   int16
	event    event
	kind     kind
	lookup   bool
	whole    bool // ANSWERED: all of it went out
	keyed    bool // ARRIVED: the Idempotency-Key is the reference, or there is none to be
}

// event is a book's event.
type event uint8

const (
	otherEvent event = iota
	arrival
	effect
	refusal
	answer
)

// of are the lines that match.
func (w *wire) of(matches func(seen) bool) (found []seen) {
	if w == nil {
		return nil
	}
	for _, l := range w.lines {
		if matches(l) {
			found = append(found, l)
		}
	}
	return found
}

// arrivals are the mutations that were asked for, and effects those that were applied.
func (w *wire) arrivals() []seen {
	return w.of(func(l seen) bool { return l.event == arrival && !l.lookup })
}

func (w *wire) effects() []seen { return w.of(func(l seen) bool { return l.event == effect }) }

// trace is the id of a call's trace.
type trace [16]byte

// handled is a call by its trace: what the till was told, and what the processes' logs
// tell of it.
type handled struct {
	subject        *subject // nil of a call that is about no key
	place          place    // of the line that notes it
	proof          bool     // answered 503 with Retry-After, with nothing in between
	begun, refused int32
}

// logPlace is a line of a process' log.
type logPlace struct {
	place place
	at    moment
}

// spans are stretches of time, in order and apart from each other.
type spans []span

type span struct{ from, to moment }

// overlap reports whether [from, to] meets one of them.
func (s spans) overlap(from, to moment) bool {
	for _, x := range s {
		if from <= x.to && to >= x.from {
			return true
		}
	}
	return false
}

// within is how much of [from, to] they take.
func (s spans) within(from, to moment) (d time.Duration) {
	for _, x := range s {
		if a, b := max(from, x.from), min(to, x.to); b > a {
			d += b.sub(a)
		}
	}
	return d
}

// subjectOf is the subject of a key, made if it is not there.
func (w *world) subjectOf(caller string, k kind, keyHash [sha256.Size]byte) *subject {
	id := identify(caller, k, keyHash)
	s := w.byIdentity[id]
	if s == nil {
		s = &subject{caller: w.word(caller), kind: k}
		w.byIdentity[id] = s
		w.subjects = append(w.subjects, s)
	}
	return s
}

// wireOf is the wire of a reference, made if it is not there.
func (w *world) wireOf(reference uuid.UUID) *wire {
	x := w.byWire[reference]
	if x == nil {
		x = &wire{reference: reference}
		w.byWire[reference] = x
	}
	return x
}

// claim says that a request of s goes by reference to the wallet. It reports whether
// nobody else's does.
func (w *world) claim(s *subject, reference uuid.UUID) bool {
	x := w.wireOf(reference)
	if x.owner == s {
		return true
	}
	if x.owner != nil {
		return false
	}
	x.owner = s
	s.wires = append(s.wires, x)
	return true
}

// payee is the payment whose money is moved under x, other than by a debit or hold of
// its own; nil where there is none.
func (w *world) payee(x *wire) *subject {
	switch {
	case x.job != nil:
		return x.job.of
	case x.reverses != nil:
		return x.reverses
	case x.owner == nil || x.owner.kind.isPayment():
		return nil
	}
	for _, r := range x.owner.requests {
		if r.reference == x.reference {
			return w.byPayment[r.payee]
		}
	}
	return nil
}
