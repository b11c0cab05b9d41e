//go:build !linux

package main

import (
	"os"
	"syscall"
)

// childAttributes keeps a Ctrl-C in our terminal from reaching the child before we
// have ended it. There is no death signal here.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func syncData(f *os.File) error { return f.Sync() }
