package walletsim_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// Every fault must do on the wire what its rule says, to the byte, or the tests
// that use it test something else; and the book must tell what became of the
// money whatever the client saw (traps section 4.2).
func TestEachFaultOnTheWireAndInTheBook(t *testing.T) {
	t.Parallel()
	type seen struct {
		Text    string // {id} stands for the effect's id, {date} for the Date field
		Ended   walletsim.How
		Applied bool
		How     walletsim.Delivered
	}
	const (
		ok     = "HTTP/1.1 201 Created\r\nDate: {date}\r\nContent-Type: application/json\r\n"
		body   = `{"id":"{id}","reference":"ref","status":"APPLIED"}`
		closes = "Connection: close\r\n"
		// What an id such as debit-mhxyz123-000001 has more than its place holder.
		longer = len("debit-mhxyz123-000001") - len("{id}")
	)
	sized := func(n int) string { return fmt.Sprintf("Content-Length: %d\r\n", n) }
	length := sized(len(body) + longer)
	chunk := fmt.Sprintf("%x\r\n%s\r\n", len(body)+longer, body)
	others := `{"id":"debit-of-somebody-else","reference":"00000000-0000-8000-8000-000000000000","status":"APPLIED"}`
	half := body[:(len(body)+longer)/2-longer]
	for name, tt := range map[string]struct {
		fault walletsim.Fault
		want  seen
	}{
		"good behaviour": {walletsim.Fault{}, seen{ok + length + "\r\n" + body, "", true, walletsim.Whole}},

		"FIN after reading":   {walletsim.Fault{Cut: walletsim.Ending{At: walletsim.AfterReading, How: walletsim.FIN}}, seen{"", walletsim.FIN, false, walletsim.None}},
		"RST after reading":   {walletsim.Fault{Cut: walletsim.Ending{At: walletsim.AfterReading, How: walletsim.RST}}, seen{"", walletsim.RST, false, walletsim.None}},
		"FIN after applying":  {walletsim.LoseAnswer(walletsim.FIN), seen{"", walletsim.FIN, true, walletsim.None}},
		"RST after applying":  {walletsim.LoseAnswer(walletsim.RST), seen{"", walletsim.RST, true, walletsim.None}},
		"FIN after the head":  {walletsim.Fault{Cut: walletsim.Ending{At: walletsim.AfterHead, How: walletsim.FIN}}, seen{ok + length + "\r\n", walletsim.FIN, true, walletsim.Cut}},
		"FIN in the body":     {walletsim.Fault{Cut: walletsim.Ending{At: walletsim.MidBody, How: walletsim.FIN}}, seen{ok + length + "\r\n" + half, walletsim.FIN, true, walletsim.Cut}},
		"FIN in a chunk":      {walletsim.Fault{Framing: walletsim.ByChunks, Missing: 1}, seen{ok + "Transfer-Encoding: chunked\r\n\r\n" + chunk, walletsim.FIN, true, walletsim.Cut}},
		"whole but announced": {walletsim.Fault{Missing: 26}, seen{ok + sized(len(body)+longer+26) + "\r\n" + body, walletsim.FIN, true, walletsim.Cut}},

		"chunked":         {walletsim.Fault{Framing: walletsim.ByChunks}, seen{ok + "Transfer-Encoding: chunked\r\n\r\n" + chunk + "0\r\n\r\n", "", true, walletsim.Whole}},
		"close-delimited": {walletsim.Fault{Framing: walletsim.ByClose}, seen{ok + closes + "\r\n" + body, walletsim.FIN, true, walletsim.Whole}},
		"close-delimited and cut": {
			walletsim.Fault{Framing: walletsim.ByClose, Cut: walletsim.Ending{At: walletsim.MidBody, How: walletsim.FIN}},
			seen{ok + closes + "\r\n" + half, walletsim.FIN, true, walletsim.Cut},
		},

		"raw": {walletsim.Fault{Apply: walletsim.Never, Raw: "SSH-2.0-what\r\n"}, seen{"SSH-2.0-what\r\n", walletsim.FIN, false, walletsim.Whole}},
		"503": {walletsim.Down(), seen{"HTTP/1.1 503 Service Unavailable\r\nDate: {date}\r\nContent-Length: 0\r\n\r\n", "", false, walletsim.Whole}},
		"502 of a gateway that has passed it on": {
			walletsim.Gateway(502),
			seen{"HTTP/1.1 502 Bad Gateway\r\nDate: {date}\r\nContent-Type: text/html\r\nContent-Length: 51\r\n\r\n<html><body><h1>502 Bad Gateway</h1></body></html>\n", "", true, walletsim.Whole},
		},
		"000": {walletsim.Fault{Status: new(0), Body: new("")}, seen{"HTTP/1.1 000 Unknown\r\nDate: {date}\r\n\r\n", "", true, walletsim.Whole}},
		"999": {walletsim.Fault{Status: new(999), Body: new("x"), ContentType: "text/plain"}, seen{"HTTP/1.1 999 Unknown\r\nDate: {date}\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx", "", true, walletsim.Whole}},
		"101": {walletsim.Fault{Status: new(101)}, seen{"HTTP/1.1 101 Switching Protocols\r\nDate: {date}\r\n\r\n", "", true, walletsim.Whole}},
		"204": {walletsim.Fault{Status: new(204)}, seen{"HTTP/1.1 204 No Content\r\nDate: {date}\r\n\r\n", "", true, walletsim.Whole}},
		"1xx in front": {
			walletsim.Fault{Interim: []int{100, 103}},
			seen{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\n\r\n" + ok + length + "\r\n" + body, "", true, walletsim.Whole},
		},
		"1xx and then nothing": {
			walletsim.Fault{Status: new(102), Cut: walletsim.Ending{At: walletsim.AfterHead, How: walletsim.FIN}},
			seen{"HTTP/1.1 102 Processing\r\nDate: {date}\r\n\r\n", walletsim.FIN, true, walletsim.Whole},
		},
		"redirect": {
			walletsim.Fault{Apply: walletsim.Never, Status: new(307), Header: map[string]string{"Location": "http://elsewhere.invalid/{reference}"}},
			seen{"HTTP/1.1 307 Temporary Redirect\r\nDate: {date}\r\nLocation: http://elsewhere.invalid/ref\r\nContent-Length: 0\r\n\r\n", "", false, walletsim.Whole},
		},
		"another's reference": {
			walletsim.Fault{Foreign: walletsim.ForeignReference},
			seen{ok + sized(len(others)) + "\r\n" + others, "", true, walletsim.Whole},
		},
		"another's amount": {
			walletsim.Fault{Foreign: walletsim.ForeignAmount},
			seen{ok + sized(len(body)+longer+len(`,"amount":11`)) + "\r\n" + `{"id":"{id}","reference":"ref","status":"APPLIED","amount":11}`, "", true, walletsim.Whole},
		},
		"another's currency": {
			walletsim.Fault{Foreign: walletsim.ForeignCurrency},
			seen{ok + sized(len(body)+longer+len(`,"currency":"XTS"`)) + "\r\n" + `{"id":"{id}","reference":"ref","status":"APPLIED","currency":"XTS"}`, "", true, walletsim.Whole},
		},
		"twice in one write": {
			walletsim.Fault{Duplicate: true},
			seen{ok + length + "\r\n" + body + ok + length + "\r\n" + body, "", true, walletsim.Whole},
		},
		"twice, the second later": {
			walletsim.Fault{Duplicate: true, DuplicateAfter: 200 * time.Microsecond},
			seen{ok + length + "\r\n" + body + ok + length + "\r\n" + body, "", true, walletsim.Whole},
		},
		"oversize": {
			walletsim.Fault{Padding: 70_000},
			seen{ok + sized(len(body)+longer+len(`,"padding":""`)+70_000) + "\r\n" + body[:len(body)-1] + `,"padding":"` + strings.Repeat("x", 70_000) + `"}`, "", true, walletsim.Whole},
		},
		"refused by the wallet": {
			walletsim.Fault{Apply: walletsim.Refuse, Code: "FRAUD"},
			seen{"HTTP/1.1 409 Conflict\r\nDate: {date}\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n" + `{"code":"FRAUD"}`, "", false, walletsim.Whole},
		},
		"a body of the test's own": {
			walletsim.Fault{Status: new(200), Body: new(`{"id":"{id}","reference":"{reference}"}`)},
			seen{"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Type: application/json\r\n" + sized(len(`{"id":"{id}","reference":"ref"}`)+longer) + "\r\n" + `{"id":"{id}","reference":"ref"}`, "", true, walletsim.Whole},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := start(t, walletsim.Config{})
			addRule(t, sim, walletsim.Rule{Name: name, Fault: tt.fault})
			c := dial(t, sim)
			send(t, c, rawPost("/v2/debits", move("ref", rich, 10)))
			answered := wait(t, sim, of(walletsim.Answered, "ref"))
			if tt.want.Ended == "" {
				// It goes on: what a client has not been told to expect is no end either.
				send(t, c, "GET /v2/operations/end HTTP/1.1\r\nHost: wallet\r\nConnection: close\r\n\r\n")
			}
			text, ended := everything(t, c)
			if tt.want.Ended == "" {
				before, _, more := strings.Cut(text, "HTTP/1.1 404 Not Found")
				if !more {
					t.Errorf("the connection did not carry another request: %q", text)
				}
				text, ended = before, ""
			}

			book := sim.Book()
			got := seen{Text: text, Ended: ended, How: answered.Answer.How, Applied: count(book, of(walletsim.Applied, "ref")) == 1}
			for _, e := range book {
				if e.Request == nil || e.Reference != "ref" {
					continue
				}
				if e.Rule != name {
					t.Errorf("the book does not name the rule: %+v", e.Request)
				}
				if e.Effect != nil && e.Effect.ID != "" {
					got.Text = strings.ReplaceAll(got.Text, e.Effect.ID, "{id}")
				}
			}
			got.Text = withoutDate(got.Text)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if answered.Answer.Bytes != len(text) {
				t.Errorf("the book says that %d bytes went out, the client saw %d", answered.Answer.Bytes, len(text))
			}
			wantBalance(t, sim, rich, richBalance-map[bool]int64{true: 10}[tt.want.Applied], 0)
		})
	}
}

