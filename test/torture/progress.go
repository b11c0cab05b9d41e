package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells how far a run has come: on a terminal in one line that is written over,
// elsewhere in a line now and then.
type progress struct {
	out      io.Writer
	terminal bool
	target   int64
	count    *counters // of the rounds that are over
	began    time.Time

	mu   sync.Mutex
	done int64 // in the rounds that are over
	last time.Time
}

func newProgress(out *os.File, target int64, count *counters) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, target: target, count: count, began: time.Now()}
}

// watch tells of a round while it lasts.
func (p *progress) watch(ctx context.Context, l *load, w *world) {
	for i := 0; pause(ctx, 500*time.Millisecond); i++ {
		if i%10 == 0 {
			_ = w.control.tally(ctx, w.count) // it is tried again, and at the end it must succeed
		}
		now := p.done + min(l.begun.Load(), l.target.Load())
		rate := float64(now) / time.Since(p.began).Seconds()
		left := time.Duration(float64(max(p.target-now, 0))/max(rate, 1)) * time.Second
		kinds, hits := w.count.seen()
		p.say(fmt.Sprintf("%d of %d decisions, %.0f/s, %d calls, %d follow-ups; %d faults of %d of %d kinds; %v left",
			now, p.target, rate, l.asked.Load(), l.after.Load(), hits, kinds, len(of(w.count.kinds, w.lossy)), left.Round(time.Second)))
	}
	p.done += min(l.begun.Load(), l.target.Load())
}

// say writes over the line, or a line if the last is some time ago.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	const often = 5 * time.Second
	switch {
	case p.terminal:
		_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", text) // nobody has to see it
	case time.Since(p.last) > often:
		p.last = time.Now()
		_, _ = fmt.Fprintln(p.out, text) // nor this
	}
}

// end leaves the line that is written over.
func (p *progress) end() {
	if p.terminal {
		_, _ = fmt.Fprintln(p.out)
	}
}
