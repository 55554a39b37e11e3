/** Growing delays between attempts, and a sleep that can be called off. */

const FIRST_MS = 250;
const MOST_MS = 8_000;

export class Backoff {
  private failures = 0;

  constructor(
    private readonly firstMs = FIRST_MS,
    private readonly mostMs = MOST_MS,
    private readonly random: () => number = Math.random,
  ) {}

  /** The delay before the next attempt: doubled each time, with jitter so that a crowd does not come back as one. */
  next(): number {
    const whole = Math.min(this.mostMs, this.firstMs * 2 ** Math.min(this.failures, 16));
    this.failures += 1;
    return whole * (0.5 + this.random() / 2);
  }

  get attempts(): number {
    return this.failures;
  }

  reset(): void {
    this.failures = 0;
  }
}

/** Resolves after `ms`, or at once when the signal fires; the caller looks at the signal. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) {
      resolve();
      return;
    }
    const finish = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    signal?.addEventListener('abort', finish);
  });
}
