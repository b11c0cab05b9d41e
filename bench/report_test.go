package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// made is a run with figures that are easy to recognise.
func made() *results {
	o := quick()
	o.Rounds = 2
	r := &results{dir: "unused", machine: machine{
		Began: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC), Commit: "abcdef123456", Grouping: true, Options: o,
		CPU: "A CPU", Cores: 2, MemoryMB: 4096, Kernel: "6.1", Go: "go1.26", PostgreSQL: "15.18", Settings: []string{"fsync = on"}, SyncMS: 0.5,
	}}
	rates := map[string]float64{shipped: 8000, ungrouped: 2000, noDatabase: 10000, bare: 12000}
	for _, s := range plan(o) {
		v := map[string]float64{rate: rates[s.Variant], ready: 250}
		switch s.Phase {
		case phaseRates:
			v[cpuPostgres], v[cpuServer], v[fsyncs], v[resident], v[peak], v[p99] = 60, 100, 0.04, 97e6, 99e6, 72
			if s.Variant == ungrouped {
				v[cpuPostgres] = 600
			}
			if s.Variant == bare {
				v[cpuServer] = 80
			}
		case phaseGrowth:
			v[rate] = 1000
			if s.Rows > 0 {
				v[rate] = 550
			}
		case phaseOverload:
			v[capacity], v[late100], v[late300] = 4000, 0.002, 0
		case phaseBacklog:
			v[p99] = 10
		}
		r.measurements = append(r.measurements, measurement{point: s.point, Values: v})
	}
	return r
}

// A floor that is broken and reported as held is the one mistake that this program
// must not make.
func TestEveryFloorAndGoalHasItsVerdict(t *testing.T) {
	t.Parallel()
	want := map[string]struct {
		median  float64
		verdict string
	}{
		"decisions/s ÷ the same server without a database, 256 tills":                                 {0.8, "goal reached"},
		"decisions/s ÷ grouping off, 1 till":                                                          {4, "goal reached"},
		"decisions/s ÷ grouping off, 8 tills":                                                         {4, "goal reached"},
		"decisions/s ÷ grouping off, 64 tills":                                                        {4, "goal reached"},
		"decisions/s ÷ grouping off, 256 tills":                                                       {4, "goal reached"},
		"PostgreSQL's CPU per decision ÷ grouping off, 256 tills":                                     {0.1, "goal reached"},
		"the server's CPU per decision ÷ the bare HTTP server, 256 tills":                             {1.25, "floor holds"},
		"fsyncs per decision, 256 tills":                                                              {0.04, "floor holds"},
		"decisions/s at 300,000 rows ÷ empty, time-ordered keys":                                      {0.55, "**below the floor**"},
		"decisions/s at 300,000 rows ÷ empty, random keys":                                            {0.55, "**below the floor**"},
		"work items/s with a durable outcome, batched ÷ one by one":                                   {4, "goal reached"},
		"answers later than their effective budget + 300 ms at twice the capacity, of those admitted": {0, "goal reached"},
		"the same, + 100 ms": {0.2, "**below the floor**"},
		"p99 of a decision with 100,000 follow-ups waiting ÷ none":                {1, "goal reached"},
		"resident memory of the server, 256 tills":                                {97, "**below the floor**"},
		"from the start of the process until it is ready, on a migrated database": {250, "goal reached"},
	}
	got := goals(made())
	for _, g := range got {
		w, there := want[g.what]
		if !there {
			t.Errorf("not expected: %s", g.what)
			continue
		}
		if diff := g.got.Median - w.median; diff > 1e-9 || diff < -1e-9 || g.verdict() != w.verdict {
			t.Errorf("%s: %v, %s; want %v, %s", g.what, g.got.Median, g.verdict(), w.median, w.verdict)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d goals, want %d", len(got), len(want))
	}
	for _, g := range goals(&results{machine: machine{Options: quick()}}) {
		if g.verdict() != "not measured" {
			t.Errorf("%s of nothing: %s", g.what, g.verdict())
		}
	}
}

// A table in which a cell is missing puts every figure behind it under another's name.
func TestTheReportHoldsWhatWasMeasured(t *testing.T) {
	t.Parallel()
	r := made()
	text := render(r)
	for _, want := range []string{
		"2026-12-01", "`abcdef123456`", "A CPU, 2 cores", "PostgreSQL 15.18 with fsync = on", "0.50 ms",
		"| 256 | SafeLedger | 8,000 (8,000 … 8,000) |", "| 256 | bare HTTP server |", "97 (99)", "### Overload", "| capacity before, in a closed loop of 256 tills | 4,000 (4,000 … 4,000)/s | 4,000",
		"### The work queue", "### Growth", "### A backlog", "(performance.svg)",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in the report", want)
		}
	}
	for _, not := range []string{"cannot be turned off", "not a disk", "What failed", "NaN", "Inf"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in the report", not)
		}
	}
	columns := 0
	for line := range strings.Lines(text) {
		n := strings.Count(line, "|")
		if columns > 0 && n > 0 && n != columns {
			t.Errorf("%d columns in a table of %d: %s", n-1, columns-1, line)
		}
		columns = n
	}

	r.machine.Grouping, r.machine.SyncMS = false, 0.0004
	r.measurements[len(r.measurements)-1].Values[failures] = 3
	r.measurements[len(r.measurements)-1].Details = map[string]int{"503 OVERLOADED": 3}
	if text = render(r); !strings.Contains(text, "cannot be turned off") || !strings.Contains(text, "not a disk") || !strings.Contains(text, "3 × 503 OVERLOADED") {
		t.Errorf("nothing is said of a build without grouping, of a RAM disk, or of what failed:\n%s", text)
	}
}

