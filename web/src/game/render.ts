/**
 * The arena on the screen: floor, walls, bodies, projectiles, camera and crosshair. Draws what it is told; decides nothing
 * about the game. All sprites come from pools and are kept.
 */

// Shaders' uniforms without `eval`, so that the page runs under a strict content security policy.
import 'pixi.js/unsafe-eval';
import { Application, Container, Sprite, Text, Texture } from 'pixi.js';
import { Effects } from './effects';
import { groundOf } from './ground';
import type { GameMap } from './simulation';
import type { Shot } from './shots';
import { COLOURS, SHARPNESS, paintTextures, type Textures } from './textures';

/** Area of the world that a screen shows, in square pixels: the same for everybody, whatever the window's shape. */
const VIEW_AREA = 980 * 560;
const ZOOM_MIN = 0.55;
const ZOOM_MAX = 2.6;
/** How far the camera leans towards the pointer. */
const LEAN = 0.16;
const BAR_WIDTH = 34;
/** Each further one makes every pixel dearer, which phones and machines without a graphics card feel. */
const TEXTURES_MAX = 4;


export type Kind = 'own' | 'enemy' | 'bot';

/** One body: everything drawn for a player, kept and reused. */
export class Body {
  readonly root = new Container();
  readonly tag = new Container();
  private readonly glow: Sprite;
  private readonly hull: Sprite;
  private readonly shield: Sprite;
  private readonly bar: Sprite;
  private readonly fill: Sprite;
  private readonly label: Text;
  private kind: Kind = 'enemy';
  private hurt = 0;

  constructor(
    private readonly textures: Textures,
    radius: number,
  ) {
    this.glow = centred(textures.glow);
    this.glow.blendMode = 'add';
    this.glow.scale.set((radius * 5) / 128);
    this.hull = centred(textures.enemy);
    this.hull.scale.set(1 / SHARPNESS);
    this.shield = centred(textures.ring);
    this.shield.scale.set((radius * 3) / 128);
    this.bar = new Sprite(Texture.WHITE);
    this.bar.tint = 0x05080f;
    this.bar.alpha = 0.75;
    this.fill = new Sprite(Texture.WHITE);
    this.label = new Text({
      text: '',
      style: { fontFamily: 'system-ui, sans-serif', fontSize: 12, fontWeight: '600', fill: 0xffffff },
      resolution: 3,
    });
    this.label.anchor.set(0.5, 1);
    this.label.position.set(0, -radius - 15);
    place(this.bar, -BAR_WIDTH / 2 - 1, -radius - 13, BAR_WIDTH + 2, 6);
    place(this.fill, -BAR_WIDTH / 2, -radius - 12, BAR_WIDTH, 4);
    this.root.addChild(this.glow, this.hull, this.shield);
    this.tag.addChild(this.bar, this.fill, this.label);
    this.hide();
  }

  get colour(): number {
    return COLOURS[this.kind];
  }

  dress(kind: Kind, name: string): void {
    this.kind = kind;
    this.hull.texture = this.textures[kind];
    this.glow.tint = COLOURS[kind];
    this.shield.tint = COLOURS[kind];
    this.label.tint = kind === 'own' ? 0xffffff : COLOURS[kind];
    if (this.label.text !== name) this.label.text = name;
  }

  /** A hit makes the body light up for a moment. */
  flash(): void {
    this.hurt = 1;
  }

  hide(): void {
    this.root.visible = false;
    this.tag.visible = false;
  }

  show(x: number, y: number, aim: number, health: number, guarded: boolean, away: boolean, seconds: number, elapsed: number): void {
    this.hurt = Math.max(0, this.hurt - elapsed * 6);
    this.root.visible = true;
    this.tag.visible = true;
    this.root.position.set(x, y);
    this.tag.position.set(x, y);
    this.root.alpha = away ? 0.4 : 1;
    this.hull.rotation = aim;
    this.glow.alpha = 0.34 + this.hurt * 0.66;
    this.shield.visible = guarded;
    if (guarded) this.shield.alpha = 0.55 + Math.sin(seconds * 12) * 0.35;
    const share = Math.max(0, Math.min(1, health));
    this.fill.width = BAR_WIDTH * share;
    this.fill.tint = share > 0.4 ? this.colour : COLOURS.healthLow;
  }
}

export class Stage {
  readonly effects: Effects;
  /** Where the own body is on the screen, in CSS pixels. */
  bodyX = 0;
  bodyY = 0;
  private readonly textures: Textures;
  private readonly world = new Container();
  private ground: ReturnType<typeof groundOf> | null = null;
  private readonly shotLayer = new Container();
  private readonly bodyLayer = new Container();
  private readonly tagLayer = new Container();
  private readonly shotSprites: Sprite[] = [];
  private readonly spare: Body[] = [];
  private readonly cursor: Container;
  private readonly hitMark: Sprite;
  private hitShown = 0;
  private mapWidth = 1;
  private mapHeight = 1;
  private zoom = 1;
  private leanX = 0;
  private leanY = 0;

  private constructor(
    private readonly app: Application,
    private readonly radius: number,
  ) {
    this.textures = paintTextures(radius);
    this.effects = new Effects(this.textures);
    this.world.addChild(this.shotLayer, this.bodyLayer, this.effects.layer, this.tagLayer);
    this.cursor = new Container();
    const cross = centred(this.textures.crosshair);
    cross.scale.set(0.36);
    this.hitMark = centred(this.textures.hitMark);
    this.hitMark.scale.set(0.42);
    this.cursor.addChild(cross, this.hitMark);
    app.stage.addChild(this.world, this.cursor);
  }

