package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

type runCommand struct {
	Full     bool          `help:"The long run, of about an hour, instead of the quick one of about ten minutes."`
	Phases   []string      `enum:"start,rates,overload,queue,growth,backlog" help:"What to measure: ${enum}. All of it if not given."`
	Variants []string      `help:"The servers to compare in the phase rates: SafeLedger, grouping off, no database, bare HTTP server."`
	Tills    []int         `help:"How many tills at once, in the phase rates."`
	Wallets  []int         `placeholder:"MS" help:"What the wallet takes for a call, in the phase rates."`
	Rounds   int           `help:"How often everything is measured."`
	WarmUp   time.Duration `help:"How long each load runs before it is measured."`
	Measure  time.Duration `help:"How long each load is measured."`
	Rows     int           `help:"The payments that are in the ledger before, in the phase growth."`
	Waiting  int           `help:"The follow-ups that wait in it, in the phase backlog."`

	Results string `placeholder:"FOLDER" help:"Where to keep the results; what is there already is not measured again. A new folder in .bench if not given."`
	Data    string `placeholder:"FOLDER" help:"Where the database keeps its files: the disk that is measured. The folder for temporary files if not given."`
	Logs    string `placeholder:"FOLDER" help:"Where the processes' logs go, to find an error. They cost time: without it there are none."`
	Docs    bool   `help:"Also write the report into docs/performance.md and .svg."`
}

// options are the preset's, but for what was given.
func (c runCommand) options() options {
	o := quick()
	if c.Full {
		o = full()
	}
	set(&o.Rounds, c.Rounds)
	set(&o.WarmUp, c.WarmUp)
	set(&o.Measure, c.Measure)
	set(&o.Rows, c.Rows)
	set(&o.Waiting, c.Waiting)
	for _, list := range []struct{ into, given *[]string }{{&o.Phases, &c.Phases}, {&o.Variants, &c.Variants}} {
		if len(*list.given) > 0 {
			*list.into = *list.given
		}
	}
	for _, list := range []struct{ into, given *[]int }{{&o.Tills, &c.Tills}, {&o.Wallets, &c.Wallets}} {
		if len(*list.given) > 0 {
			*list.into = *list.given
		}
	}
	return o
}

func set[T comparable](into *T, given T) {
	var none T
	if given != none {
		*into = given
	}
}

func (c runCommand) Run(o *order) error {
	if c.Results == "" {
		c.Results = filepath.Join(".bench", time.Now().Format("2006-01-02-150405"))
	}
	r, err := openResults(c.Results)
	if err != nil {
		return err
	}
	if err := run(o.ctx, ".", c.options(), r, c.Data, c.Logs, os.Stderr); err != nil {
		if len(r.measurements) > 0 {
			fmt.Fprintf(os.Stderr, "What was measured is in %s; --results %s goes on with it.\n", c.Results, c.Results)
		}
		return err
	}
	return report(r, c.Docs, os.Stdout)
}

// run measures everything that is not in r yet.
func run(ctx context.Context, root string, o options, r *results, data, logs string, out *os.File) (err error) {
	steps := slices.DeleteFunc(plan(o), func(s step) bool { return r.has(s.point) })
	if len(steps) == 0 {
		return nil
	}
	w, err := newWorld(ctx, root, data, logs)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	m, err := look(ctx, w, root, o)
	if err != nil {
		return err
	}
	if len(r.measurements) > 0 {
		if m.Commit != r.machine.Commit || m.CPU != r.machine.CPU {
			return fmt.Errorf("the results in %s are of commit %s on %s, this is %s on %s: they cannot be put together",
				r.dir, r.machine.Commit, r.machine.CPU, m.Commit, m.CPU)
		}
		m.Began = r.machine.Began
	}
	if err := r.begin(m); err != nil {
		return err
	}
	b := &bench{world: w, options: o, results: r, progress: newProgress(out, steps)}
	defer b.progress.finish()
	for _, s := range steps {
		b.progress.begin()
		m, err := b.measure(ctx, s.point)
		if err != nil {
			// A run that is stopped ends with whatever its processes' end broke first.
			return fmt.Errorf("%s: %w", s.point, errors.Join(err, ctx.Err()))
		}
		if err := r.add(m); err != nil {
			return err
		}
		b.progress.end(m)
	}
	return nil
}
