// One call: its phases and its explanation.

import { address, callsOf, commandLine, dataQuery, ofContainer, selection } from './command.js';
import { element, lines, name, sentence, show } from './dom.js';
import { duration, podName, time } from './format.js';
import { load, section } from './view.js';

const phaseNames = ['queue', 'prepare', 'start', 'run', 'drain', 'other'];

// Returns the phases that took time, each with its milliseconds and its share in percent.
function phaseParts(phases) {
  const parts = phaseNames.map((phase) => [phase, phases[`${phase}Ms`] ?? 0]).filter(([, value]) => value > 0);
  const sum = parts.reduce((total, [, value]) => total + value, 0);
  return parts.map(([phase, value]) => ({ phase, value, share: (100 * value) / sum }));
}

function segments(parts) {
  return parts.map(({ phase, share }) => element('i', { class: `phase-${phase}`, 'width%': share }));
}

// Creates the bar of the phases of a call for a table.
export function smallBar(phases) {
  const parts = phaseParts(phases);
  const text = parts.map(({ phase, value }) => `${phase} ${duration(value)}`).join(', ');
  return parts.length > 0 ? element('span', { class: 'bar small', role: 'img', 'aria-label': text, title: text }, segments(parts)) : null;
}

// Creates the bar of the phases of a call, or of means, with a legend.
export function phaseBar(phases, caption) {
  const parts = phaseParts(phases);
  if (parts.length === 0) return null;
  return element('figure', { class: 'phases' },
    element('div', { class: 'bar', 'aria-hidden': 'true' }, segments(parts)),
    element('ul', null, parts.map(({ phase, value, share }) =>
      element('li', null, element('i', { class: `phase-${phase}`, 'aria-hidden': 'true' }), ` ${phase} ${duration(value)} (${Math.round(share)} %)`))),
    caption ? element('figcaption', null, caption) : null);
}

// Returns the address of a call.
export function callAddress(query, id) {
  const { since, until } = query;
  return address({ view: 'call', since, until, id });
}

// Creates links to calls, as a list in a sentence.
export function callLinks(query, calls) {
  return calls.map((call, index) => [index > 0 ? ', ' : '', element('a', { href: callAddress(query, call) }, call)]);
}

// Returns the result of a call in a few words.
export function resultOf(call) {
  const exit = call.exec?.exitCode;
  if (isEnded(call)) return 'ended';
  if (call.code !== 'OK') return call.code;
  if (exit === null || exit === undefined) return 'OK';
  if (exit !== 0) return `exit code ${exit}`;
  return isLate(call) ? 'exit code 0, late' : 'exit code 0';
}

// Returns whether a call has succeeded after its timeout.
export function isLate({ exec }) {
  return exec?.exitCode === 0 && exec.marginMs < 0;
}

// Methods of streams that their clients end.
const subscriptions = ['GetContainerEvents', '/containerd.services.events.v1.Events/Subscribe'];

// Returns whether a call is a subscription that its client ended.
function isEnded({ code, method }) {
  return ['client-reset', 'client-gone'].includes(code) && subscriptions.includes(method);
}

// Returns whether a call has failed, as `calls --failed` selects it.
export function isFailed(call) {
  return (call.code !== 'OK' && !isEnded(call)) || (call.exec?.exitCode ?? 0) !== 0;
}

// Creates what explains a call.
function explanation(explained) {
  const phases = explained.call.exec?.phases;
  return [phases ? phaseBar(phases, phaseState(phases)) : null, sentencesOf(explained)];
}

export function sentencesOf({ sentences }) {
  return element('ul', { class: 'sentences' }, sentences.map((text) => element('li', null, sentence(text))));
}

function phaseState({ state, missing }) {
  if (state === 'complete') return null;
  return `Not all phases are known: ${state}${missing ? ` (${missing})` : ''}.`;
}

export class CallPage {
  constructor(main, query) {
    this.main = main;
    this.query = query;
  }

  load(signal) {
    return load(`/page/calls/${encodeURIComponent(this.query.id)}?${dataQuery(selection({ since: this.query.since, until: this.query.until }))}`, signal);
  }

  title() {
    return `Call ${this.query.id}`;
  }

  update(explained, { admin }) {
    const { call } = explained;
    const { exec } = call;
    const pod = call.pod && podName(call.pod.namespace, call.pod.name ?? call.pod.uid ?? call.pod.id ?? '');
    const container = call.container && (call.container.name ?? call.container.id);
    const about = call.pod && call.container
      ? ofContainer({ namespace: call.pod.namespace, pod: call.pod.name, container: call.container.name }) : null;
    const facts = [
      ['Method', element('a', { href: address({ view: 'calls', method: call.method }) }, name(call.method))],
      ['Result', `${resultOf(call)} after ${duration(call.durationMs)}`],
      ['Message', call.message && name(call.message)],
      ['Start', element('time', { datetime: call.start, title: call.start }, time(call.start))],
      ['Client', call.peer && name(`${call.peer.program ?? 'unknown'} (pid ${call.peer.pid ?? 'unknown'}, uid ${call.peer.uid})`)],
      ['Pod', pod && about && element('a', { href: address({ namespace: about.namespace, pod: about.pod }) }, name(pod))],
      ['Container', container && about && element('a', { href: address({ view: 'calls', ...about }) }, name(container))],
      ['Probe', exec?.probe && about && element('a', {
        href: address(callsOf({}, { ...about, namespace: about.namespace ?? '', type: exec.probe.type, prober: '' })),
      }, exec.probe.type)],
      ['Command', exec && element('code', null, name(exec.command.join(' ')))],
      ['Timeout', exec && (exec.timeoutSeconds > 0 ? `${exec.timeoutSeconds} s` : 'none')],
      ['Output', exec?.output && element('code', null, name(exec.output))],
      ['Affected by', [...(call.faults ?? []).map((fault) => `fault ${fault.name} (${fault.action})`), ...(call.policy ?? [])].join(', ')],
    ];
    const list = facts.filter(([, value]) => value).flatMap(([title, value]) => [element('dt', null, title), element('dd', null, value)]);
    show(this.main,
      element('h1', null, `Call ${call.id}`),
      section('explanation', 'Explanation', commandLine('explain', {}, admin, call.id), ...explanation(explained)),
      section('facts', 'Facts', null, element('dl', { class: 'facts' }, list)),
      element('details', null, element('summary', null, 'JSON'), lines(JSON.stringify(call, null, 2))));
  }
}
