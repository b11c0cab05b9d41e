package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"
)

// judgeCommand judges a round again: after the checker was mended, or by somebody who does
// not believe it.
type judgeCommand struct {
	Round string        `arg:""           help:"The folder of its evidence." type:"existingdir"`
	Slack time.Duration `default:"3s"     help:"What the machine may add to durations (I10)."`
	Lossy bool          `help:"Lagging standbys were promoted."`
	Into  string        `help:"The summary of its run, which is to say so." placeholder:"FILE" type:"existingfile"`
}

// judgedAgain is the second verdict about a round.
type judgedAgain struct {
	Seed   uint64           `json:"seed"`
	Commit string           `json:"commit"` // of the checker
	Before map[string]int64 `json:"before"` // how often each clause was broken
	Then   map[string]int64 `json:"then"`
}

// Run starts PostgreSQL on what the round has left, and judges.
func (c judgeCommand) Run(o *order) (err error) {
	ctx := o.ctx
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	programs, err := os.MkdirTemp("", "torture-judge-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(programs)) }()
	if err := build(ctx, root, programs, ""); err != nil {
		return err
	}
	w := &world{dir: c.Round, programs: programs, lossy: c.Lossy}
	before, err := verdictIn(w.dir)
	if err != nil {
		return err
	}
	data, err := w.lastServer()
	if err != nil {
		return err
	}
	if err := w.startPostgres(ctx, data); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.postgres.server.Stop()) }()
	then := roundResult{Seed: before.Seed}
	if err := w.judge(ctx, c.Slack, &then); err != nil {
		return err
	}
	fmt.Print(then.verdict)
	if c.Into != "" {
		if err := c.amend(ctx, root, before, then); err != nil {
			return err
		}
	}
	if then.Violations > 0 {
		return fmt.Errorf("%d violations", then.Violations)
	}
	return nil
}

// verdictIn reads the verdict that a round has, and its seed from the folder's name.
func verdictIn(dir string) (r roundResult, err error) {
	if err := r.read(filepath.Join(dir, checked)); err != nil {
		return r, err
	}
	if _, err := fmt.Sscanf(filepath.Base(dir), "round-%d-", &r.Seed); err != nil {
		return r, fmt.Errorf("%s is not called like a round: %w", dir, err)
	}
	return r, nil
}

// lastServer is the folder of the server that was the last to serve: the others were
// removed when a standby took their place.
func (w *world) lastServer() (string, error) {
	all, err := filepath.Glob(filepath.Join(w.dir, "postgres*", "data"))
	if err != nil {
		return "", err
	}
	if len(all) != 1 {
		return "", fmt.Errorf("there are %d servers' data in %s, not one", len(all), w.dir)
	}
	return filepath.Dir(all[0]), nil
}

// amend puts the second verdict in the place of the first, and says so.
func (c judgeCommand) amend(ctx context.Context, root string, before, then roundResult) error {
	s, err := readSummary(c.Into)
	if err != nil {
		return err
	}
	s.LostKeys += then.Counts.LostKeys - before.Counts.LostKeys
	s.GivenTwice += then.Counts.GivenTwice - before.Counts.GivenTwice
	s.judgeAgain(judgedAgain{Seed: before.Seed, Commit: commit(ctx, root), Before: maps.Clone(before.Broken), Then: maps.Clone(then.Broken)})
	return s.writeTo(c.Into)
}

func (s *summary) judgeAgain(a judgedAgain) {
	maps.DeleteFunc(a.Before, none)
	maps.DeleteFunc(a.Then, none)
	for clause, n := range a.Before {
		s.Broken[clause] -= n
		s.Violations -= n
	}
	for clause, n := range a.Then {
		s.Broken[clause] += n
		s.Violations += n
	}
	s.Again = append(s.Again, a)
}

func none(_ string, n int64) bool { return n == 0 }
