package deploy

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/config"
	"github.com/safeledger/safeledger/internal/wallet"
)

// inspection is one overlay being held to the rules.
type inspection struct {
	overlay
	binary    string            // `safeledger`, which knows best what it takes
	secrets   map[string]string // the Secrets that deploy/README.md tells of, "name/key" and what is for
	complains []string
}

func (in *inspection) complain(of fmt.Stringer, format string, args ...any) {
	in.complains = append(in.complains, fmt.Sprintf("%s: %s: %s", in.name, of, fmt.Sprintf(format, args...)))
}

// inspect is everything that is wrong with an overlay.
func inspect(t *testing.T, deploy string, o overlay) []string {
	t.Helper()
	in := &inspection{overlay: o, binary: program(t, safeledgerProgram), secrets: documentedSecrets(t, deploy)}
	for _, fault := range o.faults {
		in.complains = append(in.complains, o.name+": "+fault)
	}
	for _, check := range []func(*inspection){
		(*inspection).roles,
		(*inspection).arguments,
		(*inspection).environment,
		(*inspection).files,
		(*inspection).references,
		(*inspection).images,
		(*inspection).ports,
		(*inspection).probes,
		(*inspection).selectors,
		(*inspection).watched,
		(*inspection).namespaces,
		(*inspection).restricted,
		(*inspection).resources,
		(*inspection).grace,
		(*inspection).rollouts,
		(*inspection).migrationsFirst,
		(*inspection).network,
		(*inspection).mesh,
	} {
		check(in)
	}
	return in.complains
}

// roles: somebody serves tills and somebody works the queue, and each is called what it
// is, because Services and policies go by that name.
func (in *inspection) roles() {
	of := stringer("roles")
	serving, working := 0, 0
	for _, w := range in.replicas() {
		c, _ := w.program("safeledger")
		role := roleOf(c)
		if role != config.RoleWorker {
			serving++
		}
		if role != config.RoleAPI {
			working++
		}
		called := w.labels["app.kubernetes.io/component"]
		if (role == config.RoleWorker) != (called == "worker") {
			in.complain(w, "its role is %s, and its component %s", role, called)
		}
	}
	if serving == 0 {
		in.complain(of, "no replica serves tills")
	}
	if working == 0 {
		in.complain(of, "no replica works the queue")
	}
}

type stringer string

func (s stringer) String() string { return string(s) }

// roleOf is what a container's arguments make of it.
func roleOf(c container) config.Role {
	for _, arg := range c.Args {
		if role, ok := strings.CutPrefix(arg, "--role="); ok {
			return config.Role(role)
		}
	}
	return config.RoleAll
}

// arguments: the program takes them. It is given a variable that it must refuse, so
// that it says whether it has come so far, and no further.
func (in *inspection) arguments() {
	for _, w := range append(in.replicas(), in.migrations()...) {
		c, _ := w.program("safeledger")
		if len(c.Command) > 0 {
			in.complain(w, "it has a command, which stands in for the image's own program")
		}
		cmd := exec.Command(in.binary, c.Args...)
		cmd.Env = []string{"SAFELEDGER_NO_SUCH_VARIABLE=1"}
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "SAFELEDGER_NO_SUCH_VARIABLE") {
			in.complain(w, "safeledger %s: %s", strings.Join(c.Args, " "), out)
		}
	}
	for _, w := range in.workloads() {
		if c, ours := w.program("safeledger"); ours && (len(c.Args) == 0 || c.Args[0] != "serve" && c.Args[0] != "migrate") {
			in.complain(w, "it runs safeledger %q, which no rule here knows", c.Args)
		}
	}
}

// settings is a container's environment, with an example for what a Secret holds that
// is not in the overlay.
func (in *inspection) settings(w workload, c container) map[string]string {
	env := map[string]string{}
	for _, from := range c.EnvFrom {
		data, ok := in.find("ConfigMap", from.ConfigMapRef.Name)
		if !ok {
			in.complain(w, "there is no ConfigMap %q", from.ConfigMapRef.Name)
		}
		for name, raw := range data.Data {
			var value string
			_ = json.Unmarshal(raw, &value)
			env[name] = value
		}
	}
	for _, e := range c.Env {
		switch ref := e.ValueFrom.SecretKeyRef; {
		case e.Value != nil:
			env[e.Name] = *e.Value
		case ref.Name != "":
			env[e.Name] = in.secret(ref.Name, ref.Key)
		}
	}
	return env
}

// secret is what a Secret of the overlay holds, or an example of such.
func (in *inspection) secret(name, key string) string {
	if s, ok := in.find("Secret", name); ok {
		var encoded string
		_ = json.Unmarshal(s.Data[key], &encoded)
		value, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(encoded), ""))
		if err == nil {
			return string(value)
		}
	}
	if key == "url" {
		return "postgres://safeledger:secret@db.example.com:5432/safeledger"
	}
	return "secret"
}

// foreign are the variables of others that may be set.
var foreign = regexp.MustCompile(`^(GOMEMLIMIT|TZ|OTEL_[A-Z_]+)$`)

