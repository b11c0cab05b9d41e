package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// machine is what a run ran on, told with its results.
type machine struct {
	Began    time.Time `json:"began"`
	Commit   string    `json:"commit"`
	Grouping bool      `json:"grouping"` // whether grouping could be turned off
	Options  options   `json:"options"`

	CPU        string   `json:"cpu"`
	Cores      int      `json:"cores"`
	MemoryMB   int64    `json:"memoryMb"`
	Kernel     string   `json:"kernel"`
	Go         string   `json:"go"`
	PostgreSQL string   `json:"postgresql"`
	Settings   []string `json:"settings"`
	// SyncMS is what the disk takes to make 8 KiB durable: the median, and the p99.
	SyncMS    float64 `json:"syncMs"`
	SyncP99MS float64 `json:"syncP99Ms"`
}

// look describes the machine, the database server and the tree at root.
func look(ctx context.Context, w *world, root string, o options) (machine, error) {
	m := machine{
		Began: time.Now().UTC().Truncate(time.Second), Commit: commit(ctx, root), Grouping: w.grouping, Options: o,
		CPU: procField("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), Kernel: firstLine("/proc/sys/kernel/osrelease"), Go: runtime.Version(),
	}
	var err error
	if m.PostgreSQL, err = w.setting(ctx, "server_version"); err != nil {
		return machine{}, err
	}
	if m.Settings, err = w.shownSettings(ctx); err != nil {
		return machine{}, err
	}
	syncs, err := measureSync(filepath.Dir(w.postgres.Dir()))
	if err != nil {
		return machine{}, err
	}
	m.SyncMS, m.SyncP99MS = milliseconds(percentile(syncs, 0.5)), milliseconds(percentile(syncs, 0.99))
	if kilobytes, err := strconv.ParseInt(strings.TrimSuffix(procField("/proc/meminfo", "MemTotal"), " kB"), 10, 64); err == nil {
		m.MemoryMB = kilobytes >> 10
	}
	return m, nil
}

// commit is the tree's, and whether it was changed since.
func commit(ctx context.Context, root string) string {
	git := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		return "unknown"
	}
	return string(bytes.TrimSpace(out))
}

func firstLine(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return runtime.GOOS
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return line
}

// procField is the value of the first line `name : value` of a file.
func procField(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(text)) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// measureSync writes 8 KiB, as much as a page, and makes it durable, again and again.
// It gives the times that the latter takes, in order.
func measureSync(dir string) (times []time.Duration, err error) {
	file, err := os.CreateTemp(dir, "safeledger-bench-sync-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close(), os.Remove(file.Name())) }()
	page := make([]byte, 8<<10)
	const writes, area = 300, 64 // the WAL's files exist already, so what is written over here does too
	if _, err := file.Write(make([]byte, area*len(page))); err != nil {
		return nil, err
	}
	if err := file.Sync(); err != nil {
		return nil, err
	}
	for i := range writes {
		if _, err := file.WriteAt(page, int64(i%area*len(page))); err != nil {
			return nil, err
		}
		began := time.Now()
		if err := syncData(file); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times, nil
}
