package api

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"github.com/safeledger/safeledger/internal/api/apitypes"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/payment"
)

// answer is what a till hears, before it is written.
type answer struct {
	status     int
	mediaType  string
	body       any
	location   string        // "" = none
	retryAfter time.Duration // 0 = none
	replayed   bool
	allow      string // of a 405
	challenge  string // WWW-Authenticate
	closes     bool   // the connection cannot be used again
}

// answerTo is the answer to what became of a request: the one place where
// results of decisions become statuses.
func (a *api) answerTo(result decision.Result, err error) answer {
	if err != nil {
		return a.refuse(outcomeUnknown)
	}
	switch result.Status {
	case decision.Decided:
		return a.decided(result.Payment)
	case decision.Replayed:
		ans := a.decided(result.Payment)
		ans.replayed = true
		return ans
	case decision.Cancelled:
		return a.refuse(paymentCancelled)
	case decision.InFlight:
		return a.refuse(requestInFlight)
	case decision.Mismatch:
		return a.refuse(keyReused)
	}
	return a.refuse(internal)
}

// decided is the answer for a decided payment, made of nothing but what is
// stored: that is what makes a replay equal to the first answer, byte for byte.
func (a *api) decided(p payment.Payment) answer {
	switch p.State {
	case payment.Approved:
		return answer{
			status:    http.StatusCreated,
			mediaType: jsonType,
			location:  "/payments/" + p.ID.String(),
			body:      approvedBody(p),
		}
	case payment.Declined:
		body := declinedBody(p)
		ans := answer{status: int(body.Status), mediaType: problemType, body: body}
		if body.Retryable {
			ans.retryAfter = a.RetryAfterDecline
		}
		return ans
	case payment.InFlight:
		// A decision that is not one: never an approval, and the till must come back.
	}
	return a.refuse(outcomeUnknown)
}

// accepted is the answer for a follow-up that is the queue's now. It is told as it
// was accepted, by a body that has no room for what became of it since: that is what
// makes a replay equal to the first answer, byte for byte.
func accepted(acceptance payment.Acceptance) answer {
	return answer{
		status:    http.StatusAccepted,
		mediaType: jsonType,
		location:  "/operations/" + acceptance.FollowUp.ID.String(),
		body:      acceptedBody(acceptance.FollowUp),
		replayed:  acceptance.Status == payment.AcceptedBefore,
	}
}

// cancellation is the answer to a cancel by key.
func (a *api) cancellation(op payment.Operation, c payment.Cancellation, err error) answer {
	if err != nil {
		return a.refuse(outcomeUnknown)
	}
	switch c.Status {
	case payment.CancelledPayment:
		if c.Payment.State == payment.InFlight {
			break // a cancel that has not ended it: the till must come back
		}
		return answer{status: http.StatusOK, mediaType: jsonType, body: cancellationBody(op, c)}
	case payment.CancelTooLate:
		return a.refuse(holdAlreadyCaptured)
	case payment.CancelUnknownBody:
		return a.refuse(keyReused)
	}
	return a.refuse(internal)
}

// refuse is the answer of a refusal.
func (a *api) refuse(f refusal) answer {
	body := f.problem()
	ans := answer{status: body.Status, mediaType: problemType, body: body}
	if f == requestInFlight || f == paymentNotYetDecided {
		ans.retryAfter = a.RetryAfterBusy
	}
	return ans
}

// refuseMembers is the answer of a refusal that names members of the body.
func (a *api) refuseMembers(f refusal, members []apitypes.MemberError) answer {
	body := f.problem()
	body.Errors = &members
	return answer{status: body.Status, mediaType: problemType, body: body}
}

// write is the only writer of this package. Retry-After cannot leave it with a
// 5xx, whatever asked for it: with 503 it would tell the till that nothing has
// begun, which behind the gate nobody can know.
func (a *api) write(w http.ResponseWriter, ans answer) {
	body := bytes.NewBuffer(make([]byte, 0, 512)) // as long as an approval with a little of the till's own
	enc := json.NewEncoder(body)
	enc.SetEscapeHTML(false) // a till's "R&D" stays readable; nobody renders this as HTML
	if err := enc.Encode(ans.body); err != nil {
		// Our own structs of strings and numbers always can be encoded; recovering
		// says 500 if this ever changes.
		panic(err)
	}

	h := w.Header()
	every := [...]string{ans.mediaType, strconv.Itoa(body.Len()), "no-store"} // one allocation instead of three
	h["Content-Type"], h["Content-Length"], h["Cache-Control"] = every[0:1:1], every[1:2:2], every[2:3:3]
	if ans.location != "" {
		h.Set("Location", ans.location)
	}
	h.Del("Retry-After")
	if ans.retryAfter > 0 && ans.status < 500 {
		h.Set("Retry-After", wholeSeconds(ans.retryAfter))
	}
	if ans.replayed {
		h.Set("Idempotency-Replayed", "true")
	}
	if ans.allow != "" {
		h.Set("Allow", ans.allow)
	}
	if ans.challenge != "" {
		h.Set("WWW-Authenticate", ans.challenge)
	}
	if ans.closes {
		h.Set("Connection", "close")
	}
	w.WriteHeader(ans.status)
	// A till that is gone asks again by its key. The answer leaves now and not when the
	// handler returns: the line about it is still to be written, and whoever reads our log
	// may have stopped.
	_, _ = w.Write(body.Bytes())
	_ = http.NewResponseController(w).Flush()
}

// wholeSeconds rounds up, and never down to the 0 that some clients replay at
// once after.
func wholeSeconds(d time.Duration) string {
	return strconv.FormatInt(int64(max((d+time.Second-1)/time.Second, 1)), 10)
}
