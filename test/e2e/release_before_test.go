package e2e

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/migrations"
)

// The releases before are commits whose programs must run on today's schema. The last one
// is the newest that knows fewer migrations than this tree: whoever adds a migration moves
// it on, to the commit before that one, and a test sees to it. The oldest knew nothing of
// schema_compatibility, which is how later ones tell.
const (
	lastRelease   = "98c288efcbc675ce2905db3879d65d852226d1ab"
	oldestRelease = "486fcb30e38006f556f612ad7acec03ccdd0409b"
)

// A rollout migrates first and replaces replicas afterwards: until the last one is
// gone, the release before decides payments on today's schema, beside today's, and it
// may be restarted there, or come back when today's is taken back. Neither may meet
// what it cannot read, and neither may read the other's payments otherwise.
func TestTheReleasesBeforeRunOnTodaysSchema(t *testing.T) {
	t.Parallel()
	for name, commit := range map[string]string{"last": lastRelease, "oldest": oldestRelease} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			runsBesideToday(t, buildRelease(t, commit))
		})
	}
}

// A pin that is not moved on would go on testing what nobody runs any more.
func TestTheLastReleaseLacksOneMigration(t *testing.T) {
	t.Parallel()
	needHistory(t)
	out, err := exec.Command("git", "-C", "../..", "ls-tree", "--name-only", lastRelease, "migrations/").Output()
	if err != nil {
		t.Fatal(err)
	}
	if knew, know := strings.Count(string(out), ".sql\n"), migrations.Latest; knew != know-1 {
		t.Errorf("%s knew %d migrations, and there are %d", lastRelease, knew, know)
	}
}

func runsBesideToday(t *testing.T, program string) {
	w := newWorld(t)
	// Of the budget the wallet gets as much as the rules allow: this is not about speed.
	patient := append(slices.Clone(hurried), "BUDGET_DECISION_CALL=1800ms")
	before := w.start(program, patient...)
	before.log.await(t, before.exited, "schema is newer than this release")
	today := w.start(plain, patient...)

	for name, pair := range map[string][2]*replica{"before": {before, today}, "today": {today, before}} {
		first, other := pair[0], pair[1]
		debit := first.mustDebit("key-of-the-debit-"+name, "ANNA")
		if debit.status != http.StatusCreated {
			t.Fatalf("%s: %d %s", name, debit.status, debit.body)
		}
		replay := other.mustDebit("key-of-the-debit-"+name, "ANNA")
		if replay.body != debit.body || replay.status != debit.status || replay.header.Get("Idempotency-Replayed") != "true" {
			t.Errorf("%s: decided %d %s, replayed by the other %d %s", name, debit.status, debit.body, replay.status, replay.body)
		}
		credit := first.mustPost("/credits", "key-of-the-credit-"+name,
			fmt.Sprintf(`{"account": "ANNA", "amount": 500, "currency": "EUR", "debitId": %q}`, debit.member("id")), http.StatusAccepted)
		hold := first.mustPost("/holds", "key-of-the-hold-"+name, `{"account": "ANNA", "amount": 1000, "currency": "EUR"}`, http.StatusCreated)
		capture := other.mustPost("/holds/"+hold.member("id")+"/capture", "key-of-the-capture-"+name, `{"amount": 400}`, http.StatusAccepted)
		for _, accepted := range []reply{credit, capture} {
			if end := other.awaitEnd(accepted.member("id")); end.member("status") != "SUCCEEDED" {
				t.Errorf("%s: a follow-up ended %s", name, end.body)
			}
		}
		// Applied behind a gateway that says otherwise: declined, and given back.
		if declined := first.mustDebit("key-of-the-decline-"+name, "GATEWAY-ANNA"); declined.status != http.StatusFailedDependency {
			t.Errorf("%s: behind the gateway: %d %s", name, declined.status, declined.body)
		}
	}
	w.awaitRow(`SELECT count(*) FROM operations WHERE kind = 'reversal' AND state = 'SUCCEEDED'`, 2)

	end := func(r *replica) {
		t.Helper()
		r.signal(syscall.SIGTERM)
		r.awaitExit()
		if code := exitCode(r.waitErr); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	end(before)
	again := w.start(program, patient...) // a crash, a node that is drained, or a rollback
	if replay := again.mustDebit("key-of-the-debit-today", "ANNA"); replay.status != http.StatusCreated {
		t.Errorf("after a restart: %d %s", replay.status, replay.body)
	}
	end(again)
	end(today)
}

// A release that the schema says cannot run on it must not decide a single payment
// there, and must say which of the two has to move.
func TestServeRefusesASchemaFromTheFuture(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]string{
		"says nothing":            ``,
		"runs later programs":     `INSERT INTO schema_compatibility VALUES (99999, 99998)`,
		"is not what it once was": `DROP TABLE schema_compatibility`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.execute(`INSERT INTO goose_db_version (version_id, is_applied) VALUES (99999, true); ` + runs)
			r := w.launch(plain)
			r.awaitExit()
			if code := exitCode(r.waitErr); code != 1 {
				t.Errorf("exit code %d, want 1", code)
			}
			for _, part := range []string{"too new for this program", "99999"} {
				if !strings.Contains(r.log.String(), part) {
					t.Errorf("it does not say %q:\n%s", part, r.log)
				}
			}
			if strings.Contains(r.log.String(), `"msg":"ready"`) {
				t.Error("it let tills in")
			}
		})
	}
}

// needHistory skips the test in a copy of the sources without history: it cannot show what
// this is about.
func needHistory(t *testing.T) {
	t.Helper()
	if err := exec.Command("git", "rev-parse", "--git-dir").Run(); err != nil {
		t.Skip("these sources have no history, so there is no release before")
	}
}

// buildRelease builds the program from the repository's history. A clone that lacks the
// commit was made too shallow, which is a fault.
func buildRelease(t *testing.T, commit string) string {
	t.Helper()
	needHistory(t)
	program, err := buildCommit(t.TempDir(), commit)
	if err != nil {
		t.Fatalf("build the release of %s: %v (a clone needs its whole history: git fetch --unshallow)", commit, err)
	}
	return program
}

// buildCommit builds the program as it was at commit, below dir.
func buildCommit(dir, commit string) (string, error) {
	archive := exec.Command("git", "-C", "../..", "archive", "--format=tar", commit)
	var complaint bytes.Buffer
	archive.Stderr = &complaint
	out, err := archive.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, complaint.String())
	}
	sources := filepath.Join(dir, "sources")
	if err := unpack(bytes.NewReader(out), sources); err != nil {
		return "", err
	}
	program := filepath.Join(dir, "safeledger")
	build := exec.Command("go", "build", "-o", program, "./cmd/safeledger")
	build.Dir = sources
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
}

// unpack writes the files of an archive below dir.
func unpack(r io.Reader, dir string) error {
	archive := tar.NewReader(r)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(archive); err == nil {
				err = os.WriteFile(path, content, header.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			return err
		}
	}
}

// execute changes the ledger behind everybody's back.
func (w *world) execute(sql string) {
	w.t.Helper()
	conn, err := pgx.Connect(w.t.Context(), w.databaseURL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close(w.t.Context())
	if _, err := conn.Exec(w.t.Context(), sql); err != nil {
		w.t.Fatalf("%s: %v", sql, err)
	}
}
