package checker

// The invariants of a run, I1 to I15, each in clauses that can be broken by themselves.
// The words are the contract's: where it says more or less than the list that they come
// from (cancel by key, 402 and 424, holds, follow-ups, parked in plain sight), it holds.

// invariants is how many there are.
const invariants = 15

// invariantWords are the invariants in a line each.
var invariantWords = [invariants + 1]string{ //nolint:gochecknoglobals // a table
	1:  "what a till was told of a key is what is stored, for ever, until the till itself cancels it",
	2:  "the wallet applies at most one debit or hold per caller, operation and key",
	3:  "no more is given back than was taken, and a payment is reversed once at most",
	4:  "approved: the wallet has applied it once, as it was answered",
	5:  "declined: the wallet keeps none of the customer's money, or it is parked in plain sight",
	6:  "whatever the wallet was asked for has a row in the ledger, and agrees with it",
	7:  "no key stays in flight",
	8:  "503 with Retry-After: no handler, no row, no job, no wallet request; and nothing else looks like it",
	9:  "deciding is at most one mutation and one lookup on the wire, and a lookup only after doubt",
	10: "answers and calls keep to their time",
	11: "certainly not sent means never seen, and a lookup alone never says that nothing happened",
	12: "every attempt of a job carries the one outbound key; attempts are recorded, and within the retry budget",
	13: "every job has one end, none is lost, and every open question about money has a job",
	14: "money is neither made nor lost, and the ledger and the wallet agree on the sum",
	15: "the history of each key is that of a register which is written once",
}

// Clause is a part of an invariant.
type Clause struct {
	Invariant int
	Name      string
	Words     string
	// ofTheWallet is set where it must hold even for keys that a failover has lost.
	ofTheWallet bool
	// tellsLoss is set where, after a failover that may have lost something, this is how
	// it shows that it has.
	tellsLoss bool
}

// The clauses.
var ( //nolint:gochecknoglobals // a table
	told          = lossClause(1, "stored", "an answer is what is stored under its key")
	same          = lossClause(1, "same", "every answer to a key that tells its decision, or its acceptance, is the same byte for byte")
	asAsked       = clause(1, "asked", "a decision is told for the request that was decided, and no other")
	firstAnswer   = lossClause(1, "first", "one answer at most is not marked as a replay")
	cancelTold    = lossClause(1, "cancelled", "PAYMENT_CANCELLED is told of an approval that the till has cancelled, and of nothing else")
	readTold      = lossClause(1, "read", "a read shows what is stored")
	contractual   = clause(1, "contract", "every answer is one of the contract's")
	logged        = lossClause(1, "logged", "what a process says that it has answered is what is stored")
	once          = walletClause(2, "once", "at most one debit or hold of a key is applied")
	givenBack     = walletClause(3, "given", "at no time has more been given back than was taken")
	oneReversal   = walletClause(3, "reversal", "a payment is reversed once at most")
	reserved      = clause(3, "reserved", "what is accepted to be given back is not more than what was taken")
	appliedOnce   = clause(4, "applied", "an approval stands for one applied effect, of that id, account and amount")
	netApproved   = clause(4, "net", "what the wallet keeps is what was approved, less what was given back; nothing if it was cancelled")
	netDeclined   = clause(5, "net", "what was applied of a decline is undone, or its reversal is parked with a reason")
	settledInTime = clause(5, "sla", "and it is undone in time")
	known         = lossClause(6, "row", "every reference that the wallet was asked with has a row")
	agrees        = clause(6, "agrees", "and the wallet was asked for what that row says")
	askedFor      = clause(6, "asked", "every row was asked for by a till")
	decidedAtLast = clause(7, "decided", "nothing is in flight in the end")
	inTime        = clause(7, "horizon", "no key was in flight for longer than recovery takes")
	handlerCount  = clause(8, "handler", "a request that was answered 503 with Retry-After was begun by no handler, and its refusal is logged")
	noRow         = clause(8, "row", "and no row of its key was written by it")
	noWallet      = clause(8, "wallet", "and a key that was only ever refused was never on the wire to the wallet")
	retryAfter    = clause(8, "form", "503 with Retry-After is the gate's, and Retry-After stands nowhere else than the contract says")
	oneMutation   = clause(9, "mutation", "a debit or hold is on the wire once at most")
	oneLookup     = clause(9, "lookup", "one lookup at most while it is decided, and only after a call that ended in doubt")
	answerTime    = clause(10, "answer", "the answer leaves within the effective budget and 300 ms")
	callTime      = clause(10, "call", "a decision's call, its lookup, a connect and a worker's attempt keep to their limits")
	sendTime      = clause(10, "send", "nothing is sent with less than the minimum left")
	neverSeen     = clause(11, "unsent", "a call that was certainly not sent is not in the wallet's book")
	noProof       = clause(11, "evidence", "not found is no proof: only the wallet's no, or a lookup after the settle window, ends a question")
	oneKey        = walletClause(12, "key", "the outbound Idempotency-Key is the reference, on every attempt")
	derived       = clause(12, "derived", "references are derived from caller, operation, key and fingerprint, and no two operations share one")
	recorded      = clause(12, "recorded", "what the wallet saw of a job is what the ledger counted and recorded")
	retryBudget   = clause(12, "budget", "retries are within the budget")
	ended         = clause(13, "ended", "every job has ended, or is parked with a reason")
	kept          = lossClause(13, "kept", "every follow-up that was accepted is there")
	effected      = clause(13, "effect", "the wallet did for a job what the job's end says")
	owed          = lossClause(13, "owed", "every open question about money has a job, and nothing else has a reversal")
	finalEnd      = lossClause(13, "final", "an end that a till was told stays")
	conserved     = walletClause(14, "lines", "the lines of the book move what their operations say, and no account is overdrawn")
	totals        = walletClause(14, "sum", "the wallet's balances and what it has taken are what was given to its accounts, and what its book adds up to")
	agreed        = clause(14, "ledger", "the ledger and the wallet agree on what was taken in all")
	linear        = lossClause(15, "register", "there is an order of the calls in which each answer is what the register held")
)

func clause(invariant int, name, words string) *Clause {
	return &Clause{Invariant: invariant, Name: name, Words: words}
}

func walletClause(invariant int, name, words string) *Clause {
	return &Clause{Invariant: invariant, Name: name, Words: words, ofTheWallet: true}
}

func lossClause(invariant int, name, words string) *Clause {
	return &Clause{Invariant: invariant, Name: name, Words: words, tellsLoss: true}
}

// Clauses are all of them, in order.
func Clauses() []*Clause {
	return []*Clause{
		told, same, asAsked, firstAnswer, cancelTold, readTold, contractual, logged,
		once, givenBack, oneReversal, reserved, appliedOnce, netApproved, netDeclined, settledInTime,
		known, agrees, askedFor, decidedAtLast, inTime, handlerCount, noRow, noWallet, retryAfter,
		oneMutation, oneLookup, answerTime, callTime, sendTime, neverSeen, noProof,
		oneKey, derived, recorded, retryBudget, ended, kept, effected, owed, finalEnd,
		conserved, totals, agreed, linear,
	}
}
