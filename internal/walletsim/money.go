package walletsim

import (
	"cmp"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Version is a version of the wallet's interface (contract section 3).
type Version string

// The versions. Both look at the same accounts.
const (
	V1 Version = "v1" // debits and credits
	V2 Version = "v2" // adds holds and Idempotency-Key
)

// Operation is what a request asks the wallet to do.
type Operation string

// The operations. Each but Lookup moves money.
const (
	Debit   Operation = "debit"
	Credit  Operation = "credit"
	Hold    Operation = "hold"
	Capture Operation = "capture"
	Release Operation = "release"
	Lookup  Operation = "lookup"
)

// The wallet's codes (contract section 3), and those that a caller only meets
// by a mistake of its own.
const (
	insufficientFunds   = "INSUFFICIENT_FUNDS"
	accountNotFound     = "ACCOUNT_NOT_FOUND"
	accountLocked       = "ACCOUNT_LOCKED"
	holdNotActive       = "HOLD_NOT_ACTIVE"
	holdAlreadyCaptured = "HOLD_ALREADY_CAPTURED"
	amountExceedsHold   = "AMOUNT_EXCEEDS_HOLD"
	duplicateReference  = "DUPLICATE_REFERENCE"
	notFound            = "NOT_FOUND"

	holdNotFound       = "HOLD_NOT_FOUND"
	balanceTooLarge    = "BALANCE_TOO_LARGE"
	keyReused          = "IDEMPOTENCY_KEY_REUSED"
	invalidRequest     = "INVALID_REQUEST"
	unauthenticated    = "UNAUTHENTICATED"
	bodyTooLarge       = "BODY_TOO_LARGE"
	unsupportedMedia   = "UNSUPPORTED_MEDIA_TYPE"
	defaultRefusalCode = "LIMIT_EXCEEDED" // what an account named REJECT-… says
)

// statusOf is the HTTP status of a refusal.
func statusOf(code string) int {
	switch code {
	case invalidRequest:
		return http.StatusBadRequest
	case unauthenticated:
		return http.StatusUnauthorized
	case accountNotFound, holdNotFound, notFound:
		return http.StatusNotFound
	case bodyTooLarge:
		return http.StatusRequestEntityTooLarge
	case unsupportedMedia:
		return http.StatusUnsupportedMediaType
	case keyReused:
		return http.StatusUnprocessableEntity
	case accountLocked:
		return http.StatusLocked
	}
	return http.StatusConflict
}

// standing is what the wallet's lookup says of an operation.
type standing string

const (
	applied  standing = "APPLIED"
	rejected standing = "REJECTED"
	pending  standing = "PENDING"
)

// operation is what the wallet remembers of one reference. There is one for every
// mutation of a run: what can be derived is not in it.
type operation struct {
	number   int64      // counted from 1; its id ends with it
	request  *Request   // the one that it was first decided for
	earlier  *operation // of the same reference
	standing standing
	code     string        // of a rejection
	at       time.Duration // since the wallet began
	// forgotten operations no longer stand in the way of a repetition; lookups
	// still find them.
	forgotten bool
	// ended says how a hold ended: "" while it is active.
	ended Operation
}

// trace is what the wallet knows of one reference that was named to it, whether or
// not anything came of it.
type trace struct {
	account  string         // of the mutation that arrived last
	attempts [counted]int32 // by operation
	latest   *operation     // the one that counts; nil where none was decided
}

// counted is how many operations there are that attempts are counted of.
const counted = 6

// place is where a trace counts the attempts at o, -1 where there is none.
func (o Operation) place() int {
	return slices.Index([]Operation{Debit, Credit, Hold, Capture, Release, Lookup}, o)
}

// account holds balances by currency, in minor units.
type account struct {
	balances map[string]int64
	held     map[string]int64
	locked   bool
}

// bank is the money: accounts and what was done to them. It knows no HTTP and no
// faults of the wire, and its owner's mutex guards it.
type bank struct {
	open      bool // accounts that nobody has named before open themselves
	dedupeFor time.Duration

	began      time.Time
	idPrefix   string
	accounts   map[string]*account
	opened     map[string]int64 // by currency: all the money that was ever given
	operations []*operation     // in order
	traces     map[string]*trace
	byKey      map[string]*operation // the latest of each key that is not its reference
	words      map[string]string     // the accounts and currencies that were named, each once
}

// openingBalance is what an account gets that opens itself, in minor units of
// each currency that it is asked for: enough for any demonstration.
const openingBalance = 1_000_000_00

// maxAmount is the largest amount that every JSON reader keeps exact, 2^53−1.
const maxAmount = 1<<53 - 1

func newBank(cfg Config, start time.Time) bank {
	return bank{
		open:      cfg.OpenAccounts,
		dedupeFor: cfg.DedupeFor,
		// A wallet that is started again must not give an id a second time: the
		// ledger of a longer-lived service remembers them.
		idPrefix: strconv.FormatInt(start.UnixMilli(), 36),
		began:    start,
		accounts: map[string]*account{},
		opened:   map[string]int64{},
		traces:   map[string]*trace{},
		byKey:    map[string]*operation{},
		words:    map[string]string{},
	}
}

// share makes r, which may be remembered for the whole run, hold no text that is
// held already.
func (b *bank) share(r *Request) {
	for _, word := range []*string{&r.Account, &r.Currency} {
		known, there := b.words[*word]
		if !there {
			known = *word
			b.words[known] = known
		}
		*word = known
	}
	if r.IdempotencyKey == r.Reference {
		r.IdempotencyKey = r.Reference
	}
}

// meet is the trace of a request's reference, and counts the request in it.
func (b *bank) meet(r *Request) *trace {
	t := b.traces[r.Reference]
	if t == nil {
		t = &trace{}
		b.traces[r.Reference] = t
	}
	if place := r.Operation.place(); place >= 0 {
		t.attempts[place]++
		r.Attempt = int(t.attempts[place])
	}
	return t
}

// id is the wallet's own id of op.
func (b *bank) id(op *operation) string {
	return fmt.Sprintf("%s-%s-%06d", op.request.Operation, b.idPrefix, op.number)
}

// latest is the operation that counts for a reference, nil if there is none.
func (b *bank) latest(reference string) *operation {
	if t := b.traces[reference]; t != nil {
		return t.latest
	}
	return nil
}

// ofKey is the latest operation with an Idempotency-Key, nil if there is none. A key
// that is its operation's reference, as a caller should choose it, is not stored twice.
func (b *bank) ofKey(key string) *operation {
	latest := b.byKey[key]
	for op := b.latest(key); op != nil; op = op.earlier {
		if op.request.IdempotencyKey == key && (latest == nil || op.number > latest.number) {
			return op
		}
	}
	return latest
}

// give sets an account's balance in one currency, and says what that added.
func (b *bank) give(name, currency string, balance int64) *Effect {
	a := b.accounts[name]
	if a == nil {
		a = &account{balances: map[string]int64{}, held: map[string]int64{}}
		b.accounts[name] = a
	}
	change := balance - a.balances[currency]
	a.balances[currency] = balance
	b.opened[currency] += change
	return &Effect{Account: name, Currency: currency, AmountMinor: balance, BalanceChange: change}
}

// opens gives an account that nobody has named before, or not in this currency,
// its opening balance, where that is configured. It returns nil where it did not.
func (b *bank) opens(r *Request) *Effect {
	if !b.open || r.Account == "" || r.Currency == "" || r.Operation == Lookup {
		return nil
	}
	if a := b.accounts[r.Account]; a != nil {
		if _, known := a.balances[r.Currency]; known {
			return nil
		}
	}
	return b.give(r.Account, r.Currency, namedBalance(r.Account))
}

// verdict is what the bank did about a request.
type verdict struct {
	event  Event
	op     *operation // what an answer is made of; nil for a refusal without memory
	code   string     // of a refusal, or DUPLICATE_REFERENCE
	effect *Effect
}

// terms are the conditions under which the bank decides: how a rule or the
// account's name makes it misbehave about money.
type terms struct {
	forgetDedupe bool   // as if no reference or key had ever been seen
	refuse       string // refuse with this code, whatever the account says
	defer_       bool   // decide later: PENDING
	late         bool   // this is the later moment
}

// decide applies r, or refuses it, or recognises it. Whatever it does, it does
// whole: the caller's lock makes one moment of it.
func (b *bank) decide(r *Request, t terms, now time.Time) verdict {
	if !t.forgetDedupe {
		if v, seen := b.recognise(r, now); seen {
			v.effect.Late = t.late
			return v
		}
	}

	op := &operation{request: r, at: now.Sub(b.began)}
	code := t.refuse
	if code == "" && !t.defer_ {
		code = b.refusal(r)
	}
	effect := &Effect{Operation: r.Operation, Account: r.Account, AmountMinor: r.AmountMinor, Currency: r.Currency, HoldID: r.HoldID, Late: t.late}
	event := Applied
	switch {
	case t.defer_:
		op.standing, event = pending, Accepted
	case code != "":
		op.standing, op.code, event = rejected, code, Rejected
		effect.Code = code
	default:
		op.standing = applied
		effect.BalanceChange, effect.HeldChange = b.move(r, effect)
	}
	b.remember(op)
	effect.ID = b.id(op)
	return verdict{event: event, op: op, code: code, effect: effect}
}

// recognise looks for an earlier request with r's key or reference.
//
// A rejected one does not stand in the way: only a first 2xx is repeated, and a
// wallet is free to find money on an account that had none before.
func (b *bank) recognise(r *Request, now time.Time) (verdict, bool) {
	known := func(op *operation) bool {
		return op != nil && op.standing != rejected && !op.forgotten && (b.dedupeFor == 0 || now.Sub(b.began)-op.at < b.dedupeFor)
	}
	found := func(op *operation, code string) (verdict, bool) {
		return verdict{event: Recognised, op: op, code: code, effect: &Effect{
			ID: b.id(op), Operation: op.request.Operation, Account: op.request.Account, AmountMinor: op.request.AmountMinor,
			Currency: op.request.Currency, HoldID: op.request.HoldID, Code: code,
		}}, true
	}
	if r.Version == V2 && r.IdempotencyKey != "" {
		if op := b.ofKey(r.IdempotencyKey); known(op) {
			if !sameRequest(op.request, r) {
				return found(op, keyReused)
			}
			return found(op, "")
		}
	}
	if op := b.latest(r.Reference); known(op) {
		if r.Version == V1 && op.standing == pending && sameRequest(op.request, r) {
			return found(op, "") // not decided: there is no id to point at yet
		}
		return found(op, duplicateReference)
	}
	return verdict{}, false
}

func sameRequest(a, b *Request) bool {
	return a.Operation == b.Operation && a.Reference == b.Reference && a.Account == b.Account &&
		a.AmountMinor == b.AmountMinor && a.Currency == b.Currency && a.HoldID == b.HoldID
}

// refusal is the code with which the wallet must refuse r, "" if it need not.
// A locked account still lets go of what it holds: the money was promised before.
func (b *bank) refusal(r *Request) string {
	if r.Operation == Capture || r.Operation == Release {
		return b.holdRefusal(r)
	}
	a := b.accounts[r.Account]
	switch {
	case a == nil:
		return accountNotFound
	case a.locked:
		return accountLocked
	case r.Operation == Credit:
		if a.balances[r.Currency] > math.MaxInt64/4-r.AmountMinor { // far from where sums would overflow
			return balanceTooLarge
		}
	case a.balances[r.Currency] < r.AmountMinor:
		return insufficientFunds
	}
	return ""
}

func (b *bank) holdRefusal(r *Request) string {
	hold := b.hold(r.HoldID)
	switch {
	case hold == nil:
		return holdNotFound
	case hold.ended == Capture:
		return holdAlreadyCaptured
	case hold.ended != "":
		return holdNotActive
	case r.Operation == Capture && r.AmountMinor > hold.request.AmountMinor:
		return amountExceedsHold
	}
	return ""
}

// hold is the applied hold with this id, nil if there is none.
func (b *bank) hold(id string) *operation {
	number, err := strconv.ParseInt(id[strings.LastIndexByte(id, '-')+1:], 10, 64)
	if err != nil || number < 1 || number > int64(len(b.operations)) {
		return nil
	}
	op := b.operations[number-1]
	if op.request.Operation != Hold || op.standing != applied || b.id(op) != id {
		return nil
	}
	return op
}

// move does what refusal has found nothing against, and says what it changed.
func (b *bank) move(r *Request, effect *Effect) (balanceChange, heldChange int64) {
	name, currency := r.Account, r.Currency
	switch r.Operation {
	case Debit:
		balanceChange = -r.AmountMinor
	case Credit:
		balanceChange = r.AmountMinor
	case Hold:
		balanceChange, heldChange = -r.AmountMinor, r.AmountMinor
	case Capture:
		// The hold ends here: what is not captured goes back (contract section 4).
		hold := b.hold(r.HoldID)
		hold.ended = Capture
		name, currency = hold.request.Account, hold.request.Currency
		balanceChange, heldChange = hold.request.AmountMinor-r.AmountMinor, -hold.request.AmountMinor
	case Release:
		hold := b.hold(r.HoldID)
		hold.ended = Release
		name, currency = hold.request.Account, hold.request.Currency
		balanceChange, heldChange = hold.request.AmountMinor, -hold.request.AmountMinor
		effect.AmountMinor = hold.request.AmountMinor
	case Lookup, Mutations, Anything: // nothing moves; the others are what rules match, never a call
	}
	a := b.accounts[name]
	a.balances[currency] += balanceChange
	a.held[currency] += heldChange
	effect.Account, effect.Currency = name, currency
	return balanceChange, heldChange
}

// remember makes op the one that its reference and key stand for.
func (b *bank) remember(op *operation) {
	b.operations = append(b.operations, op)
	op.number = int64(len(b.operations))
	t := b.traces[op.request.Reference]
	op.earlier, t.latest = t.latest, op
	if key := op.request.IdempotencyKey; key != "" && key != op.request.Reference {
		b.byKey[key] = op
	}
}

// settle ends a pending operation: applied, or rejected with code, which may
// also be the bank's own refusal.
func (b *bank) settle(op *operation, code string) verdict {
	r := op.request
	if code == "" {
		code = b.refusal(r)
	}
	effect := &Effect{
		ID: b.id(op), Operation: r.Operation, Account: r.Account, AmountMinor: r.AmountMinor,
		Currency: r.Currency, HoldID: r.HoldID, Code: code, Late: true,
	}
	if code != "" {
		op.standing, op.code = rejected, code
		return verdict{event: Rejected, op: op, code: code, effect: effect}
	}
	op.standing = applied
	effect.BalanceChange, effect.HeldChange = b.move(r, effect)
	return verdict{event: Applied, op: op, effect: effect}
}

// forget makes the wallet take a repetition for something new: of one
// reference, or of all of them where it is "".
func (b *bank) forget(reference string) (n int) {
	forget := func(op *operation) {
		if !op.forgotten {
			op.forgotten = true
			n++
		}
	}
	if reference == "" {
		for _, op := range b.operations {
			forget(op)
		}
		return n
	}
	for op := b.latest(reference); op != nil; op = op.earlier {
		forget(op)
	}
	return n
}

// Totals is all the money of one currency, in minor units. Money is neither
// made nor lost (invariant I14): Opened = Balances + Held + NetDebits.
type Totals struct {
	Opened    int64 `json:"opened"`    // what was ever given to accounts
	Balances  int64 `json:"balances"`  // what is on them
	Held      int64 `json:"held"`      // what is held of it
	NetDebits int64 `json:"netDebits"` // debits and captures, less credits
	Constant  bool  `json:"constant"`
}

// totals counts the operations and the accounts, each on its own: neither is
// derived from the other, so that their agreement says something.
func (b *bank) totals() map[string]Totals {
	sums := map[string]Totals{}
	add := func(currency string, by func(*Totals)) {
		t := sums[currency]
		by(&t)
		sums[currency] = t
	}
	for currency, opened := range b.opened {
		add(currency, func(t *Totals) { t.Opened += opened })
	}
	for _, a := range b.accounts {
		for currency, balance := range a.balances {
			add(currency, func(t *Totals) { t.Balances += balance })
		}
	}
	for _, op := range b.operations {
		if op.standing != applied {
			continue
		}
		r := op.request
		switch r.Operation {
		case Debit:
			add(r.Currency, func(t *Totals) { t.NetDebits += r.AmountMinor })
		case Credit:
			add(r.Currency, func(t *Totals) { t.NetDebits -= r.AmountMinor })
		case Capture:
			hold := b.hold(r.HoldID)
			add(hold.request.Currency, func(t *Totals) { t.NetDebits += r.AmountMinor })
		case Hold:
			if op.ended == "" {
				add(r.Currency, func(t *Totals) { t.Held += r.AmountMinor })
			}
		case Release, Lookup, Mutations, Anything:
		}
	}
	for currency, t := range sums {
		t.Constant = t.Opened == t.Balances+t.Held+t.NetDebits
		sums[currency] = t
	}
	return sums
}

// AccountView is an account as control shows it.
type AccountView struct {
	Account  string           `json:"account"`
	Balances map[string]int64 `json:"balances"` // by currency, in minor units
	Held     map[string]int64 `json:"held"`
	Locked   bool             `json:"locked"`
	Holds    []HoldView       `json:"holds"` // the active ones
}

// HoldView is an active hold as control shows it.
type HoldView struct {
	ID          string `json:"id"`
	Reference   string `json:"reference"`
	AmountMinor int64  `json:"amount"`
	Currency    string `json:"currency"`
}

// view shows the named account, or all of them where name is "".
func (b *bank) view(name string) []AccountView {
	holds := map[string][]HoldView{}
	for _, op := range b.operations {
		if r := op.request; r.Operation == Hold && op.standing == applied && op.ended == "" && (name == "" || name == r.Account) {
			holds[r.Account] = append(holds[r.Account], HoldView{b.id(op), r.Reference, r.AmountMinor, r.Currency})
		}
	}
	views := []AccountView{}
	for known, a := range b.accounts {
		if name != "" && name != known {
			continue
		}
		v := AccountView{Account: known, Balances: map[string]int64{}, Held: map[string]int64{}, Locked: a.locked, Holds: holds[known]}
		for currency, balance := range a.balances {
			v.Balances[currency] = balance
			if held := a.held[currency]; held != 0 {
				v.Held[currency] = held
			}
		}
		views = append(views, v)
	}
	slices.SortFunc(views, func(x, y AccountView) int { return cmp.Compare(x.Account, y.Account) })
	return views
}
