package walletsim_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// A wallet that is closed must leave nothing behind: thousands of them run in
// one process of the torture test.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Who investigates a run has only the file. If it told less than the memory that
// the checker saw, or told it later, the run could not be explained.
func TestTheFileHoldsTheBook(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "book.jsonl")
	const earlier = "{\"seq\":1,\"event\":\"of an earlier run\"}\n"
	if err := os.WriteFile(path, []byte(earlier), 0o600); err != nil {
		t.Fatal(err)
	}
	sim := start(t, walletsim.Config{BookFile: path})
	c := callerOf(t, sim)
	addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Reference: "r3"}, Fault: walletsim.LoseAnswer(walletsim.RST)})

	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			reference := fmt.Sprintf("r%d", i)
			_, err := c.try(t.Context(), http.MethodPost, "/v2/holds", reference, move(reference, rich, 10))
			if (err == nil) != (reference != "r3") {
				t.Errorf("%s: %v", reference, err)
			}
			// Written before the answer, or its loss, could be seen.
			text, err := os.ReadFile(path)
			if err != nil || !strings.Contains(string(text), `"event":"APPLIED","exchange"`) || !strings.Contains(string(text), `"`+reference+`"`) {
				t.Errorf("%s is not in the file by now (%v)", reference, err)
			}
		})
	}
	wg.Wait()
	if err := sim.WaitQuiet(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := sim.Close(); err != nil {
		t.Fatal(err)
	}

	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	if !lines.Scan() || lines.Text()+"\n" != earlier {
		t.Errorf("what the file held before is now %q", lines.Text())
	}
	var got []walletsim.Entry
	for lines.Scan() {
		var e walletsim.Entry
		if err := json.Unmarshal(lines.Bytes(), &e, json.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		got = append(got, e)
	}
	want := sim.Book()
	if len(want) != 1+3*20 {
		t.Errorf("%d lines, want the opening and three for each request", len(want))
	}
	equalTimes := cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })
	if diff := cmp.Diff(want, got, equalTimes, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("memory and file differ (-memory +file):\n%s", diff)
	}
}

// An oracle that cannot write must not go on as if it could: the money that it
// moves would be nobody's to check.
func TestAWalletWithoutItsBookMovesNothing(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no file here that is always full:", err)
	}
	sim, err := walletsim.New(walletsim.Config{BookFile: "/dev/full"})
	if err != nil {
		t.Fatal(err)
	}
	sim.SetBalance(rich, "EUR", richBalance)
	if err := sim.Start(t.Context(), "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	if got := callerOf(t, sim).post(t, "/v2/debits", "", move("r", rich, 10)); got.Status != http.StatusInternalServerError {
		t.Errorf("the debit got %+v, want 500", got)
	}
	wantBalance(t, sim, rich, richBalance, 0)
	if err := sim.Close(); err == nil {
		t.Error("Close does not say that the book could not be written")
	}
	if _, err := walletsim.New(walletsim.Config{BookFile: t.TempDir()}); err == nil {
		t.Error("a folder was taken for a book")
	}
}

