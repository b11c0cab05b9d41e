//go:build crashpoints

package crashpoint

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// order is what SAFELEDGER_CRASH_AT says: POINT, POINT:N or POINT:N:stop.
type order struct {
	point  string
	passed atomic.Int64
	nth    int64
	signal syscall.Signal
}

var given = read(os.Getenv("SAFELEDGER_CRASH_AT")) //nolint:gochecknoglobals // read once, in builds for tests only

func read(text string) *order {
	point, more, _ := strings.Cut(text, ":")
	nth, how, _ := strings.Cut(more, ":")
	o := &order{point: point, nth: 1, signal: syscall.SIGKILL}
	if n, err := strconv.ParseInt(nth, 10, 64); err == nil {
		o.nth = n
	}
	if how == "stop" {
		o.signal = syscall.SIGSTOP
	}
	return o
}

// Here kills the process, without any clean-up, if it was told to die at point; or it
// stops it there, until somebody lets it go on.
func Here(point string) {
	if point != given.point || given.passed.Add(1) != given.nth {
		return
	}
	_ = syscall.Kill(os.Getpid(), given.signal)
	if given.signal == syscall.SIGKILL {
		select {} // the signal is on its way: nothing behind the point may run
	}
}
