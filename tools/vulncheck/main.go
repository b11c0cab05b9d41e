// Vulncheck holds what is shipped to the Go vulnerability database, without a network
// but for the module proxy: the database is a pinned module like any other. What our
// code calls must be free of known vulnerabilities or on a list, with a reason and a
// day on which it is looked at again. See SECURITY.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"time"
)

const (
	databaseModule = "golang.org/x/vulndb"
	// fewest guards against a database that is not there: it had over four thousand
	// entries when this was written, and they only grow.
	fewest = 4000
	// staleAfter is when a copy of the database is said to be old. It is no failure,
	// a build must not turn red because nobody looked.
	staleAfter = 60 * 24 * time.Hour
)

// shipped is what is scanned: what runs, and what tills link. Test helpers are not.
var shipped = []string{"./cmd/...", "./client/..."} //nolint:gochecknoglobals // a constant that Go has no word for

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	os.Exit(run(ctx))
}

func run(ctx context.Context) int {
	root := flag.String("root", "../..", "the module to scan")
	list := flag.String("list", "allowed.json", "what is let through, and why")
	flag.Parse()
	problems, err := check(ctx, *root, *list, time.Now().UTC())
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulncheck:", err)
		return 2
	}
	if len(problems) > 0 {
		for _, p := range problems {
			fmt.Fprintln(os.Stderr, p)
		}
		return 1
	}
	return 0
}

func check(ctx context.Context, root, listFile string, now time.Time) (problems []string, err error) {
	today := now.Truncate(24 * time.Hour)
	content, err := os.ReadFile(listFile) //nolint:gosec // the caller's own file
	if err != nil {
		return nil, err
	}
	list, err := readList(content, today)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", listFile, err)
	}
	folder, version, err := database(ctx)
	if err != nil {
		return nil, err
	}
	if date, ok := dateOf(version); ok {
		fmt.Printf("the vulnerability database of %s\n", date.Format(time.DateOnly))
		if now.Sub(date) > staleAfter {
			fmt.Println("it is old: make update-vulndb")
		}
	}
	scan := exec.CommandContext(ctx, "go", append([]string{"tool", "govulncheck", "-C", root, "-db", "file://" + folder, "-format", "json"}, shipped...)...) //nolint:gosec // words of ours
	scan.Stderr = os.Stderr
	output, err := scan.Output()
	if err != nil {
		return nil, fmt.Errorf("govulncheck: %w", err)
	}
	found, err := readScan(bytes.NewReader(output))
	if err != nil {
		return nil, err
	}
	lines, problems := judge(found, list, today)
	for _, line := range lines {
		fmt.Println(line)
	}
	return problems, nil
}

// database is the folder of the pinned copy, fetched through the module proxy unless it
// is in the module cache, where go.sum holds it to what was pinned.
func database(ctx context.Context) (folder, version string, err error) {
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", databaseModule)
	output, err := download.Output()
	var module struct{ Dir, Version, Error string }
	if jsonErr := json.Unmarshal(output, &module); jsonErr != nil || module.Error != "" || err != nil {
		return "", "", fmt.Errorf("fetch %s: %w %s", databaseModule, err, module.Error)
	}
	folder = filepath.Join(module.Dir, "data", "osv")
	entries, err := filepath.Glob(filepath.Join(folder, "GO-*.json"))
	if err != nil {
		return "", "", err
	}
	if len(entries) < fewest {
		return "", "", fmt.Errorf("%s has %d entries: the database is not there", folder, len(entries))
	}
	return folder, module.Version, nil
}

// dateOf is the time in a pseudo-version.
func dateOf(version string) (time.Time, bool) {
	digits := regexp.MustCompile(`-(\d{14})-[0-9a-f]{12}$`).FindStringSubmatch(version)
	if digits == nil {
		return time.Time{}, false
	}
	date, err := time.Parse("20060102150405", digits[1])
	return date, err == nil
}
