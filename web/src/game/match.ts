/**
 * One match as the player lives it: packets in, inputs out, and every frame the picture of a moment. Ties prediction,
 * interpolation, projectiles, sound and picture together; knows nothing of sockets, the lobby or the service.
 */

import { EventKind, type Snapshot, type Welcome } from '../generated/shooter';
import type { Controls } from './input';
import type { Hud, NamedColour, Standing } from './hud';
import { Clock, Tracks } from './interpolate';
import { FIRE, Predictor } from './predict';
import type { Body, Kind, Stage } from './render';
import type { Simulation } from './simulation';
import { Shots } from './shots';
import type { Sound } from './sound';
import { COLOURS } from './textures';
import { ALIVE, AWAY, GUARDED, INPUTS_MAX, POSITION, Reader, STEP, Writer, type Named, type PacketListener, type Result } from './wire';

/** Others are drawn this far in the past, so that the next snapshot is there when it is needed. */
const DELAY_MS = 100;
const DELAY_MAX_MS = 300;
const HUD_EVERY_MS = 100;
/** A pause longer than this (a hidden tab) is not caught up. */
const FRAME_MAX_MS = 200;
const EVENTS_MAX = 512;
const STALE_TICKS = 30;
/** Inputs whose time of sending is remembered. */
const SENT = 128;
/** Where the barrel ends, in radii from the middle of the body. */
const MUZZLE = 1.6;

interface Score {
  kills: number;
  deaths: number;
}

interface Drawn {
  id: number;
  readonly body: Body;
}

/** An event that waits until the moment it belongs to is drawn. */
class Pending {
  tick = 0;
  kind: EventKind = EventKind.Shot;
  actor = 0;
  other = 0;
  x = 0;
  y = 0;
  value = 0;
}

export interface MatchListener {
  onOver(result: Result): void;
}

export class Match implements PacketListener {
  ownId = -1;
  tick = 0;
  fps = 0;
  pingMs = 0;
  over: Result | null = null;
  badPackets = 0;
  private readonly reader = new Reader();
  private readonly writer = new Writer();
  private readonly predictor: Predictor;
  private readonly tracks = new Tracks();
  private readonly shots: Shots;
  private readonly tickMs: number;
  private clock: Clock;
  private readonly roster = new Map<number, Named>();
  private readonly scores = new Map<number, Score>();
  private readonly drawn: Drawn[] = [];
  private ownBody: Body | null = null;
  private readonly queue: readonly Pending[] = Array.from({ length: EVENTS_MAX }, () => new Pending());
  private queueHead = 0;
  private queueTail = 0;
  private nextEvent = 0;
  private readonly sentAt = new Float64Array(SENT);
  private mapKey = '';
  private endsAt = 0;
  private fragLimit = 0;
  private health = 0;
  private flags = 0;
  private aim = 0;
  private respawnIn = 0;
  private hasBody = false;
  private killedBy = '';
  private running = false;
  private lastFrame = 0;
  private spare = 0;
  private hudAt = 0;

  constructor(
    private readonly simulation: Simulation,
    private readonly stage: Stage,
    private readonly hud: Hud,
    private readonly sound: Sound,
    private readonly controls: Controls,
    private readonly send: (bytes: Uint8Array<ArrayBuffer>) => void,
    private readonly listener: MatchListener,
  ) {
    this.tickMs = 1_000 / simulation.tickRate;
    this.clock = this.newClock();
    this.predictor = new Predictor(simulation, simulation.cooldownTicks, 120 * simulation.unitsPerPixel);
    this.shots = new Shots(
      simulation.projectileSpeed,
      simulation.projectileSpeed * simulation.projectileTicks,
      (x, y, dirX, dirY, reach) => simulation.flight(x, y, dirX, dirY, reach),
      simulation.playerRadius * MUZZLE,
    );
  }

  start(): void {
    if (this.running) return;
    this.running = true;
    this.controls.attach();
    this.lastFrame = performance.now();
    requestAnimationFrame(this.frame);
  }

  stop(): void {
    this.running = false;
    this.controls.detach();
    this.hud.reset();
    this.tracks.clear();
    this.shots.clear();
    for (const { body } of this.drawn) this.stage.giveBack(body);
    this.drawn.length = 0;
    if (this.ownBody) this.stage.giveBack(this.ownBody);
    this.ownBody = null;
    this.roster.clear();
    this.scores.clear();
    this.over = null;
    this.ownId = -1;
    this.nextEvent = 0;
    this.hasBody = false;
  }

