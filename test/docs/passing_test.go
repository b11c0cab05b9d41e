package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What a sentence names in passing must be there: a target of make, a subcommand with
// its flags, a folder. It is not run, it is looked up.
func TestCommandsThatAreNamedInPassingExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	help := map[string]string{}
	helpOf := func(program string, words ...string) string {
		key := strings.Join(append([]string{program}, words...), " ")
		if _, known := help[key]; !known {
			out, err := exec.CommandContext(t.Context(), filepath.Join(bin, program), append(words, "--help")...).CombinedOutput()
			if err != nil {
				out = nil
			}
			help[key] = string(out)
		}
		return help[key]
	}
	count := 0
	for name, page := range pages(t) {
		named := inPassing(page)
		for _, command := range commands(page) { // what is run otherwise than as it stands must be there too
			for line := range strings.Lines(command) {
				if strings.HasPrefix(line, "make ") {
					named = append(named, strings.TrimSpace(line))
				}
			}
		}
		for _, command := range named {
			count++
			words := strings.Fields(command)
			text := "" // where its flags must be
			switch words[0] {
			case "make":
				if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(words[1]) + `:`).Match(makefile) {
					t.Errorf("%s names `%s`: there is no such target", name, command)
				}
				if text = helpOf("bench", "run"); words[1] != "bench" {
					continue
				}
			case "go":
				if _, err := os.Stat(filepath.Join(root, words[2])); err != nil {
					t.Errorf("%s names `%s`: %v", name, command, err)
				}
				if text = helpOf("bench", "run") + " --docs"; words[2] != "./bench" {
					continue
				}
			case "safeledger", "ops":
				text = helpOf("safeledger", subcommand(words)...)
				if text == "" {
					t.Errorf("%s names `%s`: there is no such subcommand", name, command)
					continue
				}
			}
			for _, flag := range regexp.MustCompile(`--[a-z][a-z-]*`).FindAllString(command, -1) {
				if !strings.Contains(text, flag) {
					t.Errorf("%s names `%s`: there is no %s", name, command, flag)
				}
			}
		}
	}
	if count < 20 {
		t.Errorf("only %d commands named: the search for them is broken", count)
	}
}

// subcommand are the words before the arguments: those are flags, in capitals, or
// placeholders.
func subcommand(words []string) (sub []string) {
	if words[0] == "ops" {
		sub = append(sub, "ops")
	}
	for _, word := range words[1:] {
		if !regexp.MustCompile(`^[a-z]+$`).MatchString(word) {
			break
		}
		sub = append(sub, word)
	}
	return sub
}
