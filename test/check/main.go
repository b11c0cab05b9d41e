// Command check judges a run of SafeLedger after quiescence: it joins the tills' log, the
// ledger, the wallet simulator's book and the logs of the processes, and reports every
// violation of the invariants I1 to I15 with the history of its key. README.md tells how
// it is used.
//
// It exits with 1 on any violation, and with 2 where it cannot read what it needs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/safeledger/safeledger/test/check/checker"
)

// The exit codes.
const (
	exitClean    = 0
	exitViolated = 1
	exitUnread   = 2
)

// A run of a million decisions is to fit into 4 GB: time is traded for memory.
const (
	gcPercent   = 50
	memoryLimit = 3500 << 20
)

func main() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM) //nolint:forbidigo // this is main
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// arguments are what the command line says.
type arguments struct {
	database               string
	books, tills, response paths
	totals                 string
	options                checker.Options
	require                bool
	histories              int
	summary                string
}

// paths is a flag that may be given more than once, with patterns.
type paths []string

func (p *paths) String() string { return strings.Join(*p, ",") }

// Set adds the files of a pattern, of which there must be one at least: a log that is
// not there is not the same as one that is empty.
func (p *paths) Set(pattern string) error {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return errors.New("there is no such file")
	}
	*p = append(*p, found...)
	return nil
}

func parse(args []string, stderr io.Writer) (a arguments, err error) {
	o := checker.Defaults()
	set := flag.NewFlagSet("check", flag.ContinueOnError)
	set.SetOutput(stderr)
	set.StringVar(&a.database, "database", "", "`URL` of the ledger")
	set.Var(&a.books, "book", "the wallet simulator's book: a `FILE` or pattern, may be repeated")
	set.Var(&a.tills, "till", "a till log (history): a `FILE` or pattern, may be repeated")
	set.Var(&a.response, "responses", "a process' log: a `FILE` or pattern, may be repeated; at LOG_LEVEL=debug it tells of single requests")
	set.StringVar(&a.totals, "totals", "", "what the wallet answers to GET /control/totals after the run: a `FILE`")
	set.DurationVar(&o.ServerBudget, "server-budget", o.ServerBudget, "BUDGET_SERVER of the run")
	set.DurationVar(&o.NetworkReserve, "network-reserve", o.NetworkReserve, "BUDGET_NETWORK_RESERVE of the run")
	set.DurationVar(&o.DecisionCall, "decision-call", o.DecisionCall, "BUDGET_DECISION_CALL of the run")
	set.DurationVar(&o.LookupCall, "lookup-call", o.LookupCall, "BUDGET_LOOKUP_CALL of the run")
	set.DurationVar(&o.WorkerCall, "worker-call", o.WorkerCall, "BUDGET_WORKER_CALL of the run")
	set.DurationVar(&o.ConnectTimeout, "connect-timeout", o.ConnectTimeout, "WALLET_CONNECT_TIMEOUT of the run")
	set.DurationVar(&o.MinToSend, "min-to-send", o.MinToSend, "BUDGET_MIN_TO_SEND of the run")
	set.DurationVar(&o.RecoveryGrace, "recovery-grace", o.RecoveryGrace, "RECOVERY_GRACE of the run")
	set.DurationVar(&o.SettleWindow, "settle-window", o.SettleWindow, "QUEUE_SETTLE_WINDOW of the run")
	set.DurationVar(&o.SettleSLA, "settle-sla", o.SettleSLA, "how long the money of a decline may be out (I5); 0 does not judge it")
	set.DurationVar(&o.Slack, "slack", o.Slack, "what a busy machine may add to any duration")
	set.DurationVar(&o.ClockSlack, "clock-slack", o.ClockSlack, "how far the clocks of tills, wallet and database may be apart")
	set.IntVar(&o.Workers, "workers", 0, "replicas with workers at once (I12); 0 finds out from -responses")
	set.BoolVar(&o.Lossy, "lossy", false, "an asynchronous replica was promoted: keys that were lost are counted apart")
	set.BoolVar(&o.Unsettled, "unsettled", false, "the run is not quiet yet: what still waits is no violation")
	set.BoolVar(&a.require, "require", false, "an invariant that was checked in no case is a failure")
	set.IntVar(&a.histories, "histories", 5, "how many violations of a clause are told with their history")
	set.StringVar(&a.summary, "json", "", "write the summary to this `FILE` as well, as JSON")
	if err := set.Parse(args); err != nil {
		return a, err
	}
	a.options = o
	a.options.Most = a.histories
	switch {
	case set.NArg() > 0:
		err = fmt.Errorf("%q is none of the flags", set.Arg(0))
	case a.database == "" || len(a.books) == 0 || len(a.tills) == 0:
		err = errors.New("-database, -book and -till are needed")
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "check:", err)
	}
	return a, err
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	a, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitClean
	case err != nil:
		return exitUnread
	}
	report, err := check(ctx, a, stderr)
	if err == nil {
		err = tell(stdout, report, a)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "check:", err)
		return exitUnread
	}
	if !report.Clean() || (a.require && len(report.Void()) > 0) {
		return exitViolated
	}
	return exitClean
}

func check(ctx context.Context, a arguments, stderr io.Writer) (*checker.Report, error) {
	counted, err := readTotals(a.totals)
	if err != nil {
		return nil, err
	}
	ledger, err := checker.OpenPostgres(ctx, a.database)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ledger.Close(context.WithoutCancel(ctx)) }()
	p, err := newProgress(stderr, append(append(append([]string(nil), a.tills...), a.books...), a.response...))
	if err != nil {
		return nil, err
	}
	defer p.end()
	return checker.Check(ctx, checker.Input{
		Ledger:    ledger,
		Tills:     checker.TillFiles(p.read, a.tills...),
		Book:      checker.BookFiles(p.read, a.books...),
		Responses: checker.ResponseFiles(p.read, a.response...),
		Totals:    counted,
	}, a.options, p.phase)
}

// readTotals reads the wallet's own count, nil where none was given.
func readTotals(path string) (counted map[string]checker.Totals, err error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &counted); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return counted, nil
}
