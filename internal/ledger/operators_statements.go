package ledger

// What the people who operate the service ask and do.
const (
	// detailColumns are what scanDetail reads of a follow-up joined as o and its
	// payment as p.
	detailColumns = followUpColumnsOfO + `,
coalesce(o.caller, p.caller), o.outbound_key, o.attempts, o.lookups, o.due_at, o.park_reason, o.last_reason`

	detailTables = `public.operations AS o LEFT JOIN public.payments AS p ON p.id = o.payment_id`

	// Ids begin with the time, so a time is a range of the primary key. It is read from
	// its newest end and given up when enough was found: a search that is about the
	// last minutes costs what those hold. There is no index on what is searched for,
	// every decision would have to write it. statement_timestamp, and not the clock,
	// because a bound of an index must stand still.
	searched = `
    >= public.uuid_v7_floor(coalesce(@from::timestamptz, coalesce(@until::timestamptz, statement_timestamp()) - interval '1 day'))`
	searchedUntil = `
    < public.uuid_v7_floor(coalesce(@until::timestamptz, statement_timestamp() + interval '1 minute'))`

	paymentIsSought = `
    (@caller::text IS NULL OR p.caller = @caller::text)
AND (@till_reference::text IS NULL OR p.till_reference = @till_reference::text)
AND (@account::text IS NULL OR p.account = @account::text)
AND (@wallet_id::text IS NULL OR p.wallet_id = @wallet_id::text)
AND (@amount_minor::bigint IS NULL OR p.amount_minor = @amount_minor::bigint)
AND (@currency::text IS NULL OR p.currency = @currency::text)
AND (@from::timestamptz IS NULL OR p.created_at >= @from::timestamptz)
AND (@until::timestamptz IS NULL OR p.created_at < @until::timestamptz)`

	followUpIsSought = `
    (@caller::text IS NULL OR coalesce(o.caller, p.caller) = @caller::text)
AND (@till_reference::text IS NULL OR o.till_reference = @till_reference::text)
AND (@account::text IS NULL OR o.account = @account::text)
AND (@wallet_id::text IS NULL OR @wallet_id::text IN (o.wallet_id, o.target_id))
AND (@amount_minor::bigint IS NULL OR o.amount_minor = @amount_minor::bigint)
AND (@currency::text IS NULL OR o.currency = @currency::text)
AND (@from::timestamptz IS NULL OR o.created_at >= @from::timestamptz)
AND (@until::timestamptz IS NULL OR o.created_at < @until::timestamptz)`

	findPayments = `
SELECT ` + paymentColumnsOfP + `
FROM public.payments AS p
WHERE p.id ` + searched + ` AND p.id ` + searchedUntil + ` AND ` + paymentIsSought + `
ORDER BY p.id DESC
LIMIT @limit::int`

	findFollowUps = `
SELECT ` + detailColumns + `
FROM ` + detailTables + `
WHERE o.id ` + searched + ` AND o.id ` + searchedUntil + ` AND ` + followUpIsSought + `
ORDER BY o.id DESC
LIMIT @limit::int`

	// A key is found by the index of identities, whenever it was used.
	findPaymentsOfKey = `
SELECT ` + paymentColumnsOfP + `
FROM public.payments AS p
WHERE p.key_hash = @key_hash::bytea AND ` + paymentIsSought + `
ORDER BY p.id DESC
LIMIT @limit::int`

	findFollowUpsOfKey = `
SELECT ` + detailColumns + `
FROM ` + detailTables + `
WHERE o.key_hash = @key_hash::bytea AND ` + followUpIsSought + `
ORDER BY o.id DESC
LIMIT @limit::int`

	// parked is what has waited longest for a person first.
	parked = `
SELECT ` + detailColumns + `
FROM ` + detailTables + `
WHERE o.state = 'PARKED'
ORDER BY o.created_at
LIMIT @limit::int`

	followUpDetail = `
SELECT ` + detailColumns + `
FROM ` + detailTables + `
WHERE o.id = @id::uuid`

	// The four of a timeline are said in one snapshot. The id may be the payment's or a
	// follow-up's; a payout has no payment, and is a timeline of its own.
	timelinePayment = `
SELECT ` + paymentColumnsOfP + `
FROM public.payments AS p
WHERE p.id = coalesce((SELECT payment_id FROM public.operations WHERE id = @id::uuid), @id::uuid)`

	timelineFollowUps = `
SELECT ` + detailColumns + `
FROM ` + detailTables + `
WHERE o.id = @id::uuid
   OR o.payment_id = coalesce((SELECT payment_id FROM public.operations WHERE id = @id::uuid), @id::uuid)
ORDER BY o.created_at, o.id`

	timelineSubjects = `
SELECT id FROM public.operations
WHERE id = @id::uuid
   OR payment_id = coalesce((SELECT payment_id FROM public.operations WHERE id = @id::uuid), @id::uuid)`

	timelineCalls = `
SELECT o.id, c.attempt, c.at, c.call, c.outcome, c.reason, c.status,
       greatest(clock_timestamp() - c.at, interval '0'), c.took
FROM public.wallet_calls AS c
LEFT JOIN public.operations AS o ON o.id = c.subject_id
WHERE c.subject_id IN (` + timelineSubjects + `)
   OR c.subject_id = coalesce((SELECT payment_id FROM public.operations WHERE id = @id::uuid), @id::uuid)
ORDER BY c.at, c.subject_id, c.fence, c.n`

	timelineNotes = `
SELECT operation_id, at, operator, action, note
FROM public.operator_notes
WHERE operation_id IN (` + timelineSubjects + `)
ORDER BY at, id`

	// redrive gives what was parked another span of trying, under the same outbound key
	// and beginning with what it was parked with: if it may have been sent, a lookup.
	redrive = `
WITH intervened AS (
UPDATE public.operations AS o
SET state = 'PENDING', code = NULL, park_reason = NULL, due_at = clock.at, tried_from = clock.at
FROM (SELECT clock_timestamp() AS at) AS clock
WHERE o.id = @id::uuid AND o.state = 'PARKED'
RETURNING o.id),
noted AS (` + note + `)
SELECT count(*) FROM intervened`

	// settleByHand ends what no attempt is out for. What was not applied is given back,
	// as after the wallet's own refusal; what was applied keeps what it has reserved. A
	// release that must undo a cancelled hold cannot be ended as not applied: the money
	// would stay held, and nobody would look again.
	settleByHand = `
WITH intervened AS (
UPDATE public.operations
SET state = CASE WHEN @applied::boolean THEN 'SUCCEEDED' WHEN kind = 'reversal' THEN 'NOT_APPLIED' ELSE 'REJECTED' END,
    code = CASE WHEN NOT @applied::boolean AND kind <> 'reversal' THEN coalesce(code, 'WALLET_REJECTED') END,
    park_reason = NULL, due_at = NULL, ended_at = clock_timestamp()
WHERE id = @id::uuid AND (state = 'PARKED' OR state = 'PENDING' AND leased_turn IS NULL)
  AND (@applied::boolean OR NOT cancelled)
RETURNING id),
noted AS (` + note + `)
SELECT count(*) FROM intervened`

	// note keeps who did what to the row in the CTE `intervened`, and why.
	note = `
INSERT INTO public.operator_notes (id, operation_id, at, operator, action, note)
SELECT public.uuid_v7(clock.at), intervened.id, clock.at, @operator::text, @action::text, @note::text
FROM intervened CROSS JOIN (SELECT clock_timestamp() AS at) AS clock`
)
