package main

// serveMutants are defects of how the parts are put together, which only the whole
// program shows.
func serveMutants() []mutant {
	const serve = "cmd/safeledger/serve.go"
	return []mutant{
		{
			name: "nobody sweeps",
			edits: []edit{{serve, `group.Go(func() error { every(background, sweepEvery, s.sweep); return nil })
`, `_ = s.sweep
`}},
			breaks: declineEnds,
			harm:   "What a dead replica left in flight is only declined when its till asks again: the money of those who do not come back stays taken.",
			tried:  []suite{recoveryOfProcesses},
		},
		{
			name: "SIGTERM ends what is in flight",
			edits: []edit{{serve, `pause(ctx, s.cfg.DrainDelay)

	s.gate.Drain()`, `if !pause(ctx, s.cfg.DrainDelay) || s.gate.InFlight() >= 0 {
		return
	}

	s.gate.Drain()`}},
			breaks: answerInTime,
			harm:   "With every deployment some tills lose the answer of a payment that was taken.",
			tried:  []suite{endOfProcesses},
		},
		{
			name:   "the gate stands nowhere",
			edits:  []edit{{serve, `s.gate.Handler(handler)`, `handler`}},
			breaks: gateIsProof,
			harm:   "With the database away every request is begun, and ends as an unknown outcome that a person must look after.",
			tried:  []suite{outageOfProcesses},
		},
		{
			name:   "nobody tells the gate of the database",
			edits:  []edit{{serve, `s.gate.Watch(ctx, s.upkeep.Ping, probeEvery)`, `<-ctx.Done()`}},
			breaks: gateIsProof,
			harm:   "The same, until somebody takes the replica away by hand.",
			tried:  []suite{outageOfProcesses},
		},
	}
}
