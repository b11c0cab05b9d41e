package program

import (
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// sh starts a shell that says when its script has begun.
func sh(t *testing.T, script string) *Process {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.SysProcAttr = Attributes(syscall.SIGKILL)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Stop(10*time.Second, syscall.SIGKILL) })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return p
}

// A process that does not listen is still ended, by the next signal, and one that has
// ended is ended again without a complaint.
func TestStopGoesOnToTheSignalThatWorks(t *testing.T) {
	t.Parallel()
	p := sh(t, "trap '' TERM; echo; while :; do sleep 1; done")
	for range 2 {
		if err := p.Stop(200*time.Millisecond, syscall.SIGTERM, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	if status, ok := p.State().Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL || p.Err() == nil {
		t.Errorf("ended as %v (%v), want SIGKILL", p.State(), p.Err())
	}
}

func TestAProcessThatEndsByNoneOfTheSignalsIsSaid(t *testing.T) {
	t.Parallel()
	p := sh(t, "trap '' TERM; echo; while :; do sleep 1; done")
	if err := p.Stop(50*time.Millisecond, syscall.SIGTERM); err == nil {
		t.Error("it is said to have ended")
	}
}

func TestWhatCannotBeStartedIsSaid(t *testing.T) {
	t.Parallel()
	if p, err := Start(exec.Command("/no/such/program")); err == nil {
		t.Errorf("started as %d", p.PID())
	}
}