  packet(bytes: Uint8Array): void {
    try {
      this.reader.read(bytes, this);
    } catch {
      this.badPackets += 1;
    }
  }

  get players(): readonly { id: number; name: string; bot: boolean; kills: number; deaths: number }[] {
    return this.standings();
  }

  get ownScore(): Score {
    return this.scores.get(this.ownId) ?? { kills: 0, deaths: 0 };
  }

  /** The own body: where it is in the world, and where on the screen; nothing while it has none. */
  get body(): { x: number; y: number; screenX: number; screenY: number; alive: boolean; health: number } | null {
    if (!this.hasBody) return null;
    const { predictor, stage } = this;
    const units = this.simulation.unitsPerPixel;
    return {
      x: predictor.x / units,
      y: predictor.y / units,
      screenX: stage.bodyX,
      screenY: stage.bodyY,
      alive: predictor.alive,
      health: this.health,
    };
  }

  setReconnecting(lost: boolean): void {
    this.hud.setReconnecting(lost);
  }

  /** Others in sight, as drawn. */
  get visible(): readonly { id: number; x: number; y: number }[] {
    return this.tracks.list.filter((track) => track.visible).map(({ id, x, y }) => ({ id, x, y }));
  }

  onWelcome(welcome: Welcome): void {
    const key = `${welcome.seed()}/${welcome.mode()}`;
    if (welcome.player() !== this.ownId || key !== this.mapKey) this.nextEvent = 0;
    this.ownId = welcome.player();
    this.endsAt = welcome.endsAt();
    this.fragLimit = welcome.fragLimit();
    this.over = null;
    this.tick = 0;
    this.clock = this.newClock();
    this.scores.clear();
    this.tracks.clear();
    this.shots.clear();
    this.queueHead = this.queueTail = 0;
    this.predictor.reset(welcome.acknowledged());
    this.hud.reset();
    if (key !== this.mapKey) {
      const map = this.simulation.loadMap(welcome.seed(), welcome.mode());
      this.mapKey = key;
      this.stage.load(map);
      this.hud.loadMinimap(map);
    }
    this.start();
  }

  onRoster(players: readonly Named[]): void {
    this.roster.clear();
    for (const player of players) this.roster.set(player.id, player);
    for (const { id, body } of this.drawn) body.dress(this.kindOf(id), this.nameOf(id));
    this.ownBody?.dress('own', this.nameOf(this.ownId));
  }

  onMatchOver(result: Result): void {
    this.over = result;
    this.predictor.frozen = true;
    this.hud.showResult(result, this.ownId);
    this.listener.onOver(result);
  }

  onSnapshot(snapshot: Snapshot): void {
    const tick = snapshot.tick();
    if (this.ownId < 0 || tick <= this.tick) return;
    const now = performance.now();
    this.tick = tick;
    this.clock.observe(tick, now);
    const lag = this.clock.present(now) - this.clock.past(now);
    this.readOwn(snapshot, now);
    this.readPlayers(snapshot, tick, now);
    const { projectile } = this.reader;
    for (let i = 0; i < snapshot.projectilesLength(); i += 1) {
      if (!snapshot.projectiles(i, projectile) || projectile.owner() === this.ownId) continue;
      this.shots.see(projectile.id(), projectile.owner(), projectile.x() * POSITION, projectile.y() * POSITION, projectile.aim(), tick);
    }
    this.readEvents(snapshot, tick, lag);
    this.shots.end(tick);
    const { score } = this.reader;
    for (let i = 0; i < snapshot.scoresLength(); i += 1) {
      if (snapshot.scores(i, score)) this.scores.set(score.player(), { kills: score.kills(), deaths: score.deaths() });
    }
  }

  private readOwn(snapshot: Snapshot, now: number): void {
    const acknowledged = snapshot.acknowledged();
    const sent = this.sentAt[acknowledged % SENT] ?? 0;
    if (sent > 0) {
      this.pingMs += (now - sent - this.pingMs) * (this.pingMs === 0 ? 1 : 0.1);
      this.sentAt[acknowledged % SENT] = 0;
    }
    const own = snapshot.own(this.reader.own);
    this.hasBody = own !== null;
    if (!own) {
      this.predictor.alive = false;
      return;
    }
    const alive = (own.flags() & ALIVE) !== 0;
    this.predictor.reconcile({ x: own.x(), y: own.y(), cooldown: own.cooldown(), alive }, acknowledged);
    this.health = own.health() / this.simulation.healthMax;
    this.flags = own.flags();
    this.respawnIn = own.respawnIn();
  }

