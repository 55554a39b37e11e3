/** Everything over the arena that is text: health, scores, kill feed, minimap, notices. Touches the page only on change. */

import type { GameMap } from './simulation';
import type { Ranked, Result } from './wire';
import type { Track } from './interpolate';
import { element, fill, setText, tag } from '../ui';

const FEED_LINES = 5;
const FEED_MS = 6_000;
const MINIMAP = 168;
/** Rows that fit at ease. */
const CROWD = 12;

export interface Standing extends Ranked {
  readonly own: boolean;
}

export interface NamedColour {
  readonly name: string;
  readonly kind: 'own' | 'enemy' | 'bot';
}

export class Hud {
  private readonly health = element('hud-health');
  private readonly healthFill = element('hud-health-fill');
  private readonly healthText = element('hud-health-text');
  private readonly cooldown = element('hud-cooldown-fill');
  private readonly time = element('hud-time');
  private readonly kills = element('hud-kills');
  private readonly killsWord = element('hud-kills-word');
  private readonly leader = element('hud-leader');
  private readonly net = element('hud-net');
  private readonly feed = element('hud-feed');
  private readonly notice = element('hud-notice');
  private readonly noticeText = element('hud-notice-text');
  private readonly noticeDetail = element('hud-notice-detail');
  private readonly link = element('hud-link');
  private readonly hurt = element('hud-hurt');
  private readonly board = element('scoreboard');
  private readonly boardRows = element('scoreboard-rows');
  private readonly over = element('match-over');
  private readonly minimap = element('minimap') as HTMLCanvasElement;
  private readonly backdrop = document.createElement('canvas');
  private minimapScale = 1;
  private overTimer: ReturnType<typeof setInterval> | null = null;

  reset(): void {
    this.feed.replaceChildren();
    this.setNotice('', '');
    this.showBoard(false);
    this.hideResult();
    this.setReconnecting(false);
  }

  setHealth(share: number): void {
    const percent = Math.round(share * 100);
    setText(this.healthText, String(percent));
    this.healthFill.style.transform = `scaleX(${share.toFixed(3)})`;
    this.health.classList.toggle('low', percent <= 40);
  }

  setCooldown(ready: number): void {
    this.cooldown.style.transform = `scaleX(${ready.toFixed(2)})`;
  }

  setTime(seconds: number): void {
    const whole = Math.max(0, Math.ceil(seconds));
    setText(this.time, `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`);
    this.time.classList.toggle('low', whole <= 20);
  }

  setScore(kills: number, place: string): void {
    setText(this.kills, String(kills));
    setText(this.killsWord, kills === 1 ? 'kill' : 'kills');
    setText(this.leader, place);
  }

  setNet(pingMs: number, tick: number, fps: number): void {
    setText(this.net, `${Math.round(pingMs)} ms · tick ${tick} · ${Math.round(fps)} fps`);
  }

  setReconnecting(lost: boolean): void {
    this.link.hidden = !lost;
  }

  setNotice(text: string, detail: string): void {
    this.notice.hidden = text === '';
    setText(this.noticeText, text);
    setText(this.noticeDetail, detail);
  }

  flashHurt(): void {
    this.hurt.classList.remove('flash');
    // Reading a layout value restarts the animation.
    void this.hurt.offsetWidth;
    this.hurt.classList.add('flash');
  }

  addKill(killer: NamedColour | null, victim: NamedColour): void {
    const line = tag('li', 'feed-line');
    if (killer) line.append(tag('span', `name ${killer.kind}`, killer.name));
    line.append(tag('span', 'feed-icon', killer ? '➤' : '✕'), tag('span', `name ${victim.kind}`, victim.name));
    line.classList.toggle('mine', killer?.kind === 'own' || victim.kind === 'own');
    this.feed.append(line);
    while (this.feed.childElementCount > FEED_LINES) this.feed.firstElementChild?.remove();
    setTimeout(() => line.remove(), FEED_MS);
  }

  showBoard(shown: boolean): void {
    this.board.hidden = !shown;
  }

  setBoard(standings: readonly Standing[]): void {
    if (this.board.hidden) return;
    rank(this.boardRows, standings, standings.find((standing) => standing.own)?.id ?? -1);
  }

