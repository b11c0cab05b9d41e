package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

type reportCommand struct {
	Results []string `arg:"" help:"The folders of the results. Several are put together: the rounds of the second come behind those of the first."`
	Docs    bool     `help:"Write into docs/performance.md and .svg and docs/operations.md, not only into the first folder."`
}

func (c reportCommand) Run(*order) error {
	var all []*results
	for _, dir := range c.Results {
		r, err := openResults(dir)
		if err != nil {
			return err
		}
		if len(r.measurements) == 0 {
			return fmt.Errorf("no results in %s", dir)
		}
		all = append(all, r)
	}
	return report(together(all), c.Docs, os.Stdout)
}

// together is all results as one, on the machine of the first. How many rows there were,
// and how many follow-ups waited, says whoever measured with them.
func together(all []*results) *results {
	sum := &results{dir: all[0].dir, machine: all[0].machine}
	rounds := 0
	for _, r := range all {
		o := r.machine.Options
		if slices.Contains(o.Phases, phaseGrowth) {
			sum.machine.Options.Rows = o.Rows
		}
		if slices.Contains(o.Phases, phaseBacklog) {
			sum.machine.Options.Waiting = o.Waiting
		}
		most := 0
		for _, m := range r.measurements {
			most = max(most, m.Round)
			m.Round += rounds
			sum.measurements = append(sum.measurements, m)
		}
		rounds += most
	}
	return sum
}

// The files of a report.
const (
	reportFile = "performance.md"
	chartFile  = "performance.svg"
	sizingPage = "operations.md" // what a machine is chosen by
	docsFolder = "docs"
)

// report writes the report beside the results, or into the documents, and prints what
// was reached.
func report(r *results, docs bool, out io.Writer) error {
	text, chart := render(r), drawRates(r)
	if err := os.WriteFile(filepath.Join(r.dir, reportFile), []byte(text), 0o644); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, chartFile), []byte(chart), 0o644); err != nil { //nolint:gosec // the same
		return err
	}
	if docs {
		if err := publish(docsFolder, text, sizing(r), chart); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%s\nThe whole report is in %s.\n", goalsTable(r), filepath.Join(r.dir, reportFile))
	return err
}

// What stands between these in the document is written by us, the rest by people.
const (
	beginsWritten = "<!-- written by go run ./bench report --docs -->\n"
	endsWritten   = "<!-- end of what is written -->"
)

func publish(dir, text, sizes, chart string) error {
	return errors.Join(writeInto(filepath.Join(dir, reportFile), text), writeInto(filepath.Join(dir, sizingPage), sizes),
		os.WriteFile(filepath.Join(dir, chartFile), []byte(chart), 0o644)) //nolint:gosec // for everybody to read
}

// writeInto puts text in the place of what is written by us in a page.
func writeInto(path, text string) error {
	page, err := os.ReadFile(path) //nolint:gosec // a page of ours
	if err != nil {
		return err
	}
	before, rest, begins := bytes.Cut(page, []byte(beginsWritten))
	_, after, ends := bytes.Cut(rest, []byte(endsWritten))
	if !begins || !ends {
		return errors.New(path + " does not say between which lines the figures go")
	}
	page = slices.Concat(before, []byte(beginsWritten+"\n"+text+"\n"+endsWritten), after)
	return os.WriteFile(path, page, 0o644) //nolint:gosec // for everybody to read
}

// sizing is what somebody goes by who chooses machines.
func sizing(r *results) string {
	at := func(tills int) point { return point{Phase: phaseRates, Variant: shipped, Tills: tills} }
	few, many, queue := at(8), at(manyTills), queuePoint(shipped, 0)
	f := func(p point, name string) string {
		if s := r.figure(p, name); s.Rounds > 0 {
			return significant(s.Median)
		}
		return "–"
	}
	decisionAt := func(p point) []string {
		return []string{f(p, rate) + "/s", f(p, cpuServer) + " µs", f(p, cpuPostgres) + " µs", f(p, walBytes), f(p, fsyncs), megabytes(r.figure(p, resident)) + " MB"}
	}
	return fmt.Sprintf("Of %s on %d cores that everything shares, a disk that takes %.2f ms to make a page durable, and a wallet that answers at once:\n\n", r.machine.CPU, r.machine.Cores, r.machine.SyncMS) +
		table([][]string{
			{"", "at most", "CPU of a replica for each", "CPU of PostgreSQL", "WAL bytes", "fsyncs", "resident memory of a replica"},
			append([]string{"decisions, 8 tills at once"}, decisionAt(few)...),
			append([]string{"decisions, 256 tills at once"}, decisionAt(many)...),
			{"work items of the queue", f(queue, rate) + "/s", f(queue, cpuServer) + " µs", f(queue, cpuPostgres) + " µs", f(queue, walBytes), f(queue, fsyncs), ""},
		})
}

