package wallet

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// ambiguous, unavailable: the outcomes without an answer.
func ambiguous(reason payment.Reason) payment.Outcome {
	return payment.Outcome{Class: payment.Ambiguous, Reason: reason}
}

func unavailable(reason payment.Reason) payment.Outcome {
	return payment.Outcome{Class: payment.Unavailable, Reason: reason}
}

// A customer would be charged six times for one purchase: Go's own client repeats
// a POST with an Idempotency-Key on every idle connection that has died, after
// the wallet has booked it (traps C1, scenario S1; C2 for the calls that need no
// body; C14: FIN and RST alike).
func TestOneRequestOnTheWireWhenIdleConnectionsDieAfterBooking(t *testing.T) {
	t.Parallel()
	endings := map[string]func(*wallettest.Conn){
		"FIN": func(*wallettest.Conn) {},
		"RST": (*wallettest.Conn).Reset,
	}
	for _, v := range []Version{V1, V2} {
		for _, op := range []payment.Operation{payment.Debit, payment.Hold, payment.Credit, payment.Capture, payment.Release} {
			if v == V1 && op != payment.Debit && op != payment.Credit {
				continue
			}
			for ending, end := range endings {
				t.Run(fmt.Sprintf("%s/%s/%s", v, op, ending), func(t *testing.T) {
					t.Parallel()
					w := wallettest.New(t, func(c *wallettest.Conn) {
						c.Read() // booked
						end(c)
					})
					client := newClient(t, w, speaks(v))
					warm(t, client, 5)
					in := instruction(op, "once")

					if diff := cmp.Diff(ambiguous(payment.ReasonConnectionLost), send(t, client, in)); diff != "" {
						t.Errorf("the call (-want +got):\n%s", diff)
					}
					if got := w.Count(http.MethodPost, in.Reference.String()); got != 1 {
						t.Errorf("%d POSTs on the wire, want 1", got)
					}
					client.trustIdle()
					evidence := lookup(t, client, in)
					if evidence.Finding != payment.NoEvidence || evidence.Reason != payment.ReasonConnectionLost {
						t.Errorf("the lookup found %+v, want no evidence, connection_lost", evidence)
					}
					if got := w.Count(http.MethodGet, in.Reference.String()); got != 1 {
						t.Errorf("%d lookups on the wire, want 1", got)
					}
					if requests, connections := len(w.Requests()), w.Connections(); requests != 2 || connections != 5 {
						t.Errorf("%d requests in all over %d connections, want 2 over the 5 that were idle", requests, connections)
					}
				})
			}
		}
	}
}

// A wallet that closes its idle connections is healthy; were the call that meets
// a closed one lost, tills would see declines whenever traffic is thin
// (contract section 3, trap C12).
func TestStalePooledConnectionIsNotADecline(t *testing.T) {
	t.Parallel()
	const calls = 500
	w := wallettest.New(t, func(c *wallettest.Conn) {
		if r, ok := c.Read(); ok {
			c.Say(wallettest.Applied(r)) // keep-alive promised, and closed at once
		}
	})
	client := newClient(t, w)
	for i := range calls {
		in := instruction(payment.Debit, fmt.Sprint("debit ", i))
		if got := send(t, client, in); got.Class != payment.Success {
			t.Fatalf("call %d: %+v, want success", i, got)
		}
		waitForEnd(t, client)
	}
	if got := len(w.Requests()); got != calls {
		t.Errorf("%d requests for %d calls", got, calls)
	}
}

// waitForEnd waits until the wallet's end has arrived on the idle connection, as
// it has in a pool that sees little traffic.
func waitForEnd(tb testing.TB, c *Client) {
	tb.Helper()
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	for deadline := time.Now().Add(callLimit); len(c.pool.idle) > 0 && c.pool.idle[0].quiet(); {
		if time.Now().After(deadline) {
			tb.Fatal("the wallet's end did not arrive")
		}
	}
}

