package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"time"
)

// How tills draw their keys.
const (
	orderedKeys = "time-ordered" // UUIDv7
	randomKeys  = "random"       // UUIDv4
)

// outcome is what came of one request. The order is that of the names.
type outcome uint8

const (
	approved outcome = iota // 201, and about what was asked
	declined                // 402 or 424
	refused                 // 503 with Retry-After: by the gate, nothing was begun
	unknown                 // any other 5xx: begun, and not known how it ended
	wrong                   // whatever else was answered, an approval of something else above all
	lost                    // no answer
	outcomes
)

func (o outcome) String() string {
	return [outcomes]string{"approved", "declined", "refused", "unknown", "wrong", "lost"}[o]
}

// till is one connection and the one request that is sent over it again and again,
// with another key, account and amount each time. It does as little as can be done, because
// it runs on the cores of those whom it measures: no HTTP library, one write and
// normally one read for each request, nothing allocated.
type till struct {
	address string
	limit   time.Time // no answer is waited for beyond it
	conn    net.Conn  // nil where there is none
	used    time.Time // when it was made or used last
	keys    string
	random  *rand.Rand
	log     tillLog

	request                         []byte
	key, reference, account, amount []byte // parts of request
	answer                          []byte // what has been read, and room for more
}

const (
	keyLength = 36
	// The simulated wallet opens an account with 100,000,000 minor units: a thousand of
	// them last for some hundred million debits.
	leastAccount, accounts = 1000, 1000
	leastAmount, amounts   = 100, 900
	noKey                  = "00000000-0000-0000-0000-000000000000"
	anyAccount             = "till-0000"
	anyAmount              = "000"
)

// newTill makes a till, without its connection. deadline is what it sends as
// Request-Deadline-Ms, 0 for none.
func newTill(address, token, keys string, deadline time.Duration, limit time.Time) *till {
	body := fmt.Sprintf(`{"account":%q,"amount":%s,"currency":"EUR","reference":%q}`, anyAccount, anyAmount, noKey)
	wait := ""
	if deadline > 0 {
		wait = fmt.Sprintf("Request-Deadline-Ms: %d\r\n", deadline.Milliseconds())
	}
	t := &till{
		address: address, limit: limit, keys: keys,
		random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), //nolint:gosec // keys that nobody has to guess
		request: fmt.Appendf(nil, "POST /debits HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\n"+
			"Idempotency-Key: %s\r\n%sContent-Length: %d\r\n\r\n%s", address, token, noKey, wait, len(body), body),
		answer: make([]byte, 0, 4<<10), log: tillLog{details: make(map[string]int)},
	}
	key := bytes.Index(t.request, []byte(noKey))
	reference := bytes.LastIndex(t.request, []byte(noKey))
	account := bytes.LastIndex(t.request, []byte(anyAccount))
	amount := bytes.LastIndex(t.request, []byte(anyAmount+","))
	t.key, t.reference = t.request[key:key+keyLength], t.request[reference:reference+keyLength]
	t.account, t.amount = t.request[account:account+len(anyAccount)], t.request[amount:amount+len(anyAmount)]
	return t
}

// idleLimit is how long a connection may be idle and still be used. It is below the 2 s
// that the servers wait for the first request of a new one.
const idleLimit = time.Second

// connect makes the connection unless there is one that can be used.
func (t *till) connect(ctx context.Context) error {
	now := time.Now()
	if t.conn != nil && now.Sub(t.used) > idleLimit {
		t.disconnect()
	}
	if t.conn != nil {
		return nil
	}
	conn, err := (&net.Dialer{Deadline: t.limit}).DialContext(ctx, "tcp", t.address)
	if err != nil {
		return err
	}
	t.conn, t.used = conn, now
	return conn.SetDeadline(t.limit)
}

func (t *till) disconnect() {
	if t.conn != nil {
		_ = t.conn.Close()
		t.conn = nil
	}
}

