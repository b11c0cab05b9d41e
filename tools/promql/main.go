// Command promql tells, as JSON, what Prometheus' own parser sees in rule files and
// in queries: which series they select, which labels they name, what they compare
// with. It is a module of its own because Prometheus' dependencies are not ours.
//
//	promql < {"rules": ["rules.yaml"], "queries": ["up == 0"]} > {"rules": [ … ], "queries": [ … ]}
//
// What cannot be parsed has its error in its place; the exit status says only
// whether there is an answer.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

type question struct {
	Rules   []string `json:"rules"` // paths of rule files
	Queries []string `json:"queries"`
}

type answer struct {
	Rules   []rule  `json:"rules"`
	Queries []query `json:"queries"`
	// Errors are those of rule files that cannot be read as such.
	Errors []string `json:"errors,omitempty"`
}

// rule is a recording or an alerting rule.
type rule struct {
	File        string            `json:"file"`
	Group       string            `json:"group"`
	Record      string            `json:"record,omitempty"`
	Alert       string            `json:"alert,omitempty"`
	For         string            `json:"for,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Query       query             `json:"query"`
}

// query is an expression and what is in it.
type query struct {
	Expr  string `json:"expr"`
	Error string `json:"error,omitempty"`
	// Selectors are in the order in which they stand.
	Selectors []selector `json:"selectors,omitempty"`
	// Labels are those that it groups, matches or takes over by.
	Labels []string `json:"labels,omitempty"`
	// Makes are labels that it makes itself.
	Makes []string `json:"makes,omitempty"`
	// Compares are the numbers that something is compared with.
	Compares []float64 `json:"compares,omitempty"`
}

type selector struct {
	Metric   string    `json:"metric"`
	Matchers []matcher `json:"matchers,omitempty"` // without the metric's name
	// Text is the selector alone, without its range and offset.
	Text string `json:"text"`
}

type matcher struct {
	Label string `json:"label"`
	Op    string `json:"op"`
	Value string `json:"value"`
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "promql:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var q question
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&q); err != nil {
		return fmt.Errorf("read the question: %w", err)
	}
	p := parser.NewParser(parser.Options{})
	a := answer{Rules: []rule{}, Queries: []query{}}
	for _, file := range q.Rules {
		groups, errs := rulefmt.ParseFile(file, false, model.LegacyValidation, p, slog.New(slog.DiscardHandler))
		for _, err := range errs {
			a.Errors = append(a.Errors, err.Error())
		}
		if groups == nil {
			continue
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				told := rule{
					File: file, Group: g.Name, Record: r.Record, Alert: r.Alert,
					Labels: r.Labels, Annotations: r.Annotations, Query: look(p, r.Expr),
				}
				if r.For != 0 {
					told.For = r.For.String()
				}
				a.Rules = append(a.Rules, told)
			}
		}
	}
	for _, expr := range q.Queries {
		a.Queries = append(a.Queries, look(p, expr))
	}
	return json.NewEncoder(out).Encode(a)
}

// look tells what is in expr.
func look(p parser.Parser, expr string) query {
	q := query{Expr: expr}
	tree, err := p.ParseExpr(expr)
	if err != nil {
		q.Error = err.Error()
		return q
	}
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.VectorSelector:
			q.Selectors = append(q.Selectors, selectorOf(n))
		case *parser.AggregateExpr:
			q.Labels = append(q.Labels, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				q.Labels = append(q.Labels, n.VectorMatching.MatchingLabels...)
				q.Labels = append(q.Labels, n.VectorMatching.Include...)
			}
			if n.Op.IsComparisonOperator() {
				for _, side := range []parser.Expr{n.LHS, n.RHS} {
					if number, ok := constant(side); ok {
						q.Compares = append(q.Compares, number)
					}
				}
			}
		case *parser.Call:
			q.called(n)
		}
		return nil
	})
	slices.Sort(q.Labels)
	q.Labels = slices.Compact(q.Labels)
	return q
}

// called notes the labels that a function reads and makes: they are its strings.
func (q *query) called(call *parser.Call) {
	const (
		made  = 1 // of label_replace and label_join
		read  = 3 // the one of label_replace, the first of label_join
		plain = 1 // the first of sort_by_label
	)
	text := func(i int) string {
		if i < len(call.Args) {
			if s, ok := call.Args[i].(*parser.StringLiteral); ok {
				return s.Val
			}
		}
		return ""
	}
	switch call.Func.Name {
	case "label_replace":
		q.Makes, q.Labels = append(q.Makes, text(made)), append(q.Labels, text(read))
	case "label_join":
		q.Makes = append(q.Makes, text(made))
		for i := read; i < len(call.Args); i++ {
			q.Labels = append(q.Labels, text(i))
		}
	case "sort_by_label", "sort_by_label_desc":
		for i := plain; i < len(call.Args); i++ {
			q.Labels = append(q.Labels, text(i))
		}
	}
}

func selectorOf(n *parser.VectorSelector) selector {
	s := selector{Metric: n.Name}
	for _, m := range n.LabelMatchers {
		switch {
		case m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual:
			s.Metric = m.Value
		default:
			s.Matchers = append(s.Matchers, matcher{m.Name, m.Type.String(), m.Value})
		}
	}
	bare := &parser.VectorSelector{Name: n.Name, LabelMatchers: n.LabelMatchers}
	s.Text = bare.String()
	return s
}

// constant is the value of an expression that is a number, or a sum of them that
// somebody has written out, such as 5 / 300.
func constant(expr parser.Expr) (float64, bool) {
	switch n := expr.(type) {
	case *parser.NumberLiteral:
		return n.Val, true
	case *parser.ParenExpr:
		return constant(n.Expr)
	case *parser.UnaryExpr:
		number, ok := constant(n.Expr)
		if n.Op == parser.SUB {
			number = -number
		}
		return number, ok
	case *parser.BinaryExpr:
		left, ok := constant(n.LHS)
		right, too := constant(n.RHS)
		if !ok || !too {
			return 0, false
		}
		switch n.Op {
		case parser.ADD:
			return left + right, true
		case parser.SUB:
			return left - right, true
		case parser.MUL:
			return left * right, true
		case parser.DIV:
			return left / right, true
		}
	}
	return 0, false
}
