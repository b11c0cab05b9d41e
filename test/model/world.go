package model

// The most that a configuration can have. They are part of the type of a state, so
// they are small.
const (
	maxRequests = 3
	maxWorkers  = 3
)

// world is everything about one key of a till at one moment: its payment and what
// follows it, in our ledger, at the wallet, in between, and in the hands of those
// who are at work. It has no clock: what matters of time is whether a window is
// open, and steps close it.
//
// It holds small integers only, so that it can be compared and hashed as it is.
type world struct {
	// broke are the promises that a step has broken by being taken, where the world
	// afterwards would not show it.
	broke promises

	led      ledger
	standby  ledger // what a standby has of it: only where it may yet be promoted
	wallet   wallet
	requests [maxRequests]request // in no order, see model.canonical
	workers  [maxWorkers]worker   // in no order
	till     till

	failovers uint8 // that may still come
	claims    uint8 // how often the key was claimed: once, unless a claim was lost
	sends     uint8 // of the decision path, on the wire
	looks     uint8 // lookups of the decision path
}

// ledger is what is stored: the rows of migrations/00001 and 00002 that belong to the key.
type ledger struct {
	pay payment
	ops [3]operation // the reversal, and up to two follow-ups that tills ask for
}

// payment is the key's row of payments.
type payment struct {
	state payState
	code  code
	body  body
	claim uint8 // which claim made it: the row's id
}

// payState is payments.state.
type payState uint8

const (
	noPayment payState = iota
	inFlight
	approved
	declined
)

// code is payments.code.
type code uint8

const (
	noCode            code = iota
	walletRejected         // whatever the wallet says no with
	walletUnavailable      // WALLET_UNAVAILABLE
	walletTimeout          // WALLET_TIMEOUT
	cancelledByKey         // CANCELLED
)

// body is what a request asks for, hence its fingerprint and, for all that the
// wallet knows, its reference.
type body uint8

const (
	noBody    body = iota // of a tombstone, which does not know it
	askedFor              // the till's request
	different             // another one under the same key
)

// operation is a row of operations.
type operation struct {
	state     opState
	leased    bool  // leased_turn is not null: an attempt is out, or was never reported
	resolve   bool  // begin with a lookup
	attempts  uint8 // sends as counted: 0, 1, 2 = several
	window    window
	target    bool  // of a reversal: target_id is known
	cancelled bool  // of a release: it is what undoes a cancelled hold
	checks    uint8 // of a reversal that has ended NOT_APPLIED: late checks still to come
}

// opState is operations.state.
type opState uint8

const (
	noOperation opState = iota
	pending
	succeeded
	rejected
	notApplied
	parked
)

// window is the settle window: of a reversal it begins with the decline, of a
// follow-up when a send of it last ended in doubt (doubt_at).
type window uint8

const (
	noWindow window = iota
	openWindow
	closedWindow
)

// The places of operations in ledger.ops. What the tills ask for are two credits of a
// debit, or the capture and the release of a hold.
const (
	reversal = iota
	first
	second

	capture = first
	release = second
)

// wallet is the wallet and the way to it.
type wallet struct {
	book    [references]standing
	balance int8 // of the account
	held    int8
	taken   int8 // all that was debited or captured
	given   int8 // all that was credited

	// flying are the requests on their way whose sender has stopped waiting: 0, 1, 2 =
	// several. They are delivered at any time, or never.
	flying [references]uint8
	// undoes is how much the reversal's requests ask for: what they say, not what is
	// right.
	undoes uint8
}

// reference is what the wallet knows an operation by.
type reference uint8

const (
	refPayment  reference = iota // derived from the till's request
	refOther                     // derived from another request, or drawn
	refReversal                  // derived from the payment's
	refFirst                     // of the follow-ups
	refSecond                    //
	refAgain                     // what no correct protocol sends: a second one for something that has one
	references  = iota
	noReference = references
)

// standing is what the wallet remembers of a reference.
type standing uint8

const (
	unknown standing = iota
	applied
	appliedTwice // it had forgotten the first time
	refused      // for a reason of its own: no money, a locked account
	refusedNotActive
	refusedCaptured
)

// wire is what a sender knows of the request that it waits for.
type wire uint8

const (
	silent wire = iota
	flying
	yes
	no          // a verdict
	noNotActive // HOLD_NOT_ACTIVE
	noCaptured  // HOLD_ALREADY_CAPTURED
	notNow      // 429 and its like: nothing about this operation
	lost        // it will never arrive
)

// request is one request of the till for the key, and its handler.
type request struct {
	phase   requestPhase
	body    body
	claim   uint8 // the row that it owns
	wire    wire
	verdict verdict
}

// requestPhase is how far internal/decision has come. A handler that was killed is
// gone; one that is stopped, for however long, simply takes no step.
type requestPhase uint8

const (
	notArrived    requestPhase = iota // not sent, or on its way to us
	ready                             // claimed; has looked at its deadline and may write the next moment
	waiting                           // the request is written
	concluded                         // it knows its verdict, and has not stored it
	answeredFirst                     // only with a bug: it has answered, and not stored
	halfStored                        // only with a bug: the decline is stored, the reversal is not
	gone                              // answered, or killed
)

// verdict is a payment.Decision.
type verdict uint8

const (
	noVerdict verdict = iota
	approve
	declineRejected
	declineUnavailable
	declineUnavailableAndReverse
	declineTimeout // only with a bug
	declineTimeoutAndReverse
)

// worker is a goroutine of internal/queue with the work that it has leased. It is a
// zombie when somebody else has taken over: not current any more, and it does not know.
type worker struct {
	phase   workerPhase
	op      uint8
	current bool // its fence is the row's
	astray  bool // it is of before a failover: its fence may be given to another

	// What the lease said (payment.Work), and what follows from it.
	before   uint8 // sends before this one, as counted: 0, 1, 2 = several
	resolve  bool
	mayLand  bool // an earlier send ended in doubt, and the window after that is open
	tooEarly bool // of a reversal: the settle window was open
	late     bool // of a reversal: it has ended NOT_APPLIED, this is a late check
	target   bool // of a reversal: what it must undo is known
	amount   uint8

	wire wire
	no   wire // the refusal that it wants to understand
	end  settlement
}

// workerPhase is how far internal/queue/attempt.go has come.
type workerPhase uint8

const (
	idle          workerPhase = iota
	lookingForIt              // the reversal's first half: look the payment up
	resolving                 // look our own reference up before anything is sent
	sending                   // may write the next moment
	awaiting                  // the request is written
	comprehending             // look our own reference up after a refusal
	settling                  // the attempt is made, its end not yet written
)

// settlement is payment.Settlement.
type settlement struct {
	state   opState
	code    wire // the refusal that it ends with
	resolve bool
	doubt   bool
	unspent bool
	checks  uint8
	early   bool // only with a bug: whether it has ended is left to the moment of writing
}

// till is what the till has been told, and what it may still do.
type till struct {
	heard     payState // a decision: approved or declined
	code      code
	cancelled bool // a cancel was answered with 200
	cancels   uint8
}

// abandon is a sender that stops waiting for the request with ref: if it has not
// arrived, it may do so at any time.
func (w *world) abandon(ref reference, state wire) {
	if state == flying {
		w.wallet.flying[ref] = min(2, w.wallet.flying[ref]+1)
	}
}

// opReference is the reference of a follow-up.
func opReference(op uint8) reference {
	switch op {
	case first:
		return refFirst
	case second:
		return refSecond
	}
	return refReversal
}
