package payment

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// Key is a till's Idempotency-Key: 1 to 255 visible ASCII characters, unquoted.
type Key string

// MaxKeyLength bounds a key, in characters (contract section 1).
const MaxKeyLength = 255

// ErrInvalidKey says what a key must be. It never repeats the key.
var ErrInvalidKey = errors.New("must be 1 to 255 visible ASCII characters, bare or as an RFC 8941 quoted string")

// ParseKey reads the value of an Idempotency-Key field, bare or as an RFC 8941
// string: `abc` and `"abc"` are the same key. The error is ErrInvalidKey.
func ParseKey(field string) (Key, error) {
	if !strings.HasPrefix(field, `"`) {
		return NewKey(field)
	}
	// RFC 8941 section 3.3.3: a backslash escapes a quote or a backslash and
	// nothing else, and nothing follows the closing quote (we take no parameters).
	var b strings.Builder
	for i := 1; i < len(field); i++ {
		switch c := field[i]; c {
		case '"':
			if i != len(field)-1 {
				return "", ErrInvalidKey
			}
			return NewKey(b.String())
		case '\\':
			i++
			if i == len(field) || (field[i] != '"' && field[i] != '\\') {
				return "", ErrInvalidKey
			}
			b.WriteByte(field[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", ErrInvalidKey
}

// NewKey checks a key that is not quoted, as it stands in a path. The error is
// ErrInvalidKey.
func NewKey(s string) (Key, error) {
	if len(s) == 0 || len(s) > MaxKeyLength {
		return "", ErrInvalidKey
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return "", ErrInvalidKey
		}
	}
	return Key(s), nil
}

// keyTimeBytes is the length of the time that begins a KeyHash: 48 bits of
// milliseconds, as in a UUIDv7 and in a ULID.
const keyTimeBytes = 6

// KeyHash is what the ledger stores of a key, and finds it by: the time that
// the key itself carries, if it is a UUIDv7 or a ULID (zero otherwise), then
// the SHA-256 of the key. It is derived from the key alone, so it identifies
// as the bare hash does; the time in front keeps the ledger's index in the
// order of arrival for tills that draw such keys, which at millions of rows
// is the difference between appending and touching random pages (ADR 0009).
type KeyHash [keyTimeBytes + sha256.Size]byte

// Hash is the stored form of k.
func (k Key) Hash() KeyHash {
	var h KeyHash
	t := k.time()
	sum := sha256.Sum256([]byte(k))
	copy(h[:], t[:])
	copy(h[keyTimeBytes:], sum[:])
	return h
}

// time is the big-endian millisecond count in front of a UUIDv7 or ULID, zero
// for any other key. What merely looks like one is no harm: the order of an
// index is all that depends on it.
func (k Key) time() (t [keyTimeBytes]byte) {
	switch len(k) {
	case 36: // 01890a5d-ac96-774b-bcce-b302099a8057
		if k[8] != '-' || k[13] != '-' || k[18] != '-' || k[23] != '-' || k[14] != '7' {
			return t
		}
		digits := strings.ReplaceAll(string(k), "-", "")
		raw, err := hex.DecodeString(digits)
		if err != nil || raw[8]>>6 != 0b10 { // the variant of RFC 9562
			return t
		}
		copy(t[:], raw)
	case 26: // 01ARZ3NDEKTSV4RRFFQ69G5FAV
		var ms uint64
		for i := range len(k) {
			v := strings.IndexByte("0123456789ABCDEFGHJKMNPQRSTVWXYZ", upper(k[i]))
			if v < 0 || (i == 0 && v > 7) { // 26 digits of 5 bits hold two more than 128
				return t
			}
			if i < 10 {
				ms = ms<<5 | uint64(v)
			}
		}
		for i := range t {
			t[i] = byte(ms >> (8 * (keyTimeBytes - 1 - i))) //nolint:gosec // the low byte is what is wanted
		}
	}
	return t
}

func upper(c byte) byte {
	if 'a' <= c && c <= 'z' {
		return c - 'a' + 'A'
	}
	return c
}
