package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// shorter are the durations of the rules, and what each becomes in a test that cannot
// wait for an hour. What a replica does only every ten seconds (measuring) bounds
// them from below, and so does Prometheus, which needs two scrapes for a rate.
var shorter = map[string]string{ //nolint:gochecknoglobals // a table
	"30s": "2s", "1m": "3s", "2m": "5s", "3m": "5s", "5m": "6s", "30m": "6s", "1h": "20s", "7d": "30s",
}

// smaller are thresholds that are times, with what they are compared by.
var smaller = map[string]string{ //nolint:gochecknoglobals // a table
	"recovery_swept_timestamp_seconds < 60":   "recovery_swept_timestamp_seconds < 8",
	"queue_leased_timestamp_seconds < 60":     "queue_leased_timestamp_seconds < 8",
	"queue_leased_timestamp_seconds > 120":    "queue_leased_timestamp_seconds > 12",
	"follow_ups_read_timestamp_seconds < 120": "follow_ups_read_timestamp_seconds < 16",
	`state="PENDING"} > 1800`:                 `state="PENDING"} > 12`,
	`limit="settle_window"}) + 300`:           `limit="settle_window"}) + 6`,
	"> 5 / 300":                               "> 5 / 6",
}

var (
	duration = regexp.MustCompile(`\[(\d+[smhdwy])\]|\boffset (\d+[smhdwy])\b|(?m)^\s+(?:for|interval): (\d+[smhdwy])$`)
	longTime = regexp.MustCompile(`[<>+/] ([6-9]\d|\d{3,})\b`)
)

// Shorten makes rules for a test out of those that are deployed: the same, word for
// word, but for durations and for thresholds that are times. What it does not know is
// an error, so that a rule cannot be left with its hour.
func Shorten(content string) (string, error) {
	for _, long := range sorted(smaller) {
		if !strings.Contains(content, long) {
			return "", fmt.Errorf("no rule has the threshold %q any more", long)
		}
		content = strings.ReplaceAll(content, long, smaller[long])
	}
	var unknown []string
	content = duration.ReplaceAllStringFunc(content, func(found string) string {
		groups := duration.FindStringSubmatch(found)
		long := groups[1] + groups[2] + groups[3]
		short, known := shorter[long]
		if !known {
			unknown = append(unknown, found)
		}
		return strings.Replace(found, long, short, 1)
	})
	expressions := regexp.MustCompile(`(?m)^ +(summary|description|runbook_url): .*$|#.*$`).ReplaceAllString(content, "")
	unknown = append(unknown, longTime.FindAllString(expressions, -1)...)
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return "", fmt.Errorf("no shorter value is known for %q", slices.Compact(unknown))
	}
	return content, nil
}
