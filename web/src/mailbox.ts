/**
 * Bookkeeping of one client's messages, without any I/O: what is still to be sent, what is still to be acknowledged,
 * and what has been seen. The service delivers at least once and in order; out of here each message comes once.
 */

export interface Incoming {
  readonly id: string;
  readonly qualifier: string;
  readonly body: unknown;
}

export interface Outgoing {
  readonly id: number;
  readonly qualifier: 'CLIENT_OUTGOING_MESSAGE';
  readonly body: { readonly data: unknown };
}

/** More than a person can type ahead while the service is away. */
const OUTGOING_MAX = 64;
/** A message can come again only until its acknowledgement arrived, so a short memory is enough. */
const SEEN_MAX = 1_024;

export class Mailbox {
  private waiting: Outgoing[] = [];
  private readonly unacknowledged = new Set<string>();
  private readonly seen = new Set<string>();

  /** `nextId` continues the counter of a client that lived in this tab before a reload. */
  constructor(private nextId = 0) {}

  get counter(): number {
    return this.nextId;
  }

  /** Queues a message; `false` when too many are waiting already. */
  post(data: unknown): boolean {
    if (this.waiting.length >= OUTGOING_MAX) return false;
    this.waiting.push({ id: this.nextId, qualifier: 'CLIENT_OUTGOING_MESSAGE', body: { data } });
    this.nextId += 1;
    return true;
  }

  /** Everything that waits to be sent, oldest first. It stays here until `sent`, so a failed request loses nothing. */
  outgoing(): readonly Outgoing[] {
    return this.waiting.slice();
  }

  sent(batch: readonly Outgoing[]): void {
    const last = batch.at(-1);
    if (last) this.waiting = this.waiting.filter((message) => message.id > last.id);
  }

  /** Ids to acknowledge with the next request. They stay here until `acknowledged`. */
  consumed(): readonly string[] {
    return [...this.unacknowledged];
  }

  acknowledged(ids: readonly string[]): void {
    for (const id of ids) this.unacknowledged.delete(id);
  }

  /** The messages of one reply that have not been seen before, in order. All of them are to be acknowledged. */
  accept(messages: readonly Incoming[]): Incoming[] {
    const fresh: Incoming[] = [];
    for (const message of messages) {
      this.unacknowledged.add(message.id);
      if (this.seen.has(message.id)) continue;
      this.seen.add(message.id);
      fresh.push(message);
    }
    for (const oldest of this.seen) {
      if (this.seen.size <= SEEN_MAX) break;
      this.seen.delete(oldest);
    }
    return fresh;
  }
}
