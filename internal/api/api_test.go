package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/safeledger/safeledger/internal/api"
	"github.com/safeledger/safeledger/internal/api/apitest"
	"github.com/safeledger/safeledger/internal/budget"
	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/decision"
	"github.com/safeledger/safeledger/internal/gate"
	"github.com/safeledger/safeledger/internal/payment"
)

const (
	goodBody = `{"account":"acc-1001","amount":1999,"currency":"EUR"}`
	goodKey  = "019ad0b1-7b00-7c21-8f5e-2b8d9f3f7a10"

	tillToken     = "till-token"
	otherToken    = "other-till-token"
	operatorToken = "operator-token"
	payoutToken   = "payout-token"
	// onlyPayoutToken has the scope to pay out and not that of a till.
	onlyPayoutToken = "only-payout-token"
)

var (
	paymentID = uuid.MustParse("019ad0b1-7c1e-7f43-9d0b-5f2a8c1e4b77")
	createdAt = time.Date(2026, 11, 29, 10, 30, 0, 120034000, time.FixedZone("", 3600))
	decidedAt = time.Date(2026, 11, 29, 10, 30, 0, 200000000, time.FixedZone("", 3600))
)

// decideFunc is a decider made of a function.
type decideFunc func(context.Context, payment.Request, budget.Deadline) (decision.Result, error)

func (f decideFunc) Decide(ctx context.Context, req payment.Request, d budget.Deadline) (decision.Result, error) {
	return f(ctx, req, d)
}

// approve decides everything, as a healthy wallet would.
func approve(_ context.Context, req payment.Request, _ budget.Deadline) (decision.Result, error) {
	return decision.Result{Status: decision.Decided, Payment: approved(req)}, nil
}

func approved(req payment.Request) payment.Payment {
	return payment.Payment{
		ID: paymentID, Caller: req.Caller, Operation: req.Operation, Account: req.Account, Amount: req.Amount,
		TillReference: req.TillReference, Metadata: req.Metadata, Reference: req.DeriveReference(),
		State: payment.Approved, WalletID: "w-58213", CreatedAt: createdAt, DecidedAt: decidedAt,
	}
}

func declined(req payment.Request, code payment.Code) payment.Payment {
	p := approved(req)
	p.State, p.Code, p.WalletID = payment.Declined, code, ""
	return p
}

// readFunc is a ledger made of a function: by id with the id, by key with the
// operation and the key.
type readFunc func(ctx context.Context, caller, what string) (payment.Payment, bool, error)

func (f readFunc) PaymentByID(ctx context.Context, caller string, id uuid.UUID) (payment.Payment, bool, error) {
	return f(ctx, caller, id.String())
}

func (f readFunc) PaymentByKey(ctx context.Context, caller string, op payment.Operation, key payment.Key) (payment.Payment, bool, error) {
	return f(ctx, caller, string(op)+" "+string(key))
}

// observed is everything that the API told its observer, as text without times.
type observed struct {
	mu     sync.Mutex
	events []string
}

func (o *observed) add(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, fmt.Sprintf(format, args...))
}

func (o *observed) list() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.events...)
}

func (o *observed) Decision(op payment.Operation, state payment.State, code payment.Code, _, _ time.Duration) {
	o.add("decision %s %s %s", op, state, code)
}
func (o *observed) Replay(op payment.Operation) { o.add("replay %s", op) }
func (o *observed) KeyConflict(op payment.Operation, kind string) {
	o.add("conflict %s %s", op, kind)
}
func (o *observed) OutcomeUnknown(op payment.Operation) { o.add("unknown %s", op) }
func (o *observed) NotStored(op payment.Operation)      { o.add("not stored %s", op) }
func (o *observed) Accepted(kind payment.Operation)     { o.add("accepted %s", kind) }
func (o *observed) Cancelled(op payment.Operation)      { o.add("cancelled %s", op) }
func (o *observed) NotSent(op payment.Operation, reason payment.Reason) {
	o.add("not sent %s %s", op, reason)
}
func (o *observed) Refused(reason string) { o.add("refused %s", reason) }

