package walletsim

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Entry is one line of the book: something that happened, in the order in which
// it happened. Lines are only ever added. The lines of one request share their
// Request, and so repeat what it asked for: each can be read on its own.
//
// A line stands in the book, and in its file, before anything that follows from
// it can be seen from outside: the money is booked before the answer is lost.
type Entry struct {
	Seq   int64     `json:"seq"` // 1, 2, 3, … without a gap
	At    time.Time `json:"at"`
	Event Event     `json:"event"`

	// Request is nil where there was none: a balance that was set by a person,
	// a connection that was cut before a request had been read.
	*Request

	Effect *Effect   `json:"effect,omitzero"` // what became of the money; nil for Arrived, Answered and Disturbed
	Answer *Delivery `json:"answer,omitzero"` // Answered only
}

// Event says what an Entry tells.
type Event string

// The events.
const (
	// Opened: a balance was given or changed by control, or an account opened
	// itself. It is the only way in which money comes into being.
	Opened Event = "OPENED"
	// Disturbed: a connection was cut or left hanging before a request was read.
	Disturbed Event = "DISTURBED"
	// Arrived: a request was read, or as much of it as came.
	Arrived Event = "ARRIVED"
	// Applied: the money moved, now.
	Applied Event = "APPLIED"
	// Rejected: the wallet said no; nothing moved.
	Rejected Event = "REJECTED"
	// Accepted: the wallet said that it will decide later (PENDING); nothing moved.
	Accepted Event = "ACCEPTED"
	// Recognised: the reference or key had been seen; nothing moved.
	Recognised Event = "RECOGNISED"
	// Answered: the answer went out, or did not; see Delivery.
	Answered Event = "ANSWERED"
)

// Request is what arrived, and what the wallet made up its mind to do about it.
// It never changes once it is in the book.
type Request struct {
	Exchange   int64 `json:"exchange"`   // which request, counted from 1 over all connections
	Connection int64 `json:"connection"` // which connection, counted from 1

	Method         string   `json:"method,omitzero"`
	Path           string   `json:"path,omitzero"` // with the query, as it came
	HeaderNames    []string `json:"headerNames,omitzero"`
	IdempotencyKey string   `json:"idempotencyKey,omitzero"`
	Body           string   `json:"body,omitzero"`      // as it came
	Bytes          int64    `json:"bytes"`              // on the wire, head included
	Malformed      string   `json:"malformed,omitzero"` // why it could not be understood: nothing below it is known then

	Version   Version   `json:"version,omitzero"`
	Operation Operation `json:"operation,omitzero"`
	Reference string    `json:"reference,omitzero"`
	// Account is the request's, or the one that its hold or reference belongs to.
	Account     string `json:"account,omitzero"`
	AmountMinor int64  `json:"amount,omitzero"`
	Currency    string `json:"currency,omitzero"`
	HoldID      string `json:"holdId,omitzero"`

	// Attempt counts the requests with this operation and reference, from 1.
	Attempt int `json:"attempt,omitzero"`
	// Rule names the rule that misbehaves here, "" where none does: a rule's own
	// name, or the account's prefix.
	Rule string `json:"rule,omitzero"`
}

// Effect is what the wallet did with money, or decided not to do.
type Effect struct {
	ID          string    `json:"id,omitzero"` // the wallet's own id, the one that its answers name
	Operation   Operation `json:"operation,omitzero"`
	Account     string    `json:"account,omitzero"`
	AmountMinor int64     `json:"amount,omitzero"`
	Currency    string    `json:"currency,omitzero"`
	HoldID      string    `json:"holdId,omitzero"`
	Code        string    `json:"code,omitzero"` // of a refusal, or DUPLICATE_REFERENCE
	// Late is set where this happened after the request's own time: nobody was
	// waiting for it any more.
	Late bool `json:"late,omitzero"`
	// BalanceChange and HeldChange are what was added to the account's balance
	// and to what is held of it, in minor units: their sums over the book are
	// the account.
	BalanceChange int64 `json:"balanceChange,omitzero"`
	HeldChange    int64 `json:"heldChange,omitzero"`
}

