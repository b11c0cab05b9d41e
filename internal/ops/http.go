package ops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/payment"
)

// authenticator knows the caller behind a token.
type authenticator interface {
	Authenticate(token string) (callers.Caller, bool)
}

// Config is what the operators' handler is made of. All of it is needed but Nudge.
type Config struct {
	Ledger  ledger
	Callers authenticator
	// Limit bounds what one call may wait for storage. It must fit in what the
	// listener gives an answer.
	Limit time.Duration
	// Nudge wakes the queue of this process after an intervention. It must not wait; nil:
	// the queue finds out itself.
	Nudge func()
	Log   *slog.Logger
}

type handler struct{ Config }

// Handler serves operators, below /operators/ of the admin listener:
//
//	GET  /operators/parked?limit=
//	GET  /operators/find?key=&reference=&account=&walletId=&amount=&currency=&caller=&from=&until=&limit=
//	GET  /operators/show/{id}                      a payment or a follow-up
//	GET  /operators/timeline/{id}                  of a payment or of a follow-up
//	POST /operators/operations/{id}/redrive        {"reason": "…"}
//	POST /operators/operations/{id}/settle         {"applied": true, "reason": "…"}
//
// The caller behind the token needs the scope operator, and is who the note names.
// Bodies and queries are strict; problems are RFC 9457 documents with a code. No
// answer carries Retry-After: that has one author, the gate.
func Handler(cfg Config) http.Handler {
	if cfg.Nudge == nil {
		cfg.Nudge = func() {}
	}
	h := handler{cfg}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /operators/parked", h.authorized(h.parked))
	mux.HandleFunc("GET /operators/find", h.authorized(h.find))
	mux.HandleFunc("GET /operators/show/{id}", h.authorized(h.known(func(id uuid.UUID, t payment.Timeline) any {
		for _, f := range t.FollowUps {
			if f.ID == id {
				return viewFollowUp(f)
			}
		}
		return viewPayment(t.Payment)
	})))
	mux.HandleFunc("GET /operators/timeline/{id}", h.authorized(h.known(func(_ uuid.UUID, t payment.Timeline) any {
		return viewTimeline(t)
	})))
	mux.HandleFunc("POST /operators/operations/{id}/redrive", h.authorized(h.redrive))
	mux.HandleFunc("POST /operators/operations/{id}/settle", h.authorized(h.settle))
	mux.HandleFunc("/operators/", h.authorized(func(w http.ResponseWriter, _ *http.Request, _ string) {
		problem(w, http.StatusNotFound, "NOT_FOUND", "there is nothing here, or not by this method")
	}))
	return mux
}

