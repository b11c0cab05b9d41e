package checker

import (
	"slices"
	"testing"
)

// After an asynchronous replica was promoted, some keys are gone, and their tills were
// told: those are counted and not taken for faults. What the wallet's side must keep even
// then, and everything of all other keys, must still be found.
func TestAfterALossyFailoverLostKeysAreCountedApart(t *testing.T) {
	t.Parallel()
	lossy := runOptions()
	lossy.Lossy = true
	for name, c := range map[string]struct {
		spoil func(corrupted)
		lost  int64
		money int64 // what the wallet keeps of them
		finds Clause
	}{
		"nothing was lost": {spoil: func(corrupted) {}},
		"an approval":      {spoil: func(r corrupted) { r.dropPayment("key-approved") }, lost: 1, money: 1250},
		"a decline and its reversal, that was carried out": {spoil: func(r corrupted) {
			r.dropOperation(*r.reversal("key-gateway"))
			r.dropPayment("key-gateway")
		}, lost: 1},
		"a decision, not its claim": {spoil: func(r corrupted) {
			p := r.payment("key-approved")
			o := *r.reversal("key-hang")
			p.State, p.Code, p.WalletID = "DECLINED", "WALLET_TIMEOUT", ""
			o.ID, o.PaymentID, o.Reverses, o.OutboundKey, o.CreatedAt = p.ID, p.ID, p.Reference, reversalOf(p.Reference), p.DecidedAt
			r.operations = append(r.operations, o)
		}, lost: 1, money: 1250},
		"a refund, which its payment cannot be judged without": {spoil: func(r corrupted) { r.dropOperation(*r.operation("key-refund")) }, lost: 2, money: 500},
		"an attempt at a refund, not the refund":               {spoil: func(r corrupted) { r.operation("key-refund").Attempts = 2 }, lost: 2, money: 500},
		"a cancel and its reversal":                            {spoil: func(r corrupted) { r.dropOperation(*r.reversal("key-cancelled")) }, lost: 1},
		"an approval, and the wallet has applied it twice": {spoil: func(r corrupted) {
			r.copyLine(r.line(applied, r.payment("key-approved").Reference, 0), func(*BookLine) {})
			r.dropPayment("key-approved")
		}, lost: 1, money: 2500, finds: once},
		"a refund, and more of it was given back than was taken": {spoil: func(r corrupted) {
			i := r.line(applied, r.operation("key-refund").OutboundKey, 0)
			r.copyLine(i, func(*BookLine) {})
			r.copyLine(i, func(*BookLine) {})
			r.dropOperation(*r.operation("key-refund"))
		}, lost: 2, money: -300, finds: givenBack},
		"a decline with its reversal, which was made twice": {spoil: func(r corrupted) {
			r.copyLine(r.line(applied, r.reversal("key-gateway").OutboundKey, 0), func(*BookLine) {})
			r.dropOperation(*r.reversal("key-gateway"))
			r.dropPayment("key-gateway")
		}, lost: 1, money: -1250, finds: oneReversal},
		"an approval, and another key's decline is not undone": {spoil: func(r corrupted) {
			r.dropPayment("key-approved")
			r.dropLine(applied, r.reversal("key-late").OutboundKey)
		}, lost: 1, money: 1250, finds: netDeclined},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := corrupted{record(t), t}
			c.spoil(r)
			report, err := Check(t.Context(), r.input(), lossy, nil)
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(report.Violations, func(v Violation) bool { return v.Clause == c.finds })
			if (c.finds == 0) != report.Clean() || found != (c.finds != 0) {
				t.Errorf("found:\n%s", tellAll(report))
			}
			if report.LostKeys != c.lost || report.LostMoney["EUR"] != c.money {
				t.Errorf("%d keys were lost with %d EUR, want %d with %d", report.LostKeys, report.LostMoney["EUR"], c.lost, c.money)
			}
		})
	}
}
