package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

const (
	jsonType    = "application/json"
	problemType = "application/problem+json"
)

// codeForm is what every code looks like, the wallet's and ours.
var codeForm = regexp.MustCompile(`^[A-Z][A-Z0-9_]{0,63}$`)

// members are the members of a JSON object, by their exact names. They are read one
// by one, and what is wrong with the first wrong one is kept: an answer is read as a
// whole, or not at all.
//
// encoding/json alone would take a member in another case, the second one of two,
// and null for nothing; in an answer about money none of these is what was promised.
type members struct {
	of  map[string]json.RawMessage
	err error
}

// object reads body as one JSON object and nothing after it.
func object(body []byte) *members {
	m := &members{of: make(map[string]json.RawMessage)}
	if !utf8.Valid(body) {
		m.err = errors.New("it is not UTF-8")
		return m
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		m.err = errors.New("it is not a JSON object")
		return m
	}
	for dec.More() {
		token, err := dec.Token()
		name, isName := token.(string)
		var value json.RawMessage
		if err != nil || !isName || dec.Decode(&value) != nil {
			m.err = errors.New("it is not JSON")
			return m
		}
		if _, twice := m.of[name]; twice {
			m.err = fmt.Errorf("it has the member %q twice", name)
			return m
		}
		m.of[name] = value
	}
	if _, err := dec.Token(); err != nil {
		m.err = errors.New("it is not complete")
		return m
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		m.err = errors.New("something comes after it")
	}
	return m
}

// wrong keeps what is wrong with a member, if nothing was before.
func (m *members) wrong(name string) {
	if m.err == nil {
		m.err = fmt.Errorf("its member %q is missing or not what it must be", name)
	}
}

// has reports whether the member is there.
func (m *members) has(name string) bool { return m.of[name] != nil }

// read decodes a member that must be there into value.
func (m *members) read(name string, value any) bool {
	raw := m.of[name]
	if raw == nil || string(raw) == "null" || json.Unmarshal(raw, value) != nil {
		m.wrong(name)
		return false
	}
	return true
}

// text is a string that must be there and not empty.
func (m *members) text(name string) (s string) {
	if m.read(name, &s) && s == "" {
		m.wrong(name)
	}
	return s
}

// optional is a string that need not be there.
func (m *members) optional(name string) string {
	if !m.has(name) {
		return ""
	}
	return m.text(name)
}

// oneOf is a string that must be one of words.
func oneOf[T ~string](m *members, name string, words ...T) T {
	word := T(m.text(name))
	if !slices.Contains(words, word) {
		m.wrong(name)
	}
	return word
}

func (m *members) code() string {
	code := m.text("code")
	if !codeForm.MatchString(code) {
		m.wrong("code")
	}
	return code
}

func (m *members) id(name string) uuid.UUID {
	id, err := uuid.Parse(m.text(name))
	if err != nil || id == uuid.Nil {
		m.wrong(name)
	}
	return id
}

func (m *members) optionalID(name string) uuid.UUID {
	if !m.has(name) {
		return uuid.Nil
	}
	return m.id(name)
}

func (m *members) moment(name string) time.Time {
	at, err := time.Parse(time.RFC3339, m.text(name))
	if err != nil || at.IsZero() {
		m.wrong(name)
	}
	return at
}

// money is an amount and its currency.
func (m *members) money() (amountMinor int64, currency string) {
	if m.read("amount", &amountMinor) && amountMinor <= 0 {
		m.wrong("amount")
	}
	return amountMinor, m.text("currency")
}

// optionalMoney is both or neither.
func (m *members) optionalMoney() (amountMinor int64, currency string) {
	if !m.has("amount") && !m.has("currency") {
		return 0, ""
	}
	return m.money()
}

func (m *members) metadata() (data map[string]string) {
	if m.has("metadata") {
		m.read("metadata", &data)
	}
	return data
}

// notWhatWasAsked is an answer that is well formed and about something else.
func (m *members) notWhatWasAsked(name string) {
	if m.err == nil {
		m.err = fmt.Errorf("its member %q is not what was asked for", name)
	}
}

// echoes checks what an answer repeats of a request for money.
func (m *members) echoes(asked PaymentRequest) {
	amountMinor, currency := m.money()
	switch {
	case m.text("account") != asked.Account:
		m.notWhatWasAsked("account")
	case amountMinor != asked.AmountMinor:
		m.notWhatWasAsked("amount")
	case currency != asked.Currency:
		m.notWhatWasAsked("currency")
	case m.optional("reference") != asked.Reference:
		m.notWhatWasAsked("reference")
	case !maps.Equal(m.metadata(), asked.Metadata):
		m.notWhatWasAsked("metadata")
	}
}

// end is what a reader of an answer returns: the value, or why there is none.
func end[T any](m *members, value T) (T, error) {
	if m.err != nil {
		var none T
		return none, fmt.Errorf("the answer cannot be relied on: %w", m.err)
	}
	return value, nil
}

// inType is the body of a if it is of that type.
func inType(a answer, wanted string) *members {
	if a.mediaType != wanted {
		return &members{err: fmt.Errorf("it is %q, not %s", a.mediaType, wanted)}
	}
	return object(a.body)
}

// readApproval reads a 201. It is an approval only if all of it is there, and is
// about what was asked: goods are handed over for it.
func readApproval(a answer, kind Kind, key string, asked PaymentRequest) (Decision, error) {
	m := inType(a, jsonType)
	oneOf(m, "kind", kind)
	m.echoes(asked)
	return end(m, Decision{
		Verdict: oneOf(m, "decision", Approved), ID: m.id("id"), Kind: kind, Key: key, Replayed: a.replayed,
		WalletID: m.text("walletId"), CreatedAt: m.moment("createdAt"), DecidedAt: m.moment("decidedAt"),
	})
}

