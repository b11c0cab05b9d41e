//go:build prometheus

package rules_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/safeledger/safeledger/internal/telemetry"
	"github.com/safeledger/safeledger/test/rules"
)

const root = "../.."

var tool string // built once

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "safeledger-rules-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if tool, err = rules.Build(context.Background(), root, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// Somebody is woken by an alert, opens the playbook of its name, and looks at the
// dashboard. Each of the three must be there, and the cases that show when it fires.
func TestRulesPlaybooksCasesAndDashboardFit(t *testing.T) {
	t.Parallel()
	tree := read(t, root)
	if got := tree.Alerts(); len(got) < 20 {
		t.Errorf("found only %q", got)
	}
	for _, complaint := range tree.Mismatches() {
		t.Error(complaint)
	}
}

// An alert on a metric that was renamed never fires again. Here the queries are held
// to the catalogue, which is quick; that the catalogue is what a running service
// exposes, and that every selector selects something there, is
// TestEveryQueryIsAboutWhatIsServed in test/e2e.
func TestEveryQueryAsksForWhatTheCatalogueHas(t *testing.T) {
	t.Parallel()
	tree := read(t, root)
	if got := len(tree.PlaybookQueries); got < len(tree.Alerts()) {
		t.Errorf("found only %d queries in the playbooks", got)
	}
	for _, complaint := range tree.Unknown(catalogue(t, tree)) {
		t.Error(complaint)
	}
}

