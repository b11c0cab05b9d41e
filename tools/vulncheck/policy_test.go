package main

import (
	"os"
	"strings"
	"testing"
	"time"
)

var day = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) //nolint:gochecknoglobals // a date is no constant in Go

// scanOf is the output of a scan with these findings.
func scanOf(t *testing.T, findings ...string) map[string]found {
	t.Helper()
	scan, err := readScan(strings.NewReader(`{"config": {"scan_level": "symbol"}}
		{"osv": {"id": "GO-2026-0001", "summary": "Bad"}}` + strings.Join(findings, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return scan
}

const (
	onlyRequired = `{"finding": {"osv": "GO-2026-0001", "fixed_version": "v1.26.9", "trace": [{"module": "stdlib"}]}}`
	onlyImported = `{"finding": {"osv": "GO-2026-0001", "fixed_version": "v1.26.9", "trace": [{"module": "stdlib", "package": "net/http"}]}}`
	isCalled     = `{"finding": {"osv": "GO-2026-0001", "fixed_version": "v1.26.9", "trace": [
		{"module": "stdlib", "package": "net/http", "receiver": "*Server", "function": "Serve"}, {"module": "ours", "package": "ours/cmd", "function": "main"}]}}`
)

func listOf(t *testing.T, expires string) []entry {
	t.Helper()
	list, err := readList([]byte(`{"allowed": [{"id": "GO-2026-0001", "reason": "it takes what we have not", "expires": "`+expires+`"}]}`), day)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// A known vulnerability that our code leads to must stop the build, and say what helps.
func TestWhatIsCalledAndNotOnTheListIsAProblem(t *testing.T) {
	_, problems := judge(scanOf(t, onlyRequired, onlyImported, isCalled), nil, day)
	if len(problems) != 1 {
		t.Fatalf("problems: %q", problems)
	}
	for _, want := range []string{"GO-2026-0001", "Bad", "net/http.*Server.Serve", "ours/cmd.main", "build with Go 1.26.9"} {
		if !strings.Contains(problems[0], want) {
			t.Errorf("it does not say %q: %s", want, problems[0])
		}
	}
}

// A red build for what nobody calls is a build that people learn to ignore.
func TestWhatIsNotCalledIsOnlyCounted(t *testing.T) {
	lines, problems := judge(scanOf(t, onlyRequired, onlyImported), nil, day)
	if len(problems) != 0 || len(lines) != 1 || !strings.HasPrefix(lines[0], "1 more") {
		t.Errorf("lines %q, problems %q", lines, problems)
	}
}

func TestWhatIsOnTheListIsLetThroughUntilItsDay(t *testing.T) {
	lines, problems := judge(scanOf(t, isCalled), listOf(t, "2026-12-02"), day)
	if len(problems) != 0 || len(lines) != 1 || !strings.Contains(lines[0], "until 2026-12-02") {
		t.Errorf("the day before: lines %q, problems %q", lines, problems)
	}
	_, problems = judge(scanOf(t, isCalled), listOf(t, "2026-12-01"), day)
	if len(problems) != 1 || !strings.Contains(problems[0], "build with Go 1.26.9") {
		t.Errorf("on the day: %q", problems)
	}
}

// An entry that has outlived its vulnerability would let the next one of that name
// through, and makes the list look longer than it is.
func TestAnEntryThatIsNotNeededIsAProblem(t *testing.T) {
	for name, scan := range map[string]map[string]found{"gone": scanOf(t), "no longer called": scanOf(t, onlyImported)} {
		if _, problems := judge(scan, listOf(t, "2026-12-31"), day); len(problems) != 1 || !strings.Contains(problems[0], "take it off") {
			t.Errorf("%s: %q", name, problems)
		}
	}
}

func TestAListThatIsNotUnderstoodIsRefused(t *testing.T) {
	for name, list := range map[string]string{
		"not JSON":         `GO-2026-0001`,
		"unknown member":   `{"allowed": [{"id": "GO-2026-0001", "reason": "it takes what we have not", "until": "2026-12-31"}]}`,
		"not an id":        `{"allowed": [{"id": "CVE-2026-1", "reason": "it takes what we have not", "expires": "2026-12-31"}]}`,
		"no reason":        `{"allowed": [{"id": "GO-2026-0001", "reason": "harmless", "expires": "2026-12-31"}]}`,
		"no day":           `{"allowed": [{"id": "GO-2026-0001", "reason": "it takes what we have not", "expires": "never"}]}`,
		"for good":         `{"allowed": [{"id": "GO-2026-0001", "reason": "it takes what we have not", "expires": "2027-12-31"}]}`,
		"something behind": `{"allowed": []} {}`,
		"twice": `{"allowed": [{"id": "GO-2026-0001", "reason": "it takes what we have not", "expires": "2026-12-31"},
			{"id": "GO-2026-0001", "reason": "it takes what we have not", "expires": "2026-12-31"}]}`,
	} {
		if _, err := readList([]byte(list), day); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// The list of this repository, on any day: whether it has expired is the scan's to say.
func TestTheListIsUnderstood(t *testing.T) {
	content, err := os.ReadFile("allowed.json")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := readList(content, time.Now()); err != nil {
		t.Error(err)
	}
}

// A scan that was cut off, or that looked at modules only, has found nothing because it
// has not looked.
func TestHalfAScanIsNoCleanBill(t *testing.T) {
	for name, output := range map[string]string{
		"nothing":      ``,
		"cut off":      `{"config": {"scan_level": "symbol"}} {"finding": {"osv"`,
		"not as deep":  `{"config": {"scan_level": "module"}}`,
		"without site": `{"config": {"scan_level": "symbol"}} {"finding": {"osv": "GO-2026-0001", "trace": []}}`,
	} {
		if _, err := readScan(strings.NewReader(output)); err == nil {
			t.Errorf("%s: taken for a scan", name)
		}
	}
}

func TestTheDatabasesDateIsInItsVersion(t *testing.T) {
	if date, ok := dateOf("v0.0.0-20261105234957-e22db6528018"); !ok || date.Format(time.DateOnly) != "2026-11-05" {
		t.Errorf("%v %v", date, ok)
	}
	if _, ok := dateOf("v1.2.3"); ok {
		t.Error("a version without a date has one")
	}
}
