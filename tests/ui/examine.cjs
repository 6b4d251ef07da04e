// Opens a page in Chromium and prints what it found as JSON.
//
//   node examine.cjs TOOLS '{"chromium": FILE, "url": URL, "shots": DIRECTORY}'
//
// TOOLS is the directory with node_modules. The page is shown in several views. Each request other
// than that of the page is blocked and reported.
const path = require('node:path');
const { examineView, setView, views, withPage } = require('./browser.cjs');

const [tools, job] = process.argv.slice(2);
const { chromium, url, shots } = JSON.parse(job);

async function examine(page, { messages, axe }) {
  const requests = [];
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
  for (const view of views) {
    await setView(page, view);
    await page.reload({ waitUntil: 'load' });
    seen.push(await examineView(page, axe, view, shots));
  }
  if (shots) {
    await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: 'dark' }]);
    await page.pdf({ path: path.join(shots, 'print.pdf'), format: 'a4', margin: { top: '1cm', bottom: '1cm', left: '1cm', right: '1cm' } });
  }
  console.log(JSON.stringify({ ...content, requests, messages, views: seen }));
}

withPage(tools, chromium, examine).catch((error) => {
  console.error(error);
  process.exit(1);
});
