//go:build !linux

package devstack

import "syscall"

// childAttributes keeps a Ctrl-C in our terminal from reaching the server before
// we have stopped it ourselves. There is no death signal here: after a kill -9 of
// ours the next start on the same folder says which process still has it.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
