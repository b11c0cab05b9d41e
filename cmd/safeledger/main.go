// Command safeledger is the payment-decision service between tills and a
// wallet: the service itself (serve), its schema (migrate), what operators do
// (ops), and everything on one machine to try it (dev). Configuration is the environment; see
// docs/configuration.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	_ "time/tzdata" // the image holds nothing but this program: TZ must work without a system

	"github.com/alecthomas/kong"
	_ "golang.org/x/crypto/x509roots/fallback" // nor has it CA roots; those of a system, or mounted, come first

	"github.com/safeledger/safeledger/internal/config"
	"github.com/safeledger/safeledger/internal/ops"
	"github.com/safeledger/safeledger/migrations"
)

// version and revision are set by the linker (see the Makefile and the Dockerfile):
// where an image is built there is no repository that the compiler could ask.
var (
	version  = "dev"
	revision string //nolint:gochecknoglobals // as version
)

// The exit codes, for whoever starts the process.
const (
	exitFailed = 1 // it ran and could not go on
	exitConfig = 2 // it did not start: the configuration is wrong
)

type commands struct {
	Serve   serveCommand   `cmd:"" help:"Serve tills: the API, and what is owed to payments afterwards."`
	Migrate migrateCommand `cmd:"" help:"Bring the database's schema up to date."`
	Dev     devCommand     `cmd:"" help:"Everything on this machine: a private PostgreSQL, a simulated wallet, the service, a demo till."`
	Ops     opsCommand     `cmd:"" help:"Find, follow, redrive and settle what tills and customers ask about."`
	Config  configCommand  `cmd:"" help:"Print the configuration in force, secrets masked."`
	Version versionCommand `cmd:"" help:"Print the version, what it was built from, and the schema that it needs."`
}

// process is what every command is given: the end of its context is the order
// to stop, and out is where its answer goes.
type process struct {
	out io.Writer
	ctx context.Context //nolint:containedctx // the one context that main starts, on its way to a command
}

func main() {
	os.Exit(run())
}

func run() int {
	defer profiling()()
	var cli commands
	parser := kong.Parse(&cli,
		kong.Name("safeledger"),
		kong.Description("Decides payments between tills and a wallet. Configured by SAFELEDGER_… variables, see docs/configuration.md."),
		kong.Vars{"ops_limit": strconv.Itoa(ops.DefaultLimit)},
		kong.UsageOnError())

	// The first signal asks for an orderly end, the second one does not wait for it:
	// everything that matters is durable or will be recovered.
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		<-signals
		os.Exit(exitFailed)
	}()

	err := parser.Run(&process{ctx: ctx, out: os.Stdout})
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "safeledger: %v\n", err)
	if _, ok := errors.AsType[*config.InvalidError](err); ok {
		return exitConfig
	}
	return exitFailed
}

type versionCommand struct{}

func (versionCommand) Run(p *process) error {
	_, err := fmt.Fprintf(p.out, "safeledger %s (commit %s, %s %s/%s, schema %d)\n",
		version, commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, migrations.Latest)
	return err
}

// commit is the revision that the binary was built from, as far as it knows.
func commit() string {
	if revision != "" {
		return revision
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
