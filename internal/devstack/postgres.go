// Package devstack starts a private PostgreSQL: for `safeledger dev`, where its
// data is kept, and for tests, where it is not. It listens on the loopback only,
// with a password that nobody chose, and does not outlive the process that
// started it.
package devstack

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/program"
)

// Options say where the server's data lives and how it runs.
type Options struct {
	// Dir keeps the data from one start to the next. It is created if need be.
	// Empty: a temporary folder, which Stop removes.
	Dir string
	// TempPrefix begins the name of the temporary folder; empty: "safeledger-postgres-".
	TempPrefix string
	// Settings go to the server on its command line, e.g. "max_connections": "200".
	Settings map[string]string
	// Log hears what is worth knowing, such as a Dir that could not be used.
	Log *slog.Logger
}

// database is the name of the one database and of its owner.
const database = "safeledger"

// The patience with a server that starts, and with one that is told to stop:
// first politely, then at once, then by the kernel.
const (
	startPatience = 60 * time.Second
	stopPatience  = 10 * time.Second
	readyInterval = 20 * time.Millisecond
	portAttempts  = 5 // for a port that somebody took between our look and the server's
)

// Postgres is a running server.
type Postgres struct {
	url     string
	dir     string
	temp    bool
	process *program.Process
}

// StartPostgres starts a server and returns when it takes connections. ctx bounds
// the start only. Needs the PostgreSQL server's programs on this machine, or a
// network to fetch them from; the error says what to install.
func StartPostgres(ctx context.Context, opts Options) (*Postgres, error) {
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	account, err := serverAccount()
	if err != nil {
		return nil, err
	}
	bin, err := programs(ctx, account, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	dir, temp, err := home(ctx, opts, account, log)
	if err != nil {
		return nil, err
	}
	p, err := startIn(ctx, bin, dir, account, opts.Settings)
	if err != nil {
		if temp {
			err = errors.Join(err, os.RemoveAll(dir))
		}
		return nil, err
	}
	p.temp = temp
	return p, nil
}

// URL is how to connect as the owner of the database, password included.
func (p *Postgres) URL() string { return p.url }

// PID is the process id of the server.
func (p *Postgres) PID() int { return p.process.PID() }

// Dir is the folder that holds the data and the server's log.
func (p *Postgres) Dir() string { return p.dir }

// Exited is closed when the server has ended, whoever ended it.
func (p *Postgres) Exited() <-chan struct{} { return p.process.Exited() }

// Stop ends the server, connected clients or not, and removes a temporary
// folder. It may be called again.
func (p *Postgres) Stop() error {
	err := stop(p.process)
	if p.temp {
		err = errors.Join(err, os.RemoveAll(p.dir))
	}
	return err
}

// stop ends a server: by SIGINT, its fast shutdown (clients are cut off, data is
// written), then SIGQUIT, its immediate one, after which the next start recovers.
func stop(server *program.Process) error {
	if err := server.Stop(stopPatience, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGKILL); err != nil {
		return fmt.Errorf("stop postgres: %w", err)
	}
	return nil
}

func startIn(ctx context.Context, bin, dir string, account *account, settings map[string]string) (*Postgres, error) {
	data := filepath.Join(dir, "data")
	password, err := initialise(ctx, bin, dir, data, account)
	if err != nil {
		return nil, err
	}
	if err := clearStale(data); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		p, err := launch(ctx, bin, dir, data, password, account, settings)
		if errors.Is(err, errPortTaken) && attempt < portAttempts {
			continue
		}
		return p, err
	}
}

// initialise makes the data folder unless it is there, and returns the password
// of its owner. It is made aside and put in place by a rename, so that a start
// that is interrupted leaves nothing that looks like a data folder.
func initialise(ctx context.Context, bin, dir, data string, account *account) (string, error) {
	passwordFile := filepath.Join(dir, "password")
	if _, err := os.Stat(filepath.Join(data, "PG_VERSION")); err == nil {
		if err := sameMajorVersion(ctx, bin, data); err != nil {
			return "", err
		}
		password, err := os.ReadFile(passwordFile)
		if err != nil {
			return "", fmt.Errorf("read the password of the kept database: %w", err)
		}
		return string(bytes.TrimSpace(password)), nil
	}

	password := rand.Text()
	fresh := data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return "", fmt.Errorf("clear an interrupted start: %w", err)
	}
	if err := os.Mkdir(fresh, 0o700); err != nil {
		return "", fmt.Errorf("make the data folder: %w", err)
	}
	if err := os.WriteFile(passwordFile, []byte(password+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write the password: %w", err)
	}
	if err := account.own(fresh, passwordFile); err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"),
		"--pgdata", fresh, "--username", database, "--pwfile", passwordFile, "--auth", "scram-sha-256",
		"--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	account.run(cmd, dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, lastLines(out))
	}
	if err := os.Rename(fresh, data); err != nil {
		return "", fmt.Errorf("put the data folder in place: %w", err)
	}
	return password, nil
}

