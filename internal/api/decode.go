package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/bojanz/currency"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/api/apitypes"
	"github.com/safeledger/safeledger/internal/payment"
)

// The limits of contract section 1, in characters (Unicode code points).
const (
	maxAccount       = 64
	maxTillReference = 128
	maxMetadata      = 20 // members
	maxMetadataName  = 40
	maxMetadataValue = 500
)

// maxFaults bounds an answer: a body of 16 KiB can be wrong in thousands of
// places, and a till's developer reads the first few.
const maxFaults = 20

// bodyDecoder reads one till's body token by token. It is done by hand because
// what must be told apart here, a JSON library tells apart for nobody: not the
// JSON asked for (400) from out of range (422), null from absent, a number of any
// length from one with a fraction.
type bodyDecoder struct {
	body      bytes.Reader
	dec       *jsontext.Decoder // of body
	maxAmount int64

	malformed []apitypes.MemberError // is not what was asked for
	invalid   []apitypes.MemberError // is, but out of range
}

// field is a member that a body may have.
type field struct {
	name     string
	required bool
	read     func() error // its value, which comes next
}

// decoders are those that nobody uses at the moment, with their buffers.
var decoders = sync.Pool{New: func() any {
	d := &bodyDecoder{}
	d.dec = jsontext.NewDecoder(&d.body)
	return d
}}

// newDecoder is for the caller until its release.
func newDecoder(body []byte, maxAmount int64) *bodyDecoder {
	d := decoders.Get().(*bodyDecoder) //nolint:errcheck,forcetypeassert // nothing else is in there
	d.body.Reset(body)
	d.dec.Reset(&d.body)
	d.maxAmount = min(maxAmount, payment.MaxAmountMinor)
	return d
}

func (d *bodyDecoder) release() {
	d.malformed, d.invalid = nil, nil // they are in the answer
	d.body.Reset(nil)
	decoders.Put(d)
}

// decodePayment reads the body of a debit or hold into req, or says how to refuse
// it and why. All of one kind is said at once, so that a till's developer corrects
// it once. A request that is only shown, to be cancelled, may have been made when
// more was allowed than now: maxAmount is then what was ever allowed.
func decodePayment(body []byte, maxAmount int64, req *payment.Request) (refusal, []apitypes.MemberError) {
	d := newDecoder(body, maxAmount)
	defer d.release()
	d.document([]field{
		{"account", true, func() error { return d.text(&req.Account, validAccount) }},
		{"amount", true, func() error { return d.amount(&req.Amount.AmountMinor) }},
		{"currency", true, func() error { return d.text(&req.Amount.Currency, validCurrency) }},
		{"reference", false, func() error { return d.text(&req.TillReference, validTillReference) }},
		{"metadata", false, func() error { return d.strings(&req.Metadata) }},
	})
	return d.verdict()
}

// decodeFollowUp is decodePayment for a credit, a capture or a release.
func (a *api) decodeFollowUp(body []byte, req *payment.FollowUpRequest) (refusal, []apitypes.MemberError) {
	d := newDecoder(body, a.MaxAmount)
	defer d.release()
	switch req.Kind {
	case payment.Credit:
		d.credit(req)
	case payment.Capture:
		d.document([]field{{"amount", false, func() error { return d.amount(&req.Amount.AmountMinor) }}})
	case payment.Release:
		d.document(nil)
	case payment.Debit, payment.Hold, payment.Reversal:
		return internal, nil // no follow-up that a till can ask for: a route that was wired wrongly
	}
	return d.verdict()
}

func (d *bodyDecoder) credit(req *payment.FollowUpRequest) {
	names := func(of payment.Operation) func() error {
		return func() error {
			if req.Of != "" { // which of the two it gives back, nobody can know
				return d.passOver("must not be there together with " + string(req.Of) + "Id")
			}
			req.Of = of
			return d.id(&req.PaymentID)
		}
	}
	d.document([]field{
		{"account", true, func() error { return d.text(&req.Account, validAccount) }},
		{"amount", true, func() error { return d.amount(&req.Amount.AmountMinor) }},
		{"currency", true, func() error { return d.text(&req.Amount.Currency, validCurrency) }},
		{"debitId", false, names(payment.Debit)},
		{"holdId", false, names(payment.Hold)},
		{"reference", false, func() error { return d.text(&req.TillReference, validTillReference) }},
		{"metadata", false, func() error { return d.strings(&req.Metadata) }},
	})
}

