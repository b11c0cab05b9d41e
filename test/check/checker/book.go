package checker

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"
)

// bookReader takes in the wallet's book, and judges what can be judged line by line:
// what is wrong at some moment need not be so in the end.
type bookReader struct {
	*world
	seq int64 // of the line before
}

func (w *world) readBook(ctx context.Context, l Lines[BookLine]) error {
	r := &bookReader{world: w}
	if err := l.each(ctx, r.add); err != nil {
		return fmt.Errorf("the wallet's book: %w", err)
	}
	return nil
}

// judgeTotals holds the wallet's own accounts to its book.
func (w *world) judgeTotals(counted map[string]Totals) {
	if counted == nil {
		return
	}
	w.checked(totals)
	for _, wrong := range w.bank.differs(counted) {
		w.violate(totals, nil, "%s", wrong)
	}
}

func (r *bookReader) add(p place, l *BookLine) error {
	switch {
	case l.Seq == 1:
		before := r.bank.takenInAll() // a wallet that is started again has forgotten its accounts
		r.bank = newBank()
		r.bank.before = before
	case l.Seq != r.seq+1:
		return fmt.Errorf("line %d follows line %d: it is not whole", l.Seq, r.seq)
	}
	r.seq = l.Seq
	r.report.BookLines++
	r.saw(at(l.At))
	if l.Rule != "" && l.Event == "ARRIVED" {
		r.report.Faults[l.Rule]++
	}
	r.checked(conserved)
	if wrong := r.bank.enter(l); wrong != "" {
		r.violateAt(conserved, nil, inBook(p), "%s", wrong)
	}
	// An opening is about an account. It is named after the request that came first, which
	// has lines of its own.
	if l.Reference == "" || l.Event == opened {
		return nil
	}
	x := r.wireOfLine(l.Reference)
	if x == nil {
		r.violateAt(known, nil, inBook(p), "the wallet was asked with the reference %q", l.Reference)
		return nil
	}
	if x.lines == nil {
		const arrivedAppliedAnswered = 3 // as most references have
		x.lines = make([]seen, 0, arrivedAppliedAnswered)
	}
	x.lines = append(x.lines, r.see(p, l))
	if l.Event == applied && l.Effect != nil {
		r.move(p, x, l.Effect)
	}
	return nil
}

// wireOfLine is the wire of a reference, nil where that is none that SafeLedger derives.
func (r *bookReader) wireOfLine(reference string) *wire {
	id, err := uuid.Parse(reference)
	if err != nil {
		return nil
	}
	return r.wireOf(id)
}

// see keeps what a line is judged by.
func (r *bookReader) see(p place, l *BookLine) seen {
	s := seen{
		place: p, at: at(l.At), exchange: l.Exchange, kind: kindOf(l.Operation), lookup: l.Operation == "lookup",
		amount: l.Amount, account: r.word(l.Account), currency: r.word(l.Currency), holdID: l.HoldID,
		keyed: l.Key == l.Reference || (l.Version == "v1" && l.Key == ""),
	}
	switch l.Event {
	case arrived:
		s.event = arrival
	case applied, rejected:
		s.event = effect
		if l.Event == rejected {
			s.event = refusal
		}
		if e := l.Effect; e != nil {
			s.id, s.code, s.kind, s.amount = e.ID, r.word(e.Code), kindOf(e.Operation), e.Amount
			s.account, s.currency, s.holdID = r.word(e.Account), r.word(e.Currency), e.HoldID
		}
	case answered:
		s.event = answer
		if a := l.Answer; a != nil {
			s.status, s.whole, s.code = int16(a.Status), a.How == "WHOLE", r.word(codeIn(a.Body))
		}
	}
	return s
}

// codeIn is the code in an answer's body, "" where there is none.
func codeIn(body string) string {
	_, behind, found := strings.Cut(body, `"code":"`)
	if !found {
		return ""
	}
	code, _, _ := strings.Cut(behind, `"`)
	return code
}

// move adds an effect to the money of the payment that it is about.
func (r *bookReader) move(p place, x *wire, e *BookEffect) {
	k := kindOf(e.Operation)
	if s := x.owner; s != nil && s.kind.isPayment() {
		r.checked(once)
		s.money.applied++
		if k == debit {
			s.money.took += e.Amount
		}
		of := int(s.money.applied)
		if r.lossy {
			// The same key with another body is another debit, when the first was lost.
			of = len(x.effects())
		}
		if of > 1 {
			r.violateAt(once, s, inBook(p), "the wallet has applied it %d times", of)
		}
		return
	}
	s := r.payee(x)
	if s == nil {
		return
	}
	switch k {
	case capture:
		s.money.took += e.Amount
	case credit:
		s.money.gave += e.Amount
	case noKind, debit, hold, release, reversal:
	}
	if x.reverses == s {
		r.checked(oneReversal)
		s.money.reversals++
		if s.money.reversals > 1 {
			r.violateAt(oneReversal, s, inBook(p), "the wallet has applied %d reversals of it", s.money.reversals)
		}
	}
	if k == credit {
		r.checked(givenBack)
		if s.money.gave > s.money.took && !s.money.excess {
			s.money.excess = true
			if r.lossy {
				return // judgeExcess looks at it when all rows are known
			}
			r.violateAt(givenBack, s, inBook(p), "%d were given back of the %d that were taken", s.money.gave, s.money.took)
		}
	}
}
