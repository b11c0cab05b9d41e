package main

// walletMutants are defects of what goes over the wire to the wallet, and of what its
// answers are taken for.
func walletMutants() []mutant {
	const (
		exchange = "internal/wallet/exchange.go"
		classify = "internal/wallet/classify.go"
		breaker  = "internal/wallet/breaker.go"
		dial     = "internal/wallet/dial.go"
		pool     = "internal/wallet/pool.go"
		token    = "internal/wallet/token.go"
	)
	return []mutant{
		{
			name: "a request is repeated on a stale connection",
			edits: []edit{{exchange, `seen.cancelled = errors.Is(`, `if conn.idled > 0 && seen.lost == payment.ReasonConnectionLost {
		if fresh, err := c.dialer.dial(ctx); err == nil {
			conn.discard()
			fresh.out = conn.out
			conn = fresh
			seen, clean = conn.converse(req)
		}
	}
	seen.cancelled = errors.Is(`}},
			breaks: oneRequest,
			harm:   "As Go's own client does: a wallet that books and then loses the connection gets the debit again, under our hands.",
			tried:  []suite{walletUnit},
		},
		{
			name:   "HTTP/2 is offered",
			edits:  []edit{{dial, `d.secure.NextProtos = []string{"http/1.1"}`, `d.secure.NextProtos = []string{"h2", "http/1.1"}`}},
			breaks: oneRequest,
			harm:   "A wallet that takes the offer speaks what we do not: every call is in doubt.",
			tried:  []suite{walletUnit},
		},
		{
			name:   "a lost connection counts as not sent",
			edits:  []edit{{exchange, `return sight{lost: c.lost(payment.ReasonConnectionLost)}, false`, `return sight{unsent: payment.ReasonConnectFailed}, false`}},
			breaks: declineEnds,
			harm:   "The wallet has booked and the connection broke: declined without a reversal, and the customer stays debited.",
			tried:  []suite{walletUnit},
		},
		{
			name:   "a body that was cut off is believed",
			edits:  []edit{{exchange, "case err != nil:\n\t\tseen.lost = c.lost(", "case err != nil && len(body) == 0:\n\t\tseen.lost = c.lost("}},
			breaks: toldIsStored,
			harm:   "Half an answer is taken for a whole one: an approval for what the wallet may have gone on to refuse.",
			tried:  []suite{walletUnit},
		},
		{
			name:   "an answer about another payment is believed",
			edits:  []edit{{classify, `return o.compareText("reference", in.Reference.String())`, `return ""`}},
			breaks: toldIsStored,
			harm:   "A late answer on a connection that is used again approves somebody else's payment.",
			tried:  []suite{walletUnit},
		},
		{
			name: "anybody's 404 is the wallet's",
			edits: []edit{{classify, `code == "" {
			return none(payment.ReasonNotFoundUnproven)`, `code == "-" {
			return none(payment.ReasonNotFoundUnproven)`}},
			breaks: declineEnds,
			harm:   "An ingress without a backend makes reversals end as not applied, while the money is out.",
			tried:  []suite{walletUnit},
		},
		{
			name:   "a connection is used however long it was idle",
			edits:  []edit{{pool, `c.idled > p.open/2 {`, `c.idled > p.most {`}},
			breaks: walletIsSpared,
			harm:   "Requests are written to connections that a healthy wallet is just closing: doubts, lookups and declines without a cause.",
			tried:  []suite{walletUnit},
		},
		{
			name: "declines open the breaker",
			edits: []edit{{breaker, `if o.Verdict && !aboutUs(o.Status) {
			return good
		}
		return bad`, `return bad`}, {breaker, "// aboutUs reports", "var _ = aboutUs\n\n// aboutUs reports"}},
			breaks: walletIsSpared,
			harm:   "Twenty customers without money, and nobody can pay for five seconds.",
			tried:  []suite{walletUnit, fakeTime},
		},
		{
			name: "the breaker forgets every second",
			edits: []edit{{breaker, `Interval:     cfg.Window,
		BucketPeriod: cfg.Window / windowBuckets,`, `Interval:     time.Second,`}},
			breaks: walletIsSpared,
			harm:   "With calls that take 800 ms it never opens: each till waits for a dead wallet, and the wallet is never left alone.",
			tried:  []suite{walletUnit, fakeTime},
		},
		{
			name:   "what we did not try counts against the wallet",
			edits:  []edit{{breaker, `if reason == payment.ReasonDeadlineSpent || reason == payment.ReasonUnsupported {`, `if reason == payment.ReasonUnsupported {`}},
			breaks: walletIsSpared,
			harm:   "Tills with little time left shut a healthy wallet for everybody.",
			tried:  []suite{walletUnit},
		},
		{
			name:   "the wallet's token is printed",
			edits:  []edit{{token, `return "[wallet token]"`, `return t.value`}},
			breaks: nothingLeaks,
			harm:   "A log line or a panic shows what lets anybody move every customer's money.",
			tried:  []suite{walletUnit},
		},
	}
}
