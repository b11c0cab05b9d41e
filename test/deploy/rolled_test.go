//go:build topologies

package deploy

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A release: production's replicas for tills are replaced one after the other, as
// their Deployment says, while tills pay through a real nginx that hears of each
// endpoint late. No till sees anything but its decision, and nothing is asked of the
// wallet twice.
func TestARolloutLosesNoAnswer(t *testing.T) {
	needNode(t)
	deploy := filepath.Join(root, "deploy")
	o := render(t, deploy, "production")[0]
	c := &cluster{t: t, in: &inspection{overlay: o}, database: newDatabase(t)}
	c.startWallet()
	c.migrate()

	var served workload
	for _, w := range o.replicas() {
		if of, _ := w.program("safeledger"); roleOf(of) != "worker" {
			served = w
			continue
		}
		c.startReplica(w)
	}
	// What follows does what this says and nothing else.
	if u := served.controller.Strategy.RollingUpdate; u == nil || u.MaxUnavailable != "0" || u.MaxSurge != "1" {
		t.Fatalf("%s is updated otherwise: %+v", served, u)
	}
	of, _ := served.program("safeledger")
	drain, err := time.ParseDuration(c.environment(served, of)["SAFELEDGER_DRAIN_DELAY"])
	if err != nil {
		t.Fatal(err)
	}

	var serving []*running
	more := func() {
		c.startReplica(served)
		serving = append(serving, c.replicas[len(c.replicas)-1])
	}
	const replicas = 2
	for range replicas {
		more()
	}
	proxy := startNginx(t, serving)

	const tills = 16
	load := &steadyLoad{
		t: t, url: "http://" + proxy.address, stop: make(chan struct{}),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: tills}, Timeout: patience},
	}
	load.start(tills)
	for range replicas {
		more() // maxSurge: 1, and ready before another one goes
		proxy.serve(serving)
		old := serving[0]
		serving = serving[1:]
		before := load.approved.Load()
		if err := old.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		// Half of the drain delay passes until the last proxy has heard of it.
		select {
		case <-time.After(drain / 2):
		case <-old.exited:
			t.Error("it ended before the proxies had heard that it goes")
		}
		proxy.serve(serving)
		grace := time.Duration(*served.pod.TerminationGracePeriodSeconds) * time.Second
		if code := old.exit(grace); code != 0 {
			t.Errorf("exit code %d:\n%s", code, old.out)
		}
		if load.approved.Load() == before {
			t.Error("nothing was decided meanwhile: there was no load")
		}
	}
	load.end()
	t.Logf("%d payments while two replicas were replaced", load.approved.Load())

	asked, applied := map[string]int{}, int64(0)
	for _, e := range c.book() {
		switch {
		case e.Operation != "debit":
		case e.Event == "ARRIVED":
			asked[e.Reference]++
		case e.Event == "APPLIED":
			applied++
		}
	}
	for reference, n := range asked {
		if n != 1 {
			t.Errorf("%s was asked for %d times", reference, n)
		}
	}
	if applied != load.approved.Load() {
		t.Errorf("%d were approved, and %d applied", load.approved.Load(), applied)
	}
}

// steadyLoad are tills that pay, one payment after the other.
type steadyLoad struct {
	t        *testing.T
	url      string
	client   *http.Client
	approved atomic.Int64
	stop     chan struct{}
	all      sync.WaitGroup
}

func (l *steadyLoad) start(tills int) {
	for till := range tills {
		l.all.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-l.stop:
					return
				default:
				}
				if answer, err := l.pay(fmt.Sprintf("payment-%d-of-%d", n, till)); err != nil || answer.StatusCode != http.StatusCreated {
					l.t.Errorf("payment %d of till %d: %v, %v", n, till, answer, err)
					return
				}
				l.approved.Add(1)
			}
		})
	}
}

