// Package memory is the ledger without a database: the same answers from maps, by
// the process's clock, so that testing/synctest can drive it. It is for tests and
// benchmarks; nothing of it is durable. The suite in package ledgertest holds it
// to what PostgreSQL does.
package memory

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// Step names what a ledger is asked for, to a fault.
type Step uint8

// The steps that a fault can strike.
const (
	_ Step = iota
	Claim
	Decide
	Read // by id or by key
	Recover
	Accept
	Cancel
)

// Fault is called at a step and may wait, by the clock or for ctx, and fail it.
type Fault func(ctx context.Context, step Step) error

// Config is how a Ledger behaves. The zero value but for Horizon is a ledger that
// answers at once.
type Config struct {
	// Horizon is how long a payment may be in flight before it is recovered.
	Horizon time.Duration
	// Before, if set, strikes before a step takes effect: nothing was stored.
	Before Fault
	// After, if set, strikes when a step has taken effect: what was stored is stored,
	// and an error is that of a commit whose answer was lost.
	After Fault
	// Recovered, if set, hears of every payment that was recovered. It must not call
	// the ledger.
	Recovered func(ctx context.Context, p payment.Payment)
}

// Ledger is a ledger in memory. It is safe for concurrent use.
type Ledger struct {
	config Config

	mu    sync.Mutex
	byKey map[identity]*row
	byID  map[uuid.UUID]*row

	followUpByKey map[identity]*followUp
	followUps     []*followUp // oldest first
}

// identity is the unique constraint of contract section 1.
type identity struct {
	key       payment.KeyHash
	caller    string
	operation payment.Operation
}

type row struct {
	payment     payment.Payment
	fingerprint payment.Fingerprint
	followUps   []*followUp // oldest first
}

// New makes an empty Ledger.
func New(config Config) *Ledger {
	if config.Recovered == nil {
		config.Recovered = func(context.Context, payment.Payment) {}
	}
	return &Ledger{
		config: config, byKey: map[identity]*row{}, byID: map[uuid.UUID]*row{}, followUpByKey: map[identity]*followUp{},
	}
}

// Claim makes the key of req its own, or says whose it is.
func (l *Ledger) Claim(ctx context.Context, req payment.Request) (payment.Claim, error) {
	var answer payment.Claim
	err := l.step(ctx, Claim, func() error {
		answer = l.claim(ctx, req)
		return nil
	})
	if err != nil {
		return payment.Claim{}, fmt.Errorf("claim a key: %w", err)
	}
	return answer, nil
}

func (l *Ledger) claim(ctx context.Context, req payment.Request) payment.Claim {
	key := identity{key: req.Key.Hash(), caller: req.Caller, operation: req.Operation}
	fingerprint := req.Fingerprint()
	stored, taken := l.byKey[key]
	if !taken {
		at := now()
		stored = &row{fingerprint: fingerprint, payment: payment.Payment{
			ID:            newID(at),
			Caller:        req.Caller,
			Operation:     req.Operation,
			Account:       req.Account,
			Amount:        req.Amount,
			TillReference: req.TillReference,
			Metadata:      maps.Clone(req.Metadata),
			Reference:     req.DeriveReference(),
			State:         payment.InFlight,
			CreatedAt:     at,
		}}
		l.byKey[key], l.byID[stored.payment.ID] = stored, stored
		return payment.Claim{Status: payment.ClaimNew, Payment: stored.answer()}
	}
	if !stored.tombstone() && stored.fingerprint != fingerprint {
		return payment.Claim{Status: payment.ClaimMismatch}
	}
	l.recoverMet(ctx, stored)
	status := payment.ClaimDecided
	switch {
	case stored.payment.State == payment.InFlight:
		status = payment.ClaimInFlight
	case stored.payment.State == payment.Approved && stored.cancelled():
		status = payment.ClaimCancelled
	}
	return payment.Claim{Status: status, Payment: stored.answer()}
}

// Decide stores d if the payment is still in flight, and returns what is stored.
func (l *Ledger) Decide(ctx context.Context, p payment.Payment, d payment.Decision) (payment.Payment, error) {
	var stored payment.Payment
	err := l.step(ctx, Decide, func() error {
		r, ok := l.byID[p.ID]
		if !ok {
			return errors.New("the payment is not in the ledger")
		}
		if r.payment.State == payment.InFlight {
			if err := check(d); err != nil {
				return err
			}
			l.decide(r, d)
		}
		stored = r.answer()
		return nil
	})
	if err != nil {
		return payment.Payment{}, fmt.Errorf("decide %s: %w", p.ID, err)
	}
	return stored, nil
}

