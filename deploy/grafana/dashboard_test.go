package grafana

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/internal/documenttest"
)

const path = "safeledger.json"

// What is imported into Grafana must be what was reviewed.
func TestDashboardIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	want, err := JSON()
	if err != nil {
		t.Fatal(err)
	}
	documenttest.CheckFile(t, path, string(want))
}

// A dashboard is read at night by somebody who did not write it: every panel says
// what it shows, in what unit and what is good. Grafana takes two panels with one id
// for one, and draws those that overlap somewhere else.
func TestEveryPanelCanBeRead(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if problems := lint(content); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
}

// And the check finds what it is for.
func TestLintFindsWhatIsPlanted(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, plant := range map[string]func(panels []map[string]any){
		"an id twice":    func(p []map[string]any) { p[3]["id"] = p[2]["id"] },
		"no title":       func(p []map[string]any) { p[2]["title"] = "" },
		"no description": func(p []map[string]any) { delete(p[2], "description") },
		"a title twice":  func(p []map[string]any) { p[3]["title"] = p[2]["title"] },
		"no unit": func(p []map[string]any) {
			p[2]["fieldConfig"].(map[string]any)["defaults"].(map[string]any)["unit"] = ""
		},
		"no query":               func(p []map[string]any) { p[2]["targets"] = []any{} },
		"a data source by name":  func(p []map[string]any) { p[2]["datasource"] = map[string]any{"type": "prometheus", "uid": "prod"} },
		"not of an installation": func(p []map[string]any) { p[2]["targets"].([]any)[0].(map[string]any)["expr"] = "up" },
		"one over the other":     func(p []map[string]any) { p[3]["gridPos"] = p[2]["gridPos"] },
		"beyond the right":       func(p []map[string]any) { p[3]["gridPos"].(map[string]any)["x"] = 20 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var d map[string]any
			if err := json.Unmarshal(content, &d); err != nil {
				t.Fatal(err)
			}
			var panels []map[string]any
			for _, p := range d["panels"].([]any) {
				panels = append(panels, p.(map[string]any))
			}
			plant(panels)
			planted, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			if problems := lint(planted); len(problems) == 0 {
				t.Error("not found")
			}
		})
	}
}

// lint says what is wrong with a dashboard.
func lint(content []byte) (problems []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var d struct {
		UID, Title string
		Templating templating
		Panels     []panelJSON
	}
	if err := json.Unmarshal(content, &d); err != nil {
		return []string{err.Error()}
	}
	if d.UID == "" || d.Title == "" {
		complain("a dashboard without uid or title")
	}
	for _, want := range []string{"datasource", "namespace"} {
		if !slices.ContainsFunc(d.Templating.List, func(v variable) bool { return v.Name == want }) {
			complain("no variable %s", want)
		}
	}
	ids, titles := map[int]bool{}, map[string]bool{}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			complain("%q has the id %d of another, or none", p.Title, p.ID)
		}
		if titles[p.Title] || p.Title == "" {
			complain("panel %d has the title %q of another, or none", p.ID, p.Title)
		}
		ids[p.ID], titles[p.Title] = true, true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, there := taken[[2]int{x, y}]; there {
					complain("%q lies over %q", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.GridPos.X+p.GridPos.W > columns || p.GridPos.W <= 0 || p.GridPos.H <= 0 {
			complain("%q has no place on the grid: %+v", p.Title, p.GridPos)
		}
		if p.Type == "row" {
			continue
		}
		if p.Description == "" || p.FieldConfig.Defaults.Unit == "" {
			complain("%q has no description or no unit", p.Title)
		}
		if len(p.Targets) == 0 {
			complain("%q asks nothing", p.Title)
		}
		for _, from := range append([]source{p.Datasource}, sources(p.Targets)...) {
			if from != prometheus() {
				complain("%q has the data source %+v, not the one that was chosen", p.Title, from)
			}
		}
		for _, q := range p.Targets {
			if !strings.Contains(q.Expr, "$namespace") {
				complain("%q shows other installations too: %s", p.Title, q.Expr)
			}
		}
	}
	return slices.Compact(problems)
}

func sources(targets []target) (all []source) {
	for _, t := range targets {
		all = append(all, t.Datasource)
	}
	return all
}
