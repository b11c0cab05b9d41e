package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// result is who found a mutant. Without a level, nobody has.
type result struct {
	Fingerprint string        // of what was tried, see mutant.fingerprint
	Level       string        // of the tests that found it
	Test        string        // the first that failed; "" if its package did as a whole
	Folder      string        // that package
	Hung        bool          // it did not end in its time
	Took        time.Duration // until then
	On          string        // the day
}

func (r result) String() string {
	switch {
	case r.Level == "":
		return "NO TEST FINDS IT"
	case r.Hung:
		return fmt.Sprintf("found by %s: hung in %s %s, %s", r.Level, r.Folder, r.Test, r.Took)
	}
	return fmt.Sprintf("found by %s: %s %s, %s", r.Level, r.Folder, r.Test, r.Took)
}

// results are what runs have found so far, in a file that git ignores.
type results struct {
	path string
	by   map[string]result
}

func openResults(path string) (*results, error) {
	r := &results{path: path, by: make(map[string]result)}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &r.by); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// of is the result of m, nil if it has not been tried as it is now.
func (r *results) of(m mutant, root string) (*result, error) {
	fingerprint, err := m.fingerprint(root)
	if err != nil {
		return nil, err
	}
	if res, there := r.by[m.name]; there && res.Fingerprint == fingerprint {
		return &res, nil
	}
	return nil, nil
}

// add keeps a result at once: a run that is stopped loses only what it was at.
func (r *results) add(m mutant, root string, res result) (err error) {
	if res.Fingerprint, err = m.fingerprint(root); err != nil {
		return err
	}
	r.by[m.name] = res
	content, err := json.MarshalIndent(r.by, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.path), 0o755); err != nil { //nolint:gosec // nothing secret
		return err
	}
	written := r.path + ".new"
	if err := os.WriteFile(written, content, 0o600); err != nil {
		return err
	}
	return os.Rename(written, r.path)
}
