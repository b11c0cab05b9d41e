// Package ledger keeps payments and their follow-ups in PostgreSQL: who owns a key,
// what was decided, what is still to be done about it, and who is doing that. It is
// the only package that speaks SQL.
//
// Three rules carry it. A key gets its one owner from a unique constraint, by an
// insert that is committed before anybody is called (contract section 1,
// Idempotency). State moves forward only, by updates that are conditional on
// what is there; whoever comes second reads what the first has stored. And an
// error of a write means that it is not known whether the write is durable:
// nothing here repeats one, the till does, under the same key.
//
// All times are the database's. A pod's clock decides nothing.
package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
)

// Config says what the ledger needs to know of the rest.
type Config struct {
	// Horizon is how long a payment may be in flight: the server budget and
	// RECOVERY_GRACE together (contract section 2). What has been longer lost its
	// handler and is recovered.
	Horizon time.Duration
	// Recovered, if set, hears of every payment that this process has recovered, by
	// sweep or because somebody met it. It must not block.
	Recovered func(ctx context.Context, p payment.Payment)
	// Alone gives every claim, decision and settlement a transaction of its own,
	// instead of one with whatever else is to be written at the moment (ADR 0018).
	Alone bool
	// Shared, if set, hears of every transaction that several callers' writes may
	// share: how many do, and when it has ended; undone means that it left nothing and
	// that each of them is tried alone. It must not block.
	Shared func(writes int) (ended func(undone bool))
}

// Ledger is the durable store. It is safe for concurrent use; any number of
// processes may have one on the same database.
type Ledger struct {
	pool   *pgxpool.Pool
	config Config
	group  group
	sweep  sweep
}

// New makes a Ledger on pool, see Connect. The caller closes the pool.
func New(pool *pgxpool.Pool, config Config) (*Ledger, error) {
	if config.Horizon <= 0 {
		return nil, fmt.Errorf("the recovery horizon must be above 0, not %v: every payment would be declined at once", config.Horizon)
	}
	if config.Recovered == nil {
		config.Recovered = func(context.Context, payment.Payment) {}
	}
	if config.Shared == nil {
		config.Shared = func(int) func(bool) { return func(bool) {} }
	}
	l := &Ledger{pool: pool, config: config, sweep: newSweep()}
	l.group.write, l.group.shared = l.write, config.Shared
	return l, nil
}

// Claim makes the key of req its own, durably, or says whose it is. Of any number
// of concurrent claims of one key, on any number of replicas, one gets ClaimNew.
// It does not wait for a claim of the same key that is being committed.
//
// An error means that it is not known whether the key was claimed. Nothing may be
// sent to the wallet then; the same claim again finds out.
func (l *Ledger) Claim(ctx context.Context, req payment.Request) (payment.Claim, error) {
	c, err := newClaiming(req)
	if err != nil {
		return payment.Claim{}, fmt.Errorf("claim a key: write the metadata: %w", err)
	}
	w := writes{claims: []*claiming{c}}
	err = l.store(ctx, w)
	twin := waitedForTwin(err)
	if !twin && code(err) == lockNotAvailable {
		// Some other lock was in the way, of the table or of its end, where all insert: our
		// own trouble, which is waited for as long as the till waits.
		w.patient = true
		err = l.write(ctx, w)
	}
	if err != nil && !twin {
		return payment.Claim{}, fmt.Errorf("claim a key: %w", err)
	}
	if err == nil && c.mine {
		return payment.Claim{Status: payment.ClaimNew, Payment: payment.Payment{
			ID:            c.id,
			Caller:        req.Caller,
			Operation:     req.Operation,
			Account:       req.Account,
			Amount:        req.Amount,
			TillReference: req.TillReference,
			Metadata:      req.Metadata,
			Reference:     c.reference,
			State:         payment.InFlight,
			CreatedAt:     c.createdAt,
		}}, nil
	}

	owner, found, err := l.claimed(ctx, req, c.hash)
	switch {
	case err != nil:
		return payment.Claim{}, fmt.Errorf("read the owner of a key: %w", err)
	case !found && twin:
		// Somebody has inserted this key and not committed yet. What he asked for
		// cannot be seen, so not compared either.
		return payment.Claim{Status: payment.ClaimInFlight}, nil
	case !found:
		return payment.Claim{}, errors.New("claim a key: something is in the way that cannot be read")
	case !owner.tombstone() && !c.fingerprint.Matches(owner.fingerprint):
		return payment.Claim{Status: payment.ClaimMismatch}, nil
	}
	if owner.late {
		owner.Payment, err = l.recoverMet(ctx, owner.Payment)
		if err != nil {
			return payment.Claim{}, err
		}
	}
	status := payment.ClaimDecided
	switch {
	case owner.State == payment.InFlight:
		status = payment.ClaimInFlight
	case owner.cancelled:
		status = payment.ClaimCancelled
	}
	return payment.Claim{Status: status, Payment: owner.Payment}, nil
}

