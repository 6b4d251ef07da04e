// A strip: the results of a probe over time, one character per column.

import { drawing, element, setAttribute, show } from './dom.js';

// Kinds of columns by their characters, from the best to the worst: name, height of 16.
export const kinds = {
  '.': { name: 'no attempt', height: 0 },
  '-': { name: 'not known', height: 16 },
  o: { name: 'success', height: 5 },
  s: { name: 'slow success', height: 9 },
  l: { name: 'late success', height: 11 },
  a: { name: 'answered by probeshim', height: 5 },
  n: { name: 'no result', height: 2 },
  e: { name: 'error', height: 12 },
  f: { name: 'failure', height: 16 },
  t: { name: 'timeout', height: 16 },
  w: { name: 'would have been killed', height: 16 },
  k: { name: 'killed', height: 16 },
};
const order = Object.keys(kinds);

// Returns the worse of two characters.
export function worse(one, other) {
  return order.indexOf(one) > order.indexOf(other) ? one : other;
}

// Returns the strip with a character in a column, or null if the column is not there.
export function withMark(strip, column, character) {
  if (column < 0 || column >= strip.length) return null;
  return strip.slice(0, column) + worse(strip[column], character) + strip.slice(column + 1);
}

// Returns the path of columns.
function column(at, width, character) {
  const { height } = kinds[character];
  return `M${at} 16v-${height}h${width}v${height}z`;
}

// Returns the drawn path of each kind that is in a strip.
function paths(strip) {
  const found = new Map();
  for (let at = 0; at < strip.length; ) {
    const character = strip[at];
    let end = at + 1;
    while (strip[end] === character) end += 1;
    if (character !== '.') found.set(character, (found.get(character) ?? '') + column(at, end - at, character));
    at = end;
  }
  return found;
}

// Draws a strip, and changes only what has changed: most updates change the last column, which is a
// path of its own.
export class Strip {
  constructor(label) {
    this.drawing = drawing('svg', { class: 'strip', preserveAspectRatio: 'none', role: 'img', 'aria-label': label });
    this.marks = element('span', { class: 'marks', 'aria-hidden': 'true' });
    this.root = element('span', { class: 'track' }, this.marks, this.drawing);
    this.last = drawing('path');
    this.drawing.append(this.last);
    this.parts = new Map();
    this.shown = '';
  }

  update(strip) {
    if (strip === this.shown) return;
    const before = this.shown;
    this.shown = strip;
    const [settled, last] = [strip.slice(0, -1), strip.at(-1) ?? '.'];
    if (strip.length !== before.length) this.drawing.setAttribute('viewBox', `0 0 ${strip.length || 1} 16`);
    if (strip.length !== before.length || last !== before.at(-1)) {
      setAttribute(this.last, 'class', markClass(last));
      setAttribute(this.last, 'd', last === '.' ? null : column(settled.length, 1, last));
    }
    if (settled !== before.slice(0, -1)) this.drawSettled(settled);
    const kills = killsOf(strip);
    if (kills !== killsOf(before)) this.showMarks(strip);
  }

  drawSettled(settled) {
    const wanted = paths(settled);
    for (const [character, path] of this.parts) {
      if (wanted.has(character)) continue;
      path.remove();
      this.parts.delete(character);
    }
    for (const [character, d] of wanted) {
      let path = this.parts.get(character);
      if (!path) {
        path = drawing('path', { class: markClass(character) });
        this.parts.set(character, path);
        this.drawing.append(path);
      }
      setAttribute(path, 'd', d);
    }
  }

  showMarks(strip) {
    const marks = [...strip].flatMap((character, at) =>
      'kw'.includes(character)
        ? [element('i', { class: character === 'k' ? 'killed' : 'would', 'left%': (100 * (at + 0.5)) / strip.length }, character === 'k' ? '▼' : '▽')]
        : []);
    show(this.marks, marks);
  }
}

function markClass(character) {
  return `mark-${{ '-': 'gap', '.': 'none' }[character] ?? character}`;
}

// Returns the places of the kills of a strip, and its length; an empty text without kills.
function killsOf(strip) {
  return /[kw]/.test(strip) ? strip.replace(/[^kw]/g, '.') : '';
}

// Creates the legend of strips.
export function legend() {
  const item = (character) => {
    const sample = new Strip(kinds[character].name);
    sample.update(character);
    sample.drawing.setAttribute('aria-hidden', 'true');
    return element('li', null, sample.root, ` ${kinds[character].name}`);
  };
  return element('ul', { class: 'legend' }, order.filter((character) => character !== '.').map(item));
}
