/**
 * The way through the page: title → signing in → lobby → match → lobby. Listens to the service and the socket, and
 * shows the screen that fits.
 */

import './style.css';
import { Memory, Player, type Game, type LinkState, type Listener, type Place } from './api';
import { Controls } from './game/input';
import { Hud } from './game/hud';
import { Match } from './game/match';
import { Stage } from './game/render';
import { Simulation } from './game/simulation';
import { Sound } from './game/sound';
import type { Result } from './game/wire';
import { Lobby, describe, type LobbyState, type Status } from './lobby';
import type { Incoming } from './mailbox';
import { MatchSocket, type SocketState } from './socket';
import { button, element, input, setText, showScreen, toast, type ScreenName } from './ui';

interface RuntimeAssignment {
  readonly runtime_id: string;
  readonly runtime_qualifier: 'LOBBY' | 'MATCH';
  readonly runtime_config?: {
    readonly match_config?: { readonly match_id?: string; readonly mode?: string } | null;
    readonly version_config?: { readonly modes?: readonly { readonly name?: string }[] } | null;
  } | null;
}

interface ConnectionUpgrade {
  readonly web_socket_config?: { readonly ws_token?: string } | null;
}

const LOBBY_KEY = 'shooter.lobby';
const NAME_MAX = 16;

class App implements Listener {
  private screen: ScreenName = 'title';
  private player: Player | null = null;
  private clientId = '';
  private place: Place | null = null;
  private link: LinkState = 'stopped';
  private socketState: SocketState = 'closed';
  private readonly sound: Sound;
  private readonly lobby: Lobby;
  private readonly socket: MatchSocket;
  private match: Match | null = null;
  private loading: Promise<Match> | null = null;
  private lastResult: Result | null = null;
  private lastError = '';

  constructor(
    private readonly game: Game,
    private readonly memory: Memory,
    private readonly tabStore: Storage,
    userStore: Storage,
  ) {
    this.sound = new Sound(userStore);
    this.lobby = new Lobby({
      onSay: (text) => this.send({ say: text }),
      onName: (name) => this.rename(name),
      onPlay: (mode) => {
        this.send({ play: mode });
        void this.load().catch((cause: unknown) => this.fail(cause));
      },
      onChange: (state) => tabStore.setItem(LOBBY_KEY, JSON.stringify(state)),
    });
    this.socket = new MatchSocket(
      () => {
        if (!this.player) throw new Error('not signed in');
        return this.player.renewConnection();
      },
      {
        onPacket: (bytes) => this.packet(bytes),
        onState: (state) => this.socketChanged(state),
        onLost: () => {
          toast('The match could not be reached any more');
          this.leaveMatch();
        },
      },
    );
    this.wire();
  }

  /** Shows the title, or goes on where a reload interrupted. */
  begin(): void {
    input('title-name').value = this.memory.name;
    this.showSound();
    if (this.memory.client) this.signIn();
    else this.show('title');
    if (this.screen === 'title') input('title-name').focus();
  }

  onMessage(message: Incoming): void {
    switch (message.qualifier) {
      case 'RUNTIME_ASSIGNMENT_MESSAGE':
        this.assigned(message.body as RuntimeAssignment);
        break;
      case 'CONNECTION_UPGRADE_MESSAGE': {
        const token = (message.body as ConnectionUpgrade).web_socket_config?.ws_token ?? null;
        if (this.place?.qualifier === 'MATCH') void this.connect(this.place.runtimeId, token);
        break;
      }
      case 'SERVER_OUTGOING_MESSAGE':
        this.lobby.hear((message.body as { message: unknown }).message);
        break;
      case 'PROVISIONING_STATUS_MESSAGE':
        this.provisioning(message.body as Status);
        break;
      case 'DISCONNECTION_REASON_MESSAGE':
        toast('The server let you go; joining again');
        this.leftRuntime();
        this.showWait('Joining again…', '');
        break;
      default:
    }
  }

  onLink(state: LinkState, detail: string): void {
    this.link = state;
    const badge = element('lobby-link');
    setText(badge, state === 'online' ? 'online' : state === 'signing-in' ? 'signing in' : 'reconnecting');
    badge.classList.toggle('bad', state !== 'online');
    if (this.screen !== 'wait') return;
    if (state === 'signing-in') this.showWait('Signing in…', '');
    else if (state === 'online') this.showWait('Looking for a lobby…', '');
    else if (state === 'not-deployed') this.showWait('Nothing to play yet', `${detail}. Trying again…`);
    else if (state === 'retrying') this.showWait('Reconnecting…', detail);
  }

