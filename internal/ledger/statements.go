package ledger

// Every statement that the ledger says, each with what it keeps true. Tables and
// functions are named with their schema, so that no search_path matters.
const (
	// begin pins READ COMMITTED: a statement must see what was committed before it
	// began, or a conflict could not be read and a decision not be conditional. A
	// database whose default is stricter would answer with 40001 instead. The access
	// mode is not pinned: an operator who made the database read-only meant it.
	begin = `BEGIN ISOLATION LEVEL READ COMMITTED`

	// beginRead gives all statements of a read one snapshot, so that a payment and
	// its follow-ups belong together. Read only, it cannot fail to serialise.
	beginRead = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`

	commit   = `COMMIT`
	rollback = `ROLLBACK`

	// setLimits holds for its transaction only: session state would leak to others
	// behind a pooler. A limit that is null stays as the server has it. And nothing takes
	// more than the one core that its connection has: with a million follow-ups waiting,
	// PostgreSQL would sum them up in three processes, which took three times the CPU,
	// compiled the statement and sorted on the disk while tills waited for both cores.
	setLimits = `
SELECT set_config('statement_timeout', coalesce(@statement_timeout::text, current_setting('statement_timeout')), true),
       set_config('lock_timeout', coalesce(@lock_timeout::text, current_setting('lock_timeout')), true),
       set_config('max_parallel_workers_per_gather', '0', true), set_config('jit', 'off', true)`

	// paymentColumns are what scanPayment reads, in its order.
	paymentColumns = `
id, caller, operation, account, amount_minor, currency, till_reference, metadata,
reference, state, code, wallet_id, created_at, decided_at`

	// setLimitsByIndex is setLimits for whatever a till or an attempt waits for: every
	// plan must go by an index, from each value that it is given. A plan that is made
	// while a table is nearly empty would read all of it instead, and be kept while the
	// table grows (ADR 0021). Of many values it goes in their order, which is that of the
	// locks.
	//
	// Where a statement of many meets a row it says id = ANY (ARRAY[…]) and not id = …: with
	// an equality PostgreSQL also thinks of reading the whole index, in its order, to merge
	// the two, and does so where merging is off and the table has a few rows (OFFSET 0 keeps
	// a question a question, for the same reason). And what an index has in a later place
	// than its first is asked as (…) IS TRUE where another index is meant: of an empty table
	// the plan would else go through the whole of the wrong one.
	setLimitsByIndex = setLimits + `,
       set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true)`

	// claim makes one owner per key: the unique constraint decides between any number
	// of claimants, and no row comes back to those who lost. DO NOTHING and not DO
	// UPDATE, which would cost every replay a row lock and an fsync. The id is of the
	// same reading of the clock as created_at: recovery searches by id what it judges
	// by time.
	claim = `
INSERT INTO public.payments (
    id, caller, operation, key_hash, fingerprint, reference,
    account, amount_minor, currency, till_reference, metadata, state, created_at)
SELECT public.uuid_v7(clock.at), c.caller, c.operation, c.key_hash, c.fingerprint, c.reference,
       c.account, c.amount_minor, c.currency, c.till_reference, c.metadata::json, 'IN_FLIGHT', clock.at
FROM (SELECT clock_timestamp() AS at) AS clock
CROSS JOIN unnest(
    @callers::text[], @operations::text[], @key_hashes::bytea[], @fingerprints::bytea[], @references::uuid[],
    @accounts::text[], @amounts::bigint[], @currencies::text[], @till_references::text[], @metadata::text[])
    AS c (caller, operation, key_hash, fingerprint, reference, account, amount_minor, currency, till_reference, metadata)
ON CONFLICT (key_hash, caller, operation) DO NOTHING
RETURNING reference, id, created_at`

	// claimed reads the row that was in the way of a claim. It is a statement of its
	// own because the snapshot of the insert may be older than that row's commit, and
	// would show nothing in exactly the race that this exists for.
	// Whether it was cancelled is asked of an approval only: nothing else reverses one
	// than a cancel by key, or takes note of one in the hold's own release.
	claimed = `
SELECT ` + paymentColumns + `, fingerprint, ` + overdue + `,
       state = 'APPROVED' AND EXISTS (
           SELECT FROM public.operations AS o WHERE o.payment_id = payments.id AND (o.kind = 'reversal' OR o.cancelled))
