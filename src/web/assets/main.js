// Shows the view that the address selects, and keeps it up to date.

import { CallPage } from './call.js';
import { CallsPage } from './calls.js';
import { address, currentQuery, fields, selection } from './command.js';
import { element, printable, setText, show } from './dom.js';
import { EventsPage } from './events.js';
import { OverviewPage } from './overview.js';
import { ProbePage } from './probe.js';
import { AnswerError, ConnectionError, load } from './view.js';

// Minimum time between two loads of a view, in milliseconds: after an event, and otherwise.
const soon = 2_000;
const later = 60_000;

// A view is loaded at most for this share of the time.
const loadShare = 250;

// Time after which a lost connection is reported, in milliseconds. The browser reconnects every 15
// seconds in a moment.
const patience = 3_000;

const pages = { overview: OverviewPage, calls: CallsPage, call: CallPage, events: EventsPage, probe: ProbePage };

const main = document.querySelector('#main');
const form = document.querySelector('#filters');
const status = document.querySelector('#live');

// The view that is shown, with what keeps it up to date.
let shown = null;

class Session {
  constructor(query) {
    this.query = query;
    const Page = pages[query.view ?? 'overview'] ?? OverviewPage;
    this.page = new Page(main, query);
    this.aborted = new AbortController();
    this.isLive = !query.until && query.view !== 'call';
  }

  async open() {
    main.setAttribute('aria-busy', 'true');
    try {
      this.context = await load('/page/context', this.aborted.signal);
      await this.reload();
      if (this.isLive) this.follow();
      else setText(status, this.query.until ? 'past' : '');
    } catch (error) {
      this.fail(error);
    } finally {
      main.removeAttribute('aria-busy');
    }
  }

  async reload() {
    clearTimeout(this.timer);
    const started = performance.now();
    const data = await this.page.load(this.aborted.signal);
    if (this.aborted.signal.aborted) return;
    this.loaded = performance.now();
    this.pause = Math.max(later, loadShare * Math.max(data.buildMs ?? 0, this.loaded - started));
    // Results that the view has already may arrive once more: they are counted twice until the
    // next load.
    this.context.updates = data.updates ?? this.context.updates;
    this.page.update(data, this.context);
    document.title = printable(`${this.page.title()} – probeshim`);
    if (this.isLive) this.timer = setTimeout(() => this.refresh(), this.pause);
  }

  // Loads the view again, unless the page is hidden.
  async refresh() {
    if (document.hidden) {
      document.addEventListener('visibilitychange', () => this.refresh(), { once: true, signal: this.aborted.signal });
      return;
    }
    try {
      await this.reload();
    } catch (error) {
      if (!(error instanceof ConnectionError)) this.fail(error);
      else this.timer = setTimeout(() => this.refresh(), soon);
    }
  }

  // Loads the view again in a moment, because it has changed.
  refreshSoon() {
    const wait = Math.max(soon, (this.pause / later) * soon - (performance.now() - this.loaded));
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.refresh(), Math.min(wait, this.pause));
  }

  follow() {
    const { page } = this;
    this.source = new EventSource(`/page/updates?after=${this.context.updates}`);
    const on = (kind, handle) => this.source.addEventListener(kind, ({ data }) => {
      const isStale = handle(JSON.parse(data));
      if (isStale || page.reloadsOn?.includes(kind)) this.refreshSoon();
    });
    on('results', (results) => page.onResults?.(results));
    on('events', (events) => page.onEvents?.(events));
    on('state', (state) => {
      showMode(state.mode);
      page.onState?.(state);
    });
    on('missed', () => true);
    this.source.onopen = () => {
      clearTimeout(this.lost);
      this.lost = undefined;
      setText(status, 'live');
    };
    this.source.onerror = () => {
      this.lost ??= setTimeout(() => setText(status, 'not connected: trying again'), patience);
      // A browser gives up after some errors.
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => this.reopen(), patience);
    };
  }

  reopen() {
    if (this.aborted.signal.aborted) return;
    this.source.close();
    this.follow();
    this.refreshSoon();
  }

  fail(error) {
    if (this.aborted.signal.aborted) return;
    const isKnown = error instanceof AnswerError || error instanceof ConnectionError;
    if (!isKnown) console.error(error.stack);
    show(main,
      element('h1', null, 'This view cannot be shown'),
      element('p', { class: 'empty', role: 'alert' }, isKnown ? error.message : 'The page has a bug: see the console of the browser.'),
      element('p', null, element('a', { href: location.href }, 'Try again')));
  }

  close() {
    this.aborted.abort();
    this.source?.close();
    clearTimeout(this.timer);
    clearTimeout(this.lost);
  }
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
    if (input.type === 'checkbox') input.checked = query[field] === 'true';
    else if (input.localName === 'select') choose(input, query[field] ?? (field === 'since' ? '1h' : ''));
    else input.value = query[field] ?? '';
  }
  form.classList.toggle('for-calls', query.view === 'calls');
  const rest = selection(query);
  const { method, code, failed, ...common } = rest;
  const views = [['overview', 'Overview', common], ['calls', 'Calls', rest], ['events', 'Events', common]];
  document.querySelector('#views').replaceChildren(...views.map(([view, title, fieldsOfView]) =>
    element('li', null, element('a', {
      href: address({ view: view === 'overview' ? undefined : view, ...fieldsOfView }),
      'aria-current': (query.view ?? 'overview') === view ? 'page' : null,
    }, title))));
}

// Selects a value, which becomes an option if it is none.
function choose(select, value) {
  if (![...select.options].some((option) => option.value === value)) select.add(new Option(printable(value), value));
  select.value = value;
}

function open() {
  shown?.close();
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

addEventListener('popstate', open);
open();
