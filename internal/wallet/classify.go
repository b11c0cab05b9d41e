package wallet

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/safeledger/safeledger/internal/payment"
)

// sight is what an exchange showed, and all that its outcome is told by. At
// most one of unsent and lost is set; neither means a complete answer.
type sight struct {
	unsent payment.Reason // no write was begun, and why not
	lost   payment.Reason // a write was begun, but no complete answer came
	status int            // with lost, 0 = not even the head of an answer was complete
	body   []byte
	// answer is body, where that is a JSON object, and nil otherwise.
	answer object
	// cancelled: the caller went away. That changes nothing of what may have
	// happened at the wallet, but it says nothing about the wallet's health.
	cancelled bool
}

// classify is the table of contract section 3: what a call turned out to be,
// the same for both versions and every operation. What it does not name is
// Ambiguous.
func classify(v version, in payment.Instruction, seen sight) payment.Outcome {
	if seen.unsent != "" {
		return payment.Outcome{Class: payment.Unavailable, Reason: seen.unsent}
	}
	ambiguous := func(reason payment.Reason) payment.Outcome {
		return payment.Outcome{Class: payment.Ambiguous, Reason: reason, Status: seen.status}
	}
	switch {
	case seen.status == 0 && seen.lost != "":
		return ambiguous(seen.lost)
	case seen.status == http.StatusBadGateway:
		// Whatever the body, so also one that was cut off.
		return payment.Outcome{Class: payment.Unavailable, Reason: payment.ReasonStatus502, Status: seen.status}
	case seen.status == http.StatusServiceUnavailable:
		return payment.Outcome{Class: payment.Unavailable, Reason: payment.ReasonStatus503, Status: seen.status}
	case is2xx(seen.status):
		return classify2xx(v, in, seen, ambiguous)
	case is4xx(seen.status):
		return classify4xx(v, in, seen, ambiguous)
	}
	return ambiguous(otherStatus(seen.status))
}

func classify2xx(v version, in payment.Instruction, seen sight, ambiguous func(payment.Reason) payment.Outcome) payment.Outcome {
	if reason := seen.unusable(in); reason != "" {
		return ambiguous(reason)
	}
	status, hasStatus := seen.answer.text("status")
	switch {
	case status == "PENDING":
		return ambiguous(payment.ReasonPending)
	case v.echoes && !seen.answer.has("reference"),
		(v.echoes || seen.answer.has("status")) && (!hasStatus || status != "APPLIED"):
		return ambiguous(payment.ReasonBodyUnexpected)
	}
	id, ok := seen.answer.id(v.idMember(in.Operation))
	if !ok {
		return ambiguous(payment.ReasonBodyUnexpected)
	}
	return payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: id, Status: seen.status}
}

func classify4xx(v version, in payment.Instruction, seen sight, ambiguous func(payment.Reason) payment.Outcome) payment.Outcome {
	// An answer that was cut off might have gone on to say DUPLICATE_REFERENCE. It
	// is not an answer (RFC 9112 section 8), and a lookup is worth more than a guess.
	// One that is merely too long is an answer, of something that is not the wallet.
	if seen.lost != "" && seen.lost != payment.ReasonBodyTooLarge {
		return ambiguous(seen.lost)
	}
	code, _ := seen.answer.text("code")
	if code == "" {
		return payment.Outcome{
			Class: payment.Rejected, Reason: payment.ReasonNoVerdict, Code: payment.WalletRejected, Status: seen.status,
		}
	}
	// A verdict need not say whom it is about; where it does, that must be us. Nothing
	// else of it is compared: an amount in a refusal is what the account still has,
	// and its currency the one that it is kept in.
	if reason := seen.answer.compareReference(in); reason == payment.ReasonBodyForeign {
		return ambiguous(reason)
	}
	if seen.status == http.StatusConflict && code == "DUPLICATE_REFERENCE" {
		if reason := seen.answer.compare(in); reason != "" {
			return ambiguous(reason)
		}
		id, ok := seen.answer.id(v.duplicateMember(in.Operation))
		if !ok {
			return ambiguous(payment.ReasonDuplicateNoID)
		}
		return payment.Outcome{Class: payment.Success, Reason: payment.ReasonDuplicate, WalletID: id, Status: seen.status}
	}
	return payment.Outcome{
		Class: payment.Rejected, Reason: payment.ReasonVerdict, Verdict: true,
		Code: payment.WalletCode(code), Status: seen.status,
	}
}

