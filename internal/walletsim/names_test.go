package walletsim_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// People try the service out by these names, and the README shows them: each
// must do what its line says.
func TestAccountNames(t *testing.T) {
	t.Parallel()
	type seen struct {
		Status   int // 0: no answer
		Code     string
		After    time.Duration // of the answer, or of its absence
		Now      string        // what a lookup says right afterwards
		InTheEnd string        // and when all is over
	}
	const gone = 10 * time.Second // when the client stops waiting
	for account, want := range map[string]seen{
		"anna":                    {Status: 201, Now: "APPLIED", InTheEnd: "APPLIED"},
		"slow-anna":               {Status: 201, Now: "APPLIED", InTheEnd: "APPLIED"}, // prefixes are in capitals
		"SLOW":                    {Status: 201, Now: "APPLIED", InTheEnd: "APPLIED"}, // and end in a dash
		"SLOW-700-anna":           {Status: 201, After: 700 * time.Millisecond, Now: "APPLIED", InTheEnd: "APPLIED"},
		"SLOW-anna":               {Status: 201, After: 1500 * time.Millisecond, Now: "APPLIED", InTheEnd: "APPLIED"},
		"LATE-60000-anna":         {After: gone, Now: "NOT_FOUND", InTheEnd: "APPLIED"},
		"LATE-anna":               {After: gone, Now: "APPLIED", InTheEnd: "APPLIED"},
		"HANG-anna":               {After: gone, Now: "NOT_FOUND", InTheEnd: "NOT_FOUND"},
		"DOWN-anna":               {Status: 503, Now: "NOT_FOUND", InTheEnd: "NOT_FOUND"},
		"GATEWAY-anna":            {Status: 502, Now: "APPLIED", InTheEnd: "APPLIED"},
		"LOST-anna":               {Now: "APPLIED", InTheEnd: "APPLIED"},
		"BLIND-anna":              {Now: "503", InTheEnd: "503"},
		"RESET-anna":              {Now: "NOT_FOUND", InTheEnd: "NOT_FOUND"},
		"CUT-anna":                {Now: "APPLIED", InTheEnd: "APPLIED"},
		"FOREIGN-anna":            {Status: 201, Now: "APPLIED", InTheEnd: "APPLIED"},
		"TWICE-anna":              {Status: 201, Now: "APPLIED", InTheEnd: "APPLIED"},
		"STATUS-418-anna":         {Status: 418, Now: "NOT_FOUND", InTheEnd: "NOT_FOUND"},
		"STATUS-anna":             {Status: 500, Now: "NOT_FOUND", InTheEnd: "NOT_FOUND"},
		"REDIRECT-anna":           {Status: 307, Now: "NOT_FOUND", InTheEnd: "NOT_FOUND"},
		"PENDING-60000-anna":      {Status: 202, Now: "PENDING", InTheEnd: "APPLIED"},
		"PENDING-anna":            {Status: 202, Now: "PENDING", InTheEnd: "APPLIED"},
		"REJECT-CARD_STOLEN-anna": {Status: 409, Code: "CARD_STOLEN", Now: "REJECTED", InTheEnd: "REJECTED"},
		"REJECT-anna":             {Status: 409, Code: "LIMIT_EXCEEDED", Now: "REJECTED", InTheEnd: "REJECTED"},
		"LOCKED-anna":             {Status: 423, Code: "ACCOUNT_LOCKED", Now: "REJECTED", InTheEnd: "REJECTED"},
		"MISSING-anna":            {Status: 404, Code: "ACCOUNT_NOT_FOUND", Now: "REJECTED", InTheEnd: "REJECTED"},
		"POOR-anna":               {Status: 409, Code: "INSUFFICIENT_FUNDS", Now: "REJECTED", InTheEnd: "REJECTED"},
	} {
		t.Run(account, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				sim, client := startPiped(t, walletsim.Config{OpenAccounts: true})
				client.Timeout = gone
				client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				c := caller{sim.URL(), client}
				lookup := func() string {
					got := c.get(t, "/v2/operations/ref")
					if standing := got.member("status") + got.member("code"); got.Status == http.StatusNotFound || standing == "PENDING" || standing == "APPLIED" {
						return standing
					}
					if got.member("status") != "" {
						return got.member("status")
					}
					return fmt.Sprint(got.Status)
				}
				began := time.Now()
				got := seen{}
				answer, err := c.try(t.Context(), http.MethodPost, "/v2/debits", "ref", move("ref", account, 10))
				got.After = time.Since(began)
				if err == nil {
					got.Status, got.Code = answer.Status, answer.member("code")
				}
				got.Now = lookup()
				if err := sim.WaitQuiet(t.Context()); err != nil {
					t.Fatal(err)
				}
				got.InTheEnd = lookup()
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}

// Rules are copied from the page: one that is refused teaches nobody anything.
func TestThePagesRulesAreRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/walletsim.md")
	if err != nil {
		t.Fatal(err)
	}
	rules := 0
	for _, call := range strings.Split(string(page), "/control/rules -d '")[1:] {
		text, _, _ := strings.Cut(call, "'")
		if _, err := walletsim.ParseRule([]byte(text)); err != nil {
			t.Errorf("%s\n%v", text, err)
		}
		rules++
	}
	if rules != 3 {
		t.Errorf("the page has %d rules that could be found, want 3", rules)
	}
}

// A page that promises another fault than the program has sends its reader to
// look for a bug in the wrong place.
func TestThePageTellsEveryName(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/walletsim.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, name := range walletsim.Names() {
		row := fmt.Sprintf("| `%s` | %s | %s |", name.Example, name.Does, name.Shows)
		if !strings.Contains(text, row) {
			t.Errorf("docs/walletsim.md lacks this row:\n%s", row)
		}
		if !strings.HasPrefix(name.Example, name.Prefix+"-") {
			t.Errorf("the example of %s is %s", name.Prefix, name.Example)
		}
	}
}