// What these checks are for, done wrong on purpose: each must be found, and said in
// words that lead to it.
func TestWhatIsPlantedIsFound(t *testing.T) {
	t.Parallel()
	served := catalogue(t, read(t, root))
	const another = "\n      - alert: SafeLedgerSomethingElse\n        expr: up == 0\n"
	for name, c := range map[string]struct {
		file, old, new string // new "" with old "": the file is removed
		want           string
	}{
		"an unknown metric in a rule": {
			rules.RulesFile, "safeledger_gate_refused_total{reason!=", "safeledger_gate_refusals_total{reason!=",
			"rules.yaml: namespace_reason:safeledger_gate_refused:ratio_rate2m: there is no metric safeledger_gate_refusals_total",
		},
		"an unknown label in a rule": {
			rules.RulesFile, `{code=~"WALLET`, `{cod=~"WALLET`,
			"namespace_operation_state_code:safeledger_decisions:rate5m has no label cod",
		},
		"a grouping by a label that is not there": {
			rules.RulesFile, "sum by (namespace, operation, state, code)", "sum by (namespace, operation, state, codes)",
			"no metric in it has the label codes",
		},
		"a matching on a label that is not there": {
			rules.RulesFile, "and on (namespace, job, instance)", "and on (namespace, job, pod)",
			"no metric in it has the label pod",
		},
		"a rule that is no PromQL": {rules.RulesFile, "up{job=", "up{job==", "SafeLedgerDown"},
		"an unknown metric in the dashboard": {
			rules.Dashboard, "safeledger_gate_in_flight{", "safeledger_gate_inflight{",
			"dashboard: Inside the gate: there is no metric safeledger_gate_inflight",
		},
		"an unknown label in the dashboard": {
			rules.Dashboard, "sum by (lane) (safeledger_wallet_in_flight", "sum by (lanes) (safeledger_wallet_in_flight",
			"dashboard: In flight at the wallet: no metric in it has the label lanes",
		},
		"a threshold that is not the alert's": {
			rules.RulesFile, `state="PENDING"} > 1800`, `state="PENDING"} > 3600`,
			"dashboard: Oldest that waits: 1800 is not a threshold of SafeLedgerQueueOld",
		},
		"a link to a playbook that is not there": {
			rules.Dashboard, "playbooks/SafeLedgerParked.md", "playbooks/SafeLedgerPark.md",
			"dashboard: Parked: there is no alert SafeLedgerPark",
		},
		"an unknown metric in a playbook": {
			rules.PlaybooksDir + "/SafeLedgerParked.md", "```promql\n", "```promql\nsafeledger_follow_ups_parked\n\n",
			"docs/playbooks/SafeLedgerParked.md: there is no metric safeledger_follow_ups_parked",
		},
		"a rule without anything": {
			rules.RulesFile, "\n  - name: safeledger-tills", another + "\n  - name: safeledger-tills",
			"SafeLedgerSomethingElse has no playbook",
		},
		"a rule without cases": {rules.CasesDir + "/SafeLedgerParked.yaml", "", "", "SafeLedgerParked has no case in which it fires"},
		"a rule that is never silent in its cases": {
			rules.CasesDir + "/SafeLedgerParked.yaml", "alertname: SafeLedgerParked}", "alertname: SafeLedgerDown}",
			"SafeLedgerParked has no case in which it is silent",
		},
		"cases without a rule":      {rules.RulesFile, "alert: SafeLedgerQueueOld", "alert: SafeLedgerQueueAged", "the cases SafeLedgerQueueOld are of no alert"},
		"an alert without playbook": {rules.PlaybooksDir + "/SafeLedgerParked.md", "", "", "SafeLedgerParked has no playbook"},
		"a playbook without alert":  {rules.RulesFile, "alert: SafeLedgerQueueOld", "alert: SafeLedgerQueueAged", "the playbook SafeLedgerQueueOld is of no alert"},
		"a playbook of another name": {
			rules.PlaybooksDir + "/SafeLedgerParked.md", "# SafeLedgerParked", "# Parked", "SafeLedgerParked: its playbook does not begin with its name",
		},
		"a playbook that does not say what not to do": {
			rules.PlaybooksDir + "/SafeLedgerParked.md", "## What not to do", "## Afterwards", `SafeLedgerParked: its playbook has no "## What not to do"`,
		},
		"a playbook that is not in the list": {
			rules.PlaybooksDir + "/README.md", "(SafeLedgerParked.md)", "(parked.md)", "SafeLedgerParked is not in the list of playbooks",
		},
		"the playbook of another alert": {
			rules.RulesFile, "docs/playbooks/SafeLedgerParked.md", "docs/playbooks/SafeLedgerDown.md", "SafeLedgerParked: the playbook is said to be at",
		},
		"a playbook that is no page any more": {
			rules.RulesFile, "severity: page", "severity: ticket", `SafeLedgerAbsent: its playbook says "**page**`,
		},
		"a severity that nobody routes": {rules.RulesFile, "severity: page", "severity: critical", `the severity is "critical"`},
		"an alert that says nothing":    {rules.RulesFile, "summary: The wallet does not decide; customers are declined.", `summary: ""`, "SafeLedgerWalletNotDeciding: no summary"},
		"an alert that the dashboard does not know": {
			rules.Dashboard, "SafeLedgerBreakerOpen", "SafeLedgerParked", "no panel of the dashboard leads to the playbook of SafeLedgerBreakerOpen",
		},
		"an alert away from what it asks for": {
			rules.RulesFile, "      - alert: SafeLedgerQueueOld", "  - name: elsewhere\n    rules:\n      - alert: SafeLedgerQueueOld",
			"SafeLedgerQueueOld asks for namespace_kind_state_currency:safeledger_follow_ups_open_oldest_age_seconds:max, which another group records",
		},
		"a record that nobody asks for": {
			rules.RulesFile, "record: namespace:safeledger_payments_recovered:increase1h", "record: namespace:safeledger_payments_recovered:increase2h",
			"namespace:safeledger_payments_recovered:increase2h is recorded, and nobody asks for it",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planted := t.TempDir()
			if err := rules.Copy(root, planted); err != nil {
				t.Fatal(err)
			}
			plant(t, filepath.Join(planted, c.file), c.old, c.new)
			tree, err := rules.Read(t.Context(), planted, tool)
			var complaints []string
			if err != nil {
				complaints = append(complaints, err.Error())
			} else {
				complaints = append(tree.Mismatches(), tree.Unknown(served)...)
			}
			if !slices.ContainsFunc(complaints, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("not found: %q\nbut %q", c.want, complaints)
			}
		})
	}
}

