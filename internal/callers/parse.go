package callers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxNameLength bounds a caller's name, in characters. It stands in every row
// and index entry of the caller's payments.
const maxNameLength = 64

// The members of a CALLERS_FILE. Members are pointers where absent and empty
// must be told apart.
type (
	fileJSON struct {
		Callers *[]callerJSON `json:"callers"`
	}
	callerJSON struct {
		Name   string   `json:"name"`
		Tokens hashes   `json:"tokenSha256"`
		Scopes []string `json:"scopes"`
	}
)

// hashes is one hash, or a list of them while a token is being rotated.
type hashes []string

// UnmarshalJSONFrom reads the one form or the other.
func (h *hashes) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == jsontext.KindString {
		var one string
		if err := json.UnmarshalDecode(dec, &one); err != nil {
			return err
		}
		*h = hashes{one}
		return nil
	}
	return json.UnmarshalDecode(dec, (*[]string)(h))
}

// Parse reads the content of a CALLERS_FILE, strictly: a misspelt member or
// scope would otherwise only be noticed by the till that is turned away. Its
// errors name the place, never a hash, because they go to the log.
func Parse(content []byte) (*Set, error) {
	var file fileJSON
	if err := json.Unmarshal(content, &file, json.RejectUnknownMembers(true)); err != nil {
		return nil, place(err)
	}
	if file.Callers == nil || len(*file.Callers) == 0 {
		return nil, errors.New("/callers: must list at least one caller")
	}

	set := &Set{}
	names := make(map[string]bool)
	owners := make(map[[sha256.Size]byte]bool)
	for i, entry := range *file.Callers {
		at := fmt.Sprintf("/callers/%d", i)
		if err := checkName(entry.Name); err != nil {
			return nil, fmt.Errorf("%s/name: %w", at, err)
		}
		if names[entry.Name] {
			return nil, fmt.Errorf("%s/name: %q is there twice", at, entry.Name)
		}
		names[entry.Name] = true

		scopes, err := parseScopes(entry.Scopes)
		if err != nil {
			return nil, fmt.Errorf("%s/scopes: %w", at, err)
		}
		caller := Caller{Name: entry.Name, scopes: scopes}

		if len(entry.Tokens) == 0 {
			return nil, fmt.Errorf("%s/tokenSha256: must be a hash, or a list of at least one", at)
		}
		for _, text := range entry.Tokens {
			hash, err := parseHash(text)
			if err != nil {
				return nil, fmt.Errorf("%s/tokenSha256: %w", at, err)
			}
			// Two callers behind one token: whose payment would it be?
			if owners[hash] {
				return nil, fmt.Errorf("%s/tokenSha256: the same token is there twice", at)
			}
			owners[hash] = true
			set.tokens = append(set.tokens, token{hash, caller})
		}
	}
	return set, nil
}

func checkName(name string) error {
	if len(name) == 0 || len(name) > maxNameLength {
		return errors.New("must be 1 to 64 of A-Z a-z 0-9 . _ : -")
	}
	for _, c := range []byte(name) {
		switch {
		case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		case c == '.', c == '_', c == ':', c == '-':
		default:
			return errors.New("must be 1 to 64 of A-Z a-z 0-9 . _ : -")
		}
	}
	return nil
}

func parseScopes(texts []string) ([]Scope, error) {
	if len(texts) == 0 {
		return nil, errors.New("must list at least one of till, payout, operator")
	}
	scopes := make([]Scope, 0, len(texts))
	for _, text := range texts {
		scope := Scope(text)
		switch scope {
		case Till, Payout, Operator:
		default:
			return nil, fmt.Errorf("%q is not one of till, payout, operator", text)
		}
		if slices.Contains(scopes, scope) {
			return nil, fmt.Errorf("%q is there twice", text)
		}
		scopes = append(scopes, scope)
	}
	return scopes, nil
}

func parseHash(text string) (hash [sha256.Size]byte, err error) {
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(hash) {
		// Not wrapped: the error of hex would repeat a part of what may be a token
		// that somebody forgot to hash.
		return hash, errors.New("must be 64 hexadecimal digits")
	}
	hash = [sha256.Size]byte(raw)
	if hash == sha256.Sum256(nil) {
		return hash, errors.New("is the hash of an empty token")
	}
	return hash, nil
}

// place says where and in which way the file is not what was asked for, in
// words of our own: the library's may repeat a value.
func place(err error) error {
	if syntax, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		if errors.Is(err, jsontext.ErrDuplicateName) {
			return fmt.Errorf("%s: is there twice", pointer(syntax.JSONPointer))
		}
		return fmt.Errorf("%s: is not valid JSON, at byte %d", pointer(syntax.JSONPointer), syntax.ByteOffset)
	}
	if semantic, ok := errors.AsType[*json.SemanticError](err); ok {
		if errors.Is(err, json.ErrUnknownName) {
			return fmt.Errorf("%s: is not a known member", pointer(semantic.JSONPointer))
		}
		return fmt.Errorf("%s: has the wrong type", pointer(semantic.JSONPointer))
	}
	return errors.New("is not a file of callers")
}

func pointer(p jsontext.Pointer) string {
	if p == "" {
		return "the document"
	}
	return string(p)
}
