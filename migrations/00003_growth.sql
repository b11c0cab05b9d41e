-- What the tables need to stay quick when they are large. Nothing that a program
-- reads or writes changes.

-- +goose Up

-- The release that left out whom a reversal is about cannot run any more.
DROP TRIGGER operations_of_the_release_before ON public.operations;
DROP FUNCTION public.operations_of_the_release_before();

-- By default autovacuum comes by when a fifth of a table is dead: at a hundred million
-- payments, after twenty million decisions. What it does for payments is little, and
-- must be done while it is little: a decision's old version was removed by the next
-- who came to the page, no index ever knew it, and what remains is to note which pages
-- need no look any more and to freeze what never changes again.
ALTER TABLE public.payments SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02
);

-- Each attempt at a follow-up moves its row in the queue's index, and leaves an entry
-- behind that leads nowhere. Whoever leases passes by those until they are removed, so
-- they are removed after a thousand, or one in a hundred, and without the pauses that
-- spare the disk of a larger table.
ALTER TABLE public.operations SET (
    autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0,
    autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02
);

-- Only ever appended to, and thinned at its old end.
ALTER TABLE public.wallet_calls SET (
    autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.02
);
