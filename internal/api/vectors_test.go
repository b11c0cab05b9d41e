package api_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The fingerprint tells a replay from a misuse, and the reference is the
// wallet's last wall against a second debit. If either came out differently in
// a new version, every till's replay would be refused or, after a failover,
// paid twice. The vectors were calculated by a program of their own; they go
// through the whole handler here, so that decoding is part of what is pinned.
func TestFingerprintsAndReferencesAreTheGoldenOnes(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../api/fingerprint-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	type vector struct {
		Name, Caller, Operation, IdempotencyKey            string
		Body                                               json.RawMessage
		Fingerprint, Reference, ReversalReference, KeyHash string
	}
	var file struct{ Vectors []vector }
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Vectors) < 10 {
		t.Fatalf("%d vectors", len(file.Vectors))
	}
	references := map[string]string{}
	for _, want := range file.Vectors {
		s := newService(t, nil)
		quoted, err := json.Marshal(want.IdempotencyKey)
		if err != nil {
			t.Fatal(err)
		}
		w := s.send(sent{path: "/" + want.Operation + "s", key: headerKey(want.IdempotencyKey, quoted), body: string(want.Body)})
		requests := s.requests()
		if len(requests) != 1 {
			t.Fatalf("%s: %d %s", want.Name, w.Code, w.Body)
		}
		req := requests[0]
		req.Caller = want.Caller // the token says so elsewhere
		fingerprint, hash, reference := req.Fingerprint(), req.Key.Hash(), req.DeriveReference()
		got := want
		got.Fingerprint, got.KeyHash = hex.EncodeToString(fingerprint[:]), hex.EncodeToString(hash[:])
		got.Reference, got.ReversalReference = reference.String(), reference.Reversal().String()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
		if other, taken := references[got.Reference]; taken {
			t.Errorf("%q and %q have the same reference", want.Name, other)
		}
		references[got.Reference] = want.Name
	}
}

// The same of credits, captures and releases: their reference is what keeps a
// second attempt, next week or after a failover, from giving the money back twice.
func TestFingerprintsAndReferencesOfFollowUpsAreTheGoldenOnes(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("../../api/fingerprint-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	type vector struct {
		Name, Caller, Operation, Path, IdempotencyKey string
		Body                                          json.RawMessage
		Fingerprint, Reference                        string
	}
	var file struct{ FollowUps []vector }
	if err := json.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.FollowUps) < 10 {
		t.Fatalf("%d vectors", len(file.FollowUps))
	}
	references := map[string]string{}
	for _, want := range file.FollowUps {
		s := newService(t, nil)
		w := s.send(sent{path: want.Path, token: payoutToken, key: want.IdempotencyKey, body: string(want.Body)})
		if len(s.ledger.asked) != 1 {
			t.Fatalf("%s: %d %s", want.Name, w.Code, w.Body)
		}
		req := s.ledger.asked[0]
		req.Caller = want.Caller // the token says so elsewhere
		fingerprint := req.Fingerprint()
		got := want
		got.Operation, got.Fingerprint, got.Reference = string(req.Kind), hex.EncodeToString(fingerprint[:]), req.DeriveReference().String()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", want.Name, diff)
		}
		if other, taken := references[got.Reference]; taken {
			t.Errorf("%q and %q have the same reference", want.Name, other)
		}
		references[got.Reference] = want.Name
	}
}

// headerKey is a key as a header field: bare, or quoted where a bare one would
// be read as quoted.
func headerKey(key string, quoted []byte) string {
	if key[0] == '"' {
		return string(quoted)
	}
	return key
}
