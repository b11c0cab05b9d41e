package main

// decisionMutants are defects of the sequence that decides, and of the words that it is
// told in.
func decisionMutants() []mutant {
	const (
		decision = "internal/decision/decision.go"
		outcome  = "internal/payment/outcome.go"
		request  = "internal/payment/request.go"
		key      = "internal/payment/key.go"
	)
	return []mutant{
		{
			name: "a lookup that finds nothing is final",
			edits: []edit{{decision, `case payment.NotFound, payment.NoEvidence:
			// Not found is not proof: the original may still land.
`, `case payment.NotFound:
			return payment.Decline(payment.WalletTimeout)
		case payment.NoEvidence:
`}},
			breaks: declineEnds,
			harm:   "A debit that lands after the lookup is never given back: the customer pays for what the till refused to hand out.",
			tried:  []suite{decisionUnit, fakeTime},
		},
		{
			name: "answered although it was not stored",
			edits: []edit{{decision, `if err != nil {
		return Result{Payment: claim.Payment, Steps: steps}, err
	}
	crashpoint.Here(crashpoint.BeforeAnswer)`, `if err != nil {
		stored = claim.Payment
		stored.State, stored.Code, stored.WalletID, stored.DecidedAt = verdict.State, verdict.Code, verdict.WalletID, time.Now()
	}
	crashpoint.Here(crashpoint.BeforeAnswer)`}},
			breaks: toldIsStored,
			harm:   "A till hears APPROVED, recovery declines and gives back: the goods are gone and nobody has paid.",
			tried:  []suite{decisionUnit, fakeTime},
		},
		{
			name: "the verdict is told and not what is stored",
			edits: []edit{{decision, `crashpoint.Here(crashpoint.BeforeAnswer)
	return`, `crashpoint.Here(crashpoint.BeforeAnswer)
	stored.State, stored.Code, stored.WalletID = verdict.State, verdict.Code, verdict.WalletID
	return`}},
			breaks: toldIsStored,
			harm:   "A handler that comes back late tells APPROVED for what recovery has declined and given back.",
			tried:  []suite{decisionUnit, fakeTime},
		},
		{
			name:   "the store gets the spent time of the calls",
			edits:  []edit{{decision, `t.atLeast(start, StoreReserve)`, `t.deadline.CapAt(start, StoreReserve).Context(t.parent)`}},
			breaks: toldIsStored,
			harm:   "Each wallet answer at the end of the budget is an unknown outcome for the till, although the wallet has said what it did.",
			tried:  []suite{decisionUnit, fakeTime},
		},
		{
			name: "a handler sends again",
			edits: []edit{{decision, `steps.Outcome = d.wallet.Send(callCtx, in)
`, `steps.Outcome = d.wallet.Send(callCtx, in)
	if steps.Outcome.Class == payment.Ambiguous {
		steps.Outcome = d.wallet.Send(callCtx, in)
	}
`}},
			breaks: oneRequest,
			harm:   "A wallet that is slow gets twice the load, and one that does not know references debits twice.",
			tried:  []suite{decisionUnit, fakeTime},
		},
		{
			name: "an unknown claim is sent all the same",
			edits: []edit{{decision, `if err != nil {
		return Result{Steps: steps}, err
	}`, `if err != nil {
		claim = payment.Claim{Status: payment.ClaimNew, Payment: payment.Payment{
			Caller: req.Caller, Operation: req.Operation, Account: req.Account, Amount: req.Amount, Reference: req.DeriveReference(), State: payment.InFlight,
		}}
	}`}},
			breaks: declineEnds,
			harm:   "Money is taken of which the ledger knows nothing, so nothing will ever give it back.",
			tried:  []suite{decisionUnit, fakeTime},
		},
		{
			name: "502 and 503 are believed",
			edits: []edit{{outcome, `case Unavailable:
		return o.Status != 0`, `case Unavailable:
		return false`}},
			breaks: declineEnds,
			harm:   "A proxy that lost the wallet's answer says 502 after the debit: declined, and the customer stays debited.",
			tried:  []suite{paymentUnit, decisionUnit, fakeTime},
		},
		{
			name:   "references are drawn",
			edits:  []edit{{request, `return append(c, fingerprint[:]...).reference()`, `return c.text(uuid.NewString()).reference()`}},
			breaks: oneRequest,
			harm:   "After a failover that lost the claim, the till's repeat is a second debit that the wallet cannot recognise.",
			tried:  []suite{paymentUnit},
		},
		{
			name: "the order of metadata counts",
			edits: []edit{
				{request, "\t\"maps\"\n\t\"slices\"\n", ""},
				{request, `for _, name := range slices.Sorted(maps.Keys(m)) {`, `for name := range m {`},
			},
			breaks: toldIsStored,
			harm:   "A till that repeats its request is told that the key was used for another one, and never hears its answer.",
			tried:  []suite{paymentUnit, apiUnit},
		},
		{
			name:   "key hashes begin without their time",
			edits:  []edit{{key, `copy(h[:], t[:])`, `_ = t`}},
			breaks: toldIsStored,
			harm:   "Keys that were stored before are not found any more, so a repeat is a new payment; and each insert touches another page of the index.",
			tried:  []suite{paymentUnit},
		},
	}
}