  onClient(clientId: string, resumed: Place | null): void {
    this.clientId = clientId;
    this.place = resumed;
    if (!resumed) {
      this.showWait('Looking for a lobby…', '');
    } else if (resumed.qualifier === 'MATCH') {
      this.showWait('Returning to your match…', '');
      void this.connect(resumed.runtimeId, null);
    } else {
      this.enterLobby(parseLobby(this.tabStore.getItem(LOBBY_KEY)));
    }
  }

  /** The read-only view of the game that browser tests look at. */
  get view(): object {
    const app = this;
    return Object.freeze({
      get screen(): string {
        return app.screen === 'match' && app.match?.over ? 'over' : app.screen;
      },
      get clientId(): string {
        return app.clientId;
      },
      get matchId(): string | null {
        return app.place?.qualifier === 'MATCH' ? (app.place.matchId ?? app.place.runtimeId) : null;
      },
      get connected(): boolean {
        return app.screen === 'match' ? app.socketState === 'open' : app.link === 'online';
      },
      get link(): string {
        return app.link;
      },
      get lobby(): readonly string[] {
        return app.lobby.players.map((person) => person.name);
      },
      get chat(): readonly string[] {
        return app.lobby.chat.map((line) => line.text);
      },
      get players(): readonly unknown[] {
        return app.match?.players ?? [];
      },
      get visible(): readonly unknown[] {
        return app.match?.visible ?? [];
      },
      get score(): { kills: number; deaths: number } {
        return app.match?.ownScore ?? { kills: 0, deaths: 0 };
      },
      get ownId(): number {
        return app.match?.ownId ?? -1;
      },
      get body(): object | null {
        return app.match?.body ?? null;
      },
      get tick(): number {
        return app.match?.tick ?? 0;
      },
      get fps(): number {
        return Math.round(app.match?.fps ?? 0);
      },
      get pingMs(): number {
        return Math.round(app.match?.pingMs ?? 0);
      },
      get result(): Result | null {
        return app.match?.over ?? app.lastResult;
      },
      get error(): string {
        return app.lastError;
      },
    });
  }

  private wire(): void {
    element('title-form').addEventListener('submit', (event) => {
      event.preventDefault();
      this.memory.name = input('title-name').value.trim().slice(0, NAME_MAX);
      this.signIn();
    });
    button('wait-leave').addEventListener('click', () => this.signOut());
    button('lobby-leave').addEventListener('click', () => this.signOut());
    for (const id of ['lobby-sound', 'match-sound']) {
      button(id).addEventListener('click', () => this.toggleSound());
    }
    button('match-menu').addEventListener('click', () => this.toggleMenu());
    button('menu-resume').addEventListener('click', () => this.toggleMenu());
    button('menu-leave').addEventListener('click', () => this.leaveMatch());
    const scores = button('match-scores');
    scores.addEventListener('click', () => {
      const board = element('scoreboard');
      board.hidden = !board.hidden;
    });
  }

  private signIn(): void {
    this.player?.stop();
    const player = new Player(this.game, this.memory, this);
    this.player = player;
    this.showWait('Signing in…', '');
    void player.run();
    // Fetched while the player looks around, so that a match starts at once.
    void this.load().catch((cause: unknown) => this.fail(cause));
  }

  private signOut(): void {
    this.player?.stop();
    this.player = null;
    this.memory.client = null;
    this.leftRuntime();
    this.show('title');
  }

  private rename(name: string): void {
    this.memory.name = name;
    this.send({ name });
  }

  private send(message: object): void {
    if (!this.player?.send(message)) toast('Too much at once; wait for the connection');
  }

  private assigned(body: RuntimeAssignment): void {
    const config = body.runtime_config;
    this.place = {
      runtimeId: body.runtime_id,
      qualifier: body.runtime_qualifier,
      matchId: config?.match_config?.match_id ?? null,
      mode: config?.match_config?.mode ?? null,
    };
    this.player?.place(this.place);
    this.socket.close();
    if (body.runtime_qualifier === 'LOBBY') {
      const modes = config?.version_config?.modes?.flatMap((mode) => (mode.name ? [mode.name] : []));
      this.lobby.offer(modes && modes.length > 0 ? modes : null);
      if (this.screen === 'match' && !this.match?.over) toast('The match has ended');
      this.leaveArena();
      this.tabStore.removeItem(LOBBY_KEY);
      this.enterLobby(null);
      if (this.memory.name !== '') this.send({ name: this.memory.name });
    } else {
      this.lobby.progress({ stage: 'READY', detail: 'Connecting…' });
      if (this.screen === 'wait') this.showWait('Entering the match…', '');
    }
  }

