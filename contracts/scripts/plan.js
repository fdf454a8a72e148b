// What a deployment sends, in order, and where each contract will stand: the plan that
// verillm.chain.plan makes, to the byte, so that either can go on with what the other began.
const { keccak256 } = require("ethereum-cryptography/keccak");
const { addr } = require("micro-eth-signer");

// Contracts whose code VeriLLM runs on its own storage, in the order in which it asks them.
const EXTENSIONS = ["Recourse", "Summons", "Wages", "Appeals"];
const CODED = ["VeriLLM", ...EXTENSIONS, "Adjudicator", "Prover"];
const ZERO = "0x" + "0".repeat(40);
const SUPPLY = 10n ** 27n;
const MINT = "40c10f19"; // mint(address,uint256)

const hash = (bytes) => Buffer.from(keccak256(bytes));
const fromHex = (text) => Buffer.from(text.replace(/^0x/, ""), "hex");
const toHex = (bytes) => "0x" + bytes.toString("hex");
const word = (value) => BigInt(value).toString(16).padStart(64, "0");
const checksum = (address) => addr.addChecksum(address);
// An address that never sent anything: what is simulated from it collides with nothing.
const STRANGER = toHex(hash(Buffer.from("verillm: who never sends")).subarray(12));

/** Where CREATE puts a contract: the last 20 bytes of keccak(rlp([sender, nonce])). */
function createdAddress(sender, nonce) {
  const digits = nonce ? nonce.toString(16) : "";
  let number = fromHex(digits.length % 2 ? "0" + digits : digits);
  if (number.length !== 1 || number[0] >= 0x80) {
    number = Buffer.concat([Buffer.from([0x80 + number.length]), number]);
  }
  const body = Buffer.concat([Buffer.from([0x94]), fromHex(sender), number]);
  return checksum(toHex(hash(Buffer.concat([Buffer.from([0xc0 + body.length]), body])).subarray(12)));
}

/** The fields of Config in the contract's own order and form: amounts are decimal strings. */
function configOf(abi, values) {
  const [struct] = abi.find((entry) => entry.type === "constructor").inputs;
  const names = struct.components.map((part) => part.name);
  const strangers = Object.keys(values).filter((name) => !names.includes(name));
  if (strangers.length) throw new Error(`unknown terms: ${strangers.join(", ")}`);
  const found = {};
  for (const { name, type } of struct.components) {
    const value = values[name] ?? (type === "address" ? ZERO : undefined);
    if (value === undefined) throw new Error(`no ${name} among the terms`);
    if (type === "address") found[name] = BigInt(value) ? checksum(value) : ZERO;
    else found[name] = type === "uint96" ? BigInt(value).toString() : Number(value);
  }
  return found;
}

/** All transactions of a deployment; `artifacts` by contract name. */
function makePlan(chainId, deployer, firstNonce, terms, artifacts) {
  const encode = (config) => Object.values(config).map(word).join("");
  const steps = [];
  const send = (name, to, data) => {
    const nonce = firstNonce + steps.length;
    const address = to ? null : createdAddress(deployer, nonce);
    steps.push({ name, nonce, to, data, address });
    return address;
  };
  const create = (name, args = "") => send(name, null, artifacts[name].bytecode + args);
  let token = terms.token;
  if (token === ZERO) {
    token = create("DevToken");
    send("mint", token, "0x" + MINT + word(deployer) + word(SUPPLY));
  }
  const adjudicator = terms.adjudicator === ZERO ? create("Adjudicator") : terms.adjudicator;
  const prover = terms.prover === ZERO ? create("Prover") : terms.prover;
  const shared = { ...terms, token, adjudicator, prover, recourse: ZERO };
  const standing = {};
  let recourse = ZERO;
  for (const name of [...EXTENSIONS].reverse()) {
    recourse = create(name, encode(shared) + word(recourse));
    standing[name] = recourse;
  }
  const config = { ...shared, recourse };
  const contract = create("VeriLLM", encode(config));
  const extensions = Object.fromEntries(EXTENSIONS.map((name) => [name, standing[name]]));
  return { chainId, deployer, firstNonce, config, contract, extensions, steps };
}

/** Names a plan: any other chain, deployer, nonce, byte of code or term has another. */
function digestOf(plan) {
  const head = Buffer.from(`${plan.chainId} ${plan.deployer} ${plan.firstNonce}`);
  const parts = plan.steps.map((step) =>
    hash(Buffer.concat([Buffer.from(step.name + "\0"), fromHex(step.data)])),
  );
  return toHex(hash(Buffer.concat([head, ...parts])));
}

/** The EIP-712 domain separator of a VeriLLM contract at `address`. */
function separator(chainId, address) {
  const type =
    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)";
  const texts = [type, "VeriLLM", "1"].map((text) => hash(Buffer.from(text)));
  const words = fromHex(word(chainId) + word(address));
  return hash(Buffer.concat([...texts, words])).toString("hex");
}

/** Code simulated from STRANGER as it will stand at `address`, own addresses in it put right. */
function placed(code, chainId, address) {
  const simulated = createdAddress(STRANGER, 0);
  return code
    .replaceAll(separator(chainId, simulated), separator(chainId, address))
    .replaceAll(simulated.slice(2).toLowerCase(), address.slice(2).toLowerCase());
}

module.exports = {
  CODED,
  STRANGER,
  ZERO,
  checksum,
  configOf,
  digestOf,
  fromHex,
  hash,
  makePlan,
  placed,
  toHex,
  word,
};
