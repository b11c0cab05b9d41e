//go:build prometheus

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/walletsim"
	"github.com/safeledger/safeledger/test/rules"
)

// A real Prometheus (Debian's package) that scrapes real replicas and evaluates the
// rules that are deployed, with their durations shortened: `make verify-rules`, and
// `make verify-alerts` for the long one.

const repository = "../.."

// watcher is a running Prometheus.
type watcher struct {
	t    *testing.T
	http string // base URL
	file string // where it reads its targets

	mu      sync.Mutex
	targets map[string][]*replica // by the namespace that they are scraped as
}

func startWatcher(t *testing.T) *watcher {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(repository, rules.RulesFile))
	if err != nil {
		t.Fatal(err)
	}
	short, err := rules.Shorten(string(content))
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := writeConfig(t, "rules.yaml", short)
	p := &watcher{t: t, file: filepath.Join(dir, "targets.json"), targets: map[string][]*replica{}}
	p.publish()
	config := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(config, []byte(fmt.Sprintf(`
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [%s/rules.yaml]
scrape_configs:
  - job_name: safeledger
    file_sd_configs: [{files: [%s], refresh_interval: 1s}]
`, dir, p.file)), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	p.http = "http://" + address
	startProgram(t, address, "prometheus", "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	p.awaitReady()
	return p
}

// awaitReady waits until Prometheus answers queries: it listens earlier than that.
func (p *watcher) awaitReady() {
	p.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for range patience / (50 * time.Millisecond) {
		if _, err := p.query(p.t.Context(), "vector(1)"); err == nil {
			return
		}
		<-tick.C
	}
	p.t.Fatalf("Prometheus does not answer after %v", patience)
}

// watch scrapes replicas as those of one installation.
func (p *watcher) watch(namespace string, replicas ...*replica) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets[namespace] = append(p.targets[namespace], replicas...)
	p.publish()
}

// leave stops scraping a replica, as Kubernetes does before it ends one.
func (p *watcher) leave(namespace string, r *replica) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.targets[namespace] = slices.DeleteFunc(p.targets[namespace], func(other *replica) bool { return other == r })
	p.publish()
}

func (p *watcher) publish() {
	p.t.Helper()
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	groups := []group{}
	for _, namespace := range slices.Sorted(maps.Keys(p.targets)) {
		g := group{Targets: []string{}, Labels: map[string]string{"namespace": namespace}}
		for _, r := range p.targets[namespace] {
			g.Targets = append(g.Targets, strings.TrimPrefix(r.admin, "http://"))
		}
		groups = append(groups, g)
	}
	content, err := json.Marshal(groups)
	if err != nil {
		p.t.Error(err)
		return
	}
	if err := os.WriteFile(p.file+".new", content, 0o600); err != nil {
		p.t.Error(err)
		return
	}
	if err := os.Rename(p.file+".new", p.file); err != nil {
		p.t.Error(err)
	}
}

// sample is one element of the answer to a query.
type sample struct {
	labels map[string]string
	value  string
}

// get asks Prometheus; a warning of its is an error here.
func (p *watcher) get(ctx context.Context, path string, args url.Values, data any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.http+path+"?"+args.Encode(), nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Status, Error string
		Warnings      []string
		Data          json.RawMessage
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%s: %w: %s", path, err, body)
	}
	if answer.Status != "success" || len(answer.Warnings) > 0 {
		return fmt.Errorf("%s %s %q", answer.Status, answer.Error, answer.Warnings)
	}
	return json.Unmarshal(answer.Data, data)
}

func (p *watcher) query(ctx context.Context, expr string) ([]sample, error) {
	var data struct {
		ResultType string
		Result     []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := p.get(ctx, "/api/v1/query", url.Values{"query": {expr}}, &data); err != nil {
		return nil, err
	}
	samples := make([]sample, 0, len(data.Result))
	for _, r := range data.Result {
		samples = append(samples, sample{r.Metric, fmt.Sprint(r.Value[1])})
	}
	return samples, nil
}

func (p *watcher) series(ctx context.Context, selector string) ([]map[string]string, error) {
	var series []map[string]string
	err := p.get(ctx, "/api/v1/series", url.Values{"match[]": {selector}}, &series)
	return series, err
}

// served is what this Prometheus has.
func (p *watcher) served(ctx context.Context) (rules.Served, error) {
	all, err := p.series(ctx, `{__name__!=""}`)
	served := rules.Served{}
	for _, labels := range all {
		name := labels["__name__"]
		delete(labels, "__name__")
		served.Add(name, slices.Collect(maps.Keys(labels))...)
	}
	return served, err
}

// A dashboard that shows nothing and an alert that cannot fire look the same as a
// service that is well. So every query of the rules, of the dashboard and of the
// playbooks is put to a Prometheus that has scraped replicas with every kind of
// traffic: it asks for metrics, labels and values of labels that are there, and it
// has an answer; what is recorded is there, with the labels that its name says.
func TestEveryQueryIsAboutWhatIsServed(t *testing.T) {
	t.Parallel()
	tool, err := rules.Build(t.Context(), repository, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := rules.Read(t.Context(), repository, tool)
	if err != nil {
		t.Fatal(err)
	}
	p := startWatcher(t)
	w := newWorld(t)
	r := w.start(plain, append([]string{"QUEUE_SETTLE_WINDOW=3s", "QUEUE_PARK_AFTER=8s"}, hurried...)...)
	p.watch("shop", r, w.start(plain, hurried...))
	w.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Credit, Account: "WAITS"}, Fault: walletsim.Down()})

	// Until all of it has been seen: what is open is measured every ten seconds.
	var complaints []string
	deadline := time.Now().Add(2 * patience)
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for round := 0; ; round++ {
		r.everyKindOfTraffic(round)
		if complaints = p.complaints(t.Context(), tree); len(complaints) == 0 {
			t.Logf("%d queries after %d rounds of traffic", len(tree.Queries()), round+1)
			break
		}
		t.Logf("round %d: %d complaints, the first: %s", round+1, len(complaints), complaints[0])
		if time.Now().After(deadline) {
			for _, complaint := range complaints {
				t.Error(complaint)
			}
			break
		}
		<-tick.C
	}
	if asked := len(tree.Queries()); asked < 150 {
		t.Errorf("only %d queries were asked: the search for them is broken", asked)
	}

	// And with a query that asks for nothing, it is red.
	tree.PlaybookQueries = append(tree.PlaybookQueries, rules.Query{
		Where: "planted", Expr: `safeledger_breaker_state{state="ajar"}`,
		Selectors: []rules.Selector{{
			Metric: "safeledger_breaker_state", Matchers: []rules.Matcher{{Label: "state", Op: "=", Value: "ajar"}}, Text: `safeledger_breaker_state{state="ajar"}`,
		}},
	})
	if got := p.complaints(t.Context(), tree); !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "planted: ") }) {
		t.Errorf("a selector that selects nothing was not noticed: %q", got)
	}
}

