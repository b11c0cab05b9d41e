-- The ledger of payments: who asked for what under which key, what was decided,
-- and the reversals that some decisions bring with them. Rules that must hold
-- whatever the code does are constraints here; the code's part is to be polite.
--
-- Every name is written with its schema, here and in the code, so that a
-- search_path that a role, a database or a pooler brings along changes nothing.

-- +goose Up

-- A UUIDv7 (RFC 9562 section 5.7) for the time at: 48 bits of milliseconds, then
-- 12 bits of the microseconds within, then the tail. It is made here, by the
-- database's clock, and not by the process that asks: ids from pods whose clocks
-- are minutes apart would be in no order, and recovery finds what was left
-- undecided by a range of ids. Two times a microsecond apart give two different
-- beginnings, so the ids are in the order of created_at.
-- +goose StatementBegin
CREATE FUNCTION public.uuid_v7(at timestamptz) RETURNS uuid
    LANGUAGE sql VOLATILE STRICT PARALLEL SAFE
AS $$
    SELECT encode(
        substring(int8send((extract(epoch FROM at) * 1000000)::bigint / 1000) FROM 3)
        -- 28672 is the version, 7, in the upper four bits of sixteen.
        || int2send((28672 + (extract(epoch FROM at) * 1000000)::bigint % 1000 * 4096 / 1000)::smallint)
        -- The random half of a UUIDv4 carries the variant bits that v7 needs too.
        || substring(uuid_send(gen_random_uuid()) FROM 9), 'hex')::uuid
$$;
-- +goose StatementEnd

-- The smallest id that uuid_v7 gives for the time at: what was created before
-- that time has a smaller one, what was created then or later has not.
-- +goose StatementBegin
CREATE FUNCTION public.uuid_v7_floor(at timestamptz) RETURNS uuid
    LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$
    SELECT encode(
        substring(int8send((extract(epoch FROM at) * 1000000)::bigint / 1000) FROM 3)
        || int2send((28672 + (extract(epoch FROM at) * 1000000)::bigint % 1000 * 4096 / 1000)::smallint)
        || '\x8000000000000000'::bytea, 'hex')::uuid
$$;
-- +goose StatementEnd

-- The outbound key of the reversal of what reference names. It is
-- payment.Reference.Reversal of the Go code, a second time: declining and
-- reversing are one statement because of it, without first asking for the
-- reference. A test holds the two to each other.
-- +goose StatementBegin
CREATE FUNCTION public.reversal_reference(reference uuid) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$
    SELECT encode(
        set_byte(set_byte(substring(digest FOR 16),
            6, get_byte(digest, 6) & 15 | 128),    -- version 8 (RFC 9562 section 5.8)
            8, get_byte(digest, 8) & 63 | 128),    -- its variant
        'hex')::uuid
    FROM (SELECT sha256(
        int4send(21) || convert_to('safeledger/reversal/1', 'UTF8')
        || int4send(36) || convert_to(reference::text, 'UTF8')) AS digest) AS derived
$$;
-- +goose StatementEnd

-- One row per payment, kept for good: a key that was forgotten would be executed
-- again. account, amount_minor and currency are together null for a payment that
-- was cancelled before it was ever seen, and only for that.
CREATE TABLE public.payments (
    id             uuid        NOT NULL,
    caller         text        NOT NULL,
    operation      text        NOT NULL,
    -- The time that a till's UUIDv7 or ULID key carries (six bytes, zero for other
    -- keys), then the key's SHA-256.
    key_hash       bytea       NOT NULL,
    fingerprint    bytea       NOT NULL,
    -- What the wallet knows the payment by; it never changes.
    reference      uuid        NOT NULL,
    account        text,
    amount_minor   bigint,
    currency       text,
    till_reference text,
    -- json and not jsonb: it is given back, never searched, and json keeps the text.
    metadata       json,
    state          text        NOT NULL,
    code           text,
    wallet_id      text,
    created_at     timestamptz NOT NULL,
    decided_at     timestamptz,

    CONSTRAINT payments_pkey PRIMARY KEY (id),
    -- The identity of contract section 1: the one thing that makes an owner of a key.
    -- key_hash comes first, and its time first in it: in the order of arrival the
    -- index grows at its right edge, while random keys touch a random page of it
    -- each (measured at 5 million rows: 2.7 times the WAL, a third of the rate).
    CONSTRAINT payments_identity_key UNIQUE (key_hash, caller, operation),

    CONSTRAINT payments_caller_check CHECK (caller <> ''),
    CONSTRAINT payments_operation_check CHECK (operation IN ('debit', 'hold')),
    CONSTRAINT payments_key_hash_check CHECK (octet_length(key_hash) = 38),
    CONSTRAINT payments_fingerprint_check CHECK (octet_length(fingerprint) = 33),
    CONSTRAINT payments_asked_check CHECK (
        num_nulls(account, amount_minor, currency) = 0
        OR (num_nonnulls(account, amount_minor, currency, till_reference, metadata) = 0
            AND state = 'DECLINED' AND code = 'CANCELLED')),
    CONSTRAINT payments_account_check CHECK (char_length(account) BETWEEN 1 AND 64),
    CONSTRAINT payments_amount_minor_check CHECK (amount_minor BETWEEN 1 AND 9007199254740991),
    CONSTRAINT payments_currency_check CHECK (currency ~ '^[A-Z]{3}$'),
    CONSTRAINT payments_till_reference_check CHECK (char_length(till_reference) BETWEEN 1 AND 128),
    CONSTRAINT payments_metadata_check CHECK (json_typeof(metadata) = 'object'),
    CONSTRAINT payments_code_check CHECK (code ~ '^[A-Z][A-Z0-9_]{0,63}$'),
    CONSTRAINT payments_wallet_id_check CHECK (wallet_id <> ''),
    -- A state and what belongs to it come together or not at all.
    CONSTRAINT payments_state_check CHECK (
        CASE state
            WHEN 'IN_FLIGHT' THEN num_nonnulls(code, wallet_id, decided_at) = 0
            WHEN 'APPROVED' THEN code IS NULL AND num_nulls(wallet_id, decided_at) = 0
            WHEN 'DECLINED' THEN wallet_id IS NULL AND num_nulls(code, decided_at) = 0
            ELSE false
        END)
) WITH (
    -- Every row is rewritten once, by its decision. No index and no index predicate
    -- knows a column that this changes, so the new version can stay on the page of
    -- the old (a HOT update: no index is written) as long as the page has room. A
    -- partial index on what is undecided would be convenient, and would end that.
    fillfactor = 75
);

