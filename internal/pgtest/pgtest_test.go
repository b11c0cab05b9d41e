package pgtest_test

import (
	"testing"

	"github.com/safeledger/safeledger/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// Two tests that saw each other's rows would fail by turns, and be called flaky.
func TestEachTestHasADatabaseOfItsOwn(t *testing.T) {
	t.Parallel()
	first, second := pgtest.New(t), pgtest.New(t)

	if _, err := first.Connect(t).Exec(t.Context(), "UPDATE public.recovery SET low_water = '2001-01-01Z'"); err != nil {
		t.Fatal(err)
	}
	var untouched bool
	if err := second.Connect(t).QueryRow(t.Context(), "SELECT low_water > '2020-01-01Z' FROM public.recovery").Scan(&untouched); err != nil {
		t.Fatal(err)
	}
	if !untouched {
		t.Error("a change in one test's database is seen in another's")
	}
}
