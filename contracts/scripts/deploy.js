// Deploys VeriLLM with all its contracts, as `verillm deploy` does: the same environment, the same
// plan, state file and addresses file. Without VERILLM_BROADCAST=1 it is a dry run.
//   npx hardhat run contracts/scripts/deploy.js --network live
// VERILLM_RPC            the RPC server (network `live`)
// VERILLM_DEPLOYER_KEY   the key; or VERILLM_KEY, a keystore, and VERILLM_PASSWORD[_FILE]
// VERILLM_CHAIN_ID       which chain it must be
// VERILLM_TERMS          a terms file, judged by `verillm params` (VERILLM_PYTHON runs it)
// VERILLM_CONFIG         dev chains only: Config as JSON (default contracts/scripts/devnet.json)
// VERILLM_TOKEN          the fee token; a DevToken on dev chains
// VERILLM_DEPLOYMENT     the addresses file (default deployment.json)
// VERILLM_BROADCAST, VERILLM_YES   1 to send; on a live chain both, after a dry run
const { execFileSync } = require("child_process");
const fs = require("fs");
const path = require("path");
const hre = require("hardhat");
const { Transaction, addr } = require("micro-eth-signer");
const { deployerKey } = require("./key");
const plans = require("./plan");
const { Refused } = require("./refused");

const DEV_CHAINS = [1337, 31337];
const HISTORY = "0x0000f90827f1c53a10cb7a02335b175320002935";
const PROBE = "0x5f5f5f5e60015f5260205ff3";
const CALL_LIMIT = 15_000_000;
const CONFIRMATIONS = 3;
const STEP_SECONDS = 900;
const STUCK_SECONDS = 60;
const LOST_POLLS = 20;
const env = process.env;

const ask = (method, ...params) => hre.network.provider.send(method, params);
const pause = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));
const codeAt = (address) => ask("eth_getCode", address, "latest");
const nonceOf = async (address, tag = "latest") =>
  Number(await ask("eth_getTransactionCount", address, tag));

// ── What is asked for ──────────────────────────────────────────────────────────────────────────
/** Config's fields, from a terms file that `verillm params` finds safe, or on a dev chain as is. */
function termsOf(local) {
  if (env.VERILLM_TERMS) {
    const python = env.VERILLM_PYTHON || "python3";
    const words = ["-m", "verillm.cli", "params", "--terms", env.VERILLM_TERMS, "--contract"];
    try {
      const options = { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] };
      return JSON.parse(execFileSync(python, words, options));
    } catch (error) {
      const said = (error.stderr || error.message).trim();
      throw new Refused("unsafe_parameters", said, "Correct the terms file (VERILLM_TERMS).");
    }
  }
  if (!local) {
    throw new Refused("bad_input", "no terms", "Set VERILLM_TERMS: `verillm params --toml` writes them.");
  }
  const file = env.VERILLM_CONFIG || path.join(__dirname, "devnet.json");
  return JSON.parse(fs.readFileSync(file, "utf8"));
}

async function askedOf() {
  const chainId = Number(await ask("eth_chainId"));
  if (env.VERILLM_CHAIN_ID && Number(env.VERILLM_CHAIN_ID) !== chainId) {
    const fact = `this is chain ${chainId}, not ${env.VERILLM_CHAIN_ID}`;
    throw new Refused("wrong_chain", fact, "Point at the chain that you mean.");
  }
  const local = DEV_CHAINS.includes(chainId);
  if (!local && !env.VERILLM_CHAIN_ID) {
    throw new Refused("bad_input", "no chain named", "Set VERILLM_CHAIN_ID to the chain you mean.");
  }
  const token = env.VERILLM_TOKEN || plans.ZERO;
  if (!local && token === plans.ZERO) {
    throw new Refused("bad_input", "no token", "Set VERILLM_TOKEN: a DevToken is for dev chains.");
  }
  const addresses = env.VERILLM_DEPLOYMENT || "deployment.json";
  return { chainId, local, terms: { ...termsOf(local), token }, addresses, state: addresses + ".state" };
}

// ── The state file ─────────────────────────────────────────────────────────────────────────────
function save(file, value) {
  const descriptor = fs.openSync(file + ".part", "w");
  fs.writeSync(descriptor, JSON.stringify(value, null, 2) + "\n");
  fs.fsyncSync(descriptor);
  fs.closeSync(descriptor);
  fs.renameSync(file + ".part", file);
}

