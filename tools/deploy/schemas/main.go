// Command schemas writes the JSON schemas that manifests are held to, from the
// documents that Kubernetes, the Prometheus operator and Istio publish of themselves:
// `schemas -out deploy/schemas`. They are committed, because the modules that they come
// from are large and are needed for nothing else; run it to follow a new release.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// The releases whose kinds these are.
const (
	kubernetes = "k8s.io/kubernetes@v1.37.2"
	operator   = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	istio      = "istio.io/api@v1.32.0"
)

// kind is one kind of object that the manifests have.
type kind struct{ group, version, name string }

// file is the name under which kubeconform looks for the schema of a kind.
func (k kind) file() string {
	name := strings.ToLower(k.name)
	if k.group != "" {
		name += "-" + strings.Split(k.group, ".")[0]
	}
	return name + "-" + k.version + ".json"
}

func (k kind) apiVersion() string {
	if k.group == "" {
		return k.version
	}
	return k.group + "/" + k.version
}

// builtIn are Kubernetes' own kinds, custom those that others bring.
func builtIn() []kind {
	return []kind{
		{"", "v1", "Namespace"},
		{"", "v1", "ServiceAccount"},
		{"", "v1", "ConfigMap"},
		{"", "v1", "Secret"},
		{"", "v1", "Service"},
		{"apps", "v1", "Deployment"},
		{"apps", "v1", "StatefulSet"},
		{"batch", "v1", "Job"},
		{"policy", "v1", "PodDisruptionBudget"},
		{"autoscaling", "v2", "HorizontalPodAutoscaler"},
		{"networking.k8s.io", "v1", "NetworkPolicy"},
	}
}

func custom() map[string][]kind {
	return map[string][]kind{
		operator + "/example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml": {{"monitoring.coreos.com", "v1", "ServiceMonitor"}},
		operator + "/example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml": {{"monitoring.coreos.com", "v1", "PrometheusRule"}},
		istio + "/kubernetes/customresourcedefinitions.gen.yaml": {
			{"networking.istio.io", "v1", "VirtualService"},
			{"networking.istio.io", "v1", "DestinationRule"},
			{"networking.istio.io", "v1", "ServiceEntry"},
			{"security.istio.io", "v1", "PeerAuthentication"},
			{"security.istio.io", "v1", "AuthorizationPolicy"},
		},
	}
}

// schema is a JSON schema, or a part of one.
type schema = map[string]any