func withoutDate(text string) string {
	var b strings.Builder
	for line := range strings.SplitAfterSeq(text, "\r\n") {
		if strings.HasPrefix(line, "Date: ") {
			line = "Date: {date}\r\n"
		}
		b.WriteString(line)
	}
	return b.String()
}

// The oracle is only one if the money stands in the book before the client can
// have seen that its answer is lost.
func TestTheBookIsWrittenBeforeTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]walletsim.Fault{
		"lost":  walletsim.LoseAnswer(walletsim.FIN),
		"reset": walletsim.LoseAnswer(walletsim.RST),
		"cut":   {Cut: walletsim.Ending{At: walletsim.MidBody, How: walletsim.FIN}},
		"whole": {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := start(t, walletsim.Config{})
			addRule(t, sim, walletsim.Rule{Fault: fault})
			for i := range 20 {
				reference := fmt.Sprintf("r%d", i)
				_, err := callerOf(t, sim).try(t.Context(), http.MethodPost, "/v1/debits", "", move(reference, rich, 1))
				if (err == nil) != (name == "whole") {
					t.Errorf("the client saw %v", err)
				}
				// No waiting: the line must be there by now.
				if count(sim.Book(), of(walletsim.Applied, reference)) != 1 {
					t.Fatalf("the client knows that its answer is lost, and the book does not know of the debit")
				}
			}
		})
	}
}