// environment: every variable is one of the program's, those that it needs are there,
// and it takes their values.
func (in *inspection) environment() {
	known := map[string]config.Variable{}
	for _, v := range config.Variables() {
		known[v.Name] = v
	}
	for _, w := range append(in.replicas(), in.migrations()...) {
		c, _ := w.program("safeledger")
		env := in.settings(w, c)
		for name := range sorted(env) {
			if _, ok := known[name]; !ok && !foreign.MatchString(name) {
				in.complain(w, "there is no variable %s", name)
			}
		}
		if c.Args[0] == "migrate" {
			for name := range sorted(env) {
				if !strings.HasPrefix(name, "SAFELEDGER_DATABASE_") {
					in.complain(w, "a migration does not read %s", name)
				}
			}
			if _, ok := env["SAFELEDGER_DATABASE_URL"]; !ok {
				in.complain(w, "SAFELEDGER_DATABASE_URL is not set")
			}
			if env["SAFELEDGER_DATABASE_POOLER"] == "pgbouncer" {
				in.complain(w, "a migration must not go through a pooler")
			}
			continue
		}
		if _, err := in.inForce(c, env); err != nil {
			in.complain(w, "%v", err)
		}
	}
}

// inForce is what the program makes of an environment: every variable, with defaults.
func (in *inspection) inForce(c container, env map[string]string) (map[string]string, error) {
	cmd := exec.Command(in.binary, "config", "--role="+string(roleOf(c)))
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range sorted(env) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("safeledger config: %w: %s", err, out)
	}
	all := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, rest, _ := strings.Cut(line, "=")
		value, _, _ := strings.Cut(rest, " ")
		all[name] = strings.TrimSpace(value)
	}
	return all, nil
}

// files: what a variable points at is mounted, what is mounted is read, and it is
// mounted so that it can be read, and replaced.
func (in *inspection) files() {
	for _, w := range append(in.replicas(), in.migrations()...) {
		c, _ := w.program("safeledger")
		wanted := map[string]string{} // path and the variable that names it
		for name, value := range in.settings(w, c) {
			if strings.HasSuffix(name, "_FILE") {
				wanted[value] = name
			}
		}
		mounted := map[string]bool{}
		for _, m := range c.VolumeMounts {
			if m.SubPath != "" {
				in.complain(w, "%s is a subPath, which is never replaced", m.MountPath)
			}
			if !m.ReadOnly {
				in.complain(w, "%s can be written to", m.MountPath)
			}
			i := slices.IndexFunc(w.pod.Volumes, func(v volume) bool { return v.Name == m.Name })
			if i < 0 || w.pod.Volumes[i].Secret == nil {
				in.complain(w, "%s is not a Secret", m.MountPath)
				continue
			}
			secret := w.pod.Volumes[i].Secret
			if len(secret.Items) == 0 {
				in.complain(w, "the keys of Secret %s that are mounted are not named", secret.SecretName)
			}
			if secret.DefaultMode == nil || *secret.DefaultMode&^0o440 != 0 || *secret.DefaultMode&0o040 == 0 {
				in.complain(w, "the files of %s must be readable by the group (0440) and nobody else", m.MountPath)
			}
			for _, item := range secret.Items {
				file := path.Join(m.MountPath, item.Path)
				mounted[file] = true
				if wanted[file] == "" {
					in.complain(w, "%s is mounted, and no variable names it", file)
				}
			}
		}
		for file, variable := range sorted(wanted) {
			if !mounted[file] {
				in.complain(w, "%s names %s, which is not mounted", variable, file)
			}
		}
		for _, v := range w.pod.Volumes {
			if !slices.ContainsFunc(c.VolumeMounts, func(m volumeMount) bool { return m.Name == v.Name }) {
				in.complain(w, "the volume %s is mounted nowhere", v.Name)
			}
		}
		// What a Secret's folder holds belongs to root and to this group.
		s := w.pod.SecurityContext
		if len(c.VolumeMounts) > 0 && (s.FSGroup == nil || s.RunAsGroup == nil || *s.FSGroup != *s.RunAsGroup) {
			in.complain(w, "fsGroup must be the group that it runs as, or it cannot read what is mounted")
		}
	}
}

// references: each Secret that is read is one that README.md tells to make, or is in
// the overlay, with that key.
func (in *inspection) references() {
	check := func(w workload, name, key string) {
		if s, ok := in.find("Secret", name); ok {
			if _, ok := s.Data[key]; !ok {
				in.complain(w, "Secret %s has no key %s", name, key)
			}
			if !strings.HasPrefix(name, "safeledger") {
				return // a part of the overlay's own
			}
		}
		if _, ok := in.secrets[name+"/"+key]; !ok {
			in.complain(w, "deploy/README.md does not tell of the Secret %s with the key %s", name, key)
		}
	}
	for _, w := range in.workloads() {
		for _, c := range append(w.pod.Containers, w.pod.InitContainers...) {
			for _, e := range c.Env {
				if ref := e.ValueFrom.SecretKeyRef; ref.Name != "" {
					check(w, ref.Name, ref.Key)
				}
			}
		}
		for _, v := range w.pod.Volumes {
			if v.Secret == nil {
				continue
			}
			for _, item := range v.Secret.Items {
				check(w, v.Secret.SecretName, item.Key)
			}
		}
		account := w.pod.ServiceAccountName
		if _, ok := in.find("ServiceAccount", account); account != "" && !ok {
			in.complain(w, "there is no ServiceAccount %s", account)
		}
	}
}

// documentedSecrets are the rows of README.md's table of Secrets: "name/key".
func documentedSecrets(t *testing.T, deploy string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(deploy, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| `([a-z.]+)` \\| (.+) \\|$").FindAllStringSubmatch(string(content), -1) {
		all[row[1]+"/"+row[2]] = row[3]
	}
	return all
}

