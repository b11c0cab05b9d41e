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
	newest := 0
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		n, err := strconv.Atoi(number)
		if err != nil || n <= newest {
			t.Errorf("%s: numbered %s, want a number above %05d", name, number, newest)
		}
		newest = n
	}
	if newest != Latest {
		t.Errorf("Latest is %d, the files end with %d", Latest, newest)
	}
}
