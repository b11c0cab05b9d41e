-- Which programs run on the schema. A program knows the migrations before it and none
-- after it, so the database tells the older one: each migration leaves a row here that
-- names the oldest program that may still run, by the newest migration that this
-- program knows (docs/adr/0019). A program that finds a newer schema without its row
-- does not run either.

-- +goose Up

CREATE TABLE public.schema_compatibility (
    -- The migration that says so.
    version        bigint NOT NULL,
    -- The release before always runs, or replicas could not be replaced one by one.
    oldest_program bigint NOT NULL,

    CONSTRAINT schema_compatibility_pkey PRIMARY KEY (version),
    CONSTRAINT schema_compatibility_oldest_program_check CHECK (oldest_program BETWEEN 1 AND version - 1)
);

-- Nothing that a program of 00002 reads or writes has changed since.
INSERT INTO public.schema_compatibility (version, oldest_program) VALUES (4, 2);
