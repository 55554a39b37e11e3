import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Memory, Player, type Listener, type Place } from '../src/api';
import type { Incoming } from '../src/mailbox';

const GAME = { tenant: 'demo', project: 'shooter', stage: 'prod' };

class Store implements Storage {
  [name: string]: unknown;
  private readonly values = new Map<string, string>();
  get length(): number {
    return this.values.size;
  }
  clear(): void {
    this.values.clear();
  }
  getItem(key: string): string | null {
    return this.values.get(key) ?? null;
  }
  key(index: number): string | null {
    return [...this.values.keys()][index] ?? null;
  }
  removeItem(key: string): void {
    this.values.delete(key);
  }
  setItem(key: string, value: string): void {
    this.values.set(key, value);
  }
}

interface Request {
  readonly client_id: string;
  readonly outgoing_messages: readonly { readonly id: number; readonly body: { readonly data: unknown } }[];
  readonly consumed_messages: readonly string[];
  readonly wait_ms: number;
}

/** As much of the service as the interchange needs: at-least-once delivery, held replies, failures on demand. */
class Service {
  readonly calls: string[] = [];
  readonly received: [string, unknown][] = [];
  inbox: Incoming[] = [];
  clients = 0;
  users = 0;
  failures: number[] = [];
  /** Says the same to every new client. */
  keepInbox = false;
  private readonly living = new Set<string>();
  private wake: (() => void)[] = [];

  readonly fetch = async (url: string, init: RequestInit): Promise<Response> => {
    const operation = url.split('/').at(-1) ?? '';
    const body = JSON.parse(String(init.body)) as Request & { user_id?: string };
    this.calls.push(operation === 'interchange' && body.wait_ms > 0 ? 'poll' : operation);
    if (operation === 'create-user') {
      this.users += 1;
      return reply({ user_id: `u${this.users}`, password: 'p' });
    }
    if (operation === 'create-token') {
      const known = body.user_id === `u${this.users}`;
      return known ? reply({ raw_token: 't' }) : reply({ qualifier: 'WRONG_CREDENTIALS' }, 401);
    }
    if (operation === 'create-client') {
      this.clients += 1;
      this.inbox = this.keepInbox ? this.inbox : [];
      this.living.add(`c${this.clients}`);
      return reply({ client_id: `c${this.clients}` });
    }
    const failure = this.failures.shift();
    if (failure) return reply({ qualifier: 'X', message: 'no' }, failure);
    if (!this.living.has(body.client_id)) return reply({ qualifier: 'OBJECT_NOT_FOUND' }, 404);
    for (const message of body.outgoing_messages) this.received.push([`${body.client_id}/${message.id}`, message.body.data]);
    this.inbox = this.inbox.filter((message) => !body.consumed_messages.includes(message.id));
    if (this.inbox.length === 0 && body.wait_ms > 0) {
      await new Promise<void>((resolve, reject) => {
        this.wake.push(resolve);
        init.signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError')));
      });
    }
    return reply({ incoming_messages: this.inbox });
  };

  push(id: string, qualifier: string, body: unknown = {}): void {
    this.inbox.push({ id, qualifier, body });
    this.wake.splice(0).forEach((wake) => wake());
  }

  /** Deletes all clients; those who wait hear of it. */
  forget(): void {
    this.living.clear();
    this.wake.splice(0).forEach((wake) => wake());
  }
}

function reply(body: unknown, status = 200): Response {
  return new Response(JSON.stringify(body), { status });
}

class Heard implements Listener {
  readonly messages: string[] = [];
  readonly clients: [string, Place | null][] = [];
  link = '';
  onMessage(message: Incoming): void {
    this.messages.push(message.id);
  }
  onLink(state: string): void {
    this.link = state;
  }
  onClient(clientId: string, resumed: Place | null): void {
    this.clients.push([clientId, resumed]);
  }
}