// A lookup that is answered too well hides the case for which reversals exist.
func TestLookupsFailApartFromMutations(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	lookups := walletsim.Match{Operation: walletsim.Lookup}
	for _, step := range []struct {
		name  string
		fault walletsim.Fault
		want  answered
	}{
		{"403", walletsim.Fault{Status: new(403), Body: new("")}, answered{403, ""}},
		{"an ingress' 404", walletsim.Fault{Status: new(404), Body: new("<html>"), ContentType: "text/html"}, answered{404, "<html>"}},
		{"500", walletsim.Fault{Status: new(500), Body: new("")}, answered{500, ""}},
		{
			"PENDING",
			walletsim.Fault{Status: new(200), Body: new(`{"id":"x","reference":"{reference}","kind":"debit","status":"PENDING"}`)},
			answered{200, `{"id":"x","reference":"r-PENDING","kind":"debit","status":"PENDING"}`},
		},
	} {
		sim.ClearRules()
		addRule(t, sim, walletsim.Rule{Match: lookups, Fault: step.fault})
		reference := "r-" + strings.ReplaceAll(step.name, " ", "-")
		if got := c.post(t, "/v2/debits", "", move(reference, rich, 1)); got.Status != http.StatusCreated {
			t.Errorf("%s: the debit got %+v, want 201", step.name, got)
		}
		if diff := cmp.Diff(step.want, c.get(t, "/v2/operations/"+reference)); diff != "" {
			t.Errorf("%s: lookup (-want +got):\n%s", step.name, diff)
		}
	}

	sim.ClearRules()
	addRule(t, sim, walletsim.Rule{Fault: walletsim.Down()}) // says nothing of lookups
	if got := c.get(t, "/v2/operations/r-500"); got.member("status") != "APPLIED" {
		t.Errorf("a lookup got a fault of mutations: %+v", got)
	}
	sim.ClearRules()
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Anything}, Fault: walletsim.Fault{Status: new(500), Body: new("")}})
	if post, get := c.post(t, "/v2/debits", "", move("z", rich, 1)), c.get(t, "/v2/operations/z"); post.Status != 500 || get.Status != 500 {
		t.Errorf("a fault of anything: %+v and %+v, want both 500", post, get)
	}
}

