import { describe, expect, it } from 'vitest';
import { Shots } from '../src/game/shots';

const open = (_x: number, _y: number, _dirX: number, _dirY: number, reach: number): number => reach;
const active = (shots: Shots): { x: number; own: boolean; visible: boolean }[] => shots.pool.filter((shot) => shot.active);

describe('shots', () => {
  it('fly from the click on, and end at the wall', () => {
    const shots = new Shots(10, 1_000, () => 100, 20);
    shots.fire(0, 0, 0, 50);
    shots.update(51, 1);
    expect(active(shots)[0]).toMatchObject({ x: 10, own: true, visible: false });
    shots.update(55, 4);
    expect(active(shots)[0]).toMatchObject({ x: 50, visible: true });
    shots.update(60, 5);
    expect(active(shots)).toEqual([]);
  });

  it('of others leave the muzzle that is drawn and catch up with the present', () => {
    const shots = new Shots(10, 1_000, open);
    shots.see(7, 2, 120, 0, 0, 100);
    shots.trace(7, 100, 0, 100, 6);
    shots.update(100, 0);
    expect(active(shots)[0]).toMatchObject({ visible: false });
    shots.update(105, 5);
    expect(active(shots)[0]?.x).toBeCloseTo(100 + (105 - 4 - 98) * 10);
    shots.update(130, 25);
    expect(active(shots)[0]?.x).toBeCloseTo(100 + 32 * 10);
  });

  it('are not doubled by the snapshots that list them, and end with the first that does not', () => {
    const shots = new Shots(10, 1_000, open);
    shots.see(7, 2, 100, 0, 0, 100);
    shots.end(100);
    shots.see(7, 2, 120, 0, 0, 102);
    shots.end(102);
    shots.update(103, 1);
    expect(active(shots).length).toBe(1);
    shots.end(104);
    shots.update(104, 1);
    expect(active(shots)).toEqual([]);
  });

  it('of mine are not ended by snapshots of others', () => {
    const shots = new Shots(10, 1_000, open);
    shots.fire(0, 0, 0, 100);
    shots.end(102);
    shots.update(103, 1);
    expect(active(shots).length).toBe(1);
  });

  it('give way when there are more than anybody can see', () => {
    const shots = new Shots(10, 1_000, open);
    for (let i = 0; i < 1_000; i += 1) shots.see(i, 2, 0, 0, 0, 100);
    expect(active(shots).length).toBe(shots.pool.length);
  });
});