// pay sends one payment as tills do it: over connections that are kept, and once more,
// under its key, where one was closed under it, as a proxy does that has heard of other
// endpoints. Go's client does that by itself for whatever has a key.
func (l *steadyLoad) pay(key string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(l.t.Context(), http.MethodPost, l.url+"/debits", strings.NewReader(`{"account": "ANNA", "amount": 1, "currency": "EUR"}`))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+firstToken)
	req.Header.Set("Idempotency-Key", key)
	req.Header.Set("Content-Type", "application/json")
	answer, err := l.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer, err
}

func (l *steadyLoad) end() {
	close(l.stop)
	l.all.Wait()
}

// booked is a line of the simulated wallet's book.
type booked struct{ Event, Operation, Reference string }

func (c *cluster) book() []booked {
	c.t.Helper()
	var all []booked
	for since := int64(0); ; {
		_, body := ask(c.t, http.MethodGet, fmt.Sprintf("%s/control/book?since=%d", c.wallet, since), "", "", "")
		var page struct {
			Entries []booked
			Last    int64
			More    bool
		}
		if err := json.Unmarshal([]byte(body), &page); err != nil {
			c.t.Fatalf("the wallet's book: %v: %s", err, body)
		}
		all = append(all, page.Entries...)
		if since = page.Last; !page.More {
			return all
		}
	}
}

// nginx is what stands between tills and replicas. It keeps connections to both, and
// repeats nothing.
type nginx struct {
	t       *testing.T
	address string
	dir     string
	cmd     *exec.Cmd
}

func startNginx(t *testing.T, replicas []*running) *nginx {
	t.Helper()
	dir, err := os.MkdirTemp("", "safeledger-rollout-") //nolint:usetesting // nginx's workers are another user
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	n := &nginx{t: t, address: freeAddress(t), dir: dir}
	n.configure(replicas)
	program, err := exec.LookPath("nginx")
	if err != nil {
		program = "/usr/sbin/nginx" // where Debian has it, outside an ordinary PATH
	}
	said := &lines{}
	n.cmd = exec.Command(program, "-c", filepath.Join(dir, "nginx.conf"), "-e", "stderr")
	n.cmd.Stdout, n.cmd.Stderr = said, said
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.cmd.Start(); err != nil {
		t.Fatalf("%v (tools/require topologies installs it)", err)
	}
	t.Cleanup(func() {
		_ = n.cmd.Process.Signal(syscall.SIGTERM)
		_ = n.cmd.Wait()
		if t.Failed() {
			t.Logf("nginx said:\n%s", said)
		}
	})
	poll(t, patience, "nginx", func() bool {
		status, _ := ask(t, http.MethodGet, "http://"+n.address+"/", "", "", "")
		return status == http.StatusNotFound || status == http.StatusUnauthorized
	})
	return n
}

func (n *nginx) configure(replicas []*running) {
	n.t.Helper()
	var servers strings.Builder
	for _, r := range replicas {
		fmt.Fprintf(&servers, "server %s max_fails=0; ", strings.TrimPrefix(r.http, "http://"))
	}
	content := strings.NewReplacer("@DIR@", n.dir, "@ADDRESS@", n.address, "@SERVERS@", servers.String()).Replace(`
daemon off; worker_processes 1; pid @DIR@/pid; error_log stderr warn;
events {}
http {
  access_log off;
  client_body_temp_path @DIR@/body; proxy_temp_path @DIR@/proxy; fastcgi_temp_path @DIR@/f; uwsgi_temp_path @DIR@/u; scgi_temp_path @DIR@/s;
  upstream replicas { @SERVERS@ keepalive 32; }
  server { listen @ADDRESS@; location / {
    proxy_pass http://replicas; proxy_set_header Host $http_host; proxy_http_version 1.1; proxy_set_header Connection "";
    proxy_next_upstream off;
  } }
}`)
	if err := os.WriteFile(filepath.Join(n.dir, "nginx.conf"), []byte(content), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// serve makes nginx serve from replicas, as an ingress controller does it.
func (n *nginx) serve(replicas []*running) {
	n.t.Helper()
	n.configure(replicas)
	if err := n.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		n.t.Fatal(err)
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
