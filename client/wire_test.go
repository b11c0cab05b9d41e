package client_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/client"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// A payment that something below the client sends twice is one that nobody counted.
// Whatever becomes of a request without 503 and Retry-After, there was one of it on the
// wire, of posts without a body too, and the till hears that the outcome is unknown
// (contract section 6; issue 4, promise 4; traps C1, C2).
func TestWithoutTheGatesWordAMutationIsSentOnce(t *testing.T) {
	t.Parallel()
	faults := map[string]wallettest.Script{
		"plain 503":                  says(problem(503, "OUTCOME_UNKNOWN")),
		"503 of a proxy":             says(reply(503, "text/html", "<h1>no server is available</h1>")),
		"503 with Retry-After 0":     says(problem(503, "OVERLOADED", "Retry-After: 0")),
		"503 with a date":            says(problem(503, "OVERLOADED", "Retry-After: Sun, 29 Nov 2026 22:26:10 GMT")),
		"503 with a fraction":        says(problem(503, "OVERLOADED", "Retry-After: 1.5")),
		"503 with a sign":            says(problem(503, "OVERLOADED", "Retry-After: +1")),
		"503 with an empty field":    says(problem(503, "OVERLOADED", "Retry-After:")),
		"503 with two fields":        says(problem(503, "OVERLOADED", "Retry-After: 1", "Retry-After: 1")),
		"503 with two in one":        says(problem(503, "OVERLOADED", "Retry-After: 1, 1")),
		"503 that is cut":            says(cut(atTheGate("1"))),
		"500":                        says(problem(500, "INTERNAL")),
		"500 with Retry-After":       says(problem(500, "INTERNAL", "Retry-After: 1")),
		"502":                        says(reply(502, "text/html", "<h1>bad gateway</h1>")),
		"502 with Retry-After":       says(reply(502, "text/html", "<h1>bad gateway</h1>", "Retry-After: 1")),
		"504":                        says(reply(504, "text/html", "<h1>time-out</h1>")),
		"429 of a proxy":             says(reply(429, "text/plain", "slow down", "Retry-After: 1")),
		"408 of a proxy":             says(reply(408, "text/plain", "too slow")),
		"425 of a proxy":             says(reply(425, "text/plain", "too early")),
		"403 of a firewall":          says(reply(403, "text/html", "<h1>forbidden</h1>")),
		"404 of an ingress":          says(reply(404, "text/html", "<h1>not found</h1>")),
		"413 of a proxy":             says(reply(413, "text/html", "<h1>too large</h1>")),
		"200 of a captive portal":    says(reply(200, "text/html", "<h1>welcome</h1>")),
		"204":                        says("HTTP/1.1 204 No Content\r\n\r\n"),
		"101":                        says("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nxyz"),
		"301":                        says(reply(301, "text/html", "", "Location: /elsewhere")),
		"307":                        says(reply(307, "text/html", "", "Location: /elsewhere")),
		"closed without an answer":   says(""),
		"reset":                      resets,
		"no answer":                  hangs,
		"half a head":                says("HTTP/1.1 201 Cre"),
		"not HTTP":                   says("SSH-2.0-OpenSSH_9.2\r\n"),
		"an answer without its half": says(cut(ok(201, approval))),
	}
	for fault, script := range faults {
		for _, m := range mutations {
			t.Run(fault+"/"+m.name, func(t *testing.T) {
				t.Parallel()
				s := scripted(t, script)
				c := s.till(t, func(cfg *client.Config) {
					if fault == "no answer" { // nothing else has to be waited for
						cfg.Mutations.Total = 800 * ms
					}
				})
				err := m.call(t, c)
				unknown, isUnknown := errors.AsType[*client.OutcomeUnknownError](err)
				if !isUnknown {
					t.Fatalf("got %v, want that the outcome is unknown", err)
				}
				if unknown.Key != key {
					t.Errorf("the error is about the key %q, want %q", unknown.Key, key)
				}
				if n := len(s.Requests()); n != 1 {
					t.Errorf("%d requests on the wire, want 1", n)
				}
			})
		}
	}
}

