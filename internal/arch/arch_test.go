// Package arch holds the shape of the repository: who may import whom. It is the
// table of ARCHITECTURE.md as a test; change both together. The files are
// parsed here, not listed by the go command, because go test remembers a result
// until a file that the test itself has opened changes.
package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/safeledger/safeledger"
)

// room is a package and what its code, tests left out, may import.
type room struct {
	// ours are the packages of this module.
	ours []string
	// theirs are the modules of others, and those packages of the standard library
	// that are guarded, see guarded.
	theirs []string
	// wires is set where everything of ours but what is for tests may be imported.
	wires bool
	// forTests is set where only tests may import it.
	forTests bool
	// detaches is set where a context is made that has no end because the one that it is
	// made of must not end it: whoever takes it gives it a deadline.
	detaches bool
	// later is set on a room that is planned and need not be there yet.
	later bool
}

// The modules of others. Each has its line in docs/dependencies.md; here stands
// who may know it.
const (
	breakers   = "github.com/sony/gobreaker/v2"
	compare    = "github.com/google/go-cmp"
	contracts  = "github.com/pb33f/libopenapi"
	currencies = "github.com/bojanz/currency"
	embedded   = "github.com/fergusstrange/embedded-postgres"
	env        = "github.com/kelseyhightower/envconfig"
	flags      = "github.com/alecthomas/kong"
	goose      = "github.com/pressly/goose/v3"
	groups     = "golang.org/x/sync"
	ids        = "github.com/google/uuid"
	linear     = "github.com/anishathalye/porcupine"
	metrics    = "github.com/prometheus/client_golang"
	openapi    = "github.com/oapi-codegen/runtime"
	postgres   = "github.com/jackc/pgx/v5"
	rates      = "golang.org/x/time"
	router     = "github.com/go-chi/chi/v5"
	strictJSON = "github.com/go-json-experiment/json"
	roots      = "golang.org/x/crypto/x509roots/fallback"
	logging    = "github.com/go-logr/logr"
	validator  = "github.com/pb33f/libopenapi-validator"

	// Traces: the words, which any flow may use, and what records and sends spans.
	spans      = "go.opentelemetry.io/otel/trace"
	attributes = "go.opentelemetry.io/otel/attribute"
	spanCodes  = "go.opentelemetry.io/otel/codes"
	propagate  = "go.opentelemetry.io/otel/propagation"
	traces     = "go.opentelemetry.io/otel"
	traceWire  = "go.opentelemetry.io/proto/otlp"
	protobuf   = "google.golang.org/protobuf"
)

// guarded are the packages of the standard library that a room must be given,
// and why. A package stands for those below it.
var guarded = map[string]string{
	"net/http":     "the rules know nothing of HTTP: it is spoken by api, gate and the admin listener to tills and operators, and by wallet to the wallet",
	"database/sql": "SQL is spoken by ledger, through pgx",
	"os/exec":      "only devstack and tests start programs",
	"log":          "we log with log/slog, handed down from main",
	"expvar":       "a global registry; metrics are telemetry's",
	"testing":      "it has no place in a program that serves",
	"unsafe":       "nothing here is that fast",
	"plugin":       "nothing is loaded that was not built in",
}

