package checker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/test/check/history"
)

// Gigabytes are decoded in blocks beside each other. A line that is lost between two of
// them, or comes before another's, would be somebody's missing debit.
func TestLinesComeWholeAndInOrder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const each, long = 5000, 3 * blockSize
	var paths []string
	n := 0
	for i := range 3 {
		var b strings.Builder
		for j := range each {
			n++
			body := strings.Repeat("x", n%700)
			if i == 1 && j == 17 {
				body = strings.Repeat("y", long) // longer than a block
			}
			fmt.Fprintf(&b, "{\"event\":\"SENT\",\"at\":\"2026-11-30T01:00:00Z\",\"call\":%d,\"sent\":%q}\n", n, body)
		}
		if i == 2 {
			b.WriteString(`{"event":"SENT","at":"2026-11-3`) // its writer was killed
		}
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	read := 0
	lines := TillFiles(func(n int) { read += n }, paths...)
	var places []place
	if err := lines.each(t.Context(), func(p place, l *history.Line) error {
		places = append(places, p)
		if l.Call != int64(len(places)) {
			return fmt.Errorf("call %d comes in place %d", l.Call, len(places))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if len(places) != 3*each || read < long {
		t.Errorf("%d lines and %d bytes, want %d", len(places), read, 3*each)
	}
	// And each is found again where it was.
	for _, i := range []int{0, 1, each - 1, each, each + 17, each + 18, 3*each - 1} {
		if l, err := lines.at(places[i]); err != nil || l.Call != int64(i)+1 {
			t.Errorf("line %d is found as call %d, %v", i+1, l.Call, err)
		}
	}

	enough := errors.New("enough")
	if err := lines.each(t.Context(), func(place, *history.Line) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("a reader that has had enough: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lines.each(over, func(place, *history.Line) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader whose time is over: %v", err)
	}
}

// A line that cannot be read in the middle of a log is a log that has been damaged: what
// else is missing of it nobody can know.
func TestADamagedLogIsNotJudged(t *testing.T) {
	t.Parallel()
	const opened = `{"event":"OPENED","at":"2026-11-30T01:00:00Z","run":"r"}`
	for text, want := range map[string]string{
		opened + "\n{\"event\":\n" + opened + "\n":                                                                            "byte 57",
		opened + "\n" + `{"event":"SENTT","at":"2026-11-30T01:00:00Z"}` + "\n":                                                `unknown event "SENTT"`,
		opened + "\n" + `{"event":"CALMED","at":"2026-11-30T01:00:00Z","call":1}` + "\n":                                      "disturbance 1 ends and did not begin",
		opened + "\n" + `{"event":"SENT","at":"2026-11-30T01:00:00Z","call":1}` + "\n" + opened + "\n" + answeredOf(1) + "\n": "call 1 ends and was not sent",
	} {
		path := filepath.Join(t.TempDir(), "tills")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		in := (&recording{}).input()
		in.Tills = TillFiles(nil, path)
		if _, err := Check(t.Context(), in, Defaults(), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n%v, want %q", text, err, want)
		}
	}
	if _, err := Check(t.Context(), Input{Ledger: rowsOf{&recording{}}, Tills: TillFiles(nil, "nowhere")}, Defaults(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a log that is not there: %v", err)
	}
}

func answeredOf(call int) string {
	return fmt.Sprintf(`{"event":"ANSWERED","at":"2026-11-30T01:00:00Z","call":%d,"status":201}`, call)
}
