/** Small hands for the page: finding, filling and building elements. Text goes in as text, never as markup. */

export type ScreenName = 'title' | 'wait' | 'lobby' | 'match';

export function element(id: string): HTMLElement {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element \`${id}\``);
  return found;
}

export function input(id: string): HTMLInputElement {
  return element(id) as HTMLInputElement;
}

export function button(id: string): HTMLButtonElement {
  return element(id) as HTMLButtonElement;
}

export function tag(name: string, className = '', text = ''): HTMLElement {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

export function setText(target: HTMLElement, text: string): void {
  if (target.textContent !== text) target.textContent = text;
}

export function fill(target: HTMLElement, children: readonly HTMLElement[]): void {
  target.replaceChildren(...children);
}

/** Shows one screen, and puts the keyboard where it is wanted there. */
export function showScreen(name: ScreenName): void {
  if (document.body.dataset['screen'] === name) return;
  document.body.dataset['screen'] = name;
  if (name === 'title') input('title-name').focus();
  else if (document.activeElement instanceof HTMLElement) document.activeElement.blur();
}

let toastTimer: ReturnType<typeof setTimeout> | undefined;

export function toast(text: string, ms = 5_000): void {
  const target = element('toast');
  setText(target, text);
  target.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => {
    target.hidden = true;
  }, ms);
}
