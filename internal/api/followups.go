package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
)

// credit handles POST /credits.
func (a *api) credit(w http.ResponseWriter, r *http.Request, v visit) {
	p, refused := a.receive(w, r, v, form{keyed: true})
	if refused != nil {
		a.write(w, *refused)
		return
	}
	req := payment.FollowUpRequest{Caller: v.caller, Kind: payment.Credit, Key: p.key}
	if f, members := a.decodeFollowUp(p.body, &req); f != none {
		a.write(w, a.refuseMembers(f, members))
		return
	}
	// Money that no payment brought in leaves here: that takes more than a till.
	if req.Of == "" && !v.mayPayOut {
		a.write(w, a.refuseScope(callers.Payout))
		return
	}
	a.accept(w, r, v, p, req)
}

// endHold handles POST /holds/{id}/capture and POST /holds/{id}/release.
func (a *api) endHold(kind payment.Operation) func(http.ResponseWriter, *http.Request, visit) {
	return func(w http.ResponseWriter, r *http.Request, v visit) {
		p, refused := a.receive(w, r, v, form{holds: true, keyed: true, bodyless: true})
		if refused != nil {
			a.write(w, *refused)
			return
		}
		if len(p.body) == 0 {
			p.body = []byte("{}")
		}
		req := payment.FollowUpRequest{Caller: v.caller, Kind: kind, Key: p.key, Of: payment.Hold}
		if f, members := a.decodeFollowUp(p.body, &req); f != none {
			a.write(w, a.refuseMembers(f, members))
			return
		}
		id, ok := pathID(r)
		if !ok {
			a.write(w, a.refuse(holdNotFound))
			return
		}
		req.PaymentID = id
		a.accept(w, r, v, p, req)
	}
}

// accept hands req to the queue, by way of the ledger, and answers.
func (a *api) accept(w http.ResponseWriter, r *http.Request, v visit, p post, req payment.FollowUpRequest) {
	ended := false
	defer a.countUnended(req.Kind, &ended)
	// A till that hangs up has still asked.
	ctx, done := p.deadline.AtLeast(time.Now(), writeReserve).Context(tracing.Detached(r.Context()))
	defer done()
	_, span := tracing.Step(ctx, "accept", trace.SpanKindInternal)
	acceptance, err := a.FollowUps.Accept(ctx, req)
	tracing.End(span, err)
	ended = true

	f := acceptanceRefusal(req, acceptance.Status)
	if err != nil {
		f = outcomeUnknown
	}
	ans := a.refuse(f)
	switch {
	case f == none:
		ans = accepted(acceptance)
	case acceptance.Status == payment.AmountExceeds && err == nil:
		ans = a.refuseAmount(ctx, f, req)
	}
	if acceptance.Status == payment.Accepted && err == nil {
		a.Nudge()
	}
	a.write(w, ans)
	a.reportAcceptance(r.Context(), asked{
		request: req, acceptance: acceptance, refusal: f, err: err, status: ans.status, took: time.Since(v.arrived),
	})
}

// acceptanceRefusal is why there is no follow-up, or none where there is one
// (contract section 1, errors).
func acceptanceRefusal(req payment.FollowUpRequest, status payment.AcceptanceStatus) refusal {
	ofHold := req.Of == payment.Hold
	switch status {
	case payment.Accepted, payment.AcceptedBefore:
		return none
	case payment.AcceptanceMismatch:
		return keyReused
	case payment.PaymentUnknown:
		if ofHold {
			return holdNotFound
		}
		return debitNotFound
	case payment.PaymentUndecided:
		return paymentNotYetDecided
	case payment.HoldNotActive:
		return holdNotActive
	case payment.HoldAlreadyCaptured:
		return holdAlreadyCaptured
	case payment.NotRefundable:
		return notRefundable
	case payment.AmountExceeds:
		switch {
		case req.Kind == payment.Capture:
			return amountExceedsHold
		case ofHold:
			return amountExceedsCapture
		}
		return amountExceedsDebit
	case payment.CurrencyDiffers:
		return currencyMismatch
	case payment.AccountDiffers:
		return accountMismatch
	}
	return internal
}

// refuseAmount is the refusal f with the amounts that it is about: "too much" alone
// leaves a till's developer, and the clerk behind him, to guess how much would have
// done (field report D18). They are for people, so that they are read apart, after
// the refusal: without them it still is one.
func (a *api) refuseAmount(ctx context.Context, f refusal, req payment.FollowUpRequest) answer {
	body := f.problem()
	p, found, err := a.Ledger.PaymentByID(ctx, req.Caller, req.PaymentID)
	if err == nil && found {
		body.Detail = "Nothing was begun. " + amounts(req, p)
	}
	return answer{status: body.Status, mediaType: problemType, body: body}
}

// amounts tells how much req asks for and how much of p there is.
func amounts(req payment.FollowUpRequest, p payment.Payment) string {
	asked := req.Amount.AmountMinor
	if req.Kind == payment.Capture {
		return fmt.Sprintf("The capture asks for %d and the hold is of %d, in minor units of %s.",
			asked, p.Amount.AmountMinor, p.Amount.Currency)
	}
	taken, given := p.Amount.AmountMinor, int64(0)
	for _, f := range p.FollowUps {
		switch {
		case f.State == payment.Refused:
		case f.Kind == payment.Capture:
			taken = f.Amount.AmountMinor
		case f.Kind == payment.Credit:
			given += f.Amount.AmountMinor
		}
	}
	return fmt.Sprintf("The credit asks for %d; of the %d that were taken, %d are given back or on their way, in minor units of %s.",
		asked, taken, given, p.Amount.Currency)
}

// operationByID handles GET /operations/{id}.
func (a *api) operationByID(w http.ResponseWriter, r *http.Request, v visit) {
	id, ok := pathID(r)
	if !ok {
		a.write(w, a.refuse(operationNotFound))
		return
	}
	a.read(w, r, func(ctx context.Context) (answer, error) {
		f, found, err := a.FollowUps.OperationByID(ctx, v.caller, id)
		return a.asItIs(f, found), err
	})
}

// operationByKey handles GET /operations/by-key/{operation}/{key}.
func (a *api) operationByKey(w http.ResponseWriter, r *http.Request, v visit) {
	kind, key, f := pathByKey(r, isTillsFollowUp)
	if f != none {
		a.write(w, a.refuse(f))
		return
	}
	a.read(w, r, func(ctx context.Context) (answer, error) {
		f, found, err := a.FollowUps.OperationByKey(ctx, v.caller, kind, key)
		return a.asItIs(f, found), err
	})
}

// isTillsFollowUp reports whether tills ask for op under keys of theirs. A reversal
// has no key of a till's.
func isTillsFollowUp(op payment.Operation) bool {
	return op == payment.Credit || op == payment.Capture || op == payment.Release
}

// asItIs is the answer to a GET of a follow-up.
func (a *api) asItIs(f payment.FollowUp, found bool) answer {
	if !found {
		return a.refuse(operationNotFound)
	}
	return answer{status: http.StatusOK, mediaType: jsonType, body: followUpBody(f)}
}
