package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/config"
	"github.com/safeledger/safeledger/internal/devstack"
	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/telemetry"
	"github.com/safeledger/safeledger/internal/walletsim"
)

// The demo callers. Their tokens are no secrets: they open a service on the
// loopback of the machine that they are printed on.
const (
	demoToken         = "demo-till-token"
	demoOperatorToken = "demo-operator-token"
)

// The addresses of `dev`, where they are free; a free port instead where not.
const (
	devTills  = "127.0.0.1:8080"
	devAdmin  = "127.0.0.1:9090"
	devWallet = "127.0.0.1:8090"
)

type devCommand struct {
	Dir string `default:".safeledger" type:"path" help:"Where the data and the log are kept. Removing it begins anew."`
}

// Run brings up a PostgreSQL, a simulated wallet and the service, decides one
// debit over HTTP, and stays until it is told to stop.
func (c devCommand) Run(p *process) (err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil { //nolint:gosec // the postgres user must get through it
		return err
	}
	logPath := filepath.Join(c.Dir, "safeledger.log")
	logFile, err := os.OpenFile(logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logFile.Close()) }()
	log := telemetry.NewLogger(logFile, slog.LevelInfo)
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) } //nolint:forbidigo // the command's output

	say("Starting a private PostgreSQL, a simulated wallet and SafeLedger; the log is in %s.", relative(logPath))
	stack, err := c.start(p.ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stack.stop()) }()

	served := make(chan error, 1)
	go func() { served <- stack.service.run(p.ctx) }()
	select {
	case <-stack.service.opened:
	case err := <-served:
		return err
	}

	base := "http://" + stack.service.tills.Addr().String()
	if err := demonstrate(p.ctx, base, say); err != nil {
		return err
	}
	say("%s", pasteLines(base, "http://"+stack.service.admin.Addr().String(), stack.wallet.URL(), relative(c.Dir)))

	select {
	case err := <-served:
		return err
	case <-stack.postgres.Exited():
		return errors.New("PostgreSQL has ended; its log is in " + relative(stack.postgres.Dir()))
	}
}

// devStack is what `dev` has started.
type devStack struct {
	postgres *devstack.Postgres
	wallet   *walletsim.Sim
	service  *service
}

func (c devCommand) start(ctx context.Context, log *slog.Logger) (_ *devStack, err error) {
	s := &devStack{}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.postgres, err = devstack.StartPostgres(ctx, devstack.Options{Dir: filepath.Join(c.Dir, "postgres"), Log: log}); err != nil {
		return nil, err
	}
	if err := ledger.Migrate(ctx, s.postgres.URL(), log); err != nil {
		return nil, err
	}

	s.wallet, err = walletsim.New(walletsim.Config{OpenAccounts: true, BookFile: filepath.Join(c.Dir, "wallet-book.jsonl"), Log: log})
	if err != nil {
		return nil, err
	}
	if err := s.wallet.Start(ctx, free(ctx, devWallet)); err != nil {
		return nil, err
	}

	callersFile := filepath.Join(c.Dir, "callers.json")
	content := fmt.Sprintf(`{"callers": [
  {"name": "demo-till", "tokenSha256": %q, "scopes": ["till", "payout"]},
  {"name": "demo-operator", "tokenSha256": %q, "scopes": ["operator"]}
]}
`, callers.HashToken(demoToken), callers.HashToken(demoOperatorToken))
	if err := os.WriteFile(callersFile, []byte(content), 0o600); err != nil {
		return nil, err
	}

	// What the environment sets already is left alone: `dev` is also for trying
	// out other numbers.
	for name, value := range map[string]string{
		"DATABASE_URL":    s.postgres.URL(),
		"WALLET_BASE_URL": s.wallet.URL(),
		"CALLERS_FILE":    callersFile,
		"HTTP_ADDR":       free(ctx, devTills),
		"ADMIN_ADDR":      free(ctx, devAdmin),
		"DRAIN_DELAY":     "0s", // nobody else routes to it
	} {
		if _, set := os.LookupEnv(config.Prefix + name); !set {
			if err := os.Setenv(config.Prefix+name, value); err != nil {
				return nil, err
			}
		}
	}
	cfg, err := config.Load(config.RoleAll)
	if err != nil {
		return nil, err
	}
	if s.service, err = newService(ctx, cfg, config.RoleAll, log); err != nil {
		return nil, err
	}
	return s, os.WriteFile(filepath.Join(c.Dir, "env"), []byte(s.environment()), 0o600)
}

// environment is for another terminal: what `safeledger ops` needs, whose password was
// drawn just now, and where to find everything, for lines that are pasted from a page.
func (s *devStack) environment() string {
	return fmt.Sprintf(`export %sDATABASE_URL='%s'
export BASE='http://%s' TOKEN='%s'
export ADMIN='http://%s' OPERATOR='%s'
export WALLET='%s'
`, config.Prefix, s.postgres.URL(), s.service.tills.Addr(), demoToken, s.service.admin.Addr(), demoOperatorToken, s.wallet.URL())
}

