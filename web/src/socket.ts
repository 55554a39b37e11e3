/**
 * The socket of a match. A lost one comes back by itself with a fresh token and growing delays; whoever uses it sees
 * packets and three states.
 */

import { Backoff, sleep } from './retry';

export type SocketState = 'connecting' | 'open' | 'reconnecting' | 'closed';

export interface SocketListener {
  onPacket(bytes: Uint8Array): void;
  onState(state: SocketState): void;
  /** The match could not be reached for a long time. */
  onLost(): void;
}

export interface Ticket {
  readonly runtimeId: string;
  readonly token: string;
}

const HANDSHAKE_TIMEOUT_MS = 8_000;
/** The match speaks 30 times a second: silence this long means that the connection is dead. */
const SILENCE_MS = 4_000;
const WATCH_EVERY_MS = 500;
/** What may wait in the socket before inputs are dropped: about a second of them. */
const BUFFERED_MAX = 8_192;
/** Longer than the grace time in which the match keeps the body. */
const GIVE_UP_MS = 45_000;

export class MatchSocket {
  private socket: WebSocket | null = null;
  private round: AbortController | null = null;
  private heardAt = 0;
  private state: SocketState = 'closed';

  constructor(
    private readonly renew: () => Promise<Ticket>,
    private readonly listener: SocketListener,
  ) {}

  /** Opens the socket of a match, with the token that the service sent, or with a renewed one when there is none. */
  open(runtimeId: string, token: string | null): void {
    this.close();
    const round = new AbortController();
    this.round = round;
    this.tell('connecting');
    void this.keep(runtimeId, token, round.signal);
  }

  close(): void {
    this.round?.abort();
    this.round = null;
    this.socket?.close();
    this.socket = null;
    this.tell('closed');
  }

  /** Sends a packet if the connection can take it; inputs repeat, so a dropped one does no harm. */
  send(bytes: Uint8Array<ArrayBuffer>): void {
    const { socket } = this;
    if (socket && socket.readyState === WebSocket.OPEN && socket.bufferedAmount < BUFFERED_MAX) socket.send(bytes);
  }

  private async keep(runtimeId: string, first: string | null, signal: AbortSignal): Promise<void> {
    const backoff = new Backoff(250, 4_000);
    let token = first;
    let lostAt = performance.now();
    while (!signal.aborted) {
      try {
        if (token === null) {
          const ticket = await this.renew();
          if (signal.aborted) return;
          // Another runtime: the service has moved the client on and says so by a message.
          if (ticket.runtimeId === runtimeId) token = ticket.token;
        }
        if (token !== null && (await this.connection(token, signal))) {
          backoff.reset();
          lostAt = performance.now();
        }
      } catch {
        // No token this time; the delay below is the answer.
      }
      token = null;
      if (signal.aborted) return;
      this.tell('reconnecting');
      if (performance.now() - lostAt > GIVE_UP_MS) {
        this.listener.onLost();
        lostAt = performance.now();
      }
      await sleep(backoff.next(), signal);
    }
  }

  /** One connection from handshake to end. Answers whether it ever spoke. */
  private connection(token: string, signal: AbortSignal): Promise<boolean> {
    return new Promise((resolve) => {
      const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
      const path = '/dispatcher/v1/entrypoint/websocket/endpoint';
      const socket = new WebSocket(`${scheme}://${location.host}${path}?ws_token=${encodeURIComponent(token)}`, 'omgservers');
      socket.binaryType = 'arraybuffer';
      this.socket = socket;
      let spoke = false;
      let done = false;
      const began = performance.now();
      const finish = (): void => {
        if (done) return;
        done = true;
        clearInterval(watch);
        signal.removeEventListener('abort', finish);
        if (this.socket === socket) this.socket = null;
        socket.close();
        resolve(spoke);
      };
      const watch = setInterval(() => {
        const now = performance.now();
        const opening = socket.readyState === WebSocket.CONNECTING && now - began > HANDSHAKE_TIMEOUT_MS;
        const silent = socket.readyState === WebSocket.OPEN && now - Math.max(this.heardAt, began) > SILENCE_MS;
        if (opening || silent) finish();
      }, WATCH_EVERY_MS);
      signal.addEventListener('abort', finish);
      socket.onopen = () => {
        this.heardAt = performance.now();
      };
      socket.onmessage = (event: MessageEvent<unknown>) => {
        if (done || !(event.data instanceof ArrayBuffer)) return;
        this.heardAt = performance.now();
        spoke = true;
        this.tell('open');
        this.listener.onPacket(new Uint8Array(event.data));
      };
      socket.onclose = finish;
      socket.onerror = finish;
    });
  }

  private tell(state: SocketState): void {
    if (state === this.state) return;
    this.state = state;
    this.listener.onState(state);
  }
}
