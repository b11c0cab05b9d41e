// Package rules reads what watches SafeLedger from outside (the rules of
// deploy/prometheus, the dashboard of deploy/grafana, the queries in docs/playbooks)
// and says what is wrong with it. An alert that asks for a metric that nobody serves
// never fires, and nobody notices that.
package rules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Where the parts lie, from the root of the repository.
const (
	RulesFile    = "deploy/prometheus/rules.yaml"
	CasesDir     = "deploy/prometheus/tests"
	PlaybooksDir = "docs/playbooks"
	Dashboard    = "deploy/grafana/safeledger.json"

	index = "README.md" // of the playbooks: not one itself
)

// Rule is one rule of RulesFile.
type Rule struct {
	Group       string
	Record      string // the name of what it records, "" for an alert
	Alert       string
	For         string
	Labels      map[string]string
	Annotations map[string]string
	Query       Query
}

// Query is an expression and what Prometheus' own parser sees in it.
type Query struct {
	Where string // for people
	Expr  string // as it stands there
	Error string // why it is none
	// Selectors are the series that it asks for.
	Selectors []Selector
	Labels    []string  // that it groups, matches or takes over by
	Makes     []string  // that it makes itself
	Compares  []float64 // numbers that something is compared with
}

// Selector selects series.
type Selector struct {
	Metric   string
	Matchers []Matcher // without the name's
	Text     string
}

// Matcher is a condition on a label.
type Matcher struct{ Label, Op, Value string }

// Panel is a panel of the dashboard.
type Panel struct {
	Title     string
	Alerts    []string // whose playbooks it links to
	Threshold []float64
	Queries   []Query
}

// Tree is all of it.
type Tree struct {
	Rules  []Rule
	Panels []Panel
	// Playbooks are the texts by the name of their alert, Cases those of promtool's tests.
	Playbooks, Cases map[string]string
	// PlaybookQueries are those that the playbooks tell people to run.
	PlaybookQueries []Query
	index           string // of the playbooks
}

// Build builds tools/promql, which parses, into a program in dir.
func Build(ctx context.Context, root, dir string) (tool string, err error) {
	tool, err = filepath.Abs(filepath.Join(dir, "promql"))
	if err != nil {
		return "", fmt.Errorf("find a place for promql: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", tool, ".")
	cmd.Dir = filepath.Join(root, "tools", "promql")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build tools/promql: %w: %s", err, out)
	}
	return tool, nil
}

// Read reads the parts below root. tool is what Build has built.
func Read(ctx context.Context, root, tool string) (Tree, error) {
	t := Tree{Playbooks: map[string]string{}, Cases: map[string]string{}}
	for dir, into := range map[string]struct {
		suffix string
		texts  map[string]string
	}{PlaybooksDir: {".md", t.Playbooks}, CasesDir: {".yaml", t.Cases}} {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			return Tree{}, fmt.Errorf("read %s: %w", dir, err)
		}
		for _, e := range entries {
			content, err := os.ReadFile(filepath.Join(root, dir, e.Name()))
			if err != nil {
				return Tree{}, fmt.Errorf("read %s: %w", dir, err)
			}
			if e.Name() == index {
				t.index = string(content)
				continue
			}
			name, ours := strings.CutSuffix(e.Name(), into.suffix)
			if !ours {
				return Tree{}, fmt.Errorf("%s: what is this?", path.Join(dir, e.Name()))
			}
			into.texts[name] = string(content)
		}
	}
	panels, err := readPanels(filepath.Join(root, Dashboard))
	if err != nil {
		return Tree{}, err
	}
	t.Panels = panels
	for _, name := range sorted(t.Playbooks) {
		t.PlaybookQueries = append(t.PlaybookQueries, blocks(name, t.Playbooks[name])...)
	}
	return t, t.parse(ctx, filepath.Join(root, RulesFile), tool)
}

