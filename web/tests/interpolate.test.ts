import { describe, expect, it } from 'vitest';
import { Clock, Track, Tracks } from '../src/game/interpolate';

const TICK = 1_000 / 60;

describe('clock', () => {
  it('shows others the configured time behind the newest snapshot', () => {
    const clock = new Clock(TICK, 6, 18);
    for (let tick = 100; tick <= 400; tick += 2) clock.observe(tick, tick * TICK);
    expect(clock.present(400 * TICK)).toBeCloseTo(400, 3);
    expect(clock.past(400 * TICK)).toBeCloseTo(394, 3);
  });

  it('never goes back, even when packets are late', () => {
    const clock = new Clock(TICK, 6, 18);
    let last = 0;
    for (let tick = 100; tick <= 600; tick += 2) {
      const late = tick % 10 === 0 ? 80 : 0;
      clock.observe(tick, tick * TICK + late);
      const shown = clock.past(tick * TICK + late);
      expect(shown).toBeGreaterThanOrEqual(last);
      last = shown;
    }
  });

  it('keeps a larger distance from the present on a shaky line, within its bound', () => {
    const clock = new Clock(TICK, 6, 18);
    for (let tick = 100; tick <= 2_000; tick += 2) clock.observe(tick, tick * TICK + (tick % 6) * 30);
    const now = 2_000 * TICK;
    const distance = clock.present(now) - clock.past(now);
    expect(distance).toBeGreaterThan(8);
    expect(distance).toBeLessThanOrEqual(18);
  });

  it('starts again after a pause instead of racing to catch up', () => {
    const clock = new Clock(TICK, 6, 18);
    clock.observe(100, 100 * TICK);
    clock.past(100 * TICK);
    clock.observe(700, 130 * TICK);
    expect(clock.present(130 * TICK)).toBeCloseTo(700, 3);
    expect(clock.past(130 * TICK)).toBeCloseTo(694, 3);
  });
});

describe('track', () => {
  const track = (): Track => {
    const made = new Track();
    made.start(1);
    return made;
  };

  it('is between two snapshots where the time between them says', () => {
    const t = track();
    t.add(10, 0, 100, 0, 4, 0);
    t.add(12, 8, 100, 0, 4, 0);
    t.sample(11);
    expect([t.visible, t.x, t.y]).toEqual([true, 4, 100]);
  });

  it('turns the short way over the full circle', () => {
    const t = track();
    t.add(10, 0, 0, 65_000, 0, 0);
    t.add(12, 0, 0, 500, 0, 0);
    t.sample(11);
    const turns = t.aim / (Math.PI * 2);
    expect(turns - Math.floor(turns)).toBeCloseTo((65_000 + 518) / 65_536, 3);
  });

  it('runs on with its last step when a snapshot is late, but only for a moment', () => {
    const t = track();
    t.add(10, 0, 0, 0, 4, 0);
    t.sample(12);
    expect(t.x).toBe(8);
    t.sample(40);
    expect(t.x).toBe(20);
  });

  it('appears at its first snapshot and not before', () => {
    const t = track();
    t.add(10, 5, 5, 0, 0, 0);
    t.sample(9);
    expect(t.visible).toBe(false);
    t.sample(10);
    expect(t.visible).toBe(true);
  });

  it('does not glide across the map after a respawn', () => {
    const t = track();
    t.add(10, 0, 0, 0, 0, 0);
    t.add(12, 900, 900, 0, 0, 0);
    t.sample(11);
    expect(t.visible).toBe(false);
    t.sample(12);
    expect([t.x, t.y]).toEqual([900, 900]);
  });

  it('vanishes at the snapshot that does not list it, and starts afresh when it is back', () => {
    const t = track();
    t.add(10, 0, 0, 0, 0, 0);
    t.miss(12);
    t.sample(11);
    expect(t.visible).toBe(true);
    t.sample(12);
    expect(t.visible).toBe(false);
    t.add(14, 50, 0, 0, 0, 0);
    t.sample(13);
    expect(t.visible).toBe(false);
    t.sample(14);
    expect([t.visible, t.x]).toEqual([true, 50]);
  });

  it('survives more snapshots than it remembers', () => {
    const t = track();
    for (let tick = 0; tick < 200; tick += 2) t.add(tick, tick * 4, 0, 0, 4, 0);
    t.sample(191);
    expect(t.x).toBeCloseTo(191 * 4, 3);
  });
});

describe('tracks', () => {
  const snapshot = (tracks: Tracks, tick: number, ids: readonly number[]): void => {
    tracks.begin();
    for (const id of ids) tracks.touch(id).add(tick, id * 10, 0, 0, 0, 0);
    tracks.end(tick, tick - 6);
  };

  it('keeps a player who left until that moment is drawn, and reuses the track afterwards', () => {
    const tracks = new Tracks();
    snapshot(tracks, 10, [1, 2]);
    const second = tracks.get(2);
    snapshot(tracks, 12, [1]);
    expect(tracks.list.length).toBe(2);
    for (let tick = 14; tick <= 18; tick += 2) snapshot(tracks, tick, [1]);
    expect(tracks.list.map((track) => track.id)).toEqual([1]);
    snapshot(tracks, 20, [1, 3]);
    expect(tracks.get(3)).toBe(second);
    tracks.sample(20);
    expect(tracks.get(3)?.x).toBe(30);
  });
});
