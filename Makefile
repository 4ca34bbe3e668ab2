# make help lists the targets.

GO      ?= go
TOOL    := $(GO) tool -modfile=tools/go.mod
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGE   ?= councild:$(VERSION)
FUZZTIME ?= 60s
RESULT  ?= $(shell date -u +%F).json
ROUNDS  ?= 9
# PURE are the packages that only compute. They are tested without the race detector, which would make their tests five
# to ten times as slow.
PURE := $(addprefix internal/,anonymize bias calls config disagreement ranking render stage2 stage3 stat \
	testkit/biassim testkit/growth llm/thinking worth)
# RACED are the paths of all other packages.
RACED = $(filter-out $(PURE:%=./%),$(shell $(GO) list -f '.{{slice .ImportPath (len .Module.Path)}}' ./...))
# PACKAGES is how many packages are tested at once. It is one more than the number of processors, because the slowest
# tests mostly wait.
PACKAGES := $(shell echo $$((1 + $$(getconf _NPROCESSORS_ONLN))))

.PHONY: help run demo build check test programs browser promtool pictures bench bench-compare bench-growth faults mistakes soak crash realtime scale costs fuzz validate lint format ci image image-test dist dist-test

help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: ## Run the daemon with the settings of the environment.
	$(GO) run ./cmd/councild serve

demo: ## Run the daemon with a simulated council: no key, no network.
	$(GO) run ./cmd/councild demo

build: ## Build the binary ./councild.
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o councild ./cmd/councild

check: ## Run the tests that take a second at most, for whoever is working: two minutes.
	$(GO) test -short ./...

# The tests start hundreds of processes. Under the race detector each would sleep for a second before it exits, so
# GORACE shortens that.
test: export COUNCILD_TESTS = all
test: programs browser promtool e2e/node_modules/.package-lock.json ## Install what the tests need, run every test; ARTIFACTS=DIR keeps screenshots.
	npm --prefix e2e test
	$(if $(ARTIFACTS),mkdir -p $(ARTIFACTS))
	$(GO) -C e2e test -shuffle=on -parallel 4 -timeout 20m $(if $(ARTIFACTS),-artifacts -outputdir=$(abspath $(ARTIFACTS))) .
	$(GO) -C e2e/collector test .
	$(GO) -C lab test ./...
	$(GO) test -shuffle=on $(wildcard $(PURE:%=./%))
	GORACE=atexit_sleep_ms=50 $(GO) test -race -shuffle=on -p $(PACKAGES) -timeout 30m $(RACED)

programs:
	@tools/programs.sh

browser:
	@tools/browser.sh

promtool:
	@tools/promtool.sh

# npm writes this file last, so make repeats an installation that was interrupted.
e2e/node_modules/.package-lock.json: e2e/package-lock.json
	npm --prefix e2e ci
	@touch $@

pictures: browser ## Make the pictures of README.md and docs/ again.
	$(GO) -C e2e test -count=1 -run '^TestPictures$$' . -args -pictures $(abspath docs)

bench: ## Run the benchmarks.
	$(GO) test -run '^$$' -bench . -benchmem ./...

bench-compare: browser ## Measure councild beside reference programs, and print the figures of docs/benchmarks.md, some 40 minutes; lab/bench/results/RESULT keeps them; ROUNDS is 9.
	$(GO) -C lab run ./bench compare -rounds $(ROUNDS) -out bench/results/$(RESULT)

bench-growth: ## Measure how cost grows, and draw lab/bench/results/growth-*.svg: a quarter of an hour, and 6 GB in the directory of temporary files.
	$(GO) -C lab run ./bench growth -records 10000000 > lab/bench/results/growth.csv
	$(GO) -C lab run ./bench plot -in bench/results/growth.csv -out bench/results

faults: ## Play every fault; print what was measured against what is promised.
	tools/faults.sh

mistakes: ## Play the mistakes of new users; print what is said to each.
	tools/mistakes.sh

soak: ## Ten minutes of load with faults, then 30 seconds of twice the capacity.
	$(GO) test -count=1 -timeout 20m -run '^(TestSoak|TestFaultF19)$$' -v ./cmd/councild -soak 10m -overload 30s -places 16

