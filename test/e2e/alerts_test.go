//go:build prometheus

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/crashpoint"
	"github.com/safeledger/safeledger/internal/pgtest"
	"github.com/safeledger/safeledger/internal/walletsim"
	"github.com/safeledger/safeledger/test/rules"
)

// installation is what one Prometheus sees under one namespace: a database, a wallet
// and replicas, with tills that pay until the installation is judged.
type installation struct {
	*world
	p         *watcher
	namespace string

	tills sync.WaitGroup
	close context.CancelFunc
	open  context.Context //nolint:containedctx // until the shop closes
}

// opened is a new installation.
func (p *watcher) opened(t *testing.T, namespace string) *installation {
	t.Helper()
	s := &installation{world: newWorld(t), p: p, namespace: namespace}
	s.open, s.close = context.WithCancel(t.Context())
	t.Cleanup(func() {
		s.close()
		s.tills.Wait()
	})
	return s
}

// join starts a replica of a role and has it scraped.
func (s *installation) join(role string, env ...string) *replica {
	s.t.Helper()
	r := s.startRole(plain, role, append(slices.Clone(hurried), env...)...)
	s.p.watch(s.namespace, r)
	return r
}

// pay has tills at r do something again and again: do gets the number of the try,
// and its answer is not looked at.
func (s *installation) pay(r *replica, tills int, pause time.Duration, do func(r *replica, till, n int)) {
	for till := range tills {
		s.tills.Go(func() {
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for n := 0; ; n++ {
				do(r, till, n)
				select {
				case <-s.open.Done():
					return
				case <-tick.C:
				}
			}
		})
	}
}

// debits is a till that debits account. Whatever becomes of that is what the
// scenario is about, so it is not looked at; after the end of the test nobody may
// complain either.
func debits(account string, header ...string) func(r *replica, till, n int) {
	return func(r *replica, till, n int) {
		body := fmt.Sprintf(`{"account": %q, "amount": 1250, "currency": "EUR"}`, account)
		req, err := http.NewRequestWithContext(r.w.t.Context(), http.MethodPost, r.http+"/debits", strings.NewReader(body))
		if err != nil {
			return
		}
		req.GetBody = nil
		req.Header.Set("Idempotency-Key", fmt.Sprintf("key-of-%s-%d-%d", account, till, n))
		req.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		_, _ = r.do(req)
	}
}

// fired are the alerts that have fired in this installation so far, with their severity.
func (s *installation) fired() map[string]bool {
	s.t.Helper()
	samples, err := s.p.query(s.t.Context(), fmt.Sprintf(`max_over_time(ALERTS{alertstate="firing", namespace=%q}[1h])`, s.namespace))
	if err != nil {
		s.t.Fatal(err)
	}
	names := map[string]bool{}
	for _, sample := range samples {
		names[sample.labels["alertname"]] = true
		names[sample.labels["alertname"]+" "+sample.labels["severity"]] = true
	}
	return names
}

// await waits until all of these alerts have fired.
func (s *installation) await(alerts ...string) {
	s.t.Helper()
	deadline := time.After(3 * patience)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		fired := s.fired()
		missing := slices.DeleteFunc(slices.Clone(alerts), func(a string) bool { return fired[a] })
		if len(missing) == 0 {
			return
		}
		select {
		case <-deadline:
			s.t.Fatalf("%q have not fired; %v have", missing, fired)
		case <-tick.C:
		}
	}
}

// judge says what has fired that neither had to nor may have, as what follows from the
// same fault. It is called while all replicas are still there.
func (s *installation) judge(allowed ...string) {
	s.t.Helper()
	for alert := range s.fired() {
		name, _, _ := strings.Cut(alert, " ")
		if !slices.Contains(allowed, name) {
			s.t.Errorf("%s fired too", alert)
		}
	}
}

// scenario is a fault, and what Prometheus must make of it.
type scenario struct {
	name string
	// run brings the fault about and waits for its alerts.
	run func(t *testing.T, s *installation)
	// fires are the alerts that must fire, and follows those that may besides.
	fires, follows []string
}

