// What the scripts of these tests have in common: a browser, its messages and requests, views and
// the rules of axe.
const path = require('node:path');
const { createRequire } = require('node:module');

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

// Opens Chromium, and passes a page to `use`. TOOLS is the directory with node_modules.
async function withPage(tools, chromium, use) {
  const load = createRequire(path.join(tools, 'package.json'));
  const browser = await load('puppeteer-core').launch({
    executablePath: chromium,
    protocolTimeout: 0,
    // As root Chromium needs --no-sandbox.
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--hide-scrollbars', '--force-color-profile=srgb'],
  });
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    const messages = [];
    page.on('console', (message) => messages.push(`${message.type()}: ${message.text()}`));
    page.on('pageerror', (error) => messages.push(`error: ${error.message}`));
    page.on('dialog', (dialog) => {
      messages.push(`dialog: ${dialog.message()}`);
      dialog.dismiss();
    });
    return await use(page, { messages, axe: load('axe-core') });
  } finally {
    await browser.close();
  }
}

// Sets the size of the screen and the colour scheme.
async function setView(page, { viewport, scheme }) {
  await page.setViewport(viewport);
  await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
}

// Returns what does not fit on the screen, and the violations that axe finds. A screenshot is
// written to DIRECTORY, if there is one.
async function examineView(page, axe, { name, viewport }, directory) {
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
  if (directory) {
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    const clip = { x: 0, y: 0, width: viewport.width, height: Math.min(height, maxHeight) };
    await page.screenshot({ path: path.join(directory, `${name}.png`), clip, captureBeyondViewport: true });
  }
  return { name, wide, violations };
}

module.exports = { desktop, examineView, phone, setView, views, withPage };
