package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Debit takes money from an account. The errors are those of the package's
// comment; any other one says what is wrong with the arguments, and nothing was sent.
//
// A key is one attempt of a customer. The same key with the same request is the same
// payment, however often it is asked for.
func (c *Client) Debit(ctx context.Context, key string, req PaymentRequest) (Decision, error) {
	return c.decide(ctx, KindDebit, "/debits", key, req)
}

// Hold reserves money on an account, to be captured or released later. It is
// decided as a debit is.
func (c *Client) Hold(ctx context.Context, key string, req PaymentRequest) (Decision, error) {
	return c.decide(ctx, KindHold, "/holds", key, req)
}

// Credit gives money to an account, of a debit, of a captured hold or as a payout.
// It is accepted here and done later, see [Client.FollowUp]. Errors are as of Debit.
func (c *Client) Credit(ctx context.Context, key string, req CreditRequest) (FollowUp, error) {
	if req.DebitID != uuid.Nil && req.HoldID != uuid.Nil {
		return FollowUp{}, errors.New("client: a credit names a debit or a hold, not both")
	}
	if err := checkText(req.Account, req.Currency, req.Reference, req.Metadata); err != nil {
		return FollowUp{}, err
	}
	want := FollowUp{
		Kind: KindCredit, Account: req.Account, AmountMinor: req.AmountMinor, Currency: req.Currency,
		Reference: req.Reference, Metadata: req.Metadata, PaymentID: req.DebitID,
	}
	if req.HoldID != uuid.Nil {
		want.PaymentID = req.HoldID
	}
	return c.accept(ctx, "/credits", key, want, creditBody{
		paymentBody: bodyOf(PaymentRequest{req.Account, req.AmountMinor, req.Currency, req.Reference, req.Metadata}),
		DebitID:     req.DebitID, HoldID: req.HoldID,
	})
}

// Capture takes what a hold has reserved, or amountMinor of it (0 stands for the
// whole hold); the wallet gives back the rest. It is accepted here and done later.
// Errors are as of Debit.
func (c *Client) Capture(ctx context.Context, key string, holdID uuid.UUID, amountMinor int64) (FollowUp, error) {
	if err := checkID(holdID); err != nil {
		return FollowUp{}, err
	}
	want := FollowUp{Kind: KindCapture, PaymentID: holdID, AmountMinor: amountMinor}
	return c.accept(ctx, "/holds/"+holdID.String()+"/capture", key, want, captureBody{amountMinor})
}

// Release gives back all that a hold has reserved. It is accepted here and done
// later. Errors are as of Debit.
func (c *Client) Release(ctx context.Context, key string, holdID uuid.UUID) (FollowUp, error) {
	if err := checkID(holdID); err != nil {
		return FollowUp{}, err
	}
	return c.accept(ctx, "/holds/"+holdID.String()+"/release", key, FollowUp{Kind: KindRelease, PaymentID: holdID}, struct{}{})
}

// Cancel undoes whatever the debit or hold of a key did, and makes sure that it does
// nothing later: for the till whose answer got lost. Repeating it is safe and gives
// the same answer, so repeat it until there is one. original is the request that the
// key was used for, nil if the till no longer has it; with it the service can also
// undo a payment that it lost in a failover of its database.
//
// A hold that has been captured is not cancelled: a *Problem with the code
// HOLD_ALREADY_CAPTURED; it is a credit that is wanted then.
func (c *Client) Cancel(ctx context.Context, kind Kind, key string, original *PaymentRequest) (Cancellation, error) {
	path, err := byKey("/payments/by-key/", kind, key, KindDebit, KindHold)
	if err != nil {
		return Cancellation{}, err
	}
	var body []byte
	if original != nil {
		if err := checkText(original.Account, original.Currency, original.Reference, original.Metadata); err != nil {
			return Cancellation{}, err
		}
		if body, err = json.Marshal(bodyOf(*original)); err != nil {
			return Cancellation{}, fmt.Errorf("client: %w", err)
		}
	}
	m := mutation{kind: kind, key: key, cancelling: true}
	a, err := c.mutate(ctx, m, call{method: http.MethodPost, path: path + "/cancel", body: body})
	if err != nil {
		return Cancellation{}, err
	}
	if a.status != http.StatusOK {
		return Cancellation{}, m.refused(a)
	}
	done, err := readCancellation(a, kind)
	if err != nil {
		return Cancellation{}, m.unknown(a.status, err)
	}
	return done, nil
}

// mutation is what the errors of a mutation have to say.
type mutation struct {
	kind       Kind
	key        string
	cancelling bool
}

func (m mutation) unknown(status int, err error) error {
	return &OutcomeUnknownError{Kind: m.kind, Key: m.key, Cancelling: m.cancelling, Status: status, Err: err}
}

// refused is the error that an answer stands for which is none of those that were
// hoped for. Only what the service itself has said is believed to be a refusal: a
// status alone may come from something in between, which may have passed the
// request on before.
func (m mutation) refused(a answer) error {
	p, ours := readProblem(a)
	switch {
	case !ours:
		return m.unknown(a.status, p)
	case a.status == http.StatusConflict && p.Code == CodeRequestInFlight:
		return &InFlightError{Kind: m.kind, Key: m.key, RetryAfter: p.RetryAfter, Err: p}
	}
	switch a.status {
	case http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusConflict, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusNotImplemented:
		return p
	}
	return m.unknown(a.status, p)
}

