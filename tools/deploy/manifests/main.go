// Command manifests renders kustomize overlays and holds every object to the schema of
// its kind: `manifests -schemas FOLDER OVERLAY…`. What it prints is one JSON object
// with, for each overlay, its objects and what is wrong with them; judging that is the
// caller's. It needs neither kubectl nor a cluster.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/yannh/kubeconform/pkg/validator"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// overlay is what came of one folder.
type overlay struct {
	Objects []json.RawMessage `json:"objects"`
	Faults  []string          `json:"faults"`
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("manifests", flag.ContinueOnError)
	schemas := flags.String("schemas", "deploy/schemas", "the `folder` of the schemas")
	if err := flags.Parse(args); err != nil {
		return err
	}
	// Strict: a member that the schema does not know is a fault. A kind without a schema
	// is one too: nothing is applied that was not looked at.
	validate, err := validator.New(
		[]string{filepath.Join(*schemas, "{{.ResourceKind}}{{.KindSuffix}}.json")}, validator.Opts{Strict: true})
	if err != nil {
		return err
	}
	all := map[string]overlay{}
	for _, dir := range flags.Args() {
		all[dir] = render(dir, validate)
	}
	return json.NewEncoder(stdout).Encode(all)
}

// render never fails: an overlay that cannot be rendered has that as its fault.
func render(dir string, validate validator.Validator) overlay {
	o := overlay{Objects: []json.RawMessage{}, Faults: []string{}}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionUnspecified
	resources, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		o.Faults = append(o.Faults, err.Error())
		return o
	}
	for _, r := range resources.Resources() {
		object, err := r.MarshalJSON()
		if err != nil {
			o.Faults = append(o.Faults, fmt.Sprintf("%s: %v", r.CurId(), err))
			continue
		}
		o.Objects = append(o.Objects, object)
		for _, result := range validate.Validate(dir, io.NopCloser(bytes.NewReader(object))) {
			if result.Status != validator.Valid {
				o.Faults = append(o.Faults, fmt.Sprintf("%s %s: %v", r.GetKind(), r.GetName(), result.Err))
			}
		}
	}
	return o
}
