// What the dashboard promises, seen in a real browser over a real service.

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";

import { ADMIN, freePort, launch, PATIENCE_MS, READER, World } from "./support.mjs";

let browser;
let world;
before(async () => { browser = await launch(); });
after(() => browser.close());
beforeEach(() => { world = new World(browser); });
afterEach(() => world.end());

const limit = { timeout: 3 * PATIENCE_MS };
const row = (page, key) => page.locator(`#rows tr[data-key=${JSON.stringify(key)}]`);
const cell = (page, key, column) => row(page, key).locator(`[data-column="${column}"]`);
/** Waits for an element with a text. */
const shows = (locator, text) => locator.filter({ hasText: text }).waitFor();
const gone = (locator) => locator.waitFor({ state: "detached" });

test("a lock appears and moves, its waiter queues and is let in, and all goes", limit, async () => {
  const page = await world.open(await world.serve());
  await shows(page.locator("#empty"), "distlock run demo -- sleep 30");

  const alice = world.run("demo", "alice", "--reason", "release 1.9");
  await shows(cell(page, "demo", "holder"), "alice");
  await shows(cell(page, "demo", "holder"), "release 1.9");
  const bar = () => row(page, "demo").locator(".fill").evaluate((fill) => fill.style.transform);
  const before = await bar();
  await page.waitForFunction((was) =>
    document.querySelector('#rows [data-key="demo"] .fill').style.transform !== was, before);
  const fence = await cell(page, "demo", "fence").textContent();

  const bob = world.run("demo", "bob");
  await shows(cell(page, "demo", "queue"), "1");
  await row(page, "demo").click();
  await shows(page.locator("#detail"), "bob");
  await shows(page.locator("#detail .timeline"), "alice");
  await page.keyboard.press("Escape");

  alice.kill("SIGTERM");
  await shows(cell(page, "demo", "holder"), "bob");
  await shows(cell(page, "demo", "queue"), "–");
  assert.notEqual(await cell(page, "demo", "fence").textContent(), fence);

  bob.kill("SIGTERM");
  await gone(row(page, "demo"));
  await shows(page.locator("#empty"), "No locks yet");

  await page.keyboard.press("/");
  await page.keyboard.type("demo");
  await shows(page.locator("#empty"), "Look at the key demo");
  await page.keyboard.press("Enter");
  await shows(page.locator("#detail .standing"), "free");
  await shows(page.locator("#detail .list"), "alice");
  assert.deepEqual(world.complaints, []);
});

test("a hold that nobody ended is over where the next begins", limit, async () => {
  const page = await world.open(await world.serve());
  const alice = world.run("demo", "alice", "-t", "6s", "--kill-after", "1s");
  await shows(cell(page, "demo", "holder"), "alice");
  world.run("demo", "bob");
  await shows(cell(page, "demo", "queue"), "1");
  alice.kill("SIGKILL");
  await shows(cell(page, "demo", "holder"), "bob");
  await row(page, "demo").click();
  const box = (kind) => page.locator(`#detail .track .visit[data-kind="${kind}"]`).boundingBox();
  const [lost, held] = [await box("lost"), await box("held")];
  assert.ok(lost.x + lost.width <= held.x + 4, `${JSON.stringify(lost)} ${JSON.stringify(held)}`);
  await shows(page.locator("#detail .list"), "vanished");
  assert.deepEqual(world.complaints, []);
});

test("a quorum shows its nodes and, as they happen, locks that it cannot list", limit, async () => {
  const ports = await Promise.all([freePort(), freePort(), freePort()]);
  const nodes = ports.map((port) => world.spawn("redis-server", ["--port", String(port),
    "--bind", "127.0.0.1", "--save", "", "--dir", world.folder]));
  const urls = ports.map((port) => `node=redis://127.0.0.1:${port}`);
  // Nodes that are down say so at once; the others may be slow.
  world.store = `quorum:?${urls.join("&")}&node_timeout_ms=5000`;
  const page = await world.open(await world.serve());
  const card = page.locator('[data-card="nodes"]');
  await shows(card, "3 of 3");
  await shows(page.locator("#empty"), "cannot list");
  await shows(page.locator("#link"), "live");
  world.run("demo", "alice");
  await shows(cell(page, "demo", "holder"), "alice");
  nodes[1].kill("SIGKILL");
  await shows(card, "2 of 3");
  await shows(page.locator("#nodes"), `redis://127.0.0.1:${ports[1]} is down`);
  await shows(cell(page, "demo", "holder"), "alice");
  assert.deepEqual(world.complaints, []);
});

test("the quorum of redlock is shown beside the store of the locks", limit, async () => {
  const ports = await Promise.all([freePort(), freePort(), freePort()]);
  const nodes = ports.map((port) => world.spawn("redis-server", ["--port", String(port),
    "--bind", "127.0.0.1", "--save", "", "--dir", world.folder]));
  const urls = ports.map((port) => `node=redis://127.0.0.1:${port}`);
  const quorum = `quorum:?${urls.join("&")}&node_timeout_ms=5000`;
  const page = await world.open(await world.serve("--redlock", quorum));
  const card = page.locator('[data-card="nodes"]');
  await shows(card, "Redlock nodes up");
  await shows(card, "3 of 3");
  world.run("demo", "alice");
  await shows(cell(page, "demo", "holder"), "alice");
  nodes[0].kill("SIGKILL");
  nodes[1].kill("SIGKILL");
  await shows(page.locator("#nodes"), "redlock has no majority");
  // The locks of the other patterns go on.
  await shows(page.locator("#link"), "live");
  await shows(page.locator('[data-card="held"]'), "1");
  assert.deepEqual(world.complaints, []);
});