// rooms is the table. A package that is not in it fails the test: give it a line
// here and in ARCHITECTURE.md, with what it has a reason to know.
var rooms = map[string]room{
	// The words and the arithmetic. Everybody may use them, so they know nobody.
	"internal/payment":    {theirs: []string{ids}},
	"internal/budget":     {},
	"internal/crashpoint": {},
	"internal/watchfile":  {},
	"internal/tracing":    {theirs: []string{spans, spanCodes, propagate}, detaches: true},

	// The flows. They declare what they need; cmd gives it to them.
	"internal/decision": {
		ours:   []string{"internal/payment", "internal/budget", "internal/crashpoint", "internal/tracing"},
		theirs: []string{ids, spans},
	},
	"internal/queue": {
		ours:   []string{"internal/payment", "internal/budget", "internal/crashpoint", "internal/tracing"},
		theirs: []string{ids, groups, rates, spans, attributes},
	},

	// What speaks to the outside. ledger and wallet do not know each other.
	"internal/ledger": {
		ours:   []string{"internal/payment", "internal/crashpoint", "internal/tracing", "migrations"},
		theirs: []string{ids, postgres, groups},
	},
	"internal/wallet": {
		ours:   []string{"internal/payment", "internal/budget", "internal/crashpoint", "internal/tracing", "internal/watchfile"},
		theirs: []string{ids, breakers, strictJSON, spans, attributes, spanCodes, "net/http"},
	},
	"internal/api": {
		ours:   []string{"api", "internal/api/apitypes", "internal/budget", "internal/callers", "internal/decision", "internal/payment", "internal/tracing"},
		theirs: []string{ids, router, strictJSON, currencies, openapi, spans, attributes, spanCodes, "net/http"},
	},
	"internal/ops": {
		ours:   []string{"internal/callers", "internal/payment"},
		theirs: []string{ids, strictJSON, currencies, "net/http"},
	},
	"internal/api/apitypes": {theirs: []string{ids, openapi, strictJSON, "net/http"}},
	"internal/gate":         {theirs: []string{"net/http"}},
	"internal/callers":      {ours: []string{"internal/watchfile"}, theirs: []string{strictJSON}},
	"internal/telemetry": {
		ours:   []string{"internal/payment", "internal/tracing"},
		theirs: []string{metrics, currencies, traces, logging, "net/http"},
	},
	"internal/config": {
		ours:   []string{"internal/payment", "internal/decision"}, // the reserves that the numbers must leave room for
		theirs: []string{env},
	},
	"migrations": {theirs: []string{postgres, goose, "database/sql"}},
	"api":        {},

	// What tills use.
	"client": {theirs: []string{ids, "net/http"}},

	// What stands in for the outside.
	"internal/walletsim": {
		ours:   []string{"internal/payment", "internal/walletsim/pipe"}, // never wallet: it is the oracle
		theirs: []string{ids, strictJSON, "net/http"},
	},
	"internal/walletsim/pipe": {},
	"internal/program":        {theirs: []string{"os/exec"}},
	"internal/devstack": {
		ours:   []string{"internal/program"},
		theirs: []string{postgres, embedded, "os/exec", "net/http"},
	},

	// What wires.
	"bench":          {wires: true, theirs: []string{ids, flags, postgres, metrics, groups, "net/http", "os/exec"}},
	"cmd/safeledger": {wires: true, theirs: []string{ids, flags, postgres, metrics, groups, roots, "net/http", "os/exec"}},
	"cmd/walletsim":  {ours: []string{"internal/walletsim"}, theirs: []string{flags, "net/http"}},

	// For tests only.
	"internal/arch":         {forTests: true},
	"deploy/grafana":        {forTests: true}, // what is deployed is the JSON that it writes
	"internal/servicetest":  {wires: true, theirs: []string{ids, "net/http"}, forTests: true},
	"internal/documenttest": {theirs: []string{compare, "testing"}, forTests: true},
	"internal/pgtest": {
		ours:     []string{"internal/devstack", "migrations"},
		theirs:   []string{postgres, goose, "testing"},
		forTests: true,
	},
	"internal/api/apitest": {
		ours:     []string{"api", "internal/api", "internal/api/apitypes", "internal/callers", "internal/payment"},
		theirs:   []string{ids, strictJSON, contracts, validator, "net/http", "testing"},
		forTests: true,
	},
	"internal/ledger/memory": {
		ours:     []string{"internal/payment", "internal/ledger"},
		theirs:   []string{ids},
		forTests: true,
	},
	"internal/ledger/ledgertest": {
		ours:     []string{"internal/payment", "internal/ledger"},
		theirs:   []string{ids, compare, "testing"},
		forTests: true,
		later:    true,
	},
	"internal/wallet/wallettest": {
		ours:     []string{"internal/payment"},
		theirs:   []string{ids, strictJSON, "net/http", "testing"},
		forTests: true,
	},
	"test/model": {forTests: true}, // the protocol a second time: what it shared with us it would not check
	// What judges runs. It shares no code with what it judges, see
	// TestTheCheckerSharesNoCodeWithWhatItJudges.
	"test/check":         {ours: []string{"test/check/checker", "test/check/history"}, forTests: true},
	"test/check/checker": {ours: []string{"test/check/history"}, theirs: []string{ids, linear, postgres, strictJSON}, forTests: true},
	"test/check/history": {theirs: []string{"net/http"}, forTests: true}, // for whoever makes load
	// What makes the runs speaks to built programs, as tills, operators and the machine do.
	"test/torture": {
		ours:   []string{"client", "internal/devstack", "internal/program", "test/check/history", "test/torture/netfault"},
		theirs: []string{ids, flags, postgres, "net/http", "os/exec"}, forTests: true,
	},
	"test/torture/netfault": {forTests: true},
	"test": {wires: true, forTests: true, later: true, ours: []string{"test/check/history"}, theirs: []string{
		ids, compare, contracts, validator, flags, metrics, postgres, groups, rates, strictJSON, traceWire, protobuf, "net/http", "os/exec", "testing",
	}},
}

