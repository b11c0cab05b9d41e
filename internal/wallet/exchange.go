package wallet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/crashpoint"
	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/tracing"
)

const (
	// maxBody is the largest body that an answer may have (contract section 3).
	maxBody = 64 << 10
	// maxAnswer bounds all that is read for one answer: head, interim answers, and
	// a body of maxBody in chunks of a few bytes each.
	maxAnswer = 1 << 20
)

// errAnswerTooLong ends the reading of an answer that exceeds maxAnswer.
var errAnswerTooLong = errors.New("wallet: answer too long")

// past is a deadline that is over, for ending what waits on a connection.
func past() time.Time { return time.Unix(1, 0) }

// exchange makes one call: one connection, one write, one answer. There is no
// second write anywhere behind it: what goes wrong after the first is told, not
// repaired. It ends by ctx's deadline.
//
// mine decides whether the connection may carry another call.
func (c *Client) exchange(ctx context.Context, req request, mine func(sight) bool) sight {
	if c.tooLate(ctx) {
		return unsent(ctx, payment.ReasonDeadlineSpent)
	}
	// A connection that the wallet has closed meanwhile is found out here, before
	// anything is written to it, and a fresh one taken instead: still one request.
	conn := c.pool.take()
	if conn == nil {
		var err error
		if conn, err = c.dialer.dial(ctx); err != nil {
			return c.notConnected(ctx, err)
		}
	}
	// The caller's end, be it its deadline or that it went away, ends what waits on
	// the connection. No other limit is set on it, and what the last call has set is over.
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	stop := func() bool { return true }
	if !budget.EndsByDeadlineOnly(ctx) {
		stop = context.AfterFunc(ctx, func() { _ = conn.SetDeadline(past()) })
	}

	// Connecting may have used up what the answer needs to come back.
	if c.tooLate(ctx) {
		c.release(conn, stop, !c.wire.closes)
		return unsent(ctx, payment.ReasonDeadlineSpent)
	}
	// From here on the wallet may have the request.
	conn.out = c.wire.append(conn.out[:0], req, c.currentToken(), tracing.Traceparent(ctx))
	seen, clean := conn.converse(req)
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(attribute.String("http.request.method", req.method))
		if seen.status != 0 {
			span.SetAttributes(attribute.Int("http.response.status_code", seen.status))
		}
	}
	seen.cancelled = errors.Is(ctx.Err(), context.Canceled)
	if conn.idled > 0 && seen.lost == payment.ReasonConnectionLost {
		// Perhaps it was being closed while we wrote. That must not happen twice.
		c.pool.closedAfter(conn.idled)
	}
	c.release(conn, stop, clean && !c.wire.closes && mine(seen))
	return seen
}

// tooLate reports whether less time is left than an answer needs to come back:
// to send now would only turn a certain "not applied" into doubt.
func (c *Client) tooLate(ctx context.Context) bool {
	if deadline, bounded := ctx.Deadline(); bounded && time.Until(deadline) < c.minToSend {
		return true
	}
	return ctx.Err() != nil
}

func (c *Client) currentToken() Token {
	if c.token == nil {
		return Token{}
	}
	return c.token()
}

// release keeps the connection for the next call, or closes it. stop must have
// kept the caller's end from reaching the connection: a deadline that is set
// late would break the next call's.
func (c *Client) release(conn *conn, stop func() bool, keep bool) {
	if stopped := stop(); stopped && keep {
		c.pool.put(conn)
		return
	}
	conn.discard()
}

// notConnected is the sight of a call whose connection never came to be: nothing
// was written, to anybody.
func (c *Client) notConnected(ctx context.Context, err error) sight {
	if errors.Is(ctx.Err(), context.Canceled) {
		return unsent(ctx, payment.ReasonDeadlineSpent) // the caller went away: no fault of the wallet's
	}
	if c.dialError.due(time.Now()) {
		c.log.WarnContext(ctx, "wallet cannot be reached", "error", err)
	}
	var dialing *dialError
	if errors.As(err, &dialing) && dialing.timeout {
		return unsent(ctx, payment.ReasonConnectTimeout)
	}
	return unsent(ctx, payment.ReasonConnectFailed)
}

func unsent(ctx context.Context, reason payment.Reason) sight {
	return sight{unsent: reason, cancelled: errors.Is(ctx.Err(), context.Canceled)}
}

// converse writes the request, as it is in c.out, and reads the answer. clean reports
// whether nothing is left over on the connection, in either direction.
func (c *conn) converse(req request) (seen sight, clean bool) {
	c.ioErr, c.left = nil, maxAnswer

	// One write, begun: whatever Write reports, TLS records or a part of the
	// message may be on their way.
	_, writeErr := c.Write(c.out)
	if req.decides {
		crashpoint.Here(crashpoint.AfterSend)
	}
	if writeErr != nil && errors.Is(writeErr, os.ErrDeadlineExceeded) {
		return sight{lost: payment.ReasonTimeout}, false
	}

	// A wallet may answer before it has read everything and close: what it said is
	// still there to be read, also after a write that failed.
	answer, err := c.readHead(req.method) //nolint:bodyclose // it is the connection's, which its owner closes
	if err != nil {
		return sight{lost: c.lost(payment.ReasonConnectionLost)}, false
	}
	seen.status = answer.StatusCode
	body, err := readBody(answer)
	switch {
	case len(body) > maxBody || errors.Is(err, errAnswerTooLong):
		seen.lost = payment.ReasonBodyTooLarge
		return seen, false
	case err != nil:
		seen.lost = c.lost(payment.ReasonBodyIncomplete)
		return seen, false
	}
	seen.body, seen.answer = body, parseObject(body)
	// A body that only ends with the connection leaves answer.Close set. What came
	// beyond the answer belongs to nobody's question.
	return seen, writeErr == nil && !answer.Close && c.in.Buffered() == 0
}

// readBody reads a body of at most maxBody, or one byte more of a longer one.
func readBody(answer *http.Response) ([]byte, error) {
	if n := answer.ContentLength; n >= 0 && n <= maxBody {
		body := make([]byte, n)
		read, err := io.ReadFull(answer.Body, body)
		return body[:read], err
	}
	return io.ReadAll(io.LimitReader(answer.Body, maxBody+1))
}

// readHead reads the status line and header fields of the final answer, past
// any interim ones (RFC 9110 section 15.2). 101 is final: we asked for no other
// protocol, and behind it there is no HTTP any more.
func (c *conn) readHead(method string) (*http.Response, error) {
	c.question.Method = method // all that the answer's reader asks of it
	for {
		answer, err := http.ReadResponse(c.in, &c.question)
		if err != nil {
			return nil, err
		}
		if answer.ProtoMajor != 1 {
			return nil, errors.New("wallet: not HTTP/1")
		}
		if s := answer.StatusCode; s >= 200 || s < 100 || s == http.StatusSwitchingProtocols {
			return answer, nil
		}
	}
}

// lost says why no complete answer was read. broken is the reason for a
// connection that ended; what was read without an error and still makes no
// sense is no HTTP.
func (c *conn) lost(broken payment.Reason) payment.Reason {
	switch {
	case c.ioErr == nil:
		return payment.ReasonProtocol
	case errors.Is(c.ioErr, os.ErrDeadlineExceeded):
		return payment.ReasonTimeout
	}
	return broken
}

// Read is how the answer's reader gets its bytes: counted, and with the error
// that ended it kept, because on its way up through HTTP it loses its kind.
func (c *conn) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, errAnswerTooLong
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if err != nil {
		c.ioErr = err
	}
	return n, err
}
