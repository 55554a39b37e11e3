import { Builder, ByteBuffer } from 'flatbuffers';
import { describe, expect, it } from 'vitest';
import { Inputs, MatchPacket, Own, PlayerPacket, Roster, RosterEntry, Snapshot, ToPlayer } from '../src/generated/shooter';
import { Predictor } from '../src/game/predict';
import { Reader, Writer, type PacketListener } from '../src/game/wire';

const still = { bodyX: 0, bodyY: 0, setBody: () => undefined, applyInput: () => undefined };
const deaf: PacketListener = { onWelcome: () => undefined, onRoster: () => undefined, onSnapshot: () => undefined, onMatchOver: () => undefined };

function packet(type: ToPlayer, build: (builder: Builder) => number): Uint8Array {
  const builder = new Builder();
  const body = build(builder);
  MatchPacket.startMatchPacket(builder);
  MatchPacket.addBodyType(builder, type);
  MatchPacket.addBody(builder, body);
  builder.finish(MatchPacket.endMatchPacket(builder));
  return builder.asUint8Array();
}

describe('packets', () => {
  it('carry the newest inputs, oldest first', () => {
    const predictor = new Predictor(still, 10, 100);
    predictor.reset(100);
    predictor.push(127, -127, 40_000, 1);
    predictor.push(-1, 2, 65_535, 0);
    predictor.push(3, 4, 5, 1);
    const bytes = new Writer().inputs(predictor, 2, 777);
    const inputs = PlayerPacket.getRootAsPlayerPacket(new ByteBuffer(bytes)).body(new Inputs()) as Inputs;
    const read = Array.from({ length: inputs.inputsLength() }, (_, i) => {
      const input = inputs.inputs(i);
      return [input?.sequence(), input?.moveX(), input?.moveY(), input?.aim(), input?.buttons()];
    });
    expect(inputs.seen()).toBe(777);
    expect(read).toEqual([[102, -1, 2, 65_535, 0], [103, 3, 4, 5, 1]]);
  });

  it('reuse their buffer without mixing two packets', () => {
    const predictor = new Predictor(still, 10, 100);
    predictor.reset(0);
    const writer = new Writer();
    for (let i = 0; i < 8; i += 1) predictor.push(i, 0, 0, 0);
    const long = writer.inputs(predictor, 8, 1).length;
    const short = writer.inputs(predictor, 1, 2);
    expect(short.length).toBeLessThan(long);
    const inputs = PlayerPacket.getRootAsPlayerPacket(new ByteBuffer(short)).body(new Inputs()) as Inputs;
    expect([inputs.inputsLength(), inputs.inputs(0)?.sequence()]).toEqual([1, 8]);
  });

  it('of the match reach their listener', () => {
    const heard: unknown[] = [];
    const listener: PacketListener = {
      ...deaf,
      onRoster: (players) => heard.push(players),
      onSnapshot: (snapshot) => heard.push([snapshot.tick(), snapshot.own()?.x(), snapshot.playersLength()]),
    };
    const reader = new Reader();
    reader.read(packet(ToPlayer.Roster, (builder) => {
      const name = builder.createString('Zoë');
      RosterEntry.startRosterEntry(builder);
      RosterEntry.addId(builder, 3);
      RosterEntry.addName(builder, name);
      RosterEntry.addBot(builder, true);
      const players = Roster.createPlayersVector(builder, [RosterEntry.endRosterEntry(builder)]);
      Roster.startRoster(builder);
      Roster.addPlayers(builder, players);
      return Roster.endRoster(builder);
    }), listener);
    reader.read(packet(ToPlayer.Snapshot, (builder) => {
      Snapshot.startSnapshot(builder);
      Snapshot.addTick(builder, 9);
      Snapshot.addOwn(builder, Own.createOwn(builder, -5, 6, 0, 0, 100, 0, 1));
      return Snapshot.endSnapshot(builder);
    }), listener);
    expect(heard).toEqual([[{ id: 3, name: 'Zoë', bot: true }], [9, -5, 0]]);
  });

  it('of an unknown kind are ignored', () => {
    const bytes = packet(200 as ToPlayer, (builder) => builder.createString('new'));
    expect(() => new Reader().read(bytes, deaf)).not.toThrow();
  });
});
