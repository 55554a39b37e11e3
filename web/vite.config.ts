/** Builds the page that the service hands out under `/play/`. */

import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { defineConfig, type Plugin } from 'vite';

const wasm = fileURLToPath(new URL('public/simulation.wasm', import.meta.url));

/** Without the simulation the page would build and then fail in every browser. */
function needSimulation(): Plugin {
  return {
    name: 'need-simulation',
    apply: 'build',
    buildStart() {
      if (!existsSync(wasm)) {
        this.error('web/public/simulation.wasm is missing: run shooter-runtime/simulation/wasm/build.sh first');
      }
    },
  };
}

const platform = process.env['OMGSERVERS_URL'] ?? 'http://localhost:8080';

export default defineConfig({
  base: '/play/',
  plugins: [needSimulation()],
  build: { target: 'es2022', chunkSizeWarningLimit: 1_000, assetsInlineLimit: 0 },
  server: {
    proxy: {
      '/service': platform,
      '/dispatcher': { target: platform, ws: true },
    },
  },
});
