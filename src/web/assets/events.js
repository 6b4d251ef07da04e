// Events in a table.

import { commandLine, common, currentQuery, dataQuery } from './command.js';
import { element, KeyedList, name, setAttribute, setText, show } from './dom.js';
import { counted, podName, time } from './format.js';
import { load, TableView } from './view.js';

const columns = ['Last', 'Type', 'Reason', 'Pod and container', 'Message', 'Count'];

class EventRow {
  constructor(event) {
    this.time = element('td', { class: 'num' });
    this.count = element('td', { class: 'num' });
    this.root = element('tr', { class: event.type === 'Warning' ? 'bad' : null },
      this.time,
      element('td', null, event.type),
      element('th', { scope: 'row' }, event.reason),
      element('td', null, event.pod ? name(podName(event.namespace, event.pod)) : '', ' ', event.container ? name(event.container) : null),
      element('td', { class: 'message' }, name(event.message.trimEnd())),
      this.count);
    this.update(event);
  }

  update(event) {
    setText(this.time, time(event.time));
    setAttribute(this.time, 'title', event.time);
    setText(this.count, String(event.count));
  }
}

// Returns the key of an event, whose time and count may change.
export function eventKey({ reason, namespace, pod, container, message, firstTime }) {
  return JSON.stringify([reason, namespace, pod, container, message, firstTime]);
}

export class EventsPage {
  reloadsOn = ['events'];

  constructor(main, query) {
    this.main = main;
    this.query = query;
    this.rows = element('tbody');
    this.list = new KeyedList(this.rows, (event) => new EventRow(event));
  }

  load(signal) {
    return load(`/page/events?${dataQuery(common(this.query))}`, signal);
  }

  title() {
    return 'Events';
  }

  update({ total, events, emptyBecause }, { admin }) {
    if (!this.view) {
      this.view = new TableView('Events', commandLine('events', currentQuery(), admin), columns, this.rows);
      show(this.main, this.view.parts);
    }
    this.view.update(`${counted(total, 'event')}${events.length < total ? `, of which the last ${events.length} are shown` : ''}.`, emptyBecause);
    this.list.update(events, eventKey);
  }
}
