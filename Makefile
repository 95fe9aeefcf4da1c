# The commands of this repository. `make` alone lists them.

MODULES  := . ./boltstore ./cmd/once ./telemetry/otel ./examples/charge-lambda ./examples/order-queue
PACKAGES := $(MODULES:%=%/...)
BIN      := .cache/bin

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: run
run: ## Start the example on 127.0.0.1:8080 (PORT, DATA, PROFILE)
	@go build -o $(BIN)/charge-local ./examples/charge-lambda/cmd/local
	@exec $(BIN)/charge-local

.PHONY: demo
demo: ## Kill an order at every step, and see what is left (Java)
	@go build -o $(BIN)/charge-demo ./examples/charge-lambda/cmd/demo
	@exec $(BIN)/charge-demo localstack/dynamodb-local

.PHONY: test beside-e2e
test: ## Everything: lint, unit, fuzzing, engines, deployment, cost
	@$(MAKE) --no-print-directory lint test-unit cover
	@$(MAKE) --no-print-directory -j2 --output-sync e2e beside-e2e
	@$(MAKE) --no-print-directory test-integration test-cost
# End to end there is more to wait for than to compute: for time-outs, leases and the schedule.
beside-e2e:
	@nice $(MAKE) --no-print-directory test-fuzz
	@$(MAKE) --no-print-directory test-localstack

.PHONY: check build
check: lint ## Before a commit: lint and unit tests, without the race detector
	go test $(PACKAGES)
build: ## Compile every package (GOARCH: for which processor)
	go build $(PACKAGES) ./infra/...

.PHONY: test-unit
test-unit: ## Race tests; infra and the explorer without the detector
	go test -race $(PACKAGES)
	go test ./infra/... ./tests/model/explore
	cd tools && GOWORK=off go test ./...

.PHONY: fuzz test-fuzz
FUZZED := $(PACKAGES) ./tests/syntax
FUZZTIME ?= 60s
fuzz test-fuzz: $(BIN)/fuzz
fuzz: ## Every fuzz target in turn (FUZZTIME: for how long)
	@$(BIN)/fuzz -time $(FUZZTIME) $(FUZZED)
test-fuzz: ## Every fuzz target for 5 s
	@$(BIN)/fuzz -time 5s $(FUZZED)

.PHONY: mutate
mutate: $(BIN)/mutate ## Break the protocol by clauses; tests must notice (ARGS)
	@$(BIN)/mutate -root . $(ARGS)

$(BIN)/fuzz $(BIN)/mutate: $(BIN)/%: $(wildcard tools/fuzz/*.go tools/mutate/*.go) tools/go.mod
	@cd tools && GOWORK=off go build -o ../$@ ./$*

.PHONY: chaos
CHAOS_TIME ?= 60s
CHAOS_SEED ?= 0
chaos: ## Kill and stop everything at random (CHAOS_TIME, CHAOS_SEED)
	go test -count=1 -v -run '^TestChaos' -timeout 2h ./tests/chaos -chaos $(CHAOS_TIME) -chaos-seed $(CHAOS_SEED)

.PHONY: model model-mutants
model: ## Model-check the protocol with TLC (ARGS: configurations)
	@docs/model/check $(ARGS)
model-mutants: ## Break the model by clauses; TLC must notice (ARGS)
	@docs/model/mutants $(ARGS)

.PHONY: test-integration
test-integration: ## Tests on DynamoDB Local and LocalStack, and end to end
	@endpoint=$$(localstack/up) && trap localstack/down EXIT && \
	LOCALSTACK_ENDPOINT=$$endpoint go test -race -count=1 -timeout 15m $$(go list ./tests/... | grep -v -e /tests/deploy -e /tests/coldstart -e /model/explore)

.PHONY: e2e
e2e: ## Deploy the stack to LocalStack with the CDK, and try it
	go test -count=1 -timeout 25m ./tests/deploy

.PHONY: test-cost
test-cost: ## Limits of time, sizes and cold starts
	go test -count=1 -run '^TestLimits$$' ./lambdahttp
	go test -count=1 ./tests/bench
	go test -count=1 ./tests/coldstart

.PHONY: test-localstack
test-localstack: ## Tests of the scripts that start LocalStack
	localstack/test

.PHONY: lint
SOURCES = git ls-files --cached --others --exclude-standard
lint: $(BIN)/lint $(BIN)/misspell ## gofmt, go vet, staticcheck, exhaustive, errorlint and more
	@unformatted=$$(gofmt -l $$($(SOURCES) '*.go')) && \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	@$(BIN)/misspell -error $$($(SOURCES))
	go vet -vettool=$(CURDIR)/$(BIN)/lint $(PACKAGES) ./infra/... ./tests/...
	@cd tools && GOWORK=off go vet -vettool=$(CURDIR)/$(BIN)/lint ./...

$(BIN)/lint: $(wildcard tools/lint/*.go) tools/go.mod tools/go.sum
	cd tools && GOWORK=off go build -o ../$@ ./lint
$(BIN)/misspell: tools/go.mod tools/go.sum
	cd tools && GOWORK=off go build -o ../$@ github.com/golangci/misspell/cmd/misspell

.PHONY: fmt
fmt: ## Format the Go code
	gofmt -w $$($(SOURCES) '*.go')

.PHONY: cover
cover: ## Statement coverage of the core; fails below 95 %
	@mkdir -p .cache && go test -coverprofile=.cache/cover.out ./idempotent >/dev/null
	@go tool cover -func=.cache/cover.out | awk '/^total:/ { print "idempotent: " $$3; if ($$3 + 0 < 95) exit 1 }'

.PHONY: bench
BENCH_COUNT ?= 6
bench: ## Comparisons on stderr, then benchmarks (BENCH_COUNT)
	@go test -count=1 -v ./tests/bench >&2
	@go test -run '^$$' -bench . -benchmem -count $(BENCH_COUNT) $(PACKAGES) ./tests/bench

.PHONY: bundles deploy destroy
bundles: ## Build the functions for arm64 and x86_64; say their sizes
	@cd infra && go run ./cmd/bundle
deploy: ## Deploy the stack to your AWS account (PROVIDER_URL, ARGS)
	@infra/deploy deploy $(ARGS)
destroy: ## Destroy it; its tables stay (ARGS)
	@infra/deploy destroy $(ARGS)

.PHONY: fetch up down
fetch: ## Download LocalStack, DynamoDB Local and the CDK, as locked
	@localstack/up --install-only
	@infra/install-cdk >/dev/null
up: ## Start LocalStack and print its address
	@localstack/up
down: ## Stop LocalStack
	@localstack/down

.PHONY: clean
clean: ## Stop LocalStack; remove what was downloaded or built
	@localstack/down
	rm -rf .cache bin
