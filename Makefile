# make build           the release binary; installs missing packages
# make demo            cameras, model and broker on this machine, detections on the terminal
# make test            everything that CI runs
# make lint            format and clippy alone
# make test-gpu        tests that need a GPU; they fail without one. GPU_SKIP="a_fault_of_one_gpu" skips tests by name,
#                      SPOTTER_CUDA_ARCH=80 runs the code paths of that architecture on a newer GPU
# make test-all        also what takes hours: true sizes, many cases, the soak, Home Assistant, packages, other Debian releases (root)
# make soak            an hour of faults: cameras, a broker, commands; SPOTTER_SOAK_MINUTES and SPOTTER_SOAK_SEED change it
# make test-fleet      three daemons with one list on the drawn street: one is killed, one is stopped
# make fleet           twice ten minutes of faults: ten boxes with 200 cameras, a broker, one NATS server and a cluster of three
# make home-assistant  tests discovery and commands with a real Home Assistant
# make openai          tests the HTTP API with curl and the package openai
# make browser         tests the page in Chromium by mouse and keyboard, behind nginx and Caddy, in frames, with axe-core
# make deny            licences, sources and security advisories of all crates
# make fuzz            a minute of each fuzz target: what others may send to Spotter
# make image           the container image without NVIDIA's libraries, its self-test and its size (root)
# make deb             a Debian package in target/debian, checked by lintian; ARCH=arm64 cross-builds it (root)
# make doc             the crates' documentation, private modules included, and the examples in it
# make install         as root: the daemon as a systemd service; make uninstall removes it
PREFIX  ?= /usr/local
DESTDIR ?=
UNITS   ?= /etc/systemd/system
SYSUSERS ?= /etc/sysusers.d
export PATH := $(HOME)/.cargo/bin:$(PATH)

.PHONY: help build demo test test-gpu test-all test-full test-properties test-fleet test-debian test-deb test-arm64 deb sbom doc check check-files lint soak fleet home-assistant openai browser deny fuzz image install uninstall

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

# What `spotter bench` prints beside its figures.
build: export SPOTTER_COMMIT := $(shell git describe --always --dirty --abbrev=10 2>/dev/null)
build:
	@.ci/packages
	cargo build --release --locked

# On Debian 12 for Debian 12 and newer: a package needs the libraries of the release on which it was built, or newer ones.
deb:
	.ci/deb $(ARCH)

# The crates in the program, as a bill of materials (CycloneDX) in target/sbom.
sbom:
	.ci/sbom $(ARCH)

demo: build
	target/release/spotter demo

# Where .ci/packages put the compiler of the CUDA kernels.
test: export LD_LIBRARY_PATH := $(CURDIR)/target/nvrtc/nvidia/cu13/lib$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))
# Many tests wait for sockets and processes: more threads than cores.
test: export RUST_TEST_THREADS ?= 4
test: lint
	cargo test --locked --workspace --tests
	@$(MAKE) --no-print-directory check-files

# All need a GPU: those of ranks, of peers and one of faults need two (without, GPU_SKIP="ranks:: peers:: a_fault_of_one_gpu"), one of
# four ranks needs four (without, GPU_SKIP=four_ranks),
# those in fp8 need compute capability 8.9, those named whole_golden_data need SPOTTER_GOLDEN, two need GStreamer's plugin
# nvcodec. Tests of cuda::tests::faults start two others, which break the GPU of their process, in processes of their own.
# With SPOTTER_CUDA_ARCH, what that architecture lacks is skipped: fp8 before 89.
ARCH_SKIP = $(if $(filter 80 86 87,$(SPOTTER_CUDA_ARCH)),fp8:: e4m3)
GPU_TESTS = --ignored --skip tests::memory:: --skip faults::one_gpu_breaks --skip faults::engine_apart --skip peers::one_rank_is_lost $(addprefix --skip ,$(GPU_SKIP) $(ARCH_SKIP))
test-gpu: export LD_LIBRARY_PATH := $(CURDIR)/target/nvrtc/nvidia/cu13/lib$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))
test-gpu:
	@.ci/packages test
	cargo test --locked -p spotter-engine --lib -- cuda:: $(GPU_TESTS)
	cargo test --locked -p spotter-engine --lib -- cuda::tests::memory:: --ignored
	cargo test --locked -p spotter --lib -- gpu_stats:: $(GPU_TESTS)
	cargo test --locked -p spotter-cameras --lib gpu_decoded -- $(GPU_TESTS)
# Tests that are ignored in `make test` because they need 9 GB of memory and minutes, or the whole golden data
# (SPOTTER_GOLDEN; tests/golden/README.md). Without these data they fail.
test-full:
	cargo test --locked -p spotter-engine --lib -- --ignored cpu::tests::full whole_golden_data --skip cuda::

# Properties with many more cases than in `make test`, and the kernels for all architectures.
test-properties: export LD_LIBRARY_PATH := $(CURDIR)/target/nvrtc/nvidia/cu13/lib$(if $(LD_LIBRARY_PATH),:$(LD_LIBRARY_PATH))
test-properties:
	SPOTTER_CASES_FACTOR=$${SPOTTER_CASES_FACTOR:-100} PROPTEST_CASES=25600 cargo test --locked --workspace --lib
	SPOTTER_CASES_FACTOR=5 cargo test --locked -p spotter-quality --test street

