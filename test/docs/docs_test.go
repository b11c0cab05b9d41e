// Package docs runs what the pages tell people to type. A command that was renamed in
// the code and not on the page costs a newcomer an evening and an operator a night.
package docs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	root = "../.."
	// patience bounds a session; none of them is a claim about speed.
	patience = 3 * time.Minute
)

// bin holds the programs, as they are built from here.
var bin string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if bin, err = os.MkdirTemp("", "safeledger-docs-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(bin) }()
	build := exec.Command("go", "build", "-o", bin, "./cmd/safeledger", "./cmd/walletsim", "./bench")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// pages are those whose commands are run, by their names from the root. The decisions'
// have none, and what is told for a cluster is tried where its manifests are.
func pages(t *testing.T) map[string]string {
	t.Helper()
	names := files(t, "docs/*.md", "*.md", "*/README.md", "*/*/README.md")
	all := map[string]string{}
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[strings.TrimPrefix(filepath.ToSlash(name), root+"/")] = string(content)
	}
	return all
}

// Nothing may be told on a page that nothing has run: a new command needs a row in the
// table, and a row that no page needs any more goes.
func TestEveryCommandOfThePagesIsRun(t *testing.T) {
	t.Parallel()
	texts := match(t, pages(t))
	for _, s := range sessions {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			folder, env := root, []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "GOFLAGS=" + os.Getenv("GOFLAGS")}
			switch s.name {
			case "stack":
				folder = startStack(t)
			case "wallet":
				env = append(env, "WALLET="+startWallet(t))
			}
			output := play(t, s, texts[s.name], folder, env)
			for i, u := range s.units {
				holds(t, u, texts[s.name][i], output[i])
			}
		})
	}
}

// match finds the text of each row, by session, and complains about rows and commands
// that have no other.
func match(t *testing.T, pages map[string]string) map[string][]string {
	t.Helper()
	taken := map[string]bool{}
	texts := map[string][]string{}
	found := map[string][]string{}
	for name, page := range pages {
		found[name] = commands(page)
	}
	for _, s := range sessions {
		for _, u := range s.units {
			// The longest row wins where one begins like another.
			at := slices.IndexFunc(found[u.page], func(text string) bool {
				return strings.HasPrefix(text, u.first) && !taken[u.page+"\x00"+text] && !longer(u, text)
			})
			if at < 0 {
				t.Errorf("%s has no command that begins with %q any more: take its row out of the table", u.page, u.first)
				texts[s.name] = append(texts[s.name], "")
				continue
			}
			text := found[u.page][at]
			taken[u.page+"\x00"+text] = true
			texts[s.name] = append(texts[s.name], text)
			if u.instead != "" && u.why == "" {
				t.Errorf("%s, %q: a command that is not run as it stands needs the reason", u.page, u.first)
			}
		}
	}
	count := 0
	for name, all := range found {
		for _, text := range all {
			count++
			if !taken[name+"\x00"+text] {
				t.Errorf("%s has a command that nothing runs; give it a row in the table:\n%s", name, text)
			}
		}
	}
	if count < 15 {
		t.Errorf("only %d commands: the search for them is broken", count)
	}
	return texts
}

// longer reports whether another row of the page is about text more exactly than u.
func longer(u unit, text string) bool {
	for _, s := range sessions {
		for _, other := range s.units {
			if other.page == u.page && len(other.first) > len(u.first) && strings.HasPrefix(text, other.first) {
				return true
			}
		}
	}
	return false
}

