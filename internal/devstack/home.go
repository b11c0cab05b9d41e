package devstack

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
)

// home is the folder for data, password and log, made if need be; temp says that
// it goes when the server does.
func home(ctx context.Context, opts Options, account *account, log *slog.Logger) (dir string, temp bool, err error) {
	if opts.Dir == "" {
		prefix := opts.TempPrefix
		if prefix == "" {
			prefix = "safeledger-postgres-"
		}
		dir, err = os.MkdirTemp(account.tempRoot(), prefix)
		if err != nil {
			return "", false, fmt.Errorf("make a temporary folder: %w", err)
		}
		if err := account.admit(dir); err != nil {
			return "", false, errors.Join(err, os.RemoveAll(dir))
		}
		return dir, true, nil
	}

	dir, err = filepath.Abs(opts.Dir)
	if err != nil {
		return "", false, fmt.Errorf("find the folder for the data: %w", err)
	}
	if err := account.makeReachable(dir); err == nil {
		return dir, false, nil
	} else if !errors.Is(err, errUnreachable) {
		return "", false, err
	}
	// The server runs as another user, who cannot pass a folder above (a root-only
	// home, say). To open that folder up is not ours to do.
	sum := sha256.Sum256([]byte(dir))
	elsewhere := filepath.Join(account.tempRoot(), "safeledger-dev-"+hex.EncodeToString(sum[:6]))
	if err := account.claimFolder(elsewhere); err != nil {
		return "", false, err
	}
	log.WarnContext(ctx, "the database's user cannot reach the data folder, its data is kept elsewhere",
		"wanted", dir, "used", elsewhere, "user", account.name)
	return elsewhere, false, nil
}

// tempRoot is where temporary folders go: TMPDIR, unless the server's user cannot
// pass it.
func (a *account) tempRoot() string {
	for dir := os.TempDir(); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || !a.mayPass(info) {
			return "/tmp"
		}
		if dir == filepath.Dir(dir) {
			return os.TempDir()
		}
	}
}

// errUnreachable: a folder above, which we did not make, is closed to the server's user.
var errUnreachable = errors.New("not reachable for the server's user")

// makeReachable makes dir, and the folders above it that are missing, so that
// the server's user can get to what is in it. Folders that exist stay as they are.
func (a *account) makeReachable(dir string) error {
	var missing []string
	for d := dir; ; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, d)
			continue
		}
		if err != nil {
			return fmt.Errorf("look at a folder above the data: %w", err)
		}
		if !a.mayPass(info) {
			return errUnreachable
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	for _, d := range slices.Backward(missing) {
		if err := os.Mkdir(d, 0o755); err != nil { //nolint:gosec // the data folder below is 0700
			return fmt.Errorf("make the folder for the data: %w", err)
		}
		if err := a.admit(d); err != nil {
			return err
		}
	}
	return nil
}
