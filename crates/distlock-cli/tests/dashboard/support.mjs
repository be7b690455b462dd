// A browser, services, commands and stores of a test's own, all of which end with it.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const require = createRequire(join(process.env.DISTLOCK_BROWSER, "package.json"));
const { chromium } = require("playwright-core");
const BIN = process.env.DISTLOCK_BIN;

/** The longest that anything may take on a machine that has other things to do. */
export const PATIENCE_MS = 40_000;

export const ADMIN = "admin-0123456789abcdef";
export const READER = "reader-0123456789abcdef";

/** A browser that asks nobody anything but the service. */
export const launch = () => chromium.launch({
  executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"],
  timeout: PATIENCE_MS,
});

/** What a test uses, to be ended with it. */
export class World {
  children = [];
  complaints = [];

  constructor(browser) {
    this.browser = browser;
    this.folder = mkdtempSync(join(tmpdir(), "distlock-dashboard-"));
    this.store = `sqlite:${join(this.folder, "locks.sqlite")}`;
  }

  spawn(program, args, io = "ignore") {
    const child = spawn(program, args, { stdio: ["ignore", "ignore", io] });
    child.gone = new Promise((done) => { child.on("exit", done); });
    this.children.push(child);
    return child;
  }

  /** Starts a service and returns its address. */
  serve(...args) {
    const child = this.spawn(BIN, ["serve", "-b", this.store, "--listen", "127.0.0.1:0",
      "--terraform-state", join(this.folder, "states.sqlite"), ...args], "pipe");
    let said = "";
    return new Promise((found, missed) => {
      // It is read to its end: a service whose log is closed cannot write it.
      child.stderr.on("data", (piece) => {
        said += piece;
        const address = said.match(/listening on (\S+)/);
        if (address) found(address[1]);
      });
      child.on("exit", () => missed(new Error(`the service did not start: ${said}`)));
    });
  }

  /** Holds a key with the real command until it is ended. */
  run(key, owner, ...more) {
    return this.spawn(BIN, ["run", "-q", "-b", this.store, "--owner", owner, ...more, key, "--",
      "sleep", "600"]);
  }

  /** Opens a page that may say nothing bad in the console. */
  async open(url, { width = 1280, height = 800 } = {}) {
    const context = await this.browser.newContext({ viewport: { width, height } });
    context.setDefaultTimeout(PATIENCE_MS);
    const page = await context.newPage();
    page.on("pageerror", (error) => this.complaints.push(String(error)));
    page.on("console", (message) => {
      const text = message.text();
      if (message.type() === "error" && !text.startsWith("Failed to load resource")) {
        this.complaints.push(text);
      }
    });
    this.context = context;
    await page.goto(url);
    return page;
  }

  async end() {
    await this.context?.close();
    for (const child of this.children) child.kill("SIGTERM");
    const late = setTimeout(() => this.children.forEach((child) => child.kill("SIGKILL")), 5000);
    await Promise.all(this.children.map((child) => child.gone));
    clearTimeout(late);
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A port that nobody listens on. */
export async function freePort() {
  const server = createServer();
  await new Promise((done) => { server.listen(0, "127.0.0.1", done); });
  const { port } = server.address();
  await new Promise((done) => { server.close(done); });
  return port;
}