  private readPlayers(snapshot: Snapshot, tick: number, now: number): void {
    const { player } = this.reader;
    this.tracks.begin();
    for (let i = 0; i < snapshot.playersLength(); i += 1) {
      if (!snapshot.players(i, player) || player.id() === this.ownId) continue;
      const track = this.tracks.touch(player.id());
      track.add(tick, player.x() * POSITION, player.y() * POSITION, player.aim(), player.stepX() * STEP, player.stepY() * STEP);
      track.health = player.health();
      track.flags = player.flags();
    }
    this.tracks.end(tick, this.clock.past(now));
  }

  private readEvents(snapshot: Snapshot, tick: number, lag: number): void {
    const { event } = this.reader;
    const first = snapshot.firstEvent();
    for (let i = 0; i < snapshot.eventsLength(); i += 1) {
      if (first + i < this.nextEvent || !snapshot.events(i, event)) continue;
      this.nextEvent = first + i + 1;
      const pending = this.queue[this.queueTail % EVENTS_MAX];
      if (!pending) continue;
      pending.tick = tick;
      pending.kind = event.kind();
      pending.actor = event.actor();
      pending.other = event.other();
      pending.x = event.x() * POSITION;
      pending.y = event.y() * POSITION;
      pending.value = event.value();
      if (pending.kind === EventKind.Shot) this.shots.trace(pending.other, pending.x, pending.y, tick, lag);
      if (this.atOnce(pending)) continue;
      this.queueTail += 1;
      if (this.queueTail - this.queueHead > EVENTS_MAX) this.queueHead = this.queueTail - EVENTS_MAX;
    }
  }

  /** What concerns the own body happens now, since that is drawn in the present. Answers whether nothing is left to do later. */
  private atOnce(event: Pending): boolean {
    const { ownId, sound } = this;
    const mine = event.actor === ownId;
    const me = event.other === ownId;
    switch (event.kind) {
      case EventKind.Shot:
        return mine;
      case EventKind.Hit:
        if (mine) {
          this.stage.hitConfirmed();
          sound.play('hit');
        }
        if (me) {
          this.ownBody?.flash();
          this.stage.effects.hit(event.x, event.y, COLOURS.own);
          this.stage.effects.shake(0.35);
          this.hud.flashHurt();
          sound.play('hurt');
        }
        return me;
      case EventKind.Kill:
        this.hud.addKill(event.actor === event.other ? null : this.named(event.actor), this.named(event.other));
        if (mine && !me) sound.play('score');
        if (me) {
          this.killedBy = mine ? '' : this.nameOf(event.actor);
          this.stage.effects.burst(event.x, event.y, COLOURS.own);
          this.stage.effects.shake(0.8);
          sound.play('burst');
        }
        return me;
      case EventKind.Spawn:
        if (mine) {
          this.stage.effects.arrival(event.x, event.y, COLOURS.own);
          sound.play('spawn');
        }
        return mine;
      default:
        return false;
    }
  }

  /** What happened to others, at the moment it is drawn. */
  private later(event: Pending): void {
    const { effects } = this.stage;
    const units = this.simulation.unitsPerPixel;
    const dx = event.x - this.predictor.x / units;
    const dy = event.y - this.predictor.y / units;
    const colour = event.actor === this.ownId ? COLOURS.own : COLOURS.enemy;
    switch (event.kind) {
      case EventKind.Shot:
        this.flash(event.x, event.y, (event.value / 65_536) * Math.PI * 2, COLOURS.enemy);
        this.sound.play('enemyShot', dx, dy);
        break;
      case EventKind.Hit:
        effects.hit(event.x, event.y, colour);
        for (const { id, body } of this.drawn) if (id === event.other) body.flash();
        break;
      case EventKind.Kill:
        effects.burst(event.x, event.y, COLOURS[this.kindOf(event.other)]);
        this.sound.play('burst', dx, dy);
        if (event.actor === this.ownId) effects.shake(0.25);
        break;
      case EventKind.Spawn:
        effects.arrival(event.x, event.y, COLOURS[this.kindOf(event.actor)]);
        break;
      case EventKind.Spark:
        effects.spark(event.x, event.y, colour);
        this.sound.play('spark', dx, dy);
        break;
      default:
    }
  }

