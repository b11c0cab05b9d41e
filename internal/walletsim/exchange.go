package walletsim

import (
	"crypto/subtle"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// call is a request in the making: what the book keeps of it, and what the
// wallet needs besides.
type call struct {
	*Request
	*Arrival

	asks    Operation // of a version 1 lookup: debits or credits; "" is all
	refused *refusal  // what is wrong with it before any money is looked at
	last    bool      // nothing more is read from the connection behind it

	authorization string // never booked
}

// refusal is an answer to a request that never gets to the money.
type refusal struct {
	status  int
	code    string
	message string
	allow   string // the methods there are, with 405
}

// exchange reads one request and answers it, or does what was asked for instead.
// It reports whether the connection can carry another.
func (s *Sim) exchange(c *conn) (again bool) {
	before := c.consumed()
	req, body, malformed, again := c.readRequest()
	if req != nil && malformed == "" && (req.URL.Path == controlPrefix || strings.HasPrefix(req.URL.Path, controlPrefix+"/")) {
		return s.answerControl(c, req, body) && again
	}

	k := s.understand(req, body)
	k.Malformed, k.Bytes = malformed, c.consumed()-before
	k.last = k.last || !again

	fault := s.arrive(c, k)
	sent := s.carry(c, k, fault)

	s.mu.Lock()
	defer s.mu.Unlock()
	s.append(Entry{Event: Answered, Request: k.Request, Answer: &sent.Delivery})
	s.rest()
	return sent.again
}

// arrive chooses the fault and books the request, in one moment: from here on
// the wallet is busy with it. The line may wait for that of the effect, if nothing
// comes in between.
func (s *Sim) arrive(c *conn, k *call) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	s.exchanges++
	k.Exchange, k.Connection = s.exchanges, c.id

	if k.HoldID != "" {
		if hold := s.bank.hold(k.HoldID); hold != nil {
			k.Account, k.Currency = hold.request.Account, hold.request.Currency
		}
	}
	s.bank.share(k.Request)
	if k.Reference != "" {
		t := s.bank.meet(k.Request)
		if k.Operation == Lookup {
			k.Account = t.account
		} else if k.Account != "" {
			t.account = k.Account
		}
	}
	if k.refused == nil {
		k.refused = s.unauthorised(k)
	}
	if s.book.err != nil {
		// An oracle that cannot write down what it does must not do it.
		k.refused = unbooked()
	}

	rule := s.rules.ofRequest(k.Request)
	if rule == nil {
		rule = ofName(s.names, k.Request)
	}
	var fault Fault
	if rule != nil {
		k.Rule, fault = rule.Name, rule.Fault
	}
	s.append(Entry{Event: Arrived, Request: k.Request, Arrival: k.Arrival})
	if fault.DelayBefore > 0 || fault.cutsAt(AfterReading) || k.Malformed != "" {
		s.book.flush()
	}
	return fault
}

// carry takes a request through its life: each stage is where a fault may strike.
func (s *Sim) carry(c *conn, k *call, fault Fault) sent {
	if !s.pass(fault.DelayBefore) {
		return nothingSent()
	}
	if fault.cutsAt(AfterReading) {
		s.end(c, fault.Cut.How)
		return nothingSent()
	}
	if k.Malformed != "" {
		// There may be nobody left to hear it; a head that is not HTTP gets its 400.
		return s.send(c, k, plainAnswer(http.StatusBadRequest, k.Malformed+"\n"), fault)
	}
	a, said := s.carryOut(k, fault)
	if !said {
		s.end(c, Hang)
		return nothingSent()
	}
	if !s.pass(fault.DelayAfter) {
		return nothingSent()
	}
	return s.send(c, k, a, fault)
}