// complaints says which queries ask for what is not there, or have no answer.
func (p *watcher) complaints(ctx context.Context, tree rules.Tree) []string {
	served, err := p.served(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	complaints := tree.Unknown(served)
	for _, q := range tree.Queries() {
		for _, s := range q.Selectors {
			if found, err := p.series(ctx, s.Text); err != nil || len(found) == 0 {
				complaints = append(complaints, fmt.Sprintf("%s: %s selects nothing, %v", q.Where, s.Text, err))
			}
		}
		if _, err := p.query(ctx, q.Bare()); err != nil {
			complaints = append(complaints, fmt.Sprintf("%s: %s: %v", q.Where, q.Expr, err))
		}
	}
	for _, name := range tree.Recorded() {
		level, _, _ := strings.Cut(name, ":")
		want := slices.Sorted(slices.Values(strings.Split(level, "_")))
		if got := slices.Sorted(maps.Keys(served[name])); !slices.Equal(got, want) {
			complaints = append(complaints, fmt.Sprintf("%s is recorded with the labels %q", name, got))
		}
	}
	return append(complaints, p.unwell(ctx)...)
}

// unwell says which rules could not be evaluated.
func (p *watcher) unwell(ctx context.Context) []string {
	var data struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	if err := p.get(ctx, "/api/v1/rules", nil, &data); err != nil {
		return []string{err.Error()}
	}
	var complaints []string
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				complaints = append(complaints, fmt.Sprintf("%s: %s %s", r.Name, r.Health, r.LastError))
			}
		}
	}
	if len(data.Groups) == 0 {
		complaints = append(complaints, "no rules were loaded")
	}
	return complaints
}

// everyKindOfTraffic does once what tills and wallets can do. What matters is that
// it happens, not how it ends: that is what the other tests are about.
func (r *replica) everyKindOfTraffic(round int) {
	key := func(name string) string { return fmt.Sprintf("key-of-%s-%d", name, round) }
	body := func(account string) string {
		return fmt.Sprintf(`{"account": %q, "amount": 1250, "currency": "EUR"}`, account)
	}
	ask := func(path, key, body string) reply {
		r.w.t.Helper()
		answer, err := r.post(path, key, body)
		if err != nil { // a connection that was opened ahead is closed when nobody uses it
			answer, err = r.post(path, key, body)
		}
		if err != nil {
			r.w.t.Error(err)
		}
		return answer
	}
	var all sync.WaitGroup
	for _, account := range []string{"ANNA", "POOR-BERT", "LOCKED-BERT", "HANG-BERT", "LOST-BERT", "DOWN-BERT", "BLIND-BERT", "FOREIGN-BERT", "STATUS-500-BERT"} {
		all.Go(func() { ask("/debits", key(account), body(account)) })
		all.Go(func() { ask("/holds", key("hold"+account), body(account)) })
	}
	all.Go(func() { // the same key at once
		for range 2 {
			all.Go(func() { ask("/debits", key("twice"), body("SLOW-300-ANNA")) })
		}
	})
	all.Go(func() {
		debit := ask("/debits", key("debit"), body("ANNA"))
		ask("/debits", key("debit"), body("ANNA"))
		ask("/debits", key("debit"), body("BERT"))
		ask("/credits", key("credit"), fmt.Sprintf(`{"account": "ANNA", "amount": 1, "currency": "EUR", "debitId": %q}`, debit.member("id")))
	})
	all.Go(func() { ask("/credits", key("payout"), body("ANNA")) })
	all.Go(func() { ask("/credits", key("waiting"), body("WAITS")) })
	for _, end := range []string{"capture", "release"} {
		all.Go(func() {
			hold := ask("/holds", key(end), body("ANNA"))
			ask("/holds/"+hold.member("id")+"/"+end, key("end"+end), "")
		})
	}
	all.Go(func() {
		ask("/debits", key("cancelled"), body("ANNA"))
		ask("/payments/by-key/debit/"+key("cancelled")+"/cancel", "", "")
	})
	all.Wait()
}