  private readonly frame = (now: number): void => {
    if (!this.running) return;
    requestAnimationFrame(this.frame);
    const elapsed = Math.max(0, Math.min(FRAME_MAX_MS, now - this.lastFrame));
    this.lastFrame = now;
    if (elapsed > 0) this.fps += (1_000 / elapsed - this.fps) * 0.05;
    if (this.tick > 0) this.think(elapsed);
    this.predictor.settle(elapsed);
    const wall = performance.now();
    const past = this.clock.past(wall);
    this.tracks.sample(past);
    while (this.queueHead < this.queueTail) {
      const event = this.queue[this.queueHead % EVENTS_MAX];
      if (!event || event.tick > past) break;
      // What happened while the page was hidden is not shown all at once.
      if (event.tick > past - STALE_TICKS) this.later(event);
      this.queueHead += 1;
    }
    this.shots.update(this.clock.present(wall), elapsed / this.tickMs);
    this.stopOwnShots();
    this.stage.effects.update(elapsed);
    this.draw(now / 1_000, elapsed);
    if (now - this.hudAt > HUD_EVERY_MS) {
      this.hudAt = now;
      this.showState(wall);
    }
  };

  /** As many ticks of input as time has passed. */
  private think(elapsed: number): void {
    this.spare += elapsed;
    let steps = 0;
    while (this.spare >= this.tickMs && steps < INPUTS_MAX) {
      this.spare -= this.tickMs;
      steps += 1;
      const { controls } = this;
      controls.sample(this.stage.bodyX, this.stage.bodyY);
      this.aim = controls.aim;
      if (this.predictor.push(controls.moveX, controls.moveY, controls.aim, controls.fire ? FIRE : 0)) this.fired();
      this.sentAt[this.predictor.newest % SENT] = performance.now();
    }
    if (this.spare >= this.tickMs) this.spare = 0;
    if (steps === 0) return;
    const count = Math.max(1, Math.min(INPUTS_MAX, this.predictor.pending));
    this.send(this.writer.inputs(this.predictor, count, this.tick));
  }

  /** The own weapon fired just now, as far as this side knows. */
  private fired(): void {
    const { predictor, simulation } = this;
    const angle = (this.aim / 65_536) * Math.PI * 2;
    const x = predictor.x / simulation.unitsPerPixel;
    const y = predictor.y / simulation.unitsPerPixel;
    this.shots.fire(x, y, this.aim, this.clock.present(performance.now()));
    this.flash(x, y, angle, COLOURS.own);
    this.stage.effects.shake(0.06);
    this.sound.play('shot');
  }

  private flash(x: number, y: number, angle: number, colour: number): void {
    const away = this.simulation.playerRadius * MUZZLE;
    this.stage.effects.muzzle(x + Math.cos(angle) * away, y + Math.sin(angle) * away, angle, colour);
  }

  /** An own shot ends at the body that it is seen to hit; whether it counts, the match says. */
  private stopOwnShots(): void {
    const reach = this.simulation.playerRadius + this.simulation.projectileRadius;
    const { list } = this.tracks;
    const { pool } = this.shots;
    for (let i = 0; i < pool.length; i += 1) {
      const shot = pool[i];
      if (!shot || !shot.active || !shot.own) continue;
      for (let j = 0; j < list.length; j += 1) {
        const track = list[j];
        if (!track?.visible) continue;
        const dx = track.x - shot.x;
        const dy = track.y - shot.y;
        if (dx * dx + dy * dy < reach * reach) {
          shot.active = false;
          break;
        }
      }
    }
  }

