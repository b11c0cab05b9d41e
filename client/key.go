package client

import (
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// maxKey is the most characters that a key may have.
const maxKey = 255

// NewKey gives a new idempotency key, a UUIDv7: its beginning is the time, which
// keeps the service's index small. Take one for each attempt of a customer to pay,
// and store it before it is used: it is by the key that a lost answer is found again.
func NewKey() (string, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return "", fmt.Errorf("client: make a key: %w", err)
	}
	return id.String(), nil
}

// checkKey refuses a key that the service would refuse, and the two that no proxy
// would leave alone in a path: a till could pay with them and never ask for them.
func checkKey(key string) error {
	switch {
	case key == "" || len(key) > maxKey || !visible(key):
		return errors.New("client: an idempotency key has 1 to 255 visible ASCII characters")
	case key == "." || key == "..":
		return errors.New(`client: the keys "." and ".." cannot be asked for by key`)
	}
	return nil
}

// visible reports whether s is made of visible ASCII characters.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] < 0x21 || s[i] > 0x7e {
			return false
		}
	}
	return true
}

// quoted is key as an RFC 8941 string, the spelling that has no second reading.
func quoted(key string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
}