// images: all of ours are the same one, so that a schema is never brought to another
// release than the replicas', and a tag that moves is no release.
func (in *inspection) images() {
	ours := map[string][]string{}
	for _, w := range in.workloads() {
		if len(w.pod.InitContainers) > 0 || len(w.pod.Containers) != 1 {
			in.complain(w, "it has other containers than its one, and no rule here knows them")
		}
		for _, c := range w.pod.Containers {
			switch imageName(c.Image) {
			case "safeledger":
				ours[c.Image] = append(ours[c.Image], w.Metadata.Name)
			case "walletsim", "postgres":
				if in.name != "dev" {
					in.complain(w, "%s has no place here", c.Image)
				}
			default:
				in.complain(w, "%s is no image that is known here", c.Image)
			}
			_, digest, byDigest := strings.Cut(c.Image, "@sha256:")
			tag := c.Image[strings.LastIndex(c.Image, "/")+1:]
			_, tag, tagged := strings.Cut(tag, ":")
			if byDigest && len(digest) != 64 || !byDigest && (!tagged || tag == "latest") {
				in.complain(w, "%s does not say which one", c.Image)
			}
		}
	}
	if len(ours) != 1 {
		in.complain(stringer("images"), "safeledger is there as %v: replicas and migration must be of one release", slices.Sorted(maps.Keys(ours)))
	}
}

// ports: the program listens where the container says, and Services lead there.
func (in *inspection) ports() {
	for _, w := range in.replicas() {
		c, _ := w.program("safeledger")
		set, err := in.inForce(c, in.settings(w, c))
		if err != nil {
			continue // said by environment
		}
		want := map[string]string{"admin": portOf(set["SAFELEDGER_ADMIN_ADDR"])}
		if roleOf(c) != config.RoleWorker {
			want["http"] = portOf(set["SAFELEDGER_HTTP_ADDR"])
		}
		got := map[string]string{}
		for _, p := range c.Ports {
			got[p.Name] = strconv.Itoa(p.ContainerPort)
		}
		if !maps.Equal(got, want) {
			in.complain(w, "its ports are %v, and it listens on %v", got, want)
		}
	}
	for name, s := range sorted(specOf[service](in.overlay, "Service")) {
		of := stringer("Service " + name)
		selected := in.selected(s.Selector)
		if len(selected) == 0 {
			in.complain(of, "it selects nothing")
		}
		for _, w := range selected {
			for _, p := range s.Ports {
				if w.portNamed(p.TargetPort) == 0 {
					in.complain(of, "%s has no port %s", w, p.TargetPort)
				}
			}
		}
	}
	// Every replica is scraped, and by a port that is there.
	for name, m := range sorted(specOf[serviceMonitor](in.overlay, "ServiceMonitor")) {
		of := stringer("ServiceMonitor " + name)
		for _, w := range in.replicas() {
			scraped := false
			for _, x := range in.objectsOf("Service") {
				s := specAs[service](x)
				if !m.Selector.matches(x.Metadata.Labels) || !(labelSelector{MatchLabels: s.Selector}).matches(w.labels) {
					continue
				}
				for _, p := range s.Ports {
					for _, e := range m.Endpoints {
						scraped = scraped || e.Port == p.Name && w.portNamed(p.TargetPort) == w.portNamed(json.RawMessage(`"admin"`)) && e.Path == "/metrics"
					}
				}
			}
			if !scraped {
				in.complain(of, "%s is not scraped", w)
			}
		}
	}
}

type service struct {
	ClusterIP string            `json:"clusterIP"`
	Selector  map[string]string `json:"selector"`
	Ports     []struct {
		Name       string          `json:"name"`
		Port       int             `json:"port"`
		TargetPort json.RawMessage `json:"targetPort"`
	} `json:"ports"`
}

type serviceMonitor struct {
	Selector  labelSelector `json:"selector"`
	Endpoints []struct {
		Port string `json:"port"`
		Path string `json:"path"`
	} `json:"endpoints"`
}

// selected are the workloads whose pods have labels.
func (in *inspection) selected(labels map[string]string) []workload {
	return slices.DeleteFunc(in.workloads(), func(w workload) bool { return !(labelSelector{MatchLabels: labels}).matches(w.labels) })
}

// portNamed is the number of a port, which is given as one or by name; 0 if none.
func (w workload) portNamed(port json.RawMessage) int {
	var name string
	var number int
	_, _ = json.Unmarshal(port, &name), json.Unmarshal(port, &number)
	for _, c := range w.pod.Containers {
		for _, p := range c.Ports {
			if name != "" && p.Name == name || number != 0 && p.ContainerPort == number {
				return p.ContainerPort
			}
		}
	}
	return 0
}

func portOf(address string) string {
	_, port, _ := net.SplitHostPort(address)
	return port
}

