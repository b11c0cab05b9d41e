package walletsim

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// answer is what the wallet means to say. members is nil where it is not JSON.
type answer struct {
	status      int
	members     *members
	contentType string
	text        string
	allow       string

	id    string        // of the effect that it tells of
	other func() *other // what somebody else's answer would tell of
}

// members are those of every JSON answer, in the order in which they are sent.
type members struct {
	DebitID          string    `json:"debitId,omitzero"`
	CreditID         string    `json:"creditId,omitzero"`
	ID               string    `json:"id,omitzero"`
	Reference        string    `json:"reference,omitzero"`
	Kind             Operation `json:"kind,omitzero"`
	Status           standing  `json:"status,omitzero"`
	Code             string    `json:"code,omitzero"`
	Message          string    `json:"message,omitzero"`
	ExistingDebitID  string    `json:"existingDebitId,omitzero"`
	ExistingCreditID string    `json:"existingCreditId,omitzero"`
	Amount           int64     `json:"amount,omitzero"`
	Currency         string    `json:"currency,omitzero"`
	Padding          string    `json:"padding,omitzero"`
}

// other is another operation, whose answer a foreign answer is.
type other struct{ id, reference string }

func jsonAnswer(status int, m members) answer {
	return answer{status: status, members: &m, contentType: "application/json"}
}

func plainAnswer(status int, text string) answer {
	return answer{status: status, contentType: "text/plain; charset=utf-8", text: text}
}

func refusalAnswer(r *refusal) answer {
	if r.code == "" {
		a := plainAnswer(r.status, r.message+"\n")
		a.allow = r.allow
		return a
	}
	return jsonAnswer(r.status, members{Code: r.code, Message: r.message})
}

// verdictAnswer is the answer to a mutation that the bank has decided. It is
// called under the lock.
func (s *Sim) verdictAnswer(r *Request, v verdict) answer {
	var a answer
	switch {
	case v.code == duplicateReference:
		m := members{Code: v.code, Message: "the reference was used before"}
		if r.Version == V1 {
			switch v.op.request.Operation {
			case Debit:
				m.ExistingDebitID = s.bank.id(v.op)
			case Credit:
				m.ExistingCreditID = s.bank.id(v.op)
			case Hold, Capture, Release, Lookup, Mutations, Anything: // version 1 has no name for those
			}
		}
		a = jsonAnswer(statusOf(v.code), m)
	case v.code != "":
		a = jsonAnswer(statusOf(v.code), members{Code: v.code})
	default:
		a = s.effectAnswer(r, v.op)
	}
	a.id = s.bank.id(v.op)
	a.other = func() *other { return s.otherThan(v.op) }
	return a
}

// effectAnswer tells of an operation that is applied, or pending. A repeated key
// gets the very same answer, because it is made of the operation alone.
func (s *Sim) effectAnswer(r *Request, op *operation) answer {
	status := http.StatusCreated
	switch {
	case op.standing == pending:
		status = http.StatusAccepted
	case op.request.Operation == Capture, op.request.Operation == Release:
		status = http.StatusOK
	}
	var m members
	if r.Version == V1 {
		if op.standing == pending {
			// Version 1 has no word for this. With an id it would read as applied.
			return jsonAnswer(status, members{Status: pending})
		}
		return jsonAnswer(status, s.namedID(op))
	}
	m = members{ID: s.bank.id(op), Reference: op.request.Reference, Status: op.standing}
	if s.echoAmount {
		m.Amount, m.Currency = op.request.AmountMinor, op.request.Currency
	}
	return jsonAnswer(status, m)
}

// namedID is an operation's id by version 1's name for it.
func (s *Sim) namedID(op *operation) members {
	if op.request.Operation == Credit {
		return members{CreditID: s.bank.id(op)}
	}
	return members{DebitID: s.bank.id(op)}
}

