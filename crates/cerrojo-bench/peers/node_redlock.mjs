// Takes turns with the lock of node-redlock, as it comes, but without a limit to its tries.
//
// The protocol is that of `cerrojo_bench::fleet`: `ready` is printed, a line on standard input starts the turns, they end
// with the standard input or after `--rounds`, and then all of them are printed as one line of JSON.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

// Unlike `import`, `require` looks into NODE_PATH.
const require = createRequire(import.meta.url);
const { Redis } = require("ioredis");
const { default: Redlock } = require("redlock");

const job = parsed();
const client = new Redis({ host: "127.0.0.1", port: job.redis });
const locks = new Redlock([client], { retryCount: -1 });
// Each try in vain is an event; without a listener it would end the program.
locks.on("error", () => {});

let over = false;
const stopped = new AbortController();

await client.ping();
const input = createInterface({ input: process.stdin });
console.log("ready");
await new Promise((start) => input.once("line", start).once("close", start));
input.once("close", stop);
const tasks = Array.from({ length: job.tasks }, (_, task) => takeTurns(task));
const turns = await Promise.all(tasks);
// What a pipe has not taken yet is lost at an exit.
await new Promise((written) => process.stdout.write(`${JSON.stringify(turns.flat())}\n`, written));
input.removeListener("close", stop);
input.close();
await client.quit();
process.exit(0);

function parsed() {
  const text = { type: "string" };
  const names = ["redis", "rounds", "tasks", "hold", "between", "ttl", "name", "id", "counter"];
  const options = Object.fromEntries(names.map((name) => [name, text]));
  const { values } = parseArgs({ options: { ...options, "own-names": { type: "boolean" } } });
  const numbers = { redis: 0, rounds: 1, tasks: 1, hold: 0, between: 0, ttl: 30_000 };
  for (const [name, otherwise] of Object.entries(numbers)) {
    numbers[name] = Number(values[name] ?? otherwise);
  }
  return { ...values, ...numbers };
}

function stop() {
  over = true;
  stopped.abort();
}

async function takeTurns(task) {
  const name = job["own-names"] ? `${job.name}/${task}` : job.name;
  const turns = [];
  while (!over && turns.length < job.rounds) {
    const asked = now();
    const lock = await locks.acquire([name], job.ttl);
    const acquired = now();
    await work();
    turns.push([task, asked, acquired, now()]);
    await lock.release();
    if (job.between) {
      // An end of the pause before its time is meant.
      await sleep(job.between, null, { signal: stopped.signal }).catch(() => {});
    }
  }
  return turns;
}

// Reads, adds and writes as carelessly as it can: only the lock around it makes it right.
async function work() {
  const before = job.counter ? Number((await client.get(job.counter)) ?? 0) : 0;
  if (job.hold) {
    await sleep(job.hold);
  }
  if (job.counter) {
    await client.set(job.counter, before + 1);
    await client.rpush(`${job.counter}/order`, job.id);
  }
}

function now() {
  return Number(process.hrtime.bigint());
}