  showResult(result: Result, own: number): void {
    this.setNotice('', '');
    this.showBoard(false);
    const best = result.ranking[0];
    const won = !result.draw && best?.id === own;
    setText(element('over-title'), result.draw ? 'Draw' : won ? 'Victory' : 'Match over');
    setText(element('over-detail'), result.draw || !best ? 'Nobody came out on top' : won ? 'You won the match' : `${best.name} won the match`);
    this.over.classList.toggle('won', won);
    this.over.hidden = false;
    rank(element('over-rows'), result.ranking, own);
    const ends = performance.now() + result.closesInMs;
    const count = (): void => {
      const left = Math.max(0, Math.ceil((ends - performance.now()) / 1_000));
      setText(element('over-countdown'), left > 0 ? `Back to the lobby in ${left} s` : 'Back to the lobby…');
    };
    count();
    this.overTimer = setInterval(count, 250);
  }

  hideResult(): void {
    this.over.hidden = true;
    if (this.overTimer !== null) clearInterval(this.overTimer);
    this.overTimer = null;
  }

  loadMinimap(map: GameMap): void {
    const ratio = Math.min(2, window.devicePixelRatio || 1);
    this.minimapScale = (MINIMAP * ratio) / Math.max(map.width, map.height);
    const width = Math.round(map.width * this.minimapScale);
    const height = Math.round(map.height * this.minimapScale);
    for (const canvas of [this.backdrop, this.minimap]) {
      canvas.width = width;
      canvas.height = height;
    }
    this.minimap.style.aspectRatio = `${width} / ${height}`;
    const c = this.backdrop.getContext('2d');
    if (!c) return;
    c.fillStyle = '#6476d8';
    for (let i = 0; i + 3 < map.walls.length; i += 4) {
      const [left = 0, top = 0, right = 0, bottom = 0] = map.walls.subarray(i, i + 4);
      const s = this.minimapScale;
      c.fillRect(left * s, top * s, Math.max(1, (right - left) * s), Math.max(1, (bottom - top) * s));
    }
  }

  drawMinimap(x: number, y: number, alive: boolean, others: readonly Track[]): void {
    const c = this.minimap.getContext('2d');
    if (!c) return;
    const s = this.minimapScale;
    const ratio = this.minimap.width / (this.minimap.clientWidth || this.minimap.width);
    c.clearRect(0, 0, this.minimap.width, this.minimap.height);
    c.globalAlpha = 0.55;
    c.drawImage(this.backdrop, 0, 0);
    c.globalAlpha = 1;
    c.fillStyle = '#ffa32b';
    for (let i = 0; i < others.length; i += 1) {
      const track = others[i];
      if (track?.visible) dot(c, track.x * s, track.y * s, 2.6 * ratio);
    }
    if (!alive) return;
    c.fillStyle = '#05080f';
    dot(c, x * s, y * s, 5 * ratio);
    c.fillStyle = '#4cc9f0';
    dot(c, x * s, y * s, 3.6 * ratio);
  }
}

function dot(c: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  c.beginPath();
  c.arc(x, y, radius, 0, Math.PI * 2);
  c.fill();
}

/** Fills a table, closely when there are many, with the own row in view. */
function rank(body: HTMLElement, ranking: readonly Ranked[], own: number): void {
  body.classList.toggle('crowded', ranking.length > CROWD);
  fill(body, ranking.map((ranked, i) => row(ranked, i, ranked.id === own)));
  body.querySelector('.own')?.scrollIntoView({ block: 'nearest' });
}

function row(ranked: Ranked, index: number, own: boolean): HTMLElement {
  const line = tag('tr', own ? 'own' : '');
  const name = tag('td', 'who', ranked.name);
  if (ranked.bot) name.append(tag('span', 'chip', 'bot'));
  if (own) name.append(tag('span', 'chip you', 'you'));
  line.append(
    tag('td', 'place', String(index + 1)),
    name,
    tag('td', 'number', String(ranked.kills)),
    tag('td', 'number', String(ranked.deaths)),
  );
  return line;
}
