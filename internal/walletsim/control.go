package walletsim

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// marshal writes JSON as the book and control do: durations as Go writes them,
// members of maps in order, so that the same thing reads the same every time.
func marshal(v any) ([]byte, error) {
	return json.Marshal(v, json.Deterministic(true), json.WithMarshalers(
		json.MarshalToFunc(func(out *jsontext.Encoder, d time.Duration) error {
			return out.WriteToken(jsontext.String(d.String()))
		}),
	))
}

// unmarshal reads JSON as control does. Unknown members are refused: a rule with
// a misspelt one would match or do something else than its author believes.
func unmarshal(text []byte, v any) error {
	return json.Unmarshal(text, v, json.RejectUnknownMembers(true), json.WithUnmarshalers(
		json.UnmarshalFromFunc(func(in *jsontext.Decoder, d *time.Duration) error {
			var s string
			if err := json.UnmarshalDecode(in, &s); err != nil {
				return err
			}
			parsed, err := time.ParseDuration(s)
			*d = parsed
			return err
		}),
	))
}

// ParseRule reads a rule as POST /control/rules takes it.
func ParseRule(text []byte) (Rule, error) {
	var r Rule
	if err := unmarshal(text, &r); err != nil {
		return Rule{}, fmt.Errorf("rule: %w", err)
	}
	return r, r.validate()
}

// reply is an answer of control.
type reply struct {
	status int
	value  any
}

// complaint is control's answer to what it cannot do.
type complaint struct {
	Error string `json:"error"`
}

func complain(status int, format string, args ...any) reply {
	return reply{status, complaint{fmt.Sprintf(format, args...)}}
}

// answerControl serves one request to control. Control is not booked and no rule
// strikes it; it reports whether the connection can carry another request.
func (s *Sim) answerControl(c *conn, req *http.Request, body []byte) bool {
	r := s.control(req, body)
	text, err := marshal(r.value)
	if err != nil {
		r.status, text = http.StatusInternalServerError, []byte(`{"error":"cannot be written as JSON"}`)
	}
	connection := ""
	if req.Close {
		connection = "Connection: close\r\n"
	}
	head := fmt.Sprintf("%s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s\r\n", statusLine(r.status), len(text)+1, connection)
	_, err = c.net.Write(slices.Concat([]byte(head), text, []byte("\n")))
	return err == nil && !req.Close
}

// routes are control's paths with their methods, for people who ask for /control.
const routes = `GET /control/accounts · GET, PUT /control/accounts/{account} · GET /control/state · GET /control/totals · GET /control/book?since=&reference= · ` +
	`GET, POST, DELETE /control/rules · DELETE /control/rules/{id} · PUT /control/connections · POST /control/connections/close-idle · ` +
	`POST /control/refuse · POST /control/forget-dedupe`

func (s *Sim) control(req *http.Request, body []byte) reply {
	parts := strings.Split(strings.Trim(strings.TrimPrefix(req.URL.EscapedPath(), controlPrefix), "/"), "/")
	argument := ""
	if len(parts) > 1 {
		unescaped, err := url.PathUnescape(parts[1])
		if err != nil || len(parts) > 2 {
			return complain(http.StatusNotFound, "no such path; there are %s", routes)
		}
		argument = unescaped
	}
	// What may hold an argument has a star in its place.
	pattern := req.Method + " " + parts[0]
	if argument != "" && parts[0] != "connections" {
		pattern += "/*"
	} else if argument != "" {
		pattern += "/" + argument
	}
	switch pattern {
	case "GET ":
		return reply{http.StatusOK, map[string]string{"routes": routes}}
	case "GET accounts":
		return reply{http.StatusOK, map[string]any{"accounts": s.Accounts()}}
	case "GET accounts/*":
		return s.controlAccount(argument)
	case "PUT accounts/*":
		return s.controlSetAccount(argument, body)
	case "GET state":
		return reply{http.StatusOK, s.State()}
	case "GET totals":
		return reply{http.StatusOK, s.Totals()}
	case "GET book":
		return s.controlBook(req.URL.Query())
	case "GET rules":
		return reply{http.StatusOK, map[string]any{"rules": s.Rules()}}
	case "POST rules":
		return s.controlAddRule(body)
	case "DELETE rules":
		s.ClearRules()
		return reply{http.StatusOK, map[string]any{"rules": s.Rules()}}
	case "DELETE rules/*":
		id, err := strconv.ParseInt(argument, 10, 64)
		if err != nil || !s.RemoveRule(id) {
			return complain(http.StatusNotFound, "no such rule")
		}
		return reply{http.StatusOK, map[string]any{"rules": s.Rules()}}
	case "PUT connections":
		return s.controlConnections(body)
	case "POST connections/close-idle":
		return reply{http.StatusOK, map[string]int{"closed": s.CloseIdle()}}
	case "POST refuse":
		return s.controlRefuse(body)
	case "POST forget-dedupe":
		return s.controlForget(body)
	}
	return complain(http.StatusNotFound, "no such path or method; there are %s", routes)
}

