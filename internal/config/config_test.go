package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/safeledger/safeledger/internal/payment"
)

// None of these tests is parallel: envconfig reads the environment of the
// process, so the environment is what they set.

// environment makes the variables given here the only ones of ours.
func environment(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !strings.HasPrefix(name, Prefix) {
			continue
		}
		t.Setenv(name, "") // so that it is put back
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range variables {
		t.Setenv(Prefix+name, value)
	}
}

// with is the least that `serve` needs, changed by changes.
func with(changes map[string]string) map[string]string {
	all := map[string]string{
		"DATABASE_URL":    "postgres://ledger@db/safeledger",
		"CALLERS_FILE":    "/etc/safeledger/callers.json",
		"WALLET_BASE_URL": "https://wallet.internal",
	}
	maps.Copy(all, changes)
	return all
}

// faults are what Load finds wrong with the least environment changed by changes.
func faults(t *testing.T, role Role, changes map[string]string) []string {
	t.Helper()
	environment(t, with(changes))
	_, err := Load(role)
	return faultsOf(t, err)
}

func faultsOf(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var invalid *InvalidError
	if !errors.As(err, &invalid) {
		t.Fatalf("got %T %v, want an InvalidError", err, err)
	}
	return invalid.Faults
}

// The contract prints every default. One that differs in the code is a service
// that behaves otherwise than its documents, in the one place nobody looks.
func TestDefaultsAreTheContractsNumbers(t *testing.T) {
	environment(t, with(nil))
	got, err := Load(RoleAll)
	if err != nil {
		t.Fatal(err)
	}
	want := Config{
		Database:    Database{URL: "postgres://ledger@db/safeledger", Pooler: PoolerNone, GroupCommit: On, MaxConns: 32},
		HTTPAddr:    ":8080",
		AdminAddr:   ":9090",
		CallersFile: "/etc/safeledger/callers.json",
		Wallet: Wallet{
			BaseURL: "https://wallet.internal", Version: WalletV2,
			ConnectTimeout: 200 * time.Millisecond, MaxInFlight: 256, SlowCall: 400 * time.Millisecond,
		},
		Breaker: Breaker{
			Window: 10 * time.Second, MinCalls: 20, FailureRatio: 0.5, SlowRatio: 0.5,
			OpenFor: 5 * time.Second, Probes: 3,
		},
		Budget: Budget{
			Server: 2400 * time.Millisecond, NetworkReserve: 600 * time.Millisecond,
			DecisionCall: 800 * time.Millisecond, LookupCall: 300 * time.Millisecond,
			WorkerCall: 2 * time.Second, MinToSend: 50 * time.Millisecond,
		},
		RetryAfter: RetryAfter{Decline: 2 * time.Second, Busy: time.Second},
		Gate:       Gate{MaxInFlight: 512, MaxPerCaller: 0},
		DrainDelay: 5 * time.Second,
		Queue: Queue{
			Workers: 32, SettleWindow: 15 * time.Minute, ParkAfter: 72 * time.Hour, Lease: 20 * time.Second,
			LateChecks: []time.Duration{time.Hour, 24 * time.Hour}, LookupsPerSecond: 20,
			BackoffMin: time.Second, BackoffMax: 5 * time.Minute,
		},
		CallsKept:     9600 * time.Hour,
		RecoveryGrace: 5 * time.Second,
		MaxAmount:     payment.MaxAmountMinor,
		LogLevel:      slog.LevelInfo,
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
}

// An operator sets the names that the contract gives. One that is missing here
// is refused as unknown, one that is spelt otherwise changes nothing.
func TestVariablesAreTheContractsNames(t *testing.T) {
	want := strings.Fields(`DATABASE_URL HTTP_ADDR ADMIN_ADDR CALLERS_FILE
		WALLET_BASE_URL WALLET_VERSION WALLET_TOKEN_FILE WALLET_CONNECT_TIMEOUT WALLET_MAX_IN_FLIGHT
		WALLET_SLOW_CALL BREAKER_WINDOW BREAKER_MIN_CALLS BREAKER_FAILURE_RATIO BREAKER_SLOW_RATIO
		BREAKER_OPEN_FOR BREAKER_PROBES BUDGET_SERVER BUDGET_NETWORK_RESERVE BUDGET_DECISION_CALL
		BUDGET_LOOKUP_CALL BUDGET_WORKER_CALL BUDGET_MIN_TO_SEND RETRY_AFTER_DECLINE
		RETRY_AFTER_BUSY GATE_MAX_IN_FLIGHT GATE_MAX_PER_CALLER DRAIN_DELAY QUEUE_WORKERS DATABASE_POOLER
		QUEUE_SETTLE_WINDOW QUEUE_PARK_AFTER QUEUE_LEASE QUEUE_LATE_CHECKS QUEUE_LOOKUPS_PER_SECOND
		QUEUE_BACKOFF_MIN QUEUE_BACKOFF_MAX RECOVERY_GRACE MAX_AMOUNT LOG_LEVEL`)
	// Ours: the pool that the gate's size must fit, the way of writing (ADR 0018), and the
	// one thing that may be thinned.
	want = append(want, "DATABASE_MAX_CONNS", "DATABASE_GROUP_COMMIT", "WALLET_CALLS_KEPT")
	var got []string
	for _, v := range Variables() {
		got = append(got, strings.TrimPrefix(v.Name, Prefix))
		if v.Meaning == "" || v.Allowed == "" || v.Type == "" {
			t.Errorf("%s is not described: %+v", v.Name, v)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

// A value that cannot be right must stop the process before it listens, and the
// message must be enough to mend it: which variable, what it was, what is
// allowed. Every variable has a row here.
func TestABadValueIsNamedWithWhatIsAllowed(t *testing.T) {
	rows := []struct {
		name    string
		values  []string
		allowed string
	}{
		{"DATABASE_URL", []string{"", "localhost:5432", "mysql://db/x", "postgres:///safeledger", "postgres://db/x?pool_max_conns=5", "host=db dbname=x"}, "a URL postgres://"},
		{"DATABASE_POOLER", []string{"", "pgpool", "None"}, "none or pgbouncer"},
		{"DATABASE_GROUP_COMMIT", []string{"", "true", "ON"}, "on or off"},
		{"DATABASE_MAX_CONNS", []string{"", "0", "-1", "1001", "032", "1e2", "0x20", "3_2", " 32"}, "a whole number from 1 to 1000"},
		{"HTTP_ADDR", []string{"", "8080", "localhost", ":http", ":65536", ":-1"}, "host:port"},
		{"ADMIN_ADDR", []string{"", "9090"}, "host:port"},
		{"CALLERS_FILE", []string{"", " ", "callers.json\n"}, "the path of a file"},
		{"WALLET_BASE_URL", []string{"", "wallet", "wallet:80", "ftp://wallet", "https://", "https://:443", "https://u@wallet", "https://wallet?x=1", "https://wallet?", "https://wallet#x", "https://wallet/%zz"}, "a URL http://host or https://host"},
		{"WALLET_VERSION", []string{"", "v3", "V2", "2"}, "v1 or v2"},
		{"WALLET_TOKEN_FILE", []string{"", "token "}, "the path of a file"},
		{"WALLET_CONNECT_TIMEOUT", []string{"", "200", "0s", "-200ms", "0.5ms", "61s", "fast"}, "a duration from 1ms to 1m, such as 200ms"},
		{"WALLET_MAX_IN_FLIGHT", []string{"0", "-1", "100001", "many"}, "a whole number from 1 to 100000"},
		{"WALLET_SLOW_CALL", []string{"0s", "400"}, "a duration from 1ms"},
		{"BREAKER_WINDOW", []string{"0s", "999ms", "11m"}, "a duration from 1s to 10m"},
		{"BREAKER_MIN_CALLS", []string{"0", "x"}, "a whole number from 1"},
		{"BREAKER_FAILURE_RATIO", []string{"", "0", "-0.5", "1.01", "50", "50%", "NaN", "Inf"}, "a number above 0 and at most 1"},
		{"BREAKER_SLOW_RATIO", []string{"0", "1.5", "NaN"}, "a number above 0 and at most 1"},
		{"BREAKER_OPEN_FOR", []string{"99ms", "6m"}, "a duration from 100ms to 5m"},
		{"BREAKER_PROBES", []string{"0", "1001"}, "a whole number from 1 to 1000"},
		{"BUDGET_SERVER", []string{"", "2400", "0s", "2m"}, "a duration from 1ms to 1m, such as 2400ms"},
		{"BUDGET_NETWORK_RESERVE", []string{"-1ms", "2m"}, "a duration from 0s"},
		{"BUDGET_DECISION_CALL", []string{"0s", "800"}, "a duration from 1ms"},
		{"BUDGET_LOOKUP_CALL", []string{"0s", "300"}, "a duration from 1ms"},
		{"BUDGET_WORKER_CALL", []string{"0s", "2"}, "a duration from 1ms"},
		{"BUDGET_MIN_TO_SEND", []string{"0s", "11s"}, "a duration from 1ms to 10s"},
		{"RETRY_AFTER_DECLINE", []string{"0s", "1500ms", "500ms", "-2s", "2"}, "a duration of whole seconds from 1s to 1h"},
		{"RETRY_AFTER_BUSY", []string{"0s", "1001ms", "61m"}, "a duration of whole seconds from 1s to 1h"},
		{"GATE_MAX_IN_FLIGHT", []string{"0", "0512"}, "a whole number from 1"},
		{"GATE_MAX_PER_CALLER", []string{"-1", ""}, "a whole number from 0"},
		{"DRAIN_DELAY", []string{"-1s", "11m", "5"}, "a duration from 0s to 10m"},
		{"QUEUE_WORKERS", []string{"0", "1001"}, "a whole number from 1 to 1000"},
		{"QUEUE_SETTLE_WINDOW", []string{"0s", "721h"}, "a duration from 1s to 720h"},
		{"QUEUE_PARK_AFTER", []string{"0s", "3d"}, "a duration from 1s"},
		{"QUEUE_LEASE", []string{"0s", "30s"}, "a duration from 1s to 29s"},
		{"QUEUE_LATE_CHECKS", []string{"", "1h,", "1h,1h", "24h,1h", "1h;24h", "0s,1h", "1h, 24h"}, "durations from 1s"},
		{"QUEUE_LOOKUPS_PER_SECOND", []string{"0", "2.5"}, "a whole number from 1"},
		{"QUEUE_BACKOFF_MIN", []string{"0s", "1"}, "a duration from 1ms"},
		{"QUEUE_BACKOFF_MAX", []string{"0s", "25h"}, "a duration from 1ms"},
		{"RECOVERY_GRACE", []string{"0s", "6m"}, "a duration from 1ms"},
		{"WALLET_CALLS_KEPT", []string{"0s", "719h", "30d"}, "a duration from 720h"},
		{"MAX_AMOUNT", []string{"0", "-5", "9007199254740992", "1e6", "99999999999999999999"}, "a whole number from 1 to 9007199254740991"},
		{"LOG_LEVEL", []string{"", "INFO", "info+2", "trace"}, "debug, info, warn or error"},
	}
	tested := make(map[string]bool)
	for _, row := range rows {
		tested[Prefix+row.name] = true
		for _, value := range row.values {
			t.Run(row.name+"="+value, func(t *testing.T) {
				got := faults(t, RoleAll, map[string]string{row.name: value})
				if len(got) != 1 {
					t.Fatalf("got %d faults, want 1: %q", len(got), got)
				}
				if !strings.HasPrefix(got[0], Prefix+row.name+"=") || !strings.Contains(got[0], "must be "+row.allowed) {
					t.Errorf("got %q, want the name, and that it must be %q", got[0], row.allowed)
				}
				if shown := quoted(value); !strings.Contains(row.name, "URL") && !strings.Contains(got[0], "="+shown+":") {
					t.Errorf("got %q, want the value %s in it", got[0], shown)
				}
			})
		}
	}
	for _, v := range Variables() {
		if !tested[v.Name] {
			t.Errorf("no bad value of %s is tested", v.Name)
		}
	}
}

// A variable that is set to nothing is a template that was not filled in. The
// default, or a wallet without a token, is not what somebody wanted there.
func TestNothingIsNotAValue(t *testing.T) {
	for _, v := range Variables() {
		got := faults(t, RoleAll, map[string]string{strings.TrimPrefix(v.Name, Prefix): ""})
		if len(got) != 1 || !strings.HasPrefix(got[0], v.Name+`="": it must be `) {
			t.Errorf("%s set to nothing: got %q, want it refused", v.Name, got)
		}
	}
}

// What is allowed must be taken, at its very edges too: a limit that is off by
// one refuses a deployment that the documents call valid.
func TestTheEdgesOfWhatIsAllowedAreTaken(t *testing.T) {
	for _, changes := range []map[string]string{
		{"RETRY_AFTER_DECLINE": "1s", "RETRY_AFTER_BUSY": "1h"},
		{"BREAKER_FAILURE_RATIO": "1", "BREAKER_SLOW_RATIO": "0.0001"},
		{"MAX_AMOUNT": "1"},
		{"MAX_AMOUNT": "9007199254740991"},
		{"BUDGET_NETWORK_RESERVE": "0s", "DRAIN_DELAY": "0s"},
		{"HTTP_ADDR": "127.0.0.1:0", "ADMIN_ADDR": "127.0.0.1:0"},
		{"HTTP_ADDR": "[::1]:8080"},
		{"QUEUE_LATE_CHECKS": "30m"},
		{"DATABASE_URL": "postgresql://u:p@h1:5432,h2:5432/db?target_session_attrs=read-write"},
		{"DATABASE_URL": "postgres:///safeledger?host=/run/postgresql"},
		{"WALLET_BASE_URL": "http://127.0.0.1:8081/wallet"},
		{"WALLET_VERSION": "v1", "DATABASE_POOLER": "pgbouncer", "LOG_LEVEL": "debug"},
		{"GATE_MAX_PER_CALLER": "512"},
		// Each rule between numbers, where it only just holds.
		{"BUDGET_DECISION_CALL": "1800ms"},
		{"BUDGET_MIN_TO_SEND": "299ms", "WALLET_CONNECT_TIMEOUT": "299ms"},
		{"WALLET_SLOW_CALL": "799ms"},
		{"BREAKER_WINDOW": "10s"},
		{"GATE_MAX_IN_FLIGHT": "256"},
		{"GATE_MAX_IN_FLIGHT": "512", "WALLET_MAX_IN_FLIGHT": "512", "DATABASE_MAX_CONNS": "32"},
		{"QUEUE_WORKERS": "256"},
		{"QUEUE_LEASE": "9s"},
		{"QUEUE_SETTLE_WINDOW": "2401ms"},
		{"QUEUE_PARK_AFTER": "901s"},
		{"QUEUE_BACKOFF_MIN": "5m"},
		{"RECOVERY_GRACE": "300ms"},
	} {
		t.Run(fmt.Sprint(changes), func(t *testing.T) {
			if got := faults(t, RoleAll, changes); got != nil {
				t.Errorf("got %q, want none", got)
			}
		})
	}
}

// Numbers that are right one by one and wrong together are found at three in
// the morning, unless they are found here. Every rule has a row, and the
// message names the numbers and the rule.
func TestNumbersThatDoNotFitAreRefused(t *testing.T) {
	rows := []struct {
		changes map[string]string
		want    []string // parts of the one fault
	}{
		{
			map[string]string{"BUDGET_DECISION_CALL": "1801ms"},
			[]string{
				"SAFELEDGER_BUDGET_SERVER=2.4s (default)", "SAFELEDGER_BUDGET_DECISION_CALL=1.801s,",
				"SAFELEDGER_BUDGET_LOOKUP_CALL=300ms (default)", "decision call + lookup + 300ms",
			},
		},
		{map[string]string{"BUDGET_MIN_TO_SEND": "300ms"}, []string{"SAFELEDGER_BUDGET_MIN_TO_SEND=300ms", "minimum to send"}},
		{map[string]string{"WALLET_CONNECT_TIMEOUT": "300ms"}, []string{"SAFELEDGER_WALLET_CONNECT_TIMEOUT=300ms", "connect timeout"}},
		{map[string]string{"WALLET_SLOW_CALL": "800ms"}, []string{"SAFELEDGER_WALLET_SLOW_CALL=800ms", "slow call"}},
		{map[string]string{"BREAKER_WINDOW": "9999ms"}, []string{"SAFELEDGER_BREAKER_WINDOW=9.999s", "at least 5 times"}},
		{map[string]string{"GATE_MAX_IN_FLIGHT": "255"}, []string{"SAFELEDGER_GATE_MAX_IN_FLIGHT=255", "SAFELEDGER_WALLET_MAX_IN_FLIGHT=256 (default)", "wallet's bound"}},
		{map[string]string{"GATE_MAX_IN_FLIGHT": "513"}, []string{"SAFELEDGER_DATABASE_MAX_CONNS=32 (default)", "16 requests for each database connection"}},
		{map[string]string{"GATE_MAX_PER_CALLER": "513"}, []string{"one caller's bound"}},
		{map[string]string{"QUEUE_WORKERS": "257"}, []string{"more workers than wallet calls"}},
		{map[string]string{"QUEUE_LEASE": "8999ms"}, []string{"SAFELEDGER_QUEUE_LEASE=8.999s", "a lease must outlast an attempt"}},
		{map[string]string{"QUEUE_SETTLE_WINDOW": "2400ms"}, []string{"settle window must be longer"}},
		{map[string]string{"QUEUE_PARK_AFTER": "15m"}, []string{"parked later than the settle window"}},
		{map[string]string{"QUEUE_BACKOFF_MIN": "301s"}, []string{"SAFELEDGER_QUEUE_BACKOFF_MIN=5m1s", "first backoff"}},
		{map[string]string{"RECOVERY_GRACE": "299ms"}, []string{"recovery grace must be at least 300ms"}},
		{map[string]string{"ADMIN_ADDR": ":8080"}, []string{"SAFELEDGER_HTTP_ADDR=:8080 (default)", "two addresses"}},
	}
	broken := make(map[string]bool)
	for _, row := range rows {
		t.Run(row.want[len(row.want)-1], func(t *testing.T) {
			got := faults(t, RoleAll, row.changes)
			if len(got) != 1 {
				t.Fatalf("got %d faults, want 1: %q", len(got), got)
			}
			for _, part := range row.want {
				if !strings.Contains(got[0], part) {
					t.Errorf("got %q, want %q in it", got[0], part)
				}
			}
			for _, rule := range rules {
				if strings.HasSuffix(got[0], ": "+rule.says) {
					broken[rule.says] = true
				}
			}
		})
	}
	for _, rule := range rules {
		if !broken[rule.says] {
			t.Errorf("no row breaks the rule that %s", rule.says)
		}
	}
}

// Whoever mends one variable a restart needs as many restarts as there are
// faults, and each may be minutes of nobody being able to pay.
func TestEverythingThatIsWrongIsSaidAtOnce(t *testing.T) {
	environment(t, map[string]string{
		"WALLET_BASE_URL":      "wallet",
		"WALLET_VERSION":       "v3",
		"BUDGET_SERVER":        "soon",
		"BUDGET_DECISION_CALL": "800ms", // its rule with the server budget cannot be judged
		"QUEUE_LEASE":          "1s",
		"QUEUE_LEESE":          "20s",
	})
	_, err := Load(RoleAll)
	got := faultsOf(t, err)
	want := []string{
		"SAFELEDGER_QUEUE_LEESE is not a variable",
		"SAFELEDGER_DATABASE_URL is not set: it must be",
		"SAFELEDGER_CALLERS_FILE is not set: it must be",
		"SAFELEDGER_WALLET_BASE_URL=wallet: it must be",
		"SAFELEDGER_WALLET_VERSION=v3: it must be",
		"SAFELEDGER_BUDGET_SERVER=soon: it must be",
		"SAFELEDGER_BUDGET_WORKER_CALL=2s (default), SAFELEDGER_QUEUE_LEASE=1s: a lease must",
	}
	if len(got) != len(want) {
		t.Fatalf("got %d faults, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("fault %d is %q, want %q…", i, got[i], want[i])
		}
	}
	for _, fault := range got {
		if !strings.Contains(err.Error(), fault) {
			t.Errorf("the error does not say %q", fault)
		}
	}
}

// A misspelt variable leaves the default in force, and nobody knows until the
// night in which the number is needed. Kubernetes' own variables look like ours
// when the Service is called safeledger, and must not stop the pod.
func TestAMisspeltNameIsRefusedAndAServiceLinkIsNot(t *testing.T) {
	for _, name := range []string{"QUEUE_LEESE", "budget_server", "TEST", "HTTP_PORTS", "WALLET_TOKEN", "CRASH_AT_", "PORT_8080"} {
		t.Run(name, func(t *testing.T) {
			got := faults(t, RoleAll, map[string]string{name: "hunter2"})
			if len(got) != 1 || !strings.HasPrefix(got[0], Prefix+name+" is not a variable of SafeLedger") {
				t.Fatalf("got %q, want that it is not known", got)
			}
			if strings.Contains(got[0], "hunter2") {
				t.Errorf("%q shows the value, which may be a secret", got[0])
			}
		})
	}
	for _, name := range []string{
		"PORT", "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTP", "PORT_8080_TCP", "PORT_8080_TCP_ADDR",
		"PORT_8080_TCP_PORT", "PORT_8080_TCP_PROTO", "ADMIN_SERVICE_HOST", "ADMIN_PORT_9090_TCP", "CRASH_AT",
	} {
		t.Run(name, func(t *testing.T) {
			if got := faults(t, RoleAll, map[string]string{name: "tcp://10.0.0.1:8080"}); got != nil {
				t.Errorf("got %q, want none", got)
			}
		})
	}
}

// DATABASE_URL and HTTP_ADDR are set in many containers, for another program.
// envconfig would fall back on them.
func TestNamesWithoutThePrefixAreNotOurs(t *testing.T) {
	t.Setenv("DATABASE_URL", "postgres://elsewhere/other")
	t.Setenv("HTTP_ADDR", ":1")
	t.Setenv("URL", "postgres://elsewhere/other")
	environment(t, with(nil))
	got, err := Load(RoleAll)
	if err != nil {
		t.Fatal(err)
	}
	if got.Database.URL != "postgres://ledger@db/safeledger" || got.HTTPAddr != ":8080" {
		t.Errorf("got %q and %q, want our own", got.Database.URL, got.HTTPAddr)
	}
}

// Logs are read by more people than may know the database's password, and a
// start that fails is the one whose log is passed around.
func TestSecretsAreNeverShown(t *testing.T) {
	for _, secret := range []map[string]string{
		{"DATABASE_URL": "postgres://ledger:hunter2@db/safeledger"},
		{"DATABASE_URL": "postgres://ledger@db/safeledger?password=hunter2"},
		{"DATABASE_URL": "postgres://ledger@db/safeledger?sslpassword=hunter2&sslmode=verify-full"},
		{"DATABASE_URL": "postgres://ledger:hunter2@/safeledger"},      // no host
		{"DATABASE_URL": "postgres://ledger:pass/hunter2@db/x"},        // a slash in the password
		{"DATABASE_URL": "postgres://ledger:12/hunter2@db/x"},          // which even reads as a port
		{"DATABASE_URL": "postgres://ledger:12?hunter2@db/x"},          //
		{"DATABASE_URL": "postgres://ledger:12#hunter2"},               //
		{"DATABASE_URL": "postgres://ledger:hun%zzhunter2@db/x"},       // cannot be unescaped
		{"DATABASE_URL": "host=db user=ledger password=hunter2"},       // the other form
		{"DATABASE_URL": "postgres:ledger:hunter2@db/x"},               // no slashes
		{"DATABASE_URL": "ledger:hunter2@db/x"},                        // no scheme
		{"DATABASE_URL": "mysql://ledger:hunter2@db/x"},                // another's
		{"WALLET_BASE_URL": "https://safeledger:hunter2@wallet"},       // userinfo is refused
		{"WALLET_BASE_URL": "https://wallet/?token=hunter2"},           // so is a query
		{"DATABASE_URL": "postgres://l:hunter2@h1:5432,h2:5432/db?q="}, // two hosts
	} {
		t.Run(fmt.Sprint(secret), func(t *testing.T) {
			environment(t, with(secret))
			cfg, err := Load(RoleAll)
			var shown strings.Builder
			if err := cfg.Print(&shown); err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(&shown, err)
			if strings.Contains(shown.String(), "hunter2") {
				t.Errorf("the secret is shown:\n%s", shown.String())
			}
		})
	}
}

// A worker is given no callers: a secret that a process does not need is one
// that it can leak. A migration runs before anything else is set up.
func TestACommandNeedsOnlyWhatItUses(t *testing.T) {
	t.Run("worker", func(t *testing.T) {
		environment(t, map[string]string{"DATABASE_URL": "postgres://db/x", "WALLET_BASE_URL": "http://w"})
		if _, err := Load(RoleWorker); err != nil {
			t.Errorf("got %v, want none", err)
		}
	})
	t.Run("api", func(t *testing.T) {
		environment(t, map[string]string{"DATABASE_URL": "postgres://db/x", "WALLET_BASE_URL": "http://w"})
		_, err := Load(RoleAPI)
		if got := faultsOf(t, err); len(got) != 1 || !strings.HasPrefix(got[0], "SAFELEDGER_CALLERS_FILE is not set") {
			t.Errorf("got %q, want the missing callers", got)
		}
	})
	t.Run("migrate", func(t *testing.T) {
		environment(t, map[string]string{"DATABASE_URL": "postgres://db/x", "WALLET_VERSION": "v9", "BUDGET_SERVER": "x"})
		got, err := LoadDatabase()
		if err != nil {
			t.Fatal(err)
		}
		if want := (Database{URL: "postgres://db/x", Pooler: PoolerNone, GroupCommit: On, MaxConns: 32}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	t.Run("migrate, misspelt", func(t *testing.T) {
		environment(t, map[string]string{"DATABASE_ULR": "postgres://db/x"})
		_, err := LoadDatabase()
		if got := faultsOf(t, err); len(got) != 2 {
			t.Errorf("got %q, want the misspelt name and the missing one", got)
		}
	})
}

// Paths are appended to the base URL; a double slash is another resource to
// many servers, and its 404 would decline payments.
func TestABaseURLMayEndInASlash(t *testing.T) {
	environment(t, with(map[string]string{"WALLET_BASE_URL": "https://wallet/base/"}))
	got, err := Load(RoleAll)
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://wallet/base"; got.Wallet.BaseURL != want {
		t.Errorf("got %q, want %q", got.Wallet.BaseURL, want)
	}
}

// `safeledger config` is what an operator pastes into an incident: it must show
// what is in force, all of it, and where it comes from.
func TestPrintShowsWhatIsInForce(t *testing.T) {
	environment(t, with(map[string]string{
		"DATABASE_URL":  "postgres://ledger:hunter2@db/safeledger?sslmode=verify-full",
		"BUDGET_SERVER": "2s",
		"LOG_LEVEL":     "warn",
	}))
	cfg, err := Load(RoleAll)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := cfg.Print(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got, want := len(lines), len(Variables()); got != want {
		t.Errorf("got %d lines, want %d", got, want)
	}
	for _, want := range []string{
		"SAFELEDGER_DATABASE_URL=postgres://ledger:xxxxx@db/safeledger?sslmode=verify-full (set)",
		"SAFELEDGER_BUDGET_SERVER=2s (set)",
		"SAFELEDGER_LOG_LEVEL=warn (set)",
		"SAFELEDGER_QUEUE_LATE_CHECKS=1h,24h (default)",
		"SAFELEDGER_QUEUE_SETTLE_WINDOW=15m (default)",
		"SAFELEDGER_MAX_AMOUNT=9007199254740991 (default)",
		"SAFELEDGER_BREAKER_SLOW_RATIO=0.5 (default)",
		"SAFELEDGER_WALLET_TOKEN_FILE= (not set)",
	} {
		if !slices.ContainsFunc(lines, func(line string) bool { return strings.Join(strings.Fields(line), " ") == want }) {
			t.Errorf("no line %q in\n%s", want, out.String())
		}
	}
}

// What Print shows is what was read: set as an environment, it is the same
// configuration again.
func TestWhatIsPrintedReadsBack(t *testing.T) {
	environment(t, with(map[string]string{"BUDGET_SERVER": "2350ms", "QUEUE_LATE_CHECKS": "90m,36h1m", "LOG_LEVEL": "error"}))
	first, err := Load(RoleAll)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := first.Print(&out); err != nil {
		t.Fatal(err)
	}
	printed := make(map[string]string)
	for line := range strings.Lines(out.String()) {
		name, rest, _ := strings.Cut(line, "=")
		if value := strings.Fields(rest)[0]; value != "(not" {
			printed[strings.TrimPrefix(name, Prefix)] = value
		}
	}
	environment(t, printed)
	second, err := Load(RoleAll)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second, cmpopts.IgnoreUnexported(Config{})); diff != "" {
		t.Errorf("read back (-first +second):\n%s", diff)
	}
}
