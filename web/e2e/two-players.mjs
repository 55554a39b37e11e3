/**
 * Two people play an evening in two real browsers: they sign up, meet in the lobby, talk, ask for a match, land in the
 * same one, move, shoot and score, see the result and are back in the lobby.
 *
 *   BASE_URL=http://localhost:8080 node e2e/two-players.mjs
 *
 * MODE (arena), OUT_DIR for the screenshots, CHROMIUM, TENANT, PROJECT, STAGE, MATCH_TIMEOUT_S (420), RELOAD=1 to reload
 * one page in the middle of the match. Exits with 1 and a sentence when something does not happen.
 */

import { mkdirSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';

const { env } = process;
const base = env.BASE_URL;
const mode = env.MODE ?? 'arena';
const out = env.OUT_DIR ?? fileURLToPath(new URL('../../test-output/two-players', import.meta.url));
const matchTimeoutMs = Number(env.MATCH_TIMEOUT_S ?? 420) * 1_000;
const STEP_MS = 120_000;

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--disable-features=WebRtcHideLocalIpsWithMdns',
];

class Failure extends Error {}

const by = (id) => `[data-testid="${id}"]`;
const say = (text) => process.stdout.write(`${text}\n`);

class Person {
  constructor(name, page) {
    this.name = name;
    this.page = page;
    this.problems = [];
    page.on('pageerror', (error) => this.problems.push(error.message));
  }

  /** What the page says about the game. */
  state() {
    return this.page.evaluate(() => {
      const s = window.__shooter;
      return {
        screen: s.screen, matchId: s.matchId, connected: s.connected, lobby: s.lobby, chat: s.chat, players: s.players,
        visible: s.visible, body: s.body, score: s.score, tick: s.tick, fps: s.fps, result: s.result, error: s.error,
      };
    });
  }

  /** Waits until `condition` holds in the page; says what was expected when it does not. */
  async until(what, condition, argument, timeout = STEP_MS) {
    try {
      await this.page.waitForFunction(condition, argument, { timeout, polling: 100 });
    } catch {
      const state = await this.state().catch(() => null);
      const texts = await this.page
        .evaluate(() => ['wait-title', 'wait-detail', 'progress-title', 'progress-detail', 'toast'].map((id) => document.getElementById(id)?.textContent ?? ''))
        .catch(() => []);
      await this.shot('failed').catch(() => undefined);
      throw new Failure(
        `${this.name}: ${what} did not happen within ${timeout / 1_000} s; screen \`${state?.screen}\`, ` +
          `texts ${JSON.stringify(texts.filter(Boolean))}, errors ${JSON.stringify([...this.problems, state?.error].filter(Boolean))}`,
      );
    }
  }

  shot(stage) {
    return this.page.screenshot({ path: path.join(out, `${stage}-${this.name.toLowerCase()}.png`) });
  }
}

async function main() {
  if (!base) throw new Failure('BASE_URL is not set');
  mkdirSync(out, { recursive: true });
  const browser = await chromium.launch({ executablePath: env.CHROMIUM ?? '/usr/bin/chromium', args: FLAGS });
  try {
    const people = [];
    for (const name of ['Ada', 'Grace']) {
      const context = await browser.newContext({ viewport: { width: 1280, height: 720 } });
      people.push(new Person(name, await context.newPage()));
    }
    await signUp(people);
    await meet(people);
    await enterMatch(people);
    await play(people);
    await comeBack(people);
    for (const person of people) {
      if (person.problems.length > 0) throw new Failure(`${person.name}: the page reported ${JSON.stringify(person.problems)}`);
    }
  } finally {
    await browser.close();
  }
}

async function signUp(people) {
  const query = new URLSearchParams();
  for (const key of ['tenant', 'project', 'stage']) {
    const value = env[key.toUpperCase()];
    if (value) query.set(key, value);
  }
  query.set('fresh', '');
  for (const person of people) {
    const { page } = person;
    await page.goto(new URL(`/play/?${query}`, base).href, { timeout: STEP_MS });
    await page.fill(by('name-input'), person.name);
    await person.shot('1-title');
    await page.click(by('play-button'));
  }
  for (const person of people) await person.until('arriving in the lobby', () => window.__shooter.screen === 'lobby');
  say('both signed up and are in the lobby');
}

async function meet(people) {
  const [first, second] = people;
  for (const person of people) {
    const names = people.map(({ name }) => name);
    await person.until('seeing both names in the lobby', (all) => all.every((name) => window.__shooter.lobby.includes(name)), names);
  }
  await second.page.fill(by('chat-input'), 'Ready when you are');
  await second.page.click(by('chat-send'));
  await first.until('reading the chat', () => window.__shooter.chat.includes('Ready when you are'));
  for (const person of people) await person.shot('2-lobby');
  say('they see each other and talk');
}

