package pgtest

import (
	"net"
	"net/url"
	"sync"
	"testing"
)

// Through puts a proxy before the database of databaseURL, which is a
// postgres://host:port/… URL, and returns the URL that leads through it. For each
// connection carry is called in a goroutine of its own, to pass on what the two
// sides say or to spoil it. It may close both; what is open when the test ends is
// closed then, and every carry is waited for.
func Through(tb testing.TB, databaseURL string, carry func(client, server net.Conn)) string {
	tb.Helper()
	through, err := url.Parse(databaseURL)
	if err != nil {
		tb.Fatal(err)
	}
	target := through.Host
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	through.Host = listener.Addr().String()

	var open struct {
		sync.Mutex
		conns []net.Conn
		ended bool
	}
	var carrying sync.WaitGroup
	carrying.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed, see below
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				tb.Errorf("reach the database: %v", err)
				_ = client.Close()
				continue
			}
			open.Lock()
			open.conns = append(open.conns, client, server)
			if open.ended {
				_, _ = client.Close(), server.Close()
			}
			open.Unlock()
			carrying.Go(func() { carry(client, server) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		open.Lock()
		open.ended = true
		for _, conn := range open.conns {
			_ = conn.Close()
		}
		open.Unlock()
		carrying.Wait()
	})
	return through.String()
}
