package api

import (
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/safeledger/safeledger/internal/api/apitypes"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/decision"
)

const (
	// maxBody is what a body may have (contract section 1). The largest valid one,
	// 20 metadata members in full, is under 12,000 characters.
	maxBody = 16 << 10
	// bodyStall is how long a body may make no progress (contract section 1).
	bodyStall = 2 * time.Second
)

// readBody reads the whole body, or says how to refuse it. A body that trickles is
// cut off when the effective budget, counted from its arrival, is spent: no decision
// could come of it any more, only a held place and a decline for a till that has
// left. However little that is, what our own claim gets at least is waited for, or
// a till that waits for nothing could send nothing.
func (a *api) readBody(w http.ResponseWriter, r *http.Request, arrived time.Time, d budget.Deadline) ([]byte, *answer) {
	if r.ContentLength > maxBody {
		return nil, a.refuseRest(a.refuse(bodyTooLarge))
	}
	last := d.AtLeast(arrived, decision.ClaimReserve).At()
	const more = 512 // of a body that does not say how long it is
	room := r.ContentLength
	if room < 0 {
		room = more
	}
	body := make([]byte, 0, room+1) // full only if it is longer than it said
	for {
		deadline := time.Now().Add(bodyStall)
		if deadline.After(last) {
			deadline = last
		}
		setReadDeadline(w, deadline)
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case len(body) > maxBody:
			return nil, a.refuseRest(a.refuse(bodyTooLarge))
		case errors.Is(err, io.EOF):
			setReadDeadline(w, time.Time{})
			return body, nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			return nil, a.refuseRest(a.refuseMembers(malformedRequest, []apitypes.MemberError{{Detail: "did not arrive in time"}}))
		case err != nil: // cut off, or framed in a way that is not HTTP
			return nil, a.refuseRest(a.refuseMembers(malformedRequest, []apitypes.MemberError{{Detail: "did not arrive whole"}}))
		}
		body = slices.Grow(body, more)
	}
}

// refuseRest is ans, after which the connection is closed: what is left of the
// body must not be taken for the next request.
func (a *api) refuseRest(ans answer) *answer {
	ans.closes = true
	return &ans
}

// setReadDeadline bounds what the connection may be waited for. A request that
// comes from no connection, as in a test, has nothing to bound.
func setReadDeadline(w http.ResponseWriter, t time.Time) {
	_ = http.NewResponseController(w).SetReadDeadline(t)
}
