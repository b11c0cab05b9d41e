package main

import (
	"os"
	"syscall"
)

// syncData is what PostgreSQL does to its WAL on Linux.
func syncData(f *os.File) error { return syscall.Fdatasync(int(f.Fd())) }
