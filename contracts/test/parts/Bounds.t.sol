// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.30;

import {IAppeals} from "../../src/interfaces/IAppeals.sol";
import "../../src/interfaces/Types.sol";
import {Supplying} from "../Supplying.sol";

/// @notice Nobody is drawn, and put to lose a lock, for a text that no worker can run, whoever signed it.
contract BoundsTest is Supplying {
    function test_reverify_revertsForWhatNoWorkerCanRun() public {
        Content memory odd;
        (odd = _sane(40, 9)).sampling.temperature = 2_000_001;
        _refuse(odd, "temperature");
        (odd = _sane(40, 9)).sampling.topP = 0;
        _refuse(odd, "topP");
        (odd = _sane(40, 9)).sampling.topP = 1_000_001;
        _refuse(odd, "topP");
        (odd = _sane(40, 9)).sampling.minP = 1_000_001;
        _refuse(odd, "minP");
        (odd = _sane(40, 9)).maxNewTokens = 0;
        _refuse(odd, "newTokens");
        (odd = _sane(40, 9)).maxNewTokens = 8;
        _refuse(odd, "newTokens");
        (odd = _sane(40, 9)).maxNewTokens = 4057;
        _refuse(odd, "context");
        (odd = _sane(40, 9)).maxNewTokens = type(uint32).max;
        _refuse(odd, "context");
        (odd = _sane(40, 9)).tokens[4 * 39 + 2] = 0x02; // 512 and more
        _refuse(odd, "vocabulary");
        (odd = _sane(40, 9)).output[4 * 8 + 2] = 0x02;
        _refuse(odd, "vocabulary");
        (odd = _sane(40, 9)).output[0] = 0x80;
        _refuse(odd, "vocabulary");
    }

    /// @notice The bounds are those of `verillm.request.check_request`, both ends included.
    function test_reverify_takesWhatLiesAtEachBound() public {
        Content memory most = _sane(40, 9);
        most.maxNewTokens = 4056;
        most.sampling = Sampling(2_000_000, type(uint32).max, 1, 1_000_000);
        (most.tokens[2], most.tokens[3]) = (0x01, 0xff);
        (most.output[34], most.output[35]) = (0x01, 0xff);
        Case memory c = _claimedJob(most);
        _reverify(c, _all());
        (AppealPhase phase,,) = network.appealOf(c.id);
        assertEq(uint8(phase), uint8(AppealPhase.Complete));
        c = _claimedJob(_sane(1, 1));
        _reverify(c, _all());
        (phase,,) = network.appealOf(c.id);
        assertEq(uint8(phase), uint8(AppealPhase.Complete));
    }

    /// @notice What comes later is held to the same: else only the first call would be.
    function test_supply_revertsForWhatNoWorkerCanRun() public {
        Content memory odd = _sane(40, 9);
        odd.output[34] = 0x02;
        Case memory c = _claimedJob(odd);
        _reverify(c, new Content[](0));
        vm.expectRevert(_outOfBounds("vocabulary"));
        network.supply(c.posting, c.sealing, c.claiming, _all());
    }

    /// @notice A text that is not even the job's is refused as that.
    function test_reverify_namesAnotherTextFirst() public {
        Content memory odd = _sane(40, 9);
        Case memory c = _claimedJob(odd);
        odd.sampling.topP = 0;
        Content[] memory contents = new Content[](1);
        contents[0] = odd;
        vm.expectRevert(
            abi.encodeWithSelector(IAppeals.ContentInvalid.selector, 0, bytes32("request"))
        );
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
    }

    function _refuse(Content memory odd, bytes32 bound) private {
        Case memory c = _claimedJob(odd);
        Content[] memory contents = _all();
        vm.expectRevert(_outOfBounds(bound));
        vm.prank(requester);
        network.reverify(c.posting, c.sealing, c.claiming, contents);
    }

    function _outOfBounds(bytes32 bound) private pure returns (bytes memory) {
        return abi.encodeWithSelector(IAppeals.ContentOutOfBounds.selector, 0, bound);
    }
}