// probes: an outage of PostgreSQL restarts nobody and takes nobody's endpoint.
func (in *inspection) probes() {
	for _, w := range in.replicas() {
		c, _ := w.program("safeledger")
		for name, p := range sorted(map[string]*probe{"startupProbe": c.StartupProbe, "livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe}) {
			want := "/livez"
			if name == "readinessProbe" {
				want = "/readyz"
			}
			switch {
			case p == nil || p.HTTPGet == nil:
				in.complain(w, "it has no %s over HTTP", name)
			case p.HTTPGet.Path != want || w.portNamed(p.HTTPGet.Port) != w.portNamed(json.RawMessage(`"admin"`)):
				in.complain(w, "its %s asks %s on %s, not %s on admin", name, p.HTTPGet.Path, p.HTTPGet.Port, want)
			}
		}
	}
}

// watched: where money is at stake somebody sees the replicas, is woken, and has something
// to look at; and one node that dies does not take all of them along. The overlay for a
// laptop has nobody to wake.
func (in *inspection) watched() {
	for _, w := range in.replicas() {
		if len(w.pod.TopologySpreadConstraints) == 0 {
			in.complain(w, "nothing spreads its pods over nodes")
		}
	}
	if in.name == "dev" {
		return
	}
	of := stringer("watching")
	for _, kind := range []string{"ServiceMonitor", "PrometheusRule"} {
		if len(in.objectsOf(kind)) == 0 {
			in.complain(of, "there is no %s", kind)
		}
	}
	if !slices.ContainsFunc(in.objectsOf("ConfigMap"), func(x object) bool { return x.Metadata.Labels["grafana_dashboard"] != "" }) {
		in.complain(of, "there is no dashboard")
	}
}

// selectors: each selects what it is meant to, and no two workloads take each other's
// pods for theirs.
func (in *inspection) selectors() {
	all := in.workloads()
	for _, w := range all {
		if w.Kind == "Job" {
			continue
		}
		if w.controller.Selector == nil || !w.controller.Selector.matches(w.labels) {
			in.complain(w, "its selector does not match its own pods")
			continue
		}
		for _, other := range all {
			if other.String() != w.String() && w.controller.Selector.matches(other.labels) {
				in.complain(w, "its selector takes the pods of %s too", other)
			}
		}
		for _, spread := range w.pod.TopologySpreadConstraints {
			if !spread.LabelSelector.matches(w.labels) {
				in.complain(w, "a topologySpreadConstraint counts others than its own pods")
			}
		}
	}
	exactlyOne := func(of fmt.Stringer, s labelSelector) {
		if n := len(slices.DeleteFunc(in.workloads(), func(w workload) bool { return !s.matches(w.labels) })); n != 1 {
			in.complain(of, "it selects %d workloads, not one", n)
		}
	}
	for name, spec := range sorted(specOf[struct {
		Selector labelSelector `json:"selector"`
	}](in.overlay, "PodDisruptionBudget")) {
		exactlyOne(stringer("PodDisruptionBudget "+name), spec.Selector)
	}
	for _, kind := range []string{"AuthorizationPolicy", "PeerAuthentication"} {
		for name, spec := range sorted(specOf[struct {
			Selector labelSelector `json:"selector"`
		}](in.overlay, kind)) {
			if len(in.selected(spec.Selector.MatchLabels)) == 0 {
				in.complain(stringer(kind+" "+name), "it selects nothing")
			}
		}
	}
	for name, p := range sorted(specOf[networkPolicy](in.overlay, "NetworkPolicy")) {
		if !slices.ContainsFunc(all, func(w workload) bool { return p.PodSelector.matches(w.labels) }) {
			in.complain(stringer("NetworkPolicy "+name), "it selects nothing")
		}
	}
}

// namespaces: everything is in one, and it lets no pod in that is not restricted.
func (in *inspection) namespaces() {
	namespaces := in.objectsOf("Namespace")
	if len(namespaces) != 1 {
		in.complain(stringer("namespaces"), "there are %d, not one", len(namespaces))
		return
	}
	if namespaces[0].Metadata.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		in.complain(namespaces[0], "it does not enforce the restricted pod security standard")
	}
	for _, x := range in.objects {
		if x.Kind != "Namespace" && x.Metadata.Namespace != namespaces[0].Metadata.Name {
			in.complain(x, "it is in the namespace %q", x.Metadata.Namespace)
		}
	}
}

// restricted: no pod may do more than it must, ours or not.
func (in *inspection) restricted() {
	isTrue := func(b *bool) bool { return b != nil && *b }
	isFalse := func(b *bool) bool { return b != nil && !*b }
	for _, w := range in.workloads() {
		p := w.pod.SecurityContext
		for rule, kept := range sorted(map[string]bool{
			"runAsNonRoot":                              isTrue(p.RunAsNonRoot),
			"a runAsUser that is not 0":                 p.RunAsUser != nil && *p.RunAsUser != 0,
			"seccompProfile RuntimeDefault":             p.SeccompProfile.Type == "RuntimeDefault",
			"automountServiceAccountToken: false":       isFalse(w.pod.AutomountServiceAccountToken),
			"enableServiceLinks: false":                 isFalse(w.pod.EnableServiceLinks),
			"to be out of the node's namespaces":        !w.pod.HostNetwork && !w.pod.HostPID && !w.pod.HostIPC,
			"a user that is the image's, if it is ours": !w.isOurs() || p.RunAsUser != nil && *p.RunAsUser == imageUser,
		}) {
			if !kept {
				in.complain(w, "it lacks %s", rule)
			}
		}
		for _, c := range append(w.pod.Containers, w.pod.InitContainers...) {
			s := c.SecurityContext
			for rule, kept := range sorted(map[string]bool{
				"allowPrivilegeEscalation: false":  isFalse(s.AllowPrivilegeEscalation),
				"readOnlyRootFilesystem":           s.ReadOnlyRootFilesystem,
				"capabilities drop ALL, add none":  slices.Equal(s.Capabilities.Drop, []string{"ALL"}) && len(s.Capabilities.Add) == 0,
				"the security context of its pod":  s.RunAsNonRoot == nil && s.RunAsUser == nil && s.SeccompProfile.Type == "",
				"to be neither privileged nor odd": !s.Privileged && s.ProcMount == "",
			}) {
				if !kept {
					in.complain(w, "container %s lacks %s", c.Name, rule)
				}
			}
		}
	}
}