// lockedBuffer is a log that may be read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// service is the API of one test, with every exchange held against the document.
type service struct {
	handler  http.Handler // checked
	bare     http.Handler
	seen     *observed
	log      *lockedBuffer
	ledger   *fakeLedger
	begun    *[]payment.Request // what reached the decider
	begunMu  *sync.Mutex
	deadline *time.Duration // the effective budget of the last one
}

func (s *service) requests() []payment.Request {
	s.begunMu.Lock()
	defer s.begunMu.Unlock()
	return append([]payment.Request(nil), *s.begun...)
}

// newService makes a service; change adjusts what New is given.
func newService(t testing.TB, change func(*api.Config)) *service {
	t.Helper()
	set, err := callers.Parse([]byte(fmt.Sprintf(`{"callers": [
		{"name": "store-17", "tokenSha256": %q, "scopes": ["till"]},
		{"name": "store-18", "tokenSha256": %q, "scopes": ["till"]},
		{"name": "office", "tokenSha256": %q, "scopes": ["operator"]},
		{"name": "payroll", "tokenSha256": %q, "scopes": ["till", "payout"]},
		{"name": "half-payroll", "tokenSha256": %q, "scopes": ["payout"]}
	]}`, callers.HashToken(tillToken), callers.HashToken(otherToken), callers.HashToken(operatorToken),
		callers.HashToken(payoutToken), callers.HashToken(onlyPayoutToken))))
	if err != nil {
		t.Fatal(err)
	}
	s := &service{seen: &observed{}, log: &lockedBuffer{}, ledger: &fakeLedger{}, begun: new([]payment.Request), begunMu: new(sync.Mutex), deadline: new(time.Duration)}
	cfg := api.Config{
		Decider: decideFunc(approve),
		Ledger: readFunc(func(context.Context, string, string) (payment.Payment, bool, error) {
			return payment.Payment{}, false, nil
		}),
		FollowUps:         s.ledger,
		Callers:           set,
		Budget:            budget.Policy{Server: 2400 * time.Millisecond, NetworkReserve: 600 * time.Millisecond},
		RetryAfterDecline: 2 * time.Second,
		RetryAfterBusy:    time.Second,
		MaxAmount:         payment.MaxAmountMinor,
		HoldsSupported:    true,
		ReadTimeout:       2 * time.Second,
		Log:               slog.New(slog.NewJSONHandler(s.log, nil)),
		Observer:          s.seen,
	}
	if change != nil {
		change(&cfg)
	}
	inner := cfg.Decider
	cfg.Decider = decideFunc(func(ctx context.Context, req payment.Request, d budget.Deadline) (decision.Result, error) {
		s.begunMu.Lock()
		*s.begun = append(*s.begun, req)
		*s.deadline = d.Remaining(time.Now())
		s.begunMu.Unlock()
		return inner.Decide(ctx, req, d)
	})
	s.bare = api.New(cfg)
	s.handler = apitest.New(t).Handler(s.bare)
	return s
}

// sent is one request; the zero value of a field is the good one.
type sent struct {
	method, path, token, key, body string
	header                         http.Header // replaces the good fields of that name; an empty list takes one away
	noLength                       bool        // chunked, as far as the handler can tell
	noBody                         bool        // "" is the good body
}

func (q sent) request() *http.Request {
	set := func(s *string, good string) {
		if *s == "" {
			*s = good
		}
	}
	set(&q.method, http.MethodPost)
	set(&q.path, "/debits")
	set(&q.token, tillToken)
	set(&q.key, goodKey)
	var body io.Reader = http.NoBody
	if q.method == http.MethodPost && !q.noBody {
		set(&q.body, goodBody)
		body = strings.NewReader(q.body)
	}
	r := httptest.NewRequest(q.method, q.path, body)
	r.Header.Set("Authorization", "Bearer "+q.token)
	if q.method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Idempotency-Key", q.key)
	}
	for name, values := range q.header {
		delete(r.Header, http.CanonicalHeaderKey(name))
		if len(values) > 0 {
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	if q.noBody {
		r.ContentLength = 0
	}
	if q.noLength {
		r.ContentLength = -1
	}
	return r
}

func (s *service) send(q sent) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, q.request())
	return w
}

