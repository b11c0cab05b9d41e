package ledger

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/safeledger/safeledger/internal/payment"
)

// writes is what one transaction stores: one claim, decision or settlement, or those
// of many callers. A statement stores all of a kind, so that what many share and
// what one does alone is the same SQL.
//
// The kinds come in the order of the locks (followups.go): keys of payments, rows of
// payments, rows of follow-ups, each kind in one order everywhere. A flush that
// decided first and claimed then would wait for a twin's key while it holds what
// the twin's own transaction is about to decide (measured: hundreds of deadlocks, a
// second each).
type writes struct {
	claims      []*claiming
	decisions   []*deciding
	settlements []*settling
	patient     bool // no limit but the deadline to how long a lock is waited for
}

// claiming is a claim, and its answer.
type claiming struct {
	request     payment.Request
	hash        payment.KeyHash
	fingerprint payment.Fingerprint
	reference   payment.Reference
	metadata    string // "" where the till gave none, which is not {}

	mine      bool
	id        uuid.UUID
	createdAt time.Time
}

// deciding is a decision, and when it was stored if it was the first.
type deciding struct {
	id          uuid.UUID
	decision    payment.Decision
	traceparent string // of the request, for its reversal

	won       bool
	decidedAt time.Time
}

// settling is the end of an attempt, and whether it was stored.
type settling struct {
	payment.Settlement

	settled bool
}

func newClaiming(req payment.Request) (*claiming, error) {
	metadata, err := metadataJSON(req.Metadata)
	if err != nil {
		return nil, err
	}
	fingerprint, reference := req.Identify()
	return &claiming{request: req, hash: req.Key.Hash(), fingerprint: fingerprint, reference: reference, metadata: metadata}, nil
}

// identity is what only one claim may have (contract section 1).
type identity struct {
	hash      payment.KeyHash
	caller    string
	operation payment.Operation
}

func (c *claiming) identity() identity {
	return identity{c.hash, c.request.Caller, c.request.Operation}
}

func (w *writes) add(more writes) {
	w.claims = append(w.claims, more.claims...)
	w.decisions = append(w.decisions, more.decisions...)
	w.settlements = append(w.settlements, more.settlements...)
}

func (w *writes) count() int { return len(w.claims) + len(w.decisions) + len(w.settlements) }

// inOrder sorts each kind as everybody sorts it.
func (w *writes) inOrder() {
	slices.SortFunc(w.claims, func(a, b *claiming) int {
		return cmp.Or(bytes.Compare(a.hash[:], b.hash[:]),
			strings.Compare(a.request.Caller, b.request.Caller), cmp.Compare(a.request.Operation, b.request.Operation))
	})
	slices.SortFunc(w.decisions, func(a, b *deciding) int { return bytes.Compare(a.id[:], b.id[:]) })
	slices.SortFunc(w.settlements, func(a, b *settling) int { return bytes.Compare(a.ID[:], b.ID[:]) })
}

// met is what a transaction holds already.
type met struct {
	keys map[identity]struct{}
	rows map[uuid.UUID]struct{}
}

// before reports whether something of w is of a key or row that was met before, and
// otherwise remembers it.
func (m *met) before(w writes) bool {
	if m.keys == nil {
		m.keys, m.rows = map[identity]struct{}{}, map[uuid.UUID]struct{}{}
	}
	for _, c := range w.claims {
		if metIn(m.keys, c.identity()) {
			return true
		}
	}
	for _, d := range w.decisions {
		if metIn(m.rows, d.id) {
			return true
		}
	}
	for _, s := range w.settlements {
		if metIn(m.rows, s.ID) {
			return true
		}
	}
	return false
}

// forget makes m ready for the next transaction.
func (m *met) forget() {
	clear(m.keys)
	clear(m.rows)
}

func metIn[K comparable](all map[K]struct{}, k K) bool {
	before := len(all)
	all[k] = struct{}{}
	return len(all) == before
}

// store writes w with what others write at the same moment, if that is how this
// ledger does it. An error means that it is not known whether w is stored, unless
// it is errRolledBack.
func (l *Ledger) store(ctx context.Context, w writes) error {
	if l.config.Alone {
		return l.write(ctx, w)
	}
	err := l.group.do(ctx, w)
	if errors.Is(err, errAlone) {
		return l.write(ctx, w)
	}
	return err
}

// write stores w in one transaction, one round trip, one commit.
func (l *Ledger) write(ctx context.Context, w writes) error {
	w.inOrder()
	t := trip{begin: begin, queue: func(b *pgx.Batch) {
		if len(w.claims) > 0 {
			queueClaims(b, w.claims)
		}
		if len(w.decisions) > 0 {
			queueDecisions(b, w.decisions)
		}
		if len(w.settlements) > 0 {
			queueSettlements(b, w.settlements)
		}
	}}
	if !w.patient && (len(w.claims) > 0 || w.count() > 1) {
		// A twin whose insert is not committed, or somebody who holds one of the rows: the
		// others must not wait for that.
		t.lockWait = lockPatience
	}
	return l.transact(ctx, t)
}

