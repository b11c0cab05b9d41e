package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/safeledger/safeledger/internal/program"
)

// child is a process that we have started.
type child struct{ *program.Process }

func startChild(path string, args, env []string, stdout, stderr *os.File) (*child, error) {
	cmd := exec.Command(path, args...) //nolint:gosec,noctx // our own programs; they are ended by pid
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "TZ=UTC"}, env...)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = program.Attributes(syscall.SIGKILL)
	p, err := program.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	return &child{p}, nil
}

func (p *child) signal(s syscall.Signal) { _ = p.Signal(s) } // it may have ended by itself

// ended waits for the end for so long, and reports whether it came.
func (p *child) ended(ctx context.Context, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-p.Exited():
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

// kill ends it without any clean-up.
func (p *child) kill() {
	p.signal(syscall.SIGKILL)
	<-p.Exited()
}

// killed reports, after its end, whether SIGKILL was it, whoever sent it.
func (p *child) killed() bool {
	status, ok := p.State().Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// stopped reports whether the kernel has stopped it.
func (p *child) stopped() bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may hold anything
	return strings.HasPrefix(rest, "T")
}

// replica is one place at which a process of SafeLedger runs, one after the other. Its
// traffic to PostgreSQL and to the wallet has a proxy each.
type replica struct {
	w      *world
	number int
	log    string // all its processes append to it
	env    []string

	clocks *rand.Rand // what its processes' clocks are drawn from

	still atomic.Bool // stopped for a while

	mu    sync.Mutex
	run   *child
	http  string // where tills reach it, "" while it has no such listener or is down
	admin string
}

const (
	startPatience = 60 * time.Second
	drainPatience = 15 * time.Second // beyond BUDGET_SERVER + 3 s, on a machine that has much to do
)

// start starts a process in a role, and waits until it is ready or has died: with a
// point to die at it may do that first. crashAt is "" for none.
func (r *replica) start(ctx context.Context, role, crashAt string) error {
	file, err := os.OpenFile(r.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // the process has its own copy
	off, kind := clockOf(r.clocks)
	if _, err := file.WriteString(clockLine(off)); err != nil {
		return err
	}
	begin, err := file.Seek(0, 2)
	if err != nil {
		return err
	}
	env := append([]string{fmt.Sprintf("%s=%d", offsetVariable, off)}, r.env...)
	if crashAt != "" {
		env = append(env, "SAFELEDGER_CRASH_AT="+crashAt)
	}
	p, err := startChild(r.w.program("safeledger"), []string{"serve", "--role=" + role}, env, nil, file)
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.run = p
	r.mu.Unlock()
	if err := r.awaitReady(ctx, p, begin); err != nil {
		return err
	}
	if kind != "" && !r.down() {
		r.w.count.hit(kind)
	}
	return nil
}

func (r *replica) awaitReady(ctx context.Context, p *child, begin int64) error {
	ready := false
	for end := time.Now().Add(startPatience); ; {
		text, err := tail(r.log, begin)
		if err != nil {
			return err
		}
		begin += int64(len(text))
		for line := range bytes.Lines(text) {
			var said struct {
				Msg   string `json:"msg"`
				HTTP  string `json:"http_addr"`
				Admin string `json:"admin_addr"`
			}
			if json.Unmarshal(line, &said) != nil {
				continue
			}
			switch said.Msg {
			case "serving":
				r.mu.Lock()
				r.http, r.admin = said.HTTP, said.Admin
				r.mu.Unlock()
			case "ready":
				ready = true
			}
		}
		select {
		case <-p.Exited():
			if p.killed() {
				return nil
			}
			return fmt.Errorf("replica %d ended while it started (%v); its log is %s", r.number, p.State(), r.log)
		default:
		}
		switch {
		case ready, p.stopped():
			return nil
		case time.Now().After(end):
			return fmt.Errorf("replica %d is not ready after %v; its log is %s", r.number, startPatience, r.log)
		case !pause(ctx, 15*time.Millisecond):
			return ctx.Err()
		}
	}
}

// tail reads the whole lines of a file from begin on, some of them if they are many.
func tail(path string, begin int64) ([]byte, error) {
	file, err := os.Open(path) //nolint:gosec // a log of our own
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	const most = 1 << 20
	text, err := io.ReadAll(io.NewSectionReader(file, begin, most))
	return text[:bytes.LastIndexByte(text, '\n')+1], err
}

// process is what runs now, nil before the first start.
func (r *replica) process() *child {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run
}

// address is where tills reach it.
func (r *replica) address() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.http
}

func (r *replica) operators() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.admin
}

// down is true if no process runs.
func (r *replica) down() bool {
	p := r.process()
	if p == nil {
		return true
	}
	select {
	case <-p.Exited():
		return true
	default:
		return false
	}
}

// drain ends the process as a deployment does.
func (r *replica) drain(ctx context.Context) error {
	p := r.process()
	if r.down() {
		return nil
	}
	p.signal(syscall.SIGCONT) // a stopped process hears nothing else
	p.signal(syscall.SIGTERM)
	if !p.ended(ctx, drainPatience) {
		p.kill()
		return fmt.Errorf("replica %d did not end within %v of SIGTERM", r.number, drainPatience)
	}
	if code := p.State().ExitCode(); code != 0 && !p.killed() {
		return fmt.Errorf("replica %d ended with %v after SIGTERM; its log is %s", r.number, p.State(), r.log)
	}
	return nil
}

// pause waits, and reports whether it could: not if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

var errInterrupted = errors.New("interrupted")
