-- The work queue: what comes after a decision (credits, captures, releases and
-- reversals) is a row of operations, and that row is the work item. It holds the
-- outbound key, what it reserves, when it is due and whose turn it is, so that
-- accepting a follow-up, or ending an attempt at it, is one row and one commit.
--
-- The release before knows reversals only and writes seven columns. What it leaves
-- out gets its default here, or is filled in by operations_of_the_release_before. As
-- long as replicas of it still serve, it answers a late original of a tombstone with
-- 422, and a replay of a cancelled approval with the approval: nothing is sent in
-- either case, but tills should be told of cancel by key when it is gone.

-- +goose Up

ALTER TABLE public.operations
    -- A credit that names no payment is a payout.
    ALTER COLUMN payment_id DROP NOT NULL,
    -- Null: nothing is due, because it has ended, or because a person must look.
    ALTER COLUMN due_at DROP NOT NULL,

    -- The till's identity of it and the request, as in payments; all null for a
    -- reversal, which no till asks for by a key of its own.
    ADD COLUMN caller         text,
    ADD COLUMN key_hash       bytea,
    ADD COLUMN fingerprint    bytea,
    ADD COLUMN till_reference text,
    ADD COLUMN metadata       json,
    -- Whom a credit or a reversal pays. It is the payment's, but a payment that was
    -- cancelled before it was seen has none.
    ADD COLUMN account        text,
    -- The money that it is about: what a credit gives and a capture takes, what a
    -- release frees, and what the reversed payment asked for.
    ADD COLUMN amount_minor   bigint,
    ADD COLUMN currency       text,
    -- Of a reversal: the reference of the wallet call that it undoes, and the wallet's
    -- id of its effect as soon as that is known to exist.
    ADD COLUMN reverses       uuid,
    ADD COLUMN target_id      text,
    -- Of a release: its hold has been cancelled by key since, and this is what undoes
    -- it. It needs no reversal then, and the approval must not be told any more.
    ADD COLUMN cancelled      boolean     NOT NULL DEFAULT false,
    -- The wallet's id of its own effect.
    ADD COLUMN wallet_id      text,

    -- Sends, counted before they are made; tries that ended without one; looks at a
    -- reversal that had ended.
    ADD COLUMN attempts       integer     NOT NULL DEFAULT 0,
    ADD COLUMN lookups        integer     NOT NULL DEFAULT 0,
    ADD COLUMN late_checks    integer     NOT NULL DEFAULT 0,
    -- The number of the lease: whoever holds an older one changes nothing any more.
    ADD COLUMN fence          bigint      NOT NULL DEFAULT 0,
    -- The allowance that the next attempt draws on. A reversal begins by looking.
    -- LEASED while an attempt is out: what was never reported has a lane of its own.
    ADD COLUMN turn           text        NOT NULL DEFAULT 'LOOKUP',
    -- The turn that it had when it was leased, null while no attempt is out. An
    -- attempt that never reports leaves it behind.
    ADD COLUMN leased_turn    text,
    -- Whether the next attempt must begin by asking what became of the ones before.
    ADD COLUMN resolve        boolean     NOT NULL DEFAULT false,
    -- When a send last ended in doubt: what it asked for may land until the settle
    -- window after it is over, so no refusal of a later one gives anything back before.
    ADD COLUMN doubt_at       timestamptz,
    -- Since when it is being tried: accepted or last redriven. What the release
    -- before left behind has not been tried at all, so its time begins now.
    ADD COLUMN tried_from     timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN park_reason    text,
    -- How the last attempt ended.
    ADD COLUMN last_reason    text;

UPDATE public.operations AS o
SET account = p.account, amount_minor = p.amount_minor, currency = p.currency, reverses = p.reference,
    due_at = CASE WHEN o.state = 'PENDING' THEN o.due_at END,
    park_reason = CASE WHEN o.state = 'PARKED' THEN 'UNKNOWN' END
FROM public.payments AS p
WHERE p.id = o.payment_id;

