package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// point is one thing that is measured, once per round.
type point struct {
	Phase   string `json:"phase"`
	Variant string `json:"variant"`
	Tills   int    `json:"tills,omitzero"`
	// WalletMS is what the wallet takes for each call.
	WalletMS int    `json:"walletMs"`
	Keys     string `json:"keys,omitzero"`
	Rows     int    `json:"rows,omitzero"`    // payments that are in the ledger before
	Waiting  int    `json:"waiting,omitzero"` // follow-ups that wait in it, for long
	Round    int    `json:"round"`
}

func (p point) wallet() time.Duration { return time.Duration(p.WalletMS) * time.Millisecond }

// The figures of a measurement, by their names in the results. Not every phase has
// all of them.
const (
	rate           = "rate"          // approved a second; work items of the queue
	decisions      = "decisions"     // that the measurement counted
	p50            = "p50_ms"        //
	p99            = "p99_ms"        //
	p999           = "p999_ms"       //
	longest        = "longest_ms"    //
	cpuServer      = "cpu_server_us" // per decision, and so the next three
	cpuPostgres    = "cpu_postgres_us"
	cpuWallet      = "cpu_wallet_us"
	cpuLoad        = "cpu_load_us"
	idle           = "idle"      // part of all cores' time
	others         = "others"    // the same, of what is none of the processes above
	walBytes       = "wal_bytes" // per decision
	fsyncs         = "fsyncs"    // per decision
	resident       = "resident_bytes"
	peak           = "peak_bytes"
	failures       = "failures" // whatever was not approved and should have been
	ready          = "ready_ms"
	capacity       = "capacity" // approved a second in a closed loop, just before
	offered        = "offered"  // requests a second, as the load was told
	sentRate       = "sent"     // requests a second that it sent
	refusals       = "refused_rate"
	refusalP50     = "refusal_p50_ms"
	refusalP99     = "refusal_p99_ms"
	refusalLast    = "refusal_longest_ms"
	late300        = "late_300" // part of those admitted
	late100        = "late_100"
	unknowns       = "unknown_rate"
	declines       = "declined_rate"
	lagP99         = "lag_p99_ms" // of the load itself: how late it was with its requests
	bytesOnDisk    = "bytes"
	loadingSeconds = "loading_s"
)

// measurement is what one round at one point gave.
type measurement struct {
	point

	At     time.Time          `json:"at"`
	Values map[string]float64 `json:"values"`
	// Details are what was answered instead of an approval, and how often.
	Details map[string]int `json:"details,omitempty"`
}

// results are a run in its folder: what it ran on, and every measurement as soon as
// it was made, so that a run that was stopped goes on, and one that was too short
// gets more rounds.
type results struct {
	dir          string
	machine      machine
	measurements []measurement
}

const (
	machineFile      = "run.json"
	measurementsFile = "measurements.jsonl"
)

// openResults reads the results in dir; a folder that is not there yet has none.
func openResults(dir string) (*results, error) {
	r := &results{dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, machineFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &r.machine); err != nil {
		return nil, fmt.Errorf("%s: %w", machineFile, err)
	}
	file, err := os.ReadFile(filepath.Join(dir, measurementsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(file)); lines.Scan(); {
		var m measurement
		// A line that was cut off is a measurement that is made again.
		if json.Unmarshal(lines.Bytes(), &m) == nil {
			r.measurements = append(r.measurements, m)
		}
	}
	return r, nil
}

// begin makes the folder and writes what the run runs on.
func (r *results) begin(m machine) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	r.machine = m
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, machineFile), append(text, '\n'), 0o644) //nolint:gosec // the same
}

// add keeps a measurement.
func (r *results) add(m measurement) (err error) {
	line, err := json.Marshal(m)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(r.dir, measurementsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // the same
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	// Behind a line that was cut off a new one must begin; an empty one is none.
	if _, err := file.Write(append(append([]byte("\n"), line...), '\n')); err != nil {
		return err
	}
	r.measurements = append(r.measurements, m)
	return nil
}

// has reports whether p was measured in this round.
func (r *results) has(p point) bool {
	for _, m := range r.measurements {
		if m.point == p {
			return true
		}
	}
	return false
}

// rounds are the values of a figure at p, by round.
func (r *results) rounds(p point, name string) map[int]float64 {
	values := make(map[int]float64)
	for _, m := range r.measurements {
		p.Round = m.Round
		if value, there := m.Values[name]; there && m.point == p {
			values[m.Round] = value
		}
	}
	return values
}

// figure is a figure at p over all rounds.
func (r *results) figure(p point, name string) spread {
	var values []float64
	for _, v := range r.rounds(p, name) {
		values = append(values, v)
	}
	return over(values)
}

// ratio is a figure at one point divided by that at another, round by round: what
// was measured minutes apart on a machine that others use too is never compared.
func (r *results) ratio(of, to point, name string) spread {
	var ratios []float64
	divisors := r.rounds(to, name)
	for round, value := range r.rounds(of, name) {
		if divisor := divisors[round]; divisor > 0 {
			ratios = append(ratios, value/divisor)
		}
	}
	return over(ratios)
}
