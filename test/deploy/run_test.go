package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/callers"
	"github.com/safeledger/safeledger/internal/config"
	"github.com/safeledger/safeledger/internal/devstack"
	"github.com/safeledger/safeledger/migrations"
)

// patience bounds every wait; none of them is a claim about speed.
const patience = 60 * time.Second

// postgres is the server of these tests, started by the first that asks.
var (
	postgres      *devstack.Postgres
	startPostgres = sync.OnceValues(func() (_ *devstack.Postgres, err error) {
		postgres, err = devstack.StartPostgres(context.Background(), devstack.Options{})
		return postgres, err
	})
	databases atomic.Int64
)

// newDatabase is the URL of an empty database.
func newDatabase(t *testing.T) string {
	t.Helper()
	p, err := startPostgres()
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), p.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	name := fmt.Sprintf("deploy_%d", databases.Add(1))
	if _, err := admin.Exec(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	c := admin.Config()
	return fmt.Sprintf("postgres://%s:%s@%s/%s", c.User, c.Password, net.JoinHostPort(c.Host, fmt.Sprint(c.Port)), name)
}

// pod is a container that runs as a node would run it: the image is all there is below
// its root, which belongs to somebody else and cannot be written to; mounted Secrets
// are there, as the kubelet lays them out; nothing is inherited.
type pod struct {
	t      *testing.T
	root   string
	cmd    *exec.Cmd
	out    *lines
	exited chan struct{}
	err    error
}

// needNode skips where a process cannot be locked in like that.
func needNode(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		t.Skip("only root on Linux can give a process another root")
	}
}

// unpack writes an image below a new root.
func unpack(t *testing.T, img image) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range img.files {
		// A program that another test starts meanwhile would hold the file open for
		// writing until it has become that program, and ours could not be started.
		syscall.ForkLock.RLock()
		err := os.WriteFile(filepath.Join(dir, f.Name), f.content, 0o600)
		syscall.ForkLock.RUnlock()
		if err := errors.Join(err, os.Chmod(filepath.Join(dir, f.Name), os.FileMode(f.Mode))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	return dir
}

// mount lays a Secret out below root: each file is a link into a folder that a link
// leads to, and to replace the Secret is to turn that link. Files belong to root and
// to the pod's fsGroup.
func mount(t *testing.T, root, path string, files map[string]string, mode os.FileMode, group int) {
	t.Helper()
	folder := filepath.Join(root, path)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(folder, 0o755))
	generation := filepath.Join(folder, fmt.Sprintf("..%d", time.Now().UnixNano()))
	must(os.Mkdir(generation, 0o755))
	for name, content := range files {
		file := filepath.Join(generation, name)
		must(os.WriteFile(file, []byte(content), 0o400))
		must(os.Chown(file, 0, group))
		must(os.Chmod(file, mode))
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(folder, name)); !errors.Is(err, os.ErrExist) {
			must(err)
		}
	}
	temporary := filepath.Join(folder, "..data_tmp")
	must(os.Symlink(filepath.Base(generation), temporary))
	must(os.Rename(temporary, filepath.Join(folder, "..data")))
}

// start runs an image's program below root, as who the image or the pod says.
func start(t *testing.T, root string, img image, who securityContext, args []string, env map[string]string) *pod {
	t.Helper()
	p := &pod{t: t, root: root, out: &lines{}, exited: make(chan struct{})}
	p.cmd = &exec.Cmd{Path: img.Config.Config.Entrypoint[0], Args: append(img.Config.Config.Entrypoint, args...), Dir: "/", Env: []string{}}
	for name, value := range env {
		p.cmd.Env = append(p.cmd.Env, name+"="+value)
	}
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	id := func(n *int, otherwise int) uint32 {
		if n != nil {
			otherwise = *n
		}
		return uint32(otherwise)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Setpgid: true, Credential: &syscall.Credential{
		Uid: id(who.RunAsUser, imageUser), Gid: id(who.RunAsGroup, imageUser), Groups: []uint32{id(who.FSGroup, imageUser)},
	}}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("%v said:\n%s", p.cmd.Args, p.out)
		}
	})
	return p
}

// exit waits until the program ends, and says how.
func (p *pod) exit(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(limit):
		p.t.Fatalf("%v is still there after %v", p.cmd.Args, limit)
	}
	return p.cmd.ProcessState.ExitCode()
}

// lines is what a program says.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// await polls what the program says until pattern is in it, and returns its first group.
func (p *pod) await(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	var found string
	poll(p.t, patience, pattern, func() bool {
		m := re.FindStringSubmatch(p.out.String())
		if m != nil {
			found = m[len(m)-1]
		}
		select {
		case <-p.exited:
			if m == nil {
				p.t.Fatalf("%v ended before it said %s:\n%s", p.cmd.Args, pattern, p.out)
			}
		default:
		}
		return m != nil
	})
	return found
}

// poll asks again and again whether something is so.
func poll(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, limit)
		}
	}
}

// ask sends one request as a caller.
func ask(t *testing.T, method, url, token, key, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.GetBody = nil
	req.Header.Set("Authorization", "Bearer "+token)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(content)
}

