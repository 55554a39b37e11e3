/** The lobby screen: who is here, chat, choosing a match and the way to it. Messages are in `shooter-runtime/PROTOCOL.md`. */

import type { Result } from './game/wire';
import { button, element, fill, input, setText, tag, toast } from './ui';

export type ModeName = 'duel' | 'arena';

interface Person {
  readonly id: string;
  readonly name: string;
  readonly wins: number;
  readonly waiting: string | null;
}

interface You extends Person {
  readonly kills: number;
  readonly matches: number;
}

interface ChatLine {
  readonly n: number;
  readonly id?: string | null;
  readonly name: string;
  readonly text: string;
}

/** What the lobby has said so far. It is said only on change, so it is kept for a reload. */
export interface LobbyState {
  you: You | null;
  players: readonly Person[];
  chat: readonly ChatLine[];
  /** How far the wish to play had come. */
  status: Status | null;
}

export interface Status {
  readonly stage: string;
  readonly position?: number | null;
  readonly detail?: string | null;
}

export interface LobbyListener {
  onSay(text: string): void;
  onName(name: string): void;
  onPlay(mode: ModeName): void;
  onChange(state: LobbyState): void;
}

const CHAT_LINES = 60;
const MODES: readonly ModeName[] = ['duel', 'arena'];
const STAGES: Readonly<Record<string, string>> = {
  QUEUED: 'Waiting in line',
  PULLING_IMAGE: 'Fetching the game server',
  STARTING: 'Starting a server',
  MATCHMAKING: 'Looking for players',
  READY: 'Entering the match',
  FAILED: 'That did not work',
};

/** A status of the platform in words: a headline and a detail. */
export function describe(status: Status): { title: string; detail: string } {
  const title = STAGES[status.stage] ?? 'Please wait';
  const place = status.position ? `Place ${status.position} in line` : '';
  return { title, detail: [place, status.detail ?? ''].filter((part) => part !== '').join(' · ') };
}

export class Lobby {
  private state: LobbyState = nothingSaid();
  private clientId = '';
  private waiting: ModeName | null = null;
  private failed = false;
  private waitingSince = 0;
  private timer: ReturnType<typeof setInterval> | null = null;

  constructor(private readonly listener: LobbyListener) {
    for (const mode of MODES) button(`mode-${mode}`).addEventListener('click', () => this.play(mode));
    element('chat-form').addEventListener('submit', (event) => {
      event.preventDefault();
      const field = input('chat-input');
      const text = field.value.trim();
      if (text === '') return;
      field.value = '';
      this.listener.onSay(text);
    });
    const rename = input('rename');
    const submit = (): void => {
      const name = rename.value.trim();
      if (name !== '' && name !== this.state.you?.name) this.listener.onName(name);
      else rename.value = this.state.you?.name ?? rename.value;
    };
    element('rename-form').addEventListener('submit', (event) => {
      event.preventDefault();
      rename.blur();
    });
    rename.addEventListener('blur', submit);
  }

  get players(): readonly Person[] {
    return this.state.players;
  }

  get chat(): readonly ChatLine[] {
    return this.state.chat;
  }

  /** A new lobby: everything is said again. `kept` is what was known of it before a reload. */
  enter(clientId: string, name: string, kept: LobbyState | null): void {
    this.clientId = clientId;
    this.state = kept ?? nothingSaid();
    input('rename').value = this.state.you?.name ?? name;
    this.stopWaiting();
    this.draw();
    const waiting = MODES.find((mode) => mode === this.state.you?.waiting);
    if (waiting) this.startWaiting(waiting, this.state.status);
  }

  /** Offers only the modes that the deployed version has. */
  offer(modes: readonly string[] | null): void {
    for (const mode of MODES) button(`mode-${mode}`).hidden = modes !== null && !modes.includes(mode);
  }

  /** A message of the lobby. */
  hear(message: unknown): void {
    if (typeof message !== 'object' || message === null) return;
    const { you, lobby, error, about } = message as {
      you?: You;
      lobby?: { players?: Person[]; chat?: ChatLine[] };
      error?: string;
      about?: string;
    };
    if (typeof error === 'string') {
      toast(error);
      if (about === 'play') this.stopWaiting();
    }
    if (you) {
      this.state.you = you;
      if (document.activeElement !== input('rename')) input('rename').value = you.name;
    }
    if (lobby?.players) this.state.players = lobby.players;
    if (lobby?.chat) {
      const newest = this.state.chat.at(-1)?.n ?? -1;
      const fresh = lobby.chat.filter((line) => line.n > newest);
      this.state.chat = [...this.state.chat, ...fresh].slice(-CHAT_LINES);
    }
    this.draw();
    this.listener.onChange(this.state);
  }

