package wallet

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/payment"
)

// FuzzAnswer feeds bytes to the client as the wallet's whole answer. Whatever
// they are, nothing may panic, and the dangerous conclusions must have their
// grounds: an approval needs our own reference in a complete answer (v2), a
// decline needs a 4xx, "certainly not applied" is never read off an answer but
// a 502 or 503, and a connection is only kept if nothing is left on it.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte("HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, c := range cases() {
			v := versions()[c.Version]
			wire := &recording{answer: bytes.NewReader(raw)}
			conn := newConn(wire, wire)
			seen, clean := conn.converse(request{method: http.MethodPost})
			if clean && (seen.lost != "" || wire.answer.Len() != 0) {
				t.Fatalf("a connection is to be kept with %d bytes left, lost %q", wire.answer.Len(), seen.lost)
			}
			checkOutcome(t, v, c.In, seen, classify(v, c.In, seen))
			checkEvidence(t, c.In, seen, classifyLookup(v, c.In, seen))
		}
	})
}

func checkOutcome(t *testing.T, v version, in payment.Instruction, seen sight, got payment.Outcome) {
	t.Helper()
	if got.Reason == "" || got.Status != seen.status {
		t.Fatalf("%+v of status %d", got, seen.status)
	}
	switch got.Class {
	case payment.Success:
		duplicate := got.Reason == payment.ReasonDuplicate && got.Status == 409 && !v.echoes
		if seen.lost != "" || !is2xx(got.Status) && !duplicate || got.WalletID == "" || len(got.WalletID) > maxWalletID {
			t.Fatalf("%+v of %+v", got, seen)
		}
		if said := saidReference(t, seen); said != in.Reference.String() && (v.echoes || said != "") {
			t.Fatalf("success for the answer about %q", said)
		}
	case payment.Rejected:
		if !is4xx(got.Status) || got.Code == "" || got.Verdict && seen.lost != "" {
			t.Fatalf("%+v of %+v", got, seen)
		}
	case payment.Unavailable:
		if got.Status != 502 && got.Status != 503 {
			t.Fatalf("%+v of %+v", got, seen)
		}
	case payment.Ambiguous:
	default:
		t.Fatalf("no class: %+v", got)
	}
}

func checkEvidence(t *testing.T, in payment.Instruction, seen sight, got payment.Evidence) {
	t.Helper()
	if got.Reason == "" || got.Status != seen.status {
		t.Fatalf("%+v of status %d", got, seen.status)
	}
	switch got.Finding {
	case payment.FoundApplied, payment.FoundRejected:
		if got.Status != 200 || seen.lost != "" || saidReference(t, seen) != in.Reference.String() {
			t.Fatalf("%+v of %+v", got, seen)
		}
	case payment.NotFound:
		if got.Status != 404 || seen.lost != "" {
			t.Fatalf("%+v of %+v", got, seen)
		}
	case payment.NoEvidence:
	default:
		t.Fatalf("no finding: %+v", got)
	}
}

// saidReference reads the reference with another reader than ours.
func saidReference(t *testing.T, seen sight) string {
	t.Helper()
	members := map[string]any{}
	if err := json.Unmarshal(seen.body, &members); err != nil {
		t.Fatalf("believed %q: %v", seen.body, err)
	}
	reference, _ := members["reference"].(string)
	return reference
}

// recording is a connection on which the answer is already there.
type recording struct{ answer *bytes.Reader }

func (r *recording) Read(p []byte) (int, error) {
	if r.answer.Len() == 0 {
		return 0, io.EOF
	}
	return r.answer.Read(p)
}
func (*recording) Write(p []byte) (int, error)      { return len(p), nil }
func (*recording) Close() error                     { return nil }
func (*recording) LocalAddr() net.Addr              { return nil }
func (*recording) RemoteAddr() net.Addr             { return nil }
func (*recording) SetDeadline(time.Time) error      { return nil }
func (*recording) SetReadDeadline(time.Time) error  { return nil }
func (*recording) SetWriteDeadline(time.Time) error { return nil }
