// Addresses of views, and the command lines that show the same.

export const fields = ['since', 'until', 'namespace', 'pod', 'container', 'probe', 'command', 'timeout_ms', 'peer', 'method', 'code', 'failed'];

const defaults = { since: '1h' };

// Flags of the commands by fields of the address.
const flags = {
  calls: ['since', 'namespace', 'pod', 'container', 'probe', 'command', 'timeout_ms', 'peer', 'method', 'code', 'failed', 'last', 'slowest'],
  lint: ['since', 'until', 'namespace', 'pod'],
  report: ['since', 'until', 'namespace', 'pod'],
  top: ['since'],
  events: ['since', 'namespace', 'pod'],
  explain: [],
  status: [],
};

// Fields that select an object.
const objects = ['namespace', 'pod', 'container', 'probe', 'command', 'timeout_ms', 'peer'];

// Longest and shortest duration before the present that the commands know, in seconds.
const longest = 24 * 3600;
const shortest = 60;

// The part of the address of this page that selects a view and what is in it.
export function currentQuery() {
  return Object.fromEntries([...new URLSearchParams(location.search)].filter(([, value]) => value !== ''));
}

// Returns the address of a view.
export function address(query) {
  const kept = Object.entries(query).filter(([name, value]) => value !== undefined && value !== null && value !== '' && value !== false && defaults[name] !== value);
  const text = new URLSearchParams(kept.map(([name, value]) => [name, String(value)])).toString();
  return text ? `/?${text}` : '/';
}

// Returns the fields of a query that select something, without the view.
export function selection(query) {
  return Object.fromEntries(fields.filter((name) => query[name]).map((name) => [name, query[name]]));
}

// Returns the fields that select a period and objects, as all views do.
export function common(query) {
  const { method, code, failed, ...rest } = selection(query);
  return rest;
}

// Returns the query string of a request for data.
export function dataQuery(query, more = {}) {
  const { view, id, ...rest } = { ...query, ...more };
  return new URLSearchParams(Object.entries(rest).filter(([, value]) => value)).toString();
}

// Returns the query of the calls of a probe. A probe of several types has no single name in a
// query, so the calls are then those of the container.
export function callsOf(query, probe, more = {}) {
  const type = probe.learned || probe.type.includes(' or ') ? undefined : probe.type;
  const peer = probe.prober && probe.prober !== 'unknown' ? probe.prober : undefined;
  const { since, until } = query;
  return { view: 'calls', since, until, method: 'ExecSync', ...ofContainer(probe), probe: type, ...ofCommand(probe), peer, ...more };
}

// Returns the part of a query that selects a command of no known probe.
export function ofCommand({ learned }) {
  return learned ? { command: learned.command, timeout_ms: String(learned.timeoutMs ?? 0) } : {};
}

// Returns the part of a query that selects a container.
export function ofContainer({ namespace, pod, container }) {
  return { namespace: namespace || undefined, pod, container };
}

// Returns the command line that shows the same on a terminal, or the most similar one with a
// comment. `calls`, `events` and `top` know durations up to a day; a report is made of any period.
export function commandLine(command, query, admin, argument) {
  const all = { since: '1h', ...query };
  const needsDuration = ['calls', 'events', 'top'].includes(command);
  if (needsDuration && !isRecent(all)) return commandLine('report', query, admin);
  // `top` has a filter, but no flags for it.
  if (command === 'top' && objects.some((name) => all[name])) return commandLine('report', query, admin);
  const words = ['probeshim', command];
  if (argument !== undefined) words.push(String(argument));
  if (command === 'calls') words.push('--all');
  const known = flags[command];
  const isShown = (name) => all[name] && !(name === 'probe' && all[name].includes(' or ')) && !(name === 'timeout_ms' && all[name] === '0');
  for (const name of known.filter(isShown)) words.push(...flagOf(name, String(all[name])));
  if (command === 'report') words.push('-o', 'report.html');
  if (admin && admin !== 'unix:///run/probeshim/admin.sock') words.push('--admin', quoted(admin.replace(/^unix:\/\//, '')));
  const missing = known.length > 0 ? [...objects, 'method', 'code', 'failed'].filter((name) => all[name] && !(known.includes(name) && isShown(name))) : [];
  return missing.length > 0 ? `${words.join(' ')} # without ${missing.join(', ')}` : words.join(' ');
}

// Returns the flag with its value for a field of the address.
function flagOf(name, value) {
  if (name === 'failed') return ['--failed'];
  return name === 'timeout_ms' ? ['--timeout', `${value}ms`] : [`--${name}`, quoted(value)];
}

// Returns whether a period ends now and is short enough for commands that follow the present.
function isRecent({ since, until }) {
  const units = { ms: 0.001, s: 1, m: 60, h: 3600 };
  const parts = [...since.matchAll(/([0-9]+)(ms|s|m|h)/g)];
  const seconds = parts.reduce((sum, [, value, unit]) => sum + value * units[unit], 0);
  return !until && parts.map(([part]) => part).join('') === since && seconds >= shortest && seconds <= longest;
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
