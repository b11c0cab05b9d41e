package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// profile is the CPU profile that `go build` finds beside the program and optimises it
// by, in the tree.
const profile = "cmd/safeledger/default.pgo"

// profileCommand takes that profile anew. It need not be of today's code: the compiler
// uses what it still finds of it.
type profileCommand struct {
	For time.Duration `default:"20s" help:"How long payments are decided for it."`
}

func (c profileCommand) Run(o *order) error { return c.take(o.ctx, ".", profile) }

// take takes it from the tree at root, into a file.
func (c profileCommand) take(ctx context.Context, root, into string) (err error) {
	w, err := newWorld(ctx, root, "", "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	// By no profile: what was inlined by the last one would be missing in the next.
	if err := w.build(ctx, root, "-tags", "profile", "-pgo", "off", "./cmd/safeledger"); err != nil {
		return err
	}
	w.profile = filepath.Join(w.dir, "cpu.pprof")
	b := &bench{world: w, options: options{WarmUp: time.Second}}
	s, err := b.set(ctx, point{Phase: phaseRates, Variant: shipped, Tills: manyTills})
	if err != nil {
		return err
	}
	r, _, err := b.load(ctx, s, loadSpec{Tills: manyTills, Measure: c.For})
	if err := errors.Join(err, s.strike(ctx)); err != nil {
		return err
	}
	if n := failed(r); n > 0 {
		return fmt.Errorf("%d payments were not approved (%v): that is not what tills do all day", n, r.Details)
	}
	content, err := os.ReadFile(w.profile)
	if err != nil {
		return err
	}
	return os.WriteFile(into, content, 0o644) //nolint:gosec // as readable as the code beside it
}