// PaymentByID is the payment with its follow-ups, if it is caller's.
func (l *Ledger) PaymentByID(ctx context.Context, caller string, id uuid.UUID) (p payment.Payment, found bool, err error) {
	err = l.step(ctx, Read, func() error {
		r, ok := l.byID[id]
		if found = ok && r.payment.Caller == caller; found {
			p = l.read(ctx, r)
		}
		return nil
	})
	if err != nil {
		return payment.Payment{}, false, fmt.Errorf("read payment %s: %w", id, err)
	}
	return p, found, nil
}

// PaymentByKey is PaymentByID by the till's own key.
func (l *Ledger) PaymentByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key) (p payment.Payment, found bool, err error) {
	err = l.step(ctx, Read, func() error {
		var r *row
		if r, found = l.byKey[identity{key: key.Hash(), caller: caller, operation: op}]; found {
			p = l.read(ctx, r)
		}
		return nil
	})
	if err != nil {
		return payment.Payment{}, false, fmt.Errorf("read a payment by its key: %w", err)
	}
	return p, found, nil
}

func (l *Ledger) read(ctx context.Context, r *row) payment.Payment {
	l.recoverMet(ctx, r)
	p := r.answer()
	for _, f := range r.followUps {
		p.FollowUps = append(p.FollowUps, f.told())
	}
	return p
}

// Recover declines what is in flight for longer than the horizon, and says how much.
func (l *Ledger) Recover(ctx context.Context) (recovered int, err error) {
	err = l.step(ctx, Recover, func() error {
		for _, r := range l.byID {
			if l.recoverMet(ctx, r) {
				recovered++
			}
		}
		return nil
	})
	if err != nil {
		return recovered, fmt.Errorf("recover: %w", err)
	}
	return recovered, nil
}

// recoverMet declines a payment that is overdue, and reports whether it was.
func (l *Ledger) recoverMet(ctx context.Context, r *row) bool {
	if r.payment.State != payment.InFlight || !r.payment.CreatedAt.Before(now().Add(-l.config.Horizon)) {
		return false
	}
	l.decide(r, payment.DeclineAndReverse(payment.WalletTimeout))
	l.config.Recovered(ctx, r.answer())
	return true
}

// Ping reports what the faults make of a read.
func (l *Ledger) Ping(ctx context.Context) error {
	return l.step(ctx, Read, func() error { return nil })
}

// step runs f alone, between the faults. As with a database, a caller whose time
// is up gets an error, and does not know more.
func (l *Ledger) step(ctx context.Context, s Step, f func() error) error {
	if l.config.Before != nil {
		if err := l.config.Before(ctx, s); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := l.alone(f); err != nil {
		return err
	}
	if l.config.After != nil {
		if err := l.config.After(ctx, s); err != nil {
			return err
		}
		return ctx.Err()
	}
	return nil
}

func (l *Ledger) alone(f func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return f()
}

// check is the part of the database's CHECK constraints that a decision can break.
func check(d payment.Decision) error {
	approved := d.State == payment.Approved && d.Code == "" && d.WalletID != "" && !d.Reverse
	declined := d.State == payment.Declined && d.Code != "" && d.WalletID == ""
	if !approved && !declined {
		return errors.New("a decision must be an approval with the wallet's id or a decline with a code")
	}
	return nil
}

func (l *Ledger) decide(r *row, d payment.Decision) {
	at := now()
	r.payment.State, r.payment.Code, r.payment.WalletID, r.payment.DecidedAt = d.State, d.Code, d.WalletID, at
	if d.Reverse {
		l.reverse(r, r.payment.Amount, at)
	}
}

// answer is a copy of the payment that shares nothing with the row, without
// follow-ups.
func (r *row) answer() payment.Payment {
	p := r.payment
	p.Metadata = maps.Clone(p.Metadata)
	return p
}

// now is the time as a database keeps it: microseconds, UTC.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// newID is a UUIDv7 for the time at, as the database's uuid_v7 makes it. It is not
// uuid.NewV7, which never goes back behind an id that was made before: an id made
// in a synctest bubble would carry the time outside.
func newID(at time.Time) uuid.UUID {
	var id uuid.UUID
	micros := uint64(at.UnixMicro()) // after 1970
	binary.BigEndian.PutUint64(id[:8], micros/1000<<16|0x7000|micros%1000*4096/1000)
	_, _ = rand.Read(id[8:]) // never fails (package crypto/rand)
	id[8] = id[8]&0x3f | 0x80
	return id
}
