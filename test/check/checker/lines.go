package checker

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"

	"github.com/go-json-experiment/json"

	"github.com/safeledger/safeledger/test/check/history"
)

// place is where a line is: the file in the upper bits, the byte in the lower.
type place int64

const byteBits = 40 // a terabyte a file

// Lines is a log of one JSON object a line: read once from end to end, and then here
// and there for the histories of those keys that were wronged.
type Lines[T any] interface {
	// each gives all lines in order, until yield fails.
	each(ctx context.Context, yield func(place, *T) error) error
	// at is one line again.
	at(place) (T, error)
}

// files are the lines of files, one after the other.
type files[T any] struct {
	paths  []string
	decode func([]byte, *T) error
	read   func(n int) // hears of bytes that were read; nil
}

// blockSize is how much is decoded at a time. Blocks are decoded beside each other and
// given away in order: a run of a million decisions writes gigabytes.
const blockSize = 1 << 20

// block is some whole lines of a file.
type block[T any] struct {
	places []place
	values []T
	size   int
	err    error
}

func (f files[T]) each(ctx context.Context, yield func(place, *T) error) error {
	for i, path := range f.paths {
		if err := f.eachOf(ctx, i, path, yield); err != nil {
			return err
		}
	}
	return nil
}

func (f files[T]) eachOf(ctx context.Context, index int, path string, yield func(place, *T) error) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	// In the order of the file; each delivers one block.
	blocks := make(chan chan block[T], 2*runtime.GOMAXPROCS(0))
	go func() {
		defer close(blocks)
		working := make(chan struct{}, runtime.GOMAXPROCS(0))
		for text, offset := range wholeLines(file) {
			if text.err != nil {
				failed := make(chan block[T], 1)
				failed <- block[T]{err: fmt.Errorf("%s: %w", path, text.err)}
				select {
				case blocks <- failed:
				case <-ctx.Done():
				}
				return
			}
			done := make(chan block[T], 1)
			select {
			case working <- struct{}{}:
			case <-ctx.Done():
				return
			}
			go func() {
				done <- f.decodeBlock(index, path, text.bytes, offset)
				<-working
			}()
			select {
			case blocks <- done:
			case <-ctx.Done():
				return
			}
		}
	}()
	for next := range blocks {
		b := <-next
		if b.err != nil {
			return b.err
		}
		for i := range b.values {
			if err := yield(b.places[i], &b.values[i]); err != nil {
				return err
			}
		}
		if f.read != nil {
			f.read(b.size)
		}
	}
	return ctx.Err()
}

func (f files[T]) decodeBlock(index int, path string, text []byte, offset int64) block[T] {
	n := bytes.Count(text, []byte("\n"))
	b := block[T]{places: make([]place, 0, n), values: make([]T, 0, n), size: len(text)}
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte("\n"))
		var v T
		if err := f.decode(line, &v); err != nil {
			b.err = fmt.Errorf("%s: byte %d: %w", path, offset, err)
			return b
		}
		b.places = append(b.places, place(int64(index)<<byteBits|offset))
		b.values = append(b.values, v)
		offset += int64(len(text) - len(rest))
		text = rest
	}
	return b
}

// text is a stretch of whole lines, or why there are no more.
type text struct {
	bytes []byte
	err   error
}

// wholeLines gives a file in stretches of whole lines, each with where it begins. What
// stands behind the last line break is left out: whoever wrote it was killed while
// doing so.
func wholeLines(r io.Reader) func(yield func(text, int64) bool) {
	return func(yield func(text, int64) bool) {
		var rest []byte
		var offset int64
		for {
			buffer := make([]byte, len(rest)+blockSize)
			copy(buffer, rest)
			n, err := io.ReadFull(r, buffer[len(rest):])
			buffer = buffer[:len(rest)+n]
			end := bytes.LastIndexByte(buffer, '\n') + 1
			rest = buffer[end:]
			if end > 0 && !yield(text{bytes: buffer[:end]}, offset) {
				return
			}
			offset += int64(end)
			switch {
			case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
				return
			case err != nil:
				yield(text{err: err}, offset)
				return
			}
		}
	}
}

func (f files[T]) at(p place) (v T, err error) {
	file, err := os.Open(f.paths[p>>byteBits])
	if err != nil {
		return v, err
	}
	defer func() { _ = file.Close() }() // it was only read
	if _, err := file.Seek(int64(p&(1<<byteBits-1)), io.SeekStart); err != nil {
		return v, err
	}
	line, err := bufio.NewReader(file).ReadBytes('\n')
	if err != nil {
		return v, err
	}
	return v, f.decode(line, &v)
}

// BookFiles are books of the wallet simulator (docs/walletsim.md).
func BookFiles(read func(int), paths ...string) Lines[BookLine] {
	return files[BookLine]{paths: paths, read: read, decode: func(line []byte, v *BookLine) error { return json.Unmarshal(line, v) }}
}

// TillFiles are logs of tills (../history).
func TillFiles(read func(int), paths ...string) Lines[history.Line] {
	return files[history.Line]{paths: paths, read: read, decode: func(line []byte, v *history.Line) error { return json.Unmarshal(line, v) }}
}

// ResponseFiles are what SafeLedger processes have logged. What is no JSON is kept as
// noise: a panic, or the race detector.
func ResponseFiles(read func(int), paths ...string) Lines[ResponseLine] {
	return files[ResponseLine]{paths: paths, read: read, decode: func(line []byte, v *ResponseLine) error {
		if err := json.Unmarshal(line, v); err != nil {
			*v = ResponseLine{Noise: string(line)}
		}
		return nil
	}}
}

// slice is a log in memory, as tests have it.
type slice[T any] []T

func (s slice[T]) each(_ context.Context, yield func(place, *T) error) error {
	for i := range s {
		v := s[i] // whoever keeps it must not change ours
		if err := yield(place(i), &v); err != nil {
			return err
		}
	}
	return nil
}

func (s slice[T]) at(p place) (T, error) { return s[p], nil }
