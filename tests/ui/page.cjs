// Uses the web page of a running demo as a person does, and prints what it saw as JSON.
//
//   node page.cjs TOOLS '{"chromium": FILE, "url": URL, "shots": DIRECTORY, "part": NAME}'
//
// TOOLS is the directory with node_modules.
const fs = require('node:fs');
const path = require('node:path');
const { desktop, examineView, phone, setView, views, withPage } = require('./browser.cjs');

const [tools, job] = process.argv.slice(2);
const { chromium, url, shots, part, hostile } = JSON.parse(job);

// Reports the requests to other hosts, and the bytes that the page transfers.
async function observe(page) {
  const seen = { bytes: 0, foreign: [], refused: [] };
  const client = await page.createCDPSession();
  await client.send('Network.enable');
  client.on('Network.loadingFinished', ({ encodedDataLength }) => {
    seen.bytes += encodedDataLength;
  });
  page.on('request', (request) => {
    const to = request.url();
    if (!to.startsWith(url) && !to.startsWith('data:')) seen.foreign.push(to);
    if (request.method() !== 'GET') seen.refused.push(`${request.method()} ${to}`);
  });
  page.on('response', (response) => {
    if (response.status() >= 400) seen.refused.push(`${response.status()} ${response.url()}`);
  });
  return seen;
}

const heading = (page) => page.$eval('h1', (element) => element.textContent);
const query = (page) => Object.fromEntries(new URL(page.url()).searchParams);
const texts = (page, selector) => page.$$eval(selector, (found) => found.map((element) => element.textContent));

async function open(page, address = '') {
  await page.goto(url + address);
  await page.waitForSelector('main h1');
}

// Waits until each of the demo's five probes has one row with attempts: rows of probes without
// attempts are replaced.
async function waitForRows(page) {
  await page.waitForFunction(() => {
    const attempts = [...document.querySelectorAll('.probe .values a:first-of-type')].filter((link) => link.title.startsWith('Attempts'));
    return attempts.length === 5 && attempts.every((link) => Number(link.textContent) > 0);
  });
}

// Waits until the view has a heading. Other texts of a view may be in the view before it too.
async function waitForHeading(page, text) {
  await page.waitForFunction((wanted) => document.querySelector('h1')?.textContent === wanted, {}, text);
}

