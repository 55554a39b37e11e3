/**
 * The service as a player sees it: signing up, getting a client, and the interchange of messages.
 * Knows HTTP and storage; knows nothing of screens or of the game.
 */

import { Mailbox, type Incoming, type Outgoing } from './mailbox';
import { Backoff, sleep } from './retry';

export interface Game {
  readonly tenant: string;
  readonly project: string;
  readonly stage: string;
}

/** Where the client was last: kept for a reload, because an acknowledged assignment is not sent again. */
export interface Place {
  readonly runtimeId: string;
  readonly qualifier: 'LOBBY' | 'MATCH';
  readonly matchId: string | null;
  readonly mode: string | null;
}

interface Credentials {
  readonly userId: string;
  readonly password: string;
}

interface ClientRecord {
  readonly clientId: string;
  nextId: number;
  place: Place | null;
}

export type LinkState = 'signing-in' | 'online' | 'retrying' | 'not-deployed' | 'stopped';

export interface Listener {
  /** A message of the service, once each and in order. */
  onMessage(message: Incoming): void;
  onLink(state: LinkState, detail: string): void;
  /** A client is there; `resumed` is where it was before the page was reloaded. */
  onClient(clientId: string, resumed: Place | null): void;
}

const POLL_HOLD_MS = 15_000;
/** The held time plus a slow network. */
const POLL_TIMEOUT_MS = 25_000;
const CALL_TIMEOUT_MS = 10_000;
/** An empty reply sooner than this means that the service does not hold replies: poll gently. */
const HELD_AT_LEAST_MS = 250;
const GENTLE_POLL_MS = 400;
/** A message that could not be sent is tried again after this, or after the next poll. */
const SEND_AGAIN_MS = 1_000;
/** A client that lived this long was no failure. */
const LIVED_MS = 30_000;
/** A reloaded page may have to wait for its predecessor to be gone. */
const CLAIM_MS = 1_500;

export class ServiceError extends Error {
  constructor(
    readonly status: number,
    readonly qualifier: string,
    message: string,
  ) {
    super(message);
    this.name = 'ServiceError';
  }
}