  /** How far the wish to play has come. */
  progress(status: Status): void {
    if (!this.waiting && !this.failed && status.stage !== 'FAILED') return;
    this.state.status = status;
    this.listener.onChange(this.state);
    const { title, detail } = describe(status);
    setText(element('progress-title'), title);
    setText(element('progress-detail'), detail);
    this.failed = status.stage === 'FAILED';
    element('progress').classList.toggle('failed', this.failed);
    element('progress').hidden = false;
    const steps = [...element('progress-steps').children] as HTMLElement[];
    const reached = steps.findIndex((step) => step.dataset['stage'] === status.stage);
    steps.forEach((step, i) => {
      step.classList.toggle('done', i < reached);
      step.classList.toggle('now', i === reached);
    });
    if (this.failed) this.release();
  }

  /** The last match's outcome, until the next one. */
  remember(result: Result, own: number): void {
    const place = result.ranking.findIndex((ranked) => ranked.id === own);
    const mine = result.ranking[place];
    const score = mine ? ` · ${plural(mine.kills, 'kill')}, ${plural(mine.deaths, 'death')}` : '';
    const title = result.draw ? 'Last match: a draw' : place === 0 ? 'Last match: you won' : `Last match: place ${place + 1}`;
    setText(element('last-title'), place < 0 ? 'Last match' : title + score);
    const shown = result.ranking.filter((ranked, i) => i < 5 || ranked === mine);
    const rows = shown.map((ranked) => {
      const i = result.ranking.indexOf(ranked);
      const row = tag('li', ranked.id === own ? 'own' : '');
      row.append(tag('span', 'place', String(i + 1)), tag('span', 'who', ranked.name), tag('span', 'number', String(ranked.kills)));
      return row;
    });
    fill(element('last-rows'), rows);
    element('last-result').hidden = false;
  }

  stopWaiting(): void {
    this.failed = false;
    this.release();
    element('progress').hidden = true;
  }

  private play(mode: ModeName): void {
    this.startWaiting(mode, null);
    this.listener.onPlay(mode);
  }

  private startWaiting(mode: ModeName, reached: Status | null): void {
    this.release();
    this.waiting = mode;
    this.waitingSince = performance.now();
    const tick = (): void => {
      const seconds = Math.floor((performance.now() - this.waitingSince) / 1_000);
      setText(element('progress-time'), `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`);
    };
    tick();
    this.timer = setInterval(tick, 500);
    for (const name of MODES) {
      button(`mode-${name}`).setAttribute('aria-pressed', String(name === mode));
      button(`mode-${name}`).disabled = name !== mode;
    }
    this.progress(reached ?? { stage: 'QUEUED', detail: `Asking for ${mode === 'duel' ? 'a duel' : 'an arena'}` });
  }

  private release(): void {
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    this.waiting = null;
    setText(element('progress-time'), '');
    for (const name of MODES) {
      button(`mode-${name}`).removeAttribute('aria-pressed');
      button(`mode-${name}`).disabled = false;
    }
  }

  private draw(): void {
    const { you, players, chat } = this.state;
    setText(element('me-stats'), you ? `${plural(you.wins, 'win')} · ${plural(you.kills, 'kill')}` : '');
    setText(element('people-count'), String(players.length));
    fill(element('people'), players.map((person) => this.person(person)));
    const log = element('chat-log');
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    fill(log, chat.length > 0 ? chat.map((line) => this.line(line)) : [tag('li', 'empty', 'Nobody has said anything yet.')]);
    if (atEnd) log.scrollTop = log.scrollHeight;
  }

  private person(person: Person): HTMLElement {
    const mine = person.id === this.clientId;
    const row = tag('li', mine ? 'own' : '');
    row.dataset['name'] = person.name;
    row.append(tag('span', 'dot'), tag('span', 'who', person.name));
    if (mine) row.append(tag('span', 'chip you', 'you'));
    if (person.waiting) row.append(tag('span', 'chip', `wants ${person.waiting}`));
    row.append(tag('span', 'muted tabular', plural(person.wins, 'win')));
    return row;
  }

  private line(line: ChatLine): HTMLElement {
    const row = tag('li', line.id ? '' : 'system');
    if (line.id) row.append(tag('b', line.id === this.clientId ? 'own' : '', line.name), ' ');
    row.append(tag('span', '', line.text));
    return row;
  }
}

function nothingSaid(): LobbyState {
  return { you: null, players: [], chat: [], status: null };
}

function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}