func (c *Client) decide(ctx context.Context, kind Kind, path, key string, req PaymentRequest) (Decision, error) {
	if err := errors.Join(checkKey(key), checkText(req.Account, req.Currency, req.Reference, req.Metadata)); err != nil {
		return Decision{}, err
	}
	body, err := json.Marshal(bodyOf(req))
	if err != nil {
		return Decision{}, fmt.Errorf("client: %w", err)
	}
	m := mutation{kind: kind, key: key}
	a, err := c.mutate(ctx, m, call{method: http.MethodPost, path: path, key: key, body: body})
	if err != nil {
		return Decision{}, err
	}
	var d Decision
	switch a.status {
	case http.StatusCreated:
		d, err = readApproval(a, kind, key, req)
	case http.StatusPaymentRequired, http.StatusFailedDependency:
		d, err = readDecline(a, kind, key)
	default:
		return Decision{}, m.refused(a)
	}
	if err != nil {
		return Decision{}, m.unknown(a.status, err)
	}
	return d, nil
}

func (c *Client) accept(ctx context.Context, path, key string, want FollowUp, body any) (FollowUp, error) {
	if err := checkKey(key); err != nil {
		return FollowUp{}, err
	}
	encoded, err := json.Marshal(body)
	if err != nil {
		return FollowUp{}, fmt.Errorf("client: %w", err)
	}
	m := mutation{kind: want.Kind, key: key}
	a, err := c.mutate(ctx, m, call{method: http.MethodPost, path: path, key: key, body: encoded})
	if err != nil {
		return FollowUp{}, err
	}
	if a.status != http.StatusAccepted {
		return FollowUp{}, m.refused(a)
	}
	f, err := readAccepted(a, want)
	if err != nil {
		return FollowUp{}, m.unknown(a.status, err)
	}
	return f, nil
}

// mutate sends a mutation, and sends it again after exactly 503 with a valid
// Retry-After, as long as the policy and the context allow: the service's gate alone
// answers so, and it answers before anything is begun. Any other answer is returned;
// without a whole one there is an error.
//
// That the loop is safe rests on this: each turn before the last was refused by the
// gate, so that all of the call is what its last turn is.
func (c *Client) mutate(ctx context.Context, m mutation, request call) (answer, error) {
	_, request.tellDeadline = ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, c.mutations.Total)
	defer cancel()
	stopped := NotBegunError{Kind: m.kind, Key: m.key}
	for attempt := 1; ; attempt++ {
		a, err := c.exchange(ctx, request)
		if l, isLost := errors.AsType[*lostError](err); isLost {
			if l.begun {
				return answer{}, m.unknown(l.status, l.err)
			}
			stopped.Err = l.err
			return answer{}, &stopped
		}
		if a.status != http.StatusServiceUnavailable || a.retryAfter == 0 {
			return a, nil
		}
		p, _ := readProblem(a) // its words are for people; the pair alone decides
		stopped.Attempts, stopped.RetryAfter, stopped.Err = attempt, a.retryAfter, p
		if attempt >= c.mutations.Attempts {
			return answer{}, &stopped
		}
		if ended := c.wait(ctx, a.retryAfter+c.upTo(c.mutations.Jitter)); ended != nil {
			stopped.Err = fmt.Errorf("%w: %w", ended, p)
			return answer{}, &stopped
		}
	}
}

// wait waits for d, or says at once why it will not: a wait that the deadline would
// end is of no use to anybody.
func (c *Client) wait(ctx context.Context, d time.Duration) error {
	if end, set := ctx.Deadline(); set && time.Until(end) <= d {
		if err := ctx.Err(); err != nil {
			return err
		}
		return context.DeadlineExceeded
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// upTo is a random time from 0 to most.
func (c *Client) upTo(most time.Duration) time.Duration {
	return time.Duration(c.random(int64(most) + 1))
}

// The bodies, as the contract has them.
type paymentBody struct {
	Account   string            `json:"account"`
	Amount    int64             `json:"amount"`
	Currency  string            `json:"currency"`
	Reference string            `json:"reference,omitempty"`
	Metadata  map[string]string `json:"metadata,omitzero"` // {} is sent as {}, as another request than none
}

type creditBody struct {
	paymentBody
	DebitID uuid.UUID `json:"debitId,omitzero"`
	HoldID  uuid.UUID `json:"holdId,omitzero"`
}

type captureBody struct {
	Amount int64 `json:"amount,omitempty"`
}

func bodyOf(req PaymentRequest) paymentBody {
	return paymentBody{req.Account, req.AmountMinor, req.Currency, req.Reference, req.Metadata}
}

// checkText refuses what JSON cannot carry: encoding/json would replace it, so that
// the service would decide something else than was asked.
func checkText(account, currency, reference string, metadata map[string]string) error {
	valid := utf8.ValidString(account) && utf8.ValidString(currency) && utf8.ValidString(reference)
	for name, value := range metadata {
		valid = valid && utf8.ValidString(name) && utf8.ValidString(value)
	}
	if !valid {
		return errors.New("client: account, currency, reference and metadata must be UTF-8")
	}
	return nil
}

func checkID(id uuid.UUID) error {
	if id == uuid.Nil {
		return errors.New("client: the id is missing")
	}
	return nil
}

// byKey is the path of what a key stands for.
func byKey(prefix string, kind Kind, key string, allowed ...Kind) (string, error) {
	if !slices.Contains(allowed, kind) {
		return "", fmt.Errorf("client: the kind is %q, it must be one of %q", kind, allowed)
	}
	return prefix + string(kind) + "/" + url.PathEscape(key), checkKey(key)
}
