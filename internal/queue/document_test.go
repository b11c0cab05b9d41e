package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/documenttest"
)

// Whoever sizes a wallet plans with this table. It must be what the code does.
func TestDocumentIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	want := "\nThe budget alone:\n" + table(0) + "\nWith a breaker that opens at 20 failures and lets three through every five seconds:\n" + table(5) + "\n"
	documenttest.Check(t, "../../docs/retry-budget.md", "internal/queue", want)
}

// table is a minute without the wallet and its return, a line a second where
// something changes, every ten seconds where not. The breaker lets probes through
// every so many seconds; 0 is no breaker.
func table(probeEvery int) string {
	const items, workers, up = 1000, 32, 60
	var b strings.Builder
	fmt.Fprint(&b, "```\nsecond,first_attempts,retries,answered,tokens,waiting\n")
	start := time.Time{}.Add(time.Hour)
	budget := newRetryBudget(start)
	fresh, waiting := items, items
	for second := 0; waiting > 0; second++ {
		now := start.Add(time.Duration(second) * time.Second)
		down := second < up
		firsts, wanted := fresh, waiting
		switch {
		case probeEvery == 0:
		case second == 0:
			firsts, wanted = 20, 0
		case down:
			// What the breaker postponed comes back as retries.
			budget.broken()
			if firsts, wanted = 0, 0; second%probeEvery == 0 {
				wanted = halfOpenSends
			}
		default:
			firsts = 0
		}
		for range firsts {
			budget.first(now)
		}
		fresh -= firsts
		if !down {
			wanted = min(wanted, workers)
		}
		retries, answered := 0, 0
		for retries < wanted && budget.take(now) {
			retries++
			if down {
				budget.lost()
			}
		}
		if !down {
			answered = retries
			for range answered {
				budget.answered(now)
			}
		}
		waiting -= answered
		if second <= 3 || (up-2 <= second && second <= up+8) || second%10 == 0 || waiting == 0 {
			fmt.Fprintf(&b, "%d,%d,%d,%d,%.1f,%d\n", second, firsts, retries, answered, float64(budget.balance(now))/float64(token), waiting)
		}
	}
	fmt.Fprint(&b, "```\n")
	return b.String()
}
