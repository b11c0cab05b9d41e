// Package history is the tills' own log: what was sent, what came back and when, one
// JSON object a line. Whoever drives load against SafeLedger writes it, and test/check
// holds it against the ledger and the wallet's book. ../README.md has the format.
//
// A line is in the file before the request is sent: a request that nobody has noted is
// one that the checker would take for a ghost's. It shares no code with the service and
// depends on nothing but the standard library.
package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"
)

// Event says what a Line tells.
type Event string

// The events.
const (
	// Opened begins the lines of one run in one file. Calls are counted anew.
	Opened Event = "OPENED"
	// Sent: the call is about to be sent.
	Sent Event = "SENT"
	// Answered: an answer came, whole.
	Answered Event = "ANSWERED"
	// Failed: no whole answer came, and none will be waited for.
	Failed Event = "FAILED"
	// Disturbed and Calmed are the begin and the end of a time in which no promise about
	// time can be kept: PostgreSQL is down, a process is stopped or killed.
	Disturbed Event = "DISTURBED"
	Calmed    Event = "CALMED"
)

// Line is one line of the log. Which members it has depends on its event.
type Line struct {
	Event Event     `json:"event"`
	At    time.Time `json:"at"` // by the wall clock, in nanoseconds

	// Call tells the calls of a run and file apart, from 1: of Sent, Answered and Failed.
	// Of Disturbed and Calmed it tells disturbances apart.
	Call int64 `json:"call,omitempty"`

	Run    string `json:"run,omitempty"`    // Opened: the same for all files of a run
	Source string `json:"source,omitempty"` // Opened: who wrote this file

	Request
	Answer
	Failure

	What string `json:"what,omitempty"` // Disturbed: "postgres", "kill -9", …
}

// Request is a call as it is sent.
type Request struct {
	// Till is who sends it, for people; Caller is whom SafeLedger takes it for, "" if it
	// is sent without a known token.
	Till   string `json:"till,omitempty"`
	Caller string `json:"caller,omitempty"`
	// To is the address that it is sent to. Via is what stands there in between (a
	// proxy's name), "" if nothing does: what may repeat a request or answer it in
	// SafeLedger's stead.
	To  string `json:"to,omitempty"`
	Via string `json:"via,omitempty"`

	Method string `json:"method,omitempty"`
	Path   string `json:"path,omitempty"` // as sent, percent-encoded
	// Key is the Idempotency-Key field as sent, quotes included, "" where there is none.
	Key string `json:"key,omitempty"`
	// Deadline is the Request-Deadline-Ms field as sent, "" where there is none.
	Deadline string `json:"deadline,omitempty"`
	// Trace is the trace id of the Traceparent field, 32 hexadecimal digits, one of its
	// own for each call: by it the call is found in the log of the replica that had it.
	Trace string `json:"trace,omitempty"`
	// Sent is the request's body as sent. Bytes that are not UTF-8 are replaced.
	Sent string `json:"sent,omitempty"`
}

// Answer is what came back.
type Answer struct {
	Status     int    `json:"status,omitempty"`
	RetryAfter string `json:"retryAfter,omitempty"` // the field as it came
	Replayed   string `json:"replayed,omitempty"`   // Idempotency-Replayed as it came
	Location   string `json:"location,omitempty"`
	// Got is the answer's body as it came. Bytes that are not UTF-8 are replaced.
	Got string `json:"got,omitempty"`
}

// Failure is why no whole answer came.
type Failure struct {
	// Unsent is set where certainly not a byte of the request left: it was refused a
	// connection. Anything else may have been carried out.
	Unsent bool   `json:"unsent,omitempty"`
	How    string `json:"how,omitempty"` // "timeout", "reset", "hung up", …
	Error  string `json:"error,omitempty"`
}

// AnswerOf is the answer of an http.Response whose body has been read.
func AnswerOf(status int, header http.Header, body []byte) Answer {
	return Answer{
		Status: status, RetryAfter: header.Get("Retry-After"), Replayed: header.Get("Idempotency-Replayed"),
		Location: header.Get("Location"), Got: string(body),
	}
}

// Log writes a till's log. All its methods may be called at once. Make it with Open.
type Log struct {
	mu    sync.Mutex
	file  *os.File
	calls int64
	err   error // the first write that failed: from then on nothing may be sent
}

// Open begins the log of one run in the file at path, behind what that holds.
func Open(path, run, source string) (*Log, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the till log: %w", err)
	}
	l := &Log{file: file}
	if err := l.write(Line{Event: Opened, At: now(), Run: run, Source: source}); err != nil {
		_ = file.Close()
		return nil, err
	}
	return l, nil
}

// Call is a call that has been noted and must be ended by one of its methods.
type Call struct {
	log *Log
	n   int64
}

// Send notes r. After an error it must not be sent: nobody would know of it.
func (l *Log) Send(r Request) (*Call, error) {
	n := l.next()
	return &Call{l, n}, l.write(Line{Event: Sent, At: now(), Call: n, Request: r})
}

// Answered ends the call by its answer. at is when it was there whole.
func (c *Call) Answered(at time.Time, a Answer) error {
	return c.log.write(Line{Event: Answered, At: at.UTC(), Call: c.n, Answer: a})
}

// Failed ends the call without one.
func (c *Call) Failed(at time.Time, f Failure) error {
	return c.log.write(Line{Event: Failed, At: at.UTC(), Call: c.n, Failure: f})
}

// Disturb notes that a time begins in which no promise about time can be kept; calm
// ends it. It comes before the disturbance, and calm after the last of it.
func (l *Log) Disturb(what string) (calm func() error, err error) {
	n := l.next()
	calm = func() error { return l.write(Line{Event: Calmed, At: now(), Call: n}) }
	return calm, l.write(Line{Event: Disturbed, At: now(), Call: n, What: what})
}

// Close ends the log. The error is the first that it met.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.file.Close(); err != nil {
		l.fail(err)
	}
	return l.err
}

func (l *Log) next() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls++
	return l.calls
}

// write appends a line by one write call: it is whole or absent, and outlives this
// process. The machine's death it need not outlive.
func (l *Log) write(line Line) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false) // for the people who read it
	if err := enc.Encode(line); err != nil {
		return fmt.Errorf("write the till log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		if _, err := l.file.Write(text.Bytes()); err != nil {
			l.fail(err)
		}
	}
	return l.err
}

func (l *Log) fail(err error) {
	if l.err == nil {
		l.err = fmt.Errorf("write the till log: %w", err)
	}
}

func now() time.Time { return time.Now().UTC() }
