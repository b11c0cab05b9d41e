// Package program starts processes that do not outlive us: PostgreSQL for `dev` and for
// tests, and whatever a benchmark or a torture run starts. A server that is left behind
// keeps a port and a folder that somebody else will want.
package program

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// Process is one that was started, and is waited for in one place.
type Process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has been waited for
	err    error         // how it ended; to be read behind exited
}

// Start starts cmd, which should have Attributes, from a thread that lives as long as
// the process: the kernel's death signal is tied to the thread that created it, not to
// ours as a whole, and the Go runtime ends threads that it has no use for.
func Start(cmd *exec.Cmd) (*Process, error) {
	p := &Process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
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
		return nil, err
	}
	return p, nil
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Exited is closed when it has ended, whoever ended it.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Err is how it ended, nil for a success. It is known when Exited is closed.
func (p *Process) Err() error { return p.err }

// State is what the kernel says of its end. It is known when Exited is closed.
func (p *Process) State() *os.ProcessState { return p.cmd.ProcessState }

// Signal sends it s. One that has ended gets nothing, and that is no error.
func (p *Process) Signal(s os.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop ends it with the first of signals that does so within patience. SIGKILL gets a
// minute at least: no program withstands it, so it is the machine that is slow.
func (p *Process) Stop(patience time.Duration, signals ...syscall.Signal) error {
	for _, s := range signals {
		if err := p.Signal(s); err != nil {
			return fmt.Errorf("send %v: %w", s, err)
		}
		limit := patience
		if s == syscall.SIGKILL {
			limit = max(limit, time.Minute)
		}
		timer := time.NewTimer(limit)
		select {
		case <-p.exited:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return errors.New("it does not end")
}