// owner is the row that was in the way of a claim.
type owner struct {
	payment.Payment

	fingerprint []byte
	late        bool // in flight for longer than the horizon
	cancelled   bool // approved, and cancelled by key since
}

// tombstone reports whether the key was cancelled before it was ever seen. What it
// was meant for is not known then, so it is the answer to whatever comes late.
func (o owner) tombstone() bool { return o.State == payment.Declined && o.Account == "" }

// claimed reads the row of the key of req.
func (l *Ledger) claimed(ctx context.Context, req payment.Request, hash payment.KeyHash) (o owner, found bool, err error) {
	err = l.transact(ctx, trip{begin: beginRead, lockWait: lockPatience, queue: func(b *pgx.Batch) {
		b.Queue(claimed, pgx.NamedArgs{
			"key_hash": hash[:], "caller": req.Caller, "operation": string(req.Operation), "horizon": l.config.Horizon,
		}).QueryRow(func(row pgx.Row) error {
			o.Payment, err = scanPayment(row, &o.fingerprint, &o.late, &o.cancelled)
			found = err == nil
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	}})
	return o, found, err
}

// Decide stores d if p, which is as Claim gave it, is still in flight, with its
// reversal in the same statement where d asks for one, and returns what is stored
// then, whoever stored it. The calls that led to d are stored in any case.
//
// An error means that it is not known whether d is stored. Recovery decides then.
func (l *Ledger) Decide(ctx context.Context, p payment.Payment, d payment.Decision) (payment.Payment, error) {
	if d.Reverse && d.State != payment.Declined {
		return payment.Payment{}, fmt.Errorf("decide %s: only a decline brings a reversal with it, not %s", p.ID, d.State)
	}
	w := &deciding{id: p.ID, decision: d, traceparent: tracing.Traceparent(ctx)}
	if err := l.store(ctx, writes{decisions: []*deciding{w}}); err != nil {
		return payment.Payment{}, fmt.Errorf("decide %s: %w", p.ID, err)
	}
	if !w.won {
		if err := l.keepCalls(ctx, p.ID, d.Calls); err != nil {
			return payment.Payment{}, fmt.Errorf("keep the calls of %s: %w", p.ID, err)
		}
		return l.decided(ctx, p.ID)
	}
	// The rest of the row is the request, which never changes.
	p.State, p.Code, p.WalletID, p.DecidedAt = d.State, d.Code, d.WalletID, w.decidedAt
	return p, nil
}

// conditionally runs an update that returns the payment if it touched it.
func (l *Ledger) conditionally(ctx context.Context, statement string, args pgx.NamedArgs) (p payment.Payment, won bool, err error) {
	err = l.transact(ctx, trip{begin: begin, queue: func(b *pgx.Batch) {
		b.Queue(statement, args).QueryRow(func(row pgx.Row) error {
			var err error
			p, err = scanPayment(row)
			won = err == nil
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
	}})
	if err != nil {
		return payment.Payment{}, false, err
	}
	return p, won, nil
}

// decided reads a payment that somebody else has decided.
func (l *Ledger) decided(ctx context.Context, id uuid.UUID) (p payment.Payment, err error) {
	err = l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(decidedPayment, pgx.NamedArgs{"id": pgUUID(id)}).QueryRow(func(row pgx.Row) error {
			var err error
			p, err = scanPayment(row)
			return err
		})
	}})
	if errors.Is(err, pgx.ErrNoRows) {
		// A failover has lost the claim. What the wallet did under its reference is
		// found by the till's replay, which derives the same one.
		return payment.Payment{}, fmt.Errorf("read the decision of %s: the payment is not in the ledger", id)
	}
	if err != nil {
		return payment.Payment{}, fmt.Errorf("read the decision of %s: %w", id, err)
	}
	if p.State == payment.InFlight {
		return payment.Payment{}, fmt.Errorf("decide %s: in flight, and yet not to be decided", id)
	}
	return p, nil
}

// PaymentByID is the payment with its follow-ups; false where caller has none of
// that id, even if somebody else has.
func (l *Ledger) PaymentByID(ctx context.Context, caller string, id uuid.UUID) (payment.Payment, bool, error) {
	args := pgx.NamedArgs{"id": pgUUID(id), "caller": caller}
	p, found, err := l.read(ctx, paymentByID, followUpsByID, args)
	if err != nil {
		return payment.Payment{}, false, fmt.Errorf("read payment %s: %w", id, err)
	}
	return p, found, nil
}

// PaymentByKey is PaymentByID by the till's own key. That there is none proves
// nothing of a request which is still on its way.
func (l *Ledger) PaymentByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key) (payment.Payment, bool, error) {
	hash := key.Hash()
	args := pgx.NamedArgs{"key_hash": hash[:], "caller": caller, "operation": string(op)}
	p, found, err := l.read(ctx, paymentByKey, followUpsByKey, args)
	if err != nil {
		return payment.Payment{}, false, fmt.Errorf("read a payment by its key: %w", err)
	}
	return p, found, nil
}

