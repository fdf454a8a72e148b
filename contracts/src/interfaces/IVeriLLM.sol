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
    Final
}

/// @notice What a verdict does to the money.
enum Outcome {
    None,
    Accept,
    Refund,
    Slash,
    Inconclusive
}

/// @notice Everything that a deployment fixes for good.
/// @dev Durations in seconds, shares in basis points, amounts in token units. `jobWindow` bounds how far
/// ahead of `post` a job's deadline may lie; `kappaBps` is the least lock in parts of maxFee.
struct Config {
    address token;
    address adjudicator;
    uint32 sealWindow;
    uint32 claimWindow;
    uint32 disputeWindow;
    uint32 openingWindow;
    uint32 unbonding;
    uint32 unlockDelay;
    uint32 keyGrace;
    uint32 jobWindow;
    uint32 kappaBps;
    uint16 reserveBps;
    uint16 inferencerBps;
    uint16 committeeBps;
    uint16 schedulerBps;
    uint96 callerFee;
    uint96 claimBond;
    uint96 challengeBond;
}

/// @notice Scale, median and cap of one committed layer, by zone (first positions, prompt, generated); ppm.
struct LayerProfile {
    int8 scale;
    uint32[3] med;
    uint32[3] cap;
}

/// @notice Calibrated thresholds of a model; ppm unless they are counts. `layers` ends with the final norm.
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

/// @title VeriLLM: stakes, jobs and verdicts of a verifiable inference network
/// @notice The byte-exact protocol is docs/protocol.md.
/// @dev Assumptions. (1) A job's scheduler does not also choose the hash of the blocks that hold its `post` and `seal`; together they could steer a draw. (2) Whoever is judged can send a
///      transaction within `openingWindow`. (3) At least one honest party looks at each claim within `disputeWindow`; silence assents. (4) Of the drawn committee, fewer than ⌈(m+1)/2⌉ collude. (5) `token` is
///      a plain ERC-20 without fees on transfer or rebasing; balance deltas are checked. No key, of anyone, can move another party's funds.
interface IVeriLLM {
    // ── Money in and out ────────────────────────────────────────────────────────────────────────
    /// @notice A client put money at the disposal of jobs that it signs for a scheduler.
    event Deposited(address indexed client, address indexed scheduler, uint256 amount);
    /// @notice A client asked for a deposit back.
    event UnlockRequested(
        address indexed client, address indexed scheduler, uint256 amount, uint256 availableAt
    );
    /// @notice A client took a deposit back.
    event DepositWithdrawn(address indexed client, address indexed scheduler, uint256 amount);
    /// @notice An operator added to its balance.
    event StakeAdded(address indexed operator, uint256 amount);
    /// @notice An operator asked for free stake back.
    event StakeWithdrawalRequested(address indexed operator, uint256 amount, uint256 availableAt);
    /// @notice An operator took free stake back.
    event StakeWithdrawn(address indexed operator, uint256 amount);
    /// @notice An operator named its signing key.
    event HotKeySet(address indexed operator, address indexed hotKey);
    /// @notice An operator said where its API listens.
    event EndpointSet(address indexed operator, string endpoint);

    // ── Models and seats ────────────────────────────────────────────────────────────────────────
    /// @notice A model version is known from now on; the id is the hash of the encoded spec.
    event ModelRegistered(ModelId indexed modelId, ModelSpec spec);
    /// @notice An owner took a seat; active in later blocks.
    event SeatJoined(
        ModelId indexed modelId, uint32 indexed seat, address indexed owner, uint96 price
    );
    /// @notice An owner left its seat; its stake stays bonded.
    event SeatLeft(
        ModelId indexed modelId, uint32 indexed seat, address indexed owner, uint256 releasableAt
    );
    /// @notice A seat that no stake backs any more was put out.
    event SeatEvicted(
        ModelId indexed modelId, uint32 indexed seat, address indexed owner, uint256 releasableAt
    );
    /// @notice A slot and its stake are free again.
    event SeatReleased(ModelId indexed modelId, uint32 indexed seat, address indexed owner);

