// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

/// @notice What forge's cheatcode address answers to, as far as our tests ask.
/// @dev Forge implements each function by its selector: add a line here to use another one.
interface Vm {
    struct Log {
        bytes32[] topics;
        bytes data;
        address emitter;
    }

    struct Gas {
        uint64 gasLimit;
        uint64 gasTotalUsed;
        uint64 gasMemoryUsed;
        int64 gasRefunded;
        uint64 gasRemaining;
    }

    // Who calls, and with what.
    function prank(address sender) external;
    function prank(address sender, address origin) external;
    function startPrank(address sender) external;
    function stopPrank() external;
    function deal(address who, uint256 balance) external;
    function label(address who, string calldata name) external;
    function addr(uint256 key) external pure returns (address);
    function sign(uint256 key, bytes32 digest) external pure returns (uint8 v, bytes32 r, bytes32 s);
    function signCompact(uint256 key, bytes32 digest) external pure returns (bytes32 r, bytes32 vs);

    // When and where: solc may cache `block.*` across these, so read time and height back from here.
    function warp(uint256 timestamp) external;
    function roll(uint256 number) external;
    function getBlockTimestamp() external view returns (uint256);
    function getBlockNumber() external view returns (uint256);
    function setBlockhash(uint256 number, bytes32 blockHash) external;
    function prevrandao(bytes32 value) external;
    function chainId(uint256 id) external;
    function fee(uint256 baseFee) external;
    function coinbase(address producer) external;

    // State of accounts.
    function etch(address where, bytes calldata code) external;
    function load(address where, bytes32 slot) external view returns (bytes32);
    function store(address where, bytes32 slot, bytes32 value) external;
    function getNonce(address who) external view returns (uint64);
    function snapshotState() external returns (uint256 id);
    function revertToState(uint256 id) external returns (bool);
    function mockCall(address callee, bytes calldata data, bytes calldata result) external;
    function mockCallRevert(address callee, bytes calldata data, bytes calldata revertData) external;
    function clearMockedCalls() external;

    // What the next call must do.
    function expectRevert() external;
    function expectRevert(bytes4 selector) external;
    function expectRevert(bytes calldata revertData) external;
    function expectRevert(bytes4 selector, address reverter) external;
    function expectRevert(bytes calldata revertData, address reverter) external;
    function expectPartialRevert(bytes4 selector) external;
    function expectEmit() external;
    function expectEmit(address emitter) external;
    function expectEmit(bool topic1, bool topic2, bool topic3, bool data) external;
    function expectEmit(bool topic1, bool topic2, bool topic3, bool data, address emitter) external;
    function expectCall(address callee, bytes calldata data) external;
    function expectCall(address callee, uint256 value, bytes calldata data) external;
    function recordLogs() external;
    function getRecordedLogs() external returns (Log[] memory);

    // Inputs of fuzz runs.
    function assume(bool condition) external pure;
    function randomUint() external view returns (uint256);
    function randomUint(uint256 min, uint256 max) external view returns (uint256);
    function randomAddress() external view returns (address);
    function skip(bool skipTest) external;

    // Gas: measured by name into contracts/test/gas, or read for an assertion.
    function snapshotGasLastCall(string calldata name) external returns (uint256);
    function snapshotGasLastCall(string calldata group, string calldata name)
        external
        returns (uint256);
    function startSnapshotGas(string calldata name) external;
    function stopSnapshotGas() external returns (uint256);
    function lastCallGas() external view returns (Gas memory);
    function pauseGasMetering() external;
    function resumeGasMetering() external;

