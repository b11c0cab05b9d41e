package main

import (
	"os"
	"syscall"
)

// childAttributes keeps a Ctrl-C in our terminal from reaching the child before we
// have ended it, and has the kernel end it if we are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
}

// syncData is what PostgreSQL does to its WAL on Linux.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
