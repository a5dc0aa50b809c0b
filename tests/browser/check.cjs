// The page in Chromium, as `run` serves it: directly, behind proxies, in frames, in several tabs. Each check prints a line; one that fails
// ends the run with its name. `ONLY=words` runs those with these words in their names.
"use strict";

const fs = require("node:fs");
const http = require("node:http");
const zlib = require("node:zlib");
const assert = require("node:assert/strict");
const { chromium } = require("playwright-core");
const axeSource = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

const { PAGE, KEPT, NGINX, CADDY, PANEL, WORK, LOGIN_TOKEN } = process.env;
const DIRECT = `http://nvr.test:${PAGE}/`;
const SIZES = [
  { width: 390, height: 844 },
  { width: 1440, height: 900 },
];
const SHOTS = `${WORK}/screenshots`;
fs.rmSync(SHOTS, { recursive: true, force: true });
fs.mkdirSync(SHOTS, { recursive: true });

let browser;

// What a page says that it should not: messages of its console, and requests that leave its folder.
class Watched {
  constructor(page, base) {
    this.page = page;
    this.wrong = [];
    // The engine may have no room for words that are tried.
    page.on("console", (message) => / 429 /.test(message.text()) || this.wrong.push(`console: ${message.text()}`));
    page.on("pageerror", (error) => this.wrong.push(`error: ${error.stack}`));
    page.on("request", (request) => {
      const url = request.url();
      if (base !== null && !url.startsWith(base) && !url.startsWith("blob:")) this.wrong.push(`request outside: ${url}`);
    });
  }

  isQuiet() {
    assert.deepEqual(this.wrong, []);
  }
}

async function opened(base, options = {}) {
  const context = await browser.newContext({ viewport: SIZES[1], ...options });
  const page = await context.newPage();
  const watched = new Watched(page, base);
  await page.goto(base);
  await page.getByRole("heading", { name: "Cameras" }).waitFor();
  return { context, page, watched };
}

async function logIn(frame) {
  await frame.getByLabel(/^Token/).fill(LOGIN_TOKEN);
  await frame.getByRole("button", { name: "Log in" }).click();
  await frame.getByRole("button", { name: "Log out" }).waitFor();
}

const picture = (frame) => frame.locator("main img").first();

async function seesPicture(frame) {
  // Pictures in view alone are shown.
  await frame.locator("main .still").first().scrollIntoViewIfNeeded();
  await picture(frame).waitFor();
  const width = () => picture(frame).evaluate((image) => image.naturalWidth);
  for (let tries = 0; (await width()) === 0; tries += 1) {
    assert.ok(tries < 100, "the picture has loaded");
    await frame.waitForTimeout(100);
  }
}

// The time in the footer goes on.
async function isAlive(frame) {
  const time = frame.locator("footer time");
  const before = await time.textContent();
  for (let tries = 0; (await time.textContent()) === before; tries += 1) {
    assert.ok(tries < 150, "the page follows the daemon");
    await frame.waitForTimeout(100);
  }
}

