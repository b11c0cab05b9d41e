package ops

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"github.com/bojanz/currency"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// WriteParked writes a table of what waits for a person: what, for how long, why,
// and whose money.
func WriteParked(w io.Writer, parked []payment.FollowUpDetail) error {
	if len(parked) == 0 {
		_, err := fmt.Fprintln(w, "nothing is parked")
		return err
	}
	t := newTable(w, "ID", "KIND", "CREATED", "AMOUNT", "REASON", "CODE", "LAST", "ATTEMPTS", "CALLER", "PAYMENT")
	for _, f := range parked {
		t.row(f.ID.String(), string(f.Kind), at(f.CreatedAt), amount(f.Amount), f.ParkReason, string(f.Code), string(f.LastReason),
			strconv.Itoa(f.Attempts), f.Caller, idOrNone(f.PaymentID))
	}
	return t.flush()
}

// WriteFound writes tables of the payments and follow-ups that were found.
func WriteFound(w io.Writer, found payment.Found) error {
	if len(found.Payments)+len(found.FollowUps) == 0 {
		_, err := fmt.Fprintln(w, "nothing was found")
		return err
	}
	if len(found.Payments) > 0 {
		t := newTable(w, "PAYMENT", "KIND", "CREATED", "AMOUNT", "DECISION", "CODE", "ACCOUNT", "REFERENCE", "WALLET ID", "CALLER")
		for _, p := range found.Payments {
			t.row(p.ID.String(), string(p.Operation), at(p.CreatedAt), amount(p.Amount), string(p.State), string(p.Code),
				p.Account, p.TillReference, p.WalletID, p.Caller)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if len(found.FollowUps) == 0 {
		return nil
	}
	if len(found.Payments) > 0 {
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	t := newTable(w, "FOLLOW-UP", "KIND", "CREATED", "AMOUNT", "STATUS", "CODE", "ACCOUNT", "REFERENCE", "WALLET ID", "CALLER", "PAYMENT")
	for _, f := range found.FollowUps {
		t.row(f.ID.String(), string(f.Kind), at(f.CreatedAt), amount(f.Amount), string(f.State), string(f.Code),
			f.Account, f.TillReference, f.WalletID, f.Caller, idOrNone(f.PaymentID))
	}
	return t.flush()
}

// WritePayment writes one payment, a member a line.
func WritePayment(w io.Writer, p payment.Payment) error {
	v := viewPayment(p)
	return lines(w,
		"payment", v.ID, "kind", string(p.Operation), "decision", string(p.State), "code", string(p.Code), "caller", p.Caller,
		"account", p.Account, "amount", amount(p.Amount), "reference", p.TillReference, "metadata", pairs(p.Metadata),
		"wallet id", p.WalletID, "outbound key", v.OutboundKey, "created", at(p.CreatedAt), "decided", at(p.DecidedAt))
}

// WriteFollowUp writes one follow-up, a member a line.
func WriteFollowUp(w io.Writer, f payment.FollowUpDetail) error {
	return lines(w,
		"follow-up", f.ID.String(), "kind", string(f.Kind), "status", string(f.State), "code", string(f.Code),
		"parked because", f.ParkReason, "caller", f.Caller, "payment", idOrNone(f.PaymentID), "account", f.Account,
		"amount", amount(f.Amount), "reference", f.TillReference, "metadata", pairs(f.Metadata), "wallet id", f.WalletID,
		"outbound key", f.Outbound.String(), "attempts", strconv.Itoa(f.Attempts), "lookups", strconv.Itoa(f.Lookups),
		"last attempt", string(f.LastReason), "created", at(f.CreatedAt), "due", at(f.DueAt), "ended", at(f.EndedAt))
}

// event is a line of a timeline.
type event struct {
	at   time.Time
	rank int // of events of one instant, which one transaction made, in the order of cause
	what []string
}

// The ranks.
const (
	claimed = iota
	called
	decided
	begun
	noted
	ended
)

// WriteTimeline writes what happened to a payment, in order of time: its claim, each
// wallet call with what came of it, the decision, the follow-ups and what operators
// did; and below it what is still to come.
func WriteTimeline(w io.Writer, t payment.Timeline) error {
	events := make([]event, 0, 2+2*len(t.FollowUps)+len(t.Calls)+len(t.Notes))
	add := func(at time.Time, rank int, of, what, more string) {
		if !at.IsZero() {
			events = append(events, event{at, rank, []string{of, what, more}})
		}
	}
	kinds := make(map[uuid.UUID]string, len(t.FollowUps))
	if p := t.Payment; p.ID != uuid.Nil {
		add(p.CreatedAt, claimed, string(p.Operation), "claimed by "+p.Caller, join(amount(p.Amount), p.Account, p.TillReference))
		add(p.DecidedAt, decided, string(p.Operation), string(p.State), join(string(p.Code), p.WalletID))
	}
	for i, f := range t.FollowUps {
		// Two credits of one debit must be told apart.
		kinds[f.ID] = fmt.Sprintf("%s#%d", f.Kind, i+1)
		add(f.CreatedAt, begun, kinds[f.ID], "accepted", join(amount(f.Amount), f.Account, f.TillReference))
		add(f.EndedAt, ended, kinds[f.ID], string(f.State), join(string(f.Code), f.WalletID))
	}
	for _, c := range t.Calls {
		of := string(t.Payment.Operation)
		if c.OperationID != uuid.Nil {
			of = cmp.Or(kinds[c.OperationID], c.OperationID.String())
		}
		status := ""
		if c.Status != 0 {
			status = "HTTP " + strconv.Itoa(c.Status)
		}
		attempt := ""
		if c.Attempt > 0 {
			attempt = fmt.Sprintf("attempt %d", c.Attempt)
		}
		add(c.At, called, of, c.Call+" "+c.Outcome, join(string(c.Reason), status, c.Took.Round(time.Millisecond/10).String(), attempt))
	}
	for _, n := range t.Notes {
		add(n.At, noted, cmp.Or(kinds[n.OperationID], n.OperationID.String()), n.Action+" by "+n.Operator, n.Text)
	}
	slices.SortStableFunc(events, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.rank, b.rank))
	})

	if t.Payment.ID != uuid.Nil {
		if _, err := fmt.Fprintf(w, "payment %s\n", t.Payment.ID); err != nil {
			return err
		}
	}
	for _, f := range t.FollowUps {
		if _, err := fmt.Fprintf(w, "%s %s\n", kinds[f.ID], f.ID); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	table := newTable(w, "TIME", "OF", "WHAT", "")
	for _, e := range events {
		table.row(append([]string{e.at.UTC().Format(preciseTime)}, e.what...)...)
	}
	for _, f := range t.FollowUps {
		if f.EndedAt.IsZero() {
			table.row("open", kinds[f.ID], string(f.State), join(f.ParkReason, due(f)))
		}
	}
	return table.flush()
}

// preciseTime tells two calls of one decision apart.
const preciseTime = "2006-01-02 15:04:05.000Z"

func due(f payment.FollowUpDetail) string {
	if f.DueAt.IsZero() {
		return ""
	}
	return "next attempt from " + f.DueAt.UTC().Format(preciseTime)
}

// table writes aligned columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.line(head)
	return t
}