/** One POST to the player's part of the API. */
export async function call<Reply>(
  operation: string,
  body: unknown,
  token: string | null,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<Reply> {
  const headers: Record<string, string> = { 'Content-Type': 'application/json' };
  if (token) headers['Authorization'] = `Bearer ${token}`;
  const deadline = new AbortController();
  const abort = (): void => deadline.abort();
  const timer = setTimeout(abort, timeoutMs);
  signal?.addEventListener('abort', abort);
  try {
    if (signal?.aborted) abort();
    const response = await fetch(`/service/v1/entrypoint/player/request/${operation}`, {
      method: 'POST',
      headers,
      body: JSON.stringify(body),
      signal: deadline.signal,
    });
    const reply: unknown = await response.json().catch(() => null);
    if (!response.ok) {
      const failure = (reply ?? {}) as { qualifier?: string; message?: string };
      throw new ServiceError(response.status, failure.qualifier ?? 'UNKNOWN', failure.message || `HTTP ${response.status}`);
    }
    if (reply === null) throw new ServiceError(response.status, 'UNKNOWN', 'the reply is not JSON');
    return reply as Reply;
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener('abort', abort);
  }
}

/**
 * What survives a reload. The user belongs to the browser, the client to the tab, so that two tabs are two players' seats
 * and never fetch each other's messages.
 */
export class Memory {
  private readonly suffix: string;

  constructor(
    private readonly userStore: Storage,
    private readonly tabStore: Storage,
    game: Game,
  ) {
    this.suffix = `${game.tenant}/${game.project}/${game.stage}`;
  }

  get name(): string {
    return this.userStore.getItem('shooter.name') ?? '';
  }

  set name(name: string) {
    this.userStore.setItem('shooter.name', name);
  }

  get credentials(): Credentials | null {
    return parse<Credentials>(this.userStore.getItem('omgservers.user'));
  }

  set credentials(value: Credentials | null) {
    write(this.userStore, 'omgservers.user', value);
  }

  get client(): ClientRecord | null {
    return parse<ClientRecord>(this.tabStore.getItem(`omgservers.client.${this.suffix}`));
  }

  set client(value: ClientRecord | null) {
    write(this.tabStore, `omgservers.client.${this.suffix}`, value);
  }
}

/**
 * Makes this tab the only one that speaks for a client. A duplicated tab brings the other's memory along and must not
 * use it. Browsers without locks (plain HTTP off this machine) go without.
 */
async function claim(clientId: string): Promise<boolean> {
  if (typeof navigator === 'undefined' || !navigator.locks) return true;
  return new Promise((resolve) => {
    navigator.locks
      .request(`omgservers.client.${clientId}`, { signal: AbortSignal.timeout(CLAIM_MS) }, () => {
        resolve(true);
        return new Promise<never>(() => undefined);
      })
      .catch(() => resolve(false));
  });
}

function parse<T>(text: string | null): T | null {
  if (!text) return null;
  try {
    return JSON.parse(text) as T;
  } catch {
    return null;
  }
}

function write(store: Storage, key: string, value: unknown): void {
  if (value === null) store.removeItem(key);
  else store.setItem(key, JSON.stringify(value));
}

export class Player {
  private token: string | null = null;
  private client: ClientRecord | null = null;
  private mailbox = new Mailbox();
  private readonly stopped = new AbortController();
  /** Calls off the requests of the present client. */
  private round = new AbortController();
  private sending = false;
  private sendAgain: ReturnType<typeof setTimeout> | undefined;
  private dismissed = false;
  private link: LinkState = 'stopped';

  constructor(
    private readonly game: Game,
    private readonly memory: Memory,
    private readonly listener: Listener,
  ) {}

  /** Signs in and exchanges messages until `stop`. Every failure is retried here; it never rejects. */
  async run(): Promise<void> {
    const backoff = new Backoff();
    const dismissals = new Backoff(500, 15_000);
    while (!this.stopped.signal.aborted) {
      const began = performance.now();
      try {
        const { token, client } = await this.enter();
        await this.poll(token, client, backoff);
      } catch (cause) {
        if (this.stopped.signal.aborted) break;
        if (!this.round.signal.aborted) {
          this.recover(cause);
          await sleep(backoff.next(), this.stopped.signal);
          continue;
        }
      }
      // The client is gone, by the player's wish or by the service's; the latter must not become a race.
      if (performance.now() - began > LIVED_MS) dismissals.reset();
      if (this.dismissed) await sleep(dismissals.next(), this.stopped.signal);
      this.dismissed = false;
    }
    this.tell('stopped', '');
  }

  stop(): void {
    this.stopped.abort();
    this.round.abort();
    clearTimeout(this.sendAgain);
  }

  /** Sends a message to the runtime that the client is in. */
  send(data: unknown): boolean {
    const accepted = this.mailbox.post(data);
    this.remember();
    void this.flush();
    return accepted;
  }

  /** Remembers where the client is, for a reload. */
  place(place: Place): void {
    if (!this.client) return;
    this.client.place = place;
    this.remember();
  }

  /** A fresh token for the socket of the runtime that the client is in. */
  async renewConnection(): Promise<{ runtimeId: string; token: string }> {
    if (!this.client || !this.token) throw new ServiceError(401, 'UNKNOWN', 'not signed in yet');
    const reply = await call<{ runtime_id: string; ws_token: string }>(
      'renew-connection',
      { client_id: this.client.clientId },
      this.token,
      CALL_TIMEOUT_MS,
      this.stopped.signal,
    );
    return { runtimeId: reply.runtime_id, token: reply.ws_token };
  }

  /** Gives this client up; a new one follows at once. */
  abandon(): void {
    this.client = null;
    this.memory.client = null;
    this.round.abort();
  }

  private async enter(): Promise<{ token: string; client: ClientRecord }> {
    if (!this.token || !this.client) this.tell('signing-in', '');
    let token = this.token;
    if (!token) {
      const credentials = this.memory.credentials ?? (await this.signUp());
      const reply = await call<{ raw_token: string }>(
        'create-token',
        { user_id: credentials.userId, password: credentials.password },
        null,
        CALL_TIMEOUT_MS,
        this.stopped.signal,
      );
      token = this.token = reply.raw_token;
    }
    let client = this.client;
    if (!client) {
      const kept = this.memory.client;
      const remembered = kept && (await claim(kept.clientId)) ? kept : null;
      client = remembered ?? (await this.createClient(token));
      if (!remembered) void claim(client.clientId);
      this.client = client;
      this.round = new AbortController();
      this.mailbox = new Mailbox(client.nextId);
      this.memory.client = client;
      this.listener.onClient(client.clientId, remembered?.place ?? null);
    }
    return { token, client };
  }

  private async signUp(): Promise<Credentials> {
    const reply = await call<{ user_id: string; password: string }>(
      'create-user',
      {},
      null,
      CALL_TIMEOUT_MS,
      this.stopped.signal,
    );
    const credentials = { userId: reply.user_id, password: reply.password };
    this.memory.credentials = credentials;
    return credentials;
  }

  private async createClient(token: string): Promise<ClientRecord> {
    const reply = await call<{ client_id: string }>('create-client', this.game, token, CALL_TIMEOUT_MS, this.stopped.signal);
    return { clientId: reply.client_id, nextId: 0, place: null };
  }

  /** Polls as long as it works; throws at the first failure, returns when the client is gone. */
  private async poll(token: string, client: ClientRecord, backoff: Backoff): Promise<void> {
    while (this.client === client && !this.stopped.signal.aborted) {
      const consumed = this.mailbox.consumed();
      const began = performance.now();
      // The first one is not held, so that it is known at once whether the service is (back) there.
      const holdMs = this.link === 'online' ? POLL_HOLD_MS : 0;
      const messages = await this.interchange(token, client, [], consumed, holdMs, POLL_TIMEOUT_MS);
      backoff.reset();
      this.mailbox.acknowledged(consumed);
      this.tell('online', '');
      this.deliver(client, messages);
      void this.flush();
      if (holdMs > 0 && messages.length === 0 && performance.now() - began < HELD_AT_LEAST_MS) {
        await sleep(GENTLE_POLL_MS, this.stopped.signal);
      }
    }
  }

  /** Sends what waits in a request of its own, since the poll may be held for many seconds. One at a time keeps the order. */
  private async flush(): Promise<void> {
    if (this.sending) return;
    this.sending = true;
    try {
      while (this.client && this.token && !this.stopped.signal.aborted) {
        const client = this.client;
        const mailbox = this.mailbox;
        const batch = mailbox.outgoing();
        if (batch.length === 0) break;
        const messages = await this.interchange(this.token, client, batch, [], 0, CALL_TIMEOUT_MS);
        mailbox.sent(batch);
        this.deliver(client, messages);
      }
    } catch {
      // The messages are still in the mailbox. What is wrong the poll finds out; here it is only tried again.
      clearTimeout(this.sendAgain);
      this.sendAgain = setTimeout(() => void this.flush(), SEND_AGAIN_MS);
    } finally {
      this.sending = false;
    }
  }

  private async interchange(
    token: string,
    client: ClientRecord,
    outgoing: readonly Outgoing[],
    consumed: readonly string[],
    waitMs: number,
    timeoutMs: number,
  ): Promise<Incoming[]> {
    const reply = await call<{ incoming_messages: Incoming[] }>(
      'interchange',
      { client_id: client.clientId, outgoing_messages: outgoing, consumed_messages: consumed, wait_ms: waitMs },
      token,
      timeoutMs,
      this.round.signal,
    );
    return reply.incoming_messages;
  }

  private deliver(client: ClientRecord, messages: readonly Incoming[]): void {
    if (this.client !== client) return;
    for (const message of this.mailbox.accept(messages)) {
      this.listener.onMessage(message);
      if (message.qualifier === 'DISCONNECTION_REASON_MESSAGE') {
        this.dismissed = true;
        this.abandon();
        return;
      }
    }
  }

  /** What a failure says about the token, the user and the client. */
  private recover(cause: unknown): void {
    if (!(cause instanceof ServiceError)) {
      this.tell('retrying', 'The server cannot be reached');
      return;
    }
    if (cause.qualifier === 'DEPLOYMENT_NOT_FOUND' || (cause.status === 404 && this.token && !this.client)) {
      this.tell('not-deployed', `${this.game.tenant}/${this.game.project}/${this.game.stage} is not running here`);
    } else if (cause.status === 401 || cause.status === 403) {
      if (!this.token) this.memory.credentials = null;
      this.token = null;
      this.tell('signing-in', '');
    } else if (!this.token && (cause.status === 400 || cause.status === 404)) {
      // The user is unknown here: another installation answers at this address now.
      this.memory.credentials = null;
      this.abandon();
      this.tell('signing-in', '');
    } else if (cause.status === 404 || cause.qualifier === 'WRONG_CLIENT_ID') {
      this.abandon();
      this.tell('signing-in', '');
    } else {
      this.tell('retrying', cause.message);
    }
  }

  private remember(): void {
    if (!this.client) return;
    this.client.nextId = this.mailbox.counter;
    this.memory.client = this.client;
  }

  private tell(state: LinkState, detail: string): void {
    if (state === this.link && state === 'online') return;
    this.link = state;
    this.listener.onLink(state, detail);
  }
}