// Names of `axe` rules that the document breaks, with the elements.
async function violations(page) {
  // The policy of the page allows no script from elsewhere; this one comes through the debugger.
  await page.evaluate(axeSource);
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return violations.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.target.join(" ")).join(", ")}`);
}

// ---- Checks

const checks = {
  async "each view has no violation of axe's rules, light and dark, at 390 and 1440 pixels"() {
    for (const viewport of SIZES)
      for (const colorScheme of ["light", "dark"]) {
        const { context, page, watched } = await opened(DIRECT, { viewport, colorScheme });
        await logIn(page);
        await seesPicture(page);
        for (const view of [...(await views(page)), "help/mqtt.md"]) {
          await show(page, view);
          const name = `${view || "page"}-${viewport.width}-${colorScheme}`;
          await page.screenshot({ path: `${SHOTS}/${name}.png`, fullPage: true });
          assert.deepEqual(await violations(page), [], name);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
          assert.ok(wide <= 0, `${name} scrolls sideways by ${wide}`);
        }
        watched.isQuiet();
        await context.close();
      }
  },

  async "each view is reached by keys"() {
    const { context, page } = await opened(DIRECT);
    await logIn(page);
    for (const view of (await views(page)).filter(Boolean)) {
      const link = page.locator(`nav a[href="#${view}"]`);
      for (let tabs = 0; !(await link.evaluate((element) => element === document.activeElement)); tabs += 1) {
        assert.ok(tabs < 60, `Tab reaches ${view}`);
        await page.keyboard.press("Tab");
      }
      await page.keyboard.press("Enter");
      await page.waitForURL(`**/#${view}`);
    }
    await context.close();
  },

  ...Object.fromEntries(
    [
      ["nginx, prefix removed", `http://nvr.test:${NGINX}/spotter/`],
      ["nginx, prefix kept", `http://nvr.test:${KEPT}/kept/`],
      ["nginx that keeps and compresses events", `http://nvr.test:${NGINX}/buffered/`],
      ["Caddy, prefix removed", `http://nvr.test:${CADDY}/spotter/`],
      ["Caddy, prefix kept", `http://nvr.test:${CADDY}/kept/`],
      ["plain HTTP at a name of the network", DIRECT],
    ].map(([name, base]) => [
      `login, pictures and news: ${name}`,
      async () => {
        const { context, page, watched } = await opened(base);
        assert.equal(await page.evaluate(() => isSecureContext), false);
        assert.equal(await picture(page).count(), 0);
        await logIn(page);
        await seesPicture(page);
        await isAlive(page);
        await page.getByRole("button", { name: "Log out" }).click();
        await page.getByLabel(/^Token/).waitFor();
        watched.isQuiet();
        await context.close();
      },
    ]),
  ),

  async "Home Assistant's ingress: a frame of its own origin, its path, its headers"() {
    const ingress = await panel("nvr.test", { path: "/api/hassio_ingress/abc/", sendsIngress: true });
    const context = await browser.newContext();
    const page = await context.newPage();
    const watched = new Watched(page, ingress.origin);
    await page.goto(`${ingress.origin}/`);
    const frame = page.frames().find((one) => one !== page.mainFrame());
    await frame.getByRole("heading", { name: "Cameras" }).waitFor();
    await logIn(frame);
    await seesPicture(frame);
    await isAlive(frame);
    const cookies = await context.cookies();
    assert.deepEqual(cookies.map(({ path, httpOnly, sameSite }) => [path, httpOnly, sameSite]), [["/api/hassio_ingress/abc", true, "Strict"]]);
    watched.isQuiet();
    await context.close();
    await ingress.close();
  },

  async "a frame of another site that is named shows the page, and a tab of its own for the login"() {
    const other = await panel("panel.test", { frame: DIRECT, port: Number(PANEL) });
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`${other.origin}/`);
    const frame = page.frames().find((one) => one !== page.mainFrame());
    const link = frame.getByRole("link", { name: "log in in a tab of its own" });
    const [tab] = await Promise.all([context.waitForEvent("page"), link.click()]);
    await logIn(tab);
    await seesPicture(tab);
    await context.close();
    await other.close();
  },

  async "a frame of a site that is not named shows nothing"() {
    const foreign = await panel("foreign.test", { frame: DIRECT });
    const context = await browser.newContext();
    const page = await context.newPage();
    await page.goto(`${foreign.origin}/`);
    await page.waitForTimeout(1000);
    const frame = page.frames().find((one) => one !== page.mainFrame());
    assert.equal(await frame.getByText("Spotter").count(), 0);
    await context.close();
    await foreign.close();
  },

  async "alarms are judged by keys and by mouse, light and dark, at 390 and 1440 pixels"() {
    for (const viewport of SIZES)
      for (const colorScheme of ["light", "dark"]) {
        const { context, page, watched } = await opened(DIRECT, { viewport, colorScheme });
        await logIn(page);
        await openJudge(page, 12);
        const isFine = async (what) => {
          const name = `judge-${what}-${viewport.width}-${colorScheme}`;
          await page.screenshot({ path: `${SHOTS}/${name}.png` });
          assert.deepEqual(await violations(page), [], name);
        };
        await isFine("figures");
        await page.getByRole("button", { name: "Judge 20" }).press("Enter");
        const isAt = async (number) => {
          await page.locator(".progress").getByText(new RegExp(`(^|\\s)${number} of `)).waitFor();
          await isSeen(page);
        };
        await isAt(1);
        await isFine("picture");
        await page.keyboard.press("w");
        await isAt(2);
        await page.keyboard.press("u");
        await isAt(1);
        await page.keyboard.press("c");
        await page.keyboard.press("Shift+ArrowDown");
        await isFine("correction");
        await page.keyboard.press("Enter");
        await isAt(2);
        await page.getByRole("button", { name: /^Right/ }).click();
        await isAt(3);
        for (const number of [2, 1]) {
          await page.getByRole("button", { name: /^Undo/ }).click();
          await isAt(number);
        }
        await page.getByRole("button", { name: "Stop" }).click();
        await page.locator("#figures").waitFor();
        watched.isQuiet();
        await context.close();
      }
  },

  async "a first user logs in, tries a word, draws a zone, sees an event, judges 20 and takes the proposed threshold"() {
    const { context, page, watched } = await opened(DIRECT);
    await logIn(page);
    await show(page, "try");
    await page.locator("#try-words-0").fill("person");
    // The cameras go first, and may need the engine for a moment.
    const ask = page.getByRole("button", { name: "Try", exact: true });
    for (let tries = 0; (await page.locator(".answer").count()) === 0; tries += 1) {
      assert.ok(tries < 20, "the words are answered");
      await ask.click();
      await page.getByRole("button", { name: "Asking…" }).waitFor();
      await ask.waitFor({ timeout: 60_000 });
    }
    await page.screenshot({ path: `${SHOTS}/first-try.png`, fullPage: true });
    await show(page, "draw");
    await page.locator(".canvas image").waitFor();
    await page.getByRole("button", { name: "Draw something" }).click();
    await page.getByRole("button", { name: /^Only alarms here/ }).click();
    const { x, y, width, height } = await page.locator("#canvas").boundingBox();
    for (const [right, down] of [[0.05, 0.5], [0.95, 0.5], [0.95, 0.95], [0.05, 0.95]]) await page.mouse.click(x + right * width, y + down * height);
    await page.getByRole("button", { name: "Done" }).click();
    await page.getByLabel("car").check();
    await page.getByRole("button", { name: "Save" }).click();
    await page.getByText("Saved. It applies now").first().waitFor();
    await page.screenshot({ path: `${SHOTS}/first-draw.png`, fullPage: true });
    await show(page, "events");
    const event = page.locator("a.entry:has(canvas)").first();
    await event.waitFor({ timeout: 120_000 });
    await page.screenshot({ path: `${SHOTS}/first-events.png` });
    await event.click();
    await page.locator("article.detail img").waitFor();
    await openJudge(page, 25);
    const use = page.locator('[data-do="ask"]').first();
    for (let batches = 0; !(await use.isVisible()); batches += 1) {
      assert.ok(batches < 40, `a threshold is proposed: ${await page.locator("#figures").textContent()}`);
      await judgeBatch(page);
      await page.waitForTimeout(4000);
    }
    await page.screenshot({ path: `${SHOTS}/first-judge.png`, fullPage: true });
    const score = (await use.textContent()).match(/0\.\d+/)[0];
    await use.click();
    await page.locator("#use-yes").click();
    await page.getByText(`min_score is ${score} now`).waitFor();
    await page.getByText("Promised: at least").waitFor();
    watched.isQuiet();
    await context.close();
  },

  async "seven tabs at once are all followed"() {
    const { context, page } = await opened(DIRECT);
    await logIn(page);
    const tabs = [page];
    while (tabs.length < 7) {
      const tab = await context.newPage();
      await tab.goto(DIRECT);
      await tab.getByRole("heading", { name: "Cameras" }).waitFor();
      tabs.push(tab);
    }
    for (const tab of tabs) {
      await tab.bringToFront();
      await isAlive(tab);
    }
    await context.close();
  },

  async "a browser in another time zone shows the box's times"() {
    const times = [];
    for (const timezoneId of ["UTC", "America/Los_Angeles"]) {
      const { context, page } = await opened(DIRECT, { timezoneId });
      times.push((await page.locator("footer time").textContent()).slice(0, 2));
      await context.close();
    }
    assert.equal(times[0], times[1]);
  },
};

