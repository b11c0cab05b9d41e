package ledger

// What accepts, cancels and reads follow-ups.
const (
	// followUpColumns are what scanFollowUp reads, in its order.
	followUpColumns = `
id, kind, payment_id, state, code, account, amount_minor, currency, till_reference, metadata,
wallet_id, created_at, ended_at`

	// followUpColumnsOfO are the same of a follow-up that is joined as o.
	followUpColumnsOfO = `
o.id, o.kind, o.payment_id, o.state, o.code, o.account, o.amount_minor, o.currency, o.till_reference, o.metadata,
o.wallet_id, o.created_at, o.ended_at`

	// ofItsKey is the identity of a follow-up.
	ofItsKey = `key_hash = @key_hash::bytea AND caller = @caller::text AND kind = @kind::text`

	// lockNamed makes everybody who would add something to one payment take turns. NO
	// KEY UPDATE keeps out each other, decisions and recovery, and not whoever merely
	// refers to the row. A replay locks nothing, and so writes nothing.
	lockNamed = `
SELECT FROM public.payments
WHERE id = @payment_id::uuid AND (caller = @caller::text) IS TRUE
  AND NOT EXISTS (SELECT FROM public.operations WHERE ` + ofItsKey + `)
FOR NO KEY UPDATE`

	// accept is a statement of its own, behind lockNamed, because its snapshot must be
	// taken when the lock is held: only then does it see what the one before has added.
	// What it decides on and what it writes are of that one snapshot. What ends
	// meanwhile can only give back, so at worst a request is refused that would have
	// been accepted a moment later. A reservation is the row itself: a capture or
	// release that is not REJECTED holds its hold, such a credit its share.
	accept = `
WITH own AS (
SELECT ` + followUpColumns + `, fingerprint FROM public.operations WHERE ` + ofItsKey + `),
named AS (
SELECT id, account, amount_minor, currency, state, ` + overdue + ` AS overdue
FROM public.payments
WHERE id = @payment_id::uuid AND (caller = @caller::text) IS TRUE AND (operation = @of::text) IS TRUE),
so_far AS (
SELECT coalesce(bool_or(kind = 'reversal' OR cancelled), false) AS reversed,
       coalesce(bool_or(kind = 'release' AND state <> 'REJECTED'), false) AS released,
       coalesce(bool_or(kind = 'capture' AND state <> 'REJECTED'), false) AS captured,
       sum(amount_minor) FILTER (WHERE kind = 'capture' AND state = 'SUCCEEDED') AS taken,
       coalesce(sum(amount_minor) FILTER (WHERE kind = 'credit' AND state <> 'REJECTED'), 0) AS credited
FROM public.operations
WHERE payment_id = @payment_id::uuid),
verdict AS (
SELECT CASE
    WHEN EXISTS (SELECT FROM own) THEN 'OWN'
    WHEN @payment_id::uuid IS NULL THEN 'ACCEPTED'
    WHEN named.id IS NULL THEN 'UNKNOWN'
    WHEN named.overdue THEN 'OVERDUE'
    WHEN named.state = 'IN_FLIGHT' THEN 'UNDECIDED'
    WHEN @kind::text = 'credit' THEN CASE
        WHEN named.state = 'DECLINED' OR so_far.reversed THEN 'NOT_REFUNDABLE'
        WHEN @of::text = 'hold' AND so_far.taken IS NULL THEN 'NOT_REFUNDABLE'
        WHEN named.account <> @account::text THEN 'OTHER_ACCOUNT'
        WHEN named.currency <> @currency::text THEN 'OTHER_CURRENCY'
        WHEN so_far.credited + @amount_minor::bigint > coalesce(so_far.taken, named.amount_minor) THEN 'EXCEEDS'
        ELSE 'ACCEPTED' END
    WHEN named.state = 'DECLINED' OR so_far.reversed OR so_far.released THEN 'NOT_ACTIVE'
    WHEN so_far.captured THEN 'CAPTURED'
    WHEN @amount_minor::bigint > named.amount_minor THEN 'EXCEEDS'
    ELSE 'ACCEPTED' END AS answer
FROM so_far LEFT JOIN named ON true),
written AS (
INSERT INTO public.operations (
    id, kind, payment_id, outbound_key, caller, key_hash, fingerprint, till_reference, metadata,
    account, amount_minor, currency, state, turn, created_at, due_at, tried_from, traceparent)
SELECT public.uuid_v7(clock.at), @kind::text, @payment_id::uuid, @outbound_key::uuid,
       @caller::text, @key_hash::bytea, @fingerprint::bytea, @till_reference::text, @metadata::json,
       @account::text, coalesce(@amount_minor::bigint, named.amount_minor), coalesce(@currency::text, named.currency),
       'PENDING', 'FIRST', clock.at, clock.at, clock.at, @traceparent::text
FROM verdict
LEFT JOIN named ON true
CROSS JOIN (SELECT clock_timestamp() AS at) AS clock
WHERE verdict.answer = 'ACCEPTED'
ON CONFLICT (key_hash, caller, kind) DO NOTHING
RETURNING ` + followUpColumns + `, fingerprint)
SELECT ` + followUpColumnsOfO + `, o.fingerprint, verdict.answer
FROM verdict
LEFT JOIN (SELECT * FROM own UNION ALL SELECT * FROM written) AS o ON true`

	// acceptedBefore reads what was in the way of an accept and is not its own: a twin
	// whose commit accept's snapshot is older than.
	acceptedBefore = `
SELECT ` + followUpColumns + `, fingerprint
FROM public.operations
WHERE ` + ofItsKey

	// entomb writes the tombstone of a key that was never seen, in the claim's own way:
	// of this and any number of claims one gets the key. Where the request is not
	// known, the fingerprint is of a version that no request has, and the reference is
	// nobody's.
	entomb = `
INSERT INTO public.payments (
    id, caller, operation, key_hash, fingerprint, reference, state, code, created_at, decided_at)
SELECT public.uuid_v7(clock.at), @caller::text, @operation::text, @key_hash::bytea,
       coalesce(@fingerprint::bytea, decode(repeat('00', 33), 'hex')), coalesce(@reference::uuid, gen_random_uuid()),
       'DECLINED', 'CANCELLED', clock.at, clock.at
FROM (SELECT clock_timestamp() AS at) AS clock
ON CONFLICT (key_hash, caller, operation) DO NOTHING`

	// lockOfKey is lockNamed for a cancel.
	lockOfKey = `
SELECT FROM public.payments
WHERE key_hash = @key_hash::bytea AND caller = @caller::text AND operation = @operation::text
FOR NO KEY UPDATE`

	// lockReleaseOfKey is taken behind it, so that a release which is being refused just
	// now is either seen as refused, or knows that it has been cancelled.
	lockReleaseOfKey = `
SELECT FROM public.operations AS o
JOIN public.payments AS p ON o.payment_id = ANY (ARRAY[p.id])
WHERE p.key_hash = @key_hash::bytea AND p.caller = @caller::text AND p.operation = @operation::text AND (o.kind = 'release') IS TRUE
FOR NO KEY UPDATE OF o`

	// cancel is the table of contract section 1, Cancel by key, on the snapshot that is
	// taken when the payment is locked: what it answers and what it writes are about
	// the same. A reversal comes of what was in flight, of an approval that nothing
	// has ended, and of a tombstone whose request was shown, because a failover may
	// have lost its claim. A release that has ended the hold takes note instead.
	cancel = `
WITH stored AS (
SELECT ` + paymentColumns + `,
       account IS NULL OR @fingerprint::bytea IS NULL OR fingerprint = @fingerprint::bytea AS same
FROM public.payments
WHERE key_hash = @key_hash::bytea AND caller = @caller::text AND operation = @operation::text),
so_far AS (
SELECT (array_agg(o.id) FILTER (WHERE o.kind = 'reversal'))[1] AS reversal,
       (array_agg(o.id) FILTER (WHERE o.kind = 'release' AND o.state <> 'REJECTED'))[1] AS release,
       coalesce(bool_or(o.kind = 'capture' AND o.state <> 'REJECTED'), false) AS captured
FROM stored JOIN public.operations AS o ON o.payment_id = ANY (ARRAY[stored.id])),
verdict AS (
SELECT CASE WHEN NOT stored.same THEN 'UNKNOWN_BODY'
            WHEN so_far.captured THEN 'TOO_LATE'
            ELSE 'CANCELLED' END AS answer,
       coalesce(so_far.reversal, so_far.release) AS undone_by,
       (SELECT clock_timestamp()) AS at
FROM stored CROSS JOIN so_far),
decided AS (
UPDATE public.payments AS p
SET state = 'DECLINED', code = 'CANCELLED', decided_at = verdict.at
FROM stored CROSS JOIN verdict
WHERE p.id = ANY (ARRAY[stored.id]) AND p.state = 'IN_FLIGHT' AND verdict.answer = 'CANCELLED'
RETURNING ` + paymentColumnsOfP + `),
undo AS (
SELECT id, reference, account, amount_minor, currency, NULL AS target_id, 'LOOKUP' AS turn FROM decided
UNION ALL
SELECT id, reference, account, amount_minor, currency, wallet_id, 'FIRST' FROM stored WHERE state = 'APPROVED'
UNION ALL
SELECT id, @reference::uuid, @account::text, @amount_minor::bigint, @currency::text, NULL, 'LOOKUP'
FROM stored WHERE account IS NULL AND @reference::uuid IS NOT NULL),
written AS (
INSERT INTO public.operations (
    id, kind, payment_id, outbound_key, reverses, target_id, account, amount_minor, currency,
    state, turn, created_at, due_at, tried_from, traceparent)
SELECT public.uuid_v7(verdict.at), 'reversal', undo.id, public.reversal_reference(undo.reference), undo.reference, undo.target_id,
       undo.account, undo.amount_minor, undo.currency, 'PENDING', undo.turn, verdict.at, verdict.at, verdict.at,
       @traceparent::text
FROM undo CROSS JOIN verdict
WHERE verdict.answer = 'CANCELLED' AND verdict.undone_by IS NULL
RETURNING id),
noted AS (
UPDATE public.operations AS o
SET cancelled = true
FROM so_far CROSS JOIN verdict
WHERE o.id = ANY (ARRAY[so_far.release]) AND verdict.answer = 'CANCELLED' AND NOT o.cancelled)
SELECT ` + paymentColumnsOfP + `, verdict.answer, coalesce((SELECT id FROM written), verdict.undone_by)
FROM verdict CROSS JOIN (
    SELECT ` + paymentColumns + ` FROM decided
    UNION ALL
    SELECT ` + paymentColumns + ` FROM stored WHERE NOT EXISTS (SELECT FROM decided)) AS p`

	// operationByID and operationByKey name the caller, a reversal's is its payment's.
	operationByID = `
SELECT ` + followUpColumnsOfO + `
FROM public.operations AS o
LEFT JOIN public.payments AS p ON p.id = ANY (ARRAY[o.payment_id])
WHERE o.id = @id::uuid AND coalesce(o.caller, p.caller) = @caller::text`

	operationByKey = `
SELECT ` + followUpColumns + `
FROM public.operations
WHERE ` + ofItsKey

	// The follow-ups of a payment, oldest first; ids are in the order of time.
	followUpsByID = `
SELECT ` + followUpColumnsOfO + `
FROM public.operations AS o
JOIN public.payments AS p ON o.payment_id = ANY (ARRAY[p.id])
WHERE p.id = @id::uuid AND (p.caller = @caller::text) IS TRUE
ORDER BY o.created_at, o.id`

	followUpsByKey = `
SELECT ` + followUpColumnsOfO + `
FROM public.operations AS o
JOIN public.payments AS p ON o.payment_id = ANY (ARRAY[p.id])
WHERE p.key_hash = @key_hash::bytea AND p.caller = @caller::text AND p.operation = @operation::text
ORDER BY o.created_at, o.id`
)
