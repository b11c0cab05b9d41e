package watchfile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// promised is how soon a change must be in force (contract section 5).
const promised = 5 * time.Second

// upper is the parser of these tests: it takes what begins with "good".
func upper(content []byte) (string, error) {
	if !bytes.HasPrefix(content, []byte("good")) {
		return "", errors.New("it does not begin well")
	}
	return strings.ToUpper(string(content)), nil
}

// watched is a file that is being watched in a bubble of fake time.
type watched struct {
	*File[string]
	log  *lines
	stop context.CancelFunc
}

// lines is a log that Watch writes and the test reads.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func watch(t *testing.T, path string) watched {
	t.Helper()
	file, err := Load(path, upper)
	if err != nil {
		t.Fatal(err)
	}
	w := watched{File: file, log: new(lines)}
	ctx, cancel := context.WithCancel(t.Context())
	w.stop = cancel
	go file.Watch(ctx, Interval, slog.New(slog.NewTextHandler(w.log, nil)))
	return w
}

// let lets fake time pass, and whoever was woken by it finish.
func let(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// expect compares what is in force, and what each line of the log must have in it.
func (w watched) expect(t *testing.T, value string, parts ...string) {
	t.Helper()
	if got := w.Get(); got != value {
		t.Errorf("in force is %q, want %q", got, value)
	}
	logged := slices.Collect(strings.Lines(w.log.String()))
	if len(logged) != len(parts) {
		t.Fatalf("got %d lines of log, want %d:\n%s", len(logged), len(parts), w.log)
	}
	for i, part := range parts {
		if !strings.Contains(logged[i], part) {
			t.Errorf("line %d is %q, want %q in it", i, logged[i], part)
		}
	}
}

// A token that was rotated is refused by the wallet, and a caller that was
// removed can still pay, until the new file is in force: at most 5 s.
func TestAChangeIsInForceWithinFiveSeconds(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "good one")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		defer w.stop()
		w.expect(t, "GOOD ONE")
		// Right after a look, so that the whole interval must pass.
		let(Interval)
		write(t, path, "good two")
		let(promised)
		w.expect(t, "GOOD TWO", "new file in force")
		let(time.Hour)
		w.expect(t, "GOOD TWO", "new file in force")
	})
}

// Kubernetes replaces a mounted secret by turning a symbolic link to another
// folder; the file that we opened is never written to.
func TestASwappedLinkIsFollowed(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	generation := func(name, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(mount, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(mount, name, "callers.json"), content)
	}
	point := func(name string) {
		t.Helper()
		temporary := filepath.Join(mount, "..data_tmp")
		if err := os.Symlink(name, temporary); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(temporary, filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	generation("..2026_01", "good old")
	point("..2026_01")
	path := filepath.Join(mount, "callers.json")
	if err := os.Symlink("..data/callers.json", path); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		defer w.stop()
		generation("..2026_02", "good new")
		point("..2026_02")
		if err := os.RemoveAll(filepath.Join(mount, "..2026_01")); err != nil {
			t.Fatal(err)
		}
		let(promised)
		w.expect(t, "GOOD NEW", "new file in force")
	})
}

// A rotation within one tick of the file system's clock, by a secret of the
// same length, changes neither time stamp nor size.
func TestAChangeThatKeepsSizeAndTimeIsSeen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	stamp := time.Unix(1_800_000_000, 0)
	write(t, path, "good one")
	if err := os.Chtimes(path, stamp, stamp); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		defer w.stop()
		let(promised)
		write(t, path, "good two")
		if err := os.Chtimes(path, stamp, stamp); err != nil {
			t.Fatal(err)
		}
		let(promised)
		w.expect(t, "GOOD TWO", "new file in force")
	})
}

// A slip in a new file must not lock every till out; that it was refused must be
// said, once, and not every two seconds until somebody mends it.
func TestABadFileKeepsTheOneBeforeAndSaysSoOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "callers.json")
	write(t, path, "good one")
	const refused = "new file is not valid, the one before stays in force"
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		defer w.stop()
		write(t, path, "bad")
		let(time.Hour)
		w.expect(t, "GOOD ONE", refused)
		if got := w.log.String(); !strings.Contains(got, "it does not begin well") || !strings.Contains(got, path) {
			t.Errorf("the log says neither what is wrong nor where: %s", got)
		}
		write(t, path, "")
		let(time.Hour)
		w.expect(t, "GOOD ONE", refused, refused)
		write(t, path, strings.Repeat("g", maxSize+1))
		let(2 * promised)
		w.expect(t, "GOOD ONE", refused, refused, "file cannot be read")
		write(t, path, "good two")
		let(promised)
		w.expect(t, "GOOD TWO", refused, refused, "file cannot be read", "new file in force")
	})
}

// To put the old file back is how an operator mends a bad one, and must end the
// matter, without a line that speaks of a new file.
func TestTheOldFileAgainIsInForce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "callers.json")
	write(t, path, "good one")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		defer w.stop()
		write(t, path, "bad")
		let(promised)
		write(t, path, "good one")
		let(promised)
		w.expect(t, "GOOD ONE", "new file is not valid", "new file in force")
		write(t, path, "bad") // the same slip again is said again
		let(promised)
		w.expect(t, "GOOD ONE", "new file is not valid", "new file in force", "new file is not valid")
	})
}

// A mount that goes away for a while, or a file between delete and write, must
// not take the callers with it.
func TestAVanishedFileKeepsTheOneBeforeAndSaysSoOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "good one")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		defer w.stop()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		let(time.Hour)
		w.expect(t, "GOOD ONE", "file cannot be read, the one before stays in force")
		write(t, path, "good one")
		let(promised)
		w.expect(t, "GOOD ONE", "file cannot be read", "file can be read again, unchanged")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		let(promised)
		write(t, path, "good two")
		let(promised)
		w.expect(t, "GOOD TWO", "file cannot be read", "file can be read again, unchanged", "file cannot be read", "new file in force")
	})
}

// At start there is no earlier file: to go on without callers would refuse every
// till and look healthy.
func TestTheFirstFileMustBeGood(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	bad := filepath.Join(folder, "bad")
	write(t, bad, "bad")
	large := filepath.Join(folder, "large")
	write(t, large, strings.Repeat("g", maxSize+1))
	for _, row := range []struct{ name, path string }{
		{"missing", filepath.Join(folder, "missing")},
		{"a folder", folder},
		{"bad", bad},
		{"too large", large},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(row.path, upper)
			if err == nil || !strings.Contains(err.Error(), row.path) {
				t.Errorf("got %v, want an error that names %s", err, row.path)
			}
		})
	}
}

// Shutdown waits for the watchers; one that went on would keep the process.
func TestWatchEndsWithItsContext(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, "good one")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, path)
		w.stop()
		synctest.Wait() // synctest fails the test if Watch is still there at its end
		write(t, path, "good two")
		let(promised)
		w.expect(t, "GOOD ONE")
	})
}
