//go:build !linux

package main

import "syscall"

// childAttributes: elsewhere nothing ends a process with us but we ourselves.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