// The views in the navigation; one without a name where there is no navigation.
async function views(page) {
  const links = await page.locator('nav a[href^="#"]').all();
  const names = await Promise.all(links.map((link) => link.getAttribute("href")));
  return names.length === 0 ? [""] : names.map((name) => name.slice(1));
}

async function show(page, view) {
  if (view.includes("/")) await page.evaluate((address) => (location.hash = address), view);
  else if (view !== "") await page.locator(`nav a[href="#${view}"]`).click();
  await page.waitForTimeout(300);
}

// The view of the camera whose scores differ, once it has so many alarms.
async function openJudge(page, alarms) {
  const count = () => page.evaluate(async () => (await (await fetch("judge.json?camera=weak&prompt=person")).json()).alarms);
  for (let tries = 0; (await count()) < alarms; tries += 1) {
    assert.ok(tries < 300, `camera weak has ${alarms} alarms`);
    await page.waitForTimeout(1000);
  }
  await show(page, "judge");
  await page.locator('main a[href="#judge/weak/person"]').click();
  await page.getByRole("button", { name: "Judge 20" }).waitFor();
}

// Marks are taken some time after the picture has come.
const isSeen = (page) => page.locator("#mark-right:not([aria-disabled])").waitFor();

// Alarms with a high score are right, for this user.
async function judgeBatch(page) {
  await page.waitForTimeout(2000);
  await page.getByRole("button", { name: "Judge 20" }).click();
  await page.locator("#judging, #figures [role=status]:not(:empty)").first().waitFor();
  const shown = () => page.evaluate(() => document.getElementById("judging")?.textContent ?? null);
  for (let text = await shown(); text !== null; ) {
    await isSeen(page);
    await page.keyboard.press(Number(text.match(/(\d+) %/)[1]) >= 80 ? "r" : "w");
    const before = text;
    for (let tries = 0; text === before; tries += 1) {
      assert.ok(tries < 200, "the next picture comes");
      await page.waitForTimeout(50);
      text = await shown();
    }
  }
}

