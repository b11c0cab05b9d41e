package checker

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

// What the contract derives from a request, written here a second time: keys,
// fingerprints and references. Both sides are held to api/fingerprint-vectors.json,
// which were calculated apart from either.

// kind is what a key is used for, or what the queue does on its own.
type kind uint8

const (
	noKind kind = iota
	debit
	hold
	credit
	capture
	release
	reversal
)

var kindNames = [...]string{"", "debit", "hold", "credit", "capture", "release", "reversal"} //nolint:gochecknoglobals // a table

func (k kind) String() string { return kindNames[k] }

// kindOf is the kind that is written so; noKind where there is none.
func kindOf(name string) kind { return kind(max(slices.Index(kindNames[:], name), 0)) }

func (k kind) isPayment() bool { return k == debit || k == hold }

// identity tells keys apart: caller, operation and key.
type identity [16]byte

// identify makes an identity of the SHA-256 of a key, which is what the ledger has.
func identify(caller string, k kind, keyHash [sha256.Size]byte) (id identity) {
	h := sha256.New()
	h.Write([]byte(caller))
	h.Write([]byte{0, byte(k)})
	h.Write(keyHash[:])
	copy(id[:], h.Sum(nil))
	return id
}

// unquote is the key of an Idempotency-Key field, bare or as an RFC 8941 string; ""
// where it is none that could be accepted.
func unquote(field string) string {
	key := field
	if strings.HasPrefix(field, `"`) {
		if len(field) < 2 || !strings.HasSuffix(field, `"`) {
			return ""
		}
		var b strings.Builder
		inner := field[1 : len(field)-1]
		for i := 0; i < len(inner); i++ {
			switch c := inner[i]; {
			case c == '"':
				return ""
			case c != '\\':
				b.WriteByte(c)
			case i+1 < len(inner) && (inner[i+1] == '"' || inner[i+1] == '\\'):
				i++
				b.WriteByte(inner[i])
			default:
				return ""
			}
		}
		key = b.String()
	}
	const most = 255
	if key == "" || len(key) > most || strings.IndexFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) >= 0 {
		return ""
	}
	return key
}

// target is what a call is about, by its method and path.
type target struct {
	purpose purpose
	kind    kind      // noKind of a read by id
	key     string    // "" where the path has none: then it is the Idempotency-Key
	id      uuid.UUID // of the path
}

// purpose says what a call does to its subject.
type purpose uint8

const (
	elsewhere purpose = iota // not about a key or an id
	posting                  // asks for a payment or a follow-up
	cancelling
	readingPayment
	readingOperation
)

// aim reads a path.
func aim(method, path string) target {
	path, _, _ = strings.Cut(path, "?")
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	last := parts[len(parts)-1]
	is := func(words ...string) bool {
		if len(words) != len(parts) {
			return false
		}
		for i, word := range words {
			if word != "*" && word != parts[i] {
				return false
			}
		}
		return true
	}
	byKey := func(p purpose, k kind) target {
		key, err := url.PathUnescape(parts[3])
		if err != nil || k == noKind || k == reversal {
			return target{}
		}
		return target{purpose: p, kind: k, key: key}
	}
	byID := func(p purpose, k kind, text string) target {
		id, err := uuid.Parse(text)
		if err != nil || len(text) != len(uuid.Nil.String()) {
			return target{}
		}
		return target{purpose: p, kind: k, id: id}
	}
	switch {
	case method == "POST" && is("debits"):
		return target{purpose: posting, kind: debit}
	case method == "POST" && is("holds"):
		return target{purpose: posting, kind: hold}
	case method == "POST" && is("credits"):
		return target{purpose: posting, kind: credit}
	case method == "POST" && (is("holds", "*", "capture") || is("holds", "*", "release")):
		return byID(posting, kindOf(last), parts[1])
	case method == "POST" && is("payments", "by-key", "*", "*", "cancel"):
		return byKey(cancelling, kindOf(parts[2]))
	case method == "GET" && is("payments", "*"):
		return byID(readingPayment, noKind, last)
	case method == "GET" && is("payments", "by-key", "*", "*"):
		return byKey(readingPayment, kindOf(parts[2]))
	case method == "GET" && is("operations", "*"):
		return byID(readingOperation, noKind, last)
	case method == "GET" && is("operations", "by-key", "*", "*"):
		return byKey(readingOperation, kindOf(parts[2]))
	}
	return target{}
}

