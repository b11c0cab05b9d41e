package checker

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The checker finds an effect in the wallet's book by what it derives itself. If it
// derived something else than the contract says, it would accuse the innocent, or join
// nothing and acquit everybody.
func TestDerivesWhatTheGoldenVectorsSay(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../api/fingerprint-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	type vector struct {
		Name, Caller, Operation, Path string
		Key                           string         `json:"idempotencyKey"`
		Body                          jsontext.Value `json:"body"`
		Fingerprint, Reference        string
		Reversal                      string `json:"reversalReference"`
		KeyHash                       string
	}
	var all struct {
		Vectors   []vector `json:"vectors"`
		FollowUps []vector `json:"followUps"`
	}
	if err := json.Unmarshal(text, &all, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatal(err)
	}
	if len(all.Vectors) < 10 || len(all.FollowUps) < 10 {
		t.Fatalf("%d and %d vectors", len(all.Vectors), len(all.FollowUps))
	}
	for _, v := range append(all.Vectors, all.FollowUps...) {
		t.Run(v.Name, func(t *testing.T) {
			t.Parallel()
			k := kindOf(v.Operation)
			path := v.Path
			if path == "" {
				path = "/" + v.Operation + "s"
			}
			where := aim("POST", path)
			if where.purpose != posting || where.kind != k {
				t.Fatalf("POST %s is taken for %+v", path, where)
			}
			body, err := parse(k, string(v.Body))
			if err != nil {
				t.Fatal(err)
			}
			f := body.fingerprint(k, where.id)
			if got := hex.EncodeToString(f[:]); got != v.Fingerprint {
				t.Errorf("fingerprint %s, want %s", got, v.Fingerprint)
			}
			reference := f.reference(v.Caller, k, v.Key)
			if reference.String() != v.Reference {
				t.Errorf("reference %s, want %s", reference, v.Reference)
			}
			if got := reversalOf(reference).String(); v.Reversal != "" && got != v.Reversal {
				t.Errorf("reference of the reversal %s, want %s", got, v.Reversal)
			}
			const timeDigits = 12
			if sum := sha256.Sum256([]byte(v.Key)); v.KeyHash != "" && hex.EncodeToString(sum[:]) != v.KeyHash[timeDigits:] {
				t.Errorf("hash of the key %x, want %s", sum, v.KeyHash[timeDigits:])
			}
		})
	}
}

// A call that is attributed to another key than SafeLedger's is judged by the wrong row.
func TestCallsAreAttributedAsTheContractSays(t *testing.T) {
	t.Parallel()
	const id = "019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77"
	for line, want := range map[string]target{
		"POST /debits":  {purpose: posting, kind: debit},
		"POST /holds":   {purpose: posting, kind: hold},
		"POST /credits": {purpose: posting, kind: credit},
		"POST /payments/by-key/debit/a%2Fb/cancel": {purpose: cancelling, kind: debit, key: "a/b"},
		"GET /payments/by-key/hold/%2541":          {purpose: readingPayment, kind: hold, key: "%41"},
		"GET /operations/by-key/credit/k?x=1":      {purpose: readingOperation, kind: credit, key: "k"},
		"GET /debits":                              {},
		"GET /holds":                               {},
		"GET /credits":                             {},
		"GET /holds/" + id + "/capture":            {},
		"GET /payments/by-key/debit/k/cancel":      {},
		"POST /payments/" + id:                     {},
		"POST /payments/by-key/debit/k":            {},
		"POST /operations/" + id:                   {},
		"POST /operations/by-key/credit/k":         {},
		"POST /holds/" + id + "/release/now":       {},
		"GET /payments/{" + id + "}":               {},
		"GET /payments/by-key/nothing/k":           {},
		"POST /holds/nonsense/capture":             {},
		"GET /payments/by-key/reversal/k":          {},
		"GET /openapi.yaml":                        {},
		"POST /payments/by-key/debit/%zz/cancel":   {},
	} {
		method, path, _ := strings.Cut(line, " ")
		if got := aim(method, path); got != want {
			t.Errorf("%s: got %+v, want %+v", line, got, want)
		}
	}
	if got := aim("GET", "/payments/"+id); got.purpose != readingPayment || got.id.String() != id {
		t.Errorf("a read by id: %+v", got)
	}
	if got := aim("POST", "/holds/"+id+"/release"); got.kind != release || got.id.String() != id {
		t.Errorf("a release: %+v", got)
	}
	for field, want := range map[string]string{
		`k`: "k", `"k"`: "k", `"a\"b\\"`: `a"b\`, ``: "", `"`: "", `"a`: "", `a b`: "", `"a"b"`: "", `"a\x"`: "", `"\"`: "", strings.Repeat("k", 255): strings.Repeat("k", 255), strings.Repeat("k", 256): "", `""`: "",
	} {
		if got := unquote(field); got != want {
			t.Errorf("the key of %s is %q, want %q", field, got, want)
		}
	}
}

// A body that SafeLedger must refuse is no request: nothing can be derived from it, and
// what is stored for it would be nobody's.
func TestWhatIsNoRequestIsNotTakenForOne(t *testing.T) {
	t.Parallel()
	const whole = `{"account":"A","amount":1,"currency":"EUR"}`
	for _, c := range []struct {
		kind kind
		body string
		ok   bool
	}{
		{debit, whole, true},
		{hold, whole, true},
		{credit, whole, true},
		{debit, `{"account":"A","amount":1,"currency":"EUR","reference":"r","metadata":{}}`, true},
		{credit, `{"account":"A","amount":1,"currency":"EUR","debitId":"d"}`, true},
		{credit, `{"account":"A","amount":1,"currency":"EUR","holdId":"h"}`, true},
		{credit, `{"account":"A","amount":1,"currency":"EUR","debitId":"d","holdId":"h"}`, false},
		{debit, `{"account":"A","amount":1,"currency":"EUR","debitId":"d"}`, false},
		{hold, `{"account":"A","amount":1,"currency":"EUR","holdId":"h"}`, false},
		{debit, `{"amount":1,"currency":"EUR"}`, false},
		{debit, `{"account":"A","currency":"EUR"}`, false},
		{credit, `{"account":"A","amount":1}`, false},
		{debit, `{"account":"A","amount":1.5,"currency":"EUR"}`, false},
		{debit, `{"account":"A","amount":1,"currency":"EUR","amount":2}`, false},
		{debit, `{"account":"A","amount":1,"currency":"EUR","more":2}`, false},
		{debit, ``, false},
		{credit, ``, false},
		{capture, ``, true},
		{capture, `{}`, true},
		{capture, `{"amount":1}`, true},
		{capture, `{"account":"A"}`, false},
		{capture, `{"currency":"EUR"}`, false},
		{capture, `{"reference":"r"}`, false},
		{capture, `{"metadata":{}}`, false},
		{capture, `{"debitId":"d"}`, false},
		{release, ``, true},
		{release, `{}`, true},
		{release, `{"amount":1}`, false},
		{release, `{"holdId":"h"}`, false},
	} {
		if _, err := parse(c.kind, c.body); (err == nil) != c.ok {
			t.Errorf("%s %s: %v", c.kind, c.body, err)
		}
	}
}