ALTER TABLE public.operations
    ALTER COLUMN amount_minor SET NOT NULL,
    ALTER COLUMN currency SET NOT NULL,

    -- The identity of contract section 1, in the order that payments_identity_key has.
    ADD CONSTRAINT operations_identity_key UNIQUE (key_hash, caller, kind),

    -- A till's follow-up has a caller, a key and a fingerprint; a reversal has none of
    -- them, belongs to a payment and says what it undoes.
    ADD CONSTRAINT operations_identity_check CHECK (
        CASE kind
            WHEN 'reversal' THEN num_nonnulls(caller, key_hash, fingerprint) = 0
                AND num_nulls(payment_id, reverses, account) = 0
            ELSE num_nulls(caller, key_hash, fingerprint) = 0 AND num_nonnulls(reverses, target_id) = 0
        END),
    ADD CONSTRAINT operations_caller_check CHECK (caller <> ''),
    ADD CONSTRAINT operations_key_hash_check CHECK (octet_length(key_hash) = 38),
    ADD CONSTRAINT operations_fingerprint_check CHECK (octet_length(fingerprint) = 33),
    -- What a capture takes and a release frees is a hold.
    ADD CONSTRAINT operations_payment_check CHECK (payment_id IS NOT NULL OR kind = 'credit'),
    -- The account, the text and the members are of a credit; a reversal has the account.
    ADD CONSTRAINT operations_asked_check CHECK (
        CASE kind
            WHEN 'credit' THEN account IS NOT NULL
            WHEN 'reversal' THEN num_nonnulls(till_reference, metadata) = 0
            ELSE num_nonnulls(account, till_reference, metadata) = 0
        END),
    ADD CONSTRAINT operations_account_check CHECK (char_length(account) BETWEEN 1 AND 64),
    ADD CONSTRAINT operations_amount_minor_check CHECK (amount_minor BETWEEN 1 AND 9007199254740991),
    ADD CONSTRAINT operations_currency_check CHECK (currency ~ '^[A-Z]{3}$'),
    ADD CONSTRAINT operations_till_reference_check CHECK (char_length(till_reference) BETWEEN 1 AND 128),
    ADD CONSTRAINT operations_metadata_check CHECK (json_typeof(metadata) = 'object'),
    ADD CONSTRAINT operations_target_id_check CHECK (target_id <> ''),
    ADD CONSTRAINT operations_wallet_id_check CHECK (wallet_id IS NULL OR (wallet_id <> '' AND state = 'SUCCEEDED')),
    ADD CONSTRAINT operations_cancelled_check CHECK (kind = 'release' OR NOT cancelled),
    ADD CONSTRAINT operations_counts_check CHECK (attempts >= 0 AND lookups >= 0 AND late_checks >= 0 AND fence >= 0),
    ADD CONSTRAINT operations_turn_check CHECK (turn IN ('FIRST', 'RETRY', 'LOOKUP', 'LEASED')),
    ADD CONSTRAINT operations_leased_turn_check CHECK (
        leased_turn IS NULL OR (leased_turn IN ('FIRST', 'RETRY', 'LOOKUP') AND due_at IS NOT NULL)),
    ADD CONSTRAINT operations_park_reason_check CHECK (park_reason IS NULL OR (park_reason <> '' AND state = 'PARKED')),
    ADD CONSTRAINT operations_last_reason_check CHECK (last_reason <> ''),

    -- A state and what belongs to it come together or not at all. Nothing that waits
    -- is without a time at which it is due: it could not be found again.
    DROP CONSTRAINT operations_state_check,
    ADD CONSTRAINT operations_state_check CHECK (
        CASE state
            WHEN 'PENDING' THEN due_at IS NOT NULL AND num_nonnulls(code, ended_at) = 0
            WHEN 'PARKED' THEN park_reason IS NOT NULL AND num_nonnulls(due_at, ended_at) = 0
            -- Nobody asked for a reversal and nobody would hear that it was refused.
            WHEN 'REJECTED' THEN kind <> 'reversal' AND due_at IS NULL AND num_nulls(code, ended_at) = 0
            WHEN 'SUCCEEDED' THEN num_nonnulls(code, due_at) = 0 AND ended_at IS NOT NULL
            -- It may still be due: it is looked at once more, an hour and a day later.
            WHEN 'NOT_APPLIED' THEN kind = 'reversal' AND code IS NULL AND ended_at IS NOT NULL
            ELSE false
        END);

-- A hold ends once: by the capture or the release that was accepted first. One that
-- the wallet refused has given the hold back.
CREATE UNIQUE INDEX operations_one_end_key ON public.operations (payment_id)
    WHERE kind IN ('capture', 'release') AND state <> 'REJECTED';

-- The queue. It holds what is due at some time and nothing else, so it is as small
-- as what waits. The kind comes first: workers ask for the kinds that they know, and
-- a later release's, however many they are, are not even passed by.
CREATE INDEX operations_due_idx ON public.operations (kind, turn, due_at) WHERE due_at IS NOT NULL;
DROP INDEX public.operations_pending_idx;

-- What a person must look at: few, it is to be hoped.
CREATE INDEX operations_parked_idx ON public.operations (created_at) WHERE state = 'PARKED';

-- The release before leaves out whom and what a reversal is about. To be dropped by
-- the next migration, when that release is out of reach.
-- +goose StatementBegin
CREATE FUNCTION public.operations_of_the_release_before() RETURNS trigger
    LANGUAGE plpgsql
