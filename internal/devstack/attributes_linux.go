package devstack

import "syscall"

// childAttributes asks the kernel to stop the child when we die, even by SIGKILL,
// so that no server is left behind. SIGQUIT is PostgreSQL's immediate shutdown:
// it takes its own children along.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT, Setpgid: true}
}