// parse has the tool parse all queries and the rules.
func (t *Tree) parse(ctx context.Context, rulesFile, tool string) error {
	var all []*Query
	for i := range t.Panels {
		for j := range t.Panels[i].Queries {
			all = append(all, &t.Panels[i].Queries[j])
		}
	}
	for i := range t.PlaybookQueries {
		all = append(all, &t.PlaybookQueries[i])
	}
	question := struct {
		Rules   []string `json:"rules"`
		Queries []string `json:"queries"`
	}{Rules: []string{rulesFile}}
	for _, q := range all {
		question.Queries = append(question.Queries, q.Bare())
	}
	var answer struct {
		Rules   []Rule
		Queries []Query
		Errors  []string
	}
	if err := ask(ctx, tool, question, &answer); err != nil {
		return err
	}
	if len(answer.Errors) > 0 {
		return fmt.Errorf("%s", strings.Join(answer.Errors, "\n"))
	}
	for i, q := range all {
		where, expr := q.Where, q.Expr
		*q = answer.Queries[i]
		q.Where, q.Expr = where, expr
	}
	for _, r := range answer.Rules {
		r.Query.Where = path.Base(rulesFile) + ": " + r.Record + r.Alert
		t.Rules = append(t.Rules, r)
	}
	return nil
}

func ask(ctx context.Context, tool string, question, answer any) error {
	in, err := json.Marshal(question)
	if err != nil {
		return fmt.Errorf("ask for what is in the queries: %w", err)
	}
	cmd := exec.CommandContext(ctx, tool)
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return fmt.Errorf("%s: %w: %s", path.Base(tool), err, exit.Stderr)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path.Base(tool), err)
	}
	if err := json.Unmarshal(out, answer); err != nil {
		return fmt.Errorf("read what the tool says: %w", err)
	}
	return nil
}

// Bare is the expression without what Grafana fills in.
func (q Query) Bare() string {
	return strings.NewReplacer("$__rate_interval", "1m", "$namespace", ".*").Replace(q.Expr)
}

func readPanels(file string) ([]Panel, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	var d struct {
		Panels []struct {
			Title       string
			Targets     []struct{ Expr string }
			Links       []struct{ Title, URL string }
			FieldConfig struct {
				Defaults struct {
					Thresholds struct{ Steps []struct{ Value *float64 } }
				}
			}
		}
	}
	if err := json.Unmarshal(content, &d); err != nil {
		return nil, fmt.Errorf("read the dashboard: %w", err)
	}
	var panels []Panel
	for _, p := range d.Panels {
		told := Panel{Title: p.Title}
		for _, q := range p.Targets {
			told.Queries = append(told.Queries, Query{Where: "dashboard: " + p.Title, Expr: q.Expr})
		}
		for _, l := range p.Links {
			told.Alerts = append(told.Alerts, strings.TrimSuffix(path.Base(l.URL), ".md"))
		}
		for _, s := range p.FieldConfig.Defaults.Thresholds.Steps {
			if s.Value != nil {
				told.Threshold = append(told.Threshold, *s.Value)
			}
		}
		panels = append(panels, told)
	}
	return panels, nil
}

var block = regexp.MustCompile("(?ms)^```promql\n(.*?)^```$")

// blocks are the queries of a playbook: its fenced blocks called promql, an empty
// line between two queries.
func blocks(name, text string) []Query {
	var all []Query
	for _, b := range block.FindAllStringSubmatch(text, -1) {
		for expr := range strings.SplitSeq(strings.TrimSpace(b[1]), "\n\n") {
			all = append(all, Query{Where: path.Join(PlaybooksDir, name+".md"), Expr: expr})
		}
	}
	return all
}

// Queries are all of them.
func (t Tree) Queries() []Query {
	var all []Query
	for _, r := range t.Rules {
		all = append(all, r.Query)
	}
	for _, p := range t.Panels {
		all = append(all, p.Queries...)
	}
	return append(all, t.PlaybookQueries...)
}

// Alerts are their names.
func (t Tree) Alerts() []string {
	names := map[string]bool{}
	for _, r := range t.Rules {
		if r.Alert != "" {
			names[r.Alert] = true
		}
	}
	return sorted(names)
}

// Recorded are the names of what is recorded.
func (t Tree) Recorded() []string {
	var names []string
	for _, r := range t.Rules {
		if r.Record != "" {
			names = append(names, r.Record)
		}
	}
	return names
}

func sorted[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Copy copies the parts below root to below another, for a test that spoils them.
func Copy(from, to string) error {
	for _, part := range []string{path.Dir(RulesFile), PlaybooksDir, path.Dir(Dashboard)} {
		if err := os.MkdirAll(filepath.Join(to, path.Dir(part)), 0o755); err != nil {
			return fmt.Errorf("copy %s: %w", part, err)
		}
		if err := os.CopyFS(filepath.Join(to, part), os.DirFS(filepath.Join(from, part))); err != nil {
			return fmt.Errorf("copy %s: %w", part, err)
		}
	}
	return nil
}
