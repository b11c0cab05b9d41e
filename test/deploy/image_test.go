package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// imageUser is who the programs run as in the images.
const imageUser = 65532

// What the images of the tests say that they are.
const (
	testVersion  = "v9.8.7-test"
	testRevision = "0123456789abcdef0123456789abcdef01234567"
	testEpoch    = "1700000000"
)

// image is one that was built, and taken apart again.
type image struct {
	Digest string
	Config imageConfig
	files  []imageFile
	docker []string // the files that `docker load` is told of
}

type imageConfig struct {
	Created      time.Time `json:"created"`
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Config       struct {
		User         string              `json:"User"`
		Entrypoint   []string            `json:"Entrypoint"`
		Cmd          []string            `json:"Cmd"`
		Env          []string            `json:"Env"`
		WorkingDir   string              `json:"WorkingDir"`
		ExposedPorts map[string]struct{} `json:"ExposedPorts"`
		Labels       map[string]string   `json:"Labels"`
	} `json:"config"`
}

type imageFile struct {
	tar.Header
	content []byte
}

// images are built once for all tests, by name.
var images = sync.OnceValues(func() (map[string]image, error) {
	builder, err := imageProgram()
	if err != nil {
		return nil, err
	}
	return buildImages(builder, root, filepath.Join(scratch, "images"))
})

func buildImages(builder, sources, out string) (map[string]image, error) {
	cmd := exec.Command(builder, "-root", sources, "-out", out, "-arch", runtime.GOARCH,
		"-version", testVersion, "-revision", testRevision, "-epoch", testEpoch)
	if complaint, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, complaint)
	}
	all := map[string]image{}
	for _, name := range []string{"safeledger", "walletsim"} {
		img, err := readImage(filepath.Join(out, name+".tar"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all[name] = img
	}
	return all, nil
}

// readImage takes a file apart as whoever loads it does, from its index down, and holds
// each part to the digest that it goes by.
func readImage(path string) (img image, err error) {
	f, err := os.Open(path)
	if err != nil {
		return img, err
	}
	defer f.Close()
	parts := map[string][]byte{}
	if err := eachFile(f, func(h *tar.Header, content []byte) error {
		parts[h.Name] = content
		return nil
	}); err != nil {
		return img, err
	}
	type descriptor struct {
		Digest string `json:"digest"`
		Size   int    `json:"size"`
	}
	read := func(d descriptor) ([]byte, error) {
		hash, hexadecimal := strings.CutPrefix(d.Digest, "sha256:")
		content := parts["blobs/sha256/"+hash]
		if sum := sha256.Sum256(content); !hexadecimal || hex.EncodeToString(sum[:]) != hash || len(content) != d.Size {
			return nil, fmt.Errorf("%s is not what it is called", d.Digest)
		}
		return content, nil
	}
	var index struct{ Manifests []descriptor }
	if err := json.Unmarshal(parts["index.json"], &index); err != nil {
		return img, err
	}
	if len(index.Manifests) != 1 || parts["oci-layout"] == nil {
		return img, errors.New("it is not an OCI layout of one image")
	}
	img.Digest = index.Manifests[0].Digest
	content, err := read(index.Manifests[0])
	if err != nil {
		return img, err
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	if err := json.Unmarshal(content, &manifest); err != nil {
		return img, err
	}
	if content, err = read(manifest.Config); err != nil {
		return img, err
	}
	if err := json.Unmarshal(content, &img.Config); err != nil {
		return img, err
	}
	for _, layer := range manifest.Layers {
		if content, err = read(layer); err != nil {
			return img, err
		}
		unzipped, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return img, err
		}
		if err := eachFile(unzipped, func(h *tar.Header, content []byte) error {
			img.files = append(img.files, imageFile{*h, content})
			return nil
		}); err != nil {
			return img, err
		}
	}
	var docker []struct {
		Config string
		Layers []string
	}
	if err := json.Unmarshal(parts["manifest.json"], &docker); err != nil || len(docker) != 1 {
		return img, fmt.Errorf("it is not a docker archive of one image: %w", err)
	}
	for _, part := range append(docker[0].Layers, docker[0].Config) {
		if parts[part] == nil {
			return img, fmt.Errorf("the docker archive has no %s", part)
		}
		img.docker = append(img.docker, part)
	}
	return img, nil
}

func eachFile(r io.Reader, do func(*tar.Header, []byte) error) error {
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			return err
		}
		if err := do(header, content); err != nil {
			return err
		}
	}
}