// The same in the very moment of closing, where looking first finds nothing: the
// wallet closes a connection after 40 ms of silence and calls come every 40 ms
// (experiment E11 behind trap C12: a third of all calls lost).
func TestIdleCloseRaceIsNotADecline(t *testing.T) {
	t.Parallel()
	const keepAlive = 40 * time.Millisecond
	for attempt := range 3 {
		var longest atomic.Int64 // for how long a silent connection was really kept
		w := wallettest.New(t, func(c *wallettest.Conn) {
			answered := time.Now()
			for {
				if err := c.SetReadDeadline(answered.Add(keepAlive)); err != nil {
					return
				}
				r, ok := c.Read()
				if !ok {
					longest.Store(max(longest.Load(), int64(time.Since(answered))))
					return
				}
				c.Say(wallettest.Applied(r))
				answered = time.Now()
			}
		})
		client := newClient(t, w)
		lost := 0
		tick := time.NewTicker(keepAlive)
		for i := range 60 {
			if got := send(t, client, instruction(payment.Debit, fmt.Sprint("debit ", i))); got.Class != payment.Success {
				lost++
			}
			<-tick.C
		}
		tick.Stop()
		// On a machine that stalls for longer than the keep-alive, the wallet has none
		// that could be learned, and the run shows nothing.
		if stalled := time.Duration(longest.Load()); stalled > 2*keepAlive*8/10 {
			t.Logf("attempt %d: the wallet kept a connection for %v", attempt+1, stalled)
			continue
		}
		if lost != 0 {
			t.Errorf("%d of 60 calls were lost", lost)
		}
		return
	}
	t.Skip("this machine is too busy to keep a wallet's time")
}

// Connections are dear (TLS), so a healthy v2 wallet sees few of them; a v1
// wallet's answer does not say whom it is about, so there each connection carries
// one request (contract section 3).
func TestConnectionsAreReusedOnlyWhereAnswersNameTheirRequest(t *testing.T) {
	t.Parallel()
	const calls = 200
	for _, v := range []Version{V1, V2} {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
			client := newClient(t, w, speaks(v))
			for i := range calls {
				if got := send(t, client, instruction(payment.Debit, fmt.Sprint(i))); got.Class != payment.Success {
					t.Fatalf("call %d: %+v", i, got)
				}
			}
			// A few are spent on finding out for how long the wallet keeps them open.
			if got := w.Connections(); v == V1 && got != calls || v == V2 && got > calls/10 {
				t.Errorf("%d connections for %d calls", got, calls)
			}
			asksToClose := w.Requests()[0].Header.Get("Connection") == "close"
			if asksToClose != (v == V1) {
				t.Errorf("Connection: close sent: %v", asksToClose)
			}
		})
	}
}

// Somebody else's answer must never approve a payment, nor decline it: an HTTP/1.1
// answer carries no id, and a wallet or proxy that answers twice would have its
// second answer taken for the next call's (trap C21, experiment E18b: half of
// 20,000 with Go's client). The late copy here comes at any moment around the next request.
func TestLateDuplicateAnswerIsNeverTakenForOurs(t *testing.T) {
	t.Parallel()
	const calls = 1500
	for name, first := range map[string]func(wallettest.Request) string{
		"of a success": wallettest.Applied,
		// Its copy names nobody: it could decline the next customer's paid debit.
		"of a decline": func(wallettest.Request) string {
			return wallettest.Answer(http.StatusConflict, `{"code":"INSUFFICIENT_FUNDS"}`)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			// What the wallet did, by reference: the truth that outcomes are held against.
			var declined sync.Map
			w := wallettest.New(t, func(c *wallettest.Conn) {
				for {
					r, ok := c.Read()
					if !ok {
						return
					}
					if r.Nth%2 == 0 {
						c.Say(wallettest.Applied(r))
						continue
					}
					answer := first(r)
					if strings.Contains(answer, "INSUFFICIENT_FUNDS") {
						declined.Store(r.Reference, true)
					}
					c.Say(answer)
					c.Wait(time.Duration(c.ID%20) * 10 * time.Microsecond)
					c.Say(answer)
				}
			})
			client := newClient(t, w, patient)
			tally := map[payment.Class]int{}
			for i := range calls {
				in := instruction(payment.Debit, fmt.Sprint(i))
				client.trustIdle()
				got := send(t, client, in)
				tally[got.Class]++
				_, wasDeclined := declined.Load(in.Reference.String())
				switch got.Class {
				case payment.Success:
					if wasDeclined {
						t.Fatalf("call %d was declined by the wallet, and is told as %+v", i, got)
					}
				case payment.Rejected:
					if !wasDeclined {
						t.Fatalf("call %d was not declined by the wallet, and is told as %+v", i, got)
					}
				case payment.Ambiguous:
				case payment.Unavailable:
					t.Fatalf("call %d: %+v", i, got)
				}
				if n := w.Count(http.MethodPost, in.Reference.String()); n > 1 {
					t.Fatalf("call %d: on the wire %d times", i, n)
				}
			}
			t.Logf("%d successes, %d declines, %d in doubt, over %d connections", tally[payment.Success],
				tally[payment.Rejected], tally[payment.Ambiguous], w.Connections())
		})
	}
}

