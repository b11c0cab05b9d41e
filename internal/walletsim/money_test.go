package walletsim_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// A service that is tested against a wallet which answers something else than
// contract section 3 would be found right and then fail against a real one.
func TestMovesAnswerAsTheContractSays(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)

	debit := c.post(t, "/v1/debits", "", move("v1-debit", rich, 100))
	if debit.Status != http.StatusCreated || debit.Body != fmt.Sprintf(`{"debitId":%q}`, debit.member("debitId")) || debit.member("debitId") == "" {
		t.Errorf("v1 debit: %+v", debit)
	}
	credit := c.post(t, "/v1/credits", "", move("v1-credit", rich, 40))
	if credit.Status != http.StatusCreated || credit.member("creditId") == "" {
		t.Errorf("v1 credit: %+v", credit)
	}
	wantBalance(t, sim, rich, richBalance-60, 0)

	for path, change := range map[string]int64{"/v2/debits": -7, "/v2/credits": 7} {
		reference := strings.Trim(strings.ReplaceAll(path, "/", "-"), "-")
		before := sim.Balance(rich, "EUR")
		got := c.post(t, path, reference, move(reference, rich, 7))
		want := answered{http.StatusCreated, fmt.Sprintf(`{"id":%q,"reference":%q,"status":"APPLIED"}`, got.member("id"), reference)}
		if diff := cmp.Diff(want, got); diff != "" || got.member("id") == "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
		wantBalance(t, sim, rich, before+change, 0)
	}

	for path, want := range map[string]answered{
		"/v1/debits?reference=v1-debit":   {http.StatusOK, fmt.Sprintf(`{"debitId":%q,"reference":"v1-debit","status":"APPLIED"}`, debit.member("debitId"))},
		"/v1/credits?reference=v1-credit": {http.StatusOK, fmt.Sprintf(`{"creditId":%q,"reference":"v1-credit","status":"APPLIED"}`, credit.member("creditId"))},
		"/v2/operations/v1-credit":        {http.StatusOK, fmt.Sprintf(`{"id":%q,"reference":"v1-credit","kind":"credit","status":"APPLIED"}`, credit.member("creditId"))},
	} {
		if diff := cmp.Diff(want, c.get(t, path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	for _, path := range []string{"/v1/debits?reference=never", "/v1/debits?reference=v1-credit", "/v1/credits?reference=v1-debit", "/v2/operations/never"} {
		if got := c.get(t, path); got.Status != http.StatusNotFound || got.member("code") != "NOT_FOUND" {
			t.Errorf("%s: %+v, want 404 NOT_FOUND", path, got)
		}
	}
}

// A caller that does not get the wallet's own verdict, with its status, would
// tell a poor customer that the wallet is out of order.
func TestRefusalsCarryTheirCodeAndAreRemembered(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	sim.SetBalance("locked", "EUR", 1000)
	sim.Lock("locked", true)

	for _, tt := range []struct {
		account string
		amount  int64
		status  int
		code    string
	}{
		{rich, richBalance + 1, http.StatusConflict, "INSUFFICIENT_FUNDS"},
		{"nobody", 1, http.StatusNotFound, "ACCOUNT_NOT_FOUND"},
		{"locked", 1, http.StatusLocked, "ACCOUNT_LOCKED"},
	} {
		for _, path := range []string{"/v1/debits", "/v2/debits", "/v2/holds"} {
			reference := fmt.Sprintf("%s-%s", tt.code, strings.ReplaceAll(path[1:], "/", "-"))
			got := c.post(t, path, "", move(reference, tt.account, tt.amount))
			if got.Status != tt.status || got.member("code") != tt.code {
				t.Errorf("%s of %s: %+v, want %d %s", path, tt.account, got, tt.status, tt.code)
			}
			found := c.get(t, "/v2/operations/"+reference)
			if found.Status != http.StatusOK || found.member("status") != "REJECTED" || found.member("code") != tt.code {
				t.Errorf("lookup of %s: %+v, want REJECTED %s", reference, found, tt.code)
			}
		}
		// Version 1 has no word for a rejection: it has nothing to show.
		if got := c.get(t, "/v1/debits?reference="+tt.code+"-v1-debits"); got.member("code") != "NOT_FOUND" {
			t.Errorf("v1 lookup of a refused debit: %+v, want NOT_FOUND", got)
		}
	}
	wantBalance(t, sim, rich, richBalance, 0)

	forgetful := start(t, walletsim.Config{ForgetRejections: true})
	c = callerOf(t, forgetful)
	c.post(t, "/v2/debits", "", move("too-much", rich, richBalance+1))
	if got := c.get(t, "/v2/operations/too-much"); got.Status != http.StatusNotFound || got.member("code") != "NOT_FOUND" {
		t.Errorf("lookup at a wallet that forgets rejections: %+v, want 404 NOT_FOUND", got)
	}
}

// The wallet's own duplicate check is the last wall against a second debit
// (contract section 3): if this one does not stand here, tests of everything in
// front of it prove nothing.
func TestAReferenceIsAppliedOnce(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)

	first := c.post(t, "/v1/debits", "", move("r1", rich, 10))
	again := c.post(t, "/v1/debits", "", move("r1", rich, 10))
	if again.Status != http.StatusConflict || again.member("code") != "DUPLICATE_REFERENCE" || again.member("existingDebitId") != first.member("debitId") {
		t.Errorf("v1 debit again: %+v, want 409 DUPLICATE_REFERENCE of %s", again, first.member("debitId"))
	}
	firstCredit := c.post(t, "/v1/credits", "", move("r2", rich, 10))
	again = c.post(t, "/v1/credits", "", move("r2", rich, 10))
	if again.member("code") != "DUPLICATE_REFERENCE" || again.member("existingCreditId") != firstCredit.member("creditId") {
		t.Errorf("v1 credit again: %+v, want DUPLICATE_REFERENCE of %s", again, firstCredit.member("creditId"))
	}

	first = c.post(t, "/v2/debits", "key-3", move("r3", rich, 10))
	if diff := cmp.Diff(first, c.post(t, "/v2/debits", "key-3", move("r3", rich, 10))); diff != "" {
		t.Errorf("a repeated key did not get the first answer (-first +second):\n%s", diff)
	}
	for _, key := range []string{"", "another-key"} {
		got := c.post(t, "/v2/debits", key, move("r3", rich, 10))
		if got.Status != http.StatusConflict || got.member("code") != "DUPLICATE_REFERENCE" {
			t.Errorf("reference again with key %q: %+v, want 409 DUPLICATE_REFERENCE", key, got)
		}
	}
	if got := c.post(t, "/v2/debits", "key-3", move("r4", rich, 10)); got.Status != http.StatusUnprocessableEntity || got.member("code") != "IDEMPOTENCY_KEY_REUSED" {
		t.Errorf("key again with another request: %+v, want 422 IDEMPOTENCY_KEY_REUSED", got)
	}
	wantBalance(t, sim, rich, richBalance-10+10-10, 0)
	if got := count(sim.Book(), of(walletsim.Applied, "r3")); got != 1 {
		t.Errorf("r3 was applied %d times, want once", got)
	}
}

// Only a first 2xx is repeated: an account that has been topped up since must
// not go on refusing what was refused once.
func TestARefusedReferenceMayBeTriedAgain(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	for _, path := range []string{"/v1/debits", "/v2/debits"} {
		reference := strings.ReplaceAll(path[1:], "/", "-")
		sim.SetBalance("poor", "EUR", 0)
		if got := c.post(t, path, reference, move(reference, "poor", 5)); got.member("code") != "INSUFFICIENT_FUNDS" {
			t.Fatalf("%s: %+v", path, got)
		}
		sim.SetBalance("poor", "EUR", 5)
		if got := c.post(t, path, reference, move(reference, "poor", 5)); got.Status != http.StatusCreated {
			t.Errorf("%s after a top-up: %+v, want 201", path, got)
		}
		if got := c.get(t, "/v2/operations/"+reference); got.member("status") != "APPLIED" {
			t.Errorf("lookup: %+v, want APPLIED", got)
		}
		wantBalance(t, sim, "poor", 0, 0)
	}
}

// A worker that repeats a capture or release must meet exactly the refusals that
// the contract knows, and money that is held must come back once.
func TestTheLifeOfAHold(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	hold := func(reference string) string {
		t.Helper()
		got := c.post(t, "/v2/holds", reference, move(reference, rich, 1000))
		if got.Status != http.StatusCreated || got.member("status") != "APPLIED" {
			t.Fatalf("hold: %+v", got)
		}
		return got.member("id")
	}
	refused := func(got answered, status int, code string) {
		t.Helper()
		if got.Status != status || got.member("code") != code {
			t.Errorf("got %+v, want %d %s", got, status, code)
		}
	}

	captured := hold("hold-1")
	wantBalance(t, sim, rich, richBalance-1000, 1000)
	refused(c.post(t, "/v2/holds/"+captured+"/capture", "c0", `{"reference":"c0","amount":1001}`), http.StatusConflict, "AMOUNT_EXCEEDS_HOLD")
	wantBalance(t, sim, rich, richBalance-1000, 1000)
	got := c.post(t, "/v2/holds/"+captured+"/capture", "c1", `{"reference":"c1","amount":700}`)
	want := answered{http.StatusOK, fmt.Sprintf(`{"id":%q,"reference":"c1","status":"APPLIED"}`, got.member("id"))}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("capture (-want +got):\n%s", diff)
	}
	wantBalance(t, sim, rich, richBalance-700, 0) // what was not captured has come back
	if diff := cmp.Diff(got, c.post(t, "/v2/holds/"+captured+"/capture", "c1", `{"reference":"c1","amount":700}`)); diff != "" {
		t.Errorf("capture again with its key (-first +second):\n%s", diff)
	}
	refused(c.post(t, "/v2/holds/"+captured+"/capture", "c2", `{"reference":"c2","amount":1}`), http.StatusConflict, "HOLD_ALREADY_CAPTURED")
	refused(c.post(t, "/v2/holds/"+captured+"/release", "l0", `{"reference":"l0"}`), http.StatusConflict, "HOLD_ALREADY_CAPTURED")

	released := hold("hold-2")
	if got := c.post(t, "/v2/holds/"+released+"/release", "l1", `{"reference":"l1"}`); got.Status != http.StatusOK || got.member("reference") != "l1" {
		t.Errorf("release: %+v", got)
	}
	wantBalance(t, sim, rich, richBalance-700, 0)
	refused(c.post(t, "/v2/holds/"+released+"/release", "l2", `{"reference":"l2"}`), http.StatusConflict, "HOLD_NOT_ACTIVE")
	refused(c.post(t, "/v2/holds/"+released+"/capture", "c3", `{"reference":"c3","amount":1}`), http.StatusConflict, "HOLD_NOT_ACTIVE")
	refused(c.post(t, "/v2/holds/none/release", "l3", `{"reference":"l3"}`), http.StatusNotFound, "HOLD_NOT_FOUND")
	refused(c.post(t, "/v2/holds/"+debitID(t, c)+"/release", "l4", `{"reference":"l4"}`), http.StatusNotFound, "HOLD_NOT_FOUND")
	wantBalance(t, sim, rich, richBalance-701, 0)

	// A hold whose account was locked since still lets go of its money.
	last := hold("hold-3")
	sim.Lock(rich, true)
	if got := c.post(t, "/v2/holds/"+last+"/release", "l5", `{"reference":"l5"}`); got.Status != http.StatusOK {
		t.Errorf("release of a locked account's hold: %+v", got)
	}
	for reference, kind := range map[string]string{"hold-1": "hold", "c1": "capture", "l1": "release"} {
		if got := c.get(t, "/v2/operations/"+reference); got.member("kind") != kind || got.member("status") != "APPLIED" {
			t.Errorf("lookup of %s: %+v, want %s APPLIED", reference, got, kind)
		}
	}
}

