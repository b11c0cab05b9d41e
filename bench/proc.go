package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is the unit in which Linux tells processes' times to programs: USER_HZ, 100 on
// every architecture that Go knows.
const tick = time.Second / 100

// processTimes are the CPU times of one line of /proc/PID/stat.
type processTimes struct {
	parent int
	own    time.Duration // user and system
	reaped time.Duration // of the children that it has waited for, and theirs
}

// parseStat reads /proc/PID/stat. The name in the second field may hold anything, so
// counting begins behind its closing bracket.
func parseStat(line []byte) (processTimes, error) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return processTimes{}, errors.New("no process name in it")
	}
	fields := bytes.Fields(line[end+1:])
	const parent, user, reapedSystem = 1, 11, 14 // counted from the state, the third field of the line
	if len(fields) <= reapedSystem {
		return processTimes{}, fmt.Errorf("only %d fields behind the name", len(fields))
	}
	ppid, err := strconv.Atoi(string(fields[parent]))
	if err != nil {
		return processTimes{}, err
	}
	var ticks [4]int64 // utime, stime, cutime, cstime
	for i := range ticks {
		if ticks[i], err = strconv.ParseInt(string(fields[user+i]), 10, 64); err != nil {
			return processTimes{}, err
		}
	}
	return processTimes{
		parent: ppid,
		own:    time.Duration(ticks[0]+ticks[1]) * tick,
		reaped: time.Duration(ticks[2]+ticks[3]) * tick,
	}, nil
}

func readStat(pid int) (processTimes, error) {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return processTimes{}, fmt.Errorf("read the CPU time of process %d (Linux only): %w", pid, err)
	}
	times, err := parseStat(line)
	if err != nil {
		return processTimes{}, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return times, nil
}

// cpuOf is the CPU time that a process has used so far.
func cpuOf(pid int) (time.Duration, error) {
	times, err := readStat(pid)
	return times.own, err
}

// cpuOfFamily is that of a process and all its children, those included that have
// ended: PostgreSQL is a process for each connection.
func cpuOfFamily(pid int) (time.Duration, error) {
	parent, err := readStat(pid)
	if err != nil {
		return 0, err
	}
	sum := parent.own + parent.reaped
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, path := range stats {
		line, err := os.ReadFile(path)
		if err != nil {
			continue // ended since: its parent has its time, or will at the next look
		}
		if child, err := parseStat(line); err == nil && child.parent == pid {
			sum += child.own
		}
	}
	return sum, nil
}

// memory is what a process holds, in bytes: now, and at most so far.
type memory struct{ resident, peak int64 }

// parseStatus reads the memory of /proc/PID/status.
func parseStatus(text []byte) (m memory, err error) {
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		into := map[string]*int64{"VmRSS": &m.resident, "VmHWM": &m.peak}[name]
		if into == nil {
			continue
		}
		kilobytes, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		if err != nil {
			return memory{}, err
		}
		*into = kilobytes << 10
	}
	if m.resident == 0 || m.peak == 0 {
		return memory{}, errors.New("no VmRSS and VmHWM in it")
	}
	return m, nil
}

func memoryOf(pid int) (memory, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return memory{}, fmt.Errorf("read the memory of process %d (Linux only): %w", pid, err)
	}
	m, err := parseStatus(text)
	if err != nil {
		return memory{}, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	return m, nil
}

// cores are the times of all cores together since the machine started.
type cores struct{ idle, all time.Duration }

// parseCores reads the first line of /proc/stat. Waiting for the disk is idling, too.
func parseCores(text []byte) (c cores, err error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	fields := strings.Fields(string(line))
	const idle, waiting, stolen = 4, 5, 8 // guests' times, behind that, are in the users' already
	if len(fields) <= stolen || fields[0] != "cpu" {
		return cores{}, errors.New("/proc/stat does not begin with the times of all cores")
	}
	for i, field := range fields[:stolen+1] {
		if i == 0 {
			continue
		}
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return cores{}, err
		}
		c.all += time.Duration(ticks) * tick
		if i == idle || i == waiting {
			c.idle += time.Duration(ticks) * tick
		}
	}
	return c, nil
}

func readCores() (cores, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return cores{}, fmt.Errorf("read how busy the machine is (Linux only): %w", err)
	}
	return parseCores(text)
}
