package program

import "syscall"

// Attributes keep a Ctrl-C in our terminal from reaching a process before we have ended
// it, and have the kernel send it death when we die, even by SIGKILL.
func Attributes(death syscall.Signal) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: death, Setpgid: true}
}