func debitID(t *testing.T, c caller) string {
	t.Helper()
	return c.post(t, "/v2/debits", "", move("a-debit", rich, 1)).member("id")
}

// A caller's mistake must be the caller's to see: a simulated wallet that takes
// anything would hide it until a real one refuses.
func TestABadRequestIsRefusedAndNothingMoves(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	for name, body := range map[string]string{
		"not JSON":         `reference=r`,
		"missing member":   `{"reference":"r","account":"anna","amount":1}`,
		"unknown member":   `{"reference":"r","account":"anna","amount":1,"currency":"EUR","note":"x"}`,
		"duplicate member": `{"reference":"r","reference":"r","account":"anna","amount":1,"currency":"EUR"}`,
		"fraction":         `{"reference":"r","account":"anna","amount":1.5,"currency":"EUR"}`,
		"amount as string": `{"reference":"r","account":"anna","amount":"1","currency":"EUR"}`,
		"nothing":          move("r", rich, 0),
		"negative":         move("r", rich, -1),
		"beyond 2^53-1":    move("r", rich, 1<<53),
		"no reference":     move("", rich, 1),
		"long reference":   move(strings.Repeat("r", 129), rich, 1),
		"bad account":      move("r", "an na", 1),
		"trailing data":    move("r", rich, 1) + "{}",
	} {
		for _, path := range []string{"/v1/debits", "/v2/credits"} {
			if got := c.post(t, path, "", body); got.Status != http.StatusBadRequest || got.member("code") != "INVALID_REQUEST" {
				t.Errorf("%s with %s: %+v, want 400 INVALID_REQUEST", path, name, got)
			}
		}
	}
	if got := c.post(t, "/v2/debits", "", `{"reference":"`+strings.Repeat("r", 64<<10)+`"}`); got.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("body beyond 64 KiB: status %d, want 413", got.Status)
	}
	wantBalance(t, sim, rich, richBalance, 0)
}

