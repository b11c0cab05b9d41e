package config

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// InvalidError is an environment that the program must not run on.
type InvalidError struct {
	// Faults are all that is wrong, one sentence each: which variable, what it
	// was (secrets hidden), and what is allowed.
	Faults []string
}

func (e *InvalidError) Error() string {
	return "configuration: " + strings.Join(e.Faults, "\nconfiguration: ")
}

// Refuse is the error for a value that only its user could find wrong: a file's
// content, a URL that the driver does not understand. name is without Prefix; cause
// must not repeat a secret.
func (c *Config) Refuse(name string, cause error) error { return refuse(c, name, cause) }

// Refuse is Config.Refuse for the commands that need a database only.
func (d *Database) Refuse(name string, cause error) error { return refuse(d, name, cause) }

func refuse(spec any, name string, cause error) error {
	for _, v := range variablesOf(spec) {
		if v.name() == Prefix+name {
			return &InvalidError{Faults: []string{
				fmt.Sprintf("%s=%s: %v; it must be %s", v.name(), v.masked(v.shown()), cause, v.allowed()),
			}}
		}
	}
	return &InvalidError{Faults: []string{Prefix + name + ": " + cause.Error()}}
}

// reading gathers what is wrong while the environment is being read.
type reading struct {
	faults []string
	broken []string // the variables among them, which no rule may be asked about
}

func (r *reading) err() error {
	if len(r.faults) == 0 {
		return nil
	}
	return &InvalidError{Faults: r.faults}
}

// fill reads every variable of spec and returns the names of those that were given.
func (r *reading) fill(spec any, isNeeded func(needed string) bool) (set map[string]bool) {
	set = make(map[string]bool)
	for _, v := range variablesOf(spec) {
		text, given := os.LookupEnv(v.name())
		switch {
		case !given && v.tag("default") == "" && isNeeded(v.tag("needed")):
			r.broken = append(r.broken, v.name())
			r.faults = append(r.faults, fmt.Sprintf("%s is not set: it must be %s", v.name(), v.allowed()))
		case !given && v.tag("default") == "":
		case !v.read(text, given):
			r.broken = append(r.broken, v.name())
			r.faults = append(r.faults, fmt.Sprintf("%s=%s: it must be %s", v.name(), quoted(v.masked(text)), v.allowed()))
		}
		set[v.name()] = given
	}
	return set
}

// quoted makes an empty value, and white space in one, visible.
func quoted(text string) string {
	if text == "" || strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return fmt.Sprintf("%q", text)
	}
	return text
}

// crashAt is read by builds for tests only, see package crashpoint. It is let
// through here so that such a build starts; a normal one ignores it.
const crashAt = Prefix + "CRASH_AT"

// serviceLink matches the variables that Kubernetes sets in every container for
// each Service of the namespace. Ours is likely to be called safeledger, so they
// begin like ours, and nobody misspelt anything.
var serviceLink = regexp.MustCompile(`^SAFELEDGER(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// unknown finds what begins like a variable of ours and is none: a misspelt
// name would otherwise leave its default in force until somebody needs the
// number that they thought they had set.
func (r *reading) unknown() {
	var known []string
	for _, v := range variablesOf(&Config{}) {
		known = append(known, v.name())
	}
	environment := os.Environ()
	slices.Sort(environment)
	for _, entry := range environment {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, Prefix) || slices.Contains(known, name) || serviceLink.MatchString(name) || name == crashAt {
			continue
		}
		r.faults = append(r.faults, name+" is not a variable of SafeLedger: it must be one that docs/configuration.md lists")
	}
}
