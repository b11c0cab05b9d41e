package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress says how far a check has come: in place on a terminal, in lines elsewhere.
type progress struct {
	out      io.Writer
	terminal bool
	began    time.Time
	total    int64 // bytes of all logs

	mu   sync.Mutex
	done int64
	now  string // the phase
	stop chan struct{}
	over sync.WaitGroup
}

// How often it is told.
const (
	onTerminal = 200 * time.Millisecond
	elsewhere  = 10 * time.Second
)

func newProgress(out io.Writer, files []string) (*progress, error) {
	p := &progress{out: out, began: time.Now(), stop: make(chan struct{})}
	for _, path := range files {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		p.total += info.Size()
	}
	every := elsewhere
	if file, ok := out.(*os.File); ok {
		if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			p.terminal, every = true, onTerminal
		}
	}
	p.over.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p.mu.Lock()
				p.tell()
				p.mu.Unlock()
			case <-p.stop:
				return
			}
		}
	})
	return p, nil
}

// phase begins another part of the work.
func (p *progress) phase(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = name
	p.tell()
}

// read counts bytes of the logs.
func (p *progress) read(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += int64(n)
}

// tell writes where the work stands. It is called under the lock.
func (p *progress) tell() {
	took := time.Since(p.began)
	line := fmt.Sprintf("%6.1f s  %s", took.Seconds(), p.now)
	if p.done > 0 {
		const mega = 1 << 20
		line += fmt.Sprintf(", %d of %d MB of logs", p.done/mega, p.total/mega)
		if p.done < p.total {
			line += fmt.Sprintf(", about %.0f s left", took.Seconds()*float64(p.total-p.done)/float64(p.done))
		}
	}
	if p.terminal {
		_, _ = fmt.Fprintf(p.out, "\r\033[K%s", line)
		return
	}
	_, _ = fmt.Fprintln(p.out, line)
}

func (p *progress) end() {
	close(p.stop)
	p.over.Wait()
	if p.terminal {
		_, _ = fmt.Fprint(p.out, "\r\033[K")
	}
}
