// Package budget is the arithmetic of deadlines: how long a till still waits,
// what of that we may use, and what each step gets of it. It is pure; callers
// pass the time in, and every duration is exact. Only Context knows a clock.
package budget

import (
	"errors"
	"strconv"
	"time"
)

// Policy turns what a till says into what we may use (contract section 2).
type Policy struct {
	Server         time.Duration // the most a decision may take, 2400 ms
	NetworkReserve time.Duration // kept back for the way to the till, 600 ms
}

// Wait is how long a till said that it will still wait. The zero Wait says that
// it did not say.
type Wait struct {
	limit time.Duration
	given bool
}

// ErrInvalidWait says what a Request-Deadline-Ms must be.
var ErrInvalidWait = errors.New("must be given once, as a whole number of milliseconds from 0, in digits only")

// ParseWait reads the field lines of Request-Deadline-Ms. No line is the zero
// Wait; anything but one line of digits is ErrInvalidWait: a deadline that was
// guessed at is worse than a refusal that the till's developer sees.
func ParseWait(lines []string) (Wait, error) {
	if len(lines) == 0 {
		return Wait{}, nil
	}
	if len(lines) > 1 || lines[0] == "" {
		return Wait{}, ErrInvalidWait
	}
	for _, c := range []byte(lines[0]) {
		if c < '0' || c > '9' {
			return Wait{}, ErrInvalidWait
		}
	}
	ms, err := strconv.ParseInt(lines[0], 10, 64)
	if err != nil {
		return Wait{}, ErrInvalidWait
	}
	// Far above any server budget, and far below what overflows a Duration.
	ms = min(ms, int64(24*time.Hour/time.Millisecond))
	return Wait{limit: time.Duration(ms) * time.Millisecond, given: true}, nil
}

// Effective is the time that a decision may take, counted from the arrival of
// its request: clamp(wait − reserve, 0, server), or all of it where the till
// did not say.
func (p Policy) Effective(w Wait) time.Duration {
	if !w.given {
		return p.Server
	}
	return min(max(w.limit-p.NetworkReserve, 0), p.Server)
}

// Deadline is the effective budget as a point in time.
func (p Policy) Deadline(arrival time.Time, w Wait) Deadline {
	return Deadline{arrival.Add(p.Effective(w))}
}

// Deadline is the point in time at which a step, or the whole decision, must
// have ended. Steps get theirs from the decision's; nobody invents one.
type Deadline struct{ at time.Time }

// At is the deadline as a time.
func (d Deadline) At() time.Time { return d.at }

// Remaining is the time from now to d, never negative.
func (d Deadline) Remaining(now time.Time) time.Duration { return max(d.at.Sub(now), 0) }

// CapAt is d, or now + limit if that is sooner: a step may never use up what
// the steps behind it were promised.
func (d Deadline) CapAt(now time.Time, limit time.Duration) Deadline {
	if capped := now.Add(limit); capped.Before(d.at) {
		return Deadline{capped}
	}
	return d
}

// AtLeast is d, or now + reserve if that is later. It is for the writes that
// must be tried however late it is: without them a decision would be lost.
func (d Deadline) AtLeast(now time.Time, reserve time.Duration) Deadline {
	if later := now.Add(reserve); later.After(d.at) {
		return Deadline{later}
	}
	return d
}

// EnoughToSend reports whether a call that starts now may still be sent. Below
// the minimum the answer could not come back in time: sending would only turn
// a certain "not applied" into an uncertain one (seed ADR-0007).
func (d Deadline) EnoughToSend(now time.Time, minimum time.Duration) bool {
	return d.Remaining(now) >= minimum
}