// render is the report.
func render(r *results) string {
	m, o := r.machine, r.machine.Options
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say("Measured %s at commit `%s`, in one interleaved run: %d rounds, each load %v to warm up and %v to measure. What is given is the median of the rounds, in brackets the lowest and the highest.",
		m.Began.Format("2006-01-02"), m.Commit, o.Rounds, o.WarmUp, o.Measure)
	say("")
	say("%s, %d cores, %s MB of memory, Linux %s, %s. PostgreSQL %s with %s. The disk takes %.2f ms (p99 %.2f) to make a page durable.",
		m.CPU, m.Cores, thousands(int(m.MemoryMB)), m.Kernel, m.Go, m.PostgreSQL, strings.Join(m.Settings, ", "), m.SyncMS, m.SyncP99MS)
	say("What is none of the measured processes, the kernel's own work included, used %s of the cores.", disturbance(r))
	if m.SyncMS < implausibleSyncMS {
		say("\n**That is not a disk: the database's files must be on one (`--data FOLDER`), or its commits cost nothing.**")
	}
	if !m.Grouping {
		say("\n**Grouping cannot be turned off in this build: “grouping off” is the same server once more.**")
	}
	say("\n### Floors and goals\n\n%s", goalsTable(r))
	for _, ms := range o.Wallets {
		if table := ratesTable(r, ms); table != "" {
			say("### Decisions, wallet %d ms\n\n%s", ms, table)
		}
	}
	if slices.Contains(o.Phases, phaseRates) {
		say("![Decisions a second by tills and variant](%s)\n", chartFile)
	}
	for _, t := range []struct{ title, table string }{
		{"Overload", overloadTable(r)}, {"The work queue", queueTable(r)}, {"Growth", growthTable(r)}, {"A backlog", backlogTable(r)},
	} {
		if t.table != "" {
			say("### %s\n\n%s", t.title, t.table)
		}
	}
	if failed := failuresList(r); failed != "" {
		say("### What failed\n\n%s", failed)
	}
	return strings.TrimRight(b.String(), "\n") + "\n"
}

// disturbance is how much of the machine others have used: at the median of all
// measurements, and in the worst of them.
func disturbance(r *results) string {
	var parts []float64
	for _, m := range r.measurements {
		if part, there := m.Values[others]; there {
			parts = append(parts, part)
		}
	}
	s := over(parts)
	return fmt.Sprintf("%s (at most %.0f %%)", percent(s), s.Max*100)
}

// implausibleSyncMS is less than any disk takes, and more than a RAM disk does.
const implausibleSyncMS = 0.01

func goalsTable(r *results) string {
	rows := [][]string{{"", "floor", "goal", "measured", "lowest … highest", ""}}
	for _, g := range goals(r) {
		bound, sign := func(v float64) string { return significant(v) + g.unit }, "≥ "
		if g.atMost {
			sign = "≤ "
		}
		row := []string{g.what, sign + bound(g.floor), sign + bound(g.goal), "–", "", g.verdict()}
		if g.got.Rounds > 0 {
			row[3], row[4] = bound(g.got.Median), bound(g.got.Min)+" … "+bound(g.got.Max)
		}
		rows = append(rows, row)
	}
	return table(rows)
}

func ratesTable(r *results, ms int) string {
	rows := [][]string{{
		"tills", "", "decisions/s", "p50 ms", "p99 ms", "p99.9 ms",
		"CPU µs: server", "PostgreSQL", "wallet", "load", "cores idle", "WAL bytes", "fsyncs", "resident MB (peak)",
	}}
	for _, tills := range r.machine.Options.Tills {
		for _, variant := range r.machine.Options.Variants {
			p := point{Phase: phaseRates, Variant: variant, Tills: tills, WalletMS: ms}
			f := func(name string) string { return significant(r.figure(p, name).Median) }
			if r.figure(p, rate).Rounds == 0 {
				continue
			}
			wal, syncs := "–", "–"
			if durable(variant) {
				wal, syncs = f(walBytes), f(fsyncs)
			}
			rows = append(rows, []string{
				fmt.Sprint(tills), variant, withRange(r.figure(p, rate)), f(p50), f(p99), f(p999),
				f(cpuServer), f(cpuPostgres), f(cpuWallet), f(cpuLoad), percent(r.figure(p, idle)), wal, syncs,
				megabytes(r.figure(p, resident)) + " (" + megabytes(r.figure(p, peak)) + ")",
			})
		}
	}
	return table(rows)
}

