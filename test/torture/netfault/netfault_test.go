package netfault

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

const patience = 20 * time.Second

// echo is a server that says what it hears, and a client of it through a proxy.
func echo(t *testing.T) (p *Proxy, dial func() net.Conn) {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	if p, err = Listen(t.Context(), server.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Close()
		_ = server.Close()
	})
	return p, func() net.Conn {
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
}

func say(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, conn net.Conn, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("heard %q, %v, want %q", got, err, want)
	}
}

func wantReset(t *testing.T, conn net.Conn) {
	t.Helper()
	if n, err := conn.Read(make([]byte, 1)); n != 0 || !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read %d bytes, %v, want a reset", n, err)
	}
}

// A fault that hurts what it was not meant for would be counted for what it did not do,
// and one that met nobody must not be counted at all.
func TestWhatNoFaultMeetsIsCarriedAsItIs(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	conn := dial()
	say(t, conn, "before")
	hear(t, conn, "before")
	p.Begin(Fault{Answer: Cut, Only: []byte("COMMIT")})
	say(t, conn, "ROLLBACK")
	hear(t, conn, "ROLLBACK")
	if met := p.End(); met != 0 {
		t.Errorf("it met %d chunks, and there was none for it", met)
	}
}

func TestAnAnswerIsCutAndItsConnectionReset(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	conn, other := dial(), dial()
	met := p.Begin(Fault{Answer: Cut, Only: []byte("COMMIT"), Once: true})
	say(t, conn, "COMMIT")
	<-met
	wantReset(t, conn)
	say(t, other, "COMMIT") // once is once
	hear(t, other, "COMMIT")
	if n := p.End(); n != 1 {
		t.Errorf("it met %d, want 1", n)
	}
}

func TestWhatIsHeldIsPassedOnWhenTheFaultEnds(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	conn := dial()
	met := p.Begin(Fault{Ask: Hold})
	say(t, conn, "held")
	<-met
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := conn.Read(make([]byte, 8)); err == nil {
		t.Fatalf("%d bytes came through while they were held", n)
	}
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	p.End()
	hear(t, conn, "held")
}

func TestWhatIsHeldIsLostWhenTheProxyIsClosed(t *testing.T) {
	t.Parallel()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	for range 50 { // whether the held or the reset was first was a matter of luck
		p, err := Listen(t.Context(), server.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		served, err := server.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer served.Close()
		met := p.Begin(Fault{Ask: Hold})
		say(t, conn, "held")
		<-met
		p.Close()
		if text, _ := io.ReadAll(served); len(text) > 0 {
			t.Fatalf("%q came through when the proxy was closed", text)
		}
	}
}

func TestWhatIsDroppedNeverArrivesAndItsConnectionEndsWithTheFault(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	conn := dial()
	met := p.Begin(Fault{Answer: Drop})
	say(t, conn, "lost")
	<-met
	p.End()
	wantReset(t, conn) // and not "lost", which would come where its answer is no longer waited for
}

func TestWhatIsLateArrivesAfterItsDelay(t *testing.T) {
	t.Parallel()
	const delay = 80 * time.Millisecond
	p, dial := echo(t)
	conn := dial()
	p.Begin(Fault{Ask: Late, Delay: delay})
	began := time.Now()
	say(t, conn, "late")
	hear(t, conn, "late")
	if took := time.Since(began); took < delay {
		t.Errorf("it took %v, want at least %v", took, delay)
	}
}

func TestCutAllAndRefuse(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	open := dial()
	say(t, open, "open")
	hear(t, open, "open")
	p.Begin(Fault{CutAll: true, Refuse: true})
	wantReset(t, open)
	// Its reset may come before or after Dial has looked.
	if refused, err := net.Dial("tcp", p.Addr()); err == nil {
		defer refused.Close()
		_ = refused.SetDeadline(time.Now().Add(patience))
		n, err := refused.Read(make([]byte, 1))
		if n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a new connection gave %d bytes, %v", n, err)
		}
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a new connection: %v, want a reset", err)
	}
	if met := p.End(); met != 2 {
		t.Errorf("it met %d connections, want 2", met)
	}
	again := dial()
	say(t, again, "again")
	hear(t, again, "again")
}

func TestATargetThatIsReplacedIsReached(t *testing.T) {
	t.Parallel()
	p, dial := echo(t)
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p.Target(other.Addr().String())
	conn := dial()
	served, err := other.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer served.Close()
	say(t, conn, "hello")
	got := make([]byte, 5)
	if _, err := io.ReadFull(served, got); err != nil || !bytes.Equal(got, []byte("hello")) {
		t.Errorf("the new target got %q, %v", got, err)
	}
}
