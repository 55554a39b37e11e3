import { existsSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Predictor } from '../src/game/predict';
import { Simulation, type Mover } from '../src/game/simulation';

/** A world without walls: an input of 127 is a step of 10. */
class OpenField implements Mover {
  bodyX = 0;
  bodyY = 0;

  setBody(x: number, y: number): void {
    this.bodyX = x;
    this.bodyY = y;
  }

  applyInput(moveX: number, moveY: number): void {
    this.bodyX += Math.trunc((moveX * 10) / 127);
    this.bodyY += Math.trunc((moveY * 10) / 127);
  }
}

const alive = (x: number, y: number, cooldown = 0): { x: number; y: number; cooldown: number; alive: boolean } => ({ x, y, cooldown, alive: true });

function started(): Predictor {
  const predictor = new Predictor(new OpenField(), 10, 500);
  predictor.reset(0);
  predictor.reconcile(alive(100, 100), 0);
  return predictor;
}

describe('prediction', () => {
  it('moves at once, before the match has said anything', () => {
    const predictor = started();
    predictor.push(127, 0, 0, 0);
    expect([predictor.x, predictor.y, predictor.pending]).toEqual([110, 100, 1]);
  });

  it('changes nothing when the match agrees', () => {
    const predictor = started();
    for (let i = 0; i < 6; i += 1) predictor.push(127, 0, 0, 0);
    predictor.reconcile(alive(140, 100), 4);
    expect([predictor.x, predictor.beforeX, predictor.errorX, predictor.pending]).toEqual([160, 150, 0, 2]);
  });

  it('applies what the match has not seen on top of what it says, and lets the difference glide', () => {
    const predictor = started();
    for (let i = 0; i < 6; i += 1) predictor.push(127, 0, 0, 0);
    predictor.reconcile(alive(100, 130), 4);
    expect([predictor.x, predictor.y]).toEqual([120, 130]);
    expect([predictor.errorX, predictor.errorY]).toEqual([40, -30]);
    predictor.settle(60);
    expect(predictor.errorX).toBeCloseTo(20);
    predictor.settle(2_000);
    expect(Math.abs(predictor.errorX)).toBeLessThan(0.01);
  });

  it('jumps instead of gliding when the body is somewhere else altogether', () => {
    const predictor = started();
    predictor.reconcile(alive(9_000, 100), 0);
    expect([predictor.x, predictor.errorX]).toEqual([9_000, 0]);
  });

  it('ignores an older state', () => {
    const predictor = started();
    for (let i = 0; i < 4; i += 1) predictor.push(127, 0, 0, 0);
    predictor.reconcile(alive(140, 100), 4);
    predictor.reconcile(alive(110, 100), 1);
    expect(predictor.x).toBe(140);
  });

  it('lets the dead stand, and starts from the new place when they are back', () => {
    const predictor = started();
    predictor.reconcile({ x: 100, y: 100, cooldown: 0, alive: false }, 0);
    predictor.push(127, 0, 0, 1);
    expect(predictor.x).toBe(100);
    predictor.push(127, 0, 0, 0);
    predictor.reconcile(alive(300, 300), 1);
    expect([predictor.x, predictor.errorX]).toEqual([310, 0]);
  });

  it('fires once per cooldown and believes the match about it', () => {
    const predictor = started();
    const shots = (count: number): number => Array.from({ length: count }, () => predictor.push(0, 0, 0, 1)).filter(Boolean).length;
    expect(shots(21)).toBe(3);
    predictor.reconcile(alive(100, 100, 9), 21);
    expect(shots(8)).toBe(0);
    expect(shots(1)).toBe(1);
  });

  it('counts on from what the match has acknowledged after a reconnection', () => {
    const predictor = started();
    for (let i = 0; i < 5; i += 1) predictor.push(127, 0, 0, 0);
    predictor.reset(40);
    predictor.push(0, 127, 9, 1);
    expect([predictor.newest, predictor.pending]).toEqual([41, 1]);
    expect(predictor.inputAt(41)).toEqual({ moveX: 0, moveY: 127, aim: 9, buttons: 1 });
  });

  it('stands still when the match is over', () => {
    const predictor = started();
    predictor.frozen = true;
    predictor.push(127, 0, 0, 1);
    predictor.reconcile(alive(100, 100), 0);
    expect(predictor.x).toBe(100);
  });

  it('keeps only as many inputs as it can hold when the match is silent', () => {
    const predictor = started();
    for (let i = 0; i < 1_000; i += 1) predictor.push(127, 0, 0, 0);
    predictor.reconcile(alive(0, 100), 0);
    expect(predictor.pending).toBe(128);
    expect(predictor.x).toBe(1_280);
  });
});

const wasm = new URL('../public/simulation.wasm', import.meta.url);

describe.skipIf(!existsSync(wasm))('the simulation', () => {
  const load = async (): Promise<Simulation> => Simulation.of(readFileSync(wasm));

  it('makes the same map from the same seed, with every wall inside it', async () => {
    const simulation = await load();
    for (const mode of [0, 1]) {
      const map = simulation.loadMap(7, mode);
      expect(map.walls.length).toBeGreaterThan(0);
      for (let i = 0; i < map.walls.length; i += 4) {
        const [left = -1, top = -1, right = -1, bottom = -1] = map.walls.subarray(i, i + 4);
        expect(left >= 0 && top >= 0 && right <= map.width && bottom <= map.height && left < right && top < bottom).toBe(true);
      }
      expect(simulation.loadMap(7, mode)).toEqual(map);
    }
    expect(() => simulation.loadMap(7, 99)).toThrow('mode 99');
  });

  it('gives the same way whether inputs are applied at once or replayed after a correction', async () => {
    const simulation = await load();
    const map = simulation.loadMap(7, 0);
    const units = simulation.unitsPerPixel;
    const start = alive((map.width / 2) * units, 60 * units);
    const inputs = Array.from({ length: 90 }, (_, i) => [Math.round(Math.sin(i / 9) * 127), Math.round(Math.cos(i / 7) * 127)] as const);
    simulation.setBody(start.x, start.y);
    const way = inputs.map(([x, y]) => {
      simulation.applyInput(x, y);
      return [simulation.bodyX, simulation.bodyY] as const;
    });
    const predictor = new Predictor(simulation, 10, 1_000_000);
    predictor.reset(0);
    predictor.reconcile(start, 0);
    inputs.forEach(([x, y], i) => {
      predictor.push(x, y, 0, 0);
      const confirmed = i - 6;
      if (confirmed > 0) {
        const [seenX, seenY] = way[confirmed - 1] ?? [0, 0];
        predictor.reconcile(alive(seenX, seenY), confirmed);
      }
      expect([predictor.x, predictor.y]).toEqual(way[i]);
      expect([predictor.errorX, predictor.errorY]).toEqual([0, 0]);
    });
  });
});
