package client

import (
	"context"
	"errors"
	"time"
)

// Again bounds the attempts that follow a retryable decline, and names them.
type Again struct {
	// Attempts is how many debits may follow the first one (2).
	Attempts int
	// Key names an attempt; it is called right before each. attempt is 2 for the debit
	// that follows the first one, and so on. A till stores the key with its
	// receipt here, before it returns it: a till that loses power in the middle then
	// knows which keys to reconcile. An error ends the attempts. The default is NewKey,
	// for tills that have nothing to store it in.
	Key func(attempt int) (string, error)
}

const (
	defaultAgain = 2
	// againAfter is what is waited after a decline that has lost its Retry-After on
	// the way: the contract's two seconds.
	againAfter = 2 * time.Second
)

// DebitAgain makes further attempts at a debit that was declined because the wallet
// did not decide. Each is a payment of its own, with a new key: the declined one
// stays declined, and is undone if the wallet applied it after all. Before each it
// waits for what the decline asked for.
//
// The result is the last decision that there is, with the key that it was made for: an
// approval, a final decline, or a retryable decline once the attempts or the context's
// time are used up. A first decision that is not a retryable decline is returned as it
// is. An error is that of the attempt that it ended, and names its key.
func (c *Client) DebitAgain(ctx context.Context, first Decision, req PaymentRequest, again Again) (Decision, error) {
	return c.again(ctx, KindDebit, c.Debit, first, req, again)
}

// HoldAgain is DebitAgain for a hold.
func (c *Client) HoldAgain(ctx context.Context, first Decision, req PaymentRequest, again Again) (Decision, error) {
	return c.again(ctx, KindHold, c.Hold, first, req, again)
}

func (c *Client) again(
	ctx context.Context, kind Kind, decide func(context.Context, string, PaymentRequest) (Decision, error),
	last Decision, req PaymentRequest, again Again,
) (Decision, error) {
	if last.Kind != kind {
		return last, errors.New("client: the first decision is not of a " + string(kind))
	}
	fill(&again.Attempts, defaultAgain)
	if again.Key == nil {
		again.Key = func(int) (string, error) { return NewKey() }
	}
	for attempt := 2; last.Retryable && attempt < 2+again.Attempts; attempt++ {
		pause := last.RetryAfter
		fill(&pause, againAfter)
		if c.wait(ctx, pause+c.upTo(c.mutations.Jitter)) != nil {
			return last, nil //nolint:nilerr // the decision stands; there was no time for another
		}
		key, err := again.Key(attempt)
		if err != nil {
			return last, err
		}
		if key == last.Key {
			return last, errors.New("client: a new attempt needs a new key")
		}
		if last, err = decide(ctx, key, req); err != nil {
			return Decision{}, err
		}
	}
	return last, nil
}
