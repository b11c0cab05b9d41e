package ops_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/ops"
	"github.com/safeledger/safeledger/internal/payment"
)

var (
	paymentID  = uuid.MustParse("019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77")
	followUpID = uuid.MustParse("019ad0b1-8072-7a3c-b1f5-0c9a4d5e6f70")
	begun      = time.Date(2026, 11, 29, 9, 30, 0, 120034000, time.UTC)

	errStorage = errors.New("storage failed: secret internals")
)

// fakeLedger answers what it is told to, and writes down what it was asked.
type fakeLedger struct {
	found    payment.Found
	parked   []payment.FollowUpDetail
	timeline payment.Timeline
	known    bool
	result   payment.OperatorResult
	err      error

	asked []string
	query payment.Query
}

func (l *fakeLedger) note(ctx context.Context, format string, args ...any) {
	if _, bounded := ctx.Deadline(); !bounded {
		format += " without a deadline"
	}
	l.asked = append(l.asked, fmt.Sprintf(format, args...))
}

func (l *fakeLedger) Find(ctx context.Context, q payment.Query) (payment.Found, error) {
	l.note(ctx, "find")
	l.query = q
	return l.found, l.err
}

func (l *fakeLedger) Parked(ctx context.Context, limit int) ([]payment.FollowUpDetail, error) {
	l.note(ctx, "parked %d", limit)
	return l.parked, l.err
}

func (l *fakeLedger) Timeline(ctx context.Context, id uuid.UUID) (payment.Timeline, bool, error) {
	l.note(ctx, "timeline %s", id)
	return l.timeline, l.known, l.err
}

func (l *fakeLedger) Redrive(ctx context.Context, id uuid.UUID, operator, reason string) (payment.OperatorResult, error) {
	l.note(ctx, "redrive %s by %s: %s", id, operator, reason)
	return l.result, l.err
}

func (l *fakeLedger) SettleByHand(ctx context.Context, id uuid.UUID, applied bool, operator, reason string) (payment.OperatorResult, error) {
	l.note(ctx, "settle %s applied %v by %s: %s", id, applied, operator, reason)
	return l.result, l.err
}

// desk is the operators' handler of one test.
type desk struct {
	ledger  *fakeLedger
	log     bytes.Buffer
	nudged  int
	handler http.Handler
}

func newDesk(t *testing.T, l *fakeLedger) *desk {
	t.Helper()
	set, err := callers.Parse([]byte(fmt.Sprintf(`{"callers": [
		{"name": "ada", "tokenSha256": %q, "scopes": ["operator"]},
		{"name": "store-17", "tokenSha256": %q, "scopes": ["till", "payout"]}
	]}`, callers.HashToken("ada's token"), callers.HashToken("till's token"))))
	if err != nil {
		t.Fatal(err)
	}
	d := &desk{ledger: l}
	d.handler = ops.Handler(ops.Config{
		Ledger: l, Callers: set, Limit: time.Second, Nudge: func() { d.nudged++ }, Log: slog.New(slog.NewJSONHandler(&d.log, nil)),
	})
	return d
}

// ask sends a request with ada's token; a body makes it a POST.
func (d *desk) ask(path, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	if body != "" {
		r = httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Authorization", "Bearer ada's token")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	d.handler.ServeHTTP(w, r)
	return w
}

func refusedWith(t *testing.T, w *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	var document struct {
		Title, Detail, Code string
		Status              int
	}
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatalf("%d is not JSON: %v\n%s", w.Code, err, w.Body)
	}
	if w.Code != status || document.Code != code || document.Status != status || document.Title == "" || document.Detail == "" {
		t.Errorf("%d %s, want %d %s", w.Code, w.Body, status, code)
	}
	if w.Header().Get("Content-Type") != "application/problem+json" || w.Header().Get("Retry-After") != "" || w.Header().Get("Cache-Control") != "no-store" {
		t.Errorf("header %v", w.Header())
	}
	if strings.Contains(w.Body.String(), "secret internals") {
		t.Errorf("the answer tells the internal cause: %s", w.Body)
	}
}

