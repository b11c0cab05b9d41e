-- Whose request a follow-up goes back to, for those who read traces. A release that
-- does not know the column leaves it null, and nothing depends on it.

-- +goose Up

-- The request's span as the traceparent field names it (W3C Trace Context), null where
-- nothing is traced. No row has one yet, so there is nothing to validate, and the table
-- is not read for it.
ALTER TABLE public.operations
    ADD COLUMN traceparent text,
    ADD CONSTRAINT operations_traceparent_check
        CHECK (traceparent ~ '^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$') NOT VALID;

-- A program that does not know the column leaves it null.
INSERT INTO public.schema_compatibility (version, oldest_program) VALUES (5, 2);