// verdict is what becomes of the body: what is malformed outranks what is out of
// range.
func (d *bodyDecoder) verdict() (refusal, []apitypes.MemberError) {
	switch {
	case len(d.malformed) > 0:
		return malformedRequest, d.malformed[:min(len(d.malformed), maxFaults)]
	case len(d.invalid) > 0:
		return invalidValue, d.invalid[:min(len(d.invalid), maxFaults)]
	}
	return none, nil
}

// document reads all of the body, which must be one object of these fields.
func (d *bodyDecoder) document(fields []field) {
	if err := d.only(fields); err != nil {
		d.malformed = append(d.malformed, syntaxFault(err))
	}
}

// only is document's work. Its errors are of syntax, after which nothing more can
// be said; the rest is collected.
func (d *bodyDecoder) only(fields []field) error {
	if kind := d.dec.PeekKind(); kind != jsontext.KindBeginObject {
		return d.passOver("must be an object")
	}
	var seen [8]bool // there is no body with more fields
	if err := d.object(func(name string) error {
		for i, f := range fields {
			if f.name == name {
				seen[i] = true
				return f.read()
			}
		}
		return d.passOver("is not a known member")
	}); err != nil {
		return err
	}
	for i, f := range fields {
		if f.required && !seen[i] {
			d.malformed = append(d.malformed, apitypes.MemberError{Pointer: "/" + f.name, Detail: "is missing"})
		}
	}
	// Anything behind the object: a second request, or a body that was put
	// together wrongly.
	if _, err := d.dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		d.malformed = append(d.malformed, apitypes.MemberError{Detail: "is followed by something else"})
	}
	return nil
}

// object reads the object that comes next: member is called at each value. A
// name that is there twice is an error of syntax to the decoder.
func (d *bodyDecoder) object(member func(name string) error) error {
	if _, err := d.dec.ReadToken(); err != nil {
		return err
	}
	for d.dec.PeekKind() != jsontext.KindEndObject {
		name, err := d.dec.ReadToken()
		if err != nil {
			return err
		}
		if err := member(name.String()); err != nil {
			return err
		}
	}
	_, err := d.dec.ReadToken()
	return err
}

// text reads the string that comes next into s. valid says what is wrong with
// it, or "".
func (d *bodyDecoder) text(s *string, valid func(string) string) error {
	if d.dec.PeekKind() != jsontext.KindString {
		return d.passOver("must be a string")
	}
	token, err := d.dec.ReadToken()
	if err != nil {
		return err
	}
	*s = token.String()
	switch {
	case strings.ContainsRune(*s, 0):
		// Not every store can hold it, and no till means it.
		d.malform("must not contain U+0000")
	default:
		if detail := valid(*s); detail != "" {
			d.invalidate(detail)
		}
	}
	return nil
}

// id reads the id of a payment.
func (d *bodyDecoder) id(id *uuid.UUID) error {
	var text string
	return d.text(&text, func(s string) string {
		parsed, ok := parseID(s)
		if !ok {
			return "must be the id of a payment, a UUID"
		}
		*id = parsed
		return ""
	})
}

// amount reads an amount in minor units.
func (d *bodyDecoder) amount(minor *int64) error {
	if d.dec.PeekKind() != jsontext.KindNumber {
		return d.passOver("must be a whole number")
	}
	value, err := d.dec.ReadValue()
	if err != nil {
		return err
	}
	number := string(value)
	if strings.ContainsAny(number, ".eE") {
		d.malform("must be a whole number, without a fraction or an exponent")
		return nil
	}
	// Not through a float, which would be exact only for as long as the limit is
	// what it is (field report E1). What does not fit 64 bits is out of range as any
	// other.
	amount, err := strconv.ParseInt(number, 10, 64)
	if err != nil || amount < 1 || amount > d.maxAmount {
		d.invalidate(fmt.Sprintf("must be from 1 to %d", d.maxAmount))
		return nil //nolint:nilerr // invalidate has recorded it
	}
	*minor = amount
	return nil
}