// queueClaims inserts claims; those that were not the first of their key stay not mine.
func queueClaims(b *pgx.Batch, claims []*claiming) {
	n := len(claims)
	var (
		callers, operations      = column[pgtype.Text](n), column[pgtype.Text](n)
		hashes, fingerprints     = make([][]byte, n), make([][]byte, n)
		references               = column[pgtype.UUID](n)
		accounts, currencies     = column[pgtype.Text](n), column[pgtype.Text](n)
		amounts                  = column[pgtype.Int8](n)
		tillReferences, metadata = column[pgtype.Text](n), column[pgtype.Text](n)
		of                       = make(map[[16]byte]*claiming, n)
	)
	for i, c := range claims {
		*callers[i], *operations[i] = pgText(c.request.Caller), pgText(c.request.Operation)
		hashes[i], fingerprints[i], *references[i] = c.hash[:], c.fingerprint[:], pgUUID(c.reference)
		*accounts[i], *amounts[i], *currencies[i] = pgText(c.request.Account), pgInt(c.request.Amount.AmountMinor), pgText(c.request.Amount.Currency)
		*tillReferences[i], *metadata[i] = pgText(c.request.TillReference), pgText(c.metadata)
		of[c.reference] = c
		c.mine = false // of a transaction that was rolled back, perhaps
	}
	b.Queue(claim, pgx.NamedArgs{
		"callers": callers, "operations": operations, "key_hashes": hashes, "fingerprints": fingerprints, "references": references,
		"accounts": accounts, "amounts": amounts, "currencies": currencies, "till_references": tillReferences, "metadata": metadata,
	}).Query(func(rows pgx.Rows) error {
		var (
			reference, id [16]byte
			createdAt     time.Time
		)
		_, err := pgx.ForEachRow(rows, []any{&reference, &id, &createdAt}, func() error {
			c := of[reference]
			c.mine, c.id, c.createdAt = true, id, createdAt.UTC()
			return nil
		})
		return err
	})
}

// queueDecisions stores decisions where there are none yet, with the call that led to
// each. Of one that comes late, who stores it learns that it was not won, and keeps the
// call himself. Several calls of one decision are kept here in any case, together: a lookup
// without the call that it was about would look as if it had been made without a reason.
func queueDecisions(b *pgx.Batch, decisions []*deciding) {
	n, several := len(decisions), 0
	for _, d := range decisions {
		if made := len(d.decision.Calls); made > 1 {
			several += made
		}
	}
	var (
		ids              = column[pgtype.UUID](n)
		states           = column[pgtype.Text](n)
		codes, walletIDs = column[pgtype.Text](n), column[pgtype.Text](n)
		reverse          = column[pgtype.Bool](n)
		traceparents     = column[pgtype.Text](n)
		sole             = newTold(n)
		others           = newCalling(several)
		of               = make(map[[16]byte]*deciding, n)
		statement        = decide
	)
	for i, d := range decisions {
		*ids[i], *states[i] = pgUUID(d.id), pgText(d.decision.State)
		*codes[i], *walletIDs[i], *reverse[i] = pgText(d.decision.Code), pgText(d.decision.WalletID), pgBool(d.decision.Reverse)
		*traceparents[i] = pgText(d.traceparent)
		switch made := d.decision.Calls; {
		case len(made) > 1:
			others.add(d.id, decisionFence, made)
		case len(made) == 1:
			sole.set(i, made[0])
		}
		of[d.id] = d
		d.won = false
		if d.decision.Reverse {
			statement = decideAndReverse
		}
	}
	args := pgx.NamedArgs{"ids": ids, "states": states, "codes": codes, "wallet_ids": walletIDs, "reverse": reverse, "traceparents": traceparents}
	sole.arguments(args)
	b.Queue(statement, args).Query(func(rows pgx.Rows) error {
		var (
			id        [16]byte
			decidedAt time.Time
		)
		_, err := pgx.ForEachRow(rows, []any{&id, &decidedAt}, func() error {
			d := of[id]
			d.won, d.decidedAt = true, decidedAt.UTC()
			return nil
		})
		return err
	})
	if several > 0 {
		others.keep(b)
	}
}

// keepCalls stores the call of who came late: what was on the wire is known also where
// somebody else has decided. Several of them are kept already, see queueDecisions.
func (l *Ledger) keepCalls(ctx context.Context, id uuid.UUID, made []payment.WalletCall) error {
	if len(made) != 1 {
		return nil
	}
	calls := newCalling(len(made))
	calls.add(id, decisionFence, made)
	return l.transact(ctx, trip{begin: begin, queue: calls.keep})
}

