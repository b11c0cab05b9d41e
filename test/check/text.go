package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/safeledger/safeledger/test/check/checker"
)

// tell writes what was found: each violation with its history, what there was, and the
// invariants with how often each was checked.
func tell(out io.Writer, r *checker.Report, a arguments) error {
	if a.summary != "" {
		if err := writeSummary(a.summary, r); err != nil {
			return err
		}
	}
	var b strings.Builder
	for _, v := range r.Violations {
		tellViolation(&b, v)
	}
	tellCounts(&b, r)
	tellInvariants(&b, r)
	tellVerdict(&b, r, a)
	_, err := io.WriteString(out, b.String())
	return err
}

func tellViolation(b *strings.Builder, v checker.Violation) {
	fmt.Fprintf(b, "I%d %s is broken: %s.\n", v.Clause.Invariant(), v.Clause.Name(), v.Clause.Words())
	if v.Key != "" {
		fmt.Fprintf(b, "  %s\n", v.Key)
	}
	fmt.Fprintf(b, "  %s\n", v.Text)
	var began time.Time
	for i, m := range v.History {
		if i == 0 {
			began = m.At
			fmt.Fprintf(b, "  %s\n", m.At.Format("2006-01-02 15:04:05.000000 MST"))
		}
		fmt.Fprintf(b, "  %+12.6f s  %-9s %s\n", m.At.Sub(began).Seconds(), m.Who, m.Text)
	}
	b.WriteByte('\n')
}

// count writes a number with commas: they go into the millions.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// each lists counts, the largest first.
func each[K comparable](counts map[K]int64) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		if counts[a] != counts[b] {
			return int(counts[b] - counts[a])
		}
		return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
	})
	var parts []string
	for _, k := range keys {
		parts = append(parts, fmt.Sprintf("%v %s", k, count(counts[k])))
	}
	return strings.Join(parts, " · ")
}

func tellCounts(b *strings.Builder, r *checker.Report) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	row := func(what, n, more string) {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", what, n, strings.TrimSuffix(more, ": ")) // into memory
	}
	row("payments", count(r.Payments), each(r.States))
	row("follow-ups", count(r.FollowUps), each(r.Ends))
	row("calls of tills", count(r.Calls), fmt.Sprintf("%s POSTs · %s answers · %s failed · %s without an end", count(r.Mutations), count(r.Answers), count(r.Failed), count(r.Unanswered)))
	row("answers", count(r.Answers), each(r.Statuses))
	row("wallet's book", count(r.BookLines), "requests that a fault struck: "+each(r.Faults))
	row("recorded calls", count(r.WalletCalls), fmt.Sprintf("attempts at jobs: %s counted, %s on the wire, %s of them retries", count(r.Attempts), count(r.Arrivals), count(r.Retries)))
	row("lines of processes", count(r.ResponseLines), "no JSON: "+count(r.Noise))
	row("disturbances", count(r.Disturbances), "")
	row("keys put in order", count(r.Registers), fmt.Sprintf("%s had calls at the same time", count(r.Concurrent)))
	row("declines undone", count(r.UndoneDeclines), fmt.Sprintf("the longest took %v", r.Undoing.Round(time.Millisecond)))
	row("parked", count(r.Parked), "money of declines that is out: "+each(r.ParkedMoney))
	row("ended by a person", count(r.ByHand), "")
	row("longest in flight", r.InFlight.Round(time.Millisecond).String(), "")
	row("answers took", r.Answering.Median.Round(time.Microsecond).String(),
		fmt.Sprintf("half of them · 99%%: %v · longest: %v", r.Answering.P99.Round(time.Microsecond), r.Answering.Longest.Round(time.Microsecond)))
	if r.LostKeys > 0 {
		row("lost keys", count(r.LostKeys), "what the wallet keeps of them: "+each(r.LostMoney))
	}
	if r.GivenTwice > 0 {
		row("given back twice", count(r.GivenTwice), "of lost keys, more than was taken: "+each(r.GivenTwiceMoney))
	}
	_ = w.Flush() // into a strings.Builder, which cannot fail
	b.WriteByte('\n')
}

func tellInvariants(b *strings.Builder, r *checker.Report) {
	w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "invariant\tclause\tchecked\tbroken\t")
	last := 0
	for _, c := range checker.Clauses() {
		name := ""
		if c.Invariant() != last {
			name = fmt.Sprintf("I%d", c.Invariant())
			last = c.Invariant()
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", name, c.Name(), count(r.Checked[c]), count(r.Broken[c]), c.Words())
	}
	_ = w.Flush()
	b.WriteByte('\n')
}

func tellVerdict(b *strings.Builder, r *checker.Report, a arguments) {
	var broken int64
	for _, n := range r.Broken {
		broken += n
	}
	fmt.Fprintf(b, "%s violations", count(broken))
	if void := r.Void(); len(void) > 0 {
		var names []string
		for _, i := range void {
			names = append(names, fmt.Sprintf("I%d", i))
		}
		fmt.Fprintf(b, "; void, checked in no case: %s", strings.Join(names, ", "))
		if a.require {
			b.WriteString(" (-require: a failure)")
		}
	}
	b.WriteByte('\n')
}

// summary is the report as numbers, for whoever adds runs up.
type summary struct {
	Checked map[string]int64 `json:"checked"` // by clause
	Broken  map[string]int64 `json:"broken"`
	Void    []int            `json:"void"`
	Report  *checker.Report  `json:"counts"`
}

func writeSummary(path string, r *checker.Report) error {
	s := summary{Checked: map[string]int64{}, Broken: map[string]int64{}, Void: r.Void(), Report: r}
	for _, c := range checker.Clauses() {
		name := fmt.Sprintf("I%d %s", c.Invariant(), c.Name())
		s.Checked[name], s.Broken[name] = r.Checked[c], r.Broken[c]
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return os.WriteFile(path, append(text, '\n'), 0o600)
}