    // Files: the vectors that Python reads, too.
    function readFile(string calldata path) external view returns (string memory);
    function getCode(string calldata artifact) external view returns (bytes memory);
    function keyExistsJson(string calldata json, string calldata key) external view returns (bool);
    function parseJson(string calldata json) external pure returns (bytes memory);
    function parseJson(string calldata json, string calldata key)
        external
        pure
        returns (bytes memory);
    function parseJsonKeys(string calldata json, string calldata key)
        external
        pure
        returns (string[] memory);
    function parseJsonUint(string calldata json, string calldata key)
        external
        pure
        returns (uint256);
    function parseJsonUintArray(string calldata json, string calldata key)
        external
        pure
        returns (uint256[] memory);
    function parseJsonInt(string calldata json, string calldata key) external pure returns (int256);
    function parseJsonIntArray(string calldata json, string calldata key)
        external
        pure
        returns (int256[] memory);
    function parseJsonBool(string calldata json, string calldata key) external pure returns (bool);
    function parseJsonBoolArray(string calldata json, string calldata key)
        external
        pure
        returns (bool[] memory);
    function parseJsonAddress(string calldata json, string calldata key)
        external
        pure
        returns (address);
    function parseJsonAddressArray(string calldata json, string calldata key)
        external
        pure
        returns (address[] memory);
    function parseJsonString(string calldata json, string calldata key)
        external
        pure
        returns (string memory);
    function parseJsonStringArray(string calldata json, string calldata key)
        external
        pure
        returns (string[] memory);
    function parseJsonBytes(string calldata json, string calldata key)
        external
        pure
        returns (bytes memory);
    function parseJsonBytesArray(string calldata json, string calldata key)
        external
        pure
        returns (bytes[] memory);
    function parseJsonBytes32(string calldata json, string calldata key)
        external
        pure
        returns (bytes32);
    function parseJsonBytes32Array(string calldata json, string calldata key)
        external
        pure
        returns (bytes32[] memory);

    // Text, for keys and messages.
    function toString(uint256 value) external pure returns (string memory);
    function toString(int256 value) external pure returns (string memory);
    function toString(address value) external pure returns (string memory);
    function toString(bytes32 value) external pure returns (string memory);
    function toString(bytes calldata value) external pure returns (string memory);

    // Claims: each one reverts with both values and the reason.
    function assertTrue(bool condition, string calldata reason) external pure;
    function assertFalse(bool condition, string calldata reason) external pure;
    function assertEq(bool left, bool right, string calldata reason) external pure;
    function assertEq(uint256 left, uint256 right, string calldata reason) external pure;
    function assertEq(int256 left, int256 right, string calldata reason) external pure;
    function assertEq(address left, address right, string calldata reason) external pure;
    function assertEq(bytes32 left, bytes32 right, string calldata reason) external pure;
    function assertEq(string calldata left, string calldata right, string calldata reason)
        external
        pure;
    function assertEq(bytes calldata left, bytes calldata right, string calldata reason)
        external
        pure;
    function assertEq(uint256[] calldata left, uint256[] calldata right, string calldata reason)
        external
        pure;
    function assertEq(int256[] calldata left, int256[] calldata right, string calldata reason)
        external
        pure;
    function assertEq(address[] calldata left, address[] calldata right, string calldata reason)
        external
        pure;
    function assertEq(bytes32[] calldata left, bytes32[] calldata right, string calldata reason)
        external
        pure;
    function assertNotEq(uint256 left, uint256 right, string calldata reason) external pure;
    function assertNotEq(address left, address right, string calldata reason) external pure;
    function assertNotEq(bytes32 left, bytes32 right, string calldata reason) external pure;
    function assertLt(uint256 left, uint256 right, string calldata reason) external pure;
    function assertLt(int256 left, int256 right, string calldata reason) external pure;
    function assertLe(uint256 left, uint256 right, string calldata reason) external pure;
    function assertLe(int256 left, int256 right, string calldata reason) external pure;
    function assertGt(uint256 left, uint256 right, string calldata reason) external pure;
    function assertGt(int256 left, int256 right, string calldata reason) external pure;
    function assertGe(uint256 left, uint256 right, string calldata reason) external pure;
    function assertGe(int256 left, int256 right, string calldata reason) external pure;
    function assertApproxEqAbs(
        uint256 left,
        uint256 right,
        uint256 tolerance,
        string calldata reason
    ) external pure;
}

