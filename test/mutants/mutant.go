package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one deliberate defect.
type mutant struct {
	name  string
	edits []edit
	// breaks is what is no longer true with it, and harm what that would do to whom.
	breaks promise
	harm   string
	// tried are the tests that it is tried on, cheapest first. What none of them finds is
	// tried on all there are.
	tried []suite
}

// edit replaces a text of one file, which must be there exactly once: where the code has
// moved on, the defect must be made anew or dropped, and not silently become another.
type edit struct{ file, old, new string }

// promise is one of README's six, or one that needs no number.
type promise string

const (
	gateIsProof    promise = "1: what the gate refuses has left no trace"
	oneRequest     promise = "2: a payment is at most one request on the wire"
	toldIsStored   promise = "3: what was told is what is stored"
	declineEnds    promise = "4: a decline ends without an effect"
	appliedOnce    promise = "5: a follow-up is applied once, or ends visibly"
	answerInTime   promise = "6: the answer leaves before the till does"
	nothingLeaks   promise = "secrets are told to nobody"
	walletIsSpared promise = "an ill wallet is spared, a healthy one used"
)

// mutants are all of them, in the order of the document.
func mutants() []mutant {
	return slices.Concat(decisionMutants(), ledgerMutants(), queueMutants(), walletMutants(), edgeMutants(), serveMutants())
}

// apply gives the files that m changes as they are with it, by their path below root.
func (m mutant) apply(root string) (map[string]string, error) {
	changed := make(map[string]string)
	for _, e := range m.edits {
		content, again := changed[e.file]
		if !again {
			read, err := os.ReadFile(filepath.Join(root, e.file))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.name, err)
			}
			content = string(read)
		}
		if n := strings.Count(content, e.old); n != 1 {
			return nil, fmt.Errorf("%s: %s has its old text %d times, not once:\n%s", m.name, e.file, n, e.old)
		}
		changed[e.file] = strings.Replace(content, e.old, e.new, 1)
	}
	return changed, nil
}

// fingerprint tells whether m is what it was when it was tried: its own text, what it is
// tried on, and the files that it makes. That the rest of the tree has changed since it
// does not tell.
func (m mutant) fingerprint(root string) (string, error) {
	changed, err := m.apply(root)
	if err != nil {
		return "", err
	}
	var tried []string
	for _, s := range m.tried {
		tried = append(tried, s.String())
	}
	text, err := json.Marshal(struct { // which sorts the map
		Files map[string]string
		Tried []string
	}{changed, tried})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}

// overlay writes the files of m into dir, and the list by which the go command finds
// them there. root is absolute.
func (m mutant) overlay(root, dir string) (list string, err error) {
	changed, err := m.apply(root)
	if err != nil {
		return "", err
	}
	replace := make(map[string]string)
	for file, content := range changed {
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(copied, []byte(content), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}
