//go:build topologies

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/crashpoint"
	"github.com/safeledger/safeledger/internal/walletsim"
)

// Real proxies, from Debian's packages, as they come and with their retries switched
// on: `make test-topologies`. What they do to a POST was measured before (nginx and
// HAProxy turn a dropped answer into 502, and repeat it where they are told to); here
// is what becomes of a payment behind them.

// intermediary is a program between two of ours.
type intermediary struct {
	name string
	// start listens on a free port in front of targets and returns its address.
	start func(t *testing.T, targets ...string) string
	// repeats is set where it sends a POST again by itself.
	repeats bool
}

var intermediaries = []intermediary{
	{"nginx", func(t *testing.T, targets ...string) string { return startNginx(t, "", targets) }, false},
	{"nginx non_idempotent", func(t *testing.T, targets ...string) string {
		return startNginx(t, "proxy_next_upstream error timeout http_502 http_503 http_504 non_idempotent;", targets)
	}, true},
	{"haproxy", func(t *testing.T, targets ...string) string { return startHAProxy(t, "", targets) }, false},
	{"haproxy all-retryable-errors", func(t *testing.T, targets ...string) string {
		return startHAProxy(t, "retry-on all-retryable-errors", targets)
	}, true},
}

// Promises 2 to 4 with a proxy in front of the wallet: SafeLedger makes one call for a
// payment, whatever the proxy makes of it; a proxy that repeats is told apart in the
// wallet's book and deduplicated by the reference; and nobody pays for a decline.
func TestAProxyInFrontOfTheWalletCostsNobodyMoney(t *testing.T) {
	t.Parallel()
	for _, proxy := range intermediaries {
		for name, c := range map[string]struct {
			fault walletsim.Fault
			once  bool // only the first request; the proxy's repeats are answered
		}{
			"healthy":                 {fault: walletsim.Fault{}},
			"applied, then closed":    {fault: walletsim.LoseAnswer(walletsim.FIN), once: true},
			"applied, then reset":     {fault: walletsim.LoseAnswer(walletsim.RST), once: true},
			"always applied and lost": {fault: walletsim.LoseAnswer(walletsim.FIN)},
			"503, not applied":        {fault: walletsim.Down()},
			"hangs":                   {fault: walletsim.Stall()},
			"cut in the middle":       {fault: walletsim.Fault{Cut: walletsim.Ending{At: walletsim.MidBody, How: walletsim.FIN}}},
		} {
			t.Run(proxy.name+", "+name, func(t *testing.T) {
				t.Parallel()
				const opening = 100_000
				w := newWorld(t)
				w.wallet.SetBalance("ANNA", "EUR", opening)
				match := walletsim.Match{Operation: walletsim.Debit}
				if c.once {
					match.Attempt = 1
				}
				w.rule(walletsim.Rule{Match: match, Fault: c.fault})
				address := proxy.start(t, hostOf(t, w.wallet.URL()))
				r := w.start(plain, append([]string{"WALLET_BASE_URL=http://" + address, "QUEUE_SETTLE_WINDOW=4s", "QUEUE_PARK_AFTER=1m"}, hurried...)...)

				answer := r.mustDebit("key-of-the-debit", "ANNA")
				applied, asked := w.applied("ANNA")
				if asked > 1 && !proxy.repeats {
					t.Errorf("the wallet was asked %d times", asked)
				}
				if asked > 1 {
					t.Logf("the proxy made %d requests of one", asked)
				}
				if applied > 1 {
					t.Errorf("applied %d times", applied)
				}
				var calls int
				w.query(`SELECT count(*) FROM wallet_calls WHERE call = 'debit'`, nil, &calls)
				if calls != 1 {
					t.Errorf("SafeLedger made %d calls for one payment", calls)
				}
				if replay := r.mustDebit("key-of-the-debit", "ANNA"); replay.body != answer.body || replay.status != answer.status {
					t.Errorf("the replay differs: %d %s, then %d %s", answer.status, answer.body, replay.status, replay.body)
				}
				want := int64(opening)
				switch answer.status {
				case http.StatusCreated:
					want -= 1250
				case http.StatusFailedDependency, http.StatusPaymentRequired:
					w.awaitRow(`SELECT count(*) FROM operations WHERE state = 'PENDING'`, 0)
				default:
					t.Errorf("answered %d %s", answer.status, answer.body)
				}
				if err := w.wallet.WaitQuiet(t.Context()); err != nil && c.fault.Cut.How != walletsim.Hang {
					t.Fatal(err)
				}
				if got := w.wallet.Balance("ANNA", "EUR"); got != want {
					t.Errorf("told %d, and the customer has %d, want %d", answer.status, got, want)
				}
			})
		}
	}
}