// queueSettlements ends attempts whose lease is still the newest.
func queueSettlements(b *pgx.Batch, settlements []*settling) {
	n, calls := len(settlements), 0
	for _, s := range settlements {
		calls += len(s.Calls)
	}
	var (
		ids                           = column[pgtype.UUID](n)
		fences                        = column[pgtype.Int8](n)
		states                        = column[pgtype.Text](n)
		codes, walletIDs, parkReasons = column[pgtype.Text](n), column[pgtype.Text](n), column[pgtype.Text](n)
		pauses                        = column[pgtype.Interval](n)
		turns, targetIDs, lastReasons = column[pgtype.Text](n), column[pgtype.Text](n), column[pgtype.Text](n)
		resolves, doubts              = column[pgtype.Bool](n), column[pgtype.Bool](n)
		unspent, lookups, lateChecks  = column[pgtype.Int8](n), column[pgtype.Int8](n), column[pgtype.Int8](n)
		of                            = make(map[[16]byte]*settling, n)
		made                          = newCalling(calls)
	)
	for i, s := range settlements {
		*ids[i], *fences[i], *states[i] = pgUUID(s.ID), pgInt(s.Fence), pgText(s.State)
		*codes[i], *walletIDs[i], *parkReasons[i] = pgText(s.Code), pgText(s.WalletID), pgText(s.ParkReason)
		if s.Due {
			*pauses[i] = pgtype.Interval{Microseconds: s.Pause.Microseconds(), Valid: true}
		}
		*turns[i], *targetIDs[i] = pgText(s.Turn), pgText(s.TargetID)
		if n := len(s.Calls); n > 0 {
			*lastReasons[i] = pgText(s.Calls[n-1].Reason)
		}
		*resolves[i], *doubts[i] = pgBool(s.Resolve), pgBool(s.Doubt)
		*unspent[i] = pgInt(0)
		if s.Unspent {
			*unspent[i] = pgInt(1)
		}
		*lookups[i], *lateChecks[i] = pgInt(s.Lookups), pgInt(s.LateChecks)
		made.add(s.ID, s.Fence, s.Calls)
		of[s.ID] = s
		s.settled = false
	}
	args := pgx.NamedArgs{
		"ids": ids, "fences": fences, "states": states, "codes": codes, "wallet_ids": walletIDs, "park_reasons": parkReasons,
		"pauses": pauses, "turns": turns, "resolves": resolves, "unspent": unspent, "target_ids": targetIDs,
		"lookups": lookups, "late_checks": lateChecks, "last_reasons": lastReasons, "doubts": doubts,
	}
	made.arguments(args)
	b.Queue(settle, args).Query(func(rows pgx.Rows) error {
		var id [16]byte
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
			of[id].settled = true
			return nil
		})
		return err
	})
}

// decisionFence is the fence of the calls that a handler makes: there is no lease.
const decisionFence = 0

// told is what is told of wallet calls: columns, null where no call is set.
type told struct {
	calls, outcomes, reasons pgtype.FlatArray[*pgtype.Text]
	statuses, agos, tooks    pgtype.FlatArray[*pgtype.Int8]
}

func newTold(n int) told {
	return told{
		calls: column[pgtype.Text](n), outcomes: column[pgtype.Text](n), reasons: column[pgtype.Text](n),
		statuses: column[pgtype.Int8](n), agos: column[pgtype.Int8](n), tooks: column[pgtype.Int8](n),
	}
}

func (c *told) set(i int, made payment.WalletCall) {
	*c.calls[i], *c.outcomes[i], *c.reasons[i] = pgText(made.Call), pgText(made.Outcome), required(made.Reason)
	*c.statuses[i] = pgInt(made.Status)
	*c.agos[i], *c.tooks[i] = pgInt(made.Ago.Microseconds()), pgInt(made.Took.Microseconds())
}

func (c *told) arguments(args pgx.NamedArgs) {
	maps.Copy(args, pgx.NamedArgs{
		"calls": c.calls, "outcomes": c.outcomes, "reasons": c.reasons, "statuses": c.statuses, "agos": c.agos, "tooks": c.tooks,
	})
}

// calling is wallet calls as `calls` of statements.go reads them, with what they are about.
type calling struct {
	told

	n              int // how many there are so far
	subjects       pgtype.FlatArray[*pgtype.UUID]
	fences, places pgtype.FlatArray[*pgtype.Int8]
}

// newCalling has room for so many calls, which must all be added.
func newCalling(n int) calling {
	return calling{
		told:     newTold(n),
		subjects: column[pgtype.UUID](n), fences: column[pgtype.Int8](n), places: column[pgtype.Int8](n),
	}
}

func (c *calling) add(subject uuid.UUID, fence int64, made []payment.WalletCall) {
	for i, m := range made {
		*c.subjects[c.n], *c.fences[c.n], *c.places[c.n] = pgUUID(subject), pgInt(fence), pgInt(i+1)
		c.set(c.n, m)
		c.n++
	}
}

func (c *calling) arguments(args pgx.NamedArgs) {
	c.told.arguments(args)
	args["subjects"], args["call_fences"], args["places"] = c.subjects, c.fences, c.places
}

// keep stores them as what handlers made.
func (c *calling) keep(b *pgx.Batch) {
	args := pgx.NamedArgs{}
	c.arguments(args)
	b.Queue(keepCalls, args)
}
