# Everything is built in this checkout: a virtual environment in .venv, the kernels beside their sources.
# Each target does its own set-up; stamps in .make keep repeated calls quick. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?=
ARGS ?=

FOLDERS := protocols router log_core subscriptions spark
BIN := .venv/bin
STAMPS := .make
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint requirements.lock
LOCKED := dev test lz4 kafka amqtt migrate otel spark s3 iceberg charts docs release demo
# Packages are built with the versions that are tested, too.
BUILD := PIP_CONSTRAINT="$(CURDIR)/requirements.lock" $(BIN)/python -m build --quiet
BUILD_WHEEL := $(BIN)/uv build --quiet --wheel --build-constraints requirements.lock
REPAIR := PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m auditwheel repair --wheel-dir dist
SOURCES := $(shell find $(FOLDERS) -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
# Of the source distribution, and so of every package.
PACKAGED = pyproject.toml setup.py MANIFEST.in README.md LICENSE requirements.lock $(shell find src $(FOLDERS) -type f \
  -not -path '*/__pycache__/*' -not -path '*.egg-info/*' -not -name '*.so' -not -name '*.c')

## Use

.PHONY: help
help:  ## list the targets
	@awk -F ':.*## ' '/^## / {printf "\n%s\n", substr($$0, 4)} /^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile
	@printf '\n  PYTHON=...   the Python that .venv is made with        ARGS="..."   further arguments of run, test, bench, demo\n'

.PHONY: install
install: $(STAMPS)/extras kernels  ## build .venv with penstock and all that its development needs
	@echo "penstock: $(BIN)/penstock is ready; make run starts it"

.PHONY: run
run: $(STAMPS)/project kernels  ## start the gateway on its own log in ./data
	@echo "Try:  mosquitto_sub -t 'weather/#' -v      and in another terminal"
	@echo "      mosquitto_pub -t weather/oslo -m 4.5      Ctrl-C stops the gateway."
	@$(BIN)/python -m compileall -q src/penstock $(FOLDERS)  # where PYTHONDONTWRITEBYTECODE is set, a start would compile it all
	@exec $(BIN)/penstock serve --data data $(ARGS)

.PHONY: demo
demo: $(STAMPS)/extras kernels  ## replay a real data set through paho (MQTT) into pika (AMQP)
	@$(BIN)/python -m demo $(ARGS)

## Check

.PHONY: test
test: test-setup  ## run the whole test suite, four processes more than there are cores
	$(BIN)/python -m pytest -q -n $$(($$(nproc) + 4)) --dist loadfile --durations 10 $(ARGS)

.PHONY: test-setup
test-setup: $(STAMPS)/extras $(STAMPS)/node kernels peers

.PHONY: check
check: $(STAMPS)/extras  ## lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: bench
bench: $(STAMPS)/extras kernels peers  ## measure penstock, Mosquitto and RabbitMQ side by side
	$(BIN)/python -m bench.compare $(ARGS)

.PHONY: bench-instructions
bench-instructions: $(STAMPS)/extras kernels  ## count instructions per message: ARGS="--other CHECKOUT" compares (needs valgrind)
	$(BIN)/python -m bench.instructions $(ARGS)

.PHONY: bench-connections
bench-connections: $(STAMPS)/extras kernels peers  ## measure small messages of many connections beside Mosquitto and RabbitMQ
	$(BIN)/python -m bench.connections $(ARGS)

.PHONY: bench-churn
bench-churn: $(STAMPS)/extras kernels peers  ## measure clients that come and go beside Mosquitto and RabbitMQ
	$(BIN)/python -m bench.connections.churn $(ARGS)

.PHONY: bench-amqp10
bench-amqp10: $(STAMPS)/extras kernels peers  ## measure AMQP 1.0 beside RabbitMQ and its plug-in
	$(BIN)/python -m bench.amqp10 $(ARGS)

.PHONY: bench-amqp10-lone
bench-amqp10-lone: $(STAMPS)/extras kernels  ## measure lone messages of many connections by AMQP 1.0 beside 0-9-1
	$(BIN)/python -m bench.amqp10_lone $(ARGS)

.PHONY: bench-native
bench-native: $(STAMPS)/extras kernels  ## measure batches of the native protocol beside Kafka (needs Java and Maven)
	$(BIN)/python -m bench.compare_native $(ARGS)

.PHONY: bench-sdk
bench-sdk: $(STAMPS)/extras kernels  ## measure the Python SDK beside aiokafka and confluent-kafka (needs Java and Maven)
	$(PIP) --no-build-isolation aiokafka confluent-kafka
	$(BIN)/python -m bench.compare_sdk $(ARGS)

.PHONY: bench-shovels
bench-shovels: $(STAMPS)/extras kernels peers  ## measure a shovel beside RabbitMQ's
	$(BIN)/python -m tests.compare.shovels $(ARGS)

.PHONY: bench-bridges
bench-bridges: $(STAMPS)/extras kernels peers  ## measure a bridge between two gateways beside Mosquitto's
	$(BIN)/python -m tests.compare.bridges $(ARGS)

.PHONY: bench-cluster-takeovers
bench-cluster-takeovers: $(STAMPS)/extras kernels peers  ## measure how long nothing is confirmed when a node fails: TIMES=10 (needs Java and Maven)
	$(BIN)/python -m bench.cluster_takeovers --times $(or $(TIMES),10) $(ARGS)

.PHONY: bench-cluster-kafka
bench-cluster-kafka: $(STAMPS)/extras kernels  ## measure the effect of settings of Kafka on lone confirms (needs Java and Maven)
	$(BIN)/python -m bench.kafka_remedies $(ARGS)

.PHONY: bench-cluster-rebuild
bench-cluster-rebuild: $(STAMPS)/extras kernels  ## measure how long a standby makes a folder anew: GIB=10 (needs Java and Maven)
	$(BIN)/python -m bench.cluster_rebuild --gib $(or $(GIB),10) $(ARGS)

.PHONY: asan
asan: $(STAMPS)/extras  ## run the kernels' tests with the address and undefined-behaviour sanitizers
	PENSTOCK_ASAN=1 $(BIN)/python setup.py -q build --build-base build/asan/base --build-lib build/asan/lib
	LD_PRELOAD=$$($${CC:-cc} -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1 \
	PYTHONMALLOC=malloc PYTHONPATH=build/asan/lib \
	$(BIN)/python -m pytest -q -p no:cacheprovider tests/unit/{log_core,subscriptions,router,protocols} tests/property $(ARGS)

.PHONY: compare-rabbitmq
compare-rabbitmq: $(STAMPS)/extras kernels  ## run the recorded verbs of rabbitmqctl, and 10,000 random programs of AMQP's methods, against RabbitMQ
	$(BIN)/python -m tests.compare.rabbitmqctl
	$(BIN)/python -m tests.compare.rabbitmq $(ARGS)

.PHONY: compare-mosquitto
compare-mosquitto: $(STAMPS)/extras kernels  ## run random MQTT sessions against Mosquitto, too, for 5 minutes
	$(BIN)/python -m tests.compare.mosquitto $(ARGS)

.PHONY: rabbitmq-page
rabbitmq-page: $(STAMPS)/extras kernels peers  ## open RabbitMQ's own management page before our API, and send its forms
	$(BIN)/python -m tests.compare.rabbitmq_page $(ARGS)

.PHONY: console-heap
console-heap: $(STAMPS)/extras kernels peers  ## scroll and plot for ten minutes, quicker: the page's heap does not grow
	$(BIN)/python -m tests.crash.console_heap $(ARGS)

.PHONY: bench-console
bench-console: $(STAMPS)/extras kernels peers  ## measure the console beside publishers: 100,000 queues, a search, 20 pages
	$(BIN)/python -m bench.console $(ARGS)

.PHONY: log-faults
log-faults: $(STAMPS)/extras kernels  ## fail every call that a log makes of the operating system, one at a time
	PENSTOCK_ALL_FAULTS=1 $(BIN)/python -m pytest -n 0 tests/crash/test_log_faults.py $(ARGS)

.PHONY: cluster-faults
cluster-faults: $(STAMPS)/extras kernels  ## kill, freeze, cut off and hand over nodes and brokers of a cluster: FAULTS=200 SEED=7 (needs Java and Maven)
	$(BIN)/python -m tests.cluster.campaign --faults $(or $(FAULTS),29) $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: amqp10-clients
amqp10-clients: $(STAMPS)/extras kernels  ## RabbitMQ's client for Go and fe2o3-amqp for Rust over AMQP 1.0, which take minutes to build (needs Go 1.24 and Cargo)
	$(BIN)/python -m pytest -q -p no:xdist --timeout 1800 tests/clients $(ARGS)

.PHONY: cluster-clients
cluster-clients: $(STAMPS)/extras kernels  ## pika, aio-pika, Celery, paho, webhooks and the SDK over takeovers: TAKEOVERS=10 (needs Java and Maven)
	$(BIN)/python -m tests.cluster.clients --takeovers $(or $(TAKEOVERS),10) $(ARGS)

.PHONY: bench-cluster
bench-cluster: $(STAMPS)/extras kernels peers  ## measure a cluster beside RabbitMQ's quorum queues (needs Java and Maven)
	$(BIN)/python -m bench.cluster $(ARGS)

.PHONY: cluster
cluster: $(STAMPS)/extras kernels  ## start three brokers of Kafka and two nodes, and say how to talk to them (needs Java and Maven)
	$(BIN)/python -m demo.cluster $(ARGS)

.PHONY: powercut
powercut: $(STAMPS)/extras kernels  ## cut the power of a file system under the gateway 50 times (needs root)
	$(BIN)/python -m tests.crash.powercut $(ARGS)

.PHONY: delays
delays: $(STAMPS)/extras kernels  ## schedule a million random delays and kill the gateway while they become due
	$(BIN)/python -m tests.crash.delays $(ARGS)

.PHONY: transactions
transactions: $(STAMPS)/extras kernels  ## kill the gateway 50 times inside transactions over the SDK, AMQP and HTTP
	$(BIN)/python -m tests.crash.transactions $(ARGS)

.PHONY: migrate-checks
migrate-checks: $(STAMPS)/extras kernels peers  ## move a live RabbitMQ with a million messages, and a Mosquitto with 10,000 sessions, over kills
	$(BIN)/python -m tests.crash.moves_mosquitto
	$(BIN)/python -m tests.crash.moves_rabbitmq $(ARGS)

.PHONY: link-checks
link-checks: $(STAMPS)/extras kernels peers  ## shovels and federation with RabbitMQ, bridges to Mosquitto and back, each over 20 kills of either
	$(BIN)/python -m tests.crash.shovels $(ARGS)
	$(BIN)/python -m tests.crash.shovels --protocol amqp10
	$(BIN)/python -m tests.crash.federation
	$(BIN)/python -m tests.crash.native_shovels
	$(BIN)/python -m tests.crash.bridges
	$(BIN)/python -m tests.crash.bridges --other-too
	$(BIN)/python -m tests.crash.bridges --protocol mqttv50 --tls
	$(BIN)/python -m tests.crash.bridges --protocol mqttv50 --tls --other-too
	$(BIN)/python -m tests.crash.bridges --protocol mqttv50 --other-too --gateways

.PHONY: churn
churn: $(STAMPS)/extras kernels  ## connect, send, receive and close thousands of times: nothing may be left of it
	$(BIN)/python -m tests.crash.churn $(ARGS)

.PHONY: spark-end-to-end
spark-end-to-end: $(STAMPS)/extras kernels  ## a data set into tables while gateway and jobs are killed, checkpoints lost
	$(BIN)/python -m pytest -q -p no:xdist -W default tests/spark/test_end_to_end.py $(ARGS)

.PHONY: spark-docs
spark-docs: $(STAMPS)/extras kernels  ## run the command lines and programs of docs/reference/spark.md
	$(BIN)/python -m pytest -q -p no:xdist -W default tests/spark/test_pages.py $(ARGS)

.PHONY: spark-cluster
spark-cluster: $(STAMPS)/extras kernels  ## run Spark's tests with two executors in processes of their own
	PENSTOCK_TEST_SPARK_MASTER='local-cluster[2,1,1024]' $(BIN)/python -m pytest -q -p no:xdist -W default --ignore tests/spark/test_pages.py --ignore tests/spark/test_kills.py --ignore tests/spark/test_end_to_end.py tests/spark $(ARGS)

.PHONY: spark-kills
spark-kills: $(STAMPS)/extras kernels  ## kill executors, workers, drivers and the gateway while Spark writes
	$(BIN)/python -m pytest -q -p no:xdist -W default tests/spark/test_kills.py $(ARGS)

.PHONY: fuzz
fuzz: $(STAMPS)/extras kernels  ## search for inputs that break the kernels, longer than the test suite does
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q --timeout 7200 tests/property tests/e2e/across/test_sharing.py $(ARGS)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -q --timeout 7200 -m hypothesis tests/unit tests/crash $(ARGS)

.PHONY: fuzz-http
fuzz-http: $(STAMPS)/extras kernels  ## sends 5,000 requests that the OpenAPI documents allow, and fails if one is a fault or refused without a word
	OPENAPI_EXAMPLES=40 $(BIN)/python -m pytest -q --timeout 7200 tests/e2e/http/test_openapi.py tests/e2e/management/test_management_openapi.py $(ARGS)

## Maintain

.PHONY: docs
docs: $(STAMPS)/project  ## write the generated pages anew
	$(BIN)/penstock config reference > docs/reference/configuration.md
	$(BIN)/python -m tests.conformance.coverage

.PHONY: docs-site
docs-site: $(STAMPS)/docs  ## build the documentation as a static site with search in build/site; a dead link fails
	$(BIN)/python -m mkdocs build --quiet --strict
	@echo "penstock: the site is in build/site; open build/site/index.html, or $(BIN)/python -m mkdocs serve"

.PHONY: vendor
vendor:  ## take the console's JavaScript of others from npm, and compare it with SHA256SUMS (needs npm)
	@.ci/vendor

.PHONY: lock
lock: $(STAMPS)/release  ## write requirements.lock anew: the newest versions that pyproject.toml allows
	@$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.11 --no-emit-index-url --no-annotate --no-header \
	  $(addprefix --extra ,$(LOCKED)) pyproject.toml $(STAMPS)/venv.txt -o requirements.lock

# dist/ has the packages of one state of the sources: dist/.sources says that they are of this one, and goes with them.
.PHONY: dist
dist: dist/.sources  ## build the source distribution and a wheel for Linux, checked, in dist/

.PHONY: wheels
wheels: dist  ## build wheels for the other Pythons from 3.11 to 3.14 that this machine or, for root with mmdebstrap, Debian sid has
	@.ci/pythons | while read -r python; do \
	  tag=$$("$$python" -c 'import sys; print(f"cp3{sys.version_info.minor}")'); \
	  [ -z "$$(ls dist/penstock_gateway-*-"$$tag"-*.whl 2>/dev/null)" ] || continue; \
	  rm -rf build/wheel && echo "penstock: building a wheel with $$python"; \
	  $(BUILD_WHEEL) --python "$$python" --out-dir build/wheel dist/penstock_gateway-*.tar.gz </dev/null; \
	  $(REPAIR) build/wheel/*.whl; \
	done
	@for version in 3.13 3.14; do \
	  [ -z "$$(ls dist/penstock_gateway-*-cp$${version/./}-*.whl 2>/dev/null)" ] || continue; \
	  if [ "$$(id -u)" != 0 ] || ! command -v mmdebstrap >/dev/null; then \
	    echo "penstock: no wheel for Python $$version: that needs it here, or root and mmdebstrap"; continue; \
	  fi; \
	  rm -rf build/wheel && echo "penstock: building a wheel with Python $$version of Debian sid"; \
	  deploy/wheel/build dist/penstock_gateway-*.tar.gz build/wheel $$version || \
	    { [ $$? = 3 ] && echo "penstock: no wheel for Python $$version: Debian sid has none" && continue; exit 1; }; \
	  $(REPAIR) build/wheel/*.whl; \
	done

.PHONY: client
client: dist/.client  ## build penstock-client, the SDK without a gateway: source, a wheel for Linux, a wheel in Python alone

.PHONY: deb
deb: dist  ## build a Debian package of the wheel in dist/; where lintian is installed, it must find nothing
	@PATH="$(CURDIR)/$(BIN):$$PATH" PYTHON=$(BIN)/python deploy/debian/build dist/penstock_gateway-*-cp311-*.whl dist
	@! command -v lintian >/dev/null || lintian --fail-on error,warning dist/*.deb

.PHONY: image
image: deb  ## build a container image of that package in dist/; needs root, mmdebstrap and buildah
	@if [ "$$(id -u)" = 0 ] && command -v mmdebstrap buildah >/dev/null; then \
	  PYTHON=$(BIN)/python deploy/container/build dist/penstock_*.deb dist/penstock.oci.tar; \
	else echo "penstock: no container image: that needs root, mmdebstrap and buildah"; fi

.PHONY: chart-checks
chart-checks: $(STAMPS)/charts  ## check the Helm chart and the manifests of Kubernetes, also by helm and kubeconform where they are
	@PYTHON=$(BIN)/python deploy/kubernetes/check build/charts

.PHONY: install-checks
install-checks: wheels client deb image  ## build all packages, and try each from nothing to a message
	@$(BIN)/python -m tests.install dist $(ARGS)

.PHONY: install-smoke
install-smoke: $(STAMPS)/extras kernels  ## try a wheel of the kernels that are here, and say which ways only install-checks tries
	@rm -rf build/smoke && $(BIN)/python -m tests.support.assembled_wheel build/smoke
	@$(BIN)/python -m tests.install build/smoke $(ARGS)

.PHONY: release
release: install-checks  ## build and try all that is published, with checksums in dist/; nothing is published or tagged
	@cd dist && rm -f SHA256SUMS && sha256sum -- * > SHA256SUMS
	@echo "penstock: dist/ has version $$($(BIN)/python -c 'import penstock; print(penstock.__version__)')"

.PHONY: readability
readability: $(STAMPS)/docs  ## measure the prose: sentence lengths and Flesch reading ease
	$(BIN)/python -m tests.docs.readability

.PHONY: links
links:  ## make the links src/penstock/<folder> anew
	@for folder in $(FOLDERS); do ln -sfn ../../$$folder src/penstock/$$folder; done

.PHONY: clean
clean:  ## remove everything that make made; ./data stays
	rm -rf .venv $(STAMPS) build dist src/*.egg-info tests/e2e/node/node_modules
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(FOLDERS) src/penstock \( -name '*.so' -o -name '*.c' \) -delete
	find $(FOLDERS) src tests demo -name __pycache__ -prune -exec rm -rf {} +

# Set-up

$(STAMPS)/venv:
	@mkdir -p $(STAMPS)
	@python=$$(.ci/python $(PYTHON)) && rm -rf .venv && echo "penstock: making .venv with $$python" && "$$python" -m venv .venv
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > $@.txt
	@$(PIP) --upgrade pip -r $@.txt
	@touch $@

# The kernels are not built here but in place (below), by one route only.
$(STAMPS)/project: $(STAMPS)/venv pyproject.toml setup.py requirements.lock
	@echo "penstock: installing penstock and what it needs into .venv"
	@PENSTOCK_NO_KERNELS=1 $(PIP) --no-build-isolation --editable '.[tour]'
	@touch $@

$(STAMPS)/extras: $(STAMPS)/project
	@echo "penstock: installing what development needs into .venv"
	@PENSTOCK_NO_KERNELS=1 $(PIP) --no-build-isolation --editable '.[dev,test,demo,spark,iceberg,s3]'
	@touch $@

dist/.sources: $(PACKAGED) | $(STAMPS)/release
	@rm -rf dist build/dist
	@PENSTOCK_NO_KERNELS=1 $(BUILD) --sdist --outdir build/dist
	@$(BUILD_WHEEL) --python $(BIN)/python --out-dir build/dist build/dist/*.tar.gz
	@$(REPAIR) build/dist/*.whl
	@cp build/dist/*.tar.gz dist/
	@$(BIN)/python -m twine check --strict dist/*
	@touch $@

dist/.client: dist/.sources $(wildcard deploy/client/*) $(shell find deploy/client/pure -name '*.py')
	@rm -rf build/client && deploy/client/build build/client
	@$(BUILD) --outdir build/client/dist build/client
	@PENSTOCK_NO_KERNELS=1 $(BUILD) --wheel --outdir build/client/dist build/client
	@$(REPAIR) build/client/dist/*-linux_*.whl
	@cp build/client/dist/*.tar.gz build/client/dist/*-none-any.whl dist/
	@$(BIN)/python -m twine check --strict dist/penstock_client-*
	@touch $@

$(STAMPS)/charts: $(STAMPS)/project
	@echo "penstock: installing the schemas of Kubernetes into .venv"
	@PENSTOCK_NO_KERNELS=1 $(PIP) --no-build-isolation --editable '.[charts]'
	@touch $@

$(STAMPS)/docs: $(STAMPS)/project
	@echo "penstock: installing what the documentation needs into .venv"
	@PENSTOCK_NO_KERNELS=1 $(PIP) --no-build-isolation --editable '.[docs]'
	@touch $@

$(STAMPS)/release: $(STAMPS)/project
	@echo "penstock: installing what releases need into .venv"
	@PENSTOCK_NO_KERNELS=1 $(PIP) --no-build-isolation --editable '.[release]'
	@touch $@

# A kernel whose source is gone would still be imported.
.PHONY: kernels
kernels: $(STAMPS)/kernels
	@find $(FOLDERS) -name '*.cpython-*.so' | while read -r so; do [ -e "$${so%%.cpython-*}.pyx" ] || rm -v "$$so"; done

$(STAMPS)/kernels: $(STAMPS)/project $(SOURCES)
	@echo "penstock: compiling the kernels, first to C, then each C file (one to three minutes on two idle cores)"
	@$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

.PHONY: peers
peers:
	@.ci/packages

$(STAMPS)/node: $(wildcard tests/e2e/node/package.json) | peers
	@mkdir -p $(STAMPS)
	@[ -z "$<" ] || { echo "penstock: installing the Node clients"; npm --prefix tests/e2e/node install --silent --no-audit --no-fund </dev/null; }
	@touch $@