// authorized lets only operators through to next, and bounds what they may wait.
func (h handler) authorized(next func(w http.ResponseWriter, r *http.Request, operator string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		fields := r.Header.Values("Authorization")
		var caller callers.Caller
		known := false
		if len(fields) == 1 {
			if scheme, token, _ := strings.Cut(fields[0], " "); strings.EqualFold(scheme, "Bearer") {
				caller, known = h.Callers.Authenticate(strings.TrimLeft(token, " "))
			}
		}
		if !known {
			w.Header().Set("WWW-Authenticate", `Bearer realm="safeledger"`)
			problem(w, http.StatusUnauthorized, "UNAUTHENTICATED", "Authorization must carry a bearer token that is known here")
			return
		}
		if !caller.Has(callers.Operator) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="safeledger", error="insufficient_scope", scope="operator"`)
			problem(w, http.StatusForbidden, "FORBIDDEN", "the caller does not have the scope operator")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.Limit)
		defer cancel()
		next(w, r.WithContext(ctx), caller.Name)
	}
}

func (h handler) parked(w http.ResponseWriter, r *http.Request, _ string) {
	values, err := query(r, "limit")
	if err != nil {
		problem(w, http.StatusBadRequest, "INVALID_QUERY", err.Error())
		return
	}
	limit, err := values.limit()
	if err != nil {
		problem(w, http.StatusBadRequest, "INVALID_QUERY", err.Error())
		return
	}
	parked, err := h.Ledger.Parked(r.Context(), limit)
	if err != nil {
		h.unreadable(w, r, err)
		return
	}
	answer(w, viewParked(parked))
}

func (h handler) find(w http.ResponseWriter, r *http.Request, _ string) {
	q, err := parseQuery(r)
	if err != nil {
		problem(w, http.StatusBadRequest, "INVALID_QUERY", err.Error())
		return
	}
	found, err := h.Ledger.Find(r.Context(), q)
	if err != nil {
		h.unreadable(w, r, err)
		return
	}
	answer(w, viewFound(found))
}

// known answers with a view of what is known of the id in the path.
func (h handler) known(view func(uuid.UUID, payment.Timeline) any) func(http.ResponseWriter, *http.Request, string) {
	return func(w http.ResponseWriter, r *http.Request, _ string) {
		id, err := ParseID(r.PathValue("id"))
		if err != nil {
			problem(w, http.StatusNotFound, "NOT_FOUND", err.Error())
			return
		}
		t, found, err := h.Ledger.Timeline(r.Context(), id)
		switch {
		case err != nil:
			h.unreadable(w, r, err)
		case !found:
			problem(w, http.StatusNotFound, "NOT_FOUND", "there is no such payment or follow-up")
		default:
			answer(w, view(id, t))
		}
	}
}

func (h handler) redrive(w http.ResponseWriter, r *http.Request, operator string) {
	var body struct {
		Reason string `json:"reason"`
	}
	h.intervene(w, r, operator, "redrive", &body, func(ctx context.Context, id uuid.UUID) (payment.OperatorResult, error) {
		return h.Ledger.Redrive(ctx, id, operator, body.Reason)
	}, func() error { return CheckReason(body.Reason) })
}

func (h handler) settle(w http.ResponseWriter, r *http.Request, operator string) {
	var body struct {
		Applied *bool  `json:"applied"`
		Reason  string `json:"reason"`
	}
	h.intervene(w, r, operator, "settle", &body, func(ctx context.Context, id uuid.UUID) (payment.OperatorResult, error) {
		return h.Ledger.SettleByHand(ctx, id, *body.Applied, operator, body.Reason)
	}, func() error {
		if body.Applied == nil {
			return errors.New("applied must be given, true or false")
		}
		return CheckReason(body.Reason)
	})
}

// intervene reads body, has it checked, does what it asks for and says what became
// of it.
func (h handler) intervene(
	w http.ResponseWriter, r *http.Request, operator, action string, body any,
	do func(context.Context, uuid.UUID) (payment.OperatorResult, error), check func() error,
) {
	id, err := ParseID(r.PathValue("id"))
	if err != nil {
		problem(w, http.StatusNotFound, "OPERATION_NOT_FOUND", err.Error())
		return
	}
	if mediaType, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || mediaType != "application/json" {
		problem(w, http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "the body must be application/json")
		return
	}
	const maxBody = 16 << 10
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		problem(w, http.StatusRequestEntityTooLarge, "BODY_TOO_LARGE", "a body may have 16 KiB")
		return
	}
	if err == nil {
		// Names in another case and members that are there twice are errors of it
		// anyway.
		err = json.Unmarshal(text, body, json.RejectUnknownMembers(true))
	}
	if err != nil {
		problem(w, http.StatusBadRequest, "MALFORMED_REQUEST", "the body is not the JSON that is asked for")
		return
	}
	if err := check(); err != nil {
		problem(w, http.StatusUnprocessableEntity, "INVALID_VALUE", err.Error())
		return
	}
	// An operator who closes the window has still done it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), h.Limit)
	defer cancel()
	result, err := do(ctx, id)
	if err != nil {
		h.Log.ErrorContext(r.Context(), "operator: outcome unknown", "action", action, "id", id, "operator", operator, "error", err)
		problem(w, http.StatusServiceUnavailable, "OUTCOME_UNKNOWN", "whether it was done is not known; look at the timeline, or do it again")
		return
	}
	h.Log.InfoContext(r.Context(), "operator intervened", "action", action, "id", id, "operator", operator,
		"kind", result.FollowUp.Kind, "state", result.FollowUp.State, "done", result.Status == payment.OperatorDone)
	switch result.Status {
	case payment.OperatorDone:
		h.Nudge() // also after a settlement: a reversal may have waited for it
		answer(w, viewFollowUp(result.FollowUp))
		return
	case payment.OperatorUnknown:
		problem(w, http.StatusNotFound, "OPERATION_NOT_FOUND", Refusal(result))
		return
	case payment.OperatorActive:
		problem(w, http.StatusConflict, "OPERATION_ACTIVE", Refusal(result))
		return
	case payment.OperatorEnded:
		problem(w, http.StatusConflict, "OPERATION_ENDED", Refusal(result))
		return
	}
	problem(w, http.StatusInternalServerError, "INTERNAL", Refusal(result))
}

// unreadable answers where storage failed.
func (h handler) unreadable(w http.ResponseWriter, r *http.Request, err error) {
	h.Log.ErrorContext(r.Context(), "operator: storage could not be read", "error", err)
	problem(w, http.StatusServiceUnavailable, "STORAGE_UNAVAILABLE", "it cannot be read now; with less to look through it may")
}

// ParseID reads the id of a payment or follow-up.
func ParseID(s string) (uuid.UUID, error) {
	const uuidLength = 36 // Parse takes other spellings as well, which are no ids of ours
	id, err := uuid.Parse(s)
	if err != nil || len(s) != uuidLength {
		return uuid.UUID{}, errors.New("an id must be a UUID")
	}
	return id, nil
}

// values are the parameters of a query, each at most once.
type values url.Values

// query reads the query of r, in which only these parameters may be: a misspelt one
// would find something else than was asked for.
func query(r *http.Request, known ...string) (values, error) {
	all, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, errors.New("the query cannot be read")
	}
	for name, given := range all {
		switch {
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("the parameters are %s", strings.Join(known, ", "))
		case len(given) > 1 || given[0] == "":
			return nil, fmt.Errorf("%s must be given once, and not be empty", name)
		}
	}
	return values(all), nil
}

func (v values) get(name string) string { return url.Values(v).Get(name) }

func (v values) limit() (int, error) {
	text := v.get("limit")
	if text == "" {
		return DefaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, errors.New("limit must be a whole number")
	}
	return n, CheckLimit(n)
}

func parseQuery(r *http.Request) (q payment.Query, err error) {
	v, err := query(r, "key", "reference", "account", "walletId", "amount", "currency", "caller", "from", "until", "limit")
	if err != nil {
		return payment.Query{}, err
	}
	q = payment.Query{
		Caller: v.get("caller"), TillReference: v.get("reference"), Account: v.get("account"), WalletID: v.get("walletId"),
		Currency: v.get("currency"),
	}
	if key := v.get("key"); key != "" {
		if q.Key, err = payment.NewKey(key); err != nil {
			return payment.Query{}, fmt.Errorf("key %w", err)
		}
	}
	if text := v.get("amount"); text != "" {
		if q.AmountMinor, err = strconv.ParseInt(text, 10, 64); err != nil || q.AmountMinor == 0 {
			return payment.Query{}, errors.New("amount must be a whole number of minor units")
		}
	}
	for _, bound := range []struct {
		name string
		at   *time.Time
	}{{"from", &q.From}, {"until", &q.Until}} {
		if text := v.get(bound.name); text != "" {
			if *bound.at, err = time.Parse(time.RFC3339, text); err != nil {
				return payment.Query{}, fmt.Errorf("%s must be a time such as 2026-11-29T09:30:00Z", bound.name)
			}
		}
	}
	if q.Limit, err = v.limit(); err != nil {
		return payment.Query{}, err
	}
	return q, CheckQuery(q)
}

func answer(w http.ResponseWriter, v any) { write(w, http.StatusOK, "application/json", v) }

// problem answers with an RFC 9457 document. Its type is left out, hence
// about:blank: the code says it all.
func problem(w http.ResponseWriter, status int, code, detail string) {
	write(w, status, "application/problem+json", struct {
		Title  string `json:"title"`
		Status int    `json:"status"`
		Detail string `json:"detail"`
		Code   string `json:"code"`
	}{http.StatusText(status), status, detail, code})
}

func write(w http.ResponseWriter, status int, mediaType string, v any) {
	var body bytes.Buffer
	_ = writeJSON(&body, v) // our own structs of strings and numbers, into memory
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(body.Len()))
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // whoever asked may have left
}
