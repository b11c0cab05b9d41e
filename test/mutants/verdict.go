package main

import (
	"bufio"
	"encoding/json"
	"io"
	"strings"
)

// verdict is how the tests ended.
type verdict struct {
	kind    kind
	test    string // the first that failed, "" where the package did as a whole
	folder  string // its package, without the module
	details string // what it said
}

type kind int

const (
	survived kind = iota // all passed
	killed               // a test failed
	hung                 // one did not end in its time
	broken               // it does not compile
)

// event is a line of go test -json.
type event struct {
	Action      string
	Package     string
	Test        string
	Output      string
	FailedBuild string
}

// detailLines bounds what is kept of what a failure said.
const detailLines = 60

// read makes the verdict of what go test -json has written. That it has written nothing of
// use is for the caller to see: by the exit code.
func read(r io.Reader, module string) (verdict, error) {
	var (
		v      verdict
		last   []string
		out    bool // a test or the whole has run out of time
		events = bufio.NewScanner(r)
	)
	events.Buffer(nil, 16<<20)
	for events.Scan() {
		var e event
		if json.Unmarshal(events.Bytes(), &e) != nil {
			last = keep(last, events.Text()) // of a program that is beside go test
			continue
		}
		switch e.Action {
		case "output", "build-output":
			last = keep(last, strings.TrimRight(e.Output, "\n"))
			out = out || strings.HasPrefix(e.Output, "panic: test timed out after")
		case "build-fail":
			v.kind = broken
		case "fail":
			if e.FailedBuild != "" {
				v.kind = broken
			}
			if v.kind == survived || v.kind != broken && v.test == "" {
				v.kind = killed
				v.folder = strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")
				v.test, _, _ = strings.Cut(e.Test, "/")
				v.details = strings.Join(last, "\n")
			}
		}
	}
	if v.kind == broken {
		v.details = strings.Join(last, "\n")
	}
	if v.kind == killed && out {
		v.kind = hung
	}
	return v, events.Err()
}

func keep(lines []string, line string) []string {
	if len(lines) == detailLines {
		lines = lines[1:]
	}
	return append(lines, line)
}
