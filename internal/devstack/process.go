package devstack

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child that we wait for, in one place.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when the child has been waited for
}

// startProcess starts cmd from a thread that lives as long as the child: the
// kernel's death signal is tied to the thread that created the child, not to the
// process, and the Go runtime ends threads that it has no use for.
func startProcess(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer close(p.exited)
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how a server ends that was told to is no news; that it has is
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// stop ends the child, with each signal given patience to work. SIGINT is
// PostgreSQL's fast shutdown (clients are cut off, data is written), SIGQUIT its
// immediate one, after which the next start recovers.
func (p *process) stop(patience time.Duration) error {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL} {
		select {
		case <-p.exited:
			return nil
		default:
		}
		if err := p.cmd.Process.Signal(signal); err != nil {
			select {
			case <-p.exited: // it ended in between
				return nil
			default:
				return fmt.Errorf("signal postgres: %w", err)
			}
		}
		timer := time.NewTimer(patience)
		select {
		case <-p.exited:
			timer.Stop()
			return nil
		case <-timer.C:
		}
	}
	return errors.New("postgres does not end")
}
