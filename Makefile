# The commands of this repository. `make` alone lists them.

MODULES  := . ./boltstore ./cmd/once ./idempotencyclient ./lambdadurable ./oncevet ./playground ./playground/provider ./telemetry/otelonce ./examples/charge-lambda ./examples/kmsseal ./examples/order-queue ./examples/redisstore
PACKAGES := $(MODULES:%=%/...)
STACK    := examples/charge-lambda/stack
CDK      := ./infra/... ./$(STACK)/...
BIN      := .cache/bin

# -trimpath as the functions are built, so that each package is compiled once for both. The limit ends only what hangs: a
# busy machine needs ten times as long. The race detector needs cgo.
export GOFLAGS     := -trimpath -timeout=60m
export CGO_ENABLED := 0
RACE := CGO_ENABLED=1 go test -race
# A fresh clone spends half of its time in compilers, which take a seventh less with fewer garbage collections.
test-cost bench bench-peers: export GOGC := 100
test lint check: export GOGC := 400
UNVETTED := GOFLAGS='$(GOFLAGS) -vet=off' # lint-code has all of vet; on the command line, because only that reaches the makes below

.DEFAULT_GOAL := help

.PHONY: help help-all
help: ## List the targets that one needs most
	@grep -hE '^[a-z0-9-]+:.*[^#]## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18
help-all: ## List all targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 18

.PHONY: run
run: ## Start the payment example with its page on 127.0.0.1:8080 (PORT, DATA)
	@go build -o $(BIN)/playground ./playground
	@exec $(BIN)/playground

EXPLORED := ./tests/guard/model/explore
# Limits of time and memory: test-cost has these tests, when nothing else runs.
LIMITS := TestLimits|TestFlood|TestConsole_Flood
# Tests of the test tools, and tests that need their full size: test-unit has them.
LARGE  := TestExploreFindsPairs|TestExploreAllPairs|TestPairs|TestVetTool|TestClaims|TestProjects|TestMergingLosesNothing|TestTurnsLoseNothing|TestShortenedSchedules|TestSearchIsDeterministic
SHORT  := -short -skip '^($(LIMITS)|$(LARGE))$$'

.PHONY: test test-short test-go test-first
STEP := @tools/step
# The lines with make do not use the variable MAKE, with which make --dry-run would run them.
test: ## Unit tests, and real Lambda functions in LocalStack; 5 minutes
	@tools/needs short
	@make --no-print-directory -j2 timed-short timed-first $(UNVETTED); code=$$?; tools/step; exit $$code
timed-short:
	$(STEP) unit $(MAKE) --no-print-directory test-short
timed-first:
	$(STEP) install localstack/up --install-only
	$(STEP) first $(MAKE) --no-print-directory test-first
# Small packages come first, so that there is something to read, and then those that take longest.
test-short: ### Unit tests in their short form
	go test $(SHORT) ./internal/... ./idempotent/driver ./idempotent/idempotenttest ./dynamostore $(EXPLORED) ./examples/redisstore $(PACKAGES)
# The encoders of the next Go release: that of 1.27, and that of 1.26 in it. The workflow runs all unit tests with both.
NEXT := go1.27.4
ENCODED := ./internal/jsontypes ./idempotent
test-go: ### What a result is, with the next Go release
	GOTOOLCHAIN=$(NEXT) go test -short $(ENCODED)
	GOTOOLCHAIN=$(NEXT) GOEXPERIMENT=nojsonv2 go test -short $(ENCODED)
FIRST := ./tests/deployed/first
test-first: ### Functions in LocalStack
	@cd $(FIRST) && go test # in its folder, where go test prints what a package prints at once

.PHONY: test-all
test-all: ## make test, then all other tests; 25 minutes
	@tools/needs
	@make --no-print-directory fetch >/dev/null 2>&1 & # what fails here is fetched again where it is needed
	@make --no-print-directory test
	@make --no-print-directory timed-rest $(UNVETTED); code=$$?; tools/step; exit $$code
