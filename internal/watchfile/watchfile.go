// Package watchfile keeps what a file says in force while the process runs: a
// mounted secret is rotated under us, and a restart to notice would be an outage.
package watchfile

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Interval is how often a file is looked at: well within the 5 s that contract
// section 5 allows. The content is read, not the time stamp compared, because
// Kubernetes replaces mounted files through symbolic links.
const Interval = 2 * time.Second

// File is the parsed content of a file, replaced as a whole when the file changes.
type File[T any] struct {
	path    string
	parse   func([]byte) (T, error)
	current atomic.Pointer[T]
	seen    []byte // the content last looked at, good or bad; owned by Watch once it runs
}

// Load reads path for the first time. Here a bad file is an error: there is no
// earlier one to go on with.
func Load[T any](path string, parse func([]byte) (T, error)) (*File[T], error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	value, err := parse(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &File[T]{path: path, parse: parse, seen: content}
	f.current.Store(&value)
	return f, nil
}

// Get is the content in force.
func (f *File[T]) Get() T { return *f.current.Load() }

// Watch looks at the file every interval until ctx ends. A file that has gone or
// cannot be parsed leaves the one before in force and is logged, once for each
// content; the error of parse must therefore not repeat secrets.
func (f *File[T]) Watch(ctx context.Context, every time.Duration, log *slog.Logger) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	missing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		content, err := os.ReadFile(f.path)
		if err != nil {
			if !missing {
				log.ErrorContext(ctx, "file cannot be read, the one before stays in force", "path", f.path, "error", err)
			}
			missing = true
			continue
		}
		missing = false
		if bytes.Equal(content, f.seen) {
			continue
		}
		f.seen = content
		value, err := f.parse(content)
		if err != nil {
			log.ErrorContext(ctx, "new file is not valid, the one before stays in force", "path", f.path, "error", err)
			continue
		}
		f.current.Store(&value)
		log.InfoContext(ctx, "new file in force", "path", f.path)
	}
}
