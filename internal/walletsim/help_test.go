package walletsim_test

import (
	"bufio"
	"context"
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

	"github.com/go-json-experiment/json"

	"github.com/safeledger/safeledger/internal/walletsim"
	"github.com/safeledger/safeledger/internal/walletsim/pipe"
)

// rich is an account with money that most tests use.
const (
	rich        = "anna"
	richBalance = 100_000
)

// start runs a wallet on loopback for the length of the test.
func start(t *testing.T, cfg walletsim.Config) *walletsim.Sim {
	t.Helper()
	sim := build(t, cfg)
	if err := sim.Start(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	return sim
}

// startPiped runs a wallet in a bubble.
func startPiped(t *testing.T, cfg walletsim.Config) (*walletsim.Sim, *http.Client) {
	t.Helper()
	sim := build(t, cfg)
	listener := pipe.Listen()
	served := make(chan error, 1)
	go func() { served <- sim.Serve(listener) }()
	synctest.Wait() // it is listening: the URL is known
	transport := &http.Transport{DialContext: listener.DialContext, DisableKeepAlives: true}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, walletsim.ErrClosed) {
			t.Errorf("Serve = %v, want ErrClosed", err)
		}
	})
	return sim, &http.Client{Transport: transport}
}

func build(t *testing.T, cfg walletsim.Config) *walletsim.Sim {
	t.Helper()
	sim, err := walletsim.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	sim.SetBalance(rich, "EUR", richBalance)
	return sim
}

func addRule(t *testing.T, sim *walletsim.Sim, rule walletsim.Rule) int64 {
	t.Helper()
	id, err := sim.AddRule(rule)
	if err != nil {
		t.Fatalf("the rule of the test: %v", err)
	}
	return id
}

// answered is an answer as a client sees it.
type answered struct {
	Status int
	Body   string
}

// member is a member of a JSON body, "" where there is none.
func (a answered) member(name string) string {
	var members map[string]any
	if err := json.Unmarshal([]byte(a.Body), &members); err != nil {
		return ""
	}
	value, _ := members[name].(string)
	return value
}

// caller is a client that repeats nothing: one call is one request.
type caller struct {
	base   string
	client *http.Client
}

func callerOf(t *testing.T, sim *walletsim.Sim) caller {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	t.Cleanup(transport.CloseIdleConnections)
	return caller{sim.URL(), &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// try makes a request; key "" sends no Idempotency-Key.
func (c caller) try(ctx context.Context, method, path, key, body string) (answered, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	req.GetBody = nil
	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		req.Header["idempotency-key"] = []string{key}
	}
	res, err := c.client.Do(req)
	if err != nil {
		return answered{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return answered{res.StatusCode, string(text)}, err
}

func (c caller) post(t *testing.T, path, key, body string) answered {
	t.Helper()
	a, err := c.try(t.Context(), http.MethodPost, path, key, body)
	if err != nil {
		t.Fatalf("POST %s: %v", path, err)
	}
	return a
}

func (c caller) get(t *testing.T, path string) answered {
	t.Helper()
	a, err := c.try(t.Context(), http.MethodGet, path, "", "")
	if err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return a
}

// move is the body of a debit, credit or hold.
func move(reference, account string, amount int64) string {
	return fmt.Sprintf(`{"reference":%q,"account":%q,"amount":%d,"currency":"EUR"}`, reference, account, amount)
}

// rawPost is a request as bytes.
func rawPost(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: wallet\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

func dial(t *testing.T, sim *walletsim.Sim) net.Conn {
	t.Helper()
	c, err := new(net.Dialer).DialContext(t.Context(), "tcp", strings.TrimPrefix(sim.URL(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil { // so that a broken test ends
		t.Fatal(err)
	}
	return c
}

// everything reads until the connection ends, and says how it did.
func everything(t *testing.T, c net.Conn) (string, walletsim.How) {
	t.Helper()
	text, err := io.ReadAll(c)
	switch {
	case err == nil:
		return string(text), walletsim.FIN
	case errors.Is(err, syscall.ECONNRESET):
		return string(text), walletsim.RST
	}
	t.Fatalf("the connection ended in %v after %q", err, text)
	return "", ""
}

// response reads one answer of a connection that goes on.
func response(t *testing.T, r *bufio.Reader) answered {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatalf("read an answer: %v", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("read an answer's body: %v", err)
	}
	return answered{res.StatusCode, string(body)}
}

func send(t *testing.T, c net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// wait is for what must come soon; its bound only ends a broken test.
func wait(t *testing.T, sim *walletsim.Sim, matches func(walletsim.Entry) bool) walletsim.Entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	e, err := sim.WaitFor(ctx, matches)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// of matches an event of a reference.
func of(event walletsim.Event, reference string) func(walletsim.Entry) bool {
	return func(e walletsim.Entry) bool {
		return e.Event == event && e.Request != nil && e.Reference == reference
	}
}

func count(entries []walletsim.Entry, matches func(walletsim.Entry) bool) (n int) {
	for _, e := range entries {
		if matches(e) {
			n++
		}
	}
	return n
}

func wantBalance(t *testing.T, sim *walletsim.Sim, account string, balance, held int64) {
	t.Helper()
	if got := sim.Balance(account, "EUR"); got != balance {
		t.Errorf("balance of %s = %d, want %d", account, got, balance)
	}
	if got := sim.Held(account, "EUR"); got != held {
		t.Errorf("held of %s = %d, want %d", account, got, held)
	}
	for currency, totals := range sim.Totals() {
		if !totals.Constant {
			t.Errorf("money of %s was made or lost: %+v", currency, totals)
		}
	}
}
