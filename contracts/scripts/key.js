// The deployer's key: VERILLM_DEPLOYER_KEY in hex, or the keystore that VERILLM_KEY names, with
// VERILLM_PASSWORD or VERILLM_PASSWORD_FILE. No message holds any part of a key.
const crypto = require("crypto");
const fs = require("fs");
const { keccak256 } = require("ethereum-cryptography/keccak");
const { Refused } = require("./refused");

const RAW = /^(0x)?[0-9a-fA-F]{64}$/;

/** The password of a keystore, from the environment. */
function password(env) {
  const file = env.VERILLM_PASSWORD_FILE;
  if (file) {
    if (fs.statSync(file).mode & 0o077) {
      throw new Refused("bad_config", `others may read ${file}`, `chmod 600 ${file}`);
    }
    return fs.readFileSync(file, "utf8").split(/\r?\n/)[0];
  }
  if (env.VERILLM_PASSWORD !== undefined) return env.VERILLM_PASSWORD;
  throw new Refused("bad_config", "no password", "Set VERILLM_PASSWORD or VERILLM_PASSWORD_FILE.");
}

/** Web3 Secret Storage, version 3, as `verillm key` writes it (scrypt, AES-128-CTR). */
function open(file, secret) {
  const broken = new Refused("bad_config", `${file} is no scrypt keystore`, "Name another file.");
  let stored;
  try {
    stored = JSON.parse(fs.readFileSync(file, "utf8")).crypto;
  } catch {
    throw broken;
  }
  if (!stored || stored.kdf !== "scrypt" || stored.cipher !== "aes-128-ctr") throw broken;
  const { n, r, p, dklen, salt } = stored.kdfparams;
  const options = { N: n, r, p, maxmem: 256 * n * r + (1 << 20) };
  const derived = crypto.scryptSync(secret, Buffer.from(salt, "hex"), dklen, options);
  const hidden = Buffer.from(stored.ciphertext, "hex");
  const mac = keccak256(Buffer.concat([derived.subarray(16, 32), hidden]));
  if (Buffer.from(mac).toString("hex") !== stored.mac) {
    throw new Refused("wrong_password", `the password does not open ${file}`, "Give its own.");
  }
  const iv = Buffer.from(stored.cipherparams.iv, "hex");
  const cipher = crypto.createDecipheriv("aes-128-ctr", derived.subarray(0, 16), iv);
  return Buffer.concat([cipher.update(hidden), cipher.final()]).toString("hex");
}

/** The key in hex, without 0x. */
function deployerKey(env) {
  const raw = env.VERILLM_DEPLOYER_KEY;
  if (raw !== undefined) {
    if (RAW.test(raw.trim())) return raw.trim().replace(/^0x/, "");
    const fact = "VERILLM_DEPLOYER_KEY is not a key of 32 bytes in hex";
    throw new Refused("bad_config", fact, "Correct it.");
  }
  if (!env.VERILLM_KEY) {
    const remedy = "Set VERILLM_DEPLOYER_KEY, or VERILLM_KEY to a keystore.";
    throw new Refused("bad_config", "no key", remedy);
  }
  if (RAW.test(env.VERILLM_KEY)) {
    const fact = "VERILLM_KEY names a keystore, and holds a raw key";
    throw new Refused("bad_config", fact, "Put a raw key into VERILLM_DEPLOYER_KEY.");
  }
  return open(env.VERILLM_KEY, password(env));
}

module.exports = { deployerKey };
