package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ops"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// command runs `safeledger args` in this process, on the database that the
// environment names.
func command(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var cli commands
	parser, err := kong.New(&cli, kong.Vars{"ops_limit": strconv.Itoa(ops.DefaultLimit)}, kong.Exit(func(int) {}))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return "", err
	}
	var b bytes.Buffer
	err = parsed.Run(&process{ctx: t.Context(), out: &b})
	return b.String(), err
}

// The night that the operators' commands are for, on a real database: a credit is
// parked, found by what the customer knows, read, redriven, and in the end settled by
// hand. Each step says who did it, and what is not parked is left alone.
func TestAnOperatorFindsAParkedCreditAndEndsIt(t *testing.T) {
	db := pgtest.New(t)
	t.Setenv("SAFELEDGER_DATABASE_URL", db.URL)
	t.Setenv("USER", "ada")
	pool, err := ledger.Connect(t.Context(), db.URL, ledger.Options{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	l, err := ledger.New(pool, ledger.Config{Horizon: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	req := payment.Request{
		Caller: "store-17", Operation: payment.Debit, Key: "debit-key", Account: "acc-1001",
		Amount: payment.Money{AmountMinor: 1999, Currency: "EUR"}, TillReference: "receipt 4711",
	}
	claim, err := l.Claim(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	approve := payment.Approve("w-1")
	approve.Calls = []payment.WalletCall{{Call: "debit", Outcome: "success", Reason: payment.ReasonApplied, Status: 201, Took: 12 * time.Millisecond}}
	if _, err := l.Decide(t.Context(), claim.Payment, approve); err != nil {
		t.Fatal(err)
	}
	accepted, err := l.Accept(t.Context(), payment.FollowUpRequest{
		Caller: "store-17", Kind: payment.Credit, Key: "credit-key", PaymentID: claim.Payment.ID, Of: payment.Debit,
		Account: "acc-1001", Amount: payment.Money{AmountMinor: 500, Currency: "EUR"},
	})
	if err != nil || accepted.Status != payment.Accepted {
		t.Fatal(accepted, err)
	}
	debit, credit := claim.Payment.ID.String(), accepted.FollowUp.ID.String()

	says := func(args []string, words ...string) {
		t.Helper()
		out, err := command(t, args...)
		if err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				t.Errorf("%q does not tell %q:\n%s", args, word, out)
			}
		}
		if slices.Contains(args, "--json") && !json.Valid([]byte(out)) {
			t.Errorf("%q: not JSON:\n%s", args, out)
		}
	}
	fails := func(why string, args ...string) {
		t.Helper()
		if out, err := command(t, args...); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want an error of %q\n%s", args, err, why, out)
		}
	}

	says([]string{"ops", "parked"}, "nothing is parked")
	// What the queue has is not for an operator to send again (field report D29).
	fails("the queue has it: credit "+credit, "ops", "redrive", credit, "--reason", "impatience")
	if _, err := pool.Exec(t.Context(),
		`UPDATE public.operations SET state = 'PARKED', park_reason = 'too_old', due_at = NULL WHERE id = $1`, credit); err != nil {
		t.Fatal(err)
	}

	says([]string{"ops", "parked"}, credit, "5.00 EUR", "too_old", "store-17")
	says([]string{"ops", "parked", "--json"}, `"id":"`+credit+`"`, `"amount":500`)
	for _, by := range [][]string{
		{"--key", "debit-key"},
		{"--reference", "receipt 4711"},
		{"--account", "acc-1001"},
		{"--wallet-id", "w-1"},
		{"--amount", "1999", "--currency", "EUR", "--from", "2020-01-01T00:00:00Z"},
	} {
		says(append([]string{"ops", "find"}, by...), debit, "19.99 EUR", "APPROVED")
		says(append([]string{"ops", "find", "--json"}, by...), `"id":"`+debit+`"`)
	}
	says([]string{"ops", "find", "--key", "credit-key"}, credit, "PARKED")
	says([]string{"ops", "find", "--account", "acc-1001", "--until", "2020-01-01T00:00:00Z"}, "nothing was found")
	says([]string{"ops", "show", credit}, credit, "too_old", debit, "outbound key")
	says([]string{"ops", "show", debit}, debit, "receipt 4711", credit)
	says([]string{"ops", "show", debit, "--json"}, `"id":"`+debit+`"`)
	for _, id := range []string{debit, credit} {
		says([]string{"ops", "timeline", id}, "claimed by store-17", "debit success", "12ms", "APPROVED", "credit#1", "PARKED")
	}

	says([]string{"ops", "redrive", credit, "--reason", "the wallet is back"}, "PENDING")
	fails("the queue has it", "ops", "redrive", credit, "--reason", "again")
	says([]string{"ops", "settle", credit, "--not-applied", "--operator", "grace", "--reason", "the wallet's books do not have it"}, "REJECTED")
	fails("it has ended", "ops", "settle", credit, "--applied", "--reason", "again")
	says([]string{"ops", "timeline", debit}, "redrive by ada", "the wallet is back", "settle-not-applied by grace", "REJECTED")
	says([]string{"ops", "parked"}, "nothing is parked")

	fails("there is no such follow-up", "ops", "redrive", uuid.NewString(), "--reason", "r")
	fails("there is no payment or follow-up", "ops", "show", uuid.NewString())
}

// A command that is half right must do nothing at all: which of the two an operator
// meant, who it was and why, nobody may guess.
func TestAnOperatorsCommandIsWholeOrRefused(t *testing.T) {
	t.Setenv("SAFELEDGER_DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing")
	t.Setenv("USER", "")
	id := uuid.NewString()
	for _, test := range []struct {
		args []string
		why  string
	}{
		{[]string{"ops", "settle", id, "--reason", "r", "--operator", "ada"}, "--applied or --not-applied"},
		{[]string{"ops", "settle", id, "--applied", "--not-applied", "--reason", "r", "--operator", "ada"}, "can't be used together"},
		{[]string{"ops", "settle", id, "--applied", "--operator", "ada"}, "--reason"},
		{[]string{"ops", "settle", id, "--applied", "--reason", " ", "--operator", "ada"}, "a reason must be given"},
		{[]string{"ops", "settle", id, "--applied", "--reason", "r", "--operator", ""}, "--operator must not be empty"},
		{[]string{"ops", "redrive", id, "--operator", "ada"}, "--reason"},
		{[]string{"ops", "redrive", "4711", "--reason", "r", "--operator", "ada"}, "must be a UUID"},
		{[]string{"ops", "timeline", "4711"}, "must be a UUID"},
		{[]string{"ops", "find"}, "give at least one of"},
		{[]string{"ops", "find", "--currency", "EUR"}, "give at least one of"},
		{[]string{"ops", "find", "--key", "a b"}, "--key must be"},
		{[]string{"ops", "find", "--amount=-1"}, "an amount must be"},
		{[]string{"ops", "find", "--account", "a", "--limit", "501"}, "a limit must be"},
		{[]string{"ops", "parked", "--limit", "0"}, "a limit must be"},
		{[]string{"ops", "find", "--account", "a", "--from", "yesterday"}, "--from"},
	} {
		if out, err := command(t, test.args...); err == nil || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%q: %v, want an error of %q\n%s", test.args, err, test.why, out)
		}
	}
}

// What an old release would redrive or settle on a schema that no longer takes it is
// anybody's guess; on one that still does, an operator is not kept from looking.
func TestOperatorsAreKeptFromASchemaThatDoesNotTakeThisRelease(t *testing.T) {
	for name, c := range map[string]struct {
		sql     string
		refused bool
	}{
		"takes it": {"INSERT INTO schema_compatibility VALUES (99999, 1)", false},
		"does not": {"INSERT INTO schema_compatibility VALUES (99999, 99998)", true},
	} {
		db := pgtest.New(t)
		t.Setenv("SAFELEDGER_DATABASE_URL", db.URL)
		if _, err := db.Connect(t).Exec(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true); "+c.sql); err != nil {
			t.Fatal(err)
		}
		if _, err := command(t, "ops", "parked"); errors.Is(err, ledger.ErrSchemaTooNew) != c.refused || err != nil != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}
