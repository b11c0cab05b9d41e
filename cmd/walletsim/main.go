// Command walletsim runs the simulated wallet for people and for tests in other
// processes: docs/walletsim.md tells how to use it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// The exit codes: a usage error is told from a failure, as everywhere in SafeLedger.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, stop, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// flags are the command line; each has a variable of the environment as well.
type flags struct {
	Addr         string `env:"WALLETSIM_ADDR"          default:"127.0.0.1:8090"              help:"Where to listen. Control has no password: keep it on loopback."`
	Version      string `env:"WALLETSIM_VERSION"       default:"both" enum:"v1,v2,both"      help:"The versions to speak: v1, v2 or both."`
	OpenAccounts bool   `env:"WALLETSIM_OPEN_ACCOUNTS"                                       help:"Let an account that is named for the first time open itself with a balance."`
	Book         string `env:"WALLETSIM_BOOK"          placeholder:"FILE"                    help:"Append the book to this file, one JSON object a line."`
	OnlyInFile   bool   `env:"WALLETSIM_BOOK_ONLY_IN_FILE" name:"book-only-in-file"          help:"Keep the book in its file and not in memory as well, for runs of millions of requests."`
	Seed         uint64 `env:"WALLETSIM_SEED"          default:"1"                           help:"What the draws of rules with a probability depend on."`
}

func (f flags) config(log *slog.Logger) walletsim.Config {
	cfg := walletsim.Config{OpenAccounts: f.OpenAccounts, BookFile: f.Book, BookOnlyInFile: f.OnlyInFile, Seed: f.Seed, Log: log}
	if f.Version != "both" {
		cfg.Versions = []walletsim.Version{walletsim.Version(f.Version)}
	}
	return cfg
}

// run runs the wallet until ctx ends and returns the exit code. stopped gives
// the signals back, so that a second one ends the process at once.
func run(ctx context.Context, stopped func(), args []string, stdout, stderr io.Writer) int {
	var f flags
	helped := false
	parser, err := kong.New(&f,
		kong.Name("walletsim"),
		kong.Description("A simulated wallet, versions 1 and 2, that misbehaves on request. See docs/walletsim.md."),
		kong.Writers(stdout, stderr),
		kong.Exit(func(int) { helped = true }), // kong exits after --help: that is ours to do
	)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "walletsim:", err)
		return exitFailed
	}
	_, err = parser.Parse(args)
	switch {
	case helped:
		return exitOK
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "walletsim:", err)
		return exitUsage
	}

	if err := serve(ctx, stopped, f, stdout, slog.New(slog.NewJSONHandler(stderr, nil))); err != nil {
		_, _ = fmt.Fprintln(stderr, "walletsim:", err)
		return exitFailed
	}
	return exitOK
}

func serve(ctx context.Context, stopped func(), f flags, stdout io.Writer, log *slog.Logger) (err error) {
	sim, err := walletsim.New(f.config(log))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, sim.Close()) }()
	if err := sim.Start(ctx, f.Addr); err != nil {
		return err
	}
	// Printed only now, when it is true: whoever reads it may call at once.
	if _, err := io.WriteString(stdout, usage(sim.URL(), f.OpenAccounts)); err != nil {
		return fmt.Errorf("say where it listens: %w", err)
	}
	<-ctx.Done()
	stopped()
	return nil
}

// usage is what to do with a wallet at url.
func usage(url string, open bool) string {
	accounts := "# Accounts are opened by hand:\n" +
		"curl -sS -X PUT " + url + `/control/accounts/anna -d '{"balances": {"EUR": 100000}}'` + "\n"
	if open {
		accounts = "# Any account opens itself with money on it; POOR-anna has none.\n"
	}
	return "walletsim listens on " + url + "\n\n" + accounts + `
# A debit, and what became of it:
curl -sS ` + url + `/v2/debits -H 'Content-Type: application/json' -d '{"reference": "demo-1", "account": "anna", "amount": 1250, "currency": "EUR"}'
curl -sS ` + url + `/v2/operations/demo-1

# The account asks for a fault: SLOW-1500-anna, LOST-anna, DOWN-anna, LATE-5000-anna, … (docs/walletsim.md has them all)
curl -sS ` + url + `/v2/debits -H 'Content-Type: application/json' -d '{"reference": "demo-2", "account": "LOST-anna", "amount": 1250, "currency": "EUR"}'

# What the wallet knows:
curl -sS ` + url + `/control/accounts
curl -sS '` + url + `/control/book?reference=demo-2'

Ctrl-C ends it.
`
}