// A redirect would send the payment, or a GET in its place whose 200 looks like
// an approval, to a host that is not the wallet (trap C5, scenario S4).
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			t.Parallel()
			other := wallettest.New(t, wallettest.Serve(wallettest.Applied))
			w := wallettest.New(t, wallettest.Serve(func(wallettest.Request) string {
				return fmt.Sprintf("HTTP/1.1 %d Elsewhere\r\nLocation: %s/v2/debits\r\nContent-Length: 0\r\n\r\n", status, other.URL())
			}))
			client := newClient(t, w)
			in := instruction(payment.Debit, "stay")
			want := payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonStatus3xx, Status: status}
			if diff := cmp.Diff(want, send(t, client, in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := lookup(t, client, in); got.Finding != payment.NoEvidence || got.Reason != payment.ReasonStatus3xx {
				t.Errorf("lookup: %+v", got)
			}
			if n := len(other.Requests()); n != 0 {
				t.Errorf("the other host got %d requests", n)
			}
		})
	}
}

// Over HTTP/2 a wallet that books and resets the stream was sent one debit 182
// times (trap C4): it must never be spoken, however much the wallet would like to.
func TestHTTP2IsNeverSpoken(t *testing.T) {
	t.Parallel()
	offered := make(chan []string, 1)
	spoken := make(chan string, 1)
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		offered <- hello.SupportedProtos
		return nil, nil
	}
	w := wallettest.NewTLS(t, cfg, func(c *wallettest.Conn) {
		r, ok := c.Read()
		if !ok {
			return
		}
		spoken <- c.Conn.(*tls.Conn).ConnectionState().NegotiatedProtocol
		c.Say(wallettest.Applied(r))
	})
	client := newClient(t, w)
	if got := send(t, client, instruction(payment.Debit, "h1")); got.Class != payment.Success {
		t.Fatalf("%+v", got)
	}
	if diff := cmp.Diff([]string{"http/1.1"}, <-offered); diff != "" {
		t.Errorf("offered (-want +got):\n%s", diff)
	}
	if got := <-spoken; got != "http/1.1" {
		t.Errorf("spoke %q", got)
	}
	if raw := w.Requests()[0].Raw; !bytes.HasPrefix(raw, []byte("POST /v2/debits HTTP/1.1\r\n")) {
		t.Errorf("on the wire: %q", raw)
	}
}

// A proxy from the environment would see every account, and its own 502 would
// read as "not applied" (trap C27).
func TestProxyEnvironmentIsIgnored(t *testing.T) {
	proxy := wallettest.New(t, wallettest.Serve(wallettest.Applied))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		t.Setenv(name, proxy.URL())
	}
	t.Setenv("NO_PROXY", "")
	w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
	client := newClient(t, w, func(cfg *Config) {
		// Go never proxies what looks like loopback; this name does not.
		cfg.BaseURL = "http://wallet.example:80"
		cfg.DialContext = dialTo(w.Addr(), "wallet.example:80")
	})
	if got := send(t, client, instruction(payment.Debit, "direct")); got.Class != payment.Success {
		t.Errorf("%+v", got)
	}
	if n := proxy.Connections(); n != 0 {
		t.Errorf("the proxy got %d connections", n)
	}
	if n := len(w.Requests()); n != 1 {
		t.Errorf("the wallet got %d requests", n)
	}
}

