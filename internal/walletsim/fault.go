package walletsim

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Rule says which requests, or which connections, the wallet misbehaves on, and
// how. Rules are asked in the order in which they were added, and the first that
// matches wins; behind them all stand the names of accounts (see Names).
//
// In JSON, durations are strings as Go writes them ("250ms").
type Rule struct {
	// ID is given by the wallet, from 1, and never again to another rule.
	ID int64 `json:"id,omitzero"`
	// Name is what the book calls it; "rule-ID" where it is left out.
	Name  string `json:"name,omitzero"`
	Match Match  `json:"match,omitzero"`
	Fault Fault  `json:"fault"`

	// Seen counts what Match fits, and Hits how often the fault was used. A test
	// whose rule has no hits has tested nothing.
	Seen int64 `json:"seen,omitzero"`
	Hits int64 `json:"hits,omitzero"`
}

// Match picks requests. What is left out does not narrow the choice, but for
// Operation.
type Match struct {
	Version Version `json:"version,omitzero"`
	// Operation is one of the operations, Mutations or Anything. Left out it is
	// Mutations: a fault of lookups is asked for by name, so that no test loses
	// its evidence by accident.
	Operation Operation `json:"operation,omitzero"`
	Account   string    `json:"account,omitzero"` // also of a capture's hold, or of what a lookup asks about
	Reference string    `json:"reference,omitzero"`
	// Attempt picks the n-th request with an operation and reference, from 1.
	Attempt int `json:"attempt,omitzero"`
	// From is the first of the matching requests that counts, from 1; Count is
	// how many of them do, 0 for all. {From: 3, Count: 1} is the third.
	From  int64 `json:"from,omitzero"`
	Count int64 `json:"count,omitzero"`
	// Probability is the chance of each, 0 and 1 both for certain. The draw
	// depends on the wallet's seed, the rule, and the request's operation,
	// reference and attempt, and on nothing else: a run can be repeated however
	// its requests fall in between each other.
	Probability float64 `json:"probability,omitzero"`
}

// Mutations are all the operations that move money, Anything is lookups too.
const (
	Mutations Operation = "mutation"
	Anything  Operation = "any"
)

// Fault is how the wallet misbehaves, in the order of a request's life. The zero
// Fault is good behaviour: as a rule it shields what it matches from the rules
// behind it.
type Fault struct {
	// DelayBefore passes between reading and applying, DelayAfter between
	// applying and answering. They pass whether or not the client still waits.
	DelayBefore time.Duration `json:"delayBefore,omitzero"`
	DelayAfter  time.Duration `json:"delayAfter,omitzero"`

	// Apply is what becomes of the money, of a mutation.
	Apply Apply `json:"apply,omitzero"`
	// After is when Later applies, and how long Pending stays so (0: for ever).
	After time.Duration `json:"after,omitzero"`
	// Code is what Refuse refuses with, and what Pending ends in ("": it is
	// applied in the end, if the account allows).
	Code string `json:"code,omitzero"`
	// ForgetDedupe takes the request for a new one whatever was seen before.
	ForgetDedupe bool `json:"forgetDedupe,omitzero"`

	// Cut ends the connection, or leaves it hanging, at a point of the exchange.
	Cut Ending `json:"cut,omitzero"`

	// Raw is sent instead of an answer, byte for byte, and then the connection ends.
	Raw string `json:"raw,omitzero"`
	// Status, Body, ContentType and Header replace the answer's. In Body and in
	// Header {reference} stands for the request's reference and {id} for the
	// effect's id. Any status from 0 to 999 is sent as three digits.
	Status      *int              `json:"status,omitzero"`
	Body        *string           `json:"body,omitzero"`
	ContentType string            `json:"contentType,omitzero"`
	Header      map[string]string `json:"header,omitzero"`
	// Interim are statuses that are sent in front, without a body (100, 102, 103).
	Interim []int `json:"interim,omitzero"`
	// Foreign makes the answer somebody else's.
	Foreign Foreign `json:"foreign,omitzero"`
	// Padding adds a member of so many bytes to a JSON answer.
	Padding int `json:"padding,omitzero"`
	// Framing is how the end of the body is told; ByLength where it is left out.
	Framing Framing `json:"framing,omitzero"`
	// Missing bytes are announced beyond the body's end, and then the connection
	// is closed instead: the body is cut off although all of it is there. By
	// chunks, it is the last chunk that never comes.
	Missing int `json:"missing,omitzero"`
	// Trickle passes before each byte of the body.
	Trickle time.Duration `json:"trickle,omitzero"`
	// Duplicate sends the whole answer a second time, DuplicateAfter the first;
	// 0 is in the same write.
	Duplicate      bool          `json:"duplicate,omitzero"`
	DuplicateAfter time.Duration `json:"duplicateAfter,omitzero"`
}

