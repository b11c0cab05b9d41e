package main

// ledgerMutants are defects of what is stored, and of the transactions that store it.
func ledgerMutants() []mutant {
	const (
		ledger     = "internal/ledger/ledger.go"
		statements = "internal/ledger/statements.go"
		writes     = "internal/ledger/writes.go"
		group      = "internal/ledger/group.go"
		followUps  = "internal/ledger/followups.go"
		accepting  = "internal/ledger/followups_statements.go"
		queue      = "internal/ledger/queue_statements.go"
		operators  = "internal/ledger/operators_statements.go"
		recovery   = "internal/ledger/recovery.go"
		schema     = "internal/ledger/schema.go"
	)
	return []mutant{
		{
			name: "a claim reads its owner as of before the insert",
			edits: []edit{
				{ledger, `err = l.store(ctx, w)
	twin :=`, `before, seen, errBefore := l.claimed(ctx, req, c.hash)
	err = l.store(ctx, w)
	twin :=`},
				{ledger, `owner, found, err := l.claimed(ctx, req, c.hash)`, `owner, found, err := before, seen, errBefore`},
			},
			breaks: toldIsStored,
			harm:   "As one statement would: of two tills with one key that come at once, the second finds neither a free key nor its owner, and gets an error.",
			tried:  []suite{ledgerClaims},
		},
		{
			name:   "a claim overwrites on conflict",
			edits:  []edit{{statements, "ON CONFLICT (key_hash, caller, operation) DO NOTHING\nRETURNING reference", "ON CONFLICT (key_hash, caller, operation) DO UPDATE SET key_hash = excluded.key_hash\nRETURNING reference"}},
			breaks: oneRequest,
			harm:   "Whoever repeats a key owns it: the same payment is sent to the wallet once for each repeat.",
			tried:  []suite{promisesOfPayments, ledgerClaims},
		},
		{
			name:   "transactions are REPEATABLE READ",
			edits:  []edit{{statements, `begin = ` + "`BEGIN ISOLATION LEVEL READ COMMITTED`", `begin = ` + "`BEGIN ISOLATION LEVEL REPEATABLE READ`"}},
			breaks: toldIsStored,
			harm:   "A duplicate that comes while the first commits gets a serialisation failure instead of its answer.",
			tried:  []suite{promisesOfPayments, ledgerClaims, ledgerShared},
		},
		{
			name:   "another request under the key is not noticed",
			edits:  []edit{{ledger, `case !owner.tombstone() && !c.fingerprint.Matches(owner.fingerprint):`, `case len(owner.fingerprint) == 0:`}},
			breaks: toldIsStored,
			harm:   "A till that uses a key twice by mistake hears the approval of another amount, and hands out goods for it.",
			tried:  []suite{promisesOfPayments, ledgerClaims},
		},
		{
			name: "a cancelled approval is replayed as one",
			edits: []edit{{ledger, `case owner.cancelled:
		status = payment.ClaimCancelled`, `case owner.cancelled:
		status = payment.ClaimDecided`}},
			breaks: toldIsStored,
			harm:   "A till that cancelled and then repeats hands out goods for money that is being given back.",
			tried:  []suite{promisesOfCancels},
		},
		{
			name:   "a late handler decides again",
			edits:  []edit{{statements, `WHERE p.id = ANY (ARRAY[d.id]) AND p.state = 'IN_FLIGHT'`, `WHERE p.id = ANY (ARRAY[d.id])`}},
			breaks: toldIsStored,
			harm:   "Without the schema's trigger an approval would overwrite recovery's decline; with it the till gets an error instead of what is stored.",
			tried:  []suite{promisesOfPayments, ledgerClaims},
		},
		{
			name:   "the calls of who came late are lost",
			edits:  []edit{{ledger, `l.keepCalls(ctx, p.ID, d.Calls)`, `l.keepCalls(ctx, p.ID, nil)`}},
			breaks: toldIsStored,
			harm:   "What was on the wire is in no timeline: the clerk who is asked why the customer was debited finds a decline without a call.",
			tried:  []suite{ledgerClaims},
		},
		{
			name:   "a plan may read a whole index",
			edits:  []edit{{statements, `WHERE p.id = ANY (ARRAY[d.id]) AND`, `WHERE p.id = d.id AND`}},
			breaks: answerInTime,
			harm:   "A plan that was made when the table had a row or two is kept while it grows: after a minute each decision reads all payments, and tills get refused.",
			tried:  []suite{ledgerShared},
		},
		{
			name:   "a lost connection is taken for the database",
			edits:  []edit{{schema, `l.pool.Stat().NewConnsCount() == opened {`, `l.pool.Stat().NewConnsCount() < opened {`}},
			breaks: answerInTime,
			harm:   "Somebody ends one idle session, or the database is back: the replica refuses everybody for another second.",
			tried:  []suite{ledgerShared},
		},
		{
			name: "the reversal is stored in a second transaction",
			edits: []edit{
				{writes, `statement = decideAndReverse`, `statement = decide`},
				{ledger, `// The rest of the row is the request, which never changes.
`, `if d.Reverse {
		if err := l.transact(ctx, trip{begin: begin, queue: func(b *pgx.Batch) {
			b.Queue("WITH decided AS (SELECT * FROM public.payments WHERE id = @id::uuid)"+reverseDecided, pgx.NamedArgs{"id": pgUUID(p.ID)})
		}}); err != nil {
			return payment.Payment{}, err
		}
	}
`},
			},
			breaks: declineEnds,
			harm:   "A replica that dies in between leaves a decline that nobody looks after: the customer stays debited.",
			tried:  []suite{promisesOfPayments, ledgerClaims},
		},
		{
			name: "recovery writes no reversal",
			edits: []edit{{
				statements, "),\nreversal AS (` + reverseDecided + `)\nSELECT ` + paymentColumns + ` FROM decided`\n\n\t// sweepBounds is",
				")\nSELECT ` + paymentColumns + ` FROM decided`\n\n\t// sweepBounds is",
			}},
			breaks: declineEnds,
			harm:   "Of a replica that died with the wallet's yes in its hand, the customer's money is never given back.",
			tried:  []suite{promisesOfPayments, ledgerRecovery},
		},
		{
			name:   "a reversal has a key that is drawn",
			edits:  []edit{{statements, `public.reversal_reference(reference), reference,`, `gen_random_uuid(), reference,`}},
			breaks: declineEnds,
			harm:   "A reversal that is written again after a failover gives the money back a second time.",
			tried:  []suite{ledgerSchema},
		},
		{
			name: "recovery passes over open transactions",
			edits: []edit{{recovery, `if b.open != nil && b.open.Before(mark) {
		mark = *b.open
	}`, ``}},
			breaks: toldIsStored,
			harm:   "A claim whose commit hung, at a standby for example, is never recovered: its till hears \"in flight\" for ever.",
			tried:  []suite{ledgerRecovery},
		},
		{
			name: "decisions before claims in a shared transaction",
			edits: []edit{{writes, `if len(w.claims) > 0 {
			queueClaims(b, w.claims)
		}
		if len(w.decisions) > 0 {
			queueDecisions(b, w.decisions)
		}`, `if len(w.decisions) > 0 {
			queueDecisions(b, w.decisions)
		}
		if len(w.claims) > 0 {
			queueClaims(b, w.claims)
		}`}},
			breaks: answerInTime,
			harm:   "Two replicas deadlock as soon as each claims what the other decides: a second each, for all who share the transaction.",
			tried:  []suite{ledgerShared},
		},
		{
			name:   "an unknown group commit is tried again alone",
			edits:  []edit{{writes, `if errors.Is(err, errAlone) {`, `if err != nil && !errors.Is(err, errCrowded) {`}},
			breaks: oneRequest,
			harm:   "A commit whose answer was lost is made a second time: whoever owned the key hears that somebody else does, and a settled attempt that it was overtaken.",
			tried:  []suite{ledgerGroup, ledgerShared},
		},
		{
			name: "a refused transaction is success for those who shared it",
			edits: []edit{{group, `len(parts) > 1 {
			err = errAlone`, `len(parts) > 1 {
			err = nil`}},
			breaks: toldIsStored,
			harm:   "One till's bad luck makes a whole wave of decisions vanish that were told as stored.",
			tried:  []suite{ledgerGroup, ledgerShared},
		},
		{
			name:   "who shares a transaction has the first one's deadline",
			edits:  []edit{{group, `if p.deadline.After(deadline) {`, `if deadline.IsZero() || p.deadline.Before(deadline) {`}},
			breaks: toldIsStored,
			harm:   "A till with little time left ends the transaction of all others: unknown outcomes for whoever came at the same moment.",
			tried:  []suite{ledgerGroup, ledgerShared},
		},
		{
			name: "plans need not go by the index",
			edits: []edit{{
				statements, `set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
       set_config('enable_mergejoin', 'off', true)`,
				`set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),
       set_config('enable_mergejoin', 'on', true)`,
			}},
			breaks: answerInTime,
			harm:   "A plan that was made while the table was empty reads all of it when it is full, and locks in an order of its own.",
			tried:  []suite{ledgerShared},
		},
		{
			name: "cancel leaves no tombstone",
			edits: []edit{
				{followUps, "b.Queue(entomb, args)\n", ""},
				{followUps, `p, err = scanPayment(row, &answer, &undoneBy)
			return err`, `p, err = scanPayment(row, &answer, &undoneBy)
			if errors.Is(err, pgx.ErrNoRows) {
				p = payment.Payment{ID: uuid.New(), Caller: caller, Operation: op, State: payment.Declined, Code: payment.Cancelled, CreatedAt: time.Now(), DecidedAt: time.Now()}
				answer, err = answerCancelled, nil
			}
			return err`},
			},
			breaks: toldIsStored,
			harm:   "A till was told that its key is cancelled, and the original, which was only late, is debited all the same.",
			tried:  []suite{promisesOfCancels, apiOnLedger},
		},
		{
			name: "cancel of what is in flight does not reverse",
			edits: []edit{{
				accepting, `NULL AS target_id, 'LOOKUP' AS turn FROM decided
UNION ALL`, `NULL AS target_id, 'LOOKUP' AS turn FROM decided WHERE false
UNION ALL`,
			}},
			breaks: declineEnds,
			harm:   "The wallet's yes is on its way while the till cancels: declined for good, and the customer stays debited.",
			tried:  []suite{promisesOfCancels},
		},
		{
			name:   "a refused credit keeps what it reserved",
			edits:  []edit{{accepting, `coalesce(sum(amount_minor) FILTER (WHERE kind = 'credit' AND state <> 'REJECTED'), 0) AS credited`, `coalesce(sum(amount_minor) FILTER (WHERE kind = 'credit'), 0) AS credited`}},
			breaks: appliedOnce,
			harm:   "After one refusal by the wallet a customer cannot be refunded at all any more.",
			tried:  []suite{promisesOfFollowUps},
		},
		{
			name:   "a refused capture keeps the hold",
			edits:  []edit{{accepting, `coalesce(bool_or(kind = 'capture' AND state <> 'REJECTED'), false) AS captured,`, `coalesce(bool_or(kind = 'capture'), false) AS captured,`}},
			breaks: appliedOnce,
			harm:   "A hold whose capture was refused can be neither captured nor released: the customer's money stays held until the wallet lets it go.",
			tried:  []suite{promisesOfFollowUps},
		},
		{
			name:   "credits may exceed their debit",
			edits:  []edit{{accepting, `WHEN so_far.credited + @amount_minor::bigint > coalesce(`, `WHEN @amount_minor::bigint > coalesce(`}},
			breaks: appliedOnce,
			harm:   "A till, or who stole its token, refunds the same debit again and again: money is minted.",
			tried:  []suite{promisesOfFollowUps},
		},
		{
			name:   "credits are accepted after a cancel",
			edits:  []edit{{accepting, `WHEN named.state = 'DECLINED' OR so_far.reversed THEN 'NOT_REFUNDABLE'`, `WHEN named.state = 'DECLINED' THEN 'NOT_REFUNDABLE'`}},
			breaks: appliedOnce,
			harm:   "A debit that is being given back as a whole is refunded besides: the customer gets it twice.",
			tried:  []suite{promisesOfCancels},
		},
		{
			name: "settlements have no fence",
			edits: []edit{{
				queue, `WHERE o.id = ANY (ARRAY[s.id]) AND o.fence = s.fence AND o.leased_turn IS NOT NULL
RETURNING o.id`, `WHERE o.id = ANY (ARRAY[s.id]) AND o.leased_turn IS NOT NULL
RETURNING o.id`,
			}},
			breaks: appliedOnce,
			harm:   "A worker that was stopped past its lease writes its old view over the new one's: what was applied ends as refused, or is sent again.",
			tried:  []suite{ledgerQueue},
		},
		{
			name:   "a lease has the fence of the one before",
			edits:  []edit{{queue, `due_at = clock_timestamp() + @lease::interval, fence = o.fence + 1,`, `due_at = clock_timestamp() + @lease::interval, fence = o.fence,`}},
			breaks: appliedOnce,
			harm:   "The same: nobody can tell the worker that took over from the one that was stopped.",
			tried:  []suite{ledgerQueue},
		},
		{
			name: "what a dead worker had is left",
			edits: []edit{{queue, `    ('LEASED', 'LOOKUP', @lookups::int, false, false),
`, ``}},
			breaks: appliedOnce,
			harm:   "The credits that a killed replica was at are PENDING for ever.",
			tried:  []suite{ledgerQueue},
		},
		{
			name:   "a redrive has a new key",
			edits:  []edit{{operators, `SET state = 'PENDING', code = NULL, park_reason = NULL, due_at`, `SET outbound_key = gen_random_uuid(), state = 'PENDING', code = NULL, park_reason = NULL, due_at`}},
			breaks: appliedOnce,
			harm:   "An operator redrives a credit that had gone through after all, and the customer is paid twice.",
			tried:  []suite{ledgerOperators},
		},
	}
}