crash: ## Kill the daemon 600 times under load, and batches 1,000 times: nothing acknowledged may be missing, nothing paid uncounted or twice, no event lost or doubled.
	$(GO) test -count=1 -timeout 60m -run '^TestFaultF22KillNine$$|^TestFaultF42' -v ./cmd/councild -crash 200 -spendcrash 200
	$(GO) test -count=1 -timeout 30m -run '^TestFaultF43' -v ./internal/daemon -spendsessions 10048
	$(GO) test -count=1 -timeout 60m -run '^TestFaultF4[45]' -v ./cmd/councild -batchcrash 1000 -batchcap 200
	$(GO) test -count=1 -timeout 30m -run '^TestFaultF46' -v ./cmd/councild -eventcrash 200
	$(GO) test -count=1 -timeout 30m -run '^TestFaultF69' -v ./cmd/councild -modecrash 200
	$(GO) test -count=1 -timeout 30m -run '^TestFaultF72' -v ./cmd/councild -hookkills 200
	$(GO) test -count=1 -timeout 30m -run '^TestFaultF73' -v ./cmd/councild -gatekills 200

realtime: ## 20 sessions at the speed of real models, and what is promised for them: 15 minutes.
	$(GO) test -count=1 -timeout 30m -run '^TestRealTime$$' -v ./cmd/councild -realtime 15m

scale: ## Play every fault of kept sessions, on one machine and on a cluster; print what was measured: an hour. EARLIER=PROGRAM also upgrades from it.
	$(GO) test -count=1 -timeout 2h -tags scale -run '^TestScaleS' -v ./cmd/councild -scale 200 -faults 1000 -faultsessions 10000 $(if $(EARLIER),-earlier $(abspath $(EARLIER)))

costs: build ## Measure what it costs to keep sessions, inside the daemon and on a cluster: a quarter of an hour.
	@wc -c councild
	$(GO) test -run '^$$' -bench 'Append|Purge|Index' -benchtime 1000x -timeout 20m ./internal/sessions/journal
	$(GO) test -run '^$$' -bench Open -benchtime 10x -timeout 20m -v ./internal/sessions/journal
	$(GO) test -count=1 -timeout 1h -run '^TestCosts' -v ./cmd/councild -costs 10

fuzz: ## Fuzz every parser, each for FUZZTIME.
	tools/fuzz.sh $(FUZZTIME)

validate: ## Hold the statistics of comparisons and of the bias report against simulated truth: over an hour.
	$(GO) -C lab run ./validate -worth
	$(GO) -C lab run ./validate

lint: ## Check format, vet, linters, scripts, workflows, known vulnerabilities, and that go.mod is tidy.
	@test -z "$$(gofmt -l . | tee /dev/stderr)"
	$(GO) mod tidy -diff
	$(GO) vet -tags scale ./...
	$(TOOL) staticcheck -tags scale ./...
	$(TOOL) golangci-lint run ./...
	linter=$$($(TOOL) -n golangci-lint) && for module in e2e e2e/collector lab tools/dist; do (cd $$module && $(GO) mod tidy -diff && $(GO) vet ./... && $$linter run ./...) || exit 1; done
	tools/scripts.sh
	tools/vulncheck.sh

format: ## Format the code.
	$(TOOL) golangci-lint fmt ./...

ci: ## Everything that must hold before a change lands.
	.ci/run

# DIST_GO is the version of Go that makes releases. Another version makes other bytes.
DIST_GO = $(shell sed -n 's/^ARG GO_IMAGE=golang://p' Dockerfile)

dist: export GOTOOLCHAIN = go$(DIST_GO)
dist: ## Make the files of a release in dist/: archives, packages, image, SBOMs, SHA256SUMS.
	$(GO) -C tools/dist run . -version "$(VERSION)" -out $(abspath dist)

dist-test: ## Show that two clones make the same release, and that each of its files runs or can be read; as root on Debian.
	tools/dist-test.sh

image: ## Build the container image.
	docker build --build-arg VERSION=$(VERSION) --build-arg REVISION=$(shell git rev-parse HEAD 2>/dev/null) -t $(IMAGE) .

image-test: ## Build and run the image without a Docker engine, on stand-in base images.
	tools/image-test.sh