// readDecline reads a 402 or 424.
func readDecline(a answer, kind Kind, key string) (Decision, error) {
	m := inType(a, problemType)
	oneOf(m, "kind", kind)
	d := Decision{
		Verdict: oneOf(m, "decision", Declined), ID: m.id("id"), Kind: kind, Key: key, Replayed: a.replayed,
		Code: m.code(), Retryable: a.status == http.StatusFailedDependency,
	}
	var status int
	if m.read("status", &status) && status != a.status {
		m.wrong("status")
	}
	var retryable bool
	if m.read("retryable", &retryable) && retryable != d.Retryable {
		m.wrong("retryable")
	}
	if ours := d.Code == CodeWalletUnavailable || d.Code == CodeWalletTimeout; ours != d.Retryable {
		m.wrong("code")
	}
	if d.Retryable {
		d.RetryAfter = a.retryAfter
	}
	return end(m, d)
}

// readAccepted reads a 202. want has what the answer must repeat; a zero in it is
// something that the till did not say.
func readAccepted(a answer, want FollowUp) (FollowUp, error) {
	m := inType(a, jsonType)
	f := m.followUp()
	f.Replayed = a.replayed
	switch {
	case m.err != nil:
	case f.Kind != want.Kind:
		m.notWhatWasAsked("kind")
	case f.Status != Pending:
		m.wrong("status")
	case f.PaymentID != want.PaymentID:
		m.notWhatWasAsked("paymentId")
	case f.Account != want.Account:
		m.notWhatWasAsked("account")
	case want.AmountMinor != 0 && f.AmountMinor != want.AmountMinor:
		m.notWhatWasAsked("amount")
	case want.Currency != "" && f.Currency != want.Currency:
		m.notWhatWasAsked("currency")
	case f.Reference != want.Reference:
		m.notWhatWasAsked("reference")
	case !maps.Equal(f.Metadata, want.Metadata):
		m.notWhatWasAsked("metadata")
	}
	return end(m, f)
}

// followUp reads a follow-up wherever one is told.
func (m *members) followUp() FollowUp {
	f := FollowUp{
		ID: m.id("id"), Kind: oneOf(m, "kind", KindCredit, KindCapture, KindRelease, KindReversal),
		Status:  oneOf(m, "status", Pending, Succeeded, Rejected, NotApplied, Parked),
		Account: m.optional("account"), Reference: m.optional("reference"), Metadata: m.metadata(),
		PaymentID: m.optionalID("paymentId"), WalletID: m.optional("walletId"), CreatedAt: m.moment("createdAt"),
	}
	f.AmountMinor, f.Currency = m.optionalMoney()
	if m.has("code") {
		f.Code = m.code()
	}
	if m.has("endedAt") {
		f.EndedAt = m.moment("endedAt")
	}
	return f
}

// readFollowUp reads the 200 of an operation.
func readFollowUp(a answer) (FollowUp, error) {
	m := inType(a, jsonType)
	return end(m, m.followUp())
}

// readPayment reads the 200 of a payment.
func readPayment(a answer) (Payment, error) {
	m := inType(a, jsonType)
	p := Payment{
		ID: m.id("id"), Kind: oneOf(m, "kind", KindDebit, KindHold), Verdict: oneOf(m, "decision", Approved, Declined),
		Account: m.optional("account"), Reference: m.optional("reference"), Metadata: m.metadata(),
		CreatedAt: m.moment("createdAt"), DecidedAt: m.moment("decidedAt"),
	}
	p.AmountMinor, p.Currency = m.optionalMoney()
	switch p.Verdict {
	case Approved:
		p.WalletID = m.text("walletId")
		if p.Account == "" || p.AmountMinor == 0 {
			m.wrong("amount") // only what was cancelled before it was seen has none
		}
	case Declined:
		p.Code = m.code()
	}
	var told []json.RawMessage
	m.read("followUps", &told)
	for _, raw := range told {
		one := object(raw)
		p.FollowUps = append(p.FollowUps, one.followUp())
		if one.err != nil {
			m.wrong("followUps")
			break
		}
	}
	return end(m, p)
}

// readCancellation reads the 200 of a cancel by key.
func readCancellation(a answer, kind Kind) (Cancellation, error) {
	m := inType(a, jsonType)
	c := Cancellation{
		Kind: oneOf(m, "operation", kind), Verdict: oneOf(m, "decision", Approved, Declined),
		ID: m.id("id"), ReversalID: m.optionalID("reversal"),
	}
	switch c.Verdict {
	case Approved:
		if c.ReversalID == uuid.Nil {
			m.wrong("reversal") // an approval that nothing undoes is not cancelled
		}
	case Declined:
		c.Code = m.code()
	}
	return end(m, c)
}

// readProblem reads an answer as a problem of the service's; false if it is not one,
// but of something in between, and then all that is known of it is its status.
func readProblem(a answer) (*Problem, bool) {
	p := &Problem{Status: a.status, RetryAfter: a.retryAfter}
	m := inType(a, problemType)
	var status int
	if m.read("status", &status) && status != a.status {
		m.wrong("status")
	}
	told := Problem{Status: a.status, RetryAfter: a.retryAfter, Code: m.code(), Title: m.text("title"), Detail: m.text("detail")}
	if m.has("errors") {
		var errs []json.RawMessage
		m.read("errors", &errs)
		for _, raw := range errs {
			one, pointer := object(raw), ""
			one.read("pointer", &pointer) // "" is the body as a whole
			told.Errors = append(told.Errors, MemberError{Pointer: pointer, Detail: one.text("detail")})
			if one.err != nil {
				m.wrong("errors")
				break
			}
		}
	}
	if m.err != nil {
		return p, false
	}
	return &told, true
}
