// Calls in a table.

import { callAddress, isFailed, isLate, resultOf, smallBar } from './call.js';
import { commandLine, currentQuery, dataQuery } from './command.js';
import { element, KeyedList, name, show } from './dom.js';
import { counted, duration, podName, time } from './format.js';
import { load, TableView } from './view.js';

const columns = ['Call', 'Ended', 'Method', 'Result', 'Duration', 'Phases', 'Pod and container', 'Probe', 'Client'];

class CallRow {
  constructor(query, call) {
    const end = new Date(Date.parse(call.start) + call.durationMs).toISOString();
    const pod = call.pod ? podName(call.pod.namespace, call.pod.name ?? call.pod.id ?? '') : '';
    const affected = [...(call.faults ?? []).map((fault) => fault.name), ...(call.policy ?? [])];
    this.root = element('tr', { class: isFailed(call) ? 'bad' : isLate(call) || call.exec?.assessment === 'slow' ? 'slow' : null },
      element('th', { scope: 'row', class: 'num' }, element('a', { href: callAddress(query, call.id), title: 'Explain this call' }, call.id)),
      element('td', { class: 'num', title: end }, time(end)),
      element('td', null, name(call.method)),
      element('td', { class: 'result' }, resultOf(call), affected.length > 0 ? element('span', { class: 'minor' }, name(` (${affected.join(', ')})`)) : null),
      element('td', { class: 'num' }, duration(call.durationMs)),
      element('td', null, call.exec?.phases ? smallBar(call.exec.phases) : null),
      element('td', null, name(pod), ' ', call.container ? name(call.container.name ?? call.container.id ?? '') : null),
      element('td', null, call.exec ? (call.exec.probe?.type ?? 'unknown') : ''),
      element('td', null, call.peer ? name(call.peer.program ?? 'unknown') : ''));
  }

  // A call that has ended does not change.
  update() {}
}

export class CallsPage {
  // Results of probes are calls too.
  reloadsOn = ['results'];

  constructor(main, query) {
    this.query = query;
    this.main = main;
    this.rows = element('tbody');
    this.list = new KeyedList(this.rows, (call) => new CallRow(query, call));
  }

  load(signal) {
    return load(`/page/calls?${dataQuery({ last: this.query.slowest ? undefined : 200, ...this.query })}`, signal);
  }

  title() {
    return 'Calls';
  }

  update({ source, calls, emptyBecause }, { admin }) {
    if (!this.view) {
      this.view = new TableView(this.query.slowest ? 'Slowest calls' : 'Calls', commandLine('calls', currentQuery(), admin), columns, this.rows);
      show(this.main, this.view.parts);
    }
    const kept = source === 'records' ? ' Of a period in the past only slow and failed ExecSyncs are recorded, at most 16 per minute.' : '';
    this.view.update(`${counted(calls.length, 'call')}${calls.length === 200 ? ', the last ones' : ''}.${kept}`, emptyBecause && emptyBecause + kept);
    this.list.update(this.query.slowest ? calls : [...calls].reverse(), (call) => call.id);
  }
}
