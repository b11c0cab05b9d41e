package wallet

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/payment"
)

// answered is the sight of a complete answer.
func answered(status int, body string) sight {
	return sight{status: status, body: []byte(body), answer: parseObject([]byte(body))}
}

// cases are the calls that exist, of both versions.
func cases() []struct {
	Version Version
	In      payment.Instruction
} {
	var all []struct {
		Version Version
		In      payment.Instruction
	}
	for _, v := range []Version{V1, V2} {
		for _, op := range []payment.Operation{payment.Debit, payment.Hold, payment.Credit, payment.Capture, payment.Release} {
			if _, known := versions()[v].calls[Call(op)]; known {
				all = append(all, struct {
					Version Version
					In      payment.Instruction
				}{v, instruction(op, "table")})
			}
		}
	}
	return all
}

// A wrong class is wrong money: a debit that is declined and kept, or goods
// handed over for nothing. This is the table of contract section 3, each row for
// both versions and for every operation.
func TestClassificationIsTheSameForBothVersionsAndEveryOperation(t *testing.T) {
	t.Parallel()
	rejected := func(status int, code payment.Code) payment.Outcome {
		return payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonVerdict, Verdict: true, Code: code, Status: status}
	}
	noVerdict := func(status int) payment.Outcome {
		return payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonNoVerdict, Code: payment.WalletRejected, Status: status}
	}
	gateway := func(status int, reason payment.Reason) payment.Outcome {
		return payment.Outcome{Class: payment.Unavailable, Reason: reason, Status: status}
	}
	doubt := func(status int, reason payment.Reason) payment.Outcome {
		return payment.Outcome{Class: payment.Ambiguous, Reason: reason, Status: status}
	}
	applied := func(status int) payment.Outcome {
		return payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: "effect-1", Status: status}
	}
	ref := reference("table").String()
	body := func(more string) string {
		return `{"id":"effect-1","debitId":"effect-1","creditId":"effect-1","reference":"` + ref + `","status":"APPLIED"` + more + `}`
	}
	type row struct {
		seen sight
		want payment.Outcome
	}
	rows := map[string]row{
		// 2xx, complete, with the body asked for and our own reference in it.
		"201":                        {answered(201, body("")), applied(201)},
		"200":                        {answered(200, body("")), applied(200)},
		"202 that fits in full":      {answered(202, body("")), applied(202)},
		"unknown members":            {answered(201, body(`,"later":{"x":[1]}`)), applied(201)},
		"null is absent":             {answered(201, body(`,"amount":null,"kind":null`)), applied(201)},
		"white space around":         {answered(201, "\r\n "+body("")+"\n"), applied(201)},
		"a kind of its own":          {answered(201, body(`,"kind":"POS_DEBIT"`)), applied(201)},
		"a masked account":           {answered(201, body(`,"account":"****1001"`)), applied(201)},
		"an id of 128":               {answered(201, strings.ReplaceAll(body(""), "effect-1", strings.Repeat("x", 128))), payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: strings.Repeat("x", 128), Status: 201}},
		"foreign reference":          {answered(201, strings.ReplaceAll(body(""), ref, reference("other").String())), doubt(201, payment.ReasonBodyForeign)},
		"foreign reference, PENDING": {answered(202, `{"reference":"`+reference("other").String()+`","status":"PENDING"}`), doubt(202, payment.ReasonBodyForeign)},
		"reference in another case":  {answered(201, strings.ReplaceAll(body(""), ref, strings.ToUpper(ref))), doubt(201, payment.ReasonBodyForeign)},
		"reference that is a number": {answered(201, `{"id":"effect-1","debitId":"effect-1","creditId":"effect-1","reference":7,"status":"APPLIED"}`), doubt(201, payment.ReasonBodyUnexpected)},

		// 2xx that is not what was asked for (C16 to C20, C24; B38 for the pending).
		"204":                  {answered(204, ""), doubt(204, payment.ReasonBodyIncomplete)},
		"200 without a body":   {answered(200, ""), doubt(200, payment.ReasonBodyIncomplete)},
		"202 PENDING":          {answered(202, `{"id":"effect-1","debitId":"effect-1","creditId":"effect-1","reference":"`+ref+`","status":"PENDING"}`), doubt(202, payment.ReasonPending)},
		"200 PENDING":          {answered(200, `{"status":"PENDING"}`), doubt(200, payment.ReasonPending)},
		"200 REJECTED":         {answered(200, strings.Replace(body(""), "APPLIED", "REJECTED", 1)), doubt(200, payment.ReasonBodyUnexpected)},
		"status in lower case": {answered(201, strings.Replace(body(""), "APPLIED", "applied", 1)), doubt(201, payment.ReasonBodyUnexpected)},
		"status of no string":  {answered(201, strings.Replace(body(""), `"APPLIED"`, "true", 1)), doubt(201, payment.ReasonBodyUnexpected)},
		"{}":                   {answered(200, `{}`), doubt(200, payment.ReasonBodyUnexpected)},
		"null":                 {answered(200, `null`), doubt(200, payment.ReasonBodyUnexpected)},
		"an array":             {answered(200, `[`+body("")+`]`), doubt(200, payment.ReasonBodyUnexpected)},
		"a string":             {answered(200, `"APPLIED"`), doubt(200, payment.ReasonBodyUnexpected)},
		"HTML":                 {answered(200, `<html>Please sign in</html>`), doubt(200, payment.ReasonBodyUnexpected)},
		"cut off":              {answered(200, body("")[:20]), doubt(200, payment.ReasonBodyUnexpected)},
		"two objects":          {answered(200, body("")+body("")), doubt(200, payment.ReasonBodyUnexpected)},
		"duplicate members":    {answered(200, body(`,"id":"effect-2"`)), doubt(200, payment.ReasonBodyUnexpected)},
		"duplicates deep in":   {answered(200, body(`,"x":{"a":1,"a":2}`)), doubt(200, payment.ReasonBodyUnexpected)},
		"invalid UTF-8":        {answered(200, body(`,"note":"`+"\xff"+`"`)), doubt(200, payment.ReasonBodyUnexpected)},
		"no id":                {answered(201, `{"reference":"`+ref+`","status":"APPLIED"}`), doubt(201, payment.ReasonBodyUnexpected)},
		"an empty id":          {answered(201, strings.ReplaceAll(body(""), "effect-1", "")), doubt(201, payment.ReasonBodyUnexpected)},
		"an id of 129":         {answered(201, strings.ReplaceAll(body(""), "effect-1", strings.Repeat("x", 129))), doubt(201, payment.ReasonBodyUnexpected)},
		"an id with a break":   {answered(201, strings.ReplaceAll(body(""), "effect-1", `a\nb`)), doubt(201, payment.ReasonBodyUnexpected)},
		"an id that is a path": {answered(201, strings.ReplaceAll(body(""), "effect-1", `..`)), doubt(201, payment.ReasonBodyUnexpected)},
		"an id of no string":   {answered(201, strings.ReplaceAll(body(""), `"effect-1"`, `17`)), doubt(201, payment.ReasonBodyUnexpected)},
		"members in capitals":  {answered(201, strings.ToUpper(body(""))), doubt(201, payment.ReasonBodyUnexpected)},
		"2xx cut off":          {sight{status: 201, lost: payment.ReasonBodyIncomplete}, doubt(201, payment.ReasonBodyIncomplete)},
		"2xx too large":        {sight{status: 201, lost: payment.ReasonBodyTooLarge}, doubt(201, payment.ReasonBodyTooLarge)},
		"2xx that stalls":      {sight{status: 201, lost: payment.ReasonTimeout}, doubt(201, payment.ReasonTimeout)}, // C18

		// 4xx, and what makes it a verdict.
		"409 INSUFFICIENT_FUNDS":      {answered(409, `{"code":"INSUFFICIENT_FUNDS"}`), rejected(409, "INSUFFICIENT_FUNDS")},
		"409 HOLD_NOT_ACTIVE":         {answered(409, `{"code":"HOLD_NOT_ACTIVE","message":"gone"}`), rejected(409, "HOLD_NOT_ACTIVE")},
		"409 HOLD_ALREADY_CAPTURED":   {answered(409, `{"code":"HOLD_ALREADY_CAPTURED"}`), rejected(409, "HOLD_ALREADY_CAPTURED")},
		"409 AMOUNT_EXCEEDS_HOLD":     {answered(409, `{"code":"AMOUNT_EXCEEDS_HOLD"}`), rejected(409, "AMOUNT_EXCEEDS_HOLD")},
		"404 ACCOUNT_NOT_FOUND":       {answered(404, `{"code":"ACCOUNT_NOT_FOUND"}`), rejected(404, "ACCOUNT_NOT_FOUND")},
		"423 ACCOUNT_LOCKED":          {answered(423, `{"code":"ACCOUNT_LOCKED"}`), rejected(423, "ACCOUNT_LOCKED")},
		"a code that cannot be used":  {answered(409, `{"code":"not upper case"}`), rejected(409, payment.WalletRejected)},
		"a code that is ours":         {answered(409, `{"code":"CANCELLED"}`), rejected(409, payment.WalletRejected)},
		"other members of any type":   {answered(409, `{"code":"INSUFFICIENT_FUNDS","amount":"12.50","reference":null}`), rejected(409, "INSUFFICIENT_FUNDS")},
		"a verdict about us":          {answered(409, `{"code":"INSUFFICIENT_FUNDS","reference":"`+ref+`"}`), rejected(409, "INSUFFICIENT_FUNDS")},
		"a verdict about another":     {answered(409, `{"code":"INSUFFICIENT_FUNDS","reference":"`+reference("other").String()+`"}`), doubt(409, payment.ReasonBodyForeign)},
		"422 DUPLICATE_REFERENCE":     {answered(422, `{"code":"DUPLICATE_REFERENCE"}`), rejected(422, "DUPLICATE_REFERENCE")},
		"404 of an ingress":           {answered(404, `<html>no route</html>`), noVerdict(404)},
		"400 without a body":          {answered(400, ``), noVerdict(400)},
		"an empty code":               {answered(409, `{"code":""}`), noVerdict(409)},
		"a code of no string":         {answered(409, `{"code":409}`), noVerdict(409)},
		"a code in a list":            {answered(409, `[{"code":"INSUFFICIENT_FUNDS"}]`), noVerdict(409)},
		"two codes":                   {answered(409, `{"code":"A","code":"B"}`), noVerdict(409)},
		"4xx too large":               {sight{status: 404, lost: payment.ReasonBodyTooLarge}, noVerdict(404)},
		"4xx cut off":                 {sight{status: 409, lost: payment.ReasonBodyIncomplete}, doubt(409, payment.ReasonBodyIncomplete)},
		"4xx that stalls":             {sight{status: 409, lost: payment.ReasonTimeout}, doubt(409, payment.ReasonTimeout)},
		"DUPLICATE_REFERENCE, no id":  {answered(409, `{"code":"DUPLICATE_REFERENCE"}`), doubt(409, payment.ReasonDuplicateNoID)},
		"DUPLICATE_REFERENCE, bad id": {answered(409, `{"code":"DUPLICATE_REFERENCE","existingDebitId":"","existingCreditId":5,"":"x"}`), doubt(409, payment.ReasonDuplicateNoID)},
		"DUPLICATE_REFERENCE, another's": {
			answered(409, `{"code":"DUPLICATE_REFERENCE","existingDebitId":"d","existingCreditId":"c","reference":"`+reference("other").String()+`"}`),
			doubt(409, payment.ReasonBodyForeign),
		},

		// Certainly not applied.
		"deadline spent":  {sight{unsent: payment.ReasonDeadlineSpent}, unavailable(payment.ReasonDeadlineSpent)},
		"refused":         {sight{unsent: payment.ReasonConnectFailed}, unavailable(payment.ReasonConnectFailed)},
		"connect timeout": {sight{unsent: payment.ReasonConnectTimeout}, unavailable(payment.ReasonConnectTimeout)},
		"unsupported":     {sight{unsent: payment.ReasonUnsupported}, unavailable(payment.ReasonUnsupported)},

		// Gateways: unavailable, but unproven.
		"502":          {answered(502, `{"code":"BAD_GATEWAY"}`), gateway(502, payment.ReasonStatus502)},
		"503":          {answered(503, body("")), gateway(503, payment.ReasonStatus503)},
		"502 cut off":  {sight{status: 502, lost: payment.ReasonBodyIncomplete}, gateway(502, payment.ReasonStatus502)},
		"503 stalling": {sight{status: 503, lost: payment.ReasonTimeout}, gateway(503, payment.ReasonStatus503)},

		// In doubt (C22 for the last ones).
		"504":             {answered(504, ``), doubt(504, payment.ReasonStatus504)},
		"500":             {answered(500, body("")), doubt(500, payment.ReasonStatus5xx)},
		"500 cut off":     {sight{status: 500, lost: payment.ReasonBodyIncomplete}, doubt(500, payment.ReasonStatus5xx)},
		"501":             {answered(501, ``), doubt(501, payment.ReasonStatus5xx)},
		"599":             {answered(599, ``), doubt(599, payment.ReasonStatus5xx)},
		"302":             {answered(302, body("")), doubt(302, payment.ReasonStatus3xx)},
		"304":             {answered(304, ``), doubt(304, payment.ReasonStatus3xx)},
		"101":             {answered(101, ``), doubt(101, payment.ReasonStatusOther)},
		"000":             {answered(0, body("")), doubt(0, payment.ReasonStatusOther)},
		"600":             {answered(600, body("")), doubt(600, payment.ReasonStatusOther)},
		"999":             {answered(999, body("")), doubt(999, payment.ReasonStatusOther)},
		"limit ran out":   {sight{lost: payment.ReasonTimeout}, doubt(0, payment.ReasonTimeout)},
		"reset or EOF":    {sight{lost: payment.ReasonConnectionLost}, doubt(0, payment.ReasonConnectionLost)},
		"not HTTP":        {sight{lost: payment.ReasonProtocol}, doubt(0, payment.ReasonProtocol)},
		"an unknown loss": {sight{lost: "new"}, doubt(0, "new")},
	}
	for _, status := range []int{400, 401, 403, 404, 405, 408, 409, 410, 421, 422, 423, 425, 428, 429, 451, 499} { // C31: no special case
		rows[fmt.Sprint(status, " with a code")] = row{answered(status, `{"code":"SOME_CODE"}`), rejected(status, "SOME_CODE")}
		rows[fmt.Sprint(status, " without")] = row{answered(status, `{"error":"x"}`), noVerdict(status)}
	}
	for _, c := range cases() {
		for name, r := range rows {
			got := classify(versions()[c.Version], c.In, r.seen)
			if diff := cmp.Diff(r.want, got); diff != "" {
				t.Errorf("%s %s, %s (-want +got):\n%s", c.Version, c.In.Operation, name, diff)
			}
		}
	}
}

