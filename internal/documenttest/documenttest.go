// Package documenttest holds documents to the code. Where a document repeats what code
// says, the code writes that part of it, and a test that is red until it is written
// again keeps the two the same.
package documenttest

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what the code says into the document") //nolint:gochecknoglobals // a flag of the test binary

// Check fails the test unless the written part of the document is want, or makes it
// so, if the test runs with -update. The part stands between two comments, of which
// the first names by, the folder of the test from the root of the module. document
// is a path from that folder.
func Check(tb testing.TB, document, by, want string) {
	tb.Helper()
	begin := fmt.Sprintf("<!-- written by go test ./%s -run Document -update -->\n", by)
	const end = "<!-- end of what is written -->\n"
	content, err := os.ReadFile(document)
	if err != nil {
		tb.Fatal(err)
	}
	before, rest, found := strings.Cut(string(content), begin)
	got, after, closed := strings.Cut(rest, end)
	if !found || !closed {
		tb.Fatalf("%s lacks the lines %q and %q", document, begin, end)
	}
	if *update {
		if err := os.WriteFile(document, []byte(before+begin+want+end+after), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	compare(tb, document, want, got)
}

// CheckFile is Check for a file that is written as a whole.
func CheckFile(tb testing.TB, file, want string) {
	tb.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			tb.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	compare(tb, file, want, string(got))
}

func compare(tb testing.TB, document, want, got string) {
	tb.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		tb.Errorf("%s is behind the code; run this test with -update (-code +document):\n%s", document, diff)
	}
}