// Apply says what a fault does with the money.
type Apply string

// What can become of the money. Left out, it is what the wallet would do anyway.
const (
	Never   Apply = "NEVER"   // nothing, and nothing is remembered
	Later   Apply = "LATER"   // nothing now; applied (or refused) After, with nobody waiting
	Pending Apply = "PENDING" // 202 and PENDING, for After; then applied or refused with Code
	Refuse  Apply = "REFUSE"  // refused with Code, by the wallet itself: a lookup says REJECTED
)

// Ending is a place and a way in which an exchange breaks off.
type Ending struct {
	At  Point `json:"at,omitzero"`
	How How   `json:"how,omitzero"`
}

// Point is a point in the life of an exchange.
type Point string

// The points, in their order. The first two are of a connection and not of a
// request, so that a rule which names them can only count and draw; control is
// spared at FirstByte, and cannot be told apart at Accept.
const (
	Accept        Point = "ACCEPT"         // connected, nothing was read
	FirstByte     Point = "FIRST_BYTE"     // a request has begun to arrive
	AfterReading  Point = "AFTER_READING"  // read, not applied
	AfterApplying Point = "AFTER_APPLYING" // applied (or what Apply says), not answered
	AfterHead     Point = "AFTER_HEAD"     // the answer's head was sent
	MidBody       Point = "MID_BODY"       // and half of its body
)

// How says how a connection ends.
type How string

// The endings.
const (
	FIN  How = "FIN"  // closed in order
	RST  How = "RST"  // reset; over a pipe there is no difference
	Hang How = "HANG" // nothing more is sent, until the client leaves
)

// Foreign says in what an answer is not ours.
type Foreign string

// The foreign answers.
const (
	ForeignReference Foreign = "REFERENCE" // another operation's reference and id
	ForeignAmount    Foreign = "AMOUNT"    // one minor unit more than was asked for
	ForeignCurrency  Foreign = "CURRENCY"  // XTS, ISO 4217's code for tests
)

// Framing is how an answer tells where its body ends (RFC 9112 section 6.3).
type Framing string

// The framings.
const (
	ByLength Framing = "LENGTH"  // Content-Length
	ByChunks Framing = "CHUNKED" // Transfer-Encoding
	ByClose  Framing = "CLOSE"   // the end of the connection
)

