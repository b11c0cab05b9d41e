// Package watchfile keeps what a file says in force while the process runs: a
// mounted secret is rotated under us, and a restart to notice would be an outage.
package watchfile

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// Interval is how often a file is looked at: well within the 5 s that contract
// section 5 allows. The content is read, not the time stamp compared, because
// Kubernetes replaces mounted files through symbolic links.
const Interval = 2 * time.Second

// maxSize bounds what is read into memory: a path that was mistyped may name a
// device that never ends. 4 MiB are some ten thousand callers.
const maxSize = 4 << 20

// File is the parsed content of a file, replaced as a whole when the file changes.
type File[T any] struct {
	path    string
	parse   func([]byte) (T, error)
	current atomic.Pointer[T]
	seen    []byte // the content last looked at, good or bad; owned by Watch once it runs
}

// Load reads path for the first time. Here a bad file is an error: there is no
// earlier one to go on with. What parse returns is shared by all who Get it, so
// nobody may change it.
func Load[T any](path string, parse func([]byte) (T, error)) (*File[T], error) {
	content, err := read(path)
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

// Get is the content in force. It may be called at any time from anywhere.
func (f *File[T]) Get() T { return *f.current.Load() }

// Watch looks at the file every interval until ctx ends; it may run once. A
// file that has gone or cannot be parsed leaves the one before in force and is
// logged, once for each content, so that a fault that nobody mends for a week
// does not fill the log; the error of parse must therefore not repeat secrets.
func (f *File[T]) Watch(ctx context.Context, every time.Duration, log *slog.Logger) {
	log = log.With("path", f.path)
	tick := time.NewTicker(every)
	defer tick.Stop()
	missing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		content, err := read(f.path)
		if err != nil {
			if !missing {
				log.ErrorContext(ctx, "file cannot be read, the one before stays in force", "error", err)
			}
			missing = true
			continue
		}
		unchanged := bytes.Equal(content, f.seen)
		if unchanged && missing {
			log.InfoContext(ctx, "file can be read again, unchanged")
		}
		missing = false
		if unchanged {
			continue
		}
		f.seen = content
		value, err := f.parse(content)
		if err != nil {
			log.ErrorContext(ctx, "new file is not valid, the one before stays in force", "error", err)
			continue
		}
		f.current.Store(&value)
		log.InfoContext(ctx, "new file in force")
	}
}

// read is the content of path, all of it or none.
func read(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() //nolint:errcheck // it was only read
	content, err := io.ReadAll(io.LimitReader(file, maxSize+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxSize {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, maxSize)
	}
	return content, nil
}