// Budgets are exact, so the delays that test them must be: 799 ms and 801 ms are
// different answers to a till.
func TestDelaysAreExact(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		fault       walletsim.Fault
		appliedAt   time.Duration
		answeredAt  time.Duration
		clientWaits time.Duration
	}{
		"before applying": {walletsim.Fault{DelayBefore: 799 * time.Millisecond}, 799 * time.Millisecond, 799 * time.Millisecond, time.Hour},
		"before answering": {
			walletsim.Slow(801 * time.Millisecond), 0, 801 * time.Millisecond, time.Hour,
		},
		"trickle": {walletsim.Fault{Trickle: time.Second}, 0, 67 * time.Second, time.Hour},
		// Applied although its caller has long left, and after a lookup would have
		// said that there is nothing (traps, finding 4).
		"before applying, client gone": {walletsim.Fault{DelayBefore: 20 * time.Minute}, 20 * time.Minute, 0, 800 * time.Millisecond},
		"late":                         {walletsim.Late(20 * time.Minute), 20 * time.Minute, 0, 800 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sim, client := startPiped(t, walletsim.Config{})
				addRule(t, sim, walletsim.Rule{Fault: tt.fault})
				client.Timeout = tt.clientWaits
				c := caller{sim.URL(), client}
				began := time.Now()
				_, err := c.try(t.Context(), http.MethodPost, "/v2/debits", "", move("ref", rich, 10))
				if took := time.Since(began); tt.answeredAt > 0 && (err != nil || took != tt.answeredAt) {
					t.Errorf("answered after %v (%v), want exactly %v", took, err, tt.answeredAt)
				}
				if tt.answeredAt == 0 {
					if err == nil {
						t.Error("there was an answer, want none")
					}
					if got := c.get(t, "/v2/operations/ref"); got.member("code") != "NOT_FOUND" {
						t.Errorf("lookup before it is applied: %+v, want NOT_FOUND", got)
					}
				}
				e, err := sim.WaitFor(t.Context(), of(walletsim.Applied, "ref"))
				if err != nil {
					t.Fatal(err)
				}
				if at := e.At.Sub(began); at != tt.appliedAt {
					t.Errorf("applied after %v, want exactly %v", at, tt.appliedAt)
				}
				if got := c.get(t, "/v2/operations/ref"); got.member("status") != "APPLIED" {
					t.Errorf("lookup afterwards: %+v, want APPLIED", got)
				}
				wantBalance(t, sim, rich, richBalance-10, 0)
			})
		})
	}
}

// A late original that lands after its retry must not be a second debit, and the
// book must say that it came (traps T6).
func TestALateEffectMeetsTheDuplicateCheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := startPiped(t, walletsim.Config{})
		addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Attempt: 1}, Fault: walletsim.Late(time.Minute)})
		client.Timeout = time.Second
		c := caller{sim.URL(), client}
		if _, err := c.try(t.Context(), http.MethodPost, "/v2/debits", "ref", move("ref", rich, 10)); err == nil {
			t.Fatal("there was an answer, want none")
		}
		if got := c.post(t, "/v2/debits", "ref", move("ref", rich, 10)); got.Status != http.StatusCreated {
			t.Errorf("the second attempt: %+v, want 201", got)
		}
		late, err := sim.WaitFor(t.Context(), of(walletsim.Recognised, "ref"))
		if err != nil || !late.Effect.Late {
			t.Errorf("%+v, %v, want the late one, recognised", late, err)
		}
		if err := sim.WaitQuiet(t.Context()); err != nil {
			t.Error(err)
		}
		wantBalance(t, sim, rich, richBalance-10, 0)
	})
}