func main() {
	out := flag.String("out", "deploy/schemas", "the `folder` to write to")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	definitions, err := readSwagger()
	if err != nil {
		return err
	}
	all := map[string]schema{}
	for _, k := range builtIn() {
		name, err := definitionOf(definitions, k)
		if err != nil {
			return err
		}
		all[k.file()] = standalone(definitions, k, schema{"$ref": "#/definitions/" + name})
	}
	for source, kinds := range custom() {
		crds, err := readDefinitions(source)
		if err != nil {
			return err
		}
		for _, k := range kinds {
			root, err := crdSchema(crds, k)
			if err != nil {
				return fmt.Errorf("%s: %w", source, err)
			}
			all[k.file()] = standalone(definitions, k, root)
		}
	}
	old, err := filepath.Glob(filepath.Join(out, "*.json"))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	for name, s := range all {
		content, err := write(s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(out, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readSwagger are the definitions of Kubernetes' own types, made strict.
func readSwagger() (map[string]schema, error) {
	content, err := read(kubernetes + "/api/openapi-spec/swagger.json")
	if err != nil {
		return nil, err
	}
	var document struct {
		Definitions map[string]schema `json:"definitions"`
	}
	if err := json.Unmarshal(content, &document); err != nil {
		return nil, fmt.Errorf("read the swagger document: %w", err)
	}
	// These two are written as a string or a number, which OpenAPI v2 cannot say.
	const prefix = "io.k8s.apimachinery.pkg."
	either := schema{"type": []any{"string", "number"}}
	for _, name := range []string{prefix + "util.intstr.IntOrString", prefix + "api.resource.Quantity"} {
		if document.Definitions[name] == nil {
			return nil, fmt.Errorf("%s is not there any more", name)
		}
		document.Definitions[name] = either
	}
	for _, s := range document.Definitions {
		strict(s)
	}
	return document.Definitions, nil
}

// definitionOf is the definition's name of a kind.
func definitionOf(definitions map[string]schema, k kind) (string, error) {
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		kinds, _ := definitions[name]["x-kubernetes-group-version-kind"].([]any)
		for _, entry := range kinds {
			if e, ok := entry.(map[string]any); ok && e["group"] == k.group && e["version"] == k.version && e["kind"] == k.name {
				return name, nil
			}
		}
	}
	return "", fmt.Errorf("%s %s is not in the swagger document", k.apiVersion(), k.name)
}

// readDefinitions are the custom resource definitions of a file, by kind.
func readDefinitions(source string) (map[string]schema, error) {
	content, err := read(source)
	if err != nil {
		return nil, err
	}
	all := map[string]schema{}
	for part := range bytes.SplitSeq(content, []byte("\n---\n")) {
		var document struct {
			Kind string `json:"kind"`
			Spec struct {
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
				Group    string `json:"group"`
				Versions []struct {
					Name   string `json:"name"`
					Schema struct {
						Root schema `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(part, &document); err != nil {
			return nil, fmt.Errorf("%s: %w", source, err)
		}
		for _, v := range document.Spec.Versions {
			all[kind{document.Spec.Group, v.Name, document.Spec.Names.Kind}.file()] = v.Schema.Root
		}
	}
	return all, nil
}

// crdSchema is the schema of a custom kind. What every object has of Kubernetes is
// left out of it, and put back.
func crdSchema(crds map[string]schema, k kind) (schema, error) {
	root := crds[k.file()]
	if root == nil {
		return nil, fmt.Errorf("%s %s is not there", k.apiVersion(), k.name)
	}
	properties, ok := root["properties"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s has no members", k.name)
	}
	strict(root)
	properties["apiVersion"], properties["kind"] = schema{"type": "string"}, schema{"type": "string"}
	properties["metadata"] = schema{"$ref": "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
	root["additionalProperties"] = false
	return root, nil
}

// strict refuses members that an object is not said to have, and leaves out what is
// for readers and servers only. What stands below anyOf, oneOf, allOf and not adds to
// the schema around it, which has the members.
func strict(s schema) {
	if s["nullable"] == true {
		if t, ok := s["type"].(string); ok {
			s["type"] = []any{t, "null"}
		}
	}
	free := s["x-kubernetes-preserve-unknown-fields"] == true
	if s["x-kubernetes-int-or-string"] == true {
		delete(s, "type")
	}
	for key := range s {
		if strings.HasPrefix(key, "x-kubernetes-") && key != "x-kubernetes-group-version-kind" ||
			slices.Contains([]string{"description", "default", "example", "format", "nullable"}, key) {
			delete(s, key)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if below, ok := s[key].(map[string]any); ok {
			strict(below)
		}
	}
	properties, ok := s["properties"].(map[string]any)
	if !ok {
		return
	}
	for _, p := range properties {
		if below, ok := p.(map[string]any); ok {
			strict(below)
		}
	}
	if _, said := s["additionalProperties"]; !said && !free {
		s["additionalProperties"] = false
	}
}

// standalone is a schema with everything that it refers to.
func standalone(definitions map[string]schema, k kind, root schema) schema {
	used := map[string]any{}
	var collect func(any)
	collect = func(part any) {
		switch part := part.(type) {
		case map[string]any:
			if ref, ok := part["$ref"].(string); ok {
				name := strings.TrimPrefix(ref, "#/definitions/")
				if used[name] == nil {
					definition := maps.Clone(definitions[name])
					delete(definition, "x-kubernetes-group-version-kind")
					used[name] = definition
					collect(definition)
				}
			}
			for _, below := range part {
				collect(below)
			}
		case []any:
			for _, below := range part {
				collect(below)
			}
		}
	}
	collect(root)
	return schema{
		"$schema": "http://json-schema.org/draft-07/schema#",
		"allOf": []any{root, schema{
			"required":   []any{"apiVersion", "kind", "metadata"},
			"properties": schema{"apiVersion": schema{"const": k.apiVersion()}, "kind": schema{"const": k.name}},
		}},
		"definitions": used,
	}
}

// write is s with a definition on each line, so that a new release's differences can
// be read.
func write(s schema) ([]byte, error) {
	definitions, _ := s["definitions"].(map[string]any)
	var b bytes.Buffer
	line := func(format string, value any) error {
		content, err := json.Marshal(value)
		if err == nil {
			fmt.Fprintf(&b, format, content)
		}
		return err
	}
	err := errors.Join(line("{\"$schema\": %s,\n", s["$schema"]), line("\"allOf\": %s,\n\"definitions\": {", s["allOf"]))
	separator := "\n"
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		key, kerr := json.Marshal(name)
		err = errors.Join(err, kerr)
		fmt.Fprintf(&b, "%s%s: ", separator, key)
		err = errors.Join(err, line("%s", definitions[name]))
		separator = ",\n"
	}
	b.WriteString("\n}}\n")
	return b.Bytes(), err
}

// read is a file of a module: "module@version/path".
func read(source string) ([]byte, error) {
	at := strings.Index(source, "@")
	end := at + strings.Index(source[at:], "/")
	module, path := source[:end], source[end+1:]
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = os.TempDir() // not as a requirement of any module of ours
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	var downloaded struct{ Dir, Error string }
	if jerr := json.Unmarshal(out, &downloaded); jerr != nil || downloaded.Error != "" || err != nil {
		return nil, fmt.Errorf("download %s: %w: %s", module, errors.Join(err, jerr), downloaded.Error)
	}
	return os.ReadFile(filepath.Join(downloaded.Dir, filepath.FromSlash(path)))
}