// read is a payment and its follow-ups in one snapshot. One that is overdue is
// recovered first and read again.
func (l *Ledger) read(ctx context.Context, paymentSQL, followUpsSQL string, args pgx.NamedArgs) (payment.Payment, bool, error) {
	p, late, found, err := l.readOnce(ctx, paymentSQL, followUpsSQL, args)
	if err != nil || !found || !late {
		return p, found, err
	}
	if _, err := l.recoverMet(ctx, p); err != nil {
		return payment.Payment{}, false, err
	}
	p, _, found, err = l.readOnce(ctx, paymentSQL, followUpsSQL, args)
	return p, found, err
}

func (l *Ledger) readOnce(ctx context.Context, paymentSQL, followUpsSQL string, args pgx.NamedArgs) (
	p payment.Payment, late, found bool, err error,
) {
	withHorizon := pgx.NamedArgs{"horizon": l.config.Horizon}
	maps.Copy(withHorizon, args)
	var followUps []payment.FollowUp
	err = l.transact(ctx, trip{begin: beginRead, queue: func(b *pgx.Batch) {
		b.Queue(paymentSQL, withHorizon).QueryRow(func(row pgx.Row) error {
			var err error
			p, err = scanPayment(row, &late)
			found = err == nil
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			return err
		})
		b.Queue(followUpsSQL, args).Query(func(rows pgx.Rows) error {
			var err error
			followUps, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (payment.FollowUp, error) {
				return scanFollowUp(row)
			})
			return err
		})
	}})
	if err != nil {
		return payment.Payment{}, false, false, err
	}
	if len(followUps) > 0 {
		p.FollowUps = followUps
	}
	return p, late, found, nil
}