// PENDING is neither yes nor no (field report B30): whoever takes it for either
// is wrong half of the time.
func TestPendingEndsEitherWay(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{"": "APPLIED", "FRAUD": "REJECTED"} {
		for _, version := range []string{"v1", "v2"} {
			t.Run(version+" "+want, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					sim, client := startPiped(t, walletsim.Config{})
					addRule(t, sim, walletsim.Rule{Fault: walletsim.Fault{Apply: walletsim.Pending, After: time.Minute, Code: code}})
					c := caller{sim.URL(), client}
					first := c.post(t, "/"+version+"/debits", "ref", move("ref", rich, 10))
					if first.Status != http.StatusAccepted || first.member("status") != "PENDING" || first.member("debitId") != "" {
						t.Errorf("the debit: %+v, want 202 PENDING, and from version 1 no id that reads like a success", first)
					}
					if diff := cmp.Diff(first, c.post(t, "/"+version+"/debits", "ref", move("ref", rich, 10))); diff != "" {
						t.Errorf("the debit again (-first +second):\n%s", diff)
					}
					if got := c.get(t, "/v2/operations/ref"); got.Status != http.StatusOK || got.member("status") != "PENDING" {
						t.Errorf("lookup: %+v, want PENDING", got)
					}
					wantBalance(t, sim, rich, richBalance, 0)

					if err := sim.WaitQuiet(t.Context()); err != nil {
						t.Fatal(err)
					}
					if got := c.get(t, "/v2/operations/ref"); got.member("status") != want || got.member("code") != code {
						t.Errorf("lookup afterwards: %+v, want %s %s", got, want, code)
					}
					wantBalance(t, sim, rich, richBalance-map[string]int64{"": 10}[code], 0)
				})
			})
		}
	}
}

// A hanging wallet must be able to hang longer than anybody waits, without
// holding up its own end.
func TestHangEndsWithTheClientOrTheWallet(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]walletsim.Point{"not applied": walletsim.AfterReading, "applied": walletsim.AfterApplying, "after the head": walletsim.AfterHead} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sim, client := startPiped(t, walletsim.Config{})
				addRule(t, sim, walletsim.Rule{Fault: walletsim.Fault{Cut: walletsim.Ending{At: at, How: walletsim.Hang}}})
				c := caller{sim.URL(), client}
				began := time.Now()
				client.Timeout = time.Hour
				if _, err := c.try(t.Context(), http.MethodPost, "/v2/debits", "", move("ref", rich, 10)); err == nil || time.Since(began) != time.Hour {
					t.Errorf("the client was answered (%v) after %v, want nothing for an hour", err, time.Since(began))
				}
				e, err := sim.WaitFor(t.Context(), of(walletsim.Answered, "ref"))
				if err != nil || (e.Answer.How == walletsim.Whole) || (e.Answer.How == walletsim.Cut) != (at == walletsim.AfterHead) {
					t.Errorf("booked as %+v, %v", e.Answer, err)
				}
				if applied := count(sim.Book(), of(walletsim.Applied, "ref")) == 1; applied != (at != walletsim.AfterReading) {
					t.Errorf("applied: %v", applied)
				}

				// Nobody leaves here: the wallet ends it, and its waiting goroutines with it.
				client.Timeout = 0
				hung := make(chan error, 1)
				go func() {
					_, err := c.try(t.Context(), http.MethodPost, "/v2/debits", "", move("ref2", rich, 10))
					hung <- err
				}()
				if _, err := sim.WaitFor(t.Context(), of(walletsim.Arrived, "ref2")); err != nil {
					t.Fatal(err)
				}
				if err := sim.Close(); err != nil {
					t.Error(err)
				}
				if err := <-hung; err == nil {
					t.Error("there was an answer, want none")
				}
			})
		})
	}
}

