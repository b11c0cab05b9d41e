// Package config is what the environment says: every variable of contract
// section 5 with its default, what each may be, and the rules between them.
// Whatever is wrong is found before anything listens, and all of it at once: an
// operator who mends one variable a restart is an operator with an outage.
package config

import (
	"log/slog"
	"strings"
	"time"
)

// Config is what one process of `serve` runs on. Every default is the seeds'
// number; where it is ours, the reason stands beside it.
//
// The variable's full name is in the tag, not composed of a prefix and the
// field's: envconfig, given a prefix, would also take the name without it
// (DATABASE_URL of some other program), and a name that an operator asks about
// should be found by searching for it.
type Config struct {
	Database Database

	HTTPAddr    string `envconfig:"SAFELEDGER_HTTP_ADDR" default:":8080" form:"address" desc:"where tills are served"`
	AdminAddr   string `envconfig:"SAFELEDGER_ADMIN_ADDR" default:":9090" form:"address" desc:"where /metrics, /livez and /readyz are served, apart from the tills"`
	CallersFile string `envconfig:"SAFELEDGER_CALLERS_FILE" form:"path" needed:"api" desc:"the callers, their hashed tokens and scopes; read again within 5 s of a change"`

	Wallet     Wallet
	Breaker    Breaker
	Budget     Budget
	RetryAfter RetryAfter
	Gate       Gate
	DrainDelay time.Duration `envconfig:"SAFELEDGER_DRAIN_DELAY" default:"5s" min:"0s" max:"10m" desc:"after SIGTERM, how long tills are still served while endpoints are being removed elsewhere"`
	Queue      Queue

	// CallsKept is longer than card schemes and banks take for a dispute.
	CallsKept     time.Duration `envconfig:"SAFELEDGER_WALLET_CALLS_KEPT" default:"9600h" min:"720h" max:"876000h" desc:"how long the recorded wallet calls of what has ended are kept; payments and follow-ups are kept for good"`
	RecoveryGrace time.Duration `envconfig:"SAFELEDGER_RECOVERY_GRACE" default:"5s" min:"1ms" max:"5m" desc:"beyond the server budget, how long a payment may be in flight before recovery decides it"`
	MaxAmount     int64         `envconfig:"SAFELEDGER_MAX_AMOUNT" default:"9007199254740991" min:"1" max:"9007199254740991" desc:"the largest amount that is taken, in minor units; 2^53−1 is the largest that a till in JavaScript can hold exactly"`
	LogLevel      slog.Level    `envconfig:"SAFELEDGER_LOG_LEVEL" default:"info" oneof:"debug|info|warn|error" desc:"the least severe lines that are logged"`

	// set are the names of the variables that the environment gave, for Print.
	set map[string]bool
}

// Database is what every command that speaks to PostgreSQL needs; `migrate` and
// `ops` need nothing else.
type Database struct {
	URL         string `envconfig:"SAFELEDGER_DATABASE_URL" form:"postgres" needed:"always" desc:"the ledger"`
	Pooler      Pooler `envconfig:"SAFELEDGER_DATABASE_POOLER" default:"none" oneof:"none|pgbouncer" desc:"what stands between: behind pgbouncer nothing is prepared or kept by session"`
	GroupCommit Switch `envconfig:"SAFELEDGER_DATABASE_GROUP_COMMIT" default:"on" oneof:"on|off" desc:"whether claims, decisions and settlements that are written at the same moment share a transaction; off is for comparing, and for the day on which sharing itself is suspected"`
	// MaxConns is the API's pool. Workers and recovery have a small pool of their
	// own, so that neither can take the last connection from a waiting till. 32
	// on each of two replicas, and what the workers take, fit the 100 connections
	// that a PostgreSQL has by default.
	MaxConns int `envconfig:"SAFELEDGER_DATABASE_MAX_CONNS" default:"32" min:"1" max:"1000" desc:"connections that the API of one replica may hold; workers and recovery have a few of their own"`
}

// Switch is on or off.
type Switch string

// The values of a Switch.
const (
	On  Switch = "on"
	Off Switch = "off"
)

// Pooler is what stands between us and PostgreSQL.
type Pooler string

// The poolers that are known to work.
const (
	PoolerNone      Pooler = "none"
	PoolerPgBouncer Pooler = "pgbouncer" // in transaction mode: no named prepared statements
)

