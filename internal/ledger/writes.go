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
	metadata    *string

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
	t := trip{begin: begin, limits: setLimitsByIndex, queue: func(b *pgx.Batch) {
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
		callers, operations      = make([]string, n), make([]string, n)
		hashes, fingerprints     = make([][]byte, n), make([][]byte, n)
		references               = make([]pgtype.UUID, n)
		accounts, currencies     = make([]string, n), make([]string, n)
		amounts                  = make([]int64, n)
		tillReferences, metadata = make([]*string, n), make([]*string, n)
		of                       = make(map[[16]byte]*claiming, n)
	)
	for i, c := range claims {
		callers[i], operations[i] = c.request.Caller, string(c.request.Operation)
		hashes[i], fingerprints[i], references[i] = c.hash[:], c.fingerprint[:], pgUUID(c.reference)
		accounts[i], amounts[i], currencies[i] = c.request.Account, c.request.Amount.AmountMinor, c.request.Amount.Currency
		tillReferences[i], metadata[i] = orNull(c.request.TillReference), c.metadata
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

// queueDecisions stores decisions where there are none yet, and the calls that led to
// them.
func queueDecisions(b *pgx.Batch, decisions []*deciding) {
	n := len(decisions)
	var (
		ids              = make([]pgtype.UUID, n)
		states           = make([]string, n)
		codes, walletIDs = make([]*string, n), make([]*string, n)
		reverse          = make([]bool, n)
		traceparents     = make([]*string, n)
		of               = make(map[[16]byte]*deciding, n)
		made             calling
		statement        = decide
	)
	for i, d := range decisions {
		ids[i], states[i] = pgUUID(d.id), string(d.decision.State)
		codes[i], walletIDs[i], reverse[i] = orNull(d.decision.Code), orNull(d.decision.WalletID), d.decision.Reverse
		traceparents[i] = orNull(d.traceparent)
		made.add(d.id, decisionFence, d.decision.Calls)
		of[d.id] = d
		d.won = false
		if d.decision.Reverse {
			statement = decideAndReverse
		}
	}
	args := pgx.NamedArgs{"ids": ids, "states": states, "codes": codes, "wallet_ids": walletIDs, "reverse": reverse, "traceparents": traceparents}
	made.arguments(args)
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
}

// queueSettlements ends attempts whose lease is still the newest.
func queueSettlements(b *pgx.Batch, settlements []*settling) {
	n := len(settlements)
	var (
		ids                           = make([]pgtype.UUID, n)
		fences                        = make([]int64, n)
		states                        = make([]string, n)
		codes, walletIDs, parkReasons = make([]*string, n), make([]*string, n), make([]*string, n)
		pauses                        = make([]*time.Duration, n)
		turns, targetIDs, lastReasons = make([]*string, n), make([]*string, n), make([]*string, n)
		resolves, doubts              = make([]bool, n), make([]bool, n)
		unspent, lookups, lateChecks  = make([]int32, n), make([]int32, n), make([]int32, n)
		of                            = make(map[[16]byte]*settling, n)
		made                          calling
	)
	for i, s := range settlements {
		ids[i], fences[i], states[i] = pgUUID(s.ID), s.Fence, string(s.State)
		codes[i], walletIDs[i], parkReasons[i] = orNull(s.Code), orNull(s.WalletID), orNull(s.ParkReason)
		if s.Due {
			pauses[i] = &s.Pause
		}
		turns[i], targetIDs[i] = orNull(s.Turn), orNull(s.TargetID)
		if n := len(s.Calls); n > 0 {
			lastReasons[i] = orNull(s.Calls[n-1].Reason)
		}
		resolves[i], doubts[i] = s.Resolve, s.Doubt
		if s.Unspent {
			unspent[i] = 1
		}
		lookups[i], lateChecks[i] = int32(s.Lookups), int32(s.LateChecks) //nolint:gosec // counts of tries
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

// calling is wallet calls as calls (statements.go) reads them: arrays, one element
// for each call.
type calling struct {
	subjects                 []pgtype.UUID
	fences                   []int64
	places, statuses         []int32
	calls, outcomes, reasons []string
	agos, tooks              []int64
}

func (c *calling) add(subject uuid.UUID, fence int64, made []payment.WalletCall) {
	for i, m := range made {
		c.subjects, c.fences, c.places = append(c.subjects, pgUUID(subject)), append(c.fences, fence), append(c.places, int32(i+1))
		c.calls, c.outcomes, c.reasons = append(c.calls, m.Call), append(c.outcomes, m.Outcome), append(c.reasons, string(m.Reason))
		c.statuses = append(c.statuses, int32(m.Status)) //nolint:gosec // an HTTP status
		c.agos, c.tooks = append(c.agos, m.Ago.Microseconds()), append(c.tooks, m.Took.Microseconds())
	}
}

func (c *calling) arguments(args pgx.NamedArgs) {
	maps.Copy(args, pgx.NamedArgs{
		"subjects": c.subjects, "call_fences": c.fences, "places": c.places, "statuses": c.statuses,
		"calls": c.calls, "outcomes": c.outcomes, "reasons": c.reasons, "agos": c.agos, "tooks": c.tooks,
	})
}
