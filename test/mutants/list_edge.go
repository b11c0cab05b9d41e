package main

// edgeMutants are defects of what tills and the log hear.
func edgeMutants() []mutant {
	const (
		answer   = "internal/api/answer.go"
		decode   = "internal/api/decode.go"
		payments = "internal/api/payments.go"
		report   = "internal/api/report.go"
		gate     = "internal/gate/gate.go"
	)
	return []mutant{
		{
			name: "the gate refuses after the handler",
			edits: []edit{
				{gate, `if reason := g.enter(); reason != "" {
`, `if reason := g.enter(); reason != "" {
			next.ServeHTTP(nowhere{http.Header{}}, r)
`},
				{gate, `// The bits of Gate.state.`, `type nowhere struct{ header http.Header }

func (n nowhere) Header() http.Header       { return n.header }
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (nowhere) WriteHeader(int)             {}

// The bits of Gate.state.`},
			},
			breaks: gateIsProof,
			harm:   "A till is told that nothing has begun, sends again as it may, and is in conflict with itself; one that draws a new key pays twice.",
			tried:  []suite{gateUnit, fakeTime},
		},
		{
			name: "an unknown outcome says Retry-After",
			edits: []edit{
				{answer, `if ans.retryAfter > 0 && ans.status < 500 {`, `if ans.retryAfter > 0 {`},
				{answer, `if f == requestInFlight || f == paymentNotYetDecided {`, `if f == requestInFlight || f == paymentNotYetDecided || f == outcomeUnknown {`},
			},
			breaks: gateIsProof,
			harm:   "A till takes it for the gate's word that nothing was begun, and forgets a payment that may have been taken.",
			tried:  []suite{apiUnit, fakeTime, refusals},
		},
		{
			name:   "a customer's decline says Retry-After",
			edits:  []edit{{answer, `if body.Retryable {`, `if body.Status > 0 {`}},
			breaks: toldIsStored,
			harm:   "Tills try again and again what the wallet has refused for good.",
			tried:  []suite{apiUnit, fakeTime},
		},
		{
			name:   "hanging up calls the decision back",
			edits:  []edit{{payments, `ctx := tracing.Detached(r.Context())`, `ctx := r.Context()`}},
			breaks: toldIsStored,
			harm:   "A till that leaves while the wallet books makes the result unknown, and a sale that was paid is undone later.",
			tried:  []suite{apiUnit, fakeTime},
		},
		{
			name:   "duplicate members are accepted",
			edits:  []edit{{decode, `d.dec.Reset(&d.body)`, `d.dec.Reset(&d.body, jsontext.AllowDuplicateNames(true))`}},
			breaks: toldIsStored,
			harm:   "Of two amounts in one body the till means one and we take the other.",
			tried:  []suite{apiUnit},
		},
		{
			name:   "the account is logged",
			edits:  []edit{{report, `slog.String("operation", string(d.operation)), slog.String("caller", d.caller))`, `slog.String("operation", string(d.operation)), slog.String("caller", d.caller), slog.String("whose", p.Account))`}},
			breaks: nothingLeaks,
			harm:   "Who buys what and when can be read by everybody who may read logs.",
			tried:  []suite{apiUnit},
		},
	}
}
