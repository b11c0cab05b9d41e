package docs

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// commands are what a reader of a page would paste into a shell: the fenced blocks of
// shell, each as a whole, and in what is indented the lines that a prompt or a program
// begins. What stands behind a prompt is a command, and the other lines of such a block
// are its output. Untagged fences are output too; that they hold no command is checked.
func commands(page string) (all []string) {
	var fence []string
	language, fenced, wasBlank, indented := "", false, true, false
	for line := range strings.Lines(page) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "```") && !fenced:
			fenced, language, fence = true, strings.TrimPrefix(line, "```"), nil
		case strings.HasPrefix(line, "```"):
			fenced = false
			if slices.Contains([]string{"sh", "shell", "bash", "console"}, language) {
				all = append(all, strings.Join(fence, "\n"))
			}
		case fenced:
			fence = append(fence, line)
			if language == "" && beginsCommand.MatchString(line) {
				all = append(all, line)
			}
		default:
			text, isIndented := strings.CutPrefix(line, "    ")
			indented = isIndented && (wasBlank || indented)
			if indented && beginsCommand.MatchString(text) {
				all = append(all, strings.TrimPrefix(text, "$ "))
			}
		}
		wasBlank = strings.TrimSpace(line) == ""
	}
	return all
}

// beginsCommand are the words that begin a command on our pages. A program that is new
// to them is found by its prompt or its fence.
var beginsCommand = regexp.MustCompile(`^(\$ |(make|go|curl|till|safeledger|bin/\w+|tools/\w+|psql|pg_\w+|docker|kubectl|kind|skopeo|cd|promtool|apt-get|git|export) \S)`)

// inPassing are the commands that sentences and tables name.
func inPassing(page string) (all []string) {
	for _, m := range regexp.MustCompile("`((?:make|go run|go test|safeledger|ops) [a-z./][^`\n]*)`").FindAllStringSubmatch(page, -1) {
		all = append(all, strings.ReplaceAll(m[1], `\|`, "|"))
	}
	return all
}

// A command that the search does not see is a command that nobody runs.
func TestTheSearchFindsWhatAReaderWouldPaste(t *testing.T) {
	t.Parallel()
	page := strings.Join([]string{
		"Run `make run` or `safeledger serve --role=api`, not `safeledger_x`.", "",
		"    make test    # everything", "    GET / HTTP/1.1", "", "```sh", "one", "two", "```", "",
		"    $ safeledger ops parked", "    ID  KIND", "", "```", "curl -s x", "{}", "```", "", "```go", "go f()", "```",
		"text", "    make no, this is a paragraph that goes on", "",
	}, "\n")
	want := []string{"make test    # everything", "one\ntwo", "safeledger ops parked", "curl -s x"}
	if diff := cmp.Diff(want, commands(page)); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"make run", "safeledger serve --role=api"}, inPassing(page)); diff != "" {
		t.Errorf("in passing (-want +got):\n%s", diff)
	}
}
