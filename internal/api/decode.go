package api

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/bojanz/currency"
	"github.com/go-json-experiment/json/jsontext"

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

// paymentBodyDecoder reads a till's body token by token. It is done by hand
// because what must be told apart here, a JSON library tells apart for nobody:
// not the JSON asked for (400) from out of range (422), null from absent, a
// number of any length from one with a fraction.
type paymentBodyDecoder struct {
	dec       *jsontext.Decoder
	maxAmount int64

	account  string
	amount   payment.Money
	till     string // the till's own reference
	metadata map[string]string

	malformed []apitypes.MemberError // is not what was asked for
	invalid   []apitypes.MemberError // is, but out of range
}

// decodePayment reads body into req, or says how to refuse it and why. All of
// one kind is said at once, so that a till's developer corrects it once.
func (a *api) decodePayment(body []byte, req *payment.Request) (refusal, []apitypes.MemberError) {
	d := &paymentBodyDecoder{
		dec:       jsontext.NewDecoder(bytes.NewReader(body)),
		maxAmount: min(a.MaxAmount, payment.MaxAmountMinor),
	}
	if err := d.document(); err != nil {
		d.malformed = append(d.malformed, syntaxFault(err))
	}
	switch {
	case len(d.malformed) > 0:
		return malformedRequest, d.malformed[:min(len(d.malformed), maxFaults)]
	case len(d.invalid) > 0:
		return invalidValue, d.invalid[:min(len(d.invalid), maxFaults)]
	}
	req.Account, req.Amount, req.TillReference, req.Metadata = d.account, d.amount, d.till, d.metadata
	return none, nil
}

// document reads all of the body. Its errors are of syntax, after which nothing
// more can be said; the rest is collected.
func (d *paymentBodyDecoder) document() error {
	if kind := d.dec.PeekKind(); kind != jsontext.KindBeginObject {
		return d.passOver("must be an object")
	}
	seen := make(map[string]bool, 5)
	if err := d.object(func(name string) error {
		seen[name] = true
		switch name {
		case "account":
			return d.text(&d.account, validAccount)
		case "amount":
			return d.amountMinor()
		case "currency":
			return d.text(&d.amount.Currency, validCurrency)
		case "reference":
			return d.text(&d.till, validTillReference)
		case "metadata":
			return d.metadataObject()
		}
		return d.passOver("is not a known member")
	}); err != nil {
		return err
	}
	for _, name := range []string{"account", "amount", "currency"} {
		if !seen[name] {
			d.malformed = append(d.malformed, apitypes.MemberError{Pointer: "/" + name, Detail: "is missing"})
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
func (d *paymentBodyDecoder) object(member func(name string) error) error {
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
func (d *paymentBodyDecoder) text(s *string, valid func(string) string) error {
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

func (d *paymentBodyDecoder) amountMinor() error {
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
		return nil
	}
	d.amount.AmountMinor = amount
	return nil
}

func (d *paymentBodyDecoder) metadataObject() error {
	if d.dec.PeekKind() != jsontext.KindBeginObject {
		return d.passOver("must be an object of strings")
	}
	d.metadata = make(map[string]string)
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
		d.metadata[name] = value
		return nil
	}); err != nil {
		return err
	}
	if len(d.metadata) > maxMetadata {
		d.invalid = append(d.invalid, apitypes.MemberError{
			Pointer: string(at), Detail: fmt.Sprintf("must have at most %d members", maxMetadata),
		})
	}
	return nil
}

// passOver passes over a value that was not asked for, or not of this type, null
// included.
func (d *paymentBodyDecoder) passOver(detail string) error {
	if err := d.dec.SkipValue(); err != nil {
		return err
	}
	d.malform(detail)
	return nil
}

// malform and invalidate speak of the member that was read last.
func (d *paymentBodyDecoder) malform(detail string) {
	d.malformed = append(d.malformed, apitypes.MemberError{Pointer: string(d.dec.StackPointer()), Detail: detail})
}

func (d *paymentBodyDecoder) invalidate(detail string) {
	d.invalid = append(d.invalid, apitypes.MemberError{Pointer: string(d.dec.StackPointer()), Detail: detail})
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
