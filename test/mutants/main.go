// Command mutants asks whether the tests would notice. It changes the real code in one
// place, as somebody could by mistake, runs the tests that should find it, cheapest
// first, and does so for every defect in its list. One that no test finds fails the run:
// a promise is then held by nothing. `make mutants` runs it; docs/verification.md holds
// what it saw.
//
// The tree is never touched: a defect is an overlay, which the go command reads instead
// of the files. mutant.go says what a defect is, list_*.go are the defects, suites.go is
// what they are tried on, run.go the run, verdict.go how the end of a test is read,
// results.go what is kept, so that a run that was stopped goes on, matrix.go what is
// made of it.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

type command struct {
	Only  []string `arg:"" optional:"" help:"The defects to try, by name; all of them if none is named."`
	Write string   `help:"Try nothing; write the overlay of the one that is named into this folder, and its list's name." placeholder:"FOLDER" type:"existingdir"`
	Fresh bool     `help:"Try also what has been tried before and is as it was."`
}

func main() {
	var c command
	kong.Parse(&c, kong.Name("mutants"), kong.Description("Tries whether the tests find deliberate defects, see docs/verification.md."), kong.UsageOnError())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, ".", c)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "mutants: %v\n", err)
		os.Exit(1)
	}
}