// found answers a lookup, truthfully. It is called under the lock.
func (s *Sim) found(k *call) answer {
	op := s.bank.latest(k.Reference)
	unseen := op == nil || (k.asks != "" && op.request.Operation != k.asks)
	if unseen || (op.standing == rejected && (s.forgetRejections || k.Version == V1)) {
		a := jsonAnswer(http.StatusNotFound, members{Code: notFound, Message: "no operation has this reference"})
		a.other = func() *other { return s.otherThan(nil) }
		return a
	}
	m := members{ID: s.bank.id(op), Kind: op.request.Operation}
	if k.Version == V1 {
		m = s.namedID(op)
	}
	m.Reference, m.Status, m.Code = op.request.Reference, op.standing, op.code
	a := jsonAnswer(http.StatusOK, m)
	a.id = s.bank.id(op)
	a.other = func() *other { return s.otherThan(op) }
	return a
}

// otherThan is the latest operation that is applied and is not op, or one that
// never was. It is called under the lock.
func (s *Sim) otherThan(op *operation) *other {
	for _, o := range slices.Backward(s.bank.operations) {
		if o != op && o.standing == applied {
			return &other{s.bank.id(o), o.request.Reference}
		}
	}
	return &other{"debit-of-somebody-else", "00000000-0000-8000-8000-000000000000"}
}

// sent is what became of an answer.
type sent struct {
	Delivery
	again bool // the connection can carry another request
}

func nothingSent() sent { return sent{Delivery: Delivery{How: None}} }

// message is an answer as bytes.
type message struct {
	status     int
	body       string // as it was meant, without framing
	interim    []byte
	head       []byte
	framed     []byte // the body as it goes out
	announced  int    // bytes that were promised and are not there
	closeAfter bool
}

func (m message) whole() []byte { return slices.Concat(m.interim, m.head, m.framed) }

// send writes the answer, as far and in the way that fault wants, and says what
// went out.
func (s *Sim) send(c *conn, k *call, a answer, fault Fault) sent {
	if fault.Raw != "" {
		n, err := c.net.Write([]byte(fault.Raw))
		s.end(c, FIN)
		return sent{Delivery: delivery(0, fault.Raw, n, len(fault.Raw), err)}
	}
	m := s.compose(k, a, fault)
	whole := m.whole()
	of := len(whole) + m.announced
	cut := func(bytes []byte) sent {
		n, err := 0, error(nil)
		if len(bytes) > 0 {
			n, err = c.net.Write(bytes)
		}
		s.end(c, fault.Cut.How)
		return sent{Delivery: delivery(m.status, m.body, n, of, err)}
	}
	switch fault.Cut.At {
	case AfterApplying:
		return cut(nil)
	case AfterHead:
		return cut(slices.Concat(m.interim, m.head))
	case MidBody:
		return cut(whole[:len(whole)-len(m.framed)+len(m.framed)/2])
	case "", Accept, FirstByte, AfterReading:
	}

	var n int
	var err error
	switch {
	case fault.Trickle > 0:
		n, err = s.trickle(c, m, fault.Trickle)
	case fault.Duplicate && fault.DuplicateAfter == 0:
		n, err = c.net.Write(append(whole, whole...))
	default:
		n, err = c.net.Write(whole)
	}
	if err == nil && fault.Duplicate && fault.DuplicateAfter > 0 && s.pass(fault.DuplicateAfter) {
		var more int
		more, err = c.net.Write(whole)
		n += more
	}
	d := delivery(m.status, m.body, n, of, err)
	again := err == nil && !m.closeAfter && !k.last
	if !again {
		s.end(c, FIN)
	}
	return sent{Delivery: d, again: again}
}

// trickle writes the body one byte at a time.
func (s *Sim) trickle(c *conn, m message, pause time.Duration) (int, error) {
	n, err := c.net.Write(slices.Concat(m.interim, m.head))
	for i := 0; i < len(m.framed) && err == nil; i++ {
		if !s.pass(pause) {
			return n, ErrClosed
		}
		var one int
		one, err = c.net.Write(m.framed[i : i+1])
		n += one
	}
	return n, err
}

