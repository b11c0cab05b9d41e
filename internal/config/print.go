package config

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes what is in force, one variable a line, in a form that can be
// read back as an environment up to the white space, and says of each whether
// it was set. Secrets are masked. A variable that is not set and has no default
// is left empty.
func (c Config) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, v := range variablesOf(&c) {
		origin := "default"
		switch {
		case c.set[v.name()]:
			origin = "set"
		case v.tag("default") == "":
			origin = "not set"
		}
		if _, err := fmt.Fprintf(table, "%s=%s\t(%s)\n", v.name(), v.shown(), origin); err != nil {
			return err
		}
	}
	return table.Flush()
}
