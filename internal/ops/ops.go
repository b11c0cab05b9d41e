// Package ops is what the people who operate SafeLedger see and do (contract
// section 5): they find what somebody asks about, read what happened to it, and
// give what is parked back to the queue or settle it by hand. Nothing can be
// deleted, and whatever is done is noted with who did it and why.
//
// There are two ways in with the same words: HTTP on the admin listener for callers
// with the scope operator (http.go), and `safeledger ops`, which works on the
// database itself. Both tell a program in JSON (view.go); people get tables
// (text.go).
package ops

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// ledger is where operators look and intervene. Each ends by ctx's deadline. An
// error of the last two means that it is not known whether it was done; doing it
// again finds out.
type ledger interface {
	// Find searches for what somebody asks about, newest first.
	Find(ctx context.Context, q payment.Query) (payment.Found, error)
	// Parked is what waits for a person, what has waited longest first.
	Parked(ctx context.Context, limit int) ([]payment.FollowUpDetail, error)
	// Timeline is everything about a payment, by its id or by that of one of its
	// follow-ups.
	Timeline(ctx context.Context, id uuid.UUID) (payment.Timeline, bool, error)
	// Redrive gives what is parked back to the queue, under the same outbound key.
	Redrive(ctx context.Context, id uuid.UUID, operator, reason string) (payment.OperatorResult, error)
	// SettleByHand ends a follow-up as an operator has found it to be.
	SettleByHand(ctx context.Context, id uuid.UUID, applied bool, operator, reason string) (payment.OperatorResult, error)
}

// How many payments and follow-ups are shown: more than that is a report, not a
// look, and belongs to a replica of the database.
const (
	DefaultLimit = 50
	MaxLimit     = 500
)

// maxReason bounds what an operator writes down, in characters: a paragraph.
const maxReason = 500

// ErrNothingToFind says what a search needs.
var ErrNothingToFind = errors.New("give at least one of key, reference, account, wallet id, amount, caller or a time to find something by")

// CheckQuery says what is wrong with q, if anything: ErrNothingToFind, or what is out
// of range.
func CheckQuery(q payment.Query) error {
	known := q
	known.Limit = 0
	switch {
	case known == (payment.Query{}) || known == (payment.Query{Currency: q.Currency}):
		return ErrNothingToFind
	case q.AmountMinor < 0 || q.AmountMinor > payment.MaxAmountMinor:
		return fmt.Errorf("an amount must be from 1 to %d minor units", int64(payment.MaxAmountMinor))
	case !q.From.IsZero() && !q.Until.IsZero() && !q.From.Before(q.Until):
		return errors.New("the time from which to look must be before the time until which to look")
	}
	return CheckLimit(q.Limit)
}

// CheckLimit says what is wrong with a limit, if anything.
func CheckLimit(limit int) error {
	if limit < 1 || limit > MaxLimit {
		return fmt.Errorf("a limit must be from 1 to %d", MaxLimit)
	}
	return nil
}

// CheckReason says what is wrong with the reason that an operator gives, if anything.
// It is kept for good and read by whoever asks why.
func CheckReason(reason string) error {
	blank := true
	for _, c := range reason {
		if unicode.IsControl(c) {
			return errors.New("a reason must not contain control characters")
		}
		blank = blank && unicode.IsSpace(c)
	}
	if n := utf8.RuneCountInString(reason); blank || n > maxReason || !utf8.ValidString(reason) {
		return fmt.Errorf("a reason must be given, of at most %d characters", maxReason)
	}
	return nil
}

// Refusal says in a sentence why an intervention has changed nothing, "" where it
// was done.
func Refusal(r payment.OperatorResult) string {
	switch r.Status {
	case payment.OperatorDone:
		return ""
	case payment.OperatorUnknown:
		return "there is no such follow-up"
	case payment.OperatorActive:
		return fmt.Sprintf("the queue has it: %s %s is %s, and an attempt at it may be out", r.FollowUp.Kind, r.FollowUp.ID, r.FollowUp.State)
	case payment.OperatorEnded:
		return fmt.Sprintf("it has ended: %s %s is %s since %s",
			r.FollowUp.Kind, r.FollowUp.ID, r.FollowUp.State, r.FollowUp.EndedAt.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("the ledger gave no result (%d)", r.Status)
}
