// Package memory is the ledger without a database: the same answers from maps, by
// the process's clock, so that testing/synctest can drive it. It is for tests and
// benchmarks; nothing of it is durable. The suite in package ledgertest holds it
// to what PostgreSQL does.
package memory

import (
	"context"
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
	Lease
	Settle
	HandBack
	Operate // what operators do
)

// Fault is called at a step and may wait, by the clock or for ctx, and fail it.
type Fault func(ctx context.Context, step Step) error

// Late is the error of a Fault before a step that takes effect all the same, After so
// long: its caller has given up on a statement that is still on its way.
type Late struct{ After time.Duration }

func (e Late) Error() string {
	return fmt.Sprintf("the connection to the database was lost; what was said arrives %s later", e.After)
}

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

// Ledger is what one process has of a ledger in memory. It is safe for concurrent use.
type Ledger struct {
	*tables

	config Config
}

// tables are what all processes share.
type tables struct {
	mu   sync.Mutex
	skew time.Duration // of the database's clock
	ids  uint64        // that were given

	payments []*row // oldest first
	byKey    map[identity]*row
	byID     map[uuid.UUID]*row

	followUps     []*followUp // oldest first
	followUpByKey map[identity]*followUp
	followUpByID  map[uuid.UUID]*followUp

	calls    []madeCall
	recorded map[callKey]struct{}
	notes    []payment.Note
	leases   uint64 // that were asked for
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
	return (&Ledger{tables: &tables{
		byKey: map[identity]*row{}, byID: map[uuid.UUID]*row{},
		followUpByKey: map[identity]*followUp{}, followUpByID: map[uuid.UUID]*followUp{}, recorded: map[callKey]struct{}{},
	}}).Another(config)
}

// Another is what another process has of the same ledger.
func (l *Ledger) Another(config Config) *Ledger {
	if config.Recovered == nil {
		config.Recovered = func(context.Context, payment.Payment) {}
	}
	return &Ledger{tables: l.tables, config: config}
}

// Skew makes the ledger's clock differ from the processes' by d from now on, as after
// a failover to a machine whose clock is off.
func (l *Ledger) Skew(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.skew = d
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
		at := l.now()
		stored = &row{fingerprint: fingerprint, payment: payment.Payment{
			ID:            l.newID(at),
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
		l.keep(key, stored)
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

// keep writes a payment's row.
func (l *Ledger) keep(key identity, r *row) {
	l.payments = append(l.payments, r)
	l.byKey[key], l.byID[r.payment.ID] = r, r
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
		// What the handler asked was on the wire, whoever has decided.
		l.record(p.ID, 0, 1, d.Calls)
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
func (l *Ledger) Recover(ctx context.Context) (int, error) {
	recovered := 0
	err := l.step(ctx, Recover, func() error {
		for _, r := range l.payments {
			if l.recoverMet(ctx, r) {
				recovered++
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("recover: %w", err)
	}
	return recovered, nil
}

// recoverMet declines a payment that is overdue, and reports whether it was.
func (l *Ledger) recoverMet(ctx context.Context, r *row) bool {
	if r.payment.State != payment.InFlight || !r.payment.CreatedAt.Before(l.now().Add(-l.config.Horizon)) {
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
// is up gets an error, and does not know more: what f has found must not be read then,
// f may yet run (see Late).
func (l *Ledger) step(ctx context.Context, s Step, f func() error) error {
	if l.config.Before != nil {
		if err := l.config.Before(ctx, s); err != nil {
			var late Late
			if errors.As(err, &late) && s != Read {
				time.AfterFunc(late.After, func() { _ = l.alone(f) }) // nobody is left to hear how it went
			}
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
	at := l.now()
	r.payment.State, r.payment.Code, r.payment.WalletID, r.payment.DecidedAt = d.State, d.Code, d.WalletID, at
	if d.Reverse {
		l.reverse(r, r.payment, at)
	}
}

// answer is a copy of the payment that shares nothing with the row, without
// follow-ups.
func (r *row) answer() payment.Payment {
	p := r.payment
	p.Metadata = maps.Clone(p.Metadata)
	return p
}

// now is the time as the database keeps it: microseconds, UTC. It needs mu.
func (t *tables) now() time.Time { return time.Now().Add(t.skew).UTC().Truncate(time.Microsecond) }

// newID is a UUIDv7 for the time at, as the database's uuid_v7 makes it, but for its
// random half, which counts: the same history gives the same ids, in the order in which
// they were given. It needs mu.
func (t *tables) newID(at time.Time) uuid.UUID {
	t.ids++
	var id uuid.UUID
	micros := uint64(at.UnixMicro()) // after 1970
	binary.BigEndian.PutUint64(id[:8], micros/1000<<16|0x7000|micros%1000*4096/1000)
	binary.BigEndian.PutUint64(id[8:], t.ids)
	id[8] = id[8]&0x3f | 0x80
	return id
}