test("a break asks for the key and a reason, and then works", limit, async () => {
  const page = await world.open(await world.serve(), { width: 360, height: 740 });
  world.run("deploy/prod", "stuck");
  await row(page, "deploy/prod").click();
  await page.getByRole("button", { name: "Break…" }).click();
  const go = page.locator("#break-go");
  assert.equal(await go.isDisabled(), true);
  await page.locator("#break-reason").fill("stuck since noon");
  await page.locator("#break-key").fill("deploy/pro");
  assert.equal(await go.isDisabled(), true, "the key is not typed in full");
  await page.locator("#break-key").fill("deploy/prod");
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), 360);
  await go.click();
  await shows(page.locator("#toast"), "Broken: deploy/prod");
  await shows(page.locator("#detail .standing"), "free");
  await gone(row(page, "deploy/prod"));
  assert.deepEqual(world.complaints, []);
});

test("text of others stays text, wherever it is shown", limit, async () => {
  const owner = "<img src=x onerror=window.pwned=1>";
  const reason = "<script>window.pwned=1</script>";
  const key = "<b>k</b>'&\"";
  const page = await world.open(await world.serve());
  world.run(key, owner, "--reason", reason);
  const hostile = page.locator("#rows tr");
  await shows(hostile.locator('[data-column="holder"]'), owner);
  assert.equal(await hostile.locator(".reason").textContent(), reason);
  assert.equal(await hostile.locator("button.key").textContent(), key);
  world.run(key, `${owner}2`);
  await shows(hostile.locator('[data-column="queue"]'), "1");
  await hostile.click();
  await shows(page.locator("#detail .holder strong"), owner);
  await page.getByRole("button", { name: "Break…" }).click();
  await shows(page.locator("#break strong"), owner);
  await page.getByRole("button", { name: "Keep it" }).click();
  await page.locator("#detail").getByRole("button", { name: "Close" }).click();
  await page.keyboard.press("w");
  await shows(page.locator("#waits .name").first(), owner);
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await page.locator("main img, #detail img, #break img, main b").count(), 0);
  assert.deepEqual(world.complaints, []);
});

test("who may only look is offered no break", limit, async () => {
  const file = join(world.folder, "tokens");
  writeFileSync(file, `${ADMIN} admin\n${READER} read\n`, { mode: 0o600 });
  const page = await world.open(await world.serve("--token-file", file));
  world.run("demo", "alice");
  const enter = async (token) => {
    await page.locator("#token-value").fill(token);
    await page.locator("#token-value").press("Enter");
  };
  await enter("wrong-0123456789abcdef");
  await shows(page.locator("#token-why"), "not known");
  await enter(READER);
  await row(page, "demo").click();
  await shows(page.locator("#detail .holder"), "alice");
  assert.equal(await page.getByText("Break…").count(), 0);
  await page.keyboard.press("Escape");
  await page.locator("#token-open").click();
  await enter(ADMIN);
  await shows(page.locator("#token-open"), "Admin");
  await row(page, "demo").click();
  await page.getByRole("button", { name: "Break…" }).waitFor();
  assert.deepEqual(world.complaints, []);
});

test("the last rows stay, grey, while the store is down, and live on when it is back", limit,
  async () => {
    const port = await freePort();
    const redis = () => world.spawn("redis-server", ["--port", String(port), "--bind", "127.0.0.1",
      "--save", "", "--dir", world.folder]);
    const server = redis();
    world.store = `redis://127.0.0.1:${port}/`;
    const page = await world.open(await world.serve());
    world.run("demo", "alice", "--if-down", "fail");
    await shows(cell(page, "demo", "holder"), "alice");
    server.kill("SIGKILL");
    await shows(page.locator("#banner"), "The store does not answer. Since");
    await shows(cell(page, "demo", "holder"), "alice");
    redis();
    await page.locator("#banner").waitFor({ state: "hidden" });
  });

test("of many locks only those on the screen are made, and the keyboard reaches the last", limit,
  async () => {
    const url = await world.serve();
    const page = await world.open(url);
    const take = async (n) => {
      const answer = await fetch(`${url}/api/v1/locks/many%2F${n}/leases`, {
        method: "POST", headers: { "content-type": "application/json" },
        body: JSON.stringify({ owner: `owner-${n}`, ttlMs: 600_000 }),
      });
      assert.equal(answer.status, 201);
    };
    const numbers = Array.from({ length: 300 }, (_, n) => String(n).padStart(3, "0"));
    while (numbers.length) await Promise.all(numbers.splice(0, 20).map(take));
    await shows(page.locator("#count"), "300 locks");
    const made = await page.locator("#rows tr").count();
    assert.ok(made > 0 && made < 60, `${made} rows are made`);
    await page.locator("#rows button.key").first().press("End");
    await row(page, "many/299").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("owner-123");
    await shows(page.locator("#count"), "1 of 300");
    await shows(cell(page, "many/123", "holder"), "owner-123");
    assert.deepEqual(world.complaints, []);
  });
