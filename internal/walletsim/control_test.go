package walletsim_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// Tests in other processes, and people, have only control: it must reach all
// that the Go API reaches, and never fail in silence.
func TestControl(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	call := func(method, path, body string, want int) answered {
		t.Helper()
		got, err := c.try(t.Context(), method, "/control"+path, "", body)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		if got.Status != want {
			t.Errorf("%s %s: %+v, want %d", method, path, got, want)
		}
		return got
	}
	equal := func(got answered, want string) {
		t.Helper()
		if diff := cmp.Diff(want+"\n", got.Body); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}

	equal(call("PUT", "/accounts/berta", `{"balances":{"EUR":1000,"USD":5}}`, 200), `{"account":"berta","balances":{"EUR":1000,"USD":5},"held":{},"locked":false,"holds":[]}`)
	equal(call("PUT", "/accounts/berta", `{"locked":true}`, 200), `{"account":"berta","balances":{"EUR":1000,"USD":5},"held":{},"locked":true,"holds":[]}`)
	if got := c.post(t, "/v2/debits", "", move("locked", "berta", 1)); got.member("code") != "ACCOUNT_LOCKED" {
		t.Errorf("debit of a locked account: %+v", got)
	}
	call("PUT", "/accounts/berta", `{"locked":false}`, 200)
	hold := c.post(t, "/v2/holds", "", move("hold", "berta", 300)).member("id")
	equal(call("GET", "/accounts/berta", "", 200), fmt.Sprintf(`{"account":"berta","balances":{"EUR":700,"USD":5},"held":{"EUR":300},"locked":false,"holds":[{"id":%q,"reference":"hold","amount":300,"currency":"EUR"}]}`, hold))
	equal(call("GET", "/totals", "", 200), `{"EUR":{"opened":101000,"balances":100700,"held":300,"netDebits":0,"constant":true},"USD":{"opened":5,"balances":5,"held":0,"netDebits":0,"constant":true}}`)
	if got := call("GET", "/accounts", "", 200); strings.Count(got.Body, `"account":`) != 2 {
		t.Errorf("accounts: %s, want anna and berta", got.Body)
	}

	equal(call("POST", "/rules", `{"name":"lost","match":{"operation":"debit","account":"berta","from":1,"count":1},"fault":{"delayBefore":"1ms","cut":{"at":"AFTER_APPLYING","how":"RST"}}}`, 201), `{"id":1}`)
	if _, err := c.try(t.Context(), http.MethodPost, "/v2/debits", "", move("lost", "berta", 1)); err == nil {
		t.Error("the rule did not strike")
	}
	equal(call("GET", "/rules", "", 200), `{"rules":[{"id":1,"name":"lost","match":{"operation":"debit","account":"berta","from":1,"count":1},"fault":{"delayBefore":"1ms","cut":{"at":"AFTER_APPLYING","how":"RST"}},"seen":1,"hits":1}]}`)
	equal(call("DELETE", "/rules/1", "", 200), `{"rules":[]}`)
	call("POST", "/rules", `{"fault":{}}`, 201)
	equal(call("DELETE", "/rules", "", 200), `{"rules":[]}`)

	wait(t, sim, of(walletsim.Answered, "lost"))
	equal(call("GET", "/state", "", 200), fmt.Sprintf(`{"requests":%d,"connections":%d,"lines":%d,"busy":0}`, sim.State().Requests, sim.State().Connections, sim.State().Lines))
	if sim.State().Requests != 3 || len(sim.Book()) != int(sim.State().Lines) {
		t.Errorf("the state is %+v, with %d lines", sim.State(), len(sim.Book()))
	}

	var book struct {
		Entries []walletsim.Entry `json:"entries"`
		Last    int64             `json:"last"`
	}
	if err := json.Unmarshal([]byte(call("GET", "/book?reference=lost", "", 200).Body), &book); err != nil {
		t.Fatal(err)
	}
	if len(book.Entries) != 3 || book.Entries[1].Event != walletsim.Applied || book.Entries[2].Answer.How != walletsim.None {
		t.Errorf("the book of the lost debit: %+v", book.Entries)
	}
	since := book.Last
	if err := json.Unmarshal([]byte(call("GET", fmt.Sprintf("/book?since=%d", since), "", 200).Body), &book); err != nil {
		t.Fatal(err)
	}
	if len(book.Entries) != 0 || book.Last != since {
		t.Errorf("the book since line %d: %+v, want nothing: control is not booked", since, book)
	}

	equal(call("POST", "/forget-dedupe", `{"reference":"lost"}`, 200), `{"forgotten":1}`)
	if got := c.post(t, "/v2/debits", "", move("lost", "berta", 1)); got.Status != http.StatusCreated {
		t.Errorf("debit of a forgotten reference: %+v, want 201", got)
	}
	equal(call("POST", "/forget-dedupe", "", 200), `{"forgotten":3}`)
	equal(call("PUT", "/connections", `{"idleClose":"1m0s"}`, 200), `{"idleClose":"1m0s"}`)
	equal(call("POST", "/connections/close-idle", "", 200), `{"closed":0}`)

	for _, refused := range []struct {
		method, path, body string
		status             int
	}{
		{"GET", "/nothing", "", 404},
		{"POST", "/accounts/berta", "{}", 404},
		{"GET", "/accounts/berta/holds", "", 404},
		{"GET", "/accounts/nobody", "", 404},
		{"PUT", "/accounts/nobody", `{"locked":true}`, 404},
		{"PUT", "/accounts/bad%20name", `{"balances":{"EUR":1}}`, 400},
		{"PUT", "/accounts/berta", `{"balances":{"EUR":-1}}`, 400},
		{"PUT", "/accounts/berta", `{"balances":{"eur":1}}`, 400},
		{"PUT", "/accounts/berta", `{"balance":1}`, 400},
		{"GET", "/book?since=x", "", 400},
		{"POST", "/rules", `{"fault":{"delay":"1ms"}}`, 400},
		{"POST", "/rules", `{"fault":{"delayAfter":5}}`, 400},
		{"POST", "/rules", `{"fault":{"apply":"NEVER"}}`, 400},
		{"DELETE", "/rules/99", "", 404},
		{"PUT", "/connections", `{}`, 400},
		{"POST", "/refuse", `{"for":"0s"}`, 400},
	} {
		got := call(refused.method, refused.path, refused.body, refused.status)
		if got.member("error") == "" {
			t.Errorf("%s %s does not say what is wrong: %q", refused.method, refused.path, got.Body)
		}
	}
	if got := call("GET", "", "", 200); !strings.Contains(got.Body, "GET /control/totals") {
		t.Errorf("control does not say what there is: %s", got.Body)
	}
	equal(call("GET", "/accounts/berta", "", 200), fmt.Sprintf(`{"account":"berta","balances":{"EUR":698,"USD":5},"held":{"EUR":300},"locked":false,"holds":[{"id":%q,"reference":"hold","amount":300,"currency":"EUR"}]}`, hold))
}