func plant(t *testing.T, file, old, replacement string) {
	t.Helper()
	if old == "" {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		return
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	planted := strings.ReplaceAll(string(content), old, replacement)
	if planted == string(content) {
		t.Fatalf("%s has no %q", file, old)
	}
	if err := os.WriteFile(file, []byte(planted), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Prometheus' own tool reads the rules, and runs the cases: each alert fires where it
// should and is silent where it should be, with series that are missing, replicas
// that restart, and several of them.
func TestPromtoolPassesRulesAndCases(t *testing.T) {
	t.Parallel()
	promtool(t, root, "check", "rules", "--lint=all", "--lint-fatal", rules.RulesFile)
	cases, err := filepath.Glob(filepath.Join(root, rules.CasesDir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range cases {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			promtool(t, filepath.Dir(file), "test", "rules", filepath.Base(file))
		})
	}
}

// And the cases are worth something: with its alert spoilt, each file is red.
func TestTheCasesNoticeASpoiltRule(t *testing.T) {
	t.Parallel()
	for _, alert := range read(t, root).Alerts() {
		t.Run(alert, func(t *testing.T) {
			t.Parallel()
			for _, spoilt := range []string{"vector(1) > 0", "vector(1) > 2"} { // always, never
				planted := t.TempDir()
				if err := rules.Copy(root, planted); err != nil {
					t.Fatal(err)
				}
				file := filepath.Join(planted, rules.RulesFile)
				content, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(withExpr(t, string(content), alert, spoilt)), 0o600); err != nil {
					t.Fatal(err)
				}
				cmd := exec.CommandContext(t.Context(), "promtool", "test", "rules", alert+".yaml")
				cmd.Dir = filepath.Join(planted, rules.CasesDir)
				if out, err := cmd.CombinedOutput(); err == nil {
					t.Errorf("with the expression %s its cases pass:\n%s", spoilt, out)
				} else if !strings.Contains(string(out), "FAILED") {
					t.Errorf("with the expression %s: %v\n%s", spoilt, err, out)
				}
			}
		})
	}
}

// withExpr gives each rule of an alert another expression.
func withExpr(t *testing.T, content, alert, expr string) string {
	t.Helper()
	var out []string
	inside, skipping, found := false, false, false
	for line := range strings.SplitSeq(content, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(trimmed, "- alert: "), strings.HasPrefix(trimmed, "- record: "):
			inside, skipping = trimmed == "- alert: "+alert, false
		case inside && strings.HasPrefix(trimmed, "expr:"):
			out = append(out, "        expr: "+expr)
			skipping, found = true, true
			continue
		case skipping && (strings.HasPrefix(line, "        for:") || strings.HasPrefix(line, "        labels:")):
			skipping = false
		}
		if !skipping {
			out = append(out, line)
		}
	}
	if !found {
		t.Fatalf("no rule of %s", alert)
	}
	return strings.Join(out, "\n")
}

func promtool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "promtool", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func read(t *testing.T, root string) rules.Tree {
	t.Helper()
	tree, err := rules.Read(t.Context(), root, tool)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// catalogue is what the code says that it serves, as a Prometheus has it that scrapes
// each target with a namespace, a job and an instance.
func catalogue(t *testing.T, tree rules.Tree) rules.Served {
	t.Helper()
	served := rules.Served{}
	target := []string{"namespace", "job", "instance"}
	for _, m := range telemetry.Catalogue() {
		labels := append(slices.Clone(m.Labels), target...)
		if m.Type != "histogram" {
			served.Add(m.Name, labels...)
			continue
		}
		served.Add(m.Name+"_bucket", append(labels, "le")...)
		served.Add(m.Name+"_sum", labels...)
		served.Add(m.Name+"_count", labels...)
	}
	registry := prometheus.NewRegistry()
	telemetry.New(registry, "v1", "c")
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			served.Add(f.GetName(), target...)
			served.Add(f.GetName()+"_sum", target...)
			served.Add(f.GetName()+"_count", target...)
		}
	}
	// What Prometheus makes itself.
	served.Add("up", target...)
	served.Add("ALERTS", "namespace", "alertname", "alertstate", "severity")
	// What is recorded has the labels with which its name begins.
	for _, name := range tree.Recorded() {
		level, _, _ := strings.Cut(name, ":")
		served.Add(name, strings.Split(level, "_")...)
	}
	return served
}

// A rule that keeps its hour in a test of two minutes is one that was not tested.
func TestShortenKnowsEveryDuration(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, rules.RulesFile))
	if err != nil {
		t.Fatal(err)
	}
	short, err := rules.Shorten(string(content))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "short.yaml")
	if err := os.WriteFile(file, []byte(short), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, root, "check", "rules", "--lint=all", "--lint-fatal", file)
	for old, replacement := range map[string]string{
		"[5m]": "[4h]", "for: 2m": "for: 9m", "offset 1h": "offset 2h", "interval: 5m": "interval: 11m",
		"> 0.4\n": "> 400\n", "> 1800": "> 2400",
	} {
		if _, err := rules.Shorten(strings.Replace(string(content), old, replacement, 1)); err == nil {
			t.Errorf("%q in the place of %q is not noticed", replacement, old)
		}
	}
}
