// Command image builds the container images without a container engine: what the
// Dockerfile at the root describes, as one file each that docker, podman, containerd
// and skopeo load. The same sources give the same bytes, wherever and whenever they
// are built, so that an image can be checked by building it again.
package main

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user owns nothing in the image and has no name there: Kubernetes can see that a
// number is not root.
const user = "65532:65532"

// program is one image: one binary, nothing else.
type program struct {
	name  string
	title string
	cmd   []string
	ports []string
}

func programs() []program {
	return []program{
		{
			name: "safeledger", title: "SafeLedger decides payments between tills and a wallet",
			cmd: []string{"serve"}, ports: []string{"8080/tcp", "9090/tcp"},
		},
		{
			name: "walletsim", title: "The simulated wallet of SafeLedger, for trying and testing",
			ports: []string{"8090/tcp"},
		},
	}
}

// options are the command line. Everything that may differ from one build to the
// next is here, and nothing else is asked: no clock, no repository, no environment.
type options struct {
	root, out, version, revision, arch string
	at                                 time.Time
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return err
	}
	for _, p := range programs() {
		img, err := o.image(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		digest, err := img.Digest()
		if err != nil {
			return err
		}
		path := filepath.Join(o.out, p.name+".tar")
		if err := write(path, p.name+":"+o.version, img); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if _, err := fmt.Fprintf(stdout, "%s\t%s:%s\t%s\n", path, p.name, o.version, digest); err != nil {
			return err
		}
	}
	return nil
}

func parse(args []string) (options, error) {
	var o options
	var epoch int64
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.root, "root", ".", "the `folder` of the sources")
	flags.StringVar(&o.out, "out", "bin/image", "the `folder` to write to")
	flags.StringVar(&o.version, "version", "", "what the images are tagged with")
	flags.StringVar(&o.revision, "revision", "", "the commit that they are built from")
	flags.StringVar(&o.arch, "arch", "amd64", "the `processor`, as Go names it")
	flags.Int64Var(&epoch, "epoch", 0, "the commit's time in `seconds`: what every file and the image say")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.version == "" || o.revision == "" {
		return o, errors.New("-version and -revision must be given")
	}
	o.at = time.Unix(epoch, 0).UTC()
	return o, nil
}

// image is what the Dockerfile's last lines describe.
func (o options) image(p program) (v1.Image, error) {
	binary, err := o.build(p.name)
	if err != nil {
		return nil, err
	}
	layer, err := o.layer(p.name, binary)
	if err != nil {
		return nil, err
	}
	img := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	img = mutate.ConfigMediaType(img, types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: o.at}, CreatedBy: "COPY /" + p.name},
	})
	if err != nil {
		return nil, err
	}
	file, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.Created = v1.Time{Time: o.at}
	file.OS, file.Architecture = "linux", o.arch
	file.Config = v1.Config{
		User:         user,
		Entrypoint:   []string{"/" + p.name},
		Cmd:          p.cmd,
		WorkingDir:   "/",
		ExposedPorts: map[string]struct{}{},
		Labels: map[string]string{
			"org.opencontainers.image.title":    p.title,
			"org.opencontainers.image.version":  o.version,
			"org.opencontainers.image.revision": o.revision,
		},
	}
	for _, port := range p.ports {
		file.Config.ExposedPorts[port] = struct{}{}
	}
	return mutate.ConfigFile(img, file)
}

// build compiles a program with the flags that the Dockerfile has. What a developer
// has set for himself must not find its way into an image.
func (o options) build(name string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "safeledger-image-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+o.version+" -X main.revision="+o.revision, "-o", path, "./cmd/"+name)
	cmd.Dir = o.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+o.arch,
		"GOFLAGS=", "GOWORK=off", "GOEXPERIMENT=", "GOAMD64=v1", "GOARM64=v8.0", "GOFIPS140=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w: %s", err, out)
	}
	return os.ReadFile(path)
}

// layer holds the binary, owned by root and writable by nobody.
func (o options) layer(name string, binary []byte) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	if err := w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: 0o555, Size: int64(len(binary)), ModTime: o.at, Format: tar.FormatPAX,
	}); err != nil {
		return nil, err
	}
	if _, err := w.Write(binary); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// write puts an image into one file that is an OCI layout and, by one more entry, a
// `docker save` too: older engines know only that.
func write(path, tag string, img v1.Image) error {
	blobs, err := blobsOf(img)
	if err != nil {
		return err
	}
	manifest, config := blobs[len(blobs)-1], blobs[len(blobs)-2]
	mediaType, err := img.MediaType()
	if err != nil {
		return err
	}
	index, err := json.Marshal(v1.IndexManifest{
		SchemaVersion: 2, MediaType: types.OCIImageIndex,
		Manifests: []v1.Descriptor{{
			MediaType: mediaType, Size: int64(len(manifest.content)), Digest: manifest.digest,
			Annotations: map[string]string{"org.opencontainers.image.ref.name": tag},
		}},
	})
	if err != nil {
		return err
	}
	saved := tarball.Descriptor{Config: config.path(), RepoTags: []string{tag}}
	for _, layer := range blobs[:len(blobs)-2] {
		saved.Layers = append(saved.Layers, layer.path())
	}
	docker, err := json.Marshal(tarball.Manifest{saved})
	if err != nil {
		return err
	}

	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, content []byte) {
		err = errors.Join(err, w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: time.Unix(0, 0).UTC(),
		}))
		_, werr := w.Write(content)
		err = errors.Join(err, werr)
	}
	add("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`))
	add("index.json", index)
	add("manifest.json", docker)
	for _, blob := range blobs {
		add(blob.path(), blob.content)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// blob is a part of an image, named by what it holds.
type blob struct {
	digest  v1.Hash
	content []byte
}

func (b blob) path() string { return "blobs/" + b.digest.Algorithm + "/" + b.digest.Hex }

// blobsOf are the layers of an image, then its configuration, then its manifest.
func blobsOf(img v1.Image) ([]blob, error) {
	var all []blob
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return nil, err
		}
		r, err := layer.Compressed()
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(r)
		if err := errors.Join(err, r.Close()); err != nil {
			return nil, err
		}
		all = append(all, blob{digest, content})
	}
	config, err := img.ConfigName()
	if err != nil {
		return nil, err
	}
	raw, err := img.RawConfigFile()
	if err != nil {
		return nil, err
	}
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	manifest, err := img.RawManifest()
	if err != nil {
		return nil, err
	}
	return append(all, blob{config, raw}, blob{digest, manifest}), nil
}
