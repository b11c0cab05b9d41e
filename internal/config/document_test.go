package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the code says into the document")

const (
	document = "../../docs/configuration.md"
	begin    = "<!-- written by go test ./internal/config -run Document -update -->\n"
	end      = "<!-- end of what is written -->\n"
)

// Operators work from the document. A default or a limit that it states
// otherwise than the code is worse than none.
func TestDocumentIsWhatTheCodeSays(t *testing.T) {
	content, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	got, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		t.Fatalf("%s lacks the lines %q and %q", document, begin, end)
	}
	want := tables()
	if *update {
		if err := os.WriteFile(document, []byte(before+begin+want+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is behind the code; run this test with -update (-code +document):\n%s", document, diff)
	}
}

// tables are the variables and the rules between them, in Markdown.
func tables() string {
	var b strings.Builder
	fmt.Fprint(&b, "\n## The variables\n\n| variable | default | meaning | it must be |\n|---|---|---|---|\n")
	for _, v := range Variables() {
		def := "none"
		switch {
		case v.Default != "":
			def = "`" + v.Default + "`"
		case v.Needed == neededAlways:
			def = "must be set"
		case v.Needed == neededByAPI:
			def = "must be set, but by `--role=worker`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", v.Name, def, v.Meaning, v.Allowed)
	}
	fmt.Fprint(&b, "\n## The rules between them\n\n")
	for _, rule := range rules {
		fmt.Fprintf(&b, "- `%s`: %s.\n", strings.Join(rule.of, "`, `"), rule.says)
	}
	fmt.Fprint(&b, "\n")
	return b.String()
}