// It must show, of the issue: a real Prometheus that scrapes replicas under faults has
// each alert fire where it should, and none of the others; and where nothing is
// wrong, none at all. Only durations are shortened, see rules.Shorten.
func TestEachAlertFiresWhereItShould(t *testing.T) {
	p := startWatcher(t)
	p.awaitNobody(t)
	tool, err := rules.Build(t.Context(), repository, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree, err := rules.Read(t.Context(), repository, tool)
	if err != nil {
		t.Fatal(err)
	}
	provoked := map[string]bool{"SafeLedgerAbsent": true} // by awaitNobody
	for _, c := range scenarios() {
		for _, alert := range c.fires {
			name, _, _ := strings.Cut(alert, " ") // a severity may follow
			provoked[name] = true
		}
	}
	for _, alert := range tree.Alerts() {
		if !provoked[alert] {
			t.Errorf("%s is provoked nowhere", alert)
		}
	}

	// All at once, beside one that is well.
	t.Run("at once", func(t *testing.T) {
		healthy := p.healthy(t)
		t.Run("faults", func(t *testing.T) {
			for _, c := range scenarios() {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					s := p.opened(t, strings.ReplaceAll(c.name, " ", "-"))
					c.run(t, s)
					s.await(c.fires...)
					s.judge(append(slices.Clone(c.fires), c.follows...)...)
					s.p.forget(s.namespace)
				})
			}
		})
		healthy()
	})
	for _, complaint := range p.unwell(t.Context()) {
		t.Error(complaint)
	}
}

// awaitNobody is what it looks like when nothing is scraped at all.
func (p *watcher) awaitNobody(t *testing.T) {
	t.Helper()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for range patience / (500 * time.Millisecond) {
		firing, err := p.query(t.Context(), `ALERTS{alertname="SafeLedgerAbsent", alertstate="firing", severity="page"}`)
		if err != nil {
			t.Fatal(err)
		}
		if len(firing) == 1 {
			return
		}
		<-tick.C
	}
	t.Error("SafeLedgerAbsent does not fire where there is nothing")
}

// forget stops scraping an installation, whose alerts are of no interest any more.
func (p *watcher) forget(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.targets, namespace)
	p.publish()
}

// healthy is an installation of two replicas with everything that belongs to an
// ordinary day, of which a rolling restart is a part. The function that it returns
// judges it.
func (p *watcher) healthy(t *testing.T) func() {
	t.Helper()
	s := p.opened(t, "healthy")
	first, second := s.join("all"), s.join("all")
	ordinary := func(r *replica, till, n int) {
		key := func(name string) string { return fmt.Sprintf("key-of-%s-%d-%d-%d", name, r.cmd.Process.Pid, till, n) }
		body := func(account string) string {
			return fmt.Sprintf(`{"account": %q, "amount": 1250, "currency": "EUR"}`, account)
		}
		debit, _ := r.post("/debits", key("debit"), body("ANNA"))
		_, _ = r.post("/debits", key("debit"), body("ANNA"))
		_, _ = r.post("/debits", key("poor"), body("POOR-BERT"))
		_, _ = r.post("/debits", key("slow"), body("SLOW-150-ANNA"))
		_, _ = r.post("/credits", key("credit"), fmt.Sprintf(`{"account": "ANNA", "amount": 1, "currency": "EUR", "debitId": %q}`, debit.member("id")))
		hold, _ := r.post("/holds", key("hold"), body("ANNA"))
		_, _ = r.post("/holds/"+hold.member("id")+"/"+[]string{"capture", "release"}[n%2], key("end"), "")
		_, _ = r.post("/debits", key("cancelled"), body("ANNA"))
		_, _ = r.post("/payments/by-key/debit/"+key("cancelled")+"/cancel", "", "")
	}
	s.pay(first, 2, 400*time.Millisecond, ordinary)
	s.pay(second, 2, 400*time.Millisecond, ordinary)
	third := s.join("all")
	rolled := s.open
	began := time.Now()
	s.tills.Go(func() {
		// One that serves nobody is replaced: it leaves, is stopped, and another one comes.
		select {
		case <-rolled.Done():
			return
		case <-time.After(10 * time.Second):
		}
		p.leave(s.namespace, third)
		_ = third.cmd.Process.Signal(syscall.SIGTERM)
	})
	return func() {
		// A little of it behind the last fault, whatever that took.
		if rest := 30*time.Second - time.Since(began); rest > 0 {
			<-time.After(rest)
		}
		select {
		case <-third.exited:
			if code := exitCode(third.waitErr); code != 0 {
				t.Errorf("the replica that was replaced ended with %d", code)
			}
		default:
			t.Error("the replica that was replaced is still there")
		}
		s.judge()
		if decided, err := p.query(t.Context(), `sum(rate(safeledger_decisions_total{namespace="healthy"}[30s]))`); err != nil || len(decided) == 0 || decided[0].value == "0" {
			t.Errorf("nothing was decided: %v, %v", decided, err)
		}
	}
}

