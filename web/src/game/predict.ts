/**
 * Prediction of the own body: every input is applied at once, and again on top of each state that the match sends.
 * Knows positions in simulation units and sequence numbers; knows nothing of sockets or pixels on a screen.
 */

import type { Mover } from './simulation';

/** Two seconds of inputs: more than the match accepts as backlog. A power of two. */
const CAPACITY = 128;
const MASK = CAPACITY - 1;
/** A correction fades by half in this time. */
const HALF_LIFE_MS = 60;

export interface OwnState {
  /** Simulation units. */
  readonly x: number;
  readonly y: number;
  readonly cooldown: number;
  readonly alive: boolean;
}

export const FIRE = 1;

export class Predictor {
  /** Position after the newest input and after the one before it, in simulation units. */
  x = 0;
  y = 0;
  beforeX = 0;
  beforeY = 0;
  /** What is left of past corrections; drawing adds it, so that a correction glides instead of jumping. */
  errorX = 0;
  errorY = 0;
  /** Ticks until the weapon fires again, as predicted. */
  cooldown = 0;
  alive = false;
  /** Bodies stand still when the match is over. */
  frozen = false;

  private next = 1;
  private acknowledged = 0;
  private readonly moveX = new Int8Array(CAPACITY);
  private readonly moveY = new Int8Array(CAPACITY);
  private readonly aims = new Uint16Array(CAPACITY);
  private readonly buttons = new Uint8Array(CAPACITY);

  constructor(
    private readonly mover: Mover,
    private readonly cooldownTicks: number,
    /** Corrections beyond this (a respawn, say) are not smoothed. Simulation units. */
    private readonly snapDistance: number,
  ) {}

  /** A (re)connection: the match counts on from `acknowledged`. */
  reset(acknowledged: number): void {
    this.acknowledged = acknowledged;
    this.next = acknowledged + 1;
    this.errorX = 0;
    this.errorY = 0;
    this.frozen = false;
  }

  get newest(): number {
    return this.next - 1;
  }

  /** Inputs that the match has not confirmed yet. */
  get pending(): number {
    return Math.min(this.newest - this.acknowledged, CAPACITY);
  }

  /** Takes one tick's input. Answers whether the weapon fired with it. */
  push(moveX: number, moveY: number, aim: number, buttons: number): boolean {
    const slot = this.next & MASK;
    this.moveX[slot] = moveX;
    this.moveY[slot] = moveY;
    this.aims[slot] = aim;
    this.buttons[slot] = buttons;
    this.next += 1;
    this.beforeX = this.x;
    this.beforeY = this.y;
    if (!this.alive || this.frozen) return false;
    this.mover.setBody(this.x, this.y);
    const fired = this.step(slot);
    this.x = this.mover.bodyX;
    this.y = this.mover.bodyY;
    return fired;
  }

  /** Starts again from the match's state and applies what it has not seen yet. */
  reconcile(own: OwnState, acknowledged: number): void {
    if (acknowledged < this.acknowledged) return;
    const oldX = this.x;
    const oldY = this.y;
    const wasAlive = this.alive;
    this.acknowledged = Math.min(acknowledged, this.newest);
    this.alive = own.alive;
    this.cooldown = own.cooldown;
    this.x = this.beforeX = own.x;
    this.y = this.beforeY = own.y;
    if (own.alive && !this.frozen) {
      this.mover.setBody(own.x, own.y);
      for (let sequence = this.next - this.pending; sequence < this.next; sequence += 1) {
        this.beforeX = this.mover.bodyX;
        this.beforeY = this.mover.bodyY;
        this.step(sequence & MASK);
      }
      this.x = this.mover.bodyX;
      this.y = this.mover.bodyY;
    }
    this.errorX += oldX - this.x;
    this.errorY += oldY - this.y;
    const jumped = Math.hypot(this.errorX, this.errorY) > this.snapDistance;
    if (jumped || !wasAlive) {
      this.errorX = 0;
      this.errorY = 0;
    }
  }

  /** Lets past corrections fade. */
  settle(elapsedMs: number): void {
    const rest = 0.5 ** (elapsedMs / HALF_LIFE_MS);
    this.errorX *= rest;
    this.errorY *= rest;
  }

  /** One of the last inputs, for a packet. */
  inputAt(sequence: number): { readonly moveX: number; readonly moveY: number; readonly aim: number; readonly buttons: number } {
    const slot = sequence & MASK;
    this.view.moveX = this.moveX[slot] ?? 0;
    this.view.moveY = this.moveY[slot] ?? 0;
    this.view.aim = this.aims[slot] ?? 0;
    this.view.buttons = this.buttons[slot] ?? 0;
    return this.view;
  }

  private readonly view = { moveX: 0, moveY: 0, aim: 0, buttons: 0 };

  private step(slot: number): boolean {
    this.mover.applyInput(this.moveX[slot] ?? 0, this.moveY[slot] ?? 0);
    if (this.cooldown > 0) this.cooldown -= 1;
    if (this.cooldown > 0 || ((this.buttons[slot] ?? 0) & FIRE) === 0) return false;
    this.cooldown = this.cooldownTicks;
    return true;
  }
}