// refusedWith fails unless w is the problem with this status and code.
func refusedWith(t testing.TB, w *httptest.ResponseRecorder, status int, code string) map[string]any {
	t.Helper()
	var document map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &document); err != nil {
		t.Fatalf("answer %d is not JSON: %v\n%s", w.Code, err, w.Body)
	}
	if w.Code != status || document["code"] != code {
		t.Errorf("answer = %d %v, want %d %s\n%s", w.Code, document["code"], status, code, w.Body)
	}
	return document
}

// A token that is not ours, or that may not pay, must not begin anything: and
// what the till hears must tell its developer which of the two it was.
func TestOnlyATillWithItsTokenIsServed(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		authorization []string
		status        int
		code          string
		challenge     string
	}{
		"no field":          {nil, 401, "UNAUTHENTICATED", `Bearer realm="safeledger"`},
		"empty":             {[]string{""}, 401, "UNAUTHENTICATED", `Bearer realm="safeledger"`},
		"no token":          {[]string{"Bearer "}, 401, "UNAUTHENTICATED", `Bearer realm="safeledger"`},
		"another scheme":    {[]string{"Basic " + tillToken}, 401, "UNAUTHENTICATED", `Bearer realm="safeledger"`},
		"unknown token":     {[]string{"Bearer nobody"}, 401, "UNAUTHENTICATED", `Bearer realm="safeledger", error="invalid_token"`},
		"token and more":    {[]string{"Bearer " + tillToken + " x"}, 401, "UNAUTHENTICATED", `Bearer realm="safeledger", error="invalid_token"`},
		"two fields":        {[]string{"Bearer " + tillToken, "Bearer " + tillToken}, 401, "UNAUTHENTICATED", `Bearer realm="safeledger"`},
		"the hash":          {[]string{"Bearer " + callers.HashToken(tillToken)}, 401, "UNAUTHENTICATED", `Bearer realm="safeledger", error="invalid_token"`},
		"without the scope": {[]string{"Bearer " + operatorToken}, 403, "FORBIDDEN", `Bearer realm="safeledger", error="insufficient_scope", scope="till"`},
	}
	calls := []sent{
		{},
		{path: "/holds"},
		{path: "/credits", body: refundBody},
		{path: capturePath, body: captureBody},
		{path: releasePath, body: "{}"},
		{path: cancelPath(payment.Debit)},
		{method: http.MethodGet, path: "/payments/" + paymentID.String()},
		{method: http.MethodGet, path: "/payments/by-key/debit/" + goodKey},
		{method: http.MethodGet, path: "/operations/" + operationID.String()},
		{method: http.MethodGet, path: "/operations/by-key/credit/" + goodKey},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, nil)
			for _, call := range calls {
				call.header = http.Header{"Authorization": test.authorization}
				w := s.send(call)
				refusedWith(t, w, test.status, test.code)
				if got := w.Header().Get("WWW-Authenticate"); got != test.challenge {
					t.Errorf("WWW-Authenticate = %q, want %q", got, test.challenge)
				}
			}
			if n := len(s.requests()) + s.ledger.begun(); n != 0 {
				t.Errorf("%d requests were begun", n)
			}
		})
	}

	s := newService(t, nil)
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER  "} {
		if w := s.send(sent{header: http.Header{"Authorization": {scheme + tillToken}}}); w.Code != http.StatusCreated {
			t.Errorf("%q: %d, want 201", scheme, w.Code)
		}
	}
}