async function enterMatch(people) {
  for (const person of people) await person.page.click(by(`mode-${mode}`));
  await people[0].shot('3-progress');
  for (const person of people) {
    await person.until('landing in a match', () => window.__shooter.screen === 'match' && window.__shooter.connected);
    await person.until('having a living body', () => window.__shooter.body?.alive === true);
  }
  const states = await Promise.all(people.map((person) => person.state()));
  if (states[0].matchId === null || states[0].matchId !== states[1].matchId) {
    throw new Failure(`they are in different matches: ${states.map((state) => state.matchId).join(' and ')}`);
  }
  for (const person of people) {
    const names = people.map(({ name }) => name);
    await person.until('both being in the match', (all) => all.every((name) => window.__shooter.players.some((p) => p.name === name)), names);
  }
  const bots = states[0].players.filter((player) => player.bot).length;
  if (mode === 'arena' && bots === 0) throw new Failure('there are no bots in the arena');
  for (const person of people) await person.shot('4-match');
  say(`both are in match ${states[0].matchId} with ${bots} bots`);
}

async function play(people) {
  await Promise.all(people.map((person) => pilot(person, people)));
  const scores = people.map((person) => `${person.name} ${person.kills}`);
  if (people.every((person) => person.kills === 0)) throw new Failure('nobody scored');
  for (const person of people) {
    if (!person.moved) throw new Failure(`${person.name} did not move`);
  }
  say(`they moved, shot and scored: ${scores.join(', ')}`);
}

const DIRECTIONS = [['KeyD'], ['KeyD', 'KeyS'], ['KeyS'], ['KeyS', 'KeyA'], ['KeyA'], ['KeyA', 'KeyW'], ['KeyW'], ['KeyW', 'KeyD']];

/** Hunts with real keys and a real mouse: towards the nearest, trigger pulled, another way when stuck. Until the match is over. */
async function pilot(person, people) {
  const { page } = person;
  const deadline = Date.now() + matchTimeoutMs;
  let held = [];
  let start = null;
  let last = null;
  let detour = 0;
  let turn = 0;
  let shown = false;
  person.kills = 0;
  person.moved = false;
  await page.mouse.move(700, 360);
  await page.mouse.down();
  for (;;) {
    const state = await person.state();
    if (state.screen !== 'match') break;
    if (Date.now() > deadline) throw new Failure(`${person.name}: the match was not over within ${matchTimeoutMs / 1_000} s`);
    person.kills = Math.max(person.kills, state.score.kills);
    const { body } = state;
    let keys = [];
    if (body?.alive) {
      start ??= body;
      if (Math.hypot(body.x - start.x, body.y - start.y) > 100) person.moved = true;
      const near = state.visible
        .map((other) => ({ angle: Math.atan2(other.y - body.y, other.x - body.x), distance: Math.hypot(other.x - body.x, other.y - body.y) }))
        .sort((a, b) => a.distance - b.distance)[0];
      const stuck = last !== null && Math.hypot(body.x - last.x, body.y - last.y) < 4;
      if (stuck && detour === 0) {
        detour = 6;
        turn = Math.floor(Math.random() * 8);
      }
      const angle = near ? near.angle : (turn * Math.PI) / 4;
      const heading = detour > 0 ? turn : (Math.round((angle / Math.PI) * 4) + 8 + (near && near.distance < 180 ? 2 : 0)) % 8;
      keys = DIRECTIONS[heading];
      detour = Math.max(0, detour - 1);
      last = body;
      await page.mouse.move(body.screenX + Math.cos(angle) * 160, body.screenY + Math.sin(angle) * 160);
    }
    for (const key of held) if (!keys.includes(key)) await page.keyboard.up(key);
    for (const key of keys) if (!held.includes(key)) await page.keyboard.down(key);
    held = keys;
    if (!shown && person.kills > 0) {
      shown = true;
      await page.keyboard.down('Tab');
      await page.waitForSelector(by('scoreboard'), { state: 'visible', timeout: STEP_MS });
      await person.shot('5-scores');
      await page.keyboard.up('Tab');
      if (env.RELOAD && person === people[1]) await reload(person, state.matchId);
    }
    await page.waitForFunction((tick) => window.__shooter.screen !== 'match' || window.__shooter.tick > tick + 8, state.tick, { timeout: STEP_MS, polling: 50 });
  }
  for (const key of held) await page.keyboard.up(key);
  await page.mouse.up();
}

async function reload(person, matchId) {
  await person.page.reload({ timeout: STEP_MS });
  await person.until('returning to the match after a reload', (id) => window.__shooter.matchId === id && window.__shooter.screen === 'match' && window.__shooter.connected, matchId);
  await person.page.mouse.down();
  say(`${person.name} reloaded the page and is in the same match`);
}

async function comeBack(people) {
  for (const person of people) {
    await person.until('seeing the result', () => window.__shooter.result !== null && ['over', 'lobby'].includes(window.__shooter.screen));
    await person.shot('6-over');
  }
  for (const person of people) await person.until('being back in the lobby', () => window.__shooter.screen === 'lobby');
  for (const person of people) {
    await person.until('meeting the other again', (count) => window.__shooter.lobby.length >= count, people.length);
    await person.shot('7-lobby');
  }
  const { ranking } = (await people[0].state()).result;
  say(`the match is over, ${ranking[0].name} leads with ${ranking[0].kills}; both are back in the lobby`);
}

main().then(
  () => say(`done; screenshots in ${out}`),
  (error) => {
    process.stderr.write(`error: ${error instanceof Failure ? error.message : (error.stack ?? error)}\n`);
    process.exitCode = 1;
  },
);
