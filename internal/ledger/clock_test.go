package ledger_test

import (
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/migrations"
)

// The database's clock and schema as they are, and as somebody has spoilt them.
func TestLookTellsClockAndSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	look := func() ledger.Look {
		t.Helper()
		l, _ := open(t, db.URL, ledger.Options{}, never)
		seen, err := l.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return seen
	}
	near := func(at, want time.Time) bool { return at.Sub(want).Abs() < time.Minute }

	if seen := look(); seen.Version != migrations.Latest || !near(seen.Clock, time.Now()) {
		t.Errorf("on one machine: %+v, want version %d, now", seen, migrations.Latest)
	}
	execute(t, db.Connect(t), "INSERT INTO public.goose_db_version (version_id, is_applied) VALUES (99999, true)")
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		pgtest.ShiftClock(t, db.URL, ahead)
		if seen := look(); seen.Version != 99999 || !near(seen.Clock, time.Now().Add(ahead)) {
			t.Errorf("with the database's clock %v ahead: %+v", ahead, seen)
		}
	}
}
