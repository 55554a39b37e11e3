/**
 * What the player wants: keyboard and mouse, or two thumbs. Sampled once per tick; knows nothing of the match.
 */

export const FULL = 127;
const TURN = 65_536;
/** A thumb's way from the middle to full deflection, in CSS pixels. */
const STICK_REACH = 56;
/** Deflection of the right thumb from which it also fires. */
const STICK_FIRE = 0.35;

const MOVES: Readonly<Record<string, readonly [number, number]>> = {
  KeyW: [0, -1],
  ArrowUp: [0, -1],
  KeyS: [0, 1],
  ArrowDown: [0, 1],
  KeyA: [-1, 0],
  ArrowLeft: [-1, 0],
  KeyD: [1, 0],
  ArrowRight: [1, 0],
};

interface Stick {
  pointer: number;
  fromX: number;
  fromY: number;
  x: number;
  y: number;
  readonly element: HTMLElement;
}

export interface ControlsListener {
  onScoreboard(shown: boolean): void;
  onMute(): void;
  onMenu(): void;
}

export class Controls {
  moveX = 0;
  moveY = 0;
  /** 1/65536 of a turn, clockwise from the right. */
  aim = 0;
  fire = false;
  /** Where the pointer is, in CSS pixels of the surface. */
  pointerX = 0;
  pointerY = 0;
  touching = false;

  private readonly held = new Set<string>();
  private mouseDown = false;
  /** A click shorter than a tick still counts once. */
  private clicked = false;
  private readonly left: Stick;
  private readonly right: Stick;
  private attached: AbortController | null = null;

  constructor(
    private readonly surface: HTMLElement,
    leftStick: HTMLElement,
    rightStick: HTMLElement,
    private readonly listener: ControlsListener,
  ) {
    this.left = { pointer: -1, fromX: 0, fromY: 0, x: 0, y: 0, element: leftStick };
    this.right = { pointer: -1, fromX: 0, fromY: 0, x: 0, y: 0, element: rightStick };
    // Followed from the beginning, so that the crosshair is under the hand when a match starts.
    this.pointerX = window.innerWidth / 2 + 100;
    this.pointerY = window.innerHeight / 2;
    window.addEventListener('pointermove', (event) => this.pointerMove(event));
  }

  attach(): void {
    this.detach();
    const attached = new AbortController();
    this.attached = attached;
    const on = { signal: attached.signal };
    window.addEventListener('keydown', (event) => this.keyDown(event), on);
    window.addEventListener('keyup', (event) => this.keyUp(event), on);
    window.addEventListener('blur', () => this.release(), on);
    this.surface.addEventListener('pointerdown', (event) => this.pointerDown(event), on);
    window.addEventListener('pointerup', (event) => this.pointerUp(event), on);
    window.addEventListener('pointercancel', (event) => this.pointerUp(event), on);
    this.surface.addEventListener('contextmenu', (event) => event.preventDefault(), on);
  }

  detach(): void {
    this.attached?.abort();
    this.attached = null;
    this.release();
  }

  /** Brings the fields up to date; the own body is drawn at this place of the surface. */
  sample(bodyX: number, bodyY: number): void {
    let x = 0;
    let y = 0;
    for (const code in MOVES) {
      if (!this.held.has(code)) continue;
      const move = MOVES[code];
      if (move) {
        x += move[0];
        y += move[1];
      }
    }
    x = Math.sign(x) * FULL;
    y = Math.sign(y) * FULL;
    if (this.left.pointer >= 0) {
      x = Math.round(this.left.x * FULL);
      y = Math.round(this.left.y * FULL);
    }
    this.moveX = x;
    this.moveY = y;
    this.fire = this.mouseDown || this.clicked || this.held.has('Space');
    this.clicked = false;
    let aimX = this.pointerX - bodyX;
    let aimY = this.pointerY - bodyY;
    if (this.touching) {
      const aiming = this.right.pointer >= 0 && Math.hypot(this.right.x, this.right.y) > 0.15;
      aimX = aiming ? this.right.x : 0;
      aimY = aiming ? this.right.y : 0;
      if (aiming && Math.hypot(aimX, aimY) > STICK_FIRE) this.fire = true;
      if (!aiming && (x !== 0 || y !== 0)) {
        aimX = x;
        aimY = y;
      }
    }
    if (aimX !== 0 || aimY !== 0) {
      this.aim = Math.round((Math.atan2(aimY, aimX) / (Math.PI * 2)) * TURN) & (TURN - 1);
    }
  }

  private keyDown(event: KeyboardEvent): void {
    if (event.target instanceof HTMLInputElement || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.code === 'Tab') {
      event.preventDefault();
      this.listener.onScoreboard(true);
    } else if (event.code === 'KeyM' && !event.repeat) {
      this.listener.onMute();
    } else if (event.code === 'Escape' && !event.repeat) {
      this.listener.onMenu();
    } else if (event.code in MOVES || event.code === 'Space') {
      if (event.target instanceof HTMLButtonElement && event.code === 'Space') return;
      event.preventDefault();
      this.held.add(event.code);
    }
  }

  private keyUp(event: KeyboardEvent): void {
    if (event.code === 'Tab') this.listener.onScoreboard(false);
    this.held.delete(event.code);
  }

  private pointerDown(event: PointerEvent): void {
    const box = this.surface.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    if (event.pointerType === 'touch') {
      event.preventDefault();
      this.touching = true;
      const stick = x < box.width / 2 ? this.left : this.right;
      if (stick.pointer >= 0) return;
      stick.pointer = event.pointerId;
      stick.fromX = event.clientX;
      stick.fromY = event.clientY;
      stick.x = 0;
      stick.y = 0;
      stick.element.style.transform = `translate(${x}px, ${y}px)`;
      stick.element.style.setProperty('--x', '0px');
      stick.element.style.setProperty('--y', '0px');
      stick.element.hidden = false;
      return;
    }
    this.touching = false;
    this.pointerX = x;
    this.pointerY = y;
    if (event.button === 0) {
      this.mouseDown = true;
      this.clicked = true;
    }
  }

  private pointerMove(event: PointerEvent): void {
    if (event.pointerType === 'touch') {
      for (const stick of [this.left, this.right]) {
        if (stick.pointer !== event.pointerId) continue;
        const x = event.clientX - stick.fromX;
        const y = event.clientY - stick.fromY;
        const shrink = 1 / Math.max(STICK_REACH, Math.hypot(x, y));
        stick.x = x * shrink;
        stick.y = y * shrink;
        stick.element.style.setProperty('--x', `${stick.x * STICK_REACH}px`);
        stick.element.style.setProperty('--y', `${stick.y * STICK_REACH}px`);
      }
      return;
    }
    const box = this.surface.getBoundingClientRect();
    this.pointerX = event.clientX - box.left;
    this.pointerY = event.clientY - box.top;
  }

  private pointerUp(event: PointerEvent): void {
    if (event.pointerType !== 'touch') {
      if (event.button === 0) this.mouseDown = false;
      return;
    }
    for (const stick of [this.left, this.right]) {
      if (stick.pointer === event.pointerId) this.lift(stick);
    }
  }

  private lift(stick: Stick): void {
    stick.pointer = -1;
    stick.x = 0;
    stick.y = 0;
    stick.element.hidden = true;
  }

  private release(): void {
    this.held.clear();
    this.mouseDown = false;
    this.clicked = false;
    this.lift(this.left);
    this.lift(this.right);
    this.listener.onScoreboard(false);
  }
}
