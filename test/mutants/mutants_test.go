package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = "../.."

// A defect whose text has moved on is not tried any more, and its line in the matrix goes
// on saying that the tests find it.
func TestEveryDefectCanStillBeMade(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for _, m := range mutants() {
		if names[m.name] {
			t.Errorf("two defects are called %q", m.name)
		}
		names[m.name] = true
		if strings.Contains(m.name+m.harm, "|") {
			t.Errorf("%s: a | would end its cell of the matrix", m.name)
		}
		if !strings.HasSuffix(m.harm, ".") || m.breaks == "" || len(m.tried) == 0 {
			t.Errorf("%s: it must say what it breaks, what would go wrong and what finds it", m.name)
		}
		if !slices.IsSortedFunc(m.tried, func(a, b suite) int { return int(a.level - b.level) }) {
			t.Errorf("%s: the cheaper tests must come first", m.name)
		}
		changed, err := m.apply(root)
		if err != nil {
			t.Error(err)
		}
		for file, content := range changed {
			before, err := os.ReadFile(filepath.Join(root, file))
			if err != nil {
				t.Fatal(err)
			}
			if string(before) == content {
				t.Errorf("%s changes nothing in %s", m.name, file)
			}
			if _, err := parser.ParseFile(token.NewFileSet(), file, content, parser.SkipObjectResolution); err != nil {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
	if len(names) < 20 { // what docs/verification.md promises
		t.Errorf("only %d defects", len(names))
	}
}

// Whoever reads which promises are held by tests must read about the defects that there
// are: one that was added later, and never tried, would look as if it had been found.
func TestTheMatrixIsOfTheseDefects(t *testing.T) {
	t.Parallel()
	_, written, _, err := document(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	all := mutants()
	rows, days := said(written)
	for _, m := range all {
		if rows[m.name].level == "" {
			t.Errorf("%s has no line in %s: make mutants", m.name, page)
		}
	}
	if diff := cmp.Diff(matrix(all, rows, days), written); diff != "" {
		t.Errorf("%s is behind the code; make mutants writes it (-code +document):\n%s", page, diff)
	}
}

// A defect that does not compile, or that only a machine out of breath has failed, has
// not been found by a test; and one that makes a test hang has.
func TestTheEndOfATestIsReadRight(t *testing.T) {
	t.Parallel()
	lines := func(l ...string) string { return strings.Join(l, "\n") + "\n" }
	for name, test := range map[string]struct {
		said string
		want verdict
	}{
		"all passed": {
			lines(`{"Action":"pass","Package":"m/a","Test":"TestA"}`, `{"Action":"pass","Package":"m/a"}`),
			verdict{kind: survived},
		},
		"the first that failed": {
			lines(
				`{"Action":"output","Package":"m/a","Test":"TestA/x","Output":"got 1, want 2\n"}`,
				`{"Action":"fail","Package":"m/a","Test":"TestA/x"}`,
				`{"Action":"fail","Package":"m/a","Test":"TestA"}`,
				`{"Action":"fail","Package":"m/a","Test":"TestB"}`,
				`{"Action":"fail","Package":"m/a"}`,
			),
			verdict{kind: killed, test: "TestA", folder: "a", details: "got 1, want 2"},
		},
		"a panic outside of a test": {
			lines(`{"Action":"output","Package":"m/a","Output":"panic: oh\n"}`, `{"Action":"fail","Package":"m/a"}`),
			verdict{kind: killed, folder: "a", details: "panic: oh"},
		},
		"no end": {
			lines(
				`{"Action":"output","Package":"m/a","Test":"TestA","Output":"panic: test timed out after 5m0s\n"}`,
				`{"Action":"fail","Package":"m/a","Test":"TestA"}`, `{"Action":"fail","Package":"m/a"}`,
			),
			verdict{kind: hung, test: "TestA", folder: "a", details: "panic: test timed out after 5m0s"},
		},
		"no program": {
			lines(
				`{"ImportPath":"m/a","Action":"build-output","Output":"undefined: b\n"}`,
				`{"ImportPath":"m/a","Action":"build-fail"}`, `{"Action":"fail","Package":"m/a","FailedBuild":"m/a"}`,
			),
			verdict{kind: broken, details: "undefined: b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := read(strings.NewReader(test.said), "m")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(verdict{})); diff != "" {
				t.Errorf("the verdict (-want +got):\n%s", diff)
			}
		})
	}
}

// A run of half an hour that was stopped must go on, and must not take an old answer for
// one about a defect that has changed.
func TestAResultIsOfWhatWasTried(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(content string) {
		if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("package a\n\nconst a = 1\n")
	m := mutant{name: "two", edits: []edit{{"a.go", "= 1", "= 2"}}, tried: []suite{gateUnit}}
	path := filepath.Join(dir, "kept", "results.json")
	r, err := openResults(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.add(m, dir, result{Level: "unit", Test: "TestA"}); err != nil {
		t.Fatal(err)
	}
	again, err := openResults(path)
	if err != nil {
		t.Fatal(err)
	}
	res, err := again.of(m, dir)
	if err != nil || res == nil || res.Test != "TestA" {
		t.Errorf("the result after the run has stopped: %v, %v", res, err)
	}

	other := m
	other.edits = []edit{{"a.go", "= 1", "= 3"}}
	elsewhere := m
	elsewhere.tried = []suite{fakeTime}
	for name, changed := range map[string]mutant{"another defect": other, "tried on something else": elsewhere} {
		if res, err := again.of(changed, dir); err != nil || res != nil {
			t.Errorf("%s: %v, %v, want none", name, res, err)
		}
	}
	write("package a\n\nconst a = 1\n\nconst b = 1\n")
	if _, err := again.of(m, dir); err == nil {
		t.Error("an old text that is there twice was taken")
	}
	write("package a\n\nconst (\n\ta = 1\n)\n")
	if res, err := again.of(m, dir); err != nil || res != nil {
		t.Errorf("the file has changed: %v, %v, want none", res, err)
	}
}