func built(t *testing.T, name string) image {
	t.Helper()
	all, err := images()
	if err != nil {
		t.Fatal(err)
	}
	return all[name]
}

// An image that comes out otherwise each time cannot be checked by building it again:
// whoever could change it on its way would not be found out.
func TestTheSameSourcesMakeTheSameImages(t *testing.T) {
	t.Parallel()
	here, err := images()
	if err != nil {
		t.Fatal(err)
	}
	// Somewhere else, with a longer path, newer files, no repository, and a developer's
	// own settings.
	sources := copyOf(t, root, ".git", "bin", ".safeledger")
	out := t.TempDir()
	cmd := exec.Command(program(t, imageProgram), "-root", sources, "-out", out, "-arch", runtime.GOARCH,
		"-version", testVersion, "-revision", testRevision, "-epoch", testEpoch)
	cmd.Env = append(os.Environ(), "GOFLAGS=-ldflags=-X=main.version=mine", "TZ=Asia/Kolkata", "GOAMD64=v3")
	if complaint, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, complaint)
	}
	for name, img := range here {
		again, err := readImage(filepath.Join(out, name+".tar"))
		if err != nil {
			t.Fatal(err)
		}
		if again.Digest != img.Digest {
			t.Errorf("%s is %s here and %s there", name, img.Digest, again.Digest)
		}
		first, ferr := os.ReadFile(filepath.Join(scratch, "images", name+".tar"))
		second, serr := os.ReadFile(filepath.Join(out, name+".tar"))
		if err := errors.Join(ferr, serr); err != nil || !bytes.Equal(first, second) {
			t.Errorf("the files of %s differ (%v)", name, err)
		}
	}
}

// What is in an image is what can be used against it.
func TestAnImageHoldsOneProgramAndNothingElse(t *testing.T) {
	t.Parallel()
	for name, ports := range map[string][]string{"safeledger": {"8080/tcp", "9090/tcp"}, "walletsim": {"8090/tcp"}} {
		img := built(t, name)
		if len(img.files) != 1 {
			t.Fatalf("%s holds %d files", name, len(img.files))
		}
		f := img.files[0]
		if f.Name != name || f.Typeflag != tar.TypeReg || f.Mode != 0o555 || f.Uid != 0 || f.Gid != 0 {
			t.Errorf("%s holds %s of %d:%d with mode %o", name, f.Name, f.Uid, f.Gid, f.Mode)
		}
		c := img.Config.Config
		if c.User != fmt.Sprintf("%d:%d", imageUser, imageUser) || !slices.Equal(c.Entrypoint, []string{"/" + name}) || len(c.Env) != 0 || c.WorkingDir != "/" {
			t.Errorf("%s runs %v as %q in %q with %v", name, c.Entrypoint, c.User, c.WorkingDir, c.Env)
		}
		if got := slices.Sorted(maps.Keys(c.ExposedPorts)); !slices.Equal(got, ports) {
			t.Errorf("%s has the ports %v, want %v", name, got, ports)
		}
		if img.Config.OS != "linux" || img.Config.Architecture != runtime.GOARCH || img.Config.Created.Unix() != 1700000000 {
			t.Errorf("%s is for %s/%s, of %v", name, img.Config.OS, img.Config.Architecture, img.Config.Created)
		}
		if c.Labels["org.opencontainers.image.version"] != testVersion || c.Labels["org.opencontainers.image.revision"] != testRevision {
			t.Errorf("%s says that it is %v", name, c.Labels)
		}
		if len(img.docker) != 2 {
			t.Errorf("%s: docker would load %v", name, img.docker)
		}
	}
}

// Roots and time zones are nowhere else than in the program. The first shows only when
// a wallet behind TLS is called, the second when somebody sets TZ.
func TestTheProgramBringsItsRootsAndTimeZones(t *testing.T) {
	t.Parallel()
	binary := built(t, "safeledger").files[0].content
	for _, want := range []string{"ISRG Root X1", "Europe/Vienna"} {
		if !bytes.Contains(binary, []byte(want)) {
			t.Errorf("%q is not in the program", want)
		}
	}
}

