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
		{page: "test/check/README.md", first: "go run ./test/check", by: "TestTheExitCodeTellsWhatWasFound", why: "it needs a run to judge, and each torture gives it one"},
		{page: "test/schedules/README.md", first: "make schedules    ", instead: "make schedules N=20 SEED=1", why: "CI makes 10,000", says: []string{"20"}},
		{page: "test/schedules/README.md", first: "make schedules N=100000", instead: "make --dry-run schedules N=100000", why: "it is for a night", says: []string{"100000"}},
		{page: "test/schedules/README.md", first: "make schedules N=1 SEED=658477"},
		{page: "test/torture/README.md", first: "make torture    ", instead: "make --dry-run torture", why: "it is a stage of CI", says: []string{"--decisions 4000"}},
		{page: "test/torture/README.md", first: "make torture DECISIONS=100000 SEED=7", instead: "make --dry-run torture DECISIONS=100000 SEED=7", why: "it is the stage of CI with other numbers", says: []string{"--seed 7", "--decisions 100000"}},
		{
			page: "test/torture/README.md", first: "make torture DECISIONS=1600000", why: "it takes hours; with no payment to make, it reads its options and ends",
			instead: "go run ./test/torture run --seed 100 --decisions 0 --tills 256 --pace 0.5 --round 100000 --min 0 --min-process 0", says: []string{"0 violations"},
		},
		{page: "test/torture/README.md", first: "make torture DECISIONS=20000 SEED=300", instead: "go run ./test/torture run --decisions 0 --lossy --min 0 --min-process 0", why: "as above", says: []string{"lagging-promoted"}},
		{
			page: "test/torture/README.md", first: "make torture DECISIONS=20000 SEED=400", why: "as above",
			instead: "go run ./test/torture run --decisions 0 --lossy --postgres standby-promoted,lagging-promoted --min 0 --min-process 0", says: []string{"lagging-promoted"},
		},
		{
			page: "test/torture/README.md", first: "make torture DECISIONS=20000 SEED=500", why: "as above",
			instead: "go run ./test/torture run --decisions 0 --process kill,kill-again --postgres backend-kill,immediate-stop --min 0 --min-process 0", says: []string{"kill-again"},
		},
		{page: "test/torture/README.md", first: "make torture-sum", instead: "go run ./test/torture sum --folder test/torture/results", why: "there need be no runs of this tree", says: []string{"| began |"}},
		{page: "deploy/prometheus/README.md", first: "promtool check rules", by: "TestTheCasesNoticeASpoiltRule", why: "make verify-rules, which brings promtool"},
		{page: "deploy/prometheus/README.md", first: "promtool test rules", by: "TestTheCasesNoticeASpoiltRule", why: "as above"},
		{page: "deploy/schemas/README.md", first: "make schemas", instead: "make --dry-run schemas", why: "it fetches Kubernetes' sources, and changes the tree", says: []string{"./schemas"}},
		{page: "deploy/README.md", first: "make image VERSION=dev", by: "TestTheSameSourcesMakeTheSameImages"},
		{page: "deploy/README.md", first: "kind load image-archive", by: "TestAnImageHoldsOneProgramAndNothingElse", why: "there is no cluster here: the archives are unpacked and run"},
		{page: "deploy/README.md", first: "skopeo copy", by: "TestAnImageHoldsOneProgramAndNothingElse", why: "there is no registry here: as above"},
		{page: "deploy/README.md", first: "cd deploy/overlays/production && kustomize edit set image", by: "TestTheOverlaysKeepTheRules", why: "it changes the tree: what it writes is rendered"},
		{page: "deploy/README.md", first: "kubectl apply -k deploy/overlays/dev", by: "TestTheOverlaysRunAsTheyAreWritten", why: "there is no cluster here: the overlays are started from their images"},
		{page: "deploy/README.md", first: "kubectl -n safeledger-dev rollout status", by: "TestTheReadmeNamesWhatThereIs", why: "there is no cluster here: what is named is looked for in the overlays"},
		{page: "deploy/README.md", first: "kubectl -n safeledger-dev port-forward", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "deploy/README.md", first: "curl -sS http://127.0.0.1:8080/debits", by: "TestTheOverlaysRunAsTheyAreWritten", why: "it sends the same request"},
		{page: "deploy/README.md", first: "kubectl apply -f deploy/overlays/production/namespace.yaml", by: "TestTheOverlaysKeepTheRules", why: "there is no cluster here"},
		{page: "deploy/README.md", first: "kubectl -n safeledger create secret generic safeledger-database", by: "TestTheReadmeNamesWhatThereIs", why: "there is no cluster here: what is named is looked for in the overlays"},
		{page: "deploy/README.md", first: "kubectl -n safeledger create secret generic safeledger-migration", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "deploy/README.md", first: "kubectl -n safeledger create secret generic safeledger-callers", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "deploy/README.md", first: "kubectl -n safeledger create secret generic safeledger-wallet", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "deploy/README.md", first: "kubectl -n safeledger delete job/safeledger-migration", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "deploy/README.md", first: "kubectl apply -k deploy/overlays/production -l", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "deploy/README.md", first: "kubectl -n safeledger wait", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "deploy/README.md", first: "kubectl apply -k deploy/overlays/production", by: "TestTheOverlaysRunAsTheyAreWritten", why: "there is no cluster here: the overlays are started from their images"},
		{page: "deploy/README.md", first: "kubectl -n safeledger rollout status deployment/safeledger", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "deploy/README.md", first: "kubectl -n safeledger rollout status deployment/safeledger-worker", by: "TestTheReadmeNamesWhatThereIs", why: "as above"},
		{page: "docs/integrating.md", first: "BASE=${BASE:-", by: "TestTheDocumentsShellRunsAsItSays"},
		{page: "docs/integrating.md", first: `body='{"account": "ALICE", "amount": 980`, by: "TestTheDocumentsShellRunsAsItSays"},
		{page: "docs/integrating.md", first: "ask POST /payments/by-key/debit/receipt-4720/cancel", by: "TestTheDocumentsShellRunsAsItSays"},
		{page: "docs/integrating.md", first: "debit receipt-4730", by: "TestTheDocumentsShellRunsAsItSays"},
		{page: "docs/integrating.md", first: "ask POST /holds", by: "TestTheDocumentsShellRunsAsItSays"},
	}},
}
