// Package callers knows who may call: the tills and people of CALLERS_FILE,
// each with hashed tokens and scopes (contract section 5). The file holds no
// token in clear, and nothing in this package ever says a token or its hash.
package callers

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"log/slog"
	"slices"

	"github.com/safeledger/safeledger/internal/watchfile"
)

// Scope is something that a caller may do.
type Scope string

// The scopes of contract section 5.
const (
	Till     Scope = "till"     // payments, what follows them, and reading both
	Payout   Scope = "payout"   // credits that name neither a debit nor a hold
	Operator Scope = "operator" // the operators' own calls
)

// Caller is who stands behind a token. Its name is part of every ledger
// identity and therefore permanent: a caller that is renamed is another caller,
// to whom the payments of the old name do not exist.
type Caller struct {
	Name   string
	scopes []Scope
}

// Has reports whether c may do what scope stands for.
func (c Caller) Has(scope Scope) bool {
	return slices.Contains(c.scopes, scope)
}

// Set is the content of one CALLERS_FILE. It is immutable.
type Set struct {
	tokens []token
}

// token says whom the bearer of a token is. A caller has more than one while
// its token is being rotated.
type token struct {
	hash   [sha256.Size]byte
	caller Caller
}

// Authenticate finds the caller behind a presented token. Every stored hash is
// compared in full, whichever of them matches, so that the time that it takes
// tells nothing about any of them.
func (s *Set) Authenticate(presented string) (Caller, bool) {
	hash := sha256.Sum256([]byte(presented))
	found := -1
	for i := range s.tokens {
		equal := subtle.ConstantTimeCompare(hash[:], s.tokens[i].hash[:])
		found = subtle.ConstantTimeSelect(equal, i, found)
	}
	if found < 0 {
		return Caller{}, false
	}
	return s.tokens[found].caller, true
}

// Callers is a CALLERS_FILE in force: it follows the file while the process runs.
type Callers struct {
	file *watchfile.File[*Set]
}

// Load reads the file at path for the first time. A file that is missing or not
// valid is an error here, because there is no earlier one to go on with.
func Load(path string) (*Callers, error) {
	file, err := watchfile.Load(path, Parse)
	if err != nil {
		return nil, err
	}
	return &Callers{file}, nil
}

// Watch follows the file until ctx ends: a change is in force within
// watchfile.Interval, and a new file that is not valid leaves the one before in
// force and is logged.
func (c *Callers) Watch(ctx context.Context, log *slog.Logger) {
	c.file.Watch(ctx, watchfile.Interval, log)
}

// Authenticate finds the caller behind a presented token in the file that is in
// force now.
func (c *Callers) Authenticate(presented string) (Caller, bool) {
	return c.file.Get().Authenticate(presented)
}

// HashToken is what `tokenSha256` must be for a token: lower-case hex. It is for
// whoever writes such a file: `safeledger dev`, tests, an operator's command.
func HashToken(presented string) string {
	hash := sha256.Sum256([]byte(presented))
	return hex.EncodeToString(hash[:])
}
