package payment_test

import (
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/safeledger/safeledger/internal/payment"
)

// Both spellings of a key are the same key: a till that begins to quote its keys
// after an update must not pay twice.
func TestBareAndQuotedKeysAreTheSameKey(t *testing.T) {
	t.Parallel()
	for field, want := range map[string]payment.Key{
		`abc`:                                  `abc`,
		`"abc"`:                                `abc`,
		`a"b`:                                  `a"b`,
		`"a\"b"`:                               `a"b`,
		`a\b`:                                  `a\b`,
		`"a\\b"`:                               `a\b`,
		`~!@#$%^&*()`:                          `~!@#$%^&*()`,
		strings.Repeat("k", 255):               payment.Key(strings.Repeat("k", 255)),
		`"` + strings.Repeat(`\"`, 255) + `"`:  payment.Key(strings.Repeat(`"`, 255)),
		`01890a5d-ac96-774b-bcce-b302099a8057`: `01890a5d-ac96-774b-bcce-b302099a8057`,
	} {
		got, err := payment.ParseKey(field)
		if err != nil || got != want {
			t.Errorf("ParseKey(%q): got %q, %v; want %q", field, got, err, want)
		}
	}
}

// A26: what is no key is refused cleanly, never handed to the database.
func TestMalformedKeysAreRefused(t *testing.T) {
	t.Parallel()
	for _, field := range []string{
		``, ` `, `a b`, "a\tb", "a\x00b", "a\x7f", "é", `"`, `""`, `"abc`, `"abc"x`, `"abc";a=1`, `"a b"`, `"a\b"`, `"abc\`, `"abc\"`,
		`"é"`, strings.Repeat("k", 256), `"` + strings.Repeat("k", 256) + `"`,
	} {
		if key, err := payment.ParseKey(field); err == nil {
			t.Errorf("ParseKey(%q) was taken for the key %q", field, key)
		}
	}
}

// Every key can be quoted, and means the same then.
func TestQuotingNeverChangesAKey(t *testing.T) {
	t.Parallel()
	quote := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.StringMatching(`[!-~]{1,255}`).Draw(t, "key")
		got, err := payment.ParseKey(`"` + quote.Replace(raw) + `"`)
		if err != nil || string(got) != raw {
			t.Fatalf("got %q, %v", got, err)
		}
	})
}

// The index on the ledger's identities stays in the order of arrival for tills
// whose keys carry their time, and such keys sort behind those that do not.
func TestKeyHashBeginsWithTheTimeOfTheKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[payment.Key]string{
		"01890a5d-ac96-774b-bcce-b302099a8057":  "01890a5dac96",
		"01890A5D-AC96-774B-BCCE-B302099A8057":  "01890a5dac96",
		"01ARZ3NDEKTSV4RRFFQ69G5FAV":            "01563e3ab5d3",
		"01arz3ndektsv4rrffq69g5fav":            "01563e3ab5d3",
		"7ZZZZZZZZZZZZZZZZZZZZZZZZZ":            "ffffffffffff",
		"8ZZZZZZZZZZZZZZZZZZZZZZZZZ":            "000000000000", // 130 bits are no ULID
		"01ARZ3NDEKTSV4RRFFQ69G5FAU":            "000000000000", // U is not one of its digits
		"01890a5d-ac96-474b-bcce-b302099a8057":  "000000000000", // a UUIDv4 has no time
		"01890a5d-ac96-774b-7cce-b302099a8057":  "000000000000", // another variant
		"01890a5d-ac96-774b-bcce-b302099a805z":  "000000000000",
		"01890a5d-ac96-774b-bcce-b302099a8057x": "000000000000",
		"till-7/2026-11-29/4711":                "000000000000",
	} {
		hash := key.Hash()
		if got := hex.EncodeToString(hash[:6]); got != want {
			t.Errorf("time of %q: got %s, want %s", key, got, want)
		}
	}
}

