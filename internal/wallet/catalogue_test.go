package wallet

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/payment"
)

// Nobody may repeat a call by accident: the catalogue as it stands, so that a
// change of an owner is a change of this test too (seed ADR-GRPC-004).
func TestCatalogueOfToday(t *testing.T) {
	t.Parallel()
	want := map[string]Owner{
		"decision debit": OwnerNone, "decision hold": OwnerNone, "decision lookup": OwnerNone,
		"worker credit": OwnerQueue, "worker capture": OwnerQueue, "worker release": OwnerQueue, "worker lookup": OwnerQueue,
	}
	got := map[string]Owner{}
	for m, p := range Catalogue() {
		got[m.String()] = p.Owner
		if mutates := m.Call != callLookup; p.Mutates != mutates || p.Keyed != mutates {
			t.Errorf("%s: %+v", m, p)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := CheckCatalogue(Catalogue(), []Repeater{{Method{workerLane, callCredit}, OwnerQueue}}); err != nil {
		t.Error(err)
	}
}

// The methods are read off what the versions can build, so that a new call cannot
// be added without a policy; and the list of them is really all.
func TestMethodsAreThoseThatRequestsCanBeBuiltFor(t *testing.T) {
	t.Parallel()
	calls := map[Call]bool{}
	for _, m := range methods() {
		calls[m.Call] = true
	}
	for name, v := range versions() {
		for call := range v.calls {
			if !calls[call] {
				t.Errorf("%s builds %s, which is no method", name, call)
			}
			in := instruction(payment.Operation(call), "x")
			if call == callLookup {
				in = instruction(payment.Debit, "x")
			}
			if _, ok := v.calls[call](in); !ok {
				t.Errorf("%s cannot build %s", name, call)
			}
		}
	}
	for m := range Catalogue() {
		without := Catalogue()
		delete(without, m)
		if err := CheckCatalogue(without, nil); err == nil || !strings.Contains(err.Error(), m.String()+": the method has no entry") {
			t.Errorf("without %s: %v", m, err)
		}
	}
}

// Start-up must refuse what would multiply requests or repeat money blindly, and
// must say which entry it is.
func TestCataloguesThatAreRefused(t *testing.T) {
	t.Parallel()
	debit, credit, question := Method{decisionLane, callDebit}, Method{workerLane, callCredit}, Method{workerLane, callLookup}
	keyed := Policy{Mutates: true, Keyed: true, Owner: OwnerQueue, Unsure: ResolveFirst}
	for name, tt := range map[string]struct {
		entries   map[Method]Policy
		repeaters []Repeater
		want      string
	}{
		"an entry without a method":       {map[Method]Policy{{workerLane, "refund"}: keyed}, nil, "worker refund: the entry has no method"},
		"a method in another lane":        {map[Method]Policy{{workerLane, callDebit}: keyed}, nil, "worker debit: the entry has no method"},
		"an unknown owner":                {map[Method]Policy{credit: {Mutates: true, Keyed: true, Owner: "US", Unsure: NeverAgain}}, nil, `worker credit: owner "US"`},
		"no owner":                        {map[Method]Policy{credit: {}}, nil, `worker credit: owner ""`},
		"an unknown eligibility":          {map[Method]Policy{credit: {Owner: OwnerQueue, Unsure: "MAYBE"}}, nil, `worker credit: "MAYBE"`},
		"a repetition that nobody owns":   {map[Method]Policy{debit: {Mutates: true, Keyed: true, Owner: OwnerNone, Unsure: ResolveFirst}}, nil, "decision debit: nobody owns"},
		"a mutation repeated unresolved":  {map[Method]Policy{credit: {Mutates: true, Keyed: true, Owner: OwnerQueue, Unsure: AskAgain}}, nil, "worker credit: a mutation in doubt"},
		"a mutation without a key":        {map[Method]Policy{credit: {Mutates: true, Owner: OwnerQueue, Unsure: ResolveFirst}}, nil, "worker credit: a mutation without a key"},
		"a retry in process under NONE":   {nil, []Repeater{{debit, OwnerClient}}, "decision debit: is repeated in this process, but its owner is NONE"},
		"a retry in process under MESH":   {map[Method]Policy{credit: {Mutates: true, Keyed: true, Owner: OwnerMesh, Unsure: ResolveFirst}}, []Repeater{{credit, OwnerQueue}}, "worker credit: is repeated in this process, but its owner is MESH"},
		"a second owner":                  {nil, []Repeater{{question, OwnerClient}}, "worker lookup: is repeated by CLIENT, but its owner is QUEUE"},
		"a repeater of what is not there": {nil, []Repeater{{Method{workerLane, "refund"}, OwnerQueue}}, "worker refund: is repeated, but has no entry"},
	} {
		catalogue := Catalogue()
		maps.Copy(catalogue, tt.entries)
		err := CheckCatalogue(catalogue, tt.repeaters)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
