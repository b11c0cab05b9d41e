package walletsim_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/safeledger/safeledger/internal/walletsim"
)

// BenchmarkExchange is what a debit costs with the book in memory and in its file:
// the processor, which a load test pays out of the same cores as what it measures, and
// the memory that the wallet keeps of it. The client is as cheap as a client can be,
// and is in it.
func BenchmarkExchange(b *testing.B) {
	for name, cfg := range map[string]walletsim.Config{
		"memory": {OpenAccounts: true},
		"both":   {OpenAccounts: true, BookFile: filepath.Join(b.TempDir(), "both.jsonl")},
		"file":   {OpenAccounts: true, BookFile: filepath.Join(b.TempDir(), "file.jsonl"), BookOnlyInFile: true},
	} {
		b.Run(name, func(b *testing.B) {
			sim, err := walletsim.New(cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := sim.Close(); err != nil {
					b.Error(err)
				}
			}()
			if err := sim.Start(b.Context(), "127.0.0.1:0"); err != nil {
				b.Fatal(err)
			}
			before, used := heap(), processor(b)
			b.ReportAllocs()
			b.ResetTimer()
			var next atomic.Int64
			var all sync.WaitGroup
			for range 8 {
				all.Go(func() {
					if err := debitUntil(b, sim, &next); err != nil {
						b.Error(err)
					}
				})
			}
			all.Wait()
			b.StopTimer()
			b.ReportMetric(float64((processor(b)-used).Nanoseconds())/float64(b.N), "cpu-ns/request")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
			b.ReportMetric(float64(heap()-before)/float64(b.N), "kept-B/request")
		})
	}
}

// debitUntil makes debits over one connection until there were b.N of them.
func debitUntil(b *testing.B, sim *walletsim.Sim, next *atomic.Int64) error {
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", strings.TrimPrefix(sim.URL(), "http://"))
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	var out bytes.Buffer
	for {
		n := next.Add(1)
		if n > int64(b.N) {
			return nil
		}
		reference := fmt.Sprintf("01a2296a-6d62-8d1a-84a5-%012x", n)
		body := fmt.Sprintf(`{"reference":%q,"account":"ACCOUNT-%d","amount":10,"currency":"EUR"}`, reference, n%1000)
		out.Reset()
		fmt.Fprintf(&out, "POST /v2/debits HTTP/1.1\r\nHost: wallet.example:8090\r\nUser-Agent: safeledger\r\nContent-Length: %d\r\n"+
			"Accept: application/json\r\nContent-Type: application/json\r\nidempotency-key: %s\r\n\r\n%s", len(body), reference, body)
		if _, err := conn.Write(out.Bytes()); err != nil {
			return err
		}
		if err := skipAnswer(in); err != nil {
			return err
		}
	}
}

// skipAnswer reads one answer that has a Content-Length.
func skipAnswer(in *bufio.Reader) error {
	length := 0
	for n := 0; ; n++ {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if n == 0 && !bytes.HasPrefix(line, []byte("HTTP/1.1 201 ")) {
			return fmt.Errorf("answered %q", line)
		}
		if value, found := bytes.CutPrefix(line, []byte("Content-Length: ")); found {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return err
			}
		}
		if len(bytes.TrimSpace(line)) == 0 {
			_, err := io.CopyN(io.Discard, in, int64(length))
			return err
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// processor is the time that this process has used of the processors.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