// What is on the wire is ours to the byte: no Expect (C23), no Accept-Encoding
// (C24), no Cookie although the wallet sets one (C28), no header by which a proxy
// is told to retry (C33), a body for every POST (C2), the key on mutations only.
func TestRequestsOnTheWire(t *testing.T) {
	t.Parallel()
	const token = "s3cret"
	head := func(version Version, line string, more ...string) string {
		lines := append([]string{
			line + " HTTP/1.1", "Host: HOST", "User-Agent: safeledger/1.2.3", "Accept: application/json", "Authorization: Bearer " + token,
		}, more...)
		if version == V1 {
			lines = append(lines, "Connection: close")
		}
		return strings.Join(lines, "\r\n") + "\r\n\r\n"
	}
	posted := func(version Version, path, key, body string) string {
		var more []string
		if key != "" {
			more = append(more, "Idempotency-Key: "+key)
		}
		more = append(more, "Content-Type: application/json", fmt.Sprintf("Content-Length: %d", len(body)))
		return head(version, "POST /base/a%20b"+path, more...) + body
	}
	ref := reference("wire").String()
	movement := `{"reference":"` + ref + `","account":"card-17","amount":1250,"currency":"EUR"}`
	for _, tt := range []struct {
		version Version
		op      payment.Operation
		call    string
		lookup  string
	}{
		{V1, payment.Debit, posted(V1, "/v1/debits", "", movement), head(V1, "GET /base/a%20b/v1/debits?reference="+ref)},
		{V1, payment.Credit, posted(V1, "/v1/credits", "", movement), head(V1, "GET /base/a%20b/v1/credits?reference="+ref)},
		{V2, payment.Debit, posted(V2, "/v2/debits", ref, movement), head(V2, "GET /base/a%20b/v2/operations/"+ref)},
		{V2, payment.Credit, posted(V2, "/v2/credits", ref, movement), head(V2, "GET /base/a%20b/v2/operations/"+ref)},
		{V2, payment.Hold, posted(V2, "/v2/holds", ref, movement), head(V2, "GET /base/a%20b/v2/operations/"+ref)},
		{
			V2, payment.Capture, posted(V2, "/v2/holds/h%2F1%3F%20%23%25/capture", ref, `{"reference":"`+ref+`","amount":1250}`),
			head(V2, "GET /base/a%20b/v2/operations/"+ref),
		},
		{
			V2, payment.Release, posted(V2, "/v2/holds/h%2F1%3F%20%23%25/release", ref, `{"reference":"`+ref+`"}`),
			head(V2, "GET /base/a%20b/v2/operations/"+ref),
		},
	} {
		t.Run(fmt.Sprintf("%s/%s", tt.version, tt.op), func(t *testing.T) {
			t.Parallel()
			w := wallettest.New(t, wallettest.Serve(func(r wallettest.Request) string {
				return strings.Replace(wallettest.Applied(r), "\r\n", "\r\nSet-Cookie: node=1\r\n", 1)
			}))
			client := newClient(t, w, speaks(tt.version), func(cfg *Config) {
				cfg.BaseURL += "/base/a%20b/"
				cfg.UserAgent = "safeledger/1.2.3"
				parsed, err := ParseToken([]byte(token + "\n"))
				if err != nil {
					t.Fatal(err)
				}
				cfg.Token = func() Token { return parsed }
			})
			in := instruction(tt.op, "wire")
			if in.HoldID != "" {
				in.HoldID = "h/1? #%"
			}
			if got := send(t, client, in); got.Class != payment.Success {
				t.Errorf("%+v", got)
			}
			if got := lookup(t, client, in); got.Finding != payment.FoundApplied {
				t.Errorf("%+v", got)
			}
			var got []string
			for _, r := range w.Requests() {
				got = append(got, string(r.Raw))
			}
			want := []string{strings.Replace(tt.call, "HOST", w.Addr(), 1), strings.Replace(tt.lookup, "HOST", w.Addr(), 1)}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("on the wire (-want +got):\n%s", diff)
			}
		})
	}
}

