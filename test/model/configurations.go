package model

// configurations are what is explored: each is a part of the protocol with all that
// can go wrong in it, as large as the time allows.
var configurations = []configuration{ //nolint:gochecknoglobals // a table
	{
		name: "decision", about: "a debit and two replays of it",
		requests: 3, amount: 1, workers: 2,
		refusals: true, gateways: true, unsent: true,
		promised: every,
	},
	{
		name: "cancel", about: "a debit and a replay, cancelled twice",
		requests: 2, cancels: 2, withBody: true, withoutBody: true, amount: 1, workers: 2,
		refusals: true, gateways: true, unsent: true,
		promised: every,
	},
	{
		name: "hold", about: "a hold and a replay, cancelled, captured, released",
		hold: true, requests: 2, cancels: 1, withoutBody: true,
		followUps: [3]bool{capture: true, release: true}, amount: 1, workers: 2,
		refusals: true, gateways: true,
		promised: every,
	},
	{
		name: "credits", about: "an approved debit, two credits of all of it, cancelled",
		approved: true, requests: 1, cancels: 1, withoutBody: true,
		followUps: [3]bool{first: true, second: true}, amount: 1, credits: [3]int8{first: 1, second: 1}, workers: 3,
		refusals: true, unsent: true, putsOff: true, slowLooks: true,
		promised: every,
	},
	{
		name: "credits in part", about: "an approved debit, two credits of half of it, cancelled",
		approved: true, cancels: 1, withoutBody: true,
		followUps: [3]bool{first: true, second: true}, amount: 2, credits: [3]int8{first: 1, second: 1}, workers: 2,
		refusals: true,
		promised: every,
	},
	{
		name: "ends of a hold", about: "an approved hold, captured, released, cancelled twice",
		hold: true, approved: true, requests: 1, cancels: 2, withoutBody: true,
		followUps: [3]bool{capture: true, release: true}, amount: 1, workers: 3,
		refusals: true, unsent: true, putsOff: true, slowLooks: true,
		promised: every,
	},
	{
		name: "late check", about: "a debit that may land after the settle window, before the last of two late checks",
		requests: 1, amount: 1, workers: 2, lateChecks: 2,
		refusals: true, gateways: true, messagesOutlive: true, lastCheckIsLater: true,
		promised: every,
	},
	{
		name: "operators", about: "an approved debit, two credits, cancelled; what is parked is redriven or settled by hand",
		approved: true, cancels: 1, withoutBody: true,
		followUps: [3]bool{first: true, second: true}, amount: 1, credits: [3]int8{first: 1, second: 1}, workers: 2,
		refusals: true, unsent: true, parks: true, operators: true,
		promised: every,
	},
	{
		name: "operators of a hold", about: "the same with an approved hold",
		hold: true, approved: true, cancels: 1, withoutBody: true,
		followUps: [3]bool{capture: true, release: true}, amount: 1, workers: 2,
		refusals: true, unsent: true, parks: true, operators: true,
		promised: every,
	},
	{
		name: "operators of a reversal", about: "the same with a debit in flight",
		requests: 1, cancels: 1, withoutBody: true, amount: 1, workers: 2, lateChecks: 1,
		refusals: true, gateways: true, putsOff: true, slowLooks: true, parks: true, operators: true,
		promised: every,
	},
	{
		name: "hold at a forgetful wallet", about: "an approved hold, captured and released, at a wallet that may forget its references",
		hold: true, approved: true, cancels: 1, withoutBody: true,
		followUps: [3]bool{capture: true, release: true}, amount: 1, workers: 2,
		refusals: true, walletForgets: true,
		promised: every,
	},
	{
		name: "repeating network", about: "a debit and a replay, cancelled; requests to the wallet are delivered twice",
		requests: 2, cancels: 1, withoutBody: true, amount: 1, workers: 2,
		refusals: true, gateways: true, duplicates: true, remembersRefusals: true,
		promised: every,
	},
	{
		name: "repeating network, credits", about: "the same with an approved debit and two credits",
		approved: true, cancels: 1, withoutBody: true,
		followUps: [3]bool{first: true, second: true}, amount: 1, credits: [3]int8{first: 1, second: 1}, workers: 2,
		refusals: true, duplicates: true, remembersRefusals: true,
		promised: every,
	},
	{
		name: "replay", about: "a debit and a replay",
		requests: 2, amount: 1, workers: 1,
		refusals: true, unsent: true,
		promised: every,
	},
	{
		name: "lagging standby", about: "the same, and a standby is promoted that is behind",
		requests: 2, amount: 1, workers: 1,
		refusals: true, unsent: true, lags: true,
		promised: oneDebit.bit() | noMoreBackThanTaken.bit() | oneKeyEach.bit() | oneEnd.bit() | sumIsConstant.bit() | quiescence.bit(),
	},
	{
		name: "lagging standby, then a cancel", about: "a debit, then such a promotion, then a cancel with the body",
		requests: 1, cancels: 1, withBody: true, amount: 1, workers: 1,
		refusals: true, gateways: true, lags: true, cancelLast: true,
		promised: oneDebit.bit() | noMoreBackThanTaken.bit() | oneKeyEach.bit() | oneEnd.bit() | sumIsConstant.bit() | quiescence.bit() |
			cancelledIsUndone.bit() | approvalAfterCancel.bit(),
	},
}

// named is the configuration with that name.
func named(name string) (configuration, bool) {
	for _, c := range configurations {
		if c.name == name {
			return c, true
		}
	}
	return configuration{}, false
}
