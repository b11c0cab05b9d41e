package checker

import (
	"context"
	"crypto/sha256"
	"fmt"

	"github.com/google/uuid"
)

// readLedger takes in the rows. It comes first: what tills were told, and what the wallet
// saw, is held against them as it is read.
func (w *world) readLedger(ctx context.Context, l Ledger) error {
	if err := l.Payments(ctx, w.addPayment); err != nil {
		return err
	}
	if err := l.Operations(ctx, w.addOperation); err != nil {
		return err
	}
	if err := l.Calls(ctx, w.addCall); err != nil {
		return err
	}
	return l.Notes(ctx, w.addNote)
}

// hashOf is the SHA-256 of a key, behind the time that ledgers keep in front of it.
func hashOf(keyHash []byte) (hash [sha256.Size]byte, err error) {
	if len(keyHash) < sha256.Size {
		return hash, fmt.Errorf("a key hash of %d bytes", len(keyHash))
	}
	copy(hash[:], keyHash[len(keyHash)-sha256.Size:])
	return hash, nil
}

func (w *world) addPayment(r PaymentRow) error {
	hash, err := hashOf(r.KeyHash)
	if err != nil {
		return fmt.Errorf("payment %s: %w", r.ID, err)
	}
	s := w.subjectOf(r.Caller, kindOf(r.Operation), hash)
	if s.payment != nil {
		w.violate(once, s, "it has two rows, %s and %s", s.payment.id, r.ID)
		return nil
	}
	p := &payment{
		id: r.ID, reference: r.Reference, account: w.word(r.Account), currency: w.word(r.Currency), amount: r.Amount,
		tillReference: r.TillReference, metadata: r.Metadata, state: w.word(r.State), code: w.word(r.Code),
		walletID: r.WalletID, created: at(r.CreatedAt), decided: at(r.DecidedAt),
	}
	p.mark = markOf(r.Fingerprint)
	s.payment = p
	w.byPayment[p.id] = s
	w.report.Payments++
	w.report.States[p.state]++
	w.checked(derived)
	if !w.claim(s, p.reference) {
		w.violate(derived, s, "its reference %s is another operation's as well", p.reference)
	}
	return nil
}

func (w *world) addOperation(r OperationRow) error {
	j := &job{
		id: r.ID, outbound: r.OutboundKey, kind: kindOf(r.Kind), account: w.word(r.Account), currency: w.word(r.Currency), amount: r.Amount,
		tillReference: r.TillReference, metadata: r.Metadata, state: w.word(r.State), code: w.word(r.Code), reverses: r.Reverses,
		targetID: r.TargetID, walletID: r.WalletID, cancelled: r.Cancelled, attempts: r.Attempts, parkReason: w.word(r.ParkReason),
		due: !r.DueAt.IsZero(), created: at(r.CreatedAt), ended: at(r.EndedAt),
	}
	j.mark = markOf(r.Fingerprint)
	if r.PaymentID != uuid.Nil {
		j.of = w.byPayment[r.PaymentID]
		if j.of == nil {
			return fmt.Errorf("operation %s is of the payment %s, which is not there", r.ID, r.PaymentID)
		}
		j.of.payment.jobs = append(j.of.payment.jobs, j)
	}
	w.jobs = append(w.jobs, j)
	w.byJob[j.id] = j
	w.report.FollowUps++
	w.report.Ends[r.Kind+" "+r.State]++

	x := w.wireOf(j.outbound)
	if j.kind == reversal {
		// Of a tombstone that was shown the request later, the reference is not the row's.
		if !w.claim(j.of, j.reverses) {
			w.violate(derived, j.of, "its reversal is of the reference %s, which is another operation's", j.reverses)
		}
		x.reverses = j.of
	} else {
		hash, err := hashOf(r.KeyHash)
		if err != nil {
			return fmt.Errorf("operation %s: %w", r.ID, err)
		}
		j.owner = w.subjectOf(r.Caller, j.kind, hash)
		if j.owner.job != nil {
			w.violate(once, j.owner, "it has two rows, %s and %s", j.owner.job.id, j.id)
			return nil
		}
		j.owner.job = j
	}
	w.checked(derived)
	if x.job != nil || (x.owner != nil && x.owner != j.owner) || (j.owner != nil && !w.claim(j.owner, j.outbound)) {
		w.violate(derived, j.subject(), "its outbound key %s is another operation's as well", j.outbound)
		return nil
	}
	x.job, j.wire = j, x
	return nil
}

func (w *world) addCall(r CallRow) error {
	c := walletCall{
		call: w.word(r.Call), outcome: w.word(r.Outcome), reason: w.word(r.Reason), fence: r.Fence,
		at: at(r.At), took: r.Took, status: int16(r.Status), n: int16(r.N), attempt: int16(r.Attempt),
	}
	w.report.WalletCalls++
	if s := w.byPayment[r.Subject]; s != nil {
		s.payment.calls = append(s.payment.calls, c)
		return nil
	}
	if j := w.byJob[r.Subject]; j != nil {
		j.calls = append(j.calls, c)
		return nil
	}
	return fmt.Errorf("a wallet call is of %s, which is neither a payment nor an operation", r.Subject)
}

func (w *world) addNote(r NoteRow) error {
	j := w.byJob[r.Operation]
	if j == nil {
		return fmt.Errorf("an operator's note is of %s, which is no operation", r.Operation)
	}
	j.notes = append(j.notes, r)
	return nil
}