// What docs/performance.md says of its price is said of a program that the compiler has
// optimised by its profile. A build that does not find it says nothing.
func TestTheProgramIsCompiledByItsProfile(t *testing.T) {
	t.Parallel()
	info, err := buildinfo.Read(bytes.NewReader(built(t, "safeledger").files[0].content))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(info.Settings, debug.BuildSetting{Key: "-pgo", Value: "default.pgo"}) {
		t.Errorf("it was built with %v", info.Settings)
	}
}

// Whoever has an engine builds from the Dockerfile, whoever has none by `make image`.
// What differs between the two would be found in production, by one of them.
func TestTheDockerfileDescribesTheSameImages(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}
	builder, err := os.ReadFile(filepath.Join(root, "tools", "deploy", "image", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	stages := dockerfileStages(string(content))
	for _, name := range []string{"safeledger", "walletsim"} {
		got, want := stages[name], built(t, name).Config.Config
		labels := map[string]string{}
		for _, l := range regexp.MustCompile(`(org\.opencontainers\.\S+?)=("[^"]*"|\S+)`).FindAllStringSubmatch(got["LABEL"], -1) {
			labels[l[1]] = strings.Trim(l[2], `"`)
		}
		for instruction, value := range map[string]string{
			"FROM":       "scratch AS " + name,
			"USER":       want.User,
			"WORKDIR":    want.WorkingDir,
			"EXPOSE":     strings.Join(slices.Sorted(maps.Keys(want.ExposedPorts)), " "),
			"ENTRYPOINT": asJSON(want.Entrypoint),
			"CMD":        asJSON(want.Cmd),
			"COPY":       "--from=build /out/" + name + " /" + name,
		} {
			if got[instruction] != value {
				t.Errorf("%s: the Dockerfile has %s %q, the image %q", name, instruction, got[instruction], value)
			}
		}
		wantLabels := maps.Clone(want.Labels)
		wantLabels["org.opencontainers.image.version"], wantLabels["org.opencontainers.image.revision"] = "$VERSION", "$REVISION"
		if !maps.Equal(labels, wantLabels) {
			t.Errorf("%s: the Dockerfile has the labels %v, the image %v", name, labels, wantLabels)
		}
	}
	if last := strings.LastIndex(string(content), "FROM "); !strings.HasPrefix(string(content)[last:], "FROM scratch AS safeledger") {
		t.Error("the last stage, which is built when none is named, is not safeledger")
	}
	// The flags of the compiler, and what it must not hear of its surroundings.
	build := stages["build"]
	for _, flag := range []string{"-trimpath", "-buildvcs=false", "-s -w -X main.version=", " -X main.revision="} {
		if !strings.Contains(build["RUN"], flag) || !strings.Contains(string(builder), flag) {
			t.Errorf("the flag %q is not in both", flag)
		}
	}
	for setting := range strings.FieldsSeq(build["ENV"]) {
		if !strings.Contains(string(builder), `"`+setting+`"`) {
			t.Errorf("%s is in the Dockerfile and not in the builder", setting)
		}
	}
	// One toolchain for both, or the same sources make two programs.
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	least := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(string(goMod))[1]
	if !strings.Contains(build["FROM"], " golang:"+least+".") {
		t.Errorf("it is built by %q, and go.mod asks for %s", build["FROM"], least)
	}
}

// dockerfileStages are the instructions of each stage by their name; the last one of a
// kind counts, but for RUN, of which all do.
func dockerfileStages(content string) map[string]map[string]string {
	stages := map[string]map[string]string{}
	stage := ""
	content = strings.ReplaceAll(content, "\\\n", " ")
	for line := range strings.Lines(content) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		if instruction == "" || strings.HasPrefix(instruction, "#") {
			continue
		}
		rest = strings.Join(strings.Fields(rest), " ")
		if instruction == "FROM" {
			stage = rest[strings.LastIndex(rest, " ")+1:]
			stages[stage] = map[string]string{}
		}
		if instruction == "RUN" {
			rest = stages[stage]["RUN"] + rest
		}
		stages[stage][instruction] = rest
	}
	return stages
}

func asJSON(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return `["` + strings.Join(words, `", "`) + `"]`
}
