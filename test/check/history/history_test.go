package history_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/safeledger/safeledger/test/check/history"
)

// A request that was sent and is not in the log is one that the checker takes for a
// ghost's: the line must be there before Send returns, whole, however many tills write.
func TestACallIsNotedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tills.jsonl")
	if err := os.WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, err := history.Open(path, "run-7", "tills of the test")
	if err != nil {
		t.Fatal(err)
	}
	const tills, each = 8, 50
	var all sync.WaitGroup
	for till := range tills {
		all.Go(func() {
			for i := range each {
				key := fmt.Sprintf("key-%d-%d", till, i)
				call, err := log.Send(history.Request{Till: fmt.Sprint(till), Method: http.MethodPost, Path: "/debits", Key: key, Sent: `{"a": "<&>"}`})
				if err != nil {
					t.Error(err)
				}
				if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), `"`+key+`"`) {
					t.Errorf("%s may be sent now and is not in the file (%v)", key, err)
				}
				if i%2 == 0 {
					err = call.Answered(time.Now(), history.AnswerOf(503, http.Header{"Retry-After": {"1"}, "Idempotency-Replayed": {"true"}, "Location": {"/x"}}, []byte(key)))
				} else {
					err = call.Failed(time.Now(), history.Failure{How: "timeout", Error: key})
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	calm, err := log.Disturb("postgres")
	if err != nil {
		t.Fatal(err)
	}
	if err := calm(); err != nil {
		t.Error(err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}

	lines := read(t, path)[1:]
	if first := lines[0]; first.Event != history.Opened || first.Run != "run-7" || first.Source != "tills of the test" {
		t.Errorf("it begins with %+v", first)
	}
	sent := map[int64]history.Line{}
	for _, l := range lines[1 : len(lines)-2] {
		switch l.Event {
		case history.Sent:
			sent[l.Call] = l
		case history.Answered, history.Failed:
			was := sent[l.Call]
			if l.Got+l.Error != was.Key || was.Sent != `{"a": "<&>"}` || l.At.Before(was.At) {
				t.Errorf("call %d was sent as %+v and ended as %+v", l.Call, was, l)
			}
			delete(sent, l.Call)
			if l.Event == history.Answered {
				want := history.Answer{Status: 503, RetryAfter: "1", Replayed: "true", Location: "/x", Got: was.Key}
				if diff := cmp.Diff(want, l.Answer); diff != "" {
					t.Errorf("the answer (-want +got):\n%s", diff)
				}
			}
		}
	}
	if len(lines) != 1+2*tills*each+2 || len(sent) != 0 {
		t.Errorf("%d lines, %d calls without an end", len(lines), len(sent))
	}
	disturbed, calmed := lines[len(lines)-2], lines[len(lines)-1]
	if disturbed.Event != history.Disturbed || disturbed.What != "postgres" || calmed.Event != history.Calmed || calmed.Call != disturbed.Call {
		t.Errorf("the disturbance is told as %+v and %+v", disturbed, calmed)
	}
}

// Load that is not noted is load that nobody checks: a log that cannot be written must
// say so before the request is sent.
func TestALogThatCannotBeWrittenSaysSo(t *testing.T) {
	t.Parallel()
	if _, err := history.Open(t.TempDir(), "run", "test"); err == nil {
		t.Error("a folder was taken for a log")
	}
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no file here that is always full:", err)
	}
	if _, err := history.Open("/dev/full", "run", "test"); err == nil {
		t.Error("a full disk was taken for a log")
	}
	log, err := history.Open(filepath.Join(t.TempDir(), "tills.jsonl"), "run", "test")
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if _, err := log.Send(history.Request{}); err == nil {
		t.Error("a closed log took a call")
	}
}

func read(t *testing.T, path string) (lines []history.Line) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for scan := bufio.NewScanner(file); scan.Scan(); {
		var l history.Line
		if err := json.Unmarshal(scan.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", scan.Text(), err)
		}
		lines = append(lines, l)
	}
	return lines
}
