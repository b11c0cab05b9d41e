package checker

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/test/check/history"
)

// invented is a history that nobody has lived through: a decision after another, some
// of them in doubt and undone, every fifth with a refund. It is as large as is asked for,
// and its ledger is made up as it is read.
type invented struct {
	n     int
	began time.Time

	tills, book, responses *bufio.Writer
	calls, lines, exchange int64
	errs                   []error
}

// one is what becomes of the i-th key.
type one struct {
	i              int
	key            string
	id             uuid.UUID
	asked          asked
	body           string
	f              fingerprint
	reference      uuid.UUID
	at             time.Time
	poor, doubtful bool
	refunded       bool
}

func (v *invented) one(i int) one {
	o := one{
		i: i, key: fmt.Sprintf("019ad0b1-7b00-7c21-8f5e-%012x", i), at: v.began.Add(time.Duration(i) * time.Millisecond),
		poor: i%10 == 1, doubtful: i%10 == 2, refunded: i%5 == 4,
	}
	sum := sha256.Sum256([]byte(o.key))
	copy(o.id[:], sum[:])
	o.id[6], o.id[8] = o.id[6]&0x0f|0x70, o.id[8]&0x3f|0x80
	account, amount, currency := fmt.Sprintf("ACCOUNT-%d", i%1000), int64(1250), "EUR"
	o.asked = asked{Account: &account, Amount: &amount, Currency: &currency}
	o.body = payBody(account, int(amount))
	o.f = o.asked.fingerprint(debit, uuid.Nil)
	o.reference = o.f.reference(caller, debit, o.key)
	return o
}

// walletID is the wallet's id of a key's debit: any that is nobody else's.
func (o one) walletID() string { return fmt.Sprintf("debit-%d", o.i) }

func (o one) row() PaymentRow {
	sum := sha256.Sum256([]byte(o.key))
	p := PaymentRow{
		ID: o.id, Caller: caller, Operation: "debit", KeyHash: append(make([]byte, 6), sum[:]...), Fingerprint: o.f[:], Reference: o.reference,
		Account: *o.asked.Account, Currency: "EUR", Amount: 1250, State: "APPROVED", WalletID: o.walletID(),
		CreatedAt: o.at.Add(time.Millisecond), DecidedAt: o.at.Add(3 * time.Millisecond),
	}
	switch {
	case o.poor:
		p.State, p.Code, p.WalletID = "DECLINED", "INSUFFICIENT_FUNDS", ""
	case o.doubtful:
		p.State, p.Code, p.WalletID = "DECLINED", "WALLET_TIMEOUT", ""
	}
	return p
}

// job is the refund or the reversal of a key's payment; false where there is none.
func (o one) job() (row OperationRow, body string, ok bool) {
	row = OperationRow{
		ID: reversalOf(o.id), PaymentID: o.id, Account: *o.asked.Account, Currency: "EUR", Amount: 1250, State: "SUCCEEDED",
		WalletID: fmt.Sprintf("credit-%d", o.i), Attempts: 1, CreatedAt: o.at.Add(3 * time.Millisecond), EndedAt: o.at.Add(6 * time.Millisecond),
	}
	switch {
	case o.doubtful:
		row.Kind, row.Reverses, row.OutboundKey, row.TargetID = "reversal", o.reference, reversalOf(o.reference), o.walletID()
		return row, "", true
	case !o.refunded:
		return row, "", false
	}
	body = fmt.Sprintf(`{"account":%q,"amount":1250,"currency":"EUR","debitId":%q}`, row.Account, o.id)
	parsed, _ := parse(credit, body)
	f := parsed.fingerprint(credit, uuid.Nil)
	sum := sha256.Sum256([]byte(o.key))
	row.Kind, row.Caller, row.KeyHash, row.Fingerprint = "credit", caller, sum[:], f[:]
	row.OutboundKey = f.reference(caller, credit, o.key)
	row.CreatedAt = o.at.Add(4 * time.Millisecond)
	return row, body, true
}

func (v *invented) Payments(_ context.Context, yield func(PaymentRow) error) error {
	for i := range v.n {
		if err := yield(v.one(i).row()); err != nil {
			return err
		}
	}
	return nil
}

