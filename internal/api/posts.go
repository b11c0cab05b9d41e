package api

import (
	"net/http"
	"net/url"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/payment"
)

// writeReserve is what an accept or a cancel gets for its one transaction, however
// little the till still waits: what a decision gets for its two (contract section
// 2), so that the answer of every POST leaves within 300 ms of the effective
// budget. A till that has no time for it can do nothing better either.
const writeReserve = decision.ClaimReserve + decision.StoreReserve

// form is how one POST differs from another before its body is looked into.
type form struct {
	holds    bool // needs a wallet that has holds
	keyed    bool // carries an Idempotency-Key
	bodyless bool // may come without a body
}

// post is a POST whose head is in order and whose body has arrived.
type post struct {
	key      payment.Key // "" of a form that is not keyed
	deadline budget.Deadline
	body     []byte // empty if none came
}

// receive takes in a POST, or says how to refuse it. The checks run in the order in
// which a till can correct them, those that cost nothing first; nothing has begun
// before the body has passed its own as well, so that a refused request leaves its
// key free.
func (a *api) receive(w http.ResponseWriter, r *http.Request, v visit, f form) (post, *answer) {
	refuse := func(f refusal) (post, *answer) {
		ans := a.refuse(f)
		return post{}, &ans
	}
	if f.holds && !a.HoldsSupported {
		return refuse(holdsUnsupported)
	}
	if !acceptable(r.Header.Values("Accept")) {
		return refuse(notAcceptable)
	}
	// Where there is no body its media type says nothing: there are clients that
	// always send one. Whether there is one is not known of a chunked one yet.
	readable := isJSON(r.Header.Values("Content-Type"), r.Header.Values("Content-Encoding"))
	if !readable && (!f.bodyless || r.ContentLength > 0) {
		return refuse(unsupportedMediaType)
	}
	var p post
	if f.keyed {
		key, f := idempotencyKey(r.Header.Values("Idempotency-Key"))
		if f != none {
			return refuse(f)
		}
		p.key = key
	}
	wait, err := budget.ParseWait(r.Header.Values("Request-Deadline-Ms"))
	if err != nil {
		return refuse(invalidDeadline)
	}
	p.deadline = a.Budget.Deadline(v.arrived, wait)
	body, refused := a.readBody(w, r, v.arrived, p.deadline)
	if refused != nil {
		return post{}, refused
	}
	if !readable && len(body) > 0 {
		return refuse(unsupportedMediaType)
	}
	p.body = body
	return p, nil
}

// pathID is the id in the path; false where it is none of ours.
func pathID(r *http.Request) (uuid.UUID, bool) { return parseID(chi.URLParam(r, "id")) }

// pathByKey is what {operation}/{key} in the path names, or why it is refused: named
// reports whether the operation is one that this path is about.
func pathByKey(r *http.Request, named func(payment.Operation) bool) (payment.Operation, payment.Key, refusal) {
	op := payment.Operation(chi.URLParam(r, "operation"))
	if !named(op) {
		return "", "", notFound
	}
	key, ok := pathKey(r)
	if !ok {
		return "", "", invalidKey
	}
	return op, key, none
}

// pathKey is the key in the path; false where it cannot be one.
func pathKey(r *http.Request) (payment.Key, bool) {
	// chi routes on the path as it was sent only where that differs from the usual
	// encoding of what it means, and on its meaning otherwise: to decode a second
	// time would turn the key "%41" into "A".
	text := chi.URLParam(r, "key")
	if r.URL.RawPath != "" {
		var err error
		if text, err = url.PathUnescape(text); err != nil {
			return "", false
		}
	}
	key, err := payment.NewKey(text)
	return key, err == nil
}
