package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// The part of the document that a run writes.
const (
	begin = "<!-- written by make mutants -->\n"
	end   = "<!-- end of what is written -->\n"
)

// columns are those of the matrix.
const columns = 5

// found is the part of a line of the matrix that only a run can tell.
type found struct{ level, by string }

// publish writes the matrix, if everything has been tried.
func publish(root string, all []mutant, r *results) error {
	var (
		rows           = make(map[string]found)
		first, latest  string
		missing, taken int
	)
	for _, m := range all {
		res, err := r.of(m, root)
		if err != nil {
			return err
		}
		if res == nil || res.Level == "" {
			missing++
			continue
		}
		taken++
		by := fmt.Sprintf("%s `%s`", res.Folder, res.Test)
		if res.Test == "" {
			by = res.Folder + ", as a whole"
		}
		if res.Hung {
			by += ", which hung"
		}
		rows[m.name] = found{res.Level, by}
		if first == "" || res.On < first {
			first = res.On
		}
		latest = max(latest, res.On)
	}
	if missing > 0 {
		fmt.Fprintf(os.Stderr, "the matrix is not written: %d of %d have no result yet\n", missing, taken+missing)
		return nil
	}
	days := first
	if latest != first {
		days += " to " + latest
	}
	path := filepath.Join(root, page)
	before, _, after, err := document(path)
	if err != nil {
		return err
	}
	return os.WriteFile(path, []byte(before+begin+matrix(all, rows, days)+end+after), 0o644) //nolint:gosec // a document
}

// document is the page, cut at the part that is written.
func document(path string) (before, written, after string, err error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return "", "", "", err
	}
	before, rest, begins := strings.Cut(string(content), begin)
	written, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return "", "", "", fmt.Errorf("%s lacks the lines %q and %q", path, begin, end)
	}
	return before, written, after, nil
}

// matrix is the table: the defects as they stand in the code, and who found them.
func matrix(all []mutant, rows map[string]found, days string) string {
	var b strings.Builder
	counts := make(map[string]int)
	for _, m := range all {
		counts[rows[m.name].level]++
	}
	fmt.Fprintf(&b, "\n%d defects, each found. Run on %s. First found by:", len(all), days)
	for l := unit; l <= everything; l++ {
		if n := counts[l.String()]; n > 0 {
			fmt.Fprintf(&b, " %s %d ·", l, n)
		}
	}
	text := strings.TrimSuffix(b.String(), " ·") + ".\n"
	b.Reset()
	b.WriteString(text)
	b.WriteString("\n| the defect | what it breaks | what would go wrong, for whom | found by | the first test that failed |\n|---|---|---|---|---|\n")
	for _, m := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", m.name, m.breaks, m.harm, rows[m.name].level, rows[m.name].by)
	}
	return b.String()
}

// said reads back what a matrix says that is not in the code.
func said(written string) (rows map[string]found, days string) {
	rows = make(map[string]found)
	for line := range strings.Lines(written) {
		cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "| "), " |\n"), " | ")
		if len(cells) == columns {
			rows[cells[0]] = found{cells[3], cells[4]}
		}
	}
	if match := regexp.MustCompile(`Run on ([-0-9a-z ]+)\.`).FindStringSubmatch(written); match != nil {
		days = match[1]
	}
	return rows, days
}
