// The probes of a view by pod, with their strips and numbers.

import { callAddress } from './call.js';
import { address, callsOf, ofCommand, ofContainer } from './command.js';
import { element, KeyedList, LiveText, name, setAttribute, setText } from './dom.js';
import { duration, number, podName } from './format.js';
import { Strip, withMark } from './strip.js';

// Number of pods from which those that are not on the screen are not laid out.
const manyPods = 50;

export function keyOf({ namespace, pod, container, type, prober, learned }) {
  return JSON.stringify([namespace, pod, container, learned ?? type, prober]);
}

// Returns the address of a probe.
export function probeAddress(query, probe) {
  const { since, until } = query;
  return address({ view: 'probe', since, until, ...ofContainer(probe), ...(probe.learned ? ofCommand(probe) : { probe: probe.type }), peer: probe.prober || undefined });
}

// A number that is a link. Its address stays the same.
class NumberLink {
  constructor(query, title, format = number) {
    this.text = new LiveText(format);
    this.root = element('a', { href: address(query), title }, this.text.node);
  }

  set(value, isBad = false) {
    this.text.set(value);
    if (isBad === this.isBad) return;
    this.isBad = isBad;
    this.root.classList.toggle('bad', isBad);
  }
}

class ProbeView {
  constructor(query, probe) {
    const calls = (more) => callsOf(query, probe, more);
    const events = { view: 'events', since: query.since, until: query.until, ...ofContainer(probe) };
    this.query = query;
    this.strip = new Strip(`Results of ${probe.container} ${probe.type} over time; the numbers follow`);
    this.resultText = new LiveText((text) => text || '–');
    this.result = element('a', { class: 'result', title: 'Last result: show the call' }, this.resultText.node);
    this.attempts = new NumberLink(calls(), 'Attempts: show the calls');
    this.failed = new NumberLink(calls({ failed: true }), 'Failures, timeouts and errors: show the failed calls');
    this.p50 = new NumberLink(calls(), 'Median of the duration: show the calls', duration);
    this.p99 = new NumberLink(calls({ slowest: 50 }), '99th percentile of the duration: show the slowest calls', duration);
    this.kills = new NumberLink(events, 'Kills because of this probe: show the events', String);
    this.restarts = new NumberLink(events, 'Restarts of the container: show the events');
    const value = (label, link) => element('span', { class: 'value' }, element('span', { class: 'label' }, label), ' ', link.root);
    this.root = element('li', { class: 'probe' },
      element('span', { class: 'who' },
        element('a', { href: probeAddress(query, probe) }, name(probe.container), ' ', element('b', null, name(probe.type))),
        element('span', { class: 'minor' }, ' ', name(probe.prober || 'no attempts'))),
      this.strip.root,
      this.result,
      element('span', { class: 'values' },
        value('attempts', this.attempts), value('failed', this.failed),
        value('p50', this.p50), value('p99', this.p99),
        value('kills', this.kills), value('restarts', this.restarts)));
    this.update(probe);
  }

  update(probe) {
    const failed = failures(probe);
    this.resultText.set(probe.result);
    if (probe.isBad !== this.isBad) this.root.classList.toggle('bad', probe.isBad);
    this.isBad = probe.isBad;
    // The call of the last result is known once the result arrives.
    if (probe.lastCall !== this.lastCall) setAttribute(this.result, 'href', probe.lastCall ? callAddress(this.query, probe.lastCall) : null);
    this.lastCall = probe.lastCall;
    this.attempts.set(probe.attempts);
    this.failed.set(failed, failed > 0);
    this.p50.set(probe.p50Ms);
    this.p99.set(probe.p99Ms);
    const kills = probe.wouldBeKills > 0 ? `${number(probe.kills)} (${number(probe.wouldBeKills)} would be)` : number(probe.kills);
    this.kills.set(kills, probe.kills + probe.wouldBeKills > 0);
    this.restarts.set(probe.restarts);
    this.strip.update(probe.strip);
  }
}

export function failures(probe) {
  return probe.failures + probe.timeouts + probe.errors;
}

