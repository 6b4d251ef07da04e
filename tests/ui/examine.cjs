// Opens a page in Chromium and prints what it found as JSON.
//
//   node examine.cjs TOOLS '{"chromium": FILE, "url": URL, "shots": DIRECTORY}'
//
// TOOLS is the directory with node_modules. The page is shown in several views. Each request other
// than that of the page is blocked and reported.
const path = require('node:path');
const { createRequire } = require('node:module');

const [tools, job] = process.argv.slice(2);
const { chromium, url, shots } = JSON.parse(job);
const load = createRequire(path.join(tools, 'package.json'));
const puppeteer = load('puppeteer-core');
const axe = load('axe-core');

const desktop = { width: 1280, height: 900, deviceScaleFactor: 1 };
const phone = { width: 360, height: 740, deviceScaleFactor: 2, isMobile: true, hasTouch: true };
const views = [
  { name: 'desktop-light', viewport: desktop, scheme: 'light' },
  { name: 'desktop-dark', viewport: desktop, scheme: 'dark' },
  { name: 'phone-light', viewport: phone, scheme: 'light' },
  { name: 'phone-dark', viewport: phone, scheme: 'dark' },
];

// Height of a screenshot, in pixels of the page.
const maxHeight = 12000;

async function examineView(page, { name, viewport, scheme }) {
  await page.setViewport(viewport);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
  await page.reload({ waitUntil: 'load' });
  const wide = await page.evaluate((width) => {
    const root = document.documentElement;
    if (root.scrollWidth <= width) return [];
    const isWide = (element) => element.getBoundingClientRect().right > width + 1 && !element.closest('.scroll');
    const text = (element) => element.outerHTML.slice(0, 200);
    return [`the page is ${root.scrollWidth} pixels wide`, ...[...document.body.querySelectorAll('*')].filter(isWide).map(text)];
  }, viewport.width);
  await page.evaluate(axe.source);
  const found = await page.evaluate(async () => (await globalThis.axe.run(document, { resultTypes: ['violations'] })).violations);
  const violations = found.flatMap(({ id, help, nodes }) =>
    nodes.map((node) => `${id}: ${help}: ${node.html.slice(0, 200)}: ${node.failureSummary ?? ''}`));
  if (shots) {
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    const clip = { x: 0, y: 0, width: viewport.width, height: Math.min(height, maxHeight) };
    await page.screenshot({ path: path.join(shots, `${name}.png`), clip, captureBeyondViewport: true });
  }
  return { name, wide, violations };
}

async function main() {
  const browser = await puppeteer.launch({
    executablePath: chromium,
    // As root Chromium needs --no-sandbox.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--hide-scrollbars', '--force-color-profile=srgb'],
  });
  try {
    const page = await browser.newPage();
    const [requests, messages] = [[], []];
    page.on('console', (message) => messages.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => messages.push(`error: ${error.message}`));
    page.on('dialog', (dialog) => {
      messages.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    await page.setRequestInterception(true);
    page.on('request', (request) => {
      if (request.url() === url && request.isNavigationRequest()) return request.continue();
      requests.push(`${request.method()} ${request.url()}`);
      return request.abort();
    });
    await page.goto(url, { waitUntil: 'load' });
    const content = await page.evaluate(() => ({
      title: document.title,
      text: document.body.innerText,
      elements: [...new Set([...document.querySelectorAll('*')].map((element) => element.localName))].sort(),
      handlers: [...document.querySelectorAll('*')].flatMap((element) =>
        element.getAttributeNames().filter((name) => name.startsWith('on'))),
      missing: [...document.querySelectorAll('a[href^="#"], use')]
        .map((element) => element.getAttribute('href'))
        .filter((href) => !document.getElementById(href.slice(1))),
    }));
    const seen = [];
    for (const view of views) seen.push(await examineView(page, view));
    if (shots) {
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
      await page.pdf({ path: path.join(shots, 'print.pdf'), format: 'a4', margin: { top: '1cm', bottom: '1cm', left: '1cm', right: '1cm' } });
    }
    console.log(JSON.stringify({ ...content, requests, messages, views: seen }));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