AS $$
BEGIN
    SELECT p.account, p.amount_minor, p.currency, p.reference
    INTO NEW.account, NEW.amount_minor, NEW.currency, NEW.reverses
    FROM public.payments AS p WHERE p.id = NEW.payment_id;
    RETURN NEW;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER operations_of_the_release_before BEFORE INSERT ON public.operations
    FOR EACH ROW WHEN (NEW.kind = 'reversal' AND NEW.amount_minor IS NULL)
    EXECUTE FUNCTION public.operations_of_the_release_before();

-- The outbound key is the last wall against doing a thing twice, and what was asked
-- for is what was answered with 202: both stay what they were, whoever redrives or
-- settles it. SUCCEEDED and REJECTED are final, except that a cancel may still be
-- noted; NOT_APPLIED is not proof, and a late check may reopen it.
-- +goose StatementBegin
CREATE FUNCTION public.operations_keep() RETURNS trigger
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a follow-up is kept for good, as it was asked for and as it ended'
        USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER operations_final AFTER UPDATE ON public.operations
    FOR EACH ROW
    WHEN (OLD.state IN ('SUCCEEDED', 'REJECTED') AND (OLD.state <> NEW.state OR OLD.cancelled OR NOT NEW.cancelled)
        OR OLD.cancelled AND NOT NEW.cancelled
        OR (OLD.id, OLD.kind, OLD.payment_id, OLD.outbound_key, OLD.caller, OLD.key_hash, OLD.fingerprint, OLD.created_at)
            IS DISTINCT FROM
            (NEW.id, NEW.kind, NEW.payment_id, NEW.outbound_key, NEW.caller, NEW.key_hash, NEW.fingerprint, NEW.created_at)
        OR (OLD.account, OLD.amount_minor, OLD.currency, OLD.till_reference, OLD.metadata::text, OLD.reverses)
            IS DISTINCT FROM
            (NEW.account, NEW.amount_minor, NEW.currency, NEW.till_reference, NEW.metadata::text, NEW.reverses))
    EXECUTE FUNCTION public.operations_keep();

CREATE TRIGGER operations_kept BEFORE DELETE OR TRUNCATE ON public.operations
    FOR EACH STATEMENT EXECUTE FUNCTION public.operations_keep();

-- Every wallet call, as it turned out: written by the statement that stores what
-- came of it, so that it costs no commit. There is no foreign key, which would lock
-- the row that the same statement has just written: subject_id comes from that row,
-- and neither table forgets one.
CREATE TABLE public.wallet_calls (
    -- The payment, or the follow-up, that the call was made for.
    subject_id uuid        NOT NULL,
    -- The lease under which it was made (0: the till waited), and its place therein.
    fence      bigint      NOT NULL,
    n          integer     NOT NULL,
    attempt    integer     NOT NULL,
    call       text        NOT NULL,
    outcome    text        NOT NULL,
    reason     text        NOT NULL,
    status     integer,
    at         timestamptz NOT NULL,
    took       interval    NOT NULL,

    CONSTRAINT wallet_calls_pkey PRIMARY KEY (subject_id, fence, n),
    CONSTRAINT wallet_calls_call_check CHECK (call <> ''),
    CONSTRAINT wallet_calls_outcome_check CHECK (outcome <> '')
);

-- What operators have done, and why.
CREATE TABLE public.operator_notes (
    id           uuid        NOT NULL,
    operation_id uuid        NOT NULL,
    at           timestamptz NOT NULL,
    operator     text        NOT NULL,
    action       text        NOT NULL,
    note         text        NOT NULL,

    CONSTRAINT operator_notes_pkey PRIMARY KEY (id),
    CONSTRAINT operator_notes_operation_id_fkey FOREIGN KEY (operation_id) REFERENCES public.operations (id),
    CONSTRAINT operator_notes_operator_check CHECK (operator <> ''),
    CONSTRAINT operator_notes_action_check CHECK (action IN ('redrive', 'settle-applied', 'settle-not-applied')),
    CONSTRAINT operator_notes_note_check CHECK (note <> '')
);
CREATE INDEX operator_notes_operation_id_idx ON public.operator_notes (operation_id);

-- A record that can be rewritten is none. Old calls may be thinned one day (contract
-- section 1); notes are kept.
-- +goose StatementBegin
CREATE FUNCTION public.record_keep() RETURNS trigger
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a record is kept as it was written'
        USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER wallet_calls_kept BEFORE UPDATE ON public.wallet_calls
    FOR EACH STATEMENT EXECUTE FUNCTION public.record_keep();
CREATE TRIGGER operator_notes_kept BEFORE UPDATE OR DELETE OR TRUNCATE ON public.operator_notes
    FOR EACH STATEMENT EXECUTE FUNCTION public.record_keep();