// carryOut does what the request asks for, as far as fault lets it, and books
// it; said is false where the wallet will not say what came of it.
func (s *Sim) carryOut(k *call, fault Fault) (a answer, said bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		s.book.flush()
		if s.book.err != nil && said {
			a = refusalAnswer(unbooked())
		}
	}()
	// Silence is the rule of what happens later, and of what is cut off anyway;
	// a status that was asked for is sent all the same.
	spoken := fault.Status != nil || fault.Raw != "" || fault.Cut.At != ""
	switch {
	case k.refused != nil:
		return refusalAnswer(k.refused), true
	case k.Operation == Lookup:
		return s.found(k), true
	}

	now := time.Now()
	t := terms{forgetDedupe: fault.ForgetDedupe}
	switch fault.Apply {
	case "":
	case Never:
		return answer{}, true // validate has seen to it that the answer is another
	case Later:
		r := k.Request
		s.later(fault.After, func() {
			s.decide(r, terms{forgetDedupe: fault.ForgetDedupe, late: true}, time.Now())
		})
		return answer{}, spoken
	case Pending:
		t.defer_ = true
	case Refuse:
		t.refuse = fault.Code
	}

	v := s.decide(k.Request, t, now)
	if v.event == Accepted && fault.After > 0 {
		s.later(fault.After, func() {
			settled := s.bank.settle(v.op, fault.Code)
			s.append(Entry{Event: settled.event, Request: k.Request, Effect: settled.effect})
		})
	}
	return s.verdictAnswer(k.Request, v), true
}

// decide lets the bank decide, and books what it did. It is called under the lock.
func (s *Sim) decide(r *Request, t terms, now time.Time) verdict {
	if t.refuse == "" {
		if gift := s.bank.opens(r); gift != nil {
			s.append(Entry{Event: Opened, Request: r, Effect: gift})
		}
	}
	v := s.bank.decide(r, t, now)
	s.append(Entry{Event: v.event, Request: r, Effect: v.effect})
	return v
}

// unauthorised is the refusal of a caller without a token, nil for one that has
// it or where none is needed. It is called under the lock.
func (s *Sim) unauthorised(k *call) *refusal {
	if len(s.tokens) == 0 {
		return nil
	}
	for _, token := range s.tokens {
		if subtle.ConstantTimeCompare([]byte(k.authorization), []byte("Bearer "+token)) == 1 {
			return nil
		}
	}
	return &refusal{status: http.StatusUnauthorized, code: unauthenticated, message: "a known bearer token is needed"}
}

// understand reads what a request asks for. req is nil where no head came.
func (s *Sim) understand(req *http.Request, body []byte) *call {
	k := &call{Request: &Request{}, Arrival: &Arrival{Body: string(body)}}
	if req == nil {
		return k
	}
	k.Method, k.Path = req.Method, req.RequestURI
	k.HeaderNames = slices.Sorted(maps.Keys(req.Header))
	k.authorization = req.Header.Get("Authorization")
	k.last = req.Close
	keys := req.Header["Idempotency-Key"]
	if len(keys) > 0 {
		k.IdempotencyKey = keys[0]
	}

	s.route(k, req)
	switch {
	case k.refused != nil || k.Operation == Lookup:
	case len(keys) > 1:
		k.refused = invalid("Idempotency-Key stands there more than once")
	case len(body) > bodyLimit:
		k.refused = &refusal{status: http.StatusRequestEntityTooLarge, code: bodyTooLarge, message: fmt.Sprintf("at most %d bytes", bodyLimit)}
	case mediaType(req) != "application/json":
		k.refused = &refusal{status: http.StatusUnsupportedMediaType, code: unsupportedMedia, message: "application/json is wanted"}
	default:
		k.refused = k.decode(body)
	}
	return k
}

func mediaType(req *http.Request) string {
	media, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(media))
}

// unbooked is the refusal of a wallet that cannot write down what it does.
func unbooked() *refusal {
	return &refusal{status: http.StatusInternalServerError, message: "the wallet's book cannot be written"}
}

// noSuchPath is not the wallet speaking: a lookup that goes astray must not
// look like evidence, so it gets what any web server would say.
func noSuchPath() *refusal { return &refusal{status: http.StatusNotFound, message: "no such path"} }

// wrongMethod is not the wallet speaking either.
func wrongMethod(allow string) *refusal {
	return &refusal{status: http.StatusMethodNotAllowed, message: "no such method", allow: allow}
}

func invalid(message string) *refusal {
	return &refusal{status: statusOf(invalidRequest), code: invalidRequest, message: message}
}

// route finds the operation, and what the path and the query say of it.
func (s *Sim) route(k *call, req *http.Request) {
	// By the escaped path, so that an id may hold a slash.
	parts := strings.Split(strings.TrimPrefix(req.URL.EscapedPath(), "/"), "/")
	version := Version(parts[0])
	if !slices.Contains(s.versions, version) {
		k.refused = noSuchPath()
		return
	}
	k.Version = version
	parts = parts[1:]
	switch version {
	case V1:
		s.routeV1(k, req, parts)
	case V2:
		s.routeV2(k, req, parts)
	}
}

