package main

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/client"
)

// client makes one of the package client, whose requests are noted as all others.
func (t *till) client() (*client.Client, error) {
	to := t.replica()
	if to == "" {
		return nil, errNobody
	}
	return client.New(client.Config{
		BaseURL: "http://" + to, Token: t.caller.token,
		Traceparent: func(context.Context) string { return traceparent(t.trace()) },
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &noting{Conn: conn, log: t.w.log, till: t.name, to: to, caller: t.caller}, nil
		},
	})
}

// usesClient pays as an integrator does, with the package and its policies.
func (t *till) usesClient(ctx context.Context) {
	cl, err := t.client()
	if err != nil {
		pause(ctx, 50*time.Millisecond)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 12*time.Second)
	defer cancel()
	limited, done := context.WithTimeout(ctx, []time.Duration{3 * time.Second, 3 * time.Second, 1500 * time.Millisecond}[t.rng.IntN(3)])
	defer done()
	request := client.PaymentRequest{Account: t.account(), AmountMinor: 1 + t.rng.Int64N(2000), Currency: "EUR"}
	hold := t.chance(30)
	kind, pay := client.KindDebit, cl.Debit
	if hold {
		kind, pay = client.KindHold, cl.Hold
	}
	key := bare(t.newKey())
	decision, err := pay(limited, key, request)
	t.asked.Add(1)
	if unknown := (*client.OutcomeUnknownError)(nil); errors.As(err, &unknown) {
		if t.chance(50) {
			_, _ = cl.Cancel(ctx, kind, key, &request) // what came of it is in the log
		} else {
			_, _, _ = cl.Reconcile(ctx, kind, key)
		}
		return
	}
	if err != nil {
		return
	}
	if decision.Retryable && !hold && t.chance(20) {
		if decision, err = cl.DebitAgain(ctx, decision, request, client.Again{Attempts: 1}); err != nil {
			return
		}
	}
	if !decision.Approved() || !t.chance(40) {
		return
	}
	var followUp client.FollowUp
	if hold {
		followUp, err = cl.Capture(ctx, bare(t.newKey()), decision.ID, 0)
	} else {
		followUp, err = cl.Credit(ctx, bare(t.newKey()), client.CreditRequest{
			Account: request.Account, AmountMinor: request.AmountMinor, Currency: request.Currency, DebitID: decision.ID,
		})
	}
	if err == nil && followUp.ID != uuid.Nil {
		t.after.Add(1)
		_, _, _ = cl.FollowUp(ctx, followUp.ID) // what came of it is in the log
	}
}
