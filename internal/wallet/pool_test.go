package wallet

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// Decisions that share a commit call the wallet in waves. A pool that is full of
// connections from a longer pause would be of no use to them: each wave would make its
// own connections, and throw them away again.
func TestCallsThatComeInWavesUseTheirConnectionsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size, pause = 8, 20 * time.Millisecond
		p := newPool(size, 10*time.Second)
		defer p.close()
		var made int
		wave := func() {
			taken := make([]*conn, size)
			for i := range taken {
				if taken[i] = p.take(); taken[i] == nil {
					made++
					here, there := net.Pipe()
					t.Cleanup(func() { _ = there.Close() })
					taken[i] = newConn(here, here)
				}
			}
			for _, c := range taken {
				p.put(c)
			}
			if len(p.idle) > size {
				t.Errorf("%d connections are kept, want at most %d", len(p.idle), size)
			}
		}
		for range 4 { // how long one may be idle is learnt meanwhile
			wave()
			time.Sleep(pause)
		}
		made = 0
		for range 20 {
			wave()
			time.Sleep(pause)
		}
		if made > 20 { // one of the pool is being watched, and not used
			t.Errorf("20 waves made %d connections", made)
		}
	})
}