// asked is a request's body, parsed.
type asked struct {
	Account   *string            `json:"account"`
	Amount    *int64             `json:"amount"`
	Currency  *string            `json:"currency"`
	Reference *string            `json:"reference"`
	Metadata  *map[string]string `json:"metadata"`
	DebitID   *string            `json:"debitId"`
	HoldID    *string            `json:"holdId"`
}

// parse reads the body of a request for k. What is not a request at all is an error:
// nothing can be derived from it, and nothing can have been claimed for it.
func parse(k kind, body string) (a asked, err error) {
	if body == "" && !k.isPayment() && k != credit {
		return a, nil
	}
	if err := json.Unmarshal([]byte(body), &a, json.RejectUnknownMembers(true)); err != nil {
		return a, err
	}
	missing := a.Account == nil || a.Amount == nil || a.Currency == nil
	ends := a.Account != nil || a.Currency != nil || a.Reference != nil || a.Metadata != nil || a.DebitID != nil || a.HoldID != nil
	switch {
	case k.isPayment() && (missing || a.DebitID != nil || a.HoldID != nil),
		k == credit && (missing || a.DebitID != nil && a.HoldID != nil),
		k == capture && ends, k == release && (ends || a.Amount != nil):
		return a, errors.New("not the members of such a request")
	}
	return a, nil
}

// payee is the payment that a follow-up names, and what it must be.
func (a asked) payee(k kind, inPath uuid.UUID) (id uuid.UUID, of kind) {
	named := func(text string, k kind) (uuid.UUID, kind) {
		id, err := uuid.Parse(text)
		if err != nil {
			return uuid.Nil, noKind
		}
		return id, k
	}
	switch {
	case k == capture || k == release:
		return inPath, hold
	case a.DebitID != nil:
		return named(*a.DebitID, debit)
	case a.HoldID != nil:
		return named(*a.HoldID, hold)
	}
	return uuid.Nil, noKind
}

// fingerprint is the version and the SHA-256 of a request's canonical form.
type fingerprint [1 + sha256.Size]byte

// mark is as much of a fingerprint as tells the requests of one key apart: a run has
// millions of them.
type mark uint64

// markOf is the mark of a fingerprint as it is stored.
func markOf(stored []byte) (m mark) {
	const version, part = 1, 8
	if len(stored) < version+part {
		return 0
	}
	return mark(binary.BigEndian.Uint64(stored[version:])) ^ mark(stored[0])
}

// canonical writes parts with their lengths in front.
type canonical struct{ hash.Hash }

func (c canonical) number(n int) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], uint32(n))
	c.Write(b[:])
}

func (c canonical) text(s string) {
	c.number(len(s))
	c.Write([]byte(s))
}

func (a asked) fingerprint(k kind, inPath uuid.UUID) (f fingerprint) {
	c := canonical{sha256.New()}
	c.text("safeledger/fingerprint/1")
	c.text(k.String())
	if !k.isPayment() {
		id, of := a.payee(k, inPath)
		c.text(of.String())
		if id == uuid.Nil {
			c.number(0)
		} else {
			c.number(1)
			c.text(id.String())
		}
	}
	c.text(valueOf(a.Account))
	c.text(strconv.FormatInt(valueOf(a.Amount), 10))
	c.text(valueOf(a.Currency))
	if a.Reference == nil {
		c.number(0)
	} else {
		c.number(1)
		c.text(*a.Reference)
	}
	if a.Metadata == nil {
		c.number(0)
	} else {
		c.number(1)
		c.number(len(*a.Metadata))
		for _, name := range slices.Sorted(maps.Keys(*a.Metadata)) {
			c.text(name)
			c.text((*a.Metadata)[name])
		}
	}
	f[0] = 1
	c.Sum(f[:1])
	return f
}

func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// reference is what the wallet must know a request by.
func (f fingerprint) reference(caller string, k kind, key string) uuid.UUID {
	c := canonical{sha256.New()}
	c.text("safeledger/reference/1")
	c.text(caller)
	c.text(k.String())
	c.text(key)
	c.text(string(f[:]))
	return c.uuid()
}

// reversalOf is the reference of the reversal of what reference names.
func reversalOf(reference uuid.UUID) uuid.UUID {
	c := canonical{sha256.New()}
	c.text("safeledger/reversal/1")
	c.text(reference.String())
	return c.uuid()
}

// uuid is the UUIDv8 (RFC 9562 section 5.8) of the hash.
func (c canonical) uuid() (id uuid.UUID) {
	copy(id[:], c.Sum(nil))
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	return id
}
