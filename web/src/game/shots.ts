/**
 * Projectiles between two snapshots: they fly straight, so each needs one known place, a direction and an end.
 * Own shots fly from the moment of the click; those of others start at the muzzle that is drawn (a moment in the past)
 * and catch up with the present, so that they can be dodged where they are seen. No pictures here.
 */

const CAPACITY = 384;
const TO_RADIANS = (Math.PI * 2) / 65_536;
/** Ticks by which a late start is caught up per tick. */
const CATCH_UP = 0.4;

export class Shot {
  active = false;
  own = false;
  id = 0;
  owner = 0;
  /** What to draw, pixels and radians. */
  x = 0;
  y = 0;
  angle = 0;
  visible = false;

  dirX = 0;
  dirY = 0;
  fromX = 0;
  fromY = 0;
  /** When it was at `fromX`, `fromY`: a tick. */
  bornAt = 0;
  /** Ticks that it is drawn behind the present. */
  lag = 0;
  /** Pixels from `fromX`, `fromY` to the wall or the end of its flight. */
  reach = 0;
  seenAt = 0;
  endsAt = Infinity;
}

/** The nearest wall in a direction, in pixels. */
export type Flight = (x: number, y: number, dirX: number, dirY: number, reach: number) => number;

export class Shots {
  /** Fixed pool; look at `active`. */
  readonly pool: readonly Shot[] = Array.from({ length: CAPACITY }, () => new Shot());
  private cursor = 0;

  constructor(
    /** Pixels per tick. */
    private readonly speed: number,
    private readonly range: number,
    private readonly flight: Flight,
    /** Shots start in the middle of a body and are seen from here on, in pixels. */
    private readonly muzzle = 0,
  ) {}

  clear(): void {
    for (const shot of this.pool) shot.active = false;
  }

  /** The own weapon fired; `tick` is the present as drawn. */
  fire(x: number, y: number, aim: number, tick: number): Shot {
    const shot = this.take();
    shot.own = true;
    this.place(shot, x, y, aim, tick);
    return shot;
  }

  /** A projectile of somebody else is listed at this place in the snapshot of `tick`. */
  see(id: number, owner: number, x: number, y: number, aim: number, tick: number): void {
    for (let i = 0; i < CAPACITY; i += 1) {
      const shot = this.pool[i];
      if (shot && shot.active && !shot.own && shot.id === id) {
        shot.seenAt = tick;
        return;
      }
    }
    const shot = this.take();
    shot.own = false;
    shot.id = id;
    shot.owner = owner;
    shot.seenAt = tick;
    this.place(shot, x, y, aim, tick);
  }

  /** Where projectile `id`, just seen for the first time, left the muzzle; it is drawn `lag` ticks behind at first. */
  trace(id: number, x: number, y: number, tick: number, lag: number): void {
    for (let i = 0; i < CAPACITY; i += 1) {
      const shot = this.pool[i];
      if (!shot || !shot.active || shot.own || shot.id !== id || shot.bornAt !== tick || shot.seenAt !== tick) continue;
      const back = Math.max(0, (shot.fromX - x) * shot.dirX + (shot.fromY - y) * shot.dirY);
      shot.fromX -= shot.dirX * back;
      shot.fromY -= shot.dirY * back;
      shot.bornAt -= back / this.speed;
      shot.reach += back;
      shot.lag = lag;
      return;
    }
  }

  /** The snapshot of `tick` is read: what it did not list has ended. */
  end(tick: number): void {
    for (let i = 0; i < CAPACITY; i += 1) {
      const shot = this.pool[i];
      if (shot && shot.active && !shot.own && shot.seenAt < tick && shot.endsAt === Infinity) shot.endsAt = tick;
    }
  }

  /** Moves everything to the present. */
  update(tick: number, elapsedTicks: number): void {
    for (let i = 0; i < CAPACITY; i += 1) {
      const shot = this.pool[i];
      if (!shot || !shot.active) continue;
      shot.lag = Math.max(0, shot.lag - CATCH_UP * elapsedTicks);
      const shown = tick - shot.lag;
      const way = (shown - shot.bornAt) * this.speed;
      if (way >= shot.reach || shown >= shot.endsAt) {
        shot.active = false;
        continue;
      }
      shot.visible = way >= this.muzzle;
      shot.x = shot.fromX + shot.dirX * way;
      shot.y = shot.fromY + shot.dirY * way;
    }
  }

  private place(shot: Shot, x: number, y: number, aim: number, tick: number): void {
    shot.angle = aim * TO_RADIANS;
    shot.dirX = Math.cos(shot.angle);
    shot.dirY = Math.sin(shot.angle);
    shot.fromX = shot.x = x;
    shot.fromY = shot.y = y;
    shot.bornAt = tick;
    shot.lag = 0;
    shot.endsAt = Infinity;
    shot.visible = false;
    shot.reach = this.flight(x, y, shot.dirX, shot.dirY, this.range);
  }

  private take(): Shot {
    for (let i = 0; i < CAPACITY; i += 1) {
      const shot = this.pool[(this.cursor + i) % CAPACITY];
      if (shot && !shot.active) {
        this.cursor = (this.cursor + i + 1) % CAPACITY;
        shot.active = true;
        return shot;
      }
    }
    // Full: the oldest gives way.
    this.cursor = (this.cursor + 1) % CAPACITY;
    const shot = this.pool[this.cursor] ?? new Shot();
    shot.active = true;
    return shot;
  }
}
