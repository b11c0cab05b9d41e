// Package crashpoint names the places at which a process may die with the most
// to lose, so that tests can kill it exactly there. In a normal build Here does
// nothing; with the build tag `crashpoints`, and only then, a process whose
// environment names a point in SAFELEDGER_CRASH_AT kills itself with SIGKILL
// when it gets there. POINT:N is the n-th passage of it; POINT:N:stop stops the
// process there with SIGSTOP, until somebody sends it SIGCONT.
package crashpoint

// The points of one decision, in the order in which it passes them.
const (
	AfterClaim        = "after-claim"         // the claim is durable, nothing was sent
	AfterSend         = "after-send"          // the request was written, no answer was read
	AfterWalletAnswer = "after-wallet-answer" // the wallet has answered, nothing is stored
	BeforeAnswer      = "before-answer"       // the decision is stored, the till has not heard
)

// The points of one attempt of the work queue, in the order in which it passes them.
const (
	WorkerAfterLease   = "worker-after-lease"   // the lease is durable and the attempt counted, nothing was sent
	WorkerAfterLookup  = "worker-after-lookup"  // the wallet has told what it knows, nothing is stored of that
	WorkerAfterSend    = "worker-after-send"    // the wallet has answered a call, nothing is stored of that
	WorkerBeforeSettle = "worker-before-settle" // the attempt has ended, nobody has heard
	WorkerAfterSettle  = "worker-after-settle"  // its end is stored, nobody has heard
)
