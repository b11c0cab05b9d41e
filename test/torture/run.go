package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

type runCommand struct {
	Decisions  int64         `default:"4000"     help:"How many payments the tills begin. Some never reach the ledger."`
	Seed       uint64        `default:"1"        help:"What the draws depend on."`
	Round      int64         `default:"50000"    help:"How many of them in one round: each has a database, a book and a verdict of its own, which bounds the disk."`
	Tills      int           `default:"96"       help:"How many tills at once."`
	Pace       float64       `default:"1"        help:"The pauses between the faults of processes, networks and PostgreSQL: 0.5 is twice as many."`
	Floor      time.Duration `default:"0s"       help:"The least time that a round lasts: what the faults need to come round."`
	Ceiling    time.Duration `default:"5m"       help:"How long the last round may go on beyond that, while there are kinds that have struck too rarely."`
	Min        int64         `default:"1"        help:"How often each kind must have struck in all, or the run is void."`
	MinProcess int64         `default:"1"        help:"The same of kinds that are dealt one after the other: of processes, networks, PostgreSQL and the wallet's own process."`
	Slack      time.Duration `default:"3s"       help:"What the machine may add to durations (I10)."`
	Folder     string        `default:".torture" help:"Where summaries and evidence go."`
	Postgres   []string      `placeholder:"KIND,…"   help:"Of the faults of PostgreSQL only these, so that they come often."`
	Process    []string      `placeholder:"KIND,…"   help:"The same of the faults of processes."`
	Lossy      bool          `help:"Promote lagging standbys as well: what they lack is lost, and counted apart."`
	Defect     string        `placeholder:"OVERLAY"  help:"A deliberate defect of the service, as test/mutants --write writes it: does the run find it? No summary is kept." type:"existingfile"`
	Keep       bool          `help:"Keep the evidence of rounds that are clean, too."`
}

var errVoid = errors.New("void")