// A connection that the service has closed meanwhile must neither repeat a payment
// (net/http does, for a request with an Idempotency-Key) nor turn the first one after a
// pause into one whose outcome is unknown: no connection is used twice. Exactly one
// request per call, also where the service would gladly keep connections open.
func TestNoRequestMeetsAStaleConnection(t *testing.T) {
	t.Parallel()
	for _, m := range mutations {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			s := &service{}
			// Answers the first request of a connection and keeps it open, with nothing said
			// against that; books the second one and closes.
			s.Wallet = wallettest.New(t, func(conn *wallettest.Conn) {
				if _, ok := conn.Read(); ok {
					conn.Say(m.answer)
					_, _ = conn.Read()
				}
			})
			c := s.till(t)
			for range 6 {
				if err := m.call(t, c); err != nil {
					t.Fatal(err)
				}
			}
			for _, r := range s.Requests() {
				if r.Nth != 1 {
					t.Errorf("request %d on connection %d: it was used before", r.Nth, r.Connection)
				}
				if r.Header.Get("Connection") != "close" {
					t.Error("the service was not told that the connection will not be used again")
				}
			}
			if n := len(s.Requests()); n != 6 {
				t.Errorf("%d requests on the wire for 6 calls", n)
			}
		})
	}
}

// The body of a 101 is the connection itself, and reading it does not end with the
// till's deadline: a proxy that switches protocols must not hang the till for good.
func TestA101DoesNotHangTheTill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := inMemory(t, func(c *wallettest.Conn) {
			c.Say("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
			c.Hang()
		})
		start := time.Now()
		_, err := s.till(t).Debit(t.Context(), key, asked)
		if e, unknown := errors.AsType[*client.OutcomeUnknownError](err); !unknown || e.Status != http.StatusSwitchingProtocols {
			t.Errorf("got %v, want that the outcome is unknown", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
	})
}

// A redirect would carry a payment to somebody else, or turn it into a GET whose 200
// looks like an approval (trap C5).
func TestNoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			t.Parallel()
			elsewhere := scripted(t, says(ok(201, approval)))
			s := scripted(t, says(reply(status, "text/html", "", "Location: "+elsewhere.URL()+"/debits")))
			_, err := s.till(t).Debit(t.Context(), key, asked)
			if _, unknown := errors.AsType[*client.OutcomeUnknownError](err); !unknown {
				t.Errorf("got %v, want that the outcome is unknown", err)
			}
			if _, _, err := s.till(t).Reconcile(t.Context(), client.KindDebit, key); err == nil {
				t.Error("a redirected read was believed")
			}
			if n := len(elsewhere.Requests()); n != 0 {
				t.Errorf("%d requests went elsewhere", n)
			}
		})
	}
}

