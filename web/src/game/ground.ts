/**
 * Floor and walls as one mesh of coloured triangles, made once per map. Its shader reads no texture, so the largest part
 * of every frame is also the cheapest, even where a processor has to draw it.
 */

import { Geometry, GlProgram, Mesh, Shader } from 'pixi.js';
import type { GameMap } from './simulation';
import { COLOURS } from './textures';

const GRID = 50;
/** How far beyond the map the camera can look. */
const OUTSIDE = 2_400;
/** Width of the light around a wall. */
const GLOW = 22;

const VERTEX = `
  in vec2 aPosition;
  in vec4 aColor;
  out vec4 vColor;
  uniform mat3 uProjectionMatrix;
  uniform mat3 uWorldTransformMatrix;
  uniform mat3 uTransformMatrix;
  void main(void) {
    mat3 transform = uProjectionMatrix * uWorldTransformMatrix * uTransformMatrix;
    gl_Position = vec4((transform * vec3(aPosition, 1.0)).xy, 0.0, 1.0);
    vColor = aColor;
  }
`;

const FRAGMENT = `
  in vec4 vColor;
  void main(void) {
    gl_FragColor = vColor;
  }
`;

/** A mesh of the map. Destroy it with its geometry when the next map comes. */
export function groundOf(map: GameMap): Mesh<Geometry, Shader> {
  const sheet = new Sheet();
  drawFloor(sheet, map);
  drawWalls(sheet, map);
  const shader = new Shader({ glProgram: GlProgram.from({ vertex: VERTEX, fragment: FRAGMENT, name: 'ground' }), resources: {} });
  return new Mesh<Geometry, Shader>({ geometry: sheet.geometry(), shader });
}

function drawFloor(sheet: Sheet, map: GameMap): void {
  const { width, height } = map;
  for (let x = GRID; x < width; x += GRID) {
    const strong = x % (GRID * 4) === 0;
    sheet.box(x - (strong ? 0.75 : 0.5), 0, x + (strong ? 0.75 : 0.5), height, 0x7896dc, strong ? 0.13 : 0.06);
  }
  for (let y = GRID; y < height; y += GRID) {
    const strong = y % (GRID * 4) === 0;
    sheet.box(0, y - (strong ? 0.75 : 0.5), width, y + (strong ? 0.75 : 0.5), 0x7896dc, strong ? 0.13 : 0.06);
  }
  for (let x = GRID * 4; x < width; x += GRID * 4) {
    for (let y = GRID * 4; y < height; y += GRID * 4) sheet.box(x - 3, y - 3, x + 3, y + 3, 0x96b4ff, 0.25);
  }
  sheet.box(-OUTSIDE, -OUTSIDE, width + OUTSIDE, 0, COLOURS.outside, 1);
  sheet.box(-OUTSIDE, height, width + OUTSIDE, height + OUTSIDE, COLOURS.outside, 1);
  sheet.box(-OUTSIDE, 0, 0, height, COLOURS.outside, 1);
  sheet.box(width, 0, width + OUTSIDE, height, COLOURS.outside, 1);
  sheet.frame(0, 0, width, height, GLOW * 2, COLOURS.wallEdge, 0.3);
  for (const [left, top, right, bottom] of [[-3, -3, width + 3, 0], [-3, height, width + 3, height + 3], [-3, 0, 0, height], [width, 0, width + 3, height]] as const) {
    sheet.box(left, top, right, bottom, COLOURS.wallEdge, 1);
  }
}

/**
 * One pass over all walls after the other, so that boxes that touch look like one: shadows and light on the floor, edges a
 * little larger than the boxes, and the boxes themselves over the edges between them.
 */
function drawWalls(sheet: Sheet, map: GameMap): void {
  const each = (draw: (left: number, top: number, right: number, bottom: number) => void): void => {
    for (let i = 0; i + 3 < map.walls.length; i += 4) {
      draw(map.walls[i] ?? 0, map.walls[i + 1] ?? 0, map.walls[i + 2] ?? 0, map.walls[i + 3] ?? 0);
    }
  };
  each((left, top, right, bottom) => sheet.box(left + 4, top + 8, right + 6, bottom + 11, 0x000000, 0.38));
  each((left, top, right, bottom) => sheet.frame(left, top, right, bottom, GLOW, COLOURS.wallEdge, 0.17));
  each((left, top, right, bottom) => sheet.box(left - 1.5, top - 1.5, right + 1.5, bottom + 1.5, COLOURS.wallEdge, 1));
  each((left, top, right, bottom) => sheet.blend(left, top, right, bottom, (x, y) => shade(x, y, map)));
}

/** Walls change their tone slowly over the map, without a seam where boxes touch: it depends on the place alone. */
function shade(x: number, y: number, map: GameMap): number {
  const share = (x / map.width + y / map.height) / 2;
  return mix(COLOURS.wall, COLOURS.wallFar, share);
}

function mix(from: number, to: number, share: number): number {
  let colour = 0;
  for (const shift of [16, 8, 0]) {
    const a = (from >> shift) & 255;
    const b = (to >> shift) & 255;
    colour |= Math.round(a + (b - a) * share) << shift;
  }
  return colour;
}

/** Quads being gathered. */
class Sheet {
  private readonly positions: number[] = [];
  private readonly colours: number[] = [];
  private readonly indices: number[] = [];

  box(left: number, top: number, right: number, bottom: number, colour: number, alpha: number): void {
    this.quad(left, top, right, top, right, bottom, left, bottom);
    for (let i = 0; i < 4; i += 1) this.paint(colour, alpha);
  }

  blend(left: number, top: number, right: number, bottom: number, colour: (x: number, y: number) => number): void {
    this.quad(left, top, right, top, right, bottom, left, bottom);
    this.paint(colour(left, top), 1);
    this.paint(colour(right, top), 1);
    this.paint(colour(right, bottom), 1);
    this.paint(colour(left, bottom), 1);
  }

  /** Light around a box, fading outwards. */
  frame(left: number, top: number, right: number, bottom: number, width: number, colour: number, alpha: number): void {
    const corners = [left, top, right, top, right, bottom, left, bottom] as const;
    const outer = [left - width, top - width, right + width, top - width, right + width, bottom + width, left - width, bottom + width];
    for (let side = 0; side < 4; side += 1) {
      const a = side * 2;
      const b = ((side + 1) % 4) * 2;
      this.quad(
        corners[a] ?? 0, corners[a + 1] ?? 0, corners[b] ?? 0, corners[b + 1] ?? 0,
        outer[b] ?? 0, outer[b + 1] ?? 0, outer[a] ?? 0, outer[a + 1] ?? 0,
      );
      this.paint(colour, alpha);
      this.paint(colour, alpha);
      this.paint(colour, 0);
      this.paint(colour, 0);
    }
  }

  geometry(): Geometry {
    return new Geometry({
      attributes: {
        aPosition: { buffer: new Float32Array(this.positions), format: 'float32x2' },
        aColor: { buffer: new Float32Array(this.colours), format: 'float32x4' },
      },
      indexBuffer: new Uint32Array(this.indices),
    });
  }

  private quad(...corners: [number, number, number, number, number, number, number, number]): void {
    const first = this.positions.length / 2;
    this.positions.push(...corners);
    this.indices.push(first, first + 1, first + 2, first, first + 2, first + 3);
  }

  private paint(colour: number, alpha: number): void {
    const part = (shift: number): number => (((colour >> shift) & 255) / 255) * alpha;
    this.colours.push(part(16), part(8), part(0), alpha);
  }
}