func (w workload) isOurs() bool {
	return slices.ContainsFunc(w.pod.Containers, func(c container) bool {
		return imageName(c.Image) == "safeledger" || imageName(c.Image) == "walletsim"
	})
}

// resources: memory has a bound that Go knows of, processors have a share and no bound.
func (in *inspection) resources() {
	for _, w := range in.workloads() {
		for _, c := range w.pod.Containers {
			limit, request := c.Resources.Limits["memory"], c.Resources.Requests["memory"]
			if quantity(limit) == 0 || quantity(request) == 0 || quantity(request) > quantity(limit) {
				in.complain(w, "its memory is %q of at most %q", request, limit)
			}
			if c.Resources.Requests["cpu"] == "" || c.Resources.Limits["cpu"] != "" {
				in.complain(w, "it must ask for cpu, and have no limit of it")
			}
		}
	}
	for _, w := range in.replicas() {
		c, _ := w.program("safeledger")
		soft, hard := quantity(strings.TrimSuffix(in.settings(w, c)["GOMEMLIMIT"], "B")), quantity(c.Resources.Limits["memory"])
		if soft < hard/2 || soft > hard*9/10 {
			in.complain(w, "GOMEMLIMIT is %d of %d bytes, want half to nine tenths", soft, hard)
		}
	}
}

// quantity is an amount of memory in bytes, 0 if it is none.
func quantity(s string) int64 {
	for unit, factor := range map[string]int64{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if digits, ok := strings.CutSuffix(s, unit); ok {
			n, err := strconv.ParseInt(digits, 10, 64)
			if err != nil {
				return 0
			}
			return n * factor
		}
	}
	return 0
}

// What a replica takes to end is contract section 5; a node that is busy gets some
// more before it is killed.
const (
	drainEnd    = 3 * time.Second
	drainMargin = 5 * time.Second
)

// drain is how long a replica may take from SIGTERM to its end.
func (in *inspection) drain(w workload) (time.Duration, bool) {
	c, _ := w.program("safeledger")
	set, err := in.inForce(c, in.settings(w, c))
	if err != nil {
		return 0, false
	}
	delay, derr := time.ParseDuration(set["SAFELEDGER_DRAIN_DELAY"])
	budget, berr := time.ParseDuration(set["SAFELEDGER_BUDGET_SERVER"])
	return delay + budget + drainEnd, derr == nil && berr == nil
}

// grace: nobody is killed while he still drains.
func (in *inspection) grace() {
	for _, w := range in.replicas() {
		c, _ := w.program("safeledger")
		need, ok := in.drain(w)
		if !ok {
			continue // said by environment
		}
		need += drainMargin
		if pre := c.Lifecycle.PreStop; pre != nil {
			if pre.Sleep == nil {
				in.complain(w, "its preStop runs a program, and the image has none to run")
				continue
			}
			need += time.Duration(pre.Sleep.Seconds) * time.Second
		}
		if g := w.pod.TerminationGracePeriodSeconds; g == nil || time.Duration(*g)*time.Second < need {
			in.complain(w, "its terminationGracePeriodSeconds must be %v at least", need)
		}
	}
}

// rollouts: neither an update nor a node that is drained leaves fewer replicas than
// tills need, and neither is held up for ever.
func (in *inspection) rollouts() {
	type scale struct {
		ScaleTargetRef struct{ Kind, Name string } `json:"scaleTargetRef"`
		MinReplicas    int                         `json:"minReplicas"`
		MaxReplicas    int                         `json:"maxReplicas"`
	}
	type budget struct {
		MinAvailable   *json.RawMessage `json:"minAvailable"`
		MaxUnavailable *json.Number     `json:"maxUnavailable"`
		Selector       labelSelector    `json:"selector"`
	}
	for _, w := range in.replicas() {
		u := w.controller.Strategy.RollingUpdate
		if u == nil || u.MaxUnavailable != "0" || u.MaxSurge == "0" || u.MaxSurge == "" {
			in.complain(w, "an update of it must be rolling with maxUnavailable: 0")
		}
		var scaled *scale
		for name, s := range sorted(specOf[scale](in.overlay, "HorizontalPodAutoscaler")) {
			if s.ScaleTargetRef.Kind == w.Kind && s.ScaleTargetRef.Name == w.Metadata.Name {
				if scaled != nil || name != w.Metadata.Name {
					in.complain(w, "the HorizontalPodAutoscaler %s is a second one, or has another name", name)
				}
				scaled = &s
			}
		}
		protected := 0
		for name, b := range sorted(specOf[budget](in.overlay, "PodDisruptionBudget")) {
			if !b.Selector.matches(w.labels) {
				continue
			}
			protected++
			if b.MinAvailable != nil || b.MaxUnavailable == nil || *b.MaxUnavailable != "1" {
				in.complain(stringer("PodDisruptionBudget "+name), "it must let one replica go at a time")
			}
		}
		switch {
		case in.name == "dev":
			if scaled != nil || protected > 0 || w.controller.Replicas == nil {
				in.complain(w, "its number must be fixed here")
			}
		case scaled == nil || scaled.MinReplicas < 2 || scaled.MaxReplicas < scaled.MinReplicas:
			in.complain(w, "it must be scaled, from two replicas on")
		case w.controller.Replicas != nil:
			in.complain(w, "its number is the autoscaler's")
		case protected != 1:
			in.complain(w, "it has %d disruption budgets, not one", protected)
		}
	}
	for name, s := range sorted(specOf[scale](in.overlay, "HorizontalPodAutoscaler")) {
		if _, ok := in.find(s.ScaleTargetRef.Kind, s.ScaleTargetRef.Name); !ok {
			in.complain(stringer("HorizontalPodAutoscaler "+name), "it scales nothing")
		}
	}
}