// Refused and stale connections decide between "certainly not applied" and "in
// doubt" (contract section 3): the wallet must produce each one for sure.
func TestFaultsOfConnections(t *testing.T) {
	t.Parallel()

	t.Run("reset on accept", func(t *testing.T) {
		t.Parallel()
		sim := start(t, walletsim.Config{})
		addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Count: 1}, Fault: walletsim.Fault{Cut: walletsim.Ending{At: walletsim.Accept, How: walletsim.RST}}})
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(sim.URL(), "http://"))
		if err == nil { // the reset may be there before connecting has returned
			_, err = c.Read(make([]byte, 1))
			_ = c.Close()
		}
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the first connection: %v, want a reset", err)
		}
		if got := callerOf(t, sim).get(t, "/v2/operations/r"); got.Status != http.StatusNotFound {
			t.Errorf("the second connection: %+v", got)
		}
		e := wait(t, sim, func(e walletsim.Entry) bool { return e.Event == walletsim.Disturbed })
		if e.Connection != 1 || e.Rule != "rule-1" {
			t.Errorf("booked as %+v", e.Request)
		}
	})

	t.Run("reset before reading, the second request of a connection, and not control", func(t *testing.T) {
		t.Parallel()
		sim := start(t, walletsim.Config{})
		addRule(t, sim, walletsim.Rule{Match: walletsim.Match{From: 2}, Fault: walletsim.Fault{Cut: walletsim.Ending{At: walletsim.FirstByte, How: walletsim.RST}}})
		c := dial(t, sim)
		r := bufio.NewReader(c)
		send(t, c, rawPost("/v2/debits", move("r1", rich, 1)))
		if got := response(t, r); got.Status != http.StatusCreated {
			t.Errorf("the first: %+v", got)
		}
		send(t, c, "GET /control/totals HTTP/1.1\r\nHost: wallet\r\n\r\n")
		if got := response(t, r); got.Status != http.StatusOK {
			t.Errorf("control: %+v", got)
		}
		send(t, c, rawPost("/v2/debits", move("r2", rich, 1)))
		if _, err := r.ReadByte(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the second: %v, want a reset", err)
		}
		if count(sim.Book(), of(walletsim.Arrived, "r2")) != 0 {
			t.Error("the second was read, want not")
		}
	})

	t.Run("idle close", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			sim, client := startPiped(t, walletsim.Config{IdleClose: 20 * time.Millisecond})
			c := idleConnection(t, sim, client)
			began := time.Now()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) != 20*time.Millisecond {
				t.Errorf("ended with %v after %v, want EOF after exactly 20ms", err, time.Since(began))
			}
			sim.SetIdleClose(0)
			c = idleConnection(t, sim, client)
			<-time.After(time.Hour)
			sim.SetIdleClose(time.Second) // from now on, for connections that are idle as well
			began = time.Now()
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) != time.Second {
				t.Errorf("ended with %v after %v, want EOF after exactly 1s", err, time.Since(began))
			}
		})
	})

	t.Run("close idle connections now, and no others", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			sim, client := startPiped(t, walletsim.Config{})
			addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Reference: "busy"}, Fault: walletsim.Slow(time.Second)})
			idle := idleConnection(t, sim, client)
			busy := make(chan error, 1)
			go func() {
				_, err := caller{sim.URL(), client}.try(t.Context(), http.MethodPost, "/v2/debits", "", move("busy", rich, 1))
				busy <- err
			}()
			synctest.Wait()
			if n := sim.CloseIdle(); n != 1 {
				t.Errorf("closed %d connections, want 1", n)
			}
			if _, err := idle.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the idle one: %v, want EOF", err)
			}
			if err := <-busy; err != nil {
				t.Errorf("the busy one: %v, want its answer", err)
			}
		})
	})

	t.Run("refuse and reopen", func(t *testing.T) {
		t.Parallel()
		sim := start(t, walletsim.Config{})
		kept := dial(t, sim)
		r := bufio.NewReader(kept)
		send(t, kept, rawPost("/v2/debits", move("r1", rich, 1)))
		response(t, r)
		sim.Refuse()
		if _, err := callerOf(t, sim).try(t.Context(), http.MethodGet, "/v2/operations/r1", "", ""); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("connecting: %v, want ECONNREFUSED", err)
		}
		send(t, kept, rawPost("/v2/debits", move("r2", rich, 1)))
		if got := response(t, r); got.Status != http.StatusCreated {
			t.Errorf("the connection that there was: %+v", got)
		}
		before := sim.URL()
		if err := sim.Reopen(); err != nil {
			t.Fatal(err)
		}
		if got := callerOf(t, sim).get(t, "/v2/operations/r2"); got.Status != http.StatusOK || sim.URL() != before {
			t.Errorf("after reopening at %s: %+v", sim.URL(), got)
		}
	})
}

