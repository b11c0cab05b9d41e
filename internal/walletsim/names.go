package walletsim

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Name is an account prefix that makes the wallet misbehave: the way in which a
// person, at a till or with curl, asks for a fault. An account is
// PREFIX-anything, or PREFIX-argument-anything; what follows is free, so that
// there are as many such accounts as one wants. Prefixes are in capitals.
//
// A name is asked after all rules, and in every version and operation that
// moves money on the account; lookups answer truthfully, but for BLIND.
type Name struct {
	Prefix  string
	Example string // a whole account
	Does    string // in one line, for the page that people read
	Shows   string // what a caller that is built to the contract makes of it

	fault func(argument) Fault
	// blind names let lookups fail as well.
	blind bool
}

// argument is what stands between a prefix and the rest, "" if nothing does.
type argument string

// milliseconds is the argument as a duration, or otherwise where it is not a number.
func (a argument) milliseconds(otherwise time.Duration) time.Duration {
	ms, err := strconv.ParseUint(string(a), 10, 31)
	if err != nil {
		return otherwise
	}
	return time.Duration(ms) * time.Millisecond
}

// code is the argument as a wallet's code, or otherwise where it is not one.
func (a argument) code(otherwise string) string {
	if a == "" || a[0] < 'A' || a[0] > 'Z' || strings.Trim(string(a), "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") != "" {
		return otherwise
	}
	return string(a)
}

// status is the argument as an HTTP status, or otherwise where it is not one.
func (a argument) status(otherwise int) int {
	status, err := strconv.ParseUint(string(a), 10, 31)
	if err != nil || len(a) != 3 {
		return otherwise
	}
	return int(status)
}

// What a name without an argument stands for.
const (
	defaultSlow    = 1500 * time.Millisecond // over a decision call's 800 ms, under the server budget
	defaultLate    = 5 * time.Second         // long after everybody has left
	defaultPending = 30 * time.Second
)

