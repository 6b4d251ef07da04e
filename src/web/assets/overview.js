// The overview: what is wrong, what has changed, all probes, latencies and the slowest calls.

import { callAddress, callLinks, phaseBar, sentencesOf } from './call.js';
import { address, commandLine, common, currentQuery, dataQuery, ofContainer, selection } from './command.js';
import { element, name, sentence, show } from './dom.js';
import { counted, duration, number, podName, time, zone } from './format.js';
import { latency } from './latency.js';
import { failures, isKill, LiveProbes, podState, ProbeList } from './probes.js';
import { legend } from './strip.js';
import { load, Part, section } from './view.js';

// Number of findings that are shown at first.
const firstFindings = 5;

// Number of recent changes.
const lastChanges = 6;

// Reasons of events that are shown as changes.
const changes = new Set(['Killing', 'KillPredicted', 'KillUnpredicted', 'WouldKill', 'Started', 'ContainerStarted', 'ContainerExited', 'ContainerOutOfMemory', 'BackOff', 'Unhealthy', 'FaultActivated', 'FaultEnded', 'PauseBegan', 'PauseEnded', 'EnforcementModeChanged']);

function tiles({ totals, findings }, query) {
  const calls = (more) => address({ view: 'calls', ...selection(query), method: 'ExecSync', ...more });
  const events = address({ view: 'events', ...selection(query) });
  const tile = (title, value, href, isBad) => element('div', { class: isBad ? 'bad' : null }, element('dt', null, title), element('dd', null, href ? element('a', { href }, value) : value));
  const failed = failures(totals);
  return [
    tile('probes', number(totals.probes), '#probes'),
    tile('with failures', number(totals.failedProbes), '#probes', totals.failedProbes > 0),
    tile('attempts', number(totals.attempts), calls()),
    tile('failed', number(failed), calls({ failed: true }), failed > 0),
    tile('kills', number(totals.kills), events, totals.kills > 0),
    tile('would be kills', number(totals.wouldBeKills), events, totals.wouldBeKills > 0),
    tile('restarts', number(totals.restarts), events),
    tile('p50', duration(totals.p50Ms), calls()),
    tile('p99', duration(totals.p99Ms), calls({ slowest: 50 })),
    tile('findings', number(findings.length), '#findings', findings.some((finding) => finding.severity === 'error')),
  ];
}

// Creates a finding with its evidence, its remedy and its calls.
export function finding(query, found) {
  const { severity, evidence, remedy, calls } = found;
  const names = [found.pod ? podName(found.namespace, found.pod) : null, found.container, found.probe, found.prober ? `(${found.prober})` : null].filter(Boolean);
  const subject = found.pod && found.container
    ? element('a', { href: address({ ...selection(query), ...ofContainer(found), probe: undefined }) }, name(names.join(' ')))
    : name(names.join(' ') || 'node');
  return element('details', { class: `finding ${severity}`, 'data-key': `${found.lint} ${names.join(' ')}` },
    element('summary', null, element('span', { class: 'badge' }, severity), ' ', element('b', null, sentence(found.sentence)), ' ', element('span', { class: 'minor' }, name(names.join(' ') || 'node'))),
    element('p', { class: 'minor' }, subject, ` · ${found.lint}`),
    element('ul', null, evidence.map((fact) => element('li', null, sentence(fact)))),
    element('p', null, sentence(remedy)),
    calls.length > 0
      ? element('p', null, 'Calls: ', callLinks(query, calls))
      : null);
}

function findings(query, found) {
  if (found.length === 0) return element('p', { class: 'fine' }, 'No lint has found a problem in this period.');
  const shown = found.map((item) => finding(query, item));
  const rest = shown.slice(firstFindings);
  return [...shown.slice(0, firstFindings), rest.length > 0 ? element('details', { 'data-key': 'rest' }, element('summary', null, counted(rest.length, 'more finding')), rest) : null];
}

// Creates what changes results: faults, pauses, limits and a kubelet that is paused.
export function policies({ faults, pauses, execPolicies, paused, kills }) {
  const active = [
    ...faults.map((fault) => [element('b', null, 'Fault ', name(fault.name)), ' ', fault.rule ? element('code', null, name(fault.rule)) : '', ` · ${counted(fault.hits, 'call')} hit`, fault.expires ? ` · until ${time(fault.expires)}` : '',
      fault.calls.length > 0 ? [' · last ', element('a', { href: callAddress({}, fault.calls.at(-1)) }, fault.calls.at(-1))] : '']),
    ...pauses.map((pause) => [element('b', null, 'Pause ', name(pause.name)), ' ', pause.selector ? element('code', null, name(pause.selector)) : '', ` · ${counted(pause.answered, 'probe')} answered · until ${time(pause.expires)}`]),
    paused ? ['The built-in kubelet is paused, because a kubelet uses the runtime.'] : null,
    execPolicies.queued > 0 ? [`${counted(execPolicies.queued, 'ExecSync')} waiting for a limit.`] : null,
    kills?.rateLimited ? ['The limit of --max-kills is reached: further kills are skipped.'] : null,
  ].filter(Boolean);
  return active.length === 0 ? [] : [element('ul', { class: 'policies' }, active.map((item) => element('li', null, item)))];
}