var (
	redrivePath = "/operators/operations/" + followUpID.String() + "/redrive"
	settlePath  = "/operators/operations/" + followUpID.String() + "/settle"
)

const because = `{"reason":"the wallet is back"}`

// Whoever can end a follow-up by hand can keep a customer's money. A till's token,
// payouts included, opens none of it, and nobody learns what is there.
func TestOnlyAnOperatorIsServed(t *testing.T) {
	t.Parallel()
	for _, call := range []struct{ path, body string }{
		{"/operators/parked", ""},
		{"/operators/find?key=k", ""},
		{"/operators/timeline/" + paymentID.String(), ""},
		{"/operators/show/" + paymentID.String(), ""},
		{redrivePath, because},
		{settlePath, `{"applied":true,"reason":"r"}`},
		{"/operators/nothing", ""},
	} {
		d := newDesk(t, &fakeLedger{})
		for _, token := range []string{"", "Bearer ", "Bearer nobody", "Basic ada's token", "ada's token"} {
			w := d.ask(call.path, call.body, "Authorization", token)
			refusedWith(t, w, 401, "UNAUTHENTICATED")
			if w.Header().Get("WWW-Authenticate") == "" {
				t.Error("no challenge")
			}
		}
		w := d.ask(call.path, call.body, "Authorization", "Bearer till's token")
		refusedWith(t, w, 403, "FORBIDDEN")
		if !strings.Contains(w.Header().Get("WWW-Authenticate"), `scope="operator"`) {
			t.Errorf("WWW-Authenticate = %q", w.Header().Get("WWW-Authenticate"))
		}
		if len(d.ledger.asked) != 0 {
			t.Errorf("asked: %q", d.ledger.asked)
		}
	}
	d := newDesk(t, &fakeLedger{})
	refusedWith(t, d.ask("/operators/nothing", ""), 404, "NOT_FOUND")
	refusedWith(t, d.ask("/operators/parked", "{}"), 404, "NOT_FOUND")
}

// A search that silently drops what it does not understand finds somebody else's
// payment. Every parameter is read exactly, or named.
func TestASearchIsExactlyWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	for query, want := range map[string]payment.Query{
		"key=a%2Fb%25":             {Key: "a/b%", Limit: 50},
		"account=acc-1":            {Account: "acc-1", Limit: 50},
		"reference=receipt%204711": {TillReference: "receipt 4711", Limit: 50},
		"walletId=w%201":           {WalletID: "w 1", Limit: 50},
		"from=2026-11-29T09:30:00%2B01:00&until=2026-11-29T09:00:00Z&amount=1999&currency=EUR&caller=store-17&limit=500": {
			AmountMinor: 1999, Currency: "EUR", Caller: "store-17", Limit: 500,
			From: time.Date(2026, 11, 29, 8, 30, 0, 0, time.UTC), Until: time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC),
		},
	} {
		d := newDesk(t, &fakeLedger{})
		if w := d.ask("/operators/find?"+query, ""); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", query, w.Code, w.Body)
		}
		if diff := cmp.Diff(want, d.ledger.query); diff != "" {
			t.Errorf("%s asks for (-want +got):\n%s", query, diff)
		}
	}
	for _, query := range []string{
		"", "limit=5", "currency=EUR", "acount=acc-1", "account=a&account=b", "account=", "key=a%20b", "amount=0", "amount=-1", "amount=1.5",
		"amount=9007199254740992", "from=yesterday", "from=2026-11-29T09:30:00Z&until=2026-11-29T09:30:00Z", "account=a&limit=0",
		"account=a&limit=501", "account=a&limit=x", "account=%ZZ", "a;b=c",
	} {
		d := newDesk(t, &fakeLedger{})
		refusedWith(t, d.ask("/operators/find?"+query, ""), 400, "INVALID_QUERY")
		if len(d.ledger.asked) != 0 {
			t.Errorf("%q was asked for", query)
		}
	}
	d := newDesk(t, &fakeLedger{})
	refusedWith(t, d.ask("/operators/parked?limit=501", ""), 400, "INVALID_QUERY")
	refusedWith(t, d.ask("/operators/parked?account=a", ""), 400, "INVALID_QUERY")
	d.ask("/operators/parked", "")
	d.ask("/operators/parked?limit=7", "")
	if diff := cmp.Diff([]string{"parked 50", "parked 7"}, d.ledger.asked); diff != "" {
		t.Errorf("asked (-want +got):\n%s", diff)
	}
}