// Names are the account prefixes, in the order in which docs/walletsim.md tells them.
func Names() []Name {
	return []Name{
		{
			Prefix: "SLOW", Example: "SLOW-1500-anna", Does: "applies at once, answers after that many milliseconds (1500)",
			Shows: "up to 800 ms an approval; beyond it the lookup finds the debit: still an approval",
			fault: func(a argument) Fault { return Slow(a.milliseconds(defaultSlow)) },
		},
		{
			Prefix: "LATE", Example: "LATE-5000-anna", Does: "never answers, applies that many milliseconds (5000) after the request",
			Shows: "declined WALLET_TIMEOUT; the debit lands afterwards and is reversed",
			fault: func(a argument) Fault { return Late(a.milliseconds(defaultLate)) },
		},
		{
			Prefix: "HANG", Example: "HANG-anna", Does: "never answers, applies nothing",
			Shows: "declined WALLET_TIMEOUT; the reversal finds nothing to undo",
			fault: func(argument) Fault { return Stall() },
		},
		{
			Prefix: "DOWN", Example: "DOWN-anna", Does: "503, applies nothing",
			Shows: "declined WALLET_UNAVAILABLE, with a reversal, because a gateway's 503 proves nothing",
			fault: func(argument) Fault { return Down() },
		},
		{
			Prefix: "GATEWAY", Example: "GATEWAY-anna", Does: "applies, then a gateway in between answers 502 with HTML",
			Shows: "declined WALLET_UNAVAILABLE; the debit is found and reversed",
			fault: func(argument) Fault { return Gateway(http.StatusBadGateway) },
		},
		{
			Prefix: "LOST", Example: "LOST-anna", Does: "applies, then closes the connection without an answer",
			Shows: "the lookup finds the debit: an approval",
			fault: func(argument) Fault { return LoseAnswer(FIN) },
		},
		{
			Prefix: "BLIND", Example: "BLIND-anna", Does: "as LOST, and lookups are answered 503",
			Shows: "declined WALLET_TIMEOUT; the reversal looks again until it can see",
			fault: func(argument) Fault { return LoseAnswer(FIN) }, blind: true,
		},
		{
			Prefix: "RESET", Example: "RESET-anna", Does: "resets the connection after reading, applies nothing",
			Shows: "the lookup finds nothing, which is no proof: declined WALLET_TIMEOUT, with a reversal",
			fault: func(argument) Fault { return Fault{Cut: Ending{AfterReading, RST}} },
		},
		{
			Prefix: "CUT", Example: "CUT-anna", Does: "applies, then breaks off in the middle of the answer",
			Shows: "half an answer is none; the lookup finds the debit: an approval",
			fault: func(argument) Fault { return Fault{Cut: Ending{MidBody, FIN}} },
		},
		{
			Prefix: "FOREIGN", Example: "FOREIGN-anna", Does: "applies, then gives the answer of another reference",
			Shows: "not our answer; the lookup finds the debit: an approval",
			fault: func(argument) Fault { return Fault{Foreign: ForeignReference} },
		},
		{
			Prefix: "TWICE", Example: "TWICE-anna", Does: "applies once, sends the answer twice",
			Shows: "an approval; the second answer must not become the next request's",
			fault: func(argument) Fault { return Fault{Duplicate: true} },
		},
		{
			Prefix: "STATUS", Example: "STATUS-500-anna", Does: "that status (500) without a body, applies nothing",
			Shows: "4xx: declined WALLET_REJECTED, with a reversal; 5xx and 3xx: the lookup decides",
			fault: func(a argument) Fault {
				return Fault{Apply: Never, Status: new(a.status(http.StatusInternalServerError)), Body: new("")}
			},
		},
		{
			Prefix: "REDIRECT", Example: "REDIRECT-anna", Does: "307 to another path, applies nothing",
			Shows: "not followed; the lookup finds nothing: declined WALLET_TIMEOUT, with a reversal",
			fault: func(argument) Fault {
				return Fault{Apply: Never, Status: new(http.StatusTemporaryRedirect), Body: new(""), Header: map[string]string{"Location": "/elsewhere"}}
			},
		},
		{
			Prefix: "PENDING", Example: "PENDING-30000-anna", Does: "202 PENDING, applied that many milliseconds (30000) later",
			Shows: "no evidence: declined WALLET_TIMEOUT; the debit lands afterwards and is reversed",
			fault: func(a argument) Fault { return Fault{Apply: Pending, After: a.milliseconds(defaultPending)} },
		},
		{
			Prefix: "REJECT", Example: "REJECT-CARD_STOLEN-anna", Does: "refuses with that code (" + defaultRefusalCode + "), 409",
			Shows: "declined with the wallet's code",
			fault: func(a argument) Fault { return Fault{Apply: Refuse, Code: a.code(defaultRefusalCode)} },
		},
		{
			Prefix: "LOCKED", Example: "LOCKED-anna", Does: "423 " + accountLocked,
			Shows: "declined " + accountLocked,
			fault: func(argument) Fault { return Fault{Apply: Refuse, Code: accountLocked} },
		},
		{
			Prefix: "MISSING", Example: "MISSING-anna", Does: "404 " + accountNotFound,
			Shows: "declined " + accountNotFound,
			fault: func(argument) Fault { return Fault{Apply: Refuse, Code: accountNotFound} },
		},
		{
			Prefix: poorPrefix, Example: "POOR-anna", Does: "an account that opens itself with nothing on it",
			Shows: "declined " + insufficientFunds,
			fault: func(argument) Fault { return Fault{} },
		},
	}
}

const poorPrefix = "POOR"

// ofName is what the name of r's account does to r; nil if it is a plain name.
func ofName(names map[string]Name, r *Request) *Rule {
	prefix, rest, found := strings.Cut(r.Account, "-")
	if !found {
		return nil
	}
	name, known := names[prefix]
	if !known || r.Operation == "" {
		return nil
	}
	if r.Operation == Lookup {
		if !name.blind {
			return nil
		}
		return &Rule{Name: prefix, Fault: Fault{Status: new(http.StatusServiceUnavailable), Body: new("")}}
	}
	var a argument
	if first, _, more := strings.Cut(rest, "-"); more {
		a = argument(first)
	}
	return &Rule{Name: prefix, Fault: name.fault(a)}
}

// namedBalance is what an account with this name opens itself with.
func namedBalance(account string) int64 {
	if strings.HasPrefix(account, poorPrefix+"-") {
		return 0
	}
	return openingBalance
}