func scenarios() []scenario {
	return []scenario{
		{
			name: "an installation is taken away", fires: []string{"SafeLedgerAbsent", "SafeLedgerAbsent page"},
			run: func(_ *testing.T, s *installation) {
				r := s.join("all")
				s.seen("safeledger_build_info")
				s.p.leave(s.namespace, r)
			},
		},
		{
			name: "a replica dies with a payment", fires: []string{"SafeLedgerPaymentsRecovered", "SafeLedgerDown"},
			run: func(_ *testing.T, s *installation) {
				s.join("all")
				victim := s.start(binary, append(slices.Clone(hurried), "CRASH_AT="+crashpoint.AfterWalletAnswer)...)
				s.p.watch(s.namespace, victim)
				_, _ = victim.debit("key-of-the-victim", "ANNA")
				victim.awaitExit()
			},
		},
		{
			name: "the wallet is away", fires: []string{"SafeLedgerWalletNotDeciding", "SafeLedgerBreakerOpen page"},
			run: func(_ *testing.T, s *installation) {
				s.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Debit}, Fault: walletsim.Down()})
				s.pay(s.join("all"), 4, 150*time.Millisecond, debits("ANNA"))
			},
			follows: []string{"SafeLedgerBreakerOpen"},
		},
		{
			name: "the wallet is slow for a week", fires: []string{"SafeLedgerWalletAssumptionBroken"},
			run: func(_ *testing.T, s *installation) {
				r := s.join("all", "WALLET_SLOW_CALL=790ms", "BREAKER_SLOW_RATIO=1")
				s.pay(r, 4, 100*time.Millisecond, debits("SLOW-500-ANNA"))
			},
		},
		{
			// The follow-ups' call fails, and nothing else.
			name: "credits fail", fires: []string{"SafeLedgerQueueOld", "SafeLedgerBreakerOpen ticket"},
			run: func(_ *testing.T, s *installation) {
				s.rule(walletsim.Rule{Match: walletsim.Match{Operation: walletsim.Credit}, Fault: walletsim.Down()})
				r := s.join("all", "BREAKER_MIN_CALLS=3", "BREAKER_OPEN_FOR=2s")
				s.pay(r, 2, 200*time.Millisecond, func(r *replica, till, n int) {
					_, _ = r.post("/credits", fmt.Sprintf("key-of-%d-%d", till, n), `{"account": "ANNA", "amount": 1, "currency": "EUR"}`)
				})
			},
			follows: []string{"SafeLedgerBreakerOpen"},
		},
		{
			// Applied, the answer lost, and lookups that see nothing: nobody knows.
			name: "the wallet is blind", fires: []string{"SafeLedgerReversalOverdue", "SafeLedgerParked", "SafeLedgerBreakerOpen ticket"},
			run: func(_ *testing.T, s *installation) {
				r := s.join("all", "QUEUE_SETTLE_WINDOW=3s", "QUEUE_PARK_AFTER=45s", "BREAKER_MIN_CALLS=3", "BREAKER_OPEN_FOR=2s")
				for i := range 5 {
					r.mustDebit(fmt.Sprintf("key-of-%d", i), "BLIND-ANNA")
				}
				s.pay(r, 1, time.Second, debits("BLIND-BERT"))
			},
			follows: []string{"SafeLedgerBreakerOpen", "SafeLedgerWalletNotDeciding"},
		},
		{
			// Declined, settled as not applied, and applied after all.
			name: "the wallet applies late", fires: []string{"SafeLedgerLateApply"},
			run: func(_ *testing.T, s *installation) {
				r := s.join("all", "QUEUE_SETTLE_WINDOW=3s", "QUEUE_LATE_CHECKS=10s")
				r.mustDebit("key-of-the-late", "LATE-8000-ANNA")
			},
			follows: []string{"SafeLedgerReversalOverdue"},
		},
		{
			// A database that has forgotten everything, as after a failover or a restore:
			// the same key is claimed anew, and the wallet knows its reference.
			name: "claims are lost", fires: []string{"SafeLedgerDuplicateOnFirstSend"},
			run: func(t *testing.T, s *installation) {
				before := s.start(plain, append(slices.Clone(hurried), "WALLET_VERSION=v1")...)
				if first := before.mustDebit("key-of-the-lost", "ANNA"); first.status != http.StatusCreated {
					t.Fatalf("%d %s", first.status, first.body)
				}
				before.kill()
				s.databaseURL = newDatabase(t)
				s.migrate()
				// It counts the duplicate before it is scraped for the first time.
				after := s.startRole(plain, "all", append(slices.Clone(hurried), "WALLET_VERSION=v1")...)
				after.mustDebit("key-of-the-lost", "ANNA")
				s.p.watch(s.namespace, after)
			},
		},
		{
			name: "answers are mixed up", fires: []string{"SafeLedgerForeignAnswers"},
			run: func(_ *testing.T, s *installation) {
				r := s.join("all")
				s.seen("safeledger_wallet_calls_total")
				r.mustDebit("key-of-the-foreign", "FOREIGN-ANNA")
			},
		},
		{
			name: "the database is away", fires: []string{
				"SafeLedgerLedgerUnreachable", "SafeLedgerGateRefusing", "SafeLedgerRecoveryStalled", "SafeLedgerMoneyNotMeasured",
				"SafeLedgerNoWorkers", "SafeLedgerReplicaWithoutWorkers",
			},
			run: func(t *testing.T, s *installation) {
				cut := s.cutDatabase(t, "safeledger")
				r := s.join("all")
				s.pay(r, 2, 100*time.Millisecond, debits("ANNA"))
				s.seen("safeledger_follow_ups_read_timestamp_seconds")
				cut.Store(true)
			},
			follows: []string{"SafeLedgerOutcomeUnknown", "SafeLedgerPaymentsRecovered", "SafeLedgerStoreFailing", "SafeLedgerAnswersNearBudget"},
		},
		{
			name: "one replica's workers stand still", fires: []string{"SafeLedgerReplicaWithoutWorkers"},
			run: func(t *testing.T, s *installation) {
				s.join("all")
				cut := s.cutDatabase(t, "safeledger workers")
				s.join("worker")
				s.seen("safeledger_queue_leased_timestamp_seconds")
				cut.Store(true)
			},
		},
		{
			name: "nobody has workers", fires: []string{"SafeLedgerNoWorkers"},
			run: func(_ *testing.T, s *installation) {
				s.pay(s.join("api"), 1, 300*time.Millisecond, debits("ANNA"))
			},
		},
		{
			// The claim goes through and the decision does not, again and again.
			name: "decisions cannot be stored", fires: []string{"SafeLedgerStoreFailing", "SafeLedgerOutcomeUnknown", "SafeLedgerPaymentsRecovered"},
			run: func(_ *testing.T, s *installation) {
				s.execute(`CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
					IF current_setting('application_name') = 'safeledger tills' THEN RAISE EXCEPTION 'disk full' USING ERRCODE = '53100'; END IF;
					RETURN NEW; END $$`)
				s.execute(`CREATE TRIGGER refuse BEFORE UPDATE ON public.payments FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
				s.pay(s.join("all"), 2, 300*time.Millisecond, debits("ANNA"))
			},
		},
		{
			// Tills that ask with so short a deadline that whatever comes is near its end.
			name: "tills have no time", fires: []string{"SafeLedgerAnswersNearBudget"},
			run: func(_ *testing.T, s *installation) {
				s.pay(s.join("all"), 4, 200*time.Millisecond, debits("ANNA", "Request-Deadline-Ms", "690"))
			},
			follows: []string{"SafeLedgerWalletNotDeciding", "SafeLedgerOutcomeUnknown", "SafeLedgerPaymentsRecovered", "SafeLedgerStoreFailing"},
		},
		{
			// A machine that freezes in the middle of a payment.
			name: "a replica is frozen", fires: []string{"SafeLedgerAnswersTooLate"},
			run: func(t *testing.T, s *installation) {
				r := s.join("all", "RECOVERY_GRACE=30s")
				s.seen("safeledger_build_info")
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					_, _ = r.debit("key-of-the-frozen", "SLOW-700-ANNA")
				}()
				s.awaitBooked(func(e walletsim.Entry) bool { return e.Event == walletsim.Arrived })
				r.signal(syscall.SIGSTOP)
				<-time.After(3500 * time.Millisecond)
				r.signal(syscall.SIGCONT)
				<-answered
			},
			follows: []string{
				"SafeLedgerDown", "SafeLedgerAnswersNearBudget", "SafeLedgerOutcomeUnknown", "SafeLedgerPaymentsRecovered", "SafeLedgerRecoveryStalled",
				"SafeLedgerNoWorkers", "SafeLedgerReplicaWithoutWorkers", "SafeLedgerAbsent", "SafeLedgerMoneyNotMeasured",
			},
		},
		{
			name: "too many come", fires: []string{"SafeLedgerGateRefusing"},
			run: func(_ *testing.T, s *installation) {
				r := s.join("all", "GATE_MAX_IN_FLIGHT=2", "WALLET_MAX_IN_FLIGHT=2", "QUEUE_WORKERS=2", "DATABASE_MAX_CONNS=4")
				s.pay(r, 8, 20*time.Millisecond, debits("SLOW-200-ANNA"))
			},
		},
		{
			name: "a rollout is left half done", fires: []string{"SafeLedgerSchemaMismatch"},
			run: func(_ *testing.T, s *installation) {
				s.join("all")
				s.execute(`INSERT INTO public.goose_db_version (version_id, is_applied) VALUES (99999, true)`)
			},
		},
		{
			name: "a clock is wrong", fires: []string{"SafeLedgerClockSkew"},
			run: func(t *testing.T, s *installation) {
				pgtest.ShiftClock(t, s.databaseURL, 5*time.Second)
				s.join("all")
			},
		},
	}
}

// seen waits until Prometheus has a metric of this installation.
func (s *installation) seen(metric string) {
	s.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for range patience / (200 * time.Millisecond) {
		found, err := s.p.query(s.t.Context(), fmt.Sprintf("%s{namespace=%q}", metric, s.namespace))
		if err != nil {
			s.t.Fatal(err)
		}
		if len(found) > 0 {
			return
		}
		<-tick.C
	}
	s.t.Fatalf("%s has not been scraped", metric)
}

func (s *installation) migrate() {
	s.t.Helper()
	migrate := exec.Command(plain, "migrate")
	migrate.Env = []string{"SAFELEDGER_DATABASE_URL=" + s.databaseURL}
	if out, err := migrate.CombinedOutput(); err != nil {
		s.t.Fatalf("migrate: %v: %s", err, out)
	}
}

func (s *installation) execute(sql string) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.databaseURL)
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close(s.t.Context())
	if _, err := conn.Exec(s.t.Context(), sql); err != nil {
		s.t.Fatalf("%s: %v", sql, err)
	}
}

// cutDatabase leads the replicas that join from now on through a proxy. When the
// switch is thrown it cuts the connections whose application begins with name, and
// every new one of these.
func (s *installation) cutDatabase(t *testing.T, name string) *atomic.Bool {
	t.Helper()
	cut := &atomic.Bool{}
	s.databaseURL = pgtest.Through(t, s.databaseURL, func(client, server net.Conn) {
		defer func() { _, _ = client.Close(), server.Close() }()
		var concerned atomic.Bool
		var both sync.WaitGroup
		for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
			both.Go(func() {
				defer func() { _, _ = client.Close(), server.Close() }()
				buffer := make([]byte, 64<<10)
				for {
					n, err := way[0].Read(buffer)
					if bytes.Contains(buffer[:n], []byte("application_name\x00"+name)) {
						concerned.Store(true)
					}
					if err != nil || concerned.Load() && cut.Load() {
						return
					}
					if _, err := way[1].Write(buffer[:n]); err != nil {
						return
					}
				}
			})
		}
		both.Wait()
	})
	return cut
}
