//go:build !linux

package program

import "syscall"

// Attributes keep a Ctrl-C in our terminal from reaching a process before we have ended
// it. There is no death signal here: after a kill -9 of ours it goes on.
func Attributes(syscall.Signal) *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