// migrationLabel is on everything that the migration needs, so that it can be applied
// before the rest, see README.md.
const migrationLabel = "app.kubernetes.io/component"

// migrationsFirst: there is one, and it can go before everything else, by kubectl and
// by Argo CD.
func (in *inspection) migrationsFirst() {
	all := in.migrations()
	if len(all) != 1 || all[0].Kind != "Job" {
		in.complain(stringer("migration"), "there are %d, not one Job", len(all))
		return
	}
	job := all[0]
	needed := []object{job.object}
	if account, ok := in.find("ServiceAccount", job.pod.ServiceAccountName); ok {
		needed = append(needed, account)
	} else {
		in.complain(job, "it has no ServiceAccount of its own")
	}
	for _, x := range in.objectsOf("NetworkPolicy") {
		if specAs[networkPolicy](x).PodSelector.matches(job.labels) {
			needed = append(needed, x)
		}
	}
	for _, c := range job.pod.Containers {
		for _, from := range c.EnvFrom {
			if x, ok := in.find("ConfigMap", from.ConfigMapRef.Name); ok {
				needed = append(needed, x)
			}
		}
	}
	for _, x := range needed {
		if x.Metadata.Labels[migrationLabel] != "migration" {
			in.complain(x, "the migration needs it, and it has not the label %s: migration", migrationLabel)
		}
		if wave, _ := strconv.Atoi(x.Metadata.Annotations["argocd.argoproj.io/sync-wave"]); wave >= 0 && in.name != "dev" {
			in.complain(x, "the migration needs it, and Argo CD would not apply it before the replicas")
		}
	}
	for _, w := range in.replicas() {
		if w.pod.ServiceAccountName == job.pod.ServiceAccountName {
			in.complain(w, "it has the migration's ServiceAccount")
		}
	}
}

type networkPolicy struct {
	PodSelector labelSelector `json:"podSelector"`
	PolicyTypes []string      `json:"policyTypes"`
	Ingress     []struct {
		From  []peer     `json:"from"`
		Ports []portRule `json:"ports"`
	} `json:"ingress"`
	Egress []struct {
		To    []peer     `json:"to"`
		Ports []portRule `json:"ports"`
	} `json:"egress"`
}

type peer struct {
	PodSelector       *labelSelector `json:"podSelector"`
	NamespaceSelector *labelSelector `json:"namespaceSelector"`
	IPBlock           *struct {
		CIDR string `json:"cidr"`
	} `json:"ipBlock"`
}

// anybody says that a peer is no restriction.
func (p peer) anybody() bool {
	empty := func(s *labelSelector) bool {
		return s != nil && len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
	}
	if p.IPBlock != nil {
		_, bits, _ := strings.Cut(p.IPBlock.CIDR, "/")
		n, err := strconv.Atoi(bits)
		return err != nil || n < 8
	}
	return empty(p.NamespaceSelector) || p.NamespaceSelector == nil && empty(p.PodSelector)
}

type portRule struct {
	Protocol string      `json:"protocol"`
	Port     json.Number `json:"port"`
}

func (p portRule) String() string { return p.Protocol + " " + p.Port.String() }

// network: a pod is spoken to on the ports that it has and speaks to what it needs,
// and to nobody else in either direction.
func (in *inspection) network() {
	policies := specOf[networkPolicy](in.overlay, "NetworkPolicy")
	for _, w := range in.workloads() {
		let := map[string]map[string]bool{"Ingress": nil, "Egress": nil}
		open := func(direction string, peers []peer, ports []portRule) {
			if len(peers) == 0 || len(ports) == 0 || slices.ContainsFunc(peers, peer.anybody) {
				in.complain(w, "a rule of its network policies (%s) is open to anybody, or on any port", direction)
			}
			for _, p := range ports {
				let[direction][p.String()] = true
			}
		}
		for _, p := range sorted(policies) {
			if !p.PodSelector.matches(w.labels) {
				continue
			}
			for _, direction := range p.PolicyTypes {
				if let[direction] == nil {
					let[direction] = map[string]bool{}
				}
			}
			for _, rule := range p.Ingress {
				open("Ingress", rule.From, rule.Ports)
			}
			for _, rule := range p.Egress {
				open("Egress", rule.To, rule.Ports)
			}
		}
		for direction, want := range sorted(map[string][]string{"Ingress": in.spokenTo(w), "Egress": in.speaksTo(w)}) {
			if let[direction] == nil {
				in.complain(w, "no network policy restricts it (%s)", direction)
				continue
			}
			if got := slices.Sorted(maps.Keys(let[direction])); !slices.Equal(got, want) {
				in.complain(w, "network policies let it through on %v (%s), it needs %v", got, direction, want)
			}
		}
	}
	in.wayOut(policies)
}