// Wallet is how the wallet is reached (contract section 3).
type Wallet struct {
	BaseURL        string        `envconfig:"SAFELEDGER_WALLET_BASE_URL" form:"base" needed:"always" desc:"the wallet; paths such as /v2/debits are appended"`
	Version        WalletVersion `envconfig:"SAFELEDGER_WALLET_VERSION" default:"v2" oneof:"v1|v2" desc:"the wallet's API; v1 has no holds"`
	TokenFile      string        `envconfig:"SAFELEDGER_WALLET_TOKEN_FILE" form:"path" desc:"the bearer token that the wallet is called with, none if not set; read again within 5 s of a change"`
	ConnectTimeout time.Duration `envconfig:"SAFELEDGER_WALLET_CONNECT_TIMEOUT" default:"200ms" min:"1ms" max:"1m" desc:"name lookup, connect and TLS together"`
	MaxInFlight    int           `envconfig:"SAFELEDGER_WALLET_MAX_IN_FLIGHT" default:"256" min:"1" max:"100000" desc:"wallet calls at once of one class, decisions or workers; more are refused at once"`
	SlowCall       time.Duration `envconfig:"SAFELEDGER_WALLET_SLOW_CALL" default:"400ms" min:"1ms" max:"1m" desc:"a decision call that takes longer is slow to the breaker; the p99.9 that seed ADR-0007 assumes of a healthy wallet"`
}

// WalletVersion is which of the wallet's two APIs is spoken.
type WalletVersion string

// The wallet's versions.
const (
	WalletV1 WalletVersion = "v1"
	WalletV2 WalletVersion = "v2"
)

// Breaker is when the breakers of decisions, worker calls and lookups open, and
// for how long.
type Breaker struct {
	Window       time.Duration `envconfig:"SAFELEDGER_BREAKER_WINDOW" default:"10s" min:"1s" max:"10m" desc:"the rolling window that ratios are taken over"`
	MinCalls     int           `envconfig:"SAFELEDGER_BREAKER_MIN_CALLS" default:"20" min:"1" max:"1000000" desc:"with fewer calls in the window it stays closed"`
	FailureRatio float64       `envconfig:"SAFELEDGER_BREAKER_FAILURE_RATIO" default:"0.5" form:"ratio" desc:"it opens when this part of the calls failed"`
	SlowRatio    float64       `envconfig:"SAFELEDGER_BREAKER_SLOW_RATIO" default:"0.5" form:"ratio" desc:"it opens when this part of the calls was slow"`
	OpenFor      time.Duration `envconfig:"SAFELEDGER_BREAKER_OPEN_FOR" default:"5s" min:"100ms" max:"5m" desc:"how long it stays open before it probes"`
	Probes       int           `envconfig:"SAFELEDGER_BREAKER_PROBES" default:"3" min:"1" max:"1000" desc:"calls that a half-open breaker lets through at once; as many successes close it"`
}

// Budget is how a decision's time is shared out (contract section 2, seed
// ADR-0007).
type Budget struct {
	Server         time.Duration `envconfig:"SAFELEDGER_BUDGET_SERVER" default:"2400ms" min:"1ms" max:"1m" desc:"the most that a decision may take, from the arrival of its request"`
	NetworkReserve time.Duration `envconfig:"SAFELEDGER_BUDGET_NETWORK_RESERVE" default:"600ms" min:"0s" max:"1m" desc:"kept back of what a till says that it will wait, for the way there and back"`
	DecisionCall   time.Duration `envconfig:"SAFELEDGER_BUDGET_DECISION_CALL" default:"800ms" min:"1ms" max:"1m" desc:"the most that the wallet call of a decision gets"`
	LookupCall     time.Duration `envconfig:"SAFELEDGER_BUDGET_LOOKUP_CALL" default:"300ms" min:"1ms" max:"1m" desc:"the most that its lookup gets"`
	WorkerCall     time.Duration `envconfig:"SAFELEDGER_BUDGET_WORKER_CALL" default:"2s" min:"1ms" max:"1m" desc:"the most that a wallet call of the work queue gets"`
	MinToSend      time.Duration `envconfig:"SAFELEDGER_BUDGET_MIN_TO_SEND" default:"50ms" min:"1ms" max:"10s" desc:"with less time left nothing is sent"`
}

