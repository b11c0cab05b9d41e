// Command torture runs SafeLedger as it is deployed, does to it and to everything around
// it what a seed draws, and has test/check judge what is left. `make torture` runs it;
// README.md tells what it does.
//
// run.go is a run and its rounds, world.go what is started, till.go and clienttill.go
// the load, wire.go how it is sent and noted, nemesis.go, postgres.go,
// failover.go and walletfaults.go what is done to it, quiet.go the end and the verdict, judge.go a verdict that is
// given again, summary.go what is kept.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
)

// The exit codes.
const (
	exitClean    = 0
	exitViolated = 1 // a promise was broken, or the run itself
	exitVoid     = 2 // a kind of fault struck too rarely: the run says nothing about it
)

type commands struct {
	Run   runCommand   `cmd:"" default:"withargs" help:"Torture it, and judge what is left."`
	Judge judgeCommand `cmd:"" help:"Judge a round again whose evidence was kept, with the checker as it is now."`
	Sum   sumCommand   `cmd:"" help:"Add up the summaries of runs, as a Markdown table."`
	Kinds kindsCommand `cmd:"" help:"List the kinds of faults."`
}

// order is what a command is given: the end of its context is the order to stop.
type order struct {
	ctx context.Context //nolint:containedctx // the one context that main starts, on its way to a command
}

func main() {
	var cli commands
	parser := kong.Parse(&cli, kong.Name("torture"), kong.Description("Tortures SafeLedger, see test/torture/README.md."), kong.UsageOnError())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := parser.Run(&order{ctx})
	stop()
	code := exitClean
	switch {
	case errors.Is(err, errVoid):
		code = exitVoid
	case err != nil:
		code = exitViolated
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "torture: %v\n", err)
	}
	os.Exit(code)
}

type kindsCommand struct{}

// Run lists the kinds.
func (kindsCommand) Run(*order) error {
	for _, k := range allKinds() {
		fmt.Printf("%-10s %-30s %s\n", k.group, k.name, k.does)
	}
	return nil
}