-- A decision is final and a request stays what it was. The code takes care of that
-- by conditional updates; this is for the code that somebody writes one day. It is
-- an AFTER trigger because a BEFORE trigger locks each row once more, and writes 50
-- bytes of WAL for that. This one writes none, and its WHEN is evaluated without a
-- call: some ten microseconds of a deciding update.
-- +goose StatementBegin
CREATE FUNCTION public.payments_keep() RETURNS trigger
    LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'a payment is kept for good, and as it was decided'
        USING ERRCODE = 'check_violation', SCHEMA = TG_TABLE_SCHEMA, TABLE = TG_TABLE_NAME, CONSTRAINT = TG_NAME;
END
$$;
-- +goose StatementEnd

CREATE TRIGGER payments_final AFTER UPDATE ON public.payments
    FOR EACH ROW
    WHEN (OLD.state <> 'IN_FLIGHT'
        OR (OLD.id, OLD.caller, OLD.operation, OLD.key_hash, OLD.fingerprint, OLD.reference, OLD.created_at)
            IS DISTINCT FROM
            (NEW.id, NEW.caller, NEW.operation, NEW.key_hash, NEW.fingerprint, NEW.reference, NEW.created_at)
        OR (OLD.account, OLD.amount_minor, OLD.currency, OLD.till_reference, OLD.metadata::text)
            IS DISTINCT FROM
            (NEW.account, NEW.amount_minor, NEW.currency, NEW.till_reference, NEW.metadata::text))
    EXECUTE FUNCTION public.payments_keep();

CREATE TRIGGER payments_kept BEFORE DELETE OR TRUNCATE ON public.payments
    FOR EACH STATEMENT EXECUTE FUNCTION public.payments_keep();

-- One row per follow-up of a payment; the row is also the work item of the queue.
-- So far there are only reversals, and nothing carries them out yet.
CREATE TABLE public.operations (
    id           uuid        NOT NULL,
    kind         text        NOT NULL,
    payment_id   uuid        NOT NULL,
    -- The wallet's `reference` and Idempotency-Key of every attempt at it.
    outbound_key uuid        NOT NULL,
    state        text        NOT NULL,
    code         text,
    created_at   timestamptz NOT NULL,
    due_at       timestamptz NOT NULL,
    ended_at     timestamptz,

    CONSTRAINT operations_pkey PRIMARY KEY (id),
    CONSTRAINT operations_payment_id_fkey FOREIGN KEY (payment_id) REFERENCES public.payments (id),
    CONSTRAINT operations_kind_check CHECK (kind IN ('credit', 'capture', 'release', 'reversal')),
    CONSTRAINT operations_code_check CHECK (code ~ '^[A-Z][A-Z0-9_]{0,63}$'),
    CONSTRAINT operations_state_check CHECK (
        CASE state
            WHEN 'PENDING' THEN num_nonnulls(code, ended_at) = 0
            WHEN 'PARKED' THEN ended_at IS NULL
            WHEN 'REJECTED' THEN num_nulls(code, ended_at) = 0
            WHEN 'SUCCEEDED' THEN code IS NULL AND ended_at IS NOT NULL
            WHEN 'NOT_APPLIED' THEN kind = 'reversal' AND code IS NULL AND ended_at IS NOT NULL
            ELSE false
        END)
) WITH (fillfactor = 75);

-- Money is given back once, however many think that it is their turn.
CREATE UNIQUE INDEX operations_one_reversal_key ON public.operations (payment_id) WHERE kind = 'reversal';
-- The follow-ups of a payment, for whoever reads it.
CREATE INDEX operations_payment_id_idx ON public.operations (payment_id);
-- What is still to be done, by kind and in the order in which it is due.
CREATE INDEX operations_pending_idx ON public.operations (kind, due_at) WHERE state = 'PENDING';

-- How far recovery has come: no payment that was created before low_water is in
-- flight, nor will one appear. There is one row. Nothing can have been created
-- before the table, so it starts now.
CREATE TABLE public.recovery (
    singleton boolean     NOT NULL DEFAULT true,
    low_water timestamptz NOT NULL,

    CONSTRAINT recovery_pkey PRIMARY KEY (singleton),
    CONSTRAINT recovery_singleton_check CHECK (singleton)
);

INSERT INTO public.recovery (low_water) VALUES (clock_timestamp());
