package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/payment"
)

// decide handles POST /debits and POST /holds.
func (a *api) decide(op payment.Operation) func(http.ResponseWriter, *http.Request, visit) {
	return func(w http.ResponseWriter, r *http.Request, v visit) {
		req, deadline, refused := a.parse(w, r, v, op)
		if refused != nil {
			a.write(w, *refused)
			return
		}

		ended := false
		defer func() {
			if !ended { // a bug: what it has left behind is as unknown as after a lost database
				a.Observer.OutcomeUnknown(op)
			}
		}()
		// A till that hangs up does not cancel what it has begun: the context goes
		// on without the connection, and every step of the decision bounds itself by
		// the deadline.
		result, err := a.Decider.Decide(context.WithoutCancel(r.Context()), req, deadline)
		ended = true

		ans := a.answerTo(result, err)
		now := time.Now()
		a.write(w, ans)
		a.report(r.Context(), decided{
			operation: op,
			caller:    v.caller,
			result:    result,
			err:       err,
			status:    ans.status,
			took:      now.Sub(v.arrived),
			left:      deadline.At().Sub(now),
		})
	}
}

// parse turns r into what is to be decided and until when, or says how to
// refuse it. Nothing has begun before all of it has passed, so that a refused
// request leaves its key free.
func (a *api) parse(w http.ResponseWriter, r *http.Request, v visit, op payment.Operation) (payment.Request, budget.Deadline, *answer) {
	refuse := func(f refusal) (payment.Request, budget.Deadline, *answer) {
		ans := a.refuse(f)
		return payment.Request{}, budget.Deadline{}, &ans
	}
	if op == payment.Hold && !a.HoldsSupported {
		return refuse(holdsUnsupported)
	}
	if !acceptable(r.Header.Values("Accept")) {
		return refuse(notAcceptable)
	}
	if !isJSON(r.Header.Values("Content-Type"), r.Header.Values("Content-Encoding")) {
		return refuse(unsupportedMediaType)
	}
	key, f := idempotencyKey(r.Header.Values("Idempotency-Key"))
	if f != none {
		return refuse(f)
	}
	wait, err := budget.ParseWait(r.Header.Values("Request-Deadline-Ms"))
	if err != nil {
		return refuse(invalidDeadline)
	}
	body, refused := a.readBody(w, r, v.arrived)
	if refused != nil {
		return payment.Request{}, budget.Deadline{}, refused
	}
	req := payment.Request{Caller: v.caller, Operation: op, Key: key}
	if f, members := a.decodePayment(body, &req); f != none {
		ans := a.refuseMembers(f, members)
		return payment.Request{}, budget.Deadline{}, &ans
	}
	return req, a.Budget.Deadline(v.arrived, wait), nil
}

// paymentByID handles GET /payments/{id}.
func (a *api) paymentByID(w http.ResponseWriter, r *http.Request, v visit) {
	const uuidLength = 36 // Parse takes other spellings as well, which are no ids of ours
	text := chi.URLParam(r, "id")
	id, err := uuid.Parse(text)
	if err != nil || len(text) != uuidLength {
		a.write(w, a.refuse(paymentNotFound))
		return
	}
	a.read(w, r, func(ctx context.Context) (payment.Payment, bool, error) {
		return a.Ledger.PaymentByID(ctx, v.caller, id)
	})
}

// paymentByKey handles GET /payments/by-key/{operation}/{key}.
func (a *api) paymentByKey(w http.ResponseWriter, r *http.Request, v visit) {
	op := payment.Operation(chi.URLParam(r, "operation"))
	if !op.IsPayment() {
		a.write(w, a.refuse(notFound))
		return
	}
	// chi routes on the path as it was sent only where that differs from the usual
	// encoding of what it means, and on its meaning otherwise: to decode a second
	// time would turn the key "%41" into "A".
	text := chi.URLParam(r, "key")
	if r.URL.RawPath != "" {
		var err error
		if text, err = url.PathUnescape(text); err != nil {
			a.write(w, a.refuse(invalidKey))
			return
		}
	}
	key, err := payment.NewKey(text)
	if err != nil {
		a.write(w, a.refuse(invalidKey))
		return
	}
	a.read(w, r, func(ctx context.Context) (payment.Payment, bool, error) {
		return a.Ledger.PaymentByKey(ctx, v.caller, op, key)
	})
}

// read answers with the payment that find finds.
func (a *api) read(w http.ResponseWriter, r *http.Request, find func(context.Context) (payment.Payment, bool, error)) {
	if !acceptable(r.Header.Values("Accept")) {
		a.write(w, a.refuse(notAcceptable))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), a.ReadTimeout)
	defer cancel()
	p, found, err := find(ctx)
	switch {
	case err != nil:
		if r.Context().Err() == nil { // a till that hung up is not our failure
			a.Log.ErrorContext(r.Context(), "payment could not be read", "error", err)
		}
		a.write(w, a.refuse(storageUnavailable))
	case !found:
		a.write(w, a.refuse(paymentNotFound))
	case p.State == payment.InFlight:
		a.write(w, a.refuse(paymentNotYetDecided))
	default:
		a.write(w, answer{status: http.StatusOK, mediaType: jsonType, body: paymentBody(p)})
	}
}
