//go:build topologies || prometheus

package e2e

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Programs of others that a test runs beside ours.

// freeAddress is an address that nobody listens on at the moment.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startProgram runs a program until the test ends, and returns when it listens.
func startProgram(t *testing.T, address, program string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		path = "/usr/sbin/" + program // where Debian has them, outside an ordinary PATH
	}
	said := &lockedBuffer{}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Getuid() == 0 && program == "pgbouncer" { // it refuses root, as PostgreSQL does
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("%s: %v (tools/require installs it)", program, err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-exited
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range patience / (20 * time.Millisecond) {
		if conn, err := net.Dial("tcp", address); err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-exited:
			t.Fatalf("%s ended:\n%s", program, said)
		case <-tick.C:
		}
	}
	t.Fatalf("%s does not listen on %s:\n%s", program, address, said)
}

// writeConfig writes a file in a folder that every user can read.
func writeConfig(t *testing.T, name, content string) (dir, path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "safeledger-topology-") //nolint:usetesting // t.TempDir is for this user alone
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(content, "@DIR@", dir)), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, path
}
