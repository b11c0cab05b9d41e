package ledger_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/safeledger/safeledger/internal/pgtest"
)

// What a playbook has people ask PostgreSQL is asked in the middle of an incident: it
// must be right for this schema, and must not be able to change anything.
func TestPlaybooksReadTheLedgerAsItIs(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t).Connect(t)
	playbooks, err := filepath.Glob("../../docs/playbooks/*.md")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, path := range playbooks {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindAllStringSubmatch(string(content), -1) {
			tx, err := conn.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
			if err != nil {
				t.Fatal(err)
			}
			for sql := range strings.SplitSeq(strings.TrimSpace(block[1]), "\n\n") {
				asked++
				if !strings.HasPrefix(sql, "SELECT ") || !strings.HasSuffix(sql, ";") {
					t.Errorf("%s: not one statement that reads:\n%s", filepath.Base(path), sql)
				}
				if _, err := tx.Exec(t.Context(), strings.TrimSuffix(sql, ";")); err != nil {
					t.Errorf("%s: %v\n%s", filepath.Base(path), err, sql)
					break
				}
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if asked < 8 {
		t.Errorf("found only %d statements", asked)
	}
}