const parts = {
  // Opens the overview, and sees a kill arrive without loading the page again.
  async kill(page, { seen }) {
    await open(page);
    await page.waitForSelector('.probe');
    await page.waitForFunction(() => document.querySelector('#live').textContent === 'live');
    const transferred = seen.bytes;
    await page.evaluate(() => { globalThis.sameDocument = true; });
    await page.waitForFunction(() => [...document.querySelectorAll('.changes .bad')].some((item) => item.textContent.includes('Killing')));
    await page.waitForFunction(() => document.querySelector('.probe .marks .killed'));
    await page.waitForFunction(() => Number(document.querySelector('.tiles .bad:nth-child(5) dd')?.textContent) > 0);
    return {
      transferred,
      isSameDocument: await page.evaluate(() => globalThis.sameDocument === true),
      pods: await texts(page, '.pod h3 a'),
      commands: await texts(page, '.command code'),
    };
  },

  // Follows the slowest call of a probe to its explanation, and goes back.
  async slow(page) {
    const isFolded = () => page.$eval('#filter', (element) => !element.open);
    await open(page);
    const folded = { unfiltered: await isFolded() };
    await open(page, '?pod=moody&probe=liveness');
    folded.filtered = await isFolded();
    const link = await page.waitForSelector('#slowest article h3 a');
    const call = await link.evaluate((element) => element.textContent);
    await link.click();
    await waitForHeading(page, call);
    const hasBackticks = () => page.$eval('main', (element) => element.textContent.includes('`'));
    const explained = { backticks: await hasBackticks(), heading: await heading(page), sentences: await texts(page, '.sentences li'), command: await texts(page, '.command code'), phases: await texts(page, '.phases li') };
    await page.goBack();
    await page.waitForSelector('.probe');
    explained.backticks ||= await hasBackticks();
    return { call, folded, ...explained };
  },

  // Filters the overview, and then the calls. The filter is in the address.
  async filter(page) {
    await open(page);
    await waitForRows(page);
    await page.type('input[name=pod]', 'steady');
    await page.click('#filters button');
    await page.waitForFunction(() => document.querySelectorAll('.pod').length === 1);
    const overview = { pods: await texts(page, '.pod h3 a'), query: query(page), commands: await texts(page, '.command code') };
    await page.click('.probe .values a');
    await page.waitForSelector('#title ~ .scroll tbody tr');
    const calls = { query: query(page), pods: await texts(page, '#title ~ .scroll tbody td:nth-child(7)'), probes: await texts(page, '#title ~ .scroll tbody td:nth-child(8)'), commands: await texts(page, '.command code') };
    const empty = {};
    for (const view of ['calls', 'events']) {
      await open(page, `?view=${view}&pod=nope`);
      empty[view] = await page.$eval('main', (element) => element.innerText);
    }
    await page.goto(`${url}?view=calls&code=NO_SUCH_CODE`);
    await page.waitForSelector('#problem p');
    return { overview, calls, empty, error: await page.$eval('#problem p', (element) => element.textContent) };
  },

  // Uses only the keyboard: from the link to the content to a probe, to its calls, and a filter.
  async keyboard(page) {
    await open(page);
    await waitForRows(page);
    const focused = () => page.evaluate(() => {
      const element = document.activeElement;
      const style = getComputedStyle(element);
      return { text: element.textContent.trim().slice(0, 60), name: element.getAttribute('name'), href: element.getAttribute('href') ?? '', outline: style.outlineStyle !== 'none' || ['main', 'body'].includes(element.localName) };
    });
    const invisible = [];
    const tabTo = async (is) => {
      for (let steps = 0; steps < 400; steps += 1) {
        await page.keyboard.press('Tab');
        const now = await focused();
        if (!now.outline) invisible.push(now);
        if (is(now)) return now;
      }
      throw new Error('the keyboard does not reach an element');
    };
    const first = await tabTo(() => true);
    await page.keyboard.press('Enter');
    await tabTo(({ href }) => href.includes('view=probe'));
    await page.keyboard.press('Enter');
    await page.waitForSelector('#numbers dt');
    const probe = await heading(page);
    await tabTo(({ href }) => href.includes('view=calls'));
    await page.keyboard.press('Enter');
    await page.waitForSelector('#title ~ .scroll tbody tr');
    const calls = query(page);
    await page.evaluate(() => document.activeElement.blur());
    await tabTo(({ name }) => name === 'failed');
    await page.keyboard.press('Space');
    await page.keyboard.press('Enter');
    await page.waitForFunction(() => new URLSearchParams(location.search).get('failed') === 'true');
    await page.waitForFunction(() => document.querySelector('main').getAttribute('aria-busy') === null);
    return { first: first.text, probe, calls, failed: query(page), invisible };
  },

  // Examines each view on a desktop and a phone, light and dark.
  async views(page, { axe }) {
    const examined = [];
    await open(page);
    await waitForRows(page);
    const call = await page.waitForSelector('#slowest article h3 a').then((link) => link.evaluate((element) => element.getAttribute('href')));
    const probe = await page.$eval('.probe .who a', (element) => element.getAttribute('href'));
    const pages = { overview: '', calls: '?view=calls', events: '?view=events', call: call.slice(1), probe: probe.slice(1), error: '?view=calls&code=NO_SUCH_CODE' };
    for (const view of views) {
      await setView(page, view);
      for (const [name, address] of Object.entries(pages)) {
        await open(page, address);
        examined.push(await examineView(page, axe, { ...view, name: `${name}-${view.name}` }, shots));
      }
    }
    return { examined };
  },

  // Follows calls while results arrive all the time.
  async steady(page) {
    await open(page, '?view=calls');
    const newest = () => page.$eval('tbody tr th', (element) => Number(element.textContent));
    const seen = [await newest()];
    while (seen.length < 4) {
      await page.waitForFunction((last) => Number(document.querySelector('tbody tr th').textContent) > last, {}, seen.at(-1));
      seen.push(await newest());
    }
    return { newest: seen };
  },

  // Hides the page while results arrive, and shows it again.
  async hidden(page) {
    await page.evaluateOnNewDocument(() => {
      globalThis.isHidden = false;
      Object.defineProperty(document, 'hidden', { get: () => globalThis.isHidden });
    });
    const hide = (isHidden) => page.evaluate((value) => {
      globalThis.isHidden = value;
      document.dispatchEvent(new Event('visibilitychange'));
    }, isHidden);
    let loads = 0;
    let streams = 0;
    page.on('request', (request) => {
      const { pathname } = new URL(request.url());
      if (pathname === '/page/view') loads += 1;
      if (pathname === '/page/updates') streams += 1;
    });
    await open(page);
    await page.waitForFunction(() => document.querySelector('#live').textContent === 'live');
    const attempts = () => page.$$eval('.probe .values a:first-of-type', ([first]) => Number(first.textContent));
    await hide(true);
    const before = { loads, streams, attempts: await attempts() };
    // Results are made while the page is hidden.
    const results = async () => Number((await (await fetch(`${url}page/context`)).json()).updates.split('-')[1]);
    const first = await results();
    while (await results() < first + 12) await new Promise((resolve) => setImmediate(resolve));
    const hidden = { loads, streams, attempts: await attempts() };
    await hide(false);
    await page.waitForFunction((last) => Number(document.querySelector('.probe .values a').textContent) > last + 2, {}, before.attempts);
    return { before, hidden, shown: { loads, streams } };
  },

  // Follows a probeshim that is restarted once this prints `ready`.
  async restart(page) {
    await open(page);
    await page.waitForSelector('.probe');
    await page.waitForFunction(() => document.querySelector('#live').textContent === 'live');
    await page.evaluate(() => { globalThis.sameDocument = true; });
    const run = async () => (await (await page.waitForResponse((answer) => new URL(answer.url()).pathname === '/page/view')).json()).updates.split('-')[0];
    const before = (await (await fetch(`${url}page/context`)).json()).updates.split('-')[0];
    console.log('ready');
    while (await run() === before);
    await page.waitForFunction(() => document.querySelector('#live').textContent === 'live');
    const attempts = () => page.$eval('.probe .values a', (element) => Number(element.textContent));
    const first = await attempts();
    await page.waitForFunction((last) => Number(document.querySelector('.probe .values a').textContent) > last, {}, first);
    return { isSameDocument: await page.evaluate(() => globalThis.sameDocument === true) };
  },

  // Sees an error of a load, and that the view is current again afterwards.
  async failure(page) {
    await open(page);
    await page.waitForSelector('.probe');
    let isBroken = true;
    await page.setRequestInterception(true);
    page.on('request', (request) => {
      if (isBroken && new URL(request.url()).pathname === '/page/view') {
        return request.respond({ status: 500, contentType: 'application/json', body: '{"error":"the disk is gone"}' });
      }
      return request.continue();
    });
    await page.waitForFunction(() => document.querySelector('#problem').textContent.includes('the disk is gone'));
    const rows = (await page.$$('.probe')).length;
    isBroken = false;
    await page.waitForFunction(() => document.querySelector('#problem').textContent === '');
    await page.waitForFunction(() => document.querySelectorAll('.probe').length > 0);
    return { rows, heading: await heading(page) };
  },

  // Collects the command line of each section of each view.
  async commands(page) {
    const commands = new Set();
    await open(page);
    await waitForRows(page);
    const probe = await page.waitForSelector('.probe .who a').then((link) => link.evaluate((element) => element.getAttribute('href')));
    const call = await page.waitForSelector('#slowest article h3 a').then((link) => link.evaluate((element) => element.getAttribute('href')));
    const now = new Date().toISOString();
    const addresses = ['', '?namespace=demo&pod=steady', '?container=main&probe=readiness', '?since=30s', '?since=168h', `?since=2h&until=${now}`,
      '?view=calls', '?view=calls&failed=true&probe=readiness', '?view=calls&since=100h', '?view=calls&code=OK&method=ExecSync&slowest=3',
      '?view=events', '?view=events&pod=moody', probe.slice(1), call.slice(1)];
    for (const address of addresses) {
      await open(page, address);
      await page.waitForSelector('.command code');
      for (const command of await texts(page, '.command code')) commands.add(command);
    }
    const periods = await page.$$eval('select[name=since] option', (options) => options.map((option) => option.value));
    return { commands: [...commands], periods };
  },

  // Shows hostile names: each answer of probeshim has them in place of the name of a pod.
  async hostile(page) {
    await page.setRequestInterception(true);
    page.on('request', async (request) => {
      const { pathname } = new URL(request.url());
      if (!/^\/page\/(view|calls|calls\/[0-9]+|events)$/.test(pathname)) return request.continue();
      const answer = await fetch(request.url());
      const text = (await answer.text()).replaceAll(/moody|cat healthy|No such file or directory/g, JSON.stringify(hostile).slice(1, -1));
      return request.respond({ status: answer.status, contentType: 'application/json', body: text });
    });
    const shown = {};
    const call = (await (await fetch(`${url}page/calls?method=ExecSync&pod=moody`)).json()).calls[0].id;
    for (const [name, address] of Object.entries({ overview: '', calls: '?view=calls', events: '?view=events', call: `?view=call&id=${call}` })) {
      await open(page, address);
      await page.waitForSelector('.probe, tbody tr, .sentences');
      shown[name] = await page.evaluate(() => ({
        text: document.body.textContent,
        elements: [...new Set([...document.querySelectorAll('main *')].map((element) => element.localName))].sort(),
        handlers: [...document.querySelectorAll('*')].flatMap((element) => element.getAttributeNames().filter((attribute) => attribute.startsWith('on'))),
      }));
    }
    return { shown };
  },
};

async function run(page, { messages, axe }) {
  if (shots) fs.mkdirSync(shots, { recursive: true });
  await setView(page, { viewport: part === 'slow' ? phone : desktop, scheme: 'light' });
  const seen = await observe(page);
  const result = await parts[part](page, { seen, axe });
  if (shots) await page.screenshot({ path: path.join(shots, `${part}.png`) });
  console.log(JSON.stringify({ messages, foreign: seen.foreign, refused: seen.refused, ...result }));
}

withPage(tools, chromium, run).catch((error) => {
  console.error(error);
  process.exit(1);
});
