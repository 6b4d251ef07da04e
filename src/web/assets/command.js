// Addresses of views, and the command lines that show the same.

export const fields = ['since', 'until', 'namespace', 'pod', 'container', 'probe', 'peer', 'method', 'code', 'failed'];

const defaults = { since: '1h' };

// Flags of the commands by fields of the address. `--peer` of `calls` is a field here too.
const flags = {
  calls: ['since', 'namespace', 'pod', 'container', 'probe', 'peer', 'method', 'code', 'failed', 'last', 'slowest'],
  lint: ['since', 'until', 'namespace', 'pod'],
  report: ['since', 'until', 'namespace', 'pod'],
  top: ['since'],
  events: ['since', 'namespace', 'pod'],
  probes: ['namespace'],
  explain: [],
  status: [],
};

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

// Returns the query string of a request for data.
export function dataQuery(query, more = {}) {
  const { view, id, ...rest } = { ...query, ...more };
  return new URLSearchParams(Object.entries(rest).filter(([, value]) => value)).toString();
}

// Returns the query of the calls of a probe. A probe of several types has no single name in a
// query, so the calls are then those of the container.
export function callsOf(query, probe, more = {}) {
  const type = probe.type.includes(' or ') ? undefined : probe.type;
  const peer = probe.prober && probe.prober !== 'unknown' ? probe.prober : undefined;
  const { since, until } = query;
  return { view: 'calls', since, until, method: 'ExecSync', ...ofContainer(probe), probe: type, peer, ...more };
}

// Returns the part of a query that selects a container.
export function ofContainer({ namespace, pod, container }) {
  return { namespace: namespace || undefined, pod, container };
}

// Returns the command line that shows the same on a terminal. `calls` and `events` know the last
// day; a report is made of any period.
export function commandLine(command, query, admin, argument) {
  const all = { since: '1h', ...query };
  if ((command === 'calls' || command === 'events') && !isRecent(all)) return commandLine('report', query, admin);
  const words = ['probeshim', command];
  if (argument !== undefined) words.push(String(argument));
  if (command === 'calls') words.push('--all');
  for (const name of flags[command]) {
    const value = all[name];
    if (value && !String(value).includes(' or ')) words.push(`--${name}`, ...(name === 'failed' ? [] : [quoted(String(value))]));
  }
  if (command === 'report') words.push('-o', 'report.html');
  if (admin && admin !== 'unix:///run/probeshim/admin.sock') words.push('--admin', quoted(admin.replace(/^unix:\/\//, '')));
  return words.join(' ');
}

function isRecent({ since, until }) {
  return !until && /^([0-9]+(ms|s|m)|([0-9]|1[0-9]|2[0-4])h)+$/.test(since);
}

function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