// The till's customer waits while a wallet answers early, in pieces, or with
// interim answers: what it said must be heard, and what it did not finish must
// not pass for an answer. Each row is one exchange over a real socket.
func TestAnswersOffTheWire(t *testing.T) {
	t.Parallel()
	ref := reference("answer").String()
	body := wallettest.AppliedBody(ref)
	success := payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: "effect-1", Status: 201}
	doubt := func(status int, reason payment.Reason) payment.Outcome {
		return payment.Outcome{Class: payment.Ambiguous, Reason: reason, Status: status}
	}
	// say reads the request, says raw and closes.
	say := func(raw string) wallettest.Script {
		return func(c *wallettest.Conn) {
			c.Read()
			c.Say(raw)
		}
	}
	// stall says raw and then nothing more, without closing.
	stall := func(raw string) wallettest.Script {
		return func(c *wallettest.Conn) {
			c.Read()
			c.Say(raw)
			c.Hang()
		}
	}
	chunked := func(parts ...string) string {
		b := "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"
		for _, p := range parts {
			b += fmt.Sprintf("%x\r\n%s\r\n", len(p), p)
		}
		return b
	}
	head := func(length int) string {
		return fmt.Sprintf("HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n", length)
	}
	interim := func(status int) string { return fmt.Sprintf("HTTP/1.1 %d Wait\r\nLink: </x>\r\n\r\n", status) }
	padded := func(size int) string { return body + strings.Repeat(" ", size-len(body)) }

	for name, tt := range map[string]struct {
		script wallettest.Script
		want   payment.Outcome
	}{
		"content length":             {say(head(len(body)) + body), success},
		"chunked":                    {say(chunked(body[:10], body[10:]) + "0\r\n\r\n"), success},
		"close-delimited":            {say("HTTP/1.1 201 Created\r\n\r\n" + body), success},
		"HTTP/1.0":                   {say("HTTP/1.0 201 Created\r\n\r\n" + body), success},
		"exactly 64 KiB":             {say(head(64<<10) + padded(64<<10)), success},
		"octets one at a time":       {trickle(head(len(body)) + body), success},
		"100, 102 and 103 before it": {say(interim(100) + interim(102) + interim(103) + head(len(body)) + body), success},
		"another media type":         {say("HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n\r\n" + body), success},

		// C15: an answer before the request was read; C31 is among the 4xx of the table.
		"409 before the request was read": {func(c *wallettest.Conn) {
			c.Answer(409, `{"code":"INSUFFICIENT_FUNDS"}`)
			c.Read()
		}, payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonVerdict, Verdict: true, Code: "INSUFFICIENT_FUNDS", Status: 409}},

		// C16: the JSON is whole, the message is not.
		"content length cut off, JSON whole":    {say(head(len(body)+70) + body), doubt(201, payment.ReasonBodyIncomplete)},
		"chunked cut off, JSON whole":           {say(chunked(body)), doubt(201, payment.ReasonBodyIncomplete)},
		"reset inside the body":                 {resetAfter(head(len(body)+70) + body), doubt(201, payment.ReasonBodyIncomplete)},
		"chunk size that is no number":          {stall("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"), doubt(201, payment.ReasonProtocol)},
		"close-delimited cut off":               {say("HTTP/1.1 201 Created\r\n\r\n" + body[:len(body)-1]), doubt(201, payment.ReasonBodyUnexpected)}, // C17
		"close-delimited without the reference": {say("HTTP/1.1 201 Created\r\n\r\n" + `{"debitId":"d1"}`), doubt(201, payment.ReasonBodyUnexpected)}, // C17
		"no body":                               {say(head(0)), doubt(201, payment.ReasonBodyIncomplete)},
		"409 cut off":                           {say("HTTP/1.1 409 Conflict\r\nContent-Length: 99\r\n\r\n" + `{"code":"INSUFFICIENT_FUNDS"}`), doubt(409, payment.ReasonBodyIncomplete)},
		"503 cut off":                           {say("HTTP/1.1 503 Busy\r\nContent-Length: 99\r\n\r\n<html>"), payment.Outcome{Class: payment.Unavailable, Reason: payment.ReasonStatus503, Status: 503}},

		// C19.
		"one byte over 64 KiB":     {say(head(64<<10+1) + padded(64<<10+1)), doubt(201, payment.ReasonBodyTooLarge)},
		"endless chunks":           {endless("HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n"), doubt(201, payment.ReasonBodyTooLarge)},
		"404 page of over 64 KiB":  {say("HTTP/1.1 404 Not Found\r\n\r\n" + strings.Repeat("x", 70<<10)), payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonNoVerdict, Code: payment.WalletRejected, Status: 404}},
		"endless header fields":    {endless("HTTP/1.1 201 Created\r\n", "X-More: and more\r\n"), doubt(0, payment.ReasonProtocol)},
		"endless interim answers":  {endless("", interim(103)), doubt(0, payment.ReasonProtocol)},
		"endless status line":      {endless("HTTP/1.1 201 ", "Created "), doubt(0, payment.ReasonProtocol)},
		"two content lengths":      {say("HTTP/1.1 201 Created\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n" + body), doubt(0, payment.ReasonProtocol)},
		"HTTP/2 frames":            {stall("\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n\r\n"), doubt(0, payment.ReasonProtocol)},
		"garbage":                  {stall("!!! who are you\r\n\r\n"), doubt(0, payment.ReasonProtocol)},
		"gzip that nobody asked":   {say("HTTP/1.1 201 Created\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"), doubt(201, payment.ReasonBodyUnexpected)}, // C24
		"HTTP/2.0 in the status":   {stall("HTTP/2.0 201 Created\r\nContent-Length: 0\r\n\r\n"), doubt(0, payment.ReasonProtocol)},
		"end after the head began": {say("HTTP/1.1 201 Crea"), doubt(0, payment.ReasonConnectionLost)},
		"end without a word":       {say(""), doubt(0, payment.ReasonConnectionLost)},
		"reset without a word":     {resetAfter(""), doubt(0, payment.ReasonConnectionLost)},

		// C22.
		"103, then the end": {say(interim(103)), doubt(0, payment.ReasonConnectionLost)},
		"101":               {stall("HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"), doubt(101, payment.ReasonStatusOther)},
		"000":               {say("HTTP/1.1 000 None\r\nContent-Length: 0\r\n\r\n"), doubt(0, payment.ReasonStatusOther)},
		"999":               {say("HTTP/1.1 999 Robot\r\nContent-Length: 2\r\n\r\n{}"), doubt(999, payment.ReasonStatusOther)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wallettest.New(t, tt.script)
			client := newClient(t, w)
			if diff := cmp.Diff(tt.want, send(t, client, instruction(payment.Debit, "answer"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if tt.want.Class != payment.Success && client.idle() != 0 {
				t.Error("the connection was kept although its answer did not name our request")
			}
			if got := w.Connections(); got != 1 {
				t.Errorf("%d connections for one call", got)
			}
		})
	}
}

