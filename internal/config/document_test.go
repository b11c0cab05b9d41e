package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/internal/documenttest"
)

// Operators work from the document. A default or a limit that it states
// otherwise than the code is worse than none.
func TestDocumentIsWhatTheCodeSays(t *testing.T) {
	documenttest.Check(t, "../../docs/configuration.md", "internal/config", tables())
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