// row writes one line of cells. What others have sent is among them.
func (t table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = cell(c)
	}
	t.line(cells)
}

func (t table) line(cells []string) {
	_, _ = fmt.Fprintln(t.w, strings.TrimRight(strings.Join(cells, "\t"), "\t")) // into memory; Flush tells
}

func (t table) flush() error { return t.w.Flush() }

// lines writes name and value pairs below each other, without those that have none.
func lines(w io.Writer, namesAndValues ...string) error {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	for pair := range slices.Chunk(namesAndValues, 2) {
		if pair[1] != "" {
			t.row(pair...)
		}
	}
	return t.flush()
}

// cell is s as a terminal may see it. A wallet's id can be anything: it must not
// move the cursor of whoever looks at it, nor shift the columns.
func cell(s string) string {
	switch {
	case s == "":
		return "-"
	case strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }):
		return strconv.Quote(s)
	}
	return s
}

// amount is m as people write it, 19.99 EUR: whoever takes 1999 minor units for
// euros pays a hundredfold.
func amount(m payment.Money) string {
	if m.AmountMinor == 0 {
		return ""
	}
	a, err := currency.NewAmountFromInt64(m.AmountMinor, m.Currency)
	if err != nil { // a currency that has been given up since
		return fmt.Sprintf("%d minor units of %s", m.AmountMinor, m.Currency)
	}
	return a.String()
}

func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func join(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", ")
}

func pairs(m map[string]string) string {
	all := make([]string, 0, len(m))
	for name, value := range m {
		all = append(all, name+"="+value)
	}
	slices.Sort(all)
	return join(all...)
}