func TestTheChartIsSVGWithABarForEachFigure(t *testing.T) {
	t.Parallel()
	r := made()
	decoder := xml.NewDecoder(strings.NewReader(drawRates(r)))
	bars := 0
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		element, ok := token.(xml.StartElement)
		if !ok || element.Name.Local != "rect" {
			continue
		}
		for _, a := range element.Attr {
			if a.Name.Local == "height" && a.Value != "11" && !strings.HasPrefix(a.Value, "-") {
				bars++
			}
		}
	}
	if want := 2 * 4 * 4; bars != want {
		t.Errorf("%d bars, want %d", bars, want)
	}
	for v, want := range map[float64]float64{0.7: 1, 1: 1, 3: 5, 250: 500, 2001: 5000, 6000: 10000} {
		if got := round(v); got != want {
			t.Errorf("above %v comes %v, want %v", v, got, want)
		}
	}
}

// The report goes where it belongs and leaves what people wrote around it.
func TestPublishingLeavesTheProse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, other := filepath.Join(dir, reportFile), filepath.Join(dir, sizingPage)
	write := func(text string) {
		t.Helper()
		for _, path := range []string{page, other} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write("# Before\n" + beginsWritten + "old figures\n" + endsWritten + "\nafter\n")
	for range 2 { // and doing it again changes nothing
		if err := publish(dir, "new figures", "new sizes", "<svg/>"); err != nil {
			t.Fatal(err)
		}
		for path, text := range map[string]string{page: "new figures", other: "new sizes"} {
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if want := "# Before\n" + beginsWritten + "\n" + text + "\n" + endsWritten + "\nafter\n"; string(got) != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
	if svg, err := os.ReadFile(filepath.Join(dir, chartFile)); err != nil || string(svg) != "<svg/>" {
		t.Errorf("the chart: %q, %v", svg, err)
	}
	write("# A page of prose\n")
	if err := publish(dir, "new figures", "new sizes", "<svg/>"); err == nil {
		t.Error("written into a page that has no place for it")
	}
	for _, name := range []string{reportFile, sizingPage} {
		ours, err := os.ReadFile(filepath.Join("..", docsFolder, name))
		if err != nil || !strings.Contains(string(ours), beginsWritten) || !strings.Contains(string(ours), endsWritten) {
			t.Errorf("docs/%s has no place for it (%v)", name, err)
		}
	}
}

func TestFiguresAreWrittenAsOneReadsThem(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{0: "0", 0.0234: "0.023", 0.5: "0.5", 1: "1", 3.456: "3.46", 12: "12", 72.34: "72.3", 999.6: "1,000", 12345: "12,345", 1234567: "1,234,567"} {
		if got := significant(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", -1000: "-1,000", 5_000_000: "5,000,000"} {
		if got := thousands(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
