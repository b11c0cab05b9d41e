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

// Clause is a part of an invariant. The zero Clause is none.
type Clause uint8

// The clauses, in the order of their invariants.
const (
	_ Clause = iota
	told
	same
	asAsked
	firstAnswer
	cancelTold
	readTold
	contractual
	logged
	once
	givenBack
	oneReversal
	reserved
	appliedOnce
	netApproved
	netDeclined
	settledInTime
	known
	agrees
	askedFor
	decidedAtLast
	inTime
	handlerCount
	noRow
	noWallet
	retryAfter
	oneMutation
	oneLookup
	answerTime
	callTime
	sendTime
	neverSeen
	noProof
	oneKey
	derived
	recorded
	retryBudget
	ended
	kept
	effected
	owed
	finalEnd
	conserved
	totals
	agreed
	linear
	clauseCount
)

// clauseOf is what is known of a clause.
type clauseOf struct {
	invariant   int
	name, words string
	kind        clauseKind
}

// clauseKind says how a clause fares after a failover that may have lost something.
type clauseKind uint8

const (
	ofTheLedger clauseKind = iota // what was lost of a key is not held to it
	ofTheWallet                   // it must hold even then
	tellsLoss                     // this is how it shows that something was lost
)

var clauses = [clauseCount]clauseOf{ //nolint:gochecknoglobals // a table
	told:          {1, "stored", "an answer is what is stored under its key", tellsLoss},
	same:          {1, "same", "every answer to a key that tells its decision, or its acceptance, is the same byte for byte", tellsLoss},
	asAsked:       {1, "asked", "a decision is told for the request that was decided, and no other", ofTheLedger},
	firstAnswer:   {1, "first", "one answer at most is not marked as a replay", tellsLoss},
	cancelTold:    {1, "cancelled", "PAYMENT_CANCELLED is told of an approval that the till has cancelled, and of nothing else", tellsLoss},
	readTold:      {1, "read", "a read shows what is stored", tellsLoss},
	contractual:   {1, "contract", "every answer is one of the contract's", ofTheLedger},
	logged:        {1, "logged", "what a process says that it has answered is what is stored", tellsLoss},
	once:          {2, "once", "at most one debit or hold of a key is applied", ofTheWallet},
	givenBack:     {3, "given", "at no time has more been given back than was taken", ofTheWallet},
	oneReversal:   {3, "reversal", "a payment is reversed once at most", ofTheWallet},
	reserved:      {3, "reserved", "what is accepted to be given back is not more than what was taken", ofTheLedger},
	appliedOnce:   {4, "applied", "an approval stands for one applied effect, of that id, account and amount", ofTheLedger},
	netApproved:   {4, "net", "what the wallet keeps is what was approved, less what was given back; nothing if it was cancelled", ofTheLedger},
	netDeclined:   {5, "net", "what was applied of a decline is undone, or its reversal is parked with a reason", ofTheLedger},
	settledInTime: {5, "sla", "and it is undone in time", ofTheLedger},
	known:         {6, "row", "every reference that the wallet was asked with has a row", tellsLoss},
	agrees:        {6, "agrees", "and the wallet was asked for what that row says", ofTheLedger},
	askedFor:      {6, "asked", "every row was asked for by a till", ofTheLedger},
	decidedAtLast: {7, "decided", "nothing is in flight in the end", ofTheLedger},
	inTime:        {7, "horizon", "no key was in flight for longer than recovery takes", ofTheLedger},
	handlerCount:  {8, "handler", "a request that was answered 503 with Retry-After was begun by no handler, and its refusal is logged", ofTheLedger},
	noRow:         {8, "row", "and no row of its key was written by it", ofTheLedger},
	noWallet:      {8, "wallet", "and a key that was only ever refused was never on the wire to the wallet", ofTheLedger},
	retryAfter:    {8, "form", "503 with Retry-After is the gate's, and Retry-After stands nowhere else than the contract says", ofTheLedger},
	oneMutation:   {9, "mutation", "a debit or hold is on the wire once at most", ofTheLedger},
	oneLookup:     {9, "lookup", "one lookup at most while it is decided, and only after a call that ended in doubt", ofTheLedger},
	answerTime:    {10, "answer", "the answer leaves within the effective budget and 300 ms", ofTheLedger},
	callTime:      {10, "call", "a decision's call, its lookup, a connect and a worker's attempt keep to their limits", ofTheLedger},
	sendTime:      {10, "send", "nothing is sent with less than the minimum left", ofTheLedger},
	neverSeen:     {11, "unsent", "a call that was certainly not sent is not in the wallet's book", ofTheLedger},
	noProof:       {11, "evidence", "not found is no proof: only the wallet's no, or a lookup after the settle window, ends a question", ofTheLedger},
	oneKey:        {12, "key", "the outbound Idempotency-Key is the reference, on every attempt", ofTheWallet},
	derived:       {12, "derived", "references are derived from caller, operation, key and fingerprint, and no two operations share one", ofTheLedger},
	recorded:      {12, "recorded", "what the wallet saw of a job is what the ledger counted and recorded", ofTheLedger},
	retryBudget:   {12, "budget", "retries are within the budget", ofTheLedger},
	ended:         {13, "ended", "every job has ended, or is parked with a reason", ofTheLedger},
	kept:          {13, "kept", "every follow-up that was accepted is there", tellsLoss},
	effected:      {13, "effect", "the wallet did for a job what the job's end says", ofTheLedger},
	owed:          {13, "owed", "every open question about money has a job, and nothing else has a reversal", tellsLoss},
	finalEnd:      {13, "final", "an end that a till was told stays", tellsLoss},
	conserved:     {14, "lines", "the lines of the book move what their operations say, and no account is overdrawn", ofTheWallet},
	totals:        {14, "sum", "the wallet's balances and what it has taken are what was given to its accounts, and what its book adds up to", ofTheWallet},
	agreed:        {14, "ledger", "the ledger and the wallet agree on what was taken in all", ofTheLedger},
	linear:        {15, "register", "there is an order of the calls in which each answer is what the register held", tellsLoss},
}

// Invariant is the number of the invariant that c is a part of.
func (c Clause) Invariant() int { return clauses[c].invariant }

// Name is what c is called within its invariant.
func (c Clause) Name() string { return clauses[c].name }

// Words are what c says.
func (c Clause) Words() string { return clauses[c].words }

// Clauses are all of them, in order.
func Clauses() (all []Clause) {
	for c := Clause(1); c < clauseCount; c++ {
		all = append(all, c)
	}
	return all
}