// Fingerprints and references are stored for good, and the wallet knows the latter.
// A release that makes them otherwise answers every repeat of an older key with a
// mismatch, and undoes what nobody did. The values were computed apart from this
// code, from the form that canonical documents.
func TestFingerprintsAndReferencesAreTheSameInEveryRelease(t *testing.T) {
	t.Parallel()
	amount, metadata := payment.Money{AmountMinor: 5, Currency: "EUR"}, map[string]string{"b": "1", "a": ""}
	debit := payment.Request{
		Caller: "till", Operation: payment.Debit, Key: "key",
		Account: "A", Amount: amount, TillReference: "x", Metadata: metadata,
	}
	credit := payment.FollowUpRequest{
		Caller: "till", Kind: payment.Credit, Key: "key", Of: payment.Debit, PaymentID: uuid.Max,
		Account: "A", Amount: amount, TillReference: "x", Metadata: metadata,
	}
	payout := payment.FollowUpRequest{Kind: payment.Credit, Account: "A", Amount: amount}
	for want, got := range map[string]payment.Fingerprint{
		"01557e2f34abb68b2282d8ed6db7e8fe6fae2a5b6e60fb79f2c3896f60df68b88e": debit.Fingerprint(),
		"0193e38f6460a2e2b46d4b54241565c072ca268eeeed2a33045cdc7c5cd8a32bdb": credit.Fingerprint(),
		"0189b562381c46f7d09cdf4ec9e7369784869be4d168c839b87d799fa359725e09": payout.Fingerprint(),
	} {
		if hex.EncodeToString(got[:]) != want {
			t.Errorf("fingerprint %x, was %s", got, want)
		}
	}
	for want, got := range map[string]payment.Reference{
		"4879193c-0e4a-87f3-8263-02a189191210": debit.DeriveReference(),
		"e675a02d-1827-878d-9726-b9b18939d70e": debit.DeriveReference().Reversal(),
		"dbe65dd6-a547-81f9-91f5-a34e4c7f6958": credit.DeriveReference(),
	} {
		if got.String() != want {
			t.Errorf("reference %s, was %s", got, want)
		}
	}
}

// A till's retry may be spelled in another order; a different value is a
// different request, whatever it looks like when the parts are run together.
func TestFingerprintSeesEveryValueAndNothingElse(t *testing.T) {
	t.Parallel()
	base := payment.Request{
		Caller: "store-17", Operation: payment.Debit, Key: "k", Account: "ab",
		Amount: payment.Money{AmountMinor: 12, Currency: "EUR"}, TillReference: "r", Metadata: map[string]string{"a": "b", "c": "d"},
	}
	changed := map[string]func(*payment.Request){
		"operation":          func(r *payment.Request) { r.Operation = payment.Hold },
		"account":            func(r *payment.Request) { r.Account = "abc" },
		"account and amount": func(r *payment.Request) { r.Account, r.Amount.AmountMinor = "ab1", 2 },
		"amount":             func(r *payment.Request) { r.Amount.AmountMinor = 13 },
		"currency":           func(r *payment.Request) { r.Amount.Currency = "USD" },
		"reference":          func(r *payment.Request) { r.TillReference = "s" },
		"no reference":       func(r *payment.Request) { r.TillReference = "" },
		"no metadata":        func(r *payment.Request) { r.Metadata = nil },
		"empty metadata":     func(r *payment.Request) { r.Metadata = map[string]string{} },
		"metadata value":     func(r *payment.Request) { r.Metadata["a"] = "x" },
		"metadata shifted":   func(r *payment.Request) { r.Metadata = map[string]string{"a": "bc", "d": ""} },
	}
	seen := map[payment.Fingerprint]string{base.Fingerprint(): "base"}
	for name, change := range changed {
		r := base
		r.Metadata = maps.Clone(base.Metadata)
		change(&r)
		f := r.Fingerprint()
		if other, ok := seen[f]; ok {
			t.Errorf("%s has the fingerprint of %s", name, other)
		}
		seen[f] = name
		if base.Fingerprint().Matches(f[:]) {
			t.Errorf("%s matches the base", name)
		}
	}
	same := base
	same.Caller, same.Key = "store-18", "other" // part of the identity, not of the request
	f := same.Fingerprint()
	if !base.Fingerprint().Matches(f[:]) {
		t.Error("the same request under another identity has another fingerprint")
	}
}

