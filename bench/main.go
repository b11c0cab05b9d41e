// Command bench measures SafeLedger: against itself with grouping off, against the same
// server without a database, and against a bare HTTP server, in one interleaved run on
// a PostgreSQL of its own. `make bench` runs it; docs/performance.md tells what it
// measures, and holds what it has found.
//
// run.go is the run, plan.go what is measured in which order, stage.go what one
// measurement runs on, measure.go how it is measured, load.go and till.go the load,
// nodatabase.go and bare.go the servers that are no SafeLedger, results.go what is
// kept, report.go, goals.go and chart.go what is made of it. profile.go makes what the
// compiler optimises by.
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

type commands struct {
	Run        runCommand        `cmd:"" default:"withargs" help:"Measure, keep the results, and report them."`
	Report     reportCommand     `cmd:"" help:"Report results that were kept."`
	Profile    profileCommand    `cmd:"" help:"Make the profile that the compiler optimises SafeLedger by: cmd/safeledger/default.pgo."`
	Load       loadCommand       `cmd:"" hidden:"" help:"The load, a process of a run."`
	NoDatabase noDatabaseCommand `cmd:"" hidden:"" help:"The server without a database, a process of a run."`
	Bare       bareCommand       `cmd:"" hidden:"" help:"The bare HTTP server, a process of a run."`
}

// order is what a command is given: the end of its context is the order to stop.
type order struct {
	ctx context.Context //nolint:containedctx // the one context that main starts, on its way to a command
}

func main() {
	var cli commands
	parser := kong.Parse(&cli, kong.Name("bench"), kong.Description("Measures SafeLedger, see docs/performance.md."), kong.UsageOnError())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := parser.Run(&order{ctx})
	interrupted := ctx.Err() != nil
	stop()
	if err != nil && (!interrupted || !errors.Is(err, context.Canceled)) {
		fmt.Fprintf(os.Stderr, "bench: %v\n", err)
	}
	if err != nil {
		os.Exit(1)
	}
}

type loadCommand struct{}

func (loadCommand) Run(o *order) error { return runLoad(o.ctx, os.Stdin, os.Stdout) }

type noDatabaseCommand struct{}

func (noDatabaseCommand) Run(o *order) error { return runWithoutDatabase(o.ctx) }

type bareCommand struct {
	Address string `required:"" help:"Where to serve."`
	Wallet  string `required:"" help:"The wallet's URL."`
}

func (c bareCommand) Run(o *order) error { return runBare(o.ctx, c.Address, c.Wallet) }