const read = (file) => (fs.existsSync(file) ? JSON.parse(fs.readFileSync(file, "utf8")) : null);

/** The plan: the begun one's nonces if one has begun, else from now on. */
async function prepare(asked, deployer, artifacts) {
  const progress = read(asked.state);
  const terms = plans.configOf(artifacts.VeriLLM.abi, asked.terms);
  const plan = (nonce) => plans.makePlan(asked.chainId, deployer, nonce, terms, artifacts);
  if (!progress || !Object.keys(progress.sent).length) {
    const nonce = await nonceOf(deployer);
    if ((await nonceOf(deployer, "pending")) !== nonce) {
      const fact = `${deployer} has transactions on their way`;
      throw new Refused("deploy_refused", fact, "Wait until they are mined.");
    }
    return { plan: plan(nonce), progress };
  }
  const begun = plan(progress.firstNonce);
  if (plans.digestOf(begun) !== progress.plan) {
    const fact = "a deployment was begun with other terms, models, contracts, key or chain";
    throw new Refused("plan_changed", fact, "Go on as it was begun, or move the state file away.");
  }
  return { plan: begun, progress };
}

async function requireNew(asked) {
  const named = read(asked.addresses);
  if (!named) return;
  const remedy = "Use it; or name another file (VERILLM_DEPLOYMENT) to deploy once more.";
  if (named.chainId !== asked.chainId || (await codeAt(named.contract)) !== "0x") {
    const fact = `${asked.addresses} names ${named.contract} on chain ${named.chainId}`;
    throw new Refused("already_deployed", fact, remedy);
  }
}

// ── The dry run ────────────────────────────────────────────────────────────────────────────────
async function requireFeatures(head) {
  const remedy = "Deploy to a chain at Prague or later.";
  const missing = (feature, fact) => new Refused("feature_missing", `${feature}: ${fact}`, remedy);
  if ((await codeAt(HISTORY)) === "0x") throw missing("EIP-2935", `nothing stands at ${HISTORY}`);
  if (!head.baseFeePerGas) throw missing("EIP-1559", "blocks name no base fee");
  if (BigInt(head.number) > 0n) {
    const data = "0x" + plans.word(BigInt(head.number) - 1n);
    const known = await ask("eth_call", { from: plans.STRANGER, to: HISTORY, data }, "latest");
    if (known !== head.parentHash) throw missing("EIP-2935", "it does not know the last block's hash");
  }
  const answer = await ask("eth_call", { from: plans.STRANGER, data: PROBE }, "latest").catch(() => "");
  if (answer !== "0x" + plans.word(1)) throw missing("EIP-3855, EIP-5656", "no PUSH0 or MCOPY");
}

async function requireToken(plan) {
  const { token } = plan.config;
  if (plan.steps.some((step) => step.address === token)) return;
  const remedy = "Set VERILLM_TOKEN to a plain ERC-20 on this chain.";
  const calls = ["0x313ce567", "0x18160ddd", "0x70a08231" + plans.word(plans.STRANGER)];
  for (const data of calls) {
    const answer = await ask("eth_call", { to: token, data }, "latest").catch(() => "0x");
    if (answer.length !== 66) throw new Refused("not_a_token", `${token} is no token`, remedy);
  }
}

/** Gas and code of every step, simulated as if those before it were done. */
async function survey(plan) {
  const head = await ask("eth_getBlockByNumber", "latest", false);
  await requireFeatures(head);
  await requireToken(plan);
  const mined = await nonceOf(plan.deployer);
  const overrides = {};
  const found = [];
  for (const step of plan.steps) {
    const done = step.nonce < mined;
    const from = step.address ? plans.STRANGER : plan.deployer;
    const message = step.to ? { from, to: step.to, data: step.data } : { from, data: step.data };
    const asked = [message, "latest", ...(Object.keys(overrides).length ? [{ ...overrides }] : [])];
    const gas = done ? 0 : Number(await ask("eth_estimateGas", ...asked));
    const code = step.address && plans.placed(await ask("eth_call", ...asked), plan.chainId, step.address);
    if (code) overrides[step.address] = { code };
    found.push({ ...step, done, gas, limit: done ? 0 : gas + Math.floor(gas / 4) + 10_000, code });
  }
  const tip = BigInt(await ask("eth_maxPriorityFeePerGas"));
  const maximum = 2n * BigInt(head.baseFeePerGas) + tip;
  const balance = BigInt(await ask("eth_getBalance", plan.deployer, "latest"));
  const reserve = maximum * BigInt(found.reduce((sum, step) => sum + step.limit, 0));
  const needed = Math.max(CALL_LIMIT, ...found.map((step) => step.limit));
  if (Number(head.gasLimit) < needed) {
    const fact = `block gas: a block holds ${Number(head.gasLimit)}, a call needs ${needed}`;
    throw new Refused("feature_missing", fact, "Deploy to a chain with larger blocks.");
  }
  if (balance < reserve) {
    const fact = `${plan.deployer} holds ${balance} wei, the deployment may need ${reserve}`;
    throw new Refused("funds_too_low", fact, "Send it the missing amount.");
  }
  return { steps: found, balance, reserve };
}