func trickle(raw string) wallettest.Script {
	return func(c *wallettest.Conn) {
		c.Read()
		for i := range len(raw) {
			c.Say(raw[i : i+1])
		}
	}
}

func resetAfter(raw string) wallettest.Script {
	return func(c *wallettest.Conn) {
		c.Read()
		c.Say(raw)
		c.Wait(20 * time.Millisecond) // let it arrive: a reset overtakes what is still on its way
		c.Reset()
	}
}

func endless(start, more string) wallettest.Script {
	return func(c *wallettest.Conn) {
		c.Read()
		c.Say(start)
		for chunk := strings.Repeat(more, 4096); ; {
			if _, err := c.Write([]byte(chunk)); err != nil {
				return
			}
		}
	}
}

// A write that has been begun is evidence that the wallet may have the request,
// whatever it reports: inside TLS even a failed write of 0 bytes may have sent
// records. A write that was not begun is proof that it has not (traps C3, C11, C14).
func TestEvidenceIsTheWriteThatWasBegun(t *testing.T) {
	t.Parallel()
	for name, failing := range map[string]*writeFails{
		"nothing written":   {n: 0},
		"sixty bytes, then": {n: 60},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wallettest.New(t, func(c *wallettest.Conn) { c.Read() })
			client := newClient(t, w, func(cfg *Config) { cfg.DialContext = failing.dial(w) })
			if diff := cmp.Diff(ambiguous(payment.ReasonConnectionLost), send(t, client, instruction(payment.Debit, "x"))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := failing.writes(); got != 1 {
				t.Errorf("%d writes for one call", got)
			}
		})
	}
}

// A certificate that the wallet refuses is refused, in TLS 1.3, only after our
// request went out: it must not pass for "not sent" (trap C10).
func TestRefusedClientCertificateIsInDoubt(t *testing.T) {
	t.Parallel()
	w := wallettest.NewTLS(t, &tls.Config{MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert}, func(c *wallettest.Conn) { c.Read() })
	client := newClient(t, w)
	got := send(t, client, instruction(payment.Debit, "x"))
	if got.Class != payment.Ambiguous {
		t.Errorf("%+v, want ambiguous", got)
	}
}