// What was done to somebody's money is asked about for years: an intervention
// without a reason, or one that was read otherwise than it was meant, is refused.
func TestAnInterventionSaysWhatAndWhy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ path, body, asked string }{
		{redrivePath, because, "redrive " + followUpID.String() + " by ada: the wallet is back"},
		{redrivePath, ` {"reason" : "Straße 😀"} `, "redrive " + followUpID.String() + " by ada: Straße 😀"},
		{settlePath, `{"applied":true,"reason":"r"}`, "settle " + followUpID.String() + " applied true by ada: r"},
		{settlePath, `{"reason":"r","applied":false}`, "settle " + followUpID.String() + " applied false by ada: r"},
	} {
		d := newDesk(t, &fakeLedger{result: payment.OperatorResult{Status: payment.OperatorDone, FollowUp: parked()}})
		w := d.ask(test.path, test.body)
		var document map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil || w.Code != http.StatusOK || document["id"] != followUpID.String() {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		if diff := cmp.Diff([]string{test.asked}, d.ledger.asked); diff != "" {
			t.Errorf("asked (-want +got):\n%s", diff)
		}
		if d.nudged != 1 {
			t.Errorf("the queue was nudged %d times, want once", d.nudged)
		}
		if log := d.log.String(); !strings.Contains(log, `"operator":"ada"`) || !strings.Contains(log, `"done":true`) || strings.Contains(log, "wallet is back") {
			t.Errorf("the log tells who, and not why: %s", log)
		}
	}
	for body, want := range map[string]struct {
		status int
		code   string
	}{
		`null`:                                          {422, "INVALID_VALUE"},
		`{}`:                                            {422, "INVALID_VALUE"},
		`{"applied":true}`:                              {422, "INVALID_VALUE"},
		`{"reason":"r"}`:                                {422, "INVALID_VALUE"}, // nobody may guess which
		`{"applied":null,"reason":"r"}`:                 {422, "INVALID_VALUE"},
		`{"applied":true,"reason":""}`:                  {422, "INVALID_VALUE"},
		`{"applied":true,"reason":"  "}`:                {422, "INVALID_VALUE"},
		`{"applied":true,"reason":"a\nb"}`:              {422, "INVALID_VALUE"},
		`{"applied":"true","reason":"r"}`:               {400, "MALFORMED_REQUEST"},
		`{"applied":1,"reason":"r"}`:                    {400, "MALFORMED_REQUEST"},
		`{"Applied":true,"reason":"r"}`:                 {400, "MALFORMED_REQUEST"},
		`{"applied":true,"reason":"r","x":1}`:           {400, "MALFORMED_REQUEST"},
		`{"applied":true,"applied":false,"reason":"r"}`: {400, "MALFORMED_REQUEST"},
		`{"applied":true,"reason":"r"}{}`:               {400, "MALFORMED_REQUEST"},
		"{\"applied\":true,\"reason\":\"\xff\"}":        {400, "MALFORMED_REQUEST"},
		`{"applied":true,"reason":"` + strings.Repeat("r", 501) + `"}`:    {422, "INVALID_VALUE"},
		`{"applied":true,"reason":"` + strings.Repeat("r", 17<<10) + `"}`: {413, "BODY_TOO_LARGE"},
	} {
		d := newDesk(t, &fakeLedger{})
		refusedWith(t, d.ask(settlePath, body), want.status, want.code)
		refusedWith(t, d.ask(settlePath, `{"applied":true,"reason":"r"}`, "Content-Type", "text/plain"), 415, "UNSUPPORTED_MEDIA_TYPE")
		if len(d.ledger.asked) != 0 || d.nudged != 0 {
			t.Errorf("%s: asked %q", body, d.ledger.asked)
		}
	}
}

