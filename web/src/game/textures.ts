/** The few pictures of the game, painted once at start. White ones are tinted where they are used. */

import { Texture } from 'pixi.js';

/** Blue against orange: told apart by every kind of colour vision, and by shape as well. */
export const COLOURS = {
  own: 0x4cc9f0,
  enemy: 0xffa32b,
  bot: 0xff6f61,
  floor: 0x0c1424,
  outside: 0x060a13,
  wall: 0x1c2745,
  wallFar: 0x241f45,
  wallEdge: 0x6373e0,
  health: 0x5ee6a8,
  healthLow: 0xffd166,
} as const;

/** Pixels of a painted picture per pixel of the world, so that it stays sharp when zoomed. */
export const SHARPNESS = 4;

export interface Textures {
  readonly glow: Texture;
  readonly ring: Texture;
  readonly bolt: Texture;
  readonly streak: Texture;
  readonly own: Texture;
  readonly enemy: Texture;
  readonly bot: Texture;
  readonly crosshair: Texture;
  readonly hitMark: Texture;
}

export function paintTextures(radius: number): Textures {
  return {
    glow: paint(128, 128, (c) => {
      const gradient = c.createRadialGradient(64, 64, 0, 64, 64, 64);
      gradient.addColorStop(0, 'rgba(255,255,255,1)');
      gradient.addColorStop(0.25, 'rgba(255,255,255,0.45)');
      gradient.addColorStop(0.6, 'rgba(255,255,255,0.1)');
      gradient.addColorStop(1, 'rgba(255,255,255,0)');
      c.fillStyle = gradient;
      c.fillRect(0, 0, 128, 128);
    }),
    ring: paint(128, 128, (c) => {
      c.strokeStyle = 'white';
      c.lineWidth = 6;
      c.beginPath();
      c.arc(64, 64, 58, 0, Math.PI * 2);
      c.stroke();
    }),
    bolt: paint(128, 48, (c) => {
      const gradient = c.createLinearGradient(0, 0, 128, 0);
      gradient.addColorStop(0, 'rgba(255,255,255,0)');
      gradient.addColorStop(1, 'rgba(255,255,255,0.95)');
      c.fillStyle = gradient;
      c.filter = 'blur(5px)';
      c.beginPath();
      c.roundRect(10, 14, 106, 20, 10);
      c.fill();
      c.filter = 'none';
      c.fillStyle = 'white';
      c.beginPath();
      c.roundRect(60, 19, 50, 10, 5);
      c.fill();
    }),
    streak: paint(64, 16, (c) => {
      const gradient = c.createLinearGradient(0, 0, 64, 0);
      gradient.addColorStop(0, 'rgba(255,255,255,0)');
      gradient.addColorStop(1, 'rgba(255,255,255,1)');
      c.fillStyle = gradient;
      c.beginPath();
      c.roundRect(2, 5, 60, 6, 3);
      c.fill();
    }),
    own: paintHull(radius, COLOURS.own, 'arrow'),
    enemy: paintHull(radius, COLOURS.enemy, 'disc'),
    bot: paintHull(radius, COLOURS.bot, 'square'),
    crosshair: paint(96, 96, (c) => {
      c.strokeStyle = 'rgba(5,10,20,0.7)';
      c.lineWidth = 9;
      crosshair(c);
      c.strokeStyle = 'white';
      c.lineWidth = 4.5;
      crosshair(c);
      c.fillStyle = 'white';
      c.beginPath();
      c.arc(48, 48, 4, 0, Math.PI * 2);
      c.fill();
    }),
    hitMark: paint(96, 96, (c) => {
      c.strokeStyle = 'white';
      c.lineWidth = 7;
      c.lineCap = 'round';
      for (const [x, y] of [[1, 1], [-1, 1], [1, -1], [-1, -1]] as const) {
        c.beginPath();
        c.moveTo(48 + x * 17, 48 + y * 17);
        c.lineTo(48 + x * 34, 48 + y * 34);
        c.stroke();
      }
    }),
  };
}

function crosshair(c: CanvasRenderingContext2D): void {
  c.lineCap = 'round';
  for (const [x, y] of [[1, 0], [-1, 0], [0, 1], [0, -1]] as const) {
    c.beginPath();
    c.moveTo(48 + x * 18, 48 + y * 18);
    c.lineTo(48 + x * 36, 48 + y * 36);
    c.stroke();
  }
}

/** A player seen from above, looking right. Who it is shows in colour and in the mark at its heart. */
function paintHull(radius: number, colour: number, mark: 'arrow' | 'disc' | 'square'): Texture {
  const r = radius * SHARPNESS;
  const size = Math.ceil(r * 3.4);
  const middle = size / 2;
  const bright = `#${colour.toString(16).padStart(6, '0')}`;
  return paint(size, size, (c) => {
    c.translate(middle, middle);
    c.fillStyle = '#0a1120';
    c.strokeStyle = bright;
    c.lineWidth = r * 0.13;
    c.beginPath();
    c.roundRect(r * 0.35, -r * 0.25, r * 1.2, r * 0.5, r * 0.12);
    c.fill();
    c.stroke();
    const body = c.createRadialGradient(-r * 0.3, -r * 0.3, r * 0.1, 0, 0, r);
    body.addColorStop(0, mark === 'arrow' ? '#1f5f7d' : '#2b3450');
    body.addColorStop(1, mark === 'arrow' ? '#0d2b3d' : '#121a2d');
    c.fillStyle = body;
    c.lineWidth = r * 0.17;
    c.beginPath();
    c.arc(0, 0, r * 0.9, 0, Math.PI * 2);
    c.fill();
    c.stroke();
    c.fillStyle = bright;
    c.beginPath();
    if (mark === 'arrow') {
      c.moveTo(r * 0.52, 0);
      c.lineTo(-r * 0.36, r * 0.42);
      c.lineTo(-r * 0.16, 0);
      c.lineTo(-r * 0.36, -r * 0.42);
      c.closePath();
      c.fillStyle = 'white';
      c.fill();
    } else if (mark === 'disc') {
      c.arc(0, 0, r * 0.36, 0, Math.PI * 2);
      c.fill();
    } else {
      c.lineWidth = r * 0.14;
      c.rect(-r * 0.3, -r * 0.3, r * 0.6, r * 0.6);
      c.stroke();
    }
  });
}

function paint(width: number, height: number, draw: (c: CanvasRenderingContext2D) => void): Texture {
  const canvas = document.createElement('canvas');
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext('2d');
  if (!context) throw new Error('this browser cannot paint on a canvas');
  draw(context);
  return Texture.from(canvas);
}
