package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An overlay that changes nothing would have us say that clocks were off, and what was
// measured by durations would be off where it changed too much.
func TestAClockThatIsSetOffShowsAnotherTimeAndTheSameDurations(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("compiles a part of the standard library")
	}
	dir := t.TempDir()
	defect := filepath.Join(dir, "defect.json")
	if err := os.WriteFile(defect, []byte(`{"Replace": {"/tree/a.go": "/defects/a.go"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := offClocks(dir, defect)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := replaced(overlay); err != nil || list["/tree/a.go"] != "/defects/a.go" || len(list) != 3 {
		t.Errorf("with a defect besides: %v, %v", list, err)
	}
	program := filepath.Join(dir, "show.go")
	const source = `package main

import "time"

func main() {
	begin := time.Now()
	time.Sleep(time.Millisecond)
	println(begin.Unix(), time.Since(begin) > 0, time.Since(begin) < time.Minute, time.Until(begin.Add(time.Hour)) > 59*time.Minute)
}
`
	if err := os.WriteFile(program, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "show")
	if out, err := exec.Command("go", "build", "-overlay", overlay, "-o", binary, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, off := range []int64{0, 600, -600} {
		cmd := exec.Command(binary)
		cmd.Env = append(os.Environ(), offsetVariable+"="+strconv.FormatInt(off, 10))
		before := time.Now().Unix()
		out, err := cmd.CombinedOutput()
		after := time.Now().Unix()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		said := strings.Fields(string(out))
		shown, err := strconv.ParseInt(said[0], 10, 64)
		if err != nil || shown < before+off || shown > after+off {
			t.Errorf("off by %d s, it shows %s between %d and %d (%v)", off, said[0], before, after, err)
		}
		if strings.Join(said[1:], " ") != "true true true" {
			t.Errorf("off by %d s, durations are %v", off, said[1:])
		}
	}
}