// A lookup that went to a path which does not exist must not read like the
// wallet's own "no such operation" (traps C32).
func TestAnUnknownPathIsNotTheWalletsWord(t *testing.T) {
	t.Parallel()
	c := callerOf(t, start(t, walletsim.Config{Versions: []walletsim.Version{walletsim.V1}}))
	for _, path := range []string{"/", "/v3/debits", "/v1/holds", "/v2/operations/r1", "/v1/debits/r1"} {
		if got := c.get(t, path); got.Status != http.StatusNotFound || got.member("code") != "" {
			t.Errorf("GET %s: %+v, want a 404 without a code", path, got)
		}
	}
	got, err := c.try(t.Context(), http.MethodDelete, "/v1/debits", "", "")
	if err != nil || got.Status != http.StatusMethodNotAllowed || got.member("code") != "" {
		t.Errorf("DELETE: %+v, %v, want a 405 without a code", got, err)
	}
}

// The token may be rotated while requests are on their way: during the change
// both must do, and afterwards the old one must not.
func TestTheTokenIsAskedForAndNeverBooked(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{Tokens: []string{"first-secret"}})
	call := func(token string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, sim.URL()+"/v2/operations/r", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := callerOf(t, sim).client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	steps := []struct {
		token string
		want  int
	}{{"", 401}, {"first-secret", 404}, {"second-secret", 401}}
	for _, step := range steps {
		if got := call(step.token); got != step.want {
			t.Errorf("with token %q: %d, want %d", step.token, got, step.want)
		}
	}
	sim.SetTokens("first-secret", "second-secret")
	if a, b := call("first-secret"), call("second-secret"); a != 404 || b != 404 {
		t.Errorf("during the rotation: %d and %d, want both 404", a, b)
	}
	sim.SetTokens("second-secret")
	if got := call("first-secret"); got != 401 {
		t.Errorf("after the rotation: %d, want 401", got)
	}
	for _, e := range sim.Book() {
		if text := fmt.Sprintf("%+v %+v", e, e.Request); strings.Contains(text, "secret") {
			t.Errorf("the book holds a token: %s", text)
		}
	}
}