describe('player', () => {
  let service: Service;
  let heard: Heard;
  let user: Store;
  let tab: Store;
  const players: Player[] = [];

  const start = (): Player => {
    const player = new Player(GAME, new Memory(user, tab, GAME), heard);
    players.push(player);
    void player.run();
    return player;
  };
  const until = (condition: () => boolean): Promise<void> => vi.waitFor(() => expect(condition()).toBe(true), { timeout: 4_000, interval: 5 });

  beforeEach(() => {
    service = new Service();
    heard = new Heard();
    user = new Store();
    tab = new Store();
    vi.stubGlobal('fetch', service.fetch);
  });

  afterEach(() => {
    players.splice(0).forEach((player) => player.stop());
    vi.unstubAllGlobals();
  });

  it('signs up, gets a client and hears each message once although it is delivered until acknowledged', async () => {
    start();
    await until(() => service.calls.includes('poll'));
    service.push('1', 'SERVER_WELCOME_MESSAGE');
    await until(() => heard.messages.length === 1);
    service.push('2', 'SERVER_OUTGOING_MESSAGE');
    service.push('3', 'SERVER_OUTGOING_MESSAGE');
    await until(() => service.inbox.length === 0);
    expect(heard.messages).toEqual(['1', '2', '3']);
    expect(service.calls.slice(0, 3)).toEqual(['create-user', 'create-token', 'create-client']);
    expect(heard.link).toBe('online');
  });

  it('sends at once while its poll is held', async () => {
    const player = start();
    await until(() => service.calls.includes('poll'));
    player.send({ say: 'hello' });
    player.send({ say: 'again' });
    await until(() => service.received.length === 2);
    expect(service.received).toEqual([['c1/0', { say: 'hello' }], ['c1/1', { say: 'again' }]]);
    expect(service.calls.filter((call) => call === 'poll').length).toBe(1);
  });

  it('loses no message to a failing request', async () => {
    const player = start();
    await until(() => service.calls.includes('poll'));
    service.failures = [503];
    player.send({ say: 'kept' });
    await until(() => service.failures.length === 0);
    expect(service.received).toEqual([]);
    await until(() => service.received.length === 1);
    expect(service.received).toEqual([['c1/0', { say: 'kept' }]]);
  });

  it('takes a new client, whose messages count from zero, when the old one is gone', async () => {
    const player = start();
    await until(() => service.calls.includes('poll'));
    player.send('old');
    await until(() => service.received.length === 1);
    service.forget();
    await until(() => heard.clients.length === 2);
    player.send('new');
    await until(() => service.received.length === 2);
    expect(service.received[1]).toEqual(['c2/0', 'new']);
    expect(service.users).toBe(1);
  });

  it('takes a new client when the service says goodbye', async () => {
    start();
    await until(() => service.calls.includes('poll'));
    service.push('9', 'DISCONNECTION_REASON_MESSAGE', { reason: 'CLIENT_INACTIVITY' });
    await until(() => heard.clients.length === 2);
    expect(heard.messages).toEqual(['9']);
  });

  it('does not race for new clients when the service dismisses each of them', async () => {
    service.keepInbox = true;
    service.push('9', 'DISCONNECTION_REASON_MESSAGE', { reason: 'INTERNAL_FAILURE' });
    const began = performance.now();
    start();
    await until(() => heard.clients.length === 3);
    expect(performance.now() - began).toBeGreaterThan(600);
  });

  it('signs up again where its user is unknown', async () => {
    new Memory(user, tab, GAME).credentials = { userId: 'of-another-installation', password: 'p' };
    start();
    await until(() => heard.clients.length === 1);
    expect(service.calls.slice(0, 3)).toEqual(['create-token', 'create-user', 'create-token']);
  });

  it('resumes the same client, place and count after a reload', async () => {
    const first = start();
    await until(() => heard.clients.length === 1);
    const place: Place = { runtimeId: 'r', qualifier: 'MATCH', matchId: 'm', mode: null };
    first.place(place);
    first.send('before');
    await until(() => service.received.length === 1);
    first.stop();
    const second = start();
    await until(() => heard.clients.length === 2);
    expect(heard.clients[1]).toEqual(['c1', place]);
    second.send('after');
    await until(() => service.received.length === 2);
    expect(service.received[1]).toEqual(['c1/1', 'after']);
    expect(service.clients).toBe(1);
  });

  it('gets a new client at once when it gives the old one up, poll or not', async () => {
    const player = start();
    await until(() => service.calls.includes('poll'));
    player.abandon();
    await until(() => heard.clients.length === 2);
    expect(heard.clients[1]).toEqual(['c2', null]);
  });
});
