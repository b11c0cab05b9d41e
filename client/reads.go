package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
)

// Payment reads a payment by its id. It is false if there is none of this till's with
// that id. While it is being decided it is waited for, within the policy.
func (c *Client) Payment(ctx context.Context, id uuid.UUID) (Payment, bool, error) {
	if err := checkID(id); err != nil {
		return Payment{}, false, err
	}
	return read(ctx, c, "/payments/"+id.String(), CodePaymentNotFound, readPayment,
		func(p Payment) bool { return p.ID == id })
}

// Reconcile reads what became of a debit or hold by the key it was asked for with:
// what to do when its answer got lost. While it is being decided it is waited for,
// within the policy.
//
// It is false if the service has not seen the key. That proves nothing, the request
// may still be on its way: send the same request with the same key again, or
// [Client.Cancel] the key.
func (c *Client) Reconcile(ctx context.Context, kind Kind, key string) (Payment, bool, error) {
	path, err := byKey("/payments/by-key/", kind, key, KindDebit, KindHold)
	if err != nil {
		return Payment{}, false, err
	}
	return read(ctx, c, path, CodePaymentNotFound, readPayment,
		func(p Payment) bool { return p.Kind == kind })
}

// FollowUp reads a follow-up by its id, the reversal of a cancelled payment too. It
// is false if there is none of this till's with that id.
func (c *Client) FollowUp(ctx context.Context, id uuid.UUID) (FollowUp, bool, error) {
	if err := checkID(id); err != nil {
		return FollowUp{}, false, err
	}
	return read(ctx, c, "/operations/"+id.String(), CodeOperationNotFound, readFollowUp,
		func(f FollowUp) bool { return f.ID == id })
}

// ReconcileFollowUp reads a credit, capture or release by the key it was asked for
// with. It is false if the service has not seen the key, which proves nothing:
// send the same request with the same key again.
func (c *Client) ReconcileFollowUp(ctx context.Context, kind Kind, key string) (FollowUp, bool, error) {
	path, err := byKey("/operations/by-key/", kind, key, KindCredit, KindCapture, KindRelease)
	if err != nil {
		return FollowUp{}, false, err
	}
	return read(ctx, c, path, CodeOperationNotFound, readFollowUp,
		func(f FollowUp) bool { return f.Kind == kind })
}

// transient reports whether a read is tried again after a status. 503 is one with and
// without Retry-After: reading twice does no harm.
func transient(status int) bool {
	switch status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

var errForeign = errors.New("the answer is about something else than was asked for")

// read gets path until there is an answer that stands, within the policy. absent is
// the code that says that there is nothing; asked checks that the answer is about
// what was asked for. An answer that cannot be relied on is tried again as half an
// answer is.
func read[T any](ctx context.Context, c *Client, path, absent string, parse func(answer) (T, error), asked func(T) bool) (T, bool, error) {
	var none T
	ctx, cancel := context.WithTimeout(ctx, c.reads.Total)
	defer cancel()
	for attempt := 1; ; attempt++ {
		a, err := c.get(ctx, path)
		if err == nil {
			switch {
			case a.status == http.StatusOK:
				var value T
				if value, err = parse(a); err == nil && asked(value) {
					return value, true, nil
				}
				if err == nil {
					err = errForeign
				}
			case transient(a.status):
				err, _ = readProblem(a)
			default:
				p, ours := readProblem(a)
				if a.status != http.StatusNotFound || !ours || p.Code != CodePaymentNotYetDecided {
					if ours && a.status == http.StatusNotFound && p.Code == absent {
						return none, false, nil
					}
					return none, false, p
				}
				err = p
			}
		}
		if attempt >= c.reads.Attempts {
			return none, false, &ReadError{Attempts: attempt, Err: err}
		}
		if ended := c.wait(ctx, c.pause(attempt, a.retryAfter)); ended != nil {
			return none, false, &ReadError{Attempts: attempt, Err: errors.Join(ended, err)}
		}
	}
}

// get makes one attempt of a read.
func (c *Client) get(ctx context.Context, path string) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.reads.PerAttempt)
	defer cancel()
	return c.exchange(ctx, call{method: http.MethodGet, path: path})
}

// pause is the wait after an attempt, counted from 1: it doubles from BackoffMin to
// BackoffMax, and a random half of it is left out. What an answer has asked for is
// waited at least.
func (c *Client) pause(attempt int, asked time.Duration) time.Duration {
	longest := c.reads.BackoffMin
	for range attempt - 1 {
		if longest >= c.reads.BackoffMax/2 { // doubling could overflow
			longest = c.reads.BackoffMax
			break
		}
		longest *= 2
	}
	if asked > 0 {
		return asked + c.upTo(min(longest, asked/2))
	}
	return longest - c.upTo(longest/2)
}