// A wallet forgets references one day, and only then is an old retry a second
// debit (traps Q7): a test of that needs a wallet that forgets.
func TestDedupeIsForgottenAfterItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := startPiped(t, walletsim.Config{DedupeFor: time.Hour})
		c := caller{sim.URL(), client}
		c.post(t, "/v2/debits", "k", move("r", rich, 10))
		<-time.After(time.Hour - 1)
		c.post(t, "/v2/debits", "k", move("r", rich, 10))
		wantBalance(t, sim, rich, richBalance-10, 0)
		<-time.After(1)
		c.post(t, "/v2/debits", "k", move("r", rich, 10))
		wantBalance(t, sim, rich, richBalance-20, 0)

		if n := sim.ForgetDedupe("r"); n != 2 {
			t.Errorf("ForgetDedupe = %d, want 2", n)
		}
		c.post(t, "/v2/debits", "k", move("r", rich, 10))
		wantBalance(t, sim, rich, richBalance-30, 0)
	})
}

// Tests count effects of many callers at once. If two requests with one
// reference could both be applied, or money be lost between two debits, the
// oracle would accuse the innocent.
func TestManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	const references, each = 20, 8
	var wg sync.WaitGroup
	for i := range references {
		for range each {
			wg.Go(func() {
				reference := fmt.Sprintf("r%d", i)
				if _, err := c.try(t.Context(), http.MethodPost, "/v2/debits", reference, move(reference, rich, 10)); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	wantBalance(t, sim, rich, richBalance-10*references, 0)
	book := sim.Book()
	if got := count(book, func(e walletsim.Entry) bool { return e.Event == walletsim.Applied }); got != references {
		t.Errorf("%d were applied, want %d", got, references)
	}
	if got := count(book, func(e walletsim.Entry) bool { return e.Event == walletsim.Arrived }); got != references*each {
		t.Errorf("%d have arrived, want %d", got, references*each)
	}
	for i, e := range book {
		if e.Seq != int64(i)+1 {
			t.Fatalf("line %d has seq %d", i+1, e.Seq)
		}
	}
}

// A key gets the first answer again, also where its reference has been used once more
// meanwhile by a request that the wallet did not recognise.
func TestAKeyIsKnownBehindALaterUseOfItsReference(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{})
	c := callerOf(t, sim)
	first := c.post(t, "/v2/debits", "r", move("r", rich, 10))
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Attempt: 2}, Fault: walletsim.Fault{ForgetDedupe: true}})
	if second := c.post(t, "/v2/debits", "another-key", move("r", rich, 10)); second.Status != http.StatusCreated || second.member("id") == first.member("id") {
		t.Fatalf("a debit that is not recognised: %+v", second)
	}
	if diff := cmp.Diff(first, c.post(t, "/v2/debits", "r", move("r", rich, 10))); diff != "" {
		t.Errorf("the first key again (-first +now):\n%s", diff)
	}
	wantBalance(t, sim, rich, richBalance-20, 0)
}