// spokenTo are the ports on which others come to a workload.
func (in *inspection) spokenTo(w workload) []string {
	var all []string
	for _, c := range w.pod.Containers {
		for _, p := range c.Ports {
			all = append(all, "TCP "+strconv.Itoa(p.ContainerPort))
		}
	}
	slices.Sort(all)
	return all
}

// speaksTo are the ports on which a workload goes to others.
func (in *inspection) speaksTo(w workload) []string {
	c, ours := w.program("safeledger")
	if !ours {
		return nil
	}
	all := []string{"TCP 53", "UDP 53"}
	env := in.settings(w, c)
	if u, err := url.Parse(env["SAFELEDGER_DATABASE_URL"]); err == nil {
		all = append(all, "TCP "+cmp.Or(u.Port(), "5432"))
	}
	if u, err := url.Parse(env["SAFELEDGER_WALLET_BASE_URL"]); err == nil && u.Host != "" {
		all = append(all, "TCP "+in.walletPort(u))
	}
	if injected(w) {
		all = append(all, "TCP 15012") // certificates and configuration of its sidecar
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// walletPort is where a request to the wallet leaves the pod.
func (in *inspection) walletPort(u *url.URL) string {
	port := cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
	for _, e := range specOf[serviceEntry](in.overlay, "ServiceEntry") {
		for _, p := range e.Ports {
			if slices.Contains(e.Hosts, u.Hostname()) && strconv.Itoa(p.Number) == port && p.TargetPort != 0 {
				return strconv.Itoa(p.TargetPort)
			}
		}
	}
	// A Service of the overlay may have another port than its pods.
	if x, ok := in.find("Service", u.Hostname()); ok {
		s := specAs[service](x)
		for _, p := range s.Ports {
			for _, w := range in.selected(s.Selector) {
				if strconv.Itoa(p.Port) == port {
					return strconv.Itoa(w.portNamed(p.TargetPort))
				}
			}
		}
	}
	return port
}

// wayOut: what is in the overlay is reached there, and what is elsewhere never in
// plain text.
func (in *inspection) wayOut(policies map[string]networkPolicy) {
	for _, w := range append(in.replicas(), in.migrations()...) {
		c, _ := w.program("safeledger")
		env := in.settings(w, c)
		for _, name := range []string{"SAFELEDGER_DATABASE_URL", "SAFELEDGER_WALLET_BASE_URL"} {
			u, err := url.Parse(env[name])
			if env[name] == "" || err != nil {
				continue
			}
			x, inside := in.find("Service", u.Hostname())
			if !inside {
				if u.Scheme == "http" && !in.meshEncrypts(u) {
					in.complain(w, "%s goes out in plain text", name)
				}
				continue
			}
			s := specAs[service](x)
			for _, target := range in.selected(s.Selector) {
				reached := false
				for _, p := range policies {
					if !p.PodSelector.matches(w.labels) {
						continue
					}
					for _, rule := range p.Egress {
						for _, to := range rule.To {
							reached = reached || to.NamespaceSelector == nil && to.PodSelector != nil && to.PodSelector.matches(target.labels)
						}
					}
				}
				if !reached {
					in.complain(w, "no network policy lets it out to %s", target)
				}
			}
		}
	}
}

func injected(w workload) bool { return w.labels["sidecar.istio.io/inject"] == "true" }

type serviceEntry struct {
	Hosts []string `json:"hosts"`
	Ports []struct {
		Number     int    `json:"number"`
		Protocol   string `json:"protocol"`
		TargetPort int    `json:"targetPort"`
	} `json:"ports"`
}

type httpRoute struct {
	Retries *struct {
		Attempts *int `json:"attempts"`
	} `json:"retries"`
	Timeout string            `json:"timeout"`
	Mirror  json.RawMessage   `json:"mirror"`
	Mirrors []json.RawMessage `json:"mirrors"`
	Headers struct {
		Request struct {
			Remove []string `json:"remove"`
		} `json:"request"`
	} `json:"headers"`
}

type virtualService struct {
	Hosts    []string    `json:"hosts"`
	Gateways []string    `json:"gateways"`
	HTTP     []httpRoute `json:"http"`
}

type trafficPolicy struct {
	TLS struct {
		Mode            string   `json:"mode"`
		SubjectAltNames []string `json:"subjectAltNames"`
		CACertificates  string   `json:"caCertificates"`
	} `json:"tls"`
	ConnectionPool struct {
		HTTP struct {
			H2UpgradePolicy string `json:"h2UpgradePolicy"`
		} `json:"http"`
	} `json:"connectionPool"`
	OutlierDetection json.RawMessage `json:"outlierDetection"`
}

type destinationRule struct {
	Host          string `json:"host"`
	TrafficPolicy struct {
		trafficPolicy
		PortLevelSettings []struct {
			trafficPolicy
			Port struct {
				Number int `json:"number"`
			} `json:"port"`
		} `json:"portLevelSettings"`
	} `json:"trafficPolicy"`
}

// policies are a rule's, for all ports and for each.
func (d destinationRule) policies() []trafficPolicy {
	all := []trafficPolicy{d.TrafficPolicy.trafficPolicy}
	for _, p := range d.TrafficPolicy.PortLevelSettings {
		all = append(all, p.trafficPolicy)
	}
	return all
}

// meshEncrypts says whether a sidecar speaks TLS on the way to a host, to nobody but it.
func (in *inspection) meshEncrypts(u *url.URL) bool {
	for _, d := range specOf[destinationRule](in.overlay, "DestinationRule") {
		for _, p := range d.policies() {
			if d.Host == u.Hostname() && p.TLS.Mode == "SIMPLE" && slices.Contains(p.TLS.SubjectAltNames, u.Hostname()) && p.TLS.CACertificates != "" {
				return true
			}
		}
	}
	return false
}

// meshMayRepeat asks the policy catalogue whether the mesh owns the retries of what is
// sent to the wallet: all of them, since a mesh cannot tell a debit from a lookup.
func meshMayRepeat(catalogue map[wallet.Method]wallet.Policy) bool {
	for _, p := range catalogue {
		if p.Owner != wallet.OwnerMesh {
			return false
		}
	}
	return len(catalogue) > 0
}

// mesh: where there is one, it repeats nothing that the catalogue does not give it, and
// a replica's sidecar is there before the replica and goes after it.
func (in *inspection) mesh() {
	if !slices.ContainsFunc(in.replicas(), injected) {
		return
	}
	services := specOf[virtualService](in.overlay, "VirtualService")
	route := func(host string, mayRepeat, fromTills bool) {
		of := stringer("mesh to " + host)
		routes := 0
		for name, v := range sorted(services) {
			if !slices.Contains(v.Hosts, host) {
				continue
			}
			of := stringer("VirtualService " + name)
			if !slices.Contains(v.Gateways, "mesh") {
				in.complain(of, "it is not for the sidecars")
			}
			for _, r := range v.HTTP {
				routes++
				if !mayRepeat && (r.Retries == nil || r.Retries.Attempts == nil || *r.Retries.Attempts != 0) {
					in.complain(of, "retries are on: the catalogue does not give them to the mesh")
				}
				if r.Mirror != nil || len(r.Mirrors) > 0 {
					in.complain(of, "a mirrored request is a second one")
				}
				if r.Timeout != "" {
					in.complain(of, "its timeout answers for us")
				}
				for _, header := range []string{"x-envoy-retry-on", "x-envoy-retry-grpc-on", "x-envoy-max-retries", "x-envoy-hedge-on-per-try-timeout"} {
					if fromTills && !slices.Contains(r.Headers.Request.Remove, header) {
						in.complain(of, "a caller can switch retries on by %s", header)
					}
				}
			}
		}
		if routes == 0 {
			in.complain(of, "no VirtualService has it, so Istio retries twice")
		}
		ruled := false
		for name, d := range sorted(specOf[destinationRule](in.overlay, "DestinationRule")) {
			if d.Host != host {
				continue
			}
			of := stringer("DestinationRule " + name)
			for _, p := range d.policies() {
				ruled = ruled || p.ConnectionPool.HTTP.H2UpgradePolicy == "DO_NOT_UPGRADE"
				if p.OutlierDetection != nil {
					in.complain(of, "outlierDetection takes a refusal for a failure")
				}
			}
		}
		if !ruled {
			in.complain(of, "no DestinationRule keeps it to HTTP/1.1")
		}
	}
	for _, x := range in.objectsOf("Service") {
		s := specAs[service](x)
		if s.ClusterIP == "None" || !slices.ContainsFunc(in.replicas(), func(w workload) bool { return (labelSelector{MatchLabels: s.Selector}).matches(w.labels) }) {
			continue
		}
		route(x.Metadata.Name+"."+x.Metadata.Namespace+".svc.cluster.local", false, true)
	}
	for _, w := range in.replicas() {
		c, _ := w.program("safeledger")
		env := in.settings(w, c)
		if u, err := url.Parse(env["SAFELEDGER_WALLET_BASE_URL"]); err == nil && u.Host != "" {
			route(u.Hostname(), meshMayRepeat(wallet.Catalogue()), false)
		}
		in.sidecar(w, c)
	}
	for _, w := range in.migrations() {
		if w.labels["sidecar.istio.io/inject"] != "false" {
			in.complain(w, "a Job does not end as long as its sidecar goes on")
		}
	}
}

// sidecar: it starts before the replica, outlives its drain, and stays out of what has
// no place in a mesh.
func (in *inspection) sidecar(w workload, c container) {
	if !injected(w) {
		in.complain(w, "it is not in the mesh")
		return
	}
	settings := map[string]string{}
	for line := range strings.Lines(w.notes["proxy.istio.io/config"]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		settings[name] = value
	}
	if settings["holdApplicationUntilProxyStarts"] != "true" {
		in.complain(w, "it starts before its sidecar does")
	}
	drain, ok := in.drain(w)
	lasts, err := time.ParseDuration(settings["terminationDrainDuration"])
	if !ok {
		return // said by environment
	}
	if err != nil || lasts < drain {
		in.complain(w, "its sidecar's terminationDrainDuration must be %v at least", drain)
	}
	if g := w.pod.TerminationGracePeriodSeconds; g != nil && lasts >= time.Duration(*g)*time.Second {
		in.complain(w, "its sidecar is killed before its terminationDrainDuration is over")
	}
	u, err := url.Parse(in.settings(w, c)["SAFELEDGER_DATABASE_URL"])
	if err == nil && w.notes["traffic.sidecar.istio.io/excludeOutboundPorts"] != cmp.Or(u.Port(), "5432") {
		in.complain(w, "PostgreSQL's connections go through its sidecar, and end with it")
	}
	if want := strconv.Itoa(w.portNamed(json.RawMessage(`"admin"`))); w.notes["traffic.sidecar.istio.io/excludeInboundPorts"] != want {
		in.complain(w, "its sidecar must leave the admin port, and no other, alone")
	}
}
