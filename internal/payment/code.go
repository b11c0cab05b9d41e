package payment

import "strings"

// Code says why a payment was declined or a follow-up refused: the wallet's own
// word, or one of ours.
type Code string

// Our own codes (contract section 1). WalletUnavailable and WalletTimeout are
// the ones for which a till may try again, with a new key.
const (
	WalletUnavailable Code = "WALLET_UNAVAILABLE"
	WalletTimeout     Code = "WALLET_TIMEOUT"
	WalletRejected    Code = "WALLET_REJECTED" // the wallet said no and gave no usable code
	Cancelled         Code = "CANCELLED"
)

// Retryable reports whether a till may try again with a new Idempotency-Key:
// the wallet did not decide. It separates 424 from 402.
func (c Code) Retryable() bool { return c == WalletUnavailable || c == WalletTimeout }

// maxCodeLength bounds what a wallet may put into our ledger and answers.
const maxCodeLength = 64

// WalletCode is the code that a wallet gave, or WalletRejected where it gave
// none that can be passed on: not [A-Z][A-Z0-9_]{0,63}, or one that is ours
// (contract section 1): a till must be able to trust that CANCELLED and
// WALLET_… were said by SafeLedger.
func WalletCode(s string) Code {
	if len(s) == 0 || len(s) > maxCodeLength || s[0] < 'A' || s[0] > 'Z' {
		return WalletRejected
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' {
			return WalletRejected
		}
	}
	if s == string(Cancelled) || strings.HasPrefix(s, "WALLET_") {
		return WalletRejected
	}
	return Code(s)
}
