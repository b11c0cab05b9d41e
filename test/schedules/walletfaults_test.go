package schedules

import (
	"fmt"
	"net/http"
	"time"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// walletFault is one way in which the wallet, or what is between it and us, misbehaves,
// and of what. None of them breaks what is expected of a wallet (contract section 3): it
// applies a reference once, refuses only what it does not apply, and nothing lands later
// than the day in which a reversal looks for it; of a follow-up, later than the settle
// window, in which a refusal is not yet believed.
type walletFault struct {
	name  string
	of    []walletsim.Operation
	fault walletsim.Fault
}

var (
	ofPayments   = []walletsim.Operation{walletsim.Debit, walletsim.Hold}
	ofFollowUps  = []walletsim.Operation{walletsim.Credit, walletsim.Capture, walletsim.Release}
	ofMutations  = []walletsim.Operation{walletsim.Debit, walletsim.Credit, walletsim.Capture, walletsim.Hold, walletsim.Release, walletsim.Mutations, walletsim.Debit, walletsim.Hold}
	ofLookups    = []walletsim.Operation{walletsim.Lookup}
	ofAll        = []walletsim.Operation{walletsim.Anything, walletsim.Mutations, walletsim.Debit, walletsim.Lookup}
	ofConnection = []walletsim.Operation{""}
)

// codeNotNow is the code of a refusal that is about the moment.
const codeNotNow = "NOT_NOW"

// walletFaults is the table. The first is what a smaller schedule tends to.
var walletFaults = allWalletFaults()

func allWalletFaults() (all []walletFault) {
	add := func(name string, of []walletsim.Operation, f walletsim.Fault) {
		all = append(all, walletFault{name, of, f})
	}
	page := "<html><body>no</body></html>\n"
	said := func(apply walletsim.Apply, status int, body string) walletsim.Fault {
		return walletsim.Fault{Apply: apply, Status: &status, Body: &body}
	}

	add("hangs", ofMutations, walletsim.Stall())
	add("applied, answer lost", ofMutations, walletsim.LoseAnswer(walletsim.FIN))
	add("applied, no answer", ofMutations, walletsim.LoseAnswer(walletsim.Hang))
	for _, d := range durations(399, 401, 799, 801, 1099, 1101, 1999, 2001, 10_000) {
		add(fmt.Sprintf("answers after %s", d), ofMutations, walletsim.Slow(d))
	}
	for _, d := range durations(799, 801, 3000) {
		add(fmt.Sprintf("applies after %s", d), ofMutations, walletsim.Fault{DelayBefore: d})
	}
	for _, at := range []walletsim.Point{walletsim.AfterReading, walletsim.AfterHead, walletsim.MidBody} {
		for _, how := range []walletsim.How{walletsim.FIN, walletsim.Hang} {
			if at != walletsim.AfterReading || how != walletsim.Hang { // that is "hangs"
				add(fmt.Sprintf("cut %s %s", at, how), ofMutations, walletsim.Fault{Cut: walletsim.Ending{At: at, How: how}})
			}
		}
	}
	for _, at := range []walletsim.Point{walletsim.Accept, walletsim.FirstByte} {
		for _, how := range []walletsim.How{walletsim.FIN, walletsim.Hang} {
			add(fmt.Sprintf("cut %s %s", at, how), ofConnection, walletsim.Fault{Cut: walletsim.Ending{At: at, How: how}})
		}
	}
	for _, status := range []int{500, 501, 502, 503, 504} {
		add(fmt.Sprintf("%d, not applied", status), ofMutations, said(walletsim.Never, status, page))
		add(fmt.Sprintf("%d, applied", status), ofMutations, walletsim.Gateway(status))
	}
	for _, status := range []int{101, 302, 307, 600} {
		add(fmt.Sprintf("%d, not applied", status), ofMutations, said(walletsim.Never, status, ""))
	}
	add("204, applied", ofMutations, said("", http.StatusNoContent, ""))
	// What is not the wallet's own word may come from anything in between, before or after.
	for _, status := range []int{400, 401, 404, 409, 408, 425, 429} {
		add(fmt.Sprintf("%d without a verdict, not applied", status), ofMutations, said(walletsim.Never, status, page))
	}
	add("404 without a verdict, applied", ofMutations, said("", http.StatusNotFound, page))
	// The wallet's own word about the moment, and not about the operation.
	for _, status := range []int{401, 403, 429} {
		add(fmt.Sprintf("%d with a code", status), ofMutations, said(walletsim.Never, status, `{"code": "`+codeNotNow+`"}`))
	}
	add("a duplicate without its id, applied", ofMutations, said("", http.StatusConflict, `{"code": "DUPLICATE_REFERENCE"}`))
	for range 3 { // the plainest of all must not be the rarest
		add("refused", ofMutations, walletsim.Fault{Apply: walletsim.Refuse, Code: "LIMIT_EXCEEDED"})
	}
	add("refused, answer lost", ofMutations, walletsim.Fault{
		Apply: walletsim.Refuse, Code: "LIMIT_EXCEEDED", Cut: walletsim.Ending{At: walletsim.AfterApplying, How: walletsim.FIN},
	})
	for _, f := range []walletsim.Foreign{walletsim.ForeignReference, walletsim.ForeignAmount, walletsim.ForeignCurrency} {
		add(fmt.Sprintf("foreign %s", f), ofAll, walletsim.Fault{Foreign: f})
	}
	add("body cut short", ofAll, walletsim.Fault{Missing: 7})
	add("last chunk missing", ofAll, walletsim.Fault{Framing: walletsim.ByChunks, Missing: 1})
	add("in chunks", ofAll, walletsim.Fault{Framing: walletsim.ByChunks})
	add("until the connection closes", ofAll, walletsim.Fault{Framing: walletsim.ByClose})
	add("too large", ofAll, walletsim.Fault{Padding: 70_000})
	add("answered twice at once", ofAll, walletsim.Fault{Duplicate: true})
	add("answered twice", ofAll, walletsim.Fault{Duplicate: true, DuplicateAfter: 5 * ms})
	add("not HTTP", ofAll, walletsim.Fault{Raw: "SSH-2.0-wallet\r\n\r\n"})
	add("interim answers first", ofAll, walletsim.Fault{Interim: []int{100, 103}})
	add("a byte at a time", ofAll, walletsim.Fault{Trickle: 9 * ms})

	for _, d := range []time.Duration{500 * ms, 3 * time.Second, 30 * time.Second, 5 * time.Minute, 14 * time.Minute} {
		add(fmt.Sprintf("no answer, lands after %s", d), ofMutations, walletsim.Late(d))
	}
	for _, d := range []time.Duration{20 * time.Minute, 3 * time.Hour} {
		add(fmt.Sprintf("no answer, lands after %s", d), ofPayments, walletsim.Late(d))
	}
	add("gone, lands after 2s", ofMutations, walletsim.Fault{
		Apply: walletsim.Later, After: 2 * time.Second, Cut: walletsim.Ending{At: walletsim.AfterApplying, How: walletsim.FIN},
	})
	for _, d := range []time.Duration{700 * ms, 20 * time.Second, 10 * time.Minute} {
		add(fmt.Sprintf("pending for %s", d), ofMutations, walletsim.Fault{Apply: walletsim.Pending, After: d})
	}
	add("pending, then refused", ofMutations, walletsim.Fault{Apply: walletsim.Pending, After: 4 * time.Second, Code: "LIMIT_EXCEEDED"})
	// A payment goes out once: it must not lean on the wallet's memory.
	add("forgets the reference", ofPayments, walletsim.Fault{ForgetDedupe: true})

	add("lookup hangs", ofLookups, walletsim.Stall())
	for _, d := range durations(299, 301, 1999, 2001) {
		add(fmt.Sprintf("lookup answers after %s", d), ofLookups, walletsim.Slow(d))
	}
	for _, status := range []int{401, 404, 429, 500, 502, 503} {
		add(fmt.Sprintf("lookup says %d", status), ofLookups, said("", status, page))
	}
	// A copy that lags behind: it has not seen the operation yet.
	add("lookup lags behind", ofLookups, said("", http.StatusNotFound, `{"code": "NOT_FOUND"}`))
	add("lookup is cut", ofLookups, walletsim.Fault{Cut: walletsim.Ending{At: walletsim.MidBody, How: walletsim.FIN}})
	return all
}
