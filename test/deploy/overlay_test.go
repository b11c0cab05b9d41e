// Package deploy holds what is deployed to what the program is: the manifests are
// rendered, held to the schemas of Kubernetes and to the rules in rules_test.go, and
// their containers are run as they say; the images are built twice, taken apart and
// run. There is no cluster and no container engine in here.
package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// root is the repository's, from here.
const root = "../.."

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	var err error
	if scratch, err = os.MkdirTemp("", "safeledger-deploy-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	code := m.Run()
	if postgres != nil {
		_ = postgres.Stop()
	}
	return code
}

// scratch is where the programs are built that the tests run, each when the first test
// asks for it.
var (
	scratch string

	safeledgerProgram = sync.OnceValues(func() (string, error) { return build(root, "safeledger", "./cmd/safeledger") })
	manifestsProgram  = sync.OnceValues(func() (string, error) { return build(root+"/tools/deploy", "manifests", "./manifests") })
	imageProgram      = sync.OnceValues(func() (string, error) { return build(root+"/tools/deploy", "image", "./image") })
)

func build(module, name, pkg string) (string, error) {
	path := filepath.Join(scratch, name)
	cmd := exec.Command("go", "build", "-o", path, pkg)
	cmd.Dir = module
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, out)
	}
	return path, nil
}

// program is the path of one of them.
func program(t *testing.T, built func() (string, error)) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// overlay is a folder of deploy/overlays as it would be applied.
type overlay struct {
	name    string
	objects []object
	faults  []string // of rendering, and against the schemas
}