// stop ends what was started, the newest first. The service stops itself when
// its run ends.
func (s *devStack) stop() error {
	var errs []error
	if s.wallet != nil {
		errs = append(errs, s.wallet.Close())
	}
	if s.postgres != nil {
		errs = append(errs, s.postgres.Stop())
	}
	return errors.Join(errs...)
}

// free is preferred, or the same host with any free port where somebody else
// listens there.
func free(ctx context.Context, preferred string) string {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", preferred)
	if err != nil {
		host, _, _ := net.SplitHostPort(preferred)
		return net.JoinHostPort(host, "0")
	}
	_ = l.Close()
	return preferred
}

// relative is path as one would type it here, if that is shorter.
func relative(path string) string {
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil && len(rel) < len(path) {
			return rel
		}
	}
	return path
}

// demoTimeout is longer than a till would wait: what is slow shall be seen.
const demoTimeout = 10 * time.Second

// demonstrate decides one debit over real HTTP and shows both sides of it as they
// went over the wire.
func demonstrate(ctx context.Context, base string, say func(string, ...any)) error {
	ctx, cancel := context.WithTimeout(ctx, demoTimeout)
	defer cancel()
	key, err := uuid.NewV7()
	if err != nil {
		return err
	}
	const body = `{"account": "ALICE", "amount": 1250, "currency": "EUR", "reference": "receipt 4711"}`
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/debits", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+demoToken)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Idempotency-Key", key.String())
	request.Header.Set("Request-Deadline-Ms", "3000")
	sent, err := httputil.DumpRequestOut(request, true)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return fmt.Errorf("the first debit: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	received, err := httputil.DumpResponse(response, true)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	say("\nA till asks for 12.50 EUR and will wait for 3 s:\n\n%s\n\nSafeLedger answers:\n\n%s\n", indent(sent), indent(received))
	if response.StatusCode != http.StatusCreated {
		return fmt.Errorf("the first debit was answered %s, not 201", response.Status)
	}
	return nil
}

func indent(message []byte) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(strings.ReplaceAll(string(message), "\r\n", "\n")), "\n", "\n    ")
}

// pasteLines are commands to try, each a whole line for a shell.
func pasteLines(base, admin, wallet, dir string) string {
	var b strings.Builder
	err := template.Must(template.New("").Parse(`Paste these into another terminal:

  till() { curl -si -X POST {{.Base}}/debits -H 'Authorization: Bearer {{.Token}}' -H 'Content-Type: application/json' -H "Idempotency-Key: $1" -d "$2"; echo; }

  # an approval
  till "approval-$(date +%s)" '{"account": "ALICE", "amount": 1250, "currency": "EUR"}'

  # a decline: nothing on the account
  till "decline-$(date +%s)" '{"account": "POOR-BOB", "amount": 1250, "currency": "EUR"}'

  # a slow wallet: it hangs, the till is told within its budget, and a reversal looks after the money
  till "slow-$(date +%s)" '{"account": "HANG-CAROL", "amount": 1250, "currency": "EUR"}'

  # a replay: the same key twice is one debit and the same answer twice
  till replay-me '{"account": "ALICE", "amount": 700, "currency": "EUR"}'; till replay-me '{"account": "ALICE", "amount": 700, "currency": "EUR"}'

  # what became of a payment, by the till's own key
  curl -s {{.Base}}/payments/by-key/debit/replay-me -H 'Authorization: Bearer {{.Token}}'; echo

  # cancel by key: undo whatever that key did, and make sure that it does nothing later
  curl -s -X POST {{.Base}}/payments/by-key/debit/replay-me/cancel -H 'Authorization: Bearer {{.Token}}'; echo

  # what operators see: what waits for a person, all that is known of an account's payments, the same over HTTP
  . {{.Dir}}/env; {{.Program}} ops parked; {{.Program}} ops find --account ALICE
  curl -s {{.Admin}}/operators/parked -H 'Authorization: Bearer {{.Operator}}'

  # the wallet's book, metrics, the API
  curl -s {{.Wallet}}/control/book; curl -s {{.Admin}}/metrics | grep ^safeledger_decision; curl -s {{.Base}}/openapi.yaml

More accounts that misbehave: docs/walletsim.md. Ctrl-C stops everything; the data stays in {{.Dir}} (make clean removes it).`)).
		Execute(&b, struct{ Base, Admin, Wallet, Dir, Program, Token, Operator string }{
			base, admin, wallet, dir, os.Args[0], demoToken, demoOperatorToken,
		})
	if err != nil {
		return err.Error()
	}
	return b.String()
}
