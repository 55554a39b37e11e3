/** FlatBuffers in and out. Readers are kept and moved over the bytes, so that a packet costs next to nothing. */

import { Builder, ByteBuffer } from 'flatbuffers';
import {
  Event,
  FromPlayer,
  Input,
  Inputs,
  MatchOver,
  MatchPacket,
  Own,
  Player,
  PlayerPacket,
  Projectile,
  Rank,
  Roster,
  RosterEntry,
  Score,
  Snapshot,
  ToPlayer,
  Welcome,
} from '../generated/shooter';
import type { Predictor } from './predict';

/** Quantised positions are eighths of a pixel, steps sixteenths. */
export const POSITION = 1 / 8;
export const STEP = 1 / 16;
export const ALIVE = 1;
export const GUARDED = 2;
export const AWAY = 4;
/** The newest input and up to seven before it. */
export const INPUTS_MAX = 8;

export interface Named {
  readonly id: number;
  readonly name: string;
  readonly bot: boolean;
}

export interface Ranked extends Named {
  readonly kills: number;
  readonly deaths: number;
}

export interface Result {
  readonly ranking: readonly Ranked[];
  readonly draw: boolean;
  readonly closesInMs: number;
}

export interface PacketListener {
  onWelcome(welcome: Welcome): void;
  onRoster(players: readonly Named[]): void;
  onSnapshot(snapshot: Snapshot): void;
  onMatchOver(result: Result): void;
}

export class Reader {
  readonly own = new Own();
  readonly player = new Player();
  readonly projectile = new Projectile();
  readonly event = new Event();
  readonly score = new Score();
  private readonly packet = new MatchPacket();
  private readonly snapshot = new Snapshot();

  /** Reads one packet of the match. Throws on bytes that are none. */
  read(bytes: Uint8Array, listener: PacketListener): void {
    const packet = MatchPacket.getRootAsMatchPacket(new ByteBuffer(bytes), this.packet);
    switch (packet.bodyType()) {
      case ToPlayer.Snapshot: {
        const snapshot = packet.body(this.snapshot) as Snapshot | null;
        if (snapshot) listener.onSnapshot(snapshot);
        break;
      }
      case ToPlayer.Welcome: {
        const welcome = packet.body(new Welcome()) as Welcome | null;
        if (welcome) listener.onWelcome(welcome);
        break;
      }
      case ToPlayer.Roster: {
        const roster = packet.body(new Roster()) as Roster | null;
        if (roster) listener.onRoster(readRoster(roster));
        break;
      }
      case ToPlayer.MatchOver: {
        const over = packet.body(new MatchOver()) as MatchOver | null;
        if (over) listener.onMatchOver(readResult(over));
        break;
      }
      default:
    }
  }
}

function readRoster(roster: Roster): Named[] {
  const entry = new RosterEntry();
  const players: Named[] = [];
  for (let i = 0; i < roster.playersLength(); i += 1) {
    if (roster.players(i, entry)) players.push({ id: entry.id(), name: entry.name() ?? '', bot: entry.bot() });
  }
  return players;
}

function readResult(over: MatchOver): Result {
  const rank = new Rank();
  const ranking: Ranked[] = [];
  for (let i = 0; i < over.rankingLength(); i += 1) {
    if (!over.ranking(i, rank)) continue;
    ranking.push({ id: rank.id(), name: rank.name() ?? '', bot: rank.bot(), kills: rank.kills(), deaths: rank.deaths() });
  }
  return { ranking, draw: over.draw(), closesInMs: over.closesInMs() };
}

export class Writer {
  private readonly builder = new Builder(256);

  /** A packet of the newest `count` inputs. The bytes are good until the next call. */
  inputs(predictor: Predictor, count: number, seen: number): Uint8Array<ArrayBuffer> {
    const { builder } = this;
    builder.clear();
    Inputs.startInputsVector(builder, count);
    for (let i = 0; i < count; i += 1) {
      const sequence = predictor.newest - i;
      const input = predictor.inputAt(sequence);
      Input.createInput(builder, sequence, input.aim, input.moveX, input.moveY, input.buttons);
    }
    const inputs = Inputs.createInputs(builder, seen, builder.endVector());
    builder.finish(PlayerPacket.createPlayerPacket(builder, FromPlayer.Inputs, inputs));
    return builder.asUint8Array() as Uint8Array<ArrayBuffer>;
  }
}
