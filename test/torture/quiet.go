package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// operate is an operator who redrives what is parked, until ctx ends.
func (w *world) operate(ctx context.Context) {
	for i := 0; pause(ctx, 1500*time.Millisecond); i++ {
		if n, err := w.redrive(ctx, w.replicas[i%len(w.replicas)]); err == nil {
			w.count.add("redriven", int64(n))
		}
	}
}

// page is as much of what is parked as an operator is shown at once.
const page = 100

// redrive redrives a page of what is parked, through one replica, and says how much that
// was.
func (w *world) redrive(ctx context.Context, r *replica) (done int, err error) {
	if r.operators() == "" {
		return 0, nil
	}
	text, err := w.operatorCall(ctx, r, http.MethodGet, fmt.Sprintf("parked?limit=%d", page), "")
	if err != nil {
		return 0, err
	}
	var parked struct {
		Parked []struct {
			ID string `json:"id"`
		} `json:"parked"`
	}
	if err := json.Unmarshal(text, &parked); err != nil {
		return 0, err
	}
	for _, p := range parked.Parked {
		if _, err := w.operatorCall(ctx, r, http.MethodPost, "operations/"+p.ID+"/redrive", `{"reason": "the wallet is well again"}`); err != nil {
			return done, err
		}
		done++
	}
	return done, nil
}

func (w *world) operatorCall(ctx context.Context, r *replica, method, path, body string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+r.operators()+"/operators/"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+operator().token)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := w.control.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("operators: %d %s", resp.StatusCode, bytes.TrimSpace(text))
	}
	return text, err
}

// becomeQuiet ends all faults, has what is parked redriven, and waits until nothing is
// left to be done. Then the replicas are ended, in order.
func (w *world) becomeQuiet(ctx context.Context, progress *progress) error {
	w.wallet.signal(syscall.SIGCONT)
	if err := w.control.tally(ctx, w.count); err != nil {
		return err
	}
	if err := w.control.clear(ctx); err != nil {
		return err
	}
	for i := range w.replicas {
		w.toLedger[i].End()
		w.toWallet[i].End()
	}
	// What a replica was started with to die of must not go off now; and workers are
	// needed everywhere.
	for _, r := range w.replicas {
		if err := r.drain(ctx); err != nil {
			return err
		}
		if err := r.start(ctx, "all", ""); err != nil {
			return err
		}
	}
	const limit = 5 * time.Minute
	redriven, pages := false, 20
	for end := time.Now().Add(limit); ; {
		left, err := w.left(ctx)
		switch {
		case err != nil:
			return err
		case left == 0 && redriven:
			return w.endReplicas(ctx)
		case left == 0:
			// Once, page by page: what is parked again then is parked for good.
			n, err := w.redrive(ctx, w.replicas[0])
			if err != nil {
				return err
			}
			pages--
			redriven = n < page || pages == 0
		case time.Now().After(end):
			return fmt.Errorf("%d payments, follow-ups and wallet requests have not come to an end within %v after the last fault", left, limit)
		}
		progress.say(fmt.Sprintf("faults are over; %d payments, follow-ups and wallet requests are still at work", left))
		if !pause(ctx, 500*time.Millisecond) {
			return errInterrupted
		}
	}
}

// left is how much is still to be done.
func (w *world) left(ctx context.Context) (int, error) {
	conn, err := w.connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	var open int
	if err := conn.QueryRow(ctx, `
SELECT (SELECT count(*) FROM public.payments WHERE state = 'IN_FLIGHT') + (SELECT count(*) FROM public.operations WHERE due_at IS NOT NULL)`).Scan(&open); err != nil {
		return 0, err
	}
	busy, err := w.control.busy(ctx)
	return open + busy, err
}

func (w *world) endReplicas(ctx context.Context) error {
	var errs []error
	for _, r := range w.replicas {
		errs = append(errs, r.drain(ctx))
	}
	return errors.Join(errs...)
}

func (w *world) totals() string { return filepath.Join(w.dir, "totals.json") }

// keepTotals keeps what the wallet has counted, which is asked of it at last.
func (w *world) keepTotals(ctx context.Context) error {
	var counted json.RawMessage
	if err := w.control.call(ctx, http.MethodGet, "totals", nil, &counted); err != nil {
		return err
	}
	return os.WriteFile(w.totals(), counted, 0o600)
}

// judge has the checker judge what is left, and reads its verdict.
func (w *world) judge(ctx context.Context, slack time.Duration, result *roundResult) error {
	if err := w.leaks(); err != nil {
		return err
	}
	summary := filepath.Join(w.dir, checked)
	verdict := filepath.Join(w.dir, "verdict.txt")
	out, err := os.Create(verdict)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	cmd := exec.CommandContext(ctx, w.program("check"), //nolint:gosec // our own program
		"-database", w.ledgerURL(), "-till", filepath.Join(w.dir, "tills.jsonl"), "-book", w.book(), "-responses", w.logs(),
		"-settle-window", settleWindow.String(), "-settle-sla", settleSLA.String(), "-recovery-grace", recoveryGrace.String(),
		"-worker-call", workerCall.String(), "-slack", slack.String(), "-clock-slack", "20ms", "-require", "-json", summary,
	)
	if _, err := os.Stat(w.totals()); err == nil {
		cmd.Args = append(cmd.Args, "-totals", w.totals())
	}
	if w.lossy {
		cmd.Args = append(cmd.Args, "-lossy")
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = out, &said
	err = cmd.Run()
	const exitViolated = 1
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitViolated) {
		return fmt.Errorf("the checker: %w: %s", err, bytes.TrimSpace(said.Bytes()))
	}
	failed := err != nil
	if err := result.read(summary); err != nil {
		return err
	}
	if failed && result.Violations == 0 {
		result.Violations = 1 // an invariant that was checked in no case
	}
	told, err := os.ReadFile(verdict)
	if err != nil {
		return err
	}
	result.verdict = string(told)
	return nil
}

// leaks looks through the logs of the replicas for what opens a door and for accounts:
// neither belongs in a log (docs/logs.md), whatever happens.
func (w *world) leaks() error {
	password, err := os.ReadFile(filepath.Join(w.postgres.server.Dir(), "password"))
	if err != nil {
		return err
	}
	logs, err := filepath.Glob(w.logs())
	if err != nil {
		return err
	}
	for _, log := range logs {
		text, err := os.ReadFile(log) //nolint:gosec // of our own replicas
		if err != nil {
			return err
		}
		for _, secret := range []string{"token-of-", "fault-", "-customer", "customer-", string(bytes.TrimSpace(password))} {
			if at := bytes.Index(text, []byte(secret)); at >= 0 {
				return fmt.Errorf("the log %s tells a secret at byte %d: it has the word %.9s", log, at, secret)
			}
		}
	}
	return nil
}
