package ledger_test

import (
	"testing"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/internal/tracing"
)

// Whoever finds an attempt in the traces must be led to the request that it goes back
// to, whichever replica made it: also the reversal of a decline and of a cancel. Where
// decisions share a transaction, each reversal has its own.
func TestWorkNamesTheRequestThatItGoesBackTo(t *testing.T) {
	t.Parallel()
	l, _ := open(t, pgtest.New(t).URL, ledger.Options{}, never)
	field := func(n string) string { return "00-4bf92f3577b34da6a3ce929d0e0e473" + n + "-00f067aa0ba902b7-01" }
	debit, approvedToo, declined, untraced := approved(t, l, payment.Debit, "debit"), approved(t, l, payment.Debit, "cancelled"), claimed(t, l, "declined"), claimed(t, l, "untraced")
	want := map[string]int{field("1"): 1, field("2"): 1, field("3"): 1, "": 1}

	if _, err := l.Accept(tracing.Continue(t.Context(), []string{field("1")}, nil), ledgertest.Credit(debit, "credit", 250)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.CancelByKey(tracing.Continue(t.Context(), []string{field("2")}, nil), approvedToo.Caller, payment.Debit, "cancelled", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Decide(tracing.Continue(t.Context(), []string{field("3")}, nil), declined, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Decide(t.Context(), untraced, payment.DeclineAndReverse(payment.WalletTimeout)); err != nil {
		t.Fatal(err)
	}
	for _, w := range leased(t, l, order(10)) {
		want[w.Traceparent]--
	}
	for name, n := range want {
		if n != 0 {
			t.Errorf("%q is named %d times too few", name, n)
		}
	}
}

// What is no traceparent must not get in by any way: workers of all releases read it.
func TestOnlyATraceparentIsStored(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	accepted(t, l, ledgertest.Credit(approved(t, l, payment.Debit, "debit"), "credit", 250))
	conn := db.Connect(t)
	for _, bad := range []string{"", "account=ANNA", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"} {
		if _, err := conn.Exec(t.Context(), "UPDATE public.operations SET traceparent = $1", bad); err == nil {
			t.Errorf("%q is stored", bad)
		}
	}
}
