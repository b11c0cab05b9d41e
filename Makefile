# SafeLedger. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Tools are pinned in a module of their own, so that they never meet the dependencies of the program.
TOOL := go tool -modfile=tools/go.mod
# Our own folders: what is generated or private to a running stack is not ours to check.
GO_FOLDERS := api client cmd internal migrations test
GENERATED := '*.gen.go' docs/configuration.md docs/metrics.md

# Every stage has a limit, so that a hang is a failure that says where (macOS has no timeout by default).
limited = $(if $(shell command -v timeout),timeout --kill-after=10s $(1))

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -X main.version=$(VERSION)

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
test-topologies: require-postgres ## payments through real nginx, HAProxy and pgbouncer, as they come and with their retries on
	@tools/require topologies
	@$(call limited,15m) go test -tags topologies -timeout 12m -parallel 4 -run 'TestAProxy|TestAGateBehind|TestPgbouncer' ./test/e2e

.PHONY: check
check: check-format check-vet check-staticcheck check-generated test ## what CI runs: everything that must hold before a commit

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
	@$(call limited,5m) go vet -tags crashpoints,topologies ./cmd/... ./internal/crashpoint/... ./test/e2e/...

.PHONY: check-staticcheck
check-staticcheck:
	@$(call limited,10m) $(TOOL) staticcheck ./...

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

.PHONY: bench
bench: require-postgres ## decisions per second and allocations, in memory and on PostgreSQL
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

.PHONY: clean
clean: ## remove what was built and the data of `make run`
	@rm -rf bin .safeledger

# What a fresh machine may lack. Both say exactly what to install where they may not do it themselves.
.PHONY: require-postgres
require-postgres:
	@tools/require postgres

.PHONY: require-cc
require-cc:
	@tools/require cc