// What an answer repeats of our request must be our request: a success for
// another amount is not this payment (contract section 3). It is compared where
// the call said it: a release has no amount.
func TestAnswersAboutAnotherPaymentAreForeign(t *testing.T) {
	t.Parallel()
	for _, c := range cases() {
		ref := c.In.Reference.String()
		for member, tt := range map[string]struct {
			said    bool // by the call
			foreign string
			ours    string
			bad     string // of another type
		}{
			"amount":   {c.In.Amount.AmountMinor != 0, "1251", "1250", `"1250"`},
			"currency": {c.In.Amount.Currency != "", `"USD"`, `"EUR"`, "978"},
		} {
			for value, want := range map[string]payment.Reason{
				tt.ours: payment.ReasonApplied, tt.foreign: payment.ReasonBodyForeign, tt.bad: payment.ReasonBodyUnexpected,
			} {
				if !tt.said {
					want = payment.ReasonApplied
				}
				body := `{"id":"e","debitId":"e","creditId":"e","reference":"` + ref + `","status":"APPLIED","` + member + `":` + value + `}`
				got := classify(versions()[c.Version], c.In, answered(201, body))
				if got.Reason != want {
					t.Errorf("%s %s with %s %s: %s, want %s", c.Version, c.In.Operation, member, value, got.Reason, want)
				}
				found := classifyLookup(versions()[c.Version], c.In, answered(200, body))
				if found.Reason != want {
					t.Errorf("%s lookup of %s with %s %s: %s, want %s", c.Version, c.In.Operation, member, value, found.Reason, want)
				}
			}
		}
	}
	in := instruction(payment.Debit, "table")
	for _, amount := range []string{"1250.0", "125e1", "1250.5", "9223372036854775808", "-1250"} { // field report E1
		body := `{"id":"e","reference":"` + in.Reference.String() + `","status":"APPLIED","amount":` + amount + `}`
		if got := classify(v2(), in, answered(201, body)); got.Class != payment.Ambiguous {
			t.Errorf("amount %s: %+v, want ambiguous", amount, got)
		}
	}
}

