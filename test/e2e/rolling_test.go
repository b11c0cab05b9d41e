package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/safeledger/safeledger/client"
	"github.com/safeledger/safeledger/internal/walletsim"
)

// E5, and what a deployment does every week: two replicas are replaced one after the
// other under steady load from our own client, with endpoints that are removed late, as
// they are in a cluster. No answer is lost, no till sees an error, every payment is
// decided once.
func TestARollingRestartLosesNoAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	env := append(slices.Clone(unhurried), "DRAIN_DELAY=4s")
	old := []*replica{w.start(plain, env...), w.start(plain, env...)}
	endpoints := newEndpoints(t, old...)

	tills, err := client.New(client.Config{BaseURL: "http://" + endpoints.address, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	var (
		stop     = make(chan struct{})
		approved atomic.Int64
		all      sync.WaitGroup
	)
	for till := range 8 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("key-of-%d-%d", till, i)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				decision, err := tills.Debit(ctx, key, client.PaymentRequest{Account: "ANNA", AmountMinor: 1, Currency: "EUR"})
				cancel()
				if err != nil || !decision.Approved() {
					t.Errorf("%s: %+v, %v", key, decision, err)
					return
				}
				approved.Add(1)
			}
		})
	}
	for _, r := range old {
		fresh := w.start(plain, env...)
		endpoints.add(fresh)
		before := approved.Load()
		r.signal(syscall.SIGTERM)
		// Some payments are made by it until everybody has heard that it goes.
		r.log.await(t, r.exited, `"msg":"draining"`)
		draining := approved.Load()
		tick := time.NewTicker(5 * time.Millisecond)
		for end := time.Now().Add(patience); approved.Load() < draining+100 && time.Now().Before(end); {
			<-tick.C
		}
		tick.Stop()
		endpoints.remove(r)
		r.awaitExit()
		if code := exitCode(r.waitErr); code != 0 {
			t.Errorf("exit code %d", code)
		}
		if approved.Load() == before {
			t.Error("nothing was decided meanwhile: there was no load")
		}
	}
	close(stop)
	all.Wait()

	asked := map[string]int{}
	applied := 0
	for _, e := range w.wallet.Book() {
		if e.Request == nil || e.Operation != walletsim.Debit {
			continue
		}
		switch e.Event {
		case walletsim.Arrived:
			asked[e.Reference]++
		case walletsim.Applied:
			applied++
		}
	}
	for reference, n := range asked {
		if n != 1 {
			t.Errorf("%s was sent %d times", reference, n)
		}
	}
	if int64(applied) != approved.Load() || len(asked) != applied {
		t.Errorf("%d approved, %d applied, %d references", approved.Load(), applied, len(asked))
	}
	t.Logf("%d payments over two restarts", approved.Load())
}

// endpoints are the replicas that are told of, in turn, as a Service does it: by
// connection.
type endpoints struct {
	address string

	mu   sync.Mutex
	list []*replica
	next int
}

func newEndpoints(t *testing.T, replicas ...*replica) *endpoints {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	e := &endpoints{address: l.Addr().String(), list: replicas}
	go func() {
		for {
			till, err := l.Accept()
			if err != nil {
				return
			}
			go e.connect(till)
		}
	}()
	return e
}

func (e *endpoints) connect(till net.Conn) {
	defer till.Close()
	server, err := net.Dial("tcp", e.pick())
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{till, server}, {server, till}} {
		go func() {
			_, _ = io.Copy(way[1], way[0])
			if half, ok := way[1].(*net.TCPConn); ok {
				_ = half.CloseWrite()
			}
			done <- struct{}{}
		}()
	}
	<-done
	<-done
}

func (e *endpoints) pick() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.next++
	return e.list[e.next%len(e.list)].http[len("http://"):]
}

func (e *endpoints) add(r *replica) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, r)
}

func (e *endpoints) remove(r *replica) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var rest []*replica
	for _, other := range e.list {
		if other != r {
			rest = append(rest, other)
		}
	}
	e.list = rest
}