FROM public.payments
WHERE key_hash = @key_hash::bytea AND caller = @caller::text AND operation = @operation::text`

	// overdue is the one rule for when a payment is recovered, by the database's clock.
	overdue = `(state = 'IN_FLIGHT' AND created_at < clock_timestamp() - @horizon::interval)`

	// paymentColumnsOfP are paymentColumns of a payment that is joined as p.
	paymentColumnsOfP = `
p.id, p.caller, p.operation, p.account, p.amount_minor, p.currency, p.till_reference, p.metadata,
p.reference, p.state, p.code, p.wallet_id, p.created_at, p.decided_at`

	// decideSome stores decisions where there are none yet: state moves forward once,
	// whoever comes first. It touches no column of an index. The call that led to each, if
	// it was one, is along for soleCalls.
	decideSome = `
UPDATE public.payments AS p
SET state = d.state, code = d.code, wallet_id = d.wallet_id, decided_at = clock_timestamp()
FROM unnest(@ids::uuid[], @states::text[], @codes::text[], @wallet_ids::text[], @reverse::boolean[], @traceparents::text[],
    @calls::text[], @outcomes::text[], @reasons::text[], @statuses::int[], @agos::bigint[], @tooks::bigint[])
    AS d (id, state, code, wallet_id, reverse, traceparent, call, outcome, reason, status, ago, took)
WHERE p.id = ANY (ARRAY[d.id]) AND p.state = 'IN_FLIGHT'
RETURNING p.id, p.decided_at, d.call, d.outcome, d.reason, d.status, d.ago, d.took`

	// decide is that, and those calls in the same statement: no commit of their own. What
	// was decided here had none before, so nothing needs to be looked for.
	decide = `
WITH decided AS (` + decideSome + `),
made AS (` + soleCalls + `)
SELECT id, decided_at FROM decided`

	// decideAndReverse is decide with the rows of the reversals in the same statement: a
	// decline whose reversal was lost would keep a customer's money.
	decideAndReverse = `
WITH decided AS (` + decideSome + `, p.reference, p.account, p.amount_minor, p.currency, d.reverse, d.traceparent),
reversal AS (` + reverseDecided + `
WHERE reverse),
made AS (` + soleCalls + `)
SELECT id, decided_at FROM decided`

	// soleCalls are the calls in the CTE `decided`. There is no lease, so the fence is 0.
	soleCalls = `
INSERT INTO public.wallet_calls (` + callColumns + `)
SELECT c.id, 0, 1, 1, ` + callValues + `
FROM decided AS c
WHERE c.call IS NOT NULL`

	// keepCalls stores calls that handlers made where decide does not: those of a decision
	// that had several, and the one of who came late. Whoever decides twice made them once.
	keepCalls = `
INSERT INTO public.wallet_calls (` + callColumns + `)
SELECT c.subject_id, c.fence, c.n, 1, ` + callValues + `
FROM ` + calls + `
WHERE EXISTS (SELECT FROM public.payments AS p WHERE p.id = c.subject_id OFFSET 0)
ON CONFLICT DO NOTHING`

	// calls are wallet calls as arrays, one element each, and callValues what is stored
	// of them. When a call began is told by how long ago that was: the process knows
	// durations, the time is the database's.
	callColumns = `subject_id, fence, n, attempt, call, outcome, reason, status, at, took`
	callValues  = `c.call, c.outcome, c.reason, nullif(c.status, 0),
       clock_timestamp() - c.ago * interval '1 microsecond', c.took * interval '1 microsecond'`
	calls = `unnest(@subjects::uuid[], @call_fences::bigint[], @places::int[], @calls::text[], @outcomes::text[], @reasons::text[],
    @statuses::int[], @agos::bigint[], @tooks::bigint[])
    AS c (subject_id, fence, n, call, outcome, reason, status, ago, took)`

	// reverseDecided writes the reversal of each payment in the CTE `decided`. The
	// outbound key is derived, so there can only be one, whenever it is sent. It is
	// due at once, and begins by looking.
	reverseDecided = `
INSERT INTO public.operations (
    id, kind, payment_id, outbound_key, reverses, account, amount_minor, currency, state, turn, created_at, due_at, tried_from,
    traceparent)
SELECT public.uuid_v7(decided_at), 'reversal', id, public.reversal_reference(reference), reference,
       account, amount_minor, currency, 'PENDING', 'LOOKUP', decided_at, decided_at, decided_at,
       traceparent
FROM decided`

	// noRequest is what a recovered payment's reversal goes back to in traces: the request
	// died with its handler.
	noRequest = `NULL::text AS traceparent`

	// recoverOne declines one payment that somebody met, if it is overdue; of several
	// who meet it at once one does.
	recoverOne = `
