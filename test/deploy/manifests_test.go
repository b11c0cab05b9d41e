package deploy

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/internal/wallet"
)

// What is wrong with a manifest is found by a cluster in the night of a rollout, or by
// nobody: a variable that is misspelt changes nothing, a file that nobody reads is never
// missed, a mesh retries without being asked to.
func TestTheOverlaysKeepTheRules(t *testing.T) {
	t.Parallel()
	deploy := filepath.Join(root, "deploy")
	names := overlays(t, deploy)
	for _, want := range []string{"dev", "istio", "production"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no overlay %s", want)
		}
	}
	for _, o := range render(t, deploy, names...) {
		for _, complaint := range inspect(t, deploy, o) {
			t.Error(complaint)
		}
		if len(o.objects) == 0 {
			t.Errorf("%s is empty", o.name)
		}
	}
}

// fault is a slip that somebody might make, and what must be said of it.
type fault struct {
	overlay  string
	file     string // below deploy
	old, new string
	says     string
}

// A rule that was never seen to refuse may have stopped doing so.
func TestASlipInAManifestIsFound(t *testing.T) {
	t.Parallel()
	const deployment, job = "replica/deployment.yaml", "base/migration.yaml"
	for name, f := range map[string]fault{
		// Against the schemas.
		"a member that is misspelt":      {"dev", deployment, "readOnlyRootFilesystem", "readonlyRootFilesystem", "additional properties 'readonlyRootFilesystem' not allowed"},
		"a member of the wrong type":     {"dev", deployment, "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: thirty", "got string, want integer"},
		"a member in the wrong place":    {"production", "base/servicemonitor.yaml", "    scrapeTimeout: 10s", "    scrapeTimeout: 10s\n  interval: 15s", "additional properties 'interval' not allowed"},
		"a mesh's member misspelt":       {"istio", "overlays/istio/mesh.yaml", "h2UpgradePolicy", "http2UpgradePolicy", "additional properties 'http2UpgradePolicy' not allowed"},
		"a kind that nobody knows":       {"dev", "base/services.yaml", "kind: Service", "kind: Servlet", "could not find schema for Servlet"},
		"an API version of another time": {"production", "replica/disruptionbudget.yaml", "policy/v1", "policy/v1beta1", "could not find schema for PodDisruptionBudget"},
		"a file that is not there":       {"dev", "base/kustomization.yaml", "- services.yaml", "- service.yaml", "no such file or directory"},

		// Roles and arguments.
		"a role that does not exist":  {"dev", deployment, "--role=all", "--role=both", `--role must be one of "all","api","worker"`},
		"a flag that does not exist":  {"dev", deployment, "--role=all", "--roles=all", "unknown flag --roles"},
		"a command beside the image":  {"dev", deployment, "        args: [serve", "        command: [/bin/safeledger]\n        args: [serve", "stands in for the image's own program"},
		"a command that is not known": {"dev", job, "args: [migrate]", "args: [ops, parked]", "which no rule here knows"},
		"nobody who works the queue":  {"dev", deployment, "--role=all", "--role=api", "no replica works the queue"},
		"nobody who serves tills":     {"production", "overlays/production/api/kustomization.yaml", "--role=api", "--role=worker", "no replica serves tills"},
		"a worker among the tills'":   {"production", "overlays/production/api/kustomization.yaml", "--role=api", "--role=worker", "its role is worker, and its component api"},

		// The environment.
		"a variable that is misspelt":   {"production", "overlays/production/kustomization.yaml", "SAFELEDGER_DRAIN_DELAY", "SAFELEDGER_DRAINDELAY", "there is no variable SAFELEDGER_DRAINDELAY"},
		"a variable of somebody else":   {"dev", "base/kustomization.yaml", "SAFELEDGER_LOG_LEVEL", "LOG_LEVEL", "there is no variable LOG_LEVEL"},
		"a value that is not allowed":   {"production", "overlays/production/kustomization.yaml", "DELAY=10s", "DELAY=10", "SAFELEDGER_DRAIN_DELAY=10: it must be a duration"},
		"numbers that do not fit":       {"dev", "base/kustomization.yaml", "LOG_LEVEL=info", "LOG_LEVEL=info\n  - SAFELEDGER_BUDGET_DECISION_CALL=2s", "SAFELEDGER_BUDGET_DECISION_CALL"},
		"no wallet":                     {"production", "overlays/production/kustomization.yaml", "  - SAFELEDGER_WALLET_BASE_URL=https://wallet.example.com\n", "", "SAFELEDGER_WALLET_BASE_URL is not set"},
		"no database":                   {"dev", deployment, "SAFELEDGER_DATABASE_URL", "TZ", "SAFELEDGER_DATABASE_URL is not set"},
		"no database to migrate":        {"dev", job, "SAFELEDGER_DATABASE_URL", "TZ", "SAFELEDGER_DATABASE_URL is not set"},
		"what a migration does not ask": {"dev", job, "        resources:", "        envFrom:\n        - configMapRef:\n            name: safeledger\n        resources:", "a migration does not read SAFELEDGER_LOG_LEVEL"},

		// Files and Secrets.
		"a mount that is missing":          {"production", deployment, "        - name: callers\n          mountPath: /etc/safeledger/callers\n          readOnly: true\n", "", "SAFELEDGER_CALLERS_FILE names /etc/safeledger/callers/callers.json, which is not mounted"},
		"a file that nobody reads":         {"dev", deployment, "        - name: SAFELEDGER_WALLET_TOKEN_FILE\n          value: /etc/safeledger/wallet/token\n", "", "/etc/safeledger/wallet/token is mounted, and no variable names it"},
		"a file of another name":           {"dev", deployment, "path: callers.json", "path: callers", "which is not mounted"},
		"a file that is never replaced":    {"dev", deployment, "mountPath: /etc/safeledger/wallet\n", "mountPath: /etc/safeledger/wallet\n          subPath: token\n", "is a subPath, which is never replaced"},
		"a file that it may not read":      {"dev", deployment, "defaultMode: 0440", "defaultMode: 0400", "must be readable by the group"},
		"a file of another group":          {"dev", deployment, "fsGroup: 65532", "fsGroup: 1000", "fsGroup must be the group that it runs as"},
		"a Secret that nobody told of":     {"production", deployment, "secretName: safeledger-wallet", "secretName: safeledger-purse", "does not tell of the Secret safeledger-purse with the key token"},
		"a key that nobody told of":        {"production", deployment, "              key: url", "              key: uri", "does not tell of the Secret safeledger-database with the key uri"},
		"a key that the Secret has not":    {"dev", "overlays/dev/kustomization.yaml", "- token=not-a-secret", "- bearer=not-a-secret", "Secret safeledger-wallet has no key token"},
		"an account that is not there":     {"dev", deployment, "serviceAccountName: safeledger", "serviceAccountName: ledger", "there is no ServiceAccount ledger"},
		"a ConfigMap that is not there":    {"dev", deployment, "        - configMapRef:\n            name: safeledger", "        - configMapRef:\n            name: settings", `there is no ConfigMap "settings"`},
		"replicas with the owner's rights": {"dev", deployment, "serviceAccountName: safeledger", "serviceAccountName: safeledger-migration", "it has the migration's ServiceAccount"},

		// Images.
		"a tag that moves":               {"production", "overlays/production/kustomization.yaml", "newTag: v1.0.0", "newTag: latest", "does not say which one"},
		"no tag":                         {"production", "overlays/production/kustomization.yaml", "  newTag: v1.0.0\n", "", "does not say which one"},
		"a migration of another release": {"production", job, "image: safeledger", "image: registry.example.com/payments/safeledger:v0.9.0", "replicas and migration must be of one release"},
		"the simulated wallet":           {"production", "replica/deployment.yaml", "image: safeledger", "image: walletsim:v1", "has no place here"},

		// Ports, probes and selectors.
		"a port that nobody listens on":      {"dev", deployment, "containerPort: 8080", "containerPort: 8000", "and it listens on"},
		"another port to listen on":          {"dev", "base/kustomization.yaml", "LOG_LEVEL=info", "LOG_LEVEL=info\n  - SAFELEDGER_ADMIN_ADDR=:9091", "and it listens on"},
		"a Service that leads nowhere":       {"dev", "base/services.yaml", "targetPort: http", "targetPort: https", `has no port "https"`},
		"a Service of nobody":                {"dev", "base/services.yaml", "component: api\n  ports", "component: till\n  ports", "it selects nothing"},
		"no monitor":                         {"production", "base/kustomization.yaml", "- servicemonitor.yaml\n", "", "there is no ServiceMonitor"},
		"no alerts":                          {"istio", "overlays/production/kustomization.yaml", "- ../../prometheus # for its operator, as the ServiceMonitor of the base is\n", "", "there is no PrometheusRule"},
		"no dashboard":                       {"production", "overlays/production/kustomization.yaml", "- ../../grafana # for the sidecar that collects dashboards\n", "", "there is no dashboard"},
		"all on one node":                    {"production", deployment, "      topologySpreadConstraints:", "      nothing:", "nothing spreads its pods over nodes"},
		"replicas that nobody scrapes":       {"production", "base/servicemonitor.yaml", "port: admin", "port: metrics", "is not scraped"},
		"a probe that restarts on an outage": {"dev", deployment, "        livenessProbe:\n          httpGet:\n            path: /livez", "        livenessProbe:\n          httpGet:\n            path: /readyz", "its livenessProbe asks /readyz"},
		"a probe of tills":                   {"dev", deployment, "            path: /readyz\n            port: admin", "            path: /readyz\n            port: http", "its readinessProbe asks /readyz"},
		"two that take each other's pods":    {"production", "overlays/production/worker/kustomization.yaml", "    app.kubernetes.io/component: worker", "    app.kubernetes.io/component: api", "its selector takes the pods of"},
		"a spread over others":               {"dev", deployment, "            app.kubernetes.io/component: api\n        matchLabelKeys", "            app.kubernetes.io/component: all\n        matchLabelKeys", "counts others than its own pods"},
		"a budget for nobody":                {"production", "replica/disruptionbudget.yaml", "      app.kubernetes.io/name: safeledger\n      app", "      app.kubernetes.io/name: ledger\n      app", "it selects 0 workloads, not one"},
		"an object of another namespace":     {"dev", "overlays/dev/kustomization.yaml", "namespace: safeledger-dev\n", "", `it is in the namespace ""`},

		// What pods may do.
		"root":                         {"dev", deployment, "runAsUser: 65532", "runAsUser: 0", "a runAsUser that is not 0"},
		"another user":                 {"dev", deployment, "runAsUser: 65532", "runAsUser: 1000", "a user that is the image's"},
		"a root that can be written":   {"dev", "overlays/dev/postgres.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "lacks readOnlyRootFilesystem"},
		"a capability":                 {"dev", deployment, "            drop: [ALL]", "            drop: [ALL]\n            add: [NET_BIND_SERVICE]", "capabilities drop ALL, add none"},
		"a token of the cluster":       {"dev", deployment, "      automountServiceAccountToken: false\n", "", "it lacks automountServiceAccountToken: false"},
		"variables of other Services":  {"dev", job, "      enableServiceLinks: false\n", "", "it lacks enableServiceLinks: false"},
		"a namespace that lets all in": {"production", "overlays/production/namespace.yaml", "enforce: restricted", "enforce: baseline", "does not enforce the restricted"},

		// Memory and processors.
		"memory without a bound":      {"dev", deployment, "          limits:\n            memory: 512Mi\n", "", "its memory is"},
		"a processor with a bound":    {"dev", deployment, "            memory: 512Mi", "            memory: 512Mi\n            cpu: \"1\"", "have no limit of it"},
		"a soft limit above the hard": {"dev", deployment, "value: 440MiB", "value: 600MiB", "GOMEMLIMIT is"},

		// The end of a replica, and of its release.
		"too short a grace":              {"production", deployment, "terminationGracePeriodSeconds: 30", "terminationGracePeriodSeconds: 20", "its terminationGracePeriodSeconds must be 20.4s at least"},
		"a longer drain than grace":      {"production", "overlays/production/kustomization.yaml", "DELAY=10s", "DELAY=25s", "its terminationGracePeriodSeconds must be 35.4s at least"},
		"a sleep that takes the grace":   {"dev", deployment, "        startupProbe:", "        lifecycle:\n          preStop:\n            sleep:\n              seconds: 20\n        startupProbe:", "its terminationGracePeriodSeconds must be 35.4s at least"},
		"a program that is not there":    {"dev", deployment, "        startupProbe:", "        lifecycle:\n          preStop:\n            exec:\n              command: [sleep, \"5\"]\n        startupProbe:", "its preStop runs a program"},
		"an update with a gap":           {"production", deployment, "maxUnavailable: 0", "maxUnavailable: 1", "must be rolling with maxUnavailable: 0"},
		"a number beside the autoscaler": {"production", deployment, "  revisionHistoryLimit: 5", "  revisionHistoryLimit: 5\n  replicas: 3", "its number is the autoscaler's"},
		"one replica only":               {"production", "overlays/production/api/kustomization.yaml", "minReplicas: 3", "minReplicas: 1", "it must be scaled, from two replicas on"},
		"a budget that lets nobody go":   {"production", "replica/disruptionbudget.yaml", "maxUnavailable: 1", "maxUnavailable: 0", "it must let one replica go at a time"},
		"an autoscaler of nobody":        {"production", "replica/autoscaler.yaml", "    name: safeledger", "    name: ledger", "it scales nothing"},

		// The migration.
		"no migration":                    {"production", "base/kustomization.yaml", "- migration.yaml\n", "", "there are 0, not one Job"},
		"a migration that comes later":    {"production", job, "argocd.argoproj.io/sync-wave: \"-1\"", "argocd.argoproj.io/sync-wave: \"1\"", "Argo CD would not apply it before the replicas"},
		"a migration without its way out": {"production", "overlays/production/networkpolicy.yaml", "    app.kubernetes.io/component: migration\n  annotations", "    app.kubernetes.io/component: network\n  annotations", "the migration needs it, and it has not the label"},

		// The network.
		"anybody may call":             {"production", "base/networkpolicy.yaml", "          safeledger-access: tills", "          {}", "is open to anybody"},
		"no rule for anybody":          {"production", "base/networkpolicy.yaml", "  - from:\n    - namespaceSelector:\n        matchLabels:\n          safeledger-access: tills\n    ports:", "  - ports:", "is open to anybody"},
		"on any port":                  {"production", "overlays/production/networkpolicy.yaml", "        cidr: 198.51.100.0/28\n    ports:\n    - protocol: TCP\n      port: 443", "        cidr: 198.51.100.0/28", "is open to anybody, or on any port"},
		"out to the world":             {"production", "overlays/production/networkpolicy.yaml", "cidr: 198.51.100.0/28", "cidr: 0.0.0.0/0", "is open to anybody"},
		"no way to the wallet":         {"production", "overlays/production/networkpolicy.yaml", "      port: 443", "      port: 8443", "it needs [TCP 443 TCP 53 TCP 5432 UDP 53]"},
		"no way to the name servers":   {"production", "base/networkpolicy.yaml", "    - protocol: UDP\n      port: 53\n", "", "it needs [TCP 443 TCP 53 TCP 5432 UDP 53]"},
		"no way to the metrics":        {"dev", "base/networkpolicy.yaml", "port: 9090", "port: 9091", "it needs [TCP 8080 TCP 9090]"},
		"a way out that nobody needs":  {"dev", "overlays/dev/networkpolicy.yaml", "          app.kubernetes.io/name: walletsim\n    ports:\n    - protocol: TCP\n      port: 8090", "          app.kubernetes.io/name: walletsim\n    ports:\n    - protocol: TCP\n      port: 8090\n    - protocol: TCP\n      port: 443", "it needs [TCP 53 TCP 5432 TCP 8090 UDP 53]"},
		"a way to somebody else":       {"dev", "overlays/dev/networkpolicy.yaml", "    - podSelector:\n        matchLabels:\n          app.kubernetes.io/name: walletsim\n    ports", "    - podSelector:\n        matchLabels:\n          app.kubernetes.io/name: purse\n    ports", "no network policy lets it out to Deployment walletsim"},
		"a pod without a policy":       {"dev", "overlays/dev/networkpolicy.yaml", "  podSelector:\n    matchLabels:\n      app.kubernetes.io/name: postgres", "  podSelector:\n    matchLabels:\n      app.kubernetes.io/name: mysql", "no network policy restricts it"},
		"a wallet in plain text":       {"production", "overlays/production/kustomization.yaml", "=https://wallet", "=http://wallet", "SAFELEDGER_WALLET_BASE_URL goes out in plain text"},
		"a wallet in plain text, mesh": {"istio", "overlays/istio/mesh.yaml", "mode: SIMPLE", "mode: DISABLE", "SAFELEDGER_WALLET_BASE_URL goes out in plain text"},
		"a wallet that may be anybody": {"istio", "overlays/istio/mesh.yaml", "        subjectAltNames: [wallet.example.com]\n", "", "SAFELEDGER_WALLET_BASE_URL goes out in plain text"},

		// The mesh.
		"retries on, from tills":       {"istio", "overlays/istio/mesh.yaml", "  - name: tills\n    retries:\n      attempts: 0", "  - name: tills\n    retries:\n      attempts: 2", "VirtualService safeledger: retries are on"},
		"retries on, to the wallet":    {"istio", "overlays/istio/mesh.yaml", "    retries:\n      attempts: 0\n    route:\n    - destination:\n        host: wallet", "    retries:\n      attempts: 1\n    route:\n    - destination:\n        host: wallet", "VirtualService wallet: retries are on"},
		"retries as Istio has them":    {"istio", "overlays/istio/mesh.yaml", "    retries:\n      attempts: 0\n    route:\n    - destination:\n        host: wallet", "    route:\n    - destination:\n        host: wallet", "VirtualService wallet: retries are on"},
		"retries without a number":     {"istio", "overlays/istio/mesh.yaml", "  - name: tills\n    retries:\n      attempts: 0", "  - name: tills\n    retries:\n      retryOn: connect-failure", "VirtualService safeledger: retries are on"},
		"a wallet that has no route":   {"istio", "overlays/istio/kustomization.yaml", "http://wallet.example.com", "http://wallet.example.org", "mesh to wallet.example.org: no VirtualService has it, so Istio retries twice"},
		"tills that have no route":     {"istio", "overlays/istio/mesh.yaml", "hosts: [safeledger.safeledger.svc", "hosts: [ledger.safeledger.svc", "no VirtualService has it, so Istio retries twice"},
		"retries that a caller sets":   {"istio", "overlays/istio/mesh.yaml", "x-envoy-retry-on, ", "", "a caller can switch retries on by x-envoy-retry-on"},
		"a mirror":                     {"istio", "overlays/istio/mesh.yaml", "  - name: wallet\n", "  - name: wallet\n    mirror:\n      host: wallet.example.com\n", "a mirrored request is a second one"},
		"a timeout of the mesh":        {"istio", "overlays/istio/mesh.yaml", "  - name: tills\n", "  - name: tills\n    timeout: 1s\n", "its timeout answers for us"},
		"HTTP/2 to the wallet":         {"istio", "overlays/istio/mesh.yaml", "          h2UpgradePolicy: DO_NOT_UPGRADE\n          idleTimeout: 9s", "          h2UpgradePolicy: UPGRADE\n          idleTimeout: 9s", "keeps it to HTTP/1.1"},
		"refusals taken for failures":  {"istio", "overlays/istio/mesh.yaml", "    loadBalancer:", "    outlierDetection:\n      consecutive5xxErrors: 5\n    loadBalancer:", "outlierDetection takes a refusal for a failure"},
		"a sidecar that goes first":    {"istio", "overlays/istio/kustomization.yaml", "terminationDrainDuration: 20s", "terminationDrainDuration: 5s", "its sidecar's terminationDrainDuration must be 15.4s at least"},
		"a sidecar that is killed":     {"istio", "overlays/istio/kustomization.yaml", "terminationDrainDuration: 20s", "terminationDrainDuration: 45s", "its sidecar is killed"},
		"a sidecar that comes late":    {"istio", "overlays/istio/kustomization.yaml", "              holdApplicationUntilProxyStarts: true\n", "", "it starts before its sidecar does"},
		"a sidecar before PostgreSQL":  {"istio", "overlays/istio/kustomization.yaml", "excludeOutboundPorts: \"5432\"", "excludeOutboundPorts: \"\"", "PostgreSQL's connections go through its sidecar"},
		"a sidecar that lets tills by": {"istio", "overlays/istio/kustomization.yaml", "excludeInboundPorts: \"9090\"", "excludeInboundPorts: \"9090,8080\"", "its sidecar must leave the admin port, and no other, alone"},
		"a Job that never ends":        {"istio", "overlays/istio/kustomization.yaml", "sidecar.istio.io/inject: \"false\"", "sidecar.istio.io/inject: \"true\"", "a Job does not end as long as its sidecar goes on"},
		"a policy for nobody":          {"istio", "overlays/istio/mesh.yaml", "  selector:\n    matchLabels:\n      app.kubernetes.io/name: safeledger\n  mtls", "  selector:\n    matchLabels:\n      app.kubernetes.io/name: ledger\n  mtls", "PeerAuthentication safeledger: it selects nothing"},
		"no certificates for sidecars": {"istio", "overlays/istio/networkpolicy.yaml", "port: 15012", "port: 15010", "it needs [TCP 15012 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deploy := copyOf(t, filepath.Join(root, "deploy"), "schemas")
			path := filepath.Join(deploy, filepath.FromSlash(f.file))
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.ReplaceAll(string(content), f.old, f.new)
			if changed == string(content) {
				t.Fatalf("%s has no %q", f.file, f.old)
			}
			if err := os.WriteFile(path, []byte(changed), 0o600); err != nil {
				t.Fatal(err)
			}
			complaints := inspect(t, deploy, render(t, deploy, f.overlay)[0])
			if !slices.ContainsFunc(complaints, func(c string) bool { return strings.Contains(c, f.says) }) {
				t.Errorf("nobody says %q, but:\n%s", f.says, strings.Join(complaints, "\n"))
			}
		})
	}
}

