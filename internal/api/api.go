// Package api is the till's HTTP surface (contract section 1): it turns a
// request into a payment.Request or payment.FollowUpRequest and a deadline, and what
// was decided into an answer. It decides nothing and knows no SQL and no wallet.
//
// One request can be followed in order: visit.go (who is it), posts.go (the checks),
// payments.go and followups.go (what is done), decode.go (the body), answer.go (what
// the till hears), report.go (what we write down).
package api

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/payment"
)

// decider decides payments. An error means that no answer is known to be stored.
type decider interface {
	Decide(ctx context.Context, req payment.Request, deadline budget.Deadline) (decision.Result, error)
}

// reader reads what the ledger holds, with follow-ups. A payment of another
// caller is not found. It ends by ctx's deadline.
type reader interface {
	PaymentByID(ctx context.Context, caller string, id uuid.UUID) (payment.Payment, bool, error)
	PaymentByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key) (payment.Payment, bool, error)
}

// followUps is where follow-ups are accepted and read, and payments are cancelled.
// Each ends by ctx's deadline. An error of the first two means that it is not known
// whether it was done: what was asked for may be durable.
type followUps interface {
	// Accept claims the key of req, reserves what it takes and hands it to the
	// queue, in one transaction; or it says why not, and leaves the key free.
	Accept(ctx context.Context, req payment.FollowUpRequest) (payment.Acceptance, error)
	// CancelByKey undoes whatever the key did and makes sure that it does nothing
	// later. original is the request of the key, nil where the till did not send it.
	CancelByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key, original *payment.Request) (payment.Cancellation, error)
	// A follow-up of another caller's is not found.
	OperationByID(ctx context.Context, caller string, id uuid.UUID) (payment.FollowUp, bool, error)
	OperationByKey(ctx context.Context, caller string, kind payment.Operation, key payment.Key) (payment.FollowUp, bool, error)
}

// authenticator knows the caller behind a token.
type authenticator interface {
	Authenticate(token string) (callers.Caller, bool)
}

// admission bounds what one caller may have in flight. It answers w itself where
// it refuses.
type admission interface {
	Enter(w http.ResponseWriter, r *http.Request, caller string) (leave func(), ok bool)
}

// observer counts. It is given nothing that a till can choose freely: no path,
// no key, no account.
type observer interface {
	// Decision is a payment that this request decided: took is the time from
	// arrival to the answer, left what then remained of the effective budget
	// (negative if it was overdrawn).
	Decision(op payment.Operation, state payment.State, code payment.Code, took, left time.Duration)
	Replay(op payment.Operation)
	// KeyConflict is a key that is in use: kind is InFlight or Mismatch.
	KeyConflict(op payment.Operation, kind string)
	// OutcomeUnknown is a request whose till cannot know what became of it:
	// storage failed, or a bug ended the handler.
	OutcomeUnknown(op payment.Operation)
	// Accepted is a follow-up that this request handed to the queue.
	Accepted(kind payment.Operation)
	// Cancelled is a cancel by key that was answered with 200, repeats included.
	Cancelled(op payment.Operation)
	// NotSent is a decision whose wallet call was not even tried, so that the
	// wallet's side has not counted it.
	NotSent(op payment.Operation, reason payment.Reason)
}

// The kinds of observer.KeyConflict.
const (
	InFlight = "in_flight"
	Mismatch = "mismatch"
)

// Config is what the API is made of. All of it is needed but PerCaller and Nudge.
type Config struct {
	Decider   decider
	Ledger    reader
	FollowUps followUps
	Callers   authenticator
	PerCaller admission // nil: no bound
	// Nudge wakes the queue of this process when there is something new for it, so
	// that it begins within milliseconds. It must not wait; nil: it finds out itself.
	Nudge func()

	Budget            budget.Policy
	RetryAfterDecline time.Duration // of a 424; told in whole seconds, at least one
	RetryAfterBusy    time.Duration // of an answer that says "right now"
	MaxAmount         int64         // minor units, see payment.MaxAmountMinor
	HoldsSupported    bool          // the configured wallet has holds
	ReadTimeout       time.Duration // what a GET may wait for storage

	Log      *slog.Logger
	Observer observer
}

type api struct {
	Config

	router chi.Router
}

// New is the handler of the till's listener, to stand behind the gate.
func New(cfg Config) http.Handler {
	if cfg.PerCaller == nil {
		cfg.PerCaller = unbounded{}
	}
	if cfg.Nudge == nil {
		cfg.Nudge = func() {}
	}
	a := &api{Config: cfg, router: chi.NewRouter()}

	a.router.Post("/debits", a.authenticated(a.decide(payment.Debit)))
	a.router.Post("/holds", a.authenticated(a.decide(payment.Hold)))
	a.get("/payments/{id}", a.authenticated(a.paymentByID))
	a.get("/payments/by-key/{operation}/{key}", a.authenticated(a.paymentByKey))
	a.router.Post("/payments/by-key/{operation}/{key}/cancel", a.authenticated(a.cancel))
	a.router.Post("/credits", a.authenticated(a.credit))
	a.router.Post("/holds/{id}/capture", a.authenticated(a.endHold(payment.Capture)))
	a.router.Post("/holds/{id}/release", a.authenticated(a.endHold(payment.Release)))
	a.get("/operations/{id}", a.authenticated(a.operationByID))
	a.get("/operations/by-key/{operation}/{key}", a.authenticated(a.operationByKey))
	a.get("/openapi.yaml", document())

	a.router.NotFound(func(w http.ResponseWriter, _ *http.Request) { a.write(w, a.refuse(notFound)) })
	a.router.MethodNotAllowed(a.methodNotAllowed)
	return a.recovering(a.boundingBodies(a.router))
}

// get routes HEAD as well: RFC 9110 section 9.1 has the two go together, and
// net/http leaves the body out.
func (a *api) get(pattern string, h http.HandlerFunc) {
	a.router.Get(pattern, h)
	a.router.Head(pattern, h)
}

// methodNotAllowed says which methods there are, which chi leaves to those who
// answer themselves.
func (a *api) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.RawPath
	if path == "" {
		path = r.URL.Path
	}
	allowed := slices.DeleteFunc([]string{http.MethodGet, http.MethodHead, http.MethodPost}, func(method string) bool {
		return !a.router.Match(chi.NewRouteContext(), method, path)
	})
	if len(allowed) == 0 { // a method that chi does not know, where there is nothing
		a.write(w, a.refuse(notFound))
		return
	}
	ans := a.refuse(methodNotAllowed)
	ans.allow = strings.Join(allowed, ", ")
	a.write(w, ans)
}

// recovering turns a bug into a 500. It never says 503, and never Retry-After:
// the handler ran, and for all that we know the wallet has applied (field
// report B5).
func (a *api) recovering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { //nolint:contextcheck // the request's context is in r
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler { //nolint:errorlint // the sentinel that net/http asks for by identity
				panic(v)
			}
			a.Log.ErrorContext(r.Context(), "panic in a handler", "panic", v, "stack", string(debug.Stack()))
			a.write(w, a.refuse(internal))
		}()
		next.ServeHTTP(w, r)
	})
}

// boundingBodies gives every request body a limit before anything can wait for
// it: also the body that we refuse to look at, because net/http takes that in
// before it sends the refusal, for as long as the connection allows.
func (a *api) boundingBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			setReadDeadline(w, time.Now().Add(bodyStall))
		}
		next.ServeHTTP(w, r)
	})
}

// unbounded admits everybody.
type unbounded struct{}

func (unbounded) Enter(http.ResponseWriter, *http.Request, string) (leave func(), ok bool) {
	return func() {}, true
}
