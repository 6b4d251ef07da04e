// Renders the pictures of the README and of the guide to the page from the demo: two of the web page,
// and one of `top` in tmux.
//
//   node render.cjs TOOLS PROGRAM CHROMIUM DIRECTORY
//
// TOOLS is the directory with node_modules. The demo runs for six minutes first, so that the strips
// have results.
const { execFileSync, spawn } = require('node:child_process');
const path = require('node:path');
const readline = require('node:readline');
const { createRequire } = require('node:module');

const [tools, program, chromium, directory] = process.argv.slice(2);
const puppeteer = createRequire(path.join(tools, 'package.json'))('puppeteer-core');

const minutes = 6;
const fault = 'ExecSync client=probeshim pod=demo/steady: 60*off -> 4*delay(700ms) -> 3*exit(1)';
const columns = 118;
const rows = 32;

// Starts the demo. Returns its process, the address of the page and the admin socket.
async function startDemo() {
  const demo = spawn(program, ['demo', '--for', '1h', '--fault', fault], { stdio: ['ignore', 'pipe', 'inherit'] });
  const found = {};
  for await (const line of readline.createInterface({ input: demo.stdout })) {
    found.url ??= line.match(/^page +(\S+)/)?.[1];
    found.admin ??= line.match(/--admin (\S+)/)?.[1];
    if (found.url && found.admin) break;
  }
  demo.stdout.resume();
  return { demo, ...found };
}

const { NO_COLOR, TMUX, ...environment } = process.env;
const tmux = (...words) => execFileSync('tmux', ['-L', `pictures-${process.pid}`, '-f', '/dev/null', ...words], { encoding: 'utf8', env: { ...environment, TERM: 'xterm-256color', LC_ALL: 'C.UTF-8' } });

// Waits until the screen of tmux is as wanted. Returns it with its colours.
async function screenWhen(isWanted) {
  while (!isWanted(tmux('capture-pane', '-p'))) await new Promise((resolve) => setTimeout(resolve, 100));
  return tmux('capture-pane', '-e', '-p').trimEnd();
}

// Colours of a terminal: the eight of the standard, and their bright forms.
const palette = ['#1c2128', '#f2606b', '#3fa36d', '#e5a93d', '#62a4e6', '#c98be8', '#3fb6c8', '#c9d1d9',
  '#8b96a1', '#ff8088', '#56d08c', '#f5c35c', '#79b8ff', '#dba6f5', '#66d4e4', '#ffffff'];

function colour(codes, at) {
  if (codes[at + 1] === 5) return [palette[codes[at + 2]] ?? '#c9d1d9', 2];
  return [`rgb(${codes.slice(at + 2, at + 5).join(',')})`, 4];
}

// Returns a screen with colours as markup.
function markup(screen) {
  let style = {};
  const escape = (text) => text.replace(/[&<>]/g, (character) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;' })[character]);
  const span = (text) => {
    const { front = '#c9d1d9', back = 'transparent', reversed, bold, dim } = style;
    const [ink, paper] = reversed ? [back === 'transparent' ? '#0f1318' : back, front] : [front, back];
    return `<span style="color:${ink};background:${paper}${bold ? ';font-weight:bold' : ''}${dim ? ';opacity:.7' : ''}">${escape(text)}</span>`;
  };
  const apply = (codes) => {
    for (let at = 0; at < codes.length; at += 1) {
      const code = codes[at];
      if (code === 0) style = {};
      else if (code === 1) style.bold = true;
      else if (code === 2) style.dim = true;
      else if (code === 7) style.reversed = true;
      else if (code === 22) { style.bold = false; style.dim = false; }
      else if (code === 27) style.reversed = false;
      else if (code >= 30 && code <= 37) style.front = palette[code - 30];
      else if (code >= 90 && code <= 97) style.front = palette[code - 82];
      else if (code >= 40 && code <= 47) style.back = palette[code - 40];
      else if (code >= 100 && code <= 107) style.back = palette[code - 92];
      else if (code === 39) delete style.front;
      else if (code === 49) delete style.back;
      else if (code === 38 || code === 48) {
        const [value, used] = colour(codes, at);
        style[code === 38 ? 'front' : 'back'] = value;
        at += used;
      }
    }
  };
  return screen.split(/(\x1b\[[0-9;]*m)/).map((part) => {
    const codes = part.match(/^\x1b\[([0-9;]*)m$/);
    if (!codes) return part ? span(part) : '';
    apply(codes[1] === '' ? [0] : codes[1].split(';').map(Number));
    return '';
  }).join('');
}

async function main() {
  const { demo, url, admin } = await startDemo();
  const browser = await puppeteer.launch({ executablePath: chromium, args: ['--no-sandbox', '--disable-dev-shm-usage', '--hide-scrollbars', '--force-color-profile=srgb'] });
  try {
    await new Promise((resolve) => setTimeout(resolve, minutes * 60_000));
    tmux('new-session', '-d', '-x', String(columns), '-y', String(rows), program, 'top', '--since', `${minutes}m`, '--admin', admin);
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    const shoot = async (name, query, scheme, height) => {
      await page.setViewport({ width: 1200, height, deviceScaleFactor: 1 });
      await page.emulateMediaFeatures([{ name: 'prefers-color-scheme', value: scheme }]);
      await page.goto(`${url}?since=${minutes}m${query}`);
      await page.waitForSelector('main h1');
      await page.waitForFunction(() => document.querySelector('#live').textContent !== '');
      await page.screenshot({ path: path.join(directory, name) });
    };
    await shoot('overview.png', '', 'light', 1100);
    await shoot('probe.png', '&view=probe&namespace=demo&pod=steady&container=main&probe=readiness&peer=probeshim', 'dark', 760);
    const screen = await screenWhen((text) => ['held', 'moody', 'slow', 'steady'].every((pod) => text.includes(`demo/${pod}`)));
    // A new page, because the web page permits no styles in markup.
    const terminal = await browser.newPage();
    await terminal.setViewport({ width: 1100, height: 700, deviceScaleFactor: 1 });
    await terminal.setContent(`<body style="margin:0;background:#0f1318"><pre style="margin:0;padding:12px;display:inline-block;font:14px/1.25 'DejaVu Sans Mono',monospace">${markup(screen)}</pre>`);
    await (await terminal.$('pre')).screenshot({ path: path.join(directory, 'top.png') });
  } finally {
    await browser.close();
    try { tmux('kill-server'); } catch { /* It was not started. */ }
    demo.kill('SIGINT');
    await new Promise((resolve) => demo.once('exit', resolve));
  }
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