// Promises 1 to 3 with a proxy in front of two replicas: whatever the proxy repeats
// when one of them dies in the middle of a payment, the payment is one, and whoever
// asks hears the same in the end.
func TestAProxyInFrontOfUsMakesNoSecondPayment(t *testing.T) {
	t.Parallel()
	for _, proxy := range intermediaries {
		for _, point := range []string{crashpoint.AfterClaim, crashpoint.AfterSend, crashpoint.BeforeAnswer} {
			t.Run(proxy.name+", "+point, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				victim := w.start(binary, append(quick, "CRASH_AT="+point)...)
				survivor := w.start(plain, quick...)
				address := proxy.start(t, hostOf(t, victim.http), hostOf(t, survivor.http))
				through := &replica{w: w, http: "http://" + address}

				// Until the victim has had its turn, and once more behind it.
				for i := range 3 {
					key := fmt.Sprintf("key-of-%d", i)
					_, _ = through.plainDebit(key)
					final := survivor.awaitEither(key)
					if applied, asked := w.applied("ANNA-" + key); applied > 1 || asked > 1 {
						t.Errorf("%s: the wallet was asked %d times and applied %d", key, asked, applied)
					}
					if final.status != http.StatusOK && final.status != http.StatusNotFound {
						t.Errorf("%s: %d %s", key, final.status, final.body)
					}
				}
			})
		}
	}
}

// A gate's refusal that a proxy repeats is repeated rightly: nothing was begun, and
// the payment that comes of it is one.
func TestAGateBehindAProxyIsRepeatedWithoutHarm(t *testing.T) {
	t.Parallel()
	for _, proxy := range intermediaries {
		t.Run(proxy.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			draining := w.start(plain, "DRAIN_DELAY=0s", "RECOVERY_GRACE=300ms")
			go func() { _, _ = draining.debit("key-of-the-slow", "SLOW-700-ANNA") }()
			w.awaitBooked(func(e walletsim.Entry) bool { return e.Event == walletsim.Arrived })
			other := w.start(plain, quick...)
			address := proxy.start(t, hostOf(t, draining.http), hostOf(t, other.http))
			draining.signal(syscall.SIGTERM)
			draining.log.await(t, draining.exited, `"msg":"draining"`)
			through := &replica{w: w, http: "http://" + address}
			for i := range 4 {
				key := fmt.Sprintf("key-of-%d", i)
				answer, err := through.plainDebit(key)
				if err != nil {
					t.Error(err)
					continue
				}
				applied, asked := w.applied("ANNA-" + key)
				switch {
				case answer.status == http.StatusCreated && applied == 1 && asked == 1:
				case answer.status == http.StatusServiceUnavailable && asked == 0:
				case answer.status == http.StatusBadGateway && asked == 0: // the proxy's own: nobody was there to connect to
				default:
					t.Errorf("answered %d %s with %d requests and %d effects", answer.status, answer.body, asked, applied)
				}
			}
		})
	}
}