// idleConnection is a connection on which one request was answered.
func idleConnection(t *testing.T, sim *walletsim.Sim, client *http.Client) net.Conn {
	t.Helper()
	c, err := client.Transport.(*http.Transport).DialContext(t.Context(), "tcp", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	send(t, c, "GET /v2/operations/r HTTP/1.1\r\nHost: wallet\r\n\r\n")
	response(t, bufio.NewReader(c))
	synctest.Wait()
	_ = sim
	return c
}

// Callers die and hang up in the middle of anything. The wallet must go on for
// the others, and book as much as came.
func TestTheWalletSurvivesItsClients(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	whole := rawPost("/v2/debits", move("cut", rich, 10))
	for _, n := range []int{1, 20, len(whole) - 1} {
		c := dial(t, sim)
		send(t, c, whole[:n])
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
		e := wait(t, sim, func(e walletsim.Entry) bool { return e.Event == walletsim.Arrived && e.Bytes == int64(n) })
		if !strings.HasSuffix(e.Malformed, "is cut off") {
			t.Errorf("%d bytes are booked as %q", n, e.Malformed)
		}
	}
	c := dial(t, sim)
	send(t, c, "this is not HTTP\r\n\r\n")
	if text, _ := everything(t, c); !strings.HasPrefix(text, "HTTP/1.1 400 Bad Request\r\n") {
		t.Errorf("nonsense got %q, want 400", text)
	}

	// Resets while the answer is being delayed, many at once.
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Account: "slow"}, Fault: walletsim.Slow(20 * time.Millisecond)})
	sim.SetBalance("slow", "EUR", 1000)
	for i := range 30 {
		c := dial(t, sim)
		reference := fmt.Sprintf("gone-%d", i)
		send(t, c, rawPost("/v2/debits", move(reference, "slow", 1)))
		wait(t, sim, of(walletsim.Arrived, reference))
		_ = c.(*net.TCPConn).SetLinger(0)
		_ = c.Close()
	}
	if err := sim.WaitQuiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantBalance(t, sim, "slow", 970, 0)
	wantBalance(t, sim, rich, richBalance, 0)
	if got := callerOf(t, sim).post(t, "/v2/debits", "", move("after", rich, 10)); got.Status != http.StatusCreated {
		t.Errorf("afterwards: %+v", got)
	}
}

// Rules are how a test says what happens when; one that struck too often, too
// late or out of turn would prove something else.
func TestRulesChooseInOrderCountAndDraw(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{Seed: 7})
	c := callerOf(t, sim)
	sim.SetBalance("other", "EUR", 1000)
	status := func(code int) walletsim.Fault {
		return walletsim.Fault{Apply: walletsim.Never, Status: new(code), Body: new("")}
	}
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Reference: "named", Attempt: 2}, Fault: status(501)})
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Reference: "named"}, Fault: walletsim.Fault{}}) // shields it
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Account: "other"}, Fault: status(502)})
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Hold}, Fault: status(503)})
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Version: walletsim.V1}, Fault: status(504)})
	addRule(t, sim, walletsim.Rule{Name: "third", Match: walletsim.Match{From: 3, Count: 1}, Fault: status(505)})

	for i, tt := range []struct {
		path, reference, account string
		want                     int
	}{
		{"/v2/debits", "named", rich, 201},
		{"/v2/debits", "named", rich, 501},
		{"/v2/debits", "named", rich, 409}, // DUPLICATE_REFERENCE: behind the shield again
		{"/v2/debits", "a", "other", 502},
		{"/v2/holds", "b", rich, 503},
		{"/v1/debits", "c", rich, 504},
		{"/v2/debits", "d", rich, 201},
		{"/v2/debits", "e", rich, 201},
		{"/v2/debits", "f", rich, 505}, // the third that got as far as the last rule
		{"/v2/debits", "g", rich, 201},
	} {
		if got := c.post(t, tt.path, "", move(tt.reference, tt.account, 1)); got.Status != tt.want {
			t.Errorf("request %d: %+v, want %d", i, got, tt.want)
		}
	}
	var hits []int64
	for _, r := range sim.Rules() {
		hits = append(hits, r.Hits)
	}
	if diff := cmp.Diff([]int64{1, 2, 1, 1, 1, 1}, hits); diff != "" {
		t.Errorf("hits (-want +got):\n%s", diff)
	}
	if !sim.RemoveRule(3) || sim.RemoveRule(3) {
		t.Error("rule 3 was not there, or still is")
	}

	// A capture is matched by its hold's account, and a lookup by its reference's.
	sim.ClearRules()
	hold := c.post(t, "/v2/holds", "", move("hold", "other", 5)).member("id")
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Account: "other", Operation: walletsim.Anything}, Fault: walletsim.Fault{Status: new(500), Body: new("")}})
	if got := c.post(t, "/v2/holds/"+hold+"/release", "", `{"reference":"rel"}`); got.Status != 500 {
		t.Errorf("release: %+v, want 500", got)
	}
	if got := c.get(t, "/v2/operations/hold"); got.Status != 500 {
		t.Errorf("lookup: %+v, want 500", got)
	}
	if got := c.get(t, "/v2/operations/named"); got.Status != 200 {
		t.Errorf("lookup of another account: %+v, want 200", got)
	}
}

