package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// rule is one of the simulated wallet's, as docs/walletsim.md has it.
type rule struct {
	Name  string    `json:"name,omitempty"`
	Match ruleMatch `json:"match"`
	Fault ruleFault `json:"fault"`
	Hits  int64     `json:"hits,omitempty"`
}

type ruleMatch struct {
	Operation   string  `json:"operation,omitempty"`
	Account     string  `json:"account,omitempty"`
	Probability float64 `json:"probability,omitempty"`
}

type ruleFault struct {
	DelayBefore    string            `json:"delayBefore,omitempty"`
	DelayAfter     string            `json:"delayAfter,omitempty"`
	Apply          string            `json:"apply,omitempty"`
	After          string            `json:"after,omitempty"`
	Code           string            `json:"code,omitempty"`
	ForgetDedupe   bool              `json:"forgetDedupe,omitempty"`
	Cut            *ruleCut          `json:"cut,omitempty"`
	Raw            string            `json:"raw,omitempty"`
	Status         *int              `json:"status,omitempty"`
	Body           *string           `json:"body,omitempty"`
	ContentType    string            `json:"contentType,omitempty"`
	Header         map[string]string `json:"header,omitempty"`
	Interim        []int             `json:"interim,omitempty"`
	Foreign        string            `json:"foreign,omitempty"`
	Padding        int               `json:"padding,omitempty"`
	Framing        string            `json:"framing,omitempty"`
	Missing        int               `json:"missing,omitempty"`
	Trickle        string            `json:"trickle,omitempty"`
	Duplicate      bool              `json:"duplicate,omitempty"`
	DuplicateAfter string            `json:"duplicateAfter,omitempty"`
}

type ruleCut struct {
	At  string `json:"at"`
	How string `json:"how"`
}

// walletFault is a way in which the wallet misbehaves. It has an account of its own,
// and tills that want it use that one.
type walletFault struct {
	name string
	does string
	// on is the operation that it strikes, with what chance. Below 1, repetitions by the
	// queue come through in the end.
	on     string
	chance float64
	fault  ruleFault
	// besides is what else the wallet does to this account, "" = nothing; not counted.
	besides rule
	// anywhere: it is about connections and has no account.
	anywhere bool
	runs     runs
}

func (f walletFault) kind() kind { return kind{ofWallet, f.name, f.does, f.runs} }

func (f walletFault) account() string { return "fault-" + f.name }

// often is how often a request with an account for faults is struck: nearly always, but
// so that what the queue owes can be done before it is parked.
const often = 0.7

// The account of the wallet that says no to credits, and so to reversals of debits: they
// are parked.
const (
	rejectsLate    = "rejects-late"
	refusesCredits = "fault-" + rejectsLate
)

