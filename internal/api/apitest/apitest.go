// Package apitest holds every exchange of a test with the till's API against
// api/openapi.yaml and against the rules of contract section 1 that hold for
// all answers. A test that goes through it cannot see an undocumented answer
// without failing, whatever else it is about.
package apitest

import (
	"bytes"
	"encoding/json"
	stderrors "errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pb33f/libopenapi"
	validator "github.com/pb33f/libopenapi-validator"
	"github.com/pb33f/libopenapi-validator/config"
	"github.com/pb33f/libopenapi-validator/errors"

	apidoc "github.com/safeledger/safeledger/api"
)

// Checker checks exchanges. It may be used by many goroutines at once.
type Checker struct {
	t         testing.TB
	validator validator.Validator
}

// compiled is the document, read once for all tests of a process: compiling its
// schemas takes longer than a test does.
//
//nolint:gochecknoglobals // a constant that takes work
var compiled = sync.OnceValues(func() (validator.Validator, error) {
	document, err := libopenapi.NewDocument(apidoc.OpenAPI)
	if err != nil {
		return nil, err
	}
	v, errs := validator.NewValidator(
		document,
		config.WithFormatAssertions(),
		// A member or field that is not in the document is an error too; the names of
		// metadata are the till's.
		config.WithStrictMode(),
		config.WithStrictIgnorePaths("$.body.metadata.*", "$.body.followUps[*].metadata.*"),
	)
	if len(errs) > 0 {
		return nil, stderrors.Join(errs...)
	}
	if valid, problems := v.ValidateDocument(); !valid {
		return nil, stderrors.New(describe(problems))
	}
	return v, nil
})

// New makes a Checker that reports to t, which fails at once if the document
// itself is not valid OpenAPI 3.1.
func New(t testing.TB) *Checker {
	t.Helper()
	v, err := compiled()
	if err != nil {
		t.Fatalf("openapi.yaml: %v", err)
	}
	return &Checker{t: t, validator: v}
}

// Handler is next with every exchange checked, for tests without a connection.
func (c *Checker) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := &recorder{reader: r.Body}
		r.Body = sent
		answered := httptest.NewRecorder()
		next.ServeHTTP(answered, r)
		response := answered.Result()
		body := answered.Body.Bytes()
		maps.Copy(w.Header(), response.Header)
		w.WriteHeader(response.StatusCode)
		_, _ = w.Write(body)
		c.Check(r, sent.bytes(), response, body)
	})
}

// Transport is next with every exchange checked, for tests with a client.
func (c *Checker) Transport(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		var sent []byte
		if r.Body != nil {
			var err error
			if sent, err = io.ReadAll(r.Body); err != nil {
				return nil, err
			}
			r.Body.Close()
			r = r.Clone(r.Context())
			r.Body = io.NopCloser(bytes.NewReader(sent))
		}
		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil {
			return nil, err
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
		c.Check(r, sent, response, body)
		return response, nil
	})
}

// Check checks one exchange: the request as it was sent with its body, and the
// answer with its body.
func (c *Checker) Check(r *http.Request, sent []byte, response *http.Response, body []byte) {
	c.t.Helper()
	name := fmt.Sprintf("%s %s → %d", r.Method, r.URL.EscapedPath(), response.StatusCode)
	for _, broken := range Rules(r.Method, response, body) {
		c.t.Errorf("%s: %s", name, broken)
	}

	switch code := problemCode(body); {
	case r.Method == http.MethodHead, code == "NOT_FOUND", code == "METHOD_NOT_ALLOWED":
		return // not in the document
	}
	documented := documentedForm(r, sent)
	answer := *response
	answer.Body = io.NopCloser(bytes.NewReader(body))
	if valid, problems := c.validator.ValidateHttpResponse(documented, &answer); !valid {
		if gateRefused(problemCode(body)) && problems[0].IsPathMissingError() {
			return // the gate refuses before anybody has looked at the path
		}
		c.t.Errorf("%s: the answer is not as documented: %s\n%s", name, describe(problems), body)
	}
	// The other way round: what we took, the document must allow, or a till
	// written by the document could not send it.
	if taken(response.StatusCode, problemCode(body)) {
		if valid, problems := c.validator.ValidateHttpRequestSync(documentedForm(r, sent)); !valid {
			c.t.Errorf("%s: the request was taken but is not as documented: %s\n%s", name, describe(problems), sent)
		}
	}
}

// taken reports whether an answer says that its request was in order.
func taken(status int, code string) bool {
	switch status {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted,
		http.StatusPaymentRequired, http.StatusFailedDependency, http.StatusConflict:
		return true
	}
	switch code {
	case "IDEMPOTENCY_KEY_REUSED", "OUTCOME_UNKNOWN", "STORAGE_UNAVAILABLE",
		"AMOUNT_EXCEEDS_HOLD", "AMOUNT_EXCEEDS_DEBIT", "AMOUNT_EXCEEDS_CAPTURE", "CURRENCY_MISMATCH", "ACCOUNT_MISMATCH",
		"HOLD_NOT_FOUND", "DEBIT_NOT_FOUND", "OPERATION_NOT_FOUND", "PAYMENT_NOT_FOUND", "PAYMENT_NOT_YET_DECIDED":
		return true
	}
	return false
}

