package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

// secrets are what opens a door or is a customer's, as the tests in here spell them.
var secrets = []string{token, "ANNA", "BERT", "HANG-", "SLOW-", "key-of-", "password-of-"}

// checkLog holds every process of every test to the rules of docs/logs.md: no token, no
// account and no key of any test in here, and no line or field that is not documented.
func (r *replica) checkLog() {
	r.w.t.Helper()
	checkLog(r.w.t, r.log.String(), &r.w.told)
	if address, err := url.Parse(r.w.databaseURL); err == nil {
		if password, _ := address.User.Password(); password != "" && strings.Contains(r.log.String(), password) {
			r.w.t.Error("the log of the process holds the database's password")
		}
	}
}

func checkLog(t *testing.T, log string, told *told) {
	t.Helper()
	for _, secret := range secrets {
		if strings.Contains(log, secret) {
			t.Errorf("the log of the process holds %q", secret)
		}
	}
	for word := range strings.FieldsFuncSeq(log, func(c rune) bool { return !strings.ContainsRune(keyCharacters, c) }) {
		if told.has(word) {
			t.Errorf("the log of the process holds %q, which was sent as a key or an account", word)
		}
	}
	documented, err := documentedLines()
	if err != nil {
		t.Error(err)
		return
	}
	for line := range strings.Lines(log) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) != nil {
			continue // cut off by a kill, or the last words of a process that did not start
		}
		text, _ := fields["msg"].(string)
		known, there := documented[text]
		if !there {
			t.Errorf("docs/logs.md does not know the line %s", line)
			continue
		}
		for field := range fields {
			if !slices.Contains(known, field) {
				t.Errorf("docs/logs.md does not know the field %s of %q", field, text)
			}
		}
	}
}

// documentedLines are the fields that docs/logs.md allows, by the text of a line.
var documentedLines = sync.OnceValues(func() (map[string][]string, error) {
	content, err := os.ReadFile("../../docs/logs.md")
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	row := regexp.MustCompile("(?m)^\\| [A-Z]+(?: or [A-Z]+)? \\| `([^`]+)` \\| ([^|]*) \\|")
	field := regexp.MustCompile("`([^`]+)`")
	for _, r := range row.FindAllStringSubmatch(string(content), -1) {
		all[r[1]] = []string{"time", "level", "msg", "trace_id"}
		for _, f := range field.FindAllStringSubmatch(r[2], -1) {
			all[r[1]] = append(all[r[1]], f[1])
		}
	}
	return all, nil
})

// keyCharacters are those of the keys and accounts that the tests use. What else stands
// in a line separates words.
const keyCharacters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

// told is what tills have told a test's replicas that belongs to nobody else.
type told struct {
	mu    sync.Mutex
	words map[string]bool
}

func (o *told) note(word string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.words == nil {
		o.words = map[string]bool{}
	}
	if word != "" {
		o.words[word] = true
	}
}

func (o *told) has(word string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.words[word]
}

// witness notes what goes by, so that no test must think of it.
type witness struct {
	next http.RoundTripper
	told *told
}

func (w witness) RoundTrip(req *http.Request) (*http.Response, error) {
	w.told.note(req.Header.Get("Idempotency-Key"))
	if _, byKey, ok := strings.Cut(req.URL.EscapedPath(), "/by-key/"); ok {
		if parts := strings.Split(byKey, "/"); len(parts) > 1 {
			key, _ := url.PathUnescape(parts[1])
			w.told.note(key)
		}
	}
	if req.Body != nil {
		body, err := io.ReadAll(req.Body)
		_ = req.Body.Close()
		if err != nil {
			return nil, err
		}
		var money struct {
			Account string `json:"account"`
		}
		if json.Unmarshal(body, &money) == nil {
			w.told.note(money.Account)
		}
		req = req.Clone(req.Context())
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	return w.next.RoundTrip(req)
}

// A net that catches nothing looks like one with nothing to catch.
func TestTheLogsRulesCatchWhatBreaksThem(t *testing.T) {
	t.Parallel()
	var sent told
	sent.note("receipt-0815")
	for _, broken := range []string{
		`{"msg":"ready","error":"no such account: receipt-0815"}`,
		`{"msg":"ready","caller":"` + token + `"}`,
		`{"msg":"ready","surprise":1}`,
		`{"msg":"a line that nobody has documented"}`,
	} {
		inner := &testing.T{}
		checkLog(inner, broken+"\n", &sent)
		if !inner.Failed() {
			t.Errorf("passes: %s", broken)
		}
	}
	checkLog(t, `{"msg":"payment decided","id":"018f4e5a-7c3b-7d2e-9f10-0123456789ab","caller":"store-17"}`+"\n", &sent)
}