func delivery(status int, body string, n, of int, err error) Delivery {
	d := Delivery{Status: status, Body: body, Bytes: n, Of: of, How: Whole}
	switch {
	case n == 0:
		d.How = None
	case n < of:
		d.How = Cut
	}
	if err != nil {
		d.Error = err.Error()
	}
	return d
}

// compose makes the bytes of an answer, with what fault changes in it.
func (s *Sim) compose(k *call, a answer, fault Fault) message {
	fill := strings.NewReplacer("{reference}", k.Reference, "{id}", a.id)

	status := a.status
	if fault.Status != nil {
		status = *fault.Status
	}
	contentType, body := a.contentType, a.text
	if a.members != nil {
		body = s.falsify(k, a, fault)
	}
	if fault.Body != nil {
		body = fill.Replace(*fault.Body)
	}
	if fault.ContentType != "" {
		contentType = fault.ContentType
	}
	// RFC 9112 section 6.3: these have no body, whatever stands in the head. One
	// that is asked for goes out all the same: bytes that belong to nothing.
	bodiless := status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
	if bodiless && fault.Body == nil {
		body = ""
	}

	m := message{status: status, body: body, framed: []byte(body)}
	for _, interim := range fault.Interim {
		m.interim = fmt.Appendf(m.interim, "%s\r\n\r\n", statusLine(interim))
	}

	var head bytes.Buffer
	line := func(name, value string) { fmt.Fprintf(&head, "%s: %s\r\n", name, value) }
	fmt.Fprintf(&head, "%s\r\n", statusLine(status))
	line("Date", time.Now().UTC().Format(http.TimeFormat))
	if body != "" && contentType != "" {
		line("Content-Type", contentType)
	}
	if a.allow != "" {
		line("Allow", a.allow)
	}
	if status == http.StatusUnauthorized {
		line("WWW-Authenticate", "Bearer")
	}
	for _, name := range slices.Sorted(maps.Keys(fault.Header)) {
		line(name, fill.Replace(fault.Header[name]))
	}
	switch fault.Framing {
	case "", ByLength:
		m.announced = fault.Missing
		if !bodiless {
			line("Content-Length", strconv.Itoa(len(body)+fault.Missing))
		}
	case ByChunks:
		line("Transfer-Encoding", "chunked")
		m.framed = nil
		if body != "" {
			m.framed = fmt.Appendf(nil, "%x\r\n%s\r\n", len(body), body)
		}
		const last = "0\r\n\r\n"
		if fault.Missing == 0 {
			m.framed = append(m.framed, last...)
		} else {
			m.announced = len(last)
		}
	case ByClose:
		m.closeAfter = true
	}
	m.closeAfter = m.closeAfter || m.announced > 0
	if k.last || fault.Framing == ByClose {
		line("Connection", "close")
	}
	head.WriteString("\r\n")
	m.head = head.Bytes()
	return m
}

func statusLine(status int) string {
	text := http.StatusText(status)
	if text == "" {
		text = "Unknown"
	}
	return fmt.Sprintf("HTTP/1.1 %03d %s", status, text)
}

// falsify is the JSON of an answer, made somebody else's where fault wants it.
func (s *Sim) falsify(k *call, a answer, fault Fault) string {
	m := *a.members
	switch fault.Foreign {
	case "":
	case ForeignReference:
		s.mu.Lock()
		foreign := other{}
		if a.other != nil {
			foreign = *a.other()
		}
		s.mu.Unlock()
		m.Reference = foreign.reference
		for _, id := range []*string{&m.ID, &m.DebitID, &m.CreditID, &m.ExistingDebitID, &m.ExistingCreditID} {
			if *id != "" {
				*id = foreign.id
			}
		}
	case ForeignAmount:
		m.Amount = k.AmountMinor + 1
	case ForeignCurrency:
		m.Currency = "XTS"
	}
	m.Padding = strings.Repeat("x", fault.Padding)
	text, err := json.Marshal(m)
	if err != nil {
		// Strings and numbers of our own: this cannot fail, and must not pass for an answer.
		return ""
	}
	return string(text)
}
