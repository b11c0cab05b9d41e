package api

import (
	"context"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
)

// decide handles POST /debits and POST /holds.
func (a *api) decide(op payment.Operation) func(http.ResponseWriter, *http.Request, visit) {
	return func(w http.ResponseWriter, r *http.Request, v visit) {
		p, refused := a.receive(w, r, v, form{holds: op == payment.Hold, keyed: true})
		if refused != nil {
			a.write(w, *refused)
			return
		}
		req := payment.Request{Caller: v.caller, Operation: op, Key: p.key}
		if f, members := decodePayment(p.body, a.MaxAmount, &req); f != none {
			a.write(w, a.refuseMembers(f, members))
			return
		}

		ended := false
		defer a.countUnended(op, &ended)
		// A till that hangs up does not cancel what it has begun: the context goes
		// on without the connection, and every step of the decision bounds itself by
		// the deadline.
		ctx := tracing.Detached(r.Context())
		result, err := a.Decider.Decide(ctx, req, p.deadline)
		ended = true

		ans := a.answerTo(result, err)
		now := time.Now()
		a.write(w, ans)
		a.report(ctx, decided{
			operation: op,
			caller:    v.caller,
			result:    result,
			err:       err,
			status:    ans.status,
			took:      now.Sub(v.arrived),
			left:      p.deadline.At().Sub(now),
		})
	}
}

// countUnended counts a request that a bug has ended: what that has left behind is
// as unknown as after a lost database.
func (a *api) countUnended(op payment.Operation, ended *bool) {
	if !*ended {
		a.Observer.OutcomeUnknown(op)
	}
}

// cancel handles POST /payments/by-key/{operation}/{key}/cancel. The key that
// counts is the one in the path. An Idempotency-Key that comes along is not looked
// at: a client that adds one to every POST must be able to cancel, and there is
// nothing that it could be bound to (ADR 0013).
func (a *api) cancel(w http.ResponseWriter, r *http.Request, v visit) {
	op, key, f := pathByKey(r, payment.Operation.IsPayment)
	if f != none {
		a.write(w, a.refuse(f))
		return
	}
	p, refused := a.receive(w, r, v, form{bodyless: true})
	if refused != nil {
		a.write(w, *refused)
		return
	}
	var original *payment.Request
	if len(p.body) > 0 {
		original = &payment.Request{Caller: v.caller, Operation: op, Key: key}
		if f, members := decodePayment(p.body, payment.MaxAmountMinor, original); f != none {
			a.write(w, a.refuseMembers(f, members))
			return
		}
	}

	ended := false
	defer a.countUnended(op, &ended)
	// As with a decision, hanging up does not call it back.
	ctx, done := p.deadline.AtLeast(time.Now(), writeReserve).Context(tracing.Detached(r.Context()))
	defer done()
	_, span := tracing.Step(ctx, "cancel", trace.SpanKindInternal)
	c, err := a.FollowUps.CancelByKey(ctx, v.caller, op, key, original)
	tracing.End(span, err)
	ended = true

	ans := a.cancellation(op, c, err)
	if ans.status == http.StatusOK {
		a.Nudge()
	}
	a.write(w, ans)
	a.reportCancel(r.Context(), cancelled{
		operation: op, caller: v.caller, cancellation: c, err: err, status: ans.status, took: time.Since(v.arrived),
	})
}

// paymentByID handles GET /payments/{id}.
func (a *api) paymentByID(w http.ResponseWriter, r *http.Request, v visit) {
	id, ok := pathID(r)
	if !ok {
		a.write(w, a.refuse(paymentNotFound))
		return
	}
	a.read(w, r, func(ctx context.Context) (answer, error) {
		p, found, err := a.Ledger.PaymentByID(ctx, v.caller, id)
		return a.asItStands(p, found), err
	})
}

// paymentByKey handles GET /payments/by-key/{operation}/{key}.
func (a *api) paymentByKey(w http.ResponseWriter, r *http.Request, v visit) {
	op, key, f := pathByKey(r, payment.Operation.IsPayment)
	if f != none {
		a.write(w, a.refuse(f))
		return
	}
	a.read(w, r, func(ctx context.Context) (answer, error) {
		p, found, err := a.Ledger.PaymentByKey(ctx, v.caller, op, key)
		return a.asItStands(p, found), err
	})
}

// asItStands is the answer to a GET of a payment.
func (a *api) asItStands(p payment.Payment, found bool) answer {
	switch {
	case !found:
		return a.refuse(paymentNotFound)
	case p.State == payment.InFlight:
		return a.refuse(paymentNotYetDecided)
	}
	return answer{status: http.StatusOK, mediaType: jsonType, body: paymentBody(p)}
}

// read answers a GET with what find finds in storage.
func (a *api) read(w http.ResponseWriter, r *http.Request, find func(context.Context) (answer, error)) {
	if !acceptable(r.Header.Values("Accept")) {
		a.write(w, a.refuse(notAcceptable))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.ReadTimeout)
	defer cancel()
	ans, err := find(ctx)
	if err != nil {
		if r.Context().Err() == nil { // a till that hung up is not our failure
			a.Log.ErrorContext(r.Context(), "storage could not be read", "error", err)
		}
		ans = a.refuse(storageUnavailable)
	}
	a.write(w, ans)
}