// A refusal says what it wants about the account, such as what it still has and in
// which currency: that must stay the wallet's no. Taken for somebody else's answer
// it would turn poor customers into an outage, with a lookup and a reversal each
// (field report C1). Only a reference that is not ours makes it somebody else's.
func TestARefusalMaySayMoreThanNo(t *testing.T) {
	t.Parallel()
	for _, c := range cases() {
		for _, more := range []string{`,"amount":300`, `,"currency":"USD"`, `,"account":"card-17 (closed)"`, `,"kind":"hold"`, `,"reference":"` + c.In.Reference.String() + `"`} {
			got := classify(versions()[c.Version], c.In, answered(409, `{"code":"INSUFFICIENT_FUNDS"`+more+`}`))
			want := payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonVerdict, Verdict: true, Code: "INSUFFICIENT_FUNDS", Status: 409}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s with %s (-want +got):\n%s", c.Version, c.In.Operation, more, diff)
			}
		}
		other := answered(409, `{"code":"INSUFFICIENT_FUNDS","reference":"`+reference("other").String()+`"}`)
		if got := classify(versions()[c.Version], c.In, other); got.Class != payment.Ambiguous || got.Reason != payment.ReasonBodyForeign {
			t.Errorf("%s %s: another's refusal is %+v", c.Version, c.In.Operation, got)
		}
	}
}