WITH decided AS (
UPDATE public.payments
SET state = 'DECLINED', code = 'WALLET_TIMEOUT', decided_at = clock_timestamp()
WHERE id = @id::uuid AND ` + overdue + `
RETURNING ` + paymentColumns + `, ` + noRequest + `),
reversal AS (` + reverseDecided + `)
SELECT ` + paymentColumns + ` FROM decided`

	// recoverSome declines a batch of the overdue, oldest first. What somebody else
	// holds is skipped, it is being decided or recovered: replicas share the work and
	// none waits. NO KEY UPDATE is the lock that the update takes; FOR UPDATE would
	// also stand in the way of whoever refers to the row.
	recoverSome = `
WITH undecided AS (
SELECT id FROM public.payments
WHERE id >= public.uuid_v7_floor(@from::timestamptz) AND id < public.uuid_v7_floor(@until::timestamptz)
  AND state = 'IN_FLIGHT'
ORDER BY id
LIMIT @batch::int
FOR NO KEY UPDATE SKIP LOCKED),
decided AS (
UPDATE public.payments AS p
SET state = 'DECLINED', code = 'WALLET_TIMEOUT', decided_at = clock_timestamp()
FROM undecided
WHERE p.id = ANY (ARRAY[undecided.id]) AND p.state = 'IN_FLIGHT'
RETURNING ` + paymentColumnsOfP + `, ` + noRequest + `),
reversal AS (` + reverseDecided + `)
SELECT ` + paymentColumns + ` FROM decided`

	// sweepBounds is the first step of a sweep: what is overdue, by one reading of the
	// clock taken before anything else; since when the oldest transaction that may
	// hold an uncommitted claim is open; whether there is one of which we may not see
	// that (another role's, without pg_read_all_stats); where the last sweep ended.
	sweepBounds = `
SELECT statement_timestamp() - @horizon::interval, open.oldest, open.unseen, recovery.low_water
FROM public.recovery
CROSS JOIN (
    SELECT min(xact_start) AS oldest, coalesce(bool_or(xact_start IS NULL), false) AS unseen
    FROM pg_catalog.pg_stat_activity
    WHERE backend_xid IS NOT NULL AND datname = current_database()) AS open`

	// oldestUndecided is plain, without locks: what somebody is deciding just now is
	// still undecided, because he may fail.
	oldestUndecided = `
SELECT created_at FROM public.payments
WHERE id >= public.uuid_v7_floor(@from::timestamptz) AND id < public.uuid_v7_floor(@until::timestamptz)
  AND state = 'IN_FLIGHT'
ORDER BY id
LIMIT 1`

	// keepLowWater remembers how far sweeps have come. Whoever read another mark than
	// is there now has been overtaken, and a mark in the overdue's future (of a clock
	// that was ahead) would hide payments: neither is written.
	keepLowWater = `
UPDATE public.recovery SET low_water = @mark::timestamptz
WHERE low_water = @stored::timestamptz AND @mark::timestamptz <= clock_timestamp() - @horizon::interval`

	// paymentByID and paymentByKey name the caller: to anybody else it does not exist.
	paymentByID = `
SELECT ` + paymentColumns + `, ` + overdue + `
FROM public.payments
WHERE id = @id::uuid AND (caller = @caller::text) IS TRUE`

	paymentByKey = `
SELECT ` + paymentColumns + `, ` + overdue + `
FROM public.payments
WHERE key_hash = @key_hash::bytea AND caller = @caller::text AND operation = @operation::text`

	// decidedPayment reads a payment for whoever was about to decide it.
	decidedPayment = `
SELECT ` + paymentColumns + `
FROM public.payments
WHERE id = @id::uuid`

	// writable asks what a claim would run into.
	writable = `SELECT NOT pg_catalog.pg_is_in_recovery() AND current_setting('default_transaction_read_only') = 'off'`

	// durability are the settings without which a commit is not a promise.
	durability = `SELECT current_setting('fsync'), current_setting('synchronous_commit')`

	// schemaVersion is the newest migration that was applied.
	schemaVersion = `SELECT coalesce(max(version_id), 0) FROM public.goose_db_version WHERE is_applied`

	// oldestProgram is the oldest program that every migration up to @version lets run,
	// and whether that one has spoken at all.
	oldestProgram = `
SELECT coalesce(max(oldest_program), 0), coalesce(bool_or(version = @version::bigint), false)
FROM public.schema_compatibility`
)