// Two answers that come in one piece are read in one piece: the second then waits
// where looking at the socket does not find it, in our reader or, over TLS, in
// what TLS has taken from the socket and not opened yet. Such a connection must
// not be used again (trap C21: "both answers in one write").
func TestSecondAnswerThatWasAlreadyReadIsFound(t *testing.T) {
	t.Parallel()
	twice := func(c *wallettest.Conn) {
		if r, ok := c.Read(); ok {
			// Short, so that one read of the socket takes in both.
			body := `{"id":"effect-1","reference":"` + r.Reference + `","status":"APPLIED"}`
			answer := fmt.Sprintf("HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
			c.Together(func() {
				c.Say(answer)
				c.Say(answer)
			})
			c.Hang()
		}
	}
	for name, w := range map[string]*wallettest.Wallet{
		"plain": wallettest.New(t, twice),
		"TLS":   wallettest.NewTLS(t, nil, twice),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, w)
			for i := range 3 {
				if got := send(t, client, instruction(payment.Debit, fmt.Sprint(i))); got.Class != payment.Success {
					t.Errorf("call %d: %+v", i, got)
				}
				client.trustIdle()
			}
			if got := w.Connections(); got != 3 {
				t.Errorf("%d connections for 3 calls: one with a leftover was used again", got)
			}
		})
	}
}

// Reuse must work over TLS too, where a handshake is what it saves: neither the
// session tickets that come behind the handshake nor the look into TLS's own
// buffer may spoil the connection.
func TestTLSConnectionsAreReused(t *testing.T) {
	t.Parallel()
	for name, max := range map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wallettest.NewTLS(t, &tls.Config{MinVersion: tls.VersionTLS12, MaxVersion: max}, wallettest.Serve(wallettest.Applied))
			client := newClient(t, w)
			for i := range 20 {
				if got := send(t, client, instruction(payment.Debit, fmt.Sprint(i))); got.Class != payment.Success {
					t.Fatalf("call %d: %+v", i, got)
				}
				client.trustIdle()
			}
			if got := w.Connections(); got != 1 {
				t.Errorf("%d connections for 20 calls", got)
			}
		})
	}
}

// A wallet whose process has stopped still has its kernel shake hands and take
// the request, and may book it when it goes on: that is doubt, not "not applied"
// (trap C13, scenario S9).
func TestStoppedProcessIsInDoubt(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := wallettest.New(t, func(*wallettest.Conn) {})
	client := newClient(t, w, func(cfg *Config) { cfg.BaseURL = "http://" + l.Addr().String() })
	got := client.Decisions().Send(within(t, 600*time.Millisecond), instruction(payment.Debit, "x"))
	if diff := cmp.Diff(ambiguous(payment.ReasonTimeout), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Sixteen tills at once must each get their own answer, and each be on the wire once.
func TestConcurrentCallsGetTheirOwnAnswers(t *testing.T) {
	t.Parallel()
	w := wallettest.New(t, wallettest.Serve(func(r wallettest.Request) string {
		return wallettest.Answer(201, `{"id":"of-`+r.Reference+`","reference":"`+r.Reference+`","status":"APPLIED"}`)
	}))
	client := newClient(t, w, patient)
	var tills sync.WaitGroup
	for i := range 16 {
		tills.Go(func() {
			for j := range 25 {
				in := instruction(payment.Debit, fmt.Sprint(i, "/", j))
				if got := send(t, client, in); got.WalletID != "of-"+in.Reference.String() {
					t.Errorf("%+v is not the answer to %s", got, in.Reference)
				}
			}
		})
	}
	tills.Wait()
	seen := map[string]int{}
	for _, r := range w.Requests() {
		seen[r.Reference]++
	}
	for ref, n := range seen {
		if n != 1 {
			t.Errorf("%s was on the wire %d times", ref, n)
		}
	}
	if len(seen) != 16*25 {
		t.Errorf("%d of %d calls were on the wire", len(seen), 16*25)
	}
}

// A caller's own reason for its deadline changes what errors look like, but not
// what is known (trap C25).
func TestDeadlineWithACauseIsTheSame(t *testing.T) {
	t.Parallel()
	w := wallettest.New(t, func(c *wallettest.Conn) {
		c.Read()
		c.Hang()
	})
	client := newClient(t, w)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 600*time.Millisecond, errors.New("enough"))
	defer cancel()
	got := client.Decisions().Send(ctx, instruction(payment.Debit, "x"))
	if diff := cmp.Diff(ambiguous(payment.ReasonTimeout), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
