// npm's redlock, used as any other program would use it.
//
// Arguments: the folder with the packages, then the ports of the servers.
// Every line of input is a step, ["take", key, ttl_ms], ["extend", key, ms] or ["release", key];
// every line of output says whether it was done.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, ...ports] = process.argv.slice(2);
const require = createRequire(`${folder}/`);
const Redis = require("ioredis");
const { default: Redlock, ExecutionError } = require("redlock");

const servers = ports.map((port) => new Redis(Number(port)));
const redlock = new Redlock(servers, { retryCount: 0 });
const held = new Map();

const steps = {
  take: async (key, ttl) => held.set(key, await redlock.acquire([key], ttl)),
  extend: async (key, ms) => held.set(key, await held.get(key).extend(ms)),
  release: async (key) => held.get(key).release(),
};

async function done([verb, ...args]) {
  try {
    await steps[verb](...args);
    return true;
  } catch (error) {
    if (error instanceof ExecutionError) return false;
    throw error;
  }
}

console.log(true);
for await (const line of createInterface({ input: process.stdin })) {
  console.log(await done(JSON.parse(line)));
}
process.exit();
