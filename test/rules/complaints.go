package rules

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Served is what a Prometheus has: the labels of each metric, by its name.
type Served map[string]map[string]bool

// Add notes that metric has labels.
func (s Served) Add(metric string, labels ...string) {
	if s[metric] == nil {
		s[metric] = map[string]bool{}
	}
	for _, l := range labels {
		s[metric][l] = true
	}
}

// Unknown says which queries cannot be parsed, or ask for a metric or a label that
// is not served. A label that no metric of a query has groups and matches nothing,
// without a word.
func (t Tree) Unknown(served Served) []string {
	var complaints []string
	for _, q := range t.Queries() {
		complain := func(format string, args ...any) {
			complaints = append(complaints, q.Where+": "+fmt.Sprintf(format, args...))
		}
		if q.Error != "" {
			complain("%s", q.Error)
			continue
		}
		known := map[string]bool{}
		for _, l := range q.Makes {
			known[l] = true
		}
		for _, s := range q.Selectors {
			labels, there := served[s.Metric]
			if !there {
				complain("there is no metric %s", s.Metric)
				continue
			}
			for _, m := range s.Matchers {
				if !labels[m.Label] {
					complain("%s has no label %s", s.Metric, m.Label)
				}
			}
			for l := range labels {
				known[l] = true
			}
		}
		for _, l := range q.Labels {
			if !known[l] {
				complain("no metric in it has the label %s", l)
			}
		}
	}
	return complaints
}

// The headings of a playbook, in their order.
var sections = []string{ //nolint:gochecknoglobals // a table
	"## What it means", "## What to look at", "## What to do", "## What not to do", "## When it is over",
}

// Mismatches says where rules, cases, playbooks and dashboard do not fit each other.
func (t Tree) Mismatches() []string {
	var complaints []string
	complain := func(format string, args ...any) { complaints = append(complaints, fmt.Sprintf(format, args...)) }

	alerts := t.Alerts()
	for _, name := range alerts {
		if text, there := t.Playbooks[name]; !there {
			complain("%s has no playbook", name)
		} else {
			complaints = append(complaints, playbook(name, text, t.severities(name))...)
		}
		if !strings.Contains(t.index, "]("+name+".md)") {
			complain("%s is not in the list of playbooks", name)
		}
		// Both: a rule that always fires is as wrong as one that never does.
		cases := t.Cases[name]
		if !strings.Contains(cases, "exp_alerts:") {
			complain("%s has no case in which it fires", name)
		}
		if !silent(name, cases) {
			complain("%s has no case in which it is silent", name)
		}
		if !slices.ContainsFunc(t.Panels, func(p Panel) bool { return slices.Contains(p.Alerts, name) }) {
			complain("no panel of the dashboard leads to the playbook of %s", name)
		}
	}
	for _, name := range sorted(t.Playbooks) {
		if !slices.Contains(alerts, name) {
			complain("the playbook %s is of no alert", name)
		}
	}
	for _, name := range sorted(t.Cases) {
		if !slices.Contains(alerts, name) {
			complain("the cases %s are of no alert", name)
		}
	}
	for _, r := range t.Rules {
		if r.Alert != "" {
			complaints = append(complaints, announced(r)...)
			complaints = append(complaints, t.elsewhere(r)...)
		} else if !t.used(r.Record) {
			complain("%s is recorded, and nobody asks for it", r.Record)
		}
	}
	return append(complaints, t.thresholds()...)
}

// silent reports whether cases have one in which nothing is expected of the alert.
func silent(name, cases string) bool {
	return strings.Contains(cases, "alertname: "+name+"}")
}

// severities are those of an alert: page, ticket, or both.
func (t Tree) severities(alert string) map[string]bool {
	all := map[string]bool{}
	for _, r := range t.Rules {
		if r.Alert == alert {
			all[r.Labels["severity"]] = true
		}
	}
	return all
}

// playbook says what is missing in the playbook of an alert.
func playbook(name, text string, severities map[string]bool) []string {
	var complaints []string
	rest, begins := strings.CutPrefix(text, "# "+name+"\n\n")
	if !begins {
		complaints = append(complaints, name+": its playbook does not begin with its name")
	}
	first, _, _ := strings.Cut(rest, "\n")
	for _, s := range []string{"page", "ticket"} {
		if strings.Contains(first, "**"+s+"**") != severities[s] {
			complaints = append(complaints, fmt.Sprintf("%s: its playbook says %q, its severities are %q", name, first, sorted(severities)))
		}
	}
	at := 0
	for _, s := range sections {
		i := strings.Index(text[at:], "\n"+s+"\n")
		if i < 0 {
			complaints = append(complaints, fmt.Sprintf("%s: its playbook has no %q, or in another order", name, s))
			continue
		}
		at += i + 1
	}
	if len(blocks(name, text)) == 0 {
		complaints = append(complaints, name+": its playbook asks Prometheus nothing")
	}
	return complaints
}

// announced says what is missing for those who are woken by r.
func announced(r Rule) []string {
	var complaints []string
	if s := r.Labels["severity"]; s != "page" && s != "ticket" {
		complaints = append(complaints, fmt.Sprintf("%s: the severity is %q, want page or ticket", r.Alert, s))
	}
	for _, a := range []string{"summary", "description"} {
		if r.Annotations[a] == "" {
			complaints = append(complaints, r.Alert+": no "+a)
		}
	}
	if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/"+path.Join(PlaybooksDir, r.Alert+".md")) {
		complaints = append(complaints, fmt.Sprintf("%s: the playbook is said to be at %q", r.Alert, url))
	}
	return complaints
}

// elsewhere says what an alert asks for that another group records: groups are evaluated
// side by side, so it would see what was a moment ago, or not.
func (t Tree) elsewhere(alert Rule) []string {
	var complaints []string
	for _, s := range alert.Query.Selectors {
		for _, r := range t.Rules {
			if r.Record == s.Metric && r.Group != alert.Group {
				complaints = append(complaints, fmt.Sprintf("%s asks for %s, which another group records", alert.Alert, r.Record))
			}
		}
	}
	return complaints
}

// used reports whether anything asks for what is recorded under name.
func (t Tree) used(name string) bool {
	return slices.ContainsFunc(t.Queries(), func(q Query) bool {
		return slices.ContainsFunc(q.Selectors, func(s Selector) bool { return s.Metric == name })
	})
}

// thresholds says which lines of the dashboard are not where the alert is that they
// stand for.
func (t Tree) thresholds() []string {
	var complaints []string
	for _, p := range t.Panels {
		for _, name := range p.Alerts {
			if !slices.Contains(t.Alerts(), name) {
				complaints = append(complaints, fmt.Sprintf("dashboard: %s: there is no alert %s", p.Title, name))
			}
		}
		if len(p.Threshold) == 0 {
			continue
		}
		if len(p.Alerts) == 0 {
			complaints = append(complaints, fmt.Sprintf("dashboard: %s: its threshold is no alert's", p.Title))
			continue
		}
		for _, line := range p.Threshold {
			if !slices.ContainsFunc(t.Rules, func(r Rule) bool {
				return r.Alert == p.Alerts[0] && slices.Contains(r.Query.Compares, line)
			}) {
				complaints = append(complaints, fmt.Sprintf("dashboard: %s: %v is not a threshold of %s", p.Title, line, p.Alerts[0]))
			}
		}
	}
	return complaints
}