// The wallet's duplicate check is the last wall after a failover that lost the
// claim: it only holds if the same request always derives the same reference, and
// no other request does.
func TestReferencesAreDerivedNotDrawn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := request(t, "a"), request(t, "b")
		again := a
		again.Metadata = maps.Clone(a.Metadata)
		if a.DeriveReference() != again.DeriveReference() {
			t.Fatal("one request, two references")
		}
		same := a.Caller == b.Caller && a.Key == b.Key && a.Fingerprint() == b.Fingerprint()
		if (a.DeriveReference() == b.DeriveReference()) != same {
			t.Fatalf("references of %+v and %+v: equal must be %v", a, b, same)
		}
		id := uuid.UUID(a.DeriveReference())
		if id.Version() != 8 || id.Variant() != uuid.RFC4122 {
			t.Fatalf("%s is no UUIDv8", id)
		}
		if a.DeriveReference().Reversal() == a.DeriveReference() {
			t.Fatal("a reversal needs a reference of its own")
		}
		if a.DeriveReference().Reversal() != again.DeriveReference().Reversal() {
			t.Fatal("one payment, two reversals")
		}
	})
}

func request(t *rapid.T, label string) payment.Request {
	return payment.Request{
		Caller:    rapid.SampledFrom([]string{"a", "aa"}).Draw(t, label+" caller"),
		Operation: rapid.SampledFrom([]payment.Operation{payment.Debit, payment.Hold}).Draw(t, label+" operation"),
		Key:       payment.Key(rapid.SampledFrom([]string{"a", "aa", "k"}).Draw(t, label+" key")),
		Account:   rapid.SampledFrom([]string{"x", "y"}).Draw(t, label+" account"),
		Amount:    payment.Money{AmountMinor: rapid.Int64Range(1, 2).Draw(t, label+" amount"), Currency: "EUR"},
	}
}

// A till trusts that CANCELLED and WALLET_… were said by SafeLedger, and a code
// is stored for good: a wallet may put neither of ours nor anything odd there.
func TestWalletCodesAreUsableOrReplaced(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]payment.Code{
		"INSUFFICIENT_FUNDS":    "INSUFFICIENT_FUNDS",
		"A":                     "A",
		"E42":                   "E42",
		strings.Repeat("A", 64): payment.Code(strings.Repeat("A", 64)),
		strings.Repeat("A", 65): payment.WalletRejected,
		"":                      payment.WalletRejected,
		"insufficient_funds":    payment.WalletRejected,
		"4XX":                   payment.WalletRejected,
		"_A":                    payment.WalletRejected,
		"A-B":                   payment.WalletRejected,
		"A\nB":                  payment.WalletRejected,
		"CANCELLED":             payment.WalletRejected,
		"CANCELLED_BY_BANK":     "CANCELLED_BY_BANK",
		"WALLET_TIMEOUT":        payment.WalletRejected,
		"WALLET_UNAVAILABLE":    payment.WalletRejected,
		"WALLETS_CLOSED":        "WALLETS_CLOSED",
	} {
		if got := payment.WalletCode(given); got != want {
			t.Errorf("WalletCode(%q): got %q, want %q", given, got, want)
		}
	}
	retryable := slices.DeleteFunc([]payment.Code{payment.WalletUnavailable, payment.WalletTimeout, payment.WalletRejected, payment.Cancelled, "INSUFFICIENT_FUNDS"},
		func(c payment.Code) bool { return !c.Retryable() })
	if !slices.Equal(retryable, []payment.Code{payment.WalletUnavailable, payment.WalletTimeout}) {
		t.Errorf("retryable codes: got %v", retryable)
	}
}

// Money may have moved behind a decline exactly where the contract says so.
func TestUnprovenOutcomesAreTheOnesThatNeedAReversal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		outcome payment.Outcome
		want    bool
	}{
		{"success", payment.Outcome{Class: payment.Success, Status: 201}, false},
		{"the wallet's own no", payment.Outcome{Class: payment.Rejected, Status: 409, Verdict: true}, false},
		{"somebody's 4xx", payment.Outcome{Class: payment.Rejected, Status: 404}, true},
		{"nothing sent", payment.Outcome{Class: payment.Unavailable, Reason: payment.ReasonConnectFailed}, false},
		{"a gateway's 502", payment.Outcome{Class: payment.Unavailable, Status: 502}, true},
		{"no answer", payment.Outcome{Class: payment.Ambiguous, Reason: payment.ReasonTimeout}, true},
		{"forgotten", payment.Outcome{}, true},
	} {
		if got := c.outcome.Unproven(); got != c.want {
			t.Errorf("%s: unproven is %v, want %v", c.name, got, c.want)
		}
	}
}
