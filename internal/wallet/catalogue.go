package wallet

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/safeledger/safeledger/internal/payment"
)

// Call is one thing that a wallet can be asked: an operation, or a lookup.
type Call string

const (
	callDebit   = Call(payment.Debit)
	callHold    = Call(payment.Hold)
	callCredit  = Call(payment.Credit)
	callCapture = Call(payment.Capture)
	callRelease = Call(payment.Release)
	callLookup  = Call("lookup")
)

// Method is a call as one lane makes it. A lookup that a till waits for and one
// of the work queue are two methods: their retries have different owners.
type Method struct {
	Lane string // "decision" or "worker"
	Call Call
}

func (m Method) String() string { return m.Lane + " " + string(m.Call) }

// Owner says who may repeat a method (seed ADR-GRPC-004). There is exactly one,
// because owners multiply: three attempts in each of three layers are 27 requests.
type Owner string

// The owners. None is a decision, not an omission.
const (
	OwnerNone   Owner = "NONE"
	OwnerQueue  Owner = "QUEUE"  // the work queue, durably, with the stored outbound key
	OwnerClient Owner = "CLIENT" // code of this process, around the call
	OwnerMesh   Owner = "MESH"   // a proxy between us and the wallet
)

// Eligibility says what a method's owner may do when a call ended in doubt.
type Eligibility string

// The eligibilities.
const (
	NeverAgain   Eligibility = "NEVER"         // the doubt is settled by other means: a lookup, a reversal
	ResolveFirst Eligibility = "RESOLVE_FIRST" // ask what became of it, then repeat with the same key
	AskAgain     Eligibility = "ASK_AGAIN"     // it changes nothing: it may simply be repeated
)

// Policy is the catalogue's entry for a method.
type Policy struct {
	Mutates bool // money may move
	Keyed   bool // carries a reference by which the wallet knows a repetition
	Owner   Owner
	Unsure  Eligibility
}

// Catalogue is the policy of every wallet method: nothing that is not listed is
// ever sent (see Lane.Send). See docs/adr/0001.
func Catalogue() map[Method]Policy {
	return map[Method]Policy{
		// A till waits: one request, then at most one question, then an answer. The
		// till itself may try again, with a new key.
		{decisionLane, callDebit}:  {Mutates: true, Keyed: true, Owner: OwnerNone, Unsure: NeverAgain},
		{decisionLane, callHold}:   {Mutates: true, Keyed: true, Owner: OwnerNone, Unsure: NeverAgain},
		{decisionLane, callLookup}: {Owner: OwnerNone, Unsure: NeverAgain},

		{workerLane, callCredit}:  {Mutates: true, Keyed: true, Owner: OwnerQueue, Unsure: ResolveFirst},
		{workerLane, callCapture}: {Mutates: true, Keyed: true, Owner: OwnerQueue, Unsure: ResolveFirst},
		{workerLane, callRelease}: {Mutates: true, Keyed: true, Owner: OwnerQueue, Unsure: ResolveFirst},
		{workerLane, callLookup}:  {Owner: OwnerQueue, Unsure: AskAgain},
	}
}

// Repeater is a part of this process that repeats a method, as it says itself.
type Repeater struct {
	Method Method
	By     Owner // what it is: the queue, or code around the client
}

// CheckCatalogue compares the catalogue with the methods that exist, which is
// what the versions can build requests for, and with who repeats them. Start-up
// refuses: a method without an entry, an entry without a method, a repeater in
// this process under MESH or NONE or under any other owner, and an entry whose
// policy could do harm: a repeated mutation that the wallet cannot recognise, or
// one that is repeated before its doubt is resolved.
func CheckCatalogue(catalogue map[Method]Policy, repeaters []Repeater) error {
	var errs []error
	refuse := func(m Method, rule string) {
		errs = append(errs, fmt.Errorf("wallet: catalogue: %s: %s", m, rule))
	}
	existing := methods()
	for _, m := range existing {
		if _, ok := catalogue[m]; !ok {
			refuse(m, "the method has no entry")
		}
	}
	for _, m := range slices.SortedFunc(maps.Keys(catalogue), compareMethods) {
		p := catalogue[m]
		if !slices.Contains(existing, m) {
			refuse(m, "the entry has no method")
		}
		switch p.Owner {
		case OwnerNone, OwnerQueue, OwnerClient, OwnerMesh:
		default:
			refuse(m, fmt.Sprintf("owner %q is not one of NONE, QUEUE, CLIENT, MESH", p.Owner))
		}
		switch p.Unsure {
		case NeverAgain:
		case ResolveFirst, AskAgain:
			if p.Owner == OwnerNone {
				refuse(m, "nobody owns its retries, so nothing may follow a doubt")
			}
			if p.Mutates && p.Unsure == AskAgain {
				refuse(m, "a mutation in doubt must be resolved before it is repeated")
			}
		default:
			refuse(m, fmt.Sprintf("%q does not say what may follow a doubt", p.Unsure))
		}
		if p.Mutates && !p.Keyed && p.Owner != OwnerNone {
			refuse(m, "a mutation without a key must not be repeated by anybody")
		}
	}
	for _, r := range repeaters {
		p, ok := catalogue[r.Method]
		switch {
		case !ok:
			refuse(r.Method, "is repeated, but has no entry")
		case p.Owner == OwnerNone || p.Owner == OwnerMesh:
			refuse(r.Method, fmt.Sprintf("is repeated in this process, but its owner is %s", p.Owner))
		case r.By != p.Owner:
			refuse(r.Method, fmt.Sprintf("is repeated by %s, but its owner is %s", r.By, p.Owner))
		}
	}
	return errors.Join(errs...)
}

// methods are the methods that exist: each call that some version builds a
// request for, in the lanes that make it.
func methods() []Method {
	seen := map[Method]bool{}
	for _, v := range versions() {
		for call := range v.calls {
			switch {
			case call == callLookup:
				seen[Method{decisionLane, call}] = true
				seen[Method{workerLane, call}] = true
			case payment.Operation(call).IsPayment():
				seen[Method{decisionLane, call}] = true
			default:
				seen[Method{workerLane, call}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), compareMethods)
}

func compareMethods(a, b Method) int {
	if a.Lane != b.Lane {
		if a.Lane < b.Lane {
			return -1
		}
		return 1
	}
	switch {
	case a.Call < b.Call:
		return -1
	case a.Call > b.Call:
		return 1
	}
	return 0
}