// file is one Go file.
type file struct {
	room string // its folder below the root, "/" between
	name string
	test bool
	tree *ast.File
}

// files are the Go files of this module, without those of nested modules.
func files(t *testing.T) []file {
	t.Helper()
	var all []file
	set := token.NewFileSet()
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name == root {
				return nil
			}
			if base := entry.Name(); base == "testdata" || base == "bin" || base[0] == '.' || base[0] == '_' {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(name, "go.mod")); err == nil {
				return fs.SkipDir // its own module
			}
			return nil
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		tree, err := parser.ParseFile(set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		all = append(all, file{
			room: path.Dir(filepath.ToSlash(below)),
			name: filepath.ToSlash(below),
			test: strings.HasSuffix(name, "_test.go"),
			tree: tree,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("found only %d Go files below %s", len(all), root)
	}
	return all
}

// imports are the paths that f imports.
func (f file) imports(t *testing.T) []string {
	t.Helper()
	var all []string
	for _, spec := range f.tree.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, imported)
	}
	return all
}

// roomOf is the line of the table for a folder. What lies below test/ and
// client/ shares theirs.
func roomOf(folder string) (room, bool) {
	r, known := rooms[folder]
	if top, _, below := strings.Cut(folder, "/"); !known && below && (top == "test" || top == "client") {
		r, known = rooms[top]
	}
	return r, known
}

// The rules must not come to know HTTP, SQL or each other by the way: such an
// import is one line in a review of a thousand, and never goes away again.
func TestImportsPointInwards(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		r, known := roomOf(f.room)
		if !known {
			t.Errorf("%s: no line for the package %s in internal/arch and in ARCHITECTURE.md", f.name, f.room)
			continue
		}
		if f.test {
			continue
		}
		for _, imported := range f.imports(t) {
			if complaint := refuse(r, imported); complaint != "" {
				t.Errorf("%s imports %s: %s", f.name, imported, complaint)
			}
		}
	}
}

// refuse says why r may not import a path, "" if it may.
func refuse(r room, imported string) string {
	if below, ours := strings.CutPrefix(imported, module+"/"); ours {
		return refuseOurs(r, below)
	}
	if strings.Contains(strings.Split(imported, "/")[0], ".") {
		for _, allowed := range r.theirs {
			if within(imported, allowed) {
				return ""
			}
		}
		return "this package has not been given that module; see internal/arch, and docs/dependencies.md if it is new"
	}
	for name, why := range guarded {
		if within(imported, name) && !slices.Contains(r.theirs, name) && imported != "log/slog" {
			return why
		}
	}
	return ""
}

func refuseOurs(r room, below string) string {
	target, known := roomOf(below)
	switch {
	case !known:
		return "no line for it in internal/arch"
	case target.forTests && !r.forTests:
		return "it is for tests only"
	case slices.Contains(r.ours, below):
		return ""
	case below == "test" || strings.HasPrefix(below, "test/") || strings.HasPrefix(below, "cmd/"):
		return "nothing imports cmd or test"
	case r.wires:
		return ""
	}
	return "imports point inwards; declare the interface that you need, and let cmd wire it"
}

func within(imported, parent string) bool {
	return imported == parent || strings.HasPrefix(imported, parent+"/")
}

