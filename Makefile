# SafeLedger. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tools are pinned in a module of their own, so that they never meet the dependencies of the program.
TOOL := go tool -modfile=tools/go.mod
# Our own folders: what is generated or private to a running stack is not ours to check.
GO_FOLDERS := api bench client cmd deploy internal migrations test tools
GENERATED := '*.gen.go' docs/configuration.md docs/metrics.md deploy/grafana/safeledger.json deploy/prometheus/prometheusrule.yaml

# Every stage has a limit, so that a hang is a failure that says where (macOS has no timeout by default).
limited = $(if $(shell command -v timeout),timeout --kill-after=10s $(1))

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
COMMIT ?= $(shell git rev-parse HEAD 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION) -X main.revision=$(COMMIT)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1|/' | column -t -s '|'

.PHONY: run
run: require-postgres build ## everything up on embedded defaults, one payment decided; stays until Ctrl-C
	@exec bin/safeledger dev

.PHONY: build
build: ## bin/safeledger and bin/walletsim
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/safeledger ./cmd/walletsim

.PHONY: test
test: require-postgres require-cc ## all tests: unit, fake time, real PostgreSQL, real processes
	@$(call limited,30m) go test -race -shuffle=on -timeout 15m ./...

.PHONY: test-topologies
test-topologies: require-postgres ## payments through real nginx, HAProxy and pgbouncer, as they come and with their retries on; replicas rolled behind nginx
	@tools/require topologies
	@$(call limited,15m) go test -tags topologies -timeout 12m -parallel 4 -run 'TestAProxy|TestAGateBehind|TestPgbouncer' ./test/e2e
	@$(call limited,10m) go test -count=1 -tags topologies -timeout 8m -v -run '^TestARolloutLosesNoAnswer$$' ./test/deploy

.PHONY: verify-rules
verify-rules: require-postgres ## rules, dashboard and playbooks: promtool's cases, and every query put to a real Prometheus
	@tools/require prometheus
	@$(call limited,15m) go test -count=1 -tags prometheus -timeout 10m ./test/rules
	@$(call limited,10m) go test -count=1 -tags prometheus -timeout 8m -run '^TestEveryQueryIsAboutWhatIsServed$$' ./test/e2e

.PHONY: verify-alerts
verify-alerts: require-postgres ## each alert under its fault, in a real Prometheus (some two minutes)
	@tools/require prometheus
	@$(call limited,20m) go test -count=1 -v -tags prometheus -timeout 15m -parallel 6 -run '^TestEachAlertFiresWhereItShould$$' ./test/e2e
# TORTURE are more options, see `go run ./test/torture run --help`: make torture TORTURE='--tills 256 --min 1000'.
.PHONY: torture
torture: require-postgres ## real processes under faults of more than a hundred kinds, judged by the checker; DECISIONS= and SEED= make it long
	@go build -trimpath -o bin/ ./test/torture
	@exec bin/torture run --seed $(or $(SEED),1) $(if $(DECISIONS),--decisions $(DECISIONS),--decisions 4000 --floor 75s --pace 0.6) $(TORTURE)

.PHONY: torture-sum
torture-sum: ## add up the summaries of torture's runs, as the Markdown of docs/verification.md
	@go run ./test/torture sum

.PHONY: outage
outage: require-postgres ## ten minutes without a wallet that takes credits, five thousand of them waiting: half an hour at most
	@go test -count=1 -v -timeout 40m -run '^TestAnOutageIsNotMadeWorseAndTheBacklogDrains$$' ./test/e2e -args -outage 10m -waiting 5000

.PHONY: check
check: check-format check-vet check-staticcheck check-generated test ## what must hold before a commit; CI runs this and more (.ci/run)

.PHONY: check-format
check-format:
	@unformatted="$$($(call limited,5m) $(TOOL) gofumpt -l $(wildcard $(GO_FOLDERS)))"; \
	if [ -n "$$unformatted" ]; then echo "not formatted (make format):"; echo "$$unformatted"; exit 1; fi

.PHONY: format
format: ## format the Go code
	@$(TOOL) gofumpt -w $(wildcard $(GO_FOLDERS))

.PHONY: check-vet
check-vet:
	@$(call limited,10m) go vet ./...
	@$(call limited,5m) go vet -tags crashpoints,profile,topologies,prometheus ./cmd/... ./internal/crashpoint/... ./test/...
	@$(call limited,5m) go vet -C tools/deploy ./...
	@$(call limited,5m) go vet -C tools/promql ./...