// classifyLookup is the contract's rule for lookups: evidence is a 200 with our
// reference that says APPLIED or REJECTED, or a 404 with the wallet's own code.
// All else proves nothing, whatever it would mean as the answer to a call.
func classifyLookup(v version, in payment.Instruction, seen sight) payment.Evidence {
	none := func(reason payment.Reason) payment.Evidence {
		return payment.Evidence{Finding: payment.NoEvidence, Reason: reason, Status: seen.status}
	}
	switch {
	case seen.unsent != "":
		return none(seen.unsent)
	case seen.status == 0 && seen.lost != "":
		return none(seen.lost)
	case seen.status == http.StatusOK:
		return classifyFound(v, in, seen, none)
	case seen.status == http.StatusNotFound:
		if seen.lost != "" {
			return none(seen.lost)
		}
		if code, _ := seen.answer.text("code"); code == "" {
			return none(payment.ReasonNotFoundUnproven)
		}
		if reason := seen.answer.compareReference(in); reason == payment.ReasonBodyForeign {
			return none(reason)
		}
		return payment.Evidence{Finding: payment.NotFound, Reason: payment.ReasonVerdict, Status: seen.status}
	case is4xx(seen.status):
		// The wallet's own no to a question is no evidence either, but it is an answer.
		if code, _ := seen.answer.text("code"); code != "" {
			return none(payment.ReasonVerdict)
		}
		return none(payment.ReasonNoVerdict)
	}
	return none(otherStatus(seen.status))
}

func classifyFound(v version, in payment.Instruction, seen sight, none func(payment.Reason) payment.Evidence) payment.Evidence {
	if reason := seen.unusable(in); reason != "" {
		return none(reason)
	}
	status, _ := seen.answer.text("status")
	if status == "PENDING" {
		return none(payment.ReasonPending)
	}
	if !seen.answer.has("reference") {
		return none(payment.ReasonBodyUnexpected)
	}
	switch status {
	case "APPLIED":
		if id, ok := seen.answer.id(v.idMember(in.Operation)); ok {
			return payment.Evidence{Finding: payment.FoundApplied, Reason: payment.ReasonApplied, WalletID: id, Status: seen.status}
		}
	case "REJECTED":
		code, _ := seen.answer.text("code")
		return payment.Evidence{
			Finding: payment.FoundRejected, Reason: payment.ReasonVerdict, Code: payment.WalletCode(code), Status: seen.status,
		}
	}
	return none(payment.ReasonBodyUnexpected)
}

func is2xx(status int) bool { return status >= 200 && status <= 299 }
func is4xx(status int) bool { return status >= 400 && status <= 499 }

// otherStatus is the reason for a status that decides by itself.
func otherStatus(status int) payment.Reason {
	switch {
	case status == http.StatusBadGateway:
		return payment.ReasonStatus502
	case status == http.StatusServiceUnavailable:
		return payment.ReasonStatus503
	case status == http.StatusGatewayTimeout:
		return payment.ReasonStatus504
	case status >= 500 && status <= 599:
		return payment.ReasonStatus5xx
	case status >= 300 && status <= 399:
		return payment.ReasonStatus3xx
	}
	return payment.ReasonStatusOther
}

// unusable says why the body of a 2xx cannot be evidence about in: "" where it
// is complete, a JSON object, and whatever it repeats of the call is ours. The
// media type is not asked: it is the members that make an answer.
func (s sight) unusable(in payment.Instruction) payment.Reason {
	switch {
	case s.lost != "":
		return s.lost
	case len(s.body) == 0:
		return payment.ReasonBodyIncomplete
	case s.answer == nil:
		return payment.ReasonBodyUnexpected
	}
	return s.answer.compare(in)
}

// ours reports whether the answer names our reference. Only then is it certain
// that nothing about another call is still on its way on this connection that
// could be mistaken for one about the next.
func (s sight) ours(in payment.Instruction) bool {
	return says(s.answer.member("reference"), in.Reference.String())
}

// object is the members of a JSON object as they are there, those that are null left
// out. A nil object is none at all.
type object []member

// member is a piece of the body each: a name, which is a JSON string, and its value.
type member struct{ name, value jsontext.Value }

// decoding is what reads bodies; with its buffers it is kept for the next one.
type decoding struct {
	body bytes.Reader
	*jsontext.Decoder
}

var decodings = sync.Pool{New: func() any {
	d := &decoding{}
	d.Decoder = jsontext.NewDecoder(&d.body)
	return d
}}