  private enterLobby(kept: LobbyState | null): void {
    this.lobby.enter(this.clientId, this.memory.name, kept);
    this.show('lobby');
  }

  private provisioning(status: Status): void {
    if (this.screen === 'wait') {
      const { title, detail } = describe(status);
      this.showWait(status.stage === 'READY' ? 'Entering…' : title, detail);
    } else {
      this.lobby.progress(status);
    }
  }

  private async connect(runtimeId: string, token: string | null): Promise<void> {
    try {
      await this.load();
    } catch (cause) {
      this.fail(cause);
      return;
    }
    if (this.place?.runtimeId === runtimeId) this.socket.open(runtimeId, token);
  }

  private packet(bytes: Uint8Array): void {
    if (!this.match) return;
    this.match.packet(bytes);
    if (this.match.ownId >= 0 && this.screen !== 'match') {
      this.lobby.stopWaiting();
      this.show('match');
    }
  }

  private socketChanged(state: SocketState): void {
    this.socketState = state;
    this.match?.setReconnecting(state === 'reconnecting');
  }

  /** The simulation and the stage, once. A failure may be tried again. */
  private load(): Promise<Match> {
    this.loading ??= this.build().catch((cause: unknown) => {
      this.loading = null;
      throw cause;
    });
    return this.loading;
  }

  private async build(): Promise<Match> {
    const simulation = await Simulation.load(`${import.meta.env.BASE_URL}simulation.wasm`);
    const arena = element('arena');
    const stage = await Stage.create(arena, simulation.playerRadius);
    const hud = new Hud();
    const controls = new Controls(arena, element('stick-left'), element('stick-right'), {
      onScoreboard: (shown) => hud.showBoard(shown),
      onMute: () => this.toggleSound(),
      onMenu: () => this.toggleMenu(),
    });
    this.match = new Match(simulation, stage, hud, this.sound, controls, (bytes) => this.socket.send(bytes), {
      onOver: (result) => {
        this.lastResult = result;
        element('menu').hidden = true;
        if (this.match) this.lobby.remember(result, this.match.ownId);
      },
    });
    return this.match;
  }

  /** Leaves by giving the client up: the service has no other way back, and a new client starts in a lobby. */
  private leaveMatch(): void {
    this.leftRuntime();
    this.showWait('Back to the lobby…', '');
    this.player?.abandon();
  }

  private leftRuntime(): void {
    this.place = null;
    this.socket.close();
    this.leaveArena();
  }

  private leaveArena(): void {
    element('menu').hidden = true;
    this.match?.stop();
  }

  private toggleMenu(): void {
    const menu = element('menu');
    if (this.match?.over) return;
    menu.hidden = !menu.hidden;
    if (!menu.hidden) button('menu-resume').focus();
  }

  private toggleSound(): void {
    this.sound.toggle();
    this.showSound();
  }

  private showSound(): void {
    const on = !this.sound.muted;
    button('lobby-sound').setAttribute('aria-pressed', String(on));
    setText(button('lobby-sound'), on ? 'Sound on' : 'Sound off');
    button('match-sound').setAttribute('aria-pressed', String(on));
  }

  private showWait(title: string, detail: string): void {
    setText(element('wait-title'), title);
    setText(element('wait-detail'), detail);
    this.show('wait');
  }

  private show(screen: ScreenName): void {
    this.screen = screen;
    showScreen(screen);
  }

  private fail(cause: unknown): void {
    this.lastError = cause instanceof Error ? cause.message : String(cause);
    toast(`The game could not be loaded: ${this.lastError}`, 12_000);
  }
}

function parseLobby(text: string | null): LobbyState | null {
  if (!text) return null;
  try {
    return JSON.parse(text) as LobbyState;
  } catch {
    return null;
  }
}

declare global {
  interface Window {
    __shooter?: object;
  }
}

const query = new URLSearchParams(location.search);
const game: Game = {
  tenant: query.get('tenant') ?? 'demo',
  project: query.get('project') ?? 'shooter',
  stage: query.get('stage') ?? 'prod',
};
// With `?fresh` nothing is shared between tabs: each is a user of its own.
const userStore = query.has('fresh') ? sessionStorage : localStorage;
const app = new App(game, new Memory(userStore, sessionStorage, game), sessionStorage, userStore);
window.__shooter = app.view;
app.begin();
