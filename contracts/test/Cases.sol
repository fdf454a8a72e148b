// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import "../src/interfaces/ILedger.sol";
import "../src/interfaces/IVeriLLM.sol";
import "../src/interfaces/Types.sol";
import {Round} from "./Round.sol";

/// @notice Jobs brought to the state that a test is about, with parties that can open.
abstract contract Cases is Round {
    address internal constant DEAD = 0x000000000000000000000000000000000000dEaD;
    uint256 internal constant ALL = 15;

    function _spec() internal view virtual override returns (ModelSpec memory spec) {
        spec = super._spec();
        spec.hidden = 16;
        spec.sliceDims = 16;
        spec.checkedRequests = 1;
    }

    /// @dev Sealed.
    function _committed() internal returns (Case memory c) {
        c = _order(1);
        _post(c);
        _seal(c);
        pass(12);
    }

    function _claimed(Outcome outcome, uint8 reason) internal returns (Case memory c) {
        c = _committed();
        _claim(c, outcome, reason);
    }

    /// @dev Challenged, and everything compared.
    function _opened(Outcome outcome, uint8 reason) internal returns (Case memory c) {
        c = _claimed(outcome, reason);
        _challenge(c);
        _openAll(c);
    }

    function _judged(Outcome outcome, uint8 reason) internal returns (Case memory c) {
        c = _opened(outcome, reason);
        network.adjudicate(c.posting, c.sealing, c.claiming);
    }

    function _openAll(Case memory c) internal {
        _reveal(c);
        _compareAll(c, ALL);
    }

    /// @dev Lets the claim deadline pass.
    function _unclaimed() internal returns (Case memory c) {
        c = _committed();
        network.keep(c.sealing.sealedBlock);
        c.claiming.beacon = blockhash(c.sealing.sealedBlock);
        pass(terms.claimWindow);
    }

    function _expectStatus(Case memory c, Status actual, Status expected) internal {
        vm.expectRevert(
            abi.encodeWithSelector(ILedger.StatusWrong.selector, c.id, actual, expected)
        );
    }

    /// @dev Nothing stays locked, and all money is with somebody or dead.
    function _assertConserved() internal {
        uint256 sum = _deposited();
        for (uint256 i = 0; i < 5; ++i) {
            sum += _balance(workers[i]);
            assertEq(_locked(workers[i]), 0, "worker");
        }
        address[6] memory others =
            [scheduler, claimer, challenger, address(this), person("stranger"), person("poor")];
        for (uint256 i = 0; i < 6; ++i) {
            sum += _balance(others[i]);
            assertEq(_locked(others[i]), 0, "other");
        }
        assertEq(sum, token.balanceOf(address(network)), "held");
        assertEq(sum + token.balanceOf(DEAD), 9000 ether, "in = held + burnt");
    }
}
