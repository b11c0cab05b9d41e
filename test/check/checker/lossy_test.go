package checker

import (
	"slices"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/test/check/history"
)

// After an asynchronous replica was promoted, some keys are gone, and their tills were
// told: those are counted and not taken for faults. What the wallet's side must keep even
// then, and everything of all other keys, must still be found.
func TestAfterALossyFailoverLostKeysAreCountedApart(t *testing.T) {
	t.Parallel()
	lossy := runOptions()
	lossy.Lossy = true
	// wholly lets the reversal of a debit of 100, of which 30 were refunded, give back all.
	wholly := func(r corrupted) {
		reference := r.reversal("key-part-refunded").OutboundKey
		r.change(r.line(arrived, reference, 0), func(l *BookLine) { l.Amount = 100 })
		r.change(r.line(applied, reference, 0), func(l *BookLine) {
			l.Effect = new(*l.Effect)
			l.Effect.Amount, l.Effect.BalanceChange = 100, 100
		})
		eur := r.totals["EUR"]
		eur.Balances, eur.NetDebits = eur.Balances+30, eur.NetDebits-30
		r.totals["EUR"] = eur
	}
	for name, c := range map[string]struct {
		spoil func(corrupted)
		lost  int64
		money int64 // what the wallet keeps of them
		twice int64 // and what it gave back beyond what it took
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
		"a refund, and its debit was given back as a whole": {spoil: func(r corrupted) {
			wholly(r)
			r.dropOperation(*r.operation("key-part-refunded"))
		}, lost: 2, money: -30, twice: 30},
		"no refund, and its debit was given back as a whole": {spoil: wholly, finds: givenBack},
		"a claim, which was made and sent again": {spoil: func(r corrupted) {
			r.copyLine(r.line(arrived, r.payment("key-approved").Reference, 0), func(*BookLine) {})
		}, lost: 1, money: 1250},
		"no claim, and both sends are there": {spoil: func(r corrupted) {
			p := r.payment("key-approved")
			r.copyLine(r.line(arrived, p.Reference, 0), func(*BookLine) {})
			again := *r.call(p.ID, "debit")
			again.N = 2
			r.calls = append(r.calls, again)
		}, finds: oneMutation},
		"a claim, and it was looked for again": {spoil: func(r corrupted) {
			r.copyLine(r.lookup(r.payment("key-lost").Reference), func(*BookLine) {})
			r.calls = slices.DeleteFunc(r.calls, func(c CallRow) bool { return c.Subject == r.payment("key-lost").ID && c.Call == "lookup" })
		}, lost: 1, money: 1250},
		"a claim, which was made again and not sent again": {spoil: func(r corrupted) {
			p := r.payment("key-approved")
			p.State, p.Code, p.WalletID = "DECLINED", "WALLET_UNAVAILABLE", ""
			c := r.call(p.ID, "debit")
			c.Outcome, c.Reason, c.Status = "unavailable", "breaker_open", 0
		}, lost: 1, money: 1250},
		"a claim, and all that is left of it is that another request was refused": {spoil: func(r corrupted) {
			reference := r.payment("key-approved").Reference
			r.dropPayment("key-approved")
			for _, event := range []string{arrived, applied, answered} {
				r.dropLine(event, reference)
			}
			refused := r.answer("key-approved", 2).Call
			calls := map[int64]bool{}
			for _, l := range r.tills {
				if l.Event == history.Sent && (unquote(l.Key) == "key-approved" || strings.Contains(l.Path+"/", "/key-approved/")) {
					calls[l.Call] = l.Call != refused
				}
			}
			r.tills = slices.DeleteFunc(r.tills, func(l history.Line) bool { return calls[l.Call] })
			eur := r.totals["EUR"]
			eur.Balances, eur.NetDebits = eur.Balances+1250, eur.NetDebits-1250
			r.totals["EUR"] = eur
		}, lost: 1},
		"a claim, and its key was cancelled as one that nobody had seen": {spoil: func(r corrupted) {
			p := r.payment("key-shown")
			r.copyLine(r.line(arrived, r.payment("key-approved").Reference, 0), func(l *BookLine) {
				l.Reference, l.Key = p.Reference.String(), p.Reference.String()
			})
		}, lost: 1},
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
			if got := report.GivenTwiceMoney["EUR"]; got != c.twice || (report.GivenTwice > 0) != (c.twice > 0) {
				t.Errorf("%d EUR of %d keys were given back twice, want %d", got, report.GivenTwice, c.twice)
			}
		})
	}
}
