package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/safeledger/safeledger/internal/program"
)

// The patience with a process that starts, and with one that is told to end.
const (
	startPatience = 30 * time.Second
	stopPatience  = 10 * time.Second
)

// child is a process that we have started, and its name.
type child struct {
	*program.Process

	name string
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
	cmd.SysProcAttr = program.Attributes(syscall.SIGKILL)
	if c.logs != "" {
		file, err := os.OpenFile(filepath.Join(c.logs, c.name+".log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, err
		}
		defer func() { _ = file.Close() }() // the process has its own copy
		cmd.Stderr = file
	}

	p, err := program.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.name, err)
	}
	return &child{p, c.name}, nil
}

// stop ends the process, politely at first.
func (p *child) stop() error {
	if err := p.Stop(stopPatience, syscall.SIGTERM, syscall.SIGKILL); err != nil {
		return fmt.Errorf("end %s: %w", p.name, err)
	}
	return nil
}

// errEnded is about a process that was not to end.
var errEnded = errors.New("ended while it started")

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
		case <-p.Exited():
			return fmt.Errorf("%s %w (%w); run again with --logs to see why", p.name, errEnded, p.Err())
		default:
		}
		if !waitUntil(ctx, time.Now().Add(time.Millisecond)) {
			return fmt.Errorf("%s is not ready in time: %w", p.name, err)
		}
	}
}