    // ── Jobs ────────────────────────────────────────────────────────────────────────────────────
    /// @notice An inferencer is committed; fee, exposure and bond are locked.
    event Posted(
        JobId indexed jobId, address indexed scheduler, address indexed client, Posting posting
    );
    /// @notice The committee is committed; roles and secret are public.
    event Sealed(JobId indexed jobId, Sealing sealing);
    /// @notice Somebody claims a verdict.
    event Claimed(JobId indexed jobId, Claiming claiming);
    /// @notice A block hash is kept for good.
    event BeaconKept(uint256 indexed blockNumber, bytes32 beacon);
    /// @notice A public round began; `reason` is not 0 iff the committee attested to it.
    event ChallengeOpened(
        JobId indexed jobId,
        address indexed challenger,
        uint256 openBy,
        bytes32 beacon,
        uint8 reason
    );
    /// @notice A job ended.
    event Finalized(JobId indexed jobId, Outcome outcome, uint8 reason);
    /// @notice Money moved to an account, or back to a deposit.
    event Paid(JobId indexed jobId, address indexed account, uint256 amount);
    /// @notice Money was taken from an account.
    event Slashed(JobId indexed jobId, address indexed operator, uint256 amount);
    /// @notice Money went to the dead address.
    event Burnt(JobId indexed jobId, uint256 amount);

    // ── Errors: each names the fact ─────────────────────────────────────────────────────────────
    error ConfigUnsafe(bytes32 field);
    error TransferInexact(uint256 expected, uint256 received);
    error AmountZero();
    error DepositInsufficient(uint256 available, uint256 required);
    error StakeInsufficient(address operator, uint256 available, uint256 required);
    error NotYetAvailable(uint256 availableAt);
    error NothingRequested();
    error HotKeyTaken(address hotKey);
    error NotOperator(address caller);
    error ModelUnknown(ModelId modelId);
    error ModelKnown(ModelId modelId);
    error SeatNotActive(ModelId modelId, uint32 seat);
    error SeatNotOwned(ModelId modelId, uint32 seat, address caller);
    error SeatStillBonded(uint256 releasableAt);
    error SeatTooExpensive(uint256 price, uint256 unitPrice);
    error TooFewOwners(uint256 owners, uint256 required);
    error StatusWrong(JobId jobId, Status actual, Status expected);
    error RecordMismatch(JobId jobId);
    error DeadlinePassed(uint256 deadline);
    error DeadlineNotReached(uint256 deadline);
    error QuoteExpired(uint256 expiry);
    error QuoteMismatch();
    error NonceUsed(address client, uint256 nonce);
    error RequestsOutOfBounds(uint256 requests);
    error LockTooSmall(uint256 lock, uint256 required);
    error SignatureInvalid(address expected);
    error DrawCommitMismatch();
    error CommitmentMismatch(uint256 party);
    error CommitteeSizeWrong(uint256 given, uint256 expected);
    error DrawExhausted(uint256 found, uint256 required);
    error BeaconUnavailable(uint256 blockNumber);
    error OutcomeInvalid();
    error AttestationsInsufficient(uint256 valid, uint256 required);
    error DeadlineTooFar(uint256 deadline, uint256 latest);
    error SeatBacked(uint256 balance, uint256 staked);

    // ── Client ──────────────────────────────────────────────────────────────────────────────────
    /// @notice Puts `amount` at the disposal of jobs that the caller signs for `scheduler`.
    function deposit(address scheduler, uint96 amount) external;
    /// @notice Asks for `amount` back; the scheduler may use it until the delay has passed.
    function requestUnlock(address scheduler, uint96 amount) external;
    /// @notice Pays out an unlocked deposit, at most what is left of it.
    function withdrawDeposit(address scheduler) external;

    // ── Operator (worker or scheduler) ──────────────────────────────────────────────────────────
    /// @notice Adds `amount` to the caller's stake, free until a seat or a job takes it.
    function addStake(uint96 amount) external;
    /// @notice Asks for free stake and earnings back; payable, and slashable until then, after `unbonding`.
    function requestStakeWithdrawal(uint96 amount) external;
    /// @notice Pays out a requested withdrawal, at most what is free by then.
    function withdrawStake() external;
    /// @notice Names the key that signs tasks and commitments, and sends a scheduler's transactions; the key before stays valid for `keyGrace`.
    function setHotKey(address hotKey) external;
    /// @notice Publishes where the caller's API listens.
    function setEndpoint(string calldata endpoint) external;
    /// @notice Registers an immutable model version; anyone may.
    function registerModel(ModelSpec calldata spec) external returns (ModelId modelId);
    /// @notice Takes a seat for one model at one price a token; active in blocks after this one.
    function join(ModelId modelId, uint96 price) external returns (uint32 seat);
    /// @notice Leaves a seat; it still serves the jobs posted before, and its stake stays bonded for `unbonding`.
    function leave(ModelId modelId, uint32 seat) external;
    /// @notice Frees the slot and the stake of a seat whose unbonding has ended.
    function release(ModelId modelId, uint32 seat) external;
    /// @notice Puts out a seat whose owner's balance no longer covers its staked sum; anyone may.
    function evict(ModelId modelId, uint32 seat) external;

