const { subtask } = require("hardhat/config");
const { TASK_COMPILE_SOLIDITY_GET_SOLC_BUILD } = require("hardhat/builtin-tasks/task-names");
const { version } = require("solc/package.json");

// The compiler is the npm package that package-lock.json pins, so a build downloads nothing.
subtask(TASK_COMPILE_SOLIDITY_GET_SOLC_BUILD, async () => ({
  version,
  longVersion: require("solc").version(),
  compilerPath: require.resolve("solc/soljson.js"),
  isSolcJs: true,
}));

/** @type {import("hardhat/config").HardhatUserConfig} */
module.exports = {
  solidity: {
    version,
    // Equal to foundry.toml: both tools must give the same bytecode.
    settings: {
      evmVersion: "prague",
      optimizer: { enabled: true, runs: 200 },
      viaIR: true,
      metadata: { bytecodeHash: "none" },
    },
  },
  // Any chain, by its RPC server; contracts/scripts/deploy.js signs by itself, so no key is here.
  networks: { live: { url: process.env.VERILLM_RPC || "http://127.0.0.1:8545" } },
  paths: { sources: "contracts/src", artifacts: "artifacts/hardhat", cache: "cache/hardhat" },
};
