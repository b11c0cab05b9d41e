package ledger_test

import (
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/ledger"
	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/migrations"
)

// Whoever is told that a clock is wrong changes it, so a look must not blame a
// clock for a slow network: it tells only what it proves.
func TestSkewIsWhatTheWayCannotExplain(t *testing.T) {
	t.Parallel()
	theirs := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		sent          time.Duration // after theirs, by our clock
		between, want time.Duration
	}{
		"the same time, at once":                  {0, 0, 0},
		"read somewhere on the way":               {-300 * time.Millisecond, 400 * time.Millisecond, 0},
		"read just when it was sent":              {0, time.Second, 0},
		"read just when it came back":             {-time.Second, time.Second, 0},
		"ours is ahead":                           {5 * time.Second, 10 * time.Millisecond, 5 * time.Second},
		"ours is ahead, and the way was slow":     {2 * time.Second, 9 * time.Second, 2 * time.Second},
		"ours is behind":                          {-5 * time.Second, 10 * time.Millisecond, -4990 * time.Millisecond},
		"behind by less than the way can explain": {-2 * time.Second, 9 * time.Second, 0},
	} {
		if got := ledger.Skew(theirs.Add(c.sent), c.between, theirs); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The database's clock and schema as they are, and as a person has spoilt them.
func TestLookTellsClockAndSchema(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l, _ := open(t, db.URL, ledger.Options{}, never)
	got, err := l.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := (ledger.Look{Version: migrations.Latest}); got != want {
		t.Errorf("on one machine: %+v, want %+v", got, want)
	}

	execute(t, db.Connect(t), "INSERT INTO public.goose_db_version (version_id, is_applied) VALUES (99999, true)")
	for _, ahead := range []time.Duration{time.Hour, -time.Hour} {
		pgtest.ShiftClock(t, db.URL, ahead)
		l, _ := open(t, db.URL, ledger.Options{}, never)
		got, err := l.Look(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got.Version != 99999 || got.Skew > -ahead+time.Minute || got.Skew < -ahead-time.Minute {
			t.Errorf("with the database's clock %v ahead: %+v", ahead, got)
		}
	}
}
