package main

// queueMutants are defects of the work queue.
func queueMutants() []mutant {
	const (
		attempt  = "internal/queue/attempt.go"
		reversal = "internal/queue/reversal.go"
		budget   = "internal/queue/budget.go"
	)
	return []mutant{
		{
			name: "an attempt after a doubt does not look first",
			edits: []edit{{attempt, `if !a.resolve {
		return a.transmit(ctx, in)
	}`, `if !a.resolve || a.w.Attempts > 0 {
		return a.transmit(ctx, in)
	}`}},
			breaks: appliedOnce,
			harm:   "Whether money moved is left to the wallet's memory of keys: one that has forgotten pays a second time.",
			tried:  []suite{queueUnit},
		},
		{
			name: "work is taken over without a question",
			edits: []edit{
				{attempt, `a.w.Turn, a.resolve = payment.LookupTurn, true`, `a.w.Turn, a.resolve = payment.LookupTurn, false`},
			},
			breaks: appliedOnce,
			harm:   "What a dead worker had sent is sent again without asking what became of it.",
			tried:  []suite{queueUnit},
		},
		{
			name:   "each retry has a key of its own",
			edits:  []edit{{attempt, `in := payment.Instruction{Reference: a.w.Outbound}`, "in := payment.Instruction{Reference: a.w.Outbound}\n\tfor range a.w.Attempts - 1 {\n\t\tin.Reference = in.Reference.Reversal()\n\t}"}},
			breaks: appliedOnce,
			harm:   "Every retry of a credit is another credit to the wallet: the customer is paid once for each.",
			tried:  []suite{queueUnit},
		},
		{
			name:   "a refusal after a doubt ends it at once",
			edits:  []edit{{attempt, `a.w.InDoubt && a.w.SinceDoubt < a.settleWindow`, `a.w.InDoubt && a.w.SinceDoubt < 0`}},
			breaks: appliedOnce,
			harm:   "What was refused is given back while the send before may still land: it can be taken, or paid, a second time.",
			tried:  []suite{queueUnit},
		},
		{
			name:   "a reversal whose hold is gone is parked",
			edits:  []edit{{attempt, `in.Operation == payment.Release && code == holdNotActive`, `in.Operation == payment.Release && code == ""`}},
			breaks: declineEnds,
			harm:   "People are woken for holds on which nothing is held any more.",
			tried:  []suite{queueUnit},
		},
		{
			name:   "a reversal does not wait for credits",
			edits:  []edit{{attempt, `case a.w.CreditsOpen:`, `case a.w.CreditsOpen && a.w.Attempts == 0:`}},
			breaks: declineEnds,
			harm:   "A cancelled debit is given back as a whole although a credit of it is on its way: the customer gets more than was taken.",
			tried:  []suite{queueUnit},
		},
		{
			name:   "a panic takes the attempt's end along",
			edits:  []edit{{attempt, `s = a.complete(a.park(parkPanicked, ""))`, `s = a.complete(a.postpone(a.w.Turn, 0))`}},
			breaks: appliedOnce,
			harm:   "A follow-up that meets a bug of ours comes back at once and for ever, and nobody is told.",
			tried:  []suite{queueUnit},
		},
		{
			name: "the settle window is ignored",
			edits: []edit{{
				reversal, `left := a.settleWindow - a.w.Age; !late && left > 0`,
				`left := a.settleWindow - a.w.Age; !late && left > a.settleWindow`,
			}},
			breaks: declineEnds,
			harm:   "A reversal ends with the first lookup that finds nothing, and the debit that lands a second later is nobody's business.",
			tried:  []suite{queueUnit},
		},
		{
			name: "a late check that finds the money does not reopen",
			edits: []edit{{reversal, `// From here on it is an operation like any other`, `if a.w.State == payment.NotApplied {
			return a.notFound()
		}
		// From here on it is an operation like any other`}},
			breaks: declineEnds,
			harm:   "A debit that landed after hours is seen, and left.",
			tried:  []suite{queueUnit},
		},
		{
			name:   "the clock pays nothing into the retry budget",
			edits:  []edit{{budget, `b.left += min(tokens(passed.Nanoseconds()), budgetMost-b.left)`, ``}},
			breaks: appliedOnce,
			harm:   "After an outage in a quiet night nothing is ever tried again: credits and reversals wait for the morning's traffic.",
			tried:  []suite{queueUnit},
		},
		{
			name:   "retries cost nothing",
			edits:  []edit{{budget, "b.left -= token\n\tb.held++", "b.held++"}},
			breaks: walletIsSpared,
			harm:   "Everything that waits is repeated as fast as backoff allows: a wallet that comes back is brought down again.",
			tried:  []suite{queueUnit},
		},
	}
}