// Over HTTP/2 Go repeats a post when the server resets its stream, without a limit
// (trap C4). A server that offers it is spoken to in HTTP/1.1, whatever the TLS
// configuration says.
func TestHTTP2IsNotSpoken(t *testing.T) {
	t.Parallel()
	offered := make(chan []string, 1)
	s := wallettest.NewTLS(t, &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			offered <- hello.SupportedProtos
			return nil, nil //nolint:nilnil // as documented: the configuration stays
		},
	}, wallettest.Serve(func(wallettest.Request) string { return ok(201, approval) }))
	c, err := client.New(client.Config{
		BaseURL: s.URL(), Token: token,
		TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.Roots(), NextProtos: []string{"h2"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := c.Debit(t.Context(), key, asked); err != nil || !d.Approved() {
		t.Errorf("got %+v, %v", d, err)
	}
	for _, protocol := range <-offered {
		if protocol == "h2" {
			t.Error("HTTP/2 was offered")
		}
	}
	if n := len(s.Requests()); n != 1 {
		t.Errorf("%d requests on the wire", n)
	}
}

// A connection for each request must not cost a certificate check for each request, on a till
// with a small processor and at a service with many tills: sessions are resumed.
func TestTLSSessionsAreResumed(t *testing.T) {
	t.Parallel()
	resumed := make(chan bool, 2)
	s := wallettest.NewTLS(t, nil, func(c *wallettest.Conn) {
		if _, whole := c.Read(); whole {
			secure, _ := c.Conn.(*tls.Conn)
			resumed <- secure.ConnectionState().DidResume
			c.Say(ok(201, approval))
		}
	})
	c, err := client.New(client.Config{BaseURL: s.URL(), Token: token, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.Roots()}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true} {
		if _, err := c.Debit(t.Context(), key, asked); err != nil {
			t.Fatal(err)
		}
		if got := <-resumed; got != want {
			t.Errorf("connection %d: resumed is %v", i+1, got)
		}
	}
}

// A server that nobody vouches for would get the token and every payment.
func TestAnUnknownCertificateIsRefused(t *testing.T) {
	t.Parallel()
	s := wallettest.NewTLS(t, nil, says(ok(201, approval)))
	c, err := client.New(client.Config{BaseURL: s.URL(), Token: token})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Debit(t.Context(), key, asked)
	if _, notBegun := errors.AsType[*client.NotBegunError](err); !notBegun {
		t.Errorf("got %v, want that nothing was begun", err)
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// A proxy that some shell profile names would see the token and every payment, and
// may repeat posts. This test sets the environment, so it is not parallel; net/http reads
// it once, so that it only counts if nobody has read it before: nothing in here does.
func TestNoProxyIsTakenFromTheEnvironment(t *testing.T) {
	proxy := scripted(t, says(ok(201, approval)))
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, proxy.URL())
	}
	c, err := client.New(client.Config{
		// Not loopback, for which the environment is never asked; the dialler brings it back.
		BaseURL: "http://payments.example", Token: token,
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			if address != "payments.example:80" {
				t.Errorf("connecting to %s", address)
			}
			return nil, syscall.ECONNREFUSED
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Debit(t.Context(), key, asked)
	if _, notBegun := errors.AsType[*client.NotBegunError](err); !notBegun {
		t.Errorf("got %v, want that nothing was begun", err)
	}
	if n := len(proxy.Requests()); n != 0 {
		t.Errorf("the proxy got %d requests", n)
	}
}

// A till in a shop whose line is down must not be told to go looking for a payment
// that never left it: where there was no connection, nothing was begun. It is not tried
// again behind the till's back all the same.
func TestWithoutAConnectionNothingWasBegun(t *testing.T) {
	t.Parallel()
	mute := scripted(t, hangs)
	tests := map[string]func(*client.Config, *int){
		"refused": func(cfg *client.Config, dials *int) {
			cfg.DialContext = func(context.Context, string, string) (net.Conn, error) {
				*dials++
				return nil, syscall.ECONNREFUSED
			}
		},
		"black hole": func(cfg *client.Config, dials *int) {
			cfg.ConnectTimeout = 20 * ms
			cfg.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				*dials++
				<-ctx.Done()
				return nil, ctx.Err()
			}
		},
		"silent TLS": func(cfg *client.Config, dials *int) {
			cfg.BaseURL = strings.Replace(mute.URL(), "http:", "https:", 1)
			cfg.ConnectTimeout = 50 * ms
			*dials++
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dials := 0
			c := mute.till(t, func(cfg *client.Config) { change(cfg, &dials) })
			start := time.Now()
			_, err := c.Debit(t.Context(), key, asked)
			if e, notBegun := errors.AsType[*client.NotBegunError](err); !notBegun || e.Key != key || e.Attempts != 0 {
				t.Errorf("got %#v (%v), want that nothing was begun", e, err)
			}
			if dials != 1 {
				t.Errorf("connected %d times", dials)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

// What the service is told must be what the contract says: the key as a quoted string, who
// asks, and the body member by member; a key with a slash or a quote in it must be
// found again by its path.
func TestRequestsAreAsTheContractHasThem(t *testing.T) {
	t.Parallel()
	const oddKey = `till/17 "A"\b%`
	odd := strings.ReplaceAll(oddKey, " ", "_")
	s := scripted(t, says(ok(201, strings.Replace(approval, `"reference"`, `"metadata": {"lane": "3"}, "reference"`, 1))), says(notFound), says(ok(200, cancelled)), says(ok(202, released)))
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	c := s.till(t, func(cfg *client.Config) { cfg.Traceparent = func(context.Context) string { return parent } })
	req := asked
	req.Metadata = map[string]string{"lane": "3"}
	if _, err := c.Debit(t.Context(), odd, req); err != nil {
		t.Fatal(err)
	}
	if _, seen, err := c.Reconcile(t.Context(), client.KindDebit, odd); seen || err != nil {
		t.Fatal(seen, err)
	}
	if _, err := c.Cancel(t.Context(), client.KindDebit, odd, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Release(t.Context(), key, paymentID); err != nil {
		t.Fatal(err)
	}
	want := []struct{ method, target, key, body string }{
		{"POST", "/debits", `"till/17_\"A\"\\b%"`, `{"account":"ALICE","amount":1250,"currency":"EUR","reference":"receipt 4711","metadata":{"lane":"3"}}`},
		{"GET", "/payments/by-key/debit/till%2F17_%22A%22%5Cb%25", "", ""},
		{"POST", "/payments/by-key/debit/till%2F17_%22A%22%5Cb%25/cancel", "", ""},
		{"POST", "/holds/" + paymentID.String() + "/release", `"` + key + `"`, `{}`},
	}
	for i, r := range s.Requests() {
		got := struct{ method, target, key, body string }{r.Method, r.Target, r.Header.Get("Idempotency-Key"), string(r.Body)}
		if got != want[i] {
			t.Errorf("request %d:\n got %+v\nwant %+v", i, got, want[i])
		}
		if r.Header.Get("Authorization") != "Bearer "+token || r.Header.Get("Traceparent") != parent {
			t.Errorf("request %d has the header %v", i, r.Header)
		}
		if _, told := r.Header["Request-Deadline-Ms"]; told {
			t.Errorf("request %d names a deadline, and its context has none", i)
		}
	}
	if n := len(s.Requests()); n != len(want) {
		t.Errorf("%d requests, want %d", n, len(want))
	}
}

// A trace that is not well formed would begin a new one, or smuggle a header in.
func TestATraceparentThatIsNotOneIsNotSent(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", "00", "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\n", "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
	} {
		s := scripted(t, says(ok(201, approval)))
		c := s.till(t, func(cfg *client.Config) { cfg.Traceparent = func(context.Context) string { return bad } })
		if _, err := c.Debit(t.Context(), key, asked); err != nil {
			t.Errorf("%q: %v", bad, err)
		}
		if got := s.Requests()[0].Header.Values("Traceparent"); len(got) != 0 {
			t.Errorf("%q was sent as %q", bad, got)
		}
	}
}

// What cannot be right is refused before it is sent, with nothing to look for afterwards,
// and a configuration is refused at once, without the token in the text.
func TestArgumentsThatCannotBeRightAreNotSent(t *testing.T) {
	t.Parallel()
	s := scripted(t, says(ok(201, approval)))
	c := s.till(t)
	bad := asked
	bad.Reference = "\xff"
	calls := map[string]func() error{}
	for _, k := range []string{"", ".", "..", "two words", "é", "a\nb", strings.Repeat("k", 256)} {
		calls["key "+k] = func() error { _, err := c.Debit(t.Context(), k, asked); return err }
		calls["by key "+k] = func() error { _, _, err := c.Reconcile(t.Context(), client.KindDebit, k); return err }
	}
	calls["not UTF-8"] = func() error { _, err := c.Debit(t.Context(), key, bad); return err }
	calls["no hold"] = func() error { _, err := c.Release(t.Context(), key, [16]byte{}); return err }
	calls["cancel of a credit"] = func() error { _, err := c.Cancel(t.Context(), client.KindCredit, key, nil); return err }
	calls["credit of two"] = func() error {
		_, err := c.Credit(t.Context(), key, client.CreditRequest{DebitID: paymentID, HoldID: otherID})
		return err
	}
	for name, call := range calls {
		if err := call(); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}

	for name, cfg := range map[string]client.Config{
		"no URL":            {Token: token},
		"another scheme":    {BaseURL: "ftp://x", Token: token},
		"a user":            {BaseURL: "https://a:b@x", Token: token},
		"a query":           {BaseURL: "https://x?y", Token: token},
		"no token":          {BaseURL: "https://x"},
		"a token of lines":  {BaseURL: "https://x", Token: "secret\r\nX: y"},
		"negative attempts": {BaseURL: "https://x", Token: token, Reads: client.ReadPolicy{Attempts: -1}},
		"negative total":    {BaseURL: "https://x", Token: token, Mutations: client.MutationPolicy{Total: -1}},
		"a crossed backoff": {BaseURL: "https://x", Token: token, Reads: client.ReadPolicy{BackoffMin: 2, BackoffMax: 1}},
	} {
		if _, err := client.New(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the token is in %q", name, err)
		}
	}
}
