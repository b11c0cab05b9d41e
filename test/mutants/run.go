package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	module = "github.com/safeledger/safeledger"
	kept   = ".mutants/results.json"
	page   = "docs/verification.md"
)

// runner tries mutants.
type runner struct {
	root     string // absolute
	out      *os.File
	controls map[suite]bool // what is known to pass without a defect
}

// run tries what c asks for and, once there is a result for every mutant, writes the
// matrix. The error says which of them nobody has found, and which could not be tried.
func run(ctx context.Context, root string, c command) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	r := &runner{root: root, out: os.Stderr, controls: make(map[suite]bool)}
	all := mutants()
	chosen, err := choose(all, c.Only)
	if err != nil {
		return err
	}
	if c.Write != "" {
		if len(c.Only) != 1 {
			return errors.New("--write is for one defect")
		}
		list, err := chosen[0].overlay(root, c.Write)
		if err == nil {
			fmt.Println(list)
		}
		return err
	}
	results, err := openResults(filepath.Join(root, kept))
	if err != nil {
		return err
	}
	var open []mutant
	for _, m := range chosen {
		before, err := results.of(m, root)
		if err != nil {
			return err
		}
		if before == nil || c.Fresh || len(c.Only) > 0 || before.Level == "" {
			open = append(open, m)
		}
	}
	fmt.Fprintf(r.out, "%d defects, %d of them to be tried\n", len(all), len(open))

	var failed []error
	began := time.Now()
	for i, m := range open {
		res, err := r.try(ctx, m)
		if ctx.Err() != nil {
			return fmt.Errorf("stopped; what was tried is in %s, the next run goes on: %w", kept, ctx.Err())
		}
		left := time.Since(began) / time.Duration(i+1) * time.Duration(len(open)-i-1)
		told := res.String()
		switch {
		case err != nil:
			told = err.Error()
			failed = append(failed, fmt.Errorf("%s: %w", m.name, err))
		case res.Level == "":
			failed = append(failed, fmt.Errorf("%s: no test finds it", m.name))
		}
		fmt.Fprintf(r.out, "%d of %d, about %s left; %s: %s\n", i+1, len(open), left.Round(time.Second), m.name, told)
		if err == nil {
			if err := results.add(m, root, res); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	return publish(root, all, results)
}

func choose(all []mutant, names []string) ([]mutant, error) {
	if len(names) == 0 {
		return all, nil
	}
	var chosen []mutant
	for _, name := range names {
		i := slices.IndexFunc(all, func(m mutant) bool { return m.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no defect %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// try runs the tests of m until one fails. An error is about the trial, not about m's
// survival: that is a result without a level.
func (r *runner) try(ctx context.Context, m mutant) (result, error) {
	dir, err := os.MkdirTemp("", "safeledger-mutant-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	list, err := m.overlay(r.root, dir)
	if err != nil {
		return result{}, err
	}
	began := time.Now()
	for _, s := range append(slices.Clip(m.tried), whole) {
		for range tries {
			v, err := r.test(ctx, list, s)
			if err != nil {
				return result{}, err
			}
			if v.kind == survived {
				break
			}
			if v.kind == broken {
				return result{}, fmt.Errorf("does not compile:\n%s", v.details)
			}
			sure, err := r.isTheDefects(ctx, list, s.only(v))
			if err != nil {
				return result{}, err
			}
			if sure {
				return result{
					Level: s.level.String(), Test: v.test, Folder: v.folder, Hung: v.kind == hung,
					Took: time.Since(began).Round(time.Second), On: time.Now().UTC().Format(time.DateOnly),
				}, nil
			}
		}
	}
	return result{}, nil
}

// tries is how often a suite is tried whose failure was not the defect's, and how often a
// test must get the chance to fail again: some find a race, and not every time.
const tries = 3

// isTheDefects reports whether it is the defect that has failed a test, and not a machine
// out of breath: with the defect it fails again, and without it passes.
func (r *runner) isTheDefects(ctx context.Context, overlay string, alone suite) (bool, error) {
	for range tries {
		v, err := r.test(ctx, overlay, alone)
		if err != nil {
			return false, err
		}
		if v.kind == survived {
			continue
		}
		if !r.controls[alone] {
			if v, err = r.test(ctx, "", alone); err != nil {
				return false, err
			}
			r.controls[alone] = v.kind == survived
		}
		return r.controls[alone], nil
	}
	return false, nil
}

// test runs s with the files of an overlay, or as the tree is without one. The overlay
// goes by the environment, so that the programs which tests build have it as well.
func (r *runner) test(ctx context.Context, overlay string, s suite) (verdict, error) {
	folder := s.folder
	if !strings.HasPrefix(folder, ".") {
		folder = "./" + folder
	}
	args := []string{"test", "-json", "-count=1", "-failfast", "-vet=off", "-p=1", "-skip=" + skipped, "-timeout=" + s.limit.String()}
	if s.run != "" {
		args = append(args, "-run="+s.run)
	}
	// A test that does not heed its own limit is ended from outside.
	ctx, cancel := context.WithTimeout(ctx, s.limit+5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", append(args, folder)...) //nolint:gosec // our own arguments
	cmd.Dir = r.root
	cmd.Env = os.Environ()
	if overlay != "" {
		cmd.Env = append(cmd.Env, "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	}
	// What the tests start must end with them.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	// rapid keeps what it has failed with beside the test, for the next run: of a defect
	// that would be a failure that nobody can explain.
	before := failFiles(r.root)
	defer func() {
		for file := range failFiles(r.root) {
			if !before[file] {
				_ = os.Remove(file)
			}
		}
	}()
	var complaints strings.Builder
	cmd.Stderr = &complaints
	output, err := cmd.StdoutPipe()
	if err != nil {
		return verdict{}, err
	}
	if err := cmd.Start(); err != nil {
		return verdict{}, err
	}
	v, readErr := read(output, module)
	failed := cmd.Wait()
	switch {
	case ctx.Err() != nil:
		return verdict{}, fmt.Errorf("%s does not end: %w", s, ctx.Err())
	case readErr != nil:
		return verdict{}, fmt.Errorf("read what %s says: %w", s, readErr)
	case (failed != nil) != (v.kind != survived):
		return verdict{}, fmt.Errorf("%s ended with %v, and told nothing of it: %s%s", s, failed, complaints.String(), v.details)
	}
	return v, nil
}

// failFiles are the files of rapid below root.
func failFiles(root string) map[string]bool {
	files := make(map[string]bool)
	for _, depth := range []string{"*", "*/*", "*/*/*"} {
		found, _ := filepath.Glob(filepath.Join(root, depth, "testdata/rapid/*/*.fail")) // the pattern is right
		for _, file := range found {
			files[file] = true
		}
	}
	return files
}