// RetryAfter is what tills are told to wait, in the only two places where they
// are told so.
type RetryAfter struct {
	Decline time.Duration `envconfig:"SAFELEDGER_RETRY_AFTER_DECLINE" default:"2s" min:"1s" max:"1h" whole:"1s" desc:"Retry-After of a decline that may be tried again with a new key"`
	Busy    time.Duration `envconfig:"SAFELEDGER_RETRY_AFTER_BUSY" default:"1s" min:"1s" max:"1h" whole:"1s" desc:"Retry-After of the gate's 503, of a key in flight and of a payment not yet decided"`
}

// Gate is what is admitted (contract section 5).
type Gate struct {
	MaxInFlight  int `envconfig:"SAFELEDGER_GATE_MAX_IN_FLIGHT" default:"512" min:"1" max:"100000" desc:"requests at once of all callers together; more are refused before they are read"`
	MaxPerCaller int `envconfig:"SAFELEDGER_GATE_MAX_PER_CALLER" default:"0" min:"0" max:"100000" desc:"requests at once of one caller, 0 for no bound"`
}

// Queue is the work queue, which owns every retry (contract section 4).
type Queue struct {
	Workers          int             `envconfig:"SAFELEDGER_QUEUE_WORKERS" default:"32" min:"1" max:"1000" desc:"attempts at once in one replica"`
	SettleWindow     time.Duration   `envconfig:"SAFELEDGER_QUEUE_SETTLE_WINDOW" default:"15m" min:"1s" max:"720h" desc:"only a not-found later than this after the decline proves that the wallet has not applied; longer than the longest life of a message"`
	ParkAfter        time.Duration   `envconfig:"SAFELEDGER_QUEUE_PARK_AFTER" default:"72h" min:"1s" max:"8760h" desc:"an operation that has not ended by then is parked for a person to look at"`
	Lease            time.Duration   `envconfig:"SAFELEDGER_QUEUE_LEASE" default:"20s" min:"1s" max:"29s" desc:"how long an attempt is its worker's; with the poll of 1 s, another takes over within 30 s of a death"`
	LateChecks       []time.Duration `envconfig:"SAFELEDGER_QUEUE_LATE_CHECKS" default:"1h,24h" min:"1s" max:"8760h" form:"ascending" desc:"when a reversal that found nothing is looked at once more, counted from its end"`
	LookupsPerSecond int             `envconfig:"SAFELEDGER_QUEUE_LOOKUPS_PER_SECOND" default:"20" min:"1" max:"10000" desc:"lookups of one replica's queue, so that a failing wallet is not asked to death"`
	BackoffMin       time.Duration   `envconfig:"SAFELEDGER_QUEUE_BACKOFF_MIN" default:"1s" min:"1ms" max:"24h" desc:"the first pause between attempts, before jitter"`
	BackoffMax       time.Duration   `envconfig:"SAFELEDGER_QUEUE_BACKOFF_MAX" default:"5m" min:"1ms" max:"24h" desc:"the longest"`
}

// Role is which half of the service a process of `serve` is. It comes from the
// command line, because it says what the process is, not how it is set up.
type Role string

// The roles of contract section 5.
const (
	RoleAPI    Role = "api"
	RoleWorker Role = "worker"
	RoleAll    Role = "all"
)

// Load reads what `serve` needs in role from the environment of the process:
// envconfig looks there and nowhere else, so tests set variables. The error is
// an InvalidError, which names everything that is wrong.
func Load(role Role) (Config, error) {
	var cfg Config
	var r reading
	r.unknown()
	cfg.set = r.fill(&cfg, func(needed string) bool {
		switch needed {
		case neededAlways:
			return true
		case neededByAPI:
			return role != RoleWorker
		}
		return false
	})
	// Paths begin with a slash, so that http://wallet/ would ask for //v2/debits.
	cfg.Wallet.BaseURL = strings.TrimRight(cfg.Wallet.BaseURL, "/")
	r.rules(&cfg)
	return cfg, r.err()
}

// LoadDatabase reads what `migrate` and `ops` need. It looks at nothing else's
// value, but a name that is not known is a fault here too: it may be a
// misspelt one of these.
func LoadDatabase() (Database, error) {
	var db Database
	var r reading
	r.unknown()
	r.fill(&db, func(needed string) bool { return needed == neededAlways })
	return db, r.err()
}