// validate says what is wrong with r. A rule that cannot do what it says would
// make a test pass without testing anything.
func (r Rule) validate() error {
	m, f := r.Match, r.Fault
	var errs []error
	bad := func(member string, value any, allowed string) {
		errs = append(errs, fmt.Errorf("%s is %v: %s", member, value, allowed))
	}
	oneOf(bad, "match.version", m.Version, "", V1, V2)
	oneOf(bad, "match.operation", m.Operation, "", Debit, Credit, Hold, Capture, Release, Lookup, Mutations, Anything)
	oneOf(bad, "fault.apply", f.Apply, "", Never, Later, Pending, Refuse)
	oneOf(bad, "fault.cut.at", f.Cut.At, "", Accept, FirstByte, AfterReading, AfterApplying, AfterHead, MidBody)
	oneOf(bad, "fault.cut.how", f.Cut.How, "", FIN, RST, Hang)
	oneOf(bad, "fault.foreign", f.Foreign, "", ForeignReference, ForeignAmount, ForeignCurrency)
	oneOf(bad, "fault.framing", f.Framing, "", ByLength, ByChunks, ByClose)
	if (f.Cut.At == "") != (f.Cut.How == "") {
		bad("fault.cut", f.Cut, "needs at and how, both or neither")
	}
	for member, d := range map[string]time.Duration{
		"fault.delayBefore": f.DelayBefore, "fault.delayAfter": f.DelayAfter, "fault.after": f.After,
		"fault.trickle": f.Trickle, "fault.duplicateAfter": f.DuplicateAfter,
	} {
		if d < 0 {
			bad(member, d, "must not be negative")
		}
	}
	for member, n := range map[string]int64{
		"match.attempt": int64(m.Attempt), "match.from": m.From, "match.count": m.Count,
		"fault.padding": int64(f.Padding), "fault.missing": int64(f.Missing),
	} {
		if n < 0 {
			bad(member, n, "must not be negative")
		}
	}
	if m.Probability < 0 || m.Probability > 1 {
		bad("match.probability", m.Probability, "must be from 0 to 1")
	}
	if f.Status != nil && (*f.Status < 0 || *f.Status > 999) {
		bad("fault.status", *f.Status, "must be from 0 to 999")
	}
	for _, status := range f.Interim {
		if status < 100 || status > 199 {
			bad("fault.interim", status, "must be from 100 to 199")
		}
	}
	for name, value := range f.Header {
		if strings.ContainsAny(name+value, "\r\n") {
			bad("fault.header", name, "must not break the line; raw can")
		}
	}
	if f.DuplicateAfter > 0 && !f.Duplicate {
		bad("fault.duplicateAfter", f.DuplicateAfter, "needs duplicate")
	}
	if f.After > 0 && f.Apply != Later && f.Apply != Pending {
		bad("fault.after", f.After, "needs apply LATER or PENDING")
	}
	if f.Code != "" && f.Apply != Refuse && f.Apply != Pending {
		bad("fault.code", f.Code, "needs apply REFUSE or PENDING")
	}
	if f.Code == "" && f.Apply == Refuse {
		bad("fault.code", `""`, "must be given with apply REFUSE")
	}
	if f.Apply != "" && m.Operation == Lookup {
		bad("fault.apply", f.Apply, "a lookup moves no money")
	}
	if f.Apply == Never && f.Status == nil && f.Raw == "" && (f.Cut.At == "" || f.Cut.At == AfterHead || f.Cut.At == MidBody) {
		bad("fault.apply", f.Apply, "needs a status, raw, or a cut before the answer: there is nothing to say")
	}
	if f.ofConnection() && (m.Version != "" || m.Operation != "" || m.Account != "" || m.Reference != "" || m.Attempt != 0) {
		bad("fault.cut.at", f.Cut.At, "is before the request is known: match can only count and draw")
	}
	// What comes before a cut would have to come after it as well, and does not.
	if early := (Fault{Cut: f.Cut, DelayBefore: f.DelayBefore}); f.cutsAt(AfterReading) && !reflect.DeepEqual(f, early) {
		bad("fault.cut.at", f.Cut.At, "only delayBefore comes before it: nothing else would be done")
	}
	if f.ofConnection() && !reflect.DeepEqual(f, Fault{Cut: f.Cut}) {
		bad("fault.cut.at", f.Cut.At, "nothing comes before it: nothing else would be done")
	}
	if f.Raw != "" && (f.Status != nil || f.Body != nil || f.ContentType != "" || f.Header != nil || f.Interim != nil || f.Foreign != "" ||
		f.Padding != 0 || f.Framing != "" || f.Missing != 0 || f.Trickle != 0 || f.Duplicate || f.Cut.At != "") {
		bad("fault.raw", "given", "is the whole answer: nothing else of it can be chosen")
	}
	if f.Framing == ByClose && f.Missing != 0 {
		bad("fault.missing", f.Missing, "framing CLOSE announces nothing that could be missing")
	}
	return errors.Join(errs...)
}

func oneOf[T ~string](bad func(string, any, string), member string, got T, allowed ...T) {
	if !slices.Contains(allowed, got) {
		bad(member, got, fmt.Sprintf("must be one of %v", allowed[1:]))
	}
}

// ofConnection reports whether f strikes before a request is known.
func (f Fault) ofConnection() bool { return f.Cut.At == Accept || f.Cut.At == FirstByte }

// cutsAt reports whether f cuts at p.
func (f Fault) cutsAt(p Point) bool { return f.Cut.At == p }

// fits reports whether m is about r. Counting and drawing come after it.
func (m Match) fits(r *Request) bool {
	switch m.Operation {
	case Anything:
	case "", Mutations:
		if r.Operation == Lookup || r.Operation == "" {
			return false
		}
	case Debit, Credit, Hold, Capture, Release, Lookup:
		if r.Operation != m.Operation {
			return false
		}
	}
	return (m.Version == "" || m.Version == r.Version) &&
		(m.Account == "" || m.Account == r.Account) &&
		(m.Reference == "" || m.Reference == r.Reference) &&
		(m.Attempt == 0 || m.Attempt == r.Attempt)
}