// object is any object of the cluster.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name        string            `json:"name"`
		Namespace   string            `json:"namespace"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Data map[string]json.RawMessage `json:"data"`
	Spec json.RawMessage            `json:"spec"`
}

func (o object) String() string { return o.Kind + " " + o.Metadata.Name }

// overlays are the folders below deploy/overlays of a deploy folder: also one that was
// put there by whoever runs SafeLedger.
func overlays(t *testing.T, deploy string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(deploy, "overlays"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names
}

// render renders overlays of a deploy folder.
func render(t *testing.T, deploy string, names ...string) []overlay {
	t.Helper()
	args := []string{"-schemas", filepath.Join(root, "deploy", "schemas")}
	for _, name := range names {
		args = append(args, filepath.Join(deploy, "overlays", name))
	}
	cmd := exec.Command(program(t, manifestsProgram), args...)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("render: %v: %s", err, complaint.String())
	}
	var rendered map[string]struct {
		Objects []object `json:"objects"`
		Faults  []string `json:"faults"`
	}
	if err := json.Unmarshal(out, &rendered); err != nil {
		t.Fatal(err)
	}
	var all []overlay
	for _, name := range names {
		r := rendered[filepath.Join(deploy, "overlays", name)]
		all = append(all, overlay{name, r.Objects, r.Faults})
	}
	return all
}

// objectsOf are the objects of a kind.
func (o overlay) objectsOf(kind string) []object {
	return slices.DeleteFunc(slices.Clone(o.objects), func(x object) bool { return x.Kind != kind })
}

// find is the object of a kind and name.
func (o overlay) find(kind, name string) (object, bool) {
	for _, x := range o.objects {
		if x.Kind == kind && x.Metadata.Name == name {
			return x, true
		}
	}
	return object{}, false
}

// specOf are the specs of a kind, by object.
func specOf[T any](o overlay, kind string) map[string]T {
	all := map[string]T{}
	for _, x := range o.objectsOf(kind) {
		all[x.Metadata.Name] = specAs[T](x)
	}
	return all
}

// specAs reads what is asked for of a spec. The schema has said that it has that form;
// where it has not, that is a fault by itself.
func specAs[T any](x object) T {
	var spec T
	_ = json.Unmarshal(x.Spec, &spec)
	return spec
}

// sorted goes through m by name, so that complaints come in the same order each time.
func sorted[T any](m map[string]T) func(func(string, T) bool) {
	return func(yield func(string, T) bool) {
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if !yield(name, m[name]) {
				return
			}
		}
	}
}

// workload is what makes pods.
type workload struct {
	object
	controller controller
	pod        podSpec
	labels     map[string]string // of its pods
	notes      map[string]string // its pods' annotations
}

type controller struct {
	Replicas *int           `json:"replicas"`
	Selector *labelSelector `json:"selector"`
	Strategy struct {
		RollingUpdate *struct {
			MaxUnavailable json.Number `json:"maxUnavailable"`
			MaxSurge       json.Number `json:"maxSurge"`
		} `json:"rollingUpdate"`
	} `json:"strategy"`
	Template struct {
		Metadata struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec podSpec `json:"spec"`
	} `json:"template"`
}

type podSpec struct {
	ServiceAccountName            string           `json:"serviceAccountName"`
	AutomountServiceAccountToken  *bool            `json:"automountServiceAccountToken"`
	EnableServiceLinks            *bool            `json:"enableServiceLinks"`
	TerminationGracePeriodSeconds *int             `json:"terminationGracePeriodSeconds"`
	HostNetwork                   bool             `json:"hostNetwork"`
	HostPID                       bool             `json:"hostPID"`
	HostIPC                       bool             `json:"hostIPC"`
	SecurityContext               securityContext  `json:"securityContext"`
	InitContainers                []container      `json:"initContainers"`
	Containers                    []container      `json:"containers"`
	Volumes                       []volume         `json:"volumes"`
	TopologySpreadConstraints     []spreadByLabels `json:"topologySpreadConstraints"`
}

type spreadByLabels struct {
	LabelSelector labelSelector `json:"labelSelector"`
}

type securityContext struct {
	RunAsNonRoot             *bool  `json:"runAsNonRoot"`
	RunAsUser                *int   `json:"runAsUser"`
	RunAsGroup               *int   `json:"runAsGroup"`
	FSGroup                  *int   `json:"fsGroup"`
	Privileged               bool   `json:"privileged"`
	ReadOnlyRootFilesystem   bool   `json:"readOnlyRootFilesystem"`
	AllowPrivilegeEscalation *bool  `json:"allowPrivilegeEscalation"`
	ProcMount                string `json:"procMount"`
	SeccompProfile           struct {
		Type string `json:"type"`
	} `json:"seccompProfile"`
	Capabilities struct {
		Add  []string `json:"add"`
		Drop []string `json:"drop"`
	} `json:"capabilities"`
}

type container struct {
	Name    string   `json:"name"`
	Image   string   `json:"image"`
	Command []string `json:"command"`
	Args    []string `json:"args"`
	Ports   []struct {
		Name          string `json:"name"`
		ContainerPort int    `json:"containerPort"`
	} `json:"ports"`
	Env []struct {
		Name      string  `json:"name"`
		Value     *string `json:"value"`
		ValueFrom struct {
			SecretKeyRef struct {
				Name string `json:"name"`
				Key  string `json:"key"`
			} `json:"secretKeyRef"`
		} `json:"valueFrom"`
	} `json:"env"`
	EnvFrom []struct {
		ConfigMapRef struct {
			Name string `json:"name"`
		} `json:"configMapRef"`
	} `json:"envFrom"`
	Resources struct {
		Requests map[string]string `json:"requests"`
		Limits   map[string]string `json:"limits"`
	} `json:"resources"`
	SecurityContext securityContext `json:"securityContext"`
	StartupProbe    *probe          `json:"startupProbe"`
	LivenessProbe   *probe          `json:"livenessProbe"`
	ReadinessProbe  *probe          `json:"readinessProbe"`
	Lifecycle       struct {
		PreStop *struct {
			Sleep *struct {
				Seconds int `json:"seconds"`
			} `json:"sleep"`
		} `json:"preStop"`
	} `json:"lifecycle"`
	VolumeMounts []volumeMount `json:"volumeMounts"`
}

type volumeMount struct {
	Name      string `json:"name"`
	MountPath string `json:"mountPath"`
	SubPath   string `json:"subPath"`
	ReadOnly  bool   `json:"readOnly"`
}

type probe struct {
	HTTPGet *struct {
		Path string          `json:"path"`
		Port json.RawMessage `json:"port"`
	} `json:"httpGet"`
}

type volume struct {
	Name   string `json:"name"`
	Secret *struct {
		SecretName  string `json:"secretName"`
		DefaultMode *int   `json:"defaultMode"`
		Optional    bool   `json:"optional"`
		Items       []struct {
			Key  string `json:"key"`
			Path string `json:"path"`
		} `json:"items"`
	} `json:"secret"`
	EmptyDir *struct{} `json:"emptyDir"`
}

type labelSelector struct {
	MatchLabels      map[string]string `json:"matchLabels"`
	MatchExpressions []struct {
		Key      string   `json:"key"`
		Operator string   `json:"operator"`
		Values   []string `json:"values"`
	} `json:"matchExpressions"`
}

// matches says whether a selector selects what has labels. An operator that nobody
// uses yet selects nothing, which a rule then complains of.
func (s labelSelector) matches(labels map[string]string) bool {
	for key, value := range s.MatchLabels {
		if labels[key] != value {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		if e.Operator != "In" || !slices.Contains(e.Values, labels[e.Key]) {
			return false
		}
	}
	return true
}

// workloads are everything that makes pods.
func (o overlay) workloads() []workload {
	var all []workload
	for _, kind := range []string{"Deployment", "StatefulSet", "Job"} {
		for _, x := range o.objectsOf(kind) {
			c := specAs[controller](x)
			all = append(all, workload{x, c, c.Template.Spec, c.Template.Metadata.Labels, c.Template.Metadata.Annotations})
		}
	}
	return all
}

// program is the container's of ours in a pod, and whether it is that program's.
func (w workload) program(name string) (container, bool) {
	for _, c := range w.pod.Containers {
		if imageName(c.Image) == name {
			return c, true
		}
	}
	return container{}, false
}

// imageName is an image without where it is kept and which one it is.
func imageName(reference string) string {
	reference, _, _ = strings.Cut(reference, "@")
	name := reference[strings.LastIndex(reference, "/")+1:]
	name, _, _ = strings.Cut(name, ":")
	return name
}

// replicas are the workloads that run `safeledger serve`.
func (o overlay) replicas() []workload {
	return slices.DeleteFunc(o.workloads(), func(w workload) bool {
		c, ours := w.program("safeledger")
		return !ours || len(c.Args) == 0 || c.Args[0] != "serve"
	})
}

// migrations are the workloads that run `safeledger migrate`.
func (o overlay) migrations() []workload {
	return slices.DeleteFunc(o.workloads(), func(w workload) bool {
		c, ours := w.program("safeledger")
		return !ours || len(c.Args) == 0 || c.Args[0] != "migrate"
	})
}

// copyOf is a copy of a folder in which a test may plant a fault.
func copyOf(t *testing.T, dir string, skip ...string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if slices.Contains(skip, below) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(to, below), 0o755)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, below), content, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}
