// The heat map of latencies, and percentiles over time.

import { address, selection } from './command.js';
import { drawing, element } from './dom.js';
import { duration, number, time } from './format.js';

const levels = 5;

// Creates the heat map and the table of a view.
export function latency(view, query) {
  const { rows, axis, summaries } = view.latency;
  if (rows.length === 0) return [element('p', { class: 'empty' }, 'No attempt has ended in this period.')];
  return [map(rows, axis), table(summaries, query)];
}

function map(rows, axis) {
  const most = Math.max(1, ...rows.flatMap((row) => row.counts));
  const level = (count) => Math.min(levels, 1 + Math.floor((levels * Math.log(count)) / Math.log(most + 1)));
  const paths = Array.from({ length: levels }, () => '');
  rows.forEach((row, index) => {
    const top = (rows.length - 1 - index) * 10;
    row.counts.forEach((count, column) => {
      if (count > 0) paths[level(count) - 1] += `M${column} ${top}h1v10h-1z`;
    });
  });
  const height = 10 * rows.length;
  const cells = paths.map((d, index) => (d ? drawing('path', { class: `h${index + 1}`, d }) : null));
  const label = `Number of attempts by time and duration, from ${duration(rows[0].fromMs)} to ${duration(rows.at(-1).toMs ?? rows.at(-1).fromMs)}`;
  const end = new Date(Date.parse(axis.start) + axis.columns * axis.columnMs).toISOString();
  return element('div', { class: 'map' },
    element('div', { class: 'durations', 'aria-hidden': 'true' },
      [...rows].reverse().map((row, index) => element('span', null, index % 2 === 0 ? duration(row.toMs ?? row.fromMs) : ''))),
    element('div', null,
      drawing('svg', { viewBox: `0 0 ${axis.columns} ${height}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label, height: 14 * rows.length }, cells),
      element('div', { class: 'ends', 'aria-hidden': 'true' }, element('span', null, time(axis.start, false)), element('span', null, time(end, false)))));
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