timed-rest:
	@$(MAKE) --no-print-directory -j3 --output-sync=line part-deployed part-unit part-suites
	@$(MAKE) --no-print-directory part-cost # alone, because it measures time
# The workflow of CI runs these four parts on machines of their own.
part-deployed:
	$(STEP) e2e $(MAKE) --no-print-directory e2e
	$(STEP) localstack $(MAKE) --no-print-directory test-localstack
	$(STEP) fuzz $(MAKE) --no-print-directory test-fuzz
	$(STEP) go $(MAKE) --no-print-directory test-go
part-unit:
	$(STEP) unit $(MAKE) --no-print-directory test-unit
part-suites:
	$(STEP) browser $(MAKE) --no-print-directory test-browser
	$(STEP) apart $(MAKE) --no-print-directory test-apart
	$(STEP) sam $(MAKE) --no-print-directory test-sam
	$(STEP) engines $(MAKE) --no-print-directory test-engines # last, when the other lanes have nearly ended
part-cost:
	$(STEP) cost $(MAKE) --no-print-directory test-cost

.PHONY: check timed-check build
SINCE ?= HEAD
check: ## Before a commit: lint and unit tests of what changed (SINCE: a commit)
	@tools/step check make --no-print-directory timed-check $(UNVETTED); code=$$?; tools/step; exit $$code
timed-check: lint-changed lint-prose api
	go test -count=1 -run '^TestMetrics$$' ./tests/promised/frozen
	@changed=$$(tools/changed $(SINCE) $(PACKAGES) $(CDK) $(EXPLORED)) && echo go test $(SHORT) $$changed && \
	if [ -n "$$changed" ]; then go test $(SHORT) $$changed; fi
	cd tools && GOWORK=off go test ./...
build: ### Compile every package (GOARCH: for which processor)
	go build $(PACKAGES) $(CDK)

.PHONY: test-unit cover
# The packages whose code runs on several goroutines. A race build compiles all dependencies again.
RACED := ./idempotent ./idempotent/driver ./idempotent/memstore ./dynamostore/... ./lambdahttp/... ./lambdabatch ./telemetry/... ./boltstore ./cmd/once/... ./idempotencyclient ./lambdadurable ./telemetry/otelonce
# Limits of time and memory, and much work in one goroutine, which takes the race detector 30 s: test-cost has these tests.
ALONE := ^($(LIMITS)|TestDeepMembersMoveOnce|TestProtocol_Requests|TestProtocol_Answers|TestResultBound|TestDamagedCompression)$$
COVER := .cache/cover.out
COVERED := -coverprofile=$(COVER) ./idempotent
# The CDK's validation of templates takes seven seconds of processor time when a test binary starts, and only prints warnings.
test-unit timed-check mutate terraform: export CDK_VALIDATION := false
test-unit: ### Unit tests, with the race detector where goroutines meet
	$(RACE) -skip '$(ALONE)' $(RACED:./idempotent=)
	@mkdir -p $(dir $(COVER))
	$(RACE) -skip '$(ALONE)' $(COVERED)
	@$(ENOUGH)
	go test -skip '^($(LIMITS))$$' $$(go list $(PACKAGES) | grep -v -x -F "$$(go list $(RACED))") $(CDK) $(EXPLORED)
	cd tools && GOWORK=off go test ./...
ENOUGH := go tool cover -func=$(COVER) | awk '/^total:/ { print "idempotent: " $$3; if ($$3 + 0 < 98) exit 1 }'
cover: ### Coverage of the core, without the race detector; fails below 98 %
	@mkdir -p $(dir $(COVER))
	go test $(COVERED)
	@$(ENOUGH)

