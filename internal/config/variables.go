package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

//go:generate go test . -run TestDocumentIsWhatTheCodeSays -update

// Prefix begins the name of every variable.
const Prefix = "SAFELEDGER_"

// Who cannot do without a variable, in its tag `needed`.
const (
	neededAlways = "always"
	neededByAPI  = "api" // not by a process that only works off the queue
)

// Variable describes one variable for a reader. The documents are kept equal to
// this list by a test.
type Variable struct {
	Name    string
	Type    string // duration, list of durations, integer, number or text
	Default string // as it would be written; "" = none
	Needed  string // who cannot do without: "always", "api", or "" = nobody
	Meaning string
	Allowed string // what a value must be
}

// Variables lists all of them, in the order of Config.
func Variables() []Variable {
	var all []Variable
	for _, v := range variablesOf(&Config{}) {
		all = append(all, Variable{
			Name:    v.name(),
			Type:    v.typeName(),
			Default: v.tag("default"),
			Needed:  v.tag("needed"),
			Meaning: v.tag("desc"),
			Allowed: v.allowed(),
		})
	}
	return all
}

// variable is one field of a configuration struct. All that is known of it
// stands in its tags: envconfig reads `envconfig` and `default`; `desc`, `needed`,
// `form`, `oneof`, `min`, `max` and `whole` are ours.
type variable struct {
	field reflect.StructField
	value reflect.Value
}

// variablesOf are the fields of spec, a pointer to a struct, and those of the
// structs in it.
func variablesOf(spec any) []variable {
	var all []variable
	s := reflect.ValueOf(spec).Elem()
	for i := range s.NumField() {
		field, value := s.Type().Field(i), s.Field(i)
		switch {
		case field.Tag.Get("envconfig") != "":
			all = append(all, variable{field, value})
		case value.Kind() == reflect.Struct:
			all = append(all, variablesOf(value.Addr().Interface())...)
		}
	}
	return all
}

func (v variable) tag(key string) string { return v.field.Tag.Get(key) }
func (v variable) name() string          { return v.tag("envconfig") }

// read takes the value from the environment, or the default, and reports
// whether it is one that is allowed. envconfig stops at the first variable that
// it cannot read, so each is given to it alone, as a struct of one field: that
// way every one that is wrong is found.
func (v variable) read(text string, given bool) bool {
	if given && !v.wellFormed(text) {
		return false
	}
	alone := reflect.New(reflect.StructOf([]reflect.StructField{v.field}))
	if err := envconfig.Process("", alone.Interface()); err != nil {
		return false
	}
	v.value.Set(alone.Elem().Field(0))
	return v.inRange()
}

// wellFormed checks a text before envconfig reads it, which takes any text for
// a string, an empty one included, and 0512 for an octal number.
func (v variable) wellFormed(text string) bool {
	if choices := v.tag("oneof"); choices != "" {
		return slices.Contains(strings.Split(choices, "|"), text)
	}
	switch v.value.Interface().(type) {
	case int, int64:
		n, err := strconv.ParseInt(text, 10, 64)
		return err == nil && strconv.FormatInt(n, 10) == text
	case string:
		return forms[v.tag("form")].holds(text)
	}
	return true
}

// inRange checks the value that was read.
func (v variable) inRange() bool {
	switch value := v.value.Interface().(type) {
	case int:
		return v.between(int64(value), integer)
	case int64:
		return v.between(value, integer)
	case time.Duration:
		return v.between(int64(value), duration)
	case []time.Duration:
		for i, d := range value {
			if !v.between(int64(d), duration) || (i > 0 && d <= value[i-1]) {
				return false
			}
		}
		return len(value) > 0
	case float64:
		return value > 0 && value <= 1 // NaN is neither
	}
	return true
}

// between reports whether n lies within the tags min and max, read by unit, and
// is a multiple of the tag whole where there is one.
func (v variable) between(n int64, unit func(string) int64) bool {
	if n < unit(v.tag("min")) || n > unit(v.tag("max")) {
		return false
	}
	whole := v.tag("whole")
	return whole == "" || n%unit(whole) == 0
}

