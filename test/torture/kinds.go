package main

import (
	"slices"
	"sync"
)

// group says whose fault a kind is.
type group string

const (
	ofWallet   group = "wallet"
	ofNetwork  group = "network"
	ofProcess  group = "process"
	ofPostgres group = "postgres"
	ofTills    group = "tills"
)

// kind is a kind of fault. A run in which one of them struck nobody is void.
type kind struct {
	group group
	name  string
	does  string
	runs  runs
}

// dealtInTurn reports whether k is dealt by the nemesis, which is at one of them at a time,
// and does not strike by the way, as requests come by.
func (k kind) dealtInTurn() bool {
	return k.group == ofProcess || k.group == ofPostgres || k.group == ofNetwork ||
		slices.ContainsFunc(walletControlKinds(), func(other kind) bool { return other.name == k.name })
}

// runs are those that a kind belongs in.
type runs uint8

const (
	allRuns   runs = iota
	onlyLossy      // those in which a lagging standby is promoted
	onlySafe       // all others
)

// in reports whether k belongs in a run that is lossy, or not.
func (k kind) in(lossy bool) bool {
	return k.runs == allRuns || (k.runs == onlyLossy) == lossy
}

// of are the kinds of a table that belong in a run.
func of(kinds []kind, lossy bool) (some []kind) {
	for _, k := range kinds {
		if k.in(lossy) {
			some = append(some, k)
		}
	}
	return some
}

func names(kinds []kind) (all []string) {
	for _, k := range kinds {
		all = append(all, k.name)
	}
	return all
}

// counters count how often each kind has struck. A fault that was put in place and met
// nobody does not count.
type counters struct {
	kinds []kind

	mu   sync.Mutex
	hits map[string]int64
}

func newCounters(kinds []kind) *counters {
	c := &counters{kinds: kinds, hits: map[string]int64{}}
	for _, k := range kinds {
		c.hits[k.name] = 0
	}
	return c
}

// hit counts a kind. A test holds the names that the code hits to the tables.
func (c *counters) hit(name string) { c.add(name, 1) }

func (c *counters) add(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits[name] += n
}

// set puts a count that somebody else keeps: the wallet, of its rules.
func (c *counters) set(name string, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hits[name] = n
}

func (c *counters) snapshot() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make(map[string]int64, len(c.hits))
	for name, n := range c.hits {
		all[name] = n
	}
	return all
}

// seen is how many kinds have struck, and how often in all.
func (c *counters) seen() (kinds int, hits int64) {
	for _, n := range c.snapshot() {
		if n > 0 {
			kinds++
		}
		hits += n
	}
	return kinds, hits
}

// allKinds are the kinds of a run.
func allKinds() []kind {
	var all []kind
	for _, f := range walletFaults() {
		all = append(all, f.kind())
	}
	all = append(all, walletControlKinds()...)
	all = append(all, networkKinds()...)
	all = append(all, processKinds()...)
	all = append(all, clockKinds()...)
	all = append(all, postgresKinds()...)
	return append(all, tillKinds()...)
}
