package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/internal/documenttest"
	"github.com/safeledger/safeledger/test/check/history"
)

// Two kinds of one name would be counted for each other, and one of them might never
// strike.
func TestKindsAreManyAndHaveNamesOfTheirOwn(t *testing.T) {
	t.Parallel()
	const least = 40
	seen := map[string]bool{}
	for _, k := range allKinds() {
		if seen[k.name] {
			t.Errorf("%s is there twice", k.name)
		}
		seen[k.name] = true
		if k.does == "" || k.group == "" {
			t.Errorf("%s does not say what it is", k.name)
		}
	}
	if len(seen) < least {
		t.Errorf("%d kinds, want %d at least", len(seen), least)
	}
}

// A name that is in no table is counted for nobody, and a kind that no code hits makes
// every run void.
func TestTheNamesThatTheCodeHitsAreKinds(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, k := range allKinds() {
		known[k.name] = true
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	hits := regexp.MustCompile(`(?:hit|count\.add)\("([^"]+)"`)
	hit := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range hits.FindAllStringSubmatch(string(text), -1) {
			hit[found[1]] = true
			if !known[found[1]] {
				t.Errorf("%s hits %q, which is no kind", file, found[1])
			}
		}
	}
	for _, k := range tillKinds() {
		if !hit[k.name] {
			t.Errorf("nobody hits %s", k.name)
		}
	}
}

// What the README says of the kinds is what there is.
func TestDocumentKinds(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("| faults of | kind | what it is |\n|---|---|---|\n")
	for _, k := range allKinds() {
		b.WriteString("| " + string(k.group) + " | `" + k.name + "` | " + k.does + " |\n")
	}
	documenttest.Check(t, "README.md", "test/torture", b.String())
}

// A verdict that is given again takes the place of the first, and both are told.
func TestAVerdictThatIsGivenAgainIsTold(t *testing.T) {
	t.Parallel()
	s := summary{Seed: 3, Violations: 5, Broken: map[string]int64{"I6 agrees": 2, "I5 net": 3}}
	s.judgeAgain(judgedAgain{Seed: 7, Commit: "ccc", Before: map[string]int64{"I6 agrees": 2, "I5 net": 1, "I2 once": 0}, Then: map[string]int64{"I4 net": 1}})
	if diff := cmp.Diff(map[string]int64{"I6 agrees": 0, "I5 net": 2, "I4 net": 1}, s.Broken); diff != "" || s.Violations != 3 {
		t.Errorf("%d violations (-want +got):\n%s", s.Violations, diff)
	}
	want := "Of the run of seed 3 the round of seed 7 was judged again, by the checker of `ccc`: I5 net 1, I6 agrees 2 before, I4 net 1 then."
	if text := markdown([]summary{s}); !strings.Contains(text, want) {
		t.Errorf("%q is not in\n%s", want, text)
	}
}

// What is published of the runs is what their summaries say.
func TestDocumentRuns(t *testing.T) {
	t.Parallel()
	all, err := summaries("results")
	if err != nil {
		t.Fatal(err)
	}
	documenttest.CheckFile(t, "../../docs/torture.md", `# What torture has run

The summaries in [test/torture/results](../test/torture/results), added up by `+"`go test ./test/torture -run Document -update`"+`. What they mean is in [verification.md](verification.md), what a run is in
[test/torture](../test/torture/README.md).

`+markdown(all))
}

// A deck that deals some kinds over and over, and others never, makes a long run void; one
// that forgets what missed does so for short ones.
func TestADeckDealsEachKindBeforeItDealsOneAgain(t *testing.T) {
	t.Parallel()
	kinds := processKinds()
	first, second := newDeck(7, 1, kinds), newDeck(7, 1, kinds)
	var dealt []string
	for range kinds {
		name, _ := first.deal()
		other, _ := second.deal()
		if name != other {
			t.Fatalf("the same seed dealt %s and %s", name, other)
		}
		dealt = append(dealt, name)
	}
	slices.Sort(dealt)
	if len(slices.Compact(dealt)) != len(kinds) {
		t.Errorf("a round of %d kinds dealt %d different ones", len(kinds), len(slices.Compact(dealt)))
	}
	name, _ := first.deal()
	first.again(name)
	for range len(kinds) - 1 {
		first.deal()
	}
	if again, _ := first.deal(); again != name {
		t.Errorf("what missed was %s, and what came again in its round is %s", name, again)
	}
}

