// Walks through maps with the module that build.sh made and compares the places with those the native build came to
// (../tests/walk.golden, checked against it by ../tests/walk.rs).
//   node check.mjs [simulation.wasm]

import { readFileSync } from "node:fs";

const folder = new URL(".", import.meta.url);
const path = process.argv[2] ?? new URL("../../../web/public/simulation.wasm", folder);
const { instance } = await WebAssembly.instantiate(readFileSync(path), {});
const simulation = instance.exports;

let found = "";
for (const mode of [0, 1]) {
  for (let seed = 1; seed <= 5; seed += 1) {
    const walls = simulation.load_map(seed, mode);
    simulation.set_body(19200, 19200);
    let random = seed;
    const next = () => (random = (Math.imul(random, 1664525) + 1013904223) >>> 0) >> 24;
    for (let turn = 0; turn < 100; turn += 1) {
      const [x, y] = [next(), next()];
      simulation.set_body(simulation.body_x(), simulation.body_y());
      for (let step = 0; step < 60; step += 1) simulation.apply_input(x, y);
    }
    const ray = simulation.ray(19200, 19200, simulation.map_width() - 500, simulation.map_height() - 300);
    found += `${mode} ${seed} ${walls} ${simulation.body_x()} ${simulation.body_y()} ${ray}\n`;
  }
}

if (found !== readFileSync(new URL("../tests/walk.golden", folder), "utf8")) {
  console.error(`error: the module walks other ways than the server:\n${found}`);
  process.exit(1);
}
