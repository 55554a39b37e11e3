/**
 * Other players a moment in the past: a clock that follows the match's ticks, and per player a short track of
 * positions between which is interpolated. Works on plain numbers and allocates nothing per frame.
 */

/** Samples per track: half a second at 30 snapshots a second. A power of two. */
const SAMPLES = 16;
const MASK = SAMPLES - 1;
/** How far a body may run on when the next snapshot is late. */
const EXTRAPOLATE_TICKS = 5;
/** Farther than anybody walks between two snapshots, in pixels: a respawn, not a walk. */
const TELEPORT = 96;
const TURN = 65_536;
const TO_RADIANS = (Math.PI * 2) / TURN;

/** The match's tick as a function of the local time. */
export class Clock {
  private offset = 0;
  private started = false;
  private jitter = 0;
  private delay: number;
  private shown = 0;

  constructor(
    private readonly tickMs: number,
    /** Least distance behind the present, in ticks. */
    private readonly delayMin: number,
    private readonly delayMax: number,
  ) {
    this.delay = delayMin;
  }

  /** A snapshot of `tick` arrived now. */
  observe(tick: number, nowMs: number): void {
    const sample = tick - nowMs / this.tickMs;
    const late = this.offset - sample;
    // Half a second off is no jitter but a pause (a sleeping tab, a reconnection): start again.
    if (!this.started || Math.abs(late) > 500 / this.tickMs) {
      this.started = true;
      this.offset = sample;
      this.shown = 0;
      return;
    }
    // Packets are never early, only late: follow early ones fast and late ones slowly.
    this.offset -= late * (late < 0 ? 0.25 : 0.02);
    this.jitter += (Math.abs(late) - this.jitter) * 0.05;
    const wanted = Math.min(this.delayMax, this.delayMin + Math.max(0, this.jitter * 3 - 2));
    this.delay += Math.max(-0.02, Math.min(0.2, wanted - this.delay));
  }

  /** The match's tick now, fractions included. */
  present(nowMs: number): number {
    return nowMs / this.tickMs + this.offset;
  }

  /** The tick at which others are drawn. Never goes back. */
  past(nowMs: number): number {
    this.shown = Math.max(this.shown, this.present(nowMs) - this.delay);
    return this.shown;
  }
}

export class Track {
  id = 0;
  health = 0;
  flags = 0;
  /** Results of the last `sample`, pixels and radians. */
  x = 0;
  y = 0;
  aim = 0;
  visible = false;

  private readonly ticks = new Float64Array(SAMPLES);
  private readonly xs = new Float32Array(SAMPLES);
  private readonly ys = new Float32Array(SAMPLES);
  private readonly aims = new Float32Array(SAMPLES);
  private stepX = 0;
  private stepY = 0;
  private count = 0;
  private head = 0;
  private goneAt = Infinity;

  start(id: number): void {
    this.id = id;
    this.count = 0;
    this.head = 0;
    this.visible = false;
    this.goneAt = Infinity;
  }

  /** Position in pixels, aim in 1/65536 turns, step in pixels per tick. Ticks must grow. */
  add(tick: number, x: number, y: number, aim: number, stepX: number, stepY: number): void {
    if (this.goneAt !== Infinity) {
      this.count = 0;
      this.goneAt = Infinity;
    }
    let radians = aim * TO_RADIANS;
    if (this.count > 0) {
      const last = (this.head - 1) & MASK;
      const distance = Math.abs(x - (this.xs[last] ?? 0)) + Math.abs(y - (this.ys[last] ?? 0));
      if (distance > TELEPORT) this.count = 0;
      const turn = Math.PI * 2;
      const lastAim = this.aims[last] ?? 0;
      radians += Math.round((lastAim - radians) / turn) * turn;
    }
    this.ticks[this.head] = tick;
    this.xs[this.head] = x;
    this.ys[this.head] = y;
    this.aims[this.head] = radians;
    this.stepX = stepX;
    this.stepY = stepY;
    this.head = (this.head + 1) & MASK;
    this.count = Math.min(this.count + 1, SAMPLES);
  }

  /** The player was not in the snapshot of `tick`: dead or out of sight. */
  miss(tick: number): void {
    if (this.goneAt === Infinity) this.goneAt = tick;
  }

  /** Whether nothing of this player will be drawn any more. */
  ended(tick: number): boolean {
    return tick >= this.goneAt;
  }

  sample(tick: number): void {
    if (this.count === 0 || tick >= this.goneAt) {
      this.visible = false;
      return;
    }
    const newest = (this.head - 1) & MASK;
    const newestTick = this.ticks[newest] ?? 0;
    this.visible = true;
    if (tick >= newestTick) {
      const ahead = Math.min(tick - newestTick, EXTRAPOLATE_TICKS);
      this.x = (this.xs[newest] ?? 0) + this.stepX * ahead;
      this.y = (this.ys[newest] ?? 0) + this.stepY * ahead;
      this.aim = this.aims[newest] ?? 0;
      return;
    }
    let later = newest;
    for (let back = 1; back < this.count; back += 1) {
      const earlier = (newest - back) & MASK;
      const from = this.ticks[earlier] ?? 0;
      if (tick >= from) {
        const share = (tick - from) / ((this.ticks[later] ?? 0) - from);
        this.x = mix(this.xs[earlier] ?? 0, this.xs[later] ?? 0, share);
        this.y = mix(this.ys[earlier] ?? 0, this.ys[later] ?? 0, share);
        this.aim = mix(this.aims[earlier] ?? 0, this.aims[later] ?? 0, share);
        return;
      }
      later = earlier;
    }
    // Before the first sample: the body has not appeared yet at this moment.
    this.visible = false;
    this.x = this.xs[later] ?? 0;
    this.y = this.ys[later] ?? 0;
    this.aim = this.aims[later] ?? 0;
  }
}

function mix(from: number, to: number, share: number): number {
  return from + (to - from) * share;
}

/** All other players that are, or a moment ago were, in sight. */
export class Tracks {
  /** In no order; do not keep across a `begin`. */
  readonly list: Track[] = [];
  private readonly byId = new Map<number, Track>();
  private readonly spare: Track[] = [];
  private readonly touched = new Set<number>();

  get(id: number): Track | undefined {
    return this.byId.get(id);
  }

  clear(): void {
    for (const track of this.list) this.spare.push(track);
    this.list.length = 0;
    this.byId.clear();
  }

  begin(): void {
    this.touched.clear();
  }

  /** The track of a player that the snapshot lists. */
  touch(id: number): Track {
    this.touched.add(id);
    let track = this.byId.get(id);
    if (!track) {
      track = this.spare.pop() ?? new Track();
      track.start(id);
      this.byId.set(id, track);
      this.list.push(track);
    }
    return track;
  }

  /** The snapshot of `tick` is read; `shown` is the tick being drawn, before which nothing is needed any more. */
  end(tick: number, shown: number): void {
    for (let i = this.list.length - 1; i >= 0; i -= 1) {
      const track = this.list[i];
      if (!track) continue;
      if (!this.touched.has(track.id)) track.miss(tick);
      if (track.ended(shown)) {
        this.byId.delete(track.id);
        this.spare.push(track);
        const last = this.list.pop();
        if (last && last !== track) this.list[i] = last;
      }
    }
  }

  sample(tick: number): void {
    for (let i = 0; i < this.list.length; i += 1) this.list[i]?.sample(tick);
  }
}
