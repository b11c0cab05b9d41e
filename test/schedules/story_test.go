package schedules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/walletsim"
)

// story is what happened, line by line, for whoever must find out why.
func (w *world) story() string {
	var lines []note
	tell := func(at time.Time, format string, args ...any) {
		lines = append(lines, note{at, fmt.Sprintf(format, args...)})
	}
	for _, e := range w.journal.exchanges {
		tell(e.sent, "till %d, exchange %d: %s %s %s at process %d, waits %d ms", e.till, e.n, e.method, e.path, e.body, e.on.n, e.act.Deadline)
		switch {
		case e.ended.IsZero():
			tell(e.sent.Add(e.act.HangUp), "till %d, exchange %d: no answer: %v", e.till, e.n, e.err)
		default:
			tell(e.ended, "till %d, exchange %d: answered %d %s after %s, replayed %v", e.till, e.n, e.status, strings.TrimSpace(e.answer), e.ended.Sub(e.sent), e.replayed)
		}
	}
	for _, c := range w.journal.calls {
		what := string(c.in.Operation)
		if c.lookup {
			what = "lookup of " + what
		}
		tell(c.began, "process %d, %s: %s %s", c.p.n, c.lane, what, c.in.Reference)
		switch {
		case c.ended.IsZero():
		case c.lookup:
			tell(c.ended, "process %d, %s: %s %s: %s %s", c.p.n, c.lane, what, c.in.Reference, c.evidence.Finding, c.evidence.Reason)
		default:
			tell(c.ended, "process %d, %s: %s %s: %s %s %s", c.p.n, c.lane, what, c.in.Reference, c.outcome.Class, c.outcome.Reason, c.outcome.Code)
		}
	}
	for _, s := range w.journal.strikes {
		tell(s.at, "process %d: ledger: %s %s (%s)", s.p.n, stepNames[s.step], s.how, s.wait)
	}
	for _, s := range w.journal.stills {
		tell(s.from, "process %d stands still", s.p.n)
		tell(s.til, "process %d goes on", s.p.n)
	}
	for _, e := range w.sim.Book() {
		switch {
		case e.Request == nil:
		case e.Event == walletsim.Answered:
			tell(e.At, "wallet: %s %s answered %s %d %s", e.Operation, e.Reference, e.Answer.How, e.Answer.Status, strings.TrimSpace(e.Answer.Body))
		case e.Effect != nil:
			tell(e.At, "wallet: %s %s %s %s %s %+d", e.Operation, e.Reference, e.Event, e.Effect.ID, e.Effect.Code, e.Effect.BalanceChange)
		default:
			tell(e.At, "wallet: %s %s %s, rule %q", e.Operation, e.Reference, e.Event, e.Rule)
		}
	}
	lines = append(lines, w.journal.notes...)
	slices.SortStableFunc(lines, func(a, b note) int { return a.at.Compare(b.at) })
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "\n  %12s  %s", l.at.Sub(w.begin), l.text)
	}
	for i, k := range w.plan.Keys {
		p, found, _ := w.ledger.PaymentByKey(w.ctx, owners[k.Caller], payment.Operation(k.operation()), payment.Key(k.name(i)))
		if !found {
			fmt.Fprintf(&b, "\n  in the end: %s is not there", k.name(i))
			continue
		}
		fmt.Fprintf(&b, "\n  in the end: %s (%s) is %s %s %s", k.name(i), p.ID, p.State, p.Code, p.WalletID)
		t, _, _ := w.ledger.Timeline(w.ctx, p.ID)
		for _, f := range t.FollowUps {
			fmt.Fprintf(&b, "\n    %s %s, outbound %s: %s %s %s, %d attempts", f.Kind, f.ID, f.Outbound, f.State, f.Code, f.ParkReason, f.Attempts)
		}
	}
	return b.String()
}
