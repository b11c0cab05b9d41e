package grafana

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// The parts of Grafana's own model (schema version 39, Grafana 10 and later) that
// we use, in the order in which Grafana writes them.
type (
	dashboard struct {
		UID           string     `json:"uid"`
		Title         string     `json:"title"`
		Description   string     `json:"description"`
		Tags          []string   `json:"tags"`
		SchemaVersion int        `json:"schemaVersion"`
		Editable      bool       `json:"editable"`
		GraphTooltip  int        `json:"graphTooltip"` // 1: one crosshair through all panels
		Refresh       string     `json:"refresh"`
		Timezone      string     `json:"timezone"`
		Time          span       `json:"time"`
		Templating    templating `json:"templating"`
		Links         []link     `json:"links"`
		Panels        []any      `json:"panels"`
	}
	span struct {
		From string `json:"from"`
		To   string `json:"to"`
	}
	templating struct {
		List []variable `json:"list"`
	}
	variable struct {
		Name       string  `json:"name"`
		Label      string  `json:"label"`
		Type       string  `json:"type"`
		Query      string  `json:"query"`
		Definition string  `json:"definition,omitempty"`
		Datasource *source `json:"datasource,omitempty"`
		Refresh    int     `json:"refresh,omitempty"` // 2: when the time range changes
		IncludeAll bool    `json:"includeAll,omitempty"`
		Multi      bool    `json:"multi,omitempty"`
		AllValue   string  `json:"allValue,omitempty"`
		Current    *choice `json:"current,omitempty"`
	}
	choice struct {
		Text  string `json:"text"`
		Value string `json:"value"`
	}
	source struct {
		Type string `json:"type"`
		UID  string `json:"uid"`
	}
	link struct {
		Title       string `json:"title"`
		Type        string `json:"type,omitempty"`
		URL         string `json:"url"`
		TargetBlank bool   `json:"targetBlank"`
	}
	place struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	}
	rowJSON struct {
		ID        int    `json:"id"`
		Type      string `json:"type"`
		Title     string `json:"title"`
		Collapsed bool   `json:"collapsed"`
		GridPos   place  `json:"gridPos"`
		Panels    []any  `json:"panels"`
	}
	panelJSON struct {
		ID          int            `json:"id"`
		Type        string         `json:"type"`
		Title       string         `json:"title"`
		Description string         `json:"description"`
		Datasource  source         `json:"datasource"`
		GridPos     place          `json:"gridPos"`
		Links       []link         `json:"links,omitempty"`
		Targets     []target       `json:"targets"`
		FieldConfig fieldConfig    `json:"fieldConfig"`
		Options     map[string]any `json:"options"`
	}
	target struct {
		RefID        string `json:"refId"`
		Datasource   source `json:"datasource"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
		Format       string `json:"format,omitempty"`
		Instant      bool   `json:"instant,omitempty"`
		Range        bool   `json:"range"`
	}
	fieldConfig struct {
		Defaults  defaults `json:"defaults"`
		Overrides []any    `json:"overrides"`
	}
	defaults struct {
		Unit       string         `json:"unit"`
		Min        *float64       `json:"min,omitempty"`
		Thresholds thresholds     `json:"thresholds"`
		Mappings   []any          `json:"mappings,omitempty"`
		Custom     map[string]any `json:"custom,omitempty"`
	}
	thresholds struct {
		Mode  string `json:"mode"`
		Steps []step `json:"steps"`
	}
	step struct {
		Color string   `json:"color"`
		Value *float64 `json:"value"` // null: from the bottom up
	}
)

// prometheus is the data source that whoever looks has chosen.
func prometheus() source { return source{"prometheus", "${datasource}"} }

const (
	columns   = 24 // of Grafana's grid
	rowHeight = 1
	panelTall = 8
)

// render lays the rows out from left to right and numbers what is in them.
func render(rows []row) dashboard {
	d := dashboard{
		UID: "safeledger", Title: "SafeLedger",
		Description:   "Tills, the wallet, money in doubt, the work queue and the processes. Lines in red are the thresholds of alerts; the link of a panel leads to the playbook.",
		Tags:          []string{"safeledger"},
		SchemaVersion: 39, GraphTooltip: 1, Refresh: "30s", Timezone: "browser", Time: span{"now-6h", "now"},
		Templating: templating{List: []variable{
			{Name: "datasource", Label: "Prometheus", Type: "datasource", Query: "prometheus"},
			{
				Name: "namespace", Label: "Installation", Type: "query", Datasource: new(prometheus()),
				Query: "label_values(safeledger_build_info, namespace)", Definition: "label_values(safeledger_build_info, namespace)",
				Refresh: 2, IncludeAll: true, Multi: true, AllValue: ".*", Current: &choice{"All", "$__all"},
			},
		}},
		Links: []link{{Title: "Playbooks", Type: "link", URL: Playbooks, TargetBlank: true}},
	}
	id, y := 0, 0
	next := func() int { id++; return id }
	for _, r := range rows {
		d.Panels = append(d.Panels, rowJSON{
			ID: next(), Type: "row", Title: r.title, GridPos: place{rowHeight, columns, 0, y}, Panels: []any{},
		})
		y += rowHeight
		x := 0
		for _, p := range r.panels {
			if x+p.wide() > columns {
				x, y = 0, y+panelTall
			}
			d.Panels = append(d.Panels, p.render(next(), place{panelTall, p.wide(), x, y}))
			x += p.wide()
		}
		y += panelTall
	}
	return d
}

func (p panel) wide() int {
	if p.width != 0 {
		return p.width
	}
	return 8
}

func (p panel) render(id int, at place) panelJSON {
	j := panelJSON{
		ID: id, Type: string(p.kind), Title: p.title, Description: p.description, Datasource: prometheus(), GridPos: at,
		FieldConfig: fieldConfig{Overrides: []any{}, Defaults: defaults{
			Unit:       p.unit,
			Thresholds: thresholds{Mode: "absolute", Steps: []step{{"green", nil}}},
		}},
	}
	if !p.signed {
		j.FieldConfig.Defaults.Min = new(0.0)
	}
	for i, q := range p.queries {
		t := target{RefID: string(rune('A' + i)), Datasource: prometheus(), Expr: q.expr, LegendFormat: q.legend, Range: true}
		if p.kind == heatmap {
			t.Format = "heatmap"
		}
		if p.kind == stat || p.kind == table {
			t.Instant, t.Range = true, false
		}
		if p.kind == table {
			t.Format = "table"
		}
		j.Targets = append(j.Targets, t)
	}
	for _, a := range p.alerts {
		j.Links = append(j.Links, link{Title: a, URL: Playbooks + "/" + a + ".md", TargetBlank: true})
	}
	j.thresholds(p)
	j.options(p)
	return j
}

// thresholds colour what is beyond them, and below minus them where both signs count.
func (j *panelJSON) thresholds(p panel) {
	if p.threshold == nil {
		return
	}
	steps := []step{{"green", nil}, {"red", p.threshold}}
	if p.signed {
		steps = []step{{"red", nil}, {"green", new(-*p.threshold)}, {"red", p.threshold}}
	}
	j.FieldConfig.Defaults.Thresholds.Steps = steps
}

func (j *panelJSON) options(p panel) {
	j.Options = map[string]any{}
	switch p.kind {
	case timeseries:
		j.FieldConfig.Defaults.Custom = map[string]any{"fillOpacity": 10, "showPoints": "never", "lineWidth": 1}
		if p.threshold != nil {
			j.FieldConfig.Defaults.Custom["thresholdsStyle"] = map[string]any{"mode": "line"}
		}
		j.Options["legend"] = map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true}
		j.Options["tooltip"] = map[string]any{"mode": "multi", "sort": "desc"}
	case stat:
		j.Options["reduceOptions"] = map[string]any{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}
		j.Options["textMode"], j.Options["colorMode"] = "value_and_name", "background"
	case heatmap:
		j.Options["calculate"] = false
		j.Options["yAxis"] = map[string]any{"unit": p.unit}
		j.Options["cellGap"] = 1
	case stateTimeline:
		j.Options["showValue"], j.Options["mergeValues"] = "never", true
	case table:
		j.Options["showHeader"] = true
	}
	if len(p.words) > 0 {
		mapped := map[string]any{}
		for value, word := range p.words {
			mapped[fmt.Sprint(value)] = map[string]any{"index": value, "text": word.text, "color": word.color}
		}
		j.FieldConfig.Defaults.Mappings = []any{map[string]any{"type": "value", "options": mapped}}
	}
}

// JSON is the dashboard as Grafana imports it.
func JSON() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // expressions have < and > in them
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(render(rows())); err != nil {
		return nil, fmt.Errorf("write the dashboard: %w", err)
	}
	return b.Bytes(), nil
}