function print(plan, { steps, balance, reserve }) {
  console.log(`chain ${plan.chainId}, deployer ${plan.deployer} holds ${balance} wei`);
  for (const { nonce, name, address, gas, done } of steps) {
    console.log(`${nonce}\t${name}\t${address || ""}\t${done ? "done" : gas}`);
  }
  console.log(`terms ${JSON.stringify(plan.config)}`);
  console.log(`${reserve} wei must be there`);
}

// ── Sending ────────────────────────────────────────────────────────────────────────────────────
async function receiptsOf(step, progress) {
  const hashes = progress.sent[step.name] || [];
  return Promise.all(hashes.map((each) => ask("eth_getTransactionReceipt", each)));
}

async function isDone(step, progress) {
  if (step.address) {
    const code = await codeAt(step.address);
    if (code !== "0x" && code !== step.code) {
      const fact = `other code than ${step.name}'s at ${step.address}`;
      throw new Refused("deployment_differs", fact, "Do not use it: deploy anew.");
    }
    return code !== "0x";
  }
  const receipts = await receiptsOf(step, progress);
  if (receipts.some((each) => each && each.status === "0x1")) return true;
  return step.name === "mint" && (await isMinted(step));
}

const isMinted = async (step) =>
  BigInt(await ask("eth_call", { to: step.to, data: "0x18160ddd" }, "latest").catch(() => "0x0")) > 0n;

/** Signs for the planned nonce, records, sends; each try offers more than the one before. */
async function push(step, plan, progress, asked, key) {
  const tries = (progress.sent[step.name] || []).slice(0, 10);
  const head = await ask("eth_getBlockByNumber", "latest", false);
  let tip = BigInt(await ask("eth_maxPriorityFeePerGas"));
  let maximum = 2n * BigInt(head.baseFeePerGas) + tip;
  for (const _ of tries) [maximum, tip] = [maximum + maximum / 4n + 1n, tip + tip / 4n + 1n];
  const message = { from: plan.deployer, data: step.data, ...(step.to ? { to: step.to } : {}) };
  const gas = BigInt(await ask("eth_estimateGas", message));
  const signed = Transaction.prepare({
    to: step.to || "0x",
    value: 0n,
    nonce: BigInt(step.nonce),
    maxFeePerGas: maximum,
    maxPriorityFeePerGas: tip,
    gasLimit: gas + gas / 4n + 10_000n,
    chainId: BigInt(plan.chainId),
    data: step.data,
  }).signBy(key, false);
  progress.sent[step.name] = [...(progress.sent[step.name] || []), "0x" + signed.hash];
  save(asked.state, progress);
  try {
    await ask("eth_sendRawTransaction", signed.toHex());
  } catch (error) {
    const known = /already known|already imported|underpriced|nonce too low/i.test(error.message);
    if (!known) throw error;
  }
}

async function settle(step, plan, progress, asked, key) {
  const deadline = Date.now() + 1000 * STEP_SECONDS;
  for (let sendAt = 0, lost = 0; !(await isDone(step, progress)); await pause(0.1)) {
    if ((await nonceOf(plan.deployer)) > step.nonce) {
      const receipts = await receiptsOf(step, progress);
      if (receipts.some((each) => each && each.status !== "0x1")) {
        throw new Refused("transaction_failed", `${step.name} reverted`, "Look at its receipt.");
      }
      if (++lost > LOST_POLLS) {
        const fact = `nonce ${step.nonce} was used by what is not ${step.name}`;
        throw new Refused("nonce_taken", fact, "Move the state file away and deploy anew.");
      }
    } else if (Date.now() >= sendAt) {
      await push(step, plan, progress, asked, key);
      sendAt = Date.now() + 1000 * STUCK_SECONDS;
    }
    if (Date.now() > deadline) {
      throw new Refused("timeout", `${step.name} was not mined`, "Run this again: it goes on.");
    }
  }
  console.log(`${step.name}: ${step.address || "done"}`);
}

