package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// loaded is a database that was filled beforehand.
type loaded struct {
	database      string
	rows, waiting int
	keys          string
}

// database is the one that p is measured on: a new one without a payment, or one that
// holds what p asks for, which is kept for the points that ask for the same and is not
// the measurement's to drop.
func (b *bench) database(ctx context.Context, p point) (database string, borrowed bool, err error) {
	w := b.world
	if p.Rows == 0 && p.Waiting == 0 {
		if database, err = w.copyTemplate(ctx); err != nil {
			return "", false, err
		}
		if p.Phase == phaseQueue {
			seconds := (b.options.WarmUp + b.options.Measure + time.Second).Seconds()
			if err := w.fill(ctx, database, waitingNow, int(itemsPerSecond*seconds), nil); err != nil {
				return database, false, err
			}
		}
		return database, false, w.settle(ctx)
	}
	want := loaded{rows: p.Rows, waiting: p.Waiting, keys: p.Keys}
	want.database = b.full.database
	if b.full == want {
		return want.database, true, nil
	}
	if b.full.database != "" {
		if err := w.drop(ctx, b.full.database); err != nil {
			return "", false, err
		}
		b.full = loaded{}
	}
	if want.database, err = w.copyTemplate(ctx); err != nil {
		return "", false, err
	}
	b.full = want
	return want.database, true, b.fill(ctx, want)
}

// fill fills the database, and keeps how large it has become.
func (b *bench) fill(ctx context.Context, l loaded) error {
	statement, n := waitingLong, l.waiting
	switch l.keys {
	case orderedKeys:
		statement, n = paymentsOrdered, l.rows
	case randomKeys:
		statement, n = paymentsRandom, l.rows
	}
	began := time.Now()
	if err := b.world.fill(ctx, l.database, statement, n, b.progress.loading(n)); err != nil {
		return err
	}
	took := time.Since(began)
	if err := b.world.settle(ctx); err != nil {
		return err
	}
	sizes, err := b.world.sizes(ctx, l.database)
	if err != nil {
		return err
	}
	for _, s := range sizes {
		m := measurement{
			point: point{Phase: phaseSize, Variant: s.Name, Keys: l.keys, Rows: l.rows, Waiting: l.waiting, Round: 1},
			At:    time.Now().UTC().Truncate(time.Second), Values: map[string]float64{bytesOnDisk: float64(s.Bytes), loadingSeconds: took.Seconds()},
		}
		if b.results.has(m.point) { // a run that goes on
			continue
		}
		if err := b.results.add(m); err != nil {
			return err
		}
	}
	return nil
}

// The statements that fill a database, for the numbers @from to @until. The rows are
// what the service would have written in the month before, at an even rate; before,
// because recovery looks at what is later than the schema.
const (
	paid = `
WITH asked AS (
SELECT i, at, at + interval '4 milliseconds' AS decided_at, public.uuid_v7(at) AS id, %s AS key
FROM (SELECT i, now() - interval '30 days' * (1 - i::float8 / @all::float8) - interval '1 hour' AS at
      FROM generate_series(@from::bigint, @until::bigint) AS i) AS times),
paid AS (
INSERT INTO public.payments (id, caller, operation, key_hash, fingerprint, reference,
    account, amount_minor, currency, till_reference, state, wallet_id, created_at, decided_at)
SELECT id, 'bench', 'debit', %s || sha256(convert_to(key::text, 'UTF8')), '\x01'::bytea || sha256(int8send(i)), gen_random_uuid(),
    'bench-' || lpad((i %% 10000)::text, 5, '0'), 100 + i %% 900, 'EUR', key::text,
    'APPROVED', 'debit-bench000-' || lpad(i::text, 7, '0'), at, decided_at
FROM asked)
INSERT INTO public.wallet_calls (subject_id, fence, n, attempt, call, outcome, reason, status, at, took)
SELECT id, 0, 1, 1, 'debit', 'success', 'applied', 201, at, interval '1 millisecond' FROM asked`

	waiting = `
INSERT INTO public.operations (id, kind, outbound_key, caller, key_hash, fingerprint, account, amount_minor, currency,
    state, turn, created_at, due_at, tried_from)
SELECT public.uuid_v7(at), 'credit', gen_random_uuid(), 'bench', %s, '\x01'::bytea || sha256(int8send(i)),
    'bench-' || lpad((i %% 10000)::text, 5, '0'), 100 + i %% 900, 'EUR', 'PENDING', 'FIRST', at, %s, at
FROM (SELECT i, now() - interval '1 hour' * (2 - i::float8 / @all::float8) AS at
      FROM generate_series(@from::bigint, @until::bigint) AS i) AS times`

	// timeOfID is the six bytes with which a key that carries its time begins; a key that
	// carries none begins with zeros.
	timeOfID   = `substring(uuid_send(key) FOR 6)`
	noTime     = `'\x000000000000'::bytea`
	hashedNow  = `substring(uuid_send(public.uuid_v7(at)) FOR 6) || sha256(int8send(i))`
	inManyDays = `now() + interval '30 days' + interval '1 day' * random()`
	alreadyDue = `at`
)

//nolint:gochecknoglobals // constants, but for the Sprintf
var (
	paymentsOrdered = fmt.Sprintf(paid, `public.uuid_v7(at)`, timeOfID)
	paymentsRandom  = fmt.Sprintf(paid, `gen_random_uuid()`, noTime)
	waitingLong     = fmt.Sprintf(waiting, hashedNow, inManyDays)
	waitingNow      = fmt.Sprintf(waiting, hashedNow, alreadyDue)
)

// chunk is how many rows are written by one statement: few enough to tell how far it
// has come.
const chunk = 100_000

// fill writes n rows and leaves the tables as autovacuum would, sooner or later.
func (w *world) fill(ctx context.Context, database, statement string, n int, tell func(done int)) (err error) {
	conn, err := pgx.Connect(ctx, w.url(database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	for from := 1; from <= n; from += chunk {
		until := min(from+chunk-1, n)
		if _, err := conn.Exec(ctx, statement, pgx.NamedArgs{"from": from, "until": until, "all": n}); err != nil {
			return fmt.Errorf("fill the database: %w", err)
		}
		if tell != nil {
			tell(until)
		}
	}
	_, err = conn.Exec(ctx, "VACUUM (ANALYZE)")
	return err
}

// followUps counts those that have not ended, and all.
func (w *world) followUps(ctx context.Context, database string) (left, all int, err error) {
	conn, err := pgx.Connect(ctx, w.url(database))
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	err = conn.QueryRow(ctx, "SELECT count(*) FILTER (WHERE due_at IS NOT NULL), count(*) FROM public.operations").Scan(&left, &all)
	return left, all, err
}

// size is that of a table or index on the disk.
type size struct {
	Name  string
	Bytes int64
}

// sizes are those that hold something.
func (w *world) sizes(ctx context.Context, database string) ([]size, error) {
	conn, err := pgx.Connect(ctx, w.url(database))
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	rows, err := conn.Query(ctx, `
SELECT relname::text AS name, pg_relation_size(oid) AS bytes FROM pg_catalog.pg_class
WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'i') AND pg_relation_size(oid) > 1 << 20
ORDER BY 2 DESC`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByName[size])
}
