// Measures the web page in Chromium, and prints the measurements as JSON. Keeps the page open until
// standard input is closed.
//
//   node page.cjs TOOLS '{"chromium": FILE, "url": URL}'
//
// TOOLS is the directory with node_modules.
const path = require('node:path');
const { createRequire } = require('node:module');

const [tools, job] = process.argv.slice(2);
const { chromium, url } = JSON.parse(job);
const puppeteer = createRequire(path.join(tools, 'package.json'))('puppeteer-core');

const containers = 500;
const rounds = 40;

// Runs in the page: updates all rows with the page's own code, and replaces the same rows by
// `innerHTML`, in turns. Layout is part of both.
async function compare(containers, rounds) {
  const { ProbeList } = await import('/page/probes.js');
  const strip = (probe, turn) => {
    const marks = Array.from({ length: 60 }, (_, column) => ((column * 7 + probe) % 23 === 0 ? 's' : (column + probe) % 31 === 0 ? 'f' : 'o'));
    marks[59] = turn ? 'f' : 'o';
    return marks.join('');
  };
  const view = (turn) => ({
    pods: [],
    probes: Array.from({ length: 3 * containers }, (_, probe) => ({
      namespace: `namespace-${probe % 20}`, pod: `web-7d4b9c6f8-${Math.floor(probe / 3)}`, container: 'main',
      type: ['liveness', 'readiness', 'startup'][probe % 3], prober: 'kubelet',
      result: turn ? 'failed' : 'ok', isBad: turn === 1, strip: strip(probe, turn),
      attempts: 360 + turn, failures: turn, timeouts: 0, errors: 0, kills: 0, wouldBeKills: 0, restarts: 0,
      p50Ms: 12.5, p99Ms: 40 + turn,
    })),
  });
  const place = () => {
    const root = document.createElement('div');
    root.className = 'probes';
    document.querySelector('main').append(root);
    return root;
  };
  const [updated, replaced] = [place(), place()];
  const list = new ProbeList(updated, {});
  const views = [view(0), view(1)];
  const markup = views.map((shown) => {
    list.update(shown);
    return updated.innerHTML;
  });
  replaced.className = updated.className;
  const timed = (root, change) => {
    const began = performance.now();
    change();
    root.getBoundingClientRect();
    return performance.now() - began;
  };
  const times = { update: [], replace: [] };
  for (let round = 0; round < rounds; round += 1) {
    times.update.push(timed(updated, () => list.update(views[round % 2])));
    times.replace.push(timed(replaced, () => { replaced.innerHTML = markup[round % 2]; }));
  }
  const median = (values) => [...values].sort((one, other) => one - other)[Math.floor(values.length / 2)];
  const isSame = updated.innerHTML === replaced.innerHTML;
  updated.remove();
  replaced.remove();
  return { rows: views[0].probes.length, updateMs: median(times.update), replaceMs: median(times.replace), isSame };
}

async function main() {
  const browser = await puppeteer.launch({ executablePath: chromium, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
  try {
    const page = await browser.newPage();
    let bytes = 0;
    const client = await page.createCDPSession();
    await client.send('Network.enable');
    client.on('Network.loadingFinished', ({ encodedDataLength }) => {
      bytes += encodedDataLength;
    });
    await page.goto(url);
    await page.waitForFunction(() => document.querySelector('#live').textContent === 'live', { timeout: 0 });
    const transferred = bytes;
    const compared = await page.evaluate(compare, containers, rounds);
    console.log(JSON.stringify({ transferred, ...compared }));
    process.stdin.resume();
    await new Promise((resolve) => process.stdin.on('end', resolve));
  } finally {
    await browser.close();
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