// The two versions differ in what their answers are called, and in nothing else.
func TestMembersOfTheVersions(t *testing.T) {
	t.Parallel()
	debit, credit := instruction(payment.Debit, "m"), instruction(payment.Credit, "m")
	ref := debit.Reference.String()
	duplicate := func(id string) payment.Outcome {
		return payment.Outcome{Class: payment.Success, Reason: payment.ReasonDuplicate, WalletID: id, Status: 409}
	}
	applied := func(id string) payment.Outcome {
		return payment.Outcome{Class: payment.Success, Reason: payment.ReasonApplied, WalletID: id, Status: 201}
	}
	doubt := func(status int, reason payment.Reason) payment.Outcome {
		return payment.Outcome{Class: payment.Ambiguous, Reason: reason, Status: status}
	}
	for name, tt := range map[string]struct {
		version version
		in      payment.Instruction
		seen    sight
		want    payment.Outcome
	}{
		"v1 debit":                              {v1(), debit, answered(201, `{"debitId":"d1"}`), applied("d1")},
		"v1 credit":                             {v1(), credit, answered(201, `{"creditId":"c1"}`), applied("c1")},
		"v1 debit with a credit's id":           {v1(), debit, answered(201, `{"creditId":"c1"}`), doubt(201, payment.ReasonBodyUnexpected)},
		"v1 debit with v2's id":                 {v1(), debit, answered(201, `{"id":"c1"}`), doubt(201, payment.ReasonBodyUnexpected)},
		"v1 debit, foreign reference":           {v1(), debit, answered(201, `{"debitId":"d1","reference":"x"}`), doubt(201, payment.ReasonBodyForeign)},
		"v1 debit, status but not APPLIED":      {v1(), debit, answered(201, `{"debitId":"d1","status":"NEW"}`), doubt(201, payment.ReasonBodyUnexpected)},
		"v2 debit without the reference":        {v2(), debit, answered(201, `{"id":"d1","status":"APPLIED"}`), doubt(201, payment.ReasonBodyUnexpected)},
		"v2 debit without the status":           {v2(), debit, answered(201, `{"id":"d1","reference":"`+ref+`"}`), doubt(201, payment.ReasonBodyUnexpected)},
		"v2 debit with v1's id":                 {v2(), debit, answered(201, `{"debitId":"d1","reference":"`+ref+`","status":"APPLIED"}`), doubt(201, payment.ReasonBodyUnexpected)},
		"v1 duplicate debit (S14)":              {v1(), debit, answered(409, `{"code":"DUPLICATE_REFERENCE","existingDebitId":"d1"}`), duplicate("d1")},
		"v1 duplicate credit":                   {v1(), credit, answered(409, `{"code":"DUPLICATE_REFERENCE","existingCreditId":"c1"}`), duplicate("c1")},
		"v1 duplicate debit with a credit's":    {v1(), debit, answered(409, `{"code":"DUPLICATE_REFERENCE","existingCreditId":"c1"}`), doubt(409, payment.ReasonDuplicateNoID)},
		"v1 duplicate of another amount":        {v1(), debit, answered(409, `{"code":"DUPLICATE_REFERENCE","existingDebitId":"d1","amount":1}`), doubt(409, payment.ReasonBodyForeign)},
		"v2 duplicate, even with v1's member":   {v2(), debit, answered(409, `{"code":"DUPLICATE_REFERENCE","existingDebitId":"d1"}`), doubt(409, payment.ReasonDuplicateNoID)},
		"v2 duplicate with a nameless member":   {v2(), debit, answered(409, `{"code":"DUPLICATE_REFERENCE","":"d1","id":"d1"}`), doubt(409, payment.ReasonDuplicateNoID)},
		"v1 duplicate that is cut off":          {v1(), debit, sight{status: 409, lost: payment.ReasonBodyIncomplete}, doubt(409, payment.ReasonBodyIncomplete)},
		"v1 duplicate under another 4xx":        {v1(), debit, answered(400, `{"code":"DUPLICATE_REFERENCE","existingDebitId":"d1"}`), payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonVerdict, Verdict: true, Code: "DUPLICATE_REFERENCE", Status: 400}},
		"v1 duplicate code in another spelling": {v1(), debit, answered(409, `{"code":"duplicate_reference","existingDebitId":"d1"}`), payment.Outcome{Class: payment.Rejected, Reason: payment.ReasonVerdict, Verdict: true, Code: payment.WalletRejected, Status: 409}},
	} {
		if diff := cmp.Diff(tt.want, classify(tt.version, tt.in, tt.seen)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A lookup that proves too much loses money twice: "applied" approves what was
// never taken, "not found" would drop a reversal (contract section 3; traps C32
// and T5; field report B30).
func TestLookupIsEvidenceOnlyAsTheContractSays(t *testing.T) {
	t.Parallel()
	none := func(status int, reason payment.Reason) payment.Evidence {
		return payment.Evidence{Finding: payment.NoEvidence, Reason: reason, Status: status}
	}
	ref := reference("table").String()
	other := reference("other").String()
	ids := `"id":"effect-1","debitId":"effect-1","creditId":"effect-1",`
	rows := map[string]struct {
		seen sight
		want payment.Evidence
	}{
		"applied":            {answered(200, `{`+ids+`"reference":"`+ref+`","status":"APPLIED"}`), payment.Evidence{Finding: payment.FoundApplied, Reason: payment.ReasonApplied, WalletID: "effect-1", Status: 200}},
		"rejected":           {answered(200, `{`+ids+`"reference":"`+ref+`","status":"REJECTED","code":"INSUFFICIENT_FUNDS"}`), payment.Evidence{Finding: payment.FoundRejected, Reason: payment.ReasonVerdict, Code: "INSUFFICIENT_FUNDS", Status: 200}},
		"rejected, no code":  {answered(200, `{"reference":"`+ref+`","status":"REJECTED"}`), payment.Evidence{Finding: payment.FoundRejected, Reason: payment.ReasonVerdict, Code: payment.WalletRejected, Status: 200}},
		"not found":          {answered(404, `{"code":"NOT_FOUND"}`), payment.Evidence{Finding: payment.NotFound, Reason: payment.ReasonVerdict, Status: 404}},
		"pending":            {answered(200, `{`+ids+`"reference":"`+ref+`","status":"PENDING"}`), none(200, payment.ReasonPending)},
		"applied, another's": {answered(200, `{`+ids+`"reference":"`+other+`","status":"APPLIED"}`), none(200, payment.ReasonBodyForeign)},
		"applied, a masked account and a kind of its own": {answered(200, `{`+ids+`"reference":"`+ref+`","status":"APPLIED","kind":"POS","account":"****17"}`), payment.Evidence{Finding: payment.FoundApplied, Reason: payment.ReasonApplied, WalletID: "effect-1", Status: 200}},
		"rejected, another's":                             {answered(200, `{"reference":"`+other+`","status":"REJECTED","code":"X"}`), none(200, payment.ReasonBodyForeign)},
		"applied, nobody's":                               {answered(200, `{`+ids+`"status":"APPLIED"}`), none(200, payment.ReasonBodyUnexpected)},
		"rejected, nobody's":                              {answered(200, `{"status":"REJECTED","code":"X"}`), none(200, payment.ReasonBodyUnexpected)},
		"applied, no id":                                  {answered(200, `{"reference":"`+ref+`","status":"APPLIED"}`), none(200, payment.ReasonBodyUnexpected)},
		"another status":                                  {answered(200, `{`+ids+`"reference":"`+ref+`","status":"NEW"}`), none(200, payment.ReasonBodyUnexpected)},
		"201":                                             {answered(201, `{`+ids+`"reference":"`+ref+`","status":"APPLIED"}`), none(201, payment.ReasonStatusOther)},
		"204":                                             {answered(204, ``), none(204, payment.ReasonStatusOther)},
		"HTML":                                            {answered(200, `<html>`), none(200, payment.ReasonBodyUnexpected)},
		"{}":                                              {answered(200, `{}`), none(200, payment.ReasonBodyUnexpected)},
		"cut off":                                         {sight{status: 200, lost: payment.ReasonBodyIncomplete}, none(200, payment.ReasonBodyIncomplete)},
		"404 of an ingress":                               {answered(404, `<html>no route</html>`), none(404, payment.ReasonNotFoundUnproven)},
		"404 without a code":                              {answered(404, `{"message":"no"}`), none(404, payment.ReasonNotFoundUnproven)},
		"404, empty code":                                 {answered(404, `{"code":""}`), none(404, payment.ReasonNotFoundUnproven)},
		"404 cut off":                                     {sight{status: 404, lost: payment.ReasonBodyIncomplete}, none(404, payment.ReasonBodyIncomplete)},
		"404, another's":                                  {answered(404, `{"code":"NOT_FOUND","reference":"`+other+`"}`), none(404, payment.ReasonBodyForeign)},
		"400 with a code":                                 {answered(400, `{"code":"BAD"}`), none(400, payment.ReasonVerdict)},
		"401":                                             {answered(401, ``), none(401, payment.ReasonNoVerdict)},
		"409 DUPLICATE":                                   {answered(409, `{"code":"DUPLICATE_REFERENCE","existingDebitId":"d"}`), none(409, payment.ReasonVerdict)},
		"302":                                             {answered(302, ``), none(302, payment.ReasonStatus3xx)},
		"500":                                             {answered(500, ``), none(500, payment.ReasonStatus5xx)},
		"502":                                             {answered(502, ``), none(502, payment.ReasonStatus502)},
		"503":                                             {answered(503, ``), none(503, payment.ReasonStatus503)},
		"504":                                             {answered(504, ``), none(504, payment.ReasonStatus504)},
		"000":                                             {answered(0, ``), none(0, payment.ReasonStatusOther)},
		"timeout":                                         {sight{lost: payment.ReasonTimeout}, none(0, payment.ReasonTimeout)},
		"lost":                                            {sight{lost: payment.ReasonConnectionLost}, none(0, payment.ReasonConnectionLost)},
		"refused":                                         {sight{unsent: payment.ReasonConnectFailed}, none(0, payment.ReasonConnectFailed)},
		"deadline spent":                                  {sight{unsent: payment.ReasonDeadlineSpent}, none(0, payment.ReasonDeadlineSpent)},
	}
	for _, c := range cases() {
		for name, r := range rows {
			if diff := cmp.Diff(r.want, classifyLookup(versions()[c.Version], c.In, r.seen)); diff != "" {
				t.Errorf("%s lookup of %s, %s (-want +got):\n%s", c.Version, c.In.Operation, name, diff)
			}
		}
	}
}

// A reversal is written only for what Unproven says: a wallet that refused the
// connection needs none, a gateway's 502 does (contract section 2, trap T1, S11).
func TestUnprovenFollowsFromTheSight(t *testing.T) {
	t.Parallel()
	in := instruction(payment.Debit, "table")
	for name, tt := range map[string]struct {
		seen sight
		want bool
	}{
		"refused":       {sight{unsent: payment.ReasonConnectFailed}, false},
		"gateway's 502": {answered(http.StatusBadGateway, ""), true},
		"gateway's 503": {answered(http.StatusServiceUnavailable, ""), true},
		"ingress' 404":  {answered(http.StatusNotFound, "<html>"), true},
		"verdict":       {answered(http.StatusNotFound, `{"code":"ACCOUNT_NOT_FOUND"}`), false},
		"lost":          {sight{lost: payment.ReasonConnectionLost}, true},
	} {
		if got := classify(v2(), in, tt.seen).Unproven(); got != tt.want {
			t.Errorf("%s: unproven %v, want %v", name, got, tt.want)
		}
	}
}
