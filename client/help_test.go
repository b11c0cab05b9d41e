package client_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/client"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

const (
	ms    = time.Millisecond
	token = "a-till-of-store-17"
	key   = "01a2296a-6d62-7d1a-84a5-3176294f0d24"
)

var (
	paymentID = uuid.MustParse("01a2296a-6d6e-727e-bec2-db42985da831")
	otherID   = uuid.MustParse("01a2296a-6d6e-727e-bec2-db42985da832")
	asked     = client.PaymentRequest{Account: "ALICE", AmountMinor: 1250, Currency: "EUR", Reference: "receipt 4711"}
)

const (
	times = `"createdAt": "2026-11-29T22:26:10.414156Z", "decidedAt": "2026-11-29T22:26:10.418248Z"`
	money = `"account": "ALICE", "amount": 1250, "currency": "EUR", "reference": "receipt 4711"`
	ids   = `"id": "01a2296a-6d6e-727e-bec2-db42985da831"`

	approval = `{` + ids + `, "kind": "debit", "decision": "APPROVED", ` + money + `, "walletId": "w-1", ` + times + `}`
	paid     = `{` + ids + `, "kind": "debit", "decision": "APPROVED", ` + money + `, "walletId": "w-1", ` + times + `, "followUps": []}`
	pending  = `{"id": "01a2296a-6d6e-727e-bec2-db42985da832", "kind": "capture", "status": "PENDING", "amount": 1250, "currency": "EUR",
		"paymentId": "01a2296a-6d6e-727e-bec2-db42985da831", "createdAt": "2026-11-29T22:26:10.414156Z"}`
	released = `{"id": "01a2296a-6d6e-727e-bec2-db42985da832", "kind": "release", "status": "PENDING",
		"paymentId": "01a2296a-6d6e-727e-bec2-db42985da831", "createdAt": "2026-11-29T22:26:10.414156Z"}`
	credited = `{"id": "01a2296a-6d6e-727e-bec2-db42985da832", "kind": "credit", "status": "PENDING", ` + money + `,
		"paymentId": "01a2296a-6d6e-727e-bec2-db42985da831", "createdAt": "2026-11-29T22:26:10.414156Z"}`
	cancelled = `{"operation": "debit", "decision": "DECLINED", "code": "CANCELLED", ` + ids + `}`
)

// reply is an answer as it goes over the wire; header are whole lines.
func reply(status int, mediaType, body string, header ...string) string {
	head := fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n", status, http.StatusText(status), mediaType, len(body))
	for _, line := range header {
		head += line + "\r\n"
	}
	return head + "\r\n" + body
}

func ok(status int, body string) string { return reply(status, "application/json", body) }

func problem(status int, code string, header ...string) string {
	body := fmt.Sprintf(`{"type": "/openapi.yaml#/x-problems/%s", "title": "T", "status": %d, "detail": "D", "code": %q}`, code, status, code)
	return reply(status, "application/problem+json", body, header...)
}

func decline(status int, code string, header ...string) string {
	body := fmt.Sprintf(`{"type": "T", "title": "T", "status": %d, "detail": "D", "code": %q, %s, "kind": "debit", "decision": "DECLINED", "retryable": %t}`,
		status, code, ids, status == http.StatusFailedDependency)
	return reply(status, "application/problem+json", body, header...)
}

// atTheGate is what the gate answers, the only answer after which a mutation is sent again.
func atTheGate(seconds string) string {
	return problem(http.StatusServiceUnavailable, "OVERLOADED", "Retry-After: "+seconds, "Connection: close")
}

var (
	inFlight  = problem(http.StatusConflict, "REQUEST_IN_FLIGHT", "Retry-After: 1")
	undecided = problem(http.StatusNotFound, "PAYMENT_NOT_YET_DECIDED", "Retry-After: 1")
	notFound  = problem(http.StatusNotFound, "PAYMENT_NOT_FOUND")
)

// cut is the first half of an answer, after which the connection ends.
func cut(answer string) string { return answer[:len(answer)-len(answer)/4] }

// service stands in for SafeLedger, byte by byte: the nth request, on whatever
// connection, gets the nth script, the last one again and again.
type service struct {
	*wallettest.Wallet
	mu      sync.Mutex
	arrived []time.Time
}

// says is a script that answers and closes the connection, or just closes it for "".
func says(answer string) wallettest.Script {
	return func(c *wallettest.Conn) { c.Say(answer) }
}

func hangs(c *wallettest.Conn) { c.Hang() }
func resets(c *wallettest.Conn) {
	c.Reset()
}

// scripted starts a service on loopback.
func scripted(t *testing.T, scripts ...wallettest.Script) *service {
	t.Helper()
	s := &service{}
	s.Wallet = wallettest.New(t, s.script(scripts))
	return s
}

// answering starts a service in memory, for fake time.
func answering(t *testing.T, answers ...string) *service {
	t.Helper()
	s := &service{}
	scripts := make([]wallettest.Script, len(answers))
	for i, answer := range answers {
		scripts[i] = says(answer)
	}
	s.Wallet = wallettest.NewPipe(t, s.script(scripts))
	return s
}

// inMemory starts a service in memory that behaves as scripts say, for fake time.
func inMemory(t *testing.T, scripts ...wallettest.Script) *service {
	t.Helper()
	s := &service{}
	s.Wallet = wallettest.NewPipe(t, s.script(scripts))
	return s
}

func (s *service) script(scripts []wallettest.Script) wallettest.Script {
	return func(c *wallettest.Conn) {
		if _, ok := c.Read(); !ok {
			return
		}
		s.mu.Lock()
		n := len(s.arrived)
		s.arrived = append(s.arrived, time.Now())
		s.mu.Unlock()
		scripts[min(n, len(scripts)-1)](c)
	}
}

// after are the times between start and the requests.
func (s *service) after(start time.Time) []time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []time.Duration
	for _, at := range s.arrived {
		all = append(all, at.Sub(start))
	}
	return all
}

// till is a client of s; the numbers of change are the test's.
func (s *service) till(t *testing.T, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{BaseURL: s.URL(), Token: token}
	if s.Addr() == "wallet.test:80" {
		cfg.DialContext = s.Dial
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mutation is one of the calls that change something, and the answer that it hopes for.
type mutation struct {
	name   string
	answer string
	call   func(t *testing.T, c *client.Client) error
}

var mutations = []mutation{
	{"debit", ok(http.StatusCreated, approval), func(t *testing.T, c *client.Client) error {
		_, err := c.Debit(t.Context(), key, asked)
		return err
	}},
	{"capture", ok(http.StatusAccepted, pending), func(t *testing.T, c *client.Client) error {
		_, err := c.Capture(t.Context(), key, paymentID, 0)
		return err
	}},
	{"release", ok(http.StatusAccepted, released), func(t *testing.T, c *client.Client) error {
		_, err := c.Release(t.Context(), key, paymentID)
		return err
	}},
	{"credit", ok(http.StatusAccepted, credited), func(t *testing.T, c *client.Client) error {
		_, err := c.Credit(t.Context(), key, client.CreditRequest{
			Account: asked.Account, AmountMinor: asked.AmountMinor, Currency: asked.Currency, Reference: asked.Reference, DebitID: paymentID,
		})
		return err
	}},
	{"cancel, which has no body", ok(http.StatusOK, cancelled), func(t *testing.T, c *client.Client) error {
		_, err := c.Cancel(t.Context(), client.KindDebit, key, nil)
		return err
	}},
}
