package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/alecthomas/kong"
)

// Whoever is up at 3 a.m. types what the playbook says. A flag that was renamed since
// costs a minute that a customer at the counter does not have.
func TestPlaybooksTellCommandsThatExist(t *testing.T) {
	t.Parallel()
	playbooks, err := filepath.Glob("../../docs/playbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, path := range playbooks {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range commandsIn(string(content)) {
			seen++
			if err := parseCommand(t, command); err != nil {
				t.Errorf("%s: %s: %v", filepath.Base(path), command, err)
			}
		}
	}
	if seen < 20 {
		t.Errorf("found only %d commands in %d playbooks", seen, len(playbooks))
	}
	for _, wrong := range []string{"safeledger ops park", "safeledger ops redrive ID --because x", "safeledger ops settle ID --applied"} {
		if parseCommand(t, wrong) == nil {
			t.Errorf("%s was taken for a command", wrong)
		}
	}
}

var quoted = regexp.MustCompile("(?m)^(safeledger .*)$|`(safeledger [^`]+)`")

// commandsIn are the lines of blocks that call the program, and the calls in the text.
func commandsIn(text string) []string {
	var all []string
	for _, m := range quoted.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1]+m[2])
	}
	return all
}

var word = regexp.MustCompile(`"[^"]*"|\S+`)

// parseCommand reads a line as the program would, without running it.
func parseCommand(t *testing.T, line string) error {
	t.Helper()
	var cli commands
	parser, err := kong.New(&cli, kong.Vars{"ops_limit": "1"}, kong.Exit(func(int) { t.Errorf("%s: ends the program", line) }))
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, w := range word.FindAllString(line, -1)[1:] {
		if unquoted, err := strconv.Unquote(w); err == nil {
			w = unquoted
		}
		args = append(args, w)
	}
	_, err = parser.Parse(args)
	return err
}
