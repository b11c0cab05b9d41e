package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/payment"
)

// A load that asks for the same key twice measures replays, and one that asks for
// what nobody would send measures refusals.
func TestATillSendsWhatATillSends(t *testing.T) {
	t.Parallel()
	for keys, version := range map[string]uuid.Version{orderedKeys: 7, randomKeys: 4} {
		till := newTill("127.0.0.1:8080", token, keys, 3*time.Second, time.Time{})
		seen := map[string]bool{}
		amounts, accounts := map[string]bool{}, map[string]bool{}
		for range 1000 {
			till.next()
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(till.request)))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Fatal(err)
			}
			key := r.Header.Get("Idempotency-Key")
			id, err := uuid.Parse(key)
			if err != nil || id.Version() != version || id.Variant() != uuid.RFC4122 {
				t.Fatalf("%s keys: %q is of version %d (%v)", keys, key, id.Version(), err)
			}
			if timed := payment.Key(key).Hash()[0] != 0 || payment.Key(key).Hash()[1] != 0; timed != (keys == orderedKeys) {
				t.Fatalf("%s keys: the ledger takes the time of %q: %v", keys, key, timed)
			}
			want := `{"account":"` + string(till.account) + `","amount":` + string(till.amount) + `,"currency":"EUR","reference":"` + key + `"}`
			if string(body) != want || r.Header.Get("Request-Deadline-Ms") != "3000" || r.Header.Get("Authorization") != "Bearer "+token {
				t.Fatalf("%v %s, want %s", r.Header, body, want)
			}
			seen[key], amounts[string(till.amount)], accounts[string(till.account)] = true, true, true
		}
		if len(seen) != 1000 || len(amounts) < 100 || len(accounts) < 100 || !strings.HasPrefix(string(till.account), "till-") {
			t.Errorf("%s keys: %d keys, %d amounts and %d accounts in 1,000 requests", keys, len(seen), len(amounts), len(accounts))
		}
	}
}

// An approval of somebody else's payment that is counted as ours is a bug that no
// other figure would show.
func TestOnlyAnApprovalOfWhatWasAskedIsOne(t *testing.T) {
	t.Parallel()
	till := newTill("127.0.0.1:8080", token, orderedKeys, 0, time.Time{})
	till.next()
	copy(till.amount, "250")
	key := string(till.key)
	for _, c := range []struct {
		name, status, fields, body string
		want                       outcome
		detail                     string
	}{
		{"approved", "201 Created", "", `{"amount":250,"currency":"EUR","reference":"` + key + `","walletId":"w"}`, approved, ""},
		{"another key's", "201 Created", "", `{"amount":250,"currency":"EUR","reference":"` + noKey + `"}`, wrong, "an approval of something else"},
		{"ten times the amount", "201 Created", "", `{"amount":2500,"currency":"EUR","reference":"` + key + `"}`, wrong, "an approval of something else"},
		{"another amount", "201 Created", "", `{"amount":251,"currency":"EUR","reference":"` + key + `"}`, wrong, "an approval of something else"},
		{"no amount", "201 Created", "", `{"reference":"` + key + `"}`, wrong, "an approval of something else"},
		{"rejected", "402 Payment Required", "", `{"code":"INSUFFICIENT_FUNDS"}`, declined, "402 INSUFFICIENT_FUNDS"},
		{"wallet away", "424 Failed Dependency", "Retry-After: 2\r\n", `{"code":"WALLET_TIMEOUT"}`, declined, "424 WALLET_TIMEOUT"},
		{"the gate", "503 Service Unavailable", "Retry-After: 1\r\n", `{"code":"OVERLOADED"}`, refused, "503 OVERLOADED"},
		{"outcome unknown", "503 Service Unavailable", "", `{"code":"OUTCOME_UNKNOWN"}`, unknown, "503 OUTCOME_UNKNOWN"},
		{"a bug", "500 Internal Server Error", "", `{"code":"INTERNAL"}`, unknown, "500 INTERNAL"},
		{"in flight", "409 Conflict", "Retry-After: 1\r\n", `{"code":"REQUEST_IN_FLIGHT"}`, wrong, "409 REQUEST_IN_FLIGHT"},
		{"a plain OK", "200 OK", "", `{"amount":250,"reference":"` + key + `"}`, wrong, "200 "},
	} {
		head := "HTTP/1.1 " + c.status + "\r\n" + c.fields
		if got, detail := till.judge([]byte(head), []byte(c.body)); got != c.want || !strings.HasPrefix(detail, c.detail) {
			t.Errorf("%s: %v %q, want %v %q", c.name, got, detail, c.want, c.detail)
		}
	}
}

// The kernel hands over an answer in whatever pieces it likes.
func TestAnAnswerIsReadInWhateverPieces(t *testing.T) {
	t.Parallel()
	const whole = "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{\"a\":\"b\"}"
	for piece := 1; piece <= len(whole); piece++ {
		till := newTill("", token, orderedKeys, 0, time.Time{})
		ours, theirs := net.Pipe()
		till.conn = ours
		go func() {
			for at := 0; at < len(whole); at += piece {
				if _, err := theirs.Write([]byte(whole[at:min(at+piece, len(whole))])); err != nil {
					return
				}
			}
		}()
		if head, body, err := till.read(); err != nil || string(body) != `{"a":"b"}` || !strings.HasPrefix(string(head), "HTTP/1.1 201") {
			t.Fatalf("in pieces of %d: %q, %q, %v", piece, head, body, err)
		}
		_ = ours.Close()
	}
	for name, answer := range map[string]string{
		"without a length": "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"cut off":          whole[:len(whole)-1],
		"too long":         "HTTP/1.1 201 Created\r\nContent-Length: 10000\r\n\r\n" + strings.Repeat("x", 10000),
	} {
		till := newTill("", token, orderedKeys, 0, time.Time{})
		ours, theirs := net.Pipe()
		till.conn = ours
		go func() {
			_, _ = theirs.Write([]byte(answer)) // it is not read to its end
			_ = theirs.Close()
		}()
		if head, body, err := till.read(); err == nil {
			t.Errorf("%s: %q, %q", name, head, body)
		}
		_ = ours.Close()
	}
}
