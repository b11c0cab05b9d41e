package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// mostDays bounds how far ahead an entry may expire: what is let through is looked at
// again every quarter, by somebody, or the build is red.
const mostDays = 92

// entry lets one vulnerability through although our code calls what it is about.
type entry struct {
	ID string `json:"id"`
	// Reason says why it does no harm here, to a reader who has just looked the
	// vulnerability up.
	Reason string `json:"reason"`
	// Expires is the first day on which it is let through no more.
	Expires string `json:"expires"`

	expires time.Time
}

// readList reads the list of what is let through. Whatever is wrong with it is an
// error: a list that is half understood lets through what nobody has judged.
func readList(content []byte, today time.Time) ([]entry, error) {
	var list struct {
		Allowed []entry `json:"allowed"`
	}
	decoder := json.NewDecoder(bytes.NewReader(content))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&list); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something behind the list")
	}
	seen := map[string]bool{}
	for i := range list.Allowed {
		e := &list.Allowed[i]
		var err error
		switch e.expires, err = time.Parse(time.DateOnly, e.Expires); {
		case !regexp.MustCompile(`^GO-\d{4}-\d{4,}$`).MatchString(e.ID):
			return nil, fmt.Errorf("%q is not the id of a vulnerability, such as GO-2026-6603", e.ID)
		case seen[e.ID]:
			return nil, fmt.Errorf("%s is there twice", e.ID)
		case len(strings.Fields(e.Reason)) < 5:
			return nil, fmt.Errorf("%s: say in a sentence why it does no harm here", e.ID)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", e.ID, err)
		case e.expires.After(today.AddDate(0, 0, mostDays)):
			return nil, fmt.Errorf("%s: expires %s, which is more than %d days ahead", e.ID, e.Expires, mostDays)
		}
		seen[e.ID] = true
	}
	return list.Allowed, nil
}

// reach is how near a vulnerability comes to what is shipped.
type reach int

const (
	required reach = iota + 1 // its module is in the build list
	imported                  // its package is linked
	called                    // our code leads to it
)

// found is one vulnerability in what was scanned.
type found struct {
	id      string
	summary string
	module  string // stdlib is the toolchain's
	fixed   string // the version of module that is free of it, "" if there is none
	reach   reach
	symbol  string // one that is called
	path    string // from whom, the nearest of ours first
}

// readScan reads what govulncheck writes with -format json. A scan that was cut off, or
// looked less deep, is an error and no clean bill.
func readScan(output io.Reader) (map[string]found, error) {
	all := map[string]found{}
	summaries := map[string]string{}
	level := ""
	decoder := json.NewDecoder(output)
	for {
		var message struct {
			Config *struct {
				Level string `json:"scan_level"`
			} `json:"config"`
			OSV *struct {
				ID      string `json:"id"`
				Summary string `json:"summary"`
			} `json:"osv"`
			Finding *struct {
				OSV   string `json:"osv"`
				Fixed string `json:"fixed_version"`
				Trace []struct {
					Module   string `json:"module"`
					Package  string `json:"package"`
					Receiver string `json:"receiver"`
					Function string `json:"function"`
				} `json:"trace"`
			} `json:"finding"`
		}
		if err := decoder.Decode(&message); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("the scan's output: %w", err)
		}
		if message.Config != nil {
			level = message.Config.Level
		}
		if message.OSV != nil {
			summaries[message.OSV.ID] = message.OSV.Summary
		}
		if message.Finding == nil {
			continue
		}
		if len(message.Finding.Trace) == 0 {
			return nil, fmt.Errorf("%s: a finding about nothing", message.Finding.OSV)
		}
		at := message.Finding.Trace[0]
		f := found{id: message.Finding.OSV, module: at.Module, fixed: message.Finding.Fixed, reach: required}
		if at.Package != "" {
			f.reach = imported
		}
		if at.Function != "" {
			f.reach = called
			f.symbol = at.Package + "." + strings.TrimPrefix(at.Receiver+"."+at.Function, ".")
			var callers []string
			for _, c := range message.Finding.Trace[1:] {
				callers = append(callers, c.Package+"."+strings.TrimPrefix(c.Receiver+"."+c.Function, "."))
			}
			f.path = strings.Join(callers[:min(len(callers), 3)], ", called by ")
		}
		if f.reach > all[f.id].reach {
			all[f.id] = f
		}
	}
	if level != "symbol" {
		return nil, fmt.Errorf("the scan's level is %q: only symbol tells what is called", level)
	}
	for id, f := range all {
		f.summary = summaries[id]
		all[id] = f
	}
	return all, nil
}

// judge holds what was found to the list: what is called must be on it, and what is on
// it must be called, and not expired. The lines are what to tell people, the problems
// those of them for which the build is red.
func judge(scan map[string]found, list []entry, today time.Time) (lines, problems []string) {
	allowed := map[string]entry{}
	for _, e := range list {
		allowed[e.ID] = e
		switch f := scan[e.ID]; {
		case f.reach != called:
			problems = append(problems, fmt.Sprintf("%s is on the list and is not called (any more): take it off", e.ID))
		case !today.Before(e.expires):
			problems = append(problems, fmt.Sprintf("%s was let through until %s: %s", e.ID, e.Expires, advice(f)))
		}
	}
	quiet := 0
	for _, id := range slices.Sorted(maps.Keys(scan)) {
		f := scan[id]
		if f.reach != called {
			quiet++
			continue
		}
		if e, ok := allowed[id]; ok {
			lines = append(lines, fmt.Sprintf("%s is let through until %s: %s", id, e.Expires, f.summary))
			continue
		}
		problems = append(problems, fmt.Sprintf("%s: %s\n  %s, called by %s\n  %s", id, f.summary, f.symbol, f.path, advice(f)))
	}
	if quiet > 0 {
		lines = append(lines, fmt.Sprintf("%d more are in what we require, and nothing of ours calls them", quiet))
	}
	return lines, problems
}

func advice(f found) string {
	switch {
	case f.fixed == "":
		return "there is no version without it: do without what is called"
	case f.module == "stdlib":
		return "build with Go " + strings.TrimPrefix(f.fixed, "v")
	}
	return "update " + f.module + " to " + f.fixed
}
