package wallet

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/safeledger/safeledger/internal/payment"
)

// windowBuckets is how finely the rolling window moves: a tenth of it at a time.
// A window that is cleared all at once would never fill while calls take as
// long as it does.
const windowBuckets = 10

// breaker stops calls while the wallet fails, or crawls. It is two gobreakers,
// one inside the other, because gobreaker counts one kind of bad call and the
// contract has two, each with a ratio of its own: a call that was slow may have
// succeeded. What one of them refuses, the other does not count.
type breaker struct {
	failures *gobreaker.CircuitBreaker[struct{}]
	slowness *gobreaker.CircuitBreaker[struct{}]
	slow     time.Duration

	// mu orders the reports; it is taken while a gobreaker is locked, never the
	// other way round.
	mu       sync.Mutex
	parts    [2]gobreaker.State
	reported gobreaker.State
	report   func(state string)
}

func newBreaker(name string, cfg BreakerConfig, slow time.Duration, o observer) *breaker {
	b := &breaker{
		slow:     slow,
		parts:    [2]gobreaker.State{gobreaker.StateClosed, gobreaker.StateClosed},
		reported: gobreaker.StateClosed,
		report:   func(state string) { o.BreakerChanged(name, state) },
	}
	b.failures = b.part(0, cfg, cfg.FailureRatio)
	b.slowness = b.part(1, cfg, cfg.SlowRatio)
	return b
}

// What a gobreaker is told about a call. They are errors because that is how it
// listens; none of them leaves this file.
var (
	errBad        = errors.New("wallet: counts against the breaker")
	errNotCounted = errors.New("wallet: does not count")
)

func (b *breaker) part(i int, cfg BreakerConfig, ratio float64) *gobreaker.CircuitBreaker[struct{}] {
	return gobreaker.NewCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(cfg.Probes), //nolint:gosec // validated to be a small positive number
		Interval:     cfg.Window,
		BucketPeriod: cfg.Window / windowBuckets,
		Timeout:      cfg.OpenFor,
		ReadyToTrip: func(counts gobreaker.Counts) bool {
			// Not counts.Requests: that includes the calls in flight, of which there
			// are the more the slower the wallet is.
			completed := counts.TotalSuccesses + counts.TotalFailures
			return completed >= uint32(cfg.MinCalls) && //nolint:gosec // the same
				float64(counts.TotalFailures) >= ratio*float64(completed)
		},
		IsSuccessful:  func(err error) bool { return err == nil },
		IsExcluded:    func(err error) bool { return errors.Is(err, errNotCounted) || refused(err) },
		OnStateChange: func(_ string, _, to gobreaker.State) { b.changed(i, to) },
	})
}

func refused(err error) bool {
	return errors.Is(err, gobreaker.ErrOpenState) || errors.Is(err, gobreaker.ErrTooManyRequests)
}

// do makes the call unless the breaker is open, or half-open with enough probes
// on their way. call must return by its context's deadline and must not leave by
// runtime.Goexit: a probe that never reports would hold its place for ever.
func (b *breaker) do(call func() count) {
	// What the call found, it has kept itself; a refusal is that it was not made.
	_, _ = b.failures.Execute(func() (struct{}, error) {
		var counted count
		_, err := b.slowness.Execute(func() (struct{}, error) {
			start := time.Now()
			counted = call()
			switch {
			case counted == notCounted:
				return struct{}{}, errNotCounted
			case time.Since(start) > b.slow:
				return struct{}{}, errBad
			}
			return struct{}{}, nil
		})
		if refused(err) {
			return struct{}{}, err
		}
		switch counted {
		case good:
			return struct{}{}, nil
		case bad:
			return struct{}{}, errBad
		case notCounted:
		}
		return struct{}{}, errNotCounted
	})
}

// state asks both parts, because gobreaker only notices that its time is up
// when it is asked.
func (b *breaker) state() string {
	return worse(b.failures.State(), b.slowness.State()).String()
}

func (b *breaker) changed(i int, to gobreaker.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.parts[i] = to
	if now := worse(b.parts[0], b.parts[1]); now != b.reported {
		b.reported = now
		b.report(now.String())
	}
}

// worse is the state of a breaker whose parts are in a and b. gobreaker orders
// them closed, half-open, open.
func worse(a, b gobreaker.State) gobreaker.State { return max(a, b) }

// count is what a call means to a breaker. The zero value does not count.
type count uint8

const (
	notCounted count = iota
	good
	bad
)

// countOutcome tells the breaker what a call says about the wallet's health
// (contract section 3). A decline is a healthy answer; what we did not try, or
// broke off because our caller went away, says nothing.
func countOutcome(o payment.Outcome, seen sight) count {
	if seen.cancelled {
		return notCounted
	}
	switch o.Class {
	case payment.Success:
		return good
	case payment.Rejected:
		if o.Verdict && !aboutUs(o.Status) {
			return good
		}
		return bad
	case payment.Unavailable:
		return countReason(o.Reason)
	case payment.Ambiguous:
		return bad
	}
	return bad
}

// aboutUs reports whether a 4xx is about us and not about this payment: it will
// hit every call.
func aboutUs(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return true
	}
	return false
}

// countEvidence is countOutcome for a lookup. To be told that the wallet is
// still at it is an answer.
func countEvidence(e payment.Evidence, seen sight) count {
	if seen.cancelled {
		return notCounted
	}
	switch e.Finding {
	case payment.FoundApplied, payment.FoundRejected, payment.NotFound:
		return good
	case payment.NoEvidence:
		if e.Reason == payment.ReasonPending {
			return good
		}
		return countReason(e.Reason)
	}
	return bad
}

// countReason tells what did not reach the wallet by our own doing from what
// failed on the way to it, or at it.
func countReason(reason payment.Reason) count {
	if reason == payment.ReasonDeadlineSpent || reason == payment.ReasonUnsupported {
		return notCounted
	}
	return bad
}