// Creates the sentence about containers whose probes have no names.
function missingNames({ namedContainers, unnamedContainers, remedy }) {
  if (unnamedContainers === 0) return [];
  const all = counted(namedContainers + unnamedContainers, 'container');
  const missing = [element('b', null, 'Names of probes are missing'), ` in ${unnamedContainers} of ${all} with exec calls`, remedy ? [': ', sentence(remedy)] : '', '.'];
  return [element('ul', { class: 'policies' }, element('li', null, missing))];
}

// Returns the last changes of a period as events, the most recent first. Kills come before others,
// so that none is hidden by its restart.
function lastOf(lifecycle) {
  const last = (events, count) => (count > 0 ? events.slice(-count) : []);
  const kills = last(lifecycle.filter(isKill), lastChanges);
  const others = last(lifecycle.filter((event) => !isKill(event)), lastChanges - kills.length);
  return [...kills.reverse(), ...others.reverse()];
}

function recent(query, events) {
  if (events.length === 0) return element('p', { class: 'minor' }, 'Nothing has changed in this period.');
  return element('ol', { class: 'changes' }, events.map((event) =>
    element('li', { class: isKill(event) ? 'bad' : null },
      element('time', { datetime: event.time }, time(event.time)), ' ',
      element('b', null, event.reason), ' ',
      event.pod ? element('a', { href: address({ view: 'events', ...selection(query), namespace: event.namespace, pod: event.pod }) }, name(podName(event.namespace, event.pod))) : null, ' ',
      event.container ? name(event.container) : null, ' ', name(event.message.trimEnd()), event.count > 1 ? ` (×${event.count})` : '')));
}

function slowest(query, calls) {
  if (calls.length === 0) return element('p', { class: 'minor' }, 'No slow or failed ExecSync is recorded in this period.');
  return calls.map((explained) => {
    const { call } = explained;
    const pod = call.pod ? podName(call.pod.namespace, call.pod.name ?? '') : '';
    return element('article', null,
      element('h3', null, element('a', { href: callAddress(query, call.id) }, `Call ${call.id}`), ` ${duration(call.durationMs)} `, name(pod), ' ', call.container ? name(call.container.name ?? '') : null, ' ', element('b', null, call.exec?.probe?.type ?? 'unknown')),
      explained.call.exec?.phases ? phaseBar(explained.call.exec.phases) : null,
      explained.similar > 0 ? element('p', { class: 'minor' }, element('a', { href: address({ view: 'calls', ...selection(query), namespace: call.pod?.namespace, pod: call.pod?.name, method: 'ExecSync', slowest: 50 }) }, `${number(explained.similar)} more like this`)) : null,
      element('details', { 'data-key': call.id }, element('summary', null, 'Explanation'), sentencesOf(explained)));
  });
}

function gapTexts(gaps) {
  return gaps.length === 0 ? [] : [element('details', { class: 'gaps' }, element('summary', null, counted(gaps.length, 'gap')),
    element('ul', null, gaps.map((gap) => element('li', null, `${time(gap.from)} – ${time(gap.to)}: ${gap.cause}`))))];
}

function node(view) {
  const facts = view.node ? [
    ['Host', view.node.host], ['Runtime', view.node.runtime], ['Kernel', view.node.kernel],
    ['Processors', view.node.processors], ['Memory', view.node.memoryBytes && `${Math.round(view.node.memoryBytes / 2 ** 20)} MiB`],
    ['Names of probes', view.probeNames.sources.map(({ description, problem }) => (problem ? `${description}: ${problem}` : description)).join('; ')],
    ['Start of probeshim', time(view.node.started)], ...Object.entries(view.node.settings),
  ] : [];
  const list = [['Version', view.version], ...facts].filter(([, value]) => value).flatMap(([title, value]) => [element('dt', null, title), element('dd', null, name(String(value)))]);
  return element('dl', { class: 'facts' }, list);
}