/// @notice What tests and invariant handlers share: the cheatcodes and small helpers over them.
abstract contract Cheats {
    Vm internal constant vm = Vm(address(uint160(uint256(keccak256("hevm cheat code")))));

    /// @notice Maps any `x` onto `min..max`, both included; what already lies there stays.
    function bound(uint256 x, uint256 min, uint256 max) internal pure returns (uint256) {
        require(min <= max, "bound: empty range");
        if (x >= min && x <= max) return x;
        uint256 size = max - min; // one less than the count, which may not fit
        return size == type(uint256).max ? x : min + x % (size + 1);
    }

    /// @notice The signed twin of `bound`, over the order-preserving shift of int256 onto uint256.
    function bound(int256 x, int256 min, int256 max) internal pure returns (int256) {
        uint256 shift = 1 << 255;
        return int256(bound(uint256(x) ^ shift, uint256(min) ^ shift, uint256(max) ^ shift) ^ shift);
    }

    /// @notice An account with a name in traces and a key to sign with.
    function account(string memory name) internal returns (address who, uint256 key) {
        key = uint256(keccak256(bytes(name))) >> 1; // below the curve's order
        who = vm.addr(key);
        vm.label(who, name);
    }

    /// @notice The address alone of `account(name)`.
    function person(string memory name) internal returns (address who) {
        (who,) = account(name);
    }

    /// @notice `digest` signed with `key`, as r ‖ s ‖ v: what ECDSA.recover reads.
    function signature(uint256 key, bytes32 digest) internal pure returns (bytes memory) {
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    /// @notice Lets time pass, at twelve seconds a block.
    function pass(uint256 duration) internal {
        vm.roll(vm.getBlockNumber() + duration / 12);
        vm.warp(vm.getBlockTimestamp() + duration);
    }

    /// @notice A file of tests/vectors.
    function vectors(string memory file) internal view returns (string memory) {
        return vm.readFile(string.concat("tests/vectors/", file));
    }
}

/// @notice Base of every test contract: claims, and what an invariant run may call.
abstract contract Test is Cheats {
    struct FuzzSelector {
        address addr;
        bytes4[] selectors;
    }

    bool public constant IS_TEST = true;

    address[] private _targets;
    address[] private _senders;
    FuzzSelector[] private _selectors;

    /// @notice Forge asks: the contracts that an invariant run calls.
    function targetContracts() external view returns (address[] memory) {
        return _targets;
    }

    /// @notice Forge asks: their functions, where not all.
    function targetSelectors() external view returns (FuzzSelector[] memory) {
        return _selectors;
    }

    /// @notice Forge asks: who calls them.
    function targetSenders() external view returns (address[] memory) {
        return _senders;
    }

    function _target(address handler) internal {
        _targets.push(handler);
    }

    function _target(address handler, bytes4[] memory selectors) internal {
        _targets.push(handler);
        _selectors.push(FuzzSelector(handler, selectors));
    }

    function _targetSender(address sender) internal {
        _senders.push(sender);
    }

    function assertTrue(bool condition) internal pure {
        vm.assertTrue(condition, "");
    }

    function assertTrue(bool condition, string memory reason) internal pure {
        vm.assertTrue(condition, reason);
    }

    function assertFalse(bool condition) internal pure {
        vm.assertFalse(condition, "");
    }

    function assertFalse(bool condition, string memory reason) internal pure {
        vm.assertFalse(condition, reason);
    }

    function assertEq(bool left, bool right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(bool left, bool right, string memory reason) internal pure {
        vm.assertEq(left, right, reason);
    }

    function assertEq(uint256 left, uint256 right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(uint256 left, uint256 right, string memory reason) internal pure {
        vm.assertEq(left, right, reason);
    }

    function assertEq(int256 left, int256 right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(int256 left, int256 right, string memory reason) internal pure {
        vm.assertEq(left, right, reason);
    }

    function assertEq(address left, address right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(address left, address right, string memory reason) internal pure {
        vm.assertEq(left, right, reason);
    }

    function assertEq(bytes32 left, bytes32 right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(bytes32 left, bytes32 right, string memory reason) internal pure {
        vm.assertEq(left, right, reason);
    }

    function assertEq(string memory left, string memory right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(string memory left, string memory right, string memory reason) internal pure {
        vm.assertEq(left, right, reason);
    }

    function assertEq(bytes memory left, bytes memory right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(bytes memory left, bytes memory right, string memory reason) internal pure {
        vm.assertEq(left, right, reason);
    }

    function assertEq(uint256[] memory left, uint256[] memory right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(uint256[] memory left, uint256[] memory right, string memory reason)
        internal
        pure
    {
        vm.assertEq(left, right, reason);
    }

    function assertEq(int256[] memory left, int256[] memory right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(int256[] memory left, int256[] memory right, string memory reason)
        internal
        pure
    {
        vm.assertEq(left, right, reason);
    }

    function assertEq(address[] memory left, address[] memory right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(address[] memory left, address[] memory right, string memory reason)
        internal
        pure
    {
        vm.assertEq(left, right, reason);
    }

    function assertEq(bytes32[] memory left, bytes32[] memory right) internal pure {
        vm.assertEq(left, right, "");
    }

    function assertEq(bytes32[] memory left, bytes32[] memory right, string memory reason)
        internal
        pure
    {
        vm.assertEq(left, right, reason);
    }

    function assertNotEq(uint256 left, uint256 right) internal pure {
        vm.assertNotEq(left, right, "");
    }

    function assertNotEq(uint256 left, uint256 right, string memory reason) internal pure {
        vm.assertNotEq(left, right, reason);
    }

    function assertNotEq(address left, address right) internal pure {
        vm.assertNotEq(left, right, "");
    }

    function assertNotEq(address left, address right, string memory reason) internal pure {
        vm.assertNotEq(left, right, reason);
    }

    function assertNotEq(bytes32 left, bytes32 right) internal pure {
        vm.assertNotEq(left, right, "");
    }

    function assertNotEq(bytes32 left, bytes32 right, string memory reason) internal pure {
        vm.assertNotEq(left, right, reason);
    }

    function assertLt(uint256 left, uint256 right) internal pure {
        vm.assertLt(left, right, "");
    }

    function assertLt(uint256 left, uint256 right, string memory reason) internal pure {
        vm.assertLt(left, right, reason);
    }

    function assertLt(int256 left, int256 right) internal pure {
        vm.assertLt(left, right, "");
    }

    function assertLt(int256 left, int256 right, string memory reason) internal pure {
        vm.assertLt(left, right, reason);
    }

    function assertLe(uint256 left, uint256 right) internal pure {
        vm.assertLe(left, right, "");
    }

    function assertLe(uint256 left, uint256 right, string memory reason) internal pure {
        vm.assertLe(left, right, reason);
    }

    function assertLe(int256 left, int256 right) internal pure {
        vm.assertLe(left, right, "");
    }

    function assertLe(int256 left, int256 right, string memory reason) internal pure {
        vm.assertLe(left, right, reason);
    }

    function assertGt(uint256 left, uint256 right) internal pure {
        vm.assertGt(left, right, "");
    }

    function assertGt(uint256 left, uint256 right, string memory reason) internal pure {
        vm.assertGt(left, right, reason);
    }

    function assertGt(int256 left, int256 right) internal pure {
        vm.assertGt(left, right, "");
    }

    function assertGt(int256 left, int256 right, string memory reason) internal pure {
        vm.assertGt(left, right, reason);
    }

    function assertGe(uint256 left, uint256 right) internal pure {
        vm.assertGe(left, right, "");
    }

    function assertGe(uint256 left, uint256 right, string memory reason) internal pure {
        vm.assertGe(left, right, reason);
    }

    function assertGe(int256 left, int256 right) internal pure {
        vm.assertGe(left, right, "");
    }

    function assertGe(int256 left, int256 right, string memory reason) internal pure {
        vm.assertGe(left, right, reason);
    }

    function assertApproxEqAbs(uint256 left, uint256 right, uint256 tolerance) internal pure {
        vm.assertApproxEqAbs(left, right, tolerance, "");
    }
}