// Who makes the wallet refuse connections could not reach it to take that back.
func TestControlRefusesForAWhile(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	refuse := func() {
		t.Helper()
		got, err := c.try(t.Context(), http.MethodPost, "/control/refuse", "", `{"for":"50ms"}`)
		if err != nil || got.Status != http.StatusOK {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	refuse()
	refused := false
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		_, err := c.try(t.Context(), http.MethodGet, "/v2/operations/r", "", "")
		switch {
		case err == nil && refused:
			return
		case err == nil: // it was over before we came
			refuse()
		}
		refused = refused || errors.Is(err, syscall.ECONNREFUSED)
	}
	t.Errorf("refused: %v, and never answered again", refused)
}

// A rule in a file or a request must be the rule that its author reads there.
func TestARuleIsTheSameInJSON(t *testing.T) {
	t.Parallel()
	want := walletsim.Rule{
		Name:  "all of it",
		Match: walletsim.Match{Version: walletsim.V2, Operation: walletsim.Hold, Account: "a", Reference: "r", Attempt: 2, From: 3, Count: 4, Probability: 0.5},
		Fault: walletsim.Fault{
			DelayBefore: time.Second, DelayAfter: time.Minute, Apply: walletsim.Pending, After: 20 * time.Minute, Code: "C", ForgetDedupe: true,
			Cut: walletsim.Ending{At: walletsim.MidBody, How: walletsim.Hang}, Status: new(0), Body: new(""), ContentType: "t", Header: map[string]string{"A": "b"},
			Interim: []int{102}, Foreign: walletsim.ForeignAmount, Padding: 1, Framing: walletsim.ByChunks, Missing: 2, Trickle: 3, Duplicate: true, DuplicateAfter: 4,
		},
	}
	got, err := walletsim.ParseRule([]byte(`{"name":"all of it",
		"match":{"version":"v2","operation":"hold","account":"a","reference":"r","attempt":2,"from":3,"count":4,"probability":0.5},
		"fault":{"delayBefore":"1s","delayAfter":"1m","apply":"PENDING","after":"20m","code":"C","forgetDedupe":true,
			"cut":{"at":"MID_BODY","how":"HANG"},"status":0,"body":"","contentType":"t","header":{"A":"b"},
			"interim":[102],"foreign":"AMOUNT","padding":1,"framing":"CHUNKED","missing":2,"trickle":"3ns","duplicate":true,"duplicateAfter":"4ns"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