function otherPods({ pods, probes }) {
  const probed = new Set(probes.map((probe) => podName(probe.namespace, probe.pod)));
  const others = pods.filter((pod) => !probed.has(podName(pod.namespace, pod.name)));
  return others.length === 0 ? [] : [element('details', null, element('summary', null, `${counted(others.length, 'pod')} without probes`),
    element('ul', null, others.map((pod) => element('li', null, name(podName(pod.namespace, pod.name)), ' ', element('span', { class: 'minor' }, name(podState(pod)))))))];
}

export class OverviewPage {
  constructor(main, query) {
    this.main = main;
    this.query = query;
    this.recent = [];
  }

  load(signal) {
    return load(`/page/view?${dataQuery(common(this.query))}`, signal);
  }

  title() {
    return 'Probes';
  }

  update(view, { admin }) {
    this.live = new LiveProbes(view);
    if (!this.parts) this.create(view, admin);
    this.parts.forEach(([part, value]) => part.update(value(view)));
    this.probes.update(view);
  }

  create(view, admin) {
    const { query } = this;
    const part = (attributes, create, value, tag = 'div') => {
      const created = new Part(element(tag, attributes), create);
      this.parts.push([created, value]);
      return created.root;
    };
    this.parts = [];
    const command = (of) => commandLine(of, common(currentQuery()), admin);
    this.changes = new Part(element('div', { role: 'log', 'aria-live': 'polite', 'aria-label': 'Recent changes' }), (events) => recent(query, events));
    this.policies = new Part(element('div'), policies);
    this.parts.push([this.policies, ({ state }) => state]);
    const list = element('div', { class: 'probes' });
    this.probes = new ProbeList(list, query);
    show(this.main,
      element('h1', null, 'Probes of ', name(view.node?.host ?? 'this node')),
      part({ class: 'period' }, ([from, to, isLive]) => [element('p', null, `${time(from)} – ${isLive ? 'now' : time(to)}, ${zone()}`)], ({ from, to, isLive }) => [from.slice(0, 16), isLive ? '' : to, isLive]),
      part({ class: 'tiles' }, (value) => tiles(value, query), ({ totals, findings: found }) => ({ totals, findings: found }), 'dl'),
      this.policies.root,
      part(null, missingNames, ({ probeNames }) => probeNames),
      view.showsCommands ? null : element('p', { class: 'minor' }, sentence('Commands, output and messages are not shown, because every user of this machine can open this page. Started with `--http-pods`, which also serves /pods, probeshim shows them here.')),
      ...(view.isLive ? [section('changes', 'Recent changes', command('events'), this.changes.root)] : []),
      section('findings', 'Findings', command('lint'), part(null, (value) => findings(query, value), ({ findings: found }) => found)),
      section('probes', 'Probes', command(view.isLive ? 'top' : 'report'), legend(),
        part(null, (reason) => (reason ? element('p', { class: 'empty' }, name(reason)) : null), ({ emptyBecause }) => emptyBecause),
        list,
        part(null, otherPods, ({ pods, probes }) => ({ pods, probes: probes.map(({ namespace, pod }) => ({ namespace, pod })) })),
        part(null, gapTexts, ({ gaps }) => gaps)),
      section('latency', 'Latency', command('report'), part(null, (value) => latency({ latency: value }, query), (value) => value.latency)),
      section('slowest', 'Slowest calls', commandLine('calls', { ...common(currentQuery()), method: 'ExecSync', slowest: 12 }, admin),
        element('p', { class: 'minor' }, 'The slowest of the slow and failed ExecSyncs of each probe that are kept; others may have been slower.'),
        part(null, (calls) => slowest(query, calls), ({ slowestCalls }) => slowestCalls)),
      section('node', 'Node', commandLine('status', {}, admin), part(null, node, ({ node: facts, version, probeNames }) => ({ node: facts, version, probeNames }))));
    this.recent = lastOf(view.lifecycle);
    this.changes.update(this.recent);
  }

  // Adds results. Returns whether the view must be loaded again.
  onResults(results) {
    let isStale = false;
    const changed = new Set();
    for (const result of results) {
      const probe = this.live.addResult(result);
      if (probe) changed.add(probe);
      else isStale = true;
    }
    changed.forEach((probe) => this.probes.updateProbe(probe));
    return isStale;
  }

  onEvents(events) {
    for (const event of events.filter(isKill)) {
      this.live.addKill(event).forEach((probe) => this.probes.updateProbe(probe));
    }
    const shown = events.filter((event) => changes.has(event.reason));
    if (shown.length > 0) {
      this.recent = [...shown.reverse(), ...this.recent].slice(0, lastChanges);
      this.changes.update(this.recent);
    }
    return shown.length > 0;
  }

  onState(state) {
    this.policies?.update(state);
  }
}
