package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// The patience with a process that starts, and with one that is told to end.
const (
	startPatience = 30 * time.Second
	stopPatience  = 10 * time.Second
)

// child is a process that we have started. It does not outlive us: Stop ends it, and
// on Linux the kernel does if we are killed.
type child struct {
	name   string
	cmd    *exec.Cmd
	exited chan struct{}
	err    error // how it ended, once exited is closed
}

// command is what to start. What it writes to standard error goes to /dev/null, the
// same for everybody who is compared, or, where logs names a folder, into a file there.
type command struct {
	name    string
	program string
	args    []string
	env     []string // besides PATH: nothing of our own environment shall make a difference
	stdin   io.Reader
	stdout  io.Writer
	logs    string
}

func (c command) start() (*child, error) {
	cmd := exec.Command(c.program, c.args...) //nolint:gosec,noctx // our own programs; child.stop ends them
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TZ=UTC"}, c.env...)
	cmd.Stdin, cmd.Stdout = c.stdin, c.stdout
	cmd.SysProcAttr = childAttributes()
	if c.logs != "" {
		file, err := os.OpenFile(filepath.Join(c.logs, c.name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // the process has its own copy
		cmd.Stderr = file
	}

	p := &child{name: c.name, cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel's death signal is tied to the thread that starts the child, so this one
		// lives as long as the child does.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return p, nil
}

func (p *child) pid() int { return p.cmd.Process.Pid }

// stop ends the process, politely at first.
func (p *child) stop() error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("end %s: %w", p.name, err)
		}
		timer := time.NewTimer(stopPatience)
		select {
		case <-p.exited:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return fmt.Errorf("%s does not end", p.name)
}

// await asks until ready says yes, the process ends, or patience does. Pauses between
// two questions are short: how long a start takes is one of the figures.
func (p *child) await(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended while it started (%w); run again with --logs to see why", p.name, p.err)
		default:
		}
		if !waitUntil(ctx, time.Now().Add(time.Millisecond)) {
			return fmt.Errorf("%s is not ready in time: %w", p.name, err)
		}
	}
}
