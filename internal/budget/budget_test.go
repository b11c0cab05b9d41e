package budget_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/safeledger/safeledger/internal/budget"
)

var policy = budget.Policy{Server: 2400 * time.Millisecond, NetworkReserve: 600 * time.Millisecond}

// A till that reads the contract's formula must get exactly that many
// milliseconds: one off at an edge is a decline that it cannot explain.
func TestEffectiveBudgetIsTheClampOfTheContract(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		lines []string
		want  time.Duration
	}{
		{nil, 2400 * time.Millisecond},
		{[]string{"0"}, 0},
		{[]string{"00"}, 0},
		{[]string{"1"}, 0},
		{[]string{"599"}, 0},
		{[]string{"600"}, 0},
		{[]string{"601"}, 1 * time.Millisecond},
		{[]string{"649"}, 49 * time.Millisecond},
		{[]string{"650"}, 50 * time.Millisecond},
		{[]string{"0650"}, 50 * time.Millisecond},
		{[]string{"1400"}, 800 * time.Millisecond},
		{[]string{"2999"}, 2399 * time.Millisecond},
		{[]string{"3000"}, 2400 * time.Millisecond},
		{[]string{"3001"}, 2400 * time.Millisecond},
		{[]string{"86400001"}, 2400 * time.Millisecond},
		{[]string{"9223372036854775807"}, 2400 * time.Millisecond}, // 2^63−1: clamped, and no overflow on the way
	} {
		wait, err := budget.ParseWait(c.lines)
		if err != nil {
			t.Errorf("ParseWait(%q): %v", c.lines, err)
			continue
		}
		if got := policy.Effective(wait); got != c.want {
			t.Errorf("effective budget of %q: got %v, want %v", c.lines, got, c.want)
		}
	}
}

// A deadline that cannot be read must be refused: guessing would either keep a
// till waiting after it has left, or decline a customer who had time.
func TestMalformedDeadlinesAreRefused(t *testing.T) {
	t.Parallel()
	for _, lines := range [][]string{
		{""},
		{" "},
		{"-1"},
		{"+1"},
		{"-0"},
		{"1.5"},
		{"1e3"},
		{"0x10"},
		{"1_000"},
		{"abc"},
		{"1500ms"},
		{"1500 "},
		{"1500, 1500"},
		{"1500", "1500"},
		{"1500", ""},
		{"٣"},
		{"NaN"},
		{"Infinity"},
		{"9223372036854775808"},
		{"99999999999999999999999999"},
	} {
		if _, err := budget.ParseWait(lines); err == nil {
			t.Errorf("ParseWait(%q) was taken for a deadline", lines)
		}
	}
}

// Whatever a till says, the budget stays between nothing and the server's, never
// promises the till time that the network needs, and grows with what it said.
func TestEffectiveBudgetStaysInItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := budget.Policy{
			Server:         time.Duration(rapid.Int64Range(0, 10_000).Draw(t, "server")) * time.Millisecond,
			NetworkReserve: time.Duration(rapid.Int64Range(0, 10_000).Draw(t, "reserve")) * time.Millisecond,
		}
		ms := rapid.Int64Range(0, 1<<62).Draw(t, "ms")
		effective := p.Effective(mustWait(t, ms))
		if effective < 0 || effective > p.Server {
			t.Fatalf("effective %v is outside 0…%v", effective, p.Server)
		}
		if ms < 1_000_000 && effective > 0 && effective+p.NetworkReserve > time.Duration(ms)*time.Millisecond {
			t.Fatalf("effective %v and the reserve are more than the %d ms that the till waits", effective, ms)
		}
		if ms > 0 && p.Effective(mustWait(t, ms-1)) > effective {
			t.Fatalf("a till that waits longer gets less")
		}
	})
}

// A step gets the smaller of its own limit and what is left, to the nanosecond,
// and a step that must be tried gets its reserve however late it is.
func TestStepsShareOneDeadline(t *testing.T) {
	t.Parallel()
	arrival := time.Now()
	rapid.Check(t, func(t *rapid.T) {
		total := time.Duration(rapid.Int64Range(0, int64(2400*time.Millisecond)).Draw(t, "total"))
		spent := time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "spent"))
		limit := time.Duration(rapid.Int64Range(0, int64(3*time.Second)).Draw(t, "limit"))
		p := budget.Policy{Server: total}
		d := p.Deadline(arrival, budget.Wait{})
		now := arrival.Add(spent)

		left := max(total-spent, 0)
		if got := d.Remaining(now); got != left {
			t.Fatalf("remaining: got %v, want %v", got, left)
		}
		if got, want := d.CapAt(now, limit).Remaining(now), min(left, limit); got != want {
			t.Fatalf("capped at %v: got %v, want %v", limit, got, want)
		}
		if got := d.CapAt(now, limit); got.At().After(d.At()) {
			t.Fatalf("a cap moved the deadline from %v to %v", d.At(), got.At())
		}
		if got, want := d.AtLeast(now, limit).Remaining(now), max(left, limit); got != want {
			t.Fatalf("at least %v: got %v, want %v", limit, got, want)
		}
		if got, want := d.EnoughToSend(now, limit), left >= limit; got != want {
			t.Fatalf("enough to send with %v left and a minimum of %v: got %v", left, limit, got)
		}
	})
}

// 50 ms left is enough and 49.999999 ms is not: the contract says "less than".
func TestEnoughToSendIsExactAtItsEdge(t *testing.T) {
	t.Parallel()
	now := time.Now()
	d := budget.Policy{Server: 50 * time.Millisecond}.Deadline(now, budget.Wait{})
	if !d.EnoughToSend(now, 50*time.Millisecond) {
		t.Error("with exactly the minimum left nothing would be sent")
	}
	if d.EnoughToSend(now.Add(1), 50*time.Millisecond) {
		t.Error("with a nanosecond less than the minimum something would be sent")
	}
}

// The context of a step ends with its deadline, not with anybody's default.
func TestContextCarriesTheDeadline(t *testing.T) {
	t.Parallel()
	d := policy.Deadline(time.Now(), budget.Wait{})
	ctx, cancel := d.Context(context.Background())
	defer cancel()
	if got, ok := ctx.Deadline(); !ok || !got.Equal(d.At()) {
		t.Errorf("context deadline: got %v %v, want %v", got, ok, d.At())
	}
}

func mustWait(t *rapid.T, ms int64) budget.Wait {
	wait, err := budget.ParseWait([]string{strconv.FormatInt(ms, 10)})
	if err != nil {
		t.Fatalf("ParseWait(%d): %v", ms, err)
	}
	return wait
}
