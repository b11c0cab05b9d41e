package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/test/check/history"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A harness goes by the exit code. What could not be read must not look like a run in
// which nothing is wrong, nor a run that has tested nothing like one that has.
func TestTheExitCodeTellsWhatWasFound(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	dir := t.TempDir()
	tills := filepath.Join(dir, "tills-1.jsonl")
	log, err := history.Open(tills, "run", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	file := func(name string, lines ...string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const (
		first  = `{"seq":1,"at":"2026-11-30T01:00:00Z","event":"OPENED","effect":{"account":"ANNA","amount":100,"currency":"EUR","balanceChange":100}}`
		ghost  = `{"seq":2,"at":"2026-11-30T01:00:01Z","event":"ARRIVED","exchange":1,"connection":1,"version":"v2","operation":"debit","reference":"11111111-2222-8333-8444-555555555555","idempotencyKey":"11111111-2222-8333-8444-555555555555","account":"ANNA","amount":5,"currency":"EUR","method":"POST","path":"/v2/debits"}`
		beyond = `{"seq":3,"at":"2026-11-30T01:00:02Z","event":"DISTURBED"}`
	)
	clean := file("book-clean", first, "")
	given := func(book string, more ...string) []string {
		return append([]string{"-database", db.URL, "-till", filepath.Join(dir, "tills-*.jsonl"), "-book", book}, more...)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"nothing is wrong":                  {given(clean), exitClean, "0 violations; void, checked in no case: I1, I2"},
		"nothing was tested, and it is to":  {given(clean, "-require"), exitViolated, "(-require: a failure)"},
		"the wallet was asked by a ghost":   {given(file("book-ghost", first, ghost, "")), exitViolated, "which is nobody's"},
		"the last line was being written":   {given(file("book-killed", first, `{"seq":2,"at":"20`)), exitClean, "0 violations"},
		"a line of the book is missing":     {given(file("book-gap", first, beyond, "")), exitUnread, "line 3 follows line 1"},
		"a line of the book is no JSON":     {given(file("book-torn", first, `{"seq":2,`, beyond, "")), exitUnread, "book-torn: byte "},
		"a panic in the log of a process":   {given(clean, "-responses", file("panic.log", "panic: oh", "", "goroutine 1")), exitClean, "no JSON: 1"},
		"the wallet has counted the same":   {given(clean, "-totals", file("totals", `{"EUR":{"opened":100,"balances":100,"held":0,"netDebits":0,"constant":true}}`)), exitClean, "0 violations"},
		"the wallet has counted otherwise":  {given(clean, "-totals", file("totals-less", `{"EUR":{"opened":100,"balances":99,"held":0,"netDebits":0}}`)), exitViolated, "its book adds up to"},
		"the wallet's count cannot be read": {given(clean, "-totals", file("totals-torn", `{"EUR":`)), exitUnread, "totals-torn"},
		"there is no such log":              {given(filepath.Join(dir, "nothing")), exitUnread, "there is no such file"},
		"the till log ends without a begin": {[]string{"-database", db.URL, "-book", clean, "-till", file("till-torn", `{"event":"ANSWERED","at":"2026-11-30T01:00:00Z","call":7}`, "")}, exitUnread, "call 7 ends and was not sent"},
		"there is no such ledger":           {[]string{"-database", strings.Replace(db.URL, "/test_", "/nobodys_", 1), "-book", clean, "-till", tills}, exitUnread, "does not exist"},
		"no ledger was named":               {[]string{"-book", clean, "-till", tills}, exitUnread, "-database, -book and -till are needed"},
		"a flag is misspelt":                {given(clean, "-lossi"), exitUnread, "-lossi"},
		"a flag without its dash":           {given(clean, "lossy"), exitUnread, "lossy"},
		"help":                              {[]string{"-h"}, exitClean, "-settle-window"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			if code := run(t.Context(), c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("exit %d, want %d and %q:\n%s", code, c.code, c.says, out.String())
			}
		})
	}

	// The numbers are there for whoever adds runs up, and progress is told in whole lines
	// where there is no terminal.
	numbers := filepath.Join(dir, "summary.json")
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), given(clean, "-json", numbers), &stdout, &stderr); code != exitClean {
		t.Errorf("exit %d: %s", code, stderr.String())
	}
	var s struct {
		Checked map[string]int64 `json:"checked"`
		Counts  struct{ BookLines int64 }
	}
	text, err := os.ReadFile(numbers)
	if err != nil || json.Unmarshal(text, &s) != nil || s.Counts.BookLines != 1 || s.Checked["I14 lines"] == 0 {
		t.Errorf("the summary: %v, %s", err, text)
	}
	if !strings.Contains(stderr.String(), "reading the wallet's book") || strings.Contains(stderr.String(), "\r") {
		t.Errorf("progress was told as %q", stderr.String())
	}
}

func TestNumbersCanBeRead(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -12345: "-12,345", -123: "-123"} {
		if got := count(n); got != want {
			t.Errorf("%d is written %s, want %s", n, got, want)
		}
	}
}
