package docs

// unit is one command of a page: how it is run here. What has no row fails the test, and
// so does a row without its command.
type unit struct {
	page  string // from the root
	first string // its first line, up to where it is told apart
	// instead is run in its place where it is too long, or would change the tree: with
	// small parameters, or as far as it can be tried here.
	instead string
	// replace are pairs of what is replaced in it: an address, an id of the page's story.
	replace []string
	// before is run before it: what the page tells in words.
	before string
	// by is the test that runs it elsewhere.
	by string
	// why says why it is run as it is run, wherever it is not run as it stands.
	why string
	// says are words that its output must hold, in this order, beside those that the
	// page promises behind "# →".
	says []string
}

// session is run by one shell, in one folder, in this order.
type session struct {
	name  string
	units []unit
	// failing is set where commands may fail because that is what they show.
	failing bool
}

const story = "01a229b1-e8e5-77d2-838e-96be82432c83" // what is parked in docs/operators.md

var sessions = []session{
	{name: "stack", units: []unit{ // beside what `make run` starts
		{page: "README.md", first: "make run", instead: "echo", why: "the test has started it: make build, then bin/safeledger dev"},
		{page: "README.md", first: "make run     #", instead: "echo", why: "as above"},
		{page: "README.md", first: ". .safeledger/env"},
		{page: "README.md", first: `curl -sS "$WALLET/control/rules"`},
		{page: "README.md", first: `curl -sS -X DELETE "$WALLET/control/rules"`},
		{page: "README.md", first: `till "slow-$(date +%s)"`, says: []string{"424", "WALLET_TIMEOUT"}},
		{
			page: "docs/operators.md", first: `safeledger ops find --reference "receipt 4712"`, says: []string{"DECLINED", "WALLET_TIMEOUT"},
			before: `till receipt-4712 '{"account": "BLIND-CAROL", "amount": 1250, "currency": "EUR", "reference": "receipt 4712"}'
				until safeledger ops parked | grep NO_EVIDENCE; do sleep 0.5; done
				story=$(safeledger ops --json parked | sed 's/.*"id":"\([^"]*\)","kind":"reversal".*/\1/')`,
		},
		{page: "docs/operators.md", first: "safeledger ops parked", says: []string{"reversal", "NO_EVIDENCE"}},
		{page: "docs/operators.md", first: "safeledger ops redrive", replace: []string{story, `"$story"`}, says: []string{"PENDING"}},
		{
			page: "docs/operators.md", first: "safeledger ops settle", replace: []string{story, `"$story"`, "safeledger", "until safeledger", `4711"`, `4711"; do sleep 0.1; done`},
			why: "it is refused while an attempt is out, and the redrive has just begun one", says: []string{"SUCCEEDED"},
		},
		{page: "docs/operators.md", first: "safeledger ops timeline", replace: []string{story, `"$story"`}, says: []string{"redrive by maria", "settle-applied by maria"}},
		{page: "docs/operations.md", first: `psql "$SAFELEDGER_DATABASE_URL" -c`},
		{page: "docs/operations.md", first: "since=$(date -u"},
		{page: "docs/operations.md", first: "new=$(head -c 32 /dev/urandom"},
	}},
	{name: "wallet", failing: true, units: []unit{ // beside a simulated wallet of its own
		{page: "docs/walletsim.md", first: "go run ./cmd/walletsim --open-accounts", instead: "echo", why: "the test has started it, at a free port"},
		{
			page: "docs/walletsim.md", first: "debit() {", replace: []string{"http://127.0.0.1:8090", "$WALLET", "--max-time 10", "--max-time 2"},
			why: "who hangs need not hang for ten seconds", says: []string{"APPLIED", "NOT_FOUND", "INSUFFICIENT_FUNDS"},
		},
		{
			page: "docs/walletsim.md", first: "# About a third of the answers to debits are lost", replace: []string{"http://127.0.0.1:8090", "$WALLET"},
			says: []string{`"id":1`, `"id":2`, `"id":3`},
		},
	}},
	{name: "apart", units: []unit{ // in the root of the tree, without changing it
		{page: "README.md", first: "make test", instead: "make --dry-run test", why: "it is what runs this test", says: []string{"go test -race"}},
		{page: "test/model/README.md", first: "go test ./test/model -v -run Seeded", instead: "go test ./test/model -list Seeded", why: "make test runs them", says: []string{"Seeded"}},
		{page: "test/model/README.md", first: "go test ./test/model -v -run WhatIsLeft", instead: "go test ./test/model -list WhatIsLeft", why: "make test runs them", says: []string{"WhatIsLeft"}},
		{page: "test/model/README.md", first: "go test ./test/model -run Document -update", instead: "go test ./test/model -list Document", why: "it writes the page", says: []string{"Document"}},
		{page: "docs/integrating.md", first: "BASE=${BASE:-", by: "TestTheDocumentsShellRunsAsItSays"},
		{page: "docs/integrating.md", first: `body='{"account": "ALICE", "amount": 980`, by: "TestTheDocumentsShellRunsAsItSays"},
		{page: "docs/integrating.md", first: "ask POST /payments/by-key/debit/receipt-4720/cancel", by: "TestTheDocumentsShellRunsAsItSays"},
		{page: "docs/integrating.md", first: "debit receipt-4730", by: "TestTheDocumentsShellRunsAsItSays"},
		{page: "docs/integrating.md", first: "ask POST /holds", by: "TestTheDocumentsShellRunsAsItSays"},
	}},
}
