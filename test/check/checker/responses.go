package checker

import (
	"context"
	"fmt"
	"time"
)

// workers are the replicas with workers, by what they have logged.
type workers struct {
	started int
	alive   []span // from their first line to their last
	files   map[int64]int
}

// readResponses takes in what the processes say that they have answered.
func (w *world) readResponses(ctx context.Context, l Lines[ResponseLine]) error {
	w.workers.files = map[int64]int{}
	w.offsets = map[int64]time.Duration{}
	if err := l.each(ctx, w.addResponse); err != nil {
		return fmt.Errorf("response log: %w", err)
	}
	return nil
}

func (w *world) addResponse(p place, l *ResponseLine) error {
	w.report.ResponseLines++
	if l.Noise != "" {
		w.report.Noise++
		return nil
	}
	file := int64(p >> byteBits)
	if l.Msg == clockMessage {
		w.offsets[file] = time.Duration(l.OffsetS) * time.Second
		return nil
	}
	now := at(l.Time.Add(-w.offsets[file]))
	w.followWorkers(file, now, l)

	var s *subject
	if id, ok := traceOf(l.Trace); ok {
		if h := w.byTrace[id]; h != nil {
			s = h.subject
			switch l.Msg {
			case requestBegun:
				h.begun++
			case requestRefused:
				h.refused++
			}
		}
	}
	if l.Msg == requestBegun || l.Msg == requestRefused {
		w.traced = true
	}
	id := parseID(l.ID)
	if p := w.byPayment[id]; p != nil {
		s = p
	} else if j := w.byJob[id]; j != nil {
		s = j.subject()
	}
	if s == nil {
		return nil
	}
	s.lines = append(s.lines, logPlace{p, now})
	if l.Msg == decidedMessage || l.Msg == replayMessage {
		w.checked(logged)
		if q := s.payment; q == nil || q.id != id || l.Decision != q.state || l.Code != q.code {
			w.violate(logged, s, "a process says that it has answered %s %s, which is not what is stored", l.Decision, l.Code)
		}
	}
	return nil
}

// followWorkers finds out how many replicas with workers there were at once. A process
// begins with the line that it is serving; each file is of one process after the other.
func (w *world) followWorkers(file int64, now moment, l *ResponseLine) {
	if l.Msg == servingMessage {
		delete(w.workers.files, file)
		if l.Role != "api" {
			w.workers.started++
			w.workers.alive = append(w.workers.alive, span{now, now})
			w.workers.files[file] = len(w.workers.alive) - 1
		}
		return
	}
	if i, ok := w.workers.files[file]; ok {
		w.workers.alive[i].to = max(w.workers.alive[i].to, now)
	}
}

// atOnce is the largest number of spans that have a moment in common.
func atOnce(all spans) (most int) {
	for _, s := range all {
		n := 0
		for _, other := range all {
			if other.from <= s.from && s.from <= other.to {
				n++
			}
		}
		most = max(most, n)
	}
	return most
}
