import { describe, expect, it } from 'vitest';
import { Mailbox, type Incoming } from '../src/mailbox';
import { Backoff } from '../src/retry';

const message = (id: string): Incoming => ({ id, qualifier: 'SERVER_OUTGOING_MESSAGE', body: {} });
const ids = (messages: readonly { readonly id: unknown }[]): unknown[] => messages.map(({ id }) => id);

describe('mailbox', () => {
  it('hands out each message once, in order, however often it is delivered', () => {
    const mailbox = new Mailbox();
    expect(ids(mailbox.accept([message('1'), message('2')]))).toEqual(['1', '2']);
    expect(ids(mailbox.accept([message('1'), message('2'), message('3')]))).toEqual(['3']);
    expect(mailbox.accept([message('2')])).toEqual([]);
  });

  it('acknowledges a repeated message again, because the first acknowledgement may have been lost', () => {
    const mailbox = new Mailbox();
    mailbox.accept([message('1')]);
    mailbox.acknowledged(mailbox.consumed());
    expect(mailbox.consumed()).toEqual([]);
    mailbox.accept([message('1')]);
    expect(mailbox.consumed()).toEqual(['1']);
  });

  it('keeps acknowledgements that came up while a request was on its way', () => {
    const mailbox = new Mailbox();
    mailbox.accept([message('1')]);
    const inFlight = mailbox.consumed();
    mailbox.accept([message('2')]);
    mailbox.acknowledged(inFlight);
    expect(mailbox.consumed()).toEqual(['2']);
  });

  it('counts outgoing messages from zero and keeps them until they were sent', () => {
    const mailbox = new Mailbox();
    mailbox.post({ say: 'a' });
    mailbox.post({ say: 'b' });
    const batch = mailbox.outgoing();
    expect(ids(batch)).toEqual([0, 1]);
    expect(ids(mailbox.outgoing())).toEqual([0, 1]);
    mailbox.post({ say: 'c' });
    mailbox.sent(batch);
    expect(ids(mailbox.outgoing())).toEqual([2]);
  });

  it('goes on counting where a reloaded page stopped', () => {
    const mailbox = new Mailbox(7);
    mailbox.post('x');
    expect(ids(mailbox.outgoing())).toEqual([7]);
    expect(mailbox.counter).toBe(8);
  });

  it('refuses messages beyond its bound instead of growing', () => {
    const mailbox = new Mailbox();
    const accepted = Array.from({ length: 100 }, () => mailbox.post('x')).filter(Boolean).length;
    expect(accepted).toBe(64);
    expect(mailbox.counter).toBe(64);
  });

  it('forgets the oldest ids only after many newer ones', () => {
    const mailbox = new Mailbox();
    mailbox.accept([message('first')]);
    for (let i = 0; i < 1_000; i += 1) mailbox.accept([message(`n${i}`)]);
    expect(mailbox.accept([message('first')])).toEqual([]);
    for (let i = 0; i < 1_000; i += 1) mailbox.accept([message(`m${i}`)]);
    expect(ids(mailbox.accept([message('first')]))).toEqual(['first']);
  });
});

describe('backoff', () => {
  it('doubles up to its bound and starts again after a success', () => {
    const backoff = new Backoff(100, 1_000, () => 1);
    expect([1, 2, 3, 4, 5, 6].map(() => backoff.next())).toEqual([100, 200, 400, 800, 1_000, 1_000]);
    backoff.reset();
    expect(backoff.next()).toBe(100);
  });

  it('spreads a crowd over the second half of the delay', () => {
    expect(new Backoff(100, 1_000, () => 0).next()).toBe(50);
  });
});
