package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"
)

func TestCPUTimesAreReadBehindAnyName(t *testing.T) {
	t.Parallel()
	const line = "4711 (po) stgres: (wal) S 42 4711 4711 0 -1 4194304 1 2 3 4 150 50 700 300 20 0 1 0 12345 1 2 3\n"
	got, err := parseStat([]byte(line))
	if want := (processTimes{parent: 42, own: 2 * time.Second, reaped: 10 * time.Second}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, broken := range []string{"", "4711 postgres S 42", "4711 (postgres) S 42 4711", "4711 (a) S x 1 1 0 -1 1 1 2 3 4 150 50 700 300 20", "4711 (a) S 1 1 1 0 -1 1 1 2 3 4 150 x 700 300 20"} {
		if _, err := parseStat([]byte(broken)); err == nil {
			t.Errorf("%q was read", broken)
		}
	}
}

func TestMemoryIsNowAndAtMost(t *testing.T) {
	t.Parallel()
	got, err := parseStatus([]byte("Name:\tsafeledger\nVmPeak:\t 1300000 kB\nVmHWM:\t   70000 kB\nVmRSS:\t   60000 kB\nRssAnon:\t 1 kB\n"))
	if want := (memory{resident: 60000 << 10, peak: 70000 << 10}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, broken := range []string{"", "VmRSS:\t60000 kB\n", "VmHWM:\tmany kB\nVmRSS:\t60000 kB\n"} {
		if _, err := parseStatus([]byte(broken)); err == nil {
			t.Errorf("%q was read", broken)
		}
	}
}

func TestIdleCoresWaitForNothingOrForTheDisk(t *testing.T) {
	t.Parallel()
	got, err := parseCores([]byte("cpu  100 200 300 400 50 6 7 8 90 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"))
	if want := (cores{idle: 4500 * time.Millisecond, all: 10710 * time.Millisecond}); err != nil || got != want {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	for _, broken := range []string{"", "cpu0 1 1 1 1 1 1 1 1 1", "cpu  1 2 3 x 5 6 7 8 9"} {
		if _, err := parseCores([]byte(broken)); err == nil {
			t.Errorf("%q was read", broken)
		}
	}
}

// PostgreSQL is a process for each connection, and most of them have ended when the
// measuring does: their time must not be lost, nor anybody else's be counted.
func TestTheTimeOfAFamilyIncludesChildrenThatHaveEnded(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("/proc is Linux's")
	}
	const burn = `i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done`
	// One child burns and ends, one burns and stays, beside a parent that does nothing.
	parent := exec.CommandContext(t.Context(), "sh", "-c", `sh -c '`+burn+`'; sh -c '`+burn+`; echo done; read -r _'; :`)
	stdin, err := parent.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	family, err := cpuOfFamily(parent.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	alone, err := cpuOf(parent.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	stats, err := readStat(parent.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	living := family - alone - stats.reaped
	if stats.reaped < 2*tick || living < 2*tick || family > time.Minute {
		t.Errorf("the family has used %v, the parent %v, those that have ended %v and the one that lives %v", family, alone, stats.reaped, living)
	}
	if _, err := stdin.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	if err := parent.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := cpuOf(parent.Process.Pid); err == nil {
		t.Error("a process that has ended has a time")
	}
	if m, err := memoryOf(os.Getpid()); err != nil || m.resident < 1<<20 || m.peak < m.resident {
		t.Errorf("our own memory is %+v, %v", m, err)
	}
}

// Tests run beside each other, and an address that was free is somebody else's a moment
// later: that is no reason to measure nothing. Whatever else ends a start does.
func TestAStartThatFoundItsAddressTakenIsMadeAgain(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		ends   []error
		starts int
		want   error
	}{
		"taken once":   {[]error{fmt.Errorf("server %w", errEnded), nil}, 2, nil},
		"taken always": {[]error{errEnded, errEnded, errEnded, nil}, 3, errEnded},
		"broken":       {[]error{broken, nil}, 1, broken},
	} {
		starts := 0
		err := atFreeAddresses(func() error {
			starts++
			return c.ends[starts-1]
		})
		if starts != c.starts || !errors.Is(err, c.want) {
			t.Errorf("%s: %d starts end in %v, want %d and %v", name, starts, err, c.starts, c.want)
		}
	}
}

func TestFreeAddressesDiffer(t *testing.T) {
	t.Parallel()
	const n = 300
	all, err := freeAddresses(t.Context(), n)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	if got := len(slices.Compact(all)); got != n {
		t.Errorf("%d of %d addresses are different", got, n)
	}
}
