package walletsim

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
)

// Entry is one line of the book: something that happened, in the order in which
// it happened. Lines are only ever added. The lines of one request share their
// Request, and so repeat what it asked for: each can be read on its own. How it
// stood on the wire is told once, by the line of its arrival.
//
// A line stands in the book, and in its file, before anything that follows from
// it can be seen from outside: the money is booked before the answer is lost.
type Entry struct {
	Seq   int64     `json:"seq"` // 1, 2, 3, … without a gap: the order in which it happened
	At    time.Time `json:"at"`  // by the wall clock, which may be set back: to join with what others have written
	Event Event     `json:"event"`

	// Request is nil where there was none: a balance that was set by a person,
	// a connection that was cut before a request had been read.
	*Request
	// Arrival is nil but for Arrived.
	*Arrival

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

// Request is what was asked for, and what the wallet made up its mind to do about
// it. It never changes once it is in the book.
type Request struct {
	Exchange   int64 `json:"exchange"`   // which request, counted from 1 over all connections
	Connection int64 `json:"connection"` // which connection, counted from 1

	Version        Version   `json:"version,omitzero"`
	Operation      Operation `json:"operation,omitzero"`
	Reference      string    `json:"reference,omitzero"`
	IdempotencyKey string    `json:"idempotencyKey,omitzero"`
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

// Arrival is a request as it stood on the wire, or as much of it as came.
type Arrival struct {
	Method      string   `json:"method,omitzero"`
	Path        string   `json:"path,omitzero"` // with the query, as it came
	HeaderNames []string `json:"headerNames,omitzero"`
	Body        string   `json:"body,omitzero"`      // as it came
	Bytes       int64    `json:"bytes"`              // head included
	Malformed   string   `json:"malformed,omitzero"` // why it could not be understood: what it asked for is not known then
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
	last    int64   // the seq of the line that was added last
	told    int64   // and of the last that was flushed
	entries []Entry // all of them; none where they are only in the file
	inFile  bool    // only in the file

	path    string
	file    *os.File     // nil where none was asked for, and after close
	pending bytes.Buffer // lines that are not in the file yet
	end     int64        // of the file, without what is pending
	marks   []int64      // where every markEvery-th line begins, from the first on
	err     error        // the first write or read that failed: from then on nothing may be believed
	grown   chan struct{}
}

// markEvery is how many lines lie between two of which the book knows where they
// begin: whoever looks for a line reads at most so many in front of it.
const markEvery = 256

// openBook opens the book, behind what its file holds already. inFile keeps no line
// in memory.
func openBook(path string, inFile bool) (*book, error) {
	b := &book{inFile: inFile, path: path, grown: make(chan struct{})}
	if path == "" {
		return b, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the book: %w", err)
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("open the book: %w", err)
	}
	b.file, b.end = file, info.Size()
	return b, nil
}

// append adds e. Who reads the book does not see it before flush.
func (b *book) append(e Entry) {
	b.last++
	e.Seq = b.last
	if !b.inFile {
		b.entries = append(b.entries, e)
	}
	if b.file == nil || b.err != nil {
		return
	}
	if (e.Seq-1)%markEvery == 0 {
		b.marks = append(b.marks, b.end+int64(b.pending.Len()))
	}
	if err := json.MarshalWrite(&b.pending, e); err != nil {
		b.fail("write", err)
	}
	b.pending.WriteByte('\n')
}

// flush writes what was added, and lets everybody who waits look again. It comes
// before the lock is released wherever something that follows from those lines can be
// seen. One write call for all of them: they outlive this process' death (not that of
// the machine; the wallet of a test has no need of an fsync).
func (b *book) flush() {
	if b.told == b.last {
		return
	}
	b.told = b.last
	if b.file != nil && b.err == nil {
		n, err := b.file.Write(b.pending.Bytes())
		b.end += int64(n)
		if err != nil {
			b.fail("write", err)
		}
	}
	b.pending.Reset()
	b.wake()
}

func (b *book) fail(what string, err error) {
	if b.err == nil {
		b.err = fmt.Errorf("%s the book: %w", what, err)
	}
}

// wake lets everybody who waits look again.
func (b *book) wake() {
	close(b.grown)
	b.grown = make(chan struct{})
}

func (b *book) close() error {
	b.flush()
	if b.file != nil {
		if err := b.file.Close(); err != nil {
			b.fail("close", err)
		}
		b.file = nil
	}
	return b.err
}

// passage is a stretch of the book's file.
type passage struct {
	path       string
	begin, end int64
	skip       int64 // so many lines of it do not belong to what was asked for
}

// behind is the passage behind line seq, as far as it is written.
func (b *book) behind(seq int64) passage {
	mark := seq / markEvery
	if mark >= int64(len(b.marks)) {
		return passage{} // nothing is
	}
	return passage{b.path, b.marks[mark], b.end, seq % markEvery}
}

// read gives away the lines of p, of one reference where one is given, until yield
// has had enough.
func (p passage) read(reference string, yield func(Entry) bool) error {
	if p.begin == p.end {
		return nil
	}
	file, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	// Most lines are of other references: they need not be decoded to be passed by.
	named, err := json.Marshal(reference)
	if err != nil {
		return err
	}
	r := bufio.NewReaderSize(io.NewSectionReader(file, p.begin, p.end-p.begin), 1<<16)
	for n := int64(0); ; n++ {
		line, err := r.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case err != nil:
			return err
		case n < p.skip || (reference != "" && !bytes.Contains(line, named)):
			continue
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		if e.of(reference) && !yield(e) {
			return nil
		}
	}
}

// of reports whether e is about reference; all are about "".
func (e Entry) of(reference string) bool {
	return reference == "" || (e.Request != nil && e.Reference == reference)
}

// Book is everything that has been booked so far. The caller may keep it: lines
// never change, and later ones are not added to it. Where the book is only in its
// file, it is read from there.
func (s *Sim) Book() []Entry {
	entries, _ := s.bookFrom(0, "")
	return slices.Collect(entries)
}

// bookFrom is the book behind line seq, of one reference where one is given, and up
// to which line.
func (s *Sim) bookFrom(seq int64, reference string) (entries iter.Seq[Entry], last int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.book.flush()
	last = s.book.last
	seq = min(max(seq, 0), last)
	if s.book.inFile {
		p := s.book.behind(seq)
		return func(yield func(Entry) bool) {
			if err := p.read(reference, yield); err != nil {
				s.mu.Lock()
				defer s.mu.Unlock()
				s.book.fail("read", err)
			}
		}, last
	}
	lines := s.book.entries[seq:last:last]
	return func(yield func(Entry) bool) {
		for _, e := range lines {
			if e.of(reference) && !yield(e) {
				return
			}
		}
	}, last
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
		entries, _ := s.bookFrom(seen, "")
		for e := range entries {
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

// State says how far the wallet has come.
type State struct {
	Requests    int64 `json:"requests"` // that have arrived
	Connections int64 `json:"connections"`
	Lines       int64 `json:"lines"` // of the book
	// Busy is how many requests are being handled, and effects that are still to come:
	// only at 0 does the book say what has become of the money.
	Busy int `json:"busy"`
}

// State is how far the wallet has come, for who cannot call WaitQuiet.
func (s *Sim) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return State{Requests: s.exchanges, Connections: s.connections, Lines: s.book.last, Busy: s.busy}
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
