package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/safeledger/safeledger/internal/walletsim/pipe"
)

// Whoever opens connections and says little on each must not hold them: a head has two
// seconds, and whoever has more to say in it than 16 KiB (and the little that net/http
// adds) is told so and cut off. Nothing of either reaches a handler.
func TestSlowAndEndlessHeadsAreCutOff(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		says string
		took time.Duration
		want string // how the answer begins, "" for none
	}{
		"half a head": {"GET / HTTP/1.1\r\nHost: a", readHeaderTimeout, ""},
		"nothing":     {"", readHeaderTimeout, ""},
		"endless":     {"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", maxHeaderBytes+8<<10), 0, "HTTP/1.1 431 "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				listener := pipe.Listen()
				server := newServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a handler was called") }), time.Minute, slog.New(slog.DiscardHandler))
				served := make(chan error, 1)
				go func() { served <- serveHTTP(server, listener) }()
				conn, err := listener.DialContext(t.Context(), "", "")
				if err != nil {
					t.Fatal(err)
				}
				begin := time.Now()
				go func() { _, _ = io.WriteString(conn, c.says) }() // it may be cut off in the middle
				answer, _ := bufio.NewReader(conn).ReadString('\n')
				if took := time.Since(begin); took < c.took || took > c.took+time.Second {
					t.Errorf("cut off after %v, want %v", took, c.took)
				}
				if !strings.HasPrefix(answer, c.want) || (c.want == "" && answer != "") {
					t.Errorf("answered %q, want %q", answer, c.want)
				}
				_ = conn.Close()
				if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
					t.Error(err)
				}
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// HTTP/2 has its own ways to wear a server down, and what is known of them is let
// through by tools/vulncheck because it is not spoken here: a client that takes it for
// granted is answered in HTTP/1.1, by a handler that knows no such path.
func TestOnlyHTTP1IsSpokenToTills(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := pipe.Listen()
		server := newServer(http.NotFoundHandler(), time.Minute, slog.New(slog.DiscardHandler))
		served := make(chan error, 1)
		go func() { served <- serveHTTP(server, listener) }()
		conn, err := listener.DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		}()
		if answer, _ := bufio.NewReader(conn).ReadString('\n'); !strings.HasPrefix(answer, "HTTP/1.1 404 ") {
			t.Errorf("answered %q, want a refusal in HTTP/1.1", answer)
		}
		_ = conn.Close()
		if err := server.Shutdown(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// Whoever sizes PostgreSQL by a page that is behind the code finds out in the middle
// of a rollout, when the last replica gets no connection.
func TestTheOperationsPageHasTheConnections(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	const tills = 32 // the default of DATABASE_MAX_CONNS, which internal/config holds to the contract
	want := fmt.Sprintf("tills %d (`SAFELEDGER_DATABASE_MAX_CONNS`), workers %d, upkeep %d, operators %d: at most %d for `--role=all`, %d for `api`, %d for `worker`",
		tills, workerConns, upkeepConns, peopleConns,
		tills+workerConns+upkeepConns+peopleConns, tills+upkeepConns+peopleConns, workerConns+upkeepConns+peopleConns)
	if !strings.Contains(string(page), want) {
		t.Errorf("docs/operations.md does not say: %s", want)
	}
}

// With a million follow-ups waiting, a sum over them takes a good part of a second. Made
// every ten seconds it would be in the way of more than one decision in a hundred.
func TestWhatTakesLongIsSummedUpSeldom(t *testing.T) {
	t.Parallel()
	for took, want := range map[time.Duration]int{
		10 * time.Millisecond:  61, // every ten seconds of ten minutes, and at once
		100 * time.Millisecond: 30, // a two-hundredth
		400 * time.Millisecond: 10, // an alert must not take it for lost
		10 * time.Second:       9,
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute+time.Second)
			defer cancel()
			sums := 0
			everySparing(ctx, measureEvery, func(context.Context) {
				sums++
				time.Sleep(took)
			})
			if sums != want {
				t.Errorf("summed up %d times in ten minutes, want %d, at %v each", sums, want, took)
			}
		})
	}
}
