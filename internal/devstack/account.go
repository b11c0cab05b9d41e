package devstack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"github.com/safeledger/safeledger/internal/program"
)

// account is the user that the server runs as: ourselves, or, because PostgreSQL
// refuses to run as root, somebody else where we are root.
type account struct {
	name string
	// credential is nil where the server runs as ourselves.
	credential *syscall.Credential
}

// serverAccount picks the user. PostgreSQL's package brings one; any other
// without rights will do.
func serverAccount() (*account, error) {
	if os.Geteuid() != 0 {
		return &account{name: "ourselves"}, nil
	}
	for _, name := range []string{"postgres", "_postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if uidErr != nil || gidErr != nil || uid == 0 {
			continue
		}
		return &account{name: name, credential: &syscall.Credential{
			Uid: uint32(uid), Gid: uint32(gid), NoSetGroups: false,
		}}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root and this machine has no user to run it as: " +
		"create one with `useradd --system postgres`, or run as another user than root")
}

// dropped reports whether the server runs as another user than we do.
func (a *account) dropped() bool { return a.credential != nil }

// run prepares cmd to run as the account, in dir (our own working folder may be
// closed to it), with an environment that says nothing of ours. LC_ALL keeps
// messages readable, and PostgreSQL single-threaded on macOS.
func (a *account) run(cmd *exec.Cmd, dir string) {
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = program.Attributes(syscall.SIGQUIT) // PostgreSQL's immediate shutdown: it takes its own children along
	cmd.SysProcAttr.Credential = a.credential
}

// own gives files to the account.
func (a *account) own(paths ...string) error {
	if !a.dropped() {
		return nil
	}
	for _, path := range paths {
		if err := os.Chown(path, int(a.credential.Uid), int(a.credential.Gid)); err != nil {
			return fmt.Errorf("give a file to user %s: %w", a.name, err)
		}
	}
	return nil
}

// admit lets the account pass through a folder of ours, whatever the umask.
func (a *account) admit(dir string) error {
	if !a.dropped() {
		return nil
	}
	if err := os.Chmod(dir, 0o711); err != nil { //nolint:gosec // to pass through is not to read
		return fmt.Errorf("let user %s through: %w", a.name, err)
	}
	return nil
}

// mayPass reports whether the account can go through the folder.
func (a *account) mayPass(folder fs.FileInfo) bool {
	if !a.dropped() {
		return true // whether we may, the system says when we try
	}
	stat, ok := folder.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	mode := folder.Mode().Perm()
	switch {
	case stat.Uid == a.credential.Uid:
		return mode&0o100 != 0
	case stat.Gid == a.credential.Gid:
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

// claimFolder makes dir, in a place where others may write, or takes it back into
// use; somebody else's folder of that name is refused.
func (a *account) claimFolder(dir string) error {
	err := os.Mkdir(dir, 0o711) //nolint:gosec // the data folder below is 0700
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the folder for the data: %w", err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("look at the folder for the data: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is not our own folder: remove it", dir)
	}
	return a.admit(dir)
}

// servesFolder reports whether pid is a PostgreSQL server on the data folder.
func servesFolder(pid int, data string) bool {
	if pid <= 0 || errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return false
	}
	if runtime.GOOS != "linux" {
		return true // alive, and we cannot look closer: rather refuse than ruin
	}
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return false
	}
	args := strings.Split(string(content), "\x00")
	return strings.Contains(filepath.Base(args[0]), "postgres") && strings.Contains(string(content), "\x00"+data+"\x00")
}
