package apitest_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/internal/api/apitest"
)

// Every other test leans on these rules: each must be seen to catch the answer
// that it is there for.
func TestTheRulesCatchWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	type answer struct {
		status int
		header http.Header
		body   string
	}
	problem := func(status, code string) string {
		return `{"type":"/openapi.yaml#/x-problems/` + code + `","title":"t","status":` + status + `,"detail":"d","code":"` + code + `"}`
	}
	header := func(pairs ...string) http.Header {
		h := http.Header{"Content-Type": {"application/problem+json"}, "Cache-Control": {"no-store"}}
		for i := 0; i < len(pairs); i += 2 {
			h[pairs[i]] = []string{pairs[i+1]}
			if pairs[i+1] == "" {
				delete(h, pairs[i])
			}
		}
		return h
	}
	for name, test := range map[string]struct {
		answer answer
		want   string // "" = no rule is broken
	}{
		"in order":                       {answer{404, header(), problem("404", "NOT_FOUND")}, ""},
		"conflict in order":              {answer{409, header("Retry-After", "1"), problem("409", "REQUEST_IN_FLIGHT")}, ""},
		"gate in order":                  {answer{503, header("Retry-After", "1", "Connection", "close"), problem("503", "DRAINING")}, ""},
		"unknown outcome in order":       {answer{503, header(), problem("503", "OUTCOME_UNKNOWN")}, ""},
		"a status of something between":  {answer{504, header(), problem("504", "X")}, "never answers with"},
		"unknown outcome, Retry-After":   {answer{503, header("Retry-After", "1"), problem("503", "OUTCOME_UNKNOWN")}, "Retry-After"},
		"internal, Retry-After":          {answer{500, header("Retry-After", "1"), problem("500", "INTERNAL")}, "Retry-After"},
		"402 with Retry-After":           {answer{402, header("Retry-After", "2"), problem("402", "DECLINED")}, "Retry-After"},
		"424 without Retry-After":        {answer{424, header(), problem("424", "WALLET_TIMEOUT")}, "Retry-After"},
		"424 with 0":                     {answer{424, header("Retry-After", "0"), problem("424", "WALLET_TIMEOUT")}, "Retry-After"},
		"424 with a date":                {answer{424, header("Retry-After", "Sun, 29 Nov 2026 09:30:00 GMT"), problem("424", "WALLET_TIMEOUT")}, "Retry-After"},
		"in flight without Retry-After":  {answer{409, header(), problem("409", "REQUEST_IN_FLIGHT")}, "Retry-After"},
		"gate that keeps its connection": {answer{503, header("Retry-After", "1"), problem("503", "DRAINING")}, "keeps its connection"},
		"status of the document":         {answer{404, header(), problem("400", "NOT_FOUND")}, "status is 400"},
		"no code":                        {answer{404, header(), problem("404", "")}, "lacks code"},
		"problem of another media type":  {answer{404, header("Content-Type", "text/plain"), problem("404", "NOT_FOUND")}, "Content-Type"},
		"not JSON":                       {answer{404, header(), "404"}, "not JSON"},
		"kept by a cache":                {answer{404, header("Cache-Control", ""), problem("404", "NOT_FOUND")}, "Cache-Control"},
		"401 without a challenge":        {answer{401, header(), problem("401", "UNAUTHENTICATED")}, "WWW-Authenticate"},
		"405 without Allow":              {answer{405, header(), problem("405", "METHOD_NOT_ALLOWED")}, "Allow"},
		"201 without a Location":         {answer{201, header("Content-Type", "application/json"), "{}"}, "Location"},
		"202 without a Location":         {answer{202, header("Content-Type", "application/json"), "{}"}, "Location"},
		"202 that points to a payment":   {answer{202, header("Content-Type", "application/json", "Location", "/payments/x"), "{}"}, "Location"},
		"202 in order":                   {answer{202, header("Content-Type", "application/json", "Location", "/operations/x", "Idempotency-Replayed", "true"), "{}"}, ""},
		"state in conflict, Retry-After": {answer{409, header("Retry-After", "1"), problem("409", "HOLD_NOT_ACTIVE")}, "Retry-After"},
		"a replay that is none":          {answer{409, header("Retry-After", "1", "Idempotency-Replayed", "true"), problem("409", "REQUEST_IN_FLIGHT")}, "Idempotency-Replayed"},
		"a replay marked false":          {answer{402, header("Idempotency-Replayed", "false"), problem("402", "DECLINED")}, "Idempotency-Replayed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			response := &http.Response{StatusCode: test.answer.status, Header: test.answer.header}
			broken := strings.Join(apitest.Rules(http.MethodPost, response, []byte(test.answer.body)), "; ")
			if (test.want == "") != (broken == "") || !strings.Contains(broken, test.want) {
				t.Errorf("broken rules: %q, want %q", broken, test.want)
			}
		})
	}
}