.PHONY: fuzz test-fuzz
FUZZED := $(PACKAGES) ./tests/guard/syntax
FUZZTIME ?= 60s
# Failing inputs go to testdata/fuzz of the package: commit them with the correction. A target that is in the middle of an
# input when its time is up does not fail (go.dev/issue/75804, until Go 1.27).
FUZZ = @bin=$(CURDIR)/.cache/fuzz.test cache=$$(go env GOCACHE)/fuzz n=0 failed=0; mkdir -p .cache; \
	for package in $$(go list -f '{{.Dir}},{{.ImportPath}}' $(FUZZED)); do \
	  dir=$${package%,*} path=$${package\#*,}; \
	  targets=$$(cat $$dir/*_test.go 2>/dev/null | sed -nE 's/^func (Fuzz\w+)\(\w+ \*testing\.F\).*/\1/p'); \
	  [ -z "$$targets" ] || go test -c $(1) -o $$bin $$path || exit 1; \
	  for target in $$targets; do n=$$((n + 1)); \
	    if out=$$(cd $$dir && $$bin -test.run '^$$' -test.fuzz "^$$target$$" -test.fuzztime $(2) -test.fuzzminimizetime 100x \
	      -test.fuzzcachedir $$cache/$$path 2>&1) || { ! echo "$$out" | grep -qE '_test\.go:|Failing input|panic' && \
	      echo "$$out" | grep -q '^ *context deadline exceeded$$'; }; \
	    then echo "$$path $$target: $$(echo "$$out" | grep '^fuzz: .*execs' | tail -1)"; \
	    else failed=$$((failed + 1)); echo "$$path $$target: FAILED"; echo "$$out"; fi; \
	  done; \
	done; rm -f $$bin; echo "$$n targets, $$failed failed"; [ $$n -gt 0 ] && [ $$failed -eq 0 ]
fuzz: ## Every fuzz target in turn (FUZZTIME: for how long)
	$(call FUZZ,-fuzz .,$(FUZZTIME))
# Without guidance, because instrumented code takes longer to compile than to fuzz, and by number, for a busy machine.
test-fuzz: ### 2,000 inputs for every fuzz target, without guidance
	$(call FUZZ,,2000x)

.PHONY: mutate
mutate: $(BIN)/mutate ## Break the protocol by clauses; tests must notice (ARGS)
	@$(BIN)/mutate -root . $(ARGS)

# The tools of this repository, and of others at the versions of tools/go.mod.
$(BIN)/misspell: TOOL := github.com/golangci/misspell/cmd/misspell
$(BIN)/go-licenses: TOOL := github.com/google/go-licenses/v2
$(BIN)/apidiff: TOOL := golang.org/x/exp/cmd/apidiff
$(BIN)/govulncheck: TOOL := golang.org/x/vuln/cmd/govulncheck
$(BIN)/actionlint: TOOL := github.com/rhysd/actionlint/cmd/actionlint
$(BIN)/mutate $(BIN)/lint $(BIN)/go-licenses $(BIN)/misspell $(BIN)/apidiff $(BIN)/govulncheck $(BIN)/actionlint: \
  $(BIN)/%: $(wildcard tools/*/*.go oncevet/*.go) tools/go.mod tools/go.sum
	@cd tools && GOWORK=off go build -o ../$@ $(or $(TOOL),./$*)

.PHONY: chaos
CHAOS_TIME ?= 60s
CHAOS_SEED ?= 0
chaos: ### Kill and stop everything at random (CHAOS_TIME, CHAOS_SEED)
	go test -count=1 -v -run '^TestChaos' -timeout 2h ./tests/engines/chaos -chaos $(CHAOS_TIME) -chaos-seed $(CHAOS_SEED)

.PHONY: pairs
pairs: ### Every pair of settings, with all lives of their keys on DynamoDB Local
	go test -count=1 -v ./tests/guard/pairs -lives=0

.PHONY: model model-mutants
model: ### Model-check the protocol with TLC (ARGS: configurations)
	@docs/model/check $(ARGS)
model-mutants: ### Break the model by clauses; TLC must notice (ARGS)
	@docs/model/mutants $(ARGS)

.PHONY: test-integration test-engines test-apart
test-integration: test-engines test-apart ### Both of the following
# The limits, cold starts, pages, deployment and explorer have their own targets. In the packages of the last line, requests run
# at once in one process.
ENGINES := ./tests/measured/bench/peers ./tests/measured/waiting ./tests/engines/chaos ./tests/deployed/e2e ./tests/engines/integration ./tests/engines/powertools ./tests/guard/pairs
test-engines: SHELL := bash
test-engines: ### Tests on DynamoDB Local and LocalStack, and end to end
	@cloud=$$(localstack/up) && trap localstack/down EXIT && \
	engine=$${DYNAMODB_ENDPOINT:-} && \
	if [[ -z $$engine ]]; then coproc localstack/dynamodb-local && read -r engine <&"$${COPROC[0]}"; fi && \
	with="env LOCALSTACK_ENDPOINT=$$cloud DYNAMODB_ENDPOINT=$$engine" && \
	$$with go test -count=1 -skip ^TestChaos $(ENGINES)
ELSE := /(engines/(batch|chaos|integration|powertools)|measured/(bench|waiting)|deployed|guard/model|documents/house|guard/pairs)(/|$$)
test-apart: ### Tests of several packages that need no engine: alarms, documents, conformance
	go test -count=1 $$(go list ./tests/... | grep -vE '$(ELSE)')
	$(RACE) -count=1 ./tests/engines/batch -stories 250

.PHONY: e2e
e2e: ### Deploy the stack to LocalStack with the CDK, and try it
	go test -count=1 -p 1 ./tests/deployed/deploy ./tests/deployed/verify

.PHONY: test-browser screenshots
test-browser: ### Tests of the pages in Chromium, with axe
	@tests/deployed/browser/install >/dev/null
	go test -count=1 ./tests/deployed/browser
screenshots: ### Make the pictures of the documentation anew
	go test -count=1 -run '^TestPictures' ./tests/deployed/browser -pictures $(CURDIR)/docs/pictures

.PHONY: test-cost
test-cost: ### Limits of time, sizes and cold starts
	go test -count=1 -run '$(ALONE)' -p 1 ./internal/canonical ./dynamostore ./lambdahttp ./idempotent ./cmd/once/internal/console ./playground
	go test -count=1 ./tests/measured/bench

.PHONY: test-localstack
test-localstack: ### Tests of the scripts that start LocalStack
	localstack/test

.PHONY: test-sam terraform
test-sam: ### Build the example with AWS SAM
	@tools/templates/check sam
# Not part of make test-all: compiling OpenTofu takes five minutes of processor time.
terraform: $(BIN)/lint ### Test the Terraform modules with OpenTofu, and compare them with the CDK
	go vet -tags tofu -vettool=$(CURDIR)/$(BIN)/lint $(CDK)
	cd tools/tofu && GOWORK=off go vet -vettool=$(CURDIR)/$(BIN)/lint ./... && GOWORK=off go test -count=1 .

.PHONY: lint timed-code timed-templates lint-changed lint-code lint-text lint-prose lint-templates lint-workflows lint-modules fmt
SOURCES = git ls-files --cached --others --exclude-standard
lint: ## Check code, prose and templates without running them
	@make --no-print-directory -j2 --output-sync timed-code timed-templates; code=$$?; tools/step; exit $$code
timed-code:
	$(STEP) code $(MAKE) --no-print-directory lint-code
	$(STEP) prose $(MAKE) --no-print-directory lint-prose
timed-templates:
	$(STEP) templates $(MAKE) --no-print-directory lint-templates
	$(STEP) workflows $(MAKE) --no-print-directory lint-workflows
	$(STEP) modules $(MAKE) --no-print-directory lint-modules
ON_MACOS := ./playground ./cmd/once # what make run starts, and the command line
lint-code: $(BIN)/lint lint-text ### gofmt, go vet, staticcheck, oncevet and more
	go vet -vettool=$(CURDIR)/$(BIN)/lint $(PACKAGES) $(CDK) ./tests/...
	@cd tools && GOWORK=off go vet -vettool=$(CURDIR)/$(BIN)/lint ./...
	GOOS=darwin GOARCH=arm64 go build $(ON_MACOS)
lint-changed: $(BIN)/lint lint-text ### The same for the packages that changed (SINCE: a commit)
	@changed=$$(tools/changed $(SINCE) $(PACKAGES) $(CDK) ./tests/...) && echo go vet $$changed && \
	if [ -n "$$changed" ]; then go vet -vettool=$(CURDIR)/$(BIN)/lint $$changed; fi
lint-text: $(BIN)/misspell
	@unformatted=$$(gofmt -l $$($(SOURCES) '*.go')) && \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	@$(BIN)/misspell -error $$($(SOURCES))
lint-workflows: $(BIN)/actionlint ### actionlint on the workflows
	@if grep -nE "uses: .*@" .github/workflows/*.yml | grep -vE "@[0-9a-f]{40} # v"; then echo "pin these actions by a commit, with its tag in a comment"; exit 1; fi
	@$(BIN)/actionlint
lint-modules: ### go mod tidy changes nothing
	@tools/release-check modules
lint-prose: ### Language, links, snippets, numbers, licences, order of chapters
	go test -count=1 ./tests/documents/house
lint-templates: ### cfn-lint and checkov on the templates
	@tools/templates/check lint
fmt: ## Format the Go code, and put the licence at the head of each file
	gofmt -w $$($(SOURCES) '*.go')
	@for f in $$($(SOURCES) '*.go'); do \
	  grep -q '^// SPDX-License-Identifier: ' "$$f" || sed -i '1i // SPDX-License-Identifier: Apache-2.0\n' "$$f"; done

.PHONY: api
api: $(BIN)/apidiff ## What the exported API gained and lost; CHANGELOG must say it (BASE)
	@tools/api

.PHONY: bench bench-peers
BENCH_COUNT ?= 6
bench: ## Comparisons on stderr, then benchmarks (BENCH_COUNT)
	@go test -count=1 -v ./tests/measured/bench >&2
	@go test -run '^$$' -bench . -benchmem -count $(BENCH_COUNT) $(PACKAGES) ./tests/measured/bench

.PHONY: measure-waiting
measure-waiting: ### Settle 200,000 records on DynamoDB Local as simulated; 15 minutes
	go test -count=1 -v -run '^TestSettlesOnDynamoDBLocal$$' -timeout 2h ./tests/measured/waiting -records 200000

PEERS := tests/measured/bench/peers
bench-peers: ### Side by side with Powertools and the bare SDK; writes docs/reports/benchmarks.md
	go run ./$(PEERS)/run -o $(PEERS)/results.json
	go test -count=1 -run '^TestPage$$' ./$(PEERS) -update

.PHONY: bundles deploy destroy verify-aws
bundles: ### Build the functions for arm64 and x86_64; say their sizes
	@cd $(STACK) && go run ./bundle
deploy: ## Deploy the stack to your AWS account (PROVIDER_URL, ARGS)
	@$(STACK)/cdk deploy $(ARGS)
destroy: ## Destroy it; its tables stay (ARGS)
	@$(STACK)/cdk destroy $(ARGS)

verify-aws: ## Check what only AWS can show, in your account (ARGS)
	@go build -o $(BIN)/verify ./tests/deployed/verify
	@exec $(BIN)/verify $(ARGS)

.PHONY: versions
versions: ### Try the versions that users choose; writes docs/reports/versions.md (ARGS: words of rows)
	@tools/versions $(ARGS)

.PHONY: release-check
release-check: $(BIN)/go-licenses $(BIN)/apidiff $(BIN)/govulncheck ### What a release needs besides the tests
	@tools/release-check

.PHONY: fetch up down
fetch: ### Download LocalStack, the CDK, Chromium and other tools
	@localstack/up --install-only
	@$(STACK)/cdk install >/dev/null
	@tools/templates/check --install-only
	@$(PEERS)/install >/dev/null
	@tests/deployed/browser/install >/dev/null
up: ### Start LocalStack and print its address
	@localstack/up
down: ### Stop LocalStack
	@localstack/down

.PHONY: count clean
count: ### The size of the repository, and the way of one request
	@tools/count
clean: ## Stop LocalStack; remove what was downloaded or built
	@localstack/down
	rm -rf .cache bin