func (s *Sim) controlAccount(name string) reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	views := s.bank.view(name)
	if len(views) == 0 {
		return complain(http.StatusNotFound, "no such account")
	}
	return reply{http.StatusOK, views[0]}
}

func (s *Sim) controlSetAccount(name string, body []byte) reply {
	var want struct {
		Balances map[string]int64 `json:"balances"`
		Locked   *bool            `json:"locked"`
	}
	if err := unmarshal(body, &want); err != nil {
		return complain(http.StatusBadRequest, `want {"balances": {"EUR": 1000}, "locked": false}: %v`, err)
	}
	if !isAccount(name) {
		return complain(http.StatusBadRequest, "an account is 1 to 64 of A-Z a-z 0-9 . _ : -")
	}
	for currency, balance := range want.Balances {
		if !isCurrency(currency) || balance < 0 || balance > maxAmount {
			return complain(http.StatusBadRequest, "a balance is from 0 to 2^53-1, in a currency of three capital letters")
		}
	}
	for currency, balance := range want.Balances {
		s.SetBalance(name, currency, balance)
	}
	if want.Locked != nil && !s.Lock(name, *want.Locked) {
		return complain(http.StatusNotFound, "no such account: give it a balance first")
	}
	return s.controlAccount(name)
}

// bookView is a page of the book.
type bookView struct {
	Entries []Entry `json:"entries"`
	Last    int64   `json:"last"` // what since is for the next page
	More    bool    `json:"more,omitzero"`
}

// bookPage bounds the lines of one answer: a book of millions is read from its file.
const bookPage = 10_000

func (s *Sim) controlBook(query url.Values) reply {
	var since int64
	if given := query.Get("since"); given != "" {
		var err error
		if since, err = strconv.ParseInt(given, 10, 64); err != nil || since < 0 {
			return complain(http.StatusBadRequest, "since is the seq of the last line that you have")
		}
	}
	entries, last := s.bookFrom(since, query.Get("reference"))
	page := bookView{Entries: []Entry{}, Last: last}
	for e := range entries {
		if len(page.Entries) == bookPage {
			page.Last, page.More = page.Entries[bookPage-1].Seq, true
			break
		}
		page.Entries = append(page.Entries, e)
	}
	return reply{http.StatusOK, page}
}

func (s *Sim) controlAddRule(body []byte) reply {
	rule, err := ParseRule(body)
	if err != nil {
		return complain(http.StatusBadRequest, "%v", err)
	}
	id, err := s.AddRule(rule)
	if err != nil {
		return complain(http.StatusBadRequest, "%v", err)
	}
	return reply{http.StatusCreated, map[string]int64{"id": id}}
}

func (s *Sim) controlConnections(body []byte) reply {
	var want struct {
		IdleClose *time.Duration `json:"idleClose"`
	}
	if err := unmarshal(body, &want); err != nil || want.IdleClose == nil || *want.IdleClose < 0 {
		return complain(http.StatusBadRequest, `want {"idleClose": "50ms"}, "0s" for never`)
	}
	s.SetIdleClose(*want.IdleClose)
	return reply{http.StatusOK, map[string]string{"idleClose": want.IdleClose.String()}}
}

// controlRefuse refuses connections for a while. It ends by itself: who is
// refused could not take it back.
func (s *Sim) controlRefuse(body []byte) reply {
	var want struct {
		For time.Duration `json:"for"`
	}
	if err := unmarshal(body, &want); err != nil || want.For <= 0 {
		return complain(http.StatusBadRequest, `want {"for": "2s"}`)
	}
	s.mu.Lock()
	startable := s.listen != nil
	s.mu.Unlock()
	if !startable {
		return complain(http.StatusConflict, "this wallet was given its listener and cannot open it again")
	}
	s.Refuse()
	s.goOn(func() {
		if s.pass(want.For) {
			s.logEnd(s.Reopen())
		}
	})
	return reply{http.StatusOK, map[string]string{"refusesFor": want.For.String()}}
}

func (s *Sim) controlForget(body []byte) reply {
	var want struct {
		Reference string `json:"reference"`
	}
	if len(body) > 0 {
		if err := unmarshal(body, &want); err != nil {
			return complain(http.StatusBadRequest, `want {"reference": "…"}, or nothing for all`)
		}
	}
	return reply{http.StatusOK, map[string]int{"forgotten": s.ForgetDedupe(want.Reference)}}
}