// rules is the list in force. Its owner's mutex guards it.
type rules struct {
	seed   uint64
	list   []*Rule
	lastID int64
}

func (rs *rules) add(r Rule) (int64, error) {
	if err := r.validate(); err != nil {
		return 0, err
	}
	rs.lastID++
	r.ID, r.Seen, r.Hits = rs.lastID, 0, 0
	if r.Name == "" {
		r.Name = fmt.Sprintf("rule-%d", r.ID)
	}
	r.Fault.Header = maps.Clone(r.Fault.Header)
	r.Fault.Interim = slices.Clone(r.Fault.Interim)
	rs.list = append(rs.list, &r)
	return r.ID, nil
}

// ofRequest is the first rule that strikes r; nil if none does.
func (rs *rules) ofRequest(r *Request) *Rule {
	subject := fmt.Sprintf("%s %s %d", r.Operation, r.Reference, r.Attempt)
	if r.Reference == "" {
		subject = fmt.Sprintf("exchange %d", r.Exchange)
	}
	return rs.first(subject, func(rule *Rule) bool { return !rule.Fault.ofConnection() && rule.Match.fits(r) })
}

// ofConnection is the first rule that strikes at p, before a request is known.
// subject names the connection, and which of its requests.
func (rs *rules) ofConnection(p Point, subject string) *Rule {
	return rs.first(subject, func(rule *Rule) bool { return rule.Fault.cutsAt(p) })
}

func (rs *rules) first(subject string, fits func(*Rule) bool) *Rule {
	for _, rule := range rs.list {
		if !fits(rule) {
			continue
		}
		rule.Seen++
		m := rule.Match
		switch {
		case rule.Seen < m.From:
		case m.Count > 0 && rule.Seen >= max(m.From, 1)+m.Count:
		case m.Probability > 0 && rs.draw(rule.ID, subject) >= m.Probability:
		default:
			rule.Hits++
			return rule
		}
	}
	return nil
}

// draw is a number in [0, 1) that the seed, the rule and the subject determine.
func (rs *rules) draw(rule int64, subject string) float64 {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d %s", rule, subject)
	return rand.New(rand.NewPCG(rs.seed, h.Sum64())).Float64() //nolint:gosec // repeatable on purpose
}

// AddRule puts r behind the rules in force and returns its id. The error says
// all that is wrong with r.
func (s *Sim) AddRule(r Rule) (id int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rules.add(r)
}

// Rules are those in force, in order, with their counts.
func (s *Sim) Rules() []Rule {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Rule, 0, len(s.rules.list))
	for _, r := range s.rules.list {
		list = append(list, *r)
	}
	return list
}

// RemoveRule takes a rule away and reports whether it was there. What it has
// begun (a late effect, a hanging answer) it still ends.
func (s *Sim) RemoveRule(id int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.rules.list)
	s.rules.list = slices.DeleteFunc(s.rules.list, func(r *Rule) bool { return r.ID == id })
	return len(s.rules.list) < before
}

// ClearRules takes all rules away.
func (s *Sim) ClearRules() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules.list = nil
}

// The faults that tests ask for most, by name.

// Down answers 503 and applies nothing.
func Down() Fault {
	return Fault{Apply: Never, Status: new(http.StatusServiceUnavailable)}
}

// LoseAnswer applies and then ends the connection without an answer.
func LoseAnswer(how How) Fault { return Fault{Cut: Ending{AfterApplying, how}} }

// Slow applies at once and answers after d.
func Slow(d time.Duration) Fault { return Fault{DelayAfter: d} }

// Late never answers, and applies after d.
func Late(d time.Duration) Fault { return Fault{Apply: Later, After: d} }

// Stall neither applies nor answers, nor ends the connection.
func Stall() Fault { return Fault{Cut: Ending{AfterReading, Hang}} }

// Gateway applies, and something in between answers with status and a page of HTML.
func Gateway(status int) Fault {
	page := fmt.Sprintf("<html><body><h1>%d %s</h1></body></html>\n", status, http.StatusText(status))
	return Fault{Status: &status, Body: &page, ContentType: "text/html"}
}