// A run whose faults did not strike has shown nothing, and must not pass for one that
// has.
func TestARunInWhichAKindStruckTooRarelyIsVoid(t *testing.T) {
	t.Parallel()
	count := newCounters(allKinds())
	for _, k := range allKinds() {
		count.add(k.name, 3)
	}
	c := runCommand{Min: 3, MinProcess: 3}
	if void := c.void(count); len(void) != 0 {
		t.Errorf("void: %v", void)
	}
	c.MinProcess = 4
	void := c.void(count)
	for _, want := range []string{"kill-after-claim (3 of 4)", "ledger-held (3 of 4)", "immediate-stop (3 of 4)", "wallet-stopped (3 of 4)"} {
		if !slices.Contains(void, want) {
			t.Errorf("%s is not in %v", want, void)
		}
	}
	if slices.ContainsFunc(void, func(s string) bool { return strings.HasPrefix(s, "hung-up") || strings.HasPrefix(s, "hang") }) {
		t.Errorf("a fault that strikes by the way is held to the minimum of processes: %v", void)
	}
	c.Postgres, c.Process = []string{"standby-promoted"}, []string{"kill"}
	void = c.void(count)
	if !slices.Contains(void, "standby-promoted (3 of 4)") || slices.Contains(void, "immediate-stop (3 of 4)") {
		t.Errorf("of PostgreSQL's faults only promotions were asked for, and %v are missed", void)
	}
	if !slices.Contains(void, "kill (3 of 4)") || slices.Contains(void, "drain (3 of 4)") || !slices.Contains(void, "clock-ahead (3 of 4)") {
		t.Errorf("of the faults of processes only kills were asked for, and %v are missed", void)
	}
}

// Runs are added up, and a violation of any of them must not get lost in the sum.
func TestTheSumOfRunsHasTheirViolations(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 11, 30, 2, 0, 0, 0, time.UTC)
	text := markdown([]summary{
		{
			Began: began.Add(time.Hour), Seed: 2, Commit: "bbb", Tills: 96, Rounds: 1, Decisions: 1000, Violations: 1, Broken: map[string]int64{"I5 net": 1},
			Hits: map[string]int64{"kill": 3, "kill-again": 5, "hung-up": 600}, Failed: "replica 1 did not end", Void: []string{"drain (0 of 1)"}, Postgres: []string{"fast-stop"},
		},
		{
			Began: began, Seed: 1, Commit: "aaa", Tills: 8, Rounds: 2, Decisions: 2500, FollowUps: 10,
			Hits: map[string]int64{"kill": 4, "kill-after-claim": 2, "hung-up": 400, "backend-kill": 6, "immediate-stop": 7, "standby-promoted": 8},
		},
	})
	for _, want := range []string{
		"| 2026-11-30 02:00 UTC | `aaa` | 1 | 8 | 2 | 2,500 | 10 | 0 | none promoted | 0s | 0 |\n| 2026-11-30 03:00 UTC | `bbb` | 2 | 96",
		"| all |  |  |  | 3 | 3,500 | 10 | 0 | none promoted | 0s | 1 |", "| process | `kill` | 7 |", "I5 net was broken 1 times",
		"The run of seed 2 failed: replica 1 did not end.", "struck too rarely: drain (0 of 1)", "had only fast-stop",
		"\n1 kinds struck 1,000 times and more", "Processes killed: 19. PostgreSQL crashed: 13. Synchronous standbys promoted: 8; lagging ones: 0.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
}