// The day somebody gives a method to the mesh, the manifests may follow; as long as one
// is not the mesh's, none may be repeated, because all go to the same host.
func TestTheMeshRepeatsOnlyWhatTheCatalogueGivesItWhole(t *testing.T) {
	t.Parallel()
	if meshMayRepeat(wallet.Catalogue()) {
		t.Error("the catalogue gives every method to the mesh: this changes what mesh.yaml must say")
	}
	all := wallet.Catalogue()
	for method, p := range all {
		p.Owner = wallet.OwnerMesh
		all[method] = p
	}
	if !meshMayRepeat(all) {
		t.Error("a catalogue that is the mesh's as a whole lets it repeat nothing")
	}
	for method, p := range wallet.Catalogue() {
		all[method] = p
		if meshMayRepeat(all) {
			t.Errorf("%s is not the mesh's, and is repeated", method)
		}
		p.Owner = wallet.OwnerMesh
		all[method] = p
	}
}

// PostgreSQL that has fewer connections than all replicas may hold together refuses the
// last replica that is scaled up, in the hour in which it is needed.
func TestTheConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	deploy := filepath.Join(root, "deploy")
	in := &inspection{overlay: render(t, deploy, "production")[0], binary: program(t, safeledgerProgram)}
	pools := constants(t, filepath.Join(root, "cmd", "safeledger", "serve.go"))
	total := 0
	for _, w := range in.replicas() {
		c, _ := w.program("safeledger")
		set, err := in.inForce(c, in.settings(w, c))
		if err != nil {
			t.Fatal(err)
		}
		each := pools["upkeepConns"] + pools["peopleConns"]
		if roleOf(c) != "worker" {
			each += number(t, set["SAFELEDGER_DATABASE_MAX_CONNS"])
		}
		if roleOf(c) != "api" {
			each += pools["workerConns"]
		}
		for _, s := range specOf[struct {
			ScaleTargetRef struct{ Name string } `json:"scaleTargetRef"`
			MaxReplicas    int                   `json:"maxReplicas"`
		}](in.overlay, "HorizontalPodAutoscaler") {
			if s.ScaleTargetRef.Name == w.Metadata.Name {
				total += each * (s.MaxReplicas + number(t, w.controller.Strategy.RollingUpdate.MaxSurge.String()))
			}
		}
	}
	readme, err := os.ReadFile(filepath.Join(deploy, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("%d connections", total); !strings.Contains(string(readme), want) {
		t.Errorf("README.md does not say that production may take %s", want)
	}
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// constants are the whole numbers that a file names.
func constants(t *testing.T, path string) map[string]int {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Names) != len(spec.Values) {
			return true
		}
		for i, name := range spec.Names {
			if literal, ok := spec.Values[i].(*ast.BasicLit); ok && literal.Kind == token.INT {
				all[name.Name], _ = strconv.Atoi(literal.Value)
			}
		}
		return true
	})
	return all
}