.PHONY: check-staticcheck
check-staticcheck:
	@$(call limited,10m) $(TOOL) staticcheck ./...
	@cd tools/deploy && $(call limited,10m) go tool -modfile=../go.mod staticcheck ./...

.PHONY: generate
generate: ## regenerate what is generated: types from api/openapi.yaml, tables in docs/
	@go generate ./...

# Generated code is committed; running its generator again must change nothing. Compared with what lies
# here, not with HEAD, so that it can be run before a commit.
.PHONY: check-generated
check-generated:
	@before="$$(git ls-files -z -- $(GENERATED) | xargs -0 sha256sum)"; \
	$(call limited,5m) go generate ./...; \
	after="$$(git ls-files -z -- $(GENERATED) | xargs -0 sha256sum)"; \
	if [ "$$before" != "$$after" ]; then \
	  echo "generated code was not up to date; make generate has just rewritten it:"; \
	  diff <(echo "$$before") <(echo "$$after"); exit 1; \
	fi

# The images' time is the commit's: the same commit is the same image.
ARCH ?= $(shell go env GOARCH)
.PHONY: image
image: ## the images without a container engine, reproducible: bin/image/safeledger.tar and walletsim.tar (ARCH=arm64 …)
	@$(call limited,10m) go run -C tools/deploy ./image -root '$(CURDIR)' -out '$(CURDIR)/bin/image' -arch '$(ARCH)' \
	  -version '$(VERSION)' -revision '$(COMMIT)' -epoch "$$(git log -1 --format=%ct 2>/dev/null || echo 0)"

.PHONY: verify-deploy
verify-deploy: require-postgres ## the manifests against Kubernetes' schemas, our rules and the images that they run
	@$(call limited,10m) go test -count=1 -timeout 8m ./test/deploy

.PHONY: schemas
schemas: ## make deploy/schemas anew (fetches Kubernetes' sources)
	@go run -C tools/deploy ./schemas -out '$(CURDIR)/deploy/schemas'

# BENCH are more options, see `go run ./bench --help`: make bench BENCH='--phases rates --tills 256'.
.PHONY: bench
bench: require-postgres ## SafeLedger against itself without grouping, without a database, and a bare server: ten minutes; FULL=1 an hour
	@go build -trimpath -o bin/ ./bench
	@exec bin/bench run $(if $(FULL),--full --docs) $(BENCH)

# What it writes is committed: the compiler optimises every build of SafeLedger by it.
.PHONY: profile
profile: require-postgres ## take anew the profile that the compiler optimises by, from 256 tills
	@go run ./bench profile

# MUTANT is one defect by its name, FRESH=1 tries also what has been tried. What was tried is kept in .mutants.
.PHONY: mutants
mutants: require-postgres ## whether the tests find deliberate defects of the code, one by one: half an hour
	@go run ./test/mutants $(if $(FRESH),--fresh) $(if $(MUTANT),"$(MUTANT)")

.PHONY: microbench
microbench: require-postgres ## decisions per second and allocations of the Go benchmarks, in memory and on PostgreSQL
	@go test -run '^$$' -bench . -benchmem ./test/... ./internal/ledger/...

.PHONY: fuzz
fuzz: ## fuzz the decoder, the headers and the wallet answers, FUZZTIME each (30s)
	@tools/fuzz $(or $(FUZZTIME),30s)

.PHONY: schedules
schedules: ## random interleavings of everything under fake time: N of them (10000), from SEED (another one each time)
	@go test -c -o bin/schedules.test ./test/schedules
	@cd test/schedules && ../../bin/schedules.test -schedules $(or $(N),10000) -seed $(or $(SEED),0)

.PHONY: lint
lint: ## golangci-lint, pinned in tools/lint (its first build takes minutes)
	@go tool -modfile=tools/lint/go.mod golangci-lint run ./...

# See SECURITY.md for what is let through, and for how long.
.PHONY: vulncheck
vulncheck: ## hold what is shipped to the pinned Go vulnerability database
	@cd tools/vulncheck && $(call limited,5m) go vet . && $(call limited,5m) go test . && $(call limited,10m) go run .

# Where the module proxy has no newer copy, or is away, the one that is pinned stays.
.PHONY: update-vulndb
update-vulndb: ## pin the newest vulnerability database
	@cd tools/vulncheck && $(call limited,5m) go get golang.org/x/vulndb@latest

.PHONY: clean
clean: ## remove what was built and the data of `make run`
	@rm -rf bin .safeledger .torture

# What a fresh machine may lack. Both say exactly what to install where they may not do it themselves.
.PHONY: require-postgres
require-postgres:
	@tools/require postgres

.PHONY: require-cc
require-cc:
	@tools/require cc