func overloadTable(r *results) string {
	head, points := []string{"twice the capacity, offered at a constant rate"}, []point(nil)
	for _, ms := range overloadWallets() {
		if p := overloadPoint(ms, 0); r.figure(p, capacity).Rounds > 0 {
			head, points = append(head, fmt.Sprintf("wallet %d ms", ms)), append(points, p)
		}
	}
	if len(points) == 0 {
		return ""
	}
	rows := [][]string{head}
	for _, line := range []struct{ what, figure, unit string }{
		{"capacity before, in a closed loop of 256 tills", capacity, "/s"},
		{"to be offered", offered, "/s"},
		{"in truth offered, by a load that shares the cores", sentRate, "/s"},
		{"approved", rate, "/s"},
		{"refused by the gate (503 and Retry-After)", refusals, "/s"},
		{"declined (402 or 424)", declines, "/s"},
		{"not known how it ended (5xx without Retry-After)", unknowns, "/s"},
		{"time to an approval since the request was sent, p50", p50, " ms"},
		{"p99", p99, " ms"},
		{"longest", longest, " ms"},
		{"time to a refusal since the request was sent, p50", refusalP50, " ms"},
		{"p99", refusalP99, " ms"},
		{"longest", refusalLast, " ms"},
		{"of those admitted, later than the effective budget + 100 ms", late100, "%"},
		{"+ 300 ms", late300, "%"},
		{"how late the load itself was with its requests, p99", lagP99, " ms"},
	} {
		row := []string{line.what}
		for _, p := range points {
			if got := r.figure(p, line.figure); line.unit == "%" {
				row = append(row, percent(got))
			} else {
				row = append(row, withRange(got)+line.unit)
			}
		}
		rows = append(rows, row)
	}
	return table(rows)
}

func queueTable(r *results) string {
	rows := [][]string{{"", "items/s", "CPU µs: server", "PostgreSQL", "wallet", "WAL bytes", "fsyncs"}}
	for _, variant := range []string{shipped, ungrouped} {
		p := queuePoint(variant, 0)
		f := func(name string) string { return significant(r.figure(p, name).Median) }
		if r.figure(p, rate).Rounds > 0 {
			rows = append(rows, []string{variant, withRange(r.figure(p, rate)), f(cpuServer), f(cpuPostgres), f(cpuWallet), f(walBytes), f(fsyncs)})
		}
	}
	return table(rows)
}

func growthTable(r *results) string {
	rows := [][]string{{"keys", "rows before", "decisions/s", "p50 ms", "p99 ms", "CPU µs: PostgreSQL", "WAL bytes", "fsyncs"}}
	for _, keys := range []string{orderedKeys, randomKeys} {
		for _, n := range []int{0, r.machine.Options.Rows} {
			p := growthPoint(keys, n, 0)
			f := func(name string) string { return significant(r.figure(p, name).Median) }
			if r.figure(p, rate).Rounds > 0 {
				rows = append(rows, []string{keys, thousands(n), withRange(r.figure(p, rate)), f(p50), f(p99), f(cpuPostgres), f(walBytes), f(fsyncs)})
			}
		}
	}
	sizes := [][]string{{"relation", "keys", "rows", "MB", "bytes per row"}}
	for _, m := range r.measurements {
		if m.Phase == phaseSize && m.Rows > 0 {
			sizes = append(sizes, []string{"`" + m.Variant + "`", m.Keys, thousands(m.Rows), fmt.Sprintf("%.0f", m.Values[bytesOnDisk]*1e-6), significant(m.Values[bytesOnDisk] / float64(m.Rows))})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return table(rows) + "\n" + table(sizes)
}

func backlogTable(r *results) string {
	rows := [][]string{{"waiting", "at a constant rate of", "p50 ms", "p99 ms", "p99.9 ms", "CPU µs: server", "PostgreSQL", "cores idle"}}
	for _, waiting := range []int{0, r.machine.Options.Waiting} {
		p := backlogPoint(waiting, 0)
		f := func(name string) string { return significant(r.figure(p, name).Median) }
		if r.figure(p, rate).Rounds > 0 {
			rows = append(rows, []string{
				thousands(waiting), f(offered) + "/s", withRange(r.figure(p, p50)), withRange(r.figure(p, p99)), withRange(r.figure(p, p999)),
				f(cpuServer), f(cpuPostgres), percent(r.figure(p, idle)),
			})
		}
	}
	return table(rows)
}

// failuresList names every measurement in which a request that should have been
// approved was not: what it compares is not the same work.
func failuresList(r *results) string {
	var b strings.Builder
	for _, m := range r.measurements {
		if m.Values[failures] == 0 {
			continue
		}
		fmt.Fprintf(&b, "- %s: %.0f of %.0f", m.point, m.Values[failures], m.Values[failures]+m.Values[decisions])
		for _, detail := range slices.Sorted(maps.Keys(m.Details)) {
			fmt.Fprintf(&b, "; %d × %s", m.Details[detail], detail)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// table is rows in Markdown, the first of them its head; "" where there is only that.
func table(rows [][]string) string {
	if len(rows) < 2 {
		return ""
	}
	var b strings.Builder
	for i, row := range rows {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
	return b.String()
}

// significant writes v with about three digits, however large it is.
func significant(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.1:
		return fmt.Sprintf("%.3f", v)
	case v < 10:
		return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.2f", v), "0"), ".")
	case v < 100:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
	}
	return thousands(int(v + 0.5))
}

func withRange(s spread) string {
	if s.Rounds < 2 {
		return significant(s.Median)
	}
	return fmt.Sprintf("%s (%s … %s)", significant(s.Median), significant(s.Min), significant(s.Max))
}

func percent(s spread) string   { return significant(s.Median*100) + " %" }
func megabytes(s spread) string { return fmt.Sprintf("%.0f", s.Median*1e-6) }
