/**
 * The match's own movement code, compiled to WebAssembly: the map of a seed and one step of the own body.
 * The table of exports is in `shooter-runtime/PROTOCOL.md`, section 3.
 */

interface Exports {
  readonly memory: WebAssembly.Memory;
  load_map(seed: number, mode: number): number;
  walls(): number;
  map_width(): number;
  map_height(): number;
  set_body(x: number, y: number): void;
  apply_input(moveX: number, moveY: number): void;
  body_x(): number;
  body_y(): number;
  ray(x0: number, y0: number, x1: number, y1: number): number;
  tick_rate(): number;
  units_per_pixel(): number;
  player_radius(): number;
  projectile_radius(): number;
  projectile_speed(): number;
  projectile_ticks(): number;
  cooldown_ticks(): number;
  respawn_ticks(): number;
  health_max(): number;
}

/** One step of the own body, in simulation units. What prediction needs, and no more. */
export interface Mover {
  setBody(x: number, y: number): void;
  applyInput(moveX: number, moveY: number): void;
  readonly bodyX: number;
  readonly bodyY: number;
}

/** Walls in pixels: left, top, right, bottom of each, one after the other. */
export interface GameMap {
  readonly width: number;
  readonly height: number;
  readonly walls: Float32Array;
}

const UNKNOWN_MODE = 0xffff_ffff;
const RAY_WHOLE = 65_536;
const RAY_REACH = 0x3fff_ffff;

export class Simulation implements Mover {
  readonly tickRate: number;
  readonly unitsPerPixel: number;
  /** Lengths in pixels, speeds in pixels per tick. */
  readonly playerRadius: number;
  readonly projectileRadius: number;
  readonly projectileSpeed: number;
  readonly projectileTicks: number;
  readonly cooldownTicks: number;
  readonly respawnTicks: number;
  readonly healthMax: number;

  constructor(private readonly wasm: Exports) {
    this.tickRate = wasm.tick_rate();
    this.unitsPerPixel = wasm.units_per_pixel();
    this.playerRadius = wasm.player_radius() / this.unitsPerPixel;
    this.projectileRadius = wasm.projectile_radius() / this.unitsPerPixel;
    this.projectileSpeed = wasm.projectile_speed() / this.unitsPerPixel;
    this.projectileTicks = wasm.projectile_ticks();
    this.cooldownTicks = wasm.cooldown_ticks();
    this.respawnTicks = wasm.respawn_ticks();
    this.healthMax = wasm.health_max();
  }

  static async load(url: string, timeoutMs = 20_000): Promise<Simulation> {
    const response = await fetch(url, { signal: AbortSignal.timeout(timeoutMs) });
    if (!response.ok) throw new Error(`the simulation could not be loaded (HTTP ${response.status})`);
    return Simulation.of(await response.arrayBuffer());
  }

  static async of(bytes: BufferSource): Promise<Simulation> {
    const { instance } = await WebAssembly.instantiate(bytes, {});
    return new Simulation(instance.exports as unknown as Exports);
  }

  loadMap(seed: number, mode: number): GameMap {
    const count = this.wasm.load_map(seed, mode) >>> 0;
    if (count === UNKNOWN_MODE) throw new Error(`the simulation does not know mode ${mode}`);
    const units = new Int32Array(this.wasm.memory.buffer, this.wasm.walls(), count * 4);
    const walls = new Float32Array(units.length);
    for (let i = 0; i < units.length; i += 1) walls[i] = (units[i] ?? 0) / this.unitsPerPixel;
    return {
      width: this.wasm.map_width() / this.unitsPerPixel,
      height: this.wasm.map_height() / this.unitsPerPixel,
      walls,
    };
  }

  setBody(x: number, y: number): void {
    this.wasm.set_body(x, y);
  }

  applyInput(moveX: number, moveY: number): void {
    this.wasm.apply_input(moveX, moveY);
  }

  get bodyX(): number {
    return this.wasm.body_x();
  }

  get bodyY(): number {
    return this.wasm.body_y();
  }

  /** How far, in pixels and at most `reach`, a projectile flies from here before a wall stops it. */
  flight(x: number, y: number, dirX: number, dirY: number, reach: number): number {
    const share = this.wasm.ray(
      this.units(x),
      this.units(y),
      this.units(x + dirX * reach),
      this.units(y + dirY * reach),
    );
    return (reach * share) / RAY_WHOLE;
  }

  private units(pixels: number): number {
    return Math.max(-RAY_REACH, Math.min(RAY_REACH, Math.round(pixels * this.unitsPerPixel)));
  }
}