# A test that is ignored in `make test` because it takes two minutes: boxes of a fleet fail, and the street's events go on. Its
# table shows what each take-over lost.
test-fleet:
	@.ci/packages test
	cargo test --locked --test program fleet_street -- --ignored --nocapture

# The demo and the tests in Debian 12 and 13; needs root for debootstrap.
test-debian:
	.ci/debian bookworm
	.ci/debian trixie

# The package in Debian 12 and 13 with a real systemd; needs root for debootstrap and systemd-nspawn.
test-deb: deb
	.ci/boot-test bookworm target/debian/spotter_*_$(shell dpkg --print-architecture).deb
	.ci/boot-test trixie target/debian/spotter_*_$(shell dpkg --print-architecture).deb

# The package for aarch64, and the tests of the crates that need neither camera nor GPU, in qemu; needs root for debootstrap.
test-arm64:
	.ci/deb arm64
	.ci/debian bookworm-arm64 "CARGO_TARGET_DIR=/spotter-target .ci/test-arm64"

# What cannot run on this machine is named again at the end.
test-all: test
	@rm -f target/skipped
	@$(MAKE) --no-print-directory deny doc fuzz test-full test-properties test-fleet soak fleet home-assistant openai browser test-debian test-deb image test-arm64
	@if test -e target/skipped; then cat target/skipped; fi

# Needs cargo-deny, and the network for the advisories.
deny:
	.ci/deny

# Needs the nightly compiler and cargo-fuzz.
fuzz:
	@.ci/packages
	.ci/fuzz

# In Debian 13; needs root for debootstrap and buildah.
image:
	.ci/image

# The crates' documentation with their private modules; a link that does not resolve is an error. There is no example in it, and
# rustdoc reads each crate to find that, so `make test` does not look for any.
doc: export RUSTDOCFLAGS = -D warnings
doc:
	cargo doc --locked --workspace --no-deps --document-private-items
	cargo test --locked --workspace --doc

lint:
	@.ci/packages test
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

# Every shipped configuration and the unit file are valid.
check:
	cargo build --locked
	@$(MAKE) --no-print-directory check-files

# With the program that the tests have built: without their features half of the dependencies would be compiled again.
check-files:
	for file in configs/*.toml; do target/debug/spotter check $$file || exit 1; done
	.ci/verify-unit

# `make test` runs a minute of it. A line a minute, and at the end a table; it fails when anything was lost, doubled or left.
soak: export SPOTTER_SOAK_MINUTES ?= 60
soak:
	@.ci/packages test
	cargo test --locked --lib app::daemon::testbed::soak -- --nocapture

# `make test` runs a quarter of a minute of a small one. A line every 30 s, and at the end a table; it fails when two boxes published one camera.
fleet:
	@.ci/packages test
	cargo run --locked -p spotter-lab -- fleet --boxes 10 --cameras 200 --minutes 10 --seed $${SPOTTER_SOAK_SEED:-1}
	cargo run --locked -p spotter-lab -- fleet --boxes 10 --cameras 200 --minutes 10 --nats 3 --seed $${SPOTTER_SOAK_SEED:-1}

# Not a part of `make test`, because it installs Home Assistant.
home-assistant:
	tests/home_assistant/run

# Not a part of `make test`, because it installs a package from PyPI.
openai:
	tests/openai/run

# Not a part of `make test`, because it installs packages from npm.
browser:
	tests/browser/run

# Not for a package that is built in DESTDIR; a machine without systemd needs no call.
tell_systemd = if test -z "$(DESTDIR)"; then systemctl $(1) 2>/dev/null || true; fi

# Root often has no Rust, so `make install` installs what another user built. The configuration is readable to
# all, because systemd creates the service's user at its start; no secret is in it.
install:
	@test -x target/release/spotter || $(MAKE) --no-print-directory build
	install -D -m 755 target/release/spotter $(DESTDIR)$(PREFIX)/bin/spotter
	install -D -m 644 systemd/spotter.service $(DESTDIR)$(UNITS)/spotter.service
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/spotter/schemas docs/schemas/*.json
	sed -i 's|/usr/local/bin/spotter|$(PREFIX)/bin/spotter|' $(DESTDIR)$(UNITS)/spotter.service
	install -D -m 644 systemd/spotter.sysusers $(DESTDIR)$(SYSUSERS)/spotter.conf
	@test -e $(DESTDIR)/etc/spotter/spotter.toml || install -D -m 644 configs/minimal.toml $(DESTDIR)/etc/spotter/spotter.toml
	@if test -z "$(DESTDIR)"; then systemd-sysusers $(SYSUSERS)/spotter.conf || true; fi
	@$(call tell_systemd,daemon-reload)
	@echo "Edit /etc/spotter/spotter.toml, then: systemctl enable --now spotter"

uninstall:
	@$(call tell_systemd,disable --now spotter)
	rm -f $(DESTDIR)$(PREFIX)/bin/spotter $(DESTDIR)$(UNITS)/spotter.service $(DESTDIR)$(SYSUSERS)/spotter.conf
	rm -rf $(DESTDIR)$(PREFIX)/share/spotter
	@$(call tell_systemd,daemon-reload)
	@echo "Kept: /etc/spotter (your configuration) and /var/lib/spotter (state)"
