package model

// step is something that happens, and to what: an operation, a reference, or a variant.
type step struct {
	kind stepKind
	on   uint8
	key  uint8 // of a basket with two
}

// stepKind is what happens.
type stepKind uint8

const (
	tillAsks stepKind = iota
	tillHearsAgain
	tillIsTurnedAway
	tillCancels
	tillAsksForFollowUp

	handlerWrites
	handlerSendsNothing
	handlerIsAnswered
	handlerMeetsGateway
	handlerGivesUp
	handlerLooksUp
	handlerStores
	handlerCannotStore
	handlerAnswersFirst
	handlerWritesReversal
	handlerDies

	recoveryDeclines

	workerLeases
	workerTakesOver
	workerIsOvertaken
	workerLooksForPayment
	workerSeesNothing
	workerSeesTooLittle
	workerResolves
	workerWrites
	workerSendsNothing
	workerIsAnswered
	workerEndsInDoubt
	workerComprehends
	workerSettles
	workerIsFenced
	workerDies

	walletIsReached
	walletPutsOff
	requestArrivesLate
	requestIsRepeated

	windowCloses

	standbyFollows
	standbyIsPromoted

	operatorRedrives
	operatorSettles

	stepKinds = iota
)

// sort says whose doing a step is.
type sort uint8

const (
	ours    sort = iota // the service's, or the wallet's, as they should
	asked               // by a till or an operator: it may never come
	faulty              // what goes wrong
	passing             // time, and what time does to messages
)

// about says what step.on is.
type about uint8

const (
	aboutNothing about = iota
	aboutBody
	aboutVerdict
	aboutOperation
	aboutReference
)

// stepInfo is what is known of a kind of steps.
type stepInfo struct {
	text  string // for a story
	about about
	sort  sort
	// code is the file and the function that this is, "" for what is not ours. Where a
	// step is something's failure, it is the function that lives with it.
	code string
}

// byItself reports whether a step comes without a fault, and without being asked for.
func (s step) byItself() bool {
	switch stepTable[s.kind].sort {
	case ours, passing:
		return true
	case asked, faulty:
	}
	return false
}

// stepTable says what each kind is, and where it is in the code.
var stepTable = [stepKinds]stepInfo{ //nolint:gochecknoglobals // a table
	tillAsks:            {"a request arrives and its handler claims the key", aboutBody, asked, "internal/ledger/ledger.go Claim"},
	tillHearsAgain:      {"a request arrives and is told what was decided", aboutBody, asked, "internal/decision/decision.go existing"},
	tillIsTurnedAway:    {"a request arrives and is told 409 or 422", aboutBody, asked, "internal/decision/decision.go existing"},
	tillCancels:         {"the till cancels the key", aboutNothing, asked, "internal/ledger/followups.go CancelByKey"},
	tillAsksForFollowUp: {"the till asks for a follow-up, which is accepted", aboutOperation, asked, "internal/ledger/followups.go Accept"},

	handlerWrites:         {"a handler writes its request to the wallet", aboutNothing, ours, "internal/decision/decision.go ask"},
	handlerSendsNothing:   {"a handler sends nothing: no place, no time, no connection", aboutNothing, faulty, "internal/decision/decision.go unsent"},
	handlerIsAnswered:     {"a handler reads the wallet's answer", aboutVerdict, ours, "internal/decision/decision.go conclude"},
	handlerMeetsGateway:   {"a handler reads a 502 or 503 of something before the wallet", aboutVerdict, faulty, "internal/payment/outcome.go Unproven"},
	handlerGivesUp:        {"a handler gives up waiting, and its lookup shows nothing or cannot be made", aboutVerdict, passing, "internal/decision/decision.go conclude"},
	handlerLooksUp:        {"a handler gives up waiting and looks its reference up", aboutVerdict, ours, "internal/decision/decision.go ask"},
	handlerStores:         {"a handler stores its verdict, and the till hears what is stored then", aboutNothing, ours, "internal/ledger/ledger.go Decide"},
	handlerCannotStore:    {"a handler finds no row to decide, and answers that the outcome is unknown", aboutNothing, ours, "internal/ledger/ledger.go decided"},
	handlerAnswersFirst:   {"a handler answers before it has stored", aboutNothing, ours, ""},
	handlerWritesReversal: {"a handler writes the reversal in a second transaction", aboutNothing, ours, ""},
	handlerDies:           {"a handler is killed, or stopped for good", aboutNothing, faulty, "internal/crashpoint/on.go Here"},

	recoveryDeclines: {"recovery declines what is in flight", aboutNothing, ours, "internal/ledger/recovery.go Recover"},

	workerLeases:          {"a worker leases", aboutOperation, ours, "internal/ledger/queue.go Lease"},
	workerTakesOver:       {"a worker takes over what was never reported", aboutOperation, ours, "internal/ledger/queue.go Lease"},
	workerIsOvertaken:     {"a worker takes over from one that still lives, but is late", aboutOperation, faulty, "internal/ledger/queue.go Lease"},
	workerLooksForPayment: {"a worker looks the payment up", aboutOperation, ours, "internal/queue/reversal.go look"},
	workerSeesNothing:     {"a worker's lookup gives no evidence", aboutOperation, faulty, "internal/queue/attempt.go noEvidence"},
	workerSeesTooLittle:   {"a worker's lookup does not show yet what the wallet has done", aboutOperation, faulty, "internal/wallet/classify.go classifyLookup"},
	workerResolves:        {"a worker looks up what became of the sends before", aboutOperation, ours, "internal/queue/attempt.go apply"},
	workerWrites:          {"a worker writes its request to the wallet", aboutOperation, ours, "internal/queue/attempt.go transmit"},
	workerSendsNothing:    {"a worker sends nothing", aboutOperation, faulty, "internal/queue/attempt.go postpone"},
	workerIsAnswered:      {"a worker reads the wallet's answer", aboutOperation, ours, "internal/queue/attempt.go judge"},
	workerEndsInDoubt:     {"a worker gives up waiting, or reads a 502 or 503", aboutOperation, faulty, "internal/queue/attempt.go again"},
	workerComprehends:     {"a worker looks up whether a refusal is about a send before", aboutOperation, ours, "internal/queue/attempt.go verdict"},
	workerSettles:         {"a worker settles", aboutOperation, ours, "internal/ledger/queue.go Settle"},
	workerIsFenced:        {"a worker that was overtaken settles nothing", aboutOperation, ours, "internal/ledger/queue.go Settle"},
	workerDies:            {"a worker is killed, or stopped for good", aboutOperation, faulty, "internal/crashpoint/on.go Here"},

	walletIsReached:    {"the wallet gets and answers the request", aboutReference, ours, "internal/walletsim/money.go decide"},
	walletPutsOff:      {"the wallet answers 429 and does nothing about the request", aboutReference, faulty, "internal/payment/outcome.go NotAboutThis"},
	requestArrivesLate: {"the wallet gets a request that nobody waits for any more", aboutReference, ours, "internal/walletsim/money.go decide"},
	requestIsRepeated:  {"the network makes a second request of that", aboutReference, faulty, ""},

	windowCloses: {"the settle window closes", aboutOperation, passing, "internal/queue/reversal.go notFound"},

	standbyFollows:    {"the standby catches up", aboutNothing, passing, ""},
	standbyIsPromoted: {"the primary is lost and the standby promoted as it is", aboutNothing, faulty, ""},

	operatorRedrives: {"an operator redrives", aboutOperation, asked, "internal/ledger/operators.go Redrive"},
	operatorSettles:  {"an operator settles by hand", aboutOperation, asked, "internal/ledger/operators.go SettleByHand"},
}
