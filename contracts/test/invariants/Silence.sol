// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/IWages.sol";
import "../../src/interfaces/Types.sol";
import {HashLib} from "../../src/libraries/HashLib.sol";
import {Work} from "../Work.sol";

/// @notice People who keep silent: members that answer, answer late or never, a scheduler that seals, gives up or does
/// not even post, workers that claim what is due, and what is not.
contract Silence is Work {
    address private constant DEAD = 0x000000000000000000000000000000000000dEaD;

    /// @dev One order with its inferencer's work; encoded, for nested lists do not go into storage.
    bytes[] private _cases;
    JobId[] private _ids;
    bytes32[] private _commitments;
    uint256[] private _fees;
    uint256 private _minted;
    mapping(string action => uint256) public counts;

    function setUp() public override {
        super.setUp();
        for (uint256 i = 0; i < 5; ++i) {
            _stake(workers[i], 9000 ether);
        }
        _stake(scheduler, 100_000 ether);
        _minted = 154_000 ether;
    }

    function wait_(uint256 time) external {
        pass(bound(time, 12, 40 minutes));
        ++counts["wait"];
    }

    // ── Jobs ────────────────────────────────────────────────────────────────────────────────────

    /// @dev An order that worker `who` has run; nothing of it is on the chain.
    function order(uint256 who) external {
        if (_cases.length >= 8) return;
        Case memory c = _order(1);
        address worker = workers[who % 5];
        bytes32 taskId = HashLib.taskId(SECRET, c.id, 0);
        Given memory given = _given(taskId, worker, 1, 6, 8, vm.getBlockTimestamp() + 100);
        Made memory made = _made(given, 5, keys[worker]);
        c.parties[0].owner = worker;
        c.parties[0].inner = made.inner;
        _cases.push(abi.encode(c, given, made));
        _ids.push(c.id);
        _commitments.push(made.commitment);
        _fees.push(c.job.maxFee);
        ++counts["order"];
    }

    function post(uint256 which) external {
        (Case memory c, Given memory given, Made memory made, uint256 i) = _pick(which, Status.None);
        if (i == type(uint256).max || vm.getBlockTimestamp() > c.job.deadline) return;
        bytes memory signed = signature(clientKey, JobId.unwrap(c.id));
        uint32 seat = _seatOf(given.task.worker);
        vm.recordLogs();
        vm.prank(scheduler);
        network.post(c.job, c.quote, seat, made.commitment, OUTPUTS, LOCK, signed, made.signature);
        _keep(i, c, given, made);
        ++counts["post"];
    }

    function refund(uint256 which) external {
        (Case memory c,,, uint256 i) = _pick(which, Status.Posted);
        if (i == type(uint256).max || !_late(c.id)) return;
        network.refund(c.posting);
        ++counts["refund"];
    }

    function summon(uint256 which, uint256 index) external {
        (Case memory c,,, uint256 i) = _pick(which, Status.Summoned);
        if (i == type(uint256).max || which % 3 == 0) (c,,, i) = _pick(which, Status.Posted);
        if (i == type(uint256).max || _late(c.id)) return;
        bool first = _statusOf(i) == Status.Posted;
        if (first && vm.getBlockNumber() > c.posting.postedBlock + 200) return;
        index %= 3;
        if (vm.getBlockNumber() == c.posting.postedBlock) pass(12);
        address owner;
        if (first) {
            (, address[] memory owners,) = adjudicator.drawOf(
                address(network), c.posting, SECRET, blockhash(c.posting.postedBlock)
            );
            owner = owners[index];
        } else {
            uint40 answerBy;
            (owner,,,, answerBy,,) = network.placeOf(c.id, index);
            if (answerBy != 0) return;
        }
        uint256 latest = c.posting.postedAt + terms.sealWindow + 4 * uint256(terms.openingWindow);
        if (vm.getBlockTimestamp() + 100 + terms.openingWindow > latest) return;
        Given memory given = _summons(c, owner, index);
        vm.prank(scheduler);
        network.summon(
            c.posting,
            SECRET,
            c.parties[0].inner,
            index,
            _spec(),
            given.task,
            given.items,
            given.tokens,
            given.signature
        );
        ++counts["summon"];
    }

    /// @dev In time or late.
    function answer(uint256 which, uint256 index) external {
        (Case memory c,,, uint256 i) = _pick(which, Status.Summoned);
        if (i == type(uint256).max || _late(c.id)) return;
        index %= 3;
        (address owner,,,, uint40 answerBy,, bytes32 inner) = network.placeOf(c.id, index);
        if (answerBy == 0 || inner != 0) return;
        Made memory made = _made(_summons(c, owner, index), 1, keys[owner]);
        network.answer(c.id, index, made.inner, made.signature);
        ++counts["answer"];
        if (vm.getBlockTimestamp() >= answerBy) ++counts["late answer"];
    }

    function replace(uint256 which, uint256 index) external {
        (Case memory c,,, uint256 i) = _pick(which, Status.Summoned);
        if (i == type(uint256).max || _late(c.id)) return;
        index %= 3;
        (,,,, uint40 answerBy,, bytes32 inner) = network.placeOf(c.id, index);
        (, uint256 replaced) = network.panelOf(c.id);
        bool due = answerBy != 0 && inner == 0 && vm.getBlockTimestamp() >= answerBy;
        if (!due || replaced != 0) return; // five owners: one can be replaced
        network.replace(c.posting, index);
        ++counts["replace"];
    }

    /// @dev Seals with everybody's signature, claims and ends.
    function seal(uint256 which, uint256 verdict) external {
        (Case memory c, Given memory given, Made memory made, uint256 i) =
            _pick(which, Status.Summoned);
        if (i == type(uint256).max || _late(c.id)) return;
        bytes32[] memory inners = new bytes32[](3);
        bytes[] memory signatures = new bytes[](3);
        for (uint256 k = 0; k < 3; ++k) {
            (address owner,, uint16 number,,,,) = network.placeOf(c.id, k);
            inners[k] = keccak256(abi.encode("inner", number));
            bytes32 task = HashLib.taskId(SECRET, c.id, number);
            bytes32 digest = _digest(HashLib.hashCommitment(task, inners[k]));
            signatures[k] = signature(keys[owner], digest);
        }
        vm.recordLogs();
        network.sealSummoned(c.posting, made.inner, inners, signatures);
        c.sealing = abi.decode(_logged(ILedger.Sealed.selector), (Sealing));
        _claim(c, verdict % 2 == 0 ? Outcome.Accept : Outcome.Slash, uint8(verdict % 2));
        _finalize(c);
        _cases[i] = abi.encode(c, given, made);
        ++counts["seal"];
    }

    function dismiss(uint256 which) external {
        (Case memory c,,, uint256 i) = _pick(which, Status.Summoned);
        if (i == type(uint256).max || !_late(c.id)) return;
        network.dismiss(c.posting);
        ++counts["dismiss"];
    }

    // ── Wages ───────────────────────────────────────────────────────────────────────────────────

    /// @dev Whatever has become of the job: a worker may claim what is not due.
    function claimTask(uint256 which) external {
        if (_cases.length == 0) return;
        (, Given memory given, Made memory made) = _case(which % _cases.length);
        (, address worker,,,,) = network.taskClaimOf(made.commitment);
        uint256 from = uint256(given.task.deadline) + terms.sealWindow;
        if (worker != address(0) || vm.getBlockTimestamp() < from) return;
        if (vm.getBlockTimestamp() >= from + terms.unbonding) return;
        network.claimTask(
            given.task,
            given.items,
            scheduler,
            _seatOf(given.task.worker),
            made.inner,
            made.leaves,
            made.outputs,
            [given.signature, made.signature]
        );
        ++counts["claimTask"];
    }

    function contest(uint256 which) external {
        if (_cases.length == 0) return;
        uint256 i = which % _cases.length;
        if (!_isOpen(i) || _statusOf(i) == Status.None) return;
        _contest(i);
        ++counts["contest"];
    }

    function postClaimed(uint256 which) external {
        (Case memory c, Given memory given, Made memory made, uint256 i) = _pick(which, Status.None);
        if (i == type(uint256).max || !_isOpen(i)) return;
        vm.recordLogs();
        vm.prank(scheduler);
        network.postClaimed(c.job, c.quote, made.commitment);
        _keep(i, c, given, made);
        ++counts["postClaimed"];
    }

    function collect(uint256 which) external {
        if (_cases.length == 0) return;
        uint256 i = which % _cases.length;
        (,,, uint96 amount,, uint40 at) = network.taskClaimOf(_commitments[i]);
        if (amount == 0 || vm.getBlockTimestamp() < at) return;
        if (_statusOf(i) != Status.None) return; // somebody would have contested by then
        network.collectTask(_commitments[i]);
        ++counts["collect"];
    }

    // ── What must hold ──────────────────────────────────────────────────────────────────────────

    function checkMoney() external view {
        uint256 sum = _deposited();
        for (uint256 i = 0; i < 9; ++i) {
            address operator = _operator(i);
            sum += _balance(operator);
            assertLe(_locked(operator), _balance(operator), "locked within the balance");
        }
        for (uint256 i = 0; i < _cases.length; ++i) {
            Status status = _statusOf(i);
            if (status != Status.Final && status != Status.None) sum += _fees[i];
        }
        uint256 held = token.balanceOf(address(network));
        assertEq(sum, held, "held = deposits + balances + escrow");
        assertEq(held + token.balanceOf(DEAD), _minted, "in = held + burnt");
    }

    /// @dev Anyone alone ends every job and every claim; then nothing is locked. Of work that a job holds no claim is
    /// left to be paid beside it.
    function finishAll() external {
        for (uint256 i = 0; i < _cases.length; ++i) {
            if (_isOpen(i) && _statusOf(i) != Status.None) _contest(i);
        }
        pass(terms.sealWindow + 8 * uint256(terms.openingWindow));
        for (uint256 i = 0; i < _cases.length; ++i) {
            (Case memory c,,) = _case(i);
            if (_statusOf(i) == Status.Posted) network.refund(c.posting);
            if (_statusOf(i) == Status.Summoned) network.dismiss(c.posting);
        }
        pass(terms.unbonding);
        for (uint256 i = 0; i < _cases.length; ++i) {
            if (_isOpen(i)) network.collectTask(_commitments[i]);
        }
        for (uint256 i = 0; i < 9; ++i) {
            assertEq(_locked(_operator(i)), 0, "unlocked");
        }
    }

    // ── Helpers ─────────────────────────────────────────────────────────────────────────────────

    function _summons(Case memory c, address owner, uint256 index)
        private
        view
        returns (Given memory)
    {
        bytes32 taskId = HashLib.taskId(SECRET, c.id, network.taskNumberOf(c.id, index + 1));
        return _given(taskId, owner, 1, 10, 1, c.posting.postedAt + 1 days);
    }

    function _keep(uint256 i, Case memory c, Given memory given, Made memory made) private {
        c.posting = abi.decode(_logged(ILedger.Posted.selector), (Posting));
        _cases[i] = abi.encode(c, given, made);
    }

    function _contest(uint256 i) private {
        (Case memory c,,) = _case(i);
        network.contestTask(_commitments[i], c.posting, c.sealing, c.claiming);
    }

    function _isOpen(uint256 i) private view returns (bool) {
        (,,, uint96 amount,,) = network.taskClaimOf(_commitments[i]);
        return amount != 0;
    }

    function _case(uint256 i)
        private
        view
        returns (Case memory c, Given memory given, Made memory made)
    {
        return abi.decode(_cases[i], (Case, Given, Made));
    }

    function _pick(uint256 which, Status status)
        private
        view
        returns (Case memory c, Given memory given, Made memory made, uint256 i)
    {
        for (uint256 n = 0; n < _cases.length; ++n) {
            i = addmod(which, n, _cases.length);
            if (_statusOf(i) != status) continue;
            (c, given, made) = _case(i);
            return (c, given, made, i);
        }
        return (c, given, made, type(uint256).max);
    }

    function _statusOf(uint256 i) private view returns (Status status) {
        (status,,) = network.jobState(_ids[i]);
    }

    function _late(JobId id) private view returns (bool) {
        (, uint40 deadline,) = network.jobState(id);
        return vm.getBlockTimestamp() >= deadline;
    }

    function _seatOf(address worker) private view returns (uint32 seat) {
        while (workers[seat] != worker) ++seat;
    }

    function _operator(uint256 who) private view returns (address) {
        if (who < 5) return workers[who];
        return [scheduler, claimer, challenger, address(this)][who - 5];
    }
}
