// One probe: its results over time, its numbers, its phases, and what happened to its container.

import { callLinks, phaseBar } from './call.js';
import { address, callsOf, commandLine, common, dataQuery, ofContainer } from './command.js';
import { element, name, show } from './dom.js';
import { counted, duration, number, podName, time } from './format.js';
import { finding } from './overview.js';
import { failures, isKill, keyOf, LiveProbes, ProbeList } from './probes.js';
import { legend } from './strip.js';
import { load, Part, section } from './view.js';

function facts(query, probe) {
  const calls = (more) => address(callsOf(query, probe, more));
  const link = (value, more) => element('a', { href: calls(more) }, value);
  const events = address({ view: 'events', since: query.since, until: query.until, ...ofContainer(probe) });
  const eventLink = (value) => element('a', { href: events }, value);
  const list = [
    ['Handler', element('code', null, name(probe.handler))],
    ['Last result', probe.lastResult],
    ['Made by', name(probe.prober || 'no attempts')],
    ['Timeout', probe.timeoutMs === null ? null : duration(probe.timeoutMs)],
    ['Period', probe.periodMs === null ? null : duration(probe.periodMs)],
    ['Failure threshold', probe.failureThreshold],
    ['Attempts', link(number(probe.attempts))],
    ['Failed', link(`${number(failures(probe))} (${counted(probe.failures, 'failure')}, ${counted(probe.timeouts, 'timeout')}, ${counted(probe.errors, 'error')})`, { failed: true })],
    ['Failed calls', callLinks(query, probe.failedCalls)],
    ['Without a result', link(number(probe.noResult))],
    ['Slow', link(`${number(probe.slow)}${probe.late > 0 ? ` (${number(probe.late)} late)` : ''}`, { slowest: 50 })],
    ['Kills', eventLink(`${number(probe.kills)}, ${number(probe.wouldBeKills)} would be`)],
    ['Restarts', eventLink(number(probe.restarts))],
    ['p50, p90, p99', link([probe.p50Ms, probe.p90Ms, probe.p99Ms].map(duration).join(', '), { slowest: 50 })],
    ['Causes', probe.causes.length > 0 && link(probe.causes.map(({ cause, count }) => `${cause} ${number(count)}`).join(', '), { failed: true })],
  ];
  return element('dl', { class: 'facts' }, list.filter(([, value]) => value !== null && value !== false && value.length !== 0).flatMap(([title, value]) => [element('dt', null, title), element('dd', null, value)]));
}

function lifecycle(events) {
  if (events.length === 0) return element('p', { class: 'minor' }, 'The container was neither started nor killed in this period.');
  return element('ol', { class: 'changes' }, events.map((event) =>
    element('li', { class: event.kind === 'killed' || event.kind === 'would-be-killed' ? 'bad' : null },
      element('time', { datetime: event.time }, time(event.time)), ' ', element('b', null, event.reason), ' ', name(event.message.trimEnd()), event.count > 1 ? ` (×${event.count})` : '')));
}

export class ProbePage {
  constructor(main, query) {
    this.main = main;
    this.query = query;
  }

  load(signal) {
    return load(`/page/view?${dataQuery(common(this.query))}`, signal);
  }

  title() {
    const { namespace, pod, container, probe, command } = this.query;
    return `${podName(namespace, pod)} ${container} ${probe ?? command}`;
  }

  update(view, { admin }) {
    this.view = view;
    this.live = new LiveProbes(view);
    const probe = view.probes.find(({ type, prober, learned }) => (learned ? learned.command === this.query.command : type === this.query.probe) && (!this.query.peer || prober === this.query.peer)) ?? view.probes[0];
    this.key = probe && keyOf(probe);
    if (!this.parts) this.create(view, admin);
    this.parts.forEach(([part, value]) => part.update(value(view, probe)));
    this.strips.update({ probes: probe ? [probe] : [], pods: view.pods });
  }

  create(view, admin) {
    const { query } = this;
    this.parts = [];
    const part = (create, value) => {
      const created = new Part(element('div'), create);
      this.parts.push([created, value]);
      return created.root;
    };
    const list = element('div', { class: 'probes wide' });
    this.strips = new ProbeList(list, query);
    const empty = element('p', { class: 'empty' }, 'This probe has no attempt in this period.');
    const events = { view: 'events', since: query.since, until: query.until, ...ofContainer(query) };
    show(this.main,
      element('h1', null, name(podName(query.namespace, query.pod)), ' ', name(query.container), ' ', element('b', null, name(query.probe ?? query.command ?? ''))),
      section('results', 'Results', commandLine('calls', { ...query, method: 'ExecSync' }, admin), legend(), list),
      section('numbers', 'Numbers', null, part((probe) => (probe ? facts(query, probe) : empty), (_, probe) => probe && { ...probe, strip: null })),
      section('phases', 'Mean phases', null, part((phases) => (phases ? phaseBar(phases, `Mean of ${counted(phases.calls, 'ExecSync')}`) : element('p', { class: 'minor' }, 'No phases are known.')), (_, probe) => probe?.meanPhases ?? null)),
      section('findings', 'Findings', commandLine('lint', query, admin), part((found) => (found.length > 0 ? found.map((item) => finding(query, item)) : element('p', { class: 'fine' }, 'No lint has found a problem of this probe.')), ({ findings }) => findings)),
      section('lifecycle', 'Starts, exits and kills', commandLine('events', query, admin), element('p', null, element('a', { href: address(events) }, 'All events of the container')),
        part(lifecycle, (now) => [...now.lifecycle].reverse().slice(0, 50))));
  }

  onResults(results) {
    const mine = results.filter((result) => keyOf(result) === this.key);
    const changed = mine.map((result) => this.live.addResult(result));
    changed.filter(Boolean).forEach((probe) => this.strips.updateProbe(probe));
    return changed.includes(null);
  }

  onEvents(events) {
    const { namespace, pod, container } = this.query;
    const mine = events.filter((event) => (event.namespace ?? '') === (namespace ?? '') && event.pod === pod && event.container === container);
    mine.filter(isKill).forEach((event) => this.live.addKill(event).forEach((probe) => this.strips.updateProbe(probe)));
    return mine.length > 0;
  }
}
