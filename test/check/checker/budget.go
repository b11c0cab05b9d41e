package checker

import (
	"time"
)

// The numbers of the retry budget (contract section 4), of each replica.
const (
	budgetStart    = 10.0
	budgetMost     = 100.0
	budgetPerFirst = 0.1
)

// judgeBudget holds the retries on the wire to the budget. In any stretch of time a
// replica may have spent what its bucket held at most, and what was put in meanwhile:
// a tenth of a token for each first attempt, one for each second, and one more than it
// had cost for each retry that was answered. So of retries without an answer there are,
// in no stretch of time, more than that.
func (w *world) judgeBudget() {
	replicas := w.opts.Workers
	if replicas == 0 {
		replicas = atOnce(w.workers.alive)
	}
	if replicas == 0 || w.lastEvent == 0 {
		return // void: nobody has said how many there were
	}
	seconds := int(w.lastEvent.sub(w.firstEvent)/time.Second) + 1
	spent := make([]float64, seconds)
	second := func(m moment) int { return min(max(int(m.sub(w.firstEvent)/time.Second), 0), seconds-1) }
	var firsts, retries, unanswered int
	for _, j := range w.jobs {
		answeredBy := map[int64]bool{}
		for _, l := range j.wire.of(func(l seen) bool { return l.event == answer }) {
			answeredBy[l.exchange] = l.whole && (l.status >= 200 && l.status < 300 || l.status >= 400 && l.status < 500 && l.code != "")
		}
		for n, l := range j.wire.arrivals() {
			switch {
			case n == 0:
				firsts++
				spent[second(l.at)] -= budgetPerFirst
			case answeredBy[l.exchange]:
				retries++
				spent[second(l.at)]--
			default:
				retries++
				unanswered++
				spent[second(l.at)]++
			}
		}
	}
	w.report.Firsts, w.report.Retries = int64(firsts), int64(retries)
	if retries == 0 {
		return
	}
	w.checked(retryBudget)

	// The stretch that has spent most: what came before it is left out as soon as it
	// would only help.
	var most, sum float64
	var from, mostFrom, mostTo int
	for i, s := range spent {
		sum += s - float64(replicas)
		if sum <= 0 {
			sum, from = 0, i+1
		}
		if sum > most {
			most, mostFrom, mostTo = sum, from, i
		}
	}
	// A second at either end may be counted to the one beside it.
	allowed := float64(replicas)*(budgetMost+2) + budgetStart*float64(max(w.workers.started-replicas, 0))
	if most > allowed {
		w.violate(retryBudget, nil, "from second %d to %d of the run %.0f more retries without an answer were sent than were paid for; %d replicas can have saved %.0f",
			mostFrom, mostTo, most, replicas, allowed)
	}
}