// Two operators at one item, or an operator against the queue, must each hear what
// really is: a redrive of what is active would be a second send (field report D29).
func TestAnInterventionThatChangedNothingSaysWhy(t *testing.T) {
	t.Parallel()
	for status, want := range map[payment.OperatorStatus]struct {
		status int
		code   string
	}{
		payment.OperatorUnknown: {404, "OPERATION_NOT_FOUND"},
		payment.OperatorActive:  {409, "OPERATION_ACTIVE"},
		payment.OperatorEnded:   {409, "OPERATION_ENDED"},
		0:                       {500, "INTERNAL"},
		200:                     {500, "INTERNAL"},
	} {
		for _, path := range []string{redrivePath, settlePath} {
			d := newDesk(t, &fakeLedger{result: payment.OperatorResult{Status: status, FollowUp: parked()}})
			body := because
			if path == settlePath {
				body = `{"applied":true,"reason":"r"}`
			}
			w := d.ask(path, body)
			refusedWith(t, w, want.status, want.code)
			if want.status == 409 && !strings.Contains(w.Body.String(), followUpID.String()) {
				t.Errorf("it does not name what is there: %s", w.Body)
			}
			if d.nudged != 0 {
				t.Error("the queue was nudged for nothing")
			}
		}
	}
	d := newDesk(t, &fakeLedger{err: errStorage})
	refusedWith(t, d.ask(redrivePath, because), 503, "OUTCOME_UNKNOWN")
	refusedWith(t, d.ask("/operators/parked", ""), 503, "STORAGE_UNAVAILABLE")
	refusedWith(t, d.ask("/operators/find?key=k", ""), 503, "STORAGE_UNAVAILABLE")
	refusedWith(t, d.ask("/operators/timeline/"+paymentID.String(), ""), 503, "STORAGE_UNAVAILABLE")
	if !strings.Contains(d.log.String(), errStorage.Error()) {
		t.Error("the cause was not logged")
	}
	for _, asked := range d.ledger.asked {
		if strings.Contains(asked, "without a deadline") {
			t.Error(asked)
		}
	}
	d = newDesk(t, &fakeLedger{})
	refusedWith(t, d.ask("/operators/timeline/"+paymentID.String(), ""), 404, "NOT_FOUND")
	refusedWith(t, d.ask("/operators/timeline/4711", ""), 404, "NOT_FOUND")
	refusedWith(t, d.ask("/operators/show/4711", ""), 404, "NOT_FOUND")
	refusedWith(t, d.ask("/operators/operations/4711/redrive", because), 404, "OPERATION_NOT_FOUND")
}

// Whoever has an id shall see what it is of, a payment or one of its follow-ups.
func TestAnIDIsShownAsWhatItIs(t *testing.T) {
	t.Parallel()
	told := payment.Timeline{
		Payment:   payment.Payment{ID: paymentID, Operation: payment.Debit, State: payment.Approved},
		FollowUps: []payment.FollowUpDetail{{FollowUp: payment.FollowUp{ID: followUpID, Kind: payment.Credit, State: payment.Parked, PaymentID: paymentID}}},
	}
	d := newDesk(t, &fakeLedger{timeline: told, known: true})
	for id, want := range map[string]string{
		paymentID.String():  `"kind":"debit"`,
		followUpID.String(): `"kind":"credit"`,
	} {
		if w := d.ask("/operators/show/"+id, ""); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) || !strings.Contains(w.Body.String(), `"id":"`+id+`"`) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want)
		}
	}
}
