// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IExtension} from "../../src/interfaces/IExtension.sol";
import "../../src/interfaces/ILedger.sol";
import "../../src/interfaces/IVeriLLM.sol";
import "../../src/interfaces/Types.sol";
import {Terms} from "../../src/parts/Terms.sol";
import {Network} from "../Network.sol";

contract TermsTest is Network {
    /// @notice The getter returns stored bytes by assembly; its plain twin is the struct that was given.
    function test_fuzz_config_returnsWhatTheConstructorTook(
        uint32 window,
        uint96 bond,
        uint16 shares
    ) public {
        terms.jobWindow = uint32(bound(window, 1, 1 hours));
        terms.claimBond = bond == 0 ? 1 : bond;
        terms.committeeBps = uint16(bound(shares, 1, 9999));
        terms.inferencerBps = 10_000 - terms.committeeBps;
        terms.schedulerBps = 0;
        IVeriLLM other = _deployNetwork();
        assertEq(keccak256(abi.encode(other.config())), keccak256(abi.encode(terms)));
    }

    function test_constructor_revertsForUnsafeTerms() public {
        terms.token = person("nobody");
        _expectUnsafe("token");
        terms.adjudicator = person("nobody");
        _expectUnsafe("adjudicator");
        terms.prover = person("nobody");
        _expectUnsafe("prover");
        terms.sealWindow = 0;
        _expectUnsafe("sealWindow");
        terms.openingWindow = 366 days;
        _expectUnsafe("openingWindow");
        // Posted and sealed 2 hours, summoned 4 + 1, a claim and three demands of it 2 + 3 * 3, a round 3 + 2, an
        // appeal 7.
        terms.unbonding = 30 hours;
        _expectUnsafe("unbonding");
        terms.unlockDelay = 1 hours - 1;
        _expectUnsafe("unlockDelay");
        terms.kappaBps = 9999;
        _expectUnsafe("kappaBps");
        terms.reserveBps = 10_000;
        _expectUnsafe("reserveBps");
        terms.schedulerBps += 1;
        _expectUnsafe("shares");
        terms.inferencerBps = 0;
        terms.schedulerBps = 8000;
        _expectUnsafe("inferencerBps");
        terms.committeeBps = 0;
        terms.schedulerBps = 3000;
        _expectUnsafe("committeeBps");
        terms.claimBond = 0;
        _expectUnsafe("claimBond");
        terms.challengeBond = 0;
        _expectUnsafe("challengeBond");
        terms.reverifyBond = 0;
        _expectUnsafe("reverifyBond");
        terms.recourse = person("nobody");
        _expectUnsafe("recourse");
    }

    /// @notice The longest path, added up by hand over windows of which none is a multiple of another.
    function test_constructor_demandsThatAStakeOutlivesTheLongestPath() public {
        _distinctWindows();
        uint256 path = 1009 + 2003 + (4 * 3001 + 2003); // posted, summoned
        path += 4001 + 5003 + 3 * (4001 + 5003 + 3001); // claimed, and demanded three times
        path += 3 * 3001 + 2 * 5003; // a public round
        path += 7 * 3001; // a re-verification
        terms.unbonding = uint32(path);
        _expectUnsafe("unbonding");
        _distinctWindows();
        terms.unbonding = uint32(path + 1);
        _deployNetwork();
    }

    function _distinctWindows() private {
        terms.jobWindow = 1009;
        terms.sealWindow = 2003;
        terms.openingWindow = 3001;
        terms.claimWindow = 4001;
        terms.disputeWindow = 5003;
    }

    function test_constructor_revertsForAnyWindowOfNothingOrOverAYear() public {
        for (uint256 i = 0; i < 2; ++i) {
            uint32 window = i == 0 ? 0 : uint32(365 days) + 1;
            terms.sealWindow = window;
            _expectUnsafe("sealWindow");
            terms.claimWindow = window;
            _expectUnsafe("claimWindow");
            terms.disputeWindow = window;
            _expectUnsafe("disputeWindow");
            terms.openingWindow = window;
            _expectUnsafe("openingWindow");
            terms.unbonding = window;
            _expectUnsafe("unbonding");
            terms.unlockDelay = window;
            _expectUnsafe("unlockDelay");
            terms.keyGrace = window;
            _expectUnsafe("keyGrace");
            terms.jobWindow = window;
            _expectUnsafe("jobWindow");
        }
    }

    function test_constructor_takesTermsAtTheirBounds() public {
        terms.unbonding = terms.keyGrace = uint32(365 days);
        terms.unlockDelay = terms.jobWindow;
        terms.kappaBps = 10_000;
        terms.reserveBps = 9999;
        terms.inferencerBps = 1;
        terms.committeeBps = 9999;
        terms.schedulerBps = 0;
        terms.claimBond = terms.challengeBond = terms.reverifyBond = 1;
        network = _deployNetwork();
        assertEq(keccak256(abi.encode(network.config())), keccak256(abi.encode(terms)));
    }

    function test_constructor_revertsForAnExtensionOfOtherTerms() public {
        terms.recourse = network.config().recourse;
        terms.claimBond += 1;
        _expectUnsafe("recourse");
    }

    function test_extension_revertsForANextOneOfOtherTerms() public {
        address next = network.config().recourse;
        bytes32 theirs = IExtension(next).termsHash();
        terms = _terms();
        terms.claimBond += 1;
        bytes memory made =
            abi.encodePacked(vm.getCode("Recourse.sol:Recourse"), abi.encode(terms, next));
        bytes memory failure = abi.encodeWithSelector(
            IExtension.TermsMismatch.selector, keccak256(abi.encode(terms)), theirs
        );
        assertEq(_refusal(made), failure);
    }

    function test_fallback_revertsWhereNobodyKnowsTheFunction() public {
        (bool done, bytes memory answer) =
            address(network).call(abi.encodeWithSignature("mint(address)", client));
        assertTrue(!done);
        bytes4 selector = bytes4(keccak256("mint(address)"));
        assertEq(answer, abi.encodeWithSelector(IExtension.FunctionUnknown.selector, selector));
    }

    function _expectUnsafe(bytes32 field) private {
        bytes memory code = abi.encodePacked(vm.getCode("VeriLLM.sol:VeriLLM"), abi.encode(terms));
        assertEq(_refusal(code), abi.encodeWithSelector(ILedger.ConfigUnsafe.selector, field));
        terms = _terms();
    }

    /// @dev What a constructor reverts with, empty where it does not. By hand: forge's `expectRevert` is content with
    /// whatever becomes of a creation.
    function _refusal(bytes memory code) private returns (bytes memory reason) {
        assembly ("memory-safe") {
            if iszero(create(0, add(code, 32), mload(code))) {
                let size := returndatasize()
                reason := mload(0x40)
                mstore(0x40, add(reason, and(add(size, 63), not(31))))
                mstore(reason, size)
                returndatacopy(add(reason, 32), 0, size)
            }
        }
    }

    // ── Shares: products of two unknowns, which no solver of ours decides; so they are sampled ──────

    function test_fuzz_shares_neverPassTheWhole(uint96 amount, uint256 first, uint256 second)
        public
    {
        first = bound(first, 0, 10_000);
        second = bound(second, 0, 10_000 - first);
        Shares shares = new Shares(terms);
        uint256 paid = shares.share(amount, first) + shares.share(amount, second)
            + shares.share(amount, 10_000 - first - second);
        assertLe(paid, amount);
        assertGe(paid + 2, amount);
    }

    function test_fuzz_demand_isTheShareRoundedUp(uint96 amount, uint256 value) public {
        value = bound(value, 0, type(uint32).max);
        Shares shares = new Shares(terms);
        uint256 demand = shares.demand(amount, value);
        uint256 share = shares.share(amount, value);
        assertLe(demand, share + 1);
        assertGe(demand, share);
        assertGe(demand * 10_000, uint256(amount) * value);
    }
}

contract Shares is Terms {
    constructor(Config memory terms) Terms(terms) {}

    function share(uint256 amount, uint256 value) external pure returns (uint256) {
        return _share(amount, value);
    }

    function demand(uint256 amount, uint256 value) external pure returns (uint256) {
        return _demand(amount, value);
    }
}
