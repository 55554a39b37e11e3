/** Sounds made on the spot by WebAudio: nothing to download. Silent until the first gesture, as browsers demand. */

const MUTED_KEY = 'shooter.muted';
/** Beyond this distance, in pixels, nothing is heard. */
const HEARING = 1_100;
/** More voices than this at once are noise, and cost time. */
const VOICES_MAX = 24;

interface Voice {
  readonly wave: OscillatorType;
  readonly from: number;
  readonly to: number;
  readonly seconds: number;
  readonly volume: number;
  /** Share of noise in the sound. */
  readonly noise: number;
}

const VOICES = {
  shot: { wave: 'square', from: 720, to: 140, seconds: 0.11, volume: 0.1, noise: 0.5 },
  enemyShot: { wave: 'sawtooth', from: 420, to: 90, seconds: 0.12, volume: 0.09, noise: 0.5 },
  hit: { wave: 'triangle', from: 1500, to: 900, seconds: 0.07, volume: 0.22, noise: 0.1 },
  hurt: { wave: 'sawtooth', from: 200, to: 70, seconds: 0.18, volume: 0.2, noise: 0.6 },
  spark: { wave: 'triangle', from: 2600, to: 600, seconds: 0.04, volume: 0.05, noise: 0.8 },
  burst: { wave: 'sawtooth', from: 160, to: 30, seconds: 0.5, volume: 0.26, noise: 1 },
  spawn: { wave: 'sine', from: 320, to: 960, seconds: 0.22, volume: 0.14, noise: 0 },
  score: { wave: 'sine', from: 880, to: 1320, seconds: 0.18, volume: 0.18, noise: 0 },
} as const satisfies Record<string, Voice>;

export type SoundName = keyof typeof VOICES;

export class Sound {
  private context: AudioContext | null = null;
  private output: GainNode | null = null;
  private noise: AudioBuffer | null = null;
  private voices = 0;
  private silent: boolean;

  constructor(private readonly store: Storage) {
    this.silent = store.getItem(MUTED_KEY) === 'yes';
    const wake = (): void => this.wake();
    window.addEventListener('pointerdown', wake);
    window.addEventListener('keydown', wake);
  }

  get muted(): boolean {
    return this.silent;
  }

  toggle(): boolean {
    this.silent = !this.silent;
    this.store.setItem(MUTED_KEY, this.silent ? 'yes' : 'no');
    if (this.output) this.output.gain.value = this.silent ? 0 : 1;
    return this.silent;
  }

  /** Plays a sound that happened `dx`, `dy` pixels away from the listener. */
  play(name: SoundName, dx = 0, dy = 0): void {
    const { context, output, noise } = this;
    if (!context || !output || !noise || this.silent || context.state !== 'running' || this.voices >= VOICES_MAX) return;
    const near = 1 - Math.hypot(dx, dy) / HEARING;
    if (near <= 0) return;
    const voice = VOICES[name];
    const start = context.currentTime;
    const end = start + voice.seconds;
    const gain = context.createGain();
    gain.gain.setValueAtTime(voice.volume * near * near, start);
    gain.gain.exponentialRampToValueAtTime(0.0001, end);
    const pan = context.createStereoPanner();
    pan.pan.value = Math.max(-0.8, Math.min(0.8, dx / 700));
    gain.connect(pan).connect(output);
    const tone = context.createOscillator();
    tone.type = voice.wave;
    tone.frequency.setValueAtTime(voice.from, start);
    tone.frequency.exponentialRampToValueAtTime(voice.to, end);
    tone.connect(gain);
    tone.start(start);
    tone.stop(end);
    if (voice.noise > 0) {
      const hiss = context.createBufferSource();
      hiss.buffer = noise;
      const level = context.createGain();
      level.gain.value = voice.noise;
      hiss.connect(level).connect(gain);
      hiss.start(start, Math.random() * 0.5);
      hiss.stop(end);
    }
    this.voices += 1;
    tone.onended = () => {
      this.voices -= 1;
      pan.disconnect();
    };
  }

  private wake(): void {
    if (this.context) {
      if (this.context.state === 'suspended') void this.context.resume().catch(() => undefined);
      return;
    }
    if (typeof AudioContext === 'undefined') return;
    const context = new AudioContext();
    const limiter = context.createDynamicsCompressor();
    const output = context.createGain();
    output.gain.value = this.silent ? 0 : 1;
    output.connect(limiter).connect(context.destination);
    const noise = context.createBuffer(1, context.sampleRate, context.sampleRate);
    const samples = noise.getChannelData(0);
    for (let i = 0; i < samples.length; i += 1) samples[i] = Math.random() * 2 - 1;
    this.context = context;
    this.output = output;
    this.noise = noise;
  }
}
