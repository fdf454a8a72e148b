// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {DevToken} from "../src/dev/DevToken.sol";
import {IAdjudicator} from "../src/interfaces/IAdjudicator.sol";
import "../src/interfaces/ILedger.sol";
import "../src/interfaces/IVeriLLM.sol";
import "../src/interfaces/Types.sol";
import {HashLib} from "../src/libraries/HashLib.sol";
import {Test, Vm} from "./Test.sol";

/// @notice A small network with its people: what every test of the contracts starts from.
abstract contract Network is Test {
    uint96 internal constant STAKE = 1000 ether;
    uint96 internal constant SEAT = 100 ether;
    uint96 internal constant PRICE = 0.01 ether;
    uint96 internal constant MAX_FEE = 10 ether;
    uint96 internal constant LOCK = 20 ether;
    bytes32 internal constant SECRET = keccak256("secret");
    bytes32 internal constant OUTPUTS = keccak256("outputs");
    bytes32 internal constant BUNDLE = keccak256("bundle");

    /// @notice One party's commitment to one task, with all that it may have to open.
    struct Party {
        address owner;
        uint256 key;
        Inner inner;
        ItemLeaf[] leaves;
        bytes32[] itemHashes;
    }

    /// @notice A job as far as it has come; values as the events brought them.
    struct Case {
        JobId id;
        Job job;
        Quote quote;
        Posting posting;
        Sealing sealing;
        Claiming claiming;
        Party[] parties;
    }

    DevToken internal token;
    IAdjudicator internal adjudicator;
    IVeriLLM internal network;
    Config internal terms;
    ModelId internal modelId;
    address internal client;
    uint256 internal clientKey;
    address internal scheduler;
    address internal claimer;
    address internal challenger;
    address[] internal workers;
    uint256[] internal workerKeys;
    mapping(address owner => uint256 key) internal keys;
    uint256 private _nonce;

    function setUp() public virtual {
        vm.warp(1_700_000_000);
        vm.roll(1000);
        token = new DevToken();
        adjudicator = IAdjudicator(_deploy("Adjudicator.sol:Adjudicator", ""));
        terms = _terms();
        network = _deployNetwork();
        (client, clientKey) = account("client");
        scheduler = person("scheduler");
        claimer = person("claimer");
        challenger = person("challenger");
        for (uint256 i = 0; i < 5; ++i) {
            (address worker, uint256 key) = account(string.concat("worker", vm.toString(i)));
            workers.push(worker);
            workerKeys.push(key);
            keys[worker] = key;
            _stake(worker, STAKE);
        }
        _stake(scheduler, STAKE);
        _stake(claimer, STAKE);
        _stake(challenger, STAKE);
        _deposit(client, 1000 ether);
        modelId = network.registerModel(_spec());
        for (uint256 i = 0; i < 5; ++i) {
            vm.prank(workers[i]);
            network.join(modelId, PRICE);
        }
        pass(12);
    }

    // ── Terms ───────────────────────────────────────────────────────────────────────────────────

    function _terms() internal view virtual returns (Config memory) {
        return Config({
            token: address(token),
            adjudicator: address(adjudicator),
            prover: address(this), // what convicts and overrules in these tests
            recourse: address(0),
            sealWindow: 1 hours,
            claimWindow: 1 hours,
            disputeWindow: 1 hours,
            openingWindow: 1 hours,
            unbonding: 2 days,
            unlockDelay: 2 hours,
            keyGrace: 1 hours,
            jobWindow: 1 hours,
            kappaBps: 20_000,
            forcedEvery: 0,
            reserveBps: 3000,
            inferencerBps: 7000,
            committeeBps: 2000,
            schedulerBps: 1000,
            callerFee: 0.01 ether,
            claimBond: 5 ether,
            challengeBond: 7 ether,
            answerFee: 0.1 ether,
            reverifyBond: 20 ether
        });
    }

    /// @dev One committed layer; honest states lie around 5000 ppm apart, strangers' beyond every cap.
    function _spec() internal view virtual returns (ModelSpec memory spec) {
        spec.name = "synthetic";
        spec.weightsRoot = keccak256("weights");
        spec.vocabulary = 512;
        spec.hidden = 64;
        spec.context = 4096;
        spec.depth = 8;
        spec.committedLayers = new uint16[](1);
        spec.committedLayers[0] = 8;
        spec.sliceDims = 32;
        spec.endTokens = new uint32[](1);
        spec.seatStake = SEAT;
        spec.committee = 3;
        spec.checkedRequests = 2;
        spec.positions = 4;
        spec.profile = _profile(2);
    }

    function _profile(uint256 layers) internal pure returns (CheckProfile memory profile) {
        profile.meanRefund = 1_600_000;
        profile.meanSlash = 2_400_000;
        profile.overRefund = 1;
        profile.overSlash = 2;
        profile.marginMean = 5000;
        profile.marginMaxRefund = 250_000;
        profile.marginMaxSlash = 400_000;
        profile.massEpsilon = 10_000;
        profile.logitTau = 100_000;
        profile.minPositions = 4;
        profile.layers = new LayerProfile[](layers);
        for (uint256 i = 0; i < layers; ++i) {
            profile.layers[i].scale = -10;
            for (uint256 zone = 0; zone < 3; ++zone) {
                profile.layers[i].med[zone] = 10_000;
                profile.layers[i].cap[zone] = 50_000;
            }
        }
    }

    // ── People ──────────────────────────────────────────────────────────────────────────────────

    function _stake(address who, uint96 amount) internal {
        token.mint(who, amount);
        vm.startPrank(who);
        token.approve(address(network), amount);
        network.addStake(amount);
        vm.stopPrank();
    }

    function _deposit(address who, uint96 amount) internal {
        token.mint(who, amount);
        vm.startPrank(who);
        token.approve(address(network), amount);
        network.deposit(scheduler, amount);
        vm.stopPrank();
    }

    function _balance(address who) internal view returns (uint256 balance) {
        (balance,,,,,) = network.accountOf(who);
    }

    function _locked(address who) internal view returns (uint256 locked) {
        (, locked,,,,) = network.accountOf(who);
    }

    function _deposited() internal view returns (uint256 amount) {
        (amount,,) = network.depositOf(client, scheduler);
    }

    function _status(Case memory c) internal view returns (Status status) {
        (status,,) = network.jobState(c.id);
    }

    // ── A job ───────────────────────────────────────────────────────────────────────────────────

    /// @dev An order and the inferencer's commitment to it; worker 0 serves, 6 + 5 tokens each request.
    function _order(uint16 requests) internal returns (Case memory c) {
        c.quote = Quote({
            scheduler: scheduler,
            modelId: modelId,
            unitPrice: PRICE,
            drawCommit: keccak256(abi.encode(SECRET)),
            expiry: uint40(vm.getBlockTimestamp() + 1000)
        });
        c.job = Job({
            client: client,
            quote: _quoteHash(c.quote),
            requestsRoot: keccak256("requests"),
            requests: requests,
            maxFee: MAX_FEE,
            deadline: uint40(vm.getBlockTimestamp() + 1000),
            nonce: _nonce++
        });
        c.id = network.jobIdOf(c.job);
        c.parties = new Party[](1 + _spec().committee);
        c.parties[0] = _party(workers[0], requests, 0);
    }

    /// @dev A commitment to `items` items of 6 prompt and 5 new tokens, or, for a verifier, 10 and 1.
    function _party(address owner, uint256 items, uint256 number)
        internal
        view
        virtual
        returns (Party memory party)
    {
        party.owner = owner;
        party.key = keys[owner];
        party.inner.taskHash = keccak256(abi.encode("task", owner, number));
        party.inner.itemsRoot = keccak256("items");
        party.inner.items = uint32(items);
        party.inner.promptTokens = uint64(items * (number == 0 ? 6 : 10));
        party.inner.newTokens = uint64(items * (number == 0 ? 5 : 1));
    }

    function _post(Case memory c) internal returns (JobId) {
        return _postWith(
            c, 0, _commitment(c, 0), LOCK, signature(clientKey, JobId.unwrap(c.id)), scheduler
        );
    }

    function _postWith(
        Case memory c,
        uint32 seat,
        bytes32 commitment,
        uint96 lock,
        bytes memory clientSignature,
        address sender
    ) internal returns (JobId id) {
        vm.recordLogs();
        id = _sendPost(c, seat, commitment, lock, clientSignature, sender);
        c.posting = abi.decode(_logged(ILedger.Posted.selector), (Posting));
    }

    function _sendPost(
        Case memory c,
        uint32 seat,
        bytes32 commitment,
        uint96 lock,
        bytes memory clientSignature,
        address sender
    ) internal returns (JobId) {
        bytes memory signed = _signed(c.parties[0], commitment);
        bytes32 outputs = _outputsRoot(c);
        vm.prank(sender);
        return
            network.post(c.job, c.quote, seat, commitment, outputs, lock, clientSignature, signed);
    }

    function _outputsRoot(Case memory) internal view virtual returns (bytes32) {
        return OUTPUTS;
    }

    /// @dev Puts the drawn committee behind the job and seals it, one block after post.
    function _seal(Case memory c) internal {
        _commit(c);
        _sealWith(c, scheduler);
    }

    function _commit(Case memory c) internal {
        pass(12);
        (, address[] memory owners, uint16[] memory checked) = adjudicator.drawOf(
            address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
        );
        for (uint256 i = 0; i < owners.length; ++i) {
            c.parties[i + 1] = _party(owners[i], checked.length, i + 1);
        }
    }

    function _sealWith(Case memory c, address sender) internal {
        (bytes32[] memory inners, bytes[] memory signatures) = _committee(c);
        vm.recordLogs();
        vm.prank(sender);
        network.seal(c.posting, SECRET, c.parties[0].inner, inners, signatures);
        c.sealing = abi.decode(_logged(ILedger.Sealed.selector), (Sealing));
    }

    function _committee(Case memory c)
        internal
        view
        returns (bytes32[] memory inners, bytes[] memory signatures)
    {
        uint256 size = c.parties.length - 1;
        inners = new bytes32[](size);
        signatures = new bytes[](size);
        for (uint256 i = 0; i < size; ++i) {
            inners[i] = keccak256(abi.encode(c.parties[i + 1].inner));
            signatures[i] = _signed(c.parties[i + 1], _commitment(c, i + 1));
        }
    }

    function _claim(Case memory c, Outcome outcome, uint8 reason) internal {
        _claimWith(c, outcome, reason, 7, new bytes[](0));
    }

    function _claimWith(
        Case memory c,
        Outcome outcome,
        uint8 reason,
        uint8 paid,
        bytes[] memory attestations
    ) internal {
        pass(12);
        vm.recordLogs();
        vm.prank(claimer);
        network.claim(c.posting, c.sealing, outcome, reason, paid, BUNDLE, attestations);
        c.claiming = abi.decode(_logged(ILedger.Claimed.selector), (Claiming));
    }

    function _challenge(Case memory c) internal {
        pass(12);
        vm.prank(challenger);
        network.challenge(c.posting, c.sealing, c.claiming, Outcome.None, 0, 0, new bytes[](0));
    }

    function _finalize(Case memory c) internal {
        pass(terms.disputeWindow);
        network.finalize(c.posting, c.sealing, c.claiming);
    }

    function _sealed(uint16 requests) internal returns (Case memory c) {
        c = _order(requests);
        _post(c);
        _seal(c);
    }

    // ── Hashes and signatures ───────────────────────────────────────────────────────────────────

    function _quoteHash(Quote memory quote) internal pure returns (bytes32) {
        return HashLib.hashQuote(quote);
    }

    function _commitment(Case memory c, uint256 k) internal pure returns (bytes32) {
        bytes32 task = keccak256(abi.encode(SECRET, c.id, k));
        return HashLib.hashCommitment(task, keccak256(abi.encode(c.parties[k].inner)));
    }

    function _digest(bytes32 structHash) internal view returns (bytes32) {
        bytes32 separator = keccak256(
            abi.encode(
                keccak256(
                    "EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)"
                ),
                keccak256("VeriLLM"),
                keccak256("1"),
                block.chainid,
                address(network)
            )
        );
        return keccak256(abi.encodePacked(hex"1901", separator, structHash));
    }

    function _signed(Party memory party, bytes32 structHash) internal view returns (bytes memory) {
        return signature(party.key, _digest(structHash));
    }

    /// @dev Attestations of the members with a bit in `members`.
    function _attestations(Case memory c, Outcome outcome, uint8 reason, uint256 members)
        internal
        view
        returns (bytes[] memory list)
    {
        list = new bytes[](3);
        bytes32 hash = HashLib.hashAttestation(c.id, outcome, reason, BUNDLE);
        for (uint256 i = 0; i < 3; ++i) {
            if ((members >> i) & 1 != 0) list[i] = _signed(c.parties[i + 1], hash);
        }
    }

    /// @dev These members say that the tokens are wrong.
    function _attest(Case memory c, uint8 reason, uint256 members) internal {
        bytes[] memory words = _attestations(c, Outcome.Refund, reason, members);
        network.attest(c.posting, c.sealing, c.claiming, Outcome.Refund, reason, BUNDLE, words);
    }

    function _logged(bytes32 topic) internal returns (bytes memory) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] == topic) return logs[i].data;
        }
        revert("no such event");
    }

    /// @dev VeriLLM for `terms`, with the contracts whose code it runs, the last one first.
    function _deployNetwork() internal returns (IVeriLLM) {
        terms.recourse = address(0);
        address next = _deploy("Appeals.sol:Appeals", abi.encode(terms, address(0)));
        next = _deploy("Wages.sol:Wages", abi.encode(terms, next));
        next = _deploy("Summons.sol:Summons", abi.encode(terms, next));
        terms.recourse = _deploy("Recourse.sol:Recourse", abi.encode(terms, next));
        return IVeriLLM(_deploy("VeriLLM.sol:VeriLLM", abi.encode(terms)));
    }

    function _deploy(string memory artifact, bytes memory arguments) internal returns (address at) {
        bytes memory code = abi.encodePacked(vm.getCode(artifact), arguments);
        assembly ("memory-safe") {
            at := create(0, add(code, 32), mload(code))
        }
        require(at != address(0), "not deployed");
    }
}
