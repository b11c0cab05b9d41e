package ledger_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/ledger/ledgertest"
	"github.com/safeledger/safeledger/internal/pgtest"
)

// docs/operations.md and SECURITY.md tell which rights the service's own user needs. With
// fewer it fails in the middle of a payment, with more than it needs a stolen password
// opens more: it keeps every promise with these, and forgets nothing but wallet calls.
func TestTheServicesUserNeedsNoMoreThanThePageSays(t *testing.T) {
	t.Parallel()
	asService := func(t *testing.T, horizon time.Duration) *ledger.Ledger {
		t.Helper()
		db := pgtest.New(t)
		owner := db.Connect(t)
		service, err := url.Parse(db.URL)
		if err != nil {
			t.Fatal(err)
		}
		role := "service_of_" + service.Path[1:] // of the server, which goes with the tests
		execute(t, owner, `CREATE ROLE "`+role+`" LOGIN PASSWORD 'of the service'`)
		execute(t, owner, `GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO "`+role+`"`)
		execute(t, owner, `GRANT DELETE ON public.wallet_calls TO "`+role+`"`)
		service.User = url.UserPassword(role, "of the service")
		l, _ := open(t, service.String(), ledger.Options{}, horizon)
		return l
	}
	ledgertest.Run(t, func(t *testing.T, horizon time.Duration) ledgertest.Ledger { return suite{asService(t, horizon)} })

	l := asService(t, never)
	if err := l.CheckSchema(t.Context()); err != nil {
		t.Errorf("look at the schema: %v", err)
	}
	if _, err := l.Recover(t.Context()); err != nil {
		t.Errorf("recover: %v", err)
	}
	if _, err := l.Thin(t.Context(), time.Hour); err != nil {
		t.Errorf("thin: %v", err)
	}
	if _, err := l.Exposures(t.Context()); err != nil {
		t.Errorf("measure what is open: %v", err)
	}
}
