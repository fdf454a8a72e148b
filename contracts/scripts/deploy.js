// Deploys VeriLLM with all its contracts, and a DevToken where the configuration names no token:
//   npx hardhat run contracts/scripts/deploy.js --network NAME
// VERILLM_CONFIG names the JSON configuration (default contracts/scripts/devnet.json): the fields of
// `Config` in Types.sol, amounts as decimal strings; addresses are filled in here.
// VERILLM_DEPLOYMENT names a file to write the addresses to.
const fs = require("fs");
const path = require("path");
const hre = require("hardhat");

const CONFIG = process.env.VERILLM_CONFIG || path.join(__dirname, "devnet.json");
// Contracts whose code VeriLLM runs on its own storage, in the order in which it asks them.
const EXTENSIONS = ["Recourse", "Summons", "Wages", "Appeals"];
const ZERO = "0x" + "0".repeat(40);

const PAD = 64;
const word = (value) => BigInt(value).toString(16).padStart(PAD, "0");

/** The fields of Config in the contract's own order, from its ABI. */
function encode(artifact, config) {
  const [terms] = artifact.abi.find((entry) => entry.type === "constructor").inputs;
  const names = terms.components.map((field) => field.name);
  const strangers = Object.keys(config).filter((name) => !names.includes(name));
  if (strangers.length) throw new Error(`unknown fields in ${CONFIG}: ${strangers.join(", ")}`);
  return terms.components
    .map((field) => {
      if (config[field.name] === undefined) throw new Error(`${CONFIG}: no ${field.name}`);
      return word(config[field.name]);
    })
    .join("");
}

/** Sends a creation from the network's first account and waits for its receipt. */
async function create(name, args = "") {
  const { bytecode } = await hre.artifacts.readArtifact(name);
  const send = (method, ...params) => hre.network.provider.send(method, params);
  const [from] = await send("eth_accounts");
  const hash = await send("eth_sendTransaction", { from, data: bytecode + args });
  for (let tries = 0; tries < 120; ++tries) {
    const receipt = await send("eth_getTransactionReceipt", hash);
    if (receipt) {
      if (receipt.status !== "0x1") throw new Error(`${name}: creation reverted (${hash})`);
      return receipt;
    }
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  throw new Error(`${name}: not mined within a minute (${hash})`);
}

async function main() {
  const config = JSON.parse(fs.readFileSync(CONFIG, "utf8"));
  const address = async (name, args) => (await create(name, args)).contractAddress;
  const token = !config.token || config.token === ZERO ? await address("DevToken") : config.token;
  const adjudicator = await address("Adjudicator");
  const prover = await address("Prover");
  const artifact = await hre.artifacts.readArtifact("VeriLLM");
  const terms = { ...config, token, adjudicator, prover, recourse: ZERO };
  let recourse = ZERO;
  for (const name of [...EXTENSIONS].reverse()) {
    recourse = await address(name, encode(artifact, terms) + word(recourse));
  }
  const receipt = await create("VeriLLM", encode(artifact, { ...terms, recourse }));
  // The same file as verillm.chain.deployment writes.
  const deployment = {
    chainId: Number(await hre.network.provider.send("eth_chainId")),
    contract: receipt.contractAddress,
    adjudicator,
    prover,
    token,
    block: Number(receipt.blockNumber),
    transaction: receipt.transactionHash,
  };
  console.log(JSON.stringify(deployment, null, 2));
  if (process.env.VERILLM_DEPLOYMENT) {
    fs.writeFileSync(process.env.VERILLM_DEPLOYMENT, JSON.stringify(deployment, null, 2) + "\n");
  }
}

main().catch((error) => {
  console.error(error.message);
  process.exitCode = 1;
});