// A till's developer who mistypes a path or method must be told so as of
// everything else.
func TestWhatIsNotThereIsAProblemToo(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, path := range []string{
		"/", "/debit", "/debits/", "/debits/" + paymentID.String(), "/Debits", "/%64ebits", "//debits", "/debits/../debits",
		"/credits/", "/reversals", "/holds/" + paymentID.String(), "/holds/" + paymentID.String() + "/cancel",
		"/debits/" + paymentID.String() + "/release", "/payments/" + paymentID.String() + "/cancel",
		"/operations", "/operations/", "/operations/by-key/credit", "/operations/by-key/credit/a/b", "/metrics", "/readyz",
		"/payments", "/payments/", "/payments/by-key", "/payments/by-key/debit", "/payments/by-key/debit/",
		"/payments/by-key/debit/a/b",
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			w := s.send(sent{method: method, path: path})
			switch {
			// The id of a payment may be anything to the router.
			case method == http.MethodGet && path == "/payments/by-key":
				refusedWith(t, w, 404, "PAYMENT_NOT_FOUND")
			case method == http.MethodPost && path == "/payments/by-key":
				refusedWith(t, w, 405, "METHOD_NOT_ALLOWED")
			default:
				refusedWith(t, w, 404, "NOT_FOUND")
			}
		}
	}
	for _, test := range []struct{ method, path, allow string }{
		{http.MethodGet, "/debits", "POST"},
		{http.MethodHead, "/holds", "POST"},
		{http.MethodPut, "/debits", "POST"},
		{http.MethodOptions, "/debits", "POST"},
		{"BREW", "/debits", "POST"},
		{http.MethodPost, "/payments/" + paymentID.String(), "GET, HEAD"},
		{http.MethodDelete, "/payments/by-key/debit/a%2Fb", "GET, HEAD"},
		{http.MethodPost, "/openapi.yaml", "GET, HEAD"},
		{http.MethodGet, "/credits", "POST"},
		{http.MethodGet, "/holds/" + paymentID.String() + "/capture", "POST"},
		{http.MethodDelete, "/holds/" + paymentID.String() + "/release", "POST"},
		{http.MethodGet, "/payments/by-key/debit/a%2Fb/cancel", "POST"},
		{http.MethodPost, "/operations/" + paymentID.String(), "GET, HEAD"},
		{http.MethodPost, "/operations/by-key/credit/k", "GET, HEAD"},
	} {
		w := s.send(sent{method: test.method, path: test.path})
		refusedWith(t, w, 405, "METHOD_NOT_ALLOWED")
		if got := w.Header().Get("Allow"); got != test.allow {
			t.Errorf("%s %s: Allow = %q, want %q", test.method, test.path, got, test.allow)
		}
	}
	refusedWith(t, s.send(sent{method: "BREW", path: "/nothing"}), 404, "NOT_FOUND")
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests were begun", n)
	}
}