// A person who reads the lines of one reference must be able to tell the story.
func TestTheBookTellsTheStoryOfAReference(t *testing.T) {
	t.Parallel()
	sim := start(t, walletsim.Config{OpenAccounts: true})
	c := callerOf(t, sim)
	body := move("ref", "LOST-berta", 10)
	if _, err := c.try(t.Context(), http.MethodPost, "/v2/debits", "key", body); err == nil {
		t.Error("there was an answer, want none")
	}
	if got := c.get(t, "/v2/operations/ref"); got.Status != http.StatusOK {
		t.Errorf("lookup: %+v", got)
	}
	if err := sim.WaitQuiet(t.Context()); err != nil {
		t.Fatal(err)
	}

	post := &walletsim.Request{
		Exchange: 1, Connection: 1, Method: "POST", Path: "/v2/debits", IdempotencyKey: "key", Body: body,
		HeaderNames: []string{"Accept-Encoding", "Connection", "Content-Length", "Content-Type", "Idempotency-Key", "User-Agent"},
		Version:     walletsim.V2, Operation: walletsim.Debit, Reference: "ref", Account: "LOST-berta", AmountMinor: 10, Currency: "EUR", Attempt: 1, Rule: "LOST",
	}
	get := &walletsim.Request{
		Exchange: 2, Connection: 2, Method: "GET", Path: "/v2/operations/ref", HeaderNames: []string{"Accept-Encoding", "Connection", "User-Agent"},
		Version: walletsim.V2, Operation: walletsim.Lookup, Reference: "ref", Account: "LOST-berta", Attempt: 1,
	}
	got := slices.DeleteFunc(sim.Book(), func(e walletsim.Entry) bool { return e.Request == nil || e.Reference != "ref" })
	if len(got) < 4 || got[2].Effect == nil {
		t.Fatalf("the book: %+v", got)
	}
	id := got[2].Effect.ID
	want := []walletsim.Entry{
		{Event: walletsim.Arrived, Request: post},
		{Event: walletsim.Opened, Request: post, Effect: &walletsim.Effect{Account: "LOST-berta", Currency: "EUR", AmountMinor: 100_000_000, BalanceChange: 100_000_000}},
		{Event: walletsim.Applied, Request: post, Effect: &walletsim.Effect{ID: id, Operation: walletsim.Debit, Account: "LOST-berta", AmountMinor: 10, Currency: "EUR", BalanceChange: -10}},
		{Event: walletsim.Answered, Request: post, Answer: &walletsim.Delivery{Status: 201, Body: `{"id":"` + id + `","reference":"ref","status":"APPLIED"}`, How: walletsim.None}},
		{Event: walletsim.Arrived, Request: get},
		{Event: walletsim.Answered, Request: get, Answer: &walletsim.Delivery{Status: 200, Body: `{"id":"` + id + `","reference":"ref","kind":"debit","status":"APPLIED"}`, How: walletsim.Whole}},
	}
	ignored := []cmp.Option{
		cmpopts.IgnoreFields(walletsim.Entry{}, "Seq", "At"), cmpopts.IgnoreFields(walletsim.Request{}, "Bytes"), cmpopts.IgnoreFields(walletsim.Delivery{}, "Bytes", "Of"),
		// The connection is dropped and the answer booked by two goroutines: the
		// lookup may come in between.
		cmpopts.SortSlices(func(a, b walletsim.Entry) bool { return a.Exchange < b.Exchange }),
	}
	if diff := cmp.Diff(want, got, ignored...); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Tests wait for the wallet by the book and not by the clock: a wait that missed
// a line, or never ended, would make them flaky.
func TestWaitForSeesEachLineOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, _ := startPiped(t, walletsim.Config{})
		var seen []int64
		found := make(chan walletsim.Entry)
		go func() {
			e, err := sim.WaitFor(t.Context(), func(e walletsim.Entry) bool {
				seen = append(seen, e.Seq)
				return e.Effect.AmountMinor == 3
			})
			if err != nil {
				t.Error(err)
			}
			found <- e
		}()
		for amount := range int64(5) {
			synctest.Wait()
			sim.SetBalance("x", "EUR", amount)
			if amount == 3 {
				if e := <-found; e.Seq != 5 {
					t.Errorf("found line %d, want 5", e.Seq)
				}
			}
		}
		if diff := cmp.Diff([]int64{1, 2, 3, 4, 5}, seen); diff != "" {
			t.Errorf("lines that were looked at (-want +got):\n%s", diff)
		}

		never := func(walletsim.Entry) bool { return false }
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := sim.WaitFor(ctx, never); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("WaitFor = %v, want the deadline", err)
		}
		closed := make(chan error)
		go func() {
			_, err := sim.WaitFor(t.Context(), never)
			closed <- err
		}()
		synctest.Wait()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
		if err := <-closed; !errors.Is(err, walletsim.ErrClosed) {
			t.Errorf("WaitFor = %v, want ErrClosed", err)
		}
	})
}

// What a killed wallet had not applied it never will, and it must not keep the
// test that killed it waiting for twenty minutes.
func TestCloseLeavesLateEffectsUndone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, client := startPiped(t, walletsim.Config{})
		addRule(t, sim, walletsim.Rule{Fault: walletsim.Late(20 * time.Minute)})
		client.Timeout = time.Second
		if _, err := (caller{sim.URL(), client}).try(t.Context(), http.MethodPost, "/v2/debits", "", move("r", rich, 10)); err == nil {
			t.Error("there was an answer, want none")
		}
		began := time.Now()
		if err := sim.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 0 || count(sim.Book(), of(walletsim.Applied, "r")) != 0 {
			t.Errorf("closing took %v, and the debit was applied %d times", took, count(sim.Book(), of(walletsim.Applied, "r")))
		}
	})
}