// A run that found a fault must find it again from its seed, although requests
// never come in the same order twice.
func TestDrawsDependOnTheSeedAndNotOnTheOrder(t *testing.T) {
	t.Parallel()
	run := func(seed uint64, backwards bool) map[string]int {
		sim := start(t, walletsim.Config{Seed: seed})
		c := callerOf(t, sim)
		addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Probability: 0.5}, Fault: walletsim.Down()})
		got := map[string]int{}
		const n = 60
		for i := range n {
			if backwards {
				i = n - 1 - i
			}
			reference := fmt.Sprintf("r%d", i)
			got[reference] = c.post(t, "/v2/debits", "", move(reference, rich, 1)).Status
		}
		if hits := sim.Rules()[0].Hits; hits < 15 || hits > 45 {
			t.Errorf("seed %d: %d of %d, want about half", seed, hits, n)
		}
		return got
	}
	first := run(1, false)
	if diff := cmp.Diff(first, run(1, true)); diff != "" {
		t.Errorf("the same seed in another order (-first +second):\n%s", diff)
	}
	if cmp.Equal(first, run(2, false)) {
		t.Error("another seed drew the same")
	}
}

// A rule that cannot do what it says would let a test pass that tests nothing.
func TestRulesThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	sim := build(t, walletsim.Config{})
	cutAt := func(p walletsim.Point) walletsim.Ending { return walletsim.Ending{At: p, How: walletsim.FIN} }
	for member, rule := range map[string]walletsim.Rule{
		"match.version":        {Match: walletsim.Match{Version: "v3"}},
		"match.operation":      {Match: walletsim.Match{Operation: "debits"}},
		"match.probability":    {Match: walletsim.Match{Probability: 1.1}},
		"match.from":           {Match: walletsim.Match{From: -1}},
		"fault.apply":          {Fault: walletsim.Fault{Apply: "SOMETIMES"}},
		"fault.apply is NEVER": {Fault: walletsim.Fault{Apply: walletsim.Never}},
		"fault.apply is LATER": {Match: walletsim.Match{Operation: walletsim.Lookup}, Fault: walletsim.Late(1)},
		"fault.after":          {Fault: walletsim.Fault{After: 1}},
		"fault.code is X":      {Fault: walletsim.Fault{Code: "X"}},
		`fault.code is ""`:     {Fault: walletsim.Fault{Apply: walletsim.Refuse}},
		"fault.cut":            {Fault: walletsim.Fault{Cut: walletsim.Ending{At: walletsim.MidBody}}},
		"fault.cut.at":         {Fault: walletsim.Fault{Cut: cutAt("NOWHERE")}},
		"fault.cut.how":        {Fault: walletsim.Fault{Cut: walletsim.Ending{At: walletsim.MidBody, How: "LOUDLY"}}},
		"fault.cut.at is ACCEPT: is before the request": {Match: walletsim.Match{Reference: "r"}, Fault: walletsim.Fault{Cut: cutAt(walletsim.Accept)}},
		"fault.cut.at is FIRST_BYTE: nothing":           {Fault: walletsim.Fault{Status: new(500), Cut: cutAt(walletsim.FirstByte)}},
		"fault.cut.at is AFTER_READING":                 {Fault: walletsim.Fault{Status: new(500), Cut: cutAt(walletsim.AfterReading)}},
		"fault.status":                                  {Fault: walletsim.Fault{Status: new(1000)}},
		"fault.interim":                                 {Fault: walletsim.Fault{Interim: []int{200}}},
		"fault.header":                                  {Fault: walletsim.Fault{Header: map[string]string{"X": "a\r\nb"}}},
		"fault.duplicateAfter":                          {Fault: walletsim.Fault{DuplicateAfter: 1}},
		"fault.delayAfter":                              {Fault: walletsim.Slow(-1)},
		"fault.raw":                                     {Fault: walletsim.Fault{Raw: "x", Status: new(500)}},
		"fault.missing":                                 {Fault: walletsim.Fault{Framing: walletsim.ByClose, Missing: 1}},
		"fault.framing":                                 {Fault: walletsim.Fault{Framing: "TAPE"}},
		"fault.foreign":                                 {Fault: walletsim.Fault{Foreign: "NAME"}},
	} {
		if _, err := sim.AddRule(rule); err == nil || !strings.Contains(err.Error(), member) {
			t.Errorf("%s: the refusal says %v", member, err)
		}
	}
	if got := len(sim.Rules()); got != 0 {
		t.Errorf("%d rules are in force, want none", got)
	}
}