// play runs the units of a session in one shell and returns what each has said.
func play(t *testing.T, s session, texts []string, folder string, env []string) []string {
	t.Helper()
	const mark = "@@@ the next command"
	var script strings.Builder
	for i, u := range s.units {
		text := strings.NewReplacer(u.replace...).Replace(texts[i])
		switch {
		case u.by != "":
			declared(t, u.by)
			text = "true"
		case u.instead != "":
			text = u.instead
		}
		fmt.Fprintf(&script, "echo %q\n%s\n%s\n", mark, u.before, text)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	flags := "-eu"
	if s.failing {
		flags = "-u"
	}
	shell := exec.CommandContext(ctx, "bash", flags, "-c", script.String())
	shell.Dir, shell.Env = folder, env
	var both bytes.Buffer
	shell.Stdout, shell.Stderr = &both, &both
	if err := shell.Run(); err != nil && !s.failing {
		t.Fatalf("%v\n%s", err, both.String())
	}
	output := strings.Split(both.String(), mark+"\n")[1:]
	if len(output) != len(s.units) {
		t.Fatalf("%d of %d commands were run:\n%s", len(output), len(s.units), both.String())
	}
	return output
}

// holds checks that the output says what it must, in this order.
func holds(t *testing.T, u unit, text, output string) {
	t.Helper()
	var want []string
	if u.by == "" && u.instead == "" {
		for _, promise := range regexp.MustCompile(`# → (.*)`).FindAllStringSubmatch(text, -1) {
			want = append(want, strings.Fields(promise[1])...)
		}
	}
	rest := output
	for _, word := range append(want, u.says...) {
		_, after, found := strings.Cut(rest, word)
		if !found {
			t.Errorf("%s, %q does not say %q there:\n%s", u.page, u.first, word, output)
			return
		}
		rest = after
	}
}

// declared complains about a test that does not exist.
func declared(t *testing.T, name string) {
	t.Helper()
	for _, file := range files(t, "*/*_test.go", "*/*/*_test.go") {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(content, []byte("\nfunc "+name+"(")) {
			return
		}
	}
	t.Errorf("there is no test %s", name)
}

// files are those of the tree that match one of the patterns.
func files(t *testing.T, patterns ...string) (all []string) {
	t.Helper()
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	return all
}

// reachable is a folder that the user who runs PostgreSQL can get to.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; d != os.TempDir() && d != "/" && d != "."; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			break
		}
	}
	return dir
}

// startStack starts what `make run` starts, in a folder that looks like the tree to who
// works beside it. Waits are shortened, so that what is parked after days is so in seconds.
func startStack(t *testing.T) string {
	t.Helper()
	folder := reachable(t)
	if err := os.Symlink(bin, filepath.Join(folder, "bin")); err != nil {
		t.Fatal(err)
	}
	launch(t, folder, "Ctrl-C", []string{
		"SAFELEDGER_HTTP_ADDR=127.0.0.1:0", "SAFELEDGER_ADMIN_ADDR=127.0.0.1:0",
		"SAFELEDGER_QUEUE_SETTLE_WINDOW=4s", "SAFELEDGER_QUEUE_PARK_AFTER=6s", "SAFELEDGER_QUEUE_BACKOFF_MAX=2s",
	}, filepath.Join(bin, "safeledger"), "dev")
	return folder
}

// startWallet starts a simulated wallet and returns its URL.
func startWallet(t *testing.T) string {
	t.Helper()
	line := launch(t, t.TempDir(), "http://", nil, filepath.Join(bin, "walletsim"), "--open-accounts", "--addr=127.0.0.1:0")
	return regexp.MustCompile(`http://[0-9.:]+`).FindString(line)
}

// launch starts a program and waits for a line that holds text, which it returns. The
// program ends with the test.
func launch(t *testing.T, folder, text string, env []string, program string, args ...string) string {
	t.Helper()
	command := exec.Command(program, args...) // it is told to stop below, and ends what it has started
	command.Dir = folder
	command.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, env...)
	read, write := io.Pipe()
	command.Stdout, command.Stderr = write, write
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() {
		err := command.Wait()
		_ = write.Close()
		exited <- err
	}()
	t.Cleanup(func() {
		_ = command.Process.Signal(os.Interrupt)
		select {
		case err := <-exited:
			if err != nil {
				t.Errorf("%s ended with: %v", program, err)
			}
		case <-time.After(patience):
			_ = command.Process.Kill()
			t.Errorf("%s did not end", program)
		}
	})
	lines := make(chan string, 1)
	go func() {
		var said strings.Builder
		scanner := bufio.NewScanner(read)
		for scanner.Scan() {
			fmt.Fprintln(&said, scanner.Text())
			if strings.Contains(scanner.Text(), text) {
				lines <- scanner.Text()
				_, _ = io.Copy(io.Discard, read) // it must not wait for a reader
				return
			}
		}
		lines <- "it ended: " + said.String()
	}()
	select {
	case line := <-lines:
		if !strings.Contains(line, text) || strings.HasPrefix(line, "it ended: ") {
			t.Fatalf("%s: %s", program, line)
		}
		return line
	case <-time.After(patience):
		t.Fatalf("%s did not say %q", program, text)
		return ""
	}
}
