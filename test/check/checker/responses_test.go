package checker

import (
	"os"
	"path/filepath"
	"testing"
)

// Replicas whose clocks are off would else have worked at the same time although one
// followed the other, and retries would be held to the budget of both.
func TestLinesAreTimedByTheClockThatWroteThem(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, second := filepath.Join(dir, "replica-0.log"), filepath.Join(dir, "replica-1.log")
	for path, content := range map[string]string{
		first: `{"time":"2026-11-30T10:00:00Z","msg":"serving","role":"all"}
{"time":"2026-11-30T10:01:00Z","msg":"drained"}
`,
		// Ten minutes behind, it began two minutes after the first had ended; its successor's
		// clock is right, and it begins after that.
		second: `{"msg":"clock","offset_s":-600}
{"time":"2026-11-30T09:53:00Z","msg":"serving","role":"all"}
{"time":"2026-11-30T10:00:30Z","msg":"drained"}
{"msg":"clock","offset_s":0}
{"time":"2026-11-30T10:20:00Z","msg":"serving","role":"worker"}
{"time":"2026-11-30T10:21:00Z","msg":"drained"}
`,
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(Options{})
	if err := w.readResponses(t.Context(), ResponseFiles(func(int) {}, first, second)); err != nil {
		t.Fatal(err)
	}
	if w.workers.started != 3 || atOnce(w.workers.alive) != 1 {
		t.Errorf("%d started, %d at once, want 3 one after the other: %v", w.workers.started, atOnce(w.workers.alive), w.workers.alive)
	}
}
