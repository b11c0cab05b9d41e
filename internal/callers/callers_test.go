package callers_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/internal/callers"
)

func parse(t testing.TB, content string) *callers.Set {
	t.Helper()
	set, err := callers.Parse([]byte(content))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return set
}

// A till whose token is being rotated holds the old one or the new one for a
// while, and must be the same caller with both: the caller is part of the
// identity of every payment.
func TestEveryTokenOfACallerIsThatCaller(t *testing.T) {
	t.Parallel()
	set := parse(t, fmt.Sprintf(`{"callers": [
		{"name": "store-17", "tokenSha256": [%q, %q], "scopes": ["till"]},
		{"name": "office", "tokenSha256": %q, "scopes": ["payout", "operator"]}
	]}`, callers.HashToken("old"), callers.HashToken("new"), strings.ToUpper(callers.HashToken("office-token"))))

	for presented, want := range map[string]string{"old": "store-17", "new": "store-17", "office-token": "office"} {
		caller, ok := set.Authenticate(presented)
		if !ok || caller.Name != want {
			t.Errorf("Authenticate(%q) = %q, %v, want %q", presented, caller.Name, ok, want)
		}
	}
	for _, presented := range []string{"", "ol", "old ", "OLD", callers.HashToken("old")} {
		if caller, ok := set.Authenticate(presented); ok {
			t.Errorf("Authenticate(%q) = %q, want nobody", presented, caller.Name)
		}
	}
}

// A caller that may do more than its file says moves money that nobody allowed.
func TestACallerHasExactlyItsScopes(t *testing.T) {
	t.Parallel()
	set := parse(t, fmt.Sprintf(`{"callers": [{"name": "office", "tokenSha256": %q, "scopes": ["payout", "operator"]}]}`,
		callers.HashToken("token")))
	caller, _ := set.Authenticate("token")
	for scope, want := range map[callers.Scope]bool{
		callers.Till: false, callers.Payout: true, callers.Operator: true, "": false, "admin": false,
	} {
		if got := caller.Has(scope); got != want {
			t.Errorf("Has(%q) = %v, want %v", scope, got, want)
		}
	}
}

// Whoever edits the file by hand must hear what is wrong and where, before a
// till is turned away; and what they hear goes to the log, so it may not repeat
// a hash, nor a token that was put there by mistake.
func TestABadFileIsRefusedAtItsPlaceWithoutItsSecrets(t *testing.T) {
	t.Parallel()
	const secret = "a-token-in-clear-by-mistake"
	hash := callers.HashToken(secret)
	entry := func(name, tokens, scopes string) string {
		return fmt.Sprintf(`{"name": %s, "tokenSha256": %s, "scopes": %s}`, name, tokens, scopes)
	}
	list := func(entries ...string) string { return `{"callers": [` + strings.Join(entries, ",") + `]}` }
	quoted := `"` + hash + `"`
	good := entry(`"store-17"`, quoted, `["till"]`)
	other := callers.HashToken("another")

	tests := map[string]struct{ content, want string }{
		"empty":                       {"", "the document: is not valid JSON"},
		"not JSON":                    {"callers:", "the document: is not valid JSON"},
		"another type":                {`[]`, "the document: has the wrong type"},
		"trailing data":               {list(good) + `{}`, "the document: is not valid JSON"},
		"no callers":                  {`{}`, "/callers: must list"},
		"null callers":                {`{"callers": null}`, "/callers: must list"},
		"nobody":                      {`{"callers": []}`, "/callers: must list"},
		"unknown member":              {`{"callers": [], "version": 1}`, "/version: is not a known member"},
		"unknown member of a caller":  {list(`{"name": "a", "token": ` + quoted + `}`), "/callers/0/token: is not a known member"},
		"another case":                {`{"Callers": []}`, "/Callers: is not a known member"},
		"member twice":                {list(`{"name": "a", "name": "b"}`), "/callers/0/name: is there twice"},
		"invalid UTF-8":               {list("{\"name\": \"a\xff\"}"), "is not valid JSON"},
		"no name":                     {list(`{"tokenSha256": ` + quoted + `, "scopes": ["till"]}`), "/callers/0/name: must be"},
		"null name":                   {list(entry(`null`, quoted, `["till"]`)), "/callers/0/name: must be"},
		"number as name":              {list(entry(`17`, quoted, `["till"]`)), "/callers/0/name: has the wrong type"},
		"name with a space":           {list(entry(`"store 17"`, quoted, `["till"]`)), "/callers/0/name: must be"},
		"name not ASCII":              {list(entry(`"café"`, quoted, `["till"]`)), "/callers/0/name: must be"},
		"name too long":               {list(entry(`"`+strings.Repeat("a", 65)+`"`, quoted, `["till"]`)), "/callers/0/name: must be"},
		"name twice":                  {list(good, entry(`"store-17"`, `"`+other+`"`, `["till"]`)), `/callers/1/name: "store-17" is there twice`},
		"no token":                    {list(`{"name": "a", "scopes": ["till"]}`), "/callers/0/tokenSha256: must be"},
		"null token":                  {list(entry(`"a"`, `null`, `["till"]`)), "/callers/0/tokenSha256: must be"},
		"no token in the list":        {list(entry(`"a"`, `[]`, `["till"]`)), "/callers/0/tokenSha256: must be"},
		"null in the list of tokens":  {list(entry(`"a"`, `[null]`, `["till"]`)), "/callers/0/tokenSha256: must be"},
		"number as token":             {list(entry(`"a"`, `1`, `["till"]`)), "/callers/0/tokenSha256: has the wrong type"},
		"token in clear":              {list(entry(`"a"`, `"`+secret+`"`, `["till"]`)), "/callers/0/tokenSha256: must be 64"},
		"hash cut off":                {list(entry(`"a"`, `"`+hash[:62]+`"`, `["till"]`)), "/callers/0/tokenSha256: must be 64"},
		"hash of an empty token":      {list(entry(`"a"`, `"`+callers.HashToken("")+`"`, `["till"]`)), "/callers/0/tokenSha256: is the hash of an empty token"},
		"token of another caller":     {list(good, entry(`"a"`, quoted, `["till"]`)), "/callers/1/tokenSha256: the same token is there twice"},
		"another spelling of a token": {list(good, entry(`"a"`, `"`+strings.ToUpper(hash)+`"`, `["till"]`)), "/callers/1/tokenSha256: the same token"},
		"token twice in a list":       {list(entry(`"a"`, `[`+quoted+`,`+quoted+`]`, `["till"]`)), "/callers/0/tokenSha256: the same token"},
		"no scopes":                   {list(`{"name": "a", "tokenSha256": ` + quoted + `}`), "/callers/0/scopes: must list"},
		"empty scopes":                {list(entry(`"a"`, quoted, `[]`)), "/callers/0/scopes: must list"},
		"unknown scope":               {list(entry(`"a"`, quoted, `["admin"]`)), `/callers/0/scopes: "admin" is not one of`},
		"scope in another case":       {list(entry(`"a"`, quoted, `["Till"]`)), `/callers/0/scopes: "Till" is not one of`},
		"scope twice":                 {list(entry(`"a"`, quoted, `["till", "till"]`)), `/callers/0/scopes: "till" is there twice`},
		"scope alone":                 {list(entry(`"a"`, quoted, `"till"`)), "/callers/0/scopes: has the wrong type"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := callers.Parse([]byte(test.content))
			if err == nil {
				t.Fatal("Parse accepted it")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("error = %q, want it to contain %q", err, test.want)
			}
			for _, secret := range []string{secret, hash[:16], strings.ToUpper(hash[:16]), other[:16]} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("error %q repeats %q", err, secret)
				}
			}
		})
	}
	if _, err := callers.Parse([]byte(list(good))); err != nil {
		t.Errorf("the good entry that the others are made from: %v", err)
	}
}

