package wallet

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"github.com/safeledger/safeledger/internal/payment"
	"github.com/safeledger/safeledger/internal/wallet/wallettest"
)

// connectLimit is the contract's, and slack what a busy machine may add to it.
const (
	connectLimit = 200 * time.Millisecond
	slack        = 400 * time.Millisecond
)

func limited(cfg *Config) { cfg.ConnectTimeout = connectLimit }

// A wallet that cannot be reached must cost a till no more than the connect
// limit, and needs no reversal, because nothing was sent: DNS, TCP and TLS
// together (contract section 2, traps C7, C8, C9, scenario S5). Go's own limits
// leave TLS out, and give a dial to the pool after the caller has gone.
func TestConnectLimitCoversAllOfConnecting(t *testing.T) {
	t.Parallel()
	mute := wallettest.New(t, (*wallettest.Conn).Hang) // accepts, and never says a word of TLS
	for name, change := range map[string]func(*Config){
		"silent TLS": func(cfg *Config) { cfg.BaseURL = "https://" + mute.Addr() },
		"slow name": func(cfg *Config) {
			cfg.BaseURL = "http://slow.test"
			cfg.DialContext = resolving([]netip.Addr{netip.MustParseAddr("127.0.0.1")}, 250*time.Millisecond, nil)
		},
		"black hole": func(cfg *Config) { cfg.BaseURL = "http://hole.test"; cfg.DialContext = blackHole },
		"slow TCP, then silent TLS": func(cfg *Config) {
			cfg.BaseURL = "https://" + mute.Addr()
			cfg.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-time.After(connectLimit * 3 / 4):
				}
				var d net.Dialer
				return d.DialContext(ctx, network, address)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
			client := newClient(t, w, limited, change)
			start := time.Now()
			got := send(t, client, instruction(payment.Debit, "x"))
			took := time.Since(start)
			if diff := cmp.Diff(unavailable(payment.ReasonConnectTimeout), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// Later only by what a busy machine adds: the call's own deadline is far away.
			if took < connectLimit/2 || took > connectLimit+10*slack {
				t.Errorf("took %v, want about %v", took, connectLimit)
			}
			if n := len(w.Requests()) + len(mute.Requests()); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

// What refuses at once is not waited for, and says so (contract section 3).
func TestConnectFailuresAreNotApplied(t *testing.T) {
	t.Parallel()
	gone := wallettest.New(t, func(*wallettest.Conn) {})
	w := wallettest.NewTLS(t, nil, wallettest.Serve(wallettest.Applied))
	plain := wallettest.New(t, func(c *wallettest.Conn) { c.Say("HTTP/1.1 400 Bad Request\r\n\r\n") })
	refused := func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errors.New("connection refused"))}
	}
	for name, change := range map[string]func(*Config){
		"refused":             func(cfg *Config) { cfg.DialContext = refused },
		"no such name":        func(cfg *Config) { cfg.BaseURL = "http://none.test"; cfg.DialContext = resolving(nil, 0, nil) },
		"unknown certificate": func(cfg *Config) { cfg.BaseURL = w.URL() },
		"certificate of another": func(cfg *Config) {
			cfg.BaseURL = "https://wallet.invalid"
			cfg.DialContext = dialTo(w.Addr(), "wallet.invalid:443")
		},
		"plain where TLS is":      func(cfg *Config) { cfg.BaseURL = "https://" + plain.Addr() },
		"closed during handshake": func(cfg *Config) { cfg.BaseURL = "https://" + gone.Addr() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := newClient(t, gone, change)
			got := send(t, client, instruction(payment.Debit, "x"))
			if diff := cmp.Diff(unavailable(payment.ReasonConnectFailed), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n := len(w.Requests()); n != 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

// One dead IPv6 address in the wallet's DNS must not decline every payment: the
// other family is tried after 50 ms, not after Go's 300 ms (trap C8, scenario S6).
func TestDeadIPv6AddressDoesNotFailTheCall(t *testing.T) {
	t.Parallel()
	w := wallettest.New(t, wallettest.Serve(wallettest.Applied))
	_, port, err := net.SplitHostPort(w.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if most := connectLimit / 2; fallbackDelay > most {
		t.Errorf("the other family is tried after %v, want %v at most", fallbackDelay, most)
	}
	client := newClient(t, w, func(cfg *Config) {
		cfg.BaseURL = "http://dual.test:" + port
		// ::1, because an address without a route would be sorted behind the other one.
		cfg.DialContext = resolving([]netip.Addr{netip.IPv6Loopback(), netip.MustParseAddr("127.0.0.1")}, 0,
			func(ctx context.Context, address string) error {
				if strings.HasPrefix(address, "[::1]") {
					<-ctx.Done() // a black hole: no answer, no refusal
					return ctx.Err()
				}
				return nil
			})
	})
	if got := send(t, client, instruction(payment.Debit, "x")); got.Class != payment.Success {
		t.Errorf("%+v, want success", got)
	}
}

func blackHole(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// resolving is our own dialer with a name server of the test's: it answers
// every name with addresses (none: no such name), after delay. control is asked
// before each attempt to connect.
func resolving(addresses []netip.Addr, delay time.Duration, control func(ctx context.Context, address string) error) func(context.Context, string, string) (net.Conn, error) {
	d := tcpDialer()
	d.Resolver = &net.Resolver{
		PreferGo: true, StrictErrors: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go nameServer(theirs, addresses, delay)
			return ours, nil
		},
	}
	if control != nil {
		d.ControlContext = func(ctx context.Context, _, address string, _ syscall.RawConn) error { return control(ctx, address) }
	}
	return d.DialContext
}

// nameServer answers the questions on c, as DNS over TCP, until c is closed.
func nameServer(c net.Conn, addresses []netip.Addr, delay time.Duration) {
	defer c.Close()
	for {
		question := make([]byte, 2)
		if _, err := io.ReadFull(c, question); err != nil {
			return
		}
		message := make([]byte, int(question[0])<<8|int(question[1]))
		if _, err := io.ReadFull(c, message); err != nil {
			return
		}
		<-time.After(delay)
		answer := dnsAnswer(message, addresses)
		if _, err := c.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...)); err != nil {
			return
		}
	}
}

func dnsAnswer(question []byte, addresses []netip.Addr) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	if len(addresses) == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		h := dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: 1}
		switch {
		case a.Is4() && m.Questions[0].Type == dnsmessage.TypeA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && m.Questions[0].Type == dnsmessage.TypeAAAA:
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: h, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	packed, err := m.Pack()
	if err != nil {
		return nil
	}
	return packed
}
