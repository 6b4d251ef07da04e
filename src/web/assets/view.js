// What all views have in common.

import { element, setText, show } from './dom.js';

// An answer other than success, with the reason that probeshim gave.
export class AnswerError extends Error {}

// No answer.
export class ConnectionError extends Error {
  constructor() {
    super('probeshim does not answer.');
  }
}

// Loads JSON.
export async function load(url, signal) {
  const response = await fetch(url, { signal }).catch((error) => {
    throw signal?.aborted ? error : new ConnectionError();
  });
  const cutOff = (error) => {
    throw signal?.aborted ? error : new ConnectionError();
  };
  if (response.ok) return response.json().catch(cutOff);
  const reason = await response.json().then((answer) => answer.error, () => response.statusText);
  throw new AnswerError(reason);
}

// Creates a section with a heading and the command line that shows the same.
export function section(id, title, command, ...content) {
  return element('section', { id, 'aria-labelledby': `${id}-title` },
    element('h2', { id: `${id}-title` }, title), commandLineOf(command), ...content);
}

// The table of a view, with its heading, the command line that shows the same, and a note. An empty
// table is replaced by the reason why it is empty.
export class TableView {
  constructor(title, command, columns, rows) {
    const head = columns.map((column) => element('th', { scope: 'col' }, column));
    this.note = element('p', { class: 'minor', role: 'status' });
    this.reason = element('p', { class: 'empty', role: 'status' });
    this.table = element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-labelledby': 'title' },
      element('table', null, element('thead', null, element('tr', null, head)), rows));
    this.parts = [element('h1', { id: 'title' }, title), commandLineOf(command), this.note, this.reason, this.table];
  }

  update(note, emptyBecause) {
    setText(this.note, note);
    setText(this.reason, emptyBecause ?? '');
    this.reason.hidden = emptyBecause === null;
    this.note.hidden = emptyBecause !== null;
    this.table.hidden = emptyBecause !== null;
  }
}

function commandLineOf(command) {
  return command ? element('p', { class: 'command' }, element('code', null, command)) : null;
}

// Replaces the content of an element if the value that it shows has changed. Details that are open
// stay open, and a link keeps the focus.
export class Part {
  constructor(root, create) {
    this.root = root;
    this.create = create;
  }

  update(value) {
    const shown = JSON.stringify(value);
    if (shown === this.shown) return;
    this.shown = shown;
    const details = () => [...this.root.querySelectorAll('details')];
    const keyOf = (element) => element.dataset.key ?? '';
    const opened = new Set(details().filter(({ open }) => open).map(keyOf));
    const { activeElement } = document;
    const focused = this.root.contains(activeElement) ? activeElement : null;
    const place = focused && [...this.root.querySelectorAll(focused.localName)].indexOf(focused);
    show(this.root, this.create(value));
    details().filter((item) => opened.has(keyOf(item))).forEach((item) => { item.open = true; });
    if (!focused) return;
    const candidates = [...this.root.querySelectorAll(focused.localName)];
    const same = candidates.find((item) => focused.hasAttribute('href') && item.getAttribute('href') === focused.getAttribute('href'));
    (same ?? candidates[place])?.focus({ preventScroll: true });
  }
}
