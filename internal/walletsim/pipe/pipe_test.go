package pipe_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/internal/walletsim/pipe"
)

// Every test of an exact deadline rests on this: if waiting on the pipe held
// fake time still, such a test would hang or, worse, pass without testing anything.
func TestTheRealServerAndClientRunOnFakeTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := pipe.Listen()
		server := &http.Server{
			ReadHeaderTimeout: time.Hour,
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				select {
				case <-time.After(2 * time.Second):
				case <-r.Context().Done():
				}
				w.WriteHeader(http.StatusTeapot)
			}),
		}
		served := make(chan error, 1)
		go func() { served <- server.Serve(listener) }()
		transport := &http.Transport{DialContext: listener.DialContext}

		start := time.Now()
		response, err := (&http.Client{Transport: transport}).Get("http://" + listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if took := time.Since(start); took != 2*time.Second || response.StatusCode != http.StatusTeapot {
			t.Errorf("answer %d after %v, want %d after exactly 2s", response.StatusCode, took, http.StatusTeapot)
		}

		transport.CloseIdleConnections()
		if err := server.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("Serve = %v, want http.ErrServerClosed", err)
		}
	})
}

// A client tells a refused connection (certainly not applied) from one that was
// lost (may have been applied) by this error.
func TestAClosedListenerRefusesAndKeepsItsConnections(t *testing.T) {
	t.Parallel()
	listener := pipe.Listen()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := listener.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	client, err := listener.DialContext(t.Context(), "tcp", "ignored:1")
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server := <-accepted
	defer server.Close()

	_, _ = listener.Close(), listener.Close()
	if _, err := listener.DialContext(t.Context(), "tcp", "ignored:1"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after Close: %v, want ECONNREFUSED", err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after Close: %v, want net.ErrClosed", err)
	}

	go func() { _, _ = server.Write([]byte("still here")) }()
	got := make([]byte, len("still here"))
	if _, err := io.ReadFull(client, got); err != nil {
		t.Errorf("the connection that existed: %v", err)
	}
}

// A dial into a wallet that does not accept must end when the caller's time does.
func TestADialEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := pipe.Listen().DialContext(ctx, "tcp", "ignored:1")
		if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took != 200*time.Millisecond {
			t.Errorf("dial ended with %v after %v, want the deadline after exactly 200ms", err, took)
		}
	})
}