// walletFaults is the table of what the wallet does. Nothing in it takes longer than
// the settle window of the run: beyond it, not found counts as proof, by contract.
func walletFaults() []walletFault {
	const mutation, decision = "mutation", "debit"
	var all []walletFault
	add := func(name, does, on string, fault ruleFault) {
		all = append(all, walletFault{name: name, does: does, on: on, chance: often, fault: fault})
	}
	cut := func(at, how string) ruleFault { return ruleFault{Cut: &ruleCut{at, how}} }

	add("rejects", "the wallet says no", decision, ruleFault{Apply: "REFUSE", Code: "LIMIT_EXCEEDED"})
	add(rejectsLate, "the wallet says no to work of the queue", "credit", ruleFault{Apply: "REFUSE", Code: "ACCOUNT_CLOSED"})
	add("slow-before", "half a second before it applies", mutation, ruleFault{DelayBefore: "500ms"})
	add("slow-799", "applied, answered after 799 ms", mutation, ruleFault{DelayAfter: "799ms"})
	add("slow-801", "applied, answered after 801 ms", mutation, ruleFault{DelayAfter: "801ms"})
	add("hang", "read, never applied, never answered", mutation, cut("AFTER_READING", "HANG"))
	add("hang-applied", "applied, never answered", mutation, cut("AFTER_APPLYING", "HANG"))
	add("hang-after-head", "the head of an answer, then nothing", mutation, cut("AFTER_HEAD", "HANG"))
	add("hang-mid-body", "half an answer, then nothing", mutation, cut("MID_BODY", "HANG"))
	for _, how := range []string{"FIN", "RST"} {
		small := strings.ToLower(how)
		add(small+"-read", "read, then "+how, mutation, cut("AFTER_READING", how))
		add(small+"-applied", "applied, then "+how, mutation, cut("AFTER_APPLYING", how))
		add(small+"-after-head", how+" after the head of the answer", mutation, cut("AFTER_HEAD", how))
		add(small+"-mid-body", how+" in the middle of the answer", mutation, cut("MID_BODY", how))
	}
	add("garbage", "applied, answered with another protocol", mutation, ruleFault{Raw: "SSH-2.0-OpenSSH_9.2\r\n"})
	add("half-status-line", "applied, half a status line", mutation, ruleFault{Raw: "HTTP/1.1 20"})
	add("cut-length", "a body that is shorter than its length", mutation, ruleFault{Missing: 7})
	add("cut-chunks", "a body whose last chunk never comes", mutation, ruleFault{Framing: "CHUNKED", Missing: 1})
	add("close-delimited", "a body that ends with its connection", mutation, ruleFault{Framing: "CLOSE"})
	add("trickle", "the answer byte by byte", mutation, ruleFault{Trickle: "4ms"})
	add("too-large", "an answer of more than 64 KiB", mutation, ruleFault{Padding: 70 << 10})
	add("interim", "interim statuses before the answer", mutation, ruleFault{Interim: []int{100, 103}})
	add("duplicate", "the whole answer twice", mutation, ruleFault{Duplicate: true})
	add("duplicate-late", "the answer again, when the next request may be on its way", mutation, ruleFault{Duplicate: true, DuplicateAfter: "20ms"})
	add("foreign", "somebody else's answer", mutation, ruleFault{Foreign: "REFERENCE"})
	add("late", "applied 1.5 s later, nobody hears of it", mutation, ruleFault{Apply: "LATER", After: "1500ms", Cut: &ruleCut{"AFTER_APPLYING", "HANG"}})
	add("late-after-reset", "reset, and applied 3 s later", mutation, ruleFault{Apply: "LATER", After: "3s", Cut: &ruleCut{"AFTER_APPLYING", "RST"}})
	add("pending", "202, applied 2 s later", decision, ruleFault{Apply: "PENDING", After: "2s"})
	add("pending-rejected", "202, rejected 2 s later", decision, ruleFault{Apply: "PENDING", After: "2s", Code: "LIMIT_EXCEEDED"})
	add("forgets", "its memory of references and keys is gone; a decision must not need it", decision, ruleFault{ForgetDedupe: true})
	// What the ledger has lost is asked for again, and then the wallet's memory is all there is.
	all[len(all)-1].runs = onlySafe

	status := func(code int, apply, body string) {
		name, does := fmt.Sprintf("status-%d", code), "answers with that status"
		if apply == "" {
			name, does = name+"-applied", "applied, and answers with that status"
		}
		contentType := "text/html"
		if body == "" {
			contentType = ""
		}
		fault := ruleFault{Apply: apply, Status: &code, Body: &body, ContentType: contentType}
		if code == http.StatusTemporaryRedirect {
			fault.Header = map[string]string{"Location": "/v2/debits"}
		}
		add(name, does, mutation, fault)
	}
	const html = "<html><h1>gateway</h1></html>"
	for _, code := range []int{400, 401, 403, 404, 408, 425, 429, 500, 501, 502, 503, 504} {
		status(code, "NEVER", html)
	}
	for _, code := range []int{200, 204, 307, 403, 500, 502, 503, 504} {
		body := html
		if code == 204 || code == 200 {
			body = ""
		}
		status(code, "", body)
	}

	// Lookups. The mutation's answer is lost, so that they are asked for.
	lookup := func(name, does string, fault ruleFault) {
		add(name, does, "lookup", fault)
		f := &all[len(all)-1]
		f.besides = rule{Match: ruleMatch{Operation: decision, Account: f.account(), Probability: often}, Fault: cut("AFTER_APPLYING", "RST")}
	}
	answered := func(code int, body, contentType string) ruleFault {
		return ruleFault{Status: &code, Body: &body, ContentType: contentType}
	}
	lookup("lookup-hangs", "a lookup without an answer", cut("AFTER_READING", "HANG"))
	lookup("lookup-reset", "a lookup that is reset", cut("AFTER_READING", "RST"))
	lookup("lookup-503", "a lookup that a gateway answers", answered(503, html, "text/html"))
	lookup("lookup-404-html", "a lookup that an ingress does not find", answered(404, html, "text/html"))
	lookup("lookup-403", "a lookup that is refused", answered(403, `{"code":"FORBIDDEN"}`, "application/json"))
	lookup("lookup-pending", "a lookup that says PENDING", answered(200, `{"id":"{id}","reference":"{reference}","status":"PENDING"}`, "application/json"))
	lookup("lookup-foreign", "a lookup that is answered for another reference", ruleFault{Foreign: "REFERENCE"})
	lookup("lookup-cut", "a lookup whose answer is cut off", cut("MID_BODY", "FIN"))
	lookup("lookup-slow", "a lookup that takes longer than its limit", ruleFault{DelayAfter: "350ms"})

	// Connections, whoever's they are. Control is spared at the first byte only.
	for _, how := range []string{"FIN", "RST", "HANG"} {
		small := strings.ToLower(how)
		all = append(all,
			walletFault{name: "accept-" + small, does: "connected, then " + how, chance: 0.02, fault: cut("ACCEPT", how), anywhere: true},
			walletFault{name: "first-byte-" + small, does: "the first byte of a request, then " + how, chance: 0.004, fault: cut("FIRST_BYTE", how), anywhere: true})
	}
	return all
}