// Every fault of the table must be one that the wallet takes, and its name must be found
// again in its rules: what is put in place is tried in each run. Here, that each has an
// account of its own and that none outlasts the settle window, beyond which not found
// is taken for proof.
func TestFaultsOfTheWalletEndWithinTheSettleWindow(t *testing.T) {
	t.Parallel()
	for _, f := range walletFaults() {
		if !f.anywhere && f.on == "" {
			t.Errorf("%s strikes nothing", f.name)
		}
		if len(f.account()) > 64 {
			t.Errorf("%s: the account's name is too long", f.name)
		}
		if f.fault.After == "" {
			continue
		}
		if d, err := time.ParseDuration(f.fault.After); err != nil || d > settleWindow/2 {
			t.Errorf("%s takes %s, %v", f.name, f.fault.After, err)
		}
	}
	if longest := pastLease + 1500*time.Millisecond; longest >= settleWindow {
		t.Errorf("a process stands still for %v, which is not below the settle window", longest)
	}
}

// linesOf reads a till log back.
func linesOf(t *testing.T, path string) (all []history.Line) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var l history.Line
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

func newLog(t *testing.T) (*world, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tills.jsonl")
	log, err := history.Open(path, "run", "test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	return &world{log: log, count: newCounters(allKinds())}, path
}

// What the package client sends must be noted before it leaves, whole, and its answer as
// it came: the checker would take it for a ghost's otherwise.
func TestARequestOfTheClientIsNotedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	w, path := newLog(t)
	near, far := net.Pipe()
	defer far.Close()
	conn := &noting{Conn: near, log: w.log, till: "1", to: "there", caller: caller{name: "store-17"}}
	heard := make(chan string, 1)
	go func() {
		req, err := http.ReadRequest(bufio.NewReader(far))
		if err != nil {
			heard <- err.Error()
			return
		}
		body, _ := io.ReadAll(req.Body)
		heard <- string(body)
		_, _ = io.WriteString(far, "HTTP/1.1 201 Created\r\nLocation: /payments/1\r\nContent-Length: 2\r\n\r\n{}")
	}()
	head := "POST /debits HTTP/1.1\r\nHost: a\r\nIdempotency-Key: \"k\"\r\nTraceparent: 00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01\r\nContent-Length: 4\r\n\r\n{"
	if _, err := conn.Write([]byte(head)); err != nil {
		t.Fatal(err)
	}
	if got := linesOf(t, path); len(got) != 1 {
		t.Fatalf("half a request was noted: %+v", got)
	}
	if _, err := conn.Write([]byte(`1 }`)); err != nil {
		t.Fatal(err)
	}
	if body := <-heard; body != "{1 }" {
		t.Fatalf("the service heard %q", body)
	}
	buf := make([]byte, 256)
	for range 2 {
		if _, err := conn.Read(buf); err != nil {
			t.Fatal(err)
		}
		if len(linesOf(t, path)) == 3 {
			break
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	got := linesOf(t, path)
	if len(got) != 3 || got[1].Event != history.Sent || got[1].Key != `"k"` || got[1].Sent != "{1 }" || got[1].Trace != "0af7651916cd43dd8448eb211c80319c" ||
		got[2].Event != history.Answered || got[2].Status != http.StatusCreated || got[2].Location != "/payments/1" {
		t.Errorf("noted %+v", got)
	}
}

// A call that came to nothing is noted as one that may have been carried out, unless not a
// byte of it left.
func TestAFailedCallSaysWhetherItMayHaveBeenCarriedOut(t *testing.T) {
	t.Parallel()
	w, path := newLog(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := server.Addr().String()
	go func() {
		conn, err := server.Accept()
		if err != nil {
			return
		}
		_, _ = bufio.NewReader(conn).ReadString('\n')
		_ = conn.Close()
	}()
	c := call{till: "1", caller: tillCallers()[0], method: http.MethodPost, path: "/debits", key: "k", body: "{}", trace: strings.Repeat("a", 32)}
	if _, ok, unsent, err := w.ask(t.Context(), lines{}, address, c); ok || unsent || err != nil {
		t.Errorf("a lost answer: %v, unsent %v, %v", ok, unsent, err)
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if _, ok, unsent, err := w.ask(t.Context(), lines{}, address, c); ok || !unsent || err != nil {
		t.Errorf("a refused connection: %v, unsent %v, %v", ok, unsent, err)
	}
	got := linesOf(t, path)
	if len(got) != 5 || got[2].Event != history.Failed || got[2].Unsent || got[4].Event != history.Failed || !got[4].Unsent {
		t.Errorf("noted %+v", got)
	}
}
