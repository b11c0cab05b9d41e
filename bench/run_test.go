package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// small is a run that measures nothing of worth, but everything.
func small() options {
	o := quick()
	o.Tills, o.Wallets, o.Rounds, o.Starts = []int{1, 4}, []int{0}, 1, 2
	o.WarmUp, o.Measure, o.Rows, o.Waiting = 100*time.Millisecond, 300*time.Millisecond, 1500, 1000
	return o
}

// A harness that is only run once in a while is broken when it is needed: every
// variant must answer, every figure be there, and nothing be left behind.
func TestARunInSmallMeasuresEverything(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL and dozens of processes")
	}
	r, err := openResults(filepath.Join(t.TempDir(), "results"))
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	o := small()
	if err := run(t.Context(), "..", o, r, "", "", said); err != nil {
		t.Fatal(err)
	}
	nothingIsLeft(t)

	steps := plan(o)
	for _, s := range steps {
		if !r.has(s.point) {
			t.Errorf("not measured: %s", s.point)
		}
	}
	// A machine that stands still through all of 300 ms leaves nothing to be measured: what
	// lacks a figure is measured again, a few times. What was answered wrong stays wrong.
	for _, m := range r.measurements {
		m.checkAnswers(t)
	}
	const again = 3
	for range again {
		lacking := func(m measurement) bool { return len(m.lacks()) > 0 }
		if !slices.ContainsFunc(r.measurements, lacking) {
			break
		}
		r.measurements = slices.DeleteFunc(r.measurements, lacking)
		kept := len(r.measurements)
		if err := run(t.Context(), "..", o, r, "", "", devNull(t)); err != nil {
			t.Fatal(err)
		}
		for _, m := range r.measurements[kept:] {
			m.checkAnswers(t)
		}
	}
	for _, m := range r.measurements {
		for _, lack := range m.lacks() {
			t.Errorf("%s: %s", m.point, lack)
		}
	}
	for _, g := range goals(r) {
		// Those are of 256 tills, which this run has not.
		if ratesOfMany := strings.Contains(g.what, "256 tills") || strings.Contains(g.what, "64 tills") || strings.Contains(g.what, "8 tills"); (g.got.Rounds == 0) != ratesOfMany {
			t.Errorf("%s: %+v", g.what, g.got)
		}
	}
	if text, err := os.ReadFile(said.Name()); err != nil || strings.Count(string(text), " left; ") != len(steps) {
		t.Errorf("of %d steps was told: %s (%v)", len(steps), text, err)
	}

	var out strings.Builder
	if err := report(r, false, &out); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{reportFile, chartFile} {
		if content, err := os.ReadFile(filepath.Join(r.dir, file)); err != nil || strings.Contains(string(content), "NaN") {
			t.Errorf("%s: %s (%v)", file, content, err)
		}
	}
	// Once more measures nothing once more.
	before := len(r.measurements)
	if err := run(t.Context(), "..", o, r, "", "", said); err != nil || len(r.measurements) != before {
		t.Errorf("measured again: %d instead of %d (%v)", len(r.measurements), before, err)
	}
}

func devNull(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// lacks says which figures of the phase are not there, or cannot be.
func (m measurement) lacks() (all []string) {
	wanted := map[string][]string{
		phaseStart:    {ready},
		phaseRates:    {rate, decisions, p50, p99, p999, resident, peak},
		phaseOverload: {capacity, offered, rate, p50, p99, lagP99},
		phaseQueue:    {rate, decisions, walBytes, fsyncs},
		phaseGrowth:   {rate, p99, walBytes, fsyncs},
		phaseBacklog:  {rate, p99},
		phaseSize:     {},
	}[m.Phase]
	if m.Phase == phaseRates && durable(m.Variant) {
		wanted = append(wanted, walBytes, fsyncs)
	}
	for _, name := range wanted {
		if m.Values[name] <= 0 {
			all = append(all, fmt.Sprintf("%s is %v", name, m.Values[name]))
		}
	}
	if m.Values[fsyncs] > 3 || m.Phase == phaseRates && durable(m.Variant) && m.Tills == 1 && m.Values[fsyncs] < 1.5 {
		all = append(all, fmt.Sprintf("%.2f fsyncs for a claim and a decision, want 2 for one till and less for more", m.Values[fsyncs]))
	}
	return all
}

// checkAnswers wants answers that are right as far as they came.
func (m measurement) checkAnswers(t *testing.T) {
	t.Helper()
	if (m.Variant == noDatabase || m.Variant == bare) && m.Values[walBytes] != 0 {
		t.Errorf("%s: has written %.0f bytes", m.point, m.Values[walBytes])
	}
	for detail, n := range m.Details {
		// On a busy machine some are late, refused or declined; none is lost or wrong.
		late := strings.HasPrefix(detail, "4") || strings.HasPrefix(detail, "503 ") || m.Variant == bare && strings.HasPrefix(detail, "502")
		if !late {
			t.Errorf("%s: %d × %s", m.point, n, detail)
		}
	}
}

// nothingIsLeft looks for processes and folders of this process's runs.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	if dirs, err := filepath.Glob(filepath.Join(os.TempDir(), ownPrefix()+"*")); err != nil || len(dirs) > 0 {
		t.Errorf("left behind: %v (%v)", dirs, err)
	}
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), ownPrefix()) {
			t.Errorf("still running: %s", strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
}

// Whoever stops a run with Ctrl-C must get their cores and their disk back.
func TestARunThatIsStoppedLeavesNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL")
	}
	r, err := openResults(filepath.Join(t.TempDir(), "results"))
	if err != nil {
		t.Fatal(err)
	}
	said, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	o := small()
	o.Phases, o.Measure = []string{phaseStart, phaseRates}, time.Hour
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, "..", o, r, "", "", said) }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for loading := false; !loading; {
		select {
		case err := <-ended:
			t.Fatalf("an hour has passed, it says: %v", err)
		case <-tick.C:
			loading = running("load")
		}
	}
	stop()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("does not end")
	}
	nothingIsLeft(t)
	if len(r.measurements) != o.Starts {
		t.Errorf("%d measurements are kept, want those that were made, %d", len(r.measurements), o.Starts)
	}
}

