package wallet

import (
	"errors"
	"strings"
)

// Token is the wallet's bearer token. It prints as a placeholder, so that no
// log line or dump of a struct gives it away.
type Token struct{ value string }

// errInvalidToken says what a token must be. It never repeats the token.
var errInvalidToken = errors.New("must hold one bearer token (RFC 6750): letters, digits and -._~+/, then = as padding")

// maxTokenLength keeps the request within what any wallet takes as a header.
const maxTokenLength = 8 << 10

// ParseToken reads a token file, white space around the token apart. It is the
// parse function for watchfile.Load: a rotated token is sent with the next request.
func ParseToken(content []byte) (Token, error) {
	value := strings.TrimSpace(string(content))
	body := strings.TrimRight(value, "=")
	if body == "" || len(value) > maxTokenLength {
		return Token{}, errInvalidToken
	}
	for i := range len(body) {
		c := body[i]
		if (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~+/", rune(c)) {
			return Token{}, errInvalidToken
		}
	}
	return Token{value}, nil
}

// String does not tell the token.
func (t Token) String() string {
	if t.value == "" {
		return "none"
	}
	return "[wallet token]"
}

// GoString does not tell it either.
func (t Token) GoString() string { return t.String() }
