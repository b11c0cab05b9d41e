//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package wallet

import (
	"errors"
	"syscall"
)

// silent reports whether nothing has arrived on the socket: neither bytes nor
// the end of the connection nor an error. It looks without waiting and without
// taking anything.
func silent(socket syscall.RawConn) bool {
	nothing := false
	err := socket.Read(func(fd uintptr) bool {
		var b [1]byte
		for {
			_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			nothing = errors.Is(err, syscall.EAGAIN)
			return true // never wait for the socket to become readable
		}
	})
	return err == nil && nothing
}
