// Numbers, durations and times as texts, as on the command line.

// Returns a number with a noun, such as `3 kills`.
export function counted(count, thing) {
  return `${number(count)} ${thing}${count === 1 ? '' : 's'}`;
}

const thousands = new Intl.NumberFormat('en-US');

export function number(count) {
  return count < 1000 ? String(count) : thousands.format(count);
}

// Returns a duration in milliseconds with three digits, such as `1.23s`.
export function duration(milliseconds) {
  if (milliseconds === null || milliseconds === undefined) return '–';
  if (milliseconds < 1) return `${Math.round(milliseconds * 1000)}µs`;
  if (milliseconds < 1000) return `${digits(milliseconds)}ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${digits(seconds)}s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)}m${pad(whole % 60)}s`;
  return `${Math.floor(whole / 3600)}h${pad(Math.floor((whole % 3600) / 60))}m`;
}

function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

// Returns the time of day, with the date if it is not today.
export function time(text, withSeconds = true) {
  const at = new Date(text);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}${withSeconds ? `:${pad(at.getSeconds())}` : ''}`;
  return at.toDateString() === new Date().toDateString() ? clock : `${day} ${clock}`;
}

// Returns the time zone of the shown times.
export function zone() {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

function pad(value) {
  return String(value).padStart(2, '0');
}

// Returns the name of a pod with its namespace.
export function podName(namespace, pod) {
  return namespace ? `${namespace}/${pod}` : pod;
}