func walletControlKinds() []kind {
	return []kind{
		{group: ofWallet, name: "closes-idle", does: "kept connections are closed under those who are about to use them"},
		{group: ofWallet, name: "refuses", does: "nobody listens for a while"},
		{group: ofWallet, name: "wallet-stopped", does: "the wallet's process stands still with requests in its sockets"},
	}
}

// control speaks to the wallet's control interface.
type control struct {
	base string
	http *http.Client
}

func newControl(base string) *control {
	return &control{base: base, http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}}
}

// call does one call to control, again if a fault of connections met it: all of these
// may be repeated.
func (c *control) call(ctx context.Context, method, path string, body, into any) error {
	const attempts = 12
	var text []byte
	if body != nil {
		var err error
		if text, err = json.Marshal(body); err != nil {
			return err
		}
	}
	var last error
	for range attempts {
		if last = c.once(ctx, method, path, text, into); last == nil || ctx.Err() != nil {
			return last
		}
		pause(ctx, 150*time.Millisecond)
	}
	return fmt.Errorf("the wallet's control, %s %s: %w", method, path, last)
}

func (c *control) once(ctx context.Context, method, path string, text []byte, into any) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.base+"/control/"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return err
	case resp.StatusCode >= http.StatusBadRequest:
		return fmt.Errorf("%d %s", resp.StatusCode, bytes.TrimSpace(got))
	case into != nil:
		return json.Unmarshal(got, into)
	}
	return nil
}

// rules puts the table in force: what strikes connections last, because control would
// not come through to add the rest.
func (c *control) rules(ctx context.Context, lossy bool) error {
	for _, connections := range []bool{false, true} {
		for _, f := range walletFaults() {
			if f.anywhere != connections || !f.kind().in(lossy) {
				continue
			}
			if f.besides.Match.Account != "" {
				if err := c.call(ctx, http.MethodPost, "rules", f.besides, nil); err != nil {
					return fmt.Errorf("%s: %w", f.name, err)
				}
			}
			r := rule{Name: f.name, Match: ruleMatch{Operation: f.on, Probability: f.chance}, Fault: f.fault}
			if !f.anywhere {
				r.Match.Account = f.account()
			}
			if err := c.call(ctx, http.MethodPost, "rules", r, nil); err != nil {
				return fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	return nil
}

// tally reads how often each rule has struck.
func (c *control) tally(ctx context.Context, count *counters) error {
	var got struct {
		Rules []rule `json:"rules"`
	}
	if err := c.call(ctx, http.MethodGet, "rules", nil, &got); err != nil {
		return err
	}
	for _, r := range got.Rules {
		if !strings.HasPrefix(r.Name, "rule-") { // besides
			count.set(r.Name, r.Hits)
		}
	}
	return nil
}

// clear takes all faults away.
func (c *control) clear(ctx context.Context) error {
	if err := c.call(ctx, http.MethodDelete, "rules", nil, nil); err != nil {
		return err
	}
	return c.call(ctx, http.MethodPut, "connections", map[string]string{"idleClose": "0s"}, nil)
}

// busy is how many requests and late effects are still to come.
func (c *control) busy(ctx context.Context) (int, error) {
	var state struct {
		Busy int `json:"busy"`
	}
	err := c.call(ctx, http.MethodGet, "state", nil, &state)
	return state.Busy, err
}
