// Shows the view that the address selects, and keeps it up to date.

import { CallPage } from './call.js';
import { CallsPage } from './calls.js';
import { address, common, currentQuery, dataQuery, fields, selection } from './command.js';
import { element, printable, setText, show } from './dom.js';
import { EventsPage } from './events.js';
import { OverviewPage } from './overview.js';
import { ProbePage } from './probe.js';
import { AnswerError, ConnectionError, load } from './view.js';

// Minimum time between two loads of a view, in milliseconds: after a change, and otherwise.
const soon = 2_000;
const later = 60_000;

// Maximum share of the time in which a view is loaded: after changes, and otherwise.
const busyShare = 1 / 20;
const quietShare = 1 / 250;

// Time after which a lost connection is reported, in milliseconds. The browser reconnects every 15
// seconds in a moment.
const reconnectDelay = 3_000;

const pages = { overview: OverviewPage, calls: CallsPage, call: CallPage, events: EventsPage, probe: ProbePage };

const main = document.querySelector('#main');
const problem = document.querySelector('#problem');
const filter = document.querySelector('#filter');
const form = document.querySelector('#filters');
const status = document.querySelector('#live');

// The width from which the filters are always shown, as in the style sheet.
const wide = matchMedia('(min-width: 62rem)');

// The session of the view that is shown.
let shown = null;

// Shows a view, and keeps it up to date until it is closed. At most one load is in progress.
class Session {
  constructor(query) {
    this.query = query;
    this.Page = pages[query.view ?? 'overview'] ?? OverviewPage;
    this.aborted = new AbortController();
    this.isLive = !query.until && query.view !== 'call';
    // Messages that arrive during a load.
    this.waiting = [];
    document.addEventListener('visibilitychange', () => this.onVisibility(), { signal: this.aborted.signal });
  }

  async open() {
    main.setAttribute('aria-busy', 'true');
    showStatus(this.query.until ? 'past' : '');
    await this.reload();
    main.removeAttribute('aria-busy');
  }

  // Loads the view. After an error the content stays, and the load is tried again.
  async reload() {
    clearTimeout(this.timer);
    this.due = undefined;
    const began = performance.now();
    this.isLoading = true;
    try {
      this.context ??= await load('/page/context', this.aborted.signal);
      const today = new Date().toDateString();
      // Times of an earlier day need their date.
      if (this.day !== today) this.page = new this.Page(main, this.query);
      this.day = today;
      const data = await this.page.load(this.aborted.signal);
      if (this.aborted.signal.aborted) return;
      this.page.update(data, this.context);
      this.loaded = data;
      show(problem);
      document.title = printable(`${this.page.title()} – probeshim`);
    } catch (error) {
      if (this.aborted.signal.aborted) return;
      this.fail(error);
    } finally {
      this.isLoading = false;
    }
    const took = Math.max(this.loaded?.buildMs ?? 0, performance.now() - began);
    this.ended = performance.now();
    this.shortest = Math.max(soon, took / busyShare);
    if (this.isLive || !this.loaded) this.schedule(this.loaded ? Math.max(later, took / quietShare) : reconnectDelay);
    if (this.isLive && this.loaded) {
      this.follow();
      this.waiting.splice(0).forEach((message) => this.onMessage(message));
    }
  }

