package checker

import (
	"fmt"
	"slices"
	"time"
)

// Options are the numbers that a run is judged by. Make them with Defaults.
type Options struct {
	// The contract's, as the run was configured.
	ServerBudget, NetworkReserve time.Duration
	DecisionCall, LookupCall     time.Duration
	WorkerCall, ConnectTimeout   time.Duration
	MinToSend, RecoveryGrace     time.Duration
	SettleWindow                 time.Duration
	// SettleSLA is how long after it was applied, or declined, a decline's money may be
	// out; 0 does not judge it.
	SettleSLA time.Duration
	// Slack is what a busy machine may add to any duration, and ClockSlack how far the
	// clocks of the database, the wallet and the tills may be apart.
	Slack, ClockSlack time.Duration
	// Workers is how many replicas with workers there were at once; 0 finds out from
	// their logs.
	Workers int
	// Lossy judges a run in which an asynchronous replica was promoted: keys of which
	// something was lost are counted apart, and only held to what the wallet's side must
	// keep.
	Lossy bool
	// Unsettled is for a run that is not quiet yet: what still waits is no violation.
	Unsettled bool
	// Most is how many violations of a clause are kept with their histories. All are
	// counted.
	Most int
}

// Defaults are the contract's numbers.
func Defaults() Options {
	return Options{
		ServerBudget: 2400 * time.Millisecond, NetworkReserve: 600 * time.Millisecond,
		DecisionCall: 800 * time.Millisecond, LookupCall: 300 * time.Millisecond, WorkerCall: 2 * time.Second,
		ConnectTimeout: 200 * time.Millisecond, MinToSend: 50 * time.Millisecond,
		RecoveryGrace: 5 * time.Second, SettleWindow: 15 * time.Minute, SettleSLA: 20 * time.Minute,
		Slack: 100 * time.Millisecond, ClockSlack: 5 * time.Millisecond, Most: 20,
	}
}

// Violation is a promise that was broken.
type Violation struct {
	Clause Clause
	// Key is whose it is, in words; "" where it is nobody's.
	Key  string
	Text string
	// History is everything that is known of that key, in the order of time.
	History []Moment

	subject *subject
	where   where
}

// where is a line of one of the logs, the zero where none is meant.
type where struct {
	log   log
	place place
}

// log says in which log a line is.
type log uint8

const (
	noLog log = iota
	tillLog
	bookLog
	responseLog
)

func inTills(p place) where { return where{tillLog, p} }
func inBook(p place) where  { return where{bookLog, p} }

// Report is what a run was found to be.
type Report struct {
	Violations []Violation `json:"-"`
	// Checked and Broken count by clause.
	Checked, Broken map[Clause]int64 `json:"-"`

	// What there was.
	Payments, FollowUps, WalletCalls int64
	Calls, Mutations, Answers        int64
	Failed, Unanswered               int64
	BookLines, ResponseLines         int64
	Noise                            int64            // lines of processes that are no JSON
	States, Ends                     map[string]int64 // of payments, and of follow-ups by kind
	Statuses                         map[int]int64    // of answers
	Faults                           map[string]int64 // requests that a rule of the wallet struck
	Disturbances                     int64

	// What became of money in doubt.
	UndoneDeclines, Parked, ByHand int64
	ParkedMoney                    map[string]int64 // by currency: applied, declined, and its reversal is parked

	Attempts, Arrivals    int64 // of jobs: counted, and on the wire
	Firsts, Retries       int64 // on the wire
	Registers, Concurrent int64 // keys whose calls were put in order, and those with calls at the same time

	LostKeys  int64            // see Options.Lossy
	LostMoney map[string]int64 // by currency: what the wallet keeps of them

	// Of the payments of which something that gave back was lost: those of which more was
	// given back than was taken, and how much more, by currency.
	GivenTwice      int64
	GivenTwiceMoney map[string]int64

	InFlight, Undoing time.Duration // the longest
	Answering         Times

	took []time.Duration
}

// Times are how long answers took.
type Times struct{ Median, P99, Longest time.Duration }

func newReport() *Report {
	return &Report{
		Checked: map[Clause]int64{}, Broken: map[Clause]int64{}, States: map[string]int64{}, Ends: map[string]int64{},
		Statuses: map[int]int64{}, Faults: map[string]int64{}, ParkedMoney: map[string]int64{}, LostMoney: map[string]int64{}, GivenTwiceMoney: map[string]int64{},
	}
}

// checked counts a case in which c could have been broken.
func (w *world) checked(c Clause) { w.report.Checked[c]++ }

// violate says that c is broken, of s where it is somebody's.
func (w *world) violate(c Clause, s *subject, format string, args ...any) {
	w.violateAt(c, s, where{}, format, args...)
}

// violateAt is violate for what one line shows.
func (w *world) violateAt(c Clause, s *subject, at where, format string, args ...any) {
	if w.lossy && clauses[c].kind == tellsLoss && s != nil {
		s.lost = true // counted apart
		return
	}
	w.report.Broken[c]++
	if w.report.Broken[c] > int64(w.opts.Most) && !w.lossy {
		return
	}
	w.report.Violations = append(w.report.Violations, Violation{Clause: c, Text: fmt.Sprintf(format, args...), subject: s, where: at})
}

// leaveOutLost takes away what was found of keys that a failover has lost, but for what
// the wallet's side must keep even then; and bounds what is kept of the rest.
func (w *world) leaveOutLost() {
	r := w.report
	r.Violations = slices.DeleteFunc(r.Violations, func(v Violation) bool {
		lost := v.subject != nil && v.subject.lost && clauses[v.Clause].kind != ofTheWallet
		if lost {
			if r.Broken[v.Clause]--; r.Broken[v.Clause] == 0 {
				delete(r.Broken, v.Clause)
			}
		}
		return lost
	})
	kept := map[Clause]int{}
	r.Violations = slices.DeleteFunc(r.Violations, func(v Violation) bool {
		kept[v.Clause]++
		return kept[v.Clause] > w.opts.Most
	})
}

// answerTook keeps how long an answer took.
func (r *Report) answerTook(d time.Duration) { r.took = append(r.took, d) }

// times sums up how long answers took.
func (r *Report) times() {
	if len(r.took) == 0 {
		return
	}
	slices.Sort(r.took)
	n := len(r.took)
	r.Answering = Times{r.took[n/2], r.took[min(n*99/100, n-1)], r.took[n-1]}
	r.took = nil
}

// park counts the money of a decline whose reversal a person must look at.
func (r *Report) park(p *payment) { r.ParkedMoney[p.currency] += p.amount }

// Void are the invariants that were checked in no case at all: a run that says nothing
// about them.
func (r *Report) Void() (void []int) {
	var checked [invariants + 1]int64
	for c, n := range r.Checked {
		checked[c.Invariant()] += n
	}
	for i := 1; i <= invariants; i++ {
		if checked[i] == 0 {
			void = append(void, i)
		}
	}
	return void
}

// Clean reports whether no promise was broken.
func (r *Report) Clean() bool { return len(r.Broken) == 0 }
