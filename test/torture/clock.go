package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clockKinds are dealt to a replica with every start.
func clockKinds() []kind {
	return []kind{
		{group: ofProcess, name: aheadClock, does: "a replica whose clock is up to ten minutes ahead"},
		{group: ofProcess, name: behindClock, does: "a replica whose clock is up to ten minutes behind"},
	}
}

const (
	aheadClock  = "clock-ahead"
	behindClock = "clock-behind"
	mostOff     = 600 // seconds
)

// clocksOf is what the clocks of a replica are drawn from, one for each start.
func clocksOf(seed uint64, replica int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 1<<40+uint64(replica))) //nolint:gosec // repeatable on purpose
}

// clockOf draws by how many seconds a replica's clock is off, and which kind that is: a
// third of them is right.
func clockOf(rng *rand.Rand) (seconds int, kind string) {
	switch rng.IntN(3) {
	case 0:
		return 1 + rng.IntN(mostOff), aheadClock
	case 1:
		return -1 - rng.IntN(mostOff), behindClock
	default:
		return 0, ""
	}
}

// offsetVariable is what the replicas' build reads.
const offsetVariable = "CLOCK_OFFSET_S"

// clockLine tells the checker of it, in the log of the process that follows.
func clockLine(seconds int) string {
	return fmt.Sprintf("{\"time\":%q,\"msg\":\"clock\",\"offset_s\":%d}\n", time.Now().UTC().Format(time.RFC3339Nano), seconds)
}

// offClocks makes an overlay for `go build` in which time.Now is off by what
// offsetVariable says. Go reads the clock without asking the kernel, so a process' wall
// clock cannot be set off from outside; its monotonic one stays right, as it does where
// somebody sets the date. It gives the file for -overlay.
func offClocks(into, defect string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output() //nolint:noctx // it answers at once
	if err != nil {
		return "", fmt.Errorf("ask for GOROOT: %w", err)
	}
	folder := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	text, err := os.ReadFile(filepath.Join(folder, "time.go"))
	if err != nil {
		return "", err
	}
	const reading = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	changed := strings.Replace(string(text), reading, reading+"\tsec += offset\n", 1)
	if changed == string(text) {
		return "", fmt.Errorf("time.Now does not begin with %q any more in %s: a replica's clock cannot be set off", reading, folder)
	}
	const offset = `package time

import "syscall"

var offset = readOffset()

func readOffset() (seconds int64) {
	text, _ := syscall.Getenv("` + offsetVariable + `")
	sign := int64(1)
	for _, c := range []byte(text) {
		if c == '-' {
			sign = -1
			continue
		}
		seconds = 10*seconds + int64(c-'0')
	}
	return sign * seconds
}
`
	replace := map[string]string{}
	if defect != "" {
		if replace, err = replaced(defect); err != nil {
			return "", err
		}
	}
	for name, content := range map[string]string{"time.go": changed, "offset.go": offset} {
		path := filepath.Join(into, "clock-"+name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(folder, name)] = path
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	path := filepath.Join(into, "clock.json")
	return path, os.WriteFile(path, content, 0o600)
}

// replaced reads what an overlay puts in the place of what.
func replaced(overlay string) (map[string]string, error) {
	text, err := os.ReadFile(overlay) //nolint:gosec // the one that was asked for
	if err != nil {
		return nil, err
	}
	var list struct{ Replace map[string]string }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", overlay, err)
	}
	return list.Replace, nil
}
