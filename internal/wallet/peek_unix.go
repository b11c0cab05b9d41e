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
	// Control and not Read, which would not look where the deadline of the last call is over.
	err := socket.Control(func(fd uintptr) {
		var b [1]byte
		for {
			_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			nothing = errors.Is(err, syscall.EAGAIN)
			return
		}
	})
	return err == nil && nothing
}