// Invariant I14: whatever is thrown at the wallet, money is neither made nor
// lost, and the accounts are what the book adds up to. On this all the checks of
// later tests stand.
func TestMoneyIsConstantUnderRandomOperations(t *testing.T) {
	t.Parallel()
	type step struct {
		path, reference, key, account string
		amount                        int64
		hold                          int // which of the holds so far
	}
	steps := rapid.Custom(func(t *rapid.T) step {
		reference := fmt.Sprintf("r%d", rapid.IntRange(0, 30).Draw(t, "reference"))
		return step{
			path:      rapid.SampledFrom([]string{"/v1/debits", "/v1/credits", "/v2/debits", "/v2/credits", "/v2/holds", "capture", "release"}).Draw(t, "path"),
			reference: reference,
			key:       rapid.SampledFrom([]string{"", reference}).Draw(t, "key"),
			account:   rapid.SampledFrom([]string{"a", "b", "POOR-c"}).Draw(t, "account"),
			amount:    rapid.Int64Range(1, 60_000_000).Draw(t, "amount"),
			hold:      rapid.IntRange(0, 10).Draw(t, "hold"),
		}
	})
	var made int
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		plan := rapid.SliceOfN(steps, 20, 50).Draw(rt, "plan")
		made += len(plan)
		// rapid must not be used in the bubble: it would not find the smallest plan.
		var broken error
		synctest.Test(t, func(t *testing.T) {
			sim, client := startPiped(t, walletsim.Config{OpenAccounts: true, Seed: seed})
			for _, fault := range []walletsim.Fault{
				walletsim.LoseAnswer(walletsim.FIN), walletsim.Late(time.Minute), walletsim.Down(), walletsim.Gateway(502),
				{Apply: walletsim.Pending, After: time.Minute},
				{Apply: walletsim.Pending, After: time.Second, Code: "FRAUD"},
				{Apply: walletsim.Refuse, Code: "FRAUD"},
				{ForgetDedupe: true},
				{Foreign: walletsim.ForeignReference},
			} {
				addRule(t, sim, walletsim.Rule{Match: walletsim.Match{Probability: 0.1}, Fault: fault})
			}
			client.Timeout = time.Second
			c := caller{sim.URL(), client}
			holds := []string{"none"}
			for _, step := range plan {
				path, body := step.path, move(step.reference, step.account, step.amount)
				hold := holds[step.hold%len(holds)]
				switch path {
				case "capture":
					path, body = "/v2/holds/"+hold+"/capture", fmt.Sprintf(`{"reference":%q,"amount":%d}`, step.reference, step.amount)
				case "release":
					path, body = "/v2/holds/"+hold+"/release", fmt.Sprintf(`{"reference":%q}`, step.reference)
				}
				got, err := c.try(t.Context(), http.MethodPost, path, step.key, body)
				if err == nil && path == "/v2/holds" && got.Status == http.StatusCreated {
					holds = append(holds, got.member("id"))
				}
				if broken = checkMoney(sim); broken != nil {
					return
				}
			}
			if err := sim.WaitQuiet(t.Context()); err != nil {
				t.Error(err)
			}
			broken = checkMoney(sim)
		})
		if broken != nil {
			rt.Fatal(broken)
		}
	})
	if made < 1000 && !t.Failed() {
		t.Errorf("only %d operations, want 1,000", made)
	}
}

// checkMoney says where the totals, the accounts, the holds and the book do not
// agree with each other.
func checkMoney(sim *walletsim.Sim) error {
	for currency, totals := range sim.Totals() {
		if !totals.Constant {
			return fmt.Errorf("money of %s was made or lost: %+v", currency, totals)
		}
	}
	balances, held := map[string]int64{}, map[string]int64{}
	for _, e := range sim.Book() {
		if e.Effect != nil {
			balances[e.Effect.Account] += e.Effect.BalanceChange
			held[e.Effect.Account] += e.Effect.HeldChange
		}
	}
	for _, account := range sim.Accounts() {
		got := []int64{account.Balances["EUR"], account.Held["EUR"]}
		if diff := cmp.Diff([]int64{balances[account.Account], held[account.Account]}, got); diff != "" {
			return fmt.Errorf("%s: the book and the account differ (-book +account):\n%s", account.Account, diff)
		}
		if got[0] < 0 || got[1] < 0 {
			return fmt.Errorf("%s is below nothing: %v", account.Account, got)
		}
		var sum int64
		for _, h := range account.Holds {
			sum += h.AmountMinor
		}
		if sum != got[1] {
			return fmt.Errorf("%s: its holds add up to %d, held is %d", account.Account, sum, got[1])
		}
		delete(balances, account.Account)
	}
	for account, change := range balances {
		if change != 0 {
			return fmt.Errorf("the book moves money of %q, which is no account", account)
		}
	}
	return nil
}
