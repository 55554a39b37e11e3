#!/usr/bin/env bash
# Makes web/public/simulation.wasm.
#   build.sh [OUTPUT]
# With rustup's wasm32 target, installed or to be had, it is one cargo call. Without it, on Debian, the distribution's rustc-web
# builds the standard library from its source package; about a CPU minute the first time. Does nothing when the output is newer
# than its sources.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
output=${1:-$here/../../../web/public/simulation.wasm}
target=wasm32-unknown-unknown
artefact=$here/target/$target/release/shooter_simulation_wasm.wasm
cd "$here"

if [ -f "$output" ] && [ -z "$(find "$here/src" "$here/Cargo.toml" "$here/build.sh" "$here/../src" "$here/../Cargo.toml" -newer "$output")" ]; then
  exit 0
fi

has_target() {
  command -v rustc >/dev/null && [ -d "$(rustc --print target-libdir --target "$target" 2>/dev/null || echo /nonexistent)" ]
}

if ! has_target && command -v rustup >/dev/null && ! [ -x /usr/bin/wasm-ld ]; then
  timeout 120 rustup target add "$target" >/dev/null 2>&1 || true
fi

if has_target; then
  cargo build --release --ignore-rust-version --target "$target"
else
  if ! [ -x /usr/bin/rustc ] || ! [ -x /usr/bin/cargo ] || ! command -v wasm-ld >/dev/null \
    || ! [ -d "$(/usr/bin/rustc --print sysroot)/lib/rustlib/src/rust/library" ]; then
    if ! command -v apt-get >/dev/null; then
      echo "error: install the target with \`rustup target add $target\`" >&2
      exit 1
    fi
    sudo=
    [ "$(id -u)" = 0 ] || sudo=sudo
    $sudo apt-get update -q
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends rustc-web cargo-web rust-web-src lld
  fi
  # RUSTC_BOOTSTRAP lets the stable compiler accept -Zbuild-std; rust-lld is not packaged, wasm-ld is.
  # The environment may name the main toolchain's tools: PATH and RUSTC say which ones are meant here.
  env -u RUSTFLAGS -u CARGO_BUILD_TARGET -u CARGO_TARGET_DIR -u RUSTC_WRAPPER PATH="/usr/bin:$PATH" \
    RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1 CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=wasm-ld \
    /usr/bin/cargo build --release --ignore-rust-version -Zbuild-std=std,panic_abort --target "$target"
fi

mkdir -p "$(dirname "$output")"
cp "$artefact" "$output"
