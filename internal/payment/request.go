package payment

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"maps"
	"slices"
	"strconv"

	"github.com/google/uuid"
)

// Request is a till's request for a payment, parsed and within the limits of
// contract section 1. Values are exact: nothing is trimmed, folded or rescaled.
type Request struct {
	Caller        string
	Operation     Operation // Debit or Hold
	Key           Key
	Account       string
	Amount        Money
	TillReference string            // "" = none was given
	Metadata      map[string]string // nil = none was given; empty = {} was given
}

// Fingerprint tells whether two requests under one key are the same request.
// Its first byte is the version of the canonical form, so that a later form can
// be told from this one in rows that are kept for good.
type Fingerprint [1 + sha256.Size]byte

// fingerprintVersion is the version of the canonical form that Fingerprint
// writes. A new one must still compare with what older rows hold.
const fingerprintVersion = 1

// Fingerprint is the SHA-256 over the canonical form of the parsed request:
// white space and the order of members do not matter, any value does (contract
// section 1, Idempotency). Every part is preceded by its length in bytes (32 bits,
// big-endian), so that no two requests share a form; an optional member that is
// absent has the count 0, so that absent and empty differ. Golden vectors:
// api/fingerprint-vectors.json.
func (r Request) Fingerprint() Fingerprint {
	return newCanonical("safeledger/fingerprint/1").text(string(r.Operation)).
		fingerprint(r.Account, r.Amount, r.TillReference, r.Metadata)
}

// Matches reports whether stored is the fingerprint of the same request.
func (f Fingerprint) Matches(stored []byte) bool {
	return subtle.ConstantTimeCompare(f[:], stored) == 1
}

// Reference is what the wallet knows one operation by: its `reference` and the
// outbound Idempotency-Key are this same string (contract section 3).
type Reference uuid.UUID

func (r Reference) String() string { return uuid.UUID(r).String() }

// DeriveReference is the reference of r's payment: a UUIDv8 over the SHA-256 of
// caller, operation, key and fingerprint. Because it is derived and not drawn, a
// request that is claimed a second time after a failover has lost the first
// claim carries the same one, and the wallet's duplicate check still holds. The
// fingerprint is part of it so that a duplicate answer can never stand for an
// amount that the wallet did not take. See ADR 0003.
func (r Request) DeriveReference() Reference {
	_, reference := r.Identify()
	return reference
}

// Identify is the Fingerprint and, derived with it, the Reference.
func (r Request) Identify() (Fingerprint, Reference) {
	fingerprint := r.Fingerprint()
	return fingerprint, deriveReference(r.Caller, r.Operation, r.Key, fingerprint)
}

func deriveReference(caller string, operation Operation, key Key, fingerprint Fingerprint) Reference {
	c := newCanonical("safeledger/reference/1").text(caller).text(string(operation)).text(string(key)).count(len(fingerprint))
	return append(c, fingerprint[:]...).reference()
}

// Reversal is the reference of the reversal that undoes what r names: derived
// from it, so that there can only ever be one.
func (r Reference) Reversal() Reference {
	return newCanonical("safeledger/reversal/1").text(r.String()).reference()
}

// canonical is the length-prefixed form that fingerprints and references are hashes of,
// as far as it is written. Each part is appended and the whole given back, as by append:
// a form that was written through a pointer could not stay on the stack.
type canonical []byte

// usualForm is room for the form of a request without metadata.
const usualForm = 512

func newCanonical(version string) canonical {
	return make(canonical, 0, usualForm).text(version)
}

func (c canonical) count(n int) canonical {
	return binary.BigEndian.AppendUint32(c, uint32(n)) //nolint:gosec // bounded by the 16 KiB of a request body
}

func (c canonical) text(s string) canonical {
	return append(c.count(len(s)), s...)
}

// optional is a text that need not be there, and is never empty.
func (c canonical) optional(s string) canonical {
	if s == "" {
		return c.count(0)
	}
	return c.count(1).text(s)
}

// members are the string members of an object that need not be there, by name.
func (c canonical) members(m map[string]string) canonical {
	if m == nil {
		return c.count(0)
	}
	c = c.count(1).count(len(m))
	for _, name := range slices.Sorted(maps.Keys(m)) {
		c = c.text(name).text(m[name])
	}
	return c
}

// fingerprint writes what every request may have, and ends it.
func (c canonical) fingerprint(account string, amount Money, tillReference string, metadata map[string]string) Fingerprint {
	c = c.text(account).text(strconv.FormatInt(amount.AmountMinor, 10)).text(amount.Currency).
		optional(tillReference).members(metadata)
	sum := sha256.Sum256(c)
	f := Fingerprint{fingerprintVersion}
	copy(f[1:], sum[:])
	return f
}

// reference makes a UUIDv8 (RFC 9562 section 5.8) of the hash's first 16 bytes.
func (c canonical) reference() Reference {
	sum := sha256.Sum256(c)
	id := uuid.UUID(sum[:16])
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return Reference(id)
}

// Instruction is what one wallet call is about. Every attempt at an operation,
// by any replica at any time, carries the same one.
type Instruction struct {
	Operation Operation // never Reversal: that is a Credit or a Release to the wallet
	Reference Reference
	Account   string // Debit, Hold and Credit
	Amount    Money  // all but Release
	HoldID    string // Capture and Release: the wallet's id of the hold
}

// Instruction is the one wallet call that p may cause.
func (p Payment) Instruction() Instruction {
	return Instruction{Operation: p.Operation, Reference: p.Reference, Account: p.Account, Amount: p.Amount}
}
