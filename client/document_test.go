package client_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/client"
)

const documentFile = "../docs/integrating.md"

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// fenced are the blocks of a language in a document.
func fenced(document, language string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(document, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// A till developer pastes these lines first. They run, in the order of the page, against a
// whole service on loopback, and are answered as the comment behind each says.
func TestTheDocumentsShellRunsAsItSays(t *testing.T) {
	t.Parallel()
	w, err := open(onLoopback, 512)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	script := strings.Join(fenced(readFile(t, documentFile), "sh"), "\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", "-eu", "-c", script)
	command.Env = []string{"PATH=" + os.Getenv("PATH"), "BASE=http://" + w.tills.Addr().String(), "TOKEN=" + token}
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	answers := strings.Split(string(output), "HTTP/1.1 ")[1:]
	promised := regexp.MustCompile(`# → (\d{3}) (\S+)`).FindAllStringSubmatch(script, -1)
	if len(promised) < 15 || len(promised) != len(answers) {
		t.Fatalf("%d answers, and the page promises %d", len(answers), len(promised))
	}
	for i, p := range promised {
		if !strings.HasPrefix(answers[i], p[1]+" ") || !strings.Contains(answers[i], p[2]) {
			t.Errorf("answer %d is promised to be %s %s, and is\n%s", i+1, p[1], p[2], answers[i])
		}
	}
}

// What the page shows in Go is what the examples run, letter for letter.
func TestTheDocumentsGoIsThatOfTheExamples(t *testing.T) {
	t.Parallel()
	examples := readFile(t, "example_test.go")
	blocks := fenced(readFile(t, documentFile), "go")
	if len(blocks) < 5 {
		t.Fatalf("found only %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(examples, block) {
			t.Errorf("not in example_test.go:\n%s", block)
		}
	}
}

// row is one line of a table of answers.
type row struct{ status, code, retryAfter, inGo string }

// rows are those of the table that follows a heading.
func rows(t *testing.T, document, heading string) (all []row) {
	t.Helper()
	_, rest, found := strings.Cut(document, heading)
	if !found {
		t.Fatalf("the page has no %q", heading)
	}
	for line := range strings.Lines(rest) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		switch {
		case len(cells) == 6:
			for i := range cells {
				cells[i] = strings.TrimSpace(cells[i])
			}
			if cells[0] != "status" && cells[0] != "---" {
				all = append(all, row{cells[0], strings.Trim(cells[1], "`"), cells[2], strings.Trim(cells[5], "`")})
			}
		case len(all) > 0:
			return all
		}
	}
	return all
}

// A code that the page does not know is a till that does not know what to do. Each code of
// the API's document is there, with its status, and each status and code of the page
// is one of the API's.
func TestTheDocumentHasEveryAnswer(t *testing.T) {
	t.Parallel()
	document := readFile(t, documentFile)
	described := map[string]string{} // code → status
	for _, r := range append(rows(t, document, "**To a POST.**"), rows(t, document, "**To a GET.**")...) {
		if regexp.MustCompile(`^[A-Z_]+$`).MatchString(r.code) {
			described[r.code] = r.status
		}
	}
	of := map[string]string{}
	_, problems, _ := strings.Cut(readFile(t, "../api/openapi.yaml"), "\nx-problems:\n")
	for _, m := range regexp.MustCompile(`(?m)^  ([A-Z_]+): \{status: (\d+),`).FindAllStringSubmatch(problems, -1) {
		if m[1] != "DECLINED" { // stands for the wallet's own codes
			of[m[1]] = m[2]
		}
	}
	if len(of) < 30 {
		t.Fatalf("found only %d problems in the API's document", len(of))
	}
	if diff := cmp.Diff(of, described); diff != "" {
		t.Errorf("the API's document (-), the page (+):\n%s", diff)
	}
}

// The page's last column is what the client does, row by row.
func TestTheClientDoesWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	document := readFile(t, documentFile)
	once := func(cfg *client.Config) { cfg.Mutations.Attempts, cfg.Reads.Attempts = 1, 1 }
	for _, r := range rows(t, document, "**To a POST.**") {
		for _, answer := range answersOf(t, r) {
			s := scripted(t, says(answer))
			d, err := s.till(t, once).Debit(t.Context(), key, asked)
			got := kindOf(err)
			switch {
			case r.status == "202": // about a debit it answers nothing
				_, err = scripted(t, says(ok(202, pending))).till(t).Capture(t.Context(), key, paymentID, 0)
				if err == nil {
					got = "FollowUp"
				}
			case r.inGo == "NotBegunError" && r.status == "none":
				continue // TestWithoutAConnectionNothingWasBegun
			case err == nil && d.Verdict != "":
				got = "Decision"
			}
			if got != r.inGo {
				t.Errorf("%s %s: got %s (%v), the page says %s", r.status, r.code, got, err, r.inGo)
			}
		}
	}
	for _, r := range rows(t, document, "**To a GET.**") {
		for _, answer := range answersOf(t, r) {
			if r.status == "200" {
				answer = ok(200, paid)
			}
			s := scripted(t, says(answer))
			_, seen, err := s.till(t, once).Payment(t.Context(), paymentID)
			if r.code == client.CodeOperationNotFound {
				_, seen, err = s.till(t, once).FollowUp(t.Context(), paymentID)
			}
			got := map[bool]string{true: "found", false: "not found"}[seen]
			if _, again := errors.AsType[*client.ReadError](err); again {
				got = "tried again"
			} else if err != nil {
				got = err.Error()
			}
			if got != r.inGo {
				t.Errorf("GET, %s %s: got %s, the page says %s", r.status, r.code, got, r.inGo)
			}
		}
	}
}

// answersOf are the answers that a row is about, as they go over the wire.
func answersOf(t *testing.T, r row) (all []string) {
	t.Helper()
	switch r.status {
	case "none":
		return []string{""}
	case "anything else":
		return []string{reply(200, "text/html", "<h1>"), reply(307, "text/html", "", "Location: /x"), reply(403, "text/html", "<h1>"), cut(ok(201, approval)), problem(599, "NEW")}
	}
	var header []string
	if r.retryAfter != "–" {
		header = []string{"Retry-After: " + r.retryAfter}
	}
	for text := range strings.SplitSeq(r.status, ", ") {
		status, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("the page has the status %q", r.status)
		}
		switch {
		case status == 201:
			all = append(all, ok(201, approval))
		case status == 402 && strings.HasPrefix(r.code, "the wallet's"):
			all = append(all, decline(402, "INSUFFICIENT_FUNDS"))
		case status == 402 || status == 424:
			all = append(all, decline(status, r.code, header...))
		case r.code == "–":
			all = append(all, reply(status, "text/html", "<h1>"))
		default:
			all = append(all, problem(status, r.code, header...))
		}
	}
	return all
}

func kindOf(err error) string {
	if _, is := errors.AsType[*client.NotBegunError](err); is {
		return "NotBegunError"
	}
	if _, is := errors.AsType[*client.OutcomeUnknownError](err); is {
		return "OutcomeUnknownError"
	}
	if _, is := errors.AsType[*client.InFlightError](err); is {
		return "InFlightError"
	}
	if _, is := errors.AsType[*client.Problem](err); is {
		return "Problem"
	}
	return "another error"
}