/** The receipt of VeriLLM's creation, once enough blocks stand on it. */
async function confirmed(step, progress, asked) {
  const wanted = asked.local ? 0 : CONFIRMATIONS;
  for (;;) {
    const receipts = await receiptsOf(step, progress);
    const found = receipts.find((each) => each && each.status === "0x1");
    const newest = Number(await ask("eth_blockNumber"));
    if (found && newest >= Number(found.blockNumber) + wanted) return found;
    await pause(0.5);
  }
}

/** What the contract says of its own terms, as one string of words. */
async function requireTerms(plan) {
  const answer = await ask("eth_call", { to: plan.contract, data: "0x79502c55" }, "latest");
  if (answer !== "0x" + Object.values(plan.config).map(plans.word).join("")) {
    const fact = `the terms of ${plan.contract} are not those planned`;
    throw new Refused("deployment_differs", fact, "Do not use it: deploy anew.");
  }
}

async function send(found, plan, progress, asked, key) {
  for (const step of found.steps) await settle(step, plan, progress, asked, key);
  const last = found.steps.find((step) => step.address === plan.contract);
  const receipt = await confirmed(last, progress, asked);
  for (const step of found.steps) await isDone(step, progress);
  await requireTerms(plan);
  const { adjudicator, prover, token } = plan.config;
  const standing = [plan.contract, ...Object.values(plan.extensions), adjudicator, prover];
  const codes = await Promise.all(standing.map(codeAt));
  const hashes = codes.map((code) => plans.toHex(plans.hash(plans.fromHex(code))));
  save(asked.addresses, {
    chainId: plan.chainId,
    contract: plan.contract,
    adjudicator,
    prover,
    token,
    block: Number(receipt.blockNumber),
    transaction: receipt.transactionHash,
    made: {
      version: versionOf(),
      deployer: plan.deployer,
      extensions: plan.extensions,
      config: plan.config,
      codeHashes: Object.fromEntries(plans.CODED.map((name, i) => [name, hashes[i]])),
    },
  });
  console.log(`VeriLLM ${plan.contract}, token ${token}: ${asked.addresses}`);
}

/** The package's version, from where Python has it. */
function versionOf() {
  const file = path.join(__dirname, "..", "..", "verillm", "__init__.py");
  return /^__version__ = "([^"]+)"$/m.exec(fs.readFileSync(file, "utf8"))[1];
}

async function main() {
  const key = deployerKey(env);
  const asked = await askedOf();
  await requireNew(asked);
  const artifacts = {};
  for (const name of [...plans.CODED, "DevToken"]) artifacts[name] = await hre.artifacts.readArtifact(name);
  const { plan, progress } = await prepare(asked, addr.fromPrivateKey(key), artifacts);
  const found = await survey(plan);
  print(plan, found);
  const digest = plans.digestOf(plan);
  const known = progress !== null && progress.plan === digest;
  const { chainId, deployer, firstNonce } = plan;
  const state = known ? progress : { chainId, deployer, firstNonce, plan: digest, sent: {} };
  if (env.VERILLM_BROADCAST !== "1") {
    save(asked.state, state);
    console.log("dry run: nothing was sent. To deploy, set VERILLM_BROADCAST=1");
    return;
  }
  if (!asked.local && !(known && env.VERILLM_YES === "1")) {
    const fact = known ? "VERILLM_YES=1 is missing" : "no dry run of this plan was made before";
    const remedy = "Make a dry run, read its plan, then set VERILLM_BROADCAST=1 and VERILLM_YES=1.";
    throw new Refused("not_confirmed", `chain ${chainId} is live, and ${fact}`, remedy);
  }
  save(asked.state, state);
  await send(found, plan, state, asked, key);
}

main().catch((error) => {
  console.error(`error [${error.code || "chain_error"}]: ${error.message}`);
  console.error(`remedy: ${error.remedy || "Check the RPC server and the network between."}`);
  process.exitCode = error instanceof Refused ? 3 : 5;
});
