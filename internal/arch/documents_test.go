package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A reader who is told that a test holds a promise must find that test: a name
// that was changed in the code and not in the document is a promise that nobody
// can check any more.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	declared := map[string]bool{}
	for _, f := range files(t) {
		if !f.test {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, f.name))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`).FindAllStringSubmatch(string(content), -1) {
			declared[name[1]] = true
		}
	}
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	adrs, err := filepath.Glob(filepath.Join(root, "docs", "adr", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, path := range append(documents, adrs...) {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile("`((?:Test|Fuzz|Benchmark)[A-Z0-9]\\w*)`").FindAllStringSubmatch(string(content), -1) {
			named++
			if !declared[name[1]] {
				t.Errorf("%s names %s, which does not exist", filepath.Base(path), name[1])
			}
		}
	}
	if named < 30 {
		t.Errorf("only %d tests named: the search for them is broken", named)
	}
}

// An ADR that ARCHITECTURE.md does not list is not found by those who look for
// the reason of a thing, and code must not point to one that is not there.
func TestDecisionsAreListedAndReferencesResolve(t *testing.T) {
	t.Parallel()
	architecture, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	adrs, err := filepath.Glob(filepath.Join(root, "docs", "adr", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, path := range adrs {
		number, _, _ := strings.Cut(filepath.Base(path), "-")
		if known[number] {
			t.Errorf("two decisions have the number %s", number)
		}
		known[number] = true
		if !strings.Contains(string(architecture), number+" ") {
			t.Errorf("ARCHITECTURE.md does not list %s", filepath.Base(path))
		}
	}
	for _, f := range files(t) {
		content, err := os.ReadFile(filepath.Join(root, f.name))
		if err != nil {
			t.Fatal(err)
		}
		for _, reference := range regexp.MustCompile(`(?:ADR |docs/adr/)(\d{4})\b`).FindAllStringSubmatch(string(content), -1) {
			if !known[reference[1]] {
				t.Errorf("%s refers to ADR %s, which does not exist", f.name, reference[1])
			}
		}
	}
	if len(known) == 0 {
		t.Error(fmt.Errorf("no decisions found below %s", root))
	}
}

// What is said to stop somebody, and is shown by nothing, stops nobody for long.
func TestEveryThreatNamesItsTest(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, "docs", "threats.md"))
	if err != nil {
		t.Fatal(err)
	}
	threats := 0
	for line := range strings.Lines(string(content)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| who ") {
			continue
		}
		threats++
		if len(cells) != 5 || !regexp.MustCompile("`(Test|Fuzz)\\w+`").MatchString(cells[3]) {
			t.Errorf("docs/threats.md: no test is named in the fourth of %d cells: %s", len(cells), cells[0])
		}
	}
	if threats < 15 {
		t.Errorf("only %d threats: the search for them is broken", threats)
	}
}

// A playbook sends people to lines of the log. One that is worded differently since
// is looked for in vain, at the worst time.
func TestPlaybooksQuoteLinesThatAreLogged(t *testing.T) {
	t.Parallel()
	logged := map[string]bool{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if literal, ok := n.(*ast.BasicLit); ok && literal.Kind == token.STRING {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					logged[text] = true
				}
			}
			return true
		})
	}
	playbooks, err := filepath.Glob(filepath.Join(root, "docs", "playbooks", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	quoted := 0
	for _, path := range playbooks {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range regexp.MustCompile(`msg="([^"]+)"`).FindAllStringSubmatch(string(content), -1) {
			quoted++
			if !logged[line[1]] {
				t.Errorf("%s quotes %q, which nobody logs", filepath.Base(path), line[1])
			}
		}
	}
	if quoted < 20 {
		t.Errorf("only %d lines quoted: the search for them is broken", quoted)
	}
}