  // Plans the next load at the latest after a time. A load that is planned earlier stays.
  schedule(delay) {
    if (this.aborted.signal.aborted) return;
    const due = performance.now() + delay;
    if (this.due !== undefined && this.due <= due) return;
    this.due = due;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.onDue(), delay);
  }

  // Plans a load because the view has changed.
  refreshSoon() {
    this.schedule(Math.max(this.shortest - (performance.now() - this.ended), 0));
  }

  onDue() {
    this.due = undefined;
    if (document.hidden) this.isStale = true;
    else if (this.isLoading) this.schedule(soon);
    else this.reload();
  }

  // A hidden page has no connection: a browser permits only six of them to one host.
  onVisibility() {
    if (!this.isLive || !this.loaded) return;
    if (document.hidden) {
      this.source?.close();
      this.source = undefined;
      return;
    }
    this.follow();
    if (this.isStale) {
      this.isStale = false;
      this.refreshSoon();
    }
  }

  follow() {
    if (this.source || document.hidden) return;
    this.last ??= this.loaded.updates ?? this.context.updates;
    const url = `/page/updates?${dataQuery(common(this.query), { after: this.last })}`;
    this.source = new EventSource(url);
    for (const kind of ['results', 'events', 'state', 'missed']) {
      this.source.addEventListener(kind, ({ data, lastEventId }) => {
        this.last = lastEventId;
        const message = { kind, data: JSON.parse(data), id: lastEventId };
        if (this.isLoading) this.waiting.push(message);
        else this.onMessage(message);
      });
    }
    this.source.onopen = () => {
      clearTimeout(this.lost);
      this.lost = undefined;
      this.refusal = undefined;
      showStatus('live');
    };
    this.source.onerror = () => {
      this.lost ??= setTimeout(
        () => showStatus(this.refusal ?? 'not connected: trying again'),
        reconnectDelay,
      );
      // A browser gives up after some errors, and does not show the reason of a refusal.
      if (this.source.readyState !== EventSource.CLOSED) return;
      this.source = undefined;
      this.readRefusal(url);
      setTimeout(() => !this.aborted.signal.aborted && this.follow(), reconnectDelay);
    };
  }

  // Reads why updates are refused. An answer that is not a refusal is not read.
  async readRefusal(url) {
    const reading = new AbortController();
    try {
      const answer = await fetch(url, { signal: reading.signal });
      if (answer.status === 503) this.refusal = (await answer.json()).error;
    } catch {
      // The server is gone.
    }
    reading.abort();
  }

  // Passes a message to the view, without what the loaded view has already.
  onMessage({ kind, data, id }) {
    const { page } = this;
    const [, result, event] = (this.loaded.updates ?? '0-0-0').split('-').map(Number);
    let isStale = kind === 'missed' || page.reloadsOn?.includes(kind);
    if (kind === 'results') {
      const unseen = data.filter(({ number }) => number >= result);
      if (unseen.length > 0 && page.onResults?.(unseen)) isStale = true;
    } else if (kind === 'events') {
      if (Number(id.split('-')[2]) > event && page.onEvents?.(data)) isStale = true;
    } else if (kind === 'state') {
      // The files of the page are those of another version.
      if (data.version !== this.context.version) location.reload();
      showMode(data.mode);
      page.onState?.(data);
    }
    if (isStale) this.refreshSoon();
  }

  fail(error) {
    const isKnown = error instanceof AnswerError || error instanceof ConnectionError;
    if (!isKnown) console.error(error.stack);
    const reason = isKnown ? error.message : 'The page has a bug: see the console of the browser.';
    if (!this.loaded) show(main, element('h1', null, 'This view cannot be shown'));
    show(problem, element('p', { class: 'empty' }, reason));
    // A refused request is refused again.
    if (error instanceof AnswerError && !this.loaded) this.close();
  }

  close() {
    this.aborted.abort();
    this.source?.close();
    clearTimeout(this.timer);
    clearTimeout(this.lost);
  }
}

function showStatus(text) {
  setText(status, text);
  status.className = text === 'live' ? 'good' : '';
}

function showMode(mode) {
  const badge = document.querySelector('#mode');
  badge.hidden = false;
  setText(badge, mode === 'off' ? 'probes are not run' : mode);
}

// Fills the form and the links to the views from the address.
function showQuery(query) {
  for (const field of fields) {
    const input = form.elements[field];
    // A command is selected by a link only.
    if (!input) continue;
    if (input.type === 'checkbox') input.checked = query[field] === 'true';
    else if (input.localName === 'select') choose(input, query[field] ?? (field === 'since' ? '1h' : ''));
    else input.value = query[field] ?? '';
  }
  form.classList.toggle('for-calls', query.view === 'calls');
  foldFilters(query);
  const views = [['overview', 'Overview', common(query)], ['calls', 'Calls', selection(query)], ['events', 'Events', common(query)]];
  show(document.querySelector('#views'), views.map(([view, title, fieldsOfView]) =>
    element('li', null, element('a', {
      href: address({ view: view === 'overview' ? undefined : view, ...fieldsOfView }),
      'aria-current': (query.view ?? 'overview') === view ? 'page' : null,
    }, title))));
}

// Hides the filters on a narrow screen, unless one of them is active.
function foldFilters(query) {
  filter.open = wide.matches || Object.keys(selection(query)).length > 0;
}

// Selects a value, which becomes an option if it is none.
function choose(select, value) {
  if (![...select.options].some((option) => option.value === value)) select.add(new Option(printable(value), value));
  select.value = value;
}

function open() {
  shown?.close();
  show(problem);
  const query = currentQuery();
  showQuery(query);
  shown = new Session(query);
  return shown.open();
}

async function go(url) {
  history.pushState(null, '', url);
  const opened = open();
  scrollTo(0, 0);
  await opened;
  main.focus({ preventScroll: true });
}

document.addEventListener('click', (event) => {
  const link = event.target.closest?.('a[href]');
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const url = new URL(link.href);
  const isView = url.origin === location.origin && url.pathname === '/' && !link.getAttribute('href').startsWith('#');
  if (!isView) return;
  event.preventDefault();
  go(url);
});

form.addEventListener('submit', (event) => {
  event.preventDefault();
  const { view, id } = currentQuery();
  const values = Object.fromEntries([...new FormData(form)].map(([field, value]) => [field, value.trim()]));
  // A probe or a call is found in the overview, or among the calls.
  const of = view === 'calls' || view === 'events' ? view : undefined;
  if (view === 'call' && id && of === undefined && !Object.values(values).some(Boolean)) return;
  go(address({ view: of, ...values }));
});

wide.addEventListener('change', () => foldFilters(currentQuery()));
addEventListener('popstate', open);
open();