// A till that waits with a field that we did not understand gets its answer too
// late, or under a key that it will not replay with. Every spelling is taken
// rightly or refused by name, and then nothing is begun.
func TestTheHeaderMatrix(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", payment.MaxKeyLength)
	tests := map[string]struct {
		header http.Header
		status int
		code   string
	}{
		// field report A26
		"key of 255":                  {http.Header{"Idempotency-Key": {long}}, 201, ""},
		"key of 255, quoted":          {http.Header{"Idempotency-Key": {`"` + long + `"`}}, 201, ""},
		"key of 255 quotes":           {http.Header{"Idempotency-Key": {`"` + strings.Repeat(`\"`, 255) + `"`}}, 201, ""},
		"key of 256":                  {http.Header{"Idempotency-Key": {long + "k"}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"no key":                      {http.Header{"Idempotency-Key": nil}, 400, "MISSING_IDEMPOTENCY_KEY"},
		"empty key":                   {http.Header{"Idempotency-Key": {""}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"empty quoted key":            {http.Header{"Idempotency-Key": {`""`}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"blank key":                   {http.Header{"Idempotency-Key": {" "}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"blank quoted key":            {http.Header{"Idempotency-Key": {`" "`}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"key with NUL":                {http.Header{"Idempotency-Key": {"a\x00b"}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"key with a control":          {http.Header{"Idempotency-Key": {"a\x7fb"}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"key not ASCII":               {http.Header{"Idempotency-Key": {"schlüssel"}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"key half quoted":             {http.Header{"Idempotency-Key": {`"abc`}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"key with a parameter":        {http.Header{"Idempotency-Key": {`"abc";v=1`}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"two keys":                    {http.Header{"Idempotency-Key": {"a", "b"}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"the same key twice":          {http.Header{"Idempotency-Key": {"a", "a"}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"two keys joined by a proxy":  {http.Header{"Idempotency-Key": {"a, b"}}, 400, "INVALID_IDEMPOTENCY_KEY"},
		"key with every ASCII symbol": {http.Header{"Idempotency-Key": {"!#$%&'()*+,-./:;<=>?@[]^_`{|}~\\"}}, 201, ""},

		// field report B14; 0 is allowed by the contract, as a stored decline
		"deadline":                 {http.Header{"Request-Deadline-Ms": {"3000"}}, 201, ""},
		"deadline of 0":            {http.Header{"Request-Deadline-Ms": {"0"}}, 201, ""},
		"deadline beyond a day":    {http.Header{"Request-Deadline-Ms": {"9223372036854775807"}}, 201, ""},
		"deadline beyond 64 bits":  {http.Header{"Request-Deadline-Ms": {"9223372036854775808"}}, 400, "INVALID_DEADLINE"},
		"deadline negative":        {http.Header{"Request-Deadline-Ms": {"-1"}}, 400, "INVALID_DEADLINE"},
		"deadline with a plus":     {http.Header{"Request-Deadline-Ms": {"+1"}}, 400, "INVALID_DEADLINE"},
		"deadline with a fraction": {http.Header{"Request-Deadline-Ms": {"1.5"}}, 400, "INVALID_DEADLINE"},
		"deadline with exponent":   {http.Header{"Request-Deadline-Ms": {"3e3"}}, 400, "INVALID_DEADLINE"},
		"deadline hexadecimal":     {http.Header{"Request-Deadline-Ms": {"0x10"}}, 400, "INVALID_DEADLINE"},
		"deadline with a unit":     {http.Header{"Request-Deadline-Ms": {"3000ms"}}, 400, "INVALID_DEADLINE"},
		"deadline in words":        {http.Header{"Request-Deadline-Ms": {"abc"}}, 400, "INVALID_DEADLINE"},
		"deadline empty":           {http.Header{"Request-Deadline-Ms": {""}}, 400, "INVALID_DEADLINE"},
		"deadline twice":           {http.Header{"Request-Deadline-Ms": {"3000", "3000"}}, 400, "INVALID_DEADLINE"},
		"deadline list":            {http.Header{"Request-Deadline-Ms": {"3000, 3000"}}, 400, "INVALID_DEADLINE"},
		"deadline in other digits": {http.Header{"Request-Deadline-Ms": {"３０００"}}, 400, "INVALID_DEADLINE"},

		"charset":                {http.Header{"Content-Type": {"application/json; charset=utf-8"}}, 201, ""},
		"charset, quoted":        {http.Header{"Content-Type": {`Application/JSON;Charset="UTF-8"`}}, 201, ""},
		"another charset":        {http.Header{"Content-Type": {"application/json; charset=utf-16"}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"another parameter":      {http.Header{"Content-Type": {"application/json; profile=x"}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"no media type":          {http.Header{"Content-Type": nil}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"two media types":        {http.Header{"Content-Type": {"application/json", "application/json"}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"a form":                 {http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"text":                   {http.Header{"Content-Type": {"text/json"}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"JSON of another kind":   {http.Header{"Content-Type": {"application/merge-patch+json"}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"media type unreadable":  {http.Header{"Content-Type": {"application/json;;"}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"compressed":             {http.Header{"Content-Encoding": {"gzip"}}, 415, "UNSUPPORTED_MEDIA_TYPE"},
		"accepts nothing":        {http.Header{"Accept": {""}}, 201, ""},
		"accepts all":            {http.Header{"Accept": {"*/*"}}, 201, ""},
		"accepts JSON":           {http.Header{"Accept": {"application/json"}}, 201, ""},
		"accepts problems":       {http.Header{"Accept": {"text/html, application/problem+json;q=0.5"}}, 201, ""},
		"accepts applications":   {http.Header{"Accept": {"text/html", "application/*;q=0.1"}}, 201, ""},
		"accepts what follows":   {http.Header{"Accept": {"application/json;q=0, */*"}}, 201, ""},
		"accepts the unreadable": {http.Header{"Accept": {"a/b/c;;"}}, 201, ""},
		"accepts HTML":           {http.Header{"Accept": {"text/html"}}, 406, "NOT_ACCEPTABLE"},
		"accepts none of JSON":   {http.Header{"Accept": {"application/json;q=0, application/problem+json;q=0.0, */*"}}, 406, "NOT_ACCEPTABLE"},
		"accepts no application": {http.Header{"Accept": {"*/*, application/*;q=0"}}, 406, "NOT_ACCEPTABLE"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t, nil)
			w := s.send(sent{header: test.header})
			if test.status == http.StatusCreated {
				if w.Code != http.StatusCreated {
					t.Fatalf("status = %d, want 201\n%s", w.Code, w.Body)
				}
				return
			}
			refusedWith(t, w, test.status, test.code)
			if n := len(s.requests()); n != 0 {
				t.Errorf("%d requests were begun", n)
			}
		})
	}
}

// Two spellings of a key are one key: a till library that quotes and one that
// does not must find each other's payments.
func TestAQuotedKeyIsTheKey(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, spelling := range []string{"a-key", `"a-key"`} {
		s.send(sent{key: spelling})
	}
	for _, req := range s.requests() {
		if req.Key != "a-key" {
			t.Errorf("key = %q, want a-key", req.Key)
		}
	}
}

// The till's wait, less the way back, bounds the decision, and the server's own
// budget bounds it in any case (field report B14).
func TestTheDeadlineCountsFromArrival(t *testing.T) {
	t.Parallel()
	for header, want := range map[string]time.Duration{
		"": 2400 * time.Millisecond, "0": 0, "599": 0, "600": 0, "1400": 800 * time.Millisecond,
		"3000": 2400 * time.Millisecond, "60000": 2400 * time.Millisecond,
	} {
		s := newService(t, nil)
		q := sent{}
		if header != "" {
			q.header = http.Header{"Request-Deadline-Ms": {header}}
		}
		if w := s.send(q); w.Code != http.StatusCreated {
			t.Fatalf("%q: status %d", header, w.Code)
		}
		// What has passed since arrival is gone from it; half a second is far more
		// than a handler takes on a busy machine.
		if got := *s.deadline; got > want || got < want-500*time.Millisecond {
			t.Errorf("Request-Deadline-Ms %q leaves %v, want just under %v", header, got, want)
		}
	}
}

// The checks run in the order in which a till can correct them, and those that
// cost nothing run first.
func TestTheOrderOfTheChecks(t *testing.T) {
	t.Parallel()
	s := newService(t, func(cfg *api.Config) { cfg.HoldsSupported = false })
	q := sent{path: "/holds", body: `{"amount":0,`, header: http.Header{
		"Authorization": {"Bearer nobody"}, "Accept": {"text/html"}, "Content-Type": {"text/plain"},
		"Idempotency-Key": {" "}, "Request-Deadline-Ms": {"-1"},
	}}
	step := func(status int, code string) {
		t.Helper()
		refusedWith(t, s.send(q), status, code)
	}
	step(401, "UNAUTHENTICATED")
	q.header["Authorization"] = []string{"Bearer " + operatorToken}
	step(403, "FORBIDDEN")
	q.header["Authorization"] = []string{"Bearer " + tillToken}
	step(501, "HOLDS_UNSUPPORTED")
	q.path = "/debits"
	step(406, "NOT_ACCEPTABLE")
	delete(q.header, "Accept")
	step(415, "UNSUPPORTED_MEDIA_TYPE")
	delete(q.header, "Content-Type")
	step(400, "INVALID_IDEMPOTENCY_KEY")
	delete(q.header, "Idempotency-Key")
	step(400, "INVALID_DEADLINE")
	delete(q.header, "Request-Deadline-Ms")
	q.body = `{"amount":0` + strings.Repeat(" ", 16<<10) + `,`
	step(413, "BODY_TOO_LARGE")
	q.body = `{"amount":0,"x":1}`
	step(400, "MALFORMED_REQUEST")
	q.body = `{"account":"a","amount":0,"currency":"EUR"}`
	step(422, "INVALID_VALUE")
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests were begun", n)
	}
	q.body = ""
	if w := s.send(q); w.Code != http.StatusCreated {
		t.Errorf("status = %d, want 201", w.Code)
	}
}

// A body of 16 KiB is taken and one byte more is not, whether the till said how
// long it would be or not: memory has a limit, and so has what a till may send.
func TestABodyMayHave16KiB(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	for _, noLength := range []bool{false, true} {
		fits := goodBody + strings.Repeat(" ", 16<<10-len(goodBody))
		if w := s.send(sent{body: fits, noLength: noLength}); w.Code != http.StatusCreated {
			t.Errorf("16 KiB, without a length %v: %d, want 201", noLength, w.Code)
		}
		w := s.send(sent{body: fits + " ", noLength: noLength})
		refusedWith(t, w, 413, "BODY_TOO_LARGE")
		if w.Header().Get("Connection") != "close" {
			t.Error("the connection stays open over an unread body")
		}
	}
	if n := len(s.requests()); n != 2 {
		t.Errorf("%d requests were begun, want 2", n)
	}
}

// One store must not be able to take every place of a replica; what it is told
// is the gate's refusal, so that its client may send the request again.
func TestACallerBeyondItsBoundIsRefusedByTheGate(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}), make(chan struct{})
	seen := &observed{}
	g := gate.New(gate.Config{MaxInFlight: 100, RetryAfter: time.Second, Observer: seen, Log: slog.New(slog.DiscardHandler)})
	s := newService(t, func(cfg *api.Config) {
		cfg.PerCaller = g.PerCaller(1)
		cfg.Decider = decideFunc(func(ctx context.Context, req payment.Request, d budget.Deadline) (decision.Result, error) {
			if req.Caller == "store-17" {
				entered <- struct{}{}
				<-release
			}
			return approve(ctx, req, d)
		})
	})
	first := make(chan int)
	go func() { first <- s.send(sent{}).Code }()
	<-entered
	refusedWith(t, s.send(sent{key: "another"}), 503, "OVERLOADED")
	if w := s.send(sent{token: otherToken}); w.Code != http.StatusCreated {
		t.Errorf("another store: %d, want 201", w.Code)
	}
	// Whoever is not known has no bound, and takes no place.
	refusedWith(t, s.send(sent{token: "nobody"}), 401, "UNAUTHENTICATED")
	close(release)
	if got := <-first; got != http.StatusCreated {
		t.Errorf("the first: %d, want 201", got)
	}
	if n := len(s.requests()); n != 2 {
		t.Errorf("%d requests were begun, want 2: not the refused one", n)
	}
	if diff := cmp.Diff([]string{"refused OVERLOADED"}, seen.list()); diff != "" {
		t.Errorf("observed by the gate (-want +got):\n%s", diff)
	}
}

// The document is for whoever integrates a till, token or not.
func TestTheDocumentIsServedToEverybody(t *testing.T) {
	t.Parallel()
	s := newService(t, nil)
	get := func(method string, header http.Header) *httptest.ResponseRecorder {
		header["Authorization"] = nil
		return s.send(sent{method: method, path: "/openapi.yaml", header: header})
	}
	w := get(http.MethodGet, http.Header{})
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/yaml" || !strings.HasPrefix(w.Body.String(), "openapi: 3.1") {
		t.Errorf("status %d, type %q", w.Code, w.Header().Get("Content-Type"))
	}
	if w := get(http.MethodGet, http.Header{"If-None-Match": {w.Header().Get("ETag")}}); w.Code != http.StatusNotModified || w.Body.Len() != 0 {
		t.Errorf("with its own ETag: %d, %d bytes", w.Code, w.Body.Len())
	}
	if w := get(http.MethodHead, http.Header{}); w.Code != http.StatusOK {
		t.Errorf("HEAD: %d", w.Code)
	}
}

var errStorage = errors.New("storage failed: secret internals")