class PodView {
  constructor(query, pod) {
    const { since, until } = query;
    const link = address({ since, until, namespace: pod.namespace || undefined, pod: pod.name });
    this.state = element('span', { class: 'minor' });
    this.list = element('ul', { class: 'rows' });
    this.rows = new KeyedList(this.list, (probe) => new ProbeView(query, probe));
    this.root = element('section', { class: 'pod' },
      element('h3', null, element('a', { href: link }, name(podName(pod.namespace, pod.name))), ' ', this.state), this.list);
    this.update(pod);
  }

  update(pod) {
    setText(this.state, podState(pod.now));
    this.rows.update(pod.probes, keyOf);
  }
}

// Returns the state of a pod and of its containers that are not running, with their restarts.
export function podState(pod) {
  if (!pod) return '';
  const restarts = (count) => (count > 0 ? `${number(count)} restart${count === 1 ? '' : 's'}` : '');
  const container = ({ name: of, state, reason, exitCode, restarts: count }) => {
    const why = reason || (state !== 'running' && state !== 'exited' ? state : '');
    const exit = state === 'exited' && exitCode !== null ? `exit code ${exitCode}` : '';
    const texts = [why, exit, pod.restarts === null ? restarts(count) : ''].filter(Boolean);
    return texts.length > 0 ? `${of}: ${texts.join(', ')}` : '';
  };
  return [pod.status, restarts(pod.restarts), ...pod.containers.map(container)].filter(Boolean).join(' · ');
}

// All probes, the pods with the worst probes first.
export class ProbeList {
  constructor(parent, query) {
    this.parent = parent;
    this.pods = new KeyedList(parent, (pod) => new PodView(query, pod));
  }

  update({ probes, pods }) {
    const now = new Map(pods.map((pod) => [podName(pod.namespace, pod.name), pod]));
    const byPod = new Map();
    for (const probe of probes) {
      const key = podName(probe.namespace, probe.pod);
      if (!byPod.has(key)) byPod.set(key, { namespace: probe.namespace, name: probe.pod, probes: [], now: now.get(key) });
      byPod.get(key).probes.push(probe);
    }
    // A browser lays out only the pods on the screen.
    this.parent.classList.toggle('many', byPod.size > manyPods);
    this.pods.update(byPod.values(), (pod) => podName(pod.namespace, pod.name));
  }

  // Updates the row of one probe.
  updateProbe(probe) {
    this.pods.get(podName(probe.namespace, probe.pod))?.rows.get(keyOf(probe))?.update(probe);
  }
}

// Numbers of a probe to which results are added.
const counters = {
  success: 'successes', slow: 'successes', late: 'successes', 'not-sent': 'successes', 'no-result': 'noResult', error: 'errors', failure: 'failures', timeout: 'timeouts',
};

// The probes of a view, to which results and events are added as they arrive.
export class LiveProbes {
  constructor(view) {
    this.axis = { start: Date.parse(view.axis.start), columnMs: view.axis.columnMs };
    this.probes = new Map(view.probes.map((probe) => [keyOf(probe), probe]));
  }

  // Adds a result. Returns the changed probe, or null if the view must be loaded again.
  addResult(result) {
    const probe = this.probes.get(keyOf(result));
    if (!probe) return null;
    const strip = withMark(probe.strip, this.column(result.time), result.mark);
    if (strip === null) return null;
    probe.strip = strip;
    probe.attempts += 1;
    probe.lastCall = result.call;
    probe[counters[result.result]] += 1;
    probe.result = result.text;
    probe.isBad = result.isBad;
    return probe;
  }

  // Marks a kill, or a kill that was not made, in the strips of the probes that caused it. Returns
  // the changed probes.
  addKill(event) {
    const isMade = event.kind === 'killed';
    const isCause = (probe) => probe.namespace === (event.namespace ?? '') && probe.pod === event.pod && probe.container === event.container
      && !probe.learned && probe.type.split(' or ').some((type) => event.because.includes(type));
    const changed = [...this.probes.values()].filter(isCause);
    for (const probe of changed) {
      probe.strip = withMark(probe.strip, this.column(event.time), isMade ? 'k' : 'w') ?? probe.strip;
      probe[isMade ? 'kills' : 'wouldBeKills'] += 1;
    }
    return changed;
  }

  column(time) {
    return Math.floor((Date.parse(time) - this.axis.start) / this.axis.columnMs);
  }
}

// Returns whether an event reports a kill because of a probe, or one that was not made.
export function isKill({ kind }) {
  return kind === 'killed' || kind === 'would-be-killed';
}
