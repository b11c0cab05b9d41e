package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// The program is what `make run` and the process tests start, and they wait for
// its first line: it must not be there before the wallet is, and SIGTERM must end
// the program cleanly with the book complete.
func TestTheProgramServesUntilSIGTERM(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "walletsim")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	book := filepath.Join(t.TempDir(), "book.jsonl")
	cmd := exec.CommandContext(t.Context(), binary, "--addr=127.0.0.1:0", "--open-accounts", "--version=v2", "--book-only-in-file")
	cmd.Env = append(os.Environ(), "WALLETSIM_BOOK="+book)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(first), "walletsim listens on ")
	if err != nil || !found {
		t.Fatalf("the first line is %q (%v)", first, err)
	}

	post := func(path, account string) (int, error) {
		body := `{"reference":"r-` + account + `","account":"` + account + `","amount":1,"currency":"EUR"}`
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0, err
		}
		defer res.Body.Close()
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, nil
	}
	if status, err := post("/v2/debits", "anna"); err != nil || status != http.StatusCreated {
		t.Errorf("debit: %d, %v, want 201", status, err)
	}
	if status, err := post("/v1/debits", "anna"); err != nil || status != http.StatusNotFound {
		t.Errorf("debit of a version that is off: %d, %v, want 404", status, err)
	}
	if status, err := post("/v2/debits", "LOST-anna"); err == nil {
		t.Errorf("debit of LOST-anna: %d, want no answer", status)
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil || stderr.Len() > 0 {
		t.Errorf("it ended with %v and said %q, want exit 0 in silence", err, stderr.String())
	}
	text, err := os.ReadFile(book)
	if err != nil || strings.Count(string(text), `"event":"APPLIED"`) != 2 {
		t.Errorf("the book has %q (%v), want two debits", text, err)
	}
}

// Who mistypes a flag must be told, and not be served by another wallet than the
// one that was asked for.
func TestBadFlagsEndIt(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"--version=v3"}, exitUsage, "--version"},
		{[]string{"--adr=127.0.0.1:0"}, exitUsage, "--adr"},
		{[]string{"--addr=nowhere"}, exitFailed, "nowhere"},
		{[]string{"--addr=127.0.0.1:0", "--book=" + t.TempDir()}, exitFailed, "open the book"},
		{[]string{"--addr=127.0.0.1:0", "--book-only-in-file"}, exitFailed, "BookFile"},
		{[]string{"--help"}, exitOK, "--open-accounts"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // should it serve after all, it ends at once
		var out bytes.Buffer
		if code := run(ctx, func() {}, tt.args, &out, &out); code != tt.code || !strings.Contains(out.String(), tt.says) {
			t.Errorf("%v: exit %d and %q, want %d and %q", tt.args, code, out.String(), tt.code, tt.says)
		}
	}
}

// What is printed is there to be pasted: it must name the wallet that runs.
func TestTheUsageFitsTheWallet(t *testing.T) {
	t.Parallel()
	const url = "http://127.0.0.1:4711"
	if text := usage(url, false); !strings.Contains(text, "curl -sS -X PUT "+url+"/control/accounts/anna") {
		t.Errorf("it does not say how accounts are opened:\n%s", text)
	}
	if text := usage(url, true); strings.Contains(text, "-X PUT") || strings.Count(text, url) < 5 {
		t.Errorf("it does not fit a wallet whose accounts open themselves:\n%s", text)
	}
}
