package model

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A colleague who changes the code must find the step that stands for it, and the other
// way round: a name that is gone is a step that stands for nothing.
func TestStepsNameTheCodeTheyStandFor(t *testing.T) {
	t.Parallel()
	functions := map[string]map[string]bool{}
	for kind, info := range stepTable {
		if info.text == "" {
			t.Errorf("step %d has no line in the table", kind)
		}
		if info.code == "" {
			continue
		}
		file, function, _ := strings.Cut(info.code, " ")
		if functions[file] == nil {
			functions[file] = map[string]bool{}
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", file), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range tree.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					functions[file][f.Name.Name] = true
				}
			}
		}
		if !functions[file][function] {
			t.Errorf("%q: there is no function %s in %s", info.text, function, file)
		}
	}
}
