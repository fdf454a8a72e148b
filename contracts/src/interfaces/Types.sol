// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

type JobId is bytes32;
type ModelId is bytes32;

/// @notice Where a job stands (docs/protocol.md §6).
enum Status {
    None,
    Posted,
    Sealed,
    Claimed,
    Challenged,
    Final,
    Demanded,
    Judged,
    Reverifying,
    Summoned
}

/// @notice What a verdict does to the money.
enum Outcome {
    None,
    Accept,
    Refund,
    Slash,
    Inconclusive
}

/// @notice How far a re-verification has come: contents are supplied, they are complete, the committee is drawn, it is
/// committed, its round is open.
enum AppealPhase {
    None,
    Asked,
    Complete,
    Convened,
    Closed,
    Opened
}

/// @notice Everything that a deployment fixes for good.
/// @dev Durations in seconds, shares in basis points, amounts in token units. `jobWindow` bounds how far
/// ahead of `post` a job's deadline may lie; `kappaBps` is the least lock in parts of maxFee. `recourse` is the first
/// of the contracts that VeriLLM runs as its own code; one job in `forcedEvery` needs a public round (0: none);
/// `answerFee` repays a summoned member.
struct Config {
    address token;
    address adjudicator;
    address prover;
    address recourse;
    uint32 sealWindow;
    uint32 claimWindow;
    uint32 disputeWindow;
    uint32 openingWindow;
    uint32 unbonding;
    uint32 unlockDelay;
    uint32 keyGrace;
    uint32 jobWindow;
    uint32 kappaBps;
    uint16 forcedEvery;
    uint16 reserveBps;
    uint16 inferencerBps;
    uint16 committeeBps;
    uint16 schedulerBps;
    uint96 callerFee;
    uint96 claimBond;
    uint96 challengeBond;
    uint96 answerFee;
    uint96 reverifyBond;
}

/// @notice Scale, median and cap of one committed layer, by zone (first positions, prompt, generated); ppm.
struct LayerProfile {
    int8 scale;
    uint32[3] med;
    uint32[3] cap;
}

/// @notice Calibrated thresholds of a model; ppm unless they are counts. `layers` ends with the final norm.
/// @dev Over many positions a mean is steadier, so it may be held to less: from `manyPositions` a checked request on
/// (0: never) `meanRefundMany` and `meanSlashMany` take the place of `meanRefund` and `meanSlash`. A request, since short
/// ones of one job are alike, and as noisy together as one of them.
struct CheckProfile {
    uint32 meanRefund;
    uint32 meanSlash;
    uint16 overRefund;
    uint16 overSlash;
    uint32 marginMean;
    uint32 marginMaxRefund;
    uint32 marginMaxSlash;
    uint32 massEpsilon;
    uint32 logitTau;
    uint16 minPositions;
    uint16 manyPositions;
    uint32 meanRefundMany;
    uint32 meanSlashMany;
    LayerProfile[] layers;
}

/// @notice An immutable model version; `ModelId` is the hash of its ABI encoding.
struct ModelSpec {
    string name;
    ModelId parent;
    bytes32 weightsRoot;
    bytes32 headRoot;
    bytes32 tokenizerHash;
    bytes32 templateHash;
    uint8 dtype;
    uint32 vocabulary;
    uint32 hidden;
    uint32 context;
    uint16 depth;
    uint16[] committedLayers;
    uint16 sliceDims;
    uint32[] endTokens;
    uint64 headScale;
    bool tokenProof;
    uint96 seatStake;
    uint8 committee;
    uint16 checkedRequests;
    uint16 positions;
    CheckProfile profile;
}

struct Quote {
    address scheduler;
    ModelId modelId;
    uint96 unitPrice;
    bytes32 drawCommit;
    uint40 expiry;
}

struct Job {
    address client;
    bytes32 quote;
    bytes32 requestsRoot;
    uint16 requests;
    uint96 maxFee;
    uint40 deadline;
    uint256 nonce;
}

/// @notice Everything fixed when a job is posted.
struct Posting {
    Job job;
    Quote quote;
    uint32 seat;
    address worker;
    bytes32 commitment;
    bytes32 outputsRoot;
    uint96 lock;
    uint96 bond;
    uint32 slots;
    uint40 postedAt;
    uint40 postedBlock;
}

