package model

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/safeledger/safeledger/internal/documenttest"
)

// Whoever wants to know what was tried reads README.md, and it must be what was tried.
func TestDocumentIsWhatTheCodeSays(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, part := range []func(*testing.T, *strings.Builder){
		writeConfigurations, writePromises, writeBugs, writeResiduals, writeStory, writeSteps,
	} {
		part(t, &b)
	}
	documenttest.Check(t, "README.md", "test/model", b.String())
}

func writeConfigurations(t *testing.T, b *strings.Builder) {
	t.Helper()
	fmt.Fprint(b, "\n## What was explored\n\n"+
		"| configuration | what there is | what goes wrong, besides | states | edges | furthest |\n|---|---|---|---|---|---|\n")
	states, edges := 0, 0
	line := func(c configuration, f finding) {
		if f.err != nil {
			t.Fatalf("%s: %v", c.name, f.err)
		}
		fmt.Fprintf(b, "| %s | %s (%s) | %s | %s | %s | %d |\n",
			c.name, c.about, c.bounds(), c.faults(), thousands(f.states), thousands(f.edges), f.depth)
		states, edges = states+f.states, edges+f.edges
	}
	for _, c := range configurations {
		line(c, c.explored())
	}
	line(theBasket, basketExplored())
	fmt.Fprintf(b, "| together | | | %s | %s | |\n", thousands(states), thousands(edges))
	fmt.Fprint(b, "\nEach promises everything below, but for those that lose commits:\n")
	for _, c := range configurations {
		if c.promised != every {
			fmt.Fprintf(b, "*%s* promises %s.\n", c.name, names(c.promised))
		}
	}
}

func writePromises(t *testing.T, b *strings.Builder) {
	t.Helper()
	fmt.Fprint(b, "\n## What must hold\n\n| | promise |\n|---|---|\n")
	for _, p := range promiseTable {
		fmt.Fprintf(b, "| %s | %s |\n", p.id, p.says)
	}
}

func writeBugs(t *testing.T, b *strings.Builder) {
	t.Helper()
	fmt.Fprintf(b, "\n## %d mistakes, each found\n\n"+
		"The number behind a promise is how many steps the shortest story has that breaks it.\n\n"+
		"| the mistake | looked for in | breaks |\n|---|---|---|\n", len(seededBugs))
	for _, s := range seededBugs {
		f := s.explored()
		if f.err != nil {
			t.Fatalf("%s: %v", s.what, f.err)
		}
		var by []string
		for _, p := range s.by {
			by = append(by, fmt.Sprintf("%v %d", p, f.length[p]))
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", s.what, s.in, strings.Join(by, " · "))
	}
}

func writeResiduals(t *testing.T, b *strings.Builder) {
	t.Helper()
	fmt.Fprint(b, "\n## What is left, and what it takes\n\n"+
		"None of these can be reached as long as the assumption holds; each is reached when it does not.\n\n"+
		"| what happens | the assumption that was given up | in | breaks | said in |\n|---|---|---|---|---|\n")
	for _, r := range residuals {
		f := r.explored()
		if f.err != nil {
			t.Fatalf("%s: %v", r.what, f.err)
		}
		if _, err := os.Stat(filepath.Join("../..", r.where)); err != nil {
			t.Errorf("%s is said to be said in %s: %v", r.what, r.where, err)
		}
		fmt.Fprintf(b, "| %s | %s | %s | %v %d | [%s](../../%s) |\n", r.what, r.up, r.in, r.by, f.length[r.by], shortName(r.where), r.where)
	}
}

func writeStory(t *testing.T, b *strings.Builder) {
	t.Helper()
	for _, s := range seededBugs {
		if s.bug == refusalAfterDoubtIsFinal {
			fmt.Fprintf(b, "\n## A story\n\nSuppose that %s. Then %v is broken:\n\n```\n%s```\n",
				s.what, noMoreBackThanTaken, s.explored().story[noMoreBackThanTaken])
		}
	}
}

func writeSteps(t *testing.T, b *strings.Builder) {
	t.Helper()
	fmt.Fprint(b, "\n## The steps, and the code that they stand for\n\n| step | whose doing | code |\n|---|---|---|\n")
	for _, info := range stepTable {
		file, function, _ := strings.Cut(info.code, " ")
		code := "–"
		if file != "" {
			code = fmt.Sprintf("[%s](../../%s) `%s`", strings.TrimPrefix(file, "internal/"), file, function)
		}
		fmt.Fprintf(b, "| %s | %s | %s |\n", info.text, [...]string{ours: "ours", asked: "somebody asks", faulty: "a fault", passing: "time"}[info.sort], code)
	}
}

// bounds are how much there is of each.
func (c configuration) bounds() string {
	var parts []string
	count := func(n int, what string) {
		switch {
		case n == 1:
			parts = append(parts, "1 "+what)
		case n > 1:
			parts = append(parts, fmt.Sprintf("%d %ss", n, what))
		}
	}
	count(c.requests, "request")
	count(c.cancels, "cancel")
	followUps := 0
	for _, may := range c.followUps {
		if may {
			followUps++
		}
	}
	count(followUps, "follow-up")
	count(c.workers, "worker")
	count(int(c.lateChecks), "late check")
	return strings.Join(parts, ", ")
}

// faults are what goes wrong beyond what always does.
func (c configuration) faults() string {
	var parts []string
	for _, f := range []struct {
		is   bool
		what string
	}{
		{c.refusals, "the wallet refuses"},
		{c.gateways, "502 and 503"},
		{c.unsent, "nothing can be sent"},
		{c.putsOff, "429"},
		{c.slowLooks, "lookups that are behind"},
		{c.duplicates, "requests are repeated"},
		{c.parks, "72 h go by"},
		{c.operators, "operators intervene"},
		{c.messagesOutlive, "messages outlive the window"},
		{c.walletForgets, "the wallet forgets"},
		{c.lags, "commits are lost"},
	} {
		if f.is {
			parts = append(parts, f.what)
		}
	}
	return strings.Join(parts, ", ")
}

func names(ps promises) string {
	var all []string
	for _, p := range ps.list() {
		all = append(all, p.String())
	}
	return strings.Join(all, ", ")
}

// shortName is an ADR's number, or the document's name.
func shortName(path string) string {
	base := filepath.Base(path)
	if number, _, is := strings.Cut(base, "-"); is && filepath.Base(filepath.Dir(path)) == "adr" {
		return "ADR " + number
	}
	return base
}

func thousands(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return thousands(n/1000) + fmt.Sprintf(",%03d", n%1000)
}