  static async create(host: HTMLElement, radius: number): Promise<Stage> {
    const app = new Application();
    await app.init({
      preference: 'webgl',
      autoStart: false,
      sharedTicker: false,
      // Walls are upright and sprites painted smooth: there is nothing to gain from it.
      antialias: false,
      background: COLOURS.floor,
      resolution: Math.min(2, window.devicePixelRatio || 1),
      autoDensity: true,
      width: Math.max(1, host.clientWidth),
      height: Math.max(1, host.clientHeight),
    });
    app.renderer.limits.maxBatchableTextures = TEXTURES_MAX;
    app.canvas.setAttribute('data-testid', 'arena');
    host.append(app.canvas);
    const stage = new Stage(app, radius);
    new ResizeObserver(() => stage.resize(host.clientWidth, host.clientHeight)).observe(host);
    stage.resize(host.clientWidth, host.clientHeight);
    return stage;
  }

  /** Names stay readable on a small screen. */
  private get tagScale(): number {
    return Math.max(1, 1 / this.zoom);
  }

  private resize(width: number, height: number): void {
    if (width < 1 || height < 1) return;
    this.app.renderer.resize(width, height);
    this.zoom = Math.max(ZOOM_MIN, Math.min(ZOOM_MAX, Math.sqrt((width * height) / VIEW_AREA)));
    for (const tag of this.tagLayer.children) tag.scale.set(this.tagScale);
  }

  load(map: GameMap): void {
    this.mapWidth = map.width;
    this.mapHeight = map.height;
    if (this.ground) {
      const { geometry, shader } = this.ground;
      this.ground.destroy();
      geometry.destroy(true);
      shader?.destroy();
    }
    this.ground = groundOf(map);
    this.world.addChildAt(this.ground, 0);
    this.effects.clear();
  }

  takeBody(): Body {
    const body = this.spare.pop() ?? new Body(this.textures, this.radius);
    this.bodyLayer.addChild(body.root);
    this.tagLayer.addChild(body.tag);
    body.tag.scale.set(this.tagScale);
    return body;
  }

  giveBack(body: Body): void {
    body.hide();
    body.root.removeFromParent();
    body.tag.removeFromParent();
    this.spare.push(body);
  }

  hitConfirmed(): void {
    this.hitShown = 1;
  }

  drawShots(shots: readonly Shot[]): void {
    for (let i = 0; i < shots.length; i += 1) {
      const shot = shots[i];
      let sprite = this.shotSprites[i];
      if (!shot || !shot.active || !shot.visible) {
        if (sprite) sprite.visible = false;
        continue;
      }
      if (!sprite) {
        sprite = new Sprite(this.textures.bolt);
        sprite.anchor.set(0.82, 0.5);
        sprite.scale.set(0.34);
        sprite.blendMode = 'add';
        this.shotSprites[i] = sprite;
        this.shotLayer.addChild(sprite);
      }
      sprite.visible = true;
      sprite.tint = shot.own ? COLOURS.own : COLOURS.enemy;
      sprite.position.set(shot.x, shot.y);
      sprite.rotation = shot.angle;
    }
  }

  /** Points the camera at the own body and draws the frame. */
  draw(x: number, y: number, pointerX: number, pointerY: number, touch: boolean, elapsedMs: number): void {
    const { width, height } = this.app.screen;
    const follow = 1 - 0.5 ** (elapsedMs / 70);
    const wantX = touch ? 0 : ((pointerX - width / 2) / this.zoom) * LEAN;
    const wantY = touch ? 0 : ((pointerY - height / 2) / this.zoom) * LEAN;
    this.leanX += (wantX - this.leanX) * follow;
    this.leanY += (wantY - this.leanY) * follow;
    const viewX = width / this.zoom;
    const viewY = height / this.zoom;
    const left = frame(x + this.leanX - viewX / 2, viewX, this.mapWidth) + this.effects.shakeX;
    const top = frame(y + this.leanY - viewY / 2, viewY, this.mapHeight) + this.effects.shakeY;
    this.world.scale.set(this.zoom);
    this.world.position.set(-left * this.zoom, -top * this.zoom);
    this.bodyX = (x - left) * this.zoom;
    this.bodyY = (y - top) * this.zoom;
    this.hitShown = Math.max(0, this.hitShown - elapsedMs / 180);
    this.hitMark.alpha = this.hitShown;
    this.cursor.visible = !touch;
    this.cursor.position.set(pointerX, pointerY);
    this.app.render();
  }
}

/** Keeps the view near the map: a little of the outside may show, so that a body at the rim is not at the screen's edge. */
function frame(start: number, view: number, size: number): number {
  const margin = Math.min(90, view * 0.1);
  if (view >= size + margin * 2) return (size - view) / 2;
  return Math.max(-margin, Math.min(size + margin - view, start));
}

function centred(texture: Texture): Sprite {
  const sprite = new Sprite(texture);
  sprite.anchor.set(0.5);
  return sprite;
}

function place(sprite: Sprite, x: number, y: number, width: number, height: number): void {
  sprite.position.set(x, y);
  sprite.width = width;
  sprite.height = height;
}