/// @notice What a worker committed to, less the task id.
struct Inner {
    bytes32 taskHash;
    bytes32 itemsRoot;
    uint32 items;
    uint64 promptTokens;
    uint64 newTokens;
}

/// @notice A drawn seat with what its owner committed to and what is locked on it.
struct Member {
    uint32 seat;
    address owner;
    bytes32 inner;
    uint96 lock;
}

/// @notice Everything fixed when a job is sealed; the committee in drawn order.
/// @param beacon hash of the block of `post`: with secret and commitment it gives the draw.
struct Sealing {
    bytes32 secret;
    bytes32 beacon;
    Inner inner;
    uint96 fee;
    uint40 sealedBlock;
    Member[] committee;
}

/// @notice Everything fixed when a verdict is claimed; all zero but `beacon` where the public round was opened
/// because nobody claimed.
/// @param paid bit k-1 for each member k that is paid: those in some largest clique.
/// @param beacon hash of the block of `seal`: with the record after seal it gives the positions.
struct Claiming {
    address claimer;
    Outcome outcome;
    uint8 reason;
    uint8 paid;
    bytes32 bundle;
    bytes32 beacon;
}

/// @notice The leaf of one item in a worker's commitment.
struct ItemLeaf {
    uint32 item;
    uint32 promptTokens;
    uint32 newTokens;
    bytes32 traceRoot;
    bytes32 outputHash;
}

/// @notice One party's evidence at one position: its item under its inner, the leaf under the item.
/// @param party 0 the inferencer, 1..m the committee in drawn order.
struct Opening {
    uint8 party;
    Inner inner;
    ItemLeaf leaf;
    bytes32[] itemPath;
    uint32 position;
    uint32 token;
    uint32 next;
    bytes slices;
    bytes finalState;
    bytes32[] path;
}

/// @notice A checked request, by its place in the drawn order, with the lengths that `reveal` fixed.
struct Checked {
    uint16 index;
    uint32 promptTokens;
    uint32 newTokens;
}

/// @notice Sums over the compared positions of one pair of parties (docs/protocol.md §7).
struct PairStatistics {
    uint64 sum;
    uint32 cells;
    uint32 over;
}

/// @notice How a token is chosen; ppm, except `topK`. Off: topK 0, topP 1e6, minP 0.
struct Sampling {
    uint32 temperature;
    uint32 topK;
    uint32 topP;
    uint32 minP;
}

/// @notice One prompt of a task.
struct Item {
    bytes32 salt;
    bytes32 tokensRoot;
    uint32 length;
    uint32 maxNewTokens;
    Sampling sampling;
    bytes32 seed;
}

/// @notice What a scheduler gave to a worker; `items` are the struct hashes of the items.
struct Task {
    bytes32 taskId;
    address worker;
    ModelId modelId;
    bytes32[] items;
    uint40 deadline;
    uint96 lock;
    uint96 fee;
}

/// @notice One position of a trace, its states by their digests.
struct Entry {
    uint32 position;
    uint32 token;
    uint32 next;
    bytes32 slices;
    bytes32 finalState;
    bytes32[] path;
}

/// @notice A piece of a prompt under its tokens root: at most 32 tokens, u32 big-endian each.
struct Piece {
    bytes32 salt;
    bytes tokens;
    bytes32[] path;
}

/// @notice A request of the job, under its requests root.
struct Asked {
    bytes32 tokensRoot;
    uint32 length;
    uint32 maxNewTokens;
    Sampling sampling;
    bytes32[] path;
}

/// @notice What a scheduler signs for its client with the last token of a request.
struct Receipt {
    JobId jobId;
    bytes32 taskId;
    uint32 request;
    bytes32 outputHash;
}

/// @notice A checked request with its output; tokens stand as u32, big-endian.
/// @param path of the request's leaf under the job's root, `outputPath` of the output's under the posted one.
struct Content {
    bytes32 salt;
    bytes tokens;
    uint32 maxNewTokens;
    Sampling sampling;
    bytes32[] path;
    bytes output;
    bytes32[] outputPath;
}