// Delivery compares the answer that was meant with what went out.
type Delivery struct {
	Status int       `json:"status,omitzero"` // 0: no answer was meant
	Body   string    `json:"body,omitzero"`
	How    Delivered `json:"how"`
	// Bytes were handed to the connection, of Of that a whole answer has. Copies
	// of a duplicate answer count once more each.
	Bytes int    `json:"bytes"`
	Of    int    `json:"of"`
	Error string `json:"error,omitzero"` // of the connection, as where the client had gone
}

// Delivered says how much of an answer went out.
type Delivered string

// The ways in which an answer ends. Whole means handed to the kernel: whether
// the client read it, nobody on this side can know.
const (
	Whole Delivered = "WHOLE"
	Cut   Delivered = "CUT"
	None  Delivered = "NONE"
)

// book is the append-only record. Its owner's mutex guards it.
type book struct {
	entries []Entry
	file    *os.File // nil where none was asked for
	err     error    // the first write that failed: from then on nothing may be believed
	grown   chan struct{}
}

func openBook(path string) (book, error) {
	b := book{grown: make(chan struct{})}
	if path == "" {
		return b, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return b, fmt.Errorf("open the book: %w", err)
	}
	b.file = file
	return b, nil
}

// append adds e, in the file first. One write call per line: with O_APPEND the
// line is then whole or absent, and it outlives this process' death (not that
// of the machine; the wallet of a test has no need of an fsync per line).
func (b *book) append(e Entry) {
	e.Seq = int64(len(b.entries)) + 1
	if b.file != nil && b.err == nil {
		line, err := marshal(e)
		if err == nil {
			_, err = b.file.Write(append(line, '\n'))
		}
		if err != nil {
			b.err = fmt.Errorf("write the book: %w", err)
		}
	}
	b.entries = append(b.entries, e)
	b.wake()
}

// wake lets everybody who waits look again.
func (b *book) wake() {
	close(b.grown)
	b.grown = make(chan struct{})
}

func (b *book) close() error {
	if b.file == nil {
		return b.err
	}
	if err := b.file.Close(); b.err == nil && err != nil {
		b.err = fmt.Errorf("close the book: %w", err)
	}
	b.file = nil
	return b.err
}

// Book is everything that has been booked so far. The caller may keep it: lines
// never change, and later ones are not added to it.
func (s *Sim) Book() []Entry { return s.bookFrom(0) }

// bookFrom is the book behind line seq.
func (s *Sim) bookFrom(seq int64) []Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.book.entries)
	from := int(min(max(seq, 0), int64(n)))
	return s.book.entries[from:n:n]
}

// WaitFor returns the first entry that matches, at once if it is booked already.
// The error is ctx's, or ErrClosed where the wallet was closed and no matching
// entry will come.
func (s *Sim) WaitFor(ctx context.Context, matches func(Entry) bool) (Entry, error) {
	var seen int64
	for {
		s.mu.Lock()
		grown, over := s.book.grown, s.over
		s.mu.Unlock()
		// The channel is taken before the book is read: what is added in between
		// closes it, so that no entry can slip through.
		for _, e := range s.bookFrom(seen) {
			if matches(e) {
				return e, nil
			}
			seen = e.Seq
		}
		if over {
			return Entry{}, ErrClosed
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return Entry{}, fmt.Errorf("wait for a line in the wallet's book: %w", context.Cause(ctx))
		}
	}
}

// WaitQuiet returns when nothing is going on: no request is being handled and
// nothing is left that will be applied late. Only then does the book say what
// has become of the money. The error is ctx's.
func (s *Sim) WaitQuiet(ctx context.Context) error {
	for {
		s.mu.Lock()
		grown, busy := s.book.grown, s.busy
		s.mu.Unlock()
		if busy == 0 {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return fmt.Errorf("wait for the wallet to be quiet: %w", context.Cause(ctx))
		}
	}
}
