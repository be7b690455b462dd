# `make test` is the command that tests; `make ci` is what runs before anything lands.

CARGO ?= cargo
NEXTEST := $(shell $(CARGO) nextest --version >/dev/null 2>&1 && echo yes)
BENCH := $(CARGO) run --release --locked --manifest-path benches/Cargo.toml --target-dir target/bench-build
REDIS_TESTS := --test differ_redis --test wire --test redis_durability --test redis_failures --test redis_topologies
DENY := $(shell $(CARGO) deny --version >/dev/null 2>&1 && echo yes)

HACK := $(shell $(CARGO) hack --version >/dev/null 2>&1 && echo yes)

.PHONY: help setup test unit valkey bare doctest ci fmt clippy doc deny features book lint-deploy deb publish-check bench model soak clean

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

setup: ## install what the tests need and the machine lacks
	@sh scripts/setup.sh

test: setup unit valkey bare doctest ## every test and every example in the docs

unit:
ifeq ($(NEXTEST),yes)
	$(CARGO) nextest run --workspace --all-features --locked --no-fail-fast
else
	$(CARGO) test --workspace --all-features --locked --lib --bins --tests
endif

# What the Redis driver promises, once more on Valkey. (The conformance kit runs on both in `unit`.)
valkey: export DISTLOCK_TEST_SERVER = valkey
valkey:
ifeq ($(NEXTEST),yes)
	$(CARGO) nextest run --workspace --all-features --locked --no-fail-fast $(REDIS_TESTS)
else
	$(CARGO) test --workspace --all-features --locked $(REDIS_TESTS)
endif

# What was left out says so, and is really left out of the command.
bare:
	$(CARGO) test -p distlock --no-default-features --locked --lib -- open::
	@! $(CARGO) tree -p distlock-cli --no-default-features --locked -e normal --prefix none | grep '^redis '

doctest:
	$(CARGO) test --workspace --all-features --locked --doc

# The scripts are compared with the law at length where it is decided whether a change lands.
ci: export DISTLOCK_DIFFER_STEPS ?= 50000
ci: fmt clippy doc deny test ## everything that must be green

fmt:
	$(CARGO) fmt --all -- --check

clippy:
	$(CARGO) clippy --workspace --all-targets --all-features --locked -- -D warnings
	$(CARGO) clippy -p distlock --no-default-features --locked -- -D warnings

doc:
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --all-features --no-deps --locked

deny: ## licences, bans, sources; only where cargo-deny is installed
ifeq ($(DENY),yes)
	$(CARGO) deny --all-features check bans licenses sources
else
	@echo "cargo-deny is not installed: licences, bans and sources are not checked"
endif

features: ## compile every combination of features; only where cargo-hack is installed
ifeq ($(HACK),yes)
	$(CARGO) hack check --feature-powerset --no-dev-deps --locked -p distlock-core -p distlock -p distlock-fenced -p distlock-server -p distlock-cli
else
	@echo "cargo-hack is not installed: combinations of features are not checked"
endif

book: ## check the pages and their links, and build the book where mdbook is installed
	$(CARGO) test -p distlock --locked --test book
	sh scripts/book.sh

lint-deploy: ## check Dockerfile, manifests, alerts and workflows with the linters that are installed
	sh scripts/lint-deploy.sh

deb: ## the Debian package; needs cargo-deb
	$(CARGO) build --release --locked -p distlock-cli
	sh scripts/package.sh target/release/distlock dist/package
	$(CARGO) deb -p distlock-cli --no-build

publish-check: ## pack every crate for crates.io, and build it from its package
	sh scripts/publish-check.sh

bench: ## measure; tables go to the terminal, target/bench/report.json, docs/benchmarks.md and README.md
	$(CARGO) bench -p distlock --bench grant_cost --locked
	$(CARGO) build --release --locked -p distlock-cli
	$(BENCH) --features http -- --only http
	$(BENCH)

model: ## explore the models at length; tables and traces go to the terminal and docs/models.md
	$(CARGO) run --release --locked -p distlock-testkit --features models --example models docs/models.md

soak: ## the random tests again, much longer
	DISTLOCK_LAW_STEPS=3000000 $(CARGO) test --release -p distlock-core --test law --locked
	DISTLOCK_SOAK=50 $(CARGO) test --release -p distlock --locked --test simulation --test differ --test differ_redis --test sweep
	DISTLOCK_SOAK=20 $(CARGO) test --release -p distlock --locked --test quorum hung -- --nocapture
	DISTLOCK_SOAK=50 $(CARGO) test --release -p distlock --locked --test redis_failures hiccup -- --nocapture --test-threads=1
	DISTLOCK_SOAK=50 DISTLOCK_TEST_SERVER=valkey $(CARGO) test --release -p distlock --locked --test redis_failures hiccup -- --nocapture --test-threads=1
	DISTLOCK_SOAK=17 $(CARGO) test --release -p distlock-server --locked --test http repeats -- --nocapture --test-threads=1
	DISTLOCK_SOAK=5 $(CARGO) test --release -p distlock --locked --test sweep idle -- --nocapture --test-threads=1

clean:
	$(CARGO) clean