// parseObject reads body as one JSON object and nothing behind it. Duplicate
// members and invalid UTF-8 are refused, because two readers could take them for
// two different answers; members that we do not know are not.
func parseObject(body []byte) object {
	d := decodings.Get().(*decoding) //nolint:errcheck,forcetypeassert // nothing else is in there
	defer func() {
		d.body.Reset(nil)
		decodings.Put(d)
	}()
	d.body.Reset(body)
	d.Reset(&d.body)
	if begin, err := d.ReadToken(); err != nil || begin.Kind() != jsontext.KindBeginObject {
		return nil
	}
	o := make(object, 0, 8)
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.next(body)
		if err != nil {
			return nil
		}
		value, err := d.next(body)
		if err != nil {
			return nil
		}
		if value.Kind() != jsontext.KindNull {
			o = append(o, member{name, value})
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil
	}
	return o
}

// next is the name or value that comes next, as the piece of body that it is: what the
// decoder itself gives is gone with the one after it.
func (d *decoding) next(body []byte) (jsontext.Value, error) {
	value, err := d.ReadValue()
	if err != nil {
		return nil, err
	}
	end := d.InputOffset()
	return body[end-int64(len(value)) : end], nil
}

// member is the value of the member called name, nil if there is none.
func (o object) member(name string) jsontext.Value {
	for _, m := range o {
		if says(m.name, name) {
			return m.value
		}
	}
	return nil
}

// says reports whether v is the JSON string of s.
func says(v jsontext.Value, s string) bool {
	if v.Kind() != jsontext.KindString {
		return false
	}
	if bytes.IndexByte(v, '\\') < 0 { // as good as always: there is nothing to unquote
		return string(v[1:len(v)-1]) == s
	}
	unquoted, err := jsontext.AppendUnquote(nil, v)
	return err == nil && string(unquoted) == s
}

func (o object) has(name string) bool { return o.member(name) != nil }

// text is the member called name, if it is there and a string.
func (o object) text(name string) (string, bool) {
	value := o.member(name)
	if value.Kind() != jsontext.KindString {
		return "", false
	}
	unquoted, err := jsontext.AppendUnquote(nil, value)
	return string(unquoted), err == nil
}

// id is the wallet's id in the member called name. A name of "" is a member that
// this version does not have, even where the answer has one of that name.
func (o object) id(name string) (string, bool) {
	if name == "" {
		return "", false
	}
	id, ok := o.text(name)
	return id, ok && validWalletID(id)
}

// compare holds what the answer repeats of the call against what we said
// (contract section 3: the reference, the amount and the currency): "" if all of it
// is ours, body_foreign if some of it is somebody else's, body_unexpected if it is
// not of the right type. What in does not say is not compared: a release has no
// amount of its own. Nor is anything else: a wallet may mask an account, and has
// words of its own for a kind.
func (o object) compare(in payment.Instruction) payment.Reason {
	verdict := o.compareReference(in)
	if verdict == payment.ReasonBodyForeign {
		return verdict
	}
	switch reason := o.compareText("currency", in.Amount.Currency); reason {
	case payment.ReasonBodyForeign:
		return reason
	case payment.ReasonBodyUnexpected:
		verdict = reason
	}
	if amount := o.member("amount"); amount != nil && in.Amount.AmountMinor != 0 {
		// A number with a fraction or an exponent is not in minor units.
		switch theirs, err := strconv.ParseInt(string(amount), 10, 64); {
		case err != nil:
			verdict = payment.ReasonBodyUnexpected
		case theirs != in.Amount.AmountMinor:
			return payment.ReasonBodyForeign
		}
	}
	return verdict
}

// compareReference is compare for the reference alone, which is what tells one
// answer from another.
func (o object) compareReference(in payment.Instruction) payment.Reason {
	return o.compareText("reference", in.Reference.String())
}

func (o object) compareText(name, ours string) payment.Reason {
	switch theirs := o.member(name); {
	case theirs == nil || ours == "":
		return ""
	case theirs.Kind() != jsontext.KindString:
		return payment.ReasonBodyUnexpected
	case !says(theirs, ours):
		return payment.ReasonBodyForeign
	}
	return ""
}

// maxWalletID bounds what a wallet may put into our ledger, in bytes.
const maxWalletID = 128

// validWalletID reports whether id can be stored, shown to a till and put into
// a path: 1 to 128 printable ASCII characters, and no path of its own.
func validWalletID(id string) bool {
	return id != "" && len(id) <= maxWalletID && fieldValue(id) && strings.TrimLeft(id, ".") != ""
}