// integer and duration read a tag, which is part of this program: one that
// cannot be read is a fault that the first test finds.
func integer(tag string) int64 {
	n, err := strconv.ParseInt(tag, 10, 64)
	if err != nil {
		panic("config: a tag is not a number: " + tag)
	}
	return n
}

func duration(tag string) int64 {
	d, err := time.ParseDuration(tag)
	if err != nil {
		panic("config: a tag is not a duration: " + tag)
	}
	return int64(d)
}

// allowed says what a value must be, in words that follow "must be".
func (v variable) allowed() string {
	if choices := v.tag("oneof"); choices != "" {
		list := strings.Split(choices, "|")
		return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
	}
	span := " from " + v.tag("min") + " to " + v.tag("max")
	switch v.value.Interface().(type) {
	case int, int64:
		return "a whole number" + span
	case time.Duration:
		if v.tag("whole") == "1s" {
			return "a duration of whole seconds" + span
		}
		return "a duration" + span + ", such as " + v.tag("default")
	case []time.Duration:
		return "durations" + span + ", each longer than the one before, with commas between, such as " + v.tag("default")
	}
	return forms[v.tag("form")].allowed
}

func (v variable) typeName() string {
	switch v.value.Interface().(type) {
	case int, int64:
		return "integer"
	case time.Duration:
		return "duration"
	case []time.Duration:
		return "list of durations"
	case float64:
		return "number"
	}
	return "text"
}

// shown is the value in force, fit to be read and to be written back: without
// secrets.
func (v variable) shown() string {
	switch value := v.value.Interface().(type) {
	case time.Duration:
		return showDuration(value)
	case []time.Duration:
		parts := make([]string, len(value))
		for i, d := range value {
			parts[i] = showDuration(d)
		}
		return strings.Join(parts, ",")
	case slog.Level:
		return strings.ToLower(value.String())
	}
	return v.masked(fmt.Sprint(v.value.Interface()))
}

// masked is text, a value of v, without what must not be seen in a log.
func (v variable) masked(text string) string {
	switch v.tag("form") {
	case "postgres", "base":
		return maskURL(text)
	}
	return text
}

// showDuration is d without the zeros that time.Duration prints: 5m, not 5m0s.
func showDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// form is a shape that a value must have, which its type and its range do not say.
type form struct {
	allowed string
	holds   func(string) bool
}

// forms are the values of the tag `form`. The range of `ratio` and the order of
// `ascending` are checked with the type that has them.
var forms = map[string]form{
	"address": {"host:port with a port from 0 to 65535, such as :8080", isAddress},
	"path":    {"the path of a file, without white space at its ends", isPath},
	"ratio":   {allowed: "a number above 0 and at most 1"},
	"postgres": {
		"a URL postgres://user:password@host:port/database with a host (or ?host= for a socket's folder) and without pool_max_conns, which is " +
			Prefix + "DATABASE_MAX_CONNS here", isPostgresURL,
	},
	"base": {"a URL http://host or https://host, with a path if need be, without user, query or fragment", isBaseURL},
}

func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func isPath(s string) bool {
	return s != "" && strings.TrimSpace(s) == s && !strings.ContainsRune(s, 0)
}

// isPostgresURL reads only as much as tells an operator's slip from a database's
// address; the driver, which this package does not know, reads the rest.
func isPostgresURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") || u.Opaque != "" || u.Fragment != "" {
		return false
	}
	// Without a host the driver would ask PGHOST, which is not our configuration.
	query := u.Query()
	return (u.Host != "" || query.Get("host") != "") && !query.Has("pool_max_conns")
}

// isBaseURL refuses what could not survive having a path appended, and what
// would put a secret where paths are logged.
func isBaseURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.Opaque == "" &&
		u.User == nil && !strings.ContainsAny(s, "?#") && isPort(u.Port())
}

// isPort is what an operator can dial: url.Parse takes any number.
func isPort(s string) bool {
	port, err := strconv.ParseUint(s, 10, 16)
	return s == "" || err == nil && port > 0
}