func (v *invented) Operations(_ context.Context, yield func(OperationRow) error) error {
	for i := range v.n {
		if row, _, ok := v.one(i).job(); ok {
			if err := yield(row); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *invented) Calls(_ context.Context, yield func(CallRow) error) error {
	for i := range v.n {
		o := v.one(i)
		c := CallRow{Subject: o.id, N: 1, Attempt: 1, Call: "debit", Outcome: "success", Reason: "applied", Status: 201, At: o.at.Add(2 * time.Millisecond), Took: time.Millisecond}
		switch {
		case o.poor:
			c.Outcome, c.Reason, c.Status = "rejected", "verdict", 409
		case o.doubtful:
			c.Outcome, c.Reason, c.Status = "ambiguous", "timeout", 0
		}
		if err := yield(c); err != nil {
			return err
		}
		if row, _, ok := o.job(); ok {
			c = CallRow{Subject: row.ID, Fence: 1, N: 1, Attempt: 1, Call: "credit", Outcome: "success", Reason: "applied", Status: 201, At: row.CreatedAt, Took: time.Millisecond}
			if err := yield(c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (v *invented) Notes(context.Context, func(NoteRow) error) error { return nil }

func (v *invented) put(w *bufio.Writer, line any) {
	if err := json.NewEncoder(w).Encode(line); err != nil {
		v.errs = append(v.errs, err)
	}
}

// till notes a call and its answer.
func (v *invented) till(o one, path, body string, at time.Time, a history.Answer) {
	v.calls++
	trace := fmt.Sprintf("%032x", v.calls)
	v.put(v.tills, history.Line{Event: history.Sent, At: at, Call: v.calls, Request: history.Request{
		Till: "1", Caller: caller, Method: "POST", Path: path, Key: o.key, Sent: body, Trace: trace,
	}})
	v.put(v.tills, history.Line{Event: history.Answered, At: at.Add(5 * time.Millisecond), Call: v.calls, Answer: a})
	v.put(v.responses, map[string]any{"time": at, "level": "DEBUG", "msg": requestBegun, "caller": caller, "trace_id": trace})
}

// exchanged books a mutation that the wallet has applied, or refused with a code.
func (v *invented) exchanged(o one, operation string, reference uuid.UUID, id, code string, at time.Time) {
	v.exchange++
	request := map[string]any{
		"exchange": v.exchange, "connection": 1, "version": "v2", "operation": operation, "reference": reference, "idempotencyKey": reference,
		"account": o.asked.Account, "amount": 1250, "currency": "EUR", "attempt": 1,
	}
	line := func(event string, more map[string]any) {
		v.lines++
		l := map[string]any{"seq": v.lines, "at": at.Add(time.Duration(v.lines%3) * time.Microsecond), "event": event}
		for _, members := range []map[string]any{request, more} {
			maps.Copy(l, members)
		}
		v.put(v.book, l)
	}
	line(arrived, map[string]any{
		"method": "POST", "path": "/v2/" + operation + "s", "headerNames": []string{"Accept", "Content-Length", "Content-Type", "Idempotency-Key", "User-Agent"},
		"body": o.body, "bytes": 400,
	})
	change := map[string]int64{"debit": -1250, "credit": 1250}[operation]
	effect := map[string]any{"id": id, "operation": operation, "account": o.asked.Account, "amount": 1250, "currency": "EUR"}
	event, status := applied, 201
	if code != "" {
		effect["code"], change, event, status = code, 0, rejected, 409
	}
	effect["balanceChange"] = change
	line(event, map[string]any{"effect": effect})
	line(answered, map[string]any{"answer": map[string]any{"status": status, "body": fmt.Sprintf(`{"id":%q,"code":%q}`, id, code), "how": "WHOLE", "bytes": 300, "of": 300}})
}

// write writes the logs.
func (v *invented) write() {
	v.put(v.responses, map[string]any{"time": v.began, "level": "INFO", "msg": servingMessage, "role": "all"})
	v.put(v.tills, history.Line{Event: history.Opened, At: v.began, Run: "invented"})
	for a := range 1000 {
		v.lines++
		v.put(v.book, map[string]any{"seq": v.lines, "at": v.began, "event": opened, "effect": map[string]any{
			"account": fmt.Sprintf("ACCOUNT-%d", a), "currency": "EUR", "amount": 1 << 50, "balanceChange": 1 << 50,
		}})
	}
	for i := range v.n {
		o := v.one(i)
		p := o.row()
		refusal := ""
		if o.poor {
			refusal = "INSUFFICIENT_FUNDS"
		}
		v.exchanged(o, "debit", o.reference, o.walletID(), refusal, o.at.Add(2*time.Millisecond))
		a := history.Answer{Status: 201, Location: "/payments/" + p.ID.String(), Got: fmt.Sprintf(
			`{"id":%q,"kind":"debit","decision":"APPROVED","account":%q,"amount":1250,"currency":"EUR","walletId":%q,"createdAt":%q,"decidedAt":%q}`,
			p.ID, p.Account, p.WalletID, clock(p.CreatedAt), clock(p.DecidedAt))}
		if p.Code != "" {
			a = history.Answer{Status: 402, Got: fmt.Sprintf(
				`{"type":"t","title":"t","status":402,"detail":"d","code":%q,"id":%q,"kind":"debit","decision":"DECLINED","retryable":false}`, p.Code, p.ID)}
			if o.doubtful {
				a.Status, a.RetryAfter = 424, "2"
				a.Got = fmt.Sprintf(`{"type":"t","title":"t","status":424,"detail":"d","code":%q,"id":%q,"kind":"debit","decision":"DECLINED","retryable":true}`, p.Code, p.ID)
			}
		}
		v.till(o, "/debits", o.body, o.at, a)
		v.put(v.responses, map[string]any{
			"time": o.at, "level": "INFO", "msg": decidedMessage, "id": p.ID, "operation": "debit", "caller": caller, "decision": p.State, "code": p.Code, "status": a.Status,
			"claim_ms": 1.234, "call_ms": 1.2, "store_ms": 1.3, "total_ms": 5.4, "left_ms": 2394.1,
		})
		if i%10 == 3 { // a replay, while nothing else goes on
			a.Replayed = "true"
			v.till(o, "/debits", o.body, o.at.Add(10*time.Millisecond), a)
		}
		row, body, ok := o.job()
		if !ok {
			continue
		}
		if body != "" {
			v.till(o, "/credits", body, o.at.Add(3*time.Millisecond), history.Answer{Status: 202, Location: "/operations/" + row.ID.String(), Got: fmt.Sprintf(
				`{"id":%q,"kind":"credit","status":"PENDING","account":%q,"amount":1250,"currency":"EUR","paymentId":%q,"createdAt":%q}`,
				row.ID, row.Account, o.id, clock(row.CreatedAt))})
		}
		v.exchanged(o, "credit", row.OutboundKey, row.WalletID, "", row.CreatedAt.Add(time.Millisecond))
	}
}

// invent writes an invented history of n decisions into dir.
func invent(b *testing.B, dir string, n int) Input {
	b.Helper()
	v := &invented{n: n, began: time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)}
	var paths []string
	var ends []func() error
	for name, w := range map[string]**bufio.Writer{"tills": &v.tills, "book": &v.book, "responses": &v.responses} {
		path := filepath.Join(dir, name)
		file, err := os.Create(path)
		if err != nil {
			b.Fatal(err)
		}
		*w = bufio.NewWriterSize(file, 1<<20)
		paths = append(paths, path)
		ends = append(ends, (*w).Flush, file.Close)
	}
	v.write()
	for _, end := range ends {
		if err := end(); err != nil {
			b.Fatal(err)
		}
	}
	if len(v.errs) > 0 {
		b.Fatal(v.errs[0])
	}
	var size int64
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		size += info.Size()
	}
	b.SetBytes(size)
	return Input{
		Ledger: v, Tills: TillFiles(nil, filepath.Join(dir, "tills")), Book: BookFiles(nil, filepath.Join(dir, "book")),
		Responses: ResponseFiles(nil, filepath.Join(dir, "responses")),
	}
}

// BenchmarkCheck is what judging a decision costs, with its share of follow-ups, and the
// memory that the checker holds of it in the end: both bound how long a run may be.
func BenchmarkCheck(b *testing.B) {
	const decisions = 100_000
	in := invent(b, b.TempDir(), decisions)
	for b.Loop() {
		before := heap()
		report, err := Check(b.Context(), in, Defaults(), nil)
		if err != nil {
			b.Fatal(err)
		}
		if !report.Clean() || report.Payments != decisions {
			b.Fatalf("%d payments:\n%s", report.Payments, tellAll(report))
		}
		b.ReportMetric(float64(heap()-before)/decisions, "left-B/decision")
	}
	b.ReportMetric(float64(b.N*decisions)/b.Elapsed().Seconds(), "decisions/s")
}

func heap() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