// A site that shows the page in a frame; with `path`, it passes it on below this path as Home Assistant's Supervisor does.
function panel(name, { frame, path, port = 0, sendsIngress = false }) {
  const server = http.createServer((request, answer) => {
    if (path === undefined || !request.url.startsWith(path)) {
      answer.setHeader("content-type", "text/html");
      answer.end(`<!doctype html><title>panel</title><iframe src="${frame ?? path}" width="1200" height="800"></iframe>`);
      return;
    }
    const headers = { ...request.headers, "x-forwarded-for": "198.51.100.7", "x-forwarded-host": request.headers.host, "x-forwarded-proto": "http" };
    if (sendsIngress) headers["x-ingress-path"] = path.slice(0, -1);
    const passed = http.request({ port: PAGE, host: "127.0.0.1", path: `/${request.url.slice(path.length)}`, method: request.method, headers }, (got) => {
      const isCompressed = /^text\//.test(got.headers["content-type"] ?? "") && !got.headers["content-encoding"];
      const { "content-length": _, ...kept } = got.headers;
      answer.writeHead(got.statusCode, isCompressed ? { ...kept, "content-encoding": "gzip" } : got.headers);
      if (isCompressed) got.pipe(zlib.createGzip()).pipe(answer);
      else got.pipe(answer);
    });
    passed.on("error", () => answer.destroy());
    answer.on("close", () => passed.destroy());
    request.pipe(passed);
  });
  return new Promise((resolve) => {
    server.listen(port, "127.0.0.1", () =>
      resolve({
        origin: `http://${name}:${server.address().port}`,
        close: () => {
          server.closeAllConnections();
          return new Promise((closed) => server.close(closed));
        },
      }),
    );
  });
}

async function main() {
  const args = ["--no-sandbox", "--host-resolver-rules=MAP *.test 127.0.0.1"];
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args });
  const only = process.env.ONLY ?? "";
  for (const [name, check] of Object.entries(checks).filter(([name]) => name.includes(only))) {
    const began = Date.now();
    await check().catch((error) => {
      console.error(`FAILED ${name}\n${error.stack}`);
      process.exit(1);
    });
    console.log(`${name}: ${((Date.now() - began) / 1000).toFixed(1)} s`);
  }
  await browser.close();
}

main();