// sameMajorVersion refuses data of another PostgreSQL than the one that is
// installed now, before the server does so in words of its own.
func sameMajorVersion(ctx context.Context, bin, data string) error {
	kept, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	if err != nil {
		return fmt.Errorf("read the version of the kept database: %w", err)
	}
	out, err := exec.CommandContext(ctx, filepath.Join(bin, "postgres"), "--version").Output()
	if err != nil {
		return fmt.Errorf("ask postgres for its version: %w", err)
	}
	want := string(bytes.TrimSpace(kept))
	fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.18 (Debian …)
	if len(fields) < 3 || (fields[2] != want && !strings.HasPrefix(fields[2], want+".")) {
		return fmt.Errorf("the data in %s is of PostgreSQL %s, but %s is %q: remove the folder, or install that version",
			data, want, bin, strings.TrimSpace(string(out)))
	}
	return nil
}

// clearStale removes the pid file that a server leaves behind when its machine
// goes down, whose number may belong to anything by now. A server that really
// runs on the folder is an error: two on one folder would ruin it.
func clearStale(data string) error {
	file := filepath.Join(data, "postmaster.pid")
	content, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the pid file of the kept database: %w", err)
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err == nil && servesFolder(pid, data) {
		return fmt.Errorf("the database in %s is in use by process %d: is another `safeledger dev` running?", data, pid)
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("remove a stale pid file: %w", err)
	}
	return nil
}

var errPortTaken = errors.New("somebody else took the port")

func launch(ctx context.Context, bin, dir, data, password string, account *account, settings map[string]string) (_ *Postgres, err error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	args := []string{
		"-D", data, "-h", "127.0.0.1", "-p", strconv.Itoa(port),
		// No socket file: its path would have to fit into 107 bytes, and be removed.
		"-c", "unix_socket_directories=",
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "-c", name+"="+settings[name])
	}
	logFile := filepath.Join(dir, "postgres.log")
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the server's log: %w", err)
	}
	defer func() { err = errors.Join(err, out.Close()) }() // the server has its own copy

	cmd := exec.Command(filepath.Join(bin, "postgres"), args...) //nolint:noctx // it outlives the start; Stop ends it
	account.run(cmd, dir)
	cmd.Stdout, cmd.Stderr = out, out
	proc, err := program.Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start postgres: %w", err)
	}
	p := &Postgres{
		url: (&url.URL{
			Scheme: "postgres", User: url.UserPassword(database, password),
			Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: database, RawQuery: "sslmode=disable",
		}).String(),
		dir:     dir,
		process: proc,
	}
	if err := p.ready(ctx); err != nil {
		said, _ := os.ReadFile(logFile) // best effort: it only makes the error clearer
		if bytes.Contains(said, []byte("could not bind")) {
			err = errPortTaken
		}
		return nil, errors.Join(fmt.Errorf("%w: %s", err, lastLines(said)), stop(proc))
	}
	return p, nil
}

// ready waits until the server takes connections and the database is there.
func (p *Postgres) ready(ctx context.Context) error {
	config, err := pgx.ParseConfig(p.url)
	if err != nil {
		return fmt.Errorf("read our own URL: %w", err)
	}
	config.Database = "postgres"
	tick := time.NewTicker(readyInterval)
	defer tick.Stop()
	for {
		conn, err := pgx.ConnectConfig(ctx, config)
		if err == nil {
			return errors.Join(createDatabase(ctx, conn), conn.Close(ctx))
		}
		select {
		case <-p.process.Exited():
			return errors.New("postgres ended while it started")
		case <-ctx.Done():
			return fmt.Errorf("postgres did not take connections in time: %w", errors.Join(ctx.Err(), err))
		case <-tick.C:
		}
	}
}

func createDatabase(ctx context.Context, conn *pgx.Conn) error {
	var exists bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_database WHERE datname = $1)", database).Scan(&exists)
	if err != nil {
		return fmt.Errorf("look for the database: %w", err)
	}
	if exists {
		return nil
	}
	if _, err := conn.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{database}.Sanitize()); err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return nil
}

// freePort asks the kernel for a port. Between this and the server's own bind
// somebody else may get it; then the start is tried again.
func freePort(ctx context.Context) (int, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if err := l.Close(); err != nil {
		return 0, fmt.Errorf("free the port for the server: %w", err)
	}
	return port, nil
}

// lastLines is the end of what a program said, for an error message.
func lastLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-5):], " | ")
}