// Whoever follows README.md at night must not find that a name has changed since.
func TestTheReadmeNamesWhatThereIs(t *testing.T) {
	t.Parallel()
	deploy := filepath.Join(root, "deploy")
	content, err := os.ReadFile(filepath.Join(deploy, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	readme := string(content)
	byNamespace := map[string]overlay{}
	for _, o := range render(t, deploy, overlays(t, deploy)...) {
		for _, namespace := range o.objectsOf("Namespace") {
			if o.name != "istio" { // it has production's
				byNamespace[namespace.Metadata.Name] = o
			}
		}
	}
	// kubectl -n NAMESPACE … KIND/NAME
	named := 0
	for _, m := range regexp.MustCompile(`kubectl -n (\S+) .*?\b(deployment|job|service)/([a-z-]+)`).FindAllStringSubmatch(readme, -1) {
		named++
		kind := map[string]string{"deployment": "Deployment", "job": "Job", "service": "Service"}[m[2]]
		if _, ok := byNamespace[m[1]].find(kind, m[3]); !ok {
			t.Errorf("there is no %s %s in %s: %s", kind, m[3], m[1], m[0])
		}
	}
	if named < 5 {
		t.Errorf("README.md names %d objects: this test has lost sight of its commands", named)
	}
	for _, m := range regexp.MustCompile(`deploy/overlays/([a-z]+)`).FindAllStringSubmatch(readme, -1) {
		if !slices.Contains(overlays(t, deploy), m[1]) {
			t.Errorf("there is no overlay %s", m[1])
		}
	}
	// Every Secret that it tells of is one that somebody reads.
	production := byNamespace["safeledger"]
	read := map[string]bool{}
	for _, w := range production.workloads() {
		for _, c := range w.pod.Containers {
			for _, e := range c.Env {
				read[e.ValueFrom.SecretKeyRef.Name+"/"+e.ValueFrom.SecretKeyRef.Key] = true
			}
		}
		for _, v := range w.pod.Volumes {
			for _, item := range v.Secret.Items {
				read[v.Secret.SecretName+"/"+item.Key] = true
			}
		}
	}
	for secret := range documentedSecrets(t, deploy) {
		if !read[secret] {
			t.Errorf("README.md tells of %s, which nobody reads", secret)
		}
	}
	// The selector by which the migration goes first finds the Job, and no replica.
	m := regexp.MustCompile(`kubectl apply -k deploy/overlays/production -l (\S+)=(\S+)`).FindStringSubmatch(readme)
	if m == nil {
		t.Fatal("README.md does not apply the migration first")
	}
	for _, w := range production.workloads() {
		if (w.Metadata.Labels[m[1]] == m[2]) != (w.Kind == "Job") {
			t.Errorf("%s=%s is wrong for %s", m[1], m[2], w)
		}
	}
}