func gateRefused(code string) bool {
	return code == "DRAINING" || code == "OVERLOADED" || code == "NOT_READY"
}

// documentedForm is r as the validator can read it: an escaped slash in a key
// would look to it like a further segment of the path.
func documentedForm(r *http.Request, sent []byte) *http.Request {
	form := r.Clone(r.Context())
	if escaped := r.URL.EscapedPath(); strings.Contains(escaped, "/by-key/") {
		escaped = regexp.MustCompile(`(?i)%2f`).ReplaceAllString(escaped, "-")
		if other, err := http.NewRequestWithContext(r.Context(), r.Method, "http://till"+escaped, http.NoBody); err == nil {
			other.Header = r.Header.Clone()
			form = other
		}
	}
	if strings.HasSuffix(r.URL.Path, "/cancel") {
		// Clients add it to every POST; the document has nothing to say of it there.
		form.Header.Del("Idempotency-Key")
	}
	form.Body = io.NopCloser(bytes.NewReader(sent))
	if form.ContentLength = int64(len(sent)); len(sent) == 0 {
		// Where there is no body, its media type says nothing.
		form.Body = http.NoBody
		form.Header.Del("Content-Type")
	}
	return form
}

// Rules says which rules an answer breaks that hold for all of them.
func Rules(method string, response *http.Response, body []byte) (broken []string) {
	fail := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	status, h := response.StatusCode, response.Header

	// Such an answer must be known to come from something in between.
	if slices.Contains([]int{408, 425, 429, 502, 504}, status) {
		fail("a status that SafeLedger never answers with")
	}

	var document struct {
		Type, Title, Detail, Code string
		Status                    int
	}
	if status >= 400 {
		if got := h.Get("Content-Type"); got != "application/problem+json" {
			fail("Content-Type %q of a problem", got)
		}
		if method != http.MethodHead {
			if err := json.Unmarshal(body, &document); err != nil {
				fail("the problem is not JSON: %v", err)
			}
			if document.Status != status {
				fail("the problem's status is %d", document.Status)
			}
			if document.Code == "" || document.Title == "" || document.Detail == "" {
				fail("the problem lacks code, title or detail")
			}
			if !strings.HasPrefix(document.Type, "/openapi.yaml#/x-problems/") {
				fail("the problem's type is %q", document.Type)
			}
		}
	}

	// Retry-After is there exactly where the contract has it: nowhere else may a
	// generic client get the idea to send a payment again.
	if method != http.MethodHead || status != http.StatusNotFound {
		wanted := status == http.StatusFailedDependency ||
			document.Code == "PAYMENT_NOT_YET_DECIDED" || document.Code == "REQUEST_IN_FLIGHT"
		if gateRefused(document.Code) {
			wanted = true
			if status != http.StatusServiceUnavailable || h.Get("Connection") != "close" && !response.Close {
				fail("a refusal of the gate that is no 503 or keeps its connection")
			}
		}
		values := h.Values("Retry-After")
		switch {
		case wanted && (len(values) != 1 || !regexp.MustCompile(`^[1-9][0-9]*$`).MatchString(values[0])):
			fail("Retry-After %q, want one positive whole number", values)
		case !wanted && len(values) != 0:
			fail("Retry-After %q where there must be none", values)
		}
	}

	stored := slices.Contains([]int{
		http.StatusCreated, http.StatusAccepted, http.StatusPaymentRequired, http.StatusFailedDependency,
	}, status)
	switch replayed := h.Values("Idempotency-Replayed"); {
	case len(replayed) == 0:
	case !stored || len(replayed) != 1 || replayed[0] != "true":
		fail("Idempotency-Replayed %q", replayed)
	}
	prefix := map[int]string{http.StatusCreated: "/payments/", http.StatusAccepted: "/operations/"}[status]
	if location := h.Get("Location"); (prefix != "") != (location != "") || !strings.HasPrefix(location, prefix) {
		fail("Location %q", location)
	}
	if status == http.StatusUnauthorized && !strings.HasPrefix(h.Get("WWW-Authenticate"), "Bearer") {
		fail("WWW-Authenticate %q", h.Get("WWW-Authenticate"))
	}
	if status == http.StatusMethodNotAllowed && h.Get("Allow") == "" {
		fail("Allow is missing")
	}
	if h.Get("Content-Type") != "application/yaml" && status != http.StatusNotModified && h.Get("Cache-Control") != "no-store" {
		fail("Cache-Control %q", h.Get("Cache-Control"))
	}
	return broken
}

func problemCode(body []byte) string {
	var document struct{ Code string }
	_ = json.Unmarshal(body, &document) // not a problem, then
	return document.Code
}

func describe(problems []*errors.ValidationError) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&b, "\n  %s: %s", p.Message, p.Reason)
		for _, s := range p.SchemaValidationErrors {
			fmt.Fprintf(&b, "\n    %s %s", s.FieldPath, s.Reason)
		}
	}
	return b.String()
}

// recorder keeps what was read of a body, so that checking reads nothing that
// the handler did not.
type recorder struct {
	reader io.ReadCloser
	read   bytes.Buffer
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.reader.Read(p)
	r.read.Write(p[:n])
	return n, err
}

func (r *recorder) Close() error  { return r.reader.Close() }
func (r *recorder) bytes() []byte { return r.read.Bytes() }

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
