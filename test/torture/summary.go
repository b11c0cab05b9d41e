package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// roundResult is what the checker has found in a round.
type roundResult struct {
	Seed       uint64           `json:"seed"`
	Checked    map[string]int64 `json:"checked"`
	Broken     map[string]int64 `json:"broken"`
	Violations int64            `json:"violations"`
	Counts     struct {
		Payments, FollowUps, Calls, Parked, UndoneDeclines, LostKeys, GivenTwice int64

		States, Ends, Statuses map[string]int64
	} `json:"counts"`

	dir     string
	verdict string
}

// checked is the file in which the checker leaves what it has found in a round.
const checked = "check.json"

// read reads that file.
func (r *roundResult) read(file string) error {
	text, err := os.ReadFile(file) //nolint:gosec // of a round that was asked for
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, r); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, n := range r.Broken {
		r.Violations += n
	}
	return nil
}

// summary is what is kept of a run.
type summary struct {
	Began      time.Time        `json:"began"`
	Seconds    float64          `json:"seconds"`
	Seed       uint64           `json:"seed"`
	Commit     string           `json:"commit"`
	CPU        string           `json:"cpu"`
	Cores      int              `json:"cores"`
	Go         string           `json:"go"`
	Rounds     int              `json:"rounds"`
	Decisions  int64            `json:"decisions"`
	FollowUps  int64            `json:"followUps"`
	Calls      int64            `json:"calls"`
	Parked     int64            `json:"parked"`
	Tills      int              `json:"tills"`
	Pace       float64          `json:"pace"`
	Postgres   []string         `json:"postgres,omitempty"` // of its faults only these
	Process    []string         `json:"process,omitempty"`  // the same of those of processes
	Lossy      bool             `json:"lossy"`
	LostKeys   int64            `json:"lostKeys"`
	GivenTwice int64            `json:"givenTwice"` // of the lost keys: more was given back than was taken
	Violations int64            `json:"violations"`
	Broken     map[string]int64 `json:"broken"`
	Checked    map[string]int64 `json:"checked"`
	Hits       map[string]int64 `json:"hits"`
	Again      []judgedAgain    `json:"judgedAgain,omitempty"`
	Void       []string         `json:"void,omitempty"`
	Failed     string           `json:"failed,omitempty"`   // what ended the run before its time, other than a person
	Evidence   []string         `json:"evidence,omitempty"` // below the folder of the summaries

	verdicts []string
}

func newSummary(ctx context.Context, root string, c runCommand, began time.Time) *summary {
	return &summary{
		Began: began.UTC().Truncate(time.Second), Seed: c.Seed, Commit: commit(ctx, root), CPU: processor(), Cores: runtime.NumCPU(), Go: runtime.Version(),
		Tills: c.Tills, Pace: c.Pace, Postgres: c.Postgres, Process: c.Process, Lossy: c.Lossy,
		Broken: map[string]int64{}, Checked: map[string]int64{},
	}
}

func commit(ctx context.Context, root string) string {
	git := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(out))
}

// processor is the processor's name, where the kernel tells it.
func processor() string {
	text, err := os.ReadFile("/proc/cpuinfo")
	if err == nil {
		for line := range strings.Lines(string(text)) {
			if name, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(name) == "model name" {
				return strings.TrimSpace(value)
			}
		}
	}
	return runtime.GOARCH
}

// add adds a round.
func (s *summary) add(r roundResult) {
	s.Rounds++
	s.Decisions += r.Counts.Payments
	s.FollowUps += r.Counts.FollowUps
	s.Calls += r.Counts.Calls
	s.Parked += r.Counts.Parked
	s.LostKeys += r.Counts.LostKeys
	s.GivenTwice += r.Counts.GivenTwice
	s.Violations += r.Violations
	addAll(s.Broken, r.Broken)
	addAll(s.Checked, r.Checked)
	if r.Violations > 0 {
		s.Evidence = append(s.Evidence, filepath.Base(r.dir))
	}
	s.verdicts = append(s.verdicts, r.verdict)
}

