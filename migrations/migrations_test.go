package migrations

import (
	"io/fs"
	"strconv"
	"strings"
	"testing"
)

// A program that believes in another version than its files hold refuses a good
// database, or runs on one that lacks what it needs.
func TestLatestIsTheNewestFile(t *testing.T) {
	t.Parallel()
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		number, _, _ := strings.Cut(name, "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			t.Errorf("%s: numbered %s, want %05d", name, number, i+1)
		}
	}
	if len(names) != Latest {
		t.Errorf("Latest is %d, the files end with %d", Latest, len(names))
	}
}
