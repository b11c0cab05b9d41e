package ledger

// What hands out the work and takes it back.
const (
	// lease is one statement, so that what is chosen, locked and handed out is the
	// same, and a crash in between leaves nothing half done.
	//
	// A lane is the rows of one kind that draw on one allowance: an index range, read
	// from its oldest and never further than what may be handed out. What is not due
	// yet, and what a later release has put there, is not even looked at, so the cost
	// does not depend on how much is waiting. First attempts that were due before the
	// breaker was last seen open are a lane of their own, which draws on the retries.
	//
	// SKIP LOCKED lets replicas share the lanes without waiting for each other. The
	// row is read again when it is locked: whoever has leased it a moment ago has
	// moved its time, and it is not due any more.
	//
	// A class' rows are numbered from the oldest and divided by its weight: of seven
	// handed out four are reversals, two end holds and one is a credit, as long as
	// there are so many. luck, once per class, is for leases of one or two, in which
	// the credits would otherwise never have their turn.
	//
	// The lease sets the turn to LEASED: if it runs out, the row is found in a lane of
	// its own, before all that wait for their lookup, because another must follow a
	// dead worker within 30 s however long that queue is. Whoever takes over begins by
	// asking what became of the attempt, which may have been sent until now.
	// leased_turn, which is what it was, is taken away by whoever reports: a row that
	// still has one was never reported.
	lease = `
WITH clock AS MATERIALIZED (SELECT clock_timestamp() AS at),
class AS MATERIALIZED (
SELECT kind, class, weight, luck
FROM (SELECT class, weight, random() AS luck FROM (VALUES (0, 4), (1, 2), (2, 1)) AS w (class, weight)) AS weights
JOIN (SELECT kind, CASE kind WHEN 'reversal' THEN 0 WHEN 'capture' THEN 1 WHEN 'release' THEN 1 ELSE 2 END AS class
      FROM unnest(@kinds::text[]) AS kind) AS kinds USING (class)),
lane AS MATERIALIZED (
SELECT class.kind, class.class, class.weight, class.luck, a.turn, a.allowance, a.allowed,
       CASE WHEN a.fresh THEN broken.at ELSE '-infinity' END AS after,
       CASE WHEN a.stale THEN broken.at ELSE clock.at END AS until
FROM class
CROSS JOIN clock
CROSS JOIN (SELECT coalesce(clock.at - @backlog::interval, '-infinity') AS at FROM clock) AS broken
CROSS JOIN (VALUES
    ('LEASED', 'LOOKUP', @lookups::int, false, false),
    ('LOOKUP', 'LOOKUP', @lookups::int, false, false),
    ('RETRY', 'RETRY', @retries::int, false, false),
    ('FIRST', 'RETRY', @retries::int, true, false),
    ('FIRST', 'FIRST', @firsts::int, false, true)) AS a (turn, allowance, allowed, stale, fresh)
WHERE a.allowed > 0 AND NOT (a.stale AND @backlog::interval IS NULL)),
candidate AS (
SELECT lane.class, lane.weight, lane.luck, lane.allowance, lane.allowed, o.*
FROM lane CROSS JOIN LATERAL (
    SELECT id, due_at, turn, leased_turn, resolve
    FROM public.operations
    WHERE kind = lane.kind AND turn = lane.turn AND due_at > lane.after AND due_at <= lane.until
    ORDER BY due_at
    LIMIT least(lane.allowed, @limit::int)
    FOR NO KEY UPDATE SKIP LOCKED) AS o),
fair AS (
SELECT *, (row_number() OVER (PARTITION BY allowance, class ORDER BY due_at, id) - luck) / weight AS share
FROM candidate),
allowed AS (
SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY allowance ORDER BY leased_turn IS NULL, share, class) AS n FROM fair) AS numbered
WHERE n <= allowed),
chosen AS (
SELECT id, CASE turn WHEN 'LEASED' THEN 'LOOKUP' ELSE turn END AS turn, allowance,
       leased_turn IS NOT NULL AS taken_over, resolve, place
FROM (SELECT *, (row_number() OVER (PARTITION BY class ORDER BY due_at, id) - luck) / weight AS place FROM allowed) AS placed
ORDER BY place, class
LIMIT @limit::int),
leased AS (
UPDATE public.operations AS o
SET due_at = clock_timestamp() + @lease::interval, fence = o.fence + 1, attempts = o.attempts + 1,
    turn = 'LEASED', leased_turn = chosen.turn,
    doubt_at = CASE WHEN chosen.taken_over THEN clock_timestamp() ELSE o.doubt_at END
FROM chosen
WHERE o.id = ANY (ARRAY[chosen.id])
RETURNING o.*, chosen.allowance, chosen.taken_over, chosen.place)
SELECT ` + paymentColumnsOfP + `,
       o.id, o.kind, o.fence, o.attempts, o.lookups, o.allowance, o.taken_over, o.resolve OR o.taken_over,
       o.outbound_key, o.reverses, o.account, o.amount_minor, o.currency, o.target_id,
       coalesce(given.back, 0)::bigint, coalesce(given.open, false), o.state,
       greatest(clock.at - o.created_at, interval '0'), greatest(clock.at - o.tried_from, interval '0'),
       greatest(coalesce(clock.at - o.ended_at, interval '0'), interval '0'), o.late_checks,
       CASE WHEN o.doubt_at IS NOT NULL THEN greatest(clock.at - o.doubt_at, interval '0') END,
       o.traceparent
FROM leased AS o
CROSS JOIN clock
LEFT JOIN public.payments AS p ON p.id = ANY (ARRAY[o.payment_id])
LEFT JOIN LATERAL (
    SELECT sum(c.amount_minor) FILTER (WHERE c.state = 'SUCCEEDED') AS back,
           bool_or(c.state IN ('PENDING', 'PARKED')) AS open
    FROM public.operations AS c
    WHERE o.kind = 'reversal' AND c.payment_id = o.payment_id AND (c.kind = 'credit') IS TRUE) AS given ON true
ORDER BY o.place`

	// endsAs is the state that an attempt at o ends in. A release whose hold was cancelled
	// by key meanwhile is all that undoes it: the wallet's no must not end it quietly. A
	// hold that is not active is undone; for anything else a person must look.
	endsAs = `CASE WHEN NOT (o.cancelled AND s.state = 'REJECTED') THEN s.state
         WHEN s.code = 'HOLD_NOT_ACTIVE' THEN 'SUCCEEDED' ELSE 'PARKED' END`

	// settle ends attempts whose lease is still the newest and has not been reported: a
	// worker that was overtaken, however long ago, changes nothing. What it asked the
	// wallet is stored all the same: it was on the wire. The end of a late check is not
	// a new end; what it has reopened is tried from now on.
	settle = `
WITH settled AS (
UPDATE public.operations AS o
SET state = ` + endsAs + `,
    code = CASE WHEN ` + endsAs + ` = 'SUCCEEDED' THEN NULL ELSE s.code END,
    wallet_id = s.wallet_id,
    park_reason = CASE WHEN ` + endsAs + ` = 'PARKED' THEN coalesce(s.park_reason, 'REFUSED') END,
    ended_at = CASE WHEN ` + endsAs + ` IN ('PENDING', 'PARKED') THEN NULL
                    WHEN o.state = 'NOT_APPLIED' AND s.state = 'NOT_APPLIED' THEN o.ended_at
                    ELSE clock_timestamp() END,
    doubt_at = CASE WHEN s.doubt THEN clock_timestamp() ELSE o.doubt_at END,
    due_at = clock_timestamp() + s.pause,
    turn = coalesce(s.turn, o.leased_turn), leased_turn = NULL, resolve = s.resolve,
    tried_from = CASE WHEN o.state = 'NOT_APPLIED' AND s.state = 'PENDING' THEN clock_timestamp() ELSE o.tried_from END,
    attempts = o.attempts - s.unspent,
    target_id = s.target_id, lookups = s.lookups, late_checks = s.late_checks,
    last_reason = coalesce(s.last_reason, o.last_reason)
FROM unnest(
    @ids::uuid[], @fences::bigint[], @states::text[], @codes::text[], @wallet_ids::text[], @park_reasons::text[],
    @pauses::interval[], @turns::text[], @resolves::boolean[], @unspent::int[], @target_ids::text[],
    @lookups::int[], @late_checks::int[], @last_reasons::text[], @doubts::boolean[])
    AS s (id, fence, state, code, wallet_id, park_reason, pause, turn, resolve, unspent, target_id,
          lookups, late_checks, last_reason, doubt)
WHERE o.id = ANY (ARRAY[s.id]) AND o.fence = s.fence AND o.leased_turn IS NOT NULL
RETURNING o.id, o.attempts + s.unspent AS attempt),
made AS (
INSERT INTO public.wallet_calls (` + callColumns + `)
SELECT o.id, c.fence, c.n, coalesce((SELECT attempt FROM settled WHERE settled.id = o.id), o.attempts), ` + callValues + `
FROM ` + calls + `
JOIN public.operations AS o ON o.id = ANY (ARRAY[c.subject_id])
ON CONFLICT (subject_id, fence, n) DO NOTHING)
SELECT id FROM settled`

	// handBack makes a lease undone. One that was taken over stays so: somebody has
	// sent, perhaps, and never said.
	handBack = `
UPDATE public.operations
SET due_at = clock_timestamp(), turn = leased_turn, leased_turn = NULL, resolve = resolve OR @taken_over::boolean,
    attempts = attempts - 1
WHERE id = @id::uuid AND fence = @fence::bigint AND leased_turn IS NOT NULL`

	// thin forgets wallet calls of what ended long ago, the oldest first. Ids begin with
	// the time, so what is old is the left end of the primary key. What is not ended, or
	// may still be looked at, keeps its calls, and so does the payment that it is about.
	// Replicas share the work.
	thin = `
WITH old AS (
SELECT c.subject_id, c.fence, c.n
FROM public.wallet_calls AS c
WHERE c.subject_id < public.uuid_v7_floor(statement_timestamp() - @keep::interval)
  AND NOT EXISTS (SELECT FROM public.operations AS o WHERE o.id = c.subject_id AND ` + notLongEnded + ` OFFSET 0)
  AND NOT EXISTS (SELECT FROM public.operations AS o WHERE o.payment_id = c.subject_id AND ` + notLongEnded + ` OFFSET 0)
ORDER BY c.subject_id, c.fence, c.n
LIMIT @batch::int
FOR UPDATE SKIP LOCKED)
DELETE FROM public.wallet_calls AS c USING old
WHERE c.subject_id = ANY (ARRAY[old.subject_id]) AND c.fence = old.fence AND c.n = old.n`

	notLongEnded = `(o.due_at IS NOT NULL OR coalesce(o.ended_at, 'infinity') >= statement_timestamp() - @keep::interval)`

	// exposures is the money that is not settled yet. The queue's index and that of what
	// is parked say which rows those are, however much has ended since; each of them is
	// read: some 0.4 s of one connection of the upkeep for a million, and then once a minute.
	// (The sums in the index would halve that, and make every lease and every settlement
	// write twice the index.) A sum beyond 64 bits is cut: a gauge that stops is better
	// than one that fails.
	exposures = `
SELECT kind, state, currency, count(*), least(sum(amount_minor), 9223372036854775807)::bigint,
       greatest(clock_timestamp() - min(created_at), interval '0')
FROM (
    SELECT kind, state, currency, amount_minor, created_at
    FROM public.operations WHERE due_at IS NOT NULL AND state = 'PENDING'
    UNION ALL
    SELECT kind, 'PARKED', currency, amount_minor, created_at
    FROM public.operations WHERE state = 'PARKED') AS open
GROUP BY kind, state, currency
ORDER BY kind, state, currency`
)