    // ── A job's life ────────────────────────────────────────────────────────────────────────────
    /// @notice Posts an inferencer's commitment to a signed job; locks fee, exposure and bond.
    function post(
        Job calldata job,
        Quote calldata quote,
        uint32 seat,
        bytes32 commitment,
        bytes32 outputsRoot,
        uint96 lock,
        bytes calldata clientSignature,
        bytes calldata workerSignature
    ) external returns (JobId jobId);
    /// @notice Shows the secret, seals the drawn committee's commitments, fixes the fee.
    function seal(
        Posting calldata posting,
        bytes32 secret,
        Inner calldata inner,
        bytes32[] calldata inners,
        bytes[] calldata signatures
    ) external;
    /// @notice Claims a verdict, bonded; who disagrees must challenge within `disputeWindow`.
    function claim(
        Posting calldata posting,
        Sealing calldata sealing,
        Outcome outcome,
        uint8 reason,
        uint8 paid,
        bytes32 bundle,
        bytes[] calldata attestations
    ) external;
    /// @notice Settles an unchallenged claim; pays the caller a fixed fee from the scheduler's share.
    function finalize(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;
    /// @notice Ends a job that was not sealed in time, at the scheduler's cost.
    function refund(Posting calldata posting) external;
    /// @notice Stores the hash of a block while the chain still knows it, for every job posted or sealed in it.
    function keep(uint256 blockNumber) external;

    // ── The public round ────────────────────────────────────────────────────────────────────────
    // Lengths and openings go to the adjudicator, see IAdjudicator.

    /// @notice Opens the public round: bonded against a claim, free against a scheduler that let the claim deadline
    /// pass.
    /// @dev Attested by a majority of the committee, for a reason that the chain cannot recompute, a challenge
    /// turns what the states accept into a refund; zeros and no attestations for any other challenge.
    function challenge(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming,
        Outcome outcome,
        uint8 reason,
        bytes32 bundle,
        bytes[] calldata attestations
    ) external;
    /// @notice Computes the verdict of the public round and settles by it.
    function adjudicate(
        Posting calldata posting,
        Sealing calldata sealing,
        Claiming calldata claiming
    ) external;

    // ── Reads ───────────────────────────────────────────────────────────────────────────────────
    /// @notice What the deployment fixed.
    function config() external view returns (Config memory);
    /// @notice Where a job stands, until when, and the hash of what callers must bring.
    function jobState(JobId jobId)
        external
        view
        returns (Status status, uint40 deadline, bytes32 record);
    /// @notice The id of a job: its EIP-712 digest here.
    function jobIdOf(Job calldata job) external view returns (JobId);
    /// @notice What a client has at the disposal of a scheduler, and what of it is unlocking.
    function depositOf(address client, address scheduler)
        external
        view
        returns (uint96 amount, uint96 unlocking, uint40 availableAt);
    /// @notice An operator's money: all of it, what is locked in jobs, staked in seats, on its way out.
    function accountOf(address operator)
        external
        view
        returns (
            uint96 balance,
            uint96 locked,
            uint96 staked,
            uint96 withdrawing,
            uint40 availableAt,
            address hotKey
        );
    /// @notice Whom a key acts for: its operator, or itself.
    function operatorOf(address hotKey) external view returns (address operator);
    /// @notice Who holds a seat, since when, until when (0: still), at which price.
    function seatOf(ModelId modelId, uint32 seat)
        external
        view
        returns (address owner, uint40 activeFrom, uint40 leftAt, uint96 price);
    /// @notice How many slots a model has, and how many distinct owners hold active seats.
    function slotsOf(ModelId modelId) external view returns (uint32 slots, uint32 owners);
    /// @notice Whether a client has used a nonce with a scheduler.
    /// @dev Counted for each scheduler, as deposits are: else what a client posts with one could make
    /// void what another is already serving.
    function nonceUsed(address client, address scheduler, uint256 nonce)
        external
        view
        returns (bool);
}
