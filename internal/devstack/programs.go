package devstack

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	embedded "github.com/fergusstrange/embedded-postgres"
)

// places are where packages put the server's programs, most of them outside PATH
// so that several versions can be installed.
var places = []string{ //nolint:gochecknoglobals // a table
	"/usr/lib/postgresql/*/bin", // Debian, Ubuntu
	"/usr/pgsql-*/bin",          // PostgreSQL's own packages for Red Hat and relatives
	"/usr/libexec/postgresql*",  // Alpine
	"/opt/homebrew/opt/postgresql*/bin",
	"/usr/local/opt/postgresql*/bin",
	"/Applications/Postgres.app/Contents/Versions/*/bin",
}

// minimumVersion is the oldest PostgreSQL that the ledger is written for.
const minimumVersion = 13

// programs is the folder with initdb and postgres: what PATH leads to, else the
// newest that is installed, else what is fetched.
func programs(ctx context.Context, account *account, log *slog.Logger) (string, error) {
	if dir, ok := onPath(); ok && version(ctx, dir) >= minimumVersion {
		return dir, nil
	}
	if dir, ok := newestInstalled(ctx); ok {
		return dir, nil
	}
	if account.dropped() {
		// The fetched programs are started once by the library that fetches them, as
		// the user that we are, and PostgreSQL refuses to run as root.
		return "", errors.New("no PostgreSQL server found on this machine: " + advice())
	}
	return fetch(ctx, log)
}

// onPath finds the programs by PATH. A package may put links into PATH, and a
// server looks for its libraries beside itself, so the link is followed.
func onPath() (string, bool) {
	found, err := exec.LookPath("postgres")
	if err != nil {
		return "", false
	}
	resolved, err := filepath.EvalSymlinks(found)
	if err != nil || !filepath.IsAbs(resolved) {
		return "", false
	}
	dir := filepath.Dir(resolved)
	return dir, complete(dir)
}

func newestInstalled(ctx context.Context) (string, bool) {
	type installed struct {
		dir     string
		version int
	}
	var found []installed
	for _, pattern := range places {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			continue // a pattern of ours that is malformed finds nothing
		}
		for _, dir := range matches {
			if complete(dir) {
				found = append(found, installed{dir, version(ctx, dir)})
			}
		}
	}
	if len(found) == 0 {
		return "", false
	}
	newest := slices.MaxFunc(found, func(a, b installed) int { return a.version - b.version })
	return newest.dir, newest.version >= minimumVersion
}

func complete(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
			return false
		}
	}
	return true
}

// version is the major version of the server in dir, 0 if it does not say.
func version(ctx context.Context, dir string) int {
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (Debian …)
	if len(fields) < 3 {
		return 0
	}
	digits := strings.IndexFunc(fields[2], func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(fields[2])
	}
	major, err := strconv.Atoi(fields[2][:digits])
	if err != nil {
		return 0
	}
	return major
}

// fetch gets a server's programs into the user's cache, once.
func fetch(ctx context.Context, log *slog.Logger) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the PostgreSQL programs: %w", err)
	}
	root := filepath.Join(cache, "safeledger", "postgres")
	bin := filepath.Join(root, "bin")
	if complete(bin) {
		return bin, nil
	}
	log.InfoContext(ctx, "no PostgreSQL server found on this machine, fetching one", "into", root)
	port, err := freePort(ctx)
	if err != nil {
		return "", err
	}
	scratch, err := os.MkdirTemp("", "safeledger-fetch-")
	if err != nil {
		return "", fmt.Errorf("make a temporary folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }() // a temporary folder that stays harms nobody

	// The library fetches on the way to a running server, so it is let run once.
	server := embedded.NewDatabase(embedded.DefaultConfig().
		BinariesPath(root).RuntimePath(scratch).CachePath(filepath.Join(root, "archive")).
		Port(uint32(port)).StartTimeout(startPatience).Logger(io.Discard)) //nolint:gosec // a port has 16 bits
	if err := server.Start(); err != nil {
		return "", fmt.Errorf("no PostgreSQL server found on this machine, and none could be fetched (%w): %s", err, advice())
	}
	if err := server.Stop(); err != nil {
		return "", fmt.Errorf("stop the fetched PostgreSQL: %w", err)
	}
	if !complete(bin) {
		return "", errors.New("the fetched PostgreSQL lacks initdb or postgres: " + advice())
	}
	return bin, nil
}

// advice says what to type.
func advice() string {
	if runtime.GOOS == "darwin" {
		return "install it with `brew install postgresql@17`"
	}
	for _, m := range []struct{ manager, command string }{
		{"apt-get", "apt-get install -y postgresql"},
		{"dnf", "dnf install -y postgresql-server"},
		{"apk", "apk add postgresql"},
		{"pacman", "pacman -S postgresql"},
		{"zypper", "zypper install postgresql-server"},
	} {
		if _, err := exec.LookPath(m.manager); err == nil {
			return "install it with `" + m.command + "` (as root)"
		}
	}
	return fmt.Sprintf("install the PostgreSQL server, version %d or newer", minimumVersion)
}
