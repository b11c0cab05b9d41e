package main

import (
	"cmp"
	"strings"
	"time"
)

// level is a kind of tests, by what they need. The cheaper a level is, the sooner it tells
// whoever made the mistake.
type level int

const (
	unit       level = iota // one package, and fakes around it
	fake                    // the whole service in memory, on a clock of its own
	database                // the SQL on a real PostgreSQL
	processes               // real processes, killed and stopped
	everything              // what no chosen test has found: all there are
)

func (l level) String() string {
	return [...]string{"unit", "fake time", "real PostgreSQL", "processes", "everything else"}[l]
}

// suite is the tests that are run together: those of one folder, or the ones of them that
// run matches.
type suite struct {
	level  level
	folder string // below the root
	run    string // a pattern of go test; "" for all
	limit  time.Duration
}

func (s suite) String() string { return s.folder + " " + cmp.Or(s.run, "all") }

// only is the part of s that v has failed.
func (s suite) only(v verdict) suite {
	s.limit = min(s.limit, testLimit)
	if v.folder != "" {
		s.folder = v.folder
	}
	if all := "^" + v.test + "$"; v.test != "" && !strings.HasPrefix(s.run, all) { // which may name parts of it already
		s.run = all
	}
	return s
}

// testLimit is that of one test.
const testLimit = 2 * time.Minute

// suiteLimit is several times what a suite takes here, with another busy core beside it.
// What runs for longer hangs.
const suiteLimit = 5 * time.Minute

// skipped are the tests that hold documents to the code: they would notice a changed
// number, and say nothing about what the code does with it.
const skipped = "Document"

// ledgerPromises begins the pattern of parts of what both ledgers must do, ledgertest: on
// PostgreSQL, without a pooler.
const ledgerPromises = "^TestLedgerKeepsItsPromises$/^none$/^"

// The suites. Of internal/ledger, whose tests take a minute together, it is those about the
// part that is changed.
var ( //nolint:gochecknoglobals // a table
	paymentUnit  = suite{unit, "internal/payment", "", suiteLimit}
	gateUnit     = suite{unit, "internal/gate", "", suiteLimit}
	decisionUnit = suite{unit, "internal/decision", "", suiteLimit}
	queueUnit    = suite{unit, "internal/queue", "", suiteLimit}
	walletUnit   = suite{unit, "internal/wallet", "", suiteLimit}
	// What internal/api tests on a ledger is a suite of its own.
	apiUnit = suite{
		unit, "internal/api", "^Test(An|ADecline|A[BFGPRSU]|AKeyThatIs|AKeyThatWasUsed|ATill|A202|Every|Nothing|Only|What|The|AQuoted|ACall|ACancel|Head|Capture|Fingerprints|Retry|Headers)", suiteLimit,
	}
	ledgerGroup = suite{
		unit, "internal/ledger",
		"^Test(TheFirstLeavesAtOnce|ARefusedTransaction|AnUnknownCommit|EachCallerHasItsOwnDeadline|WhatNobodyWaitsFor|AStuckTransaction|ASecondWriteOfTheSame|GroupsAndTheirQueue)",
		suiteLimit,
	}

	fakeTime = suite{fake, "test/faketime", "", suiteLimit}

	promisesOfPayments  = suite{database, "internal/ledger", ledgerPromises + "(First|OneOfManyClaims|Duplicate|Replay|Mismatch|OneOfManyD|Reversal|Sweep|Whoever|DecisionAnd)", suiteLimit}
	promisesOfFollowUps = suite{database, "internal/ledger", ledgerPromises + "(Accepted|OneOfManyAccepts|PaymentTakes|Values|HoldEnds|Credits)", suiteLimit}
	promisesOfCancels   = suite{database, "internal/ledger", ledgerPromises + "Cancel", suiteLimit}

	ledgerClaims = suite{
		database, "internal/ledger",
		"^Test(ReplicasRacing|Duplicate|ALockThat|LockedTable|LostCommitAnswer|DeclineAndItsReversal|CallsOfALateHandler)", suiteLimit,
	}
	ledgerShared = suite{
		database, "internal/ledger",
		"^Test(ASharedTransaction|Poison|ATwinThatIsNot|ALostAnswerIsUnknown|ReplicasSharing|EveryPlanGoes|EverythingAtOnce|APingIsAbout)", suiteLimit,
	}
	ledgerRecovery = suite{
		database, "internal/ledger",
		"^Test(LateCommit|CommitThatWaits|WhatASweepSkipped|PaymentsBelowTheMark|FirstSweep|MarkThat|MarkFollows|OvertakenReplica|SweepsShare)", suiteLimit,
	}
	ledgerQueue = suite{
		database, "internal/ledger",
		"^Test(Lease|RunOutLease|Settlement|ReversalThatFoundNothing|CallsOfAFencedAttempt|ADoubtIsRemembered|WhatWasTakenOver)", suiteLimit,
	}
	ledgerOperators = suite{database, "internal/ledger", "^Test(Redrive|SettlingByHand|Timeline)", suiteLimit}
	ledgerSchema    = suite{
		database, "internal/ledger", "^Test(Identity|DatabaseRefuses|SchemaHas|DatabaseDerives|ReversalIsStored|IDsOfATime|DecidingStays)", suiteLimit,
	}
	apiOnLedger = suite{database, "internal/api", "^Test(ADebitIsRefunded|AHoldEndsOnce|AKeyThatWasCancelled)", suiteLimit}

	refusals = suite{database, "test/refusals", "", suiteLimit}

	recoveryOfProcesses = suite{processes, "test/e2e", "^Test(APaymentOfAKilledReplica|APaymentThatNobody|ASecondSignal)", suiteLimit}
	endOfProcesses      = suite{processes, "test/e2e", "^Test(WhatIsInFlightWhenTheGate|SIGTERM)", suiteLimit}
	outageOfProcesses   = suite{processes, "test/e2e", "^TestADatabaseThatDies", suiteLimit}

	whole = suite{everything, "./...", "", 20 * time.Minute}
)