// strings reads metadata, an object of strings.
func (d *bodyDecoder) strings(metadata *map[string]string) error {
	if d.dec.PeekKind() != jsontext.KindBeginObject {
		return d.passOver("must be an object of strings")
	}
	members := make(map[string]string)
	*metadata = members
	at := d.dec.StackPointer()
	if err := d.object(func(name string) error {
		if strings.ContainsRune(name, 0) {
			d.malform("must not contain U+0000")
		} else if n := utf8.RuneCountInString(name); n < 1 || n > maxMetadataName || hasControl(name) {
			d.invalidate(fmt.Sprintf("must have a name of 1 to %d characters without control characters", maxMetadataName))
		}
		var value string
		if err := d.text(&value, validMetadataValue); err != nil {
			return err
		}
		members[name] = value
		return nil
	}); err != nil {
		return err
	}
	if len(members) > maxMetadata {
		d.invalid = append(d.invalid, apitypes.MemberError{
			Pointer: string(at), Detail: fmt.Sprintf("must have at most %d members", maxMetadata),
		})
	}
	return nil
}

// passOver passes over a value that was not asked for, or not of this type, null
// included.
func (d *bodyDecoder) passOver(detail string) error {
	if err := d.dec.SkipValue(); err != nil {
		return err
	}
	d.malform(detail)
	return nil
}

// malform and invalidate speak of the member that was read last.
func (d *bodyDecoder) malform(detail string) {
	d.malformed = append(d.malformed, apitypes.MemberError{Pointer: string(d.dec.StackPointer()), Detail: detail})
}

func (d *bodyDecoder) invalidate(detail string) {
	d.invalid = append(d.invalid, apitypes.MemberError{Pointer: string(d.dec.StackPointer()), Detail: detail})
}

// parseID reads an id of ours: other spellings of a UUID that a library takes are
// none, and neither is the zero UUID, which stands for no payment at all in here.
func parseID(s string) (uuid.UUID, bool) {
	const uuidLength = 36
	id, err := uuid.Parse(s)
	return id, err == nil && len(s) == uuidLength && id != uuid.Nil
}

// syntaxFault says where the body stops being JSON, in words of our own: the
// library's may change, and a till's tests may hold on to ours.
func syntaxFault(err error) apitypes.MemberError {
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		return apitypes.MemberError{Pointer: member(syntax.JSONPointer), Detail: "is there twice"}
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return apitypes.MemberError{Detail: "ends before the JSON does"}
	case errors.As(err, &syntax):
		return apitypes.MemberError{
			Pointer: member(syntax.JSONPointer),
			Detail:  fmt.Sprintf("is not valid JSON in UTF-8, at byte %d", syntax.ByteOffset),
		}
	}
	return apitypes.MemberError{Detail: "is not valid JSON in UTF-8"}
}

// member is the part of p that a body can have: a member, or one of metadata. A
// body that nests thousands of lists would else get a pointer as long as itself.
func member(p jsontext.Pointer) string {
	const depth = 2
	var short jsontext.Pointer
	n := 0
	for token := range p.Tokens() {
		if n++; n > depth {
			break
		}
		short = short.AppendToken(token)
	}
	return string(short)
}

func validAccount(s string) string {
	ok := 1 <= len(s) && len(s) <= maxAccount && !strings.ContainsFunc(s, func(c rune) bool {
		letter := 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
		digit := '0' <= c && c <= '9'
		return !letter && !digit && !strings.ContainsRune("._:-", c)
	})
	if ok {
		return ""
	}
	return "must be 1 to 64 of A-Z a-z 0-9 . _ : -"
}

func validCurrency(s string) string {
	// The library takes "" for a currency that is not set, and so for a valid one.
	if s != "" && currency.IsValid(s) {
		return ""
	}
	return "must be an ISO 4217 code, in capitals"
}

func validTillReference(s string) string {
	if n := utf8.RuneCountInString(s); n < 1 || n > maxTillReference || hasControl(s) {
		return fmt.Sprintf("must be 1 to %d characters without control characters", maxTillReference)
	}
	return ""
}

func validMetadataValue(s string) string {
	if utf8.RuneCountInString(s) > maxMetadataValue || hasControl(s) {
		return fmt.Sprintf("must be at most %d characters without control characters", maxMetadataValue)
	}
	return ""
}

func hasControl(s string) bool { return strings.ContainsFunc(s, unicode.IsControl) }
