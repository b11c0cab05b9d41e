package ledger_test

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/pgtest"
)

// cutter is a proxy in front of PostgreSQL that can lose its answers: the server
// hears and does what it is told, the client does not learn of it.
type cutter struct {
	url string // of the database, through the proxy

	mu    sync.Mutex
	heard chan struct{} // not nil: answers are dropped, the first is noted here
	conns []net.Conn
}

func newCutter(t *testing.T, databaseURL string) *cutter {
	t.Helper()
	c := &cutter{}
	c.url = pgtest.Through(t, databaseURL, func(client, server net.Conn) {
		c.mu.Lock()
		c.conns = append(c.conns, client, server)
		c.mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() { _, _ = io.Copy(server, client); _ = server.Close() })
		both.Go(func() { c.answer(client, server); _ = client.Close() })
		both.Wait()
	})
	return c
}

// answer carries the server's bytes to the client, or drops them.
func (c *cutter) answer(client io.Writer, upstream io.Reader) {
	buf := make([]byte, 16<<10)
	for {
		n, err := upstream.Read(buf)
		if err != nil {
			return
		}
		if c.drop() {
			continue
		}
		if _, err := client.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (c *cutter) drop() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.heard == nil {
		return false
	}
	select {
	case c.heard <- struct{}{}:
	default:
	}
	return true
}

// loseAnswers drops every answer from now on. What it returns receives when the
// first was dropped.
func (c *cutter) loseAnswers() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.heard = make(chan struct{}, 1)
	return c.heard
}

// cut closes all connections; new ones work.
func (c *cutter) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns, c.heard = nil, nil
}

// until waits for the server's first answer, and then for what it did to show.
func until(t *testing.T, heard <-chan struct{}, shows func() bool) {
	t.Helper()
	const patience = 20 * time.Second
	select {
	case <-heard:
	case <-time.After(patience):
		t.Fatal("the server did not answer")
	}
	for end := time.Now().Add(patience); !shows(); {
		if time.Now().After(end) {
			t.Fatal("the server did not do what it was told")
		}
	}
}
