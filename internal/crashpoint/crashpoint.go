// Package crashpoint names the places at which a process may die with the most
// to lose, so that tests can kill it exactly there. In a normal build Here does
// nothing; with the build tag `crashpoints`, and only then, a process whose
// environment names a point in SAFELEDGER_CRASH_AT kills itself with SIGKILL
// when it gets there.
package crashpoint

// The points of one decision, in the order in which it passes them.
const (
	AfterClaim        = "after-claim"         // the claim is durable, nothing was sent
	AfterSend         = "after-send"          // the request was written, no answer was read
	AfterWalletAnswer = "after-wallet-answer" // the wallet has answered, nothing is stored
	BeforeAnswer      = "before-answer"       // the decision is stored, the till has not heard
)
