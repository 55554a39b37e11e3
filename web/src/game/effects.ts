/** Sparks, flashes and bursts: a fixed pool of sprites, and the shaking of the screen. */

import { Container, Sprite, type Texture } from 'pixi.js';
import type { Textures } from './textures';

const PARTICLES = 480;
const TRAUMA_PER_SECOND = 2.4;
/** Pixels at the strongest shake. */
const SHAKE = 7;

interface Particle {
  readonly sprite: Sprite;
  vx: number;
  vy: number;
  /** Share of the speed that is left after a second. */
  drag: number;
  age: number;
  life: number;
  fromScale: number;
  toScale: number;
  alpha: number;
}

export class Effects {
  readonly layer = new Container();
  shakeX = 0;
  shakeY = 0;
  private readonly particles: Particle[] = [];
  private cursor = 0;
  private trauma = 0;
  private readonly calm = matchMedia('(prefers-reduced-motion: reduce)').matches;

  constructor(private readonly textures: Textures) {
    for (let i = 0; i < PARTICLES; i += 1) {
      const sprite = new Sprite(textures.glow);
      sprite.anchor.set(0.5);
      sprite.blendMode = 'add';
      sprite.visible = false;
      this.layer.addChild(sprite);
      this.particles.push({ sprite, vx: 0, vy: 0, drag: 1, age: 0, life: 0, fromScale: 1, toScale: 1, alpha: 1 });
    }
  }

  muzzle(x: number, y: number, angle: number, colour: number): void {
    this.emit(this.textures.glow, x, y, 0, 0, 1, 0.09, 0.5, 0.25, 0.9, colour, 0);
    this.emit(this.textures.glow, x, y, 0, 0, 1, 0.06, 0.22, 0.1, 1, 0xffffff, 0);
    for (let i = 0; i < 3; i += 1) {
      const turn = angle + (Math.random() - 0.5) * 0.9;
      this.fling(x, y, turn, 140 + Math.random() * 160, 0.14, colour, 0.28);
    }
  }

  /** A projectile ended at a wall. */
  spark(x: number, y: number, colour: number): void {
    this.emit(this.textures.glow, x, y, 0, 0, 1, 0.14, 0.34, 0.1, 0.8, colour, 0);
    for (let i = 0; i < 6; i += 1) {
      this.fling(x, y, Math.random() * Math.PI * 2, 80 + Math.random() * 190, 0.26, colour, 0.32);
    }
  }

  /** A projectile hit somebody. */
  hit(x: number, y: number, colour: number): void {
    this.emit(this.textures.glow, x, y, 0, 0, 1, 0.16, 0.62, 0.3, 0.9, 0xffffff, 0);
    for (let i = 0; i < 9; i += 1) {
      this.fling(x, y, Math.random() * Math.PI * 2, 100 + Math.random() * 260, 0.34, colour, 0.4);
    }
  }

  burst(x: number, y: number, colour: number): void {
    this.emit(this.textures.glow, x, y, 0, 0, 1, 0.4, 2.4, 0.6, 0.95, colour, 0);
    this.emit(this.textures.glow, x, y, 0, 0, 1, 0.2, 1.1, 0.5, 1, 0xffffff, 0);
    this.emit(this.textures.ring, x, y, 0, 0, 1, 0.5, 0.2, 1.5, 0.9, colour, 0);
    for (let i = 0; i < 26; i += 1) {
      this.fling(x, y, Math.random() * Math.PI * 2, 90 + Math.random() * 420, 0.5 + Math.random() * 0.4, colour, 0.6);
    }
  }

  /** Somebody appeared. */
  arrival(x: number, y: number, colour: number): void {
    this.emit(this.textures.ring, x, y, 0, 0, 1, 0.45, 1.1, 0.2, 0.8, colour, 0);
    this.emit(this.textures.glow, x, y, 0, 0, 1, 0.5, 0.4, 1.4, 0.6, colour, 0);
  }

  shake(amount: number): void {
    if (!this.calm) this.trauma = Math.min(1, this.trauma + amount);
  }

  update(elapsedMs: number): void {
    const seconds = elapsedMs / 1_000;
    for (let i = 0; i < PARTICLES; i += 1) {
      const particle = this.particles[i];
      if (!particle || !particle.sprite.visible) continue;
      particle.age += seconds;
      const share = particle.age / particle.life;
      if (share >= 1) {
        particle.sprite.visible = false;
        continue;
      }
      const slow = particle.drag ** seconds;
      particle.vx *= slow;
      particle.vy *= slow;
      const { sprite } = particle;
      sprite.x += particle.vx * seconds;
      sprite.y += particle.vy * seconds;
      const eased = 1 - (1 - share) * (1 - share);
      sprite.scale.set(particle.fromScale + (particle.toScale - particle.fromScale) * eased);
      sprite.alpha = particle.alpha * (1 - share);
    }
    this.trauma = Math.max(0, this.trauma - TRAUMA_PER_SECOND * seconds);
    const strength = this.trauma * this.trauma * SHAKE;
    this.shakeX = strength === 0 ? 0 : (Math.random() * 2 - 1) * strength;
    this.shakeY = strength === 0 ? 0 : (Math.random() * 2 - 1) * strength;
  }

  clear(): void {
    for (const particle of this.particles) particle.sprite.visible = false;
    this.trauma = 0;
  }

  private fling(x: number, y: number, angle: number, speed: number, life: number, colour: number, scale: number): void {
    const vx = Math.cos(angle) * speed;
    const vy = Math.sin(angle) * speed;
    this.emit(this.textures.streak, x, y, vx, vy, 0.04, life, scale, scale * 0.2, 1, colour, angle);
  }

  private emit(
    texture: Texture,
    x: number,
    y: number,
    vx: number,
    vy: number,
    drag: number,
    life: number,
    fromScale: number,
    toScale: number,
    alpha: number,
    colour: number,
    rotation: number,
  ): void {
    const particle = this.particles[this.cursor];
    this.cursor = (this.cursor + 1) % PARTICLES;
    if (!particle) return;
    const { sprite } = particle;
    sprite.texture = texture;
    sprite.position.set(x, y);
    sprite.rotation = rotation;
    sprite.scale.set(fromScale);
    sprite.tint = colour;
    sprite.alpha = alpha;
    sprite.visible = true;
    particle.vx = vx;
    particle.vy = vy;
    particle.drag = drag;
    particle.age = 0;
    particle.life = life;
    particle.fromScale = fromScale;
    particle.toScale = toScale;
    particle.alpha = alpha;
  }
}
