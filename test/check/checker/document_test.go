package checker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/internal/documenttest"
)

// Who reads a verdict looks its clauses up there.
func TestDocumentIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	words := map[int][]string{}
	for _, c := range Clauses() {
		words[c.Invariant()] = append(words[c.Invariant()], fmt.Sprintf("`%s` %s", c.Name(), c.Words()))
	}
	var b strings.Builder
	b.WriteString("| | the promise | its clauses |\n|---|---|---|\n")
	for i := 1; i <= invariants; i++ {
		fmt.Fprintf(&b, "| I%d | %s | %s |\n", i, invariantWords[i], strings.Join(words[i], "<br>"))
	}
	documenttest.Check(t, "../README.md", "test/check/checker", b.String())
}