// A misreading of the contract that stands in the service and in the program that judges
// its runs is one that no run will ever show. Their tests may use the service: to make
// the history that they then judge.
func TestTheCheckerSharesNoCodeWithWhatItJudges(t *testing.T) {
	t.Parallel()
	const checker = "test/check"
	seen := 0
	for _, f := range files(t) {
		if !within(f.room, checker) || f.test {
			continue
		}
		seen++
		for _, imported := range f.imports(t) {
			if below, ours := strings.CutPrefix(imported, module+"/"); ours && !within(below, checker) {
				t.Errorf("%s imports %s: write it down a second time, from the contract", f.name, imported)
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d files of the checker were found", seen)
	}
}

// A line for a package that is gone guards nothing, and hides that the package
// which took its place is not guarded either.
func TestTheTableIsNotBehind(t *testing.T) {
	t.Parallel()
	there := make(map[string]bool)
	for _, f := range files(t) {
		there[f.room] = true
	}
	for name, r := range rooms {
		if !there[name] && !r.later {
			t.Errorf("the table has %s, and there is no such package", name)
		}
		for _, other := range r.ours {
			if _, known := rooms[other]; !known {
				t.Errorf("%s may import %s, which has no line of its own", name, other)
			}
		}
	}
}

// Whoever opens a package must find one comment that says what it is for: none
// leaves them guessing, and with two, go doc shows one after the other.
func TestEveryPackageSaysOnceWhatItIsFor(t *testing.T) {
	t.Parallel()
	said := make(map[string][]string)
	packages := make(map[string]string)
	for _, f := range files(t) {
		onlyTests := f.room == "internal/arch"
		if f.test && !onlyTests {
			continue
		}
		if _, there := said[f.room]; !there {
			said[f.room] = nil
		}
		packages[f.room] = f.tree.Name.Name
		if f.tree.Doc != nil {
			said[f.room] = append(said[f.room], f.name)
			begins := "Package " + packages[f.room] + " "
			if packages[f.room] == "main" {
				begins = "Command " + path.Base(f.room) + " "
			}
			if text := f.tree.Doc.Text(); !strings.HasPrefix(text, begins) {
				t.Errorf("%s: the package comment begins %q, want %q", f.name, strings.SplitN(text, "\n", 2)[0], begins)
			}
		}
	}
	for name, where := range said {
		if len(where) != 1 {
			t.Errorf("package %s has %d package comments, want 1: %v", name, len(where), where)
		}
	}
}

// Work that starts before main, or that has no deadline from its caller, is
// what no test can hold and no shutdown can end.
func TestNothingStartsByItself(t *testing.T) {
	t.Parallel()
	for _, f := range files(t) {
		r, _ := roomOf(f.room)
		if f.test {
			continue
		}
		isMain := f.tree.Name.Name == "main"
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s: func init: make it in main and hand it down", f.name)
				}
			case *ast.SelectorExpr:
				from, ok := n.X.(*ast.Ident)
				if !ok {
					return true
				}
				switch call := from.Name + "." + n.Sel.Name; call {
				case "context.Background", "context.TODO":
					if !isMain && !r.forTests && !r.detaches {
						t.Errorf("%s: %s: take the caller's context; only main begins one", f.name, call)
					}
				case "time.Sleep":
					if !r.forTests {
						t.Errorf("%s: %s: wait for the event, or for ctx as well", f.name, call)
					}
				}
			}
			return true
		})
	}
}

// TestNoTestSleepsToWait keeps sleeping to the files in which time is testing/synctest's, and to those without a test of
// their own that help them: there it takes no time and cannot be too short. Elsewhere a test that sleeps is slow where
// the machine is fast and red where it is busy.
func TestNoTestSleepsToWait(t *testing.T) {
	t.Parallel()
	all := files(t)
	fake := func(f file) bool {
		return slices.ContainsFunc(f.tree.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"testing/synctest"` })
	}
	helped := map[string]bool{}
	for _, f := range all {
		if fake(f) {
			helped[path.Dir(f.name)] = true
		}
	}
	tests := func(f file) bool {
		return slices.ContainsFunc(f.tree.Decls, func(d ast.Decl) bool {
			function, ok := d.(*ast.FuncDecl)
			return ok && function.Recv == nil && strings.HasPrefix(function.Name.Name, "Test")
		})
	}
	for _, f := range all {
		if !f.test || fake(f) || helped[path.Dir(f.name)] && !tests(f) {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok || call.Sel.Name != "Sleep" {
				return true
			}
			if from, ok := call.X.(*ast.Ident); ok && from.Name == "time" {
				t.Errorf("%s: time.Sleep: wait for the event", f.name)
			}
			return true
		})
	}
}