func (s *Sim) routeV1(k *call, req *http.Request, parts []string) {
	moves := map[string]Operation{"debits": Debit, "credits": Credit}
	if len(parts) != 1 || moves[parts[0]] == "" {
		k.refused = noSuchPath()
		return
	}
	switch req.Method {
	case http.MethodPost:
		k.Operation = moves[parts[0]]
	case http.MethodGet:
		k.Operation, k.asks = Lookup, moves[parts[0]]
		references := req.URL.Query()["reference"]
		if len(references) != 1 || references[0] == "" {
			k.refused = invalid("reference must be given, once")
			return
		}
		k.Reference = references[0]
	default:
		k.refused = wrongMethod("GET, POST")
	}
}

func (s *Sim) routeV2(k *call, req *http.Request, parts []string) {
	moves := map[string]Operation{"debits": Debit, "credits": Credit, "holds": Hold}
	ends := map[string]Operation{"capture": Capture, "release": Release}
	allow := http.MethodPost
	var err error
	switch {
	case len(parts) == 1 && moves[parts[0]] != "":
		k.Operation = moves[parts[0]]
	case len(parts) == 3 && parts[0] == "holds" && parts[1] != "" && ends[parts[2]] != "":
		k.Operation = ends[parts[2]]
		k.HoldID, err = url.PathUnescape(parts[1])
	case len(parts) == 2 && parts[0] == "operations" && parts[1] != "":
		k.Operation, allow = Lookup, http.MethodGet
		k.Reference, err = url.PathUnescape(parts[1])
	default:
		k.refused = noSuchPath()
		return
	}
	switch {
	case err != nil:
		k.refused = invalid("the path is not percent-encoded")
	case req.Method != allow:
		k.refused = wrongMethod(allow)
	}
}

// The bodies of version 1 and 2. A pointer tells what is missing from what is empty.
type (
	moveBody struct {
		Reference *string `json:"reference"`
		Account   *string `json:"account"`
		Amount    *int64  `json:"amount"`
		Currency  *string `json:"currency"`
	}
	captureBody struct {
		Reference *string `json:"reference"`
		Amount    *int64  `json:"amount"`
	}
	releaseBody struct {
		Reference *string `json:"reference"`
	}
)

// decode reads the body, strictly: a caller that sends anything but what the
// contract says is to hear of it here and not from a real wallet. What could be
// read stands in the book even then.
func (k *call) decode(body []byte) *refusal {
	var m moveBody
	var err error
	switch k.Operation {
	case Debit, Credit, Hold:
		err = json.Unmarshal(body, &m, json.RejectUnknownMembers(true))
	case Capture:
		var c captureBody
		err = json.Unmarshal(body, &c, json.RejectUnknownMembers(true))
		m.Reference, m.Amount = c.Reference, c.Amount
	case Release:
		var r releaseBody
		err = json.Unmarshal(body, &r, json.RejectUnknownMembers(true))
		m.Reference = r.Reference
	case Lookup, Mutations, Anything: // a lookup has no body; the others are what rules match, never a call
	}
	take(&k.Reference, m.Reference)
	take(&k.Account, m.Account)
	take(&k.AmountMinor, m.Amount)
	take(&k.Currency, m.Currency)
	if err != nil {
		return invalid("the body is not the JSON that was asked for")
	}

	moves := k.Operation == Debit || k.Operation == Credit || k.Operation == Hold
	switch {
	case !isReference(k.Reference):
		return invalid("reference must be 1 to 128 visible ASCII characters")
	case moves && !isAccount(k.Account):
		return invalid("account must be 1 to 64 of A-Z a-z 0-9 . _ : -")
	case moves && !isCurrency(k.Currency):
		return invalid("currency must be three capital letters")
	case k.Operation != Release && (k.AmountMinor < 1 || k.AmountMinor > maxAmount):
		return invalid("amount must be a whole number from 1 to 2^53-1")
	}
	return nil
}

func take[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

func isReference(s string) bool {
	return len(s) >= 1 && len(s) <= 128 && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

func isCurrency(s string) bool {
	return len(s) == 3 && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
}

func isAccount(s string) bool {
	return len(s) >= 1 && len(s) <= 64 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune("._:-", r)
	}) < 0
}
