package arch

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logged is what the code says with one level and text, wherever it says so.
type logged struct {
	level  string // "" where it is decided when it is said
	text   string
	fields []string // those that stand in the call itself
	rooms  []string
}

// levels are the methods of a slog.Logger by the level that they have.
var levels = map[string]string{
	"Debug": "DEBUG", "Info": "INFO", "Warn": "WARN", "Error": "ERROR",
	"LevelDebug": "DEBUG", "LevelInfo": "INFO", "LevelWarn": "WARN", "LevelError": "ERROR",
}

// textAt says at which argument of a logger's method the text stands. Before it are a
// context, and a level.
func textAt(method string) (at int, known bool) {
	if method == "Log" || method == "LogAttrs" {
		return 2, true
	}
	name, hasContext := strings.CutSuffix(method, "Context")
	if _, known = levels[name]; hasContext {
		at = 1
	}
	return at, known
}

// lines are all that the programs log, with what is not for tests.
func lines(t *testing.T) map[[2]string]*logged {
	t.Helper()
	all := map[[2]string]*logged{}
	for _, f := range files(t) {
		if r, _ := roomOf(f.room); f.test || r.forTests {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			method, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || !isLogger(method.X) {
				return true
			}
			at, known := textAt(method.Sel.Name)
			if !known || len(call.Args) <= at {
				return true
			}
			text, literal := textOf(call.Args[at])
			if !literal {
				t.Errorf("%s: a line of the log whose text is put together: nobody can look for it", f.name)
				return true
			}
			level := levels[strings.TrimSuffix(method.Sel.Name, "Context")]
			if at == 2 {
				if l, ok := call.Args[1].(*ast.SelectorExpr); ok {
					level = levels[l.Sel.Name]
				}
			}
			key := [2]string{level, text}
			if all[key] == nil {
				all[key] = &logged{level: level, text: text}
			}
			l := all[key]
			l.rooms = append(l.rooms, f.room)
			for i, arg := range call.Args[at+1:] {
				if field, ok := textOf(arg); ok && i%2 == 0 {
					l.fields = append(l.fields, field)
				}
			}
			return true
		})
	}
	return all
}

// isLogger goes by the name: a.Log, q.log, g.cfg.Log, log.
func isLogger(of ast.Expr) bool {
	switch of := of.(type) {
	case *ast.Ident:
		return of.Name == "log"
	case *ast.SelectorExpr:
		return of.Sel.Name == "Log" || of.Sel.Name == "log"
	}
	return false
}

func textOf(of ast.Expr) (string, bool) {
	literal, ok := of.(*ast.BasicLit)
	if !ok || literal.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(literal.Value)
	return text, err == nil
}

// texts are the string literals of a room, of which the names of fields are some.
func texts(t *testing.T) map[string]map[string]bool {
	t.Helper()
	all := map[string]map[string]bool{}
	for _, f := range files(t) {
		if f.test {
			continue
		}
		if all[f.room] == nil {
			all[f.room] = map[string]bool{}
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok {
				if text, ok := textOf(e); ok {
					all[f.room][text] = true
				}
			}
			return true
		})
	}
	return all
}

// Somebody is woken by a line and looks for it in the document; and somebody writes
// alerts and searches from the document. Both must find what the code says.
func TestTheLogIsDocumented(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, "docs", "logs.md"))
	if err != nil {
		t.Fatal(err)
	}
	// | level | `text` | `field` `field` | what it means |
	row := regexp.MustCompile("(?m)^\\| ([A-Z]+(?: or [A-Z]+)?) \\| `([^`]+)` \\| ([^|]*) \\| [^|]+ \\|$")
	quoted := regexp.MustCompile("`([^`]+)`")
	documented := map[[2]string][]string{}
	for _, r := range row.FindAllStringSubmatch(string(content), -1) {
		level := r[1]
		if strings.Contains(level, " or ") {
			level = "" // decided when it is said
		}
		key := [2]string{level, r[2]}
		if _, twice := documented[key]; twice {
			t.Errorf("%s %q is documented twice", r[1], r[2])
		}
		documented[key] = []string{}
		for _, field := range quoted.FindAllStringSubmatch(r[3], -1) {
			documented[key] = append(documented[key], field[1])
		}
	}
	said, literals := lines(t), texts(t)
	if len(said) < 20 {
		t.Fatalf("only %d lines were found in the code", len(said))
	}
	for key, l := range said {
		fields, there := documented[key]
		if !there {
			t.Errorf("docs/logs.md lacks %s %q of %v, with %v", l.level, l.text, l.rooms, l.fields)
			continue
		}
		for _, field := range l.fields {
			if !slices.Contains(fields, field) {
				t.Errorf("docs/logs.md: %q lacks the field %s", l.text, field)
			}
		}
		for _, field := range fields {
			if !slices.ContainsFunc(l.rooms, func(room string) bool { return literals[room][field] }) {
				t.Errorf("docs/logs.md: %q has no field %s in %v", l.text, field, l.rooms)
			}
		}
	}
	for key := range maps.Keys(documented) {
		if said[key] == nil {
			t.Errorf("docs/logs.md has %s %q, which nothing says", key[0], key[1])
		}
	}
}