// next puts another key, account and amount into the request.
func (t *till) next() {
	var id [16]byte
	binary.BigEndian.PutUint64(id[:8], t.random.Uint64())
	binary.BigEndian.PutUint64(id[8:], t.random.Uint64())
	version := byte(4)
	if t.keys == orderedKeys {
		version = 7
		var ms [8]byte
		binary.BigEndian.PutUint64(ms[:], uint64(time.Now().UnixMilli()))
		copy(id[:6], ms[2:])
	}
	id[6], id[8] = id[6]&0x0f|version<<4, id[8]&0x3f|0x80
	hex.Encode(t.key[0:8], id[0:4])
	hex.Encode(t.key[9:13], id[4:6])
	hex.Encode(t.key[14:18], id[6:8])
	hex.Encode(t.key[19:23], id[8:10])
	hex.Encode(t.key[24:36], id[10:16])
	copy(t.reference, t.key)
	strconv.AppendInt(t.account[:len(anyAccount)-4], leastAccount+t.random.Int64N(accounts), 10)
	strconv.AppendInt(t.amount[:0], leastAmount+t.random.Int64N(amounts), 10)
}

// exchange sends the next request and reads its answer. detail tells what was answered to
// whoever did not get what they asked for.
func (t *till) exchange(ctx context.Context) (o outcome, detail string) {
	t.next()
	if err := t.connect(ctx); err != nil {
		return lost, "connect: " + cause(err)
	}
	if _, err := t.conn.Write(t.request); err != nil {
		t.disconnect()
		return lost, "write: " + cause(err)
	}
	head, body, err := t.read()
	if err != nil {
		t.disconnect()
		return lost, "read: " + cause(err)
	}
	t.used = time.Now()
	if bytes.Contains(head, []byte("\r\nConnection: close\r\n")) {
		t.disconnect()
	}
	return t.judge(head, body)
}

// cause leaves out the addresses, which would make every error one of its own.
func cause(err error) string {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err.Error()
	}
	return err.Error()
}

var errFraming = errors.New("an answer without a length")

// read reads one answer. Its parts are good until the next one.
func (t *till) read() (head, body []byte, err error) {
	t.answer = t.answer[:0]
	whole := -1 // its length, once that is known
	for {
		if end := bytes.Index(t.answer, []byte("\r\n\r\n")); whole < 0 && end >= 0 {
			head = t.answer[:end+2]
			text, told := field(head, []byte("\r\nContent-Length: "))
			length, err := strconv.Atoi(string(text))
			if !told || err != nil || length < 0 {
				return nil, nil, errFraming
			}
			whole = end + 4 + length
		}
		if whole >= 0 && len(t.answer) >= whole {
			return head, t.answer[len(head)+2 : whole], nil
		}
		if len(t.answer) == cap(t.answer) {
			return nil, nil, errors.New("an answer of more than 4 KiB")
		}
		n, err := t.conn.Read(t.answer[len(t.answer):cap(t.answer)])
		if n == 0 && err != nil {
			return nil, nil, err
		}
		t.answer = t.answer[:len(t.answer)+n]
	}
}

// field is the value of a header field. begins is its beginning, spelt as net/http
// spells it, behind the end of the line before.
func field(head, begins []byte) (value []byte, found bool) {
	_, rest, found := bytes.Cut(head, begins)
	value, _, _ = bytes.Cut(rest, []byte("\r\n"))
	return value, found
}

// judge compares the answer with what was asked. An approval must name our reference,
// which is the key, and our amount.
func (t *till) judge(head, body []byte) (outcome, string) {
	if len(head) < len("HTTP/1.1 200") {
		return wrong, "no status"
	}
	switch status := string(head[len("HTTP/1.1 "):len("HTTP/1.1 200")]); {
	case status == "201":
		if !holds(body, `"reference":"`, t.reference, '"') || !holds(body, `"amount":`, t.amount, ',') {
			return wrong, "an approval of something else: " + string(body)
		}
		return approved, ""
	case status == "402", status == "424":
		return declined, status + " " + code(body)
	case status == "503":
		if _, gate := field(head, []byte("\r\nRetry-After: ")); gate {
			return refused, status + " " + code(body)
		}
		return unknown, status + " " + code(body)
	case status[0] == '5':
		return unknown, status + " " + code(body)
	default:
		return wrong, status + " " + code(body)
	}
}

// holds reports whether body has value between before and after.
func holds(body []byte, before string, value []byte, after byte) bool {
	at := bytes.Index(body, []byte(before))
	if at < 0 {
		return false
	}
	rest := body[at+len(before):]
	return bytes.HasPrefix(rest, value) && len(rest) > len(value) && rest[len(value)] == after
}

// code is the code of a problem document.
func code(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"code":"`))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}