// The image is all there is on the node: whoever asks it at 3 a.m. what it is, or got
// a variable wrong, is told by it.
func TestTheImageSaysWhatItIsAndWhatIsWrong(t *testing.T) {
	t.Parallel()
	needNode(t)
	img := built(t, "safeledger")

	version := start(t, unpack(t, img), img, securityContext{}, []string{"version"}, nil)
	if code := version.exit(patience); code != 0 {
		t.Errorf("version: exit code %d", code)
	}
	for _, want := range []string{testVersion, testRevision, runtime.Version(), fmt.Sprintf("schema %d", migrations.Latest)} {
		if !strings.Contains(version.out.String(), want) {
			t.Errorf("it does not say %q: %s", want, version.out)
		}
	}
	// As it is run without arguments.
	wrong := start(t, unpack(t, img), img, securityContext{}, img.Config.Config.Cmd, map[string]string{"SAFELEDGER_BUDGET_SERVER": "soon"})
	if code := wrong.exit(patience); code != 2 {
		t.Errorf("a bad variable: exit code %d, want 2", code)
	}
	if !strings.Contains(wrong.out.String(), "SAFELEDGER_BUDGET_SERVER") {
		t.Errorf("it does not name the variable:\n%s", wrong.out)
	}
	// It has nothing to write to; that this holds here is what the other tests rely on.
	if err := os.WriteFile(filepath.Join(wrong.root, "probe"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(wrong.root)
	if err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("the root is %v (%v)", info, err)
	}
}

// A manifest that satisfies every schema can still start nothing. So each overlay is
// brought up from its images with the arguments, variables and files that it gives its
// containers: first the migration, then every role; a payment is decided, what follows
// it is carried out, a token is replaced, and everybody is gone within the grace that
// he has.
func TestTheOverlaysRunAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	needNode(t)
	deploy := filepath.Join(root, "deploy")
	for _, o := range render(t, deploy, overlays(t, deploy)...) {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			c := &cluster{t: t, in: &inspection{overlay: o}, database: newDatabase(t)}
			c.startWallet()
			c.migrate()
			for _, w := range o.replicas() {
				c.startReplica(w)
			}
			c.decide()
			c.rotate()
			c.end()
		})
	}
}

// cluster is one overlay's, with a database and a wallet of its own.
type cluster struct {
	t                *testing.T
	in               *inspection
	database, wallet string
	replicas         []*running
}

// running is a replica.
type running struct {
	*pod
	workload    workload
	http, admin string
}

// tokens are a till's before and after it is replaced. The first is that of overlays/dev.
const (
	firstToken  = "demo-till-token"
	secondToken = "demo-till-token-of-tomorrow"
)

// startWallet runs the simulated wallet, as the overlay has it or as dev would.
func (c *cluster) startWallet() {
	c.t.Helper()
	args := []string{"--open-accounts"}
	for _, w := range c.in.workloads() {
		if sim, ok := w.program("walletsim"); ok {
			args = sim.Args
		}
	}
	img := built(c.t, "walletsim")
	p := start(c.t, unpack(c.t, img), img, securityContext{}, args, map[string]string{"WALLETSIM_ADDR": "127.0.0.1:0"})
	c.wallet = p.await(`walletsim listens on (http://\S+)`)
}

func (c *cluster) migrate() {
	c.t.Helper()
	for _, w := range c.in.migrations() {
		m, _ := w.program("safeledger")
		img := built(c.t, "safeledger")
		p := start(c.t, unpack(c.t, img), img, w.pod.SecurityContext, m.Args, c.environment(w, m))
		if code := p.exit(patience); code != 0 {
			c.t.Fatalf("the migration: exit code %d:\n%s", code, p.out)
		}
	}
}

// environment is what the manifest says, with the addresses of this test.
func (c *cluster) environment(w workload, of container) map[string]string {
	env := c.in.settings(w, of)
	for name, value := range map[string]string{
		"SAFELEDGER_DATABASE_URL": c.database, "SAFELEDGER_WALLET_BASE_URL": c.wallet,
	} {
		if _, set := env[name]; set {
			env[name] = value
		}
	}
	return env
}

// secrets are the files of a mounted Secret, as somebody would make it who has read
// README.md.
func (c *cluster) secrets(v volume, token string) map[string]string {
	files := map[string]string{}
	for _, item := range v.Secret.Items {
		content := c.in.secret(v.Secret.SecretName, item.Key)
		_, inOverlay := c.in.find("Secret", v.Secret.SecretName)
		if item.Key == "callers.json" && (!inOverlay || token != firstToken) {
			content = fmt.Sprintf(`{"callers": [{"name": "demo-till", "tokenSha256": %q, "scopes": ["till", "payout"]}]}`, callers.HashToken(token))
		}
		files[item.Path] = content
	}
	return files
}

