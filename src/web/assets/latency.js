// The heat map of latencies, and percentiles over time.

import { address, selection } from './command.js';
import { drawing, element } from './dom.js';
import { duration, number, time } from './format.js';

const levels = 5;

// Creates the heat map and the table of a view.
export function latency(view, query) {
  const { rows, axis, summaries } = view.latency;
  if (rows.length === 0) return [element('p', { class: 'empty' }, 'No attempt has ended in this period.')];
  return [...map(rows, axis), table(summaries, query)];
}

function map(rows, axis) {
  const most = Math.max(...rows.flatMap((row) => row.counts));
  const paths = Array.from({ length: levels }, () => '');
  rows.forEach((row, index) => {
    const top = (rows.length - 1 - index) * 10;
    row.counts.forEach((count, column) => {
      if (count > 0) paths[level(count, most) - 1] += `M${column} ${top}h1v10h-1z`;
    });
  });
  const height = 10 * rows.length;
  const cells = paths.map((d, index) => (d ? drawing('path', { class: `h${index + 1}`, d }) : null));
  const label = `Number of attempts by time and duration, from ${duration(rows[0].fromMs)} to ${duration(rows.at(-1).toMs ?? rows.at(-1).fromMs)}`;
  const end = new Date(Date.parse(axis.start) + axis.columns * axis.columnMs).toISOString();
  const drawn = element('div', { class: 'map' },
    element('div', { class: 'durations', 'aria-hidden': 'true' },
      [...rows].reverse().map((row, index) => element('span', null, index % 2 === 0 ? duration(row.toMs ?? row.fromMs) : ''))),
    element('div', null,
      drawing('svg', { viewBox: `0 0 ${axis.columns} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label, height: 14 * rows.length }, cells),
      element('div', { class: 'ends', 'aria-hidden': 'true' }, element('span', null, time(axis.start, false)), element('span', null, time(end, false)))));
  return [drawn, legend(most)];
}

// Returns the highest number of attempts of a level, as in a report: each level has several times
// the attempts of the one below it.
export function bound(level, most) {
  return level === levels ? most : Math.trunc(Math.max(most, 1) ** (level / levels));
}

// Returns the level of a number of attempts that is not 0.
export function level(count, most) {
  return Array.from({ length: levels }, (_, index) => index + 1).find((at) => count <= bound(at, most));
}

function legend(most) {
  const items = [];
  let below = 0;
  for (let at = 1; at <= levels; at += 1) {
    const highest = bound(at, most);
    if (highest <= below) continue;
    const numbers = highest === below + 1 ? number(highest) : `${number(below + 1)}–${number(highest)}`;
    items.push(element('li', null, drawing('svg', { class: 'cell', viewBox: '0 0 14 10', 'aria-hidden': 'true' }, drawing('path', { class: `h${at}`, d: 'M0 0h14v10h-14z' })), ` ${numbers}`));
    below = highest;
  }
  return element('ul', { class: 'legend', 'aria-label': 'Legend of the heat map' }, items, element('li', null, 'attempts'));
}

function table(summaries, query) {
  const calls = (summary, more) => address({ view: 'calls', ...selection(query), method: 'ExecSync', since: summary.from, until: isNow(summary) ? undefined : summary.to, ...more });
  const row = (summary) => element('tr', null,
    element('th', { scope: 'row' }, `${time(summary.from, false)} – ${time(summary.to, false)}`),
    element('td', { class: 'num' }, element('a', { href: calls(summary) }, number(summary.attempts))),
    element('td', { class: 'num' }, element('a', { href: calls(summary, { failed: true }) }, number(summary.failed))),
    [summary.p50Ms, summary.p90Ms, summary.p99Ms, summary.maxMs].map((value) =>
      element('td', { class: 'num' }, element('a', { href: calls(summary, { slowest: 50 }) }, duration(value)))));
  const head = ['Time', 'Attempts', 'Failed', 'p50', 'p90', 'p99', 'Maximum'].map((title, index) =>
    element('th', { scope: 'col', class: index > 0 ? 'num' : null }, title));
  return element('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Percentiles over time' },
    element('table', null, element('thead', null, element('tr', null, head)), element('tbody', null, [...summaries].reverse().map(row))));
}

function isNow(summary) {
  return Date.now() - Date.parse(summary.to) < 90_000;
}