func addAll(to, from map[string]int64) {
	for name, n := range from {
		to[name] += n
	}
}

// write keeps it in a file of its own.
func (s *summary) write(folder string) error {
	return s.writeTo(filepath.Join(folder, fmt.Sprintf("summary-%s-%d.json", s.Began.Format("20060102-150405"), s.Seed)))
}

func (s *summary) writeTo(file string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644) //nolint:gosec // it may be published
}

// tell writes the last verdict, the counters and what it all came to.
func (s *summary) tell(out io.Writer) {
	var b strings.Builder
	for i, v := range s.verdicts {
		if i == len(s.verdicts)-1 || strings.Contains(v, "is broken:") {
			b.WriteString(v + "\n")
		}
	}
	var last group
	for _, k := range of(allKinds(), s.Lossy) {
		if k.group != last {
			fmt.Fprintf(&b, "\nfaults of %s\n", k.group)
			last = k.group
		}
		fmt.Fprintf(&b, "  %8d  %-30s %s\n", s.Hits[k.name], k.name, k.does)
	}
	fmt.Fprintf(&b, "\nseed %d (the draws can be repeated, the timing of real processes cannot), %d rounds, %v on %d × %s\n",
		s.Seed, s.Rounds, time.Duration(s.Seconds*float64(time.Second)).Round(time.Second), s.Cores, s.CPU)
	fmt.Fprintf(&b, "%d payments, %d follow-ups, %d calls of tills, %d keys lost by lagging standbys, %d violations\n", s.Decisions, s.FollowUps, s.Calls, s.LostKeys, s.Violations)
	_, _ = io.WriteString(out, b.String()) // nothing is left to be told to
}

type sumCommand struct {
	Folder string `default:".torture" help:"Where the summaries are."`
}

// Run adds up the summaries in a folder and writes them as Markdown.
func (c sumCommand) Run(*order) error {
	all, err := summaries(c.Folder)
	if err != nil {
		return err
	}
	fmt.Print(markdown(all))
	return nil
}

