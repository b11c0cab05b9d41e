package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// answerMargin is what the server is told to stop before the caller's deadline,
// for its error to come back and the transaction to be closed. Without it the
// deadline would cut the connection, and under overload every late statement would
// cost a new one just when those are dearest.
const answerMargin = 20 * time.Millisecond

// lockPatience is how long a claim waits for a twin whose insert is not committed
// yet. A commit takes a few milliseconds; a duplicate is answered at once and
// never waits for the first (contract section 1).
const lockPatience = 50 * time.Millisecond

// SQLSTATEs that mean something here.
const (
	lockNotAvailable = "55P03" // lock_timeout
	queryCanceled    = "57014" // statement_timeout, or an operator
	readOnly         = "25006" // the server has become a standby, or was made read-only
	undefinedTable   = "42P01"

	connectionExceptions = "08" // a class: a pooler that has lost the server says so
)

// trip is a transaction that is one round trip: begin, its limits, its
// statements and commit leave together, and the answers come back together. (On a
// connection that has not met a statement yet, preparing it is a round trip before
// this one, bounded by the caller's deadline alone.)
type trip struct {
	begin    string
	limits   string        // setLimitsByIndex if empty
	lockWait time.Duration // 0: as the server has it
	queue    func(*pgx.Batch)
}

// transact makes the trip. A nil error means that it is committed. Any error
// means that this is not known: the server may have committed and its answer have
// been lost. Only if it is errRolledBack as well, it is known not to be. The
// callbacks of trip.queue may have run all the same; what they read counts only
// after a nil error.
func (l *Ledger) transact(ctx context.Context, t trip) error {
	conn, err := l.pool.Acquire(ctx)
	if err != nil {
		return fmt.Errorf("wait for a connection: %w", err)
	}
	defer conn.Release()

	batch := &pgx.Batch{}
	batch.Queue(t.begin)
	batch.Queue(cmp.Or(t.limits, setLimitsByIndex), pgx.NamedArgs{
		"statement_timeout": statementTimeout(ctx),
		"lock_timeout":      milliseconds(t.lockWait),
	})
	t.queue(batch)
	written := false
	last := batch.QueuedQueries[len(batch.QueuedQueries)-1]
	read := last.Fn
	last.Fn = func(results pgx.BatchResults) (err error) {
		if read != nil {
			err = read(results)
		} else {
			_, err = results.Exec()
		}
		written = err == nil
		return err
	}
	// COMMIT is accepted in a transaction that has failed, and then rolls back
	// without an error: what it did is in its tag only. A pipeline stops before that
	// at the first error; this is so that nobody has to rely on it.
	batch.Queue(commit).Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != commit {
			return fmt.Errorf("%w: the server answered %s", errNotCommitted, tag)
		}
		return nil
	})
	if err := number(ctx, batch); err != nil {
		return err
	}
	if err := conn.SendBatch(ctx, batch).Close(); err != nil {
		if !written && refusal(err) {
			err = fmt.Errorf("%w: %w", errRolledBack, err)
		}
		err = classify(errors.Join(err, leave(ctx, conn, err)))
		if conn.Conn().IsClosed() {
			err = fmt.Errorf("%w: %w", errConnectionLost, err)
		}
		return err
	}
	return nil
}

// refusal reports whether err is a statement that the server refused and lives on:
// behind it in a pipeline nothing is done any more, so no COMMIT is either. An error
// of the COMMIT itself says nothing (one that waits for a standby is durable
// already), nor does a connection that was ended, by the server or by a pooler.
func refusal(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(pg.Code, connectionExceptions)
}

var (
	// errConnectionLost goes with any of the others: this one leads nowhere any more.
	errConnectionLost = errors.New("the connection is lost")
	errNotCommitted   = errors.New("the transaction was not committed")
	errRolledBack     = errors.New("the transaction was rolled back")
	errNotWritable    = errors.New("the database takes no writes: a standby, or read-only")
)

// leave makes conn fit for the next one after a trip failed with err: behind a
// failed statement the commit was skipped and the transaction is still open. A
// connection that cannot be saved is closed, which the pool takes care of.
func leave(ctx context.Context, conn *pgxpool.Conn, err error) error {
	pg := conn.Conn().PgConn()
	if pg.IsClosed() {
		return nil
	}
	if code(err) == readOnly || errors.Is(err, errNotWritable) {
		// After a failover this connection leads to what is now a standby; a new one
		// finds the new primary.
		return conn.Conn().Close(ctx)
	}
	if pg.TxStatus() != 'I' {
		_, err := conn.Exec(ctx, rollback)
		return err
	}
	return nil
}

// statementTimeout is what ctx leaves to a statement, nil where ctx has no
// deadline. PostgreSQL counts in whole milliseconds, and takes 0 for no limit.
func statementTimeout(ctx context.Context) *string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return nil
	}
	return milliseconds(max(time.Until(deadline)-answerMargin, time.Millisecond))
}

func milliseconds(d time.Duration) *string {
	if d == 0 {
		return nil
	}
	s := strconv.FormatInt(d.Milliseconds(), 10)
	return &s
}

// classify makes the two ways in which time runs out one: where the server
// stopped a statement because of the deadline that we passed on, err is also
// context.DeadlineExceeded, as it would be had the deadline cut the connection.
func classify(err error) error {
	if code(err) == queryCanceled {
		return fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
	}
	return err
}

// waitedForTwin reports whether err is a claim that gave up waiting for the insert of the
// same key by somebody who has not committed. Only the wait for another transaction's row
// says where it was ("while inserting index tuple …", in the server's language); one for
// a table or for the place where it grows does not.
func waitedForTwin(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == lockNotAvailable && pg.Where != ""
}

// code is the SQLSTATE of err, "" if it did not come from the server.
func code(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}