// A typing error in a rotated file must not turn every till away, and a good
// one must be in force without a restart, within the 5 s of contract section 5.
func TestABrokenNewFileKeepsTheOldOne(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "callers.json")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file := func(token string) string {
		return fmt.Sprintf(`{"callers": [{"name": "store-17", "tokenSha256": %q, "scopes": ["till"]}]}`, callers.HashToken(token))
	}
	knows := func(c *callers.Callers, token string) bool {
		_, ok := c.Authenticate(token)
		return ok
	}

	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		write(file("first"))
		c, err := callers.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go c.Watch(ctx, slog.New(slog.NewTextHandler(&log, nil)))

		write(`{"callers": [`)
		time.Sleep(5 * time.Second) // fake time: the most that may pass
		synctest.Wait()
		if !knows(c, "first") {
			t.Error("the first file is no longer in force after a broken one")
		}
		if !strings.Contains(log.String(), "the one before stays in force") {
			t.Errorf("the broken file was not reported; log: %s", log.String())
		}

		write(file("second"))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !knows(c, "second") || knows(c, "first") {
			t.Errorf("second known: %v, first known: %v, want only the second", knows(c, "second"), knows(c, "first"))
		}
	})
}

// Without a file there is nobody to serve, and a process that starts all the
// same would turn every till away: it must not start.
func TestAFileThatCannotBeReadIsAnErrorAtStart(t *testing.T) {
	t.Parallel()
	if _, err := callers.Load(filepath.Join(t.TempDir(), "callers.json")); err == nil {
		t.Error("Load of a missing file succeeded")
	}
}

// What a decision pays for knowing its caller: the price of comparing with
// every token of a large file.
func BenchmarkAuthenticate(b *testing.B) {
	for _, n := range []int{10, 1000} {
		b.Run(fmt.Sprintf("callers=%d", n), func(b *testing.B) {
			entries := make([]string, n)
			for i := range entries {
				entries[i] = fmt.Sprintf(`{"name": "store-%d", "tokenSha256": %q, "scopes": ["till"]}`, i, callers.HashToken(fmt.Sprint(i)))
			}
			set := parse(b, `{"callers": [`+strings.Join(entries, ",")+`]}`)
			b.ReportAllocs()
			for b.Loop() {
				set.Authenticate("5")
			}
		})
	}
}