// summaries reads those in a folder.
func summaries(folder string) (all []summary, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "summary-*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("there are no summaries in " + folder)
	}
	for _, file := range files {
		s, err := readSummary(file)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func readSummary(file string) (s summary, err error) {
	text, err := os.ReadFile(file) //nolint:gosec // one that was asked for
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

// markdown is the sum of runs: that of those in results is docs/torture.md.
func markdown(all []summary) string {
	slices.SortFunc(all, func(a, b summary) int { return a.Began.Compare(b.Began) })
	var b strings.Builder
	hits, broken := map[string]int64{}, map[string]int64{}
	var total summary
	b.WriteString("| began | commit | seed | tills | rounds | decisions | follow-ups | calls of tills | keys lost by lagging standbys | took | violations |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
	row := func(began, commit, seed, tills string, s summary) {
		lost := "none promoted"
		if s.Lossy {
			lost = fmt.Sprintf("%s (%d given back twice)", thousands(s.LostKeys), s.GivenTwice)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %d | %s | %s | %s | %s | %v | %d |\n", began, commit, seed, tills, s.Rounds,
			thousands(s.Decisions), thousands(s.FollowUps), thousands(s.Calls), lost, time.Duration(s.Seconds*float64(time.Second)).Round(time.Second), s.Violations)
	}
	for _, s := range all {
		row(s.Began.Format("2006-01-02 15:04 MST"), "`"+s.Commit+"`", strconv.FormatUint(s.Seed, 10), strconv.Itoa(s.Tills), s)
		total.Rounds += s.Rounds
		total.Decisions += s.Decisions
		total.FollowUps += s.FollowUps
		total.Calls += s.Calls
		total.Seconds += s.Seconds
		total.Violations += s.Violations
		total.Lossy = total.Lossy || s.Lossy
		total.LostKeys += s.LostKeys
		total.GivenTwice += s.GivenTwice
		addAll(hits, s.Hits)
		addAll(broken, s.Broken)
	}
	row("all", "", "", "", total)
	for _, s := range all {
		if len(s.Postgres) > 0 {
			fmt.Fprintf(&b, "\nOf PostgreSQL's faults the run of seed %d had only %s.\n", s.Seed, strings.Join(s.Postgres, ", "))
		}
		if len(s.Process) > 0 {
			fmt.Fprintf(&b, "\nOf the faults of processes the run of seed %d had only %s.\n", s.Seed, strings.Join(s.Process, ", "))
		}
		for _, a := range s.Again {
			fmt.Fprintf(&b, "\nOf the run of seed %d the round of seed %d was judged again, by the checker of `%s`: %s before, %s then.\n", s.Seed, a.Seed, a.Commit, told(a.Before), told(a.Then))
		}
		if len(s.Void) > 0 {
			fmt.Fprintf(&b, "\nIn the run of seed %d struck too rarely: %s.\n", s.Seed, strings.Join(s.Void, ", "))
		}
		if s.Failed != "" {
			fmt.Fprintf(&b, "\nThe run of seed %d failed: %s.\n", s.Seed, s.Failed)
		}
	}
	b.WriteString("\n" + struck(hits))
	var machines []string
	for _, s := range all {
		if m := fmt.Sprintf("%d × %s, %s", s.Cores, s.CPU, s.Go); !slices.Contains(machines, m) {
			machines = append(machines, m)
		}
	}
	fmt.Fprintf(&b, "\nOn %s.\n\n| faults of | kind | struck | what it is |\n|---|---|---|---|\n", strings.Join(machines, "; "))
	for _, k := range allKinds() {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", k.group, k.name, thousands(hits[k.name]), k.does)
	}
	for clause, n := range broken {
		if n > 0 {
			fmt.Fprintf(&b, "\n%s was broken %d times.\n", clause, n)
		}
	}
	return b.String()
}

// told says which clauses were broken, how often.
func told(broken map[string]int64) string {
	var all []string
	for _, clause := range slices.Sorted(maps.Keys(broken)) {
		if n := broken[clause]; n > 0 {
			all = append(all, fmt.Sprintf("%s %d", clause, n))
		}
	}
	if len(all) == 0 {
		return "no violation"
	}
	return strings.Join(all, ", ")
}

// struck says in a few lines what the counters come to.
func struck(hits map[string]int64) string {
	sum := func(names ...string) (n int64) {
		for _, name := range names {
			n += hits[name]
		}
		return n
	}
	const often, seldom = 1000, 100
	oftener, rarest, kills := 0, kind{}, sum("kill", "kill-again", "kill-again", "kill-draining")
	for _, k := range allKinds() {
		if hits[k.name] >= often {
			oftener++
		}
		if (k.group == ofProcess || k.group == ofPostgres) && k.name != lagging && (rarest.name == "" || hits[k.name] < hits[rarest.name]) {
			rarest = k
		}
		if point, at := strings.CutPrefix(k.name, "kill-"); at && isPoint(point) {
			kills += hits[k.name]
		}
	}
	return fmt.Sprintf("%d kinds struck %s times and more; the rarest of those of processes and PostgreSQL (a lagging standby aside) was `%s`, %d times (%d is wanted).\n"+
		"Processes killed: %s. PostgreSQL crashed: %s. Synchronous standbys promoted: %s; lagging ones: %s.\n",
		oftener, thousands(often), rarest.name, hits[rarest.name], seldom,
		thousands(kills), thousands(sum("backend-kill", "immediate-stop")), thousands(sum("standby-promoted")), thousands(sum(lagging)))
}

// thousands writes n with commas.
func thousands(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