// S30, L19: pgbouncer in transaction mode, as it comes. With DATABASE_POOLER=pgbouncer
// nothing is prepared and no session is set: many tills at once, replays, follow-ups
// and recovery are as without it.
func TestPgbouncerInTransactionModeKeepsEveryPromise(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	direct := w.databaseURL
	w.databaseURL = startPgbouncer(t, direct)
	r := w.start(plain, append([]string{"DATABASE_POOLER=pgbouncer"}, hurried...)...)
	w.databaseURL = direct
	var all sync.WaitGroup
	for till := range 16 {
		all.Go(func() {
			for i := range 25 {
				key := fmt.Sprintf("key-of-%d-%d", till, i)
				first, err := r.debit(key, "ANNA")
				if err != nil || first.status != http.StatusCreated {
					t.Errorf("debit: %d %s, %v", first.status, first.body, err)
					return
				}
				if again, err := r.debit(key, "ANNA"); err != nil || again.body != first.body {
					t.Errorf("replay: %d %s, %v", again.status, again.body, err)
				}
				credit, err := r.post("/credits", "credit-"+key, fmt.Sprintf(`{"account": "ANNA", "amount": 1, "currency": "EUR", "debitId": %q}`, first.member("id")))
				if err != nil || credit.status != http.StatusAccepted {
					t.Errorf("credit: %d %s, %v", credit.status, credit.body, err)
				}
			}
		})
	}
	all.Wait()
	w.awaitRow(`SELECT count(*) FROM operations WHERE state = 'PENDING'`, 0)
	if applied, asked := w.applied("ANNA"); applied != 16*25 || asked != 16*25 {
		t.Errorf("the wallet was asked %d times and applied %d, want %d", asked, applied, 16*25)
	}
	for _, code := range []string{"42P05", "26000", "08P01"} {
		if strings.Contains(r.log.String(), "SQLSTATE "+code) { // by itself it is in many a timestamp
			t.Errorf("the log tells of SQLSTATE %s", code)
		}
	}
}

// plainDebit is debit without the check against our document: what a proxy answers is
// not in it.
func (r *replica) plainDebit(key string) (reply, error) {
	body := fmt.Sprintf(`{"account": %q, "amount": 1250, "currency": "EUR"}`, "ANNA-"+key)
	req, err := http.NewRequestWithContext(r.w.t.Context(), http.MethodPost, r.http+"/debits", strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.GetBody = nil
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	client := &http.Client{Transport: witness{&http.Transport{DisableKeepAlives: true}, &r.w.told}, Timeout: patience}
	resp, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	return reply{resp.StatusCode, resp.Header, readAll(r.w.t, resp.Body), resp.Close}, nil
}

// awaitEither is awaitDecision, but for a request that may never have arrived.
func (r *replica) awaitEither(key string) reply {
	answer, err := r.get("/payments/by-key/debit/" + key)
	if err == nil && answer.member("code") == "PAYMENT_NOT_FOUND" {
		return answer
	}
	return r.awaitDecision(key)
}

func hostOf(t *testing.T, base string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func startNginx(t *testing.T, retries string, targets []string) string {
	t.Helper()
	address := freeAddress(t)
	servers := ""
	for _, target := range targets {
		servers += "server " + target + " max_fails=0; "
	}
	if len(targets) == 1 { // a second way to the same place, so that there is a next one
		servers += servers
	}
	_, path := writeConfig(t, "nginx.conf", `
daemon off; master_process off; pid @DIR@/pid; error_log stderr warn;
events {}
http {
  access_log off;
  client_body_temp_path @DIR@/body; proxy_temp_path @DIR@/proxy; fastcgi_temp_path @DIR@/f; uwsgi_temp_path @DIR@/u; scgi_temp_path @DIR@/s;
  upstream next { `+servers+` }
  server { listen `+address+`; location / { proxy_pass http://next; proxy_set_header Host $http_host; `+retries+` } }
}`)
	startProgram(t, address, "nginx", "-c", path, "-e", "stderr")
	return address
}

func startHAProxy(t *testing.T, retries string, targets []string) string {
	t.Helper()
	address := freeAddress(t)
	servers := ""
	for i, target := range targets {
		servers += fmt.Sprintf("  server s%d %s\n", i, target)
	}
	_, path := writeConfig(t, "haproxy.cfg", `
defaults
  mode http
  timeout connect 1s
  timeout client 10s
  timeout server 5s
  option redispatch
listen all
  bind `+address+`
  balance roundrobin
  `+retries+`
`+servers)
	startProgram(t, address, "haproxy", "-db", "-f", path)
	return address
}

func startPgbouncer(t *testing.T, databaseURL string) string {
	t.Helper()
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	dir, _ := writeConfig(t, "users.txt", fmt.Sprintf("%q %q\n", config.User, config.Password))
	path := filepath.Join(dir, "pgbouncer.ini")
	content := fmt.Sprintf(`[databases]
* = host=%s port=%d
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = plain
auth_file = %s/users.txt
pool_mode = transaction
default_pool_size = 8
max_client_conn = 200
`, config.Host, config.Port, port, dir)
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	startProgram(t, address, "pgbouncer", path)
	return fmt.Sprintf("postgres://%s:%s@%s/%s", config.User, config.Password, address, config.Database)
}