// mountAll mounts a replica's Secrets.
func (c *cluster) mountAll(w workload, of container, root, token string) {
	c.t.Helper()
	for _, m := range of.VolumeMounts {
		for _, v := range w.pod.Volumes {
			if v.Name != m.Name {
				continue
			}
			mode, group := os.FileMode(0o644), 0 // as it is when nobody says it
			if v.Secret.DefaultMode != nil {
				mode = os.FileMode(*v.Secret.DefaultMode)
			}
			if w.pod.SecurityContext.FSGroup != nil {
				group = *w.pod.SecurityContext.FSGroup
			}
			mount(c.t, root, m.MountPath, c.secrets(v, token), mode, group)
		}
	}
}

func (c *cluster) startReplica(w workload) {
	c.t.Helper()
	of, _ := w.program("safeledger")
	img := built(c.t, "safeledger")
	root := unpack(c.t, img)
	c.mountAll(w, of, root, firstToken)
	env := c.environment(w, of)
	env["SAFELEDGER_HTTP_ADDR"], env["SAFELEDGER_ADMIN_ADDR"] = "127.0.0.1:0", "127.0.0.1:0"
	r := &running{pod: start(c.t, root, img, w.pod.SecurityContext, of.Args, env), workload: w}
	r.admin = "http://" + r.await(`"admin_addr":"([^"]+)"`)
	if roleOf(of) != config.RoleWorker {
		r.http = "http://" + r.await(`"http_addr":"([^"]+)"`)
	}
	for name, p := range map[string]*probe{"startup": of.StartupProbe, "liveness": of.LivenessProbe, "readiness": of.ReadinessProbe} {
		if p == nil || p.HTTPGet == nil {
			continue // said by the rules
		}
		poll(c.t, patience, name, func() bool {
			status, _ := ask(c.t, http.MethodGet, r.admin+p.HTTPGet.Path, "", "", "")
			return status == http.StatusOK
		})
	}
	_, metrics := ask(c.t, http.MethodGet, r.admin+"/metrics", "", "", "")
	if want := fmt.Sprintf(`safeledger_build_info{commit=%q,version=%q} 1`, testRevision, testVersion); !strings.Contains(metrics, want) {
		c.t.Errorf("%s does not expose %s", w, want)
	}
	c.replicas = append(c.replicas, r)
}

// decide decides a payment at everybody who serves tills, and waits until what is owed
// to it has been carried out by whoever works the queue.
func (c *cluster) decide() {
	c.t.Helper()
	for _, r := range c.replicas {
		if r.http == "" {
			continue
		}
		// A machine that is busy with other tests may decline one, which a till would try
		// again under a new key.
		attempt := 0
		poll(c.t, patience, "a debit", func() bool {
			attempt++
			status, body := ask(c.t, http.MethodPost, r.http+"/debits", firstToken, fmt.Sprintf("debit-%d-of-%s", attempt, r.workload.Metadata.Name),
				`{"account": "ANNA", "amount": 1250, "currency": "EUR"}`)
			if status != http.StatusCreated && status != http.StatusFailedDependency {
				c.t.Fatalf("%s decided %d %s", r.workload, status, body)
			}
			return status == http.StatusCreated
		})
		status, body := ask(c.t, http.MethodPost, r.http+"/credits", firstToken, "credit-of-"+r.workload.Metadata.Name,
			`{"account": "ANNA", "amount": 250, "currency": "EUR"}`)
		var accepted struct{ ID string }
		if err := json.Unmarshal([]byte(body), &accepted); err != nil || status != http.StatusAccepted {
			c.t.Fatalf("%s accepted %d %s (%v)", r.workload, status, body, err)
		}
		poll(c.t, patience, "the credit", func() bool {
			_, body := ask(c.t, http.MethodGet, r.http+"/operations/"+accepted.ID, firstToken, "", "")
			return strings.Contains(body, `"status":"SUCCEEDED"`)
		})
	}
}

// rotate replaces the tills' tokens under running replicas.
func (c *cluster) rotate() {
	c.t.Helper()
	for _, r := range c.replicas {
		if r.http == "" {
			continue
		}
		of, _ := r.workload.program("safeledger")
		c.mountAll(r.workload, of, r.root, secondToken)
		poll(c.t, 10*time.Second, "the new token", func() bool {
			status, _ := ask(c.t, http.MethodGet, r.http+"/payments/by-key/debit/debit-1-of-"+r.workload.Metadata.Name, secondToken, "", "")
			return status == http.StatusOK
		})
		if status, _ := ask(c.t, http.MethodGet, r.http+"/payments/by-key/debit/any", firstToken, "", ""); status != http.StatusUnauthorized {
			c.t.Errorf("the old token is answered with %d", status)
		}
	}
}

// end stops everybody, at once, as a node that is drained does.
func (c *cluster) end() {
	c.t.Helper()
	for _, r := range c.replicas {
		if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			c.t.Fatal(err)
		}
	}
	for _, r := range c.replicas {
		grace := 30 * time.Second // as it is when nobody says it
		if g := r.workload.pod.TerminationGracePeriodSeconds; g != nil {
			grace = time.Duration(*g) * time.Second
		}
		if code := r.exit(grace); code != 0 {
			c.t.Errorf("%s: exit code %d:\n%s", r.workload, code, r.out)
		}
	}
}