  private draw(seconds: number, elapsed: number): void {
    const { list } = this.tracks;
    for (let i = this.drawn.length - 1; i >= 0; i -= 1) {
      const drawn = this.drawn[i];
      if (!drawn || this.tracks.get(drawn.id)?.visible) continue;
      this.stage.giveBack(drawn.body);
      const last = this.drawn.pop();
      if (last && last !== drawn) this.drawn[i] = last;
    }
    for (let i = 0; i < list.length; i += 1) {
      const track = list[i];
      if (!track?.visible) continue;
      const body = this.bodyOf(track.id);
      const share = track.health / this.simulation.healthMax;
      const guarded = (track.flags & GUARDED) !== 0;
      body.show(track.x, track.y, track.aim, share, guarded, (track.flags & AWAY) !== 0, seconds, elapsed / 1_000);
    }
    const { predictor, controls } = this;
    const units = this.simulation.unitsPerPixel;
    const share = predictor.alive && !predictor.frozen ? this.spare / this.tickMs : 1;
    const x = (predictor.beforeX + (predictor.x - predictor.beforeX) * share + predictor.errorX) / units;
    const y = (predictor.beforeY + (predictor.y - predictor.beforeY) * share + predictor.errorY) / units;
    if (!this.ownBody) {
      this.ownBody = this.stage.takeBody();
      this.ownBody.dress('own', this.nameOf(this.ownId));
    }
    if (this.hasBody && predictor.alive) {
      const guarded = (this.flags & GUARDED) !== 0;
      this.ownBody.show(x, y, (this.aim / 65_536) * Math.PI * 2, this.health, guarded, false, seconds, elapsed / 1_000);
    } else {
      this.ownBody.hide();
    }
    this.stage.drawShots(this.shots.pool);
    this.stage.draw(x, y, controls.pointerX, controls.pointerY, controls.touching, elapsed);
  }

  private bodyOf(id: number): Body {
    for (let i = 0; i < this.drawn.length; i += 1) {
      const drawn = this.drawn[i];
      if (drawn?.id === id) return drawn.body;
    }
    const body = this.stage.takeBody();
    body.dress(this.kindOf(id), this.nameOf(id));
    this.drawn.push({ id, body });
    return body;
  }

  private showState(now: number): void {
    const { hud, predictor } = this;
    const alive = this.hasBody && predictor.alive;
    hud.setHealth(alive ? this.health : 0);
    hud.setCooldown(1 - predictor.cooldown / this.simulation.cooldownTicks);
    const present = this.clock.present(now);
    if (this.over) hud.setTime(0);
    else hud.setTime(((this.endsAt - present) * this.tickMs) / 1_000);
    hud.setNet(this.pingMs, this.tick, this.fps);
    const standings = this.standings();
    const place = standings.findIndex((standing) => standing.own) + 1;
    const limit = this.fragLimit > 0 ? ` · first to ${this.fragLimit}` : '';
    hud.setScore(this.ownScore.kills, place > 0 ? `${ordinal(place)} of ${standings.length}${limit}` : limit);
    hud.setBoard(standings);
    const units = this.simulation.unitsPerPixel;
    hud.drawMinimap(predictor.x / units, predictor.y / units, alive, this.tracks.list);
    if (this.over) return;
    if (alive) {
      hud.setNotice('', '');
    } else if (this.hasBody && this.respawnIn > 0) {
      const seconds = ((this.respawnIn - (present - this.tick)) * this.tickMs) / 1_000;
      hud.setNotice(this.killedBy ? `Taken out by ${this.killedBy}` : 'You are out', `Back in ${Math.max(0, seconds).toFixed(1)} s`);
    } else if (this.tick > 0) {
      hud.setNotice('Get ready', 'Entering the arena…');
    }
  }

  private standings(): Standing[] {
    const standings: Standing[] = [];
    for (const { id, name, bot } of this.roster.values()) {
      const score = this.scores.get(id);
      standings.push({ id, name, bot, kills: score?.kills ?? 0, deaths: score?.deaths ?? 0, own: id === this.ownId });
    }
    return standings.sort((a, b) => b.kills - a.kills || a.deaths - b.deaths || a.id - b.id);
  }

  private newClock(): Clock {
    return new Clock(this.tickMs, DELAY_MS / this.tickMs, DELAY_MAX_MS / this.tickMs);
  }

  private nameOf(id: number): string {
    return this.roster.get(id)?.name ?? '';
  }

  private kindOf(id: number): Kind {
    if (id === this.ownId) return 'own';
    return this.roster.get(id)?.bot ? 'bot' : 'enemy';
  }

  private named(id: number): NamedColour {
    return { name: this.nameOf(id) || '?', kind: this.kindOf(id) };
  }
}

function ordinal(place: number): string {
  const last = place % 10;
  const teen = Math.floor((place % 100) / 10) === 1;
  if (teen || last === 0 || last > 3) return `${place}th`;
  return `${place}${last === 1 ? 'st' : last === 2 ? 'nd' : 'rd'}`;
}