// running reports whether a process of ours is running that was started so.
func running(lastArgument string) bool {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return false
	}
	return slices.ContainsFunc(lines, func(path string) bool {
		line, err := os.ReadFile(path)
		return err == nil && strings.Contains(string(line), ownPrefix()) && strings.HasSuffix(string(line), "\x00"+lastArgument+"\x00")
	})
}

// The server without a database is what SafeLedger is divided by: where it spares
// itself more than the database, the quotient says nothing.
func TestWithoutADatabaseTheAnswersAreTheSame(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL")
	}
	ctx := t.Context()
	w, err := newWorld(ctx, "..", "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := w.close(); err != nil {
			t.Error(err)
		}
	}()
	b := &bench{world: w, options: small(), results: &results{}}
	shapes := map[string]string{}
	for _, variant := range []string{shipped, noDatabase} {
		s, err := b.set(ctx, point{Phase: phaseRates, Variant: variant})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ token, body string }{
			{token, `{"account": "ALICE", "amount": 1250, "currency": "EUR", "reference": "receipt 4711"}`},
			{token, `{"account": "POOR-BOB", "amount": 1250, "currency": "EUR"}`},
			{token, `{"account": "ALICE", "amount": 12.5, "currency": "EUR"}`},
			{token, `{"account": "ALICE", "amount": 1250, "currency": "XXY"}`},
			{"guessed", `{"account": "ALICE", "amount": 1250, "currency": "EUR"}`},
		} {
			shapes[variant] += shape(t, s.address, c.token, c.body) + "\n"
		}
		text, err := get(ctx, http.MethodGet, "http://"+s.admin+"/metrics", "")
		if err != nil || !strings.Contains(string(text), `safeledger_decision_duration_seconds_count`) {
			t.Errorf("%s: metrics without decisions (%v): %s", variant, err, text)
		}
		if err := s.strike(ctx); err != nil {
			t.Error(err)
		}
	}
	// Where the second process cannot be started, the first must not stay.
	if _, err := b.set(ctx, point{Phase: phaseRates, Variant: "nobody's"}); err == nil || running("--open-accounts") {
		t.Errorf("a stage without a server: %v; its wallet is still running: %v", err, running("--open-accounts"))
	}
	if shapes[shipped] != shapes[noDatabase] {
		t.Errorf("SafeLedger:\n%s\nwithout a database:\n%s", shapes[shipped], shapes[noDatabase])
	}
	if !strings.HasPrefix(shapes[shipped], "201") || strings.Count(shapes[shipped], "\n") != 5 {
		t.Errorf("answers of SafeLedger:\n%s", shapes[shipped])
	}
}

// shape is the status of an answer, and the names of its fields and members.
func shape(t *testing.T, address, token, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/debits", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Idempotency-Key", fmt.Sprintf("key-%d", time.Now().UnixNano()))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]any
	if err := json.Unmarshal(text, &members); err != nil {
		t.Fatalf("%s: %s", err, text)
	}
	return fmt.Sprint(answer.StatusCode, slices.Sorted(maps.Keys(answer.Header)), slices.Sorted(maps.Keys(members)))
}

// A profile of a server that did something else would have the compiler optimise that.
func TestAProfileIsOfPaymentsThatAreDecided(t *testing.T) {
	if testing.Short() {
		t.Skip("builds SafeLedger once more, and starts a PostgreSQL")
	}
	// A second is a hundred samples, and on a machine that does something else a few of
	// them: then it is taken once more.
	const attempts = 4
	for attempt := 1; ; attempt++ {
		missing, err := profiled(t)
		switch {
		case err == nil && len(missing) == 0:
			return
		case attempt == attempts:
			t.Fatalf("%v are not in it, %v", missing, err)
		}
	}
}

// profiled takes a profile and says which functions of a decision are not in it.
func profiled(t *testing.T) (missing []string, err error) {
	t.Helper()
	into := filepath.Join(t.TempDir(), "cpu.pprof")
	if err := (profileCommand{For: time.Second}).take(t.Context(), "..", into); err != nil {
		return nil, err
	}
	file, err := os.Open(into)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(unzipped)
	if err != nil {
		return nil, err
	}
	for _, function := range []string{"decision.(*Decider).Decide", "ledger.(*Ledger).Claim", "wallet.(*Lane).Send"} {
		if !bytes.Contains(content, []byte(function)) {
			missing = append(missing, function)
		}
	}
	return missing, nil
}