// Run runs all rounds and tells what came of them.
func (c runCommand) Run(o *order) (err error) {
	ctx := o.ctx
	began := time.Now()
	for flag, chosen := range map[string]struct{ names, of []string }{
		"--postgres": {c.Postgres, names(of(postgresKinds(), c.Lossy))}, "--process": {c.Process, names(processKinds())},
	} {
		for _, name := range chosen.names {
			if !slices.Contains(chosen.of, name) {
				return fmt.Errorf("%s: no such kind of fault in this run is called %s", flag, name)
			}
		}
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	folder, err := filepath.Abs(c.Folder)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // PostgreSQL's user passes it
		return err
	}
	programs, err := os.MkdirTemp(folder, "bin-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programs)) }()
	if err := build(ctx, root, programs, c.Defect); err != nil {
		return err
	}
	sum := newSummary(ctx, root, c, began)
	count := newCounters(allKinds())
	progress := newProgress(os.Stderr, c.Decisions, count)
	for round, left := uint64(0), c.Decisions; left > 0 && ctx.Err() == nil; round++ {
		target := min(c.Round, left)
		left -= target
		r, err := c.round(ctx, folder, programs, c.Seed+round, target, left == 0, count, progress)
		if err != nil {
			// The rounds before it stand for themselves, and this one is told.
			if ctx.Err() == nil {
				sum.Failed = err.Error()
			}
			return errors.Join(err, c.keep(sum, count, began, folder))
		}
		sum.add(r)
		if err := c.keep(sum, count, began, folder); err != nil {
			return err
		}
	}
	progress.end()
	sum.tell(os.Stdout)
	switch {
	case sum.Violations > 0:
		return fmt.Errorf("%d violations; the evidence is in %s, %s", sum.Violations, folder, strings.Join(sum.Evidence, ", "))
	case ctx.Err() != nil:
		return errInterrupted
	case len(sum.Void) > 0:
		return fmt.Errorf("%w: struck too rarely: %s", errVoid, strings.Join(sum.Void, ", "))
	}
	return nil
}

// keep writes the summary of the rounds so far, after each of them: a run that is killed
// has lost the round that it was at.
func (c runCommand) keep(sum *summary, count *counters, began time.Time, folder string) error {
	if sum.Rounds == 0 && sum.Failed == "" {
		return nil
	}
	sum.Seconds, sum.Hits, sum.Void = time.Since(began).Seconds(), count.snapshot(), c.void(count)
	if c.Defect != "" {
		return nil
	}
	return sum.write(folder)
}

// dealt reports whether a kind is dealt in this run.
func (c runCommand) dealt(k kind) bool {
	if len(c.Postgres) > 0 && k.group == ofPostgres {
		return k.in(c.Lossy) && slices.Contains(c.Postgres, k.name)
	}
	if len(c.Process) > 0 && slices.Contains(names(processKinds()), k.name) {
		return slices.Contains(c.Process, k.name)
	}
	return k.in(c.Lossy)
}

// void are the kinds that struck too rarely.
func (c runCommand) void(count *counters) (rare []string) {
	hits := count.snapshot()
	for _, k := range count.kinds {
		if !c.dealt(k) {
			continue
		}
		least := c.Min
		if k.dealtInTurn() {
			least = c.MinProcess
		}
		if hits[k.name] < least {
			rare = append(rare, fmt.Sprintf("%s (%d of %d)", k.name, hits[k.name], least))
		}
	}
	slices.Sort(rare)
	return rare
}

// round is a life of a world: load and faults, quiescence, verdict. The evidence of one
// that is clean goes.
func (c runCommand) round(ctx context.Context, folder, programs string, seed uint64, target int64, last bool, count *counters, progress *progress) (result roundResult, err error) {
	dir, err := os.MkdirTemp(folder, fmt.Sprintf("round-%d-", seed))
	if err != nil {
		return result, err
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // PostgreSQL's user passes it
		return result, err
	}
	result = roundResult{Seed: seed, dir: dir}
	striking := newCounters(allKinds()) // the wallet counts anew in each round
	w, err := newWorld(ctx, dir, programs, seed, c.Lossy, striking)
	if err != nil {
		return result, fmt.Errorf("start: %w (the logs are in %s)", err, dir)
	}
	ended := false
	end := func() error {
		if ended {
			return nil
		}
		ended = true
		return w.close(context.WithoutCancel(ctx))
	}
	defer func() { err = errors.Join(err, end()) }()

	// more is whether the load must go on although what was wanted is done.
	more := func(lasted time.Duration) bool {
		if lasted < c.Floor || !last || lasted > c.Ceiling {
			return lasted < c.Floor
		}
		if err := w.control.tally(ctx, striking); err != nil {
			return false // the end of the round meets it again
		}
		so := newCounters(allKinds())
		for _, part := range []*counters{count, striking} {
			for name, n := range part.snapshot() {
				so.add(name, n)
			}
		}
		return len(c.void(so)) > 0
	}
	if err := c.torture(ctx, w, seed, target, more, progress); err != nil {
		return result, fmt.Errorf("%w (the logs are in %s)", err, dir)
	}
	if err := ctx.Err(); err != nil {
		return result, errors.Join(errInterrupted, end(), os.RemoveAll(dir))
	}
	if err := w.becomeQuiet(ctx, progress); err != nil {
		return result, fmt.Errorf("%w (the logs are in %s)", err, dir)
	}
	progress.say("the checker judges")
	if err := w.keepTotals(ctx); err != nil {
		return result, err
	}
	if err := w.judge(ctx, c.Slack, &result); err != nil {
		return result, err
	}
	for name, n := range striking.snapshot() {
		count.add(name, n)
	}
	if err := end(); err != nil {
		return result, err
	}
	if result.Violations == 0 && !c.Keep {
		return result, os.RemoveAll(dir)
	}
	return result, nil
}

// torture makes load until target payments are begun, and faults all the while.
func (c runCommand) torture(ctx context.Context, w *world, seed uint64, target int64, more func(lasted time.Duration) bool, progress *progress) error {
	loading, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	l := &load{w: w, fail: fail}
	l.target.Store(target)
	began := time.Now()
	var tills sync.WaitGroup
	for n := range c.Tills {
		tills.Go(func() { newTill(l, n, seed).work(loading) })
	}
	watching, stopWatching := context.WithCancel(loading)
	var beside sync.WaitGroup
	beside.Go(func() { w.operate(watching) })
	beside.Go(func() { progress.watch(watching, l, w) })

	// At first only the wallet misbehaves: time in which nothing is disturbed, so that the
	// promises about time are judged as well.
	const calm = 4 * time.Second
	pause(loading, calm)
	striking, stopStriking := context.WithCancel(loading)
	n := &nemesis{w: w, pace: c.Pace, dealt: c.dealt, fail: fail}
	beside.Go(func() { n.run(striking, seed) })

	tills.Wait()
	for n := 1; loading.Err() == nil && more(time.Since(began)); n++ {
		l.begun.Store(l.target.Load())
		l.target.Add(extra)
		for i := range c.Tills {
			tills.Go(func() { newTill(l, n*c.Tills+i, seed).work(loading) })
		}
		tills.Wait()
	}
	stopStriking()
	stopWatching()
	beside.Wait()
	if cause := context.Cause(loading); cause != nil && ctx.Err() == nil {
		return cause
	}
	return nil
}

// extra is how many payments are made at a time beyond what was wanted.
const extra = 256
