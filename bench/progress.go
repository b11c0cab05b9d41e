package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// progress tells how far a run has come: on a terminal in one line that is written
// over, elsewhere a line for each step.
type progress struct {
	out      io.Writer
	terminal bool
	steps    []step // what is to be done
	done     int
	began    time.Time
	last     string // what was measured last
}

func newProgress(out *os.File, steps []step) *progress {
	info, err := out.Stat()
	return &progress{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0, steps: steps, began: time.Now()}
}

// begin tells what is measured now.
func (p *progress) begin() {
	p.rewrite(p.steps[p.done].String())
}

// end tells what was measured.
func (p *progress) end(m measurement) {
	p.done++
	p.last = "last " + m.headline() + "; "
	if !p.terminal {
		p.line(fmt.Sprintf("%d of %d, %s left; %s: %s", p.done, len(p.steps), p.left(), m.point, m.headline()))
	}
}

// loading tells how far the filling of a database with n rows has come.
func (p *progress) loading(n int) func(done int) {
	began := time.Now()
	return func(done int) {
		text := fmt.Sprintf("writing rows beforehand: %s of %s, %s/s", thousands(done), thousands(n), thousands(int(float64(done)/time.Since(began).Seconds())))
		if p.terminal {
			p.rewrite(text)
		} else if done == n || done%(10*chunk) == 0 {
			p.line(text)
		}
	}
}

// left is how long what is not done will take, by what was done so far.
func (p *progress) left() time.Duration {
	var done, open time.Duration
	for i, s := range p.steps {
		if i < p.done {
			done += s.takes
		} else {
			open += s.takes
		}
	}
	if done > 0 {
		open = time.Duration(float64(open) * float64(time.Since(p.began)) / float64(done))
	}
	return open.Round(time.Second)
}

// finish leaves the line that is written over.
func (p *progress) finish() {
	if p.terminal {
		p.line("")
	}
}

// rewrite writes over the line. It is cut where a narrow terminal ends, because a line
// that goes on in the next row is not written over.
func (p *progress) rewrite(now string) {
	if !p.terminal {
		return
	}
	text := []rune(fmt.Sprintf("%d of %d, %s left; %snow %s", p.done, len(p.steps), p.left(), p.last, now))
	_, _ = fmt.Fprintf(p.out, "\r\x1b[K%s", string(text[:min(len(text), 79)])) // nobody has to see it
}

func (p *progress) line(text string) { _, _ = fmt.Fprintln(p.out, text) } // nor this

// headline is the figure that one waits for.
func (m measurement) headline() string {
	v := m.Values
	if m.Phase == phaseStart {
		return fmt.Sprintf("ready in %.0f ms", v[ready])
	}
	text := fmt.Sprintf("%s/s", thousands(int(v[rate])))
	if v[p99] > 0 {
		text += fmt.Sprintf(", p99 %.1f ms", v[p99])
	}
	if m.Phase == phaseOverload {
		text += fmt.Sprintf(", refused %s/s", thousands(int(v[refusals])))
	}
	if v[failures] > 0 {
		text += fmt.Sprintf(", %.0f FAILED %v", v[failures], m.Details)
	}
	return text
}

// thousands writes n with commas.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	var b strings.Builder
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 && digits[i-1] != '-' {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}
